//! Rules of a task: two pure functions.
//!
//! [`decide`] turns a command into an event or refuses it; [`apply`] adds one event to the task. No
//! other code in the workspace changes a [`Task`].

use std::sync::Arc;

use herald_protocol::{
    Artifact, Content, Error, ErrorKind, MAX_PARTS, Message, MessageId, Metadata, Part, Role, Task,
    TaskState, TaskStatus, Timestamp, is_too_deep,
};

use crate::model::{member::MemberId, run::Run};

pub use crate::model::{
    command::Command,
    event::{Chunk, Event, Received},
    record::{Extent, Record},
};

/// The member of a message's metadata that names the question which the message answers.
pub const QUESTION_MEMBER: &str = "herald.question";

/// The question that a message names: in its metadata, or in a data part beside the choice. `None`
/// for an answer in plain words.
pub fn named_question(message: &Message) -> Option<MessageId> {
    let in_metadata = message.metadata.as_ref().and_then(|it| it.get(QUESTION_MEMBER));
    let in_data = || {
        message.parts.iter().find_map(|part| match &part.content {
            Content::Data(data) => {
                data.get::<String>("choice")?;
                data.get::<String>("question")
            }
            Content::Text(_) | Content::Url(_) | Content::Raw(_) => None,
        })
    };
    in_metadata.or_else(in_data).map(|id: String| MessageId::from(id.as_str()))
}

/// The result of a command: its event and the run state after it.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// The event to append. A command causes at most one.
    pub event: Option<Event>,
    /// The run state after the event.
    pub run: Run,
    /// True if a hidden task becomes visible with the event.
    pub unhide: bool,
    /// True if the event must respect the limits of the task; see [`within`]. Events that begin or
    /// end a turn are exempt, so that a full task can still end.
    pub limited: bool,
}

/// Limits of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLimits {
    /// The maximum number of events in the log.
    pub events: u64,
    /// The maximum number of bytes in the log.
    pub bytes: u64,
    /// The maximum number of messages that wait for the agent.
    pub unread: usize,
}

impl Default for TaskLimits {
    fn default() -> Self {
        Self { events: 20_000, bytes: 32 << 20, unread: 64 }
    }
}

