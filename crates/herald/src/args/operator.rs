//! Arguments of the verbs that operate a server over `/api`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::{
    AgentArgs, OutputArgs, SecretArg,
    agent::{TlsArgs, duration},
};

/// The server to operate: by its URL, or by its data directory.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PlaceArgs {
    /// The server, such as https://agents.example.com; needs a credential with the scope of the verb
    /// [default: the server of ./herald-data if that exists and no credential is given, or else
    /// http://127.0.0.1:8000]
    #[arg(long, value_name = "URL", conflicts_with = "data_directory", help_heading = "Server")]
    pub(crate) server: Option<String>,

    /// The data directory of a server on this machine, for the user that runs it; no credential is
    /// needed. Keys, tenants, the audit log and the store can also be reached while it is stopped
    #[arg(id = "data_directory", long = "data", value_name = "DIR", help_heading = "Server")]
    pub(crate) data: Option<PathBuf>,
}

/// The server, the way to call it, and the output format.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// A bearer token or an API key of Herald. The flag is visible in the process list and in the
    /// shell's history; A2ACLI_BEARER is not
    #[arg(long, value_name = "TOKEN", help_heading = "Credentials")]
    pub(crate) bearer: Option<SecretArg>,

    /// An API key, sent as X-API-Key. The flag is visible as --bearer is; A2ACLI_API_KEY is not
    #[arg(long, value_name = "KEY", help_heading = "Credentials")]
    pub(crate) api_key: Option<SecretArg>,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// The total time limit, such as 30s or 2h; 0 is no limit
    #[arg(long, value_parser = duration, default_value = "10m", help_heading = "Waiting")]
    #[arg(value_name = "DURATION")]
    pub(crate) timeout: Duration,
}

impl PlaceArgs {
    /// True if the command line names a server to operate.
    pub(crate) fn is_given(&self) -> bool {
        self.server.is_some() || self.data.is_some()
    }
}

impl ServerArgs {
    /// True if the command line, a variable or the settings have a credential.
    pub(crate) fn has_credential(&self) -> bool {
        self.bearer.is_some() || self.api_key.is_some() || self.tls.client_cert.is_some()
    }

    /// The arguments of a verb that can call an agent as well.
    pub(crate) fn of(place: &PlaceArgs, agent: &AgentArgs) -> Self {
        Self {
            place: place.clone(),
            bearer: agent.bearer.clone(),
            api_key: agent.api_key.clone(),
            tls: agent.trust.tls.clone(),
            output: agent.output.clone(),
            timeout: agent.timeout,
        }
    }
}

/// The owner of a task, if it is not the caller.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct OwnerArgs {
    /// The tenant of the task's owner, for administrators
    #[arg(long, value_name = "TENANT", help_heading = "Server")]
    pub(crate) tenant: Option<String>,

    /// The principal of the task's owner, for administrators
    #[arg(long, value_name = "PRINCIPAL", help_heading = "Server")]
    pub(crate) principal: Option<String>,
}

impl OwnerArgs {
    /// True if the command line names an owner.
    pub(crate) fn is_given(&self) -> bool {
        self.tenant.is_some() || self.principal.is_some()
    }
}

pub(super) const STATUS_EXAMPLES: &str = "\
Examples:
  herald status                                     the server of ./herald-data, or on port 8000
  herald status --server https://agents.example.com
  A2ACLI_BEARER=... herald status --server URL      who this credential is, and what it may do";

/// `herald status`.
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `herald agent`.
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the agents of a server and the workers of its roles, with the turns that run
    #[command(after_help = AGENT_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    List(AgentListArgs),
    /// Show one agent, or one worker
    #[command(after_help = AGENT_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Show(AgentShowArgs),
    /// Register an A2A agent elsewhere by its card
    #[command(after_help = AGENT_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Register(AgentRegisterArgs),
    /// Remove a remote agent, a worker, or all workers of a role
    #[command(after_help = AGENT_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Remove(AgentRemoveArgs),
}

const AGENT_EXAMPLES: &str = "\
Examples:
  herald agent list --data /srv/herald              as the user that runs the server
  herald agent list --skill review --tag python     the agents that can do it
  herald agent show echo --server http://127.0.0.1:8000
  herald agent register https://other.example.com --role researcher
  herald agent remove researcher                    a remote agent
  herald agent remove code-reviewer:dev-vm:abc123   one worker";

#[derive(Debug, Args)]
pub(crate) struct AgentListArgs {
    /// Only this role
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,

    /// Only agents with this skill
    #[arg(long, value_name = "ID")]
    pub(crate) skill: Option<String>,

    /// Only agents with a skill of this tag, or with this label
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,

    /// Only agents with this text in their name, their description or one of their skills
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Option<String>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentShowArgs {
    /// The agent's name
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentRegisterArgs {
    /// The URL of the agent, or of its card if it ends in .json
    #[arg(value_name = "CARD_URL")]
    pub(crate) card_url: String,

    /// The name by which messages reach it here [default: from the name in its card]
    #[arg(long, value_name = "ROLE")]
    pub(crate) role: Option<String>,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AgentRemoveArgs {
    /// The role of a remote agent or of workers, or the name of one worker
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `herald tenant`.
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// List the tenants that have tasks, with the numbers of their tasks and bytes
    #[command(after_help = TENANT_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    List(TenantListArgs),
}

const TENANT_EXAMPLES: &str = "\
Examples:
  herald tenant list                                of the server of ./herald-data
  herald tenant list --data /srv/herald -o json     also while that server is stopped";

#[derive(Debug, Args)]
pub(crate) struct TenantListArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// `herald store`.
#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Show the state of a server's store
    #[command(after_help = STORE_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Status(StoreStatusArgs),
}

const STORE_EXAMPLES: &str = "\
Examples:
  herald store status                               of the server of ./herald-data
  herald store status --server https://agents.example.com -o json";

#[derive(Debug, Args)]
pub(crate) struct StoreStatusArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl AgentCommand {
    pub(crate) fn server(&self) -> &ServerArgs {
        match self {
            Self::List(args) => &args.server,
            Self::Show(args) => &args.server,
            Self::Register(args) => &args.server,
            Self::Remove(args) => &args.server,
        }
    }
}
