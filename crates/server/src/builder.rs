//! Server builder, with the validation of its configuration.

use std::{sync::Arc, time::Duration};

use herald_engine::{Clock, Engine, budget::MemoryBudget, keys::ApiKeySecret};
use herald_protocol::Version;
use http::{Uri, uri::Authority};

use tokio::sync::Semaphore;

use crate::{
    auth::{ApiKeys, Authenticate, Chain},
    caller_limits::CallerLimits,
    card,
    config::{CardInterface, Config, MetricsAccess, Token},
    guard::Guard,
    health::ReadinessCache,
    metrics::Metrics,
    proxy::TrustedProxies,
    remote::{RemoteAgentFactory, RemoteAgents},
    server::Server,
    shared::Shared,
    signing::{CardSigner, KEY_SET},
    tls::Tls,
    webhook::HttpSender,
};

/// The number of callers whose quotas together are the whole budget of responses.
const FULL_QUOTAS: usize = 4;

/// Builder of a [`Server`].
#[derive(Debug)]
pub struct ServerBuilder {
    engine: Engine,
    config: Config,
    auth: Vec<Arc<dyn Authenticate>>,
    tls: Option<Tls>,
    operator: Option<ApiKeySecret>,
    webhooks: Option<Arc<HttpSender>>,
    remotes: Option<RemoteAgents>,
}

/// An invalid configuration of a server.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServerBuildError {
    /// The public URL is malformed.
    #[error("the public URL {0:?} must be an absolute http or https URL without query")]
    PublicUrl(String),
    /// An allowed host is malformed.
    #[error("the allowed host {0:?} must be a host name, an address or *")]
    AllowedHost(String),
    /// An allowed origin is malformed.
    #[error("the allowed origin {0:?} must look like https://example.com")]
    AllowedOrigin(String),
    /// A trusted proxy is malformed.
    #[error("the trusted proxy {0:?} must be an address or a network such as 10.0.0.0/8")]
    TrustedProxy(String),
    /// A token is empty or not allowed in a header.
    #[error("the token of {0:?} must be visible ASCII without spaces, and not empty")]
    Token(String),
    /// Two tokens are the same.
    #[error("the tokens of {0:?} and {1:?} are the same")]
    SameToken(String, String),
    /// Only older versions that are supported can be switched off.
    #[error("A2A {0} cannot be switched off; supported older versions can: {1}")]
    SwitchedOff(Version, String),
    /// A card would list no interface.
    #[error(
        "a card must list at least one interface, and gRPC is not listed behind a public URL with \
         a path; add jsonrpc to the interfaces"
    )]
    NoInterface,
    /// Two signing keys have the same id.
    #[error("two signing keys have the id {0:?}, the name of their files")]
    SameKey(String),
    /// The URL of the published keys is not known.
    #[error("signatures of cards can name the URL of their keys only with a public URL and a key")]
    KeyUrl,
    /// A limit is smaller than the server can work with.
    #[error("the limit {0} must be at least {1}")]
    Limit(&'static str, usize),
}

impl Server {
    /// A builder of a server for this engine.
    pub fn builder(engine: Engine) -> ServerBuilder {
        let config = Config::default();
        ServerBuilder {
            engine,
            config,
            auth: Vec::new(),
            tls: None,
            operator: None,
            webhooks: None,
            remotes: None,
        }
    }

    /// Replaces the tokens of the configuration while the server runs. A token that is no longer there, or
    /// that has other permissions, is revoked, and its streams end. Returns the numbers of new and of
    /// revoked tokens.
    pub fn replace_tokens(&self, tokens: &[Token]) -> Result<(usize, usize), ServerBuildError> {
        check_tokens(tokens)?;
        Ok(self.shared.auth.replace_tokens(tokens))
    }
}

impl ServerBuilder {
    /// Sets the configuration.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Adds an authenticator, as an alternative to the earlier ones and to the tokens of the
    /// configuration.
    #[must_use]
    pub fn authenticate(mut self, auth: impl Authenticate) -> Self {
        self.auth.push(Arc::new(auth));
        self
    }

    /// Accepts this secret from the server's own machine, as an operator with every scope.
    #[must_use]
    pub fn operator(mut self, secret: ApiKeySecret) -> Self {
        self.operator = Some(secret);
        self
    }

    /// Makes [`Server::serve`] accept TLS connections only.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Publishes the keys of this sender of webhooks, beside those of cards. The engine delivers with it.
    #[must_use]
    pub fn webhooks(mut self, sender: Arc<HttpSender>) -> Self {
        self.webhooks = Some(sender);
        self
    }

    /// Lets callers register remote agents, whose cards are fetched and who are called through the URL guard of
    /// `http`.
    #[must_use]
    pub fn remote_agents(
        mut self,
        factory: impl RemoteAgentFactory,
        http: Arc<HttpSender>,
    ) -> Self {
        self.remotes = Some(RemoteAgents::new(Arc::new(factory), http));
        self
    }

    /// Sets the time between two checks of the cards of remote agents.
    #[must_use]
    pub fn check_cards_every(mut self, time: Duration) -> Self {
        if let Some(remotes) = &mut self.remotes {
            remotes.check_every = time;
        }
        self
    }

