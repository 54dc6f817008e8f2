//! The rules of a task: two pure functions and nothing else.
//!
//! [`decide`] turns a wish into events or refuses it; [`apply`] folds one event into the task.
//! Nothing else in the workspace changes a [`Task`].

use std::sync::Arc;

use herald_protocol::{
    AgentName, Artifact, ContextId, Error, ErrorKind, MAX_PARTS, Message, Metadata, Part, Role,
    Seq, Task, TaskId, TaskState, TaskStatus, Timestamp, TraceContext, is_too_deep,
};

use crate::store::{Header, MemberId, Run};

/// Everything the rules know of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The task. Its history and artifacts are always there, if empty. Shared with readers: an
    /// event copies it only while one of them still looks at the old state.
    pub task: Arc<Task>,
    /// The last event in its log; zero before the first.
    pub head: Seq,
    /// Bytes in its log.
    pub bytes: u64,
    /// Its last snapshot: how many bytes that has, and how many of the log it stands for.
    pub snapshot: Extent,
    /// The agent it belongs to.
    pub agent: AgentName,
    /// When it was accepted.
    pub created: Timestamp,
    /// Whether it is the hidden log of a direct answer.
    pub hidden: bool,
    /// The direct answer, once given.
    pub reply: Option<Arc<Message>>,
    /// What remains to be done.
    pub run: Run,
}

/// How large a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Its own bytes.
    pub size: u64,
    /// Bytes of the log up to its last event.
    pub covers: u64,
}

/// Something that happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A caller's message was accepted.
    Received(Received),
    /// The status changed. What an agent says beside it stays with the task; what a caller says
    /// about its cancel is in the log alone.
    Status(TaskStatus, Option<Metadata>),
    /// An artifact grew or was replaced.
    Artifact(Chunk),
    /// The agent answered directly.
    Reply(Arc<Message>),
}

/// An accepted message and what its turn needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct Received {
    /// The message, with its task and context filled in.
    pub message: Arc<Message>,
    /// Media types the caller can use; empty means any.
    pub accepted_output_modes: Vec<String>,
    /// The metadata of the send, beside the message's own.
    pub metadata: Option<Metadata>,
    /// The span it was received in, which its turn belongs to.
    pub trace: Option<TraceContext>,
    /// The state it left the task in.
    pub state: TaskState,
    /// When.
    pub at: Timestamp,
}

/// An artifact or the next piece of one.
#[derive(Debug, Clone, PartialEq)]
pub struct Chunk {
    /// The artifact; its parts are the piece.
    pub artifact: Arc<Artifact>,
    /// Whether the parts go after those already there.
    pub append: bool,
    /// Whether the artifact is complete with this.
    pub last: bool,
}

/// Something a caller, an agent or the engine wants.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Take a message.
    Receive {
        /// The message; its task and context are filled in by the decision.
        message: Arc<Message>,
        /// Media types the caller can use.
        accepted_output_modes: Vec<String>,
        /// The metadata of the send.
        metadata: Option<Metadata>,
        /// The span it is received in.
        trace: Option<TraceContext>,
        /// The process that takes it. Every other holder of a turn is dead.
        living: MemberId,
    },
    /// End the task.
    Cancel {
        /// For whoever reads the log.
        metadata: Option<Metadata>,
    },
    /// Take up the oldest unread message. Nothing happens if there is none, or a turn under way.
    Begin(MemberId),
    /// Take up the current turn once more after its holder died. Nothing happens if another member
    /// holds it by now.
    Retry {
        /// Who takes it up.
        me: MemberId,
        /// The dead member it is taken over from.
        from: MemberId,
    },
    /// Go on, in the turn that is under way, with the oldest unread message after this event. Nothing
    /// happens if there is none, or if the task is hidden: a direct answer has no further message.
    Take(Seq),
    /// Say where the task stands, in which words, and what else is to be known about it. Every state
    /// but `working` ends the turn.
    Report(TaskState, Option<Arc<Message>>, Option<Metadata>),
    /// Ask the caller and keep the turn until the answer is there.
    Ask(TaskState, Option<Arc<Message>>, Option<Metadata>),
    /// Add to the results.
    Write(Chunk),
    /// Answer directly.
    Reply(Arc<Message>),
    /// Let go of the turn without an event. The epoch grows, so that whoever let go can no longer write.
    Release,
}

/// What follows from a command: the events, and what then remains to be done.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// At most one event.
    pub event: Option<Event>,
    /// The run after it.
    pub run: Run,
    /// Whether the task becomes visible with it.
    pub unhide: bool,
    /// Whether the event has to keep [`within`] the limits. What begins or ends a turn always may.
    pub limited: bool,
}

