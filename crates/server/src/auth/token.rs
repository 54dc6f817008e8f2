//! Authentication by bearer tokens from the configuration.

use async_trait::async_trait;
use blake3::Hash;
use herald_engine::Caller;
use herald_protocol::{
    Error, ErrorKind, TenantId,
    security::{HttpScheme, SecurityScheme},
};
use http::{HeaderMap, header, request::Parts};
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
            let principal = token.principal.as_str();
            let caller = Caller::new(token.tenant.clone(), principal, token.scopes);
            (blake3::hash(token.secret.as_bytes()), caller)
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
    async fn caller(&self, parts: &Parts, tenant: Option<&TenantId>) -> Result<Caller, Error> {
        let refused = |text| Err(Error::new(ErrorKind::Unauthenticated, text));
        let Some(token) = bearer(&parts.headers) else {
            return refused("credentials are missing: send Authorization: Bearer TOKEN");
        };
        let Some(caller) = self.find(token) else { return refused("the bearer token is unknown") };
        if tenant.is_some_and(|tenant| *tenant != caller.owner().tenant) {
            let text = "permission denied: the credentials belong to another tenant";
            return Err(Error::new(ErrorKind::Forbidden, text));
        }
        Ok(caller.clone())
    }

    fn schemes(&self) -> Vec<Scheme> {
        let scheme = HttpScheme { scheme: "Bearer".to_owned(), ..HttpScheme::default() };
        vec![Scheme {
            name: "bearer",
            scheme: SecurityScheme::Http(scheme),
            challenge: r#"Bearer realm="herald""#,
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
    use http::HeaderValue;

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
