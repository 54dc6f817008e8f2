//! A2A 1.0 in protobuf: conversions to and from our types.

use prost::Message as _;

use super::{
    filled,
    generated::v1::{self as wire, part, send_message_response, stream_response},
    named, owned, parse,
    value::{moment, object, open, timestamp, value},
};
use crate::{
    error::Error,
    message::{Content, Message, Part, Role},
    push::{PushAuthentication, PushConfig, PushConfigPage},
    request::{
        CancelTask, GetExtendedAgentCard, GetTask, ListPushConfigs, ListTasks, Operation,
        PushConfigRef, Request, SendConfiguration, SendMessage, SubscribeToTask,
    },
    task::{
        Artifact, ArtifactUpdate, SendResult, StatusUpdate, StreamEvent, Task, TaskPage, TaskState,
        TaskStatus,
    },
    validate::{Validate, Violations},
};

pub(super) fn decode(operation: Operation, bytes: &[u8]) -> Result<Request, Error> {
    match operation {
        Operation::SendMessage => send(bytes).map(Box::new).map(Request::SendMessage),
        Operation::SendStreamingMessage => {
            send(bytes).map(Box::new).map(Request::SendStreamingMessage)
        }
        Operation::GetTask => {
            let get: wire::GetTaskRequest = parse(bytes)?;
            checked(|_| GetTask {
                tenant: named(get.tenant),
                id: get.id.into(),
                history_length: get.history_length,
            })
            .map(Request::GetTask)
        }
        Operation::ListTasks => {
            let list: wire::ListTasksRequest = parse(bytes)?;
            checked(|at| ListTasks {
                tenant: named(list.tenant),
                context_id: named(list.context_id),
                status: state(list.status, "status", at),
                page_size: list.page_size,
                page_token: filled(list.page_token),
                history_length: list.history_length,
                status_timestamp_after: moment(
                    list.status_timestamp_after,
                    "statusTimestampAfter",
                    at,
                ),
                include_artifacts: list.include_artifacts,
            })
            .map(Request::ListTasks)
        }
        Operation::CancelTask => {
            let cancel: wire::CancelTaskRequest = parse(bytes)?;
            checked(|at| CancelTask {
                tenant: named(cancel.tenant),
                id: cancel.id.into(),
                metadata: open(cancel.metadata, "metadata", at),
                ..CancelTask::default()
            })
            .map(Request::CancelTask)
        }
        Operation::SubscribeToTask => {
            let subscribe: wire::SubscribeToTaskRequest = parse(bytes)?;
            checked(|_| SubscribeToTask {
                tenant: named(subscribe.tenant),
                id: subscribe.id.into(),
                ..SubscribeToTask::default()
            })
            .map(Request::SubscribeToTask)
        }
        Operation::CreateTaskPushNotificationConfig => {
            let config: wire::TaskPushNotificationConfig = parse(bytes)?;
            checked(|at| {
                let config = config.read();
                if config.task_id.is_none() {
                    at.add("taskId", "is required");
                }
                config
            })
            .map(Request::CreateTaskPushNotificationConfig)
        }
        Operation::GetTaskPushNotificationConfig => {
            let config: wire::GetTaskPushNotificationConfigRequest = parse(bytes)?;
            config_ref(config.tenant, config.task_id, config.id)
                .map(Request::GetTaskPushNotificationConfig)
        }
        Operation::ListTaskPushNotificationConfigs => {
            let list: wire::ListTaskPushNotificationConfigsRequest = parse(bytes)?;
            checked(|_| ListPushConfigs {
                tenant: named(list.tenant),
                task_id: list.task_id.into(),
                page_size: Some(list.page_size).filter(|size| *size != 0),
                page_token: filled(list.page_token),
            })
            .map(Request::ListTaskPushNotificationConfigs)
        }
        Operation::DeleteTaskPushNotificationConfig => {
            let config: wire::DeleteTaskPushNotificationConfigRequest = parse(bytes)?;
            config_ref(config.tenant, config.task_id, config.id)
                .map(Request::DeleteTaskPushNotificationConfig)
        }
        Operation::GetExtendedAgentCard => {
            let card: wire::GetExtendedAgentCardRequest = parse(bytes)?;
            checked(|_| GetExtendedAgentCard { tenant: named(card.tenant) })
                .map(Request::GetExtendedAgentCard)
        }
    }
}

