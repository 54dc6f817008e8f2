//! Failures of agents: the full text for the log, and the part of it that callers see.

use std::{fmt, io, process::ExitStatus};

use herald_engine::{ErrorDetail, Turn};
use herald_protocol::AgentName;

use crate::{
    process::{describe, describe_limit, is_exhausted},
    text::truncate,
};

/// Bytes that are kept of a program's standard error: the last ones.
pub(crate) const STDERR_TAIL: usize = 64 << 10;

/// Characters of an agent's own message that callers see.
const MESSAGE: usize = 2000;

/// A failure of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The kind of failure, in our own words: safe to show to any caller.
    pub(crate) kind: String,
    /// The agent's own message.
    pub(crate) message: Option<String>,
    /// All output of the agent about the failure.
    pub(crate) full: Option<String>,
    /// True if the program behind the agent could not be started: it has done nothing.
    pub(crate) is_unstarted: bool,
}

impl Failure {
    /// A failure without a message of the agent.
    pub(crate) fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: None, full: None, is_unstarted: false }
    }

    /// A failure whose cause is meant for the operator of the agent.
    pub(crate) fn because(kind: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self { full: Some(cause.to_string()), ..Self::new(kind) }
    }

    /// A program that could not be started.
    pub(crate) fn unstarted(fault: &io::Error) -> Self {
        let failure = if is_exhausted(fault) {
            let kind = "could not be started: the server has too few file descriptors";
            Self::because(kind, format!("{fault}: {}", describe_limit()))
        } else {
            Self::because("could not be started", fault)
        };
        Self { is_unstarted: true, ..failure }
    }

    /// A program that exited with this status and this tail of standard error. Its last line becomes the
    /// message, since that is where most programs print the cause.
    pub(crate) fn ended(status: ExitStatus, stderr: &[u8]) -> Self {
        let full = String::from_utf8_lossy(stderr).trim().to_owned();
        let message = full.lines().next_back().map(str::to_owned);
        let full = Some(full).filter(|full| !full.is_empty());
        Self { kind: describe(status), message, full, is_unstarted: false }
    }

    /// Logs the whole failure, and returns the part of it that callers see.
    pub(crate) fn log(self, turn: &Turn, agent: &AgentName, detail: ErrorDetail) -> String {
        let full = self.full.as_deref().or(self.message.as_deref());
        // In the line itself: the span of a turn exists only where it is exported or debugged.
        let task = turn.task_id();
        tracing::warn!(%task, %agent, kind = self.kind, detail = full, "the agent failed");
        let shown = match detail {
            ErrorDetail::Kind => None,
            ErrorDetail::Message => self.message.as_deref().map(|text| truncate(text, MESSAGE)),
            ErrorDetail::Full => full.map(|text| truncate(text, STDERR_TAIL)),
        };
        let kind = self.kind;
        match shown {
            Some(text) => format!("agent {agent} {kind}: {text}"),
            None => format!("agent {agent} {kind}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_without_free_file_descriptors_names_the_limit() {
        let failure = Failure::unstarted(&io::Error::from_raw_os_error(24));
        assert!(failure.kind.contains("file descriptors"), "{failure:?}");
        assert!(failure.full.unwrap().contains("ulimit -n"));
        let missing = Failure::unstarted(&io::Error::from_raw_os_error(2));
        assert_eq!(missing.kind, "could not be started");
    }
}
