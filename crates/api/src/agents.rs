//! Agents of the server.

use herald_protocol::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::TimeSchema;

/// The agents that the caller may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentList {
    /// The agents, by name.
    pub agents: Vec<AgentView>,
    /// The member of an entry that routes a message.
    pub routing_note: String,
}

/// An agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentView {
    /// The name, unique among the agents.
    pub name: String,
    /// The name by which messages reach it.
    pub role: String,
    /// The part of the name after the role; empty for an agent of the server's own process.
    pub instance_id: String,
    /// The name in its card.
    pub title: String,
    /// The description in its card.
    pub description: String,
    /// The URL of its endpoints. Its card is at `.well-known/agent-card.json` below.
    pub url: String,
    /// The capabilities in its card.
    pub capabilities: AgentCapabilitiesView,
    /// The time at which it was last known to be there.
    #[schemars(with = "TimeSchema")]
    pub last_seen: Timestamp,
    /// True for the agent that the endpoints at the root reach.
    pub is_default: bool,
    /// The ids of its skills.
    pub skills: Vec<String>,
    /// The media types that it takes.
    pub input_modes: Vec<String>,
    /// The media types that it produces.
    pub output_modes: Vec<String>,
    /// The number of its turns that run now.
    pub running: u64,
    /// The number of its turns that may run at once.
    pub concurrency: u64,
}

/// The capabilities of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentCapabilitiesView {
    /// True if its tasks can be streamed.
    pub streaming: bool,
    /// True if its tasks can be followed by push notifications.
    pub push_notifications: bool,
}
