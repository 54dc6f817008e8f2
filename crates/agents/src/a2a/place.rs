//! Where a task goes on at the agent: kept in the task's metadata, so that it outlives us.

use herald_engine::Turn;
use herald_protocol::{ContextId, Json, Metadata, Task, TaskId};
use serde::{Deserialize, Serialize};

/// Its name in the metadata.
pub(super) const UPSTREAM: &str = "herald.upstream";

/// What the agent calls the task, and which turn of ours it has got.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Place {
    pub(super) task: Option<TaskId>,
    pub(super) context: Option<ContextId>,
    /// The name of the turn whose message the agent got last.
    pub(super) turn: String,
    /// Whether the agent's task has ended, so that the next message begins another one.
    pub(super) ended: bool,
}

impl Place {
    /// The place that a task's metadata tells.
    pub(super) fn of(task: &Task) -> Option<Self> {
        let kept: Kept = task.metadata.as_ref()?.get(UPSTREAM)?;
        Some(Self {
            task: kept.task_id,
            context: kept.context_id,
            turn: kept.message_id,
            ended: kept.ended,
        })
    }

    /// The place of a new task: where the conversation has been going on.
    pub(super) fn in_conversation(turn: &Turn) -> Self {
        let context = turn.earlier().iter().rev().find_map(|task| Self::of(task)?.context);
        Self { context, ..Self::default() }
    }

    /// The agent's task for this very turn, if the agent has got its message.
    pub(super) fn task_of(&self, turn: &Turn) -> Option<&TaskId> {
        self.task.as_ref().filter(|_| self.turn == turn.id())
    }

    /// Where the next message goes: the context, and the task if it still waits.
    pub(super) fn next(&self) -> (Option<ContextId>, Option<TaskId>) {
        (self.context.clone(), self.task.clone().filter(|_| !self.ended))
    }

    /// Puts the place into metadata.
    pub(super) fn write(&self, metadata: &mut Metadata) {
        let kept = Kept {
            task_id: self.task.clone(),
            context_id: self.context.clone(),
            message_id: self.turn.clone(),
            ended: self.ended,
        };
        metadata.insert(UPSTREAM, Json::new(&kept).expect("names are JSON"));
    }
}

/// A place in the metadata.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    task_id: Option<TaskId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    context_id: Option<ContextId>,
    message_id: String,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    ended: bool,
}
