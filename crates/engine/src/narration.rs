//! What happens to tasks, told in the log in the words, at the levels and under the name that
//! operators of earlier A2A servers have their searches and alarms for.

use std::fmt;

use herald_protocol::{Message, Part, TaskId, TaskState};

use crate::{
    rules::{Chunk, Command},
    store::{Entry, Kind},
};

const LOGGER: &str = "a2a.server.methods";

/// Characters of a text that the log shows.
const SHOWN: usize = 200;

/// A task is in the log.
pub(crate) fn created(task: &TaskId) {
    tracing::info!(target: LOGGER, "Task created {task}, scheduling background runner");
}

/// These commands led to these events.
pub(crate) fn written(task: &TaskId, commands: &[Command], entries: &[Entry]) {
    if !tracing::enabled!(target: LOGGER, tracing::Level::DEBUG) {
        return;
    }
    let mut chunks = commands.iter().filter_map(|command| match command {
        Command::Write(chunk) => Some(chunk),
        Command::Receive { .. }
        | Command::Cancel { .. }
        | Command::Begin(_)
        | Command::Retry(_)
        | Command::Report(..)
        | Command::Reply(_)
        | Command::Release => None,
    });
    for entry in entries {
        match entry.kind {
            Kind::Status(state) => updating(task, state),
            Kind::Artifact => {
                if let Some(Chunk { artifact, .. }) = chunks.next() {
                    let text = Shown(&artifact.parts);
                    tracing::debug!(target: LOGGER, "Adding artifact to task {task}: {text}");
                }
            }
            Kind::Received(_) | Kind::Reply => {}
        }
    }
}

fn updating(task: &TaskId, state: TaskState) {
    tracing::debug!(target: LOGGER, "Updating task {task} to {}", state.kebab_name());
}

/// An agent is about to work on a message.
pub(crate) fn begun(task: &TaskId, message: &Message) {
    let text = Shown(&message.parts);
    tracing::debug!(target: LOGGER, "Task {task} initial text: '{text}'");
}

/// An agent has finished a turn.
pub(crate) fn finished(task: &TaskId) {
    tracing::info!(target: LOGGER, "Background runner completed for task {task}");
}

/// The text of some parts, as much as fits a line of the log.
struct Shown<'a>(&'a [Part]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut letters = self.0.iter().filter_map(Part::as_text).flat_map(str::chars);
        for letter in letters.by_ref().take(SHOWN) {
            // Nothing a caller writes may look like a line of its own.
            match letter.is_control() {
                true => write!(f, "{}", letter.escape_default())?,
                false => write!(f, "{letter}")?,
            }
        }
        if letters.next().is_some() { f.write_str("…") } else { Ok(()) }
    }
}
