//! Authentication by bearer tokens from the configuration.

use std::sync::Arc;

use async_trait::async_trait;
use blake3::Hash;
use herald_engine::{Caller, Credential, Identity};
use herald_protocol::{
    Error,
    security::{HttpScheme, SecurityScheme},
};
use http::{HeaderMap, HeaderValue, header, request::Parts};
use subtle::ConstantTimeEq;

use crate::{
    auth::{Authenticate, Scheme},
    config::Token,
};

/// A list of bearer tokens. Only their hashes are kept.
#[derive(Debug)]
pub struct Tokens {
    known: Vec<(Hash, Caller)>,
}

impl Tokens {
    /// Hashes these tokens.
    pub fn new(tokens: &[Token]) -> Self {
        let known = tokens.iter().map(|token| {
            let identity = Identity {
                credential: Credential::Token,
                agents: token.agents.clone(),
                skills: token.skills.clone(),
                visibility: token.visibility,
                ..Identity::new(token.tenant.clone(), token.principal.as_str(), token.scopes)
            };
            (blake3::hash(token.secret.as_bytes()), Arc::new(identity).into())
        });
        Self { known: known.collect() }
    }

    /// The caller of a token. All known tokens are compared, in constant time, so that the duration
    /// reveals nothing about any of them.
    fn find(&self, token: &[u8]) -> Option<&Caller> {
        let hash = blake3::hash(token);
        let mut found = None;
        for (known, caller) in &self.known {
            if bool::from(known.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(caller);
            }
        }
        found
    }
}

#[async_trait]
impl Authenticate for Tokens {
    async fn authenticate(&self, parts: &Parts) -> Result<Option<Caller>, Error> {
        Ok(bearer(&parts.headers).and_then(|token| self.find(token)).cloned())
    }

    fn schemes(&self) -> Vec<Scheme> {
        let scheme = HttpScheme { scheme: "Bearer".to_owned(), ..HttpScheme::default() };
        vec![Scheme {
            name: "bearer",
            scheme: SecurityScheme::Http(scheme),
            challenge: Some(HeaderValue::from_static(r#"Bearer realm="herald""#)),
            usage: "Authorization: Bearer TOKEN",
        }]
    }
}

/// The bearer token, if the request has exactly one `Authorization` header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&[u8]> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, token) = value.split_at_checked("Bearer ".len())?;
    scheme.eq_ignore_ascii_case(b"Bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(value: &'static str) -> Option<&'static str> {
        let value = HeaderValue::from_static(value);
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
        bearer(&headers).map(|token| String::from_utf8(token.to_vec()).unwrap().leak() as &str)
    }

    #[test]
    fn the_scheme_is_read_in_any_case_and_no_other_is() {
        assert_eq!(token("Bearer abc"), Some("abc"));
        assert_eq!(token("bearer  abc"), Some("abc"));
        assert_eq!(token("Basic abc"), None);
        assert_eq!(token("Bearerabc"), None);
        assert_eq!(token("Bear"), None);
    }
}
