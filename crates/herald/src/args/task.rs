//! Arguments of `herald task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use herald_protocol::{Metadata, TaskState, Timestamp};

use super::{
    AgentArgs, OutputArgs, OwnerArgs, PlaceArgs, SecretArg, ServerArgs, message::metadata,
};

/// Verbs for tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Show a task, or wait for it
    #[command(after_help = GET_EXAMPLES)]
    Get(TaskGet),
    /// List tasks, page by page
    #[command(after_help = LIST_EXAMPLES)]
    List(Box<TaskList>),
    /// Cancel a task
    #[command(after_help = CANCEL_EXAMPLES)]
    Cancel(Box<TaskCancel>),
    /// Follow a task, also one of another program
    #[command(after_help = SUBSCRIBE_EXAMPLES)]
    Subscribe(TaskSubscribe),
    /// Save the artifacts of a task
    #[command(after_help = DOWNLOAD_EXAMPLES)]
    Download(TaskDownload),
    /// Manage the webhooks of a task
    #[command(subcommand)]
    PushConfig(PushCommand),
    /// Show a task of a server, with its owner and its open question
    #[command(after_help = SHOW_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Show(TaskShow),
    /// Show the log of a task of a server: times, kinds and causes of its events
    #[command(after_help = LOG_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Log(TaskLogArgs),
    /// Answer the open question of a task of a server
    #[command(after_help = ANSWER_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Answer(TaskAnswer),
    /// Fail a task of a server that has not ended: queued, paused or running
    #[command(after_help = FAIL_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Fail(TaskFail),
    /// Send the message of a failed task of a server again, as a new task
    #[command(after_help = RETRY_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Retry(TaskRetry),
}

const FAIL_EXAMPLES: &str = "\
Examples:
  herald task fail ID --reason \"the repository is gone\"
  herald task fail ID --data /srv/herald            as the user that runs the server";

const RETRY_EXAMPLES: &str = "\
Examples:
  herald task list --failed-by INTERRUPTED --all-owners --data /srv/herald
  herald task retry ID --data /srv/herald           prints the id of the new task

A task that has ended stays as it is. The new task has the same message, agent and context, and names the old
one in referenceTaskIds and in metadata.\"herald.retry_of\". A second retry of the same task shows the same new task.";

const CANCEL_EXAMPLES: &str = "\
Examples:
  herald task cancel localhost:8000 ID              a task of yours, at its agent
  herald task cancel ID --server https://agents.example.com    also one of another owner, with the scope admin
  herald task cancel ID --data /srv/herald          as the user that runs the server";

const SHOW_EXAMPLES: &str = "\
Examples:
  herald task show ID --data /srv/herald            as the user that runs the server
  herald task show ID --server URL --tenant acme --principal web";

const LOG_EXAMPLES: &str = "\
Examples:
  herald task log ID --data /srv/herald             every event, with its time and its cause
  herald task log ID --follow                       until the task has ended
  herald task log ID --after 40 -o json             the events after the fortieth, with their content";

const ANSWER_EXAMPLES: &str = "\
Examples:
  herald task show ID                               shows the question, its id and its choices
  herald task answer ID --question MESSAGE allow
  herald task answer ID --question MESSAGE --text \"Use the staging database\"

If another question is open by now, the answer is refused, so that it cannot allow what you did not read.";

const GET_EXAMPLES: &str = "\
Examples:
  herald task get localhost:8000 ID                 show its state
  herald task get localhost:8000 ID --wait          wait until it has ended or waits for you
  herald task get localhost:8000 ID --history 10    with its last ten messages";

const LIST_EXAMPLES: &str = "\
Examples:
  herald task list localhost:8000 --status working
  herald task list localhost:8000 --context-id ID --all
  herald task list localhost:8000 --page-size 20 --page-token TOKEN
  herald task list localhost:8000 --all --stream -o json    one task per line
  herald task list --data /srv/herald --all-owners          the tasks of every owner of a server";

