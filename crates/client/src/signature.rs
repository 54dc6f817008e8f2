//! Keys for card signatures, and the verification of a card with them.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use herald_protocol::{
    AgentCard,
    card::signature::{Check, MAX_SIGNATURES, ProtectedHeader, Verdict, verdict},
};
use http::{HeaderMap, Method};
use jsonwebtoken::{
    Algorithm, DecodingKey, crypto,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use reqwest::Url;
use serde::Deserialize;

use crate::{
    error::Error,
    transport::http::{Http, read, refuse_redirect, request},
};

/// Limit of key sets that are fetched for one card.
const MAX_SETS: usize = 4;

/// Trusted keys for the signatures of cards. A URL of keys in a card is followed only at a trusted origin.
#[derive(Debug, Clone, Default)]
pub struct CardKeys {
    keys: Vec<CardKey>,
    places: Vec<String>,
    revoked: Vec<String>,
}

/// A key with the URL of its set; `None` for a key of the configuration.
#[derive(Clone)]
struct CardKey {
    from: Option<Url>,
    jwk: Jwk,
    /// In seconds since 1970.
    not_before: Option<f64>,
    expires: Option<f64>,
}

/// A member of a key set, with its period of validity.
#[derive(Deserialize)]
struct KeySetMember {
    #[serde(flatten)]
    jwk: Jwk,
    nbf: Option<f64>,
    exp: Option<f64>,
    revoked: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct KeySet<'a> {
    #[serde(borrow)]
    keys: Vec<&'a serde_json::value::RawValue>,
}

impl CardKeys {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the keys of a JSON Web Key Set (RFC 7517). Keys that cannot sign a card, and those whose
    /// `exp` has passed or that are `revoked`, are ignored.
    pub fn jwks(mut self, json: impl AsRef<[u8]>) -> Result<Self, Error> {
        self.add(None, json.as_ref()).map_err(Error::setup)?;
        Ok(self)
    }

    /// Trusts the keys that a card's signature names by a URL (`jku`) at this origin, such as
    /// `https://keys.example.com`. They are fetched when a card is checked, over https only.
    pub fn fetched_from(mut self, origin: &str) -> Result<Self, Error> {
        let url = Url::parse(origin).ok().filter(|url| url.scheme() == "https");
        let url = url.ok_or_else(|| {
            let text = format!(
                "{origin:?} is not an origin for keys; expected one such as https://keys.example.com"
            );
            Error::setup(text)
        })?;
        self.places.push(url.origin().ascii_serialization());
        Ok(self)
    }

    /// Refuses the key with this id.
    pub fn revoke(mut self, kid: impl Into<String>) -> Self {
        self.revoked.push(kid.into());
        self
    }

    /// The verdict on a card after its own keys were fetched, and the last error of that.
    pub(crate) async fn judge(&self, http: &Http, card: &AgentCard) -> (Verdict, Option<Error>) {
        let mut known = self.clone();
        let mut fault = None;
        for place in self.places_of(card) {
            match fetch(http, &place).await {
                Ok(bytes) => {
                    if let Err(text) = known.add(Some(&place), &bytes) {
                        fault = Some(Error::invalid(format!("{place}: {text}")));
                    }
                }
                Err(error) => fault = Some(error),
            }
        }
        (known.verdict(card), fault)
    }

    /// The verdict on a card by the known keys.
    pub(crate) fn verdict(&self, card: &AgentCard) -> Verdict {
        let now = now().as_secs_f64();
        verdict(card, |header, input, signature| self.check(header, input, signature, now))
    }

    fn check(&self, header: &ProtectedHeader, input: &str, signature: &str, now: f64) -> Check {
        let named = header.jku.as_ref().and_then(|jku| Url::parse(jku).ok());
        let usable = |key: &&CardKey| {
            key.jwk.common.key_id.as_ref() == Some(&header.kid)
                && (key.from.is_none() || key.from == named)
                && key.not_before.is_none_or(|time| time <= now)
                && key.expires.is_none_or(|time| now < time)
        };
        let mut usable = self.keys.iter().filter(usable).peekable();
        if usable.peek().is_none() || self.revoked.contains(&header.kid) {
            return Check::NoKey;
        }
        let good = usable.any(|key| key.has_signed(header, input, signature));
        if good { Check::Good } else { Check::Bad }
    }

    /// The URLs of key sets in the card's signatures that have a trusted origin.
    fn places_of(&self, card: &AgentCard) -> Vec<Url> {
        let mut places = Vec::new();
        for signature in card.signatures.iter().take(MAX_SIGNATURES) {
            let named = signature.protected_header().ok().and_then(|header| header.jku);
            let Some(url) = named.and_then(|jku| Url::parse(&jku).ok()) else { continue };
            let trusted = self.places.contains(&url.origin().ascii_serialization());
            if trusted && !places.contains(&url) && places.len() < MAX_SETS {
                places.push(url);
            }
        }
        places
    }

    fn add(&mut self, from: Option<&Url>, json: &[u8]) -> Result<(), &'static str> {
        let set: KeySet<'_> = serde_json::from_slice(json).map_err(|_| "not a JSON Web Key Set")?;
        // A set may contain keys of unknown types.
        let members = set.keys.iter().filter_map(|raw| serde_json::from_str(raw.get()).ok());
        let members = members.filter(|member: &KeySetMember| member.revoked.is_none());
        self.keys.extend(members.map(|KeySetMember { jwk, nbf, exp, .. }| CardKey {
            from: from.cloned(),
            jwk,
            not_before: nbf,
            expires: exp,
        }));
        Ok(())
    }
}

