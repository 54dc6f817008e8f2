//! Verification of webhooks, for receivers: credentials, signature, age, repeats and expected tasks.

mod keys;
mod proof;
mod seen;

use std::{
    fmt,
    sync::Mutex,
    time::{Duration, SystemTime},
};

use aws_lc_rs::{constant_time::verify_slices_are_equal, digest};
use herald_protocol::{Dialect, StreamEvent, TaskId, locks};
use http::{HeaderMap, StatusCode, header};

use self::{
    keys::SignatureKeys,
    seen::{SeenIds, Sighting},
};
use crate::error::Error;

pub use self::proof::WebhookProof;

/// Longest difference between the time in a webhook and the clock of the receiver.
const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// Number of ids that are remembered.
const REMEMBERED: usize = 65_536;

/// Longest accepted `webhook-id`, in bytes.
const MAX_ID: usize = 256;

/// Headers of the token: the name of A2A, and the one that the official Rust SDK sends.
const TOKEN_HEADERS: [&str; 2] = ["x-a2a-notification-token", "a2a-notification-token"];

/// Verifies the webhooks that agents post to a receiver.
///
/// Each kind of proof that is configured must be present in a webhook; of several tokens, values or keys of
/// one kind, one is enough, so that they can be rotated. Signatures are those of
/// [Standard Webhooks](https://www.standardwebhooks.com).
///
/// ```
/// use std::time::SystemTime;
///
/// use herald_client::{StreamEvent, WebhookVerifier};
/// use http::{HeaderMap, StatusCode};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let verifier = WebhookVerifier::new()
///     .token("the token of the push config")
///     .expected_tasks(|id| id.as_str() == "task-1");
///
/// // For each POST, with the body exactly as it was received:
/// let receive = |headers: &HeaderMap, body: &[u8]| match verifier.verify(headers, body, SystemTime::now()) {
///     Ok(webhook) => match save(&webhook.event) {
///         Ok(()) => StatusCode::OK,
///         Err(_) => {
///             // The sender sends it again, and that is then no repeat.
///             verifier.forget(&webhook);
///             StatusCode::SERVICE_UNAVAILABLE
///         }
///     },
///     // 200 for a repeat, which is already saved; 401 for a forgery.
///     Err(error) => error.status(),
/// };
/// # fn save(_: &StreamEvent) -> std::io::Result<()> { Ok(()) }
///
/// let body = br#"{"statusUpdate": {"taskId": "task-1", "contextId": "c", "status": {"state": "TASK_STATE_WORKING"}}}"#;
/// let mut headers = HeaderMap::new();
/// assert_eq!(receive(&headers, body), StatusCode::UNAUTHORIZED);
/// headers.insert("x-a2a-notification-token", "the token of the push config".parse()?);
/// assert_eq!(receive(&headers, body), StatusCode::OK);
/// # Ok(()) }
/// ```
///
/// The ids of verified webhooks are remembered in memory, for as long as an old copy of them would be accepted and
/// longer if there is space. A receiver that must recognise repeats after a restart stores the ids itself.
pub struct WebhookVerifier {
    tokens: Vec<SecretDigest>,
    authorizations: Vec<(String, SecretDigest)>,
    keys: SignatureKeys,
    accepts_anyone: bool,
    tolerance: Duration,
    expected: Option<ExpectedTasks>,
    seen: Mutex<SeenIds>,
}

/// Tells whether a task is expected.
type ExpectedTasks = Box<dyn Fn(&TaskId) -> bool + Send + Sync>;

/// A hash of a secret. Hashes have one length, so that a comparison does not show that of the secret.
struct SecretDigest(digest::Digest);

/// A webhook that passed all checks.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifiedWebhook {
    /// The `webhook-id`: the same in each attempt to deliver this event. Not every sender has one.
    pub id: Option<String>,
    /// The time of this attempt, in seconds since 1970: `webhook-timestamp`.
    pub sent: Option<u64>,
    /// The event.
    pub event: StreamEvent,
    /// The format of the body: [`Dialect::V1`] for an item of a 1.0 stream, [`Dialect::V03`] for a bare object.
    pub dialect: Dialect,
    /// The proofs that the webhook had. Empty only with
    /// [`danger_accept_anyone`](WebhookVerifier::danger_accept_anyone).
    pub proofs: Vec<WebhookProof>,
}

