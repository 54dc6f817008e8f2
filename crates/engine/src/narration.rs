//! What happens to tasks, told in the log in the words, at the levels and under the name that
//! operators of earlier A2A servers have their searches and alarms for.

use std::fmt::{self, Write};

use herald_protocol::{Message, Part, TaskId};

use crate::{
    engine::Engine,
    rules::Command,
    store::{Entry, Kind},
};

const LOGGER: &str = "a2a.server.methods";

/// Characters of a text that the log shows.
const SHOWN: usize = 200;

/// A task is in the log.
pub(crate) fn created(task: &TaskId) {
    tracing::info!(target: LOGGER, "Task created {task}, scheduling background runner");
}

impl Engine {
    /// An agent is about to work on a message.
    pub(crate) fn tell_begun(&self, task: &TaskId, message: &Message) {
        let text = self.words(&message.parts);
        tracing::debug!(target: LOGGER, "Task {task} initial text: {text:?}");
    }

    /// These commands led to these events.
    pub(crate) fn tell_written(&self, task: &TaskId, commands: &[Command], entries: &[Entry]) {
        if !tracing::enabled!(target: LOGGER, tracing::Level::DEBUG) {
            return;
        }
        let mut chunks = commands.iter().filter_map(|command| match command {
            Command::Write(chunk) => Some(chunk),
            Command::Receive { .. }
            | Command::Cancel { .. }
            | Command::Begin(_)
            | Command::Retry(_)
            | Command::Take(_)
            | Command::Report(..)
            | Command::Ask(..)
            | Command::Reply(_)
            | Command::Release => None,
        });
        for entry in entries {
            match entry.kind {
                Kind::Status(state) => {
                    let state = state.kebab_name();
                    tracing::debug!(target: LOGGER, "Updating task {task} to {state}");
                }
                Kind::Artifact => {
                    let Some(chunk) = chunks.next() else { continue };
                    let text = self.words(&chunk.artifact.parts);
                    tracing::debug!(target: LOGGER, "Adding artifact to task {task}: {text}");
                }
                Kind::Received(_) | Kind::Reply => {}
            }
        }
    }

    fn words<'a>(&self, parts: &'a [Part]) -> Words<'a> {
        Words { parts, shown: self.inner.settings.log_content }
    }
}

/// An agent has finished a turn.
pub(crate) fn finished(task: &TaskId) {
    tracing::info!(target: LOGGER, "Background runner completed for task {task}");
}

/// The text of some parts, as much as fits a line of the log; or only how much it is.
struct Words<'a> {
    parts: &'a [Part],
    shown: bool,
}

impl Words<'_> {
    fn letters(&self) -> impl Iterator<Item = char> {
        self.parts.iter().filter_map(Part::as_text).flat_map(str::chars)
    }
}

impl fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.shown {
            return write!(f, "{} characters", self.letters().count());
        }
        let mut letters = self.letters();
        for letter in letters.by_ref().take(SHOWN) {
            // Nothing a caller writes may look like a line of its own.
            match letter.is_control() {
                true => write!(f, "{}", letter.escape_default())?,
                false => f.write_char(letter)?,
            }
        }
        if letters.next().is_some() { f.write_char('…') } else { Ok(()) }
    }
}

/// In quotes, if it is shown.
impl fmt::Debug for Words<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shown { write!(f, "'{self}'") } else { write!(f, "{self}") }
    }
}
