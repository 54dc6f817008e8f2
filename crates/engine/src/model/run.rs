//! Run state of a task: unread messages, the current turn, and the claim on it.

use herald_protocol::Seq;

use super::member::MemberId;

/// Fencing token of a claim. It grows with every claim and every release; a writer with an older
/// epoch is refused.
pub type Epoch = u64;

/// Version of a task. Every change moves one of its two numbers: an event moves the head, and a
/// change of the run state without an event moves the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TaskVersion {
    /// The sequence number of the last event; zero if the task does not exist.
    pub head: Seq,
    /// The fencing token.
    pub epoch: Epoch,
}

/// The claim that the writes of a turn are made under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnClaim {
    /// The member that holds the turn.
    pub holder: MemberId,
    /// The epoch of the claim.
    pub epoch: Epoch,
}

/// Run state of a task: its unread messages, its current turn and the claim on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// Messages that no turn has read, as the sequence numbers of their [`Kind::Received`](super::event::Kind::Received) entries.
    pub unread: Vec<Seq>,
    /// The sequence number of the message that the current or last turn answers; zero before the
    /// first turn.
    pub turn: Seq,
    /// The number of attempts at that turn.
    pub attempt: u32,
    /// True if a worker returned the current turn before its end. Its next attempt has the same number.
    pub returned: bool,
    /// The number of artifacts before the turn. A repeated turn replaces the later ones.
    pub kept: usize,
    /// The fencing token: grows with every claim and every release.
    pub epoch: Epoch,
    /// The member that holds the claim.
    pub holder: Option<MemberId>,
}

impl TaskVersion {
    /// A version with this head and epoch.
    pub fn new(head: Seq, epoch: Epoch) -> Self {
        Self { head, epoch }
    }
}

impl Run {
    /// True if a turn is running or a message waits.
    pub fn is_active(&self) -> bool {
        self.holder.is_some() || !self.unread.is_empty()
    }
}
