//! Proof of identity in each request: headers, query parameters and the current token.

use std::{fmt, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, header};

use crate::error::Error;

/// A text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Returns the current token; `None` while there is none.
type TokenSource = Arc<dyn Fn() -> Option<Secret> + Send + Sync>;

/// Credentials in the places that the card declares.
#[derive(Clone, Default)]
pub(crate) struct Proof {
    headers: HeaderMap,
    /// Parameters of the query.
    pub(crate) query: Vec<(String, Secret)>,
    /// Source of the bearer token, if tokens are fetched.
    pub(crate) token: Option<TokenSource>,
}

impl Secret {
    /// Keeps `text` from being printed.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Proof {
    /// The headers as they are now: the token changes.
    pub(crate) fn headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        let token = self.token.as_ref().and_then(|current| current());
        let value = token.map(|token| HeaderValue::try_from(format!("Bearer {}", token.expose())));
        if let Some(Ok(mut value)) = value {
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        headers
    }

    /// Adds a header, which is marked as sensitive.
    pub(crate) fn header(&mut self, name: HeaderName, value: &str) -> Result<(), Error> {
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            Error::setup("a credential contains characters that a header cannot have")
        })?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }
}

impl fmt::Debug for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proof")
            .field("headers", &self.headers)
            .field("query", &self.query)
            .finish_non_exhaustive()
    }
}
