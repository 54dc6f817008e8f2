//! Errors of agents.

use std::fmt;

/// The reason why an agent did not finish its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentError {
    /// The task is no longer the agent's: cancelled, timed out, or claimed by another process. There is
    /// nothing to report.
    Stopped,
    /// The server shuts down, and the next start can continue the turn: see [`Turn::leaving`](crate::Turn::leaving).
    Suspended,
    /// The work failed. The text goes to the caller.
    Failed(String),
    /// The program or remote agent behind the agent violated its protocol. The text goes to the caller.
    ProtocolViolation(String),
    /// The program or remote agent behind the agent cannot be reached, or its connection was lost. The
    /// text goes to the caller.
    Unavailable(String),
}

impl AgentError {
    /// [`AgentError::Failed`] with this text, which the caller will read.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the turn is over"),
            Self::Suspended => f.write_str("the turn is suspended until the next start"),
            Self::Failed(reason) | Self::ProtocolViolation(reason) | Self::Unavailable(reason) => {
                f.write_str(reason)
            }
        }
    }
}

impl std::error::Error for AgentError {}
