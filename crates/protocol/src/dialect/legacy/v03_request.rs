//! Reader of requests before 1.0, in any of their JSON shapes and in the spellings of their SDKs.

use serde::Deserialize;

use super::{LegacyShape, v01, v03_read as read};
use crate::{
    error::Error,
    id::{ContextId, PushConfigId, TaskId},
    json,
    message::{Message, check_content},
    open::Metadata,
    push::{PushAuthentication, PushConfig, PushConfigPage},
    request::{
        CancelTask, GetExtendedAgentCard, GetTask, ListPushConfigs, Operation, PushConfigRef,
        Request, SendConfiguration, SendMessage, SubscribeToTask,
    },
    validate::{Violations, null_as_default},
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SendBody {
    #[serde(alias = "request")]
    message: Option<read::LegacyMessage>,
    configuration: Option<Configuration>,
    metadata: Option<Metadata>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub(in crate::dialect) struct Configuration {
    #[serde(default, alias = "accepted_output_modes", deserialize_with = "null_as_default")]
    accepted_output_modes: Vec<String>,
    #[serde(
        alias = "push_notification_config",
        alias = "pushNotification",
        alias = "push_notification"
    )]
    push_notification_config: Option<Push>,
    #[serde(alias = "history_length")]
    history_length: Option<i32>,
    blocking: Option<bool>,
}

/// The ids of a task and, for some operations, of one of its webhooks.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TargetBody {
    id: Option<TaskId>,
    task_id: Option<TaskId>,
    #[serde(rename = "task_id")]
    snake_task_id: Option<TaskId>,
    name: Option<String>,
    parent: Option<String>,
    #[serde(alias = "push_notification_config_id")]
    push_notification_config_id: Option<PushConfigId>,
    #[serde(alias = "history_length")]
    history_length: Option<i32>,
    #[serde(alias = "page_size")]
    page_size: Option<i32>,
    #[serde(alias = "page_token")]
    page_token: Option<String>,
    metadata: Option<Metadata>,
}

/// A webhook with its task, in each shape that was seen: nested, wrapped in a create request
/// under `config`, or flat.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct PushResourceBody {
    id: Option<String>,
    task_id: Option<TaskId>,
    #[serde(rename = "task_id")]
    snake_task_id: Option<TaskId>,
    name: Option<String>,
    parent: Option<String>,
    #[serde(alias = "config_id")]
    config_id: Option<PushConfigId>,
    config: Option<Box<Self>>,
    #[serde(alias = "push_notification_config")]
    push_notification_config: Option<Push>,
    #[serde(default, deserialize_with = "null_as_default")]
    url: String,
    token: Option<String>,
    authentication: Option<Authentication>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub(in crate::dialect) struct Push {
    id: Option<PushConfigId>,
    #[serde(default, deserialize_with = "null_as_default")]
    url: String,
    token: Option<String>,
    authentication: Option<Authentication>,
}

#[derive(Deserialize)]
#[serde(remote = "Self")]
struct Authentication {
    #[serde(default, deserialize_with = "null_as_default")]
    schemes: Vec<String>,
    scheme: Option<String>,
    credentials: Option<String>,
}

