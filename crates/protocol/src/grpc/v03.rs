//! A2A 0.3 in protobuf: conversions to and from our types. Values without a field are in the metadata, as
//! on REST, whose JSON has the same messages.

use prost::Message as _;

use super::{
    filled,
    generated::v03::{self as wire, file_part, part, send_message_response, stream_response},
    named, owned, parse,
    v1::nothing,
    value::{moment, object, open, timestamp},
};
use crate::{
    dialect::{
        config_name, config_of, lift_names, lift_value, one_task, part_metadata, task_name, task_of,
    },
    error::Error,
    id::{ContextId, PushConfigId, TaskId},
    message::{Content, Message, Part, Role, check_content, decode_base64_text, encode_base64},
    open::Metadata,
    push::{PushAuthentication, PushConfig, PushConfigPage},
    request::{
        CancelTask, GetExtendedAgentCard, GetTask, ListPushConfigs, Operation, PushConfigRef,
        Request, SendConfiguration, SendMessage, SubscribeToTask,
    },
    task::{
        Artifact, ArtifactUpdate, SendResult, StatusUpdate, StreamEvent, Task, TaskState,
        TaskStatus,
    },
    validate::Violations,
};

pub(super) fn decode(operation: Operation, bytes: &[u8]) -> Result<Request, Error> {
    match operation {
        Operation::SendMessage => send(bytes).map(Box::new).map(Request::SendMessage),
        Operation::SendStreamingMessage => {
            send(bytes).map(Box::new).map(Request::SendStreamingMessage)
        }
        Operation::GetTask => {
            let get: wire::GetTaskRequest = parse(bytes)?;
            Violations::collect(|at| {
                at.not_negative("historyLength", Some(get.history_length));
                Request::GetTask(GetTask {
                    tenant: None,
                    id: required_task(&get.name, "name", at),
                    history_length: unless_zero(get.history_length),
                })
            })
        }
        // 0.3 has no list, so no method leads here.
        Operation::ListTasks => Ok(Request::ListTasks(Default::default())),
        Operation::CancelTask => {
            let cancel: wire::CancelTaskRequest = parse(bytes)?;
            Violations::collect(|at| {
                let id = required_task(&cancel.name, "name", at);
                Request::CancelTask(CancelTask { id, ..CancelTask::default() })
            })
        }
        Operation::SubscribeToTask => {
            let subscribe: wire::TaskSubscriptionRequest = parse(bytes)?;
            Violations::collect(|at| {
                Request::SubscribeToTask(SubscribeToTask {
                    id: required_task(&subscribe.name, "name", at),
                    replay_finished: true,
                    ..SubscribeToTask::default()
                })
            })
        }
        Operation::CreateTaskPushNotificationConfig => {
            let create: wire::CreateTaskPushNotificationConfigRequest = parse(bytes)?;
            Violations::collect(|at| {
                Request::CreateTaskPushNotificationConfig(create_config(create, at))
            })
        }
        Operation::GetTaskPushNotificationConfig => {
            let get: wire::GetTaskPushNotificationConfigRequest = parse(bytes)?;
            Violations::collect(|at| {
                Request::GetTaskPushNotificationConfig(config_ref(&get.name, at))
            })
        }
        Operation::DeleteTaskPushNotificationConfig => {
            let delete: wire::DeleteTaskPushNotificationConfigRequest = parse(bytes)?;
            Violations::collect(|at| {
                let config = config_ref(&delete.name, at);
                at.required_id("pushNotificationConfigId", config.id.as_str());
                Request::DeleteTaskPushNotificationConfig(config)
            })
        }
        Operation::ListTaskPushNotificationConfigs => {
            let list: wire::ListTaskPushNotificationConfigRequest = parse(bytes)?;
            Violations::collect(|at| {
                at.not_negative("pageSize", Some(list.page_size));
                Request::ListTaskPushNotificationConfigs(ListPushConfigs {
                    tenant: None,
                    task_id: required_task(&list.parent, "parent", at),
                    page_size: unless_zero(list.page_size),
                    page_token: filled(list.page_token),
                })
            })
        }
        Operation::GetExtendedAgentCard => {
            parse::<wire::GetAgentCardRequest>(bytes)?;
            Ok(Request::GetExtendedAgentCard(GetExtendedAgentCard::default()))
        }
    }
}

/// Zero and unset look the same, so that zero sets no limit.
fn unless_zero(number: i32) -> Option<i32> {
    Some(number).filter(|number| *number != 0)
}

/// The task that a resource name must name.
fn required_task(name: &str, field: &'static str, at: &mut Violations<'_>) -> TaskId {
    if name.is_empty() {
        at.add(field, "is required");
        return TaskId::default();
    }
    // A name of another form is a violation, and so is a name without a task.
    if let Some(task) = task_of(Some(name), field, at) {
        at.required_id(field, task);
        return task.into();
    }
    TaskId::default()
}

