//! Turn: one run of an agent over one message, with its assignment and its writes.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, OnceLock},
};

use async_trait::async_trait;
use herald_protocol::{
    Artifact, ArtifactId, ContextId, Message, Metadata, Part, Role, Seq, Task, TaskId, TaskState,
    TraceContext,
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::error::AgentError,
    rules::{Chunk, Command},
};

pub use crate::idempotency::TurnId;

/// The reason why a turn must stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The turn no longer holds the task: the task was cancelled, timed out or was taken over.
    Over,
    /// A write violated a rule or a limit. The text may go to the caller.
    Refused(String),
}

/// The reason why the engine stops a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// The task was cancelled, or ended otherwise.
    Cancelled,
    /// The turn exceeded a timeout.
    TimedOut,
    /// The claim was lost.
    Lost,
}

/// Destination of a turn's writes: the local log, or the connection to the server that leased the turn.
#[async_trait]
pub trait Sink: fmt::Debug + Send + Sync {
    /// Makes the results of these commands durable, all or none. An agent gives
    /// [`Command::Report`], [`Command::Interim`], [`Command::Ask`], [`Command::Write`] and
    /// [`Command::Reply`].
    async fn write(&self, commands: Vec<Command>) -> Result<(), Stop>;

    /// Fails the task with this error.
    async fn fail(&self, error: &AgentError) -> Result<(), Stop>;

    /// Waits for the next message of the caller. Returns false if there will be none for this turn: the
    /// task ended, the caller took too long or the server shuts down.
    async fn answered(&self) -> bool;

    /// Waits for a message of the caller while the turn works, without a pause. Pending for ever where
    /// messages wait for the next turn, as on workers.
    async fn messaged(&self) {
        std::future::pending::<()>().await;
    }

    /// Takes the next message of the caller.
    async fn take_answer(&self) -> Result<Arc<Message>, Stop>;

    /// Waits until the server shuts down, if a later start can continue the turn.
    async fn leaving(&self);
}

/// Assignment of a turn: the task, the message to answer, and its context. It can be sent to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// The id of the turn. It is unique, and the same for every attempt at the turn.
    pub id: TurnId,
    /// The conversation; see [`Turn::conversation_id`]. Empty if the server is older than this field.
    #[serde(default)]
    pub conversation: String,
    /// The task at the beginning of the turn.
    pub task: Arc<Task>,
    /// The conversation history, if the agent's profile asks for it; see [`Turn::earlier`].
    pub earlier: Vec<Arc<Task>>,
    /// The message to answer. It is also in the history of the task.
    pub message: Arc<Message>,
    /// The sequence number of the message.
    pub seq: Seq,
    /// Media types that the caller accepts; empty means any.
    pub accepted_output_modes: Vec<String>,
    /// The metadata of the send request, which is separate from that of the message.
    pub metadata: Option<Metadata>,
    /// The span of the turn or, if tracing is off, the span that the caller sent.
    pub trace: Option<TraceContext>,
    /// The attempt, from 1. A higher number means that an earlier attempt was interrupted.
    pub attempt: u32,
    /// True if the turn continues after the writes of the earlier attempt instead of starting over.
    pub resumed: bool,
    /// Artifacts whose next piece is appended to the existing parts.
    pub continued: HashSet<ArtifactId>,
}

/// One run of an agent over one message.
#[derive(Debug)]
pub struct Turn {
    assignment: Assignment,
    /// The text of the id, computed on first use.
    id: OnceLock<String>,
    sink: Arc<dyn Sink>,
    cancelled: CancellationToken,
    cancel_metadata: Arc<Mutex<Option<Metadata>>>,
    written: Mutex<HashSet<ArtifactId>>,
}

impl Turn {
    /// A turn that writes to `sink` until `cancelled` fires. `cancel_metadata` then holds the
    /// metadata of the cancel request.
    pub fn new(
        assignment: Assignment,
        sink: Arc<dyn Sink>,
        cancelled: CancellationToken,
        cancel_metadata: Arc<Mutex<Option<Metadata>>>,
    ) -> Self {
        let written = Mutex::new(assignment.continued.clone());
        let id = OnceLock::new();
        Self { assignment, id, sink, cancelled, cancel_metadata, written }
    }

    /// The id of the turn, a UUID. It is unique among all callers, and the same for every attempt
    /// at the turn, so that a service that receives work under this id can detect a repetition.
    pub fn id(&self) -> &str {
        self.id.get_or_init(|| self.assignment.id.to_string())
    }

    /// The assignment of the turn.
    pub fn assignment(&self) -> &Assignment {
        &self.assignment
    }

    /// The message to answer.
    pub fn message(&self) -> &Message {
        &self.assignment.message
    }

    /// The task at the beginning of the turn, with its history and artifacts.
    pub fn task(&self) -> &Task {
        &self.assignment.task
    }