/// Why a webhook must not be processed. [`status`](Self::status) is the answer to its sender.
#[derive(Debug, Clone, PartialEq)]
pub enum WebhookError {
    /// The webhook is valid and was verified before. Senders send a webhook again if they did not see the
    /// answer, so the receiver answers 200 and does nothing.
    Repeated(Box<VerifiedWebhook>),
    /// The verifier has no token, no `Authorization` value and no key.
    NothingToCheck,
    /// The token is missing or wrong.
    WrongToken,
    /// The `Authorization` header is missing or wrong.
    WrongAuthorization,
    /// One of the headers `webhook-id`, `webhook-timestamp` and `webhook-signature` is missing.
    Unsigned,
    /// No signature is by a known key.
    WrongSignature,
    /// `webhook-timestamp` is further in the past than the tolerance.
    TooOld,
    /// `webhook-timestamp` is further in the future than the tolerance.
    TooNew,
    /// This header is repeated or malformed.
    InvalidHeader(&'static str),
    /// The body is not an event of A2A.
    InvalidBody(String),
    /// The event belongs to no expected task.
    UnexpectedTask,
    /// There were more webhooks within the tolerance than ids can be remembered.
    TooMany,
}

impl WebhookVerifier {
    /// A verifier without a proof to check, which refuses everything.
    pub fn new() -> Self {
        Self {
            tokens: Vec::new(),
            authorizations: Vec::new(),
            keys: SignatureKeys::default(),
            accepts_anyone: false,
            tolerance: TOLERANCE,
            expected: None,
            seen: Mutex::new(SeenIds::new(REMEMBERED)),
        }
    }

    /// Requires the token of a push config: in `X-A2A-Notification-Token`, in `A2A-Notification-Token` or as
    /// `Authorization: Bearer`. With several tokens any of them is accepted.
    pub fn token(mut self, token: impl AsRef<str>) -> Self {
        self.tokens.push(SecretDigest::of(token.as_ref()));
        self
    }

    /// Requires `Authorization: {scheme} {credentials}`, the `authentication` of a push config. With several values
    /// any of them is accepted.
    pub fn authorization(mut self, scheme: &str, credentials: impl AsRef<str>) -> Self {
        let credentials = SecretDigest::of(credentials.as_ref());
        self.authorizations.push((scheme.to_owned(), credentials));
        self
    }

    /// Requires a signature, and accepts those with this shared secret: `whsec_` and 24 to 64 bytes in base64.
    pub fn secret(mut self, secret: impl AsRef<str>) -> Result<Self, Error> {
        self.keys.add_secret(secret.as_ref())?;
        Ok(self)
    }

    /// Requires a signature, and accepts those by this ed25519 key: `whpk_` and 32 bytes in base64.
    pub fn public_key(mut self, key: &str) -> Result<Self, Error> {
        self.keys.add_public_key(key)?;
        Ok(self)
    }

    /// Requires a signature, and accepts those by the ed25519 keys of a JSON Web Key Set (RFC 8037). Keys of
    /// other types are ignored; a set without an ed25519 key is an error.
    pub fn jwks(mut self, json: impl AsRef<[u8]>) -> Result<Self, Error> {
        self.keys.add_jwks(json.as_ref())?;
        Ok(self)
    }

    /// Accepts webhooks without any proof, if none is configured. Everyone who can reach the receiver can then post
    /// events. For development only.
    pub fn danger_accept_anyone(mut self) -> Self {
        self.accepts_anyone = true;
        self
    }

    /// Refuses events of tasks for which this returns false, and events without a task. The sender gets
    /// 404 and tries again later: the first webhook may be faster than the reply with the id of its task.
    pub fn expected_tasks(
        mut self,
        expected: impl Fn(&TaskId) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.expected = Some(Box::new(expected));
        self
    }

