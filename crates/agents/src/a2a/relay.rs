//! Relay of one turn: translates the events of the upstream task into writes to our task.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use herald_client::{Client, Events, Secrets, StreamEvent};
use herald_engine::Turn;
use herald_protocol::{
    AgentName, Artifact, ArtifactId, Content, ContextId, Json, Message, Metadata, Part, Task,
    TaskId, TaskState, TaskStatus,
};
use serde::Serialize;

use super::upstream_ref::{UPSTREAM, UpstreamRef};
use crate::{ended::Ended, failure::Failure};

/// Relay of one turn from the agent's task to ours.
#[derive(Debug)]
pub(super) struct Relay<'a> {
    agent: &'a AgentName,
    /// Secrets that are redacted in everything the agent sends.
    secrets: &'a Secrets,
    turn: &'a Turn,
    upstream: UpstreamRef,
    /// The agent's task that the message goes to.
    continued: Option<TaskId>,
    /// True once the log holds the reference to the agent's task.
    is_recorded: bool,
    artifacts: HashMap<ArtifactId, KnownArtifact>,
    /// Fingerprints of the messages that are in our task already.
    seen: HashSet<u64>,
    metadata: Metadata,
    /// The final status of the agent's task. It is written last, because our task accepts nothing
    /// after it.
    end: Option<(TaskStatus, Option<Metadata>)>,
    /// The state that was written last.
    state: TaskState,
}

/// Fingerprint of an artifact that is in our task already.
#[derive(Debug, Default)]
struct KnownArtifact {
    parts: Vec<u64>,
    is_complete: bool,
}

impl<'a> Relay<'a> {
    pub(super) fn new(agent: &'a AgentName, secrets: &'a Secrets, turn: &'a Turn) -> Self {
        let task = turn.task();
        let artifacts = task.artifacts.iter().flatten().map(|artifact| {
            let written =
                KnownArtifact { parts: fingerprints(&artifact.parts), is_complete: false };
            (artifact.artifact_id.clone(), written)
        });
        let messages = task.history.iter().flatten().chain(&task.status.message);
        Self {
            agent,
            secrets,
            turn,
            upstream: UpstreamRef {
                turn: turn.id().to_owned(),
                context: UpstreamRef::of(task)
                    .unwrap_or_else(|| UpstreamRef::in_conversation(turn))
                    .context,
                ..UpstreamRef::default()
            },
            continued: None,
            is_recorded: false,
            artifacts: artifacts.collect(),
            seen: messages.map(|message| message_fingerprint(message)).collect(),
            metadata: task.metadata.clone().unwrap_or_default(),
            end: None,
            state: TaskState::Working,
        }
    }

    /// Subscribes to a task that exists at the agent.
    pub(super) fn attach(&mut self, client: &Client, task: TaskId) -> Events {
        self.upstream.task = Some(task.clone());
        client.follow(task)
    }

    /// Subscribes to the agent's task that our log records for this very turn.
    pub(super) fn resume(&mut self, client: &Client, task: TaskId) -> Events {
        self.is_recorded = true;
        self.attach(client, task)
    }

    /// Sets the agent's task that the message continues, if any.
    pub(super) fn set_continued(&mut self, task: Option<TaskId>) {
        self.continued = task;
    }

    /// The agent's task that the message continues, until the agent has answered.
    pub(super) fn continued(&self) -> Option<TaskId> {
        self.continued.clone().filter(|_| self.upstream.task.is_none())
    }

    /// The agent's task, if it is known and has not ended.
    pub(super) fn unfinished(&self) -> Option<&TaskId> {
        let known = self.upstream.task.as_ref().or(self.continued.as_ref());
        known.filter(|_| self.end.is_none())
    }

    /// True if a restarted server could resume the agent's task from the log.
    pub(super) fn can_be_suspended(&self) -> bool {
        self.is_recorded && self.upstream.task.is_some() && self.end.is_none()
    }

    /// True while the agent waits for a message of the caller.
    pub(super) fn awaits_input(&self) -> bool {
        self.state == TaskState::InputRequired
    }

    /// True while the agent waits for credentials, which may come in a message or out of band.
    pub(super) fn awaits_credentials(&self) -> bool {
        self.state == TaskState::AuthRequired
    }

