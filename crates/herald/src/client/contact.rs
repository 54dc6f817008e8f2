//! From what the command line says to a client of the agent.

mod explain;

use std::{cell::RefCell, future::Future, time::Duration};

use herald_client::{
    Client, ClientBuilder, Credential, Discovered, OAuth, Outgoing, Secrets, Source, TaskId,
    Timeouts,
};
use herald_protocol::{
    AgentCard, ErrorKind, Version, card::AgentInterface, security::SecurityScheme,
    version::VERSION_HEADER,
};
use http::HeaderValue;
use tokio::{signal, time::sleep};

use crate::{
    args::{AgentArgs, Hidden, VERSIONS},
    client::{
        catalog,
        credentials::{Login, Logins},
        fault::{Fault, Kind},
        layers::Layers,
        reference::{self, PROGRAM, looks_like_one},
        trust::Trust,
        wire::Wire,
    },
    output::{Output, describe, progress, quoted, warn},
};

/// The shortest pause between two looks at a task: nobody is asked without a break.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

/// One agent, as the command line names it, and one verb's way to it.
#[derive(Debug)]
pub(crate) struct Contact {
    args: AgentArgs,
    reference: String,
    /// Whether a setting names the agent, and not the command line.
    by_setting: bool,
    trust: Trust,
    pub(crate) out: Output,
    /// What must not be shown.
    secrets: Secrets,
    /// Whether there is a name to log in with, given or kept.
    can_log_in: bool,
    /// True if a kept login is used with whatever secret and scopes it was made.
    pub(crate) takes_any_login: bool,
    /// The task that the verb is about, as soon as it is known: who stops waiting can go on later.
    seen: RefCell<Option<TaskId>>,
}

impl Contact {
    /// `positional` is an agent that was named without a flag.
    pub(crate) fn new(args: &AgentArgs, positional: Option<&str>) -> Result<Self, Fault> {
        let named = positional.or(args.agent_card.as_deref());
        let reference = named.ok_or_else(|| {
            Fault::usage("no agent is named")
                .hint("add -a REF, such as -a localhost:8000, or set A2ACLI_AGENT_CARD")
        })?;
        let out = Output::new(&args.output);
        let trust = Trust::read(&args.trust)?;
        let can_log_in = args.login.client_id.is_some() || any_login();
        if trust.is_blind() {
            let credential = args.bearer.is_some() || args.api_key.is_some() || can_log_in;
            warn("certificates are not checked (--insecure): anybody can pretend to be the agent");
            if credential || trust.has_certificate() {
                warn("SECURITY: a credential goes to a server whose certificate is not checked");
            }
        }
        let secrets = Secrets::default();
        for parameter in &args.svc_param {
            secrets.add(&String::from_utf8_lossy(parameter.value.as_bytes()));
        }
        let given = [&args.bearer, &args.api_key, &args.login.client_secret];
        given.into_iter().flatten().for_each(|secret| secrets.add(&secret.0));
        Ok(Self {
            args: args.clone(),
            reference: reference.to_owned(),
            by_setting: positional.is_none() && !args.again.named,
            trust,
            out,
            secrets,
            can_log_in,
            takes_any_login: false,
            seen: RefCell::default(),
        })
    }