const SUBSCRIBE_EXAMPLES: &str = "\
Examples:
  herald task subscribe localhost:8000 ID --stream            print events when they arrive
  herald task subscribe localhost:8000 ID                     print the task when it has ended
  herald task subscribe localhost:8000 ID --stream -o json    one event per line";

const DOWNLOAD_EXAMPLES: &str = "\
Examples:
  herald task download localhost:8000 ID                      into this directory
  herald task download localhost:8000 ID --dir out --force    replace existing files";

/// The task, and optionally the agent before it.
#[derive(Debug, Args)]
pub(crate) struct TaskName {
    /// The task's id; before it the agent, unless -a names it
    #[arg(value_name = "[REF] ID", num_args = 1..=2, required = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskGet {
    #[command(flatten)]
    pub(crate) name: TaskName,

    /// Wait until the task has ended or waits for you
    #[arg(long, visible_alias = "watch", help_heading = "Waiting")]
    pub(crate) wait: bool,

    /// Show this many of the newest messages [default: none as text, all that the agent sends as JSON]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) history: Option<i32>,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskList {
    /// The agent; the same as --agent-card
    #[arg(value_name = "REF", conflicts_with = "agent_card")]
    pub(crate) reference: Option<String>,

    /// Only tasks of this context
    #[arg(long, value_name = "ID")]
    pub(crate) context_id: Option<String>,

    /// Only tasks in this state, such as working or input-required
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub(crate) status: Option<TaskState>,

    /// Only tasks whose status changed at this time or later, such as 2026-11-16T00:00:00Z
    #[arg(long, value_name = "TIME", value_parser = timestamp)]
    pub(crate) since: Option<Timestamp>,

    /// Tasks per page, 1 to 100 [default: the agent's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=100))]
    pub(crate) page_size: Option<i32>,

    /// Continue after the page with this token
    #[arg(long, value_name = "TOKEN")]
    pub(crate) page_token: Option<String>,

    /// Fetch all pages
    #[arg(long)]
    pub(crate) all: bool,

    /// Show this many of the newest messages of each task
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    pub(crate) history: Option<i32>,

    /// Show the artifacts of the tasks
    #[arg(long)]
    pub(crate) artifacts: bool,

    /// With --server or --data: only tasks that failed for this reason, such as INTERRUPTED or NOT_STARTED
    #[arg(long, value_name = "REASON", help_heading = "Server")]
    pub(crate) failed_by: Option<String>,

    /// With --server or --data: the tasks of every owner, for administrators
    #[arg(long, help_heading = "Server")]
    pub(crate) all_owners: bool,

