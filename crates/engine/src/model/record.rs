//! Record of a task: the task itself, the extent of its log, and its run state.

use std::sync::Arc;

use herald_protocol::{
    AgentName, Artifact, ContextId, Message, MessageId, Seq, Task, TaskId, TaskState, TaskStatus,
    Timestamp,
};

use super::{
    member::MemberId,
    run::{Run, TaskVersion},
};

/// A task as the rules see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The task. Its history and its artifacts are always `Some`. Readers share it: an event copies
    /// the task only while a reader still holds the previous state.
    pub task: Arc<Task>,
    /// The sequence number of the last event; zero before the first.
    pub head: Seq,
    /// The bytes of the log.
    pub bytes: u64,
    /// The size of the last snapshot, and the bytes of the log that it covers.
    pub snapshot: Extent,
    /// The agent of the task.
    pub agent: AgentName,
    /// The time of acceptance.
    pub created: Timestamp,
    /// True for the hidden log of a direct answer.
    pub hidden: bool,
    /// The direct answer, once it is given.
    pub reply: Option<Arc<Message>>,
    /// The run state.
    pub run: Run,
}

/// The size of a snapshot, and the part of the log that it covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Extent {
    /// The bytes of the snapshot.
    pub size: u64,
    /// The bytes of the log up to its last event.
    pub covers: u64,
}

impl Record {
    /// The record of a new task, without events.
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

    /// The current state.
    pub fn state(&self) -> TaskState {
        self.task.status.state
    }

    /// The id of the question that the task waits for.
    pub fn open_question(&self) -> Option<&MessageId> {
        let question = self.task.status.message.as_ref().filter(|_| self.state().is_interrupted());
        question.map(|message| &message.message_id)
    }

    /// True if no event can follow.
    pub fn is_closed(&self) -> bool {
        self.state().is_terminal()
    }

    /// The version that the next append must expect.
    pub fn version(&self) -> TaskVersion {
        TaskVersion { head: self.head, epoch: self.run.epoch }
    }

    /// The header of the task, as the store keeps it.
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

    /// True if the claimed turn has asked its question or given its result, so that only the
    /// release is missing, or if it is in admission and has not begun. False for a hidden log, which has no states.
    pub fn has_settled(&self) -> bool {
        self.run.holder.is_some() && !self.hidden && self.state() != TaskState::Working
    }

    /// True if the task is held for the admission of its oldest unread message.
    pub fn is_in_admission(&self) -> bool {
        self.has_settled() && self.run.unread.first() == Some(&self.run.turn)
    }

    /// True if a message that arrives now can begin the next turn in the same write. `dead` is the
    /// holder of the last turn, if that member is dead.
    pub fn is_free(&self, dead: Option<MemberId>) -> bool {
        let held = self.run.holder.is_some() && !self.is_left_behind(dead);
        self.run.unread.is_empty() && !held
    }

    /// True if a member died between the result of its turn and the release. Running such a turn
    /// again would do its work twice.
    pub(crate) fn is_left_behind(&self, dead: Option<MemberId>) -> bool {
        self.has_settled() && self.run.holder == dead
    }

    /// True if a pause should write a snapshot. A snapshot is due when the events since the last
    /// one have three times its size. All snapshots of a task together then take at most 4/3 of its
    /// log, however often the task pauses, and a reader of a paused task reads at most four times
    /// the size of the snapshot.
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

/// The part of a task that every append rewrites. It must stay small.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The agent of the task. Only the first append sets it.
    pub agent: AgentName,
    /// The conversation of the task. Only the first append sets it.
    pub context: ContextId,
    /// The current state.
    pub state: TaskState,
    /// The time of the last status change.
    pub changed: Timestamp,
    /// The time of acceptance.
    pub created: Timestamp,
    /// True for the hidden log of a direct answer, which is never listed.
    pub hidden: bool,
    /// The bytes of all events.
    pub bytes: u64,
    /// The run state.
    pub run: Run,
}
