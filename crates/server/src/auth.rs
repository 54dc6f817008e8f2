//! Authentication of callers: a chain of authenticators, any one of which is enough.

mod cache;
mod certificate;
mod chain;
mod jwks;
mod jwt;
mod key;
mod token;

use std::{borrow::Cow, fmt, sync::Arc};

use async_trait::async_trait;
use herald_engine::Caller;
use herald_protocol::{Error, security::SecurityScheme};
use http::{HeaderValue, request::Parts};

pub use certificate::{
    CertificateName, CertificateSettings, CertificateTenant, Certificates, PeerCertificate,
};
pub(crate) use chain::Chain;
pub use jwt::{Jwt, JwtIssuer, JwtScopes, JwtSettingError, JwtTenant};
pub(crate) use key::ApiKeys;
pub use token::Tokens;
pub(crate) use token::{bearer, presented};

/// Authentication by one kind of credential: from the head of a request to a [`Caller`], which every
/// call of the engine needs.
#[async_trait]
pub trait Authenticate: fmt::Debug + Send + Sync + 'static {
    /// The caller, by the head of the request alone, before the body is read. `None` if the request
    /// has no credential that this authenticator knows; the next one is asked then.
    ///
    /// An error of kind `Unauthenticated` becomes a 401 with the challenges of the schemes, one of
    /// kind `Forbidden` a 403.
    async fn authenticate(&self, parts: &Parts) -> Result<Option<Caller>, Error>;

    /// The security schemes that the card declares; any one of them is enough.
    fn schemes(&self) -> Vec<Scheme>;

    /// The issuers of OAuth 2 whose tokens are accepted, for the metadata of the protected resource
    /// (RFC 9728).
    fn authorization_servers(&self) -> Vec<String> {
        Vec::new()
    }
}

#[async_trait]
impl<A: Authenticate + ?Sized> Authenticate for Arc<A> {
    async fn authenticate(&self, parts: &Parts) -> Result<Option<Caller>, Error> {
        (**self).authenticate(parts).await
    }

    fn schemes(&self) -> Vec<Scheme> {
        (**self).schemes()
    }

    fn authorization_servers(&self) -> Vec<String> {
        (**self).authorization_servers()
    }
}

/// A security scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Its name in the card.
    pub name: Cow<'static, str>,
    /// Its description in the card.
    pub scheme: SecurityScheme,
    /// The `WWW-Authenticate` of a refusal, if the scheme has one.
    pub challenge: Option<HeaderValue>,
    /// The way to send the credential, for the message of a refusal: `Authorization: Bearer TOKEN`.
    pub usage: &'static str,
}
