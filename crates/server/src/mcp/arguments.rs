//! Arguments of the tools. Their comments are the descriptions that a model reads.

#![expect(
    clippy::disallowed_methods,
    reason = "the schemas are built of JSON values by the derived code, once"
)]

use herald_api::agents::{AgentCapabilitiesView, RegisteredSkill};
use herald_protocol::TaskState;
use schemars::JsonSchema;
use serde::{Deserialize, de::IgnoredAny};

/// Arguments of `discover_agents`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiscoverArguments {
    /// Only the agents of this role.
    #[serde(default, alias = "agent_name")]
    pub(super) role: Option<String>,
    /// Only agents with a skill of this id.
    #[serde(default)]
    pub(super) skill: Option<String>,
    /// Only agents with a skill of this tag, or with this label.
    #[serde(default)]
    pub(super) tag: Option<String>,
    /// Only agents with this text in their name, their description or one of their skills.
    #[serde(default)]
    pub(super) text: Option<String>,
    /// The `next_page_token` of the page before, with the same other arguments.
    #[serde(default)]
    pub(super) page_token: Option<String>,
}

/// Arguments of `get_agent_card`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CardArguments {
    /// The role of the agent, as `discover_agents` lists it. Without it, the default agent of the server.
    #[serde(default, alias = "role")]
    pub(super) agent_name: Option<String>,
}

/// Arguments of `register_agent`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RegisterArguments {
    /// The role of the worker, such as "code-reviewer": messages are routed by it. A remote agent without one gets the
    /// name in its card.
    #[serde(default, alias = "role", alias = "name")]
    pub(super) agent_name: Option<String>,
    /// The instance of the role, "host:id", such as "dev-vm:abc123"; made by the server if absent.
    #[serde(default)]
    pub(super) instance_id: Option<String>,
    /// The work that the worker does, in one or two sentences.
    #[serde(default)]
    pub(super) description: Option<String>,
    /// The skills of the worker, each with an `id` and, if you like, `name`, `description`, `tags` and `examples`.
    #[serde(default)]
    pub(super) skills: Vec<RegisteredSkill>,
    /// The capabilities of the worker; all if absent.
    #[serde(default)]
    pub(super) capabilities: Option<AgentCapabilitiesView>,
    /// Words that tasks can require of their worker.
    #[serde(default)]
    pub(super) labels: Vec<String>,
    /// The URL of a remote A2A agent or of its card, in place of a worker. With it, only `agent_name` may be given.
    #[serde(default, alias = "url")]
    pub(super) card_url: Option<String>,
}

/// Arguments of `refresh_agent_heartbeat`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RefreshArguments {
    /// The `name` in the reply of `register_agent`, such as "code-reviewer:dev-vm:abc123".
    #[serde(alias = "name")]
    pub(super) agent_name: String,
    /// The `session` in that reply. With it, a worker that was replaced is told so.
    #[serde(default)]
    pub(super) session: Option<String>,
}

/// Arguments of `send_to_agent`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendToAgentArguments {
    /// The role of the agent, as `discover_agents` lists it, such as "code-reviewer". The name of one instance, such as
    /// "code-reviewer:dev-vm:abc123", is refused: the server chooses the instance.
    #[serde(alias = "role")]
    pub(super) agent_name: String,
    #[serde(flatten)]
    #[schemars(flatten)]
    pub(super) send: MessageArguments,
}

/// Arguments of every send.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct MessageArguments {
    /// The text of the message: the whole instruction, with everything that the agent needs to know.
    pub(super) message: String,
    /// The conversation to continue: the `context_id` of an earlier reply. Without it, a new conversation begins.
    #[serde(default, alias = "conversation_id")]
    pub(super) context_id: Option<String>,
    /// The task that the message continues, such as one that waits for an answer. Without it, a new task begins.
    #[serde(default)]
    pub(super) task_id: Option<String>,
    /// A UUID of your choice. A repeated call with the same id and the same message returns the task of the first call
    /// instead of a new one, so that a call whose reply was lost can be repeated.
    #[serde(default)]
    pub(super) message_id: Option<String>,
    /// Seconds to wait for the result, 0 to 25; 20 if absent. A task that takes longer goes on: `get_task` with its
    /// `task_id` returns the result later.
    #[serde(default)]
    #[schemars(range(max = 25))]
    pub(super) wait_seconds: Option<u64>,
}

