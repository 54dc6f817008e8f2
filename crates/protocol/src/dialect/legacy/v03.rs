//! A2A 0.3 and 0.2 on JSON-RPC: method names, and objects with a `kind` member.

use serde::Serialize;

use super::{
    LegacyShape,
    v03_write::{Closing, LegacyForm, PushForm, SendForm},
};
use crate::{
    id::TaskId,
    json,
    open::Metadata,
    push::{PushConfig, PushConfigPage},
    request::{Operation, PushConfigRef, Request},
    task::{SendResult, StreamEvent},
};

/// The method of an operation. Listing tasks came with 1.0.
pub(in crate::dialect) const fn method(operation: Operation) -> Option<&'static str> {
    match operation {
        Operation::SendMessage => Some("message/send"),
        Operation::SendStreamingMessage => Some("message/stream"),
        Operation::GetTask => Some("tasks/get"),
        Operation::ListTasks => None,
        Operation::CancelTask => Some("tasks/cancel"),
        Operation::SubscribeToTask => Some("tasks/resubscribe"),
        Operation::CreateTaskPushNotificationConfig => Some("tasks/pushNotificationConfig/set"),
        Operation::GetTaskPushNotificationConfig => Some("tasks/pushNotificationConfig/get"),
        Operation::ListTaskPushNotificationConfigs => Some("tasks/pushNotificationConfig/list"),
        Operation::DeleteTaskPushNotificationConfig => Some("tasks/pushNotificationConfig/delete"),
        Operation::GetExtendedAgentCard => Some("agent/getAuthenticatedExtendedCard"),
    }
}

/// The operation of a method, an old name for streaming included.
pub(in crate::dialect) fn operation(name: &str) -> Option<Operation> {
    match name {
        "message/sendStream" => Some(Operation::SendStreamingMessage),
        _ => Operation::ALL.iter().copied().find(|operation| method(*operation) == Some(name)),
    }
}

pub(in crate::dialect) fn encode_send_result(result: &SendResult) -> Vec<u8> {
    match result {
        SendResult::Task(task) => json::write(&LegacyForm(LegacyShape::Rpc, task)),
        SendResult::Message(message) => json::write(&LegacyForm(LegacyShape::Rpc, message)),
    }
}

pub(in crate::dialect) fn encode_event(event: &StreamEvent, closing: bool) -> Vec<u8> {
    match event {
        StreamEvent::Task(task) => json::write(&LegacyForm(LegacyShape::Rpc, task)),
        StreamEvent::Message(message) => json::write(&LegacyForm(LegacyShape::Rpc, message)),
        StreamEvent::StatusUpdate(update) => {
            json::write(&Closing(LegacyShape::Rpc, update, closing))
        }
        StreamEvent::ArtifactUpdate(update) => json::write(&LegacyForm(LegacyShape::Rpc, update)),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushResourceRpc<'a> {
    task_id: &'a str,
    push_notification_config: PushForm<'a>,
}

impl<'a> From<&'a PushConfig> for PushResourceRpc<'a> {
    fn from(config: &'a PushConfig) -> Self {
        let task_id = config.task_id.as_ref().map_or("", TaskId::as_str);
        Self { task_id, push_notification_config: PushForm(config) }
    }
}

pub(in crate::dialect) fn encode_push_config(config: &PushConfig) -> Vec<u8> {
    json::write(&PushResourceRpc::from(config))
}

pub(in crate::dialect) fn encode_push_page(page: &PushConfigPage) -> Vec<u8> {
    let configs: Vec<_> = page.configs.iter().map(PushResourceRpc::from).collect();
    json::write(&configs)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TargetRpc<'a> {
    id: &'a TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_notification_config_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<&'a Metadata>,
}

impl<'a> TargetRpc<'a> {
    fn task(id: &'a TaskId) -> Self {
        Self { id, push_notification_config_id: None, history_length: None, metadata: None }
    }

    fn config(config: &'a PushConfigRef) -> Self {
        let id = Some(config.id.as_str()).filter(|id| !id.is_empty());
        Self { push_notification_config_id: id, ..Self::task(&config.task_id) }
    }
}

pub(in crate::dialect) fn encode_request(request: &Request) -> Vec<u8> {
    match request {
        Request::SendMessage(params) | Request::SendStreamingMessage(params) => {
            json::write(&SendForm(LegacyShape::Rpc, params))
        }
        Request::GetTask(params) => json::write(&TargetRpc {
            history_length: params.history_length,
            ..TargetRpc::task(&params.id)
        }),
        Request::ListTasks(params) => json::write(params),
        Request::CancelTask(params) => json::write(&TargetRpc {
            metadata: params.metadata.as_ref(),
            ..TargetRpc::task(&params.id)
        }),
        Request::SubscribeToTask(params) => json::write(&TargetRpc::task(&params.id)),
        Request::CreateTaskPushNotificationConfig(config) => encode_push_config(config),
        Request::GetTaskPushNotificationConfig(config)
        | Request::DeleteTaskPushNotificationConfig(config) => {
            json::write(&TargetRpc::config(config))
        }
        Request::ListTaskPushNotificationConfigs(params) => {
            json::write(&TargetRpc::task(&params.task_id))
        }
        Request::GetExtendedAgentCard(_) => b"{}".to_vec(),
    }
}
