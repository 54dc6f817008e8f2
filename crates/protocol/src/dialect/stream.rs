//! Stream writer: the bodies on the wire for each event of a task.

use super::{Dialect, legacy::v01};
use crate::{
    id::ArtifactId,
    task::{Artifact, ArtifactUpdate, StatusUpdate, StreamEvent, Task},
};

/// Writes the items of one stream.
#[derive(Debug, Clone)]
pub struct StreamWriter {
    dialect: Dialect,
    /// Ids of the artifacts. In 0.1 an artifact has a number instead, which is its index here.
    artifacts: Vec<ArtifactId>,
}

/// One item of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamItem {
    /// The `event:` of server-sent events, in versions that name their events.
    pub name: Option<&'static str>,
    /// The JSON.
    pub body: Vec<u8>,
}

impl StreamWriter {
    /// A writer for the stream of a task that has these artifacts, in this order. Only 0.1 uses them.
    pub const fn new(dialect: Dialect, artifacts: Vec<ArtifactId>) -> Self {
        Self { dialect, artifacts }
    }

    /// The items of an event. There is one, except in 0.1: its streams have no item for a whole task, so
    /// the task is written piece by piece, its status last.
    pub fn write(&mut self, event: &StreamEvent, closing: bool) -> Vec<StreamItem> {
        match self.dialect {
            Dialect::V1 => vec![self.item(None, event, closing)],
            Dialect::V03 | Dialect::V03Rest => vec![self.item(Some(kind(event)), event, closing)],
            Dialect::V01 => {
                let bodies = self.pieces(event, closing);
                bodies.into_iter().map(|body| StreamItem { name: None, body }).collect()
            }
        }
    }

    fn item(&self, name: Option<&'static str>, event: &StreamEvent, closing: bool) -> StreamItem {
        StreamItem { name, body: self.dialect.encode_event(event, closing) }
    }

    fn pieces(&mut self, event: &StreamEvent, closing: bool) -> Vec<Vec<u8>> {
        match event {
            StreamEvent::Task(task) => self.whole(task, closing),
            StreamEvent::Message(message) => self.whole(&v01::answered(message), closing),
            StreamEvent::StatusUpdate(update) => vec![v01::status(update, closing)],
            StreamEvent::ArtifactUpdate(update) => {
                vec![v01::piece(update, self.number(&update.artifact.artifact_id))]
            }
        }
    }

    fn whole(&mut self, task: &Task, closing: bool) -> Vec<Vec<u8>> {
        let mut bodies = Vec::new();
        for artifact in task.artifacts.iter().flatten() {
            let index = self.number(&artifact.artifact_id);
            let update = ArtifactUpdate {
                task_id: task.id.clone(),
                context_id: task.context_id.clone(),
                artifact: Artifact::clone(artifact),
                ..ArtifactUpdate::default()
            };
            bodies.push(v01::piece(&update, index));
        }
        let update = StatusUpdate {
            task_id: task.id.clone(),
            context_id: task.context_id.clone(),
            status: task.status.clone(),
            metadata: None,
        };
        bodies.push(v01::status(&update, closing));
        bodies
    }

    fn number(&mut self, artifact: &ArtifactId) -> usize {
        let known = self.artifacts.iter().position(|known| known == artifact);
        known.unwrap_or_else(|| {
            self.artifacts.push(artifact.clone());
            self.artifacts.len() - 1
        })
    }
}

const fn kind(event: &StreamEvent) -> &'static str {
    match event {
        StreamEvent::Task(_) => "task",
        StreamEvent::Message(_) => "message",
        StreamEvent::StatusUpdate(_) => "status-update",
        StreamEvent::ArtifactUpdate(_) => "artifact-update",
    }
}
