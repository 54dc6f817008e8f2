//! Arguments of `herald worker`.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use clap::{ArgGroup, Args};
use herald_agents::Preset;
use herald_protocol::AgentName;

use super::{
    CommonServeArgs, Format, LogFormat, LogLevel, OutputArgs, PlaceArgs, SecretArg, Serve,
    ServerArgs, TlsArgs, agent::duration, serve::adapter,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  herald worker --server https://agents.example.com --agent-name code-reviewer \\
      --agent-description \"Python code review specialist\"       the coding agent of this machine
  herald worker --server localhost:8000 --agent-name counter --exec 'wc -w'
  herald worker --server localhost:8000 --agent-name coder --adapter codex --workdir ~/src/project
  herald worker --server localhost:8000 --agent-name summary --config herald.toml

Callers send to the role, at https://agents.example.com/agents/code-reviewer; the server gives each
task to one of the role's workers. Start as many workers as you like, on any machine that reaches the
server. A worker needs a credential with the scope `work`, or `register` as well for a role that the
server does not know yet:
  herald key create --principal reviewers --scope work,register --agent code-reviewer
  A2ACLI_BEARER=hrld_... herald worker ...

SIGTERM or Ctrl-C: it takes no more work, ends its running turns within --drain-timeout, and hands
back the others. A second signal ends it at once. If a worker is killed, the server gives its tasks to
another worker, if the agent allows another attempt (see --attempts); otherwise they fail.";

/// `herald worker`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("worker_agent")
    .args(["exec", "adapter", "handler_package", "agents_file"]))]
#[command(group = ArgGroup::new("worker_program").args(["exec", "adapter"]).multiple(false))]
pub(crate) struct WorkerArgs {
    /// The server whose tasks to work on, such as https://agents.example.com
    #[arg(long, value_name = "URL")]
    pub(crate) server: String,

    /// The role: the name by which callers reach the agent, /agents/ROLE
    #[arg(long, value_name = "ROLE", value_parser = role)]
    pub(crate) agent_name: String,

    /// The description in the card of the role [default: the agent's own]
    #[arg(long, value_name = "TEXT")]
    pub(crate) agent_description: Option<String>,

    /// Work with a program: the message is its input, its output is the answer
    #[arg(long, value_name = "COMMAND", help_heading = "Agent")]
    pub(crate) exec: Option<String>,

    /// Work with a coding agent [default without another agent: the one that is installed, of claude,
    /// codex, cursor-agent, gemini and opencode]
    #[arg(long, value_name = "NAME", value_parser = adapter(), help_heading = "Agent")]
    pub(crate) adapter: Option<Preset>,

    /// Work with a handler of this Python package, or with `entry-points` of the installed ones: the
    /// handler with the name of the role, or the only one
    #[arg(long, value_name = "PACKAGE", help_heading = "Agent")]
    pub(crate) handler_package: Vec<String>,

    /// Work with an agent of this herald.toml: the [[agents]] entry with the name of the role, or the
    /// only one
    #[arg(id = "agents_file", long = "config", value_name = "FILE", help_heading = "Agent")]
    pub(crate) config: Option<PathBuf>,

    /// Working directory of the program of --exec or --adapter [default: this directory]
    #[arg(long, value_name = "DIR", requires = "worker_program", help_heading = "Agent")]
    pub(crate) workdir: Option<PathBuf>,

    /// The model of the agent of --adapter, or AGENT_MODEL [default: the agent's own]
    #[arg(long, value_name = "MODEL", requires = "adapter", help_heading = "Agent")]
    pub(crate) model: Option<String>,

    /// Let the agent of --adapter do everything without asking, as AGENT_FORCE=true does
    #[arg(long, requires = "adapter", help_heading = "Agent")]
    pub(crate) force: bool,

    /// The number of turns that run at once [default: the agent's own, at most 64]
    #[arg(long, value_name = "NUMBER", help_heading = "Work")]
    pub(crate) concurrency: Option<NonZeroUsize>,

