//! The operations of the protocol. They are declared once, in `operations!`.

use serde::{Deserialize, Serialize};

use crate::{
    error::Error,
    id::{AgentName, ContextId, PushConfigId, TaskId, TenantId},
    message::Message,
    open::Metadata,
    push::PushConfig,
    task::TaskState,
    time::Timestamp,
    trace::TraceContext,
    validate::{Validate, Violations, empty_as_none, null_as_default},
};

/// A position in one task's log. Zero is "before the first event".
pub type Seq = u64;

/// A cursor in the log of a task, as a client sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The task, if the client sent it.
    pub task: Option<TaskId>,
    /// The last event that the client has.
    pub seq: Seq,
}

/// Declares every operation once: the enums, the names and the JSON decoder follow from it.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident($params:ty),)*) => {
        /// One operation with its parameters.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Request {
            $($(#[$doc])* $name($params),)*
        }

        /// The name of an operation.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            /// Every operation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The 1.0 JSON-RPC method, which is also the gRPC method.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Reads the 1.0 parameters of this operation and checks its required fields.
            pub fn decode(self, params: &[u8]) -> Result<Request, Error> {
                match self {
                    $(Self::$name => crate::json::decode(params).map(Request::$name),)*
                }
            }
        }

        impl Request {
            /// The operation.
            pub const fn operation(&self) -> Operation {
                match self {
                    $(Self::$name(_) => Operation::$name,)*
                }
            }

            /// The tenant in the request.
            pub fn tenant(&self) -> Option<&TenantId> {
                match self {
                    $(Self::$name(params) => params.tenant.as_ref(),)*
                }
            }

            /// Sets the tenant, for bindings that carry it outside the parameters.
            pub fn set_tenant(&mut self, tenant: TenantId) {
                match self {
                    $(Self::$name(params) => params.tenant = Some(tenant),)*
                }
            }

            /// Removes the tenant, for bindings that carry it outside the parameters.
            pub fn take_tenant(&mut self) -> Option<TenantId> {
                match self {
                    $(Self::$name(params) => params.tenant.take(),)*
                }
            }
        }
    };
}

operations! {
    /// Send a message and wait for the task to settle.
    SendMessage(Box<SendMessage>),
    /// Send a message and stream the task.
    SendStreamingMessage(Box<SendMessage>),
    /// Return a task.
    GetTask(GetTask),
    /// List tasks.
    ListTasks(ListTasks),
    /// End a task.
    CancelTask(CancelTask),
    /// Stream a task.
    SubscribeToTask(SubscribeToTask),
    /// Add a webhook.
    CreateTaskPushNotificationConfig(PushConfig),
    /// Return a webhook.
    GetTaskPushNotificationConfig(PushConfigRef),
    /// List a task's webhooks.
    ListTaskPushNotificationConfigs(ListPushConfigs),
    /// Remove a webhook.
    DeleteTaskPushNotificationConfig(PushConfigRef),
    /// The card for authenticated callers.
    GetExtendedAgentCard(GetExtendedAgentCard),
}

impl Operation {
    /// The operation of a 1.0 method name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|operation| operation.name() == name)
    }

    /// True if the answer is a stream.
    pub const fn is_streaming(self) -> bool {
        matches!(self, Self::SendStreamingMessage | Self::SubscribeToTask)
    }
}

/// Parameters of both sends.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendMessage {
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The message.
    #[serde(default, deserialize_with = "null_as_default")]
    pub message: Message,
    /// Options for the answer.
    #[serde(default, deserialize_with = "null_as_default")]
    pub configuration: SendConfiguration,
    /// Open data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// The caller's `Idempotency-Key`; bindings fill it in from their own header.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
    /// The cursor of a stream that is resumed; bindings fill it in. Only a repeated send has one.
    #[serde(skip)]
    pub after: Option<Cursor>,
    /// True if a message with only a context continues the one task there that waits for input; dialects
    /// before 1.0 set it.
    #[serde(skip)]
    pub infer_task: bool,
    /// The task that the message continues, or the id of the new one if there is no such task; in
    /// 0.1 callers name their tasks themselves.
    #[serde(skip)]
    pub own_task: Option<TaskId>,
    /// True if the answer must be a task: 0.1 has no direct answers.
    #[serde(skip)]
    pub task_only: bool,
    /// The agent that the caller names for a new task; only 0.1 has such a parameter.
    #[serde(skip)]
    pub agent: Option<AgentName>,
    /// The span of the sender or of the request; bindings fill it in.
    #[serde(skip)]
    pub trace: Option<TraceContext>,
}

/// Options for the answer to a send.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct SendConfiguration {
    /// Media types the caller can use.
    #[serde(
        default,
        alias = "accepted_output_modes",
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub accepted_output_modes: Vec<String>,
    /// A webhook to register with the task.
    #[serde(
        default,
        alias = "task_push_notification_config",
        skip_serializing_if = "Option::is_none"
    )]
    pub task_push_notification_config: Option<PushConfig>,
    /// Number of history messages to return.
    #[serde(default, alias = "history_length", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
    /// True to answer as soon as the task is accepted.
    #[serde(default, alias = "return_immediately", deserialize_with = "null_as_default")]
    pub return_immediately: bool,
}

/// Parameters of `GetTask`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetTask {
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The task.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: TaskId,
    /// Number of history messages to return.
    #[serde(default, alias = "history_length", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
}

