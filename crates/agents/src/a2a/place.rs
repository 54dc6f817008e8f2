//! Where a task goes on at the agent: kept in the task's metadata, so that it outlives us.

use herald_engine::Turn;
use herald_protocol::{ContextId, Metadata, Task, TaskId};
use serde_json::Value;

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
        let kept = task.metadata.as_ref()?.get(UPSTREAM)?;
        let text = |name: &str| kept.get(name).and_then(Value::as_str);
        Some(Self {
            task: text("taskId").map(TaskId::new),
            context: text("contextId").map(ContextId::new),
            turn: text("messageId")?.to_owned(),
            ended: kept.get("ended").and_then(Value::as_bool).unwrap_or(false),
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
        let mut kept = Metadata::new();
        let mut put = |name: &str, text: Option<&str>| {
            kept.extend(text.map(|text| (name.to_owned(), Value::from(text))));
        };
        put("taskId", self.task.as_ref().map(TaskId::as_str));
        put("contextId", self.context.as_ref().map(ContextId::as_str));
        put("messageId", Some(&self.turn));
        if self.ended {
            kept.insert("ended".to_owned(), Value::Bool(true));
        }
        metadata.insert(UPSTREAM.to_owned(), Value::Object(kept));
    }
}
