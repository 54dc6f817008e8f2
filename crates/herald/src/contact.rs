//! From what the command line says to a client of the agent, and from its errors to faults.

use std::{cell::RefCell, future::Future, time::Duration};

use herald_client::{
    Client, ClientBuilder, Credential, Discovered, Error, OAuth, Outgoing, Source, TaskId, Timeouts,
};
use herald_protocol::{
    AgentCard, ErrorKind, Version, card::AgentInterface, security::SecurityScheme,
    version::VERSION_HEADER,
};
use http::HeaderValue;
use tokio::{signal, time::sleep};

use crate::{
    args::{AgentArgs, Hidden},
    catalog,
    credentials::{Login, Logins},
    fault::{Fault, Kind},
    output::{Output, describe, progress, quoted, warn},
    reference::{self, PROGRAM},
    trust::Trust,
    wire::Wire,
};

/// The shortest pause between two looks at a task: nobody is asked without a break.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

/// One agent, as the command line names it, and one verb's way to it.
#[derive(Debug)]
pub(crate) struct Contact {
    args: AgentArgs,
    reference: String,
    trust: Trust,
    pub(crate) out: Output,
    /// What else must not be shown.
    hidden: Vec<String>,
    /// Whether there is a name to log in with, given or kept.
    can_log_in: bool,
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
        Ok(Self {
            args: args.clone(),
            reference: reference.to_owned(),
            trust,
            out,
            hidden: Vec::new(),
            can_log_in,
            seen: RefCell::default(),
        })
    }

    /// Keeps more secrets out of what is printed.
    pub(crate) fn hide<'a>(&mut self, secrets: impl IntoIterator<Item = &'a Hidden>) {
        self.hidden.extend(secrets.into_iter().map(|secret| secret.0.clone()));
    }

    /// Does `work` within the time that the verb may take, unless it is interrupted.
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
            done = work => done,
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
        let command = format!("herald {verb} -a {} {rest}", quoted(&self.reference));
        command.trim_end().to_owned()
    }

    /// The pause between two looks at a task.
    pub(crate) fn poll_interval(&self) -> Duration {
        self.args.poll_interval.max(SHORTEST_POLL)
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
        let takes = |scheme: &SecurityScheme| match scheme {
            SecurityScheme::ApiKey(_) => self.args.api_key.is_some(),
            SecurityScheme::Http(http) => {
                self.args.bearer.is_some() && http.scheme.eq_ignore_ascii_case("bearer")
            }
            // Without a login the call says so.
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => {
                self.args.bearer.is_some() || self.can_log_in
            }
            SecurityScheme::MutualTls(_) => self.trust.has_certificate(),
        };
        if card.security_schemes.values().any(takes) {
            return Ok(());
        }
        let wanted: Vec<_> = card.security_schemes.values().map(describe).collect();
        let text = match wanted.is_empty() {
            true => "the card declares no way to sign in, so no credential is shown".to_owned(),
            false => format!("the agent wants one of: {}", wanted.join(", ")),
        };
        Err(Fault::new(Kind::CredentialsMissing, text)
            .hint("give the credential with A2ACLI_BEARER or A2ACLI_API_KEY"))
    }

    /// Fetches the card. Whoever keeps it is shown no credential: it has declared none.
    pub(crate) async fn discover(&self) -> Result<Discovered, Fault> {
        let reference = self.resolved().await?;
        let mut places = reference::places(&reference)?.into_iter().peekable();
        loop {
            let place = places.next().expect("a reference names a place");
            // Boxed, as all that may happen on the way is in it.
            match Box::pin(self.builder().discover(place.clone())).await {
                Ok(discovered) => return Ok(discovered),
                // What is no card may still be the place of one.
                Err(error) if places.peek().is_some() && !error.is_connect() => {}
                Err(error) => return Err(self.no_card(&place, &error)),
            }
        }
    }

    /// The reference itself, or the one that it leads to by a catalog.
    async fn resolved(&self) -> Result<String, Fault> {
        let Some((catalog, name)) = catalog::split(&self.reference) else {
            return Ok(self.reference.clone());
        };
        let place = reference::places(catalog)?.swap_remove(0);
        let document = Box::pin(self.builder().fetch(&place)).await;
        let document = document.map_err(|error| self.no_card(&place, &error))?;
        let found = catalog::resolve(&place, &catalog::find(&document, name)?);
        let remote = matches!(place, Source::At(_) | Source::Below(_));
        if found.starts_with(PROGRAM) || remote && !found.starts_with("http") {
            let text = "the catalog names a program or a file of this machine as an agent";
            return Err(Fault::new(Kind::CardNotFound, text)
                .hint("if that is what you want, name it yourself with -a"));
        }
        // Who has the catalog does not decide who gets the credentials.
        let args = &self.args;
        let secrets = [&args.bearer, &args.api_key, &args.login.client_secret];
        let credentials = secrets.into_iter().any(Option::is_some);
        if let Source::At(url) | Source::Below(url) = &place
            && credentials
        {
            let own = url.origin().ascii_serialization();
            let trusted = std::iter::once(&own).chain(&self.args.trust_origin);
            let within = |origin: &String| {
                let origin = origin.trim_end_matches('/');
                found
                    .strip_prefix(origin)
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if !trusted.into_iter().any(within) {
                let text = "the catalog leads elsewhere, and credentials are not sent there";
                return Err(Fault::usage(text).hint(format!("name the agent itself: -a {found}")));
            }
        }
        Ok(found)
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
            let text = error.to_string();
            let fault = Fault::usage(text.split("; call trust_origin").next().unwrap_or(&text));
            match text.contains("trust_origin") {
                true => fault.hint("if both are the same agent's, add --trust-origin URL"),
                false => fault.hint(self.command("card get", "")),
            }
        })?;
        if self.args.output.debug == Some(true) {
            let AgentInterface { protocol_binding, protocol_version, url, .. } = client.interface();
            let chosen = format!("calling {protocol_binding} {protocol_version} at {url}");
            crate::output::note("Debug", &crate::output::inline(&chosen));
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
        // A login of another program is not this one's.
        let kept =
            kept.filter(|kept| given.client_id.as_ref().is_none_or(|id| *id == kept.client_id));
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
            oauth = oauth.token(kept.token());
        }
        Ok(Some(oauth.on_token(move |token| {
            let login = Login::new(&client_id, token);
            let owner = owner.clone();
            let saved =
                logins.as_ref().map(|logins| logins.change(|all| drop(all.insert(owner, login))));
            if let Some(Err(fault)) = saved {
                warn(&crate::output::inline(fault.message()));
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
            .version(self.version());
        for origin in &args.trust_origin {
            builder = builder.trust_origin(origin);
        }
        let version = self.version().to_string();
        let version = HeaderValue::try_from(version).expect("digits and a dot");
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
            builder = builder.watch(Wire::new(self.secrets()));
        }
        builder
    }

    /// Older versions are spoken only when they are asked for.
    fn version(&self) -> Version {
        self.args.a2a_version.unwrap_or(Version::V1_0)
    }

    fn secrets(&self) -> Vec<String> {
        let args = &self.args;
        let values = args.svc_param.iter().map(|one| &one.value);
        let values = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let given = [&args.bearer, &args.api_key, &args.login.client_secret].into_iter().flatten();
        let given = given.map(|secret| secret.0.clone());
        given.chain(values).chain(self.hidden.iter().cloned()).collect()
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
        let known = Version::SUPPORTED.contains(best);
        let fault = Fault::new(unsupported, text);
        Err(if known { fault.hint(format!("add --a2a-version {best}")) } else { fault })
    }

    /// Why there is no card.
    fn no_card(&self, place: &Source, error: &Error) -> Fault {
        let said = crate::fault::sentence(error);
        if error.is_connect() || error.is_timeout() || error.is_broken() {
            let fault = Fault::from_error(error);
            return match (fault.advice(), place) {
                (None, Source::Below(url) | Source::At(url)) if url.scheme() == "https" => {
                    fault.hint("if it serves plain HTTP, write http:// in front of its name")
                }
                _ => fault,
            };
        }
        if error.is_untrusted() {
            return Fault::new(Kind::CardInvalid, said)
                .hint("name the keys you trust with --card-keys or --card-keys-from");
        }
        if matches!(error.status(), Some(401 | 403)) {
            let text = "the card itself is behind a login, and no credential is shown to whoever \
                        has not declared one";
            return Fault::new(Kind::CredentialsMissing, text)
                .hint("get the card from its owner and name the file: -a ./card.json");
        }
        if error.is_invalid() || error.is_too_large() {
            return Fault::new(Kind::CardInvalid, said).hint(
                "is this the address of an agent? Try the URL of its card, which mostly ends in \
                 /.well-known/agent-card.json",
            );
        }
        Fault::new(Kind::CardNotFound, said)
            .hint("check the address; a card's own URL and a file are taken too")
    }

    /// Why a call failed, and what to do.
    pub(crate) fn explain(&self, client: &Client, error: &Error) -> Fault {
        let fault = Fault::from_error(error);
        if let Some((what, _)) = fault.message().split_once("; call trust_origin") {
            return Fault::usage(what).hint("if you trust it, name it with --trust-origin URL");
        }
        match fault.kind() {
            Kind::AuthFailed => {
                let given = self.args.bearer.is_some() || self.args.api_key.is_some();
                let by_login = client.card().security_schemes.values().any(|scheme| {
                    matches!(scheme, SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_))
                });
                if !given && by_login && error.kind() != Some(ErrorKind::Forbidden) {
                    let login = self.command("auth login", "--client-id ID");
                    let kind = match self.can_log_in {
                        true => Kind::AuthFailed,
                        false => Kind::CredentialsMissing,
                    };
                    return Fault::new(kind, fault.message()).hint(format!("log in with: {login}"));
                }
                if given || error.kind() == Some(ErrorKind::Forbidden) {
                    return fault
                        .hint("the credential was not accepted for this; is it the right one?");
                }
                let schemes: Vec<_> =
                    client.card().security_schemes.values().map(describe).collect();
                let wanted = match schemes.is_empty() {
                    true => "the card does not say which".to_owned(),
                    false => schemes.join(" or "),
                };
                Fault::new(Kind::CredentialsMissing, fault.message()).hint(format!(
                    "give a credential with A2ACLI_BEARER or A2ACLI_API_KEY ({wanted})"
                ))
            }
            Kind::Protocol(ErrorKind::TaskNotFound) => {
                let list = self.command("task list", "");
                fault.hint(format!(
                    "see which tasks there are with: {list}; add --debug to see the refusal"
                ))
            }
            Kind::Protocol(ErrorKind::ContentTypeNotSupported) => fault.hint(format!(
                "see which media types it takes with: {}",
                self.command("card get", "")
            )),
            Kind::Protocol(_) => fault.hint("add --debug to see what went over the wire"),
            Kind::Usage
            | Kind::CardNotFound
            | Kind::CardInvalid
            | Kind::Unreachable
            | Kind::CredentialsMissing
            | Kind::Timeout
            | Kind::Internal
            | Kind::Interrupted
            | Kind::Unread => self.left(fault),
        }
    }
}

/// Says where a file with secrets is open to others.
pub(crate) fn warn_exposed(layers: &crate::layers::Layers) {
    for path in layers.exposed() {
        let shown = path.display();
        warn(&format!("{shown} holds a credential and others can read it; run: chmod 600 {shown}"));
    }
}

/// The agent, if it stands before the names that a verb needs, and those.
pub(crate) fn subject<const N: usize>(
    words: &[String],
) -> Result<(Option<&str>, [&str; N]), Fault> {
    let from = words.len().saturating_sub(N);
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
