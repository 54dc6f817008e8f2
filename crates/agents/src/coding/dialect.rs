//! Dialect of a coding agent: the interface between one program's messages and the common events.

use std::{borrow::Cow, fmt, path::PathBuf};

use herald_protocol::{AgentName, TaskId, json};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{activity::AgentActivity, rules::ToolSubject, usage::RunUsage};
use crate::failure::Failure;

/// Prefix for a message that begins like a command. An agent would run such a command without asking
/// for permission, and callers may give it work but not operate it.
const INTRODUCTION: &str = "The message is:\n";

/// First characters of the agents' commands.
const COMMANDS: [char; 2] = ['/', '$'];

/// Protocol of a coding agent. It does no I/O: lines come in, events and lines go out.
pub(crate) trait CliDialect: fmt::Debug + Send {
    /// Arguments for the agent. They contain nothing from a caller: every user of the machine can
    /// read them.
    fn arguments(&self) -> Vec<String>;

    /// Defaults for environment variables that the configuration leaves unset.
    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// Called once the agent was started: writes the first lines.
    fn open(&mut self, out: &mut DialectOutput);

    /// Called for each line of the agent. Unknown lines are ignored: new versions of agents add some.
    fn handle_line(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure>;

    /// Called with the answer to an approval, of the caller or of its timeout.
    fn answer(&mut self, approval: &Approval, decision: &ApprovalAnswer, out: &mut DialectOutput);

    /// True if a message can be passed to the agent in the middle of its work.
    fn can_steer(&self) -> bool {
        false
    }

    /// Called with a message of the caller in the middle of the work, if [`Self::can_steer`].
    fn steer(&mut self, _text: &str, _images: &[Image], _out: &mut DialectOutput) {}

    /// Called if the turn shall end with the answer, although background work goes on.
    fn end_background(&mut self, _out: &mut DialectOutput) {}

    /// The result so far, if the agent has answered and exited during background work.
    fn result_so_far(&mut self) -> Option<CodingResult> {
        None
    }

    /// Called when the turn is cancelled. The agent gets a moment to react before it is ended.
    fn cancel(&mut self, _out: &mut DialectOutput) {}

    /// True once the agent has answered a cancel in its own protocol, so that it may end by itself.
    fn has_cancelled(&self) -> bool {
        false
    }

    /// True if the agent seems to be done but has not reported it, so that only its silence can show it.
    fn is_idle(&self) -> bool {
        false
    }

    /// Called when the agent was silent for a while although it seemed to be done.
    fn finish_idle(&mut self, _out: &mut DialectOutput) {}
}

/// One message for a coding agent, with the settings of its run.
#[derive(Debug, Clone, Default)]
pub(crate) struct CodingRequest {
    /// The message, as text.
    pub(crate) text: String,
    /// The images of the message. The text contains their paths as well.
    pub(crate) images: Vec<Image>,
    /// The agent's own session to resume.
    pub(crate) session: Option<String>,
    /// The model to use, if not the agent's own choice.
    pub(crate) model: Option<String>,
    /// The profile to use, for agents that have such.
    pub(crate) profile: Option<String>,
    /// Overrides of the agent's own configuration, for agents that accept them.
    pub(crate) settings: Map<String, Value>,
    /// True if the agent may do everything without approval.
    pub(crate) force: bool,
    /// Its working directory.
    pub(crate) directory: PathBuf,
    /// The agent's name and its task's, for the log.
    pub(crate) agent: AgentName,
    pub(crate) task: TaskId,
}

/// An image that agents can show to their model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Image {
    pub(crate) media_type: String,
    pub(crate) path: PathBuf,
    /// Its bytes in base64.
    pub(crate) data: String,
}

/// Output of a dialect: events for the task, and lines for the agent.
#[derive(Debug, Default)]
pub(crate) struct DialectOutput {
    pub(super) events: Vec<AgentEvent>,
    pub(super) lines: Vec<u8>,
    pub(super) is_closed: bool,
}

