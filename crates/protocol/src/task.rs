//! Tasks, artifacts and their update events.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    id::{ArtifactId, ContextId, TaskId},
    message::{Message, Part},
    open::Metadata,
    time::Timestamp,
    validate::null_as_default,
};

/// State of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum TaskState {
    /// Unspecified; as a filter it means any.
    #[default]
    Unspecified,
    /// Accepted, not started.
    Submitted,
    /// An agent works on it.
    Working,
    /// Done.
    Completed,
    /// Ended by an error.
    Failed,
    /// Ended by its caller.
    Canceled,
    /// Waits for a message.
    InputRequired,
    /// Refused by the agent.
    Rejected,
    /// Waits for credentials.
    AuthRequired,
}

/// A state with its time and message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct TaskStatus {
    /// The state of the task.
    #[serde(default)]
    pub state: TaskState,
    /// The agent's message about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Arc<Message>>,
    /// The time of the change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Timestamp>,
}

/// One result of a task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct Artifact {
    /// Unique within the task.
    #[serde(default, alias = "artifact_id")]
    pub artifact_id: ArtifactId,
    /// A short name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The content.
    #[serde(default, deserialize_with = "null_as_default")]
    pub parts: Vec<Part>,
    /// Open data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Extensions that contributed to it.
    #[serde(default, deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<String>,
}

/// A unit of work and everything known about it.
///
/// Messages and artifacts are shared, so that a copy of a task costs the same however long its
/// conversation is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct Task {
    /// Its name.
    #[serde(default)]
    pub id: TaskId,
    /// Its conversation.
    #[serde(default, alias = "context_id")]
    pub context_id: ContextId,
    /// The status.
    #[serde(default)]
    pub status: TaskStatus,
    /// The artifacts. `None` leaves the member out, an empty list shows it empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<Arc<Artifact>>>,
    /// The messages, oldest first. `None` leaves the member out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<Vec<Arc<Message>>>,
    /// Open data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// The task's status changed.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct StatusUpdate {
    /// The task.
    #[serde(default, alias = "task_id")]
    pub task_id: TaskId,
    /// The conversation.
    #[serde(default, alias = "context_id")]
    pub context_id: ContextId,
    /// The new status.
    #[serde(default)]
    pub status: TaskStatus,
    /// Open data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// The task has a new artifact or a new piece of one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[serde(remote = "Self")]
pub struct ArtifactUpdate {
    /// The task.
    #[serde(default, alias = "task_id")]
    pub task_id: TaskId,
    /// The conversation.
    #[serde(default, alias = "context_id")]
    pub context_id: ContextId,
    /// The artifact, or the next piece of it.
    #[serde(default)]
    pub artifact: Artifact,
    /// True if the parts are appended instead of replacing those already there.
    #[serde(default, skip_serializing_if = "is_false")]
    pub append: bool,
    /// True if this completes the artifact.
    #[serde(default, alias = "last_chunk", skip_serializing_if = "is_false")]
    pub last_chunk: bool,
    /// Open data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
}

/// One item of a stream: exactly one of these, under its own member name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StreamEvent {
    /// The whole task as it stands.
    Task(Task),
    /// The agent's direct answer; nothing follows it.
    Message(Message),
    /// The status changed.
    #[serde(alias = "status_update")]
    StatusUpdate(StatusUpdate),
    /// An artifact was added or extended.
    #[serde(alias = "artifact_update")]
    ArtifactUpdate(ArtifactUpdate),
}

/// The answer to a send: exactly one of these, under its own member name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SendResult {
    /// A task that can be followed.
    Task(Task),
    /// A direct answer.
    Message(Message),
}

/// One page of tasks. Every member is always there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskPage {
    /// The tasks, most recently changed first.
    #[serde(default)]
    pub tasks: Vec<Task>,
    /// Token of the next page; empty on the last one.
    #[serde(default, alias = "next_page_token")]
    pub next_page_token: String,
    /// The size asked for, or the default.
    #[serde(default, alias = "page_size")]
    pub page_size: u32,
    /// Number of matching tasks on all pages.
    #[serde(default, alias = "total_size")]
    pub total_size: u64,
}

impl TaskState {
    /// Every state that a task can be in.
    pub const ALL: [Self; 8] = [
        Self::Submitted,
        Self::Working,
        Self::Completed,
        Self::Failed,
        Self::Canceled,
        Self::InputRequired,
        Self::Rejected,
        Self::AuthRequired,
    ];