/// Decides the result of a command for the current state of the task.
pub fn decide(
    record: &Record,
    command: Command,
    limits: &TaskLimits,
    now: Timestamp,
) -> Result<Decision, Error> {
    if record.is_closed() {
        return Err(refuse_closed(record, &command));
    }
    // If the clock was set back, the times of a task must not decrease.
    let now = record.task.status.timestamp.map_or(now, |last| now.max(last));
    let mut run = record.run.clone();
    let (mut unhide, mut limited) = (false, false);
    let stays = matches!(command, Command::Ask(..));
    // The time limit of an admission may have accepted the message since.
    let command = if let Command::Decline(state, message) = &command
        && !record.is_in_admission()
    {
        Command::Report(*state, message.clone(), None)
    } else {
        command
    };
    let event = match command {
        Command::Receive { message, accepted_output_modes, metadata, trace, question, dead } => {
            limited = true;
            if question.is_some() && question.as_ref() != record.open_question() {
                return Err(question_changed(record));
            }
            if record.is_left_behind(dead) {
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
                let next = run.unread.remove(0);
                if next == run.turn {
                    // A returned turn: the artifacts of its last attempt are replaced.
                    run.attempt += 1;
                } else {
                    run.turn = next;
                    run.attempt = 1;
                    run.returned = false;
                    run.kept = record.artifacts();
                }
                claim(&mut run, holder);
                working(record, now)
            }
        }
        Command::Admit(holder) => {
            let next = run.unread.first().copied().filter(|_| run.holder.is_none());
            if let Some(next) = next.filter(|_| !record.hidden) {
                // The attempts at an admission are counted, so that a message that ends the process each time does
                // not do so for ever.
                run.attempt = if next == run.turn { run.attempt + 1 } else { 1 };
                run.turn = next;
                run.returned = false;
                run.kept = record.artifacts();
                claim(&mut run, holder);
            }
            None
        }
        Command::Admitted => {
            if record.is_in_admission() {
                run.unread.remove(0);
                run.attempt = 1;
                working(record, now)
            } else {
                None
            }
        }
        Command::Decline(state, message) => {
            run.unread.remove(0);
            let state = declined(&run, state)?;
            if state.is_terminal() {
                run = ended(run);
            } else {
                limited = true;
                release(&mut run);
            }
            let message = message.map(|message| with_ids(message, &record.task));
            let content = message.as_ref().map(|it| (&it.parts[..], it.metadata.as_ref()));
            check_content(content.unwrap_or_default())?;
            Some(Event::Status(status(state, message, now), None))
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
            // A hidden task would get no event (see `working`), so its version would not change.
            match next.filter(|_| run.holder.is_some() && !record.hidden) {
                None => None,
                Some(next) => {
                    run.turn = run.unread.remove(next);
                    run.attempt = 1;
                    run.returned = false;
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
            let content = message.as_ref().map(|it| (&it.parts[..], it.metadata.as_ref()));
            check_content(content.unwrap_or_default())?;
            check_content((&[], metadata.as_ref()))?;
            Some(Event::Status(status(state, message, now), metadata))
        }
        Command::Interim(state, message, metadata) => {
            limited = true;
            if record.hidden {
                return Err(invalid("a direct answer must be one message"));
            }
            if !state.is_interrupted() {
                let text = "only a state in which a task waits can be reported as an interim one";
                return Err(invalid(text));
            }
            let message = message.map(|message| with_ids(message, &record.task));
            let content = message.as_ref().map(|it| (&it.parts[..], it.metadata.as_ref()));
            check_content(content.unwrap_or_default())?;
            check_content((&[], metadata.as_ref()))?;
            Some(Event::Interim(status(state, message, now), metadata))
        }
        Command::Write(chunk) => {
            limited = true;
            Some(Event::Artifact(checked(record, chunk)?))
        }
        Command::Reply(message) => {
            if !record.hidden {
                return Err(invalid("a task cannot be answered by a direct message"));
            }
            check_content((&message.parts, message.metadata.as_ref()))?;
            run = ended(run);
            Some(Event::Reply(as_direct_answer(message, &record.task)))
        }
        Command::Expire { since, queued, message } => {
            let waits = if queued {
                record.state() == TaskState::Submitted && !run.unread.is_empty()
            } else {
                record.state().is_interrupted() && run.unread.is_empty()
            };
            if waits && run.holder.is_none() && record.task.status.timestamp == Some(since) {
                run = ended(run);
                unhide = record.hidden;
                let message = with_ids(message, &record.task);
                Some(Event::Status(status(TaskState::Failed, Some(message), now), None))
            } else {
                None
            }
        }
        Command::Return => {
            // The message of an admission is still unread.
            if record.is_in_admission() {
                release(&mut run);
            } else if run.holder.is_some() {
                run.unread.insert(0, run.turn);
                run.attempt = run.attempt.saturating_sub(1);
                run.returned = true;
                release(&mut run);
            }
            None
        }
        Command::Release => {
            release(&mut run);
            None
        }
    };
    Ok(Decision { event, run, unhide, limited })
}

/// Refuses an event of `size` bytes that would exceed the limits of the task.
pub fn within(record: &Record, size: usize, limits: &TaskLimits) -> Result<(), Error> {
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

/// Adds one event of `size` bytes to the task. It cannot fail, because the event is already in the
/// log.
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
        Event::Status(status, metadata) | Event::Interim(status, metadata) => {
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

/// Replaces the status. The message of the old status moves to the history.
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
            let known = Arc::make_mut(known);
            let (parts, metadata) = match Arc::try_unwrap(artifact) {
                Ok(Artifact { parts, metadata, .. }) => (parts, metadata),
                // Its command is kept for the case of a conflict. The names need no copy.
                Err(shared) => (shared.parts.clone(), shared.metadata.clone()),
            };
            known.parts.extend(parts);
            if let Some(metadata) = metadata {
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
        | Command::Admit(_)
        | Command::Admitted
        | Command::Decline(..)
        | Command::Retry { .. }
        | Command::Take(_)
        | Command::Report(..)
        | Command::Interim(..)
        | Command::Ask(..)
        | Command::Write(_)
        | Command::Reply(_)
        | Command::Expire { .. }
        | Command::Return
        | Command::Release => claim_lost("the task has ended"),
    };
    error.with("state", state)
}

/// The state of the task after its agent reported `state`. If a turn ends while a message is
/// unread, the next turn begins at once, so the task is neither done nor waiting for its caller:
/// readers that wait for the outcome of the unread message would take either state for it. If the
/// turn continues (`stays`), it reads no other message before the answer, so readers must see the
/// question.
fn reported(record: &Record, state: TaskState, stays: bool) -> Result<TaskState, Error> {
    match state {
        TaskState::Working | TaskState::Completed | TaskState::Failed | TaskState::Rejected
            if stays =>
        {
            Err(invalid("an agent can wait for its caller only with a question"))
        }
        TaskState::Unspecified | TaskState::Submitted | TaskState::Canceled => {
            Err(invalid("an agent cannot report this state"))
        }
        TaskState::Completed | TaskState::InputRequired | TaskState::AuthRequired
            if record.hidden =>
        {
            Err(invalid("a direct answer must be one message"))
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

/// The state of the task after its agent declined a message. If another message is unread, its own admission
/// follows, so the task does not wait for its caller.
fn declined(run: &Run, state: TaskState) -> Result<TaskState, Error> {
    match state {
        TaskState::AuthRequired if !run.unread.is_empty() => Ok(TaskState::Submitted),
        TaskState::Rejected | TaskState::AuthRequired => Ok(state),
        TaskState::Unspecified
        | TaskState::Submitted
        | TaskState::Working
        | TaskState::Completed
        | TaskState::Failed
        | TaskState::Canceled
        | TaskState::InputRequired => {
            Err(invalid("a message can be declined as rejected or as in need of credentials only"))
        }
    }
}

fn checked(record: &Record, mut chunk: Chunk) -> Result<Chunk, Error> {
    if record.hidden {
        return Err(invalid("a direct answer has no artifacts"));
    }
    if chunk.artifact.artifact_id.is_empty() || chunk.artifact.parts.is_empty() {
        return Err(invalid("an artifact needs an id and at least one part"));
    }
    check_content((&chunk.artifact.parts, chunk.artifact.metadata.as_ref()))?;
    chunk.append = chunk.append && record.has_artifact(&chunk.artifact);
    Ok(chunk)
}

/// The `working` status that begins a turn. A hidden task has none, because a direct answer has no
/// states.
fn working(record: &Record, now: Timestamp) -> Option<Event> {
    let status = status(TaskState::Working, None, now);
    (!record.hidden).then_some(Event::Status(status, None))
}

fn status(state: TaskState, message: Option<Arc<Message>>, now: Timestamp) -> TaskStatus {
    TaskStatus { state, message, timestamp: Some(now) }
}

/// Claims the turn for `holder`. The new epoch fences off the previous holder.
fn claim(run: &mut Run, holder: MemberId) {
    run.epoch += 1;
    run.holder = Some(holder);
}

/// Releases the claim. The new epoch fences off the holder.
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

/// The message with the ids of its task. A message that has them already is not copied.
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

/// The message of a direct answer: it has the id of its context and no task id.
fn as_direct_answer(mut message: Arc<Message>, task: &Task) -> Arc<Message> {
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

/// Refuses content that could not be decoded again, or that takes far more memory than its bytes.
fn check_content((parts, metadata): (&[Part], Option<&Metadata>)) -> Result<(), Error> {
    if parts.len() > MAX_PARTS {
        let text = format!(
            "the agent sent {} parts at once; at most {MAX_PARTS} are allowed",
            parts.len()
        );
        return Err(invalid(&text));
    }
    if is_too_deep(parts, metadata) {
        return Err(invalid("the content of the agent is nested too deeply"));
    }
    Ok(())
}

fn question_changed(record: &Record) -> Error {
    let error = match record.open_question() {
        Some(open) => {
            let text =
                "the task waits for the answer to another question; read it and answer again";
            Error::new(ErrorKind::QuestionChanged, text).with("question", open)
        }
        None => Error::new(ErrorKind::QuestionChanged, "the question is no longer open"),
    };
    error.with("state", record.state().proto_name())
}

fn invalid(text: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse, text)
}

/// The error of a writer that no longer holds the task.
fn claim_lost(text: &str) -> Error {
    Error::new(ErrorKind::UnsupportedOperation, text)
}