/// An event of a coding agent, common to all dialects.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AgentEvent {
    /// The agent has started to work.
    Init { model: Option<String>, session: Option<String> },
    /// The session to resume does not exist any more: the message has to be sent without one.
    SessionLost,
    /// The next chunk of its answer.
    Text(String),
    /// Something that it does beside its answer.
    Activity(AgentActivity),
    /// It waits for an approval.
    Approval(Approval),
    /// It is done.
    Done(CodingResult),
    /// It failed, with its own message and the usage until then.
    Error { message: String, usage: RunUsage },
}

/// The result of the work.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct CodingResult {
    /// The last words of the answer.
    pub(crate) summary: Option<String>,
    /// The answer as data, if the agent was asked for a structure.
    pub(crate) output: Option<Value>,
    pub(crate) usage: RunUsage,
}

/// A request of a coding agent for a permission or an answer.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Approval {
    /// Its id in the dialect.
    pub(crate) id: String,
    /// Its subject, such as `Bash: rm -r build`.
    pub(crate) prompt: String,
    /// The kind of answer that it takes.
    pub(crate) kind: ApprovalKind,
    /// The possible answers.
    pub(crate) choices: Vec<ApprovalChoice>,
    /// The tool call that needs the permission, for the rules of the configuration.
    pub(crate) tool: Option<ToolSubject>,
    /// The agent's own data about it, for programs.
    pub(crate) detail: Value,
}

/// Kind of answer that an approval takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ApprovalKind {
    /// Yes or no. Other words deny it and reach the agent as the reason, if it takes one.
    #[default]
    Permission,
    /// One of the agent's own choices, or the caller's own words.
    Question,
    /// Several of the agent's own choices, or the caller's own words.
    MultipleChoice,
}

/// One possible answer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ApprovalChoice {
    /// Its id in the dialect.
    pub(crate) id: String,
    /// Its label for people.
    pub(crate) label: String,
    /// True if it grants the permission.
    pub(crate) grants: bool,
    /// The rules that it adds for the rest of the conversation, in the agent's own words.
    pub(crate) rules: Vec<String>,
}

/// The answer to an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalAnswer {
    pub(crate) choice: ApprovalChoice,
    /// The reason of a denial, or the answer to a question in the caller's own words.
    pub(crate) words: Option<String>,
}

impl DialectOutput {
    /// Adds an event.
    pub(crate) fn event(&mut self, event: AgentEvent) {
        self.events.push(event);
    }

    /// Writes a line to the agent.
    pub(crate) fn line(&mut self, line: impl fmt::Display) {
        self.lines.extend(line.to_string().into_bytes());
        self.lines.push(b'\n');
    }

    /// Writes raw bytes to the agent, such as its whole input.
    pub(crate) fn text(&mut self, text: &str) {
        self.lines.extend(text.as_bytes());
    }

    /// Closes the agent's input.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }
}

impl From<ApprovalChoice> for ApprovalAnswer {
    fn from(choice: ApprovalChoice) -> Self {
        Self { choice, words: None }
    }
}

impl ApprovalChoice {
    /// An answer.
    pub(crate) fn new(id: impl Into<String>, label: impl Into<String>, grants: bool) -> Self {
        Self { id: id.into(), label: label.into(), grants, rules: Vec::new() }
    }
}

/// Parses a line of JSON; `None` for anything else, because plugins of an agent may print between its
/// lines.
pub(super) fn parse_json<T: DeserializeOwned>(line: &str) -> Result<Option<T>, Failure> {
    if !line.starts_with('{') {
        return Ok(None);
    }
    let invalid = |why| Failure::because("wrote a line that cannot be read", json::reason(&why));
    serde_json::from_str(line).map(Some).map_err(invalid)
}

/// The text of a message, with a prefix if the agent would run it as a command.
pub(super) fn escape_command(text: &str) -> Cow<'_, str> {
    // Most of these agents are written in JavaScript, which trims a byte order mark like white space.
    let is_blank = |char: char| char.is_whitespace() || char == '\u{feff}';
    if text.trim_start_matches(is_blank).starts_with(COMMANDS) {
        Cow::Owned(format!("{INTRODUCTION}{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_never_run_as_a_command_of_the_agent() {
        for text in ["/extensions install x", " \n/init", "\u{feff} /init", "$deploy"] {
            assert_eq!(escape_command(text), format!("{INTRODUCTION}{text}"));
        }
        assert_eq!(escape_command("what is /etc for?"), "what is /etc for?");
    }
}
