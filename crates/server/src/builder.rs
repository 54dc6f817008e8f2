//! Server builder, with the validation of its configuration.

use std::sync::Arc;

use herald_engine::{Clock, Engine, budget::MemoryBudget};
use herald_protocol::Version;
use http::{Uri, uri::Authority};

use tokio::sync::Semaphore;

use crate::{
    auth::{Authenticate, Open, Tokens},
    card,
    config::{CardInterface, Config, MetricsAccess},
    guard::Guard,
    health::ReadinessCache,
    limits::KeyedLimit,
    metrics::Metrics,
    server::{Server, Shared},
    tls::Tls,
};

/// Callers that would have to fill their share of the room for responses before it is full.
const READERS: usize = 4;

/// Collects what a server is made of.
#[derive(Debug)]
pub struct ServerBuilder {
    engine: Engine,
    config: Config,
    auth: Option<Arc<dyn Authenticate>>,
    tls: Option<Tls>,
}

/// What is wrong with a server's make-up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The public URL is none.
    #[error("the public URL {0:?} must be an absolute http or https URL without query")]
    PublicUrl(String),
    /// An allowed host is none.
    #[error("the allowed host {0:?} must be a host name, an address or *")]
    AllowedHost(String),
    /// An allowed origin is none.
    #[error("the allowed origin {0:?} must look like https://example.com")]
    AllowedOrigin(String),
    /// A token is empty or could not stand in a header.
    #[error("the token of {0:?} must be visible ASCII without spaces, and not empty")]
    Token(String),
    /// Two tokens are the same.
    #[error("the tokens of {0:?} and {1:?} are the same")]
    SameToken(String, String),
    /// Tokens are configured beside another authenticator, which would never look at them.
    #[error("tokens are configured, but another authenticator is in use")]
    UnusedTokens,
    /// The current version cannot be switched off, and one that is not spoken need not be.
    #[error("A2A {0} cannot be switched off; older versions that are spoken can: {1}")]
    SwitchedOff(Version, String),
    /// Nothing would be left for a card to list.
    #[error(
        "a card must list at least one interface, and gRPC is not listed behind a public URL with \
         a path; add jsonrpc to the interfaces"
    )]
    NoInterface,
    /// A limit is smaller than the server can work with.
    #[error("the limit {0} must be at least {1}")]
    Limit(&'static str, usize),
}

impl ServerBuilder {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, config: Config::default(), auth: None, tls: None }
    }

    /// Sets how the server behaves.
    #[must_use]
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Has callers authenticated this way, instead of by the tokens in the configuration.
    #[must_use]
    pub fn authenticate(mut self, auth: impl Authenticate) -> Self {
        self.auth = Some(Arc::new(auth));
        self
    }

    /// Has [`Server::serve`] speak TLS, and nothing else, on its port.
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The server. Every mistake in its configuration is found here.
    pub fn build(self) -> Result<Server, BuildError> {
        let Self { engine, config, auth, tls } = self;
        check(&config)?;
        let public = config.public_url.as_deref().map(public_url).transpose()?;
        let auth: Arc<dyn Authenticate> = match (auth, config.tokens.is_empty()) {
            (Some(auth), true) => auth,
            (Some(_), false) => return Err(BuildError::UnusedTokens),
            (None, false) => Arc::new(Tokens::new(&config.tokens)),
            (None, true) => Arc::new(Open),
        };
        let origin = public.as_ref().map(|(_, origin, _)| origin.clone());
        let authority = public.as_ref().map(|(_, _, authority)| authority);
        let guard = Guard::new(&config, authority, origin);
        let now = Clock::system().now();
        let started = card::http_date(now);
        let metrics = Metrics::new(&engine, now);
        let streams = KeyedLimit::new(config.limits.streams_per_caller);
        let public_url = public.map(|(url, _, _)| url);
        let bodies = Semaphore::new(config.limits.bodies.min(Semaphore::MAX_PERMITS));
        let responses = MemoryBudget::for_responses(config.limits.responses, READERS);
        let readiness = ReadinessCache::default();
        let shared = Shared {
            engine,
            config,
            auth,
            tls,
            guard,
            streams,
            metrics,
            readiness,
            bodies,
            responses,
            public_url,
            started,
        };
        Ok(Server { shared: Arc::new(shared) })
    }
}

fn check(config: &Config) -> Result<(), BuildError> {
    for host in &config.allowed_hosts {
        if host != "*" && (host.contains('@') || host.parse::<Authority>().is_err()) {
            return Err(BuildError::AllowedHost(host.clone()));
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
            return Err(BuildError::AllowedOrigin(origin.clone()));
        }
    }
    for (index, token) in config.tokens.iter().enumerate() {
        let secret = &token.secret;
        if secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(BuildError::Token(token.principal.clone()));
        }
        let earlier = config.tokens[..index].iter().find(|earlier| earlier.secret == *secret);
        if let Some(earlier) = earlier {
            let (first, second) = (earlier.principal.clone(), token.principal.clone());
            return Err(BuildError::SameToken(first, second));
        }
    }
    if let MetricsAccess::Token(secret) = &config.metrics
        && (secret.is_empty() || !secret.bytes().all(|byte| byte.is_ascii_graphic()))
    {
        return Err(BuildError::Token("metrics".to_owned()));
    }
    let older = Version::SPOKEN.iter().filter(|version| **version < Version::V1_0);
    let older: Vec<_> = older.copied().collect();
    if let Some(off) = config.switched_off.iter().find(|off| !older.contains(&off.version)) {
        let older: Vec<_> = older.iter().map(Version::to_string).collect();
        return Err(BuildError::SwitchedOff(off.version, older.join(", ")));
    }
    let path = config.public_url.as_ref().and_then(|url| url.parse::<Uri>().ok());
    let has_path = path.is_some_and(|url| url.path() != "/");
    let can_be_listed = |one: &CardInterface| *one != CardInterface::Grpc || !has_path;
    let of_agents = config.agent_card_interfaces.values();
    if !of_agents.chain([&config.card_interfaces]).all(|all| all.iter().any(can_be_listed)) {
        return Err(BuildError::NoInterface);
    }
    let limits = &config.limits;
    for (name, value, least) in [
        ("limits.head", limits.head, 8 << 10),
        ("limits.body", limits.body, 1),
        ("limits.connections", limits.connections, 1),
        ("limits.requests_per_connection", limits.requests_per_connection as usize, 1),
    ] {
        if value < least {
            return Err(BuildError::Limit(name, least));
        }
    }
    Ok(())
}

/// A public URL without its final slash, its origin and its authority.
fn public_url(url: &str) -> Result<(String, String, Authority), BuildError> {
    let refused = || BuildError::PublicUrl(url.to_owned());
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
