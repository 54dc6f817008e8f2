//! Agent trait, and the profile that an agent declares.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use herald_protocol::{
    AgentName, Message, Metadata, Part, Task, TenantId,
    card::{AgentInterface, AgentProvider},
};

use crate::{
    agents::error::{AgentError, ErrorDetail},
    caller::Scopes,
    turns::turn::Turn,
};

/// Worker on tasks: Rust code, a program, a coding agent, a remote agent.
#[async_trait]
pub trait Agent: fmt::Debug + Send + Sync + 'static {
    /// Works on one turn. Returning `Ok` completes the task, unless the turn set another state.
    ///
    /// A write of the turn is durable once it returns `Ok`. Its error means that the agent must stop:
    /// the task ended or was claimed by another process.
    async fn run(&self, turn: &Turn) -> Result<(), AgentError>;

    /// True if [`Agent::admit`] decides about each message. Others begin their turn with the write that accepts the
    /// message.
    fn admits(&self) -> bool {
        false
    }

    /// Decides about a message before its turn begins, while the task is `submitted`. It must have no effects: after a
    /// crash it is called again. The task fails if it does not return within [`Profile::admission_timeout`].
    async fn admit(&self, _candidate: Candidate<'_>) -> Result<Admission, AgentError> {
        Ok(Admission::Accept)
    }

    /// Notifies the agent that a task ended without a running turn: the task was cancelled, with this
    /// metadata, or its caller did not answer. The call is dropped after the profile's `grace`.
    async fn task_ended(&self, _task: &Task, _metadata: Option<Metadata>) {}

    /// True if the agent answers this message directly, with one message and without a task.
    fn answers_directly(&self, _message: &Message) -> bool {
        false
    }
}

/// A message whose turn has not begun.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// The task, with the message at the end of its history.
    pub task: &'a Task,
    /// The message.
    pub message: &'a Message,
    /// The metadata of the send request, which is separate from that of the message.
    pub metadata: Option<&'a Metadata>,
}

/// The decision of an agent about a message before its turn begins.
#[derive(Debug, Clone, PartialEq)]
pub enum Admission {
    /// The turn begins.
    Accept,
    /// The task ends as `rejected`, with this message.
    Reject(Vec<Part>),
    /// The task waits as `auth-required`, with this message. The answer is the next message, with an admission of its
    /// own.
    RequireAuth(Vec<Part>),
    /// The turn runs, and its first write decides: `rejected` and `auth-required` decline the message, everything else
    /// accepts it. A turn that writes nothing within [`Profile::admission_timeout`] has accepted.
    Defer,
}

impl Admission {
    /// Rejects the task, for this reason.
    pub fn reject(reason: impl Into<String>) -> Self {
        Self::Reject(vec![Part::text(reason)])
    }

    /// Asks for credentials, and explains which.
    pub fn require_auth(explanation: impl Into<String>) -> Self {
        Self::RequireAuth(vec![Part::text(explanation)])
    }
}

/// The treatment of a turn whose process died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recovery {
    /// Continue after the last write of the turn, in at most this many attempts.
    Resume(u32),
    /// Repeat the turn from its start, in at most this many attempts.
    Rerun(u32),
    /// Fail the task with the reason `INTERRUPTED`.
    Fail,
}

/// The treatment of new messages for an agent that nobody serves now. Only a role can be without workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unavailable {
    /// They wait, at most for [`Profile::queue_timeout`].
    #[default]
    Queue,
    /// They are refused as unavailable.
    Refuse,
}

/// Description and limits of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name, which is also the segment of its URL.
    pub name: AgentName,
    /// The name by which sends choose it as their handler, if that differs from `name`.
    pub handler: Option<AgentName>,
    /// The name in its card.
    pub title: String,
    /// The description in its card, one or two sentences.
    pub description: String,
    /// Its version, if it differs from the server's.
    pub version: Option<String>,
    /// The address of a picture for its card.
    pub icon_url: Option<String>,
    /// The address of its documentation, where that is not the server's.
    pub documentation_url: Option<String>,
    /// The organization that offers the agent, if it is another than the server's.
    pub provider: Option<AgentProvider>,
    /// Its skills. They come from configuration, never from a prompt.
    pub skills: Vec<Skill>,
    /// Its extended card, if it has one.
    pub extended_card: Option<ExtendedCard>,
    /// Media types it takes. `*/*` and `text/*` work as patterns.
    pub input_modes: Vec<String>,
    /// Media types it takes that its card does not name.
    pub further_input_modes: Vec<String>,
    /// Media types it produces.
    pub output_modes: Vec<String>,
    /// Extensions it knows.
    pub extensions: Vec<Extension>,
    /// True if callers may follow its tasks as streams.
    pub streaming: bool,
    /// True if callers may register webhooks for its tasks.
    pub push: bool,
    /// True if it waits for answers within its turn. A caller with a protocol version before 1.0 then
    /// keeps its stream during the wait, because its answer does not open a new one.
    pub waits: bool,
    /// The treatment of its turns after a crash.
    pub recovery: Recovery,
    /// The number of its turns that run at once.
    pub concurrency: usize,
    /// The number of its turns that may wait for their callers in addition to those that run; see
    /// [`Turn::answered`]. Further waiting turns count as running.
    pub max_waiting: usize,
    /// True if its turns in one conversation of one caller run one after the other, in the order in
    /// which their messages were accepted.
    pub serial: bool,
    /// The number of earlier tasks of the conversation that a turn gets; see [`Turn::earlier`].
    pub memory: usize,
    /// The longest time for one message, all attempts together; `None` is without limit.
    pub timeout: Option<Duration>,
    /// The longest time between two writes of a turn; `None` is without limit.
    pub idle_timeout: Option<Duration>,
    /// The longest time that a task may wait for its caller; `None` is without limit.
    pub paused_timeout: Option<Duration>,
    /// The longest time of [`Agent::admit`] for one message.
    pub admission_timeout: Duration,
    /// The time that a stopped turn has to clean up before it is dropped.
    pub grace: Duration,
    /// The longest time that a message may wait for its turn to begin; `None` is without limit.
    pub queue_timeout: Option<Duration>,
    /// The treatment of new messages while nobody serves the agent.
    pub unavailable: Unavailable,
    /// The part of an [`AgentError::Raised`] that callers see.
    pub error_detail: ErrorDetail,
}