    /// Validates the configuration and builds the server.
    pub fn build(self) -> Result<Server, ServerBuildError> {
        let Self { engine, config, auth, tls, operator, webhooks, remotes } = self;
        check(&config)?;
        let public = config.public_url.as_deref().map(public_url).transpose()?;
        let keys = ApiKeys::new(engine.clone(), config.visibility, operator.as_ref());
        let auth = Chain::new(&config, keys, auth);
        let origin = public.as_ref().map(|(_, origin, _)| origin.clone());
        let authority = public.as_ref().map(|(_, _, authority)| authority);
        let guard = Guard::new(&config, authority, origin);
        let now = Clock::system().now();
        let started = card::http_date(now);
        let metrics = Metrics::new(now);
        let caller_limits = CallerLimits::new(&config.limits);
        let public_url = public.map(|(url, _, _)| url);
        let key_url = public_url.as_ref().filter(|_| config.key_url);
        let key_url = key_url.map(|url| format!("{url}{KEY_SET}"));
        let signer = CardSigner::new(&config.signing_keys, key_url);
        let bodies = Semaphore::new(config.limits.bodies.min(Semaphore::MAX_PERMITS));
        let responses = MemoryBudget::for_responses(config.limits.responses, FULL_QUOTAS);
        let readiness = ReadinessCache::default();
        let proxies = TrustedProxies::parse(&config.trusted_proxies);
        let proxies = proxies.map_err(ServerBuildError::TrustedProxy)?;
        let shared = Shared {
            engine,
            config,
            auth,
            tls,
            guard,
            caller_limits,
            metrics,
            readiness,
            bodies,
            responses,
            proxies,
            signer,
            webhooks,
            remotes: remotes.map(Arc::new),
            public_url,
            started,
        };
        Ok(Server { shared: Arc::new(shared) })
    }
}

fn check(config: &Config) -> Result<(), ServerBuildError> {
    for host in &config.allowed_hosts {
        if host != "*" && (host.contains('@') || host.parse::<Authority>().is_err()) {
            return Err(ServerBuildError::AllowedHost(host.clone()));
        }
    }
    for origin in &config.allowed_origins {
        let uri = origin.parse::<Uri>().ok();
        let exact = uri.is_some_and(|uri| match (uri.scheme_str(), uri.authority()) {
            (Some(scheme @ ("http" | "https")), Some(authority)) => {
                origin.eq_ignore_ascii_case(&format!("{scheme}://{authority}"))
            }
            _ => false,
        });
        if !exact {
            return Err(ServerBuildError::AllowedOrigin(origin.clone()));
        }
    }
    check_tokens(&config.tokens)?;
    if let MetricsAccess::Token(secret) = &config.metrics
        && (secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err(ServerBuildError::Token("metrics".to_owned()));
    }
    let older = Version::SPOKEN.iter().filter(|version| **version < Version::V1_0);
    let older: Vec<_> = older.copied().collect();
    if let Some(off) = config.switched_off.iter().find(|off| !older.contains(&off.version)) {
        let older: Vec<_> = older.iter().map(Version::to_string).collect();
        return Err(ServerBuildError::SwitchedOff(off.version, older.join(", ")));
    }
    let path = config.public_url.as_ref().and_then(|url| url.parse::<Uri>().ok());
    let has_path = path.is_some_and(|url| url.path() != "/");
    let can_be_listed = |one: &CardInterface| *one != CardInterface::Grpc || !has_path;
    let of_agents = config.agent_card_interfaces.values();
    if !of_agents.chain([&config.card_interfaces]).all(|all| all.iter().any(can_be_listed)) {
        return Err(ServerBuildError::NoInterface);
    }
    for (index, key) in config.signing_keys.iter().enumerate() {
        if config.signing_keys[..index].iter().any(|earlier| earlier.id() == key.id()) {
            return Err(ServerBuildError::SameKey(key.id().to_owned()));
        }
    }
    if config.key_url && (config.public_url.is_none() || config.signing_keys.is_empty()) {
        return Err(ServerBuildError::KeyUrl);
    }
    let limits = &config.limits;
    for (name, value, least) in [
        ("limits.head", limits.head, 8 << 10),
        ("limits.body", limits.body, 1),
        ("limits.connections", limits.connections, 1),
        ("limits.requests_per_connection", limits.requests_per_connection as usize, 1),
    ] {
        if value < least {
            return Err(ServerBuildError::Limit(name, least));
        }
    }
    Ok(())
}

/// Refuses tokens that cannot stand in a header, and equal ones.
pub(crate) fn check_tokens(tokens: &[Token]) -> Result<(), ServerBuildError> {
    for (index, token) in tokens.iter().enumerate() {
        let secret = &token.secret;
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ServerBuildError::Token(token.principal.clone()));
        }
        let earlier = tokens[..index].iter().find(|earlier| earlier.secret == *secret);
        if let Some(earlier) = earlier {
            let (first, second) = (earlier.principal.clone(), token.principal.clone());
            return Err(ServerBuildError::SameToken(first, second));
        }
    }
    Ok(())
}

/// A public URL without its final slash, its origin and its authority.
fn public_url(url: &str) -> Result<(String, String, Authority), ServerBuildError> {
    let refused = || ServerBuildError::PublicUrl(url.to_owned());
    let uri = url.parse::<Uri>().map_err(|_| refused())?;
    let (Some(scheme @ ("http" | "https")), Some(authority), None) =
        (uri.scheme_str(), uri.authority(), uri.query())
    else {
        return Err(refused());
    };
    if authority.as_str().contains('@') || url.contains('#') {
        return Err(refused());
    }
    let origin = format!("{scheme}://{authority}");
    Ok((url.trim_end_matches('/').to_owned(), origin, authority.clone()))
}
