//! Client error: the reason why a call failed.
//!
//! A task that fails is a result, with the state `failed`. An [`Error`] is a failure of the call itself: the
//! agent refused it, or there was no usable answer.

use std::{error::Error as StdError, fmt, sync::Arc, time::Duration};

use herald_protocol::{ErrorKind, Version, card::signature::Verdict};
use http::StatusCode;

pub(crate) type BoxError = Box<dyn StdError + Send + Sync>;

/// Why a call failed. Its methods are for programs; its text is for people.
#[derive(Clone)]
pub struct Error(Box<Inner>);

#[derive(Clone)]
struct Inner {
    kind: FailureKind,
    message: String,
    /// Shared, because one lost connection may fail many calls.
    source: Option<Arc<dyn StdError + Send + Sync>>,
    retry_after: Option<Duration>,
    attempts: Vec<TriedInterface>,
}

/// One interface at which a call was tried without an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TriedInterface {
    /// The name of the binding in cards.
    pub binding: String,
    /// The protocol version.
    pub version: Version,
    /// The URL.
    pub url: String,
    /// The answer.
    pub outcome: String,
}

#[derive(Debug, Clone)]
enum FailureKind {
    Protocol(herald_protocol::Error),
    Connect,
    Timeout,
    Broken,
    Status(u16),
    TooLarge,
    Redirect,
    Invalid,
    Lost,
    Untrusted,
    Login,
    Setup,
    /// Credentials would go to this origin, which is not trusted.
    UntrustedOrigin(String),
}

impl Error {
    /// The protocol error that the agent answered with.
    pub fn protocol(&self) -> Option<&herald_protocol::Error> {
        if let FailureKind::Protocol(error) = &self.0.kind { Some(error) } else { None }
    }

    /// The kind of the protocol error that the agent answered with.
    pub fn kind(&self) -> Option<ErrorKind> {
        self.protocol().map(|error| error.kind)
    }

    /// The HTTP status of an answer without a protocol error.
    pub fn status(&self) -> Option<u16> {
        if let FailureKind::Status(status) = self.0.kind { Some(status) } else { None }
    }

    /// True if the agent does not know the operation or does not stream: it has not taken the message of a
    /// streaming send.
    pub(crate) fn refuses_streaming(&self) -> bool {
        matches!(
            self.kind(),
            Some(
                ErrorKind::UnsupportedOperation
                    | ErrorKind::StreamingNotSupported
                    | ErrorKind::MethodNotFound
            )
        )
    }

    /// True if the answer proves that the call had no effect because of its address or version: there is no such
    /// path, or no such method, or the version is refused.
    pub(crate) fn proves_no_effect(&self) -> bool {
        matches!(self.kind(), Some(ErrorKind::MethodNotFound | ErrorKind::VersionNotSupported))
            || matches!(self.status(), Some(404 | 405))
    }

    /// The interfaces that were tried, in order, if the agent knew the call at none of several. The card is wrong then,
    /// or the agent does not have the operation.
    pub fn attempts(&self) -> &[TriedInterface] {
        &self.0.attempts
    }

    /// True if credentials are missing or were not accepted.
    pub fn is_unauthenticated(&self) -> bool {
        self.kind() == Some(ErrorKind::Unauthenticated) || self.status() == Some(401)
    }

    /// True if there was no connection, so that the agent has not received the call.
    pub fn is_connect(&self) -> bool {
        matches!(self.0.kind, FailureKind::Connect)
    }

    /// True if the answer did not arrive in time. The agent may have received the call.
    pub fn is_timeout(&self) -> bool {
        matches!(self.0.kind, FailureKind::Timeout)
    }

    /// True if the connection was lost before the answer was complete. The agent may have received the call.
    pub fn is_broken(&self) -> bool {
        matches!(self.0.kind, FailureKind::Broken)
    }

    /// True if the answer exceeded a limit of the client.
    pub fn is_too_large(&self) -> bool {
        matches!(self.0.kind, FailureKind::TooLarge)
    }

    /// True if the server answered with a redirect, which the client never follows.
    pub fn is_redirect(&self) -> bool {
        matches!(self.0.kind, FailureKind::Redirect)
    }

    /// True if the answer violated the protocol.
    pub fn is_invalid(&self) -> bool {
        matches!(self.0.kind, FailureKind::Invalid)
    }

    /// True if a stream ended before its task and could not be resumed. The state of the task is unknown; the
    /// source is the last error.
    pub fn is_lost(&self) -> bool {
        matches!(self.0.kind, FailureKind::Lost)
    }

    /// True if the card has no trusted signature although one is required. Nothing was sent to the agent.
    pub fn is_untrusted(&self) -> bool {
        matches!(self.0.kind, FailureKind::Untrusted)
    }

    /// True if there is no token: a login is needed, or the authorization server refused to issue one. The
    /// message says what to do.
    pub fn is_login(&self) -> bool {
        matches!(self.0.kind, FailureKind::Login)
    }

    /// True if the call could not be made because of the URL, the card or the credentials. The message says
    /// what to change.
    pub fn is_setup(&self) -> bool {
        matches!(self.0.kind, FailureKind::Setup | FailureKind::UntrustedOrigin(_))
    }

    /// The untrusted origin that credentials would have gone to, if that is why the call was not made or a
    /// stream was not resumed. [`trust_origin`](crate::ClientBuilder::trust_origin) allows it.
    pub fn untrusted_origin(&self) -> Option<&str> {
        if let FailureKind::UntrustedOrigin(origin) = &self.0.kind {
            return Some(origin);
        }
        self.source()?.downcast_ref::<Self>()?.untrusted_origin()
    }

