//! The command line, as clap reads it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, builder::FalseyValueParser};

/// Makes anything that can work on a task into an A2A agent, and keeps every task it accepts.
#[derive(Debug, Parser)]
#[command(name = "herald", version, propagate_version = true, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve agents over A2A 1.0 and 0.3, on one port.
    ///
    /// With no configuration this serves an echo agent on 127.0.0.1:8000 and keeps its data in
    /// ./herald-data. Flags win over environment variables, those over the configuration file.
    #[command(after_long_help = SERVE_EXAMPLES)]
    Serve(Serve),
}

const SERVE_EXAMPLES: &str = "\
Examples:
  herald serve                              an echo agent, data in ./herald-data
  herald serve --ephemeral --port 9000      nothing is kept after it stops
  herald serve --config herald.toml         agents, limits and tokens from a file
  herald serve --stdio --ephemeral          one caller, over standard input and output

Try it from another terminal:
  curl http://127.0.0.1:8000/message:send -H 'A2A-Version: 1.0' \\
    -H 'Content-Type: application/json' -d '{\"message\":
      {\"messageId\":\"m1\",\"role\":\"ROLE_USER\",\"parts\":[{\"text\":\"Hello\"}]}}'";

#[derive(Debug, Default, Args)]
pub(crate) struct Serve {
    /// Address to listen on [default: 127.0.0.1]
    #[arg(long, env = "HERALD_HOST", value_name = "ADDRESS")]
    pub(crate) host: Option<String>,

    /// Port to listen on; 0 picks a free one [default: 8000]
    #[arg(long, env = "HERALD_PORT", value_name = "PORT")]
    pub(crate) port: Option<u16>,

    /// Directory to keep tasks in [default: herald-data]
    #[arg(long, env = "HERALD_DATA", value_name = "DIR", conflicts_with = "ephemeral")]
    pub(crate) data: Option<PathBuf>,

    /// Keep tasks in memory only: all are lost when the server stops
    #[arg(long, env = "HERALD_EPHEMERAL", value_parser = FalseyValueParser::new())]
    pub(crate) ephemeral: bool,

    /// Configuration file [default: herald.toml, if there is one]
    #[arg(long, env = "HERALD_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// The address that cards give to clients, when it is not the one listened on
    #[arg(long, env = "HERALD_PUBLIC_URL", value_name = "URL")]
    pub(crate) public_url: Option<String>,

    /// What to log, to standard error
    #[arg(long, env = "HERALD_LOG_LEVEL", value_enum, value_name = "LEVEL")]
    pub(crate) log_level: Option<LogLevel>,

    /// How to log
    #[arg(long, env = "HERALD_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,

    /// Serve one caller over standard input and output instead of a port: one JSON-RPC message per
    /// line each way, logs on standard error
    #[arg(long)]
    pub(crate) stdio: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum LogLevel {
    Error,
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
}
