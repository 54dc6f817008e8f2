//! Failure reasons: the machine-readable `status.message.metadata.reason` of failed tasks.

use std::sync::Arc;

use herald_protocol::{Message, Metadata, Task, TaskState, Timestamp};
use serde_json::Value;

use crate::{
    agents::error::{AgentError, ErrorDetail},
    rules::Command,
};

pub(crate) const AGENT_FAILED: &str = "AGENT_FAILED";
pub(crate) const AGENT_CRASHED: &str = "AGENT_CRASHED";
pub(crate) const AGENT_UNAVAILABLE: &str = "AGENT_UNAVAILABLE";
pub(crate) const PROTOCOL_VIOLATION: &str = "INVALID_AGENT_RESPONSE";
pub(crate) const INTERRUPTED: &str = "INTERRUPTED";
pub(crate) const TIMED_OUT: &str = "TIMED_OUT";
pub(crate) const IDLE: &str = "IDLE";
pub(crate) const UNANSWERED: &str = "UNANSWERED";
pub(crate) const AGENT_GONE: &str = "AGENT_GONE";
pub(crate) const NOT_STARTED: &str = "NOT_STARTED";
pub(crate) const FAILED_BY_OPERATOR: &str = "FAILED_BY_OPERATOR";

/// The command that fails a task, with the reason in the metadata of its last message.
pub(crate) fn fail(reason: &str, text: &str) -> Command {
    ended(TaskState::Failed, reason, text)
}

/// The command that rejects a task, with the reason in the metadata of its last message.
pub(crate) fn reject(reason: &str, text: &str) -> Command {
    ended(TaskState::Rejected, reason, text)
}

/// The command that fails a task after this error of its agent.
pub fn of_agent(error: &AgentError) -> Command {
    match error {
        AgentError::Failed(text) => fail(AGENT_FAILED, text),
        AgentError::ProtocolViolation(text) => fail(PROTOCOL_VIOLATION, text),
        AgentError::Unavailable(text) => fail(AGENT_UNAVAILABLE, text),
        AgentError::Raised { .. } => of_agent(&error.clone().shown(ErrorDetail::Kind)),
        AgentError::Stopped | AgentError::Suspended => fail(AGENT_FAILED, "the agent gave up"),
    }
}

/// The command that fails a task whose agent panicked.
pub fn of_panic() -> Command {
    fail(AGENT_CRASHED, "the agent crashed")
}

/// The reason of a task that failed or was rejected.
pub(crate) fn reason_of(task: &Task) -> Option<String> {
    task.status.message.as_ref()?.metadata.as_ref()?.get("reason")
}

/// The command that fails a task that has waited for its caller since then.
pub(crate) fn expire(since: Timestamp) -> Command {
    Command::Expire {
        since,
        queued: false,
        message: message(UNANSWERED, "nobody answered in time"),
    }
}

/// The command that fails a task that has waited for its turn since then.
pub(crate) fn expire_queued(since: Timestamp) -> Command {
    let text =
        "no turn began within the deadline: every worker of the agent is busy, or there is none";
    Command::Expire { since, queued: true, message: message(NOT_STARTED, text) }
}

fn ended(state: TaskState, reason: &str, text: &str) -> Command {
    Command::Report(state, Some(message(reason, text)), None)
}

fn message(reason: &str, text: &str) -> Arc<Message> {
    let mut message = Message::agent(uuid::Uuid::now_v7().to_string(), text);
    let reason = ("reason".to_owned(), Value::String(reason.to_owned()));
    message.metadata = Some(Metadata::from_iter([reason]));
    message.into()
}
