//! Members of a store: the nodes and workers that may claim tasks, and their heartbeats.

use herald_protocol::{AgentName, Timestamp};

/// Id of a member: one life of a node, or a worker. A new start of a node is another member, and no id
/// is ever used again.
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
    /// Its id.
    pub id: MemberId,
    /// What it is.
    pub kind: MemberKind,
    /// Its name, for people.
    pub name: String,
    /// The agents that it serves.
    pub agents: Vec<AgentName>,
    /// How often it has sent a heartbeat. Observers compare counters, never clocks: a member is dead if
    /// its counter did not move for a while.
    pub heartbeat: u64,
}

/// The answer to a heartbeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// Every living member, by id, the caller among them.
    pub members: Vec<Member>,
    /// The store's own time, if it has a clock apart from this machine's.
    pub now: Option<Timestamp>,
}