fn config_ref(name: &str, at: &mut Violations<'_>) -> PushConfigRef {
    let task_id = required_task(name, "name", at);
    let id = config_of(name).unwrap_or_default();
    at.optional_id("name", Some(id).filter(|id| !id.is_empty()));
    PushConfigRef { tenant: None, task_id, id: id.into() }
}

fn create_config(
    create: wire::CreateTaskPushNotificationConfigRequest,
    at: &mut Violations<'_>,
) -> PushConfig {
    let config = create.config.unwrap_or_default();
    let task = one_task(
        [
            ("parent", task_of(Some(&create.parent), "parent", at)),
            ("config.name", task_of(Some(&config.name), "config.name", at)),
        ],
        at,
    )
    .map(TaskId::from);
    at.required_id("parent", task.as_ref().map_or("", TaskId::as_str));
    let outer = filled(create.config_id)
        .or_else(|| config_of(&config.name).map(str::to_owned))
        .map(PushConfigId::from);
    let Some(push) = config.push_notification_config else {
        at.add("config.pushNotificationConfig", "is required");
        return PushConfig::default();
    };
    let mut read = at.within("config.pushNotificationConfig", |at| push.checked(at));
    read.id = read.id.or(outer);
    at.optional_id("configId", read.id.as_ref().map(PushConfigId::as_str));
    read.task_id = task;
    read
}

fn send(bytes: &[u8]) -> Result<SendMessage, Error> {
    let send: wire::SendMessageRequest = parse(bytes)?;
    Violations::collect(|at| {
        let message = match send.request {
            Some(message) => at.within("message", |at| message.checked(at)),
            None => {
                at.add("message", "is required");
                Message::default()
            }
        };
        let configuration = send.configuration.unwrap_or_default();
        let configuration = at.within("configuration", |at| configuration.read(at));
        SendMessage {
            message,
            configuration,
            metadata: open(send.metadata, "metadata", at),
            infer_task: true,
            ..SendMessage::default()
        }
    })
}

impl wire::SendMessageConfiguration {
    fn read(self, at: &mut Violations<'_>) -> SendConfiguration {
        at.not_negative("historyLength", Some(self.history_length));
        let push = self.push_notification;
        SendConfiguration {
            accepted_output_modes: self.accepted_output_modes,
            task_push_notification_config: push
                .map(|push| at.within("pushNotification", |at| push.checked(at))),
            history_length: unless_zero(self.history_length),
            return_immediately: !self.blocking,
        }
    }
}

impl wire::Message {
    /// The message of a send, with the checks of 0.3.
    fn checked(self, at: &mut Violations<'_>) -> Message {
        if self.role() == wire::Role::Unspecified {
            at.add("role", "is required");
        }
        let message = self.read(at);
        at.required_id("messageId", message.message_id.as_str());
        at.optional_id("contextId", message.context_id.as_ref().map(ContextId::as_str));
        at.optional_id("taskId", message.task_id.as_ref().map(TaskId::as_str));
        check_content(&message, at);
        if message.parts.is_empty() {
            at.add("content", "must hold at least one part");
        }
        message
    }

    fn read(self, at: &mut Violations<'_>) -> Message {
        Message {
            role: match self.role() {
                wire::Role::Unspecified | wire::Role::User => Role::User,
                wire::Role::Agent => Role::Agent,
            },
            message_id: self.message_id.into(),
            context_id: named(self.context_id),
            task_id: named(self.task_id),
            parts: parts(self.content, "content", at),
            metadata: open(self.metadata, "metadata", at),
            extensions: self.extensions,
            reference_task_ids: Vec::new(),
        }
    }
}

fn parts(parts: Vec<wire::Part>, member: &str, at: &mut Violations<'_>) -> Vec<Part> {
    let read = |(index, part): (usize, wire::Part)| {
        at.within(&format!("{member}[{index}]"), |at| part.read(at))
    };
    parts.into_iter().enumerate().map(read).collect()
}

