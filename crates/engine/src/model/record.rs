//! Record of a task: the task itself, the extent of its log, and its run state.

use std::sync::Arc;

use herald_protocol::{
    AgentName, Artifact, ContextId, Message, Seq, Task, TaskId, TaskState, TaskStatus, Timestamp,
};

use super::{
    member::MemberId,
    run::{Run, Version},
};

/// Everything the rules know of a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The task. Its history and artifacts are always there, if empty. Shared with readers: an
    /// event copies it only while one of them still looks at the old state.
    pub task: Arc<Task>,
    /// The last event in its log; zero before the first.
    pub head: Seq,
    /// Bytes in its log.
    pub bytes: u64,
    /// Its last snapshot: how many bytes that has, and how many of the log it stands for.
    pub snapshot: Extent,
    /// The agent it belongs to.
    pub agent: AgentName,
    /// When it was accepted.
    pub created: Timestamp,
    /// Whether it is the hidden log of a direct answer.
    pub hidden: bool,
    /// The direct answer, once given.
    pub reply: Option<Arc<Message>>,
    /// What remains to be done.
    pub run: Run,
}

/// How large a snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// Its own bytes.
    pub size: u64,
    /// Bytes of the log up to its last event.
    pub covers: u64,
}

impl Record {
    /// A task that nothing has happened to yet.
    pub fn new(
        id: TaskId,
        context: ContextId,
        agent: AgentName,
        hidden: bool,
        now: Timestamp,
    ) -> Self {
        let status =
            TaskStatus { state: TaskState::Submitted, message: None, timestamp: Some(now) };
        let task = Task {
            id,
            context_id: context,
            status,
            artifacts: Some(Vec::new()),
            history: Some(Vec::new()),
            metadata: None,
        };
        let (task, run) = (Arc::new(task), Run::default());
        let snapshot = Extent::default();
        Self { task, head: 0, bytes: 0, snapshot, agent, created: now, hidden, reply: None, run }
    }

    /// The state the task is in.
    pub fn state(&self) -> TaskState {
        self.task.status.state
    }

    /// Whether the log is closed.
    pub fn is_closed(&self) -> bool {
        self.state().is_terminal()
    }

    /// The version that the next append expects.
    pub fn version(&self) -> Version {
        Version { head: self.head, epoch: self.run.epoch }
    }

    /// The header that the store keeps.
    pub fn header(&self) -> Header {
        Header {
            agent: self.agent.clone(),
            context: self.task.context_id.clone(),
            state: self.state(),
            changed: self.task.status.timestamp.unwrap_or(self.created),
            created: self.created,
            hidden: self.hidden,
            bytes: self.bytes,
            run: self.run.clone(),
        }
    }

    /// True if the turn that is held has asked its question or given its result, so that only its
    /// release is missing. A hidden log has no states to tell by.
    pub fn has_settled(&self) -> bool {
        self.run.holder.is_some() && !self.hidden && self.state() != TaskState::Working
    }

    /// True if a message that arrives now can begin the next turn in the same write. `dead` is the
    /// holder of the last turn, if that member is dead.
    pub fn is_free(&self, dead: Option<MemberId>) -> bool {
        let held = self.run.holder.is_some() && !self.is_left_behind(dead);
        self.run.unread.is_empty() && !held
    }

    /// True if a member died after its turn had settled and before the turn was released. To run
    /// that turn again would do its work twice.
    pub(crate) fn is_left_behind(&self, dead: Option<MemberId>) -> bool {
        self.has_settled() && self.run.holder == dead
    }

    /// True if a pause is worth a snapshot. Each is paid for by the events since the one before, so
    /// that all of them together take no more than 4/3 of the log, however often a task pauses; a
    /// reader of a paused task reads at most four times what the snapshot has.
    pub fn is_due_for_snapshot(&self) -> bool {
        self.bytes - self.snapshot.covers >= 3 * self.snapshot.size
    }

    pub(crate) fn artifacts(&self) -> usize {
        self.task.artifacts.as_ref().map_or(0, Vec::len)
    }

    pub(crate) fn has_artifact(&self, artifact: &Artifact) -> bool {
        let artifacts = self.task.artifacts.as_deref().unwrap_or_default();
        artifacts.iter().any(|known| known.artifact_id == artifact.artifact_id)
    }
}

/// The part of a task that every append rewrites. It stays small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The agent it belongs to. Only the first append says which.
    pub agent: AgentName,
    /// Its conversation. Only the first append says which.
    pub context: ContextId,
    /// Its state.
    pub state: TaskState,
    /// When the status last changed.
    pub changed: Timestamp,
    /// When it was accepted.
    pub created: Timestamp,
    /// True for the hidden log of a direct answer, which is never listed.
    pub hidden: bool,
    /// Bytes in its log: those of all its events.
    pub bytes: u64,
    /// Its run state.
    pub run: Run,
}