    /// Keeps more secrets out of what is printed.
    pub(crate) fn hide<'a>(&self, secrets: impl IntoIterator<Item = &'a Hidden>) {
        secrets.into_iter().for_each(|secret| self.secrets.add(&secret.0));
    }

    /// Does `work` within the time that the verb may take, unless it is interrupted. Why it failed may
    /// be told in the agent's words, which may repeat what the agent was sent.
    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let patience = self.args.timeout;
        let late = async {
            match patience.is_zero() {
                true => std::future::pending().await,
                false => sleep(patience).await,
            }
        };
        tokio::select! {
            done = work => done.map_err(|fault| fault.without(&self.secrets)),
            () = late => {
                let text = format!("not done within {}", humantime::format_duration(patience));
                Err(self.left(Fault::new(Kind::Timeout, text)))
            }
            _ = signal::ctrl_c() => Err(self.left(Fault::new(Kind::Interrupted, "interrupted"))),
        }
    }

    /// Says how to come back to the task that is left.
    fn left(&self, fault: Fault) -> Fault {
        match &*self.seen.borrow() {
            Some(task) => {
                let again = format!("{} --wait", quoted(task.as_str()));
                let again = self.command("task get", &again);
                fault.hint(format!("the task goes on; wait for it with: {again}"))
            }
            None => fault,
        }
    }

    /// Keeps the task that the verb is about.
    pub(crate) fn remember(&self, task: &TaskId) {
        let mut seen = self.seen.borrow_mut();
        if seen.as_ref() != Some(task) {
            progress(&format!("task {task}"));
            *seen = Some(task.clone());
        }
    }

    /// A command line that calls the same agent.
    pub(crate) fn command(&self, verb: &str, rest: &str) -> String {
        let (agent, flags) = (quoted(&self.reference), &self.args.again.flags);
        let command = format!("herald {verb} -a {agent}{flags} {rest}");
        command.trim_end().to_owned()
    }

    /// The interface that would be called, if there is one.
    pub(crate) fn selected(&self, discovered: &Discovered) -> Option<String> {
        let preferred: Vec<_> = self.args.transport.iter().copied().map(Into::into).collect();
        let interface = discovered.selected(&preferred, self.version())?;
        let AgentInterface { protocol_binding, protocol_version, url, .. } = interface;
        Some(format!("{protocol_binding} {protocol_version} {url}"))
    }

    /// Refuses to go on without a credential that a scheme of the card takes.
    pub(crate) fn needs_declared_credential(&self, card: &AgentCard) -> Result<(), Fault> {
        if card.security_schemes.values().any(|scheme| self.has_for(scheme)) {
            return Ok(());
        }
        let wanted: Vec<_> = card.security_schemes.values().map(describe).collect();
        let text = match wanted.is_empty() {
            true => "the card declares no way to sign in, so no credential is shown".to_owned(),
            false => format!("the agent wants one of: {}", wanted.join(", ")),
        };
        let fault = Fault::new(Kind::CredentialsMissing, text);
        Err(match wanted.is_empty() {
            true => fault,
            false => fault.hint(self.remedy(card)),
        })
    }

    /// Whether there is a credential that a scheme takes.
    fn has_for(&self, scheme: &SecurityScheme) -> bool {
        match scheme {
            SecurityScheme::ApiKey(_) => self.args.api_key.is_some(),
            SecurityScheme::Http(http) => {
                self.args.bearer.is_some() && http.scheme.eq_ignore_ascii_case("bearer")
            }
            // Without a login the call says so.
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => {
                self.args.bearer.is_some() || self.can_log_in
            }
            SecurityScheme::MutualTls(_) => self.trust.has_certificate(),
        }
    }

    /// How to give the credentials that a card asks for.
    pub(crate) fn remedy(&self, card: &AgentCard) -> String {
        let remedy = |scheme: &SecurityScheme| match scheme {
            SecurityScheme::ApiKey(_) => {
                format!("give the key with A2ACLI_API_KEY ({})", describe(scheme))
            }
            SecurityScheme::Http(http) if http.scheme.eq_ignore_ascii_case("bearer") => {
                "give the token with A2ACLI_BEARER".to_owned()
            }
            SecurityScheme::Http(_) => {
                format!("{} is not spoken by this program", describe(scheme))
            }
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => {
                format!("log in with: {}", self.command("auth login", "--client-id ID"))
            }
            SecurityScheme::MutualTls(_) => "show a certificate with --client-cert".to_owned(),
        };
        let mut ways: Vec<_> = card.security_schemes.values().map(remedy).collect();
        ways.dedup();
        match ways.is_empty() {
            true => "the card does not say what the agent takes; most take a token, given with \
                     A2ACLI_BEARER"
                .to_owned(),
            false => ways.join("; or "),
        }
    }

    /// Fetches the card. Whoever keeps it is shown no credential: it has declared none.
    pub(crate) async fn discover(&self) -> Result<Discovered, Fault> {
        let mut places = self.places().await?.into_iter().peekable();
        loop {
            let place = places.next().expect("a reference names a place");
            // Boxed, as all that may happen on the way is in it.
            let fault = match Box::pin(self.builder().discover(place.clone())).await {
                Ok(discovered) => match self.no_card_in(&discovered) {
                    None => return Ok(discovered),
                    Some(fault) => self.with_origin(fault),
                },
                Err(error) if error.is_connect() => return Err(self.no_card(&place, &error)),
                Err(error) => self.no_card(&place, &error),
            };
            // What is no card may still be the place of one.
            if places.peek().is_none() {
                let document = match fault.kind() == Kind::CardInvalid {
                    true => Box::pin(self.builder().fetch(&place)).await.ok(),
                    false => None,
                };
                let entries = document.map(|document| catalog::entries(&document));
                return Err(match entries.filter(|entries| !entries.is_empty()) {
                    Some(entries) => self.is_catalog(&entries),
                    None => fault,
                });
            }
        }
    }

    /// Where the card may be: as the reference says, or the catalog's entry that it names.
    async fn places(&self) -> Result<Vec<Source>, Fault> {
        let Some((catalog, name)) = catalog::split(&self.reference) else {
            return reference::places(&self.reference);
        };
        let catalog = reference::places(catalog)?.swap_remove(0);
        let document = Box::pin(self.builder().fetch(&catalog)).await;
        let document = document.map_err(|error| self.no_card(&catalog, &error))?;
        let found = catalog::find(&document, name).map_err(|fault| self.with_origin(fault))?;
        let places = catalog::resolve(&catalog, &found)?;
        // Who has the catalog does not decide who gets the credentials.
        let found = places.first().and_then(Source::origin);
        if let (Some(own), Some(found)) = (catalog.origin(), found)
            && self.carries_secrets()
        {
            let named = self.args.trust_origin.iter().filter_map(|url| Source::exact(url).ok());
            if found != own && !named.filter_map(|url| url.origin()).any(|origin| origin == found) {
                let text = "the catalog leads elsewhere, and credentials are not sent there";
                let hint = format!("if you trust it, name it with --trust-origin {found}");
                return Err(Fault::usage(text).hint(hint));
            }
        }
        Ok(places)
    }

    /// Whether calls hold what only the agent that was named should see. A service parameter may well
    /// be a key.
    fn carries_secrets(&self) -> bool {
        let args = &self.args;
        let secrets = [&args.bearer, &args.api_key, &args.login.client_secret];
        secrets.into_iter().any(Option::is_some) || !args.svc_param.is_empty()
    }

    /// Calls the agent.
    pub(crate) async fn connect(&self) -> Result<Client, Fault> {
        let discovered = self.discover().await?;
        self.call(discovered)
    }

    /// Calls the agent of a card.
    pub(crate) fn call(&self, mut discovered: Discovered) -> Result<Client, Fault> {
        self.check_interfaces(discovered.card())?;
        let required = discovered.card().capabilities.extensions.iter();
        let required: Vec<_> = required.filter(|one| one.required).map(|one| &one.uri).collect();
        let mut named = self.args.extension.clone();
        for uri in required {
            if !named.contains(uri) {
                named.push(uri.clone());
            }
        }
        for uri in named {
            discovered = discovered.extension(uri);
        }
        if let Some(token) = &self.args.bearer {
            discovered = discovered.credential(Credential::bearer(&token.0));
        }
        if let Some(key) = &self.args.api_key {
            discovered = discovered.credential(Credential::api_key(&key.0));
        }
        if self.args.bearer.is_none()
            && self.args.api_key.is_none()
            && let Some(oauth) = self.login(&discovered)?
        {
            discovered = discovered.credential(Credential::oauth(oauth));
        }
        let client = discovered.client().map_err(|error| {
            let fault = Fault::usage(error.to_string());
            if error.untrusted_origin().is_some() {
                return fault.hint("if both are the same agent's, add --trust-origin URL");
            }
            let card = self.command("card get", "");
            fault.hint(format!("see what the agent takes with: {card}"))
        })?;
        if self.args.output.debug == Some(true) {
            let AgentInterface { protocol_binding, protocol_version, url, .. } = client.interface();
            let chosen = format!("calling {protocol_binding} {protocol_version} at {url}");
            crate::output::note("Debug", &chosen);
        }
        Ok(client)
    }

    /// Whose logins are used for an agent.
    pub(crate) fn owner(&self, discovered: &Discovered) -> String {
        owner(discovered.source())
    }

    /// What there is to get tokens for an agent with, if its card says where they are to be had: the
    /// login that was kept, the name of a program, or both.
    fn login(&self, discovered: &Discovered) -> Result<Option<OAuth>, Fault> {
        let wanted = |scheme: &SecurityScheme| {
            matches!(scheme, SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_))
        };
        if !discovered.card().security_schemes.values().any(wanted) {
            return Ok(None);
        }
        let given = &self.args.login;
        let (owner, logins) = (self.owner(discovered), Logins::of_user().ok());
        let kept = match &logins {
            Some(logins) => logins.read()?.remove(&owner),
            None => None,
        };
        let kept = kept.filter(|kept| self.takes_any_login || kept.fits(given));
        let client_id =
            given.client_id.clone().or(kept.as_ref().map(|kept| kept.client_id.clone()));
        let Some(client_id) = client_id else { return Ok(None) };
        let mut oauth = OAuth::client(&client_id);
        if let Some(secret) = &given.client_secret {
            oauth = oauth.secret(&secret.0);
        }
        for scope in &given.scope {
            oauth = oauth.scope(scope);
        }
        if let Some(kept) = kept {
            self.secrets.add_token(&kept.token());
            oauth = oauth.token(kept.token());
        }
        let (secrets, given) = (self.secrets.clone(), given.clone());
        Ok(Some(oauth.on_token(move |token| {
            secrets.add_token(token);
            let login = Login::new(&given, &client_id, token);
            let owner = owner.clone();
            let saved =
                logins.as_ref().map(|logins| logins.change(|all| drop(all.insert(owner, login))));
            if let Some(Err(fault)) = saved {
                warn(fault.message());
            }
        })))
    }

    fn builder(&self) -> ClientBuilder {
        let args = &self.args;
        let patience = match args.timeout.is_zero() {
            true => Duration::from_secs(u64::from(u32::MAX)),
            false => args.timeout,
        };
        let defaults = Timeouts::default();
        let timeouts = Timeouts {
            call: defaults.call.min(patience),
            send: patience,
            poll: args.poll_interval.max(SHORTEST_POLL),
            ..defaults
        };
        let mut builder = self
            .trust
            .apply(Client::builder())
            .timeouts(timeouts)
            .prefer(args.transport.iter().copied().map(Into::into))
            .version(match self.version() {
                Version::V0_2 => Version::V0_3,
                version => version,
            });
        for origin in &args.trust_origin {
            builder = builder.trust_origin(origin);
        }
        let version = self.version().to_string();
        let version = HeaderValue::try_from(version).expect("digits and a dot");
        if !args.svc_param.is_empty() {
            builder = builder.confine();
        }
        let parameters = args.svc_param.clone();
        builder = builder.intercept(move |call: &mut Outgoing| {
            // The client names 1.0 by itself, but no older version.
            call.headers.insert(VERSION_HEADER, version.clone());
            for parameter in &parameters {
                call.headers.append(parameter.name.clone(), parameter.value.clone());
            }
            Ok(())
        });
        if args.output.debug == Some(true) {
            builder = builder.wire_tap(Wire::new(self.secrets.clone()));
        }
        builder
    }

    /// Older versions are spoken only when they are asked for.
    fn version(&self) -> Version {
        self.args.a2a_version.unwrap_or(Version::V1_0)
    }

    /// Refuses a card with which nothing can be done, and says what to change.
    fn check_interfaces(&self, card: &AgentCard) -> Result<(), Fault> {
        if self.reference.starts_with(PROGRAM) {
            return Ok(());
        }
        let wanted = self.version();
        let spoken = |interface: &&AgentInterface| {
            herald_client::Binding::from_name(&interface.protocol_binding).is_some()
        };
        let versions: Vec<Version> = card
            .supported_interfaces
            .iter()
            .filter(spoken)
            .filter_map(|interface| match interface.protocol_version.as_str() {
                "" => Some(Version::V1_0),
                text => text.parse().ok(),
            })
            .collect();
        if versions.iter().any(|version| version.major == wanted.major) {
            return Ok(());
        }
        let Some(best) = versions.iter().max() else {
            let text = format!("the card of {:?} names no interface that can be called", card.name);
            return Err(Fault::new(Kind::CardInvalid, text).hint(self.command("card get", "")));
        };
        let unsupported = Kind::Protocol(ErrorKind::VersionNotSupported);
        let text = format!("the agent speaks A2A {best}, and {wanted} was asked for");
        let known = VERSIONS.contains(best);
        let fault = Fault::new(unsupported, text);
        Err(if known { fault.hint(format!("add --a2a-version {best}")) } else { fault })
    }
}

