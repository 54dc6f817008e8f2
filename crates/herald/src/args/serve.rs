//! Arguments of `herald serve` and `a2a-server`.

use std::path::PathBuf;

use clap::{
    ArgGroup, Args, Parser, ValueEnum,
    builder::{FalseyValueParser, PossibleValue, PossibleValuesParser, TypedValueParser},
};
use herald_agents::Preset;

pub(super) const EXAMPLES: &str = "\
Examples:
  herald serve                              an echo agent, data in ./herald-data
  herald serve --exec 'wc -w'               any program as an agent
  herald serve --adapter claude-code        a coding agent, in this directory
  herald serve --ephemeral --port 9000      tasks in memory only
  herald serve --config herald.toml         agents, limits and tokens from a file
  herald serve --stdio --ephemeral          one caller, over standard input and output

Try it from another terminal:
  curl http://127.0.0.1:8000/message:send -H 'A2A-Version: 1.0' \\
    -H 'Content-Type: application/json' -d '{\"message\":
      {\"messageId\":\"m1\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"Hello\"}]}}'";

/// Serves agents over A2A, with the flags of the server of that name.
///
/// It is `herald serve` under another name, with all its flags and variables.
#[derive(Debug, Parser)]
#[command(name = "a2a-server", version, after_long_help = A2A_SERVER_EXAMPLES)]
pub(crate) struct A2aServer {
    #[command(flatten)]
    serve: Serve,
}

const A2A_SERVER_EXAMPLES: &str = "\
Examples:
  a2a-server                                an echo handler on 127.0.0.1:8000
  a2a-server --port 9000 --log-level debug  another port, a detailed log
  a2a-server --list-handlers                the available handlers

Try it from another terminal:
  curl http://127.0.0.1:8000/rpc -H 'Content-Type: application/json' -d '{\"jsonrpc\":\"2.0\",
      \"id\":1,\"method\":\"tasks/send\",\"params\":{\"message\":
      {\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"text\":\"Hello\"}]}}}'";

impl From<A2aServer> for Serve {
    fn from(args: A2aServer) -> Self {
        Self { default_format: LogFormat::Classic, is_a2a_server: true, ..args.serve }
    }
}

/// The flags in the help of both `herald serve` and `a2a-server`.
#[derive(Debug, Default, Args)]
pub(crate) struct CommonServeArgs {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, env = "HERALD_HOST", value_name = "ADDRESS")]
    pub(crate) host: Option<String>,

    /// Port to listen on; 0 picks a free one [default: 8000]
    #[arg(long, env = "HERALD_PORT", value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// Log level; logs go to standard error [default: info]
    #[arg(long, env = "HERALD_LOG_LEVEL", value_enum, ignore_case = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,

    /// Print the handlers that can be chosen, and exit
    #[arg(
        long,
        value_enum,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "table"
    )]
    pub(crate) list_handlers: Option<ListFormat>,

    /// Serve one caller over standard input and output instead of a port: one JSON-RPC message per
    /// line each way, logs on standard error
    #[arg(long)]
    pub(crate) stdio: bool,

    /// Serve the handlers of this Python package, or with `entry-points` those of installed ones
    #[arg(long, value_name = "PACKAGE")]
    pub(crate) handler_package: Vec<String>,

    /// Do not search for handlers beside the configuration file and on PATH, nor, as `a2a-server`, in
    /// installed Python packages
    #[arg(long)]
    pub(crate) no_discovery: bool,
}

/// Parser of a coding agent's name. `acp` also needs a command, so it is refused with an example.
pub(super) fn adapter() -> impl TypedValueParser<Value = Preset> {
    let known =
        Preset::ALL.map(|preset| PossibleValue::new(preset.name()).hide(preset == Preset::Acp));
    PossibleValuesParser::new(known).try_map(|name| {
        match Preset::ALL.into_iter().find(|preset| preset.name() == name) {
            None | Some(Preset::Acp) => {
                Err("an agent that speaks ACP needs a command, so put it into herald.toml:\n\n  \
             [[agents]]\n  name = \"coder\"\n  kind = \"acp\"\n  \
             command = [\"opencode\", \"acp\"]")
            }
            Some(preset) => Ok(preset),
        }
    })
}

