//! One agent as the command line names it: discovery, credentials, time limit and the client for it.

mod explain;

use std::{cell::RefCell, future::Future, time::Duration};

use herald_client::{
    Binding, Client, ClientBuilder, Credential, Discovered, OAuth, Outgoing, Secrets, Source,
    TaskId, Timeouts,
};
use herald_protocol::{
    AgentCard, ErrorKind, Version, card::AgentInterface, security::SecurityScheme,
    version::VERSION_HEADER,
};
use http::HeaderValue;
use tokio::{signal, time::sleep};

use crate::{
    args::{AgentArgs, SecretArg, TransportArg, VERSIONS},
    client::{
        catalog,
        credentials::{Login, Logins},
        debug_tap::DebugTap,
        error::{CliError, CliErrorKind},
        layers::Layers,
        reference::{self, PROGRAM, looks_like_one},
        trust::TrustSettings,
    },
    output::{Output, describe, progress, quoted, warn},
};

/// The shortest poll interval, so that no agent is polled without a pause.
const SHORTEST_POLL: Duration = Duration::from_millis(100);

/// One agent as the command line names it, for one verb.
#[derive(Debug)]
pub(crate) struct Contact {
    args: AgentArgs,
    reference: String,
    /// True if a setting names the agent, not the command line.
    by_setting: bool,
    trust: TrustSettings,
    pub(crate) out: Output,
    /// Texts to redact in output.
    secrets: Secrets,
    /// True if there is a client id or a stored login.
    can_log_in: bool,
    /// True to use a stored login whatever secret and scopes it was created with.
    pub(crate) takes_any_login: bool,
    /// The skill that messages are for, which the command to go on repeats.
    pub(crate) skill: Option<String>,
    /// The verb's task, as soon as its id is known, for the hint after an interruption.
    seen: RefCell<Option<TaskId>>,
}

impl Contact {
    /// `positional` is an agent that is an argument without a flag.
    pub(crate) fn new(args: &AgentArgs, positional: Option<&str>) -> Result<Self, CliError> {
        let named = positional.or(args.agent_card.as_deref());
        let reference = named.ok_or_else(|| {
            CliError::usage("no agent is named")
                .hint("add -a REF, such as -a localhost:8000, or set A2ACLI_AGENT_CARD")
        })?;
        let out = Output::new(&args.output);
        let trust = TrustSettings::read(&args.trust)?;
        let can_log_in = args.login.client_id.is_some() || any_login();
        if trust.is_blind() {
            let credential = args.bearer.is_some() || args.api_key.is_some() || can_log_in;
            warn("certificates are not checked (--insecure): any server can impersonate the agent");
            if credential || trust.has_certificate() {
                warn("SECURITY: a credential is sent to a server whose certificate is not checked");
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
            skill: None,
            seen: RefCell::default(),
        })
    }

