//! Authentication by JSON web tokens (RFC 7519) of OpenID Connect and OAuth 2 providers.
//!
//! Issuer, audience and algorithms are pinned by the configuration, and keys come from the issuer alone:
//! nothing that a token says about keys (`jku`, `x5u`, `jwk`, `x5c`) is used.

use std::{borrow::Cow, str::FromStr, sync::Arc, time::Duration};

use async_trait::async_trait;
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use herald_engine::{Caller, Clock, CredentialKind, Identity, Scopes, Validity, Visibility};
use herald_protocol::{
    Error, ErrorKind, TenantId,
    security::{HttpScheme, OpenIdConnectScheme, SecurityScheme},
};
use http::request::Parts;
use jsonwebtoken::{Algorithm, crypto};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Map, Value};
use tokio::time::Instant;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::auth::{
    Authenticate, Scheme, bearer,
    cache::RecentCache,
    jwks::{IssuerKey, KeySource, KeySourceSettings, NoKey, discovery_url, secure_url},
    token::{BEARER, CHALLENGE},
};

/// The most bytes of a token, of a key id, and of a tenant or a principal.
const MAX_TOKEN: usize = 16 << 10;
const MAX_NAME: usize = 256;
/// Verified tokens in each generation of the cache.
const CACHED: usize = 8 << 10;
/// The longest clock skew: a token must end within a minute after its expiry.
const MAX_SKEW: Duration = Duration::from_secs(60);

/// Settings of one issuer.
#[derive(Debug, Clone)]
pub struct JwtIssuer {
    /// The issuer, the `iss` of its tokens.
    pub issuer: String,
    /// The accepted audiences; a token needs one of them in `aud`.
    pub audience: Vec<String>,
    /// The URL of the keys; by default that of the issuer's discovery document.
    pub jwks_url: Option<String>,
    /// The accepted algorithms, such as `RS256`.
    pub algorithms: Vec<String>,
    /// The accepted `typ` of a token's header, such as `at+jwt`. By default `JWT`, `at+jwt` or none.
    pub typ: Option<String>,
    /// The tenant of each token.
    pub tenant: JwtTenant,
    /// The claim with the principal. A name that begins with a slash is a JSON pointer (RFC 6901).
    pub principal_claim: String,
    /// The scopes of each token.
    pub scopes: JwtScopes,
    /// The tasks that callers see.
    pub visibility: Visibility,
    /// The tolerated difference between the clocks, at most a minute.
    pub clock_skew: Duration,
    /// Certificate authorities to trust for the provider besides the system's, in PEM.
    pub roots: Option<Vec<u8>>,
    /// The shortest time between two downloads of keys because of unknown key ids.
    pub refetch: Duration,
    /// The time for which known keys are used while the provider cannot be reached.
    pub keep_keys: Duration,
}

/// The tenant of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwtTenant {
    /// One tenant for all tokens of the issuer.
    Fixed(TenantId),
    /// The value of a claim.
    Claim(String),
}

/// The scopes of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwtScopes {
    /// The same scopes for all tokens of the issuer.
    Fixed(Scopes),
    /// The value of a claim: a list, or a text with names separated by spaces. Names without the prefix and
    /// unknown names are ignored.
    Claim {
        /// The claim.
        name: String,
        /// The prefix of the names, such as `herald:`.
        prefix: String,
    },
}

/// An invalid setting of an issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {fault}")]
pub struct JwtSettingError {
    /// The key of the setting.
    pub key: &'static str,
    /// The fault and its remedy.
    pub fault: String,
}

/// JSON web tokens of one or several issuers.
#[derive(Debug)]
pub struct Jwt {
    issuers: Vec<Issuer>,
    verified: RecentCache<Caller>,
    clock: Clock,
}

#[derive(Debug)]
struct Issuer {
    settings: JwtIssuer,
    algorithms: Vec<Algorithm>,
    keys: Arc<KeySource>,
    _refresh: Option<AbortOnDropHandle<()>>,
}