    /// True for a final state.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Canceled | Self::Rejected)
    }

    /// True if the task waits for its caller.
    pub const fn is_interrupted(self) -> bool {
        matches!(self, Self::InputRequired | Self::AuthRequired)
    }

    /// The 1.0 name.
    pub const fn proto_name(self) -> &'static str {
        match self {
            Self::Unspecified => "TASK_STATE_UNSPECIFIED",
            Self::Submitted => "TASK_STATE_SUBMITTED",
            Self::Working => "TASK_STATE_WORKING",
            Self::Completed => "TASK_STATE_COMPLETED",
            Self::Failed => "TASK_STATE_FAILED",
            Self::Canceled => "TASK_STATE_CANCELED",
            Self::InputRequired => "TASK_STATE_INPUT_REQUIRED",
            Self::Rejected => "TASK_STATE_REJECTED",
            Self::AuthRequired => "TASK_STATE_AUTH_REQUIRED",
        }
    }

    /// The 0.2 and 0.3 JSON name.
    pub const fn kebab_name(self) -> &'static str {
        match self {
            Self::Unspecified => "unknown",
            Self::Submitted => "submitted",
            Self::Working => "working",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
            Self::InputRequired => "input-required",
            Self::Rejected => "rejected",
            Self::AuthRequired => "auth-required",
        }
    }

    /// The protobuf number, the same in every version.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The state of a protobuf number.
    pub fn from_number(number: u64) -> Option<Self> {
        if number == 0 {
            return Some(Self::Unspecified);
        }
        Self::ALL.into_iter().find(|state| u64::from(state.number()) == number)
    }

    /// Reads the name of any version and spelling.
    pub fn from_name(name: &str) -> Option<Self> {
        let plain = name.strip_prefix("TASK_STATE_").unwrap_or(name);
        let plain = plain.to_ascii_lowercase().replace('_', "-");
        match plain.as_str() {
            "unspecified" | "unknown" => Some(Self::Unspecified),
            "cancelled" => Some(Self::Canceled),
            other => Self::ALL.into_iter().find(|state| state.kebab_name() == other),
        }
    }
}

impl Task {
    /// Keeps the last `length` messages; zero leaves the member out, `None` keeps all.
    pub fn limit_history(&mut self, length: Option<i32>) {
        let Some(length) = length else { return };
        let length = usize::try_from(length).unwrap_or(0);
        if length == 0 {
            self.history = None;
        } else if let Some(history) = &mut self.history {
            let surplus = history.len().saturating_sub(length);
            history.drain(..surplus);
        }
    }
}

impl Task {
    /// The text of all artifacts or, without any, of the status.
    pub fn text(&self) -> String {
        let artifacts = self.artifacts.as_deref().unwrap_or_default();
        let mut texts = artifacts.iter().filter_map(|artifact| artifact.text()).peekable();
        match (texts.peek(), &self.status.message) {
            (None, Some(message)) => message.text(),
            (Some(_), _) | (None, None) => texts.collect::<Vec<_>>().join("\n"),
        }
    }

    /// The reason why the task failed or was rejected; `None` if it was not.
    pub fn error(&self) -> Option<String> {
        let failed = matches!(self.status.state, TaskState::Failed | TaskState::Rejected);
        failed.then(|| self.status.message.as_deref().map(Message::text).unwrap_or_default())
    }
}

impl Artifact {
    /// Its text parts, one after the other: pieces of a stream are parts of one text.
    pub fn text(&self) -> Option<String> {
        let mut texts = self.parts.iter().filter_map(Part::as_text).peekable();
        texts.peek()?;
        Some(texts.collect())
    }
}

impl SendResult {
    /// The text of the task's artifacts, or of the direct answer.
    pub fn text(&self) -> String {
        match self {
            Self::Task(task) => task.text(),
            Self::Message(message) => message.text(),
        }
    }
}

impl StreamEvent {
    /// The task of the event. A direct answer has none.
    pub fn task_id(&self) -> Option<&TaskId> {
        match self {
            Self::Task(task) => Some(&task.id),
            Self::StatusUpdate(update) => Some(&update.task_id),
            Self::ArtifactUpdate(update) => Some(&update.task_id),
            Self::Message(message) => message.task_id.as_ref(),
        }
    }

    /// The state of the task, if the event has one.
    pub fn state(&self) -> Option<TaskState> {
        match self {
            Self::Task(task) => Some(task.status.state),
            Self::StatusUpdate(update) => Some(update.status.state),
            Self::ArtifactUpdate(_) | Self::Message(_) => None,
        }
    }
}

impl Serialize for TaskState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.proto_name())
    }
}

impl<'de> Deserialize<'de> for TaskState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Name;
        impl de::Visitor<'_> for Name {
            type Value = TaskState;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a task state such as TASK_STATE_WORKING")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<TaskState, E> {
                TaskState::from_name(name)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<TaskState, E> {
                TaskState::from_number(number)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }
        }
        deserializer.deserialize_any(Name)
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

crate::object::objects_only!(both TaskStatus Artifact Task StatusUpdate ArtifactUpdate);