    /// Adds secrets to redact in output.
    pub(crate) fn hide<'a>(&self, secrets: impl IntoIterator<Item = &'a SecretArg>) {
        secrets.into_iter().for_each(|secret| self.secrets.add(&secret.0));
    }

    /// Runs `work` until it ends, `--timeout` expires or Ctrl-C interrupts it. Secrets are redacted in its error, since
    /// the agent's message may repeat them.
    pub(crate) async fn within<T>(
        &self,
        work: impl Future<Output = Result<T, CliError>>,
    ) -> Result<T, CliError> {
        let limit = self.args.timeout;
        let late = async {
            if limit.is_zero() { std::future::pending().await } else { sleep(limit).await }
        };
        tokio::select! {
            done = work => done.map_err(|fault| fault.redacted(&self.secrets)),
            () = late => {
                let text = format!("--timeout expired after {}", humantime::format_duration(limit));
                Err(self.left(CliError::new(CliErrorKind::Timeout, text)))
            }
            _ = signal::ctrl_c() => Err(self.left(CliError::new(CliErrorKind::Interrupted, "interrupted"))),
        }
    }

    /// Adds the command that waits for the task.
    fn left(&self, fault: CliError) -> CliError {
        match &*self.seen.borrow() {
            Some(task) => {
                let again = format!("{} --wait", quoted(task.as_str()));
                let again = self.command("task get", &again);
                fault.hint(format!("the task continues; wait for it with: {again}"))
            }
            None => fault,
        }
    }

    /// Stores the id of the verb's task.
    pub(crate) fn remember(&self, task: &TaskId) {
        let mut seen = self.seen.borrow_mut();
        if seen.as_ref() != Some(task) {
            progress(&format!("task {task}"));
            *seen = Some(task.clone());
        }
    }

    /// The id of the verb's task, once it is known.
    pub(crate) fn seen(&self) -> Option<TaskId> {
        self.seen.borrow().clone()
    }

    /// The server of an agent at `/agents/NAME`, whose root has the tasks of all its agents. It is part of the address
    /// that the user gave, so that the credentials are for it too.
    pub(crate) fn at_root(&self) -> Option<Result<Self, CliError>> {
        let (server, _) = self.reference.split_once("/agents/")?;
        Some(Self::new(&self.args, Some(server)))
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

    /// An error unless there is a credential for one of the card's security schemes.
    pub(crate) fn needs_declared_credential(&self, card: &AgentCard) -> Result<(), CliError> {
        if card.security_schemes.values().any(|scheme| self.has_for(scheme)) {
            return Ok(());
        }
        let wanted: Vec<_> = card.security_schemes.values().map(describe).collect();
        let text = if wanted.is_empty() {
            "the card declares no security scheme, so no credential is sent".to_owned()
        } else {
            format!("the agent requires one of: {}", wanted.join(", "))
        };
        let fault = CliError::new(CliErrorKind::CredentialsMissing, text);
        Err(if wanted.is_empty() { fault } else { fault.hint(self.remedy(card)) })
    }

    /// True if there is a credential for a security scheme.
    fn has_for(&self, scheme: &SecurityScheme) -> bool {
        match scheme {
            SecurityScheme::ApiKey(_) => self.args.api_key.is_some(),
            SecurityScheme::Http(http) => {
                self.args.bearer.is_some() && http.scheme.eq_ignore_ascii_case("bearer")
            }
            // A missing login is reported by the call.
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => {
                self.args.bearer.is_some() || self.can_log_in
            }
            SecurityScheme::MutualTls(_) => self.trust.has_certificate(),
        }
    }

    /// Advice on the credentials that a card requires.
    pub(crate) fn remedy(&self, card: &AgentCard) -> String {
        let remedy = |scheme: &SecurityScheme| match scheme {
            SecurityScheme::ApiKey(_) => {
                format!("give the key with A2ACLI_API_KEY ({})", describe(scheme))
            }
            SecurityScheme::Http(http) if http.scheme.eq_ignore_ascii_case("bearer") => {
                "give the token with A2ACLI_BEARER".to_owned()
            }
            SecurityScheme::Http(_) => {
                format!("{} is not supported by this program", describe(scheme))
            }
            SecurityScheme::OAuth2(_) | SecurityScheme::OpenIdConnect(_) => {
                format!("log in with: {}", self.command("auth login", "--client-id ID"))
            }
            SecurityScheme::MutualTls(_) => "give a certificate with --client-cert".to_owned(),
        };
        let mut ways: Vec<_> = card.security_schemes.values().map(remedy).collect();
        ways.dedup();
        if ways.is_empty() {
            "the card declares no security scheme; most agents accept a token, given with \
             A2ACLI_BEARER"
                .to_owned()
        } else {
            ways.join("; or ")
        }
    }

    /// Fetches the card, without credentials, since no security scheme is known before.
    pub(crate) async fn discover(&self) -> Result<Discovered, CliError> {
        let mut places = self.places().await?.into_iter().peekable();
        loop {
            let place = places.next().expect("a reference names a place");
            // Boxed, because the future is large.
            let fault = match Box::pin(self.builder().discover(place.clone())).await {
                Ok(discovered) => match self.no_card_in(&discovered) {
                    None => return Ok(discovered),
                    Some(fault) => self.with_origin(fault),
                },
                Err(error) if error.is_connect() => return Err(self.no_card(&place, &error)),
                Err(error) => self.no_card(&place, &error),
            };
            // A URL without a card may still be the base URL of an agent.
            if places.peek().is_none() {
                let document = if fault.kind() == CliErrorKind::CardInvalid {
                    Box::pin(self.builder().fetch(&place)).await.ok()
                } else {
                    None
                };
                let entries = document.map(|document| catalog::entries(&document));
                return Err(match entries.filter(|entries| !entries.is_empty()) {
                    Some(entries) => self.is_catalog(&entries),
                    None => fault,
                });
            }
        }
    }

    /// The possible sources of the card, from the reference or from the entry of a catalog.
    async fn places(&self) -> Result<Vec<Source>, CliError> {
        let Some((catalog, name)) = catalog::split(&self.reference) else {
            return reference::places(&self.reference);
        };
        let catalog = reference::places(catalog)?.swap_remove(0);
        let document = Box::pin(self.builder().fetch(&catalog)).await;
        let document = document.map_err(|error| self.no_card(&catalog, &error))?;
        let found = catalog::find(&document, name).map_err(|fault| self.with_origin(fault))?;
        let places = catalog::resolve(&catalog, &found)?;
        // A catalog must not choose the receiver of credentials.
        let found = places.first().and_then(Source::origin);
        if let (Some(own), Some(found)) = (catalog.origin(), found)
            && self.carries_secrets()
        {
            let named = self.args.trust_origin.iter().filter_map(|url| Source::exact(url).ok());
            if found != own && !named.filter_map(|url| url.origin()).any(|origin| origin == found) {
                let text =
                    "the catalog refers to another origin, and credentials are not sent there";
                let hint = format!("if you trust that origin, add --trust-origin {found}");
                return Err(CliError::usage(text).hint(hint));
            }
        }
        Ok(places)
    }

    /// True if calls contain secrets for the named agent only. A service parameter may be a key.
    fn carries_secrets(&self) -> bool {
        let args = &self.args;
        let secrets = [&args.bearer, &args.api_key, &args.login.client_secret];
        secrets.into_iter().any(Option::is_some) || !args.svc_param.is_empty()
    }

    /// Fetches the card and creates the client.
    pub(crate) async fn connect(&self) -> Result<Client, CliError> {
        let discovered = self.discover().await?;
        self.call(discovered)
    }

    /// Creates the client for a card.
    pub(crate) fn call(&self, mut discovered: Discovered) -> Result<Client, CliError> {
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
            let fault = CliError::usage(error.to_string());
            if error.untrusted_origin().is_some() {
                return fault.hint("if both origins belong to the agent, add --trust-origin URL");
            }
            let card = self.command("card get", "");
            fault.hint(format!("see the agent's interfaces with: {card}"))
        })?;
        self.warn_of_other_binding(&client);
        if self.args.output.debug == Some(true) {
            let AgentInterface { protocol_binding, protocol_version, url, .. } = client.interface();
            let chosen = format!("calling {protocol_binding} {protocol_version} at {url}");
            crate::output::note("Debug", &chosen);
        }
        Ok(client)
    }

    /// Warns if no binding of `--transport` is on the card, so that another is used.
    fn warn_of_other_binding(&self, client: &Client) {
        let wanted = &self.args.transport;
        let used = client.interface().protocol_binding;
        let binding = Binding::from_name(&used);
        let is_wanted = |one: &TransportArg| Some(Binding::from(*one)) == binding;
        // A program has one binding and no card.
        if wanted.is_empty() || wanted.iter().any(is_wanted) || binding == Some(Binding::Stdio) {
            return;
        }
        let wanted: Vec<_> = wanted.iter().map(|one| one.name()).collect();
        let wanted = wanted.join(" or ");
        warn(&format!("no interface of the card fits --transport {wanted}; using {used}"));
    }

    /// The key of an agent's stored login.
    pub(crate) fn owner(&self, discovered: &Discovered) -> String {
        owner(discovered.source())
    }

    /// The OAuth settings for an agent whose card names an authorization server: from the stored login, the client id,
    /// or both.
    fn login(&self, discovered: &Discovered) -> Result<Option<OAuth>, CliError> {
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
        let limit = if args.timeout.is_zero() {
            Duration::from_secs(u64::from(u32::MAX))
        } else {
            args.timeout
        };
        let defaults = Timeouts::default();
        let timeouts = Timeouts {
            call: defaults.call.min(limit),
            send: limit,
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
            // The client sends the version of 1.0, but no older one.
            call.headers.insert(VERSION_HEADER, version.clone());
            for parameter in &parameters {
                call.headers.append(parameter.name.clone(), parameter.value.clone());
            }
            Ok(())
        });
        if args.output.debug == Some(true) {
            builder = builder.wire_tap(DebugTap::new(self.secrets.clone()));
        }
        builder
    }

    /// The version to use. Older ones than 1.0 are used on request only.
    fn version(&self) -> Version {
        self.args.a2a_version.unwrap_or(Version::V1_0)
    }

    /// An error if the card has no interface of the wanted version.
    fn check_interfaces(&self, card: &AgentCard) -> Result<(), CliError> {
        if self.reference.starts_with(PROGRAM) {
            return Ok(());
        }
        let wanted = self.version();
        let spoken =
            |interface: &&AgentInterface| Binding::from_name(&interface.protocol_binding).is_some();
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
            let text = format!("the card of {:?} has no supported interface", card.name);
            return Err(
                CliError::new(CliErrorKind::CardInvalid, text).hint(self.command("card get", ""))
            );
        };
        let unsupported = CliErrorKind::Protocol(ErrorKind::VersionNotSupported);
        let is_older = self.args.a2a_version.is_none() && *best < Version::V1_0;
        let text = if is_older {
            format!("the agent supports A2A {best}; versions before 1.0 are used on request only")
        } else {
            format!("the agent supports A2A {best}, not the requested version {wanted}")
        };
        let known = VERSIONS.contains(best);
        let fault = CliError::new(unsupported, text);
        Err(if known { fault.hint(format!("add --a2a-version {best}")) } else { fault })
    }
}

