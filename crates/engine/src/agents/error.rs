//! Errors of agents, and the part of them that callers see.

use std::{any, fmt};

/// Bytes of the text of an error that callers see with [`ErrorDetail::Message`], and with [`ErrorDetail::Full`].
const SHOWN: [usize; 2] = [2000, 64 << 10];

/// The part of an agent's failures that callers see. The log has everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorDetail {
    /// The kind of failure only.
    #[default]
    Kind,
    /// The kind, and the agent's own message.
    Message,
    /// The kind, and all output about the failure.
    Full,
}

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
    /// The work failed with an error whose text is for the log: it may contain paths, addresses and data. Callers see its
    /// type, and more if [`Profile::error_detail`](crate::Profile::error_detail) allows it.
    Raised {
        /// The name of the error's type, if it has one of its own.
        kind: Option<String>,
        /// The text of the error.
        detail: String,
    },
    /// The program or remote agent behind the agent violated its protocol. The text goes to the caller.
    ProtocolViolation(String),
    /// The program or remote agent behind the agent cannot be reached, or its connection was lost. The
    /// text goes to the caller.
    Unavailable(String),
}

impl AgentError {
    /// [`AgentError::Raised`] with this error. For a text that the caller should read, use [`AgentError::Failed`].
    pub fn failed<E: fmt::Display>(error: E) -> Self {
        Self::Raised { kind: type_of::<E>(), detail: error.to_string() }
    }

    /// The same error in the words for callers.
    #[must_use]
    pub fn shown(self, shown: ErrorDetail) -> Self {
        let Self::Raised { kind, detail } = self else { return self };
        let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
        let text = format!("Agent execution failed{kind}");
        let limit = match shown {
            ErrorDetail::Kind => return Self::Failed(text),
            ErrorDetail::Message => SHOWN[0],
            ErrorDetail::Full => SHOWN[1],
        };
        Self::Failed(format!("{text}: {}", &detail[..detail.floor_char_boundary(limit)]))
    }
}

/// The name of an error type; `None` for texts and for boxes of any error.
fn type_of<E>() -> Option<String> {
    let whole = any::type_name::<E>().trim_start_matches('&');
    let path = whole.split('<').next().unwrap_or_default();
    let name = path.rsplit("::").next().unwrap_or_default();
    let is_own = name.starts_with(|first: char| first.is_ascii_uppercase())
        && !matches!(name, "String" | "Arguments" | "Box" | "Arc" | "Rc" | "Cow");
    is_own.then(|| name.to_owned())
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the turn is over"),
            Self::Suspended => f.write_str("the turn is suspended until the next start"),
            Self::Failed(reason) | Self::ProtocolViolation(reason) | Self::Unavailable(reason) => {
                f.write_str(reason)
            }
            Self::Raised { detail, .. } => f.write_str(detail),
        }
    }
}

impl std::error::Error for AgentError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(error: AgentError, detail: ErrorDetail) -> String {
        let AgentError::Failed(text) = error.shown(detail) else { panic!("it is a failure") };
        text
    }

    #[test]
    fn callers_see_the_type_of_an_error_unless_more_is_allowed() {
        let number = || AgentError::failed("x".parse::<u8>().unwrap_err());
        let text = "Agent execution failed (ParseIntError)";
        assert_eq!(shown(number(), ErrorDetail::Kind), text);
        let more = format!("{text}: invalid digit found in string");
        assert_eq!(shown(number(), ErrorDetail::Message), more);
        let boxed: Box<dyn std::error::Error> = "RuntimeError: secret".into();
        for error in [
            AgentError::failed("RuntimeError: secret"),
            AgentError::failed("RuntimeError: secret".to_owned()),
            AgentError::failed(format_args!("RuntimeError: {}", "secret")),
            AgentError::failed(boxed),
        ] {
            assert_eq!(error.to_string(), "RuntimeError: secret");
            assert_eq!(shown(error, ErrorDetail::Kind), "Agent execution failed");
        }
        let long = shown(AgentError::failed("é".repeat(5000)), ErrorDetail::Message);
        assert_eq!(long.len(), "Agent execution failed: ".len() + SHOWN[0]);
        assert_eq!(shown(AgentError::Failed("for all".to_owned()), ErrorDetail::Kind), "for all");
    }
}