    /// True if the same call may succeed later.
    pub fn is_temporary(&self) -> bool {
        match &self.0.kind {
            FailureKind::Protocol(error) => error.kind.is_temporary(),
            FailureKind::Status(status) => matches!(status, 408 | 425 | 429 | 502 | 503 | 504),
            FailureKind::Connect | FailureKind::Timeout | FailureKind::Broken => true,
            FailureKind::TooLarge
            | FailureKind::Redirect
            | FailureKind::Invalid
            | FailureKind::Lost
            | FailureKind::Untrusted
            | FailureKind::Login
            | FailureKind::Setup
            | FailureKind::UntrustedOrigin(_) => false,
        }
    }

    /// The delay that the server asked for.
    pub fn retry_after(&self) -> Option<Duration> {
        self.0.retry_after
    }

    fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        let message = message.into();
        let attempts = Vec::new();
        Self(Box::new(Inner { kind, message, source: None, retry_after: None, attempts }))
    }

    /// The same error with the name of the host, if there was no connection.
    pub(crate) fn at(mut self, host: &str) -> Self {
        if self.is_connect() {
            self.0.message = format!("no connection to {host}");
        }
        self
    }

    /// The same error with the attempts before it.
    pub(crate) fn after(mut self, attempts: Vec<TriedInterface>) -> Self {
        let tried: Vec<_> = attempts.iter().map(TriedInterface::to_string).collect();
        let more = format!("; tried, in order: {}", tried.join(", "));
        if let FailureKind::Protocol(error) = &mut self.0.kind {
            error.message.push_str(&more);
        }
        self.0.message.push_str(&more);
        self.0.attempts = attempts;
        self
    }

    fn because(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into().into());
        self
    }

    pub(crate) fn waiting(mut self, retry_after: Option<Duration>) -> Self {
        self.0.retry_after = retry_after.or(self.0.retry_after);
        self
    }

    pub(crate) fn refused(error: herald_protocol::Error) -> Self {
        let (message, retry_after) = (error.to_string(), error.retry_delay());
        Self::new(FailureKind::Protocol(error), message).waiting(retry_after)
    }

    /// A protocol error in an answer with this HTTP status. With 401 and 403 it is about credentials, whatever
    /// its code: the protocol has none for that, and gateways choose any.
    pub(crate) fn refused_with(status: StatusCode, mut error: herald_protocol::Error) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => error.kind = ErrorKind::Unauthenticated,
            StatusCode::FORBIDDEN => error.kind = ErrorKind::Forbidden,
            _ => {}
        }
        Self::refused(error)
    }

    /// An answer that cannot be decoded.
    pub(crate) fn unreadable(error: &herald_protocol::Error) -> Self {
        Self::invalid(format!("the agent's answer cannot be read: {}", error.message))
    }

    pub(crate) fn timeout(what: &str, after: Duration) -> Self {
        Self::new(FailureKind::Timeout, format!("{what} within {after:?}"))
    }

    pub(crate) fn broken(message: &str, source: impl Into<BoxError>) -> Self {
        Self::new(FailureKind::Broken, message).because(source)
    }

    pub(crate) fn connect(source: impl Into<BoxError>) -> Self {
        Self::new(FailureKind::Connect, "no connection to the agent").because(source)
    }

    pub(crate) fn bad_status(status: u16, body: &str) -> Self {
        let body: String = body.chars().filter(|c| !c.is_control()).take(200).collect();
        let body = body.trim();
        let text = if body.is_empty() {
            format!("the server answered with HTTP status {status}")
        } else {
            format!("the server answered with HTTP status {status}: {body}")
        };
        Self::new(FailureKind::Status(status), text)
    }

    /// A status instead of a document.
    pub(crate) fn no_document(status: u16, url: &reqwest::Url, wanted: &str) -> Self {
        let text = format!("{url} answers with HTTP status {status} instead of {wanted}");
        Self::new(FailureKind::Status(status), text)
    }

    pub(crate) fn too_large(what: &str, limit: usize) -> Self {
        Self::new(FailureKind::TooLarge, format!("{what} is larger than {limit} bytes"))
    }

    pub(crate) fn redirect(target: &str) -> Self {
        let text = format!("the server redirects to {target:?}; if you trust it, use that URL");
        Self::new(FailureKind::Redirect, text)
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Invalid, message)
    }

    pub(crate) fn lost(message: impl Into<String>, cause: Option<Self>) -> Self {
        let error = Self::new(FailureKind::Lost, message);
        match cause {
            Some(cause) => error.because(cause),
            None => error,
        }
    }

    pub(crate) fn untrusted(verdict: &Verdict, cause: Option<Self>) -> Self {
        let text = match verdict {
            Verdict::Verified { .. } => "the card is signed".to_owned(),
            Verdict::Unsigned => "the card is not signed, and a signature is required".to_owned(),
            Verdict::UnknownKey { keys } => format!(
                "the card is signed by keys that are not trusted, or no longer: {}; give theirs \
                 with card_keys if you trust them",
                keys.join(", ")
            ),
            Verdict::Invalid { reason } => {
                format!(
                    "the signature of the card is invalid, so it may have been changed: {reason}"
                )
            }
        };
        let error = Self::new(FailureKind::Untrusted, text);
        match cause {
            Some(cause) => error.because(cause),
            None => error,
        }
    }

    pub(crate) fn login(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Login, message)
    }

    pub(crate) fn setup(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Setup, message)
    }

    pub(crate) fn untrusted_origin_of(message: String, origin: &str) -> Self {
        Self::new(FailureKind::UntrustedOrigin(origin.to_owned()), message)
    }
}

impl fmt::Display for TriedInterface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {} ({})", self.binding, self.version, self.url, self.outcome)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}
