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

/// A place in a task's log, as a client hands it back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    /// The task it belongs to, where the client kept it.
    pub task: Option<TaskId>,
    /// The last event the client has seen.
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
            /// Which operation it is.
            pub const fn operation(&self) -> Operation {
                match self {
                    $(Self::$name(_) => Operation::$name,)*
                }
            }

            /// The namespace the caller named.
            pub fn tenant(&self) -> Option<&TenantId> {
                match self {
                    $(Self::$name(params) => params.tenant.as_ref(),)*
                }
            }

            /// Sets the namespace, for bindings that carry it outside the parameters.
            pub fn set_tenant(&mut self, tenant: TenantId) {
                match self {
                    $(Self::$name(params) => params.tenant = Some(tenant),)*
                }
            }

            /// Takes the namespace out, for bindings that carry it outside the parameters.
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
    /// Send a message and follow the task.
    SendStreamingMessage(Box<SendMessage>),
    /// Look a task up.
    GetTask(GetTask),
    /// List tasks.
    ListTasks(ListTasks),
    /// End a task.
    CancelTask(CancelTask),
    /// Follow a task.
    SubscribeToTask(SubscribeToTask),
    /// Add a webhook.
    CreateTaskPushNotificationConfig(PushConfig),
    /// Look a webhook up.
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
    /// The namespace.
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
    /// The cursor of a stream that is opened again; bindings fill it in. A send that is not a repeat
    /// has none to go by.
    #[serde(skip)]
    pub after: Option<Cursor>,
    /// Whether a message that names only its context continues the one task there that waits for
    /// input; dialects before 1.0 set it.
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
    /// The span the message was sent from, or the one it is received in; bindings fill it in.
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
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Which task.
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
    /// The namespace.
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
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Which task.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: TaskId,
    /// Open data for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Whether a task that has ended is returned as it stands instead of refused; dialects set it
    /// for callers who expect that.
    #[serde(skip)]
    pub return_ended: bool,
}

/// Parameters of `SubscribeToTask`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SubscribeToTask {
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Which task.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: TaskId,
    /// The last event the caller has seen; bindings fill it in from their own header.
    #[serde(skip)]
    pub after: Option<Seq>,
    /// Whether a finished task's log is replayed instead of refused; dialects before 1.0 set it.
    #[serde(skip)]
    pub replay_finished: bool,
}

/// Names one webhook of one task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PushConfigRef {
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Which task.
    #[serde(default, alias = "task_id", deserialize_with = "null_as_default")]
    pub task_id: TaskId,
    /// Which webhook. Empty where a 0.3 caller looks up the only one there is.
    #[serde(default, deserialize_with = "null_as_default")]
    pub id: PushConfigId,
}

/// Parameters of `ListTaskPushNotificationConfigs`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListPushConfigs {
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantId>,
    /// Which task.
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
    /// The namespace.
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
    /// A message of the user made of one text, whose id is still to be chosen.
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
        // One that is missing, one that is null and one that is empty all read the same.
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