/// Parameters of `ListTasks`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListTasks {
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Only tasks of this conversation.
    #[serde(
        default,
        alias = "context_id",
        deserialize_with = "empty_as_none",
        skip_serializing_if = "Option::is_none"
    )]
    pub context_id: Option<ContextId>,
    /// Only tasks in this state.
    #[serde(default, deserialize_with = "null_as_default")]
    pub status: TaskState,
    /// Tasks per page, 1 to 100.
    #[serde(default, alias = "page_size", skip_serializing_if = "Option::is_none")]
    pub page_size: Option<i32>,
    /// Token of the page to return.
    #[serde(default, alias = "page_token", skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
    /// Number of messages of each history to return.
    #[serde(default, alias = "history_length", skip_serializing_if = "Option::is_none")]
    pub history_length: Option<i32>,
    /// Only tasks whose status is this new or newer.
    #[serde(default, alias = "status_timestamp_after", skip_serializing_if = "Option::is_none")]
    pub status_timestamp_after: Option<Timestamp>,
    /// True to return artifacts.
    #[serde(default, alias = "include_artifacts", skip_serializing_if = "Option::is_none")]
    pub include_artifacts: Option<bool>,
}

/// Parameters of `CancelTask`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CancelTask {
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The task.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: TaskId,
    /// Open data for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// True if a task that has ended is returned unchanged instead of refused; dialects set it for callers
    /// that expect so.
    #[serde(skip)]
    pub return_ended: bool,
}

/// Parameters of `SubscribeToTask`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeToTask {
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The task.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: TaskId,
    /// The last event that the caller has; bindings fill it in from their own header.
    #[serde(skip)]
    pub after: Option<Seq>,
    /// True if the log of a task that has ended is replayed instead of refused; dialects before 1.0 set it.
    #[serde(skip)]
    pub replay_finished: bool,
}

/// Identifies one webhook of one task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushConfigRef {
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The task.
    #[serde(default, alias = "task_id", deserialize_with = "null_as_default")]
    pub task_id: TaskId,
    /// The webhook. Empty if a 0.3 caller requests the only one.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: PushConfigId,
}

/// Parameters of `ListTaskPushNotificationConfigs`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPushConfigs {
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// The task.
    #[serde(default, alias = "task_id", deserialize_with = "null_as_default")]
    pub task_id: TaskId,
    /// Webhooks per page.
    #[serde(default, alias = "page_size", skip_serializing_if = "Option::is_none")]
    pub page_size: Option<i32>,
    /// Token of the page to return.
    #[serde(default, alias = "page_token", skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// Parameters of `GetExtendedAgentCard`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetExtendedAgentCard {
    /// The tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
}

impl From<Message> for SendMessage {
    fn from(message: Message) -> Self {
        Self { message, ..Self::default() }
    }
}

impl From<String> for SendMessage {
    fn from(text: String) -> Self {
        Message::user("", text).into()
    }
}

impl From<&str> for SendMessage {
    /// A message of the user with one text and without an id.
    fn from(text: &str) -> Self {
        Message::user("", text).into()
    }
}

fn tenant(at: &mut Violations<'_>, tenant: Option<&TenantId>) {
    at.optional_id("tenant", tenant.map(TenantId::as_str).filter(|name| !name.is_empty()));
}

impl Validate for SendMessage {
    fn validate(&self, at: &mut Violations<'_>) {
        tenant(at, self.tenant.as_ref());
        // Missing, null and empty messages are read alike.
        if self.message == Message::default() {
            at.add("message", "is required");
        } else {
            at.nested("message", &self.message);
        }
        at.not_negative("configuration.historyLength", self.configuration.history_length);
        if let Some(push) = &self.configuration.task_push_notification_config {
            at.nested("configuration.taskPushNotificationConfig", push);
        }
    }
}

impl Validate for GetTask {
    fn validate(&self, at: &mut Violations<'_>) {
        tenant(at, self.tenant.as_ref());
        at.required_id("id", self.id.as_str());
        at.not_negative("historyLength", self.history_length);
    }
}

impl Validate for ListTasks {
    fn validate(&self, at: &mut Violations<'_>) {
        tenant(at, self.tenant.as_ref());
        let context = self.context_id.as_ref().map(ContextId::as_str);
        at.optional_id("contextId", context);
        if self.page_size.is_some_and(|size| !(1..=100).contains(&size)) {
            at.add("pageSize", "must be between 1 and 100");
        }
        at.not_negative("historyLength", self.history_length);
    }
}

impl Validate for CancelTask {
    fn validate(&self, at: &mut Violations<'_>) {
        tenant(at, self.tenant.as_ref());
        at.required_id("id", self.id.as_str());
    }
}

impl Validate for SubscribeToTask {
    fn validate(&self, at: &mut Violations<'_>) {
        tenant(at, self.tenant.as_ref());
        at.required_id("id", self.id.as_str());
    }
}

impl Validate for PushConfigRef {
    fn validate(&self, at: &mut Violations<'_>) {
        tenant(at, self.tenant.as_ref());
        at.required_id("taskId", self.task_id.as_str());
        at.required_id("id", self.id.as_str());
    }
}

impl Validate for ListPushConfigs {
    fn validate(&self, at: &mut Violations<'_>) {
        tenant(at, self.tenant.as_ref());
        at.required_id("taskId", self.task_id.as_str());
        at.not_negative("pageSize", self.page_size);
    }
}

impl Validate for GetExtendedAgentCard {
    fn validate(&self, at: &mut Violations<'_>) {
        tenant(at, self.tenant.as_ref());
    }
}

crate::object::objects_only!(both SendConfiguration);
