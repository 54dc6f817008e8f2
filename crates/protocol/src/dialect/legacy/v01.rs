//! A2A 0.1: method names and messages. Clients choose the task ids, every answer is a task, and artifacts
//! are numbered.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap};

use super::{
    LegacyShape, v03, v03_read as read,
    v03_request::{Configuration, Push, one_task, sent},
    v03_write::{AuthenticationForm, FlatMembers, LegacyForm},
};
use crate::{
    error::Error,
    id::{AgentName, ContextId, PushConfigId, TaskId},
    json,
    message::Message,
    open::Metadata,
    push::{PushConfig, PushConfigPage},
    request::{Operation, Request, SendMessage},
    task::{Artifact, ArtifactUpdate, SendResult, StatusUpdate, StreamEvent, Task, TaskState},
    validate::{Violations, null_as_default},
};

/// The only webhook that a task has here.
const PUSH: &str = "default";

/// The method of an operation. 0.1 has one webhook per task and no extended card.
pub(in crate::dialect) const fn method(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::SendMessage => Some("tasks/send"),
        Operation::SendStreamingMessage => Some("tasks/sendSubscribe"),
        Operation::GetTask => Some("tasks/get"),
        Operation::CancelTask => Some("tasks/cancel"),
        Operation::SubscribeToTask => Some("tasks/resubscribe"),
        Operation::CreateTaskPushNotificationConfig => Some("tasks/pushNotification/set"),
        Operation::GetTaskPushNotificationConfig => Some("tasks/pushNotification/get"),
        Operation::ListTasks
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => None,
    }
}

/// The operation of a method.
pub(in crate::dialect) fn operation(name: &str) -> Option<Operation> {
    Operation::ALL.iter().copied().find(|operation| method(*operation) == Some(name))
}

/// The parameters of a send, with those of the servers that added to them.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendBodyV01 {
    id: Option<TaskId>,
    task_id: Option<TaskId>,
    #[serde(rename = "task_id")]
    snake_task_id: Option<TaskId>,
    #[serde(alias = "session_id", alias = "contextId")]
    session_id: Option<ContextId>,
    message: Option<read::LegacyMessage>,
    #[serde(alias = "accepted_output_modes")]
    accepted_output_modes: Option<Vec<String>>,
    #[serde(alias = "push_notification")]
    push_notification: Option<Push>,
    #[serde(alias = "history_length")]
    history_length: Option<i32>,
    #[serde(default, deserialize_with = "null_as_default")]
    configuration: Configuration,
    metadata: Option<Metadata>,
    handler: Option<AgentName>,
}

/// Reads the parameters of both sends.
pub(in crate::dialect) fn send(params: &[u8]) -> Result<SendMessage, Error> {
    let send: SendBodyV01 = json::read(params)?;
    Violations::collect(|at| {
        let mut message = sent(LegacyShape::V01, send.message, at);
        let spelled = message.task_id.take();
        let own_task = one_task(
            [
                ("id", send.id.as_ref().map(TaskId::as_str)),
                ("taskId", send.task_id.as_ref().map(TaskId::as_str)),
                ("task_id", send.snake_task_id.as_ref().map(TaskId::as_str)),
                ("message.taskId", spelled.as_ref().map(TaskId::as_str)),
            ],
            at,
        )
        .map(TaskId::from);
        at.optional_id("id", own_task.as_ref().map(TaskId::as_str));
        let session = send.session_id.filter(|session| !session.is_empty());
        at.optional_id("sessionId", session.as_ref().map(ContextId::as_str));
        if let (Some(session), Some(context)) = (&session, &message.context_id)
            && session != context
        {
            at.add("sessionId", "names another session than message.contextId");
        }
        message.context_id = session.or(message.context_id);
        at.not_negative("historyLength", send.history_length);
        let mut configuration =
            at.within("configuration", |at| send.configuration.read(LegacyShape::V01, at));
        configuration.accepted_output_modes =
            send.accepted_output_modes.unwrap_or(configuration.accepted_output_modes);
        configuration.history_length = send.history_length.or(configuration.history_length);
        let push = send.push_notification.map(|push| push.read(None, LegacyShape::V01.push(), at));
        configuration.task_push_notification_config =
            push.or(configuration.task_push_notification_config);
        configuration.task_push_notification_config.iter_mut().for_each(name_push);
        SendMessage {
            message,
            configuration,
            metadata: send.metadata,
            // A caller that names a new task does not mean another one.
            infer_task: own_task.is_none(),
            own_task,
            task_only: true,
            agent: send.handler.filter(|handler| !handler.is_empty()),
            ..SendMessage::default()
        }
    })
}

