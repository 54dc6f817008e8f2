//! Classification of failed calls to an upstream agent.

use std::error::Error as _;

use herald_client::{Error, TriedInterface, protocol::ErrorKind};

use crate::{ended::Ended, failure::Failure};

/// The end of a turn whose call to the agent failed with this error.
pub(super) fn classify(error: &Error) -> Ended {
    let failure =
        |kind: String| Failure { message: Some(with_causes(error)), ..Failure::new(kind) };
    if let [first, others @ ..] = error.attempts() {
        let mut tried = format!("{} {}", first.binding, first.version);
        for TriedInterface { binding, version, .. } in others {
            let next = format!("{binding} {version}");
            if !tried.ends_with(&next) {
                tried = format!("{tried}, {next}");
            }
        }
        let kind = format!("does not know the call in any version; tried, in order: {tried}");
        return Ended::Failed(failure(kind));
    }
    if let Some(answer) = error.protocol() {
        let reason = answer.kind.codes().reason;
        return if answer.kind == ErrorKind::InvalidAgentResponse {
            // The agent is itself a proxy, and the agent behind it violated the protocol.
            let cause = &answer.message;
            violation(format!("got an invalid response from the agent behind it: {cause}"))
        } else if matches!(answer.kind, ErrorKind::Unauthenticated | ErrorKind::Forbidden) {
            Ended::Failed(failure(format!("does not accept our credentials ({reason})")))
        } else if answer.kind == ErrorKind::Internal {
            Ended::Failed(failure(format!("failed with an internal error ({reason})")))
        } else if error.is_temporary() {
            Ended::Unavailable(failure(format!("is not available ({reason})")))
        } else {
            Ended::Failed(failure(format!("refused the message ({reason})")))
        };
    }
    if let Some(status @ (401 | 403)) = error.status() {
        let kind = format!("does not accept our credentials (HTTP status {status})");
        return Ended::Failed(failure(kind));
    }
    if let Some(status) = error.status().filter(|_| !error.is_temporary()) {
        return Ended::Failed(failure(format!("answered with HTTP {status}")));
    }
    if error.is_invalid() || error.is_too_large() {
        return violation(format!("violated the protocol: {error}"));
    }
    if error.is_lost() {
        let cause = error.source().and_then(|cause| cause.downcast_ref::<Error>());
        return match cause {
            Some(cause) if cause.is_temporary() => {
                Ended::Unavailable(failure("was lost in the middle of the task".to_owned()))
            }
            // The connection was sound, so the agent itself ended the stream too early.
            Some(_) | None => violation("ended its stream before its task".to_owned()),
        };
    }
    if error.is_temporary() {
        let kind = if error.is_timeout() { "did not answer in time" } else { "cannot be reached" };
        return Ended::Unavailable(failure(kind.to_owned()));
    }
    Ended::Failed(failure("cannot be called as it is configured".to_owned()))
}

fn violation(kind: String) -> Ended {
    Ended::ProtocolViolation(Failure::new(kind))
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