    /// Earlier tasks of the same conversation, caller and agent, in the order of their acceptance.
    /// There are as many of the newest as the agent's profile asks for, without active tasks. If
    /// they are too large, the oldest are omitted.
    pub fn earlier(&self) -> &[Arc<Task>] {
        &self.assignment.earlier
    }

    /// The id of the task.
    pub fn task_id(&self) -> &TaskId {
        &self.assignment.task.id
    }

    /// The id of the conversation.
    pub fn context_id(&self) -> &ContextId {
        &self.assignment.task.context_id
    }

    /// The id of the conversation of one owner, in hexadecimal digits. Owners choose the ids of their contexts,
    /// and two owners may choose the same one: what belongs to a conversation must be named by this id.
    /// `None` if the turn comes from a server that does not send it.
    pub fn conversation_id(&self) -> Option<&str> {
        Some(self.assignment.conversation.as_str()).filter(|id| !id.is_empty())
    }

    /// Media types that the caller accepts; empty means any.
    pub fn accepted_output_modes(&self) -> &[String] {
        &self.assignment.accepted_output_modes
    }

    /// The metadata of the send request, which is separate from that of the message.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.assignment.metadata.as_ref()
    }

    /// The trace context of the turn. Agents pass it on as `traceparent` and `tracestate` in their
    /// own calls, so that those belong to the same trace.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.assignment.trace.as_ref()
    }

    /// The attempt, from 1. A higher number means that an earlier attempt was interrupted.
    pub fn attempt(&self) -> u32 {
        self.assignment.attempt
    }

    /// True if the turn continues after the writes of an earlier attempt.
    pub fn is_resumed(&self) -> bool {
        self.assignment.resumed
    }

    /// Fires when the turn must stop. An agent that waits for anything must wait for this token
    /// too.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// The metadata of the request that cancelled the task.
    pub fn cancel_metadata(&self) -> Option<Metadata> {
        self.cancel_metadata.lock().expect("nothing panics while it holds this lock").clone()
    }

    /// Starts the turn over: the next piece of each artifact replaces its earlier content.
    pub fn start_over(&self) {
        let mut written = self.written.lock().expect("nothing panics while it holds this lock");
        written.clone_from(&self.assignment.continued);
    }

    /// Reports a state. Without parts the status has no message.
    pub async fn report(&self, state: TaskState, parts: Vec<Part>) -> Result<(), Stop> {
        let message = (!parts.is_empty()).then(|| self.message_of(parts));
        self.write_one(Command::Report(state, message, None)).await
    }

    /// Reports that the task waits for its caller or for credentials, while the turn goes on by itself. Streams
    /// and waiting callers wait for the turn.
    pub async fn report_interim(&self, state: TaskState, parts: Vec<Part>) -> Result<(), Stop> {
        let message = (!parts.is_empty()).then(|| self.message_of(parts));
        self.write_one(Command::Interim(state, message, None)).await
    }

    /// Reports a state with a message of another agent. The metadata is merged into the task's own;
    /// equal names are replaced.
    pub async fn relay(
        &self,
        state: TaskState,
        message: Option<Arc<Message>>,
        metadata: Option<Metadata>,
    ) -> Result<(), Stop> {
        let message = message.map(|message| self.named(message));
        self.write_one(Command::Report(state, message, metadata)).await
    }

    /// Reports progress: the state `working` with a text.
    pub async fn progress(&self, text: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(text)]);
        self.write_one(Command::Report(TaskState::Working, Some(message), None)).await
    }

    /// Writes a whole artifact. It replaces an earlier one with the same id.
    pub async fn artifact(&self, artifact: Artifact) -> Result<(), Stop> {
        self.replace(artifact, true).await
    }

    /// Writes the first piece of an artifact. It replaces an earlier artifact with the same id.
    pub async fn replace(&self, piece: Artifact, last: bool) -> Result<(), Stop> {
        let chunk = self.chunk(piece, false, last);
        self.write_one(Command::Write(chunk)).await
    }

    /// Writes the next piece of an artifact. The first piece of a repeated attempt replaces the
    /// pieces of the interrupted attempt.
    pub async fn append(&self, piece: Artifact, last: bool) -> Result<(), Stop> {
        let chunk = self.chunk(piece, true, last);
        self.write_one(Command::Write(chunk)).await
    }

    /// Asks the caller and ends the turn. The answer begins the next turn. If another message has
    /// arrived meanwhile, it begins the next turn at once, and the task does not pause.
    pub async fn ask(&self, question: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(question)]);
        self.write_one(Command::Report(TaskState::InputRequired, Some(message), None)).await
    }

    /// Asks the caller and keeps the turn: [`Turn::answered`] waits for the answer. All callers
    /// that wait for the task see the question, including one whose own message is still unread,
    /// because the turn reads the answer before that message.
    pub async fn ask_within_turn(&self, parts: Vec<Part>) -> Result<(), Stop> {
        let message = self.message_of(parts);
        self.write_one(Command::Ask(TaskState::InputRequired, Some(message), None)).await
    }

    /// As [`Turn::relay`], for a question whose answer this turn waits for.
    pub async fn relay_within_turn(
        &self,
        state: TaskState,
        message: Option<Arc<Message>>,
        metadata: Option<Metadata>,
    ) -> Result<(), Stop> {
        let message = message.map(|message| self.named(message));
        self.write_one(Command::Ask(state, message, metadata)).await
    }

    /// Waits for the caller's answer to a question of [`Turn::ask_within_turn`]. It is for agents
    /// that keep a resource meanwhile, such as a program that waits for the answer. The wait does
    /// not count against the timeouts of the turn. Returns true if [`Turn::take_answer`] has the
    /// answer. Returns false if this turn gets no answer and must end; a later answer begins the
    /// next turn.
    pub async fn answered(&self) -> bool {
        self.sink.answered().await
    }

    /// Waits for a message that the caller sends to the task while the turn works. An agent that can use
    /// it now takes it with [`Turn::take_answer`]; otherwise it begins the next turn. Cancel safe.
    pub async fn messaged(&self) {
        self.sink.messaged().await;
    }

    /// Takes the caller's answer, after [`Turn::answered`] returned true or [`Turn::messaged`] returned.
    pub async fn take_answer(&self) -> Result<Arc<Message>, Stop> {
        self.sink.take_answer().await
    }

    /// Waits until the server shuts down. An agent whose turns can be resumed without loss then
    /// returns [`AgentError::Suspended`], and the next start resumes the turn; other agents finish
    /// in the remaining time. Pending for ever if the store does not survive the process, because
    /// no later start could resume the turn.
    pub async fn leaving(&self) {
        self.sink.leaving().await;
    }

    /// Asks the caller for credentials, and explains which.
    pub async fn require_auth(&self, explanation: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(explanation)]);
        self.write_one(Command::Report(TaskState::AuthRequired, Some(message), None)).await
    }

    /// Rejects the task.
    pub async fn reject(&self, reason: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(reason)]);
        self.write_one(Command::Report(TaskState::Rejected, Some(message), None)).await
    }

    /// Completes the task with one last artifact, in one write.
    pub async fn complete_with(&self, artifact: Artifact) -> Result<(), Stop> {
        let chunk = self.chunk(artifact, false, true);
        let done = Command::Report(TaskState::Completed, None, None);
        self.sink.write(vec![Command::Write(chunk), done]).await
    }

    /// Completes the task with a final message.
    pub async fn complete(&self, text: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(text)]);
        self.write_one(Command::Report(TaskState::Completed, Some(message), None)).await
    }

    /// Fails the task at once, while the agent cleans up in `cleanup`. The caller gets the failure
    /// without waiting for the cleanup, and the cleanup does not wait for the store. No effect on
    /// the task if the turn was stopped.
    pub async fn fail_while<T>(&self, error: &AgentError, cleanup: impl Future<Output = T>) -> T {
        let failed = async {
            match error {
                AgentError::Stopped | AgentError::Suspended => {}
                AgentError::Failed(_)
                | AgentError::Raised { .. }
                | AgentError::ProtocolViolation(_)
                | AgentError::Unavailable(_) => {
                    // If this write fails, the engine fails the task when the turn returns.
                    let _ = self.sink.fail(error).await;
                }
            }
        };
        tokio::join!(failed, cleanup).1
    }

    /// Answers directly. Allowed only for messages that the agent declared in
    /// [`Agent::answers_directly`](crate::Agent::answers_directly), and nothing may follow.
    pub async fn reply(&self, parts: Vec<Part>) -> Result<(), Stop> {
        let context_id = Some(self.context_id().clone());
        let message = Message { context_id, parts, ..Message::agent(new_id(), "") };
        self.write_one(Command::Reply(message.into())).await
    }

    async fn write_one(&self, command: Command) -> Result<(), Stop> {
        self.sink.write(vec![command]).await
    }

    fn chunk(&self, artifact: Artifact, append: bool, last: bool) -> Chunk {
        let mut written = self.written.lock().expect("nothing panics while it holds this lock");
        let known = !written.insert(artifact.artifact_id.clone());
        Chunk { artifact: artifact.into(), append: append && known, last }
    }

    /// A message of the agent with a new id.
    fn message_of(&self, parts: Vec<Part>) -> Arc<Message> {
        self.named(Message { parts, ..Message::agent(new_id(), "") }.into())
    }

    /// The message with the ids of its task. Added here, so that the rules need not copy the
    /// message.
    fn named(&self, mut shared: Arc<Message>) -> Arc<Message> {
        let message = Arc::make_mut(&mut shared);
        message.role = Role::Agent;
        message.task_id = Some(self.task_id().clone());
        message.context_id = Some(self.context_id().clone());
        shared
    }
}

fn new_id() -> String {
    uuid::Uuid::now_v7().to_string()
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Over => f.write_str("the turn is over"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Stop {}

impl From<Stop> for AgentError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Over => Self::Stopped,
            Stop::Refused(reason) => Self::Failed(reason),
        }
    }
}