/// True if the parts of the message of a send have a `kind`, which 0.1 calls `type`.
pub(in crate::dialect) fn has_kinds(params: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Tagged {
        kind: Option<String>,
        r#type: Option<String>,
    }
    #[derive(Deserialize)]
    struct TaggedMessage {
        #[serde(default)]
        parts: Vec<Tagged>,
    }
    #[derive(Deserialize)]
    struct TaggedSend {
        message: TaggedMessage,
    }
    // Parameters in another form are refused where they are decoded.
    let parts = json::read(params).map_or(Vec::new(), |send: TaggedSend| send.message.parts);
    !parts.is_empty() && parts.iter().all(|part| part.kind.is_some() && part.r#type.is_none())
}

/// There is one webhook per task, so that setting it again replaces it.
pub(in crate::dialect) fn name_push(config: &mut PushConfig) {
    config.id.get_or_insert_with(|| PushConfigId::from(PUSH));
}

/// An artifact, its number, and how a piece of it fits.
pub(in crate::dialect) struct Numbered<'a> {
    artifact: &'a Artifact,
    index: usize,
    append: bool,
    last_chunk: bool,
}

impl<'a> Numbered<'a> {
    /// The artifacts of a task.
    pub(in crate::dialect) fn all(artifacts: &'a [Arc<Artifact>]) -> Vec<Self> {
        artifacts.iter().enumerate().map(|(index, artifact)| Self::whole(artifact, index)).collect()
    }

    fn whole(artifact: &'a Artifact, index: usize) -> Self {
        Self { artifact, index, append: false, last_chunk: false }
    }
}

impl Serialize for Numbered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { artifact, index, append, last_chunk } = *self;
        let mut map = serializer.serialize_map(None)?;
        map.some("name", artifact.name.as_ref())?;
        map.some("description", artifact.description.as_ref())?;
        map.serialize_entry("parts", &LegacyForm(LegacyShape::V01, artifact.parts.as_slice()))?;
        map.serialize_entry("index", &index)?;
        map.some("append", Some(&true).filter(|_| append))?;
        map.some("lastChunk", Some(&true).filter(|_| last_chunk))?;
        map.some("metadata", artifact.metadata.as_ref())?;
        map.end()
    }
}

#[derive(Serialize)]
struct StatusEvent<'a> {
    id: &'a TaskId,
    status: LegacyForm<'a, crate::task::TaskStatus>,
    r#final: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
}

#[derive(Serialize)]
struct ArtifactEvent<'a> {
    id: &'a TaskId,
    artifact: Numbered<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
}

/// A status event.
pub(in crate::dialect) fn status(update: &StatusUpdate, closing: bool) -> Vec<u8> {
    json::write(&StatusEvent {
        id: &update.task_id,
        status: LegacyForm(LegacyShape::V01, &update.status),
        r#final: closing,
        metadata: update.metadata.as_ref(),
    })
}

/// An artifact event; the artifact has this number.
pub(in crate::dialect) fn piece(update: &ArtifactUpdate, index: usize) -> Vec<u8> {
    let ArtifactUpdate { artifact, append, last_chunk, .. } = update;
    json::write(&ArtifactEvent {
        id: &update.task_id,
        artifact: Numbered { artifact, index, append: *append, last_chunk: *last_chunk },
        metadata: update.metadata.as_ref(),
    })
}

