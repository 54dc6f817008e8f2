//! What a failed call means for the turn.

use std::error::Error as _;

use herald_client::{Error, protocol::ErrorKind};
use herald_engine::Stop;

use crate::failure::Failure;

/// Why a turn was cut off.
#[derive(Debug)]
pub(super) enum Cut {
    /// It is over, or what was said does not fit into its task.
    Turn(Stop),
    /// The server is about to stop, and the next start goes on with the agent's task.
    Left,
    /// The agent would not do it, or cannot be called as it is configured.
    Failed(Failure),
    /// The agent cannot be reached, or not any more.
    Gone(Failure),
    /// The agent said something that makes no sense.
    Broke(String),
}

impl From<Stop> for Cut {
    fn from(stop: Stop) -> Self {
        Self::Turn(stop)
    }
}

/// What a failed call means.
pub(super) fn of(error: &Error) -> Cut {
    let failure = |kind: String| Failure { message: Some(explained(error)), ..Failure::new(kind) };
    if let Some(refusal) = error.protocol() {
        let reason = refusal.kind.codes().reason;
        if refusal.kind == ErrorKind::InvalidAgentResponse {
            // It is in our place, and somebody behind it broke the protocol.
            return Cut::Broke(format!("was given no sensible answer itself: {}", refusal.message));
        }
        if matches!(refusal.kind, ErrorKind::Unauthenticated | ErrorKind::Forbidden) {
            return Cut::Failed(failure(format!("does not let us in ({reason})")));
        }
        return match error.is_temporary() {
            true => Cut::Gone(failure(format!("is not available ({reason})"))),
            false => Cut::Failed(failure(format!("refused the message ({reason})"))),
        };
    }
    if let Some(status @ (401 | 403)) = error.status() {
        return Cut::Failed(failure(format!("does not let us in (HTTP status {status})")));
    }
    if let Some(status) = error.status().filter(|_| !error.is_temporary()) {
        return Cut::Failed(failure(format!("answered with HTTP {status}")));
    }
    if error.is_invalid() || error.is_too_large() {
        return Cut::Broke(format!("broke the protocol: {error}"));
    }
    if error.is_lost() {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<Error>());
        return match cause {
            Some(cause) if cause.is_temporary() => {
                Cut::Gone(failure("was lost in the middle of the task".to_owned()))
            }
            // Nothing was wrong with the connection.
            Some(_) | None => Cut::Broke("ends its streams before its tasks".to_owned()),
        };
    }
    if error.is_temporary() {
        let kind = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
        return Cut::Gone(failure(kind.to_owned()));
    }
    Cut::Failed(failure("cannot be called as it is configured".to_owned()))
}

/// An error with what led to it.
fn explained(error: &Error) -> String {
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
