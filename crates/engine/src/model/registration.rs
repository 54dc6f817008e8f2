//! Registrations: the workers and the remote agents that discovery lists.

use std::sync::Arc;

use herald_protocol::{AgentName, Timestamp};
use serde::{Deserialize, Serialize};

use super::{key::Owner, member::MemberId};

/// Name of a registration: `role:host:id` of a worker, the role itself of a remote agent.
pub type RegistrationName = Arc<str>;

/// A registered worker or remote agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// The name, unique among all registrations. Messages are not routed by it.
    pub name: RegistrationName,
    /// The agent by whose name messages reach it.
    pub role: AgentName,
    /// The name without the role; empty for a remote agent.
    pub instance: String,
    /// The tenant and the principal that registered it.
    pub owner: Owner,
    /// Its description of itself.
    pub declaration: Declaration,
    /// The session of a worker, under which it claims turns.
    pub session: Option<MemberId>,
    /// The card of a remote agent; `None` for a worker.
    pub card: Option<PinnedCard>,
    /// The time of the registration.
    pub created: Timestamp,
    /// The time of its last sign of life. The stored one is up to a minute older than the one in memory.
    pub last_seen: Timestamp,
}

/// The description that a worker gives of itself, or that the card of a remote agent gives. It is stored as
/// JSON, so every member that was added later has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Declaration {
    /// One or two sentences; empty if the role's own is enough.
    pub description: String,
    /// Its version; empty if it has none.
    pub version: String,
    /// Its skills.
    pub skills: Vec<DeclaredSkill>,
    /// True if its tasks can be streamed.
    pub streaming: bool,
    /// True if its tasks can be followed by push notifications.
    pub push: bool,
    /// The media types that it takes; empty means those of the role.
    pub input_modes: Vec<String>,
    /// The media types that it produces; empty means those of the role.
    pub output_modes: Vec<String>,
    /// Capabilities that tasks can require.
    pub labels: Vec<String>,
    /// The number of turns that it runs at once.
    pub concurrency: u32,
    /// `resume`, `rerun` or `fail`: the treatment of its turns after a crash.
    pub recovery: String,
    /// The number of attempts at a turn, the first one included.
    pub attempts: u32,
    /// True if the turns of one conversation run one after the other.
    pub serial: bool,
    /// True if it waits for answers within its turn.
    pub waits: bool,
    /// The number of earlier tasks of a conversation that a turn gets.
    pub memory: u32,
}

impl Declaration {
    /// The bytes of all texts.
    pub fn text_bytes(&self) -> usize {
        let of = |words: &[String]| words.iter().map(String::len).sum::<usize>();
        let skill = |skill: &DeclaredSkill| {
            let DeclaredSkill { id, name, description, tags, examples } = skill;
            id.len() + name.len() + description.len() + of(tags) + of(examples)
        };
        let lists = [&self.input_modes, &self.output_modes, &self.labels];
        self.description.len()
            + self.version.len()
            + self.skills.iter().map(skill).sum::<usize>()
            + lists.into_iter().map(|list| of(list)).sum::<usize>()
    }
}

impl Default for Declaration {
    fn default() -> Self {
        Self {
            description: String::new(),
            version: String::new(),
            skills: Vec::new(),
            streaming: true,
            push: true,
            input_modes: Vec::new(),
            output_modes: Vec::new(),
            labels: Vec::new(),
            concurrency: 1,
            recovery: "rerun".to_owned(),
            attempts: 3,
            serial: false,
            waits: false,
            memory: 0,
        }
    }
}

/// A skill in a declaration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeclaredSkill {
    /// Unique within the agent.
    pub id: String,
    /// A name for people.
    pub name: String,
    /// A sentence.
    pub description: String,
    /// Keywords for search.
    pub tags: Vec<String>,
    /// Example messages.
    pub examples: Vec<String>,
}

/// The card of a remote agent, as it was when the agent was registered. A changed card is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedCard {
    /// The URL that the card was fetched from.
    pub url: String,
    /// The digest of the card, in hexadecimal.
    pub digest: String,
    /// The card as 1.0 JSON.
    pub document: String,
    /// The digest of another card that was found at the URL since.
    pub changed_to: Option<String>,
}
