//! Compatibility log: lines in the format of a2a-server, for existing searches and alerts.
//!
//! Text, level and logger name of these lines are an interface. They do not follow the style of the
//! other log lines.

use std::fmt::{self, Write};

use herald_protocol::{Message, Part, TaskId};

use crate::{
    rules::Command,
    store::{Entry, Kind},
};

const LOGGER: &str = "a2a.server.methods";

/// The longest text in one line, in characters.
const MAX_CHARS: usize = 200;

/// Logs that a task was created.
pub(crate) fn task_created(task: &TaskId) {
    tracing::info!(target: LOGGER, "Task created {task}, scheduling background runner");
}

/// Logs that a turn begins.
pub(crate) fn turn_begun(task: &TaskId, message: &Message, shown: bool) {
    let text = LoggedText { parts: &message.parts, shown };
    tracing::debug!(target: LOGGER, "Task {task} initial text: {text:?}");
}

/// Logs the status changes and artifacts of one write.
pub(crate) fn written(task: &TaskId, commands: &[Command], entries: &[Entry], shown: bool) {
    if !tracing::enabled!(target: LOGGER, tracing::Level::DEBUG) {
        return;
    }
    let mut chunks = commands.iter().filter_map(|command| match command {
        Command::Write(chunk) => Some(chunk),
        Command::Receive { .. }
        | Command::Cancel { .. }
        | Command::Begin(_)
        | Command::Retry { .. }
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
                let text = LoggedText { parts: &chunk.artifact.parts, shown };
                tracing::debug!(target: LOGGER, "Adding artifact to task {task}: {text}");
            }
            Kind::Received(_) | Kind::Reply => {}
        }
    }
}

/// Logs the end of a turn.
pub(crate) fn turn_finished(task: &TaskId) {
    tracing::info!(target: LOGGER, "Background runner completed for task {task}");
}

/// The text of message parts, cut to [`MAX_CHARS`]; or only its length, if content is not logged.
struct LoggedText<'a> {
    parts: &'a [Part],
    shown: bool,
}

impl LoggedText<'_> {
    fn chars(&self) -> impl Iterator<Item = char> {
        self.parts.iter().filter_map(Part::as_text).flat_map(str::chars)
    }
}

impl fmt::Display for LoggedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.shown {
            return write!(f, "{} characters", self.chars().count());
        }
        let mut chars = self.chars();
        for char in chars.by_ref().take(MAX_CHARS) {
            // A line break in a caller's text must not forge a log line.
            if char.is_control() {
                write!(f, "{}", char.escape_default())?;
            } else {
                f.write_char(char)?;
            }
        }
        if chars.next().is_some() { f.write_char('…') } else { Ok(()) }
    }
}

/// The text in quotes, or its length without.
impl fmt::Debug for LoggedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.shown { write!(f, "'{self}'") } else { write!(f, "{self}") }
    }
}
