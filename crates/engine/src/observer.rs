//! Observer of tasks, through which the host of an engine learns of each step.

use std::fmt;

use herald_protocol::{Artifact, Message, TaskState};

use crate::{
    rules::Command,
    store::{Entry, Key, Kind},
};

/// One step of a task.
#[derive(Debug, Clone, Copy)]
pub enum TaskStep<'a> {
    /// The task was created.
    Created,
    /// The task has a new status.
    Status(TaskState),
    /// A piece of an artifact was added.
    Artifact(&'a Artifact),
    /// A turn on this message begins.
    TurnBegun(&'a Message),
    /// A turn has ended.
    TurnEnded,
}

/// Observer of the tasks that one engine writes. Steps of a task arrive in the order of its log, once they are
/// stored. The call delays the task, so it must neither block nor wait.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Takes note of a step of this task.
    fn observe(&self, key: &Key, step: TaskStep<'_>);
}

/// Tells an observer of one write: the commands, and the entries of the log that they became.
pub(crate) fn written(
    observer: &dyn Observer,
    key: &Key,
    is_new: bool,
    commands: &[Command],
    entries: &[Entry],
) {
    if is_new {
        observer.observe(key, TaskStep::Created);
    }
    let mut pieces = commands.iter().filter_map(|command| match command {
        Command::Write(chunk) => Some(&chunk.artifact),
        Command::Receive { .. }
        | Command::Cancel { .. }
        | Command::Begin(_)
        | Command::Admit(_)
        | Command::Admitted
        | Command::Decline(..)
        | Command::Retry { .. }
        | Command::Take(_)
        | Command::Report(..)
        | Command::Interim(..)
        | Command::Ask(..)
        | Command::Reply(_)
        | Command::Expire { .. }
        | Command::Return
        | Command::Release => None,
    });
    for entry in entries {
        match entry.kind {
            Kind::Status(state) | Kind::Interim(state) => {
                observer.observe(key, TaskStep::Status(state));
            }
            Kind::Artifact => {
                if let Some(artifact) = pieces.next() {
                    observer.observe(key, TaskStep::Artifact(artifact));
                }
            }
            Kind::Received(_) | Kind::Reply => {}
        }
    }
}
