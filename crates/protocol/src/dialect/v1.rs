//! A2A 1.0, whose JSON is the serialized form of the types themselves.

use serde::Deserialize;

use crate::{
    error::Error,
    id::TaskId,
    json,
    message::Message,
    push::PushConfig,
    request::{CancelTask, Operation, Request},
    task::{ArtifactUpdate, SendResult, StatusUpdate, StreamEvent, Task},
    validate::{Validate, Violations, check},
};

/// The wrapper of a reply. Unlike the serde form of the enums it ignores unknown members.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendResultV1 {
    task: Option<Task>,
    message: Option<Message>,
    #[serde(alias = "status_update")]
    status_update: Option<StatusUpdate>,
    #[serde(alias = "artifact_update")]
    artifact_update: Option<ArtifactUpdate>,
}

/// Reads parameters; `task` is the one that a path names, if there is a path.
pub(super) fn decode(
    task: Option<&TaskId>,
    operation: Operation,
    params: &[u8],
) -> Result<Request, Error> {
    match operation {
        Operation::CancelTask => {
            let mut cancel: CancelTask = json::read(params)?;
            let named = Some(&cancel.id).filter(|id| !id.is_empty());
            cancel.id = agreed("id", task, named)?.cloned().unwrap_or_default();
            check(&cancel)?;
            Ok(Request::CancelTask(cancel))
        }
        Operation::CreateTaskPushNotificationConfig => {
            let mut config: PushConfig = json::read(params)?;
            let named = config.task_id.as_ref().filter(|id| !id.is_empty());
            config.task_id = agreed("taskId", task, named)?.cloned();
            Violations::collect(|at| {
                config.validate(at);
                if config.task_id.is_none() {
                    at.add("taskId", "is required");
                }
            })?;
            Ok(Request::CreateTaskPushNotificationConfig(config))
        }
        Operation::SendMessage
        | Operation::SendStreamingMessage
        | Operation::GetTask
        | Operation::ListTasks
        | Operation::SubscribeToTask
        | Operation::GetTaskPushNotificationConfig
        | Operation::ListTaskPushNotificationConfigs
        | Operation::DeleteTaskPushNotificationConfig
        | Operation::GetExtendedAgentCard => operation.decode(params),
    }
}

fn agreed<'a>(
    member: &str,
    path: Option<&'a TaskId>,
    body: Option<&'a TaskId>,
) -> Result<Option<&'a TaskId>, Error> {
    match (path, body) {
        (Some(path), Some(body)) if path != body => {
            Err(Error::field(member, "names another task than the path"))
        }
        (Some(task), _) | (None, Some(task)) => Ok(Some(task)),
        (None, None) => Ok(None),
    }
}

pub(super) fn send_result(bytes: &[u8]) -> Result<SendResult, Error> {
    let wrapper: SendResultV1 = json::read(bytes)?;
    match (wrapper.task, wrapper.message) {
        (Some(task), None) => Ok(SendResult::Task(task)),
        (None, Some(message)) => Ok(SendResult::Message(message)),
        (Some(_), Some(_)) | (None, None) => {
            Err(Error::field("", "expected exactly one of task and message"))
        }
    }
}

pub(super) fn event(bytes: &[u8]) -> Result<StreamEvent, Error> {
    let wrapper: SendResultV1 = json::read(bytes)?;
    let SendResultV1 { task, message, status_update, artifact_update } = wrapper;
    match (task, message, status_update, artifact_update) {
        (Some(task), None, None, None) => Ok(StreamEvent::Task(task)),
        (None, Some(message), None, None) => Ok(StreamEvent::Message(message)),
        (None, None, Some(update), None) => Ok(StreamEvent::StatusUpdate(update)),
        (None, None, None, Some(update)) => Ok(StreamEvent::ArtifactUpdate(update)),
        _ => Err(Error::field(
            "",
            "expected exactly one of task, message, statusUpdate and artifactUpdate",
        )),
    }
}

pub(super) fn encode_request(request: &Request) -> Vec<u8> {
    match request {
        Request::SendMessage(params) | Request::SendStreamingMessage(params) => json::write(params),
        Request::GetTask(params) => json::write(params),
        Request::ListTasks(params) => json::write(params),
        Request::CancelTask(params) => json::write(params),
        Request::SubscribeToTask(params) => json::write(params),
        Request::CreateTaskPushNotificationConfig(params) => json::write(params),
        Request::GetTaskPushNotificationConfig(params)
        | Request::DeleteTaskPushNotificationConfig(params) => json::write(params),
        Request::ListTaskPushNotificationConfigs(params) => json::write(params),
        Request::GetExtendedAgentCard(params) => json::write(params),
    }
}