/// How large one task may grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Events in its log.
    pub events: u64,
    /// Bytes in its log.
    pub bytes: u64,
    /// Messages waiting for the agent.
    pub unread: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { events: 20_000, bytes: 32 << 20, unread: 64 }
    }
}

impl Record {
    /// A task that nothing has happened to yet.
    pub fn new(
        id: TaskId,
        context: ContextId,
        agent: AgentName,
        hidden: bool,
        now: Timestamp,
    ) -> Self {
        let status =
            TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(now) };
        let task = Task {
            id,
            context_id: context,
            status,
            artifacts: Some(Vec::new()),
            history: Some(Vec::new()),
            metadata: None,
        };
        let (task, run) = (Arc::new(task), Run::default());
        let snapshot = Extent::default();
        Self { task, head: 0, bytes: 0, snapshot, agent, created: now, hidden, reply: None, run }
    }

    /// The state the task is in.
    pub fn state(&self) -> TaskState {
        self.task.status.state
    }

    /// Whether the log is closed.
    pub fn is_closed(&self) -> bool {
        self.state().is_terminal()
    }

    /// The header that the store keeps.
    pub fn header(&self) -> Header {
        Header {
            agent: self.agent.clone(),
            context: self.task.context_id.clone(),
            state: self.state(),
            changed: self.task.status.timestamp.unwrap_or(self.created),
            created: self.created,
            hidden: self.hidden,
            bytes: self.bytes,
            run: self.run.clone(),
        }
    }

    /// True if the turn that is held has asked its question or given its result, so that only its
    /// release is missing. A hidden log has no states to tell by.
    pub fn has_settled(&self) -> bool {
        self.run.holder.is_some() && !self.hidden && self.state() != TaskState::Working
    }

    /// True if a message that `living` receives now can begin the next turn in the same write.
    pub fn is_free(&self, living: MemberId) -> bool {
        let held = self.run.holder.is_some() && !self.is_left_behind(living);
        self.run.unread.is_empty() && !held
    }

    /// True if a process died after its turn had settled and before the turn was released. To run
    /// that turn again would do its work twice.
    fn is_left_behind(&self, living: MemberId) -> bool {
        self.has_settled() && self.run.holder != Some(living)
    }

    /// True if a pause is worth a snapshot. Each is paid for by the events since the one before, so
    /// that all of them together take no more than 4/3 of the log, however often a task pauses; a
    /// reader of a paused task reads at most four times what the snapshot has.
    pub fn is_due_for_snapshot(&self) -> bool {
        self.bytes - self.snapshot.covers >= 3 * self.snapshot.size
    }

    fn artifacts(&self) -> usize {
        self.task.artifacts.as_ref().map_or(0, Vec::len)
    }

    fn has_artifact(&self, artifact: &Artifact) -> bool {
        let artifacts = self.task.artifacts.as_deref().unwrap_or_default();
        artifacts.iter().any(|known| known.artifact_id == artifact.artifact_id)
    }
}

