//! Authentication of callers: a chain of authenticators, any one of which is enough.

mod chain;
mod token;

use std::fmt;

use async_trait::async_trait;
use herald_engine::Caller;
use herald_protocol::{Error, security::SecurityScheme};
use http::{HeaderValue, request::Parts};

pub(crate) use chain::Chain;
pub use token::Tokens;
pub(crate) use token::bearer;

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
}

/// A security scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheme {
    /// Its name in the card.
    pub name: &'static str,
    /// Its description in the card.
    pub scheme: SecurityScheme,
    /// The `WWW-Authenticate` of a refusal, if the scheme has one.
    pub challenge: Option<HeaderValue>,
    /// The way to send the credential, for the message of a refusal: `Authorization: Bearer TOKEN`.
    pub usage: &'static str,
}