#[derive(Deserialize)]
struct TokenHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Extensions that must be understood; none is.
    crit: Option<IgnoredAny>,
    b64: Option<IgnoredAny>,
    /// Encryption and compression.
    enc: Option<IgnoredAny>,
    zip: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct TokenClaims {
    iss: String,
    aud: TokenAudience,
    exp: f64,
    nbf: Option<f64>,
    iat: Option<f64>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum TokenAudience {
    One(String),
    Many(Vec<String>),
}

impl JwtIssuer {
    /// The settings of an issuer that names its tokens' tenant in a claim. The rest has its defaults.
    pub fn new(issuer: impl Into<String>, audience: impl Into<String>, tenant: JwtTenant) -> Self {
        Self {
            issuer: issuer.into(),
            audience: vec![audience.into()],
            jwks_url: None,
            algorithms: vec!["RS256".to_owned()],
            typ: None,
            tenant,
            principal_claim: "sub".to_owned(),
            scopes: JwtScopes::Claim { name: "scope".to_owned(), prefix: String::new() },
            visibility: Visibility::default(),
            clock_skew: Duration::from_secs(30),
            roots: None,
            refetch: Duration::from_secs(10),
            keep_keys: Duration::from_secs(24 * 60 * 60),
        }
    }
}

impl Jwt {
    /// Checks the settings and begins to download the keys. It needs a runtime.
    pub fn new(issuers: Vec<JwtIssuer>) -> Result<Self, JwtSettingError> {
        for (index, issuer) in issuers.iter().enumerate() {
            if issuers[..index].iter().any(|earlier| earlier.issuer == issuer.issuer) {
                return Err(setting("issuer", format!("{:?} is used twice", issuer.issuer)));
            }
        }
        let issuers = issuers.into_iter().map(Issuer::new).collect::<Result<Vec<_>, _>>()?;
        // After all checks, so that a mistake causes no traffic.
        let issuers = issuers.into_iter().map(Issuer::start).collect();
        Ok(Self { issuers, verified: RecentCache::new(CACHED), clock: Clock::system() })
    }

    /// Checks the settings of an issuer, without traffic.
    pub fn check(issuer: &JwtIssuer) -> Result<(), JwtSettingError> {
        Issuer::new(issuer.clone()).map(|_| ())
    }

    /// Verifies a token.
    async fn verify(&self, token: &[u8]) -> Result<Caller, Error> {
        let text = std::str::from_utf8(token).map_err(|_| malformed())?;
        if text.len() > MAX_TOKEN {
            return Err(unproven("it is too large"));
        }
        let (message, signature) = text.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = message.split_once('.').ok_or_else(malformed)?;
        let header: TokenHeader = decode(header)?;
        let claims: TokenClaims = decode(claims)?;
        let issuer = self.issuers.iter().find(|issuer| issuer.settings.issuer == claims.iss);
        let issuer = issuer.ok_or_else(|| unproven("its issuer is not accepted"))?;
        let algorithm = issuer.check_header(&header).map_err(unproven)?;
        let now = self.clock.now().as_millis();
        let kid = header.kid.as_deref();
        let keys = match issuer.keys.known(kid, algorithm) {
            Some(keys) => keys,
            None => {
                // Before the download, so that an old token never causes one.
                issuer.check_claims(&claims, now).map_err(|reason| unproven(&reason))?;
                issuer.keys.find(kid, algorithm).await.map_err(no_key)?
            }
        };
        let signed = |key: &&Arc<IssuerKey>| {
            crypto::verify(signature, message.as_bytes(), &key.decoding, algorithm) == Ok(true)
        };
        let key = keys.iter().find(signed).ok_or_else(|| unproven("its signature is wrong"))?;
        let lifetime = issuer.check_claims(&claims, now).map_err(|reason| refused(&reason))?;
        let identity = Identity {
            credential: CredentialKind::Jwt,
            visibility: issuer.settings.visibility,
            validity: Validity {
                expires: Instant::now().checked_add(lifetime),
                revoked: Some(Arc::new(key.retired.clone())),
            },
            ..issuer.identity(&claims.others)?
        };
        Ok(Arc::new(identity).into())
    }
}

impl Issuer {
    fn new(settings: JwtIssuer) -> Result<Self, JwtSettingError> {
        if let Err(fault) = secure_url(&settings.issuer) {
            return Err(setting("issuer", fault));
        }
        if settings.audience.is_empty() || settings.audience.iter().any(String::is_empty) {
            let fault = "is missing: name the audience that tokens for this server have";
            return Err(setting("audience", fault.to_owned()));
        }
        let jwks_url = settings.jwks_url.as_deref().map(secure_url).transpose();
        let jwks_url = jwks_url.map_err(|fault| setting("jwks_url", fault))?;
        if settings.clock_skew > MAX_SKEW {
            return Err(setting("clock_skew", "must be at most 60s".to_owned()));
        }
        let algorithms = settings.algorithms.iter().map(|name| algorithm(name));
        let algorithms: Vec<_> = algorithms.collect::<Result<_, _>>()?;
        if algorithms.is_empty() {
            return Err(setting("algorithms", "is empty; try [\"RS256\"]".to_owned()));
        }
        let source = KeySourceSettings {
            issuer: settings.issuer.clone(),
            jwks_url,
            roots: settings.roots.clone(),
            refetch: settings.refetch,
            keep: settings.keep_keys,
        };
        let keys = KeySource::new(source).map_err(|fault| setting("ca", fault))?;
        Ok(Self { settings, algorithms, keys: Arc::new(keys), _refresh: None })
    }

    /// Begins to download the keys.
    fn start(self) -> Self {
        let refresh = TaskTracker::new().spawn(Arc::clone(&self.keys).run());
        Self { _refresh: Some(AbortOnDropHandle::new(refresh)), ..self }
    }

    /// The algorithm of a token, if its header is acceptable.
    fn check_header(&self, header: &TokenHeader) -> Result<Algorithm, &'static str> {
        let extended = [&header.crit, &header.b64, &header.enc, &header.zip];
        if extended.iter().any(|member| member.is_some()) {
            return Err("its header has extensions that are not supported");
        }
        let algorithm = Algorithm::from_str(&header.alg).ok();
        let algorithm = algorithm.filter(|algorithm| self.algorithms.contains(algorithm));
        let algorithm = algorithm.ok_or("its algorithm is not accepted")?;
        let typ = header.typ.as_deref().map(str::to_ascii_lowercase);
        let typ = typ.as_deref().map(|typ| typ.strip_prefix("application/").unwrap_or(typ));
        let accepted = match (&self.settings.typ, typ) {
            (Some(wanted), Some(typ)) => wanted.eq_ignore_ascii_case(typ),
            (Some(_), None) => false,
            (None, typ) => matches!(typ, None | Some("jwt" | "at+jwt")),
        };
        if !accepted {
            return Err("its type (typ) is not accepted");
        }
        if header.kid.as_ref().is_some_and(|kid| kid.len() > MAX_NAME) {
            return Err("its key id (kid) is too long");
        }
        Ok(algorithm)
    }

    /// Checks audience and times. The result is the time that the token has left.
    fn check_claims(&self, claims: &TokenClaims, now: i64) -> Result<Duration, Cow<'static, str>> {
        let accepted = |audience: &String| self.settings.audience.contains(audience);
        let accepted = match &claims.aud {
            TokenAudience::One(audience) => accepted(audience),
            TokenAudience::Many(audiences) => audiences.iter().any(accepted),
        };
        if !accepted {
            return Err("it is for another audience".into());
        }
        let skew = self.settings.clock_skew.as_secs_f64();
        let now = now as f64 / 1000.0;
        let left = claims.exp + skew - now;
        if !claims.exp.is_finite() || claims.exp < 0.0 || left <= 0.0 {
            return Err("it has expired".into());
        }
        for (time, name) in [(claims.nbf, "nbf"), (claims.iat, "iat")] {
            if time.is_some_and(|time| !time.is_finite() || time > now + skew) {
                return Err(format!("it is not valid yet ({name} is in the future)").into());
            }
        }
        // Longer than any server runs, and short enough for the clock.
        const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);
        Ok(Duration::try_from_secs_f64(left).unwrap_or(LONGEST).min(LONGEST))
    }

    fn identity(&self, claims: &Map<String, Value>) -> Result<Identity, Error> {
        let principal = name(claims, &self.settings.principal_claim)?;
        let tenant = match &self.settings.tenant {
            JwtTenant::Fixed(tenant) => tenant.clone(),
            JwtTenant::Claim(claim) => TenantId::new(name(claims, claim)?),
        };
        let scopes = match &self.settings.scopes {
            JwtScopes::Fixed(scopes) => *scopes,
            JwtScopes::Claim { name, prefix } => scopes(claim(claims, name), prefix),
        };
        Ok(Identity::new(tenant, principal, scopes))
    }
}

