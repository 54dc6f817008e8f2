//! Worker protocol: polls of a worker, and the writes, answers and ends of its turns.

use herald_protocol::{Artifact, Message, Metadata, TaskState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::schema::{ProtocolObject, StateSchema};

/// A poll of a worker: its heartbeat and its whole state.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PollRequest {
    /// The session that the registration returned, a UUID.
    pub session: String,
    /// The number of further turns that the worker can run now.
    #[serde(default)]
    pub free: u32,
    /// Every turn that the worker has.
    #[serde(default)]
    pub turns: Vec<HeldTurn>,
    /// The longest wait, in seconds.
    #[serde(default = "longest_wait")]
    #[schemars(range(min = 0, max = 5))]
    pub wait_seconds: u32,
    /// True if the worker stops and takes no further turn. `free` then counts as 0.
    #[serde(default)]
    pub draining: bool,
    /// True if the worker takes notices of tasks that ended without a turn.
    #[serde(default)]
    pub takes_ended: bool,
}

/// A turn that a worker has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HeldTurn {
    /// The id of the turn, a UUID.
    pub id: String,
    /// The epoch of its claim.
    pub epoch: u64,
}

/// The reply to a poll.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct PollResponse {
    /// Turns that the worker does not have yet. A turn that the next poll does not list is given again.
    pub assignments: Vec<AssignedTurn>,
    /// Turns that the worker must stop.
    pub stop: Vec<StopTurn>,
    /// The ids of turns whose answer can be taken. Repeated until it is taken.
    pub answered: Vec<String>,
    /// Tasks of the role that ended without a turn. Each is told to one worker, once.
    #[serde(default)]
    pub ended: Vec<EndedTask>,
    /// True if the server shuts down. The worker keeps its turns and polls again.
    pub leaving: bool,
}

/// A task that ended without a turn: it was cancelled or failed while it waited for its caller or for a worker.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct EndedTask {
    /// The task.
    #[schemars(with = "ProtocolObject")]
    pub task: Box<RawValue>,
    /// The metadata of the cancel, if it had any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProtocolObject>")]
    pub metadata: Option<Metadata>,
}

/// A turn for a worker.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct AssignedTurn {
    /// The id of the turn, a UUID. Every attempt at the turn has the same.
    pub id: String,
    /// The epoch of the claim. Every request for the turn names it.
    pub epoch: u64,
    /// The assignment: the task, the message to answer and its context.
    #[schemars(with = "ProtocolObject")]
    pub turn: Box<RawValue>,
    /// The number of the last event in the log of the task: `after` of the first write.
    pub head: u64,
}

/// A turn that a worker must stop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StopTurn {
    /// The id of the turn.
    pub id: String,
    /// The epoch of the claim.
    pub epoch: u64,
    /// The reason.
    pub reason: StopTurnReason,
    /// The metadata of the cancel, if it had any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProtocolObject>")]
    pub metadata: Option<Metadata>,
}

/// The reason why a worker must stop a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopTurnReason {
    /// The task was cancelled, or has ended otherwise.
    Cancelled,
    /// The turn exceeded a timeout of its agent.
    TimedOut,
    /// The session does not hold the turn.
    Lost,
}

/// One write of a worker: all of its commands become durable, or none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteCommands {
    /// The session.
    pub session: String,
    /// The epoch of the claim.
    pub epoch: u64,
    /// The number of the write among those of the turn, from 1. A repeated write has the same number and
    /// is not written again.
    pub number: u64,
    /// `head` of the last reply, or of the assignment.
    #[serde(default)]
    pub after: u64,
    /// The commands, 1 to 256.
    pub commands: Vec<TurnCommand>,
}

/// A command of a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum TurnCommand {
    /// Reports a state. Every state except `TASK_STATE_WORKING` ends the work on the message.
    Report(StatusCommand),
    /// Reports `TASK_STATE_INPUT_REQUIRED` or `TASK_STATE_AUTH_REQUIRED`, and the turn goes on by itself.
    Interim(StatusCommand),
    /// Asks the caller and keeps the turn: the reply to a poll says when the answer is there.
    Ask(StatusCommand),
    /// Writes an artifact, or the next piece of one.
    Write(ArtifactCommand),
    /// Answers with a message in place of a task.
    Reply(MessageCommand),
}

/// A state, with a message and metadata of the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StatusCommand {
    /// The state.
    #[schemars(with = "StateSchema")]
    pub state: TaskState,
    /// The message of the status. The server adds its role and the ids of the task, and a `messageId` if it
    /// is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProtocolObject>")]
    pub message: Option<Message>,
    /// Metadata that is merged into that of the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProtocolObject>")]
    pub metadata: Option<Metadata>,
}

/// An artifact, or a piece of one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ArtifactCommand {
    /// The artifact. Its parts are the piece.
    #[schemars(with = "ProtocolObject")]
    pub artifact: Artifact,
    /// True if the parts are appended to those that the artifact has. Otherwise they replace them.
    #[serde(default)]
    pub append: bool,
    /// True if this piece completes the artifact.
    #[serde(default)]
    pub last: bool,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageCommand {
    /// The message.
    #[schemars(with = "ProtocolObject")]
    pub message: Message,
}

/// The result of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WrittenCommands {
    /// The number of the last event in the log of the task: `after` of the next write.
    pub head: u64,
}

/// A request for the caller's answer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TakeAnswer {
    /// The session.
    pub session: String,
    /// The epoch of the claim.
    pub epoch: u64,
    /// The number of this write among those of the turn.
    pub number: u64,
    /// `head` of the last reply, or of the assignment.
    #[serde(default)]
    pub after: u64,
}

/// The caller's answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TakenAnswer {
    /// The message of the caller.
    #[schemars(with = "ProtocolObject")]
    pub message: Box<RawValue>,
    /// The number of the last event in the log of the task.
    pub head: u64,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndTurn {
    /// The session.
    pub session: String,
    /// The epoch of the claim.
    pub epoch: u64,
    /// The number of this request among those of the turn.
    #[serde(default)]
    pub number: u64,
    /// The outcome.
    pub outcome: TurnEnd,
}

/// The outcome of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum TurnEnd {
    /// The worker has finished. The task is completed, unless the turn set another state.
    Done,
    /// The worker failed, and so does the task.
    Failed {
        /// The kind of failure.
        #[serde(default)]
        error: TurnFailure,
        /// A text for the caller.
        text: String,
    },
    /// The worker stops. The turn goes back to the queue, and this attempt does not count.
    Returned,
}

/// The kind of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TurnFailure {
    /// The work failed.
    #[default]
    Failed,
    /// The program behind the worker violated its protocol.
    ProtocolViolation,
    /// The program behind the worker cannot be reached.
    Unavailable,
}

/// The longest wait of a poll, in seconds.
pub const MAX_WAIT_SECONDS: u32 = 5;

const fn longest_wait() -> u32 {
    MAX_WAIT_SECONDS
}