    /// The longest accepted difference between `webhook-timestamp` and the receiver's clock, in both directions; 5
    /// minutes by default.
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// The number of ids that are remembered; 65,536 by default, in about 10 MiB. When so many webhooks arrive within the
    /// tolerance, further ones are refused as [`TooMany`](WebhookError::TooMany).
    pub fn remembered(mut self, ids: usize) -> Self {
        self.seen = Mutex::new(SeenIds::new(ids));
        self
    }

    /// Verifies one webhook. `body` must have exactly the received bytes, and `now` is the current time.
    ///
    /// The id of the webhook is remembered, so that the next webhook with this id is a
    /// [repeat](WebhookError::Repeated).
    pub fn verify(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<VerifiedWebhook, WebhookError> {
        let mut proofs = self.credentials(headers)?;
        let id = single(headers, "webhook-id")?;
        if id.is_some_and(|id| !is_id(id)) {
            return Err(WebhookError::InvalidHeader("webhook-id"));
        }
        let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let time = single(headers, "webhook-timestamp")?;
        let sent = time.map(|time| self.checked_time(time, now)).transpose()?;
        if !self.keys.is_empty() {
            let signatures = single(headers, "webhook-signature")?;
            let (Some(id), Some(time), Some(signatures)) = (id, time, signatures) else {
                return Err(WebhookError::Unsigned);
            };
            let found = self.keys.find_valid(&format!("{id}.{time}."), body, signatures);
            proofs.push(found.ok_or(WebhookError::WrongSignature)?);
        }
        if proofs.is_empty() && !self.accepts_anyone {
            return Err(WebhookError::NothingToCheck);
        }
        let (event, dialect) = decode(body)?;
        if let Some(expected) = &self.expected
            && !event.task_id().is_some_and(expected)
        {
            return Err(WebhookError::UnexpectedTask);
        }
        let webhook = VerifiedWebhook { id: id.map(str::to_owned), sent, event, dialect, proofs };
        let Some(id) = id else { return Ok(webhook) };
        let acceptable_until = sent.unwrap_or(now).saturating_add(self.tolerance.as_secs());
        match locks::lock(&self.seen).note(id, acceptable_until, now) {
            Sighting::First => Ok(webhook),
            Sighting::Repeated => Err(WebhookError::Repeated(Box::new(webhook))),
            Sighting::Full => Err(WebhookError::TooMany),
        }
    }

    /// Forgets the id of a webhook that could not be processed, so that the next attempt of its sender is no repeat.
    pub fn forget(&self, webhook: &VerifiedWebhook) {
        if let Some(id) = &webhook.id {
            locks::lock(&self.seen).forget(id);
        }
    }

    /// Checks the token and the `Authorization` header.
    fn credentials(&self, headers: &HeaderMap) -> Result<Vec<WebhookProof>, WebhookError> {
        let mut proofs = Vec::new();
        let given = single(headers, header::AUTHORIZATION.as_str())?;
        let given = given.and_then(|value| value.split_once(' '));
        let given = given.map(|(scheme, credentials)| (scheme, credentials.trim()));
        if !self.tokens.is_empty() {
            let bearer = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
            let mut found = bearer.is_some_and(|(_, token)| self.knows_token(token));
            for name in TOKEN_HEADERS {
                found |= single(headers, name)?.is_some_and(|token| self.knows_token(token));
            }
            if !found {
                return Err(WebhookError::WrongToken);
            }
            proofs.push(WebhookProof::Token);
        }
        if !self.authorizations.is_empty() {
            let matches = |(scheme, credentials): &(String, SecretDigest)| {
                given.is_some_and(|given| {
                    given.0.eq_ignore_ascii_case(scheme) && credentials.is_of(given.1)
                })
            };
            if !self.authorizations.iter().any(matches) {
                return Err(WebhookError::WrongAuthorization);
            }
            proofs.push(WebhookProof::Authorization);
        }
        Ok(proofs)
    }

    fn knows_token(&self, given: &str) -> bool {
        self.tokens.iter().any(|token| token.is_of(given))
    }

    /// The time of a webhook, if it is within the tolerance.
    fn checked_time(&self, text: &str, now: u64) -> Result<u64, WebhookError> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let time = text.parse::<u64>().ok().filter(|_| digits);
        let time = time.ok_or(WebhookError::InvalidHeader("webhook-timestamp"))?;
        let tolerance = self.tolerance.as_secs();
        if now.saturating_sub(time) > tolerance {
            Err(WebhookError::TooOld)
        } else if time.saturating_sub(now) > tolerance {
            Err(WebhookError::TooNew)
        } else {
            Ok(time)
        }
    }
}

impl Default for WebhookVerifier {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WebhookVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebhookVerifier")
            .field("tokens", &self.tokens.len())
            .field("authorizations", &self.authorizations.len())
            .field("keys", &self.keys)
            .field("accepts_anyone", &self.accepts_anyone)
            .field("tolerance", &self.tolerance)
            .finish_non_exhaustive()
    }
}