/// Reads parameters and checks them like those of JSON.
fn checked<T: Validate>(read: impl FnOnce(&mut Violations<'_>) -> T) -> Result<T, Error> {
    Violations::collect(|at| {
        let params = read(at);
        params.validate(at);
        params
    })
}

fn send(bytes: &[u8]) -> Result<SendMessage, Error> {
    let send: wire::SendMessageRequest = parse(bytes)?;
    checked(|at| SendMessage {
        tenant: named(send.tenant),
        message: at.within("message", |at| send.message.unwrap_or_default().read(at)),
        configuration: send.configuration.unwrap_or_default().read(),
        metadata: open(send.metadata, "metadata", at),
        ..SendMessage::default()
    })
}

fn config_ref(tenant: String, task: String, id: String) -> Result<PushConfigRef, Error> {
    checked(|_| PushConfigRef { tenant: named(tenant), task_id: task.into(), id: id.into() })
}

fn state(number: i32, field: &str, at: &mut Violations<'_>) -> TaskState {
    let state = u64::try_from(number).ok().and_then(TaskState::from_number);
    state.unwrap_or_else(|| {
        at.add(field, "is not a task state");
        TaskState::Unspecified
    })
}

/// A number that is not a role reads as none, which is never valid in a message.
const fn role(number: i32) -> Role {
    match number {
        1 => Role::User,
        2 => Role::Agent,
        _ => Role::Unspecified,
    }
}

impl wire::SendMessageConfiguration {
    fn read(self) -> SendConfiguration {
        SendConfiguration {
            accepted_output_modes: self.accepted_output_modes,
            task_push_notification_config: self
                .task_push_notification_config
                .map(wire::TaskPushNotificationConfig::read),
            history_length: self.history_length,
            return_immediately: self.return_immediately,
        }
    }
}

impl wire::Message {
    fn read(self, at: &mut Violations<'_>) -> Message {
        Message {
            message_id: self.message_id.into(),
            context_id: named(self.context_id),
            task_id: named(self.task_id),
            role: role(self.role),
            parts: parts(self.parts, at),
            metadata: open(self.metadata, "metadata", at),
            extensions: self.extensions,
            reference_task_ids: self.reference_task_ids.into_iter().map(From::from).collect(),
        }
    }
}

fn parts(parts: Vec<wire::Part>, at: &mut Violations<'_>) -> Vec<Part> {
    let read = |(index, part): (usize, wire::Part)| {
        at.within(&format!("parts[{index}]"), |at| part.read(at))
    };
    parts.into_iter().enumerate().map(read).collect()
}

impl wire::Part {
    fn read(self, at: &mut Violations<'_>) -> Part {
        let content = match self.content {
            Some(part::Content::Text(text)) => Content::Text(text),
            Some(part::Content::Raw(bytes)) => Content::Raw(bytes),
            Some(part::Content::Url(url)) => Content::Url(url),
            Some(part::Content::Data(data)) => Content::Data(value(&data, "data", at)),
            None => {
                at.add("", "must have exactly one of text, raw, url and data");
                Content::Text(String::new())
            }
        };
        Part {
            content,
            filename: filled(self.filename),
            media_type: filled(self.media_type),
            metadata: open(self.metadata, "metadata", at),
        }
    }
}

impl wire::Task {
    fn read(self, at: &mut Violations<'_>) -> Task {
        let artifacts: Vec<_> = self.artifacts.into_iter().map(|one| one.read(at).into()).collect();
        let history: Vec<_> = self.history.into_iter().map(|one| one.read(at).into()).collect();
        Task {
            id: self.id.into(),
            context_id: self.context_id.into(),
            status: self.status.unwrap_or_default().read(at),
            artifacts: Some(artifacts).filter(|artifacts| !artifacts.is_empty()),
            history: Some(history).filter(|history| !history.is_empty()),
            metadata: open(self.metadata, "metadata", at),
        }
    }
}

impl wire::TaskStatus {
    fn read(self, at: &mut Violations<'_>) -> TaskStatus {
        TaskStatus {
            state: state(self.state, "state", at),
            message: self.message.map(|message| message.read(at).into()),
            timestamp: moment(self.timestamp, "timestamp", at),
        }
    }
}

impl wire::Artifact {
    fn read(self, at: &mut Violations<'_>) -> Artifact {
        Artifact {
            artifact_id: self.artifact_id.into(),
            name: filled(self.name),
            description: filled(self.description),
            parts: parts(self.parts, at),
            metadata: open(self.metadata, "metadata", at),
            extensions: self.extensions,
        }
    }
}

impl wire::TaskPushNotificationConfig {
    fn read(self) -> PushConfig {
        PushConfig {
            tenant: named(self.tenant),
            id: named(self.id),
            task_id: named(self.task_id),
            url: self.url,
            token: filled(self.token),
            authentication: self.authentication.map(|authentication| PushAuthentication {
                scheme: authentication.scheme,
                credentials: filled(authentication.credentials),
            }),
        }
    }
}

pub(super) fn task(bytes: &[u8]) -> Result<Task, Error> {
    let task: wire::Task = parse(bytes)?;
    Violations::collect(|at| task.read(at))
}

pub(super) fn page(bytes: &[u8]) -> Result<TaskPage, Error> {
    let page: wire::ListTasksResponse = parse(bytes)?;
    Violations::collect(|at| TaskPage {
        tasks: page.tasks.into_iter().map(|task| task.read(at)).collect(),
        next_page_token: page.next_page_token,
        page_size: u32::try_from(page.page_size).unwrap_or_default(),
        total_size: u64::try_from(page.total_size).unwrap_or_default(),
    })
}

pub(super) fn send_result(bytes: &[u8]) -> Result<SendResult, Error> {
    use send_message_response::Payload;
    let response: wire::SendMessageResponse = parse(bytes)?;
    let payload = response.payload.ok_or_else(|| nothing("task and message"))?;
    Violations::collect(|at| match payload {
        Payload::Task(task) => SendResult::Task(task.read(at)),
        Payload::Message(message) => SendResult::Message(message.read(at)),
    })
}

pub(super) fn event(bytes: &[u8]) -> Result<StreamEvent, Error> {
    use stream_response::Payload;
    let response: wire::StreamResponse = parse(bytes)?;
    let payload = response
        .payload
        .ok_or_else(|| nothing("task, message, status_update and artifact_update"))?;
    Violations::collect(|at| match payload {
        Payload::Task(task) => StreamEvent::Task(task.read(at)),
        Payload::Message(message) => StreamEvent::Message(message.read(at)),
        Payload::StatusUpdate(update) => StreamEvent::StatusUpdate(StatusUpdate {
            task_id: update.task_id.into(),
            context_id: update.context_id.into(),
            status: update.status.unwrap_or_default().read(at),
            metadata: open(update.metadata, "metadata", at),
        }),
        Payload::ArtifactUpdate(update) => StreamEvent::ArtifactUpdate(ArtifactUpdate {
            task_id: update.task_id.into(),
            context_id: update.context_id.into(),
            artifact: update.artifact.unwrap_or_default().read(at),
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: open(update.metadata, "metadata", at),
        }),
    })
}

pub(super) fn nothing(choices: &str) -> Error {
    Error::field("", format!("expected exactly one of {choices}"))
}

pub(super) fn push_config(bytes: &[u8]) -> Result<PushConfig, Error> {
    parse(bytes).map(wire::TaskPushNotificationConfig::read)
}

pub(super) fn read_push_page(bytes: &[u8]) -> Result<PushConfigPage, Error> {
    let page: wire::ListTaskPushNotificationConfigsResponse = parse(bytes)?;
    Ok(PushConfigPage {
        configs: page.configs.into_iter().map(wire::TaskPushNotificationConfig::read).collect(),
        next_page_token: page.next_page_token,
    })
}

/// The text of something that may be absent.
fn text<T: ToString>(value: Option<T>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

pub(super) fn encode_request(request: Request) -> Vec<u8> {
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            wire::SendMessageRequest::from(*send).encode_to_vec()
        }
        Request::GetTask(get) => wire::GetTaskRequest {
            tenant: text(get.tenant),
            id: get.id.to_string(),
            history_length: get.history_length,
        }
        .encode_to_vec(),
        Request::ListTasks(list) => wire::ListTasksRequest {
            tenant: text(list.tenant),
            context_id: text(list.context_id),
            status: i32::from(list.status.number()),
            page_size: list.page_size,
            page_token: list.page_token.unwrap_or_default(),
            history_length: list.history_length,
            status_timestamp_after: list.status_timestamp_after.map(timestamp),
            include_artifacts: list.include_artifacts,
        }
        .encode_to_vec(),
        Request::CancelTask(cancel) => wire::CancelTaskRequest {
            tenant: text(cancel.tenant),
            id: cancel.id.to_string(),
            metadata: cancel.metadata.as_ref().map(object),
        }
        .encode_to_vec(),
        Request::SubscribeToTask(subscribe) => wire::SubscribeToTaskRequest {
            tenant: text(subscribe.tenant),
            id: subscribe.id.to_string(),
        }
        .encode_to_vec(),
        Request::CreateTaskPushNotificationConfig(config) => {
            wire::TaskPushNotificationConfig::from(config).encode_to_vec()
        }
        // Getting and deleting have the same three fields under the same numbers.
        Request::GetTaskPushNotificationConfig(config)
        | Request::DeleteTaskPushNotificationConfig(config) => {
            wire::GetTaskPushNotificationConfigRequest {
                tenant: text(config.tenant),
                task_id: config.task_id.to_string(),
                id: config.id.to_string(),
            }
            .encode_to_vec()
        }
        Request::ListTaskPushNotificationConfigs(list) => {
            wire::ListTaskPushNotificationConfigsRequest {
                tenant: text(list.tenant),
                task_id: list.task_id.to_string(),
                page_size: list.page_size.unwrap_or_default(),
                page_token: list.page_token.unwrap_or_default(),
            }
            .encode_to_vec()
        }
        Request::GetExtendedAgentCard(card) => {
            wire::GetExtendedAgentCardRequest { tenant: text(card.tenant) }.encode_to_vec()
        }
    }
}