/// Decides what happens, given the task as it stands.
pub fn decide(
    record: &Record,
    command: Command,
    limits: &Limits,
    now: Timestamp,
) -> Result<Decision, Error> {
    if record.is_closed() {
        return Err(refuse_closed(record, &command));
    }
    // A clock that was set back must not make the times of a task run backwards.
    let now = record.task.status.timestamp.map_or(now, |last| now.max(last));
    let mut run = record.run.clone();
    let (mut unhide, mut limited) = (false, false);
    let stays = matches!(command, Command::Ask(..));
    let event = match command {
        Command::Receive { message, accepted_output_modes, metadata, trace, living } => {
            limited = true;
            if record.is_left_behind(living) {
                release(&mut run);
            }
            if run.unread.len() >= limits.unread {
                let text = format!("the task already has {} unread messages", run.unread.len());
                return Err(Error::new(ErrorKind::LimitExceeded, text));
            }
            run.unread.push(record.head + 1);
            let working = record.state() == TaskState::Working;
            let state = if working { TaskState::Working } else { TaskState::Submitted };
            let message = with_ids(message, &record.task);
            let at = now;
            let received = Received { message, accepted_output_modes, metadata, trace, state, at };
            Some(Event::Received(received))
        }
        Command::Cancel { metadata } => {
            run = ended(run);
            Some(Event::Status(status(TaskState::Canceled, None, now), metadata))
        }
        Command::Begin(holder) => {
            if run.holder.is_some() || run.unread.is_empty() {
                None
            } else {
                run.turn = run.unread.remove(0);
                run.attempt = 1;
                run.kept = record.artifacts();
                claim(&mut run, holder);
                working(record, now)
            }
        }
        Command::Retry { me, from } => {
            if run.turn == 0 || run.holder != Some(from) {
                None
            } else {
                run.attempt += 1;
                claim(&mut run, me);
                working(record, now)
            }
        }
        Command::Take(after) => {
            let next = run.unread.iter().position(|seq| *seq > after);
            // A hidden task has no event for it, and so no change of its version.
            match next.filter(|_| run.holder.is_some() && !record.hidden) {
                None => None,
                Some(next) => {
                    run.turn = run.unread.remove(next);
                    run.attempt = 1;
                    run.kept = record.artifacts();
                    working(record, now)
                }
            }
        }
        Command::Report(state, message, metadata) | Command::Ask(state, message, metadata) => {
            let state = reported(record, state, stays)?;
            if !state.is_terminal() {
                limited = true;
            } else {
                run = ended(run);
                unhide = record.hidden;
            }
            let message = message.map(|message| with_ids(message, &record.task));
            let words = message.as_ref().map(|words| (&words.parts[..], words.metadata.as_ref()));
            check_content(words.unwrap_or_default())?;
            check_content((&[], metadata.as_ref()))?;
            Some(Event::Status(status(state, message, now), metadata))
        }
        Command::Write(chunk) => {
            limited = true;
            Some(Event::Artifact(checked(record, chunk)?))
        }
        Command::Reply(message) => {
            if !record.hidden {
                return Err(broken("a task cannot be answered by a direct message"));
            }
            check_content((&message.parts, message.metadata.as_ref()))?;
            run = ended(run);
            Some(Event::Reply(spoken(message, &record.task)))
        }
        Command::Release => {
            release(&mut run);
            None
        }
    };
    Ok(Decision { event, run, unhide, limited })
}

