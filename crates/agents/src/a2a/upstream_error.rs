//! Errors of a turn at an upstream agent, and their classification from client errors.

use std::error::Error as _;

use herald_client::{Error, protocol::ErrorKind};
use herald_engine::Stop;

use crate::failure::Failure;

/// Reason why a turn ended before its task did.
#[derive(Debug)]
pub(super) enum UpstreamError {
    /// The engine stopped the turn, or refused what the agent sent.
    Turn(Stop),
    /// The server is about to stop; the next start resumes the agent's task.
    Suspended,
    /// The agent refused the message, or cannot be called as it is configured.
    Failed(Failure),
    /// The agent cannot be reached, or the connection was lost.
    Unavailable(Failure),
    /// The agent violated the protocol.
    ProtocolViolation(String),
}

impl From<Stop> for UpstreamError {
    fn from(stop: Stop) -> Self {
        Self::Turn(stop)
    }
}

impl UpstreamError {
    /// Classifies a failed call to the agent.
    pub(super) fn of(error: &Error) -> Self {
        let failure =
            |kind: String| Failure { message: Some(with_causes(error)), ..Failure::new(kind) };
        if let Some(refusal) = error.protocol() {
            let reason = refusal.kind.codes().reason;
            if refusal.kind == ErrorKind::InvalidAgentResponse {
                // The agent is itself a proxy, and the agent behind it violated the protocol.
                return Self::ProtocolViolation(format!(
                    "was given no sensible answer itself: {}",
                    refusal.message
                ));
            }
            if matches!(refusal.kind, ErrorKind::Unauthenticated | ErrorKind::Forbidden) {
                return Self::Failed(failure(format!("does not let us in ({reason})")));
            }
            return if error.is_temporary() {
                Self::Unavailable(failure(format!("is not available ({reason})")))
            } else {
                Self::Failed(failure(format!("refused the message ({reason})")))
            };
        }
        if let Some(status @ (401 | 403)) = error.status() {
            return Self::Failed(failure(format!("does not let us in (HTTP status {status})")));
        }
        if let Some(status) = error.status().filter(|_| !error.is_temporary()) {
            return Self::Failed(failure(format!("answered with HTTP {status}")));
        }
        if error.is_invalid() || error.is_too_large() {
            return Self::ProtocolViolation(format!("broke the protocol: {error}"));
        }
        if error.is_lost() {
            let cause = error.source().and_then(|cause| cause.downcast_ref::<Error>());
            return match cause {
                Some(cause) if cause.is_temporary() => {
                    Self::Unavailable(failure("was lost in the middle of the task".to_owned()))
                }
                // The connection was sound, so the agent itself ended the stream too early.
                Some(_) | None => {
                    Self::ProtocolViolation("ends its streams before its tasks".to_owned())
                }
            };
        }
        if error.is_temporary() {
            let kind =
                if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
            return Self::Unavailable(failure(kind.to_owned()));
        }
        Self::Failed(failure("cannot be called as it is configured".to_owned()))
    }
}

/// The text of an error with its causes.
fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    if let Some(origin) = error.untrusted_origin() {
        text = format!("{text}; if both are the same agent's, add {origin:?} to trusted_origins");
    }
    text
}