impl From<SendMessage> for wire::SendMessageRequest {
    fn from(send: SendMessage) -> Self {
        let configuration = send.configuration;
        Self {
            tenant: text(send.tenant),
            message: Some(send.message.into()),
            configuration: Some(wire::SendMessageConfiguration {
                accepted_output_modes: configuration.accepted_output_modes,
                task_push_notification_config: configuration
                    .task_push_notification_config
                    .map(From::from),
                history_length: configuration.history_length,
                return_immediately: configuration.return_immediately,
            }),
            metadata: send.metadata.as_ref().map(object),
        }
    }
}

impl From<Message> for wire::Message {
    fn from(message: Message) -> Self {
        let references = message.reference_task_ids.iter();
        Self {
            message_id: message.message_id.to_string(),
            context_id: text(message.context_id),
            task_id: text(message.task_id),
            role: message.role as i32,
            parts: message.parts.into_iter().map(From::from).collect(),
            metadata: message.metadata.as_ref().map(object),
            extensions: message.extensions,
            reference_task_ids: references.map(ToString::to_string).collect(),
        }
    }
}

impl From<Part> for wire::Part {
    fn from(part: Part) -> Self {
        Self {
            content: Some(match part.content {
                Content::Text(text) => part::Content::Text(text),
                Content::Raw(bytes) => part::Content::Raw(bytes),
                Content::Url(url) => part::Content::Url(url),
                Content::Data(value) => part::Content::Data(super::value::wire(&value)),
            }),
            metadata: part.metadata.as_ref().map(object),
            filename: part.filename.unwrap_or_default(),
            media_type: part.media_type.unwrap_or_default(),
        }
    }
}