    #[command(flatten)]
    pub(crate) owner: OwnerArgs,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskShow {
    /// The task's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) owner: OwnerArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskLogArgs {
    /// The task's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// Only events after this number
    #[arg(long, value_name = "SEQ")]
    pub(crate) after: Option<u64>,

    /// Print further events when they are there, until the task has ended
    #[arg(long)]
    pub(crate) follow: bool,

    #[command(flatten)]
    pub(crate) owner: OwnerArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskAnswer {
    /// The task's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The id of the choice
    #[arg(value_name = "CHOICE", required_unless_present = "text")]
    pub(crate) choice: Option<String>,

    /// The id of the question that you read
    #[arg(long, value_name = "MESSAGE")]
    pub(crate) question: String,

    /// An answer in words, instead of a choice or beside it
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,

    #[command(flatten)]
    pub(crate) owner: OwnerArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskFail {
    /// The task's id
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// A sentence for the task's caller
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) reason: String,

    #[command(flatten)]
    pub(crate) owner: OwnerArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskRetry {
    /// The id of the task that failed or was rejected
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    #[command(flatten)]
    pub(crate) owner: OwnerArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskCancel {
    #[command(flatten)]
    pub(crate) name: TaskName,

    /// Metadata of the request, as a JSON object
    #[arg(long, value_name = "JSON", value_parser = metadata)]
    pub(crate) metadata: Option<Metadata>,

    #[command(flatten)]
    pub(crate) owner: OwnerArgs,

    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskSubscribe {
    #[command(flatten)]
    pub(crate) name: TaskName,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct TaskDownload {
    #[command(flatten)]
    pub(crate) name: TaskName,

    /// Directory for the files; nothing is written elsewhere
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) dir: PathBuf,

    /// Only this artifact, by its id
    #[arg(long, value_name = "ID")]
    pub(crate) artifact: Option<String>,

    /// Replace existing files
    #[arg(long)]
    pub(crate) force: bool,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

/// Verbs for the webhooks of a task.
#[derive(Debug, Subcommand)]
pub(crate) enum PushCommand {
    /// Add a webhook
    #[command(after_help = PUSH_EXAMPLES)]
    Create(PushCreate),
    /// Show a webhook
    Get(PushNamed),
    /// List a task's webhooks
    List(PushList),
    /// Remove a webhook
    Delete(PushNamed),
}

const PUSH_EXAMPLES: &str = "\
Examples:
  herald listen --port 9100                         a webhook on this machine, in another terminal
  herald task push-config create localhost:8000 ID --url http://127.0.0.1:9100/ --token SECRET";

#[derive(Debug, Args)]
pub(crate) struct PushCreate {
    #[command(flatten)]
    pub(crate) name: TaskName,

    /// The URL that the agent posts to
    #[arg(long, value_name = "URL")]
    pub(crate) url: String,

    /// A secret that the agent sends with each notification, so that the webhook can verify the sender
    #[arg(long, value_name = "SECRET")]
    pub(crate) token: Option<SecretArg>,

    /// The authentication scheme at the webhook, such as Bearer
    #[arg(long, value_name = "SCHEME")]
    pub(crate) auth_scheme: Option<String>,

    /// The credentials for that scheme
    #[arg(long, value_name = "SECRET", requires = "auth_scheme")]
    pub(crate) auth_credentials: Option<SecretArg>,

    /// The webhook's id [default: the agent chooses one]
    #[arg(long, value_name = "ID")]
    pub(crate) id: Option<String>,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushNamed {
    /// The task's id and the webhook's; before them the agent, unless -a names it
    #[arg(value_name = "[REF] ID CONFIG", num_args = 2..=3, required = true)]
    pub(crate) words: Vec<String>,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct PushList {
    #[command(flatten)]
    pub(crate) name: TaskName,

    /// Webhooks per page [default: the agent's]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) page_size: Option<i32>,

    /// Continue after the page with this token
    #[arg(long, value_name = "TOKEN")]
    pub(crate) page_token: Option<String>,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

impl TaskCommand {
    /// The output arguments, which all of them have.
    pub(crate) fn output(&self) -> &OutputArgs {
        match self {
            Self::Get(args) => &args.agent.output,
            Self::List(args) => &args.agent.output,
            Self::Cancel(args) => &args.agent.output,
            Self::Subscribe(args) => &args.agent.output,
            Self::Download(args) => &args.agent.output,
            Self::PushConfig(PushCommand::Create(args)) => &args.agent.output,
            Self::PushConfig(PushCommand::Get(args) | PushCommand::Delete(args)) => {
                &args.agent.output
            }
            Self::PushConfig(PushCommand::List(args)) => &args.agent.output,
            Self::Show(args) => &args.server.output,
            Self::Log(args) => &args.server.output,
            Self::Answer(args) => &args.server.output,
            Self::Fail(args) => &args.server.output,
            Self::Retry(args) => &args.server.output,
        }
    }
}

fn state(text: &str) -> Result<TaskState, String> {
    let known = TaskState::ALL.map(TaskState::kebab_name).join(", ");
    TaskState::from_name(text).ok_or_else(|| format!("the states are {known}"))
}

fn timestamp(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "write it as 2026-11-16T00:00:00Z".to_owned())
}