/// One skill of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Skill {
    /// Unique within the agent.
    pub id: String,
    /// A short name.
    pub name: String,
    /// A sentence.
    pub description: String,
    /// Keywords for search.
    pub tags: Vec<String>,
    /// Example messages.
    pub examples: Vec<String>,
    /// Media types it takes, if they differ from the agent's.
    pub input_modes: Vec<String>,
    /// Media types it produces, if they differ from the agent's.
    pub output_modes: Vec<String>,
    /// The scopes that a message for it needs, beside that of every message. A message is for the skill
    /// that its metadata names.
    pub scopes: Option<Scopes>,
}

/// Additions to the public card for authenticated callers.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ExtendedCard {
    /// The description, in place of the public one.
    pub description: Option<String>,
    /// Further skills. One with the id of a public skill replaces it.
    pub skills: Vec<(Skill, Audience)>,
    /// Further interfaces, after the public ones.
    pub interfaces: Vec<(AgentInterface, Audience)>,
}

/// The callers that get an entry of an extended card. Every condition has to hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience {
    /// The scopes that the caller must have.
    pub scopes: Scopes,
    /// The tenants, if only some.
    pub tenants: Option<Vec<TenantId>>,
    /// The principals, if only some.
    pub principals: Option<Vec<String>>,
}

/// A protocol extension an agent knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Extension {
    /// The URI of the extension.
    pub uri: String,
    /// How the agent uses the extension.
    pub description: String,
    /// True if callers must name it in their requests.
    pub required: bool,
}

impl Audience {
    /// Every authenticated caller.
    pub const EVERYBODY: Self = Self { scopes: Scopes::NONE, tenants: None, principals: None };
}

impl Profile {
    /// A text agent with one skill and default limits.
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
            handler: None,
            name,
            description,
            version: None,
            icon_url: None,
            documentation_url: None,
            provider: None,
            skills: vec![skill],
            extended_card: None,
            input_modes: vec!["text/plain".to_owned()],
            further_input_modes: Vec::new(),
            output_modes: vec!["text/plain".to_owned()],
            extensions: Vec::new(),
            streaming: true,
            push: true,
            waits: false,
            recovery: Recovery::Fail,
            concurrency: 1024,
            max_waiting: 0,
            serial: false,
            memory: 0,
            timeout: None,
            idle_timeout: None,
            paused_timeout: Some(Duration::from_secs(7 * 24 * 3600)),
            admission_timeout: Duration::from_secs(10),
            grace: Duration::from_secs(5),
            queue_timeout: None,
            unavailable: Unavailable::Queue,
            error_detail: ErrorDetail::default(),
        }
    }

    /// The name by which sends choose the agent as their handler.
    pub fn handler_name(&self) -> &AgentName {
        self.handler.as_ref().unwrap_or(&self.name)
    }

    /// True if the agent has a skill with this id, also one of the extended card.
    pub fn has_skill(&self, id: &str) -> bool {
        let extended = self.extended_card.iter().flat_map(|extended| &extended.skills);
        let mut all = self.skills.iter().chain(extended.map(|(skill, _)| skill));
        all.any(|skill| skill.id == id)
    }

    /// The skills that need further scopes, also those of the extended card.
    pub(crate) fn restricted_skills(&self) -> impl Iterator<Item = (&str, Scopes)> {
        let extended = self.extended_card.iter().flat_map(|extended| &extended.skills);
        let all = self.skills.iter().chain(extended.map(|(skill, _)| skill));
        all.filter_map(|skill| Some((skill.id.as_str(), skill.scopes?)))
    }

    /// True if the agent takes parts of this media type.
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