/// Warns of settings files with secrets that other users can read.
pub(crate) fn warn_exposed(layers: &Layers) {
    for path in layers.exposed() {
        let shown = path.display();
        warn(&format!(
            "{shown} contains a credential and other users can read it; run: chmod 600 {shown}"
        ));
    }
}

/// Splits the arguments of a verb into the agent, if it comes first, and the names that the verb needs.
pub(crate) fn subject<'a, const N: usize>(
    words: &'a [String],
    args: &AgentArgs,
) -> Result<(Option<&'a str>, [&'a str; N]), CliError> {
    let from = words.len().saturating_sub(N);
    if from == 0
        && args.agent_card.is_none()
        && let Some(agent) = words.first().filter(|word| looks_like_one(word))
    {
        let text = match N {
            1 => "the id of a task is missing",
            _ => "the ids of a task and of its webhook are missing",
        };
        return Err(CliError::usage(text).hint(format!(
            "add the id after the agent; list the tasks with: herald task list {}",
            quoted(agent)
        )));
    }
    let names: Vec<&str> = words[from..].iter().map(String::as_str).collect();
    let names = names.try_into().map_err(|_| CliError::usage("an id is missing"))?;
    Ok((words[..from].first().map(String::as_str), names))
}

/// The key of the stored login for a card's source: its origin, or the path of its file.
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
