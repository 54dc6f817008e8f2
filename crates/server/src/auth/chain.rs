//! Chain of authenticators: the alternatives of a server, asked in order.

use std::sync::Arc;

use herald_engine::Caller;
use herald_protocol::{Error, ErrorKind, TenantId};
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};

use crate::auth::{Authenticate, Scheme, bearer};

/// Header of API keys.
static API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The authenticators of a server. Without any, no credentials are needed.
#[derive(Debug)]
pub(crate) struct Chain {
    authenticators: Vec<Arc<dyn Authenticate>>,
    schemes: Vec<Scheme>,
    /// The caller of a server without authenticators.
    anonymous: Caller,
    /// The answer to a request without credentials.
    missing: String,
}

impl Chain {
    pub(crate) fn new(authenticators: Vec<Arc<dyn Authenticate>>) -> Self {
        let mut schemes: Vec<Scheme> = Vec::new();
        for scheme in authenticators.iter().flat_map(|one| one.schemes()) {
            // Several kinds of credentials can share a scheme, such as bearer tokens.
            if schemes.iter().all(|known| known.name != scheme.name) {
                schemes.push(scheme);
            }
        }
        let usages: Vec<_> = schemes.iter().map(|scheme| scheme.usage).collect();
        let missing = format!("credentials are missing: send {}", usages.join(" or "));
        let anonymous = Caller::anonymous(TenantId::default());
        Self { authenticators, schemes, anonymous, missing }
    }

    /// True if no credentials are needed.
    pub(crate) fn is_open(&self) -> bool {
        self.authenticators.is_empty()
    }

    /// The schemes, each once.
    pub(crate) fn schemes(&self) -> &[Scheme] {
        &self.schemes
    }

    /// The challenges of a refusal, each once.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = &HeaderValue> {
        let challenges = self.schemes.iter().filter_map(|scheme| scheme.challenge.as_ref());
        let mut seen: Vec<&HeaderValue> = Vec::new();
        for challenge in challenges {
            if !seen.contains(&challenge) {
                seen.push(challenge);
            }
        }
        seen.into_iter()
    }

    /// The caller of a request.
    pub(crate) async fn caller(&self, parts: &Parts) -> Result<Caller, Error> {
        if self.is_open() {
            return Ok(self.anonymous.clone());
        }
        for authenticator in &self.authenticators {
            if let Some(caller) = authenticator.authenticate(parts).await? {
                return Ok(caller);
            }
        }
        Err(Error::new(ErrorKind::Unauthenticated, self.refusal(&parts.headers)))
    }

    fn refusal(&self, headers: &HeaderMap) -> String {
        if bearer(headers).is_some() {
            "the bearer token is unknown".to_owned()
        } else if headers.contains_key(&API_KEY) {
            "the API key is unknown".to_owned()
        } else if headers.contains_key(header::AUTHORIZATION) {
            let usages: Vec<_> = self.schemes.iter().map(|scheme| scheme.usage).collect();
            format!("the credentials cannot be read: send {}", usages.join(" or "))
        } else {
            self.missing.clone()
        }
    }
}
