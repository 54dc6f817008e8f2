//! Early end of a turn: its reason, and the error that the engine gets for it.

use herald_engine::{AgentError, ErrorDetail, Stop, Turn};
use herald_protocol::AgentName;

use crate::failure::Failure;

/// Reason why a turn ended before its work was done.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The engine stopped or suspended the turn, or the failure has been reported already.
    Turn(AgentError),
    /// The engine refused something that the agent wrote.
    Refused(String),
    /// The agent failed, or exceeded a limit.
    Failed(Failure),
    /// The backend of the agent is unavailable; a later attempt may succeed.
    Unavailable(Failure),
    /// The program or remote agent behind the agent violated its protocol.
    ProtocolViolation(Failure),
}

impl Ended {
    /// The same end with another failure, where there is one: for redaction.
    pub(crate) fn map_failure(self, map: impl FnOnce(Failure) -> Failure) -> Self {
        match self {
            Self::Turn(_) | Self::Refused(_) => self,
            Self::Failed(failure) => Self::Failed(map(failure)),
            Self::Unavailable(failure) => Self::Unavailable(map(failure)),
            Self::ProtocolViolation(failure) => Self::ProtocolViolation(map(failure)),
        }
    }

    /// Logs the whole failure, and returns the error for the caller.
    pub(crate) fn report(self, turn: &Turn, agent: &AgentName, detail: ErrorDetail) -> AgentError {
        match self {
            Self::Turn(error) => error,
            Self::Refused(reason) => {
                AgentError::Failed(format!("agent {agent} wrote something invalid: {reason}"))
            }
            Self::Failed(failure) => AgentError::Failed(failure.log(turn, agent, detail)),
            Self::Unavailable(failure) => AgentError::Unavailable(failure.log(turn, agent, detail)),
            Self::ProtocolViolation(failure) => {
                AgentError::ProtocolViolation(failure.log(turn, agent, detail))
            }
        }
    }
}

impl From<Stop> for Ended {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Over => Self::Turn(AgentError::Stopped),
            Stop::Refused(reason) => Self::Refused(reason),
        }
    }
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        if failure.is_unstarted { Self::Unavailable(failure) } else { Self::Failed(failure) }
    }
}
