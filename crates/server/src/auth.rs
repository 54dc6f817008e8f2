//! Authentication of callers.

mod token;

use std::fmt;

use async_trait::async_trait;
use herald_engine::Caller;
use herald_protocol::{Error, TenantId, security::SecurityScheme};
use http::request::Parts;

pub use token::Tokens;
pub(crate) use token::bearer;

/// Authentication of a request: from its headers to a [`Caller`], which every call of the engine needs.
#[async_trait]
pub trait Authenticate: fmt::Debug + Send + Sync + 'static {
    /// The caller, by the headers alone. It is called before the body is read, without a tenant, and
    /// again if the request names a tenant.
    ///
    /// An error of kind `Unauthenticated` becomes a 401 with the challenges of the schemes, one of
    /// kind `Forbidden` a 403.
    async fn caller(&self, parts: &Parts, tenant: Option<&TenantId>) -> Result<Caller, Error>;

    /// The security schemes that the card declares; any one of them is enough. If there are none, no
    /// credentials are needed.
    fn schemes(&self) -> Vec<Scheme> {
        Vec::new()
    }
}

/// A security scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Its name in the card.
    pub name: &'static str,
    /// Its description in the card.
    pub scheme: SecurityScheme,
    /// The `WWW-Authenticate` of a refusal.
    pub challenge: &'static str,
}

/// No authentication: all requests have the same caller, and the tenant is a plain namespace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Open;

#[async_trait]
impl Authenticate for Open {
    async fn caller(&self, _parts: &Parts, tenant: Option<&TenantId>) -> Result<Caller, Error> {
        Ok(Caller::anonymous(tenant.cloned().unwrap_or_default()))
    }
}
