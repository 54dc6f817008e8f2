//! Agents of the server: discovery, and registration of workers and remote agents.

use std::borrow::Cow;

use herald_protocol::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Filters of a list of agents, and its pages. Each filter applies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentsQuery {
    /// The agents of this role.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The agents with a skill of this id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skill: Option<String>,
    /// The agents with a skill of this tag, or with this label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// The agents with this text, in any case, in their name, their description or one of their skills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Entries on a page, 1 to 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    /// The `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// A page of the agents that the caller may use: up to 1000 entries, fewer if they have more than 1 MiB together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentList {
    /// The agents, by name. A role has one entry for each of its workers that are alive, or one of its own if it has
    /// none.
    pub agents: Vec<AgentView>,
    /// The member of an entry that routes a message.
    pub routing_note: String,
    /// Present if there is another page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// An agent, or a worker of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentView {
    /// The name, unique among the entries: `role:host:id` of a worker. Messages are not routed by it.
    pub name: String,
    /// The name by which messages reach it.
    pub role: String,
    /// The part of the name after the role; empty for an agent without workers.
    pub instance_id: String,
    /// The name in its card.
    pub title: String,
    /// Its description.
    pub description: String,
    /// The URL of its endpoints, which are those of its role. Its card is at `.well-known/agent-card.json` below.
    pub url: String,
    /// The capabilities in its card.
    pub capabilities: AgentCapabilitiesView,
    /// The time at which it was last known to be there.
    pub last_seen: LastSeen,
    /// `local` for an agent of the server's own process, `worker` for a worker of a role, `role` for a role without
    /// a worker, `remote` for an agent elsewhere.
    #[serde(default)]
    pub kind: String,
    /// False for a role that nobody serves now.
    #[serde(default = "yes")]
    pub available: bool,
    /// True for the agent that the endpoints at the root reach.
    pub is_default: bool,
    /// The ids of its skills.
    pub skills: Vec<String>,
    /// The media types that it takes.
    pub input_modes: Vec<String>,
    /// The media types that it produces.
    pub output_modes: Vec<String>,
    /// The labels of a worker.
    #[serde(default)]
    pub labels: Vec<String>,
    /// Its version, if it gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The URL of the card of a remote agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card_url: Option<String>,
    /// The digest of the card of a remote agent that is in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub card_digest: Option<String>,
    /// True if there is another card at `card_url` now. It is used once the agent is registered again.
    #[serde(default)]
    pub card_changed: bool,
    /// The number of its turns that run now.
    pub running: u64,
    /// The number of its turns that may run at once.
    pub concurrency: u64,
}

fn yes() -> bool {
    true
}

/// The capabilities of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentCapabilitiesView {
    /// True if its tasks can be streamed.
    pub streaming: bool,
    /// True if its tasks can be followed by push notifications.
    pub push_notifications: bool,
}

impl Default for AgentCapabilitiesView {
    fn default() -> Self {
        Self { streaming: true, push_notifications: true }
    }
}

/// A time as clients of earlier servers read it: UTC, whole seconds, without a zone (`2026-01-15T12:00:00`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastSeen(pub Timestamp);

impl std::fmt::Display for LastSeen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.to_string().get(..19).unwrap_or_default())
    }
}

impl Serialize for LastSeen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LastSeen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let zoned = if text.ends_with('Z') { text } else { format!("{text}Z") };
        zoned
            .parse()
            .map(Self)
            .map_err(|_| de::Error::custom("not a time such as 2026-01-15T12:00:00"))
    }
}

impl JsonSchema for LastSeen {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "LastSeen".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9-]{10}T[0-9:]{8}$" })
    }
}

/// A worker or a remote agent to register.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RegisterAgent {
    /// The role: the name by which messages reach it. A remote agent without one gets the name in its card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// The instance of the role, `host:id`; made by the server if it is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// The name, `role:host:id`, if it is to be checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The URL of a remote agent or of its card. With it, only `role` may be given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card_url: Option<String>,
    /// The description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The skills.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<RegisteredSkill>,
    /// The capabilities; all by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<AgentCapabilitiesView>,
    /// The media types that it takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_modes: Vec<String>,
    /// The media types that it produces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub output_modes: Vec<String>,
    /// Words that tasks can require of their worker.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The number of turns that it runs at once, 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// Its version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The treatment of a turn that a crash interrupted: `rerun` by default, `resume` or `fail`. The first worker
    /// of a new role decides for the role, in this and the members below.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery: Option<String>,
    /// The number of attempts at a turn, 3 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// True if the turns of a conversation run one after the other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<bool>,
    /// True if it waits for answers within its turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<bool>,
    /// The number of earlier tasks of a conversation that a turn gets, none by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u32>,
}

/// A skill of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RegisteredSkill {
    /// The id, unique within the worker.
    pub id: String,
    /// A name for people; the id by default.
    #[serde(default)]
    pub name: String,
    /// A sentence.
    #[serde(default)]
    pub description: String,
    /// Keywords for search.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Example messages.
    #[serde(default)]
    pub examples: Vec<String>,
}

/// A registration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RegisteredAgent {
    /// The name for heartbeats and removal: `role:host:id` of a worker, the role of a remote agent.
    pub name: String,
    /// The role.
    pub role: String,
    /// The instance id; empty for a remote agent.
    pub instance_id: String,
    /// The session of a worker, which its further calls name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The URL of the endpoints of the role.
    pub url: String,
    /// The seconds between two heartbeats.
    pub heartbeat_seconds: u64,
    /// The seconds without a heartbeat or a poll after which the worker is not listed any more.
    pub discovery_seconds: u64,
    /// The seconds without a poll after which the turns of the worker are given to others.
    pub lease_seconds: u64,
    /// The longest wait of a poll, in seconds.
    pub poll_seconds: u64,
}

/// A sign of life of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentHeartbeat {
    /// The session of the worker. Another one than the current is refused with the reason `WORKER_UNKNOWN`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// The reply to a sign of life.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentHeartbeatReply {
    /// The name of the worker.
    pub name: String,
    /// The time of this sign of life.
    pub last_seen: LastSeen,
    /// The seconds until the next one.
    pub heartbeat_seconds: u64,
}

/// The registrations that were removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RemovedAgents {
    /// Their names: one worker or remote agent, or every worker of a role.
    pub removed: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_an_entry_has_no_zone() {
        let time = LastSeen("2026-01-15T12:00:00.789Z".parse().unwrap());
        assert_eq!(serde_json::to_string(&time).unwrap(), r#""2026-01-15T12:00:00""#);
        for text in [r#""2026-01-15T12:00:00""#, r#""2026-01-15T12:00:00.000Z""#] {
            let read: LastSeen = serde_json::from_str(text).unwrap();
            assert_eq!(read.to_string(), time.to_string());
        }
    }
}