/// Refuses an event of `size` bytes that the task has no room for.
pub fn within(record: &Record, size: usize, limits: &Limits) -> Result<(), Error> {
    if record.head >= limits.events {
        let text = format!("the task has reached its limit of {} events", limits.events);
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    if record.bytes + size as u64 > limits.bytes {
        let text = format!("the task has reached its limit of {} bytes", limits.bytes);
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    Ok(())
}

/// Folds one event of `size` bytes into the task. Total: what is in the log has happened.
pub fn apply(record: &mut Record, event: Event, size: usize) {
    record.head += 1;
    record.bytes += size as u64;
    let task = Arc::make_mut(&mut record.task);
    match event {
        Event::Received(received) => {
            let next =
                TaskStatus { state: received.state, message: None, timestamp: Some(received.at) };
            retire_status(task, next);
            task.history.get_or_insert_default().push(received.message);
        }
        Event::Status(status, metadata) => {
            if let (Some(metadata), true) = (metadata, status.state != TaskState::Canceled) {
                task.metadata.get_or_insert_default().extend(&metadata);
            }
            retire_status(task, status);
        }
        Event::Artifact(chunk) => merge(task.artifacts.get_or_insert_default(), chunk),
        Event::Reply(message) => {
            task.status.state = TaskState::Completed;
            record.reply = Some(message);
        }
    }
}

/// A status message that is superseded becomes part of the conversation.
fn retire_status(task: &mut Task, next: TaskStatus) {
    let last = std::mem::replace(&mut task.status, next);
    if let Some(message) = last.message {
        task.history.get_or_insert_default().push(message);
    }
}

fn merge(artifacts: &mut Vec<Arc<Artifact>>, chunk: Chunk) {
    let Chunk { artifact, append, .. } = chunk;
    let known = artifacts.iter_mut().find(|known| known.artifact_id == artifact.artifact_id);
    match known {
        Some(known) if append => {
            let (known, artifact) = (Arc::make_mut(known), Arc::unwrap_or_clone(artifact));
            known.parts.extend(artifact.parts);
            if let Some(metadata) = artifact.metadata {
                known.metadata.get_or_insert_default().extend(&metadata);
            }
        }
        Some(known) => *known = artifact,
        None => artifacts.push(artifact),
    }
}

fn refuse_closed(record: &Record, command: &Command) -> Error {
    let state = record.state().proto_name();
    let error = match command {
        Command::Receive { .. } => Error::new(
            ErrorKind::TaskEnded,
            "the task has ended; start a new one in the same context to go on",
        ),
        Command::Cancel { .. } => Error::new(ErrorKind::TaskNotCancelable, "the task has ended"),
        Command::Begin(_)
        | Command::Retry { .. }
        | Command::Take(_)
        | Command::Report(..)
        | Command::Ask(..)
        | Command::Write(_)
        | Command::Reply(_)
        | Command::Release => lost("the task has ended"),
    };
    error.with("state", state)
}

/// Which state a report leads to. A turn that ends while a message is unread leaves a task that is
/// neither done nor waiting for its caller: the next turn follows at once. Readers who wait for that
/// message would take any other state for its outcome. A turn that stays with its question reads
/// no other message before the answer, so its readers have to know of the question.
fn reported(record: &Record, state: TaskState, stays: bool) -> Result<TaskState, Error> {
    match state {
        TaskState::Working | TaskState::Completed | TaskState::Failed | TaskState::Rejected
            if stays =>
        {
            Err(broken("an agent can wait for its caller only with a question"))
        }
        TaskState::Unspecified | TaskState::Submitted | TaskState::Canceled => {
            Err(broken("an agent cannot report this state"))
        }
        TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired
            if record.hidden =>
        {
            Err(broken("a direct answer must be one message"))
        }
        TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired
            if !stays && !record.run.unread.is_empty() =>
        {
            Ok(TaskState::Submitted)
        }
        TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::InputRequired
        | TaskState::Rejected
        | TaskState::AuthRequired => Ok(state),
    }
}

fn checked(record: &Record, mut chunk: Chunk) -> Result<Chunk, Error> {
    if record.hidden {
        return Err(broken("a direct answer has no artifacts"));
    }
    if chunk.artifact.artifact_id.is_empty() || chunk.artifact.parts.is_empty() {
        return Err(broken("an artifact needs an id and at least one part"));
    }
    check_content((&chunk.artifact.parts, chunk.artifact.metadata.as_ref()))?;
    chunk.append = chunk.append && record.has_artifact(&chunk.artifact);
    Ok(chunk)
}

/// The `working` that opens a turn, unless the task is hidden: a direct answer has no states.
fn working(record: &Record, now: Timestamp) -> Option<Event> {
    let status = status(TaskState::Working, None, now);
    (!record.hidden).then_some(Event::Status(status, None))
}

fn status(state: TaskState, message: Option<Arc<Message>>, now: Timestamp) -> TaskStatus {
    TaskStatus { state, message, timestamp: Some(now) }
}

/// A new claim. The epoch fences off whoever held the turn before.
fn claim(run: &mut Run, holder: MemberId) {
    run.epoch += 1;
    run.holder = Some(holder);
}

/// The end of a claim. The epoch fences off whoever held it.
fn release(run: &mut Run) {
    run.epoch += 1;
    run.holder = None;
}

fn ended(mut run: Run) -> Run {
    run.holder = None;
    run.kept = 0;
    run.unread.clear();
    run
}

/// A message of a task carries the task's names. One that carries them already is not copied.
fn with_ids(mut message: Arc<Message>, task: &Task) -> Arc<Message> {
    let named = message.task_id.as_ref() == Some(&task.id)
        && message.context_id.as_ref() == Some(&task.context_id);
    if !named {
        let message = Arc::make_mut(&mut message);
        message.task_id = Some(task.id.clone());
        message.context_id = Some(task.context_id.clone());
    }
    message
}

/// A direct answer belongs to a conversation but to no task.
fn spoken(mut message: Arc<Message>, task: &Task) -> Arc<Message> {
    let named = message.role == Role::Agent
        && message.task_id.is_none()
        && message.context_id.as_ref() == Some(&task.context_id);
    if !named {
        let message = Arc::make_mut(&mut message);
        message.role = Role::Agent;
        message.task_id = None;
        message.context_id = Some(task.context_id.clone());
    }
    message
}

/// Refuses content that could not be read again, or that takes far more memory than bytes.
fn check_content((parts, metadata): (&[Part], Option<&Metadata>)) -> Result<(), Error> {
    if parts.len() > MAX_PARTS {
        let text = format!(
            "the agent sent {} parts at once; at most {MAX_PARTS} are allowed",
            parts.len()
        );
        return Err(broken(&text));
    }
    if is_too_deep(parts, metadata) {
        return Err(broken("what the agent says is nested too deeply"));
    }
    Ok(())
}

fn broken(text: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse, text)
}

/// What a writer hears that no longer has the task.
fn lost(text: &str) -> Error {
    Error::new(ErrorKind::UnsupportedOperation, text)
}
