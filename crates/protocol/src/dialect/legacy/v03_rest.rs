//! A2A 0.3 on REST: the JSON form of its protobuf messages. Readers of it refuse members that
//! the messages do not have, so nothing else is written.

use serde::Serialize;

use super::{
    LegacyShape,
    v03_write::{Closing, LegacyForm, PushForm, SendForm},
};
use crate::{
    id::TaskId,
    json,
    message::Message,
    push::{PushConfig, PushConfigPage},
    request::{PushConfigRef, Request},
    task::{ArtifactUpdate, SendResult, StreamEvent, Task},
};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum RestWrapper<'a> {
    Task(LegacyForm<'a, Task>),
    Message(LegacyForm<'a, Message>),
    StatusUpdate(Closing<'a>),
    ArtifactUpdate(LegacyForm<'a, ArtifactUpdate>),
}

pub(in crate::dialect) fn encode_send_result(result: &SendResult) -> Vec<u8> {
    json::write(&match result {
        SendResult::Task(task) => RestWrapper::Task(LegacyForm(LegacyShape::Rest, task)),
        SendResult::Message(message) => {
            RestWrapper::Message(LegacyForm(LegacyShape::Rest, message))
        }
    })
}

pub(in crate::dialect) fn encode_event(event: &StreamEvent, closing: bool) -> Vec<u8> {
    json::write(&match event {
        StreamEvent::Task(task) => RestWrapper::Task(LegacyForm(LegacyShape::Rest, task)),
        StreamEvent::Message(message) => {
            RestWrapper::Message(LegacyForm(LegacyShape::Rest, message))
        }
        StreamEvent::StatusUpdate(update) => {
            RestWrapper::StatusUpdate(Closing(LegacyShape::Rest, update, closing))
        }
        StreamEvent::ArtifactUpdate(update) => {
            RestWrapper::ArtifactUpdate(LegacyForm(LegacyShape::Rest, update))
        }
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PushResourceRest<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    push_notification_config: PushForm<'a>,
}

impl<'a> From<&'a PushConfig> for PushResourceRest<'a> {
    fn from(config: &'a PushConfig) -> Self {
        let id = config.id.as_ref().map_or("", |id| id.as_str());
        let name = config.task_id.as_ref().map(|task| config_name(task, id));
        Self { name, push_notification_config: PushForm(config) }
    }
}

pub(crate) fn task_name(task: &TaskId) -> String {
    format!("tasks/{task}")
}

pub(crate) fn config_name(task: &TaskId, config: &str) -> String {
    format!("tasks/{task}/pushNotificationConfigs/{config}")
}

pub(in crate::dialect) fn encode_push_config(config: &PushConfig) -> Vec<u8> {
    json::write(&PushResourceRest::from(config))
}

pub(in crate::dialect) fn encode_push_page(page: &PushConfigPage) -> Vec<u8> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct PushPageRest<'a> {
        configs: Vec<PushResourceRest<'a>>,
        next_page_token: &'a str,
    }
    json::write(&PushPageRest {
        configs: page.configs.iter().map(PushResourceRest::from).collect(),
        next_page_token: &page.next_page_token,
    })
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TargetRest {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    history_length: Option<i32>,
}

impl TargetRest {
    fn task(id: &TaskId) -> Self {
        Self { name: task_name(id), history_length: None }
    }

    fn config(config: &PushConfigRef) -> Self {
        Self { name: config_name(&config.task_id, config.id.as_str()), history_length: None }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<'a> {
    parent: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_size: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    page_token: Option<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Create<'a> {
    parent: String,
    config_id: &'a str,
    config: PushResourceRest<'a>,
}

pub(in crate::dialect) fn encode_request(request: &Request) -> Vec<u8> {
    match request {
        Request::SendMessage(params) | Request::SendStreamingMessage(params) => {
            json::write(&SendForm(LegacyShape::Rest, params))
        }
        Request::GetTask(params) => json::write(&TargetRest {
            history_length: params.history_length,
            ..TargetRest::task(&params.id)
        }),
        Request::ListTasks(params) => json::write(params),
        Request::CancelTask(params) => json::write(&TargetRest::task(&params.id)),
        Request::SubscribeToTask(params) => json::write(&TargetRest::task(&params.id)),
        Request::CreateTaskPushNotificationConfig(config) => json::write(&Create {
            parent: task_name(config.task_id.as_ref().unwrap_or(&TaskId::default())),
            config_id: config.id.as_ref().map_or("", |id| id.as_str()),
            config: config.into(),
        }),
        Request::GetTaskPushNotificationConfig(config)
        | Request::DeleteTaskPushNotificationConfig(config) => {
            json::write(&TargetRest::config(config))
        }
        Request::ListTaskPushNotificationConfigs(params) => json::write(&List {
            parent: task_name(&params.task_id),
            page_size: params.page_size,
            page_token: params.page_token.as_deref(),
        }),
        Request::GetExtendedAgentCard(_) => b"{}".to_vec(),
    }
}