/// Reads `params` as `operation` asks and checks the required fields. `path` is the task that a
/// path names, if there is a path.
pub(in crate::dialect) fn decode(
    shape: LegacyShape,
    path: Option<&TaskId>,
    operation: Operation,
    params: &[u8],
) -> Result<Request, Error> {
    let path = path.map(TaskId::as_str);
    match operation {
        Operation::SendMessage => send(shape, params).map(Box::new).map(Request::SendMessage),
        Operation::SendStreamingMessage => {
            send(shape, params).map(Box::new).map(Request::SendStreamingMessage)
        }
        Operation::GetTask => target(params, |target, at| {
            at.not_negative("historyLength", target.history_length);
            Request::GetTask(GetTask {
                tenant: None,
                id: target.task(path, at),
                history_length: shape.history_length(target.history_length),
            })
        }),
        // 0.3 has no list, so no method and no route of it leads here.
        Operation::ListTasks => operation.decode(params),
        Operation::CancelTask => target(params, |mut target, at| {
            let id = target.task(path, at);
            // Servers with this spelling accept a cancel of a task that has ended.
            let return_ended = path.is_none() && target.task_id.is_some();
            let metadata = target.metadata.take();
            Request::CancelTask(CancelTask { tenant: None, id, metadata, return_ended })
        }),
        Operation::SubscribeToTask => target(params, |target, at| {
            let id = target.task(path, at);
            Request::SubscribeToTask(SubscribeToTask {
                tenant: None,
                id,
                after: None,
                replay_finished: true,
            })
        }),
        Operation::CreateTaskPushNotificationConfig => {
            let resource: PushResourceBody = json::read(params)?;
            Violations::collect(|at| {
                let mut config = resource.read(path, at);
                at.required_id("taskId", config.task_id.as_ref().map_or("", TaskId::as_str));
                if shape == LegacyShape::V01 {
                    v01::name_push(&mut config);
                }
                Request::CreateTaskPushNotificationConfig(config)
            })
        }
        Operation::GetTaskPushNotificationConfig => target(params, |target, at| {
            Request::GetTaskPushNotificationConfig(target.config(path, at))
        }),
        Operation::DeleteTaskPushNotificationConfig => target(params, |target, at| {
            let config = target.config(path, at);
            at.required_id("pushNotificationConfigId", config.id.as_str());
            Request::DeleteTaskPushNotificationConfig(config)
        }),
        Operation::ListTaskPushNotificationConfigs => target(params, |mut target, at| {
            let task_id = target.task(path, at);
            // The reply on JSON-RPC is a bare array, which has no page token.
            if shape != LegacyShape::Rest {
                return Request::ListTaskPushNotificationConfigs(ListPushConfigs {
                    task_id,
                    ..ListPushConfigs::default()
                });
            }
            at.not_negative("pageSize", target.page_size);
            Request::ListTaskPushNotificationConfigs(ListPushConfigs {
                tenant: None,
                task_id,
                page_size: target.page_size.filter(|size| *size != 0),
                page_token: target.page_token.take().filter(|token| !token.is_empty()),
            })
        }),
        Operation::GetExtendedAgentCard => {
            Ok(Request::GetExtendedAgentCard(GetExtendedAgentCard::default()))
        }
    }
}

fn send(shape: LegacyShape, params: &[u8]) -> Result<SendMessage, Error> {
    if shape == LegacyShape::V01 {
        return v01::send(params);
    }
    let SendBody { message, configuration, metadata } = json::read(params)?;
    // Without a configuration a send waits on every binding.
    let configuration = configuration.unwrap_or_else(Configuration::waiting);
    Violations::collect(|at| {
        let message = sent(shape, message, at);
        let configuration = at.within("configuration", |at| configuration.read(shape, at));
        let infer_task = true;
        SendMessage { message, configuration, metadata, infer_task, ..SendMessage::default() }
    })
}

/// The message of a send, which is required and must not be empty.
pub(in crate::dialect) fn sent(
    shape: LegacyShape,
    message: Option<read::LegacyMessage>,
    at: &mut Violations<'_>,
) -> Message {
    let Some(message) = message else {
        at.add("message", "is required");
        return Message::default();
    };
    at.within("message", |at| {
        if shape != LegacyShape::V01 {
            message.require(at);
        }
        let message = message.read(shape, at);
        let id = Some(message.message_id.as_str()).filter(|id| !id.is_empty());
        at.optional_id("messageId", id);
        at.optional_id("contextId", message.context_id.as_ref().map(ContextId::as_str));
        at.optional_id("taskId", message.task_id.as_ref().map(TaskId::as_str));
        check_content(&message, at);
        if message.parts.is_empty() {
            at.add(shape.parts(), "must hold at least one part");
        }
        message
    })
}

