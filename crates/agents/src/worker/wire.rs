//! Bodies of the worker protocol, and the commands of a turn in them.

use std::sync::Arc;

use herald_engine::{
    AgentError,
    rules::{Chunk, Command},
    turn::Assignment,
};
use herald_protocol::{Artifact, Message, Metadata, TaskState};
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize)]
pub(super) struct HeartbeatRequest<'a> {
    pub(super) session: &'a str,
}

#[derive(Debug, Serialize)]
pub(super) struct PollRequest<'a> {
    pub(super) session: &'a str,
    pub(super) free: usize,
    pub(super) turns: Vec<TurnClaim>,
    pub(super) wait_seconds: u64,
    pub(super) draining: bool,
}

/// A turn and the epoch of its claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
pub(super) struct TurnClaim {
    pub(super) id: String,
    pub(super) epoch: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct PollReply {
    #[serde(default)]
    pub(super) assignments: Vec<AssignedTurn>,
    #[serde(default)]
    pub(super) stop: Vec<StoppedTurn>,
    #[serde(default)]
    pub(super) answered: Vec<String>,
    #[serde(default)]
    pub(super) leaving: bool,
}

#[derive(Debug, Deserialize)]
pub(super) struct AssignedTurn {
    pub(super) id: String,
    pub(super) epoch: u64,
    pub(super) turn: Assignment,
    pub(super) head: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct StoppedTurn {
    pub(super) id: String,
    pub(super) reason: String,
    pub(super) metadata: Option<Metadata>,
}

#[derive(Debug, Serialize)]
pub(super) struct CommandsRequest {
    pub(super) session: String,
    pub(super) epoch: u64,
    pub(super) number: u64,
    pub(super) after: u64,
    pub(super) commands: Vec<WorkerCommand>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum WorkerCommand {
    Report(WorkerStatus),
    Ask(WorkerStatus),
    Write { artifact: Arc<Artifact>, append: bool, last: bool },
    Reply { message: Arc<Message> },
}

#[derive(Debug, Serialize)]
pub(super) struct WorkerStatus {
    state: TaskState,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Arc<Message>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<Metadata>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CommandsReply {
    pub(super) head: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct AnswerRequest {
    pub(super) session: String,
    pub(super) epoch: u64,
    pub(super) number: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct AnswerReply {
    pub(super) message: Arc<Message>,
    pub(super) head: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct EndRequest<'a> {
    pub(super) session: &'a str,
    pub(super) epoch: u64,
    pub(super) number: u64,
    pub(super) outcome: TurnOutcome,
}

/// The end of a turn on its worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum TurnOutcome {
    /// The agent returned without an error.
    Done,
    /// The agent failed.
    Failed { error: FailureKind, text: String },
    /// The turn goes back into the queue of its role.
    Returned,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FailureKind {
    Failed,
    ProtocolViolation,
    Unavailable,
}

/// A reply without content.
#[derive(Debug, Deserialize)]
pub(super) struct Empty {}

impl WorkerCommand {
    /// The command on the wire; `None` if an agent cannot give it.
    pub(super) fn new(command: Command) -> Option<Self> {
        let status = |state, message, metadata| WorkerStatus { state, message, metadata };
        match command {
            Command::Report(state, message, metadata) => {
                Some(Self::Report(status(state, message, metadata)))
            }
            Command::Ask(state, message, metadata) => {
                Some(Self::Ask(status(state, message, metadata)))
            }
            Command::Write(Chunk { artifact, append, last }) => {
                Some(Self::Write { artifact, append, last })
            }
            Command::Reply(message) => Some(Self::Reply { message }),
            Command::Receive { .. }
            | Command::Cancel { .. }
            | Command::Begin(_)
            | Command::Retry { .. }
            | Command::Take(_)
            | Command::Expire { .. }
            | Command::Release => None,
        }
    }
}

impl From<AgentError> for TurnOutcome {
    fn from(error: AgentError) -> Self {
        let (error, text) = match error {
            AgentError::Failed(text) => (FailureKind::Failed, text),
            AgentError::ProtocolViolation(text) => (FailureKind::ProtocolViolation, text),
            AgentError::Unavailable(text) => (FailureKind::Unavailable, text),
            // The text of the engine for the same end of a turn in its own process.
            AgentError::Stopped | AgentError::Suspended => {
                (FailureKind::Failed, "the agent gave up".to_owned())
            }
        };
        Self::Failed { error, text }
    }
}
