//! `herald auth`, and what every other verb needs for it.

use clap::{Args, Subcommand};

use super::{AgentArgs, Hidden, OutputArgs};

/// Who calls, to the authorization server that the card names.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LoginArgs {
    /// The name that the agent's authorization server knows you by (OAuth, OpenID Connect)
    #[arg(long, value_name = "ID", help_heading = "Credentials")]
    pub(crate) client_id: Option<String>,

    /// What goes with --client-id, where there is no person to log in. What is said about --bearer holds
    /// here too; the variable is A2ACLI_CLIENT_SECRET
    #[arg(long, value_name = "SECRET", help_heading = "Credentials")]
    pub(crate) client_secret: Option<Hidden>,

    /// A scope to ask for; may be given again [default: those the card requires]
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', help_heading = "Credentials")]
    pub(crate) scope: Vec<String>,
}

/// `herald auth`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Log in where the agent's card says, and keep the login for later calls
    #[command(after_help = LOGIN_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Login(Box<AuthLogin>),

    /// Show which logins are kept
    #[command(mut_arg("stream", |arg| arg.hide(true)))]
    Status(AuthStatus),

    /// Forget a login, or all of them, and take it back where it came from
    #[command(mut_arg("stream", |arg| arg.hide(true)))]
    Logout(Box<AuthLogout>),
}

const LOGIN_EXAMPLES: &str = "\
Examples:
  herald auth login agents.example.com --client-id my-cli        you are told what to open and enter
  A2ACLI_CLIENT_SECRET=... herald auth login agents.example.com --client-id ci
  herald send agents.example.com \"Hello\"                         uses what was kept

The card names the authorization server. It has to be at the agent's own origin, or named with
--trust-origin. Logins are kept in ~/.config/a2a-cli/credentials.json, which only you can read.";

#[derive(Debug, Args)]
pub(crate) struct AuthLogin {
    /// The agent; the same as --agent-card
    #[arg(value_name = "REF", conflicts_with = "agent_card")]
    pub(crate) reference: Option<String>,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuthStatus {
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

#[derive(Debug, Args)]
pub(crate) struct AuthLogout {
    /// The agent; the same as --agent-card
    #[arg(value_name = "REF", conflicts_with_all = ["all", "agent_card"])]
    pub(crate) reference: Option<String>,

    /// Forget all logins
    #[arg(long, conflicts_with = "agent_card")]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

impl AuthCommand {
    pub(crate) fn output(&self) -> &OutputArgs {
        match self {
            Self::Login(args) => &args.agent.output,
            Self::Status(args) => &args.output,
            Self::Logout(args) => &args.agent.output,
        }
    }
}