#[derive(Debug, Default, Args)]
#[command(group = ArgGroup::new("program").args(["exec", "adapter"]))]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) basics: CommonServeArgs,

    /// Directory for the tasks [default: herald-data]
    #[arg(long, env = "HERALD_DATA", value_name = "DIR", conflicts_with = "ephemeral")]
    pub(crate) data: Option<PathBuf>,

    /// Store tasks in memory only: all are lost when the server stops
    #[arg(long, env = "HERALD_EPHEMERAL", value_parser = FalseyValueParser::new())]
    pub(crate) ephemeral: bool,

    /// Configuration file [default: herald.toml, if there is one]
    #[arg(long, env = "HERALD_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Use TLS with the certificate in this PEM file, followed by its chain
    #[arg(long, env = "HERALD_TLS_CERTIFICATE", value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// The private key of the certificate, in PEM
    #[arg(long, env = "HERALD_TLS_KEY", value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Serve a program as an agent at the root: the message is its input, its output is the answer
    #[arg(long, value_name = "COMMAND", conflicts_with = "adapter")]
    pub(crate) exec: Option<String>,

    /// Serve a coding agent at the root, on port 41242 unless another is given
    #[arg(long, env = "AGENT_ADAPTER", value_name = "NAME", value_parser = adapter())]
    pub(crate) adapter: Option<Preset>,

    /// Working directory of the program of --exec or --adapter [default: this directory]
    #[arg(long, value_name = "DIR", requires = "program")]
    pub(crate) workdir: Option<PathBuf>,

    /// The model of the agent of --adapter, or AGENT_MODEL [default: the agent's own]
    #[arg(long, value_name = "MODEL", requires = "adapter")]
    pub(crate) model: Option<String>,

    /// Let the agent of --adapter do everything without asking, as AGENT_FORCE=true does
    #[arg(long, requires = "adapter")]
    pub(crate) force: bool,

    /// The address in cards, if it differs from the one listened on
    #[arg(long, env = "HERALD_PUBLIC_URL", value_name = "URL")]
    pub(crate) public_url: Option<String>,

    #[command(flatten)]
    pub(crate) card: CardArgs,

    /// Log format [default: text]
    #[arg(long, env = "HERALD_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    /// The log format without a flag or a key.
    #[arg(skip)]
    pub(crate) default_format: LogFormat,

    /// True under the name `a2a-server`, which serves the network without credentials, with a warning.
    #[arg(skip)]
    pub(crate) is_a2a_server: bool,
}

/// The texts on the card at the root.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct CardArgs {
    /// The name on the card at the root [default: the agent's]
    #[arg(long, env = "HERALD_CARD_TITLE", value_name = "TEXT")]
    pub(crate) card_title: Option<String>,

    /// The description on the card at the root [default: the agent's]
    #[arg(long, env = "HERALD_CARD_DESCRIPTION", value_name = "TEXT")]
    pub(crate) card_description: Option<String>,

    /// The agent's own version on the card at the root [default: that of Herald]
    #[arg(long, env = "HERALD_CARD_VERSION", value_name = "VERSION")]
    pub(crate) card_version: Option<String>,
}

impl CardArgs {
    /// The flags that are set, with their values.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("--card-title", &self.card_title),
            ("--card-description", &self.card_description),
            ("--card-version", &self.card_version),
        ];
        all.into_iter().filter_map(|(flag, text)| Some((flag, text.as_deref()?)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ListFormat {
    /// For people
    Table,
    /// For programs
    Json,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogLevel {
    #[value(alias = "critical")]
    Error,
    #[value(alias = "warning")]
    Warn,
    #[default]
    Info,
    Debug,
    Trace,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// One JSON object per line, for programs
    Json,
    /// Lines in the format of a2a-server, with texts of messages at level debug
    Classic,
}
