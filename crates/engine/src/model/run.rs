//! Run state of a task: unread messages, the current turn, and the claim on it.

use herald_protocol::Seq;

use super::member::MemberId;

/// The fencing number of a run: it grows with every claim and every release, and a smaller one can no
/// longer write.
pub type Epoch = u64;

/// Version of a task. Every change of the task changes one of the two: an event moves the head, and a
/// change of the run without an event moves the epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Version {
    /// The last event in its log; zero if the task does not exist.
    pub head: Seq,
    /// Its fencing number.
    pub epoch: Epoch,
}

/// Run state of a task: its unread messages, its current turn and the claim on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Run {
    /// Messages that no turn has read: the numbers of their [`Kind::Received`] entries.
    pub unread: Vec<Seq>,
    /// The message the current or last turn answers; zero before the first.
    pub turn: Seq,
    /// The number of attempts of that turn.
    pub attempt: u32,
    /// The number of artifacts before it. A further attempt replaces later ones.
    pub kept: usize,
    /// Grows with every claim and every release.
    pub epoch: Epoch,
    /// The member that holds the claim.
    pub holder: Option<MemberId>,
}

impl Version {
    /// This head at this epoch.
    pub fn new(head: Seq, epoch: Epoch) -> Self {
        Self { head, epoch }
    }
}

impl Run {
    /// True if a turn runs or a message waits.
    pub fn is_active(&self) -> bool {
        self.holder.is_some() || !self.unread.is_empty()
    }
}