    /// Writes the changes that an event brings.
    pub(super) async fn handle_event(&mut self, event: StreamEvent) -> Result<(), Ended> {
        match event {
            StreamEvent::Task(mut task) => {
                self.redact(task.metadata.as_mut());
                task.status.message =
                    task.status.message.map(|message| self.redact_message(message));
                self.snapshot(task).await
            }
            StreamEvent::StatusUpdate(mut update) => {
                self.remember_ids(update.task_id, update.context_id);
                self.redact(update.metadata.as_mut());
                update.status.message =
                    update.status.message.map(|message| self.redact_message(message));
                self.status(update.status, update.metadata).await
            }
            StreamEvent::ArtifactUpdate(update) => {
                if self.end.is_some() {
                    let id = &update.artifact.artifact_id;
                    return Err(violation(format!(
                        "sent artifact {id:?} after the end of its task"
                    )));
                }
                self.remember_ids(update.task_id, update.context_id);
                self.record().await?;
                self.artifact_chunk(update.artifact, update.append, update.last_chunk).await
            }
            StreamEvent::Message(message) => {
                self.upstream.context = message.context_id.clone().or(self.upstream.context.take());
                let message = self.redact_message(message.into());
                let (state, message) = match self.upstream.task {
                    // An agent without tasks answers with a single message.
                    None => (TaskState::Completed, Some(message)),
                    Some(_) => (TaskState::Working, Some(message)),
                };
                self.status(TaskStatus { state, message, timestamp: None }, None).await
            }
        }
    }

    /// A message with our credentials redacted: many agents echo the request when they fail.
    fn redact_message(&self, mut shared: Arc<Message>) -> Arc<Message> {
        let message = Arc::make_mut(&mut shared);
        for part in &mut message.parts {
            match &mut part.content {
                Content::Text(text) | Content::Url(text) => {
                    *text = self.secrets.redact_sentence(text);
                }
                Content::Data(data) => {
                    *data = data.edited(|text| self.secrets.redact_sentence(text));
                }
                Content::Raw(_) => {}
            }
            if let Some(name) = &mut part.filename {
                *name = self.secrets.redact_sentence(name);
            }
            self.redact(part.metadata.as_mut());
        }
        self.redact(message.metadata.as_mut());
        shared
    }

    fn redact(&self, metadata: Option<&mut Metadata>) {
        if let Some(metadata) = metadata {
            *metadata = metadata.edited(|text| self.secrets.redact_sentence(text));
        }
    }

    /// Keeps the agent's ids of task and context. Servers before 0.3 leave some of them out.
    fn remember_ids(&mut self, task: TaskId, context: ContextId) {
        if !task.is_empty() && self.upstream.task.as_ref() != Some(&task) {
            self.is_recorded = false;
            self.upstream.task = Some(task);
        }
        if !context.is_empty() {
            self.upstream.context = Some(context);
        }
    }

    /// Writes the final status of the agent's task, once its stream has ended.
    pub(super) async fn finish(&mut self) -> Result<(), Ended> {
        let Some((status, metadata)) = self.end.take() else {
            if self.state.is_interrupted() {
                return Ok(());
            }
            return Err(violation("ended the stream of an unfinished task"));
        };
        self.upstream.ended = true;
        let message = match status.state {
            TaskState::Canceled => {
                return Err(Failure::new("canceled the task by itself").into());
            }
            TaskState::Failed => Some(self.explained(status.message)),
            TaskState::Unspecified
            | TaskState::Submitted
            | TaskState::Working
            | TaskState::Completed
            | TaskState::InputRequired
            | TaskState::Rejected
            | TaskState::AuthRequired => status.message,
        };
        self.is_recorded = false;
        self.write(status.state, message, metadata).await
    }

    /// Writes what is new in a snapshot of the agent's task.
    async fn snapshot(&mut self, task: Task) -> Result<(), Ended> {
        self.remember_ids(task.id, task.context_id);
        let TaskStatus { state, message, .. } = &task.status;
        // A question that our task has already is the one that this turn answers.
        let is_answered = state.is_interrupted()
            && message
                .as_ref()
                .is_some_and(|message| self.seen.contains(&message_fingerprint(message)));
        for artifact in task.artifacts.into_iter().flatten() {
            self.record().await?;
            self.reconcile(Arc::unwrap_or_clone(artifact), state.is_terminal()).await?;
        }
        if is_answered {
            self.record().await
        } else {
            self.status(task.status, task.metadata).await
        }
    }

    async fn status(
        &mut self,
        mut status: TaskStatus,
        metadata: Option<Metadata>,
    ) -> Result<(), Ended> {
        let metadata = self.changed_metadata(metadata);
        let seen = &self.seen;
        status.message =
            status.message.filter(|message| !seen.contains(&message_fingerprint(message)));
        match status.state {
            TaskState::Unspecified | TaskState::Submitted | TaskState::Working => {
                let goes_on = self.state.is_interrupted();
                if status.message.is_none() && metadata.is_none() && !goes_on {
                    return self.record().await;
                }
                self.write(TaskState::Working, status.message, metadata).await
            }
            TaskState::InputRequired | TaskState::AuthRequired => {
                self.write(status.state, status.message, metadata).await
            }
            TaskState::Completed
            | TaskState::Failed
            | TaskState::Canceled
            | TaskState::Rejected => {
                self.end.get_or_insert((status, metadata));
                Ok(())
            }
        }
    }