    /// The number of attempts at a turn whose worker died, the first one included; 1 fails its task
    /// [default: the agent's own, which is 1 for --exec]
    #[arg(long, value_name = "NUMBER", help_heading = "Work")]
    pub(crate) attempts: Option<NonZeroU32>,

    /// A label that tasks can require, such as gpu; may be repeated
    #[arg(long = "label", value_name = "LABEL", help_heading = "Work")]
    pub(crate) labels: Vec<String>,

    /// The id of this worker beside the name of its host. A worker that starts again under the same id
    /// replaces its former life at once [default: random]
    #[arg(long, value_name = "ID", value_parser = instance, help_heading = "Work")]
    pub(crate) instance: Option<String>,

    /// The time that running turns have to end after SIGTERM or Ctrl-C, before they are handed back
    #[arg(long, value_parser = duration, default_value = "30s", value_name = "DURATION")]
    #[arg(help_heading = "Work")]
    pub(crate) drain_timeout: Duration,

    /// A bearer token or an API key of Herald. The flag is visible in the process list and in the
    /// shell's history; A2ACLI_BEARER is not
    #[arg(long, value_name = "TOKEN", help_heading = "Credentials")]
    pub(crate) bearer: Option<SecretArg>,

    /// An API key, sent as X-API-Key. The flag is visible as --bearer is; A2ACLI_API_KEY is not
    #[arg(long, value_name = "KEY", help_heading = "Credentials")]
    pub(crate) api_key: Option<SecretArg>,

    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    /// Log level; logs go to standard error
    #[arg(long, env = "HERALD_LOG_LEVEL", value_enum, ignore_case = true, value_name = "LEVEL")]
    #[arg(default_value = "info", help_heading = "Log")]
    pub(crate) log_level: LogLevel,

    /// Log format
    #[arg(long, env = "HERALD_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    #[arg(default_value = "text", help_heading = "Log")]
    pub(crate) log_format: LogFormat,
}

impl WorkerArgs {
    /// The arguments of `herald serve` with the same agent.
    pub(crate) fn agent(&self) -> Serve {
        Serve {
            basics: CommonServeArgs {
                handler_package: self.handler_package.clone(),
                no_discovery: true,
                ..CommonServeArgs::default()
            },
            config: self.config.clone(),
            exec: self.exec.clone(),
            adapter: self.adapter,
            workdir: self.workdir.clone(),
            model: self.model.clone(),
            force: self.force,
            ..Serve::default()
        }
    }

    /// The server and the credentials for it.
    pub(crate) fn connection(&self) -> ServerArgs {
        ServerArgs {
            place: PlaceArgs { server: Some(self.server.clone()), data: None },
            bearer: self.bearer.clone(),
            api_key: self.api_key.clone(),
            tls: self.tls.clone(),
            output: OutputArgs {
                format: Format::Text,
                stream: false,
                verbose: None,
                debug: None,
                config: None,
            },
            timeout: Duration::ZERO,
        }
    }
}

fn role(text: &str) -> Result<String, &'static str> {
    if AgentName::new(text).is_segment() {
        Ok(text.to_owned())
    } else if text.contains(':') {
        Err(
            "this is the name of one worker; give the role, which is the part before the first colon",
        )
    } else {
        Err("a role has 1 to 63 characters of a-z, 0-9 and -")
    }
}

fn instance(text: &str) -> Result<String, &'static str> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
    if (1..=64).contains(&text.len()) && text.chars().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err("an id has 1 to 64 characters of letters, digits, '.', '_' and '-'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_told_apart_from_the_name_of_a_worker() {
        assert_eq!(role("code-reviewer"), Ok("code-reviewer".to_owned()));
        assert!(role("code-reviewer:host:1").unwrap_err().contains("before the first colon"));
        assert!(role("Code").unwrap_err().contains("a-z"));
        assert!(instance("worker-1").is_ok());
        assert!(instance("a:b").is_err() && instance("").is_err());
    }
}
