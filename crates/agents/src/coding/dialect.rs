//! Dialect of a coding agent: the interface between one program's messages and the common events.

use std::{borrow::Cow, fmt, path::PathBuf};

use herald_protocol::{AgentName, TaskId};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::failure::Failure;

/// What stands before a message that begins like a command. Agents would carry that out without
/// asking anybody, and callers give them work but do not operate them.
const INTRODUCTION: &str = "The message is:\n";

/// How commands begin.
const COMMANDS: [char; 2] = ['/', '$'];

/// One way to speak with a coding agent. It does no I/O: lines come in, events and lines go out.
pub(crate) trait CliDialect: fmt::Debug + Send {
    /// What stands on the agent's command line. Nothing that a caller said is among it: everybody on
    /// the machine can read it there.
    fn arguments(&self) -> Vec<String>;

    /// What stands in the agent's environment where nobody has set it.
    fn variables(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// The agent was started: says the first words.
    fn open(&mut self, out: &mut DialectOutput);

    /// The agent said a line. Lines that mean nothing are no failure: agents learn new words.
    fn hear(&mut self, line: &str, out: &mut DialectOutput) -> Result<(), Failure>;

    /// The caller, or time, made a choice.
    fn answer(&mut self, approval: &Approval, choice: &ApprovalChoice, out: &mut DialectOutput);

    /// The work is to stop. The agent has a moment to hear of it before it is ended.
    fn cancel(&mut self, _talk: &mut DialectOutput) {}

    /// True if the agent seems to be done without having said so, so that its silence has to tell.
    fn is_resting(&self) -> bool {
        false
    }

    /// The agent was silent for a while when it seemed to be done.
    fn rest(&mut self, _talk: &mut DialectOutput) {}
}

/// What a coding agent is asked to do.
#[derive(Debug, Clone, Default)]
pub(crate) struct CodingRequest {
    /// The message, as text.
    pub(crate) text: String,
    /// The images of the message, whose paths are in the text, too.
    pub(crate) images: Vec<Image>,
    /// The agent's own session that this goes on with.
    pub(crate) session: Option<String>,
    /// The model to use, if not the agent's own choice.
    pub(crate) model: Option<String>,
    /// The profile to use, for agents that have such.
    pub(crate) profile: Option<String>,
    /// What stands above the agent's own configuration, for agents that can be given that.
    pub(crate) settings: Map<String, Value>,
    /// Whether the agent may do everything without asking.
    pub(crate) force: bool,
    /// Where it works.
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

/// What comes of a line.
#[derive(Debug, Default)]
pub(crate) struct DialectOutput {
    pub(super) events: Vec<AgentEvent>,
    pub(super) lines: Vec<u8>,
    pub(super) is_closed: bool,
}

/// What a coding agent says, in words that all of them share.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AgentEvent {
    /// It is at work.
    Init { model: Option<String>, session: Option<String> },
    /// The session it was to go on with is gone: it has to be asked again, without one.
    SessionLost,
    /// The next piece of its answer.
    Text(String),
    /// It uses a tool.
    ToolUse { name: String },
    /// What the tool said.
    ToolResult { output: String },
    /// Its model does not answer, and it tries again: for the how manieth time, and how often at most.
    Retry { attempt: u64, most: Option<u64> },
    /// It wants to be allowed something, and waits.
    Approval(Approval),
    /// It has answered, and goes on in the background: what runs there, in its words.
    Background(Vec<String>),
    /// It is done.
    Done { summary: Option<String>, stats: Map<String, Value> },
    /// It failed, in its own words.
    Error(String),
}

/// Something that a coding agent wants to be allowed, or to know.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Approval {
    /// What the dialect knows it by.
    pub(crate) id: String,
    /// What it is about, such as `Bash: rm -r build`.
    pub(crate) prompt: String,
    /// Whether it is a question of the agent's own. Only what it offers answers that: a yes or a no
    /// would be somebody else's words.
    pub(crate) is_question: bool,
    /// What can be answered.
    pub(crate) choices: Vec<ApprovalChoice>,
    /// What the agent says about it, for programs.
    pub(crate) detail: Value,
}

/// One possible answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalChoice {
    /// What the dialect knows it by.
    pub(crate) id: String,
    /// What it is called.
    pub(crate) label: String,
    /// Whether it allows what was asked.
    pub(crate) grants: bool,
}

impl DialectOutput {
    /// The agent said this.
    pub(crate) fn event(&mut self, event: AgentEvent) {
        self.events.push(event);
    }

    /// Tells the agent something.
    pub(crate) fn line(&mut self, line: impl fmt::Display) {
        self.lines.extend(line.to_string().into_bytes());
        self.lines.push(b'\n');
    }

    /// Tells the agent something that is no line, such as the whole of its input.
    pub(crate) fn text(&mut self, text: &str) {
        self.lines.extend(text.as_bytes());
    }

    /// Tells the agent that there is nothing more to read.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }
}

impl ApprovalChoice {
    /// An answer.
    pub(crate) fn new(id: impl Into<String>, label: impl Into<String>, grants: bool) -> Self {
        Self { id: id.into(), label: label.into(), grants }
    }
}

/// A line of JSON, or nothing where it is something else: whatever an agent has loaded may print among
/// its lines.
pub(super) fn json<T: DeserializeOwned>(line: &str) -> Result<Option<T>, Failure> {
    if !line.starts_with('{') {
        return Ok(None);
    }
    let unread = |why| Failure::because("said something that makes no sense", why);
    serde_json::from_str(line).map(Some).map_err(unread)
}

/// A message as nothing but a message.
pub(super) fn plain(text: &str) -> Cow<'_, str> {
    // A byte order mark is blank to JavaScript, which most of these agents are written in.
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
    fn a_message_is_never_a_command_of_the_agents() {
        for text in ["/extensions install x", " \n/init", "\u{feff} /init", "$deploy"] {
            assert_eq!(plain(text), format!("{INTRODUCTION}{text}"));
        }
        assert_eq!(plain("what is /etc for?"), "what is /etc for?");
    }
}