fn target(
    params: &[u8],
    read: impl FnOnce(TargetBody, &mut Violations<'_>) -> Request,
) -> Result<Request, Error> {
    let target: TargetBody = json::read(params)?;
    Violations::collect(|at| read(target, at))
}

impl Configuration {
    fn waiting() -> Self {
        Self { blocking: Some(true), ..Self::default() }
    }

    pub(in crate::dialect) fn read(
        self,
        shape: LegacyShape,
        at: &mut Violations<'_>,
    ) -> SendConfiguration {
        at.not_negative("historyLength", self.history_length);
        let push = self.push_notification_config.map(|push| push.read(None, shape.push(), at));
        let blocking = self.blocking.unwrap_or(match shape {
            LegacyShape::Rpc | LegacyShape::V01 => true,
            // Clients write the JSON of the protobuf here, which leaves out a false.
            LegacyShape::Rest => false,
        });
        SendConfiguration {
            accepted_output_modes: self.accepted_output_modes,
            task_push_notification_config: push,
            history_length: shape.history_length(self.history_length),
            return_immediately: !blocking,
        }
    }
}

impl TargetBody {
    fn task(&self, path: Option<&str>, at: &mut Violations<'_>) -> TaskId {
        let task = one_task(
            [
                ("the path", path),
                ("id", self.id.as_ref().map(TaskId::as_str)),
                ("taskId", self.task_id.as_ref().map(TaskId::as_str)),
                ("task_id", self.snake_task_id.as_ref().map(TaskId::as_str)),
                ("name", task_of(self.name.as_deref(), "name", at)),
                ("parent", task_of(self.parent.as_deref(), "parent", at)),
            ],
            at,
        );
        at.required_id("id", task.unwrap_or_default());
        task.unwrap_or_default().into()
    }

    /// Without an id it means the only webhook of the task.
    fn config(&self, path: Option<&str>, at: &mut Violations<'_>) -> PushConfigRef {
        let named = self.name.as_deref().and_then(config_of).map(PushConfigId::from);
        let id = self.push_notification_config_id.clone().or(named).unwrap_or_default();
        at.optional_id("pushNotificationConfigId", Some(id.as_str()).filter(|id| !id.is_empty()));
        PushConfigRef { tenant: None, task_id: self.task(path, at), id }
    }
}

/// The task that all spellings agree on.
pub(crate) fn one_task<'a, const N: usize>(
    spellings: [(&'static str, Option<&'a str>); N],
    at: &mut Violations<'_>,
) -> Option<&'a str> {
    let mut given = spellings
        .into_iter()
        .filter_map(|(member, id)| id.filter(|id| !id.is_empty()).map(|id| (member, id)));
    let (first, id) = given.next()?;
    for (member, other) in given {
        if other != id {
            at.add(member, format!("names another task than {first}"));
        }
    }
    Some(id)
}

const CONFIGS: &str = "/pushNotificationConfigs/";

/// The task in a resource name: `tasks/{id}`, with or without a webhook after it.
pub(crate) fn task_of<'a>(
    name: Option<&'a str>,
    member: &'static str,
    at: &mut Violations<'_>,
) -> Option<&'a str> {
    let name = name.filter(|name| !name.is_empty())?;
    let Some(rest) = name.strip_prefix("tasks/") else {
        at.add(member, "must look like tasks/{id}");
        return None;
    };
    Some(rest.split_once(CONFIGS).map_or(rest, |(task, _)| task))
}

pub(crate) fn config_of(name: &str) -> Option<&str> {
    name.split_once(CONFIGS).map(|(_, config)| config).filter(|config| !config.is_empty())
}

