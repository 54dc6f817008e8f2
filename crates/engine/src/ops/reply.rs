//! Replies of engine calls.

use std::sync::Arc;

use herald_protocol::{ContextId, Error, Message, SendResult, Task, TaskId, TaskPage};

use crate::{
    cache::CachedTask,
    codec,
    fault::refuse,
    read::{subscription::Subscription, view::shown},
    rules::Record,
    store::{Snapshot, StoreError},
};

/// What a call returns.
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
}

/// What a send is answered with.
#[derive(Debug)]
pub enum Sent {
    /// The task that the message led to.
    Task(TaskJson),
    /// A direct answer.
    Message(Arc<Message>),
}

impl Sent {
    /// Appends the 1.0 JSON of the answer.
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

    /// The answer itself.
    pub fn decode(self) -> Result<SendResult, Error> {
        match self {
            Self::Task(task) => task.decode().map(SendResult::Task),
            Self::Message(message) => Ok(SendResult::Message(Arc::unwrap_or_clone(message))),
        }
    }
}

/// A task on its way to its reader. Most want its 1.0 JSON, and often that is already there.
#[derive(Debug)]
pub struct TaskJson(pub(crate) Form);

#[derive(Debug)]
pub(crate) enum Form {
    /// A stored task, in pieces of JSON.
    Stored(TaskId, ContextId, Snapshot),
    /// The snapshot, if there is one, holds the same in pieces of JSON.
    Task(Arc<Task>, Option<Snapshot>),
}

impl TaskJson {
    /// A live task, as its caller asked for it.
    pub(crate) fn of(record: Record, cached: &CachedTask, history_length: Option<i32>) -> Self {
        match history_length {
            Some(_) => shown(record.task, history_length).into(),
            None => Self(Form::Task(record.task, cached.snapshot(record.head))),
        }
    }

    /// Appends the JSON.
    pub fn write(self, out: &mut Vec<u8>) {
        match self.0 {
            Form::Stored(id, context, snapshot) => {
                codec::write_whole(out, &id, &context, &snapshot);
            }
            Form::Task(task, Some(snapshot)) => {
                codec::write_whole(out, &task.id, &task.context_id, &snapshot);
            }
            Form::Task(task, None) => codec::write_json(out, &shown(task, None)),
        }
    }

    /// The task itself.
    pub fn decode(self) -> Result<Task, Error> {
        match self.0 {
            Form::Stored(id, context, snapshot) => {
                let mut json = Vec::new();
                codec::write_whole(&mut json, &id, &context, &snapshot);
                serde_json::from_slice(&json)
                    .map_err(|fault| refuse(StoreError::Corrupt(fault.to_string())))
            }
            Form::Task(task, _) => Ok(shown(task, None)),
        }
    }
}

impl From<Task> for TaskJson {
    fn from(task: Task) -> Self {
        Self(Form::Task(Arc::new(task), None))
    }
}
