//! Signing keys of an identity provider: discovery, download, refresh and expiry.

use std::{net::IpAddr, sync::Arc, time::Duration};

use http::{HeaderMap, header};
use jsonwebtoken::{
    Algorithm, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse},
};
use reqwest::{Certificate, Client, Url, redirect};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::causes::causes;

/// The most bytes of a document of the provider, and the most keys.
const MAX_DOCUMENT: usize = 256 << 10;
const MAX_KEYS: usize = 64;
/// The time for a connection, and for a whole request.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which keys are downloaded again: by `Cache-Control`, within these bounds.
const SHORTEST_REFRESH: Duration = Duration::from_secs(60);
const LONGEST_REFRESH: Duration = Duration::from_secs(60 * 60);
const USUAL_REFRESH: Duration = Duration::from_secs(10 * 60);
/// The first and the longest pause after a failed download.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Bits of the modulus of an RSA key. Larger keys would make every check slow.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// The settings of a key source.
#[derive(Debug)]
pub(crate) struct KeySourceSettings {
    /// The issuer, whose discovery document names the keys unless `jwks_url` does.
    pub(crate) issuer: String,
    pub(crate) jwks_url: Option<Url>,
    /// Certificate authorities to trust besides the system's, in PEM.
    pub(crate) roots: Option<Vec<u8>>,
    /// The shortest time between two downloads because of unknown keys.
    pub(crate) refetch: Duration,
    /// The time for which keys are used while the provider cannot be reached.
    pub(crate) keep: Duration,
}

/// The keys of one identity provider.
#[derive(Debug)]
pub(crate) struct KeySource {
    settings: KeySourceSettings,
    client: Client,
    state: watch::Sender<KeyState>,
    /// Notified when a token names an unknown key.
    wanted: Notify,
}

/// The keys that are in use.
#[derive(Debug, Clone, Default)]
struct KeyState {
    keys: Arc<[Arc<IssuerKey>]>,
    /// The time of the last download that succeeded, and that of the last one.
    fetched: Option<Instant>,
    attempted: Option<Instant>,
}

/// A key that verifies tokens.
#[derive(Debug)]
pub(crate) struct IssuerKey {
    jwk: Jwk,
    pub(crate) decoding: DecodingKey,
    /// Cancelled when the provider no longer lists the key, or when it has not been reachable for too
    /// long.
    pub(crate) retired: CancellationToken,
}

/// The reason why no key was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// The provider does not list it.
    Unknown,
    /// The keys of the provider are not available.
    Unavailable,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct IssuerKeySet<'a> {
    #[serde(borrow)]
    keys: Vec<&'a RawValue>,
}

impl KeySource {
    /// The error is one of `settings.roots`.
    pub(crate) fn new(settings: KeySourceSettings) -> Result<Self, String> {
        let mut builder = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .user_agent(concat!("herald/", env!("CARGO_PKG_VERSION")));
        if let Some(pem) = &settings.roots {
            let roots = Certificate::from_pem_bundle(pem).map_err(|error| causes(&error))?;
            if roots.is_empty() {
                return Err("no certificate in PEM was found".to_owned());
            }
            builder = builder.tls_certs_merge(roots);
        }
        let client = builder.build().map_err(|error| causes(&error))?;
        let (state, _) = watch::channel(KeyState::default());
        Ok(Self { settings, client, state, wanted: Notify::new() })
    }

