//! What works on tasks, and what it declares about itself.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use herald_protocol::{AgentName, Message, Metadata, Task};

use crate::turn::{Stop, Turn};

/// Something that works on tasks: Rust code, a program, a coding agent, a remote worker.
#[async_trait]
pub trait Agent: fmt::Debug + Send + Sync + 'static {
    /// Works on one turn. Returning `Ok` completes the task, unless the turn said otherwise.
    ///
    /// A write is durable once it returns `Ok`; its error means stop, the task is no longer yours.
    async fn run(&self, turn: &Turn) -> Result<(), AgentError>;

    /// Learns that a task has ended while no turn of it was under way that could be told: it was
    /// cancelled, with this metadata, or its caller did not answer. There is as much time for it as
    /// for a turn that was stopped.
    async fn task_ended(&self, _task: &Task, _metadata: Option<Metadata>) {}

    /// Whether it will answer this message directly, with one message and no task.
    fn answers_directly(&self, _message: &Message) -> bool {
        false
    }
}

/// Why an agent did not finish its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentError {
    /// The task is no longer the agent's: cancelled, timed out, or taken over. Nothing to report.
    Stopped,
    /// The server is about to stop, and the next start can go on with the turn: see [`Turn::leaving`].
    Left,
    /// The work failed. The text goes to the caller.
    Failed(String),
    /// What does the work said something that makes no sense. The text goes to the caller.
    Broke(String),
    /// What does the work is not to be had, or was lost on the way. The text goes to the caller.
    Unavailable(String),
}

impl AgentError {
    /// The work failed, for this reason, which the caller will read.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }
}

impl From<Stop> for AgentError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::Over => Self::Stopped,
            Stop::Refused(reason) => Self::Failed(reason),
        }
    }
}

impl fmt::Display for AgentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("the turn is over"),
            Self::Left => f.write_str("the turn is left to the next start"),
            Self::Failed(reason) | Self::Broke(reason) | Self::Unavailable(reason) => {
                f.write_str(reason)
            }
        }
    }
}

impl std::error::Error for AgentError {}

/// What happens to a turn whose process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Go on from what the turn already wrote, at most so many attempts in all.
    Resume(u32),
    /// Do the turn again from its start, at most so many attempts in all.
    Rerun(u32),
    /// The task fails, and its status says that it was interrupted.
    Fail,
}

/// Everything about an agent except its work.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// The URL segment and the role.
    pub name: AgentName,
    /// What it is called in its card.
    pub title: String,
    /// What it does, in a sentence or two.
    pub description: String,
    /// Which version of it this is, where that is not the server's.
    pub version: Option<String>,
    /// What it can do; never taken from a prompt.
    pub skills: Vec<Skill>,
    /// Media types it takes. `*/*` and `text/*` work as patterns.
    pub input_modes: Vec<String>,
    /// Media types it takes that its card does not name.
    pub further_input_modes: Vec<String>,
    /// Media types it produces.
    pub output_modes: Vec<String>,
    /// Extensions it knows.
    pub extensions: Vec<Extension>,
    /// Whether callers may follow its tasks as streams.
    pub streaming: bool,
    /// Whether it waits for its caller within its turn. Callers of before 1.0, whose answer it takes
    /// without a new stream, keep the one they have meanwhile.
    pub waits: bool,
    /// What happens to its turns after a crash.
    pub recovery: Recovery,
    /// How many of its turns run at once.
    pub concurrency: usize,
    /// How many of its turns may wait for their callers beside those that run; see
    /// [`Turn::answered`]. Further ones keep their place among those that run while they wait.
    pub max_waiting: usize,
    /// Whether its turns in one conversation of one caller run one after the other, in the order in
    /// which their messages were accepted.
    pub serial: bool,
    /// How many earlier tasks of the conversation a turn is given; see [`Turn::earlier`].
    pub memory: usize,
    /// How long it may work on one message, all attempts together; `None` is for ever.
    pub timeout: Option<Duration>,
    /// How long a turn may stay silent.
    pub idle_timeout: Option<Duration>,
    /// How long a task may wait for its caller.
    pub paused_timeout: Option<Duration>,
    /// How long a stopped turn may take to clean up before it is dropped.
    pub grace: Duration,
}

/// One thing an agent can do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Skill {
    /// Unique within the agent.
    pub id: String,
    /// A short name.
    pub name: String,
    /// A sentence.
    pub description: String,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Messages that show it.
    pub examples: Vec<String>,
    /// Media types it takes, where these are not the agent's.
    pub input_modes: Vec<String>,
    /// Media types it produces, where these are not the agent's.
    pub output_modes: Vec<String>,
}

/// A protocol extension an agent knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extension {
    /// Its URI.
    pub uri: String,
    /// How the agent uses it.
    pub description: String,
    /// Whether callers must name it.
    pub required: bool,
}

impl Profile {
    /// A text agent with one skill, in the defaults that suit most.
    pub fn new(name: impl Into<AgentName>, description: impl Into<String>) -> Self {
        let (name, description) = (name.into(), description.into());
        let skill = Skill {
            id: name.to_string(),
            name: name.to_string(),
            description: description.clone(),
            tags: vec![name.to_string()],
            ..Skill::default()
        };
        Self {
            title: name.to_string(),
            name,
            description,
            version: None,
            skills: vec![skill],
            input_modes: vec!["text/plain".to_owned()],
            further_input_modes: Vec::new(),
            output_modes: vec!["text/plain".to_owned()],
            extensions: Vec::new(),
            streaming: true,
            waits: false,
            recovery: Recovery::Fail,
            concurrency: 1024,
            max_waiting: 0,
            serial: false,
            memory: 0,
            timeout: None,
            idle_timeout: None,
            paused_timeout: Some(Duration::from_secs(7 * 24 * 3600)),
            grace: Duration::from_secs(5),
        }
    }

    /// Whether the agent takes parts of this media type.
    pub fn takes(&self, media_type: &str) -> bool {
        let essence = media_type.split(';').next().unwrap_or_default().trim();
        self.input_modes.iter().chain(&self.further_input_modes).any(|mode| {
            match mode.split_once('/') {
                Some(("*", "*")) => true,
                Some((kind, "*")) => essence
                    .split_once('/')
                    .is_some_and(|(essence_kind, _)| essence_kind.eq_ignore_ascii_case(kind)),
                _ => mode.eq_ignore_ascii_case(essence),
            }
        })
    }
}