impl wire::Part {
    fn read(self, at: &mut Violations<'_>) -> Part {
        let mut part = Part::text("");
        part.metadata = open(self.metadata, "metadata", at);
        match self.part {
            Some(part::Part::Text(text)) => {
                part.content = Content::Text(text);
                lift_names(&mut part);
            }
            Some(part::Part::Data(data)) => {
                let data = open(data.data, "data", at).unwrap_or_default();
                part.content = Content::Data(lift_value(data.into_json(), &mut part.metadata));
                lift_names(&mut part);
            }
            Some(part::Part::File(file)) => {
                part.filename = filled(file.name);
                part.media_type = filled(file.mime_type);
                part.content = match file.file {
                    Some(file_part::File::FileWithUri(uri)) => Content::Url(uri),
                    // Most SDKs put base64 text here, where bytes were meant.
                    Some(file_part::File::FileWithBytes(bytes)) => {
                        Content::Raw(decode_base64_text(&bytes).unwrap_or(bytes))
                    }
                    None => {
                        at.add("file", "must have either bytes or a uri");
                        Content::Text(String::new())
                    }
                };
            }
            None => at.add("", "must hold exactly one of text, file and data"),
        }
        part
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
        let state = u64::try_from(self.state).ok().and_then(TaskState::from_number);
        if state.is_none() {
            at.add("state", "is not a task state");
        }
        TaskStatus {
            state: state.unwrap_or_default(),
            message: self.update.map(|message| message.read(at).into()),
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
            parts: parts(self.parts, "parts", at),
            metadata: open(self.metadata, "metadata", at),
            extensions: self.extensions,
        }
    }
}

impl wire::PushNotificationConfig {
    /// A webhook of a request, with its checks.
    fn checked(self, at: &mut Violations<'_>) -> PushConfig {
        if self.url.is_empty() {
            at.add("url", "is required");
        }
        let config = self.read();
        at.optional_id("id", config.id.as_ref().map(PushConfigId::as_str));
        config
    }

    fn read(self) -> PushConfig {
        PushConfig {
            tenant: None,
            id: named(self.id),
            task_id: None,
            url: self.url,
            token: filled(self.token),
            authentication: self.authentication.map(|authentication| PushAuthentication {
                scheme: authentication.schemes.into_iter().next().unwrap_or_default(),
                credentials: filled(authentication.credentials),
            }),
        }
    }
}

impl wire::TaskPushNotificationConfig {
    fn read(self, at: &mut Violations<'_>) -> PushConfig {
        let mut config = self.push_notification_config.unwrap_or_default().read();
        config.task_id = task_of(Some(&self.name), "name", at).map(TaskId::from);
        config.id = config.id.or_else(|| config_of(&self.name).map(PushConfigId::from));
        config
    }
}

pub(super) fn task(bytes: &[u8]) -> Result<Task, Error> {
    let task: wire::Task = parse(bytes)?;
    Violations::collect(|at| task.read(at))
}

pub(super) fn send_result(bytes: &[u8]) -> Result<SendResult, Error> {
    use send_message_response::Payload;
    let response: wire::SendMessageResponse = parse(bytes)?;
    let payload = response.payload.ok_or_else(|| nothing("task and msg"))?;
    Violations::collect(|at| match payload {
        Payload::Task(task) => SendResult::Task(task.read(at)),
        Payload::Msg(message) => SendResult::Message(message.read(at)),
    })
}

