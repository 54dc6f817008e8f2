//! Tasks: lists, one task, its log, the answer to its question.

use herald_protocol::{Content, Message, TaskState, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::schema::{ProtocolObject, StateSchema, TimeSchema};

/// Filters of a list of tasks.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TasksQuery {
    /// `*` lists the tasks of every owner. Needs the scope `admin`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The tasks of this tenant. Needs the scope `admin`, unless it is the caller's own owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The tasks of this principal of the tenant. Needs the scope `admin`, unless it is the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The tasks of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The tasks in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<StateSchema>")]
    pub state: Option<TaskState>,
    /// The tasks of this conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The tasks whose status changed at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub since: Option<Timestamp>,
    /// The tasks that failed for this reason, such as `INTERRUPTED` after the last attempt; with `state`, those that
    /// were rejected for it. A page examines 1000 tasks, so it may be short, or empty, before the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of entries on a page, 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub page_size: Option<u32>,
    /// The `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// The owner of a task that the path names. Without it, the caller's own task is meant; for a caller
/// with the scope `admin` that has none of this id, the task of the one owner that has.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TaskOwnerQuery {
    /// The tenant of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The principal of the owner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
}

/// The part of a log to read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TaskLogQuery {
    /// The tenant of the owner of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The principal of the owner of the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The number of the last event that is known; the log continues after it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// The number of events, 100 by default. A page of large events has fewer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub limit: Option<u32>,
}

/// One page of tasks, the newest status first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskHeadPage {
    /// The tasks.
    pub tasks: Vec<TaskHead>,
    /// The token of the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
}

/// The head of a task: the data of a row in a list, without the content of the task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskHead {
    /// The id.
    pub id: String,
    /// The conversation.
    pub context_id: String,
    /// The agent.
    pub agent: String,
    /// The tenant of the owner.
    pub tenant: String,
    /// The principal of the owner.
    pub principal: String,
    /// The state.
    #[schemars(with = "StateSchema")]
    pub state: TaskState,
    /// The reason of a failed or rejected task, such as `TIMED_OUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time of acceptance.
    #[schemars(with = "TimeSchema")]
    pub created: Timestamp,
    /// The time of the last change of the status.
    #[schemars(with = "TimeSchema")]
    pub changed: Timestamp,
    /// The number of the last event.
    pub seq: u64,
    /// The bytes of all events.
    pub bytes: u64,
    /// The current or last turn; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnView>,
    /// The number of messages that no turn has read.
    pub unread: u64,
    /// The first line of the first message.
    pub preview: String,
}

/// A turn: the work of the agent on one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TurnView {
    /// The number of the event with the message.
    pub seq: u64,
    /// The number of attempts.
    pub attempt: u32,
    /// True while the turn runs, or waits within its agent for an answer.
    pub is_held: bool,
}

/// A task.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TaskDetail {
    /// The head.
    pub head: TaskHead,
    /// The question that the task waits for, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<OpenQuestion>,
    /// The task, as A2A 1.0 shows it.
    #[schemars(with = "ProtocolObject")]
    pub task: Box<RawValue>,
}

/// A question of an agent that waits for an answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OpenQuestion {
    /// The id of the question, which its answer names: that of the agent's message.
    pub question: String,
    /// The time of the question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub asked: Option<Timestamp>,
    /// The text of the question.
    pub prompt: String,
    /// The choices; empty if any text is an answer.
    pub choices: Vec<QuestionChoice>,
    /// The action that needs the approval, as the agent describes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<ProtocolObject>")]
    pub request: Option<Box<RawValue>>,
}

/// A choice of a question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QuestionChoice {
    /// The id.
    pub id: String,
    /// The text for people.
    pub label: String,
    /// True if the choice allows the action.
    pub grants: bool,
}

/// The member of a data part with which agents ask for an approval.
#[derive(Debug, Deserialize)]
struct ApprovalData {
    prompt: String,
    #[serde(default)]
    choices: Vec<QuestionChoice>,
    #[serde(default)]
    request: Option<Box<RawValue>>,
}

impl OpenQuestion {
    /// The question in the status message of a task that waits for an answer.
    pub fn of(message: &Message, asked: Option<Timestamp>) -> Self {
        let data = message.parts.iter().find_map(|part| match &part.content {
            Content::Data(data) => data.get::<ApprovalData>("approval"),
            Content::Text(_) | Content::Raw(_) | Content::Url(_) => None,
        });
        let (prompt, choices, request) = match data {
            Some(ApprovalData { prompt, choices, request }) => (prompt, choices, request),
            None => (message.text(), Vec::new(), None),
        };
        Self { question: message.message_id.to_string(), asked, prompt, choices, request }
    }
}

/// The answer to the question of a task. It has a choice, a text or both.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerQuestion {
    /// The id of the question. If another question is open by now, the answer is refused with 409 and
    /// the reason `QUESTION_CHANGED`.
    pub question: String,
    /// The id of a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub choice: Option<String>,
    /// A text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The end of a task by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct FailTask {
    /// The reason, which callers read in the last message of the task.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// A part of the log of a task.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct TaskLog {
    /// The events, in order.
    pub entries: Vec<LogEntryView>,
    /// The number of the last event of this page, for `after` of the next request.
    pub last: u64,
    /// True if no event can follow: the task has ended and this page reaches the end.
    pub is_complete: bool,
}

/// An event in the log of a task.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LogEntryView {
    /// The number in the log of the task, from 1.
    pub seq: u64,
    /// The position among the events of all tasks.
    pub position: String,
    /// The time of the commit; absent for events of an older store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<TimeSchema>")]
    pub at: Option<Timestamp>,
    /// The kind: `message`, `status`, `artifact` or `reply`.
    pub kind: String,
    /// The state after the event, if the event set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<StateSchema>")]
    pub state: Option<TaskState>,
    /// The bytes of the stored event.
    pub bytes: u64,
    /// The cause, if it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<CauseView>,
    /// The event, as a stream of A2A 1.0 shows it.
    #[schemars(with = "ProtocolObject")]
    pub item: Box<RawValue>,
}

/// The cause of an event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CauseView {
    /// `caller`, `agent`, `worker`, `engine` or `operator`.
    pub actor: String,
    /// The principal of an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<String>,
    /// The id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
    /// The binding of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binding: Option<String>,
}
