//! Authentication by bearer tokens from the configuration.

use std::sync::{Arc, RwLock};

use async_trait::async_trait;
use blake3::Hash;
use herald_engine::{Caller, CredentialKind, Identity, Validity};
use herald_protocol::{
    Error, locks,
    security::{ApiKeyScheme, HttpScheme, SecurityScheme},
};
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;

use crate::{
    auth::{Authenticate, Scheme},
    config::Token,
};

/// Header of API keys.
pub(crate) static API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The name of the bearer scheme in cards, and its challenge.
pub(crate) const BEARER: &str = "bearer";
pub(crate) const CHALLENGE: HeaderValue = HeaderValue::from_static(r#"Bearer realm="herald""#);

/// A list of tokens, accepted in `Authorization: Bearer` and in `X-API-Key`. Only their hashes are kept.
#[derive(Debug)]
pub struct Tokens {
    known: RwLock<Vec<KnownToken>>,
}

#[derive(Debug)]
struct KnownToken {
    hash: Hash,
    caller: Caller,
    revoked: CancellationToken,
}

impl Tokens {
    /// Hashes these tokens.
    pub fn new(tokens: &[Token]) -> Self {
        Self { known: RwLock::new(tokens.iter().map(KnownToken::new).collect()) }
    }

    /// Replaces the list. A token that is no longer there or has other permissions is revoked, which ends
    /// its streams. Returns the numbers of new and of revoked tokens.
    pub fn replace(&self, tokens: &[Token]) -> (usize, usize) {
        let mut known = locks::write(&self.known);
        let mut next: Vec<_> = tokens.iter().map(KnownToken::new).collect();
        let before = known.len();
        let mut kept = 0;
        for token in &mut next {
            if let Some(index) = known.iter().position(|old| old.is_same(token)) {
                *token = known.swap_remove(index);
                kept += 1;
            }
        }
        known.iter().for_each(|gone| gone.revoked.cancel());
        let added = next.len() - kept;
        *known = next;
        (added, before - kept)
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        locks::read(&self.known).is_empty()
    }

    /// The caller of a token. All known tokens are compared, in constant time, so that the duration
    /// reveals nothing about any of them.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Caller> {
        let hash = blake3::hash(token);
        let known = locks::read(&self.known);
        let mut found = None;
        for token in &*known {
            if bool::from(token.hash.as_bytes().ct_eq(hash.as_bytes())) {
                found = Some(&token.caller);
            }
        }
        found.cloned()
    }
}

impl KnownToken {
    fn new(token: &Token) -> Self {
        let revoked = CancellationToken::new();
        let identity = Identity {
            credential: CredentialKind::Token,
            agents: token.agents.clone(),
            skills: token.skills.clone(),
            visibility: token.visibility,
            validity: Validity { expires: None, revoked: Some(Arc::new(revoked.clone())) },
            ..Identity::new(token.tenant.clone(), token.principal.as_str(), token.scopes)
        };
        let hash = blake3::hash(token.secret.as_bytes());
        Self { hash, caller: Arc::new(identity).into(), revoked }
    }

    /// True if both are the same token with the same permissions.
    fn is_same(&self, other: &Self) -> bool {
        let (one, two) = (self.caller.identity(), other.caller.identity());
        self.hash == other.hash
            && one.owner == two.owner
            && one.scopes == two.scopes
            && one.agents == two.agents
            && one.skills == two.skills
            && one.visibility == two.visibility
    }
}

#[async_trait]
impl Authenticate for Tokens {
    async fn authenticate(&self, parts: &Parts) -> Result<Option<Caller>, Error> {
        Ok(presented(&parts.headers).and_then(|token| self.find(token)))
    }

    fn schemes(&self) -> Vec<Scheme> {
        header_schemes()
    }
}

/// The schemes of a secret in `Authorization` or in `X-API-Key`.
pub(crate) fn header_schemes() -> Vec<Scheme> {
    let http = HttpScheme { scheme: "Bearer".to_owned(), ..HttpScheme::default() };
    let key = ApiKeyScheme {
        description: None,
        location: "header".to_owned(),
        name: "X-API-Key".to_owned(),
    };
    vec![
        Scheme {
            name: BEARER.into(),
            scheme: SecurityScheme::Http(http),
            challenge: Some(CHALLENGE),
            usage: "Authorization: Bearer TOKEN",
        },
        Scheme {
            name: "apiKey".into(),
            scheme: SecurityScheme::ApiKey(key),
            challenge: None,
            usage: "X-API-Key: TOKEN",
        },
    ]
}

/// The secret that a request presents: a bearer token, or else an API key. A request with several of one
/// kind presents none.
pub(crate) fn presented(headers: &HeaderMap) -> Option<&[u8]> {
    if headers.contains_key(header::AUTHORIZATION) {
        return bearer(headers);
    }
    let mut values = headers.get_all(&API_KEY).iter();
    let value = values.next().filter(|_| values.next().is_none())?;
    Some(value.as_bytes().trim_ascii())
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