/// Arguments of `send_message` and of the tools for skills.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SendArguments {
    #[serde(flatten)]
    #[schemars(flatten)]
    pub(super) send: MessageArguments,
}

/// Arguments of `get_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetTaskArguments {
    /// The id of the task.
    pub(super) task_id: String,
    /// Seconds to wait until the task has ended or asks a question, 0 to 25; 0 if absent.
    #[serde(default)]
    #[schemars(range(max = 25))]
    pub(super) wait_seconds: Option<u64>,
    /// The first character of the output to return, to read a long output in parts; 0 if absent.
    #[serde(default)]
    pub(super) offset: Option<usize>,
}

/// Arguments of `list_tasks`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListTasksArguments {
    /// Only tasks in this state.
    #[serde(default, alias = "status")]
    pub(super) state: Option<TaskStateName>,
    /// Only tasks of this conversation.
    #[serde(default, alias = "conversation_id")]
    pub(super) context_id: Option<String>,
    /// Tasks per page, 1 to 100; 20 if absent.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    pub(super) page_size: Option<i32>,
    /// The `next_page_token` of the page before.
    #[serde(default)]
    pub(super) page_token: Option<String>,
}

/// The state of a task.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum TaskStateName {
    #[serde(alias = "pending")]
    Submitted,
    Working,
    Completed,
    Failed,
    #[serde(alias = "cancelled")]
    Canceled,
    InputRequired,
    Rejected,
    AuthRequired,
}

/// Arguments of `cancel_task`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CancelTaskArguments {
    /// The id of the task.
    pub(super) task_id: String,
}

/// Arguments of `coding_agent_run`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunArguments {
    /// The instruction for the coding agent.
    pub(super) task: String,
    /// The role of the agent. Without it, the default agent of the server.
    #[serde(default)]
    pub(super) agent_name: Option<String>,
    /// The conversation to continue: the `context_id` of an earlier job.
    #[serde(default, alias = "contextId")]
    pub(super) context_id: Option<String>,
    // Settings of the server. They are read to refuse them with a sentence that says so.
    #[serde(default, rename = "repoPath")]
    #[schemars(skip)]
    pub(super) repo_path: Option<IgnoredAny>,
    #[serde(default)]
    #[schemars(skip)]
    pub(super) model: Option<IgnoredAny>,
    #[serde(default)]
    #[schemars(skip)]
    pub(super) force: Option<IgnoredAny>,
    #[serde(default)]
    #[schemars(skip)]
    pub(super) profile: Option<IgnoredAny>,
}

/// Arguments of `coding_agent_poll`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PollArguments {
    /// The `job_id` of `coding_agent_run`.
    #[serde(alias = "job_id")]
    pub(super) job_id: String,
    /// The `next_line` of the poll before; 0 if absent. Only events after it are returned.
    #[serde(default, alias = "since_line")]
    pub(super) since_line: Option<u64>,
}

/// Arguments of `coding_agent_result` and `coding_agent_cancel`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct JobArguments {
    /// The `job_id` of `coding_agent_run`.
    #[serde(alias = "job_id")]
    pub(super) job_id: String,
}

/// Arguments of `coding_agent_info`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct InfoArguments {
    /// The role of the agent. Without it, the default agent of the server.
    #[serde(default)]
    pub(super) agent_name: Option<String>,
}

impl From<TaskStateName> for TaskState {
    fn from(name: TaskStateName) -> Self {
        match name {
            TaskStateName::Submitted => Self::Submitted,
            TaskStateName::Working => Self::Working,
            TaskStateName::Completed => Self::Completed,
            TaskStateName::Failed => Self::Failed,
            TaskStateName::Canceled => Self::Canceled,
            TaskStateName::InputRequired => Self::InputRequired,
            TaskStateName::Rejected => Self::Rejected,
            TaskStateName::AuthRequired => Self::AuthRequired,
        }
    }
}
