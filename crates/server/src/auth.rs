//! Authentication of callers.

mod token;

use std::fmt;

use async_trait::async_trait;
use herald_engine::Caller;
use herald_protocol::{Error, TenantId, security::SecurityScheme};
use http::request::Parts;

pub use token::Tokens;
pub(crate) use token::bearer;

/// Makes a [`Caller`] of a request's headers. There is no other way to the engine.
#[async_trait]
pub trait Authenticate: fmt::Debug + Send + Sync + 'static {
    /// The caller, by the headers alone. It is asked before the body is read, with no tenant, and
    /// again once the request is known to name one.
    ///
    /// An error of kind `Unauthenticated` becomes a 401 with the challenges of the schemes, one of
    /// kind `Forbidden` a 403.
    async fn caller(&self, parts: &Parts, tenant: Option<&TenantId>) -> Result<Caller, Error>;

    /// The ways to authenticate that the card declares, any one of which will do. None means that
    /// no credentials are needed.
    fn schemes(&self) -> Vec<Scheme> {
        Vec::new()
    }
}

/// One way to authenticate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Its name in the card.
    pub name: &'static str,
    /// Its description in the card.
    pub scheme: SecurityScheme,
    /// The `WWW-Authenticate` of a refusal.
    pub challenge: &'static str,
}

/// No credentials: everybody is the same caller, and the tenant is a plain namespace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

#[async_trait]
impl Authenticate for Open {
    async fn caller(&self, _parts: &Parts, tenant: Option<&TenantId>) -> Result<Caller, Error> {
        Ok(Caller::anonymous(tenant.cloned().unwrap_or_default()))
    }
}