impl From<Task> for wire::Task {
    fn from(task: Task) -> Self {
        Self {
            id: task.id.to_string(),
            context_id: task.context_id.to_string(),
            status: Some(task.status.into()),
            artifacts: task.artifacts.into_iter().flatten().map(owned).collect(),
            history: task.history.into_iter().flatten().map(owned).collect(),
            metadata: task.metadata.as_ref().map(object),
        }
    }
}

impl From<TaskStatus> for wire::TaskStatus {
    fn from(status: TaskStatus) -> Self {
        Self {
            state: i32::from(status.state.number()),
            message: status.message.map(owned),
            timestamp: status.timestamp.map(timestamp),
        }
    }
}

impl From<Artifact> for wire::Artifact {
    fn from(artifact: Artifact) -> Self {
        Self {
            artifact_id: artifact.artifact_id.to_string(),
            name: artifact.name.unwrap_or_default(),
            description: artifact.description.unwrap_or_default(),
            parts: artifact.parts.into_iter().map(From::from).collect(),
            metadata: artifact.metadata.as_ref().map(object),
            extensions: artifact.extensions,
        }
    }
}

impl From<SendResult> for wire::SendMessageResponse {
    fn from(result: SendResult) -> Self {
        use send_message_response::Payload;
        Self {
            payload: Some(match result {
                SendResult::Task(task) => Payload::Task(task.into()),
                SendResult::Message(message) => Payload::Message(message.into()),
            }),
        }
    }
}