pub(super) fn event(bytes: &[u8]) -> Result<StreamEvent, Error> {
    use stream_response::Payload;
    let response: wire::StreamResponse = parse(bytes)?;
    let payload =
        response.payload.ok_or_else(|| nothing("task, msg, status_update and artifact_update"))?;
    Violations::collect(|at| match payload {
        Payload::Task(task) => StreamEvent::Task(task.read(at)),
        Payload::Msg(message) => StreamEvent::Message(message.read(at)),
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

pub(super) fn push_config(bytes: &[u8]) -> Result<PushConfig, Error> {
    let config: wire::TaskPushNotificationConfig = parse(bytes)?;
    Violations::collect(|at| config.read(at))
}

pub(super) fn read_push_page(bytes: &[u8]) -> Result<PushConfigPage, Error> {
    let page: wire::ListTaskPushNotificationConfigResponse = parse(bytes)?;
    Violations::collect(|at| PushConfigPage {
        configs: page.configs.into_iter().map(|config| config.read(at)).collect(),
        next_page_token: page.next_page_token,
    })
}

pub(super) fn encode_request(request: Request) -> Vec<u8> {
    match request {
        Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
            wire::SendMessageRequest::from(*send).encode_to_vec()
        }
        Request::GetTask(get) => wire::GetTaskRequest {
            name: task_name(&get.id),
            history_length: get.history_length.unwrap_or_default(),
        }
        .encode_to_vec(),
        Request::ListTasks(_) | Request::GetExtendedAgentCard(_) => Vec::new(),
        Request::CancelTask(cancel) => {
            wire::CancelTaskRequest { name: task_name(&cancel.id) }.encode_to_vec()
        }
        Request::SubscribeToTask(subscribe) => {
            wire::TaskSubscriptionRequest { name: task_name(&subscribe.id) }.encode_to_vec()
        }
        Request::CreateTaskPushNotificationConfig(config) => {
            wire::CreateTaskPushNotificationConfigRequest {
                parent: config.task_id.as_ref().map(task_name).unwrap_or_default(),
                config_id: config.id.as_ref().map(ToString::to_string).unwrap_or_default(),
                config: Some(config.into()),
            }
            .encode_to_vec()
        }
        // Getting and deleting have the same field under the same number.
        Request::GetTaskPushNotificationConfig(config)
        | Request::DeleteTaskPushNotificationConfig(config) => {
            let name = config_name(&config.task_id, config.id.as_str());
            wire::GetTaskPushNotificationConfigRequest { name }.encode_to_vec()
        }
        Request::ListTaskPushNotificationConfigs(list) => {
            wire::ListTaskPushNotificationConfigRequest {
                parent: task_name(&list.task_id),
                page_size: list.page_size.unwrap_or_default(),
                page_token: list.page_token.unwrap_or_default(),
            }
            .encode_to_vec()
        }
    }
}

impl From<SendMessage> for wire::SendMessageRequest {
    fn from(send: SendMessage) -> Self {
        let configuration = send.configuration;
        Self {
            request: Some(send.message.into()),
            configuration: Some(wire::SendMessageConfiguration {
                accepted_output_modes: configuration.accepted_output_modes,
                push_notification: configuration.task_push_notification_config.map(From::from),
                history_length: configuration.history_length.unwrap_or_default(),
                blocking: !configuration.return_immediately,
            }),
            metadata: send.metadata.as_ref().map(object),
        }
    }
}

impl From<Message> for wire::Message {
    fn from(message: Message) -> Self {
        Self {
            message_id: message.message_id.to_string(),
            context_id: message.context_id.map(|id| id.to_string()).unwrap_or_default(),
            task_id: message.task_id.map(|id| id.to_string()).unwrap_or_default(),
            role: message.role as i32,
            content: message.parts.into_iter().map(From::from).collect(),
            metadata: message.metadata.as_ref().map(object),
            extensions: message.extensions,
        }
    }
}

impl From<Part> for wire::Part {
    fn from(part: Part) -> Self {
        let metadata = part_metadata(&part).as_deref().map(object);
        let file = |file, name: Option<String>, media_type: Option<String>| {
            part::Part::File(wire::FilePart {
                file: Some(file),
                mime_type: media_type.unwrap_or_default(),
                name: name.unwrap_or_default(),
            })
        };
        let content = match part.content {
            Content::Text(text) => part::Part::Text(text),
            Content::Raw(bytes) => {
                // As text, because some SDKs read nothing else here.
                let bytes = encode_base64(&bytes).into_bytes();
                let bytes = file_part::File::FileWithBytes(bytes);
                file(bytes, part.filename, part.media_type)
            }
            Content::Url(url) => {
                file(file_part::File::FileWithUri(url), part.filename, part.media_type)
            }
            Content::Data(value) => {
                let data = value.into_object().unwrap_or_else(|value| {
                    let mut object = Metadata::new();
                    object.insert("value", value);
                    object
                });
                part::Part::Data(wire::DataPart { data: Some(object(&data)) })
            }
        };
        Self { part: Some(content), metadata }
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
            update: status.message.map(owned),
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
                SendResult::Message(message) => Payload::Msg(message.into()),
            }),
        }
    }
}

pub(super) fn stream_response(event: StreamEvent, closing: bool) -> wire::StreamResponse {
    use stream_response::Payload;
    let payload = match event {
        StreamEvent::Task(task) => Payload::Task(task.into()),
        StreamEvent::Message(message) => Payload::Msg(message.into()),
        StreamEvent::StatusUpdate(update) => Payload::StatusUpdate(wire::TaskStatusUpdateEvent {
            task_id: update.task_id.to_string(),
            context_id: update.context_id.to_string(),
            status: Some(update.status.into()),
            r#final: closing,
            metadata: update.metadata.as_ref().map(object),
        }),
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
    };
    wire::StreamResponse { payload: Some(payload) }
}

impl From<PushConfig> for wire::PushNotificationConfig {
    fn from(config: PushConfig) -> Self {
        Self {
            id: config.id.map(|id| id.to_string()).unwrap_or_default(),
            url: config.url,
            token: config.token.unwrap_or_default(),
            authentication: config.authentication.map(|authentication| wire::AuthenticationInfo {
                schemes: filled(authentication.scheme).into_iter().collect(),
                credentials: authentication.credentials.unwrap_or_default(),
            }),
        }
    }
}

impl From<PushConfig> for wire::TaskPushNotificationConfig {
    fn from(config: PushConfig) -> Self {
        let id = config.id.as_ref().map_or("", PushConfigId::as_str);
        let name = config.task_id.as_ref().map(|task| config_name(task, id));
        Self { name: name.unwrap_or_default(), push_notification_config: Some(config.into()) }
    }
}

pub(super) fn push_page(page: PushConfigPage) -> wire::ListTaskPushNotificationConfigResponse {
    wire::ListTaskPushNotificationConfigResponse {
        configs: page.configs.into_iter().map(From::from).collect(),
        next_page_token: page.next_page_token,
    }
}