    /// Writes an artifact or the next chunk of one.
    async fn artifact_chunk(
        &mut self,
        artifact: Artifact,
        append: bool,
        last: bool,
    ) -> Result<(), Ended> {
        let id = &artifact.artifact_id;
        let known = self.artifacts.entry(id.clone()).or_default();
        if append && known.is_complete {
            return Err(violation(format!("continued artifact {id:?} after its last chunk")));
        }
        if last && artifact.parts.is_empty() && !known.parts.is_empty() {
            // An empty last chunk only marks the end of the artifact.
            known.is_complete = true;
            return Ok(());
        }
        let parts = fingerprints(&artifact.parts);
        if append {
            known.parts.extend(parts);
        } else {
            known.parts = parts;
        }
        known.is_complete = last;
        if append {
            self.turn.append(artifact, last).await?;
        } else {
            self.turn.replace(artifact, last).await?;
        }
        Ok(())
    }

    /// Writes the difference between a whole artifact and what our task has of it. The snapshot wins
    /// even if our task has more: the agent may have started over, and its next chunks append to this.
    async fn reconcile(&mut self, mut artifact: Artifact, last: bool) -> Result<(), Ended> {
        let parts = fingerprints(&artifact.parts);
        let known = self.artifacts.get(&artifact.artifact_id);
        let known = known.map_or([].as_slice(), |written| &written.parts);
        if known == parts {
            return Ok(());
        }
        let append = !known.is_empty() && parts.starts_with(known);
        if append {
            artifact.parts.drain(..known.len());
        }
        if let Some(written) = self.artifacts.get_mut(&artifact.artifact_id) {
            written.is_complete = false;
        }
        self.artifact_chunk(artifact, append, last).await
    }

    /// Writes the reference to the agent's task, unless the log has it.
    async fn record(&mut self) -> Result<(), Ended> {
        if self.is_recorded { Ok(()) } else { self.write(TaskState::Working, None, None).await }
    }

    async fn write(
        &mut self,
        state: TaskState,
        mut message: Option<Arc<Message>>,
        metadata: Option<Metadata>,
    ) -> Result<(), Ended> {
        let mut metadata = metadata.unwrap_or_default();
        if !self.is_recorded {
            self.upstream.write(&mut metadata);
        }
        self.seen.extend(message.iter().map(|message| message_fingerprint(message)));
        // These are ids of the agent, which mean nothing to our callers.
        if let Some(message) = &mut message {
            Arc::make_mut(message).reference_task_ids.clear();
        }
        let metadata = Some(metadata).filter(|metadata| !metadata.is_empty());
        if state == TaskState::AuthRequired {
            self.turn.relay_within_turn(state, message, metadata).await?;
        } else {
            self.turn.relay(state, message, metadata).await?;
        }
        (self.is_recorded, self.state) = (true, state);
        Ok(())
    }

    /// The members of the agent's metadata that changed, without its own upstream reference.
    fn changed_metadata(&mut self, metadata: Option<Metadata>) -> Option<Metadata> {
        let mut changed = metadata?;
        let known: HashMap<_, _> = self.metadata.members().collect();
        changed.retain(|name, value| {
            name != UPSTREAM && known.get(name).is_none_or(|known| known.as_str() != value)
        });
        self.metadata.extend(&changed);
        Some(changed).filter(|changed| !changed.is_empty())
    }

    /// The message of a failure, made up if the agent sent none, with a machine-readable reason.
    fn explained(&self, message: Option<Arc<Message>>) -> Arc<Message> {
        let mut shared = message.unwrap_or_else(|| {
            let text = format!("agent {} failed and did not say why", self.agent);
            Message::agent(uuid::Uuid::now_v7().to_string(), text).into()
        });
        let metadata = Arc::make_mut(&mut shared).metadata.get_or_insert_default();
        if metadata.get::<Json>("reason").is_none() {
            metadata.insert("reason", "AGENT_FAILED");
        }
        shared
    }
}

/// Fingerprints of parts, for comparison without keeping their content.
fn fingerprints(parts: &[Part]) -> Vec<u64> {
    parts.iter().map(fingerprint).collect()
}

/// Fingerprint of a message. The id alone does not do: some agents give all messages the same one.
fn message_fingerprint(message: &Message) -> u64 {
    fingerprint(&(&message.message_id, &message.parts))
}

fn fingerprint(value: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_vec(value).expect("protocol types have string keys only").hash(&mut hasher);
    hasher.finish()
}

/// The end of a turn whose agent violated the protocol.
fn violation(kind: impl Into<String>) -> Ended {
    Ended::ProtocolViolation(Failure::new(kind))
}
