//! Members of a store: the nodes and workers that may claim tasks, and their heartbeats.

use herald_protocol::{AgentName, Timestamp};

/// Id of a member: one run of a node, or a worker. A restarted node is a new member, and no id is
/// used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(pub u128);

/// The kinds of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemberKind {
    /// A server that accepts calls and runs agents.
    Node,
    /// A process elsewhere that runs turns for a node. It may outlive the node.
    Worker,
}

/// A living member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// The id.
    pub id: MemberId,
    /// The kind.
    pub kind: MemberKind,
    /// The name, for people.
    pub name: String,
    /// The agents that the member serves.
    pub agents: Vec<AgentName>,
    /// The number of heartbeats so far. Observers compare counters and never clocks: a member is
    /// dead if its counter did not change during its lease.
    pub heartbeat: u64,
}

/// The store's answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeartbeatReply {
    /// All living members, by id, including the sender.
    pub members: Vec<Member>,
    /// The current time of the store, if it has a clock apart from this machine's.
    pub now: Option<Timestamp>,
}
