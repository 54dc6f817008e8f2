//! `herald serve`, and the same under another name.

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
  herald serve --ephemeral --port 9000      nothing is kept after it stops
  herald serve --config herald.toml         agents, limits and tokens from a file
  herald serve --stdio --ephemeral          one caller, over standard input and output

Try it from another terminal:
  curl http://127.0.0.1:8000/message:send -H 'A2A-Version: 1.0' \\
    -H 'Content-Type: application/json' -d '{\"message\":
      {\"messageId\":\"m1\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"Hello\"}]}}'";

/// Serves agents over A2A, with the flags of the server of that name.
///
/// It is `herald serve` under another name and takes its other flags and variables too.
#[derive(Debug, Parser)]
#[command(name = "a2a-server", version, after_long_help = A2A_SERVER_EXAMPLES)]
pub(crate) struct A2aServer {
    #[command(flatten)]
    serve: Serve,
}

const A2A_SERVER_EXAMPLES: &str = "\
Examples:
  a2a-server                                an echo handler on 127.0.0.1:8000
  a2a-server --port 9000 --log-level debug  more words, another port
  a2a-server --list-handlers                what can work on tasks

Try it from another terminal:
  curl http://127.0.0.1:8000/rpc -H 'Content-Type: application/json' -d '{\"jsonrpc\":\"2.0\",
      \"id\":1,\"method\":\"tasks/send\",\"params\":{\"message\":
      {\"role\":\"user\",\"parts\":[{\"type\":\"text\",\"text\":\"Hello\"}]}}}'";

impl From<A2aServer> for Serve {
    fn from(args: A2aServer) -> Self {
        Self { usual_format: LogFormat::Classic, ..args.serve }
    }
}

/// What `herald serve` and `a2a-server` have in common.
#[derive(Debug, Default, Args)]
pub(crate) struct Basics {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, env = "HERALD_HOST", value_name = "ADDRESS")]
    pub(crate) host: Option<String>,

    /// Port to listen on; 0 picks a free one [default: 8000]
    #[arg(long, env = "HERALD_PORT", value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// What to log, to standard error [default: info]
    #[arg(long, env = "HERALD_LOG_LEVEL", value_enum, ignore_case = true, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,

    /// Print what can work on tasks, built in, configured and found, and exit
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

    /// Look for no handlers beside the configuration file and on PATH
    #[arg(long)]
    pub(crate) no_discovery: bool,
}

/// Takes the name of a coding agent. The one that needs a command as well is refused with an example.
fn adapter() -> impl TypedValueParser<Value = Preset> {
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
    pub(crate) basics: Basics,

    /// Directory to keep tasks in [default: herald-data]
    #[arg(long, env = "HERALD_DATA", value_name = "DIR", conflicts_with = "ephemeral")]
    pub(crate) data: Option<PathBuf>,

    /// Keep tasks in memory only: all are lost when the server stops
    #[arg(long, env = "HERALD_EPHEMERAL", value_parser = FalseyValueParser::new())]
    pub(crate) ephemeral: bool,

    /// Configuration file [default: herald.toml, if there is one]
    #[arg(long, env = "HERALD_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Speak TLS, with the certificate in this PEM file, its chain behind it
    #[arg(long, env = "HERALD_TLS_CERTIFICATE", value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_certificate: Option<PathBuf>,

    /// The private key of the certificate, in PEM
    #[arg(long, env = "HERALD_TLS_KEY", value_name = "FILE", requires = "tls_certificate")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Serve a program as an agent at the root: a message is its input, what it prints the answer
    #[arg(long, value_name = "COMMAND", conflicts_with = "adapter")]
    pub(crate) exec: Option<String>,

    /// Serve a coding agent at the root, on port 41242 unless another is given
    #[arg(long, env = "AGENT_ADAPTER", value_name = "NAME", value_parser = adapter())]
    pub(crate) adapter: Option<Preset>,

    /// Where the program of --exec or --adapter runs [default: here]
    #[arg(long, value_name = "DIR", requires = "program")]
    pub(crate) workdir: Option<PathBuf>,

    /// The model that the agent of --adapter is to use, or AGENT_MODEL [default: its own choice]
    #[arg(long, value_name = "MODEL", requires = "adapter")]
    pub(crate) model: Option<String>,

    /// Let the agent of --adapter do everything unasked, as AGENT_FORCE=true does
    #[arg(long, requires = "adapter")]
    pub(crate) force: bool,

    /// The address that cards give to clients, when it is not the one listened on
    #[arg(long, env = "HERALD_PUBLIC_URL", value_name = "URL")]
    pub(crate) public_url: Option<String>,

    /// How to log [default: text]
    #[arg(long, env = "HERALD_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    /// How to log when nobody says.
    #[arg(skip)]
    pub(crate) usual_format: LogFormat,
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
    /// Lines as earlier A2A servers wrote them, with what callers say at level debug
    Classic,
}
