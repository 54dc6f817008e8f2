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

/// Why a turn must stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// The task is no longer the turn's: it was cancelled, timed out or taken over.
    Over,
    /// What was said broke a rule or a limit. The text may go to the caller.
    Refused(String),
}

/// Destination of a turn's writes: the local log, or the connection to the server that leased the turn.
#[async_trait]
pub trait Sink: fmt::Debug + Send + Sync {
    /// Makes the results of these commands durable, all or none. An agent gives
    /// [`Command::Report`], [`Command::Ask`], [`Command::Write`] and [`Command::Reply`].
    async fn write(&self, commands: Vec<Command>) -> Result<(), Stop>;

    /// Fails the task with this error.
    async fn fail(&self, error: &AgentError) -> Result<(), Stop>;

    /// Waits for the next message of the caller. Returns false if there will be none for this turn: the
    /// task ended, the caller took too long or the server shuts down.
    async fn answered(&self) -> bool;

    /// Takes the next message of the caller.
    async fn take_answer(&self) -> Result<Arc<Message>, Stop>;

    /// Waits until the server shuts down, if a later start can continue the turn.
    async fn leaving(&self);
}

/// Assignment of a turn: the task, the message to answer, and its context. It can be sent to a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Assignment {
    /// The turn's name: no other turn has it, and every attempt at this one has the same.
    pub id: TurnId,
    /// The task as it stood when the turn began.
    pub task: Arc<Task>,
    /// What was said before in the conversation, if the agent has a memory; see [`Turn::earlier`].
    pub earlier: Vec<Arc<Task>>,
    /// The message to answer, which is also in the task's history.
    pub message: Arc<Message>,
    /// Its sequence number in the log.
    pub seq: Seq,
    /// Media types the caller can use; empty means any.
    pub accepted_output_modes: Vec<String>,
    /// The metadata of the send, beside the message's own.
    pub metadata: Option<Metadata>,
    /// The span of the turn or, without tracing, the one its caller sent.
    pub trace: Option<TraceContext>,
    /// Counts from 1; more means that an earlier attempt was cut off.
    pub attempt: u32,
    /// Whether to go on from what the earlier attempt wrote, instead of starting afresh.
    pub resumed: bool,
    /// Artifacts whose next piece goes after what is there.
    pub continued: HashSet<ArtifactId>,
}

/// One run of an agent over one message.
#[derive(Debug)]
pub struct Turn {
    assignment: Assignment,
    /// Written out for whoever asks first.
    id: OnceLock<String>,
    sink: Arc<dyn Sink>,
    cancelled: CancellationToken,
    cancel_metadata: Arc<Mutex<Option<Metadata>>>,
    written: Mutex<HashSet<ArtifactId>>,
}

impl Turn {
    /// A turn that speaks through `sink` until `cancelled` fires; `cancel_metadata` then holds what
    /// the caller sent along.
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

    /// The turn's name, a UUID: no other turn of any caller has it, and every attempt at this one has
    /// the same. Who is given work under it can tell that it was given before.
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

    /// The task as it stood when the turn began: its history and the artifacts so far.
    pub fn task(&self) -> &Task {
        &self.assignment.task
    }

    /// Earlier tasks of the same conversation, caller and agent, in the order in which they were
    /// accepted: as many of the newest as the agent's profile asks for, without those that somebody
    /// still works on. What is too large to be remembered is left out, from the oldest.
    pub fn earlier(&self) -> &[Arc<Task>] {
        &self.assignment.earlier
    }

    /// The task's name.
    pub fn task_id(&self) -> &TaskId {
        &self.assignment.task.id
    }

    /// The conversation's name.
    pub fn context_id(&self) -> &ContextId {
        &self.assignment.task.context_id
    }

    /// Media types the caller can use; empty means any.
    pub fn accepted_output_modes(&self) -> &[String] {
        &self.assignment.accepted_output_modes
    }