/// A claim by its name, or by a JSON pointer.
fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let Some(pointer) = name.strip_prefix('/') else { return claims.get(name) };
    let (first, rest) = pointer
        .split_once('/')
        .map_or((pointer, ""), |(first, _)| (first, &pointer[first.len()..]));
    claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

/// The value of a claim that is the name of a tenant or a principal.
fn name<'a>(claims: &'a Map<String, Value>, name: &str) -> Result<&'a str, Error> {
    let value = claim(claims, name).and_then(Value::as_str);
    let usable = |value: &&str| {
        !value.is_empty() && value.len() <= MAX_NAME && !value.contains(char::is_control)
    };
    value
        .filter(usable)
        .ok_or_else(|| refused(&format!("its claim {name:?} is missing or not a name")))
}

/// The known scopes of a claim.
fn scopes(claim: Option<&Value>, prefix: &str) -> Scopes {
    let known = |name: &str| name.strip_prefix(prefix)?.parse::<Scopes>().ok();
    match claim {
        Some(Value::String(names)) => names.split(' ').filter_map(known).collect(),
        Some(Value::Array(names)) => {
            names.iter().filter_map(Value::as_str).filter_map(known).collect()
        }
        Some(_) | None => Scopes::NONE,
    }
}

/// An algorithm with public keys. A shared secret would let everybody who checks tokens make some.
fn algorithm(name: &str) -> Result<Algorithm, JwtSettingError> {
    const KNOWN: [&str; 9] =
        ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
    let algorithm = Algorithm::from_str(name).ok().filter(|_| KNOWN.contains(&name));
    algorithm.ok_or_else(|| {
        let fault = format!("{name:?} is not supported; use one of {}", KNOWN.join(", "));
        setting("algorithms", fault)
    })
}

