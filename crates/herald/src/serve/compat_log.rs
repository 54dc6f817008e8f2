//! Compatibility log: lines in the format of a2a-server, for existing searches and alerts.
//!
//! Text, level and logger name of these lines are an interface. They do not follow the style of the
//! other log lines.

use std::fmt::{self, Write};

use herald_engine::{Observer, TaskStep, store::Key};
use herald_protocol::Part;
use tracing_subscriber::filter::LevelFilter;

use crate::{
    args::{LogFormat, LogLevel},
    serve::logging::task_lines,
};

const LOGGER: &str = "a2a.server.methods";

/// The longest text in one line, in characters.
const MAX_CHARS: usize = 200;

/// Observer that logs each step of a task.
#[derive(Debug)]
pub(crate) struct CompatLog {
    /// True if lines contain the text of messages; otherwise they contain its length.
    shows_content: bool,
}

impl CompatLog {
    /// The observer, unless none of its lines would be logged.
    pub(crate) fn new(level: LogLevel, format: LogFormat) -> Option<Self> {
        let is_on = task_lines(level, format) >= LevelFilter::INFO;
        is_on.then_some(Self { shows_content: format == LogFormat::Classic })
    }
}

impl Observer for CompatLog {
    fn observe(&self, key: &Key, step: TaskStep<'_>) {
        let (task, shown) = (&key.task, self.shows_content);
        match step {
            TaskStep::Created => {
                tracing::info!(target: LOGGER, "Task created {task}, scheduling background runner");
            }
            TaskStep::Status(state) => {
                let state = state.kebab_name();
                tracing::debug!(target: LOGGER, "Updating task {task} to {state}");
            }
            TaskStep::Artifact(artifact) => {
                let text = LoggedText { parts: &artifact.parts, shown };
                tracing::debug!(target: LOGGER, "Adding artifact to task {task}: {text}");
            }
            TaskStep::TurnBegun(message) => {
                let text = LoggedText { parts: &message.parts, shown };
                tracing::debug!(target: LOGGER, "Task {task} initial text: {text:?}");
            }
            TaskStep::TurnEnded => {
                tracing::info!(target: LOGGER, "Background runner completed for task {task}");
            }
        }
    }
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