impl SecretDigest {
    fn of(secret: &str) -> Self {
        Self(digest::digest(&digest::SHA256, secret.as_bytes()))
    }

    /// Compares in constant time.
    fn is_of(&self, given: &str) -> bool {
        verify_slices_are_equal(self.0.as_ref(), Self::of(given).0.as_ref()).is_ok()
    }
}

impl WebhookError {
    /// The HTTP status for the sender. A sender tries again later, except after 200.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Repeated(_) => StatusCode::OK,
            Self::NothingToCheck => StatusCode::SERVICE_UNAVAILABLE,
            Self::WrongToken
            | Self::WrongAuthorization
            | Self::Unsigned
            | Self::WrongSignature
            | Self::TooOld
            | Self::TooNew => StatusCode::UNAUTHORIZED,
            Self::InvalidHeader(_) | Self::InvalidBody(_) => StatusCode::BAD_REQUEST,
            Self::UnexpectedTask => StatusCode::NOT_FOUND,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
        }
    }
}

impl fmt::Display for WebhookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Repeated(_) => "the webhook was received before",
            Self::NothingToCheck => {
                "the receiver has no token and no key to verify webhooks with; configure one"
            }
            Self::WrongToken => "the token is missing or wrong",
            Self::WrongAuthorization => "the Authorization header is missing or wrong",
            Self::Unsigned => {
                "the webhook is not signed: webhook-id, webhook-timestamp or webhook-signature is missing"
            }
            Self::WrongSignature => "no signature of the webhook is by a known key",
            Self::TooOld => "webhook-timestamp is too old; check the clocks of sender and receiver",
            Self::TooNew => {
                "webhook-timestamp is in the future; check the clocks of sender and receiver"
            }
            Self::InvalidHeader(name) => return write!(f, "the header {name} is repeated or malformed"),
            Self::InvalidBody(reason) => {
                return write!(f, "the body is not an event of A2A 1.0 or 0.3: {reason}");
            }
            Self::UnexpectedTask => "the event belongs to no task that the receiver expects",
            Self::TooMany => "more webhooks arrived than the receiver can remember; send it later",
        })
    }
}

impl std::error::Error for WebhookError {}

/// The only value of a header. A proxy and the receiver could choose different ones of several.
fn single<'a>(headers: &'a HeaderMap, name: &'static str) -> Result<Option<&'a str>, WebhookError> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.to_str()).transpose();
    match (first, values.next()) {
        (Ok(first), None) => Ok(first),
        (Ok(_), Some(_)) | (Err(_), _) => Err(WebhookError::InvalidHeader(name)),
    }
}

/// A full stop ends the id in the signed text. An id that contains one could be a part of the signed text of
/// another webhook.
fn is_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_ID && !id.contains('.')
}

/// The event in a body: an item of a 1.0 stream, or a bare object, as senders before 1.0 post it.
fn decode(body: &[u8]) -> Result<(StreamEvent, Dialect), WebhookError> {
    if let Ok(event) = Dialect::V1.decode_event(body) {
        return Ok((event, Dialect::V1));
    }
    match Dialect::V03.decode_event(body) {
        Ok(event) => Ok((event, Dialect::V03)),
        Err(error) => Err(WebhookError::InvalidBody(error.message)),
    }
}