    /// Keeps the keys up to date, for ever.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            let fetched = self.fetch().await;
            let wait = match fetched {
                Ok((keys, refresh)) => {
                    self.replace(keys);
                    pause = FIRST_PAUSE;
                    refresh
                }
                Err(fault) => {
                    self.failed(&fault);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    pause
                }
            };
            let mut refresh = std::pin::pin!(sleep(wait));
            loop {
                tokio::select! {
                    () = refresh.as_mut() => break,
                    () = self.wanted.notified() => {}
                }
                if self.may_refetch() {
                    break;
                }
            }
        }
    }

    /// The keys that can have signed a token with this key id and algorithm, if they are in memory.
    pub(crate) fn known(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Option<Vec<Arc<IssuerKey>>> {
        self.search(&self.state.borrow(), kid, algorithm).ok()
    }

    /// The keys that can have signed a token with this key id and algorithm. An unknown key causes a
    /// download, if the last one is long enough ago.
    pub(crate) async fn find(
        &self,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<Arc<IssuerKey>>, NoKey> {
        let mut state = self.state.subscribe();
        let found = self.search(&state.borrow_and_update(), kid, algorithm);
        if found.is_ok() || !self.may_refetch() {
            return found;
        }
        self.wanted.notify_one();
        // An error means that the download takes too long; the caller can try again.
        let _ = timeout(REQUEST_TIMEOUT, state.changed()).await;
        let state = state.borrow();
        self.search(&state, kid, algorithm)
    }

    fn search(
        &self,
        state: &KeyState,
        kid: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<Arc<IssuerKey>>, NoKey> {
        if state.fetched.is_none_or(|fetched| fetched.elapsed() > self.settings.keep) {
            return Err(NoKey::Unavailable);
        }
        let fits =
            |key: &&Arc<IssuerKey>| key.verifies(algorithm) && (kid.is_none() || key.kid() == kid);
        let found: Vec<_> = state.keys.iter().filter(fits).map(Arc::clone).collect();
        // Without a key id the choice must be unambiguous: trying all keys would multiply the work.
        if found.is_empty() || (kid.is_none() && found.len() > 1) {
            return Err(NoKey::Unknown);
        }
        Ok(found)
    }

    /// True if an unknown key may cause a download now.
    fn may_refetch(&self) -> bool {
        let attempted = self.state.borrow().attempted;
        attempted.is_none_or(|attempted| attempted.elapsed() >= self.settings.refetch)
    }

    fn replace(&self, listed: Vec<IssuerKey>) {
        self.state.send_modify(|state| {
            if state.fetched.is_none() {
                tracing::info!(
                    issuer = self.settings.issuer,
                    keys = listed.len(),
                    "downloaded the keys"
                );
            }
            // A key that stays keeps its token, so that open streams go on.
            let known = |key: IssuerKey| {
                let old = state.keys.iter().find(|old| old.jwk == key.jwk);
                old.map_or_else(|| Arc::new(key), Arc::clone)
            };
            let keys: Arc<[_]> = listed.into_iter().map(known).collect();
            for old in state.keys.iter() {
                if !keys.iter().any(|key| Arc::ptr_eq(key, old)) {
                    old.retired.cancel();
                }
            }
            let now = Some(Instant::now());
            *state = KeyState { keys, fetched: now, attempted: now };
        });
    }

    fn failed(&self, fault: &str) {
        self.state.send_modify(|state| {
            state.attempted = Some(Instant::now());
            let over = state.fetched.is_none_or(|fetched| fetched.elapsed() > self.settings.keep);
            if over {
                state.keys.iter().for_each(|key| key.retired.cancel());
                state.keys = Arc::default();
            }
            let tokens =
                if over { "are refused" } else { "are checked with the keys that are known" };
            let issuer = &self.settings.issuer;
            tracing::warn!(
                issuer,
                "cannot download the keys of the identity provider: {fault}; its tokens {tokens}"
            );
        });
    }

    /// Downloads the keys. The duration is the time until the next download.
    async fn fetch(&self) -> Result<(Vec<IssuerKey>, Duration), String> {
        let url = match &self.settings.jwks_url {
            Some(url) => url.clone(),
            None => self.discover().await?,
        };
        let (headers, body) = self.get(url.clone()).await?;
        let set: IssuerKeySet<'_> = read(&url, &body)?;
        if set.keys.len() > MAX_KEYS {
            return Err(format!("{url} lists more than {MAX_KEYS} keys"));
        }
        let keys: Vec<_> = set.keys.iter().filter_map(|key| IssuerKey::read(key)).collect();
        if keys.is_empty() {
            return Err(format!("{url} lists no key for signatures"));
        }
        Ok((keys, refresh(&headers)))
    }

    /// The URL of the keys, by the discovery document of the issuer (OpenID Connect Discovery 1.0).
    async fn discover(&self) -> Result<Url, String> {
        let issuer = &self.settings.issuer;
        let url = discovery_url(issuer);
        let url = Url::parse(&url).map_err(|_| format!("{url} is not a URL"))?;
        let (_, body) = self.get(url.clone()).await?;
        let discovery: Discovery = read(&url, &body)?;
        // Otherwise one provider could speak for another.
        if discovery.issuer != *issuer {
            return Err(format!("{url} names the issuer {:?}", discovery.issuer));
        }
        secure_url(&discovery.jwks_uri).map_err(|fault| format!("jwks_uri of {url}: {fault}"))
    }

    async fn get(&self, url: Url) -> Result<(HeaderMap, Vec<u8>), String> {
        let request = self.client.get(url.clone()).header(header::ACCEPT, "application/json");
        let failed = |error: reqwest::Error| format!("{url}: {}", causes(&error.without_url()));
        let mut response = request.send().await.map_err(failed)?;
        if response.status() != http::StatusCode::OK {
            return Err(format!("{url} answers {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if body.len() + chunk.len() > MAX_DOCUMENT {
                return Err(format!("{url} is larger than {MAX_DOCUMENT} bytes"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok((std::mem::take(response.headers_mut()), body))
    }
}

impl IssuerKey {
    /// A key of a set; `None` for one that verifies no signatures, as sets may also list others.
    fn read(json: &RawValue) -> Option<Self> {
        let jwk: Jwk = serde_json::from_str(json.get()).ok()?;
        let signs = matches!(jwk.common.public_key_use, None | Some(PublicKeyUse::Signature));
        let operations = jwk.common.key_operations.as_ref();
        let verifies = operations.is_none_or(|all| all.contains(&KeyOperations::Verify));
        if !signs || !verifies || family(&jwk).is_none() {
            return None;
        }
        let decoding = DecodingKey::from_jwk(&jwk).ok()?;
        Some(Self { jwk, decoding, retired: CancellationToken::new() })
    }

    fn kid(&self) -> Option<&str> {
        self.jwk.common.key_id.as_deref()
    }

    /// True if the key can verify signatures of this algorithm.
    fn verifies(&self, algorithm: Algorithm) -> bool {
        let named = self.jwk.common.key_algorithm.map(|named| named.to_string().parse().ok());
        let fits = family(&self.jwk).is_some_and(|family| family.contains(&algorithm));
        fits && named.is_none_or(|named| named == Some(algorithm))
    }
}

/// The algorithms of a public key; `None` for a shared secret and for a key of an unsupported kind or
/// strength.
fn family(jwk: &Jwk) -> Option<&'static [Algorithm]> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => {
            // Four characters are three bytes.
            let bits = key.n.len() * 6;
            let strong = RSA_BITS.contains(&(bits & !7)) || RSA_BITS.contains(&bits);
            strong.then_some(&[RS256, RS384, RS512, PS256, PS384, PS512])
        }
        AlgorithmParameters::EllipticCurve(key) => match key.curve {
            EllipticCurve::P256 => Some(&[ES256]),
            EllipticCurve::P384 => Some(&[ES384]),
            EllipticCurve::P521 | EllipticCurve::Ed25519 => None,
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(key) => {
            (key.curve == EllipticCurve::Ed25519).then_some(&[EdDSA])
        }
        AlgorithmParameters::OctetKey(_) | AlgorithmParameters::Other(_) => None,
        _ => None,
    }
}

/// The URL of the discovery document of an issuer.
pub(crate) fn discovery_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
}

/// A URL whose documents nobody on the way can change: https, or http on this machine.
pub(crate) fn secure_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|_| format!("{text:?} is not a URL"))?;
    let host = url.host_str().unwrap_or_default();
    let local = host == "localhost"
        || host.trim_matches(['[', ']']).parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    match url.scheme() {
        _ if !url.username().is_empty() || url.password().is_some() => {
            Err("the URL must not contain a password".to_owned())
        }
        "https" => Ok(url),
        "http" if local => Ok(url),
        _ => Err(format!("{text:?} must be an https URL; http is allowed on this machine only")),
    }
}

fn read<'a, T: Deserialize<'a>>(url: &Url, body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| format!("{url} cannot be read: {error}"))
}

/// The time after which keys are downloaded again.
fn refresh(headers: &HeaderMap) -> Duration {
    let values = headers.get_all(header::CACHE_CONTROL).iter();
    let directives =
        values.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let mut age = None;
    for directive in directives.map(|directive| directive.trim().to_ascii_lowercase()) {
        match directive.strip_prefix("max-age=") {
            Some(seconds) => age = age.or_else(|| seconds.trim_matches('"').parse().ok()),
            None if matches!(&*directive, "no-store" | "no-cache") => age = Some(0),
            None => {}
        }
    }
    age.map_or(USUAL_REFRESH, Duration::from_secs).clamp(SHORTEST_REFRESH, LONGEST_REFRESH)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn key(json: &str) -> Option<IssuerKey> {
        IssuerKey::read(serde_json::from_str(json).unwrap())
    }

    #[test]
    fn only_public_keys_for_signatures_are_read() {
        let modulus = |bits: usize| "A".repeat(bits.div_ceil(8).div_ceil(3) * 4);
        let rsa = |bits, more: &str| {
            key(&format!(r#"{{"kty":"RSA","kid":"k","n":"{}","e":"AQAB"{more}}}"#, modulus(bits)))
        };
        assert!(rsa(2048, "").unwrap().verifies(Algorithm::PS256));
        assert!(!rsa(2048, "").unwrap().verifies(Algorithm::HS256));
        assert!(!rsa(2048, "").unwrap().verifies(Algorithm::ES256));
        assert!(!rsa(2048, r#","alg":"RS512""#).unwrap().verifies(Algorithm::RS256));
        assert!(rsa(2048, r#","alg":"RS512","use":"sig""#).unwrap().verifies(Algorithm::RS512));
        assert!(rsa(2048, r#","key_ops":["verify"]"#).is_some());
        for (bits, more) in [
            (1024, ""),
            (16384, ""),
            (2048, r#","use":"enc""#),
            (2048, r#","key_ops":["wrapKey"]"#),
        ] {
            assert!(rsa(bits, more).is_none(), "{bits} {more}");
        }
        assert!(key(r#"{"kty":"oct","kid":"k","k":"c2VjcmV0"}"#).is_none());
        assert!(key(r#"{"kty":"EC","crv":"P-521","x":"AA","y":"AA"}"#).is_none());
        assert!(key(r#"{"kty":"new"}"#).is_none());
        assert!(key("7").is_none());
    }

    #[test]
    fn keys_are_refreshed_by_cache_control_within_bounds() {
        for (value, seconds) in [
            ("", 600),
            ("public, max-age=300", 300),
            ("max-age=1", 60),
            ("max-age=999999, must-revalidate", 3600),
            ("no-store", 60),
            ("max-age=soon", 600),
        ] {
            let value = HeaderValue::from_static(value);
            let headers = HeaderMap::from_iter([(header::CACHE_CONTROL, value.clone())]);
            assert_eq!(refresh(&headers).as_secs(), seconds, "{value:?}");
        }
    }

    #[test]
    fn documents_come_over_https_or_from_this_machine() {
        for url in [
            "https://id.example.com/keys",
            "http://127.0.0.1:9/",
            "http://[::1]:9/",
            "http://localhost",
        ] {
            assert!(secure_url(url).is_ok(), "{url}");
        }
        for url in [
            "http://id.example.com/keys",
            "ftp://id.example.com",
            "file:///etc/passwd",
            "https://user:password@id.example.com",
            "http://127.0.0.1.evil.example",
            "id.example.com",
        ] {
            assert!(secure_url(url).is_err(), "{url}");
        }
    }
}
