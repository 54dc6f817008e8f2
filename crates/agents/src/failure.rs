//! Failures of agents: the full text for the log, and the part of it that callers see.

use std::{fmt, io, process::ExitStatus};

use herald_engine::{AgentError, Turn};
use herald_protocol::AgentName;

use crate::{
    process::{describe, describe_limit, is_exhausted},
    text::truncate,
};

/// How much of a program's complaints is kept: the end of them.
pub(crate) const STDERR_TAIL: usize = 64 << 10;

/// How much of an agent's own word for it is told, in characters.
const MESSAGE: usize = 2000;

/// How much of an agent's failures its callers are told. The log has everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ErrorDetail {
    /// What kind of failure it was.
    #[default]
    Kind,
    /// And the agent's own word for it.
    Message,
    /// And all that the agent said about it.
    Full,
}

/// Why an agent's work failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    /// What happened, in words of ours: nothing in it comes from the agent's inside.
    pub(crate) kind: String,
    /// The agent's own word for it.
    pub(crate) message: Option<String>,
    /// All that it said about it.
    pub(crate) full: Option<String>,
}

impl Failure {
    /// A failure that the agent itself says nothing about.
    pub(crate) fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), message: None, full: None }
    }

    /// A failure whose cause is for whoever runs the agent.
    pub(crate) fn because(kind: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self { full: Some(cause.to_string()), ..Self::new(kind) }
    }

    /// A program did not even start.
    pub(crate) fn unstarted(fault: &io::Error) -> Self {
        if is_exhausted(fault) {
            let kind = "could not be started: the server has too few file descriptors";
            return Self::because(kind, format!("{fault}: {}", describe_limit()));
        }
        Self::because("could not be started", fault)
    }

    /// A program ended so, and this was the end of its complaints. The last line is where programs
    /// say what went wrong.
    pub(crate) fn ended(status: ExitStatus, stderr: &[u8]) -> Self {
        let full = String::from_utf8_lossy(stderr).trim().to_owned();
        let message = full.lines().next_back().map(str::to_owned);
        let full = Some(full).filter(|full| !full.is_empty());
        Self { kind: describe(status), message, full }
    }

    /// Logs everything, and returns what the caller may hear.
    pub(crate) fn report(self, turn: &Turn, agent: &AgentName, detail: ErrorDetail) -> AgentError {
        AgentError::Failed(self.describe_for(turn, agent, detail))
    }

    /// The same, where what does the work is not to be had.
    pub(crate) fn report_unavailable(
        self,
        turn: &Turn,
        agent: &AgentName,
        detail: ErrorDetail,
    ) -> AgentError {
        AgentError::Unavailable(self.describe_for(turn, agent, detail))
    }

    /// The same, where what does the work said something that makes no sense.
    pub(crate) fn report_violation(
        self,
        turn: &Turn,
        agent: &AgentName,
        detail: ErrorDetail,
    ) -> AgentError {
        AgentError::Broke(self.describe_for(turn, agent, detail))
    }

    fn describe_for(self, turn: &Turn, agent: &AgentName, detail: ErrorDetail) -> String {
        let full = self.full.as_deref().or(self.message.as_deref());
        // In the line itself: the span of a turn exists only where it is exported or debugged.
        let task = turn.task_id();
        tracing::warn!(%task, %agent, kind = self.kind, said = full, "the agent failed");
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
    fn a_program_that_found_no_file_descriptors_is_told_so() {
        let failure = Failure::unstarted(&io::Error::from_raw_os_error(24));
        assert!(failure.kind.contains("file descriptors"), "{failure:?}");
        assert!(failure.full.unwrap().contains("ulimit -n"));
        let missing = Failure::unstarted(&io::Error::from_raw_os_error(2));
        assert_eq!(missing.kind, "could not be started");
    }
}