/// Says where a file with secrets is open to others.
pub(crate) fn warn_exposed(layers: &Layers) {
    for path in layers.exposed() {
        let shown = path.display();
        warn(&format!("{shown} holds a credential and others can read it; run: chmod 600 {shown}"));
    }
}

/// The agent, if it stands before the names that a verb needs, and those.
pub(crate) fn subject<'a, const N: usize>(
    words: &'a [String],
    args: &AgentArgs,
) -> Result<(Option<&'a str>, [&'a str; N]), Fault> {
    let from = words.len().saturating_sub(N);
    if from == 0
        && args.agent_card.is_none()
        && let Some(agent) = words.first().filter(|word| looks_like_one(word))
    {
        let text = match N {
            1 => "no task is named",
            _ => "a task and a webhook of it are to be named",
        };
        return Err(Fault::usage(text).hint(format!(
            "the id goes behind the agent; see which tasks there are with: herald task list {}",
            quoted(agent)
        )));
    }
    let names: Vec<&str> = words[from..].iter().map(String::as_str).collect();
    let names = names.try_into().map_err(|_| Fault::usage("there are too few names"))?;
    Ok((words[..from].first().map(String::as_str), names))
}

/// Whose logins are used for the agent of a card: those for the origin it came from.
pub(crate) fn owner(source: &Source) -> String {
    source.origin().unwrap_or_else(|| match source {
        Source::File(path) => {
            std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string()
        }
        Source::Below(_) | Source::At(_) | Source::Program(_) => String::new(),
    })
}

fn any_login() -> bool {
    let kept = Logins::of_user().and_then(|logins| logins.read());
    kept.is_ok_and(|kept| !kept.is_empty())
}
