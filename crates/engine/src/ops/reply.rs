//! Replies of engine calls.

use std::sync::Arc;

use herald_protocol::{
    ContextId, Error, Message, SendResult, Task, TaskId, TaskPage,
    push::{PushConfig, PushConfigPage},
};

use crate::{
    agents::extended_card::CallerProfile,
    cache::CachedTask,
    codec,
    fault::refuse,
    read::{subscription::Subscription, view::shown},
    rules::Record,
    store::{Snapshot, StoreError},
};

/// The result of a call.
#[derive(Debug)]
pub enum Reply {
    /// The answer to a send.
    Sent(Sent),
    /// A task.
    Task(TaskJson),
    /// A page of tasks.
    Tasks(TaskPage),
    /// A stream.
    Stream(Subscription),
    /// A webhook, without its secrets.
    PushConfig(PushConfig),
    /// A page of webhooks.
    PushConfigs(PushConfigPage),
    /// A webhook was removed.
    Deleted,
    /// The description of an agent for its extended card.
    ExtendedCard(Box<CallerProfile>),
}

/// The result of a send.
#[derive(Debug)]
pub enum Sent {
    /// The task that the message led to.
    Task(TaskJson),
    /// A direct answer.
    Message(Arc<Message>),
}

impl Sent {
    /// Appends the 1.0 JSON of the result.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Task(task) => {
                out.extend_from_slice(b"{\"task\":");
                task.write(out);
                out.push(b'}');
            }
            Self::Message(message) => codec::write_message(out, &message),
        }
    }

    /// The decoded result.
    pub fn decode(self) -> Result<SendResult, Error> {
        match self {
            Self::Task(task) => task.decode().map(SendResult::Task),
            Self::Message(message) => Ok(SendResult::Message(Arc::unwrap_or_clone(message))),
        }
    }
}

/// A task as the result of a call. Its 1.0 JSON is written without decoding where the store already
/// has it.
#[derive(Debug)]
pub struct TaskJson(pub(crate) TaskForm);

#[derive(Debug)]
pub(crate) enum TaskForm {
    /// A stored task, in pieces of JSON.
    Stored(TaskId, ContextId, Snapshot),
    /// A decoded task. The snapshot, if there is one, has the same content as pieces of JSON.
    Task(Arc<Task>, Option<Snapshot>),
}

impl TaskJson {
    /// A live task, with the history length that its caller asked for.
    pub(crate) fn of(record: Record, cached: &CachedTask, history_length: Option<i32>) -> Self {
        match history_length {
            Some(_) => shown(record.task, history_length).into(),
            None => Self(TaskForm::Task(record.task, cached.snapshot(record.head))),
        }
    }

    /// Appends the 1.0 JSON of the task.
    pub fn write(self, out: &mut Vec<u8>) {
        match self.0 {
            TaskForm::Stored(id, context, snapshot) => {
                codec::write_whole(out, &id, &context, &snapshot);
            }
            TaskForm::Task(task, Some(snapshot)) => {
                codec::write_whole(out, &task.id, &task.context_id, &snapshot);
            }
            TaskForm::Task(task, None) => codec::write_json(out, &shown(task, None)),
        }
    }

    /// The decoded task.
    pub fn decode(self) -> Result<Task, Error> {
        match self.0 {
            TaskForm::Stored(id, context, snapshot) => {
                let mut json = Vec::new();
                codec::write_whole(&mut json, &id, &context, &snapshot);
                serde_json::from_slice(&json)
                    .map_err(|fault| refuse(StoreError::Corrupt(fault.to_string())))
            }
            TaskForm::Task(task, _) => Ok(shown(task, None)),
        }
    }
}

impl From<Task> for TaskJson {
    fn from(task: Task) -> Self {
        Self(TaskForm::Task(Arc::new(task), None))
    }
}