/// A task that stands for a direct answer, which 0.1 does not have.
pub(in crate::dialect) fn answered(message: &Message) -> Task {
    let named = message.task_id.clone();
    Task {
        id: named.unwrap_or_else(|| TaskId::from(message.message_id.as_str())),
        context_id: message.context_id.clone().unwrap_or_default(),
        status: crate::task::TaskStatus {
            state: TaskState::Completed,
            message: Some(Arc::new(message.clone())),
            timestamp: None,
        },
        artifacts: None,
        history: None,
        metadata: None,
    }
}

pub(in crate::dialect) fn encode_send_result(result: &SendResult) -> Vec<u8> {
    match result {
        SendResult::Task(task) => json::write(&LegacyForm(LegacyShape::V01, task)),
        SendResult::Message(message) => {
            json::write(&LegacyForm(LegacyShape::V01, &answered(message)))
        }
    }
}

pub(in crate::dialect) fn encode_event(event: &StreamEvent, closing: bool) -> Vec<u8> {
    match event {
        StreamEvent::Task(task) => json::write(&LegacyForm(LegacyShape::V01, task)),
        StreamEvent::Message(message) => {
            json::write(&LegacyForm(LegacyShape::V01, &answered(message)))
        }
        StreamEvent::StatusUpdate(update) => status(update, closing),
        StreamEvent::ArtifactUpdate(update) => piece(update, 0),
    }
}

/// A webhook, which has no name of its own.
struct PushOnly<'a>(&'a PushConfig);

impl Serialize for PushOnly<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("url", &self.0.url)?;
        map.some("token", self.0.token.as_ref())?;
        let authentication = self.0.authentication.as_ref().map(AuthenticationForm);
        map.some("authentication", authentication.as_ref())?;
        map.end()
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushResourceV01<'a> {
    id: &'a str,
    push_notification_config: PushOnly<'a>,
}

impl<'a> From<&'a PushConfig> for PushResourceV01<'a> {
    fn from(config: &'a PushConfig) -> Self {
        let id = config.task_id.as_ref().map_or("", TaskId::as_str);
        Self { id, push_notification_config: PushOnly(config) }
    }
}

pub(in crate::dialect) fn encode_push_config(config: &PushConfig) -> Vec<u8> {
    json::write(&PushResourceV01::from(config))
}

pub(in crate::dialect) fn encode_push_page(page: &PushConfigPage) -> Vec<u8> {
    let configs: Vec<_> = page.configs.iter().map(PushResourceV01::from).collect();
    json::write(&configs)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SendParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a TaskId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a ContextId>,
    message: LegacyForm<'a, Message>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    accepted_output_modes: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification: Option<PushOnly<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    handler: Option<&'a AgentName>,
}

pub(in crate::dialect) fn encode_request(request: &Request) -> Vec<u8> {
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            let SendMessage { message, configuration, .. } = &**send;
            json::write(&SendParams {
                id: send.own_task.as_ref().or(message.task_id.as_ref()),
                session_id: message.context_id.as_ref(),
                message: LegacyForm(LegacyShape::V01, message),
                accepted_output_modes: &configuration.accepted_output_modes,
                push_notification: configuration
                    .task_push_notification_config
                    .as_ref()
                    .map(PushOnly),
                history_length: configuration.history_length,
                metadata: send.metadata.as_ref(),
                handler: send.agent.as_ref(),
            })
        }
        Request::CreateTaskPushNotificationConfig(config) => encode_push_config(config),
        Request::GetTask(_)
        | Request::ListTasks(_)
        | Request::CancelTask(_)
        | Request::SubscribeToTask(_)
        | Request::GetTaskPushNotificationConfig(_)
        | Request::ListTaskPushNotificationConfigs(_)
        | Request::DeleteTaskPushNotificationConfig(_)
        | Request::GetExtendedAgentCard(_) => v03::encode_request(request),
    }
}