impl CardKey {
    fn has_signed(&self, header: &ProtectedHeader, input: &str, signature: &str) -> bool {
        let Ok(algorithm) = header.alg.parse::<Algorithm>() else { return false };
        if !self.is_for(algorithm, &header.alg) {
            return false;
        }
        let key = DecodingKey::from_jwk(&self.jwk);
        key.and_then(|key| crypto::verify(signature, input.as_bytes(), &key, algorithm))
            .unwrap_or(false)
    }

    /// The algorithms of a key. The signature's header does not decide: otherwise a public key could be used as
    /// a shared secret.
    fn is_for(&self, algorithm: Algorithm, name: &str) -> bool {
        let common = &self.jwk.common;
        let signs =
            common.public_key_use.as_ref().is_none_or(|r#use| *r#use == PublicKeyUse::Signature)
                && common
                    .key_operations
                    .as_ref()
                    .is_none_or(|all| all.contains(&KeyOperations::Verify))
                && common.key_algorithm.as_ref().is_none_or(|only| only.to_string() == name);
        signs
            && match &self.jwk.algorithm {
                AlgorithmParameters::EllipticCurve(key) => matches!(
                    (&key.curve, algorithm),
                    (EllipticCurve::P256, Algorithm::ES256)
                        | (EllipticCurve::P384, Algorithm::ES384)
                ),
                AlgorithmParameters::RSA(_) => matches!(
                    algorithm,
                    Algorithm::RS256
                        | Algorithm::RS384
                        | Algorithm::RS512
                        | Algorithm::PS256
                        | Algorithm::PS384
                        | Algorithm::PS512
                ),
                AlgorithmParameters::OctetKeyPair(key) => {
                    key.curve == EllipticCurve::Ed25519 && algorithm == Algorithm::EdDSA
                }
                AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_) | _ => false,
            }
    }
}

impl std::fmt::Debug for CardKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CardKey").field(&self.jwk.common.key_id).finish()
    }
}

async fn fetch(http: &Http, url: &Url) -> Result<Bytes, Error> {
    let response = http.send(request(Method::GET, url, HeaderMap::new(), Bytes::new())?).await?;
    refuse_redirect(&response)?;
    if !response.status().is_success() {
        return Err(Error::no_document(response.status().as_u16(), url, "keys"));
    }
    read(response.into_body(), http.limits.card, "the set of keys").await
}

#[expect(clippy::disallowed_methods, reason = "keys and tokens expire by the clock of the world")]
pub(crate) fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}
