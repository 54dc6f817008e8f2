//! Worker as a member of a store: its name, its role, and the principal that registered it.

use herald_protocol::AgentName;

use super::key::Owner;

/// One life of a worker. Its member id is its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerMember {
    /// The name, `role:host:id`.
    pub name: String,
    /// The agent whose turns it runs.
    pub role: AgentName,
    /// The tenant and the principal that registered it. Only they can use the session.
    pub owner: Owner,
    /// The labels that tasks may require, sorted.
    pub labels: Vec<String>,
    /// The number of its turns that run at once.
    pub concurrency: usize,
}