impl PushResourceBody {
    /// The webhook, which names its task if the resource does.
    fn read(mut self, path: Option<&str>, at: &mut Violations<'_>) -> PushConfig {
        let mut inner = self.config.take().map(|config| *config).unwrap_or_default();
        let names = [self.name.as_deref(), inner.name.as_deref()];
        let named_id = names.into_iter().flatten().find_map(config_of).map(PushConfigId::from);
        let task = one_task(
            [
                ("the path", path),
                ("taskId", self.task_id.as_ref().map(TaskId::as_str)),
                ("task_id", self.snake_task_id.as_ref().map(TaskId::as_str)),
                // Beside a flat webhook `id` is the webhook's own.
                ("id", self.id.as_deref().filter(|_| self.url.is_empty())),
                ("name", task_of(self.name.as_deref(), "name", at)),
                ("parent", task_of(self.parent.as_deref(), "parent", at)),
                ("config.name", task_of(inner.name.as_deref(), "config.name", at)),
                ("config.taskId", inner.task_id.as_ref().map(TaskId::as_str)),
            ],
            at,
        )
        .map(TaskId::from);
        let nested = self.push_notification_config.take();
        let nested = nested.or_else(|| inner.push_notification_config.take());
        let Some(push) = nested.or_else(|| self.flat()).or_else(|| inner.flat()) else {
            at.add("pushNotificationConfig", "is required");
            return PushConfig { task_id: task, ..PushConfig::default() };
        };
        let outer_id = self.config_id.filter(|id| !id.is_empty()).or(named_id);
        let mut config = push.read(outer_id, "pushNotificationConfig", at);
        config.task_id = task;
        config
    }

    fn flat(&mut self) -> Option<Push> {
        if self.url.is_empty() {
            return None;
        }
        Some(Push {
            id: self.id.take().map(PushConfigId::from),
            url: std::mem::take(&mut self.url),
            token: self.token.take(),
            authentication: self.authentication.take(),
        })
    }
}

impl Push {
    /// The webhook, without its task. Its own id has precedence over the outer one.
    pub(in crate::dialect) fn read(
        self,
        outer_id: Option<PushConfigId>,
        member: &str,
        at: &mut Violations<'_>,
    ) -> PushConfig {
        let id = self.id.filter(|id| !id.is_empty()).or(outer_id);
        at.within(member, |at| {
            if self.url.is_empty() {
                at.add("url", "is required");
            }
            at.optional_id("id", id.as_ref().map(PushConfigId::as_str));
        });
        let authentication = self.authentication.map(|authentication| PushAuthentication {
            scheme: authentication
                .scheme
                .or_else(|| authentication.schemes.into_iter().next())
                .unwrap_or_default(),
            credentials: authentication.credentials,
        });
        PushConfig {
            tenant: None,
            id,
            task_id: None,
            url: self.url,
            token: self.token,
            authentication,
        }
    }
}

pub(in crate::dialect) fn push_config(bytes: &[u8]) -> Result<PushConfig, Error> {
    let resource: PushResourceBody = json::read(bytes)?;
    Violations::collect(|at| resource.read(None, at))
}

/// A bare array on JSON-RPC, an object on REST.
pub(in crate::dialect) fn push_page(bytes: &[u8]) -> Result<PushConfigPage, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct PushPageBody {
        #[serde(default, deserialize_with = "null_as_default")]
        configs: Vec<PushResourceBody>,
        #[serde(default, alias = "next_page_token", deserialize_with = "null_as_default")]
        next_page_token: String,
    }
    let PushPageBody { configs, next_page_token } = if json::is_object(bytes) {
        json::read(bytes)?
    } else {
        PushPageBody { configs: json::read(bytes)?, next_page_token: String::new() }
    };
    let read = |(index, config): (usize, PushResourceBody), at: &mut Violations<'_>| {
        at.within(&format!("configs[{index}]"), |at| config.read(None, at))
    };
    Violations::collect(|at| PushConfigPage {
        configs: configs.into_iter().enumerate().map(|config| read(config, at)).collect(),
        next_page_token,
    })
}

crate::object::objects_only!(Configuration Push Authentication);