fn setting(key: &'static str, fault: String) -> JwtSettingError {
    JwtSettingError { key, fault }
}

/// A part of a token: JSON in base64url without padding.
fn decode<T: DeserializeOwned>(part: &str) -> Result<T, Error> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed())?;
    serde_json::from_slice(&bytes).map_err(|_| malformed())
}

fn malformed() -> Error {
    unproven("it is malformed, or a claim of iss, aud and exp is missing")
}

/// The error of a token whose signature is not verified. It is the same for every reason, so that a forger
/// learns nothing from it; the log has the reason.
fn unproven(reason: &str) -> Error {
    tracing::debug!(reason, "refused a JSON web token without a valid signature");
    refused("it is not a valid token of an accepted issuer")
}

/// The error of a token whose signature is right.
fn refused(reason: &str) -> Error {
    Error::new(ErrorKind::Unauthenticated, format!("the token was refused: {reason}"))
}

fn no_key(reason: NoKey) -> Error {
    match reason {
        NoKey::Unknown => unproven("its key is not one of the issuer's"),
        NoKey::Unavailable => {
            let text =
                "tokens cannot be checked: the identity provider cannot be reached; try again";
            Error::new(ErrorKind::Unavailable, text)
        }
    }
}

#[async_trait]
impl Authenticate for Jwt {
    async fn authenticate(&self, parts: &Parts) -> Result<Option<Caller>, Error> {
        let Some(token) = bearer(&parts.headers) else { return Ok(None) };
        if token.iter().filter(|byte| **byte == b'.').count() != 2 {
            return Ok(None);
        }
        let hash = *blake3::hash(token).as_bytes();
        if let Some(caller) = self.verified.get(&hash) {
            if !caller.identity().validity.is_over() {
                return Ok(Some(caller));
            }
            self.verified.remove(&hash);
        }
        // Boxed: nearly all calls find their token in the cache.
        let caller = Box::pin(self.verify(token)).await?;
        self.verified.insert(hash, caller.clone());
        Ok(Some(caller))
    }

    fn schemes(&self) -> Vec<Scheme> {
        let mut discovered = 0;
        let scheme = |issuer: &Issuer| {
            let settings = &issuer.settings;
            if settings.jwks_url.is_some() {
                // The issuer may have no discovery document.
                let bearer_format = Some("JWT".to_owned());
                let http =
                    HttpScheme { scheme: "Bearer".to_owned(), bearer_format, description: None };
                return Scheme {
                    name: BEARER.into(),
                    scheme: SecurityScheme::Http(http),
                    challenge: Some(CHALLENGE),
                    usage: "Authorization: Bearer TOKEN",
                };
            }
            discovered += 1;
            let name = match discovered {
                1 => "openIdConnect".into(),
                other => format!("openIdConnect{other}").into(),
            };
            let url = discovery_url(&settings.issuer);
            let connect = OpenIdConnectScheme { open_id_connect_url: url, description: None };
            Scheme {
                name,
                scheme: SecurityScheme::OpenIdConnect(connect),
                challenge: Some(CHALLENGE),
                usage: "Authorization: Bearer TOKEN",
            }
        };
        self.issuers.iter().map(scheme).collect()
    }

    fn authorization_servers(&self) -> Vec<String> {
        self.issuers.iter().map(|issuer| issuer.settings.issuer.clone()).collect()
    }
}
