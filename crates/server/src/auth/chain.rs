//! Chain of authenticators: the alternatives of a server, asked in order.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use herald_engine::Caller;
use herald_protocol::{Error, ErrorKind, TenantId};
use http::{HeaderMap, HeaderValue, header, request::Parts};

use crate::{
    auth::{
        Authenticate, PeerCertificate, Scheme, Tokens, bearer,
        key::{ApiKeys, key_hash},
        presented,
        token::{API_KEY, header_schemes},
    },
    config::{Config, Token},
    guard::Ingress,
};

/// The authenticators of a server: tokens of the configuration, API keys of the store, and others.
#[derive(Debug)]
pub(crate) struct Chain {
    tokens: Tokens,
    keys: Arc<ApiKeys>,
    others: Vec<Arc<dyn Authenticate>>,
    /// True if calls without credentials are refused. It never changes back: a server does not open
    /// because its last key was revoked.
    required: AtomicBool,
    /// True if keys of the store do not make credentials required.
    keys_optional: bool,
    other_schemes: Vec<Scheme>,
    authorization_servers: Vec<String>,
    /// The caller without credentials.
    anonymous: Caller,
}

impl Chain {
    pub(crate) fn new(
        config: &Config,
        keys: Arc<ApiKeys>,
        others: Vec<Arc<dyn Authenticate>>,
    ) -> Self {
        let required = config.required || !config.tokens.is_empty() || !others.is_empty();
        Self {
            tokens: Tokens::new(&config.tokens),
            keys,
            required: AtomicBool::new(required),
            keys_optional: config.keys_optional,
            other_schemes: others.iter().flat_map(|one| one.schemes()).collect(),
            authorization_servers: others
                .iter()
                .flat_map(|one| one.authorization_servers())
                .collect(),
            others,
            anonymous: Caller::anonymous(TenantId::default()),
        }
    }

    /// Begins to follow the API keys of the store. Only the first call does so.
    pub(crate) async fn start(&self) -> Result<(), Error> {
        self.keys.start().await
    }

    /// True if no credentials are needed.
    pub(crate) fn is_open(&self) -> bool {
        if self.required.load(Ordering::Relaxed) {
            return false;
        }
        let open = self.keys_optional || !self.keys.exist();
        if !open && !self.required.swap(true, Ordering::Relaxed) {
            tracing::info!(
                "the store has API keys: calls without credentials are refused from now on"
            );
        }
        open
    }

    /// Replaces the tokens of the configuration. Returns the numbers of new and of revoked ones.
    pub(crate) fn replace_tokens(&self, tokens: &[Token]) -> (usize, usize) {
        if !tokens.is_empty() {
            self.required.store(true, Ordering::Relaxed);
        }
        self.tokens.replace(tokens)
    }

    /// The accepted schemes, each once; none if no credentials are needed.
    pub(crate) fn schemes(&self) -> Vec<Scheme> {
        if self.is_open() {
            return Vec::new();
        }
        let secrets = !self.tokens.is_empty() || self.keys.exist() || self.others.is_empty();
        let secrets = if secrets { header_schemes() } else { Vec::new() };
        let mut schemes: Vec<Scheme> = Vec::new();
        for scheme in secrets.iter().chain(&self.other_schemes) {
            // Several kinds of credentials can share a scheme, such as bearer tokens.
            if schemes.iter().all(|known| known.name != scheme.name) {
                schemes.push(scheme.clone());
            }
        }
        schemes
    }

    /// The issuers of OAuth 2 whose tokens are accepted.
    pub(crate) fn authorization_servers(&self) -> &[String] {
        &self.authorization_servers
    }

    /// The challenges of a refusal, each once.
    pub(crate) fn challenges(&self) -> Vec<HeaderValue> {
        each_once(self.schemes().into_iter().filter_map(|scheme| scheme.challenge))
    }

    /// The caller of a request.
    pub(crate) async fn caller(&self, parts: &Parts, ingress: Ingress) -> Result<Caller, Error> {
        match self.caller_in_memory(parts, ingress) {
            Some(caller) => caller,
            // Boxed, so that the future of a request stays small.
            None => Box::pin(self.find_caller(parts, ingress)).await,
        }
    }

    /// The caller of a request, if everything is in memory.
    fn caller_in_memory(&self, parts: &Parts, ingress: Ingress) -> Option<Result<Caller, Error>> {
        if !self.keys.has_started() {
            return None;
        }
        let Some(secret) = presented(&parts.headers) else {
            return self.is_open().then(|| Ok(self.anonymous.clone()));
        };
        match key_hash(secret) {
            Some(hash) => self.keys.cached(&hash, || ingress.is_local(&parts.headers)),
            // On an open server only API keys have a meaning.
            None if self.is_open() => Some(Ok(self.anonymous.clone())),
            None => self.tokens.find(secret).map(Ok),
        }
    }

    /// The caller of a request that needs the store or another authenticator.
    async fn find_caller(&self, parts: &Parts, ingress: Ingress) -> Result<Caller, Error> {
        self.keys.start().await?;
        if let Some(caller) = self.caller_in_memory(parts, ingress) {
            return caller;
        }
        if let Some(hash) = presented(&parts.headers).and_then(key_hash) {
            return self.keys.look_up(hash).await;
        }
        for authenticator in &self.others {
            if let Some(caller) = authenticator.authenticate(parts).await? {
                return Ok(caller);
            }
        }
        Err(Error::new(ErrorKind::Unauthenticated, self.refusal(&parts.headers)))
    }

    /// The kind of credential that a request presents, for the audit log.
    pub(crate) fn presented_kind(&self, parts: &Parts) -> &'static str {
        match presented(&parts.headers) {
            Some(secret) if key_hash(secret).is_some() => "key",
            Some(_) => "token",
            None if parts.extensions.get::<PeerCertificate>().is_some() => "certificate",
            None => "anonymous",
        }
    }

    fn refusal(&self, headers: &HeaderMap) -> String {
        let usages = || each_once(self.schemes().iter().map(|scheme| scheme.usage)).join(" or ");
        if bearer(headers).is_some() {
            "the bearer token is unknown".to_owned()
        } else if headers.contains_key(header::AUTHORIZATION) {
            format!("the credentials cannot be read: send {}", usages())
        } else if headers.contains_key(&API_KEY) {
            "the API key is unknown".to_owned()
        } else {
            format!("credentials are missing: send {}", usages())
        }
    }
}

/// The items in their order, without repetitions.
fn each_once<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut once = Vec::new();
    for item in items {
        if !once.contains(&item) {
            once.push(item);
        }
    }
    once
}