    /// The metadata of the send, beside the message's own.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.assignment.metadata.as_ref()
    }

    /// Where the turn stands in its trace. Whatever the agent calls gets it as `traceparent` and
    /// `tracestate`, so that the trace does not end here.
    pub fn trace(&self) -> Option<&TraceContext> {
        self.assignment.trace.as_ref()
    }

    /// Counts from 1; more means that an earlier attempt was cut off.
    pub fn attempt(&self) -> u32 {
        self.assignment.attempt
    }

    /// Whether to go on from what an earlier attempt wrote.
    pub fn is_resumed(&self) -> bool {
        self.assignment.resumed
    }

    /// Fires when the turn must stop. Agents that wait for something else wait for this too.
    pub fn cancelled(&self) -> &CancellationToken {
        &self.cancelled
    }

    /// What the caller sent along when it cancelled the task.
    pub fn cancel_metadata(&self) -> Option<Metadata> {
        self.cancel_metadata.lock().expect("nothing panics while it holds this lock").clone()
    }

    /// Starts the turn over: the next piece of an artifact replaces what was written until now.
    pub fn start_over(&self) {
        let mut written = self.written.lock().expect("nothing panics while it holds this lock");
        written.clone_from(&self.assignment.continued);
    }

    /// Says where the task stands, in whatever words; no parts are no words.
    pub async fn report(&self, state: TaskState, parts: Vec<Part>) -> Result<(), Stop> {
        let message = (!parts.is_empty()).then(|| self.message_of(parts));
        self.write_one(Command::Report(state, message, None)).await
    }

    /// Says where the task stands in the words of somebody else. The metadata goes into the task's
    /// own, in place of what is there under the same names.
    pub async fn relay(
        &self,
        state: TaskState,
        message: Option<Arc<Message>>,
        metadata: Option<Metadata>,
    ) -> Result<(), Stop> {
        let message = message.map(|message| self.named(message));
        self.write_one(Command::Report(state, message, metadata)).await
    }

    /// Says that the work goes on, and how.
    pub async fn progress(&self, text: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(text)]);
        self.write_one(Command::Report(TaskState::Working, Some(message), None)).await
    }

    /// Writes a whole artifact, in place of an earlier one of the same id.
    pub async fn artifact(&self, artifact: Artifact) -> Result<(), Stop> {
        self.replace(artifact, true).await
    }

    /// Writes the first piece of an artifact, in place of an earlier one of the same id.
    pub async fn replace(&self, piece: Artifact, last: bool) -> Result<(), Stop> {
        let chunk = self.chunk(piece, false, last);
        self.write_one(Command::Write(chunk)).await
    }

    /// Writes the next piece of an artifact. The first piece of an attempt replaces what a
    /// cut-off attempt left behind.
    pub async fn append(&self, piece: Artifact, last: bool) -> Result<(), Stop> {
        let chunk = self.chunk(piece, true, last);
        self.write_one(Command::Write(chunk)).await
    }

    /// Asks the caller for something. The turn then ends, and the answer starts the next one. If a
    /// message came in meanwhile, the next turn starts with that at once, and the task does not pause.
    pub async fn ask(&self, question: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(question)]);
        self.write_one(Command::Report(TaskState::InputRequired, Some(message), None)).await
    }

    /// Asks the caller for something and keeps the turn: [`Turn::answered`] waits for the answer. Every
    /// caller who waits for the task is told, also one whose message is still unread, because that
    /// message is not read before the answer.
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

    /// Waits, after a question of [`Turn::ask_within_turn`], for the caller's answer: for agents that hold
    /// something meanwhile, such as a program that waits as well. The time does not count as theirs.
    /// With `true`, [`Turn::take_answer`] has it. Without, there will be none for this turn, which has
    /// to end; if there is one later it starts the next.
    pub async fn answered(&self) -> bool {
        self.sink.answered().await
    }

    /// Goes on with the caller's answer, once it is there.
    pub async fn take_answer(&self) -> Result<Arc<Message>, Stop> {
        self.sink.take_answer().await
    }

    /// Waits until the server is about to stop. An agent whose turns are resumed, and that loses nothing
    /// by it, then returns [`AgentError::Suspended`], and the next start goes on with the turn; others
    /// finish what can be finished in time. Where no later start could know of the turn, nobody is
    /// told to leave it.
    pub async fn leaving(&self) {
        self.sink.leaving().await;
    }

    /// Says that the work needs credentials, and which.
    pub async fn require_auth(&self, explanation: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(explanation)]);
        self.write_one(Command::Report(TaskState::AuthRequired, Some(message), None)).await
    }

    /// Refuses the task.
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

    /// Completes the task with a closing word.
    pub async fn complete(&self, text: impl Into<String> + Send) -> Result<(), Stop> {
        let message = self.message_of(vec![Part::text(text)]);
        self.write_one(Command::Report(TaskState::Completed, Some(message), None)).await
    }

    /// Fails the task now, as returning the error will, while the agent puts away what it has:
    /// nobody need wait for that, and it waits for nobody. Where the turn was stopped there is
    /// nothing to say.
    pub async fn fail_while<T>(&self, error: &AgentError, cleanup: impl Future<Output = T>) -> T {
        let failed = async {
            match error {
                AgentError::Stopped | AgentError::Suspended => {}
                AgentError::Failed(_)
                | AgentError::ProtocolViolation(_)
                | AgentError::Unavailable(_) => {
                    // What cannot be said now is said when the turn returns.
                    let _ = self.sink.fail(error).await;
                }
            }
        };
        tokio::join!(failed, cleanup).1
    }

    /// Answers directly. Only for messages the agent declared so, and nothing may follow.
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

    /// A message of the agent under a fresh id.
    fn message_of(&self, parts: Vec<Part>) -> Arc<Message> {
        self.named(Message { parts, ..Message::agent(new_id(), "") }.into())
    }

    /// The message with the names of its task, so that the log does not have to copy it to add them.
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