impl From<StreamEvent> for wire::StreamResponse {
    fn from(event: StreamEvent) -> Self {
        use stream_response::Payload;
        Self {
            payload: Some(match event {
                StreamEvent::Task(task) => Payload::Task(task.into()),
                StreamEvent::Message(message) => Payload::Message(message.into()),
                StreamEvent::StatusUpdate(update) => {
                    Payload::StatusUpdate(wire::TaskStatusUpdateEvent {
                        task_id: update.task_id.to_string(),
                        context_id: update.context_id.to_string(),
                        status: Some(update.status.into()),
                        metadata: update.metadata.as_ref().map(object),
                    })
                }
                StreamEvent::ArtifactUpdate(update) => {
                    Payload::ArtifactUpdate(wire::TaskArtifactUpdateEvent {
                        task_id: update.task_id.to_string(),
                        context_id: update.context_id.to_string(),
                        artifact: Some(update.artifact.into()),
                        append: update.append,
                        last_chunk: update.last_chunk,
                        metadata: update.metadata.as_ref().map(object),
                    })
                }
            }),
        }
    }
}

impl From<TaskPage> for wire::ListTasksResponse {
    fn from(page: TaskPage) -> Self {
        Self {
            tasks: page.tasks.into_iter().map(From::from).collect(),
            next_page_token: page.next_page_token,
            page_size: i32::try_from(page.page_size).unwrap_or(i32::MAX),
            total_size: i32::try_from(page.total_size).unwrap_or(i32::MAX),
        }
    }
}

impl From<PushConfig> for wire::TaskPushNotificationConfig {
    fn from(config: PushConfig) -> Self {
        Self {
            tenant: text(config.tenant),
            id: text(config.id),
            task_id: text(config.task_id),
            url: config.url,
            token: config.token.unwrap_or_default(),
            authentication: config.authentication.map(|authentication| wire::AuthenticationInfo {
                scheme: authentication.scheme,
                credentials: authentication.credentials.unwrap_or_default(),
            }),
        }
    }
}

pub(super) fn push_page(page: PushConfigPage) -> wire::ListTaskPushNotificationConfigsResponse {
    wire::ListTaskPushNotificationConfigsResponse {
        configs: page.configs.into_iter().map(From::from).collect(),
        next_page_token: page.next_page_token,
    }
}
