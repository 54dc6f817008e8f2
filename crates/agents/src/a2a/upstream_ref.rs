//! Reference to the upstream agent's task and context, kept in our task's metadata across restarts.

use herald_engine::Turn;
use herald_protocol::{ContextId, Json, Metadata, Task, TaskId};
use serde::{Deserialize, Serialize};

/// Key of the reference in a task's metadata.
pub(super) const UPSTREAM: &str = "herald.upstream";

/// The ids that the agent uses, and the last turn of ours that it received.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct UpstreamRef {
    pub(super) task: Option<TaskId>,
    pub(super) context: Option<ContextId>,
    /// Id of the turn whose message the agent received last.
    pub(super) turn: String,
    /// True once the agent's task has ended: the next message begins a new one.
    pub(super) ended: bool,
}

impl UpstreamRef {
    /// The reference in a task's metadata.
    pub(super) fn of(task: &Task) -> Option<Self> {
        let stored: StoredRef = task.metadata.as_ref()?.get(UPSTREAM)?;
        Some(Self {
            task: stored.task_id,
            context: stored.context_id,
            turn: stored.message_id,
            ended: stored.ended,
        })
    }

    /// The reference for a new task: the agent's context of the same conversation, without a task.
    pub(super) fn in_conversation(turn: &Turn) -> Self {
        let context = turn.earlier().iter().rev().find_map(|task| Self::of(task)?.context);
        Self { context, ..Self::default() }
    }

    /// The agent's task for this very turn, if the agent has got its message.
    pub(super) fn task_of(&self, turn: &Turn) -> Option<&TaskId> {
        self.task.as_ref().filter(|_| self.turn == turn.id())
    }

    /// The context of the next message, and its task if that has not ended.
    pub(super) fn next(&self) -> (Option<ContextId>, Option<TaskId>) {
        (self.context.clone(), self.task.clone().filter(|_| !self.ended))
    }

    /// Writes the reference into metadata.
    pub(super) fn write(&self, metadata: &mut Metadata) {
        let stored = StoredRef {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            message_id: self.turn.clone(),
            ended: self.ended,
        };
        metadata.insert(UPSTREAM, Json::new(&stored).expect("names are JSON"));
    }
}

/// The JSON form of the reference.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StoredRef {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context_id: Option<ContextId>,
    message_id: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
}
