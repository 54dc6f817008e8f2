//! Arguments of `herald auth`, and the OAuth arguments of all client verbs.

use clap::{Args, Subcommand};

use super::{AgentArgs, OutputArgs, SecretArg};

/// The client's identity at the authorization server of the card.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct LoginArgs {
    /// The client id at the agent's authorization server (OAuth, OpenID Connect)
    #[arg(long, value_name = "ID", help_heading = "Credentials")]
    pub(crate) client_id: Option<String>,

    /// The client secret, for programs without a user. The flag is visible as --bearer is;
    /// A2ACLI_CLIENT_SECRET is not
    #[arg(long, value_name = "SECRET", help_heading = "Credentials")]
    pub(crate) client_secret: Option<SecretArg>,

    /// A scope to request; may be repeated [default: those the card requires]
    #[arg(long, value_name = "SCOPE", value_delimiter = ',', help_heading = "Credentials")]
    pub(crate) scope: Vec<String>,
}

/// `herald auth`.
#[derive(Debug, Subcommand)]
pub(crate) enum AuthCommand {
    /// Log in at the authorization server of the agent's card, and store the login for later calls
    #[command(after_help = LOGIN_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Login(Box<AuthLogin>),

    /// Show the stored logins
    #[command(mut_arg("stream", |arg| arg.hide(true)))]
    Status(AuthStatus),

    /// Delete a login, or all of them, and revoke it at the server
    #[command(mut_arg("stream", |arg| arg.hide(true)))]
    Logout(Box<AuthLogout>),
}

const LOGIN_EXAMPLES: &str = "\
Examples:
  herald auth login agents.example.com --client-id my-cli        prints the page to open and the code
  A2ACLI_CLIENT_SECRET=... herald auth login agents.example.com --client-id ci
  herald send agents.example.com \"Hello\"                         uses the stored login

The card names the authorization server. It has to be at the agent's own origin, or at one of
--trust-origin. Logins are stored in ~/.config/a2a-cli/credentials.json, which only you can read.";

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

    /// Delete all logins
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
