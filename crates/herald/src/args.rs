//! Arguments of the command line, one file per family of verbs.

mod agent;
mod audit;
mod auth;
mod conformance;
mod doctor;
mod environment;
mod key;
mod listen;
mod mcp;
mod message;
mod operator;
mod serve;
mod task;
mod webhook;
mod worker;
mod worktree;

use std::{
    collections::BTreeSet,
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{
    ArgAction, ArgMatches, Args, ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue},
    parser::ValueSource,
};

use crate::{
    client::{
        error::CliError,
        layers::{self, Layers, Origin},
    },
    spelling::near,
};

pub(crate) use agent::{
    AgentArgs, Format, OutputArgs, SecretArg, TlsArgs, TransportArg, TrustArgs, VERSIONS,
};
pub(crate) use audit::{AuditCommand, AuditExport, AuditFilterArgs, AuditList, AuditVerify};
pub(crate) use auth::{AuthCommand, AuthLogin, AuthLogout, AuthStatus, LoginArgs};
pub(crate) use conformance::ConformanceArgs;
pub(crate) use doctor::Doctor;
pub(crate) use key::{KeyCommand, KeyCreate, KeyCreateSigning, KeyList};
pub(crate) use listen::Listen;
pub(crate) use mcp::McpArgs;
pub(crate) use message::{MessageArgs, PartArgs, PartSource, Send, WaitArgs};
pub(crate) use operator::{
    AgentCommand, OwnerArgs, PlaceArgs, ServerArgs, StatusArgs, StoreCommand, TenantCommand,
};
pub(crate) use serve::{
    A2aServer, CardArgs, CommonServeArgs, ListFormat, LogFormat, LogLevel, Serve,
};
pub(crate) use task::{
    PushCommand, PushCreate, PushList, PushNamed, TaskAnswer, TaskCancel, TaskCommand,
    TaskDownload, TaskFail, TaskGet, TaskList, TaskLogArgs, TaskRetry, TaskShow, TaskSubscribe,
};
pub(crate) use webhook::{WebhookCommand, WebhookFilter, WebhookSelected, WebhookStateArg};
pub(crate) use worker::WorkerArgs;
pub(crate) use worktree::{WorktreeClean, WorktreeCommand, WorktreePlace};

/// Serves programs, language models, coding agents and other A2A agents over A2A, stores every task
/// durably, and calls any A2A agent.
#[derive(Debug, Parser)]
#[command(name = "herald", version, propagate_version = true, arg_required_else_help = true)]
#[command(disable_version_flag = true, color = ColorChoice::Never, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: CliCommand,

    /// Print the version
    #[arg(short = 'v', short_alias = 'V', long, global = true, action = ArgAction::Version)]
    version: Option<bool>,
}

const EXAMPLES: &str = "\
Examples:
  herald serve                                      serve an echo agent
  herald card get localhost:8000                    show that agent's card
  herald send localhost:8000 \"Hello\"                send it a message and wait
  herald help send                                  show the help of one command";

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Serve agents over A2A 1.0, 0.3 and older, on one port.
    ///
    /// Without a configuration this serves an echo agent on 127.0.0.1:8000 and stores its data in
    /// ./herald-data. Flags override environment variables, which override the configuration file.
    #[command(after_long_help = serve::EXAMPLES)]
    Serve(Serve),

    /// Work on the tasks of one role of a server elsewhere, with an agent of this machine.
    ///
    /// The worker registers with the server, takes tasks of its role, runs them with its agent and
    /// sends the results back. The server keeps the tasks: a worker can stop, die and come back at any
    /// time. It reconnects for as long as it takes, and a server that restarts finds the running turns
    /// again.
    #[command(after_help = worker::EXAMPLES)]
    Worker(Box<WorkerArgs>),

    /// Show an agent's card
    #[command(subcommand)]
    Card(CardCommand),

    /// Send a message to an agent and wait for the result
    #[command(after_help = message::EXAMPLES)]
    Send(Send),

    /// Show tasks, wait for them, cancel them, save their artifacts
    #[command(subcommand)]
    Task(TaskCommand),

    /// Chat with an agent, turn by turn
    #[command(after_help = CHAT_HELP)]
    Chat(Chat),

    /// Receive webhooks on this machine: verify, print and forward them
    #[command(after_help = listen::EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Listen(Listen),

    /// Serve the agents of a server to an MCP client that starts this program
    ///
    /// Messages of the Model Context Protocol are read from standard input, posted to /mcp of the server, and its replies
    /// are written to standard output, one JSON object per line. Everything else is on standard error. An agent such as
    /// Claude Code can then discover the agents of the server and give them tasks.
    #[command(after_help = mcp::EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    #[command(mut_arg("timeout", |arg| arg.hide(true)), mut_arg("output", |arg| arg.hide(true)))]
    #[command(mut_arg("server", |arg| arg.help(mcp::SERVER_HELP)))]
    Mcp(McpArgs),

    /// Serve two test agents to try the other commands on; nothing is stored
    #[command(after_help = DEMO_EXAMPLES)]
    DemoServer(DemoServer),

    /// Print a script that completes commands for a shell
    #[command(after_help = COMPLETION_EXAMPLES)]
    Completion(Completion),

    /// Log in to agents and log out again
    #[command(subcommand)]
    Auth(AuthCommand),

    /// Show a server, and who you are to it
    #[command(after_help = operator::STATUS_EXAMPLES, mut_arg("stream", |arg| arg.hide(true)))]
    Status(StatusArgs),

    /// Create, list and revoke the API keys of a server
    #[command(subcommand)]
    Key(KeyCommand),

    /// Show the agents of a server
    #[command(subcommand)]
    Agent(AgentCommand),

    /// Show the tenants of a server
    #[command(subcommand)]
    Tenant(TenantCommand),

    /// Show, replay and enable the webhooks of tasks
    #[command(subcommand)]
    Webhook(WebhookCommand),

    /// List, verify and export the audit log of a server
    #[command(subcommand)]
    Audit(AuditCommand),

    /// Show the store of a server
    #[command(subcommand)]
    Store(StoreCommand),

    /// List and remove the work trees of coding agents' conversations
    #[command(subcommand)]
    Worktree(WorktreeCommand),

    /// Check everything that a server needs, and print a remedy for each fault
    #[command(after_help = doctor::EXAMPLES)]
    Doctor(Doctor),

    /// Show the settings of the commands that call agents, and the schema of herald.toml
    #[command(subcommand)]
    Config(ConfigCommand),

    /// Print the version
    Version,

    /// Check a server against the A2A specification
    ///
    /// Runs every applicable check over each binding and version that the server's card declares, and
    /// prints a table by requirement. Exits with 0 if every MUST that could be checked is met, 1 if
    /// one is not, 2 if the checks could not begin, 3 if the server cannot be reached, 4 if it
    /// requires credentials and there are none, or refuses the token.
    #[command(after_help = conformance::EXAMPLES)]
    Conformance(ConformanceArgs),
}

const CHAT_HELP: &str = "\
Every line is a message, all in one context; a task that waits for input gets the next line. /quit or
the end of the input ends the chat, /help lists the commands, and // sends a line that begins with /.
Every result is printed as by `herald send`, with -o json as one line; with --stream every event is
printed. The lines can also come from a pipe:
  printf 'Hello\\nAnd again\\n' | herald chat localhost:8000";

/// `herald chat`.
#[derive(Debug, Args)]
pub(crate) struct Chat {
    /// The agent; the same as --agent-card
    #[arg(value_name = "REF", conflicts_with = "agent_card")]
    pub(crate) reference: Option<String>,

    #[command(flatten)]
    pub(crate) message: MessageArgs,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

const DEMO_EXAMPLES: &str = "\
Examples:
  herald demo-server                                an echo agent on 127.0.0.1:8000
  herald send localhost:8000 \"Hello\"                in another terminal
  herald send localhost:8000/agents/demo \"tck-multi-turn\"";

/// `herald demo-server`.
#[derive(Debug, Args)]
pub(crate) struct DemoServer {
    /// Port to listen on, on loopback only; 0 picks a free one
    #[arg(long, value_name = "PORT", default_value_t = 8000)]
    pub(crate) port: u16,
}

const COMPLETION_EXAMPLES: &str = "\
Examples:
  herald completion bash > ~/.local/share/bash-completion/completions/herald
  herald completion zsh > ~/.zfunc/_herald
  herald completion fish > ~/.config/fish/completions/herald.fish";

/// `herald completion`.
#[derive(Debug, Args)]
pub(crate) struct Completion {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print every setting, its value and its source
    #[command(after_help = CONFIG_HELP, mut_arg("stream", |arg| arg.hide(true)))]
    Show(Box<ConfigShow>),

    /// Print the JSON Schema of herald.toml, for editors and checks
    Schema,
}

const CONFIG_HELP: &str = "\
In order of precedence: flag (--agent-card), variable (A2ACLI_AGENT_CARD), the file of --config or the
.env in this directory or above, ~/.config/a2a-cli/.env, default. Files have one A2ACLI_NAME=value per
line.";

/// All settings, so that each can be shown.
#[derive(Debug, Args)]
pub(crate) struct ConfigShow {
    #[command(flatten)]
    pub(crate) agent: AgentArgs,

    #[command(flatten)]
    message: MessageArgs,

    #[command(flatten)]
    waiting: WaitArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CardCommand {
    /// Fetch a card and show it
    #[command(after_help = CARD_EXAMPLES)]
    Get(CardGet),
}

const CARD_EXAMPLES: &str = "\
Examples:
  herald card get localhost:8000                    at a host, under its well-known path
  herald card get https://example.com/agents/echo   at a URL, or under its well-known path
  herald card get ./card.json --validate            in a file, checked against A2A 1.0
  herald card get catalog.json#reviewer             from the entry of a catalog, a file or a URL
  herald card get example.com --extended            the card for authenticated callers";

#[derive(Debug, Args)]
pub(crate) struct CardGet {
    /// The agent; the same as --agent-card
    #[arg(value_name = "REF", conflicts_with = "agent_card")]
    pub(crate) reference: Option<String>,

    /// Check the card against the schema of A2A 1.0, and list all violations
    #[arg(long)]
    pub(crate) validate: bool,

    /// Fetch the card for authenticated callers
    #[arg(long)]
    pub(crate) extended: bool,

    #[command(flatten)]
    pub(crate) agent: AgentArgs,
}

/// Flags of `a2a-server` that the original program does not have, so that they are not in its help.
pub(crate) const MORE: [&str; 9] = [
    "data",
    "ephemeral",
    "config",
    "exec",
    "workdir",
    "public_url",
    "log_format",
    "tls_certificate",
    "tls_key",
];

/// Flags that cannot be settings, since they select the subject of one call.
const EXPLICIT: [&str; 53] = [
    "action",
    "adapter",
    "after",
    "agent",
    "agent-description",
    "agent-name",
    "all",
    "all-owners",
    "artifact",
    "attempts",
    "concurrency",
    "config",
    "count",
    "data",
    "dir",
    "drain-timeout",
    "exec",
    "expires",
    "extended",
    "file",
    "follow",
    "force",
    "forward",
    "handler-package",
    "hash",
    "help",
    "id",
    "instance",
    "junit",
    "jwks",
    "label",
    "limit",
    "log-format",
    "log-level",
    "media-type",
    "model",
    "number",
    "page-token",
    "principal",
    "public-key",
    "question",
    "secret",
    "server",
    "skill",
    "stream",
    "tck",
    "tenant",
    "text",
    "url",
    "validate",
    "version",
    "visibility",
    "workdir",
];

/// Ids of flags that have the name of a setting of other verbs and are none themselves.
const SAME_NAME: [&str; 3] = ["audit_since", "key_scope", "listen_status"];

/// The parsed command line, and the settings of a client verb with their sources.
#[derive(Debug)]
pub(crate) struct ParsedArgs {
    pub(crate) cli: Cli,
    pub(crate) layers: Layers,
    pub(crate) settings: Vec<Setting>,
    /// Warnings about names with the prefix of settings that are not settings.
    pub(crate) unknown_settings: Vec<String>,
}

/// One setting of a client verb.
#[derive(Debug)]
pub(crate) struct Setting {
    /// The name of its flag.
    pub(crate) flag: String,
    pub(crate) value: Option<String>,
    pub(crate) origin: Origin,
}

/// An error in the command line or the settings.
#[derive(Debug)]
pub(crate) enum ArgsError {
    /// Also the output of help and version.
    Clap(clap::Error),
    CliError(CliError),
}

/// Parses the command line of `herald`. Settings from variables and files become the defaults of their flags in a second
/// parse, so that every value passes the same parser.
pub(crate) fn read(arguments: &[OsString]) -> Result<ParsedArgs, ArgsError> {
    let command = environment::without_inapplicable(Cli::command(), arguments);
    let found = command
        .clone()
        .try_get_matches_from(arguments)
        .map_err(|error| environment::named(error, &command, arguments))
        .map_err(|error| in_order(error, &command, arguments))?;
    let (names, leaf) = verb(&found);
    // Verbs with an output format or with credentials have settings.
    let has_settings = ["output", "bearer"].iter().any(|id| leaf.try_contains_id(id).is_ok());
    if !has_settings {
        let cli = Cli::from_arg_matches(&found)?;
        let layers = Layers::default();
        return Ok(ParsedArgs { cli, layers, settings: Vec::new(), unknown_settings: Vec::new() });
    }
    let layers = Layers::read(settings_file(leaf))?;
    let unknown_settings = unknown_settings(&command, &layers);
    let given = |id: &str| leaf.value_source(id) == Some(ValueSource::CommandLine);
    let own_credentials = subcommand(&command, &names).get_arguments().any(|arg| {
        let flag = arg.get_long().unwrap_or_default();
        let secret = layers::SECRETS.contains(&flag) || flag == "svc-param";
        secret && !given(arg.get_id().as_str()) && layers.is_own(flag)
    });
    let mut below = Vec::new();
    let mut settings = Vec::new();
    for arg in subcommand(&command, &names).get_arguments() {
        let Some(flag) = arg.get_long().filter(|flag| !EXPLICIT.contains(flag)) else { continue };
        if SAME_NAME.contains(&arg.get_id().as_str()) {
            continue;
        }
        // --wait overrides a setting of --async.
        let given = given(arg.get_id().as_str()) || flag == "async" && given("wait");
        let found = layers.get(flag).map(|(value, origin)| {
            if let Origin::Found(path) = &origin
                && let Some(why) = layers::objection(flag, &value, own_credentials)
            {
                return (None, Origin::Ignored(path.clone(), why));
            }
            (Some(value), origin)
        });
        let (value, origin) = match found {
            _ if given => (None, Origin::Flag),
            Some(found) => found,
            None => (None, Origin::Default),
        };
        let id = arg.get_id().to_string();
        settings.push((id.clone(), Setting { flag: flag.to_owned(), value: None, origin }));
        below.extend(value.map(|value| (id, value)));
    }
    let found = if below.is_empty() {
        found
    } else {
        with_defaults(command, &names, &below)
            .try_get_matches_from(arguments)
            .map_err(|error| named(&error, &settings))?
    };
    let (_, leaf) = verb(&found);
    let effective = |(id, setting): (String, Setting)| {
        let values = leaf.get_raw(&id).into_iter().flatten();
        let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
        let value = Some(values.join(",")).filter(|value| !value.is_empty());
        Setting { value, ..setting }
    };
    let settings = settings.into_iter().map(effective).collect();
    let cli = Cli::from_arg_matches(&found)?;
    Ok(ParsedArgs { cli, layers, settings, unknown_settings })
}

/// Warnings about misspelt settings, and about flags that cannot be settings. Names that resemble no setting may belong
/// to another program, since the prefix is common to all programs of the CLI specification.
fn unknown_settings(command: &clap::Command, layers: &Layers) -> Vec<String> {
    let mut flags = BTreeSet::new();
    client_flags(command, &mut flags);
    let (given, settings): (BTreeSet<_>, BTreeSet<_>) =
        flags.into_iter().partition(|flag| EXPLICIT.contains(&flag.as_str()));
    let given: BTreeSet<_> = given.iter().map(|flag| layers::variable(flag)).collect();
    let settings: BTreeSet<_> = settings.iter().map(|flag| layers::variable(flag)).collect();
    let remark = |(name, origin): (String, Origin)| {
        if settings.contains(&name) {
            return None;
        }
        // The name of a variable is enough to find it.
        let origin = if matches!(origin, Origin::Variable(_)) {
            String::new()
        } else {
            format!(" ({origin})")
        };
        if given.contains(&name) {
            return Some(format!("{name}{origin} is ignored: it can be given as a flag only"));
        }
        // The common prefix would make all names similar.
        let known = settings.iter().filter_map(|name| name.strip_prefix(layers::PREFIX));
        let near = near(name.strip_prefix(layers::PREFIX)?, known)?;
        Some(format!("{name}{origin} is not a setting; did you mean {}{near}?", layers::PREFIX))
    };
    layers.names().into_iter().filter_map(remark).collect()
}

/// The flags of all client verbs.
fn client_flags(command: &clap::Command, flags: &mut BTreeSet<String>) {
    if command.get_arguments().any(|arg| arg.get_id() == "output") {
        flags.extend(command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)));
    }
    for inner in command.get_subcommands() {
        client_flags(inner, flags);
    }
}

/// Parses the command line of `a2a-server`.
pub(crate) fn read_a2a_server(arguments: &[OsString]) -> Result<A2aServer, clap::Error> {
    let mut command = environment::without_inapplicable(A2aServer::command(), arguments);
    for name in MORE {
        command = command.mut_arg(name, |arg| arg.hide(true));
    }
    let found = command
        .clone()
        .try_get_matches_from(arguments)
        .map_err(|error| environment::named(error, &command, arguments))?;
    A2aServer::from_arg_matches(&found)
}

/// The error with a tip if the two words of a command are in the wrong order, as in `herald get card`.
fn in_order(
    mut error: clap::Error,
    command: &clap::Command,
    arguments: &[OsString],
) -> clap::Error {
    let swapped = || {
        let (first, second) = (arguments.get(1)?.to_str()?, arguments.get(2)?.to_str()?);
        command.find_subcommand(second)?.find_subcommand(first)?;
        Some(format!("write it in the other order: herald {second} {first}"))
    };
    if error.kind() == clap::error::ErrorKind::InvalidSubcommand
        && let Some(tip) = swapped()
    {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// The file of `--config`, for a verb whose flag of that name is the settings file.
fn settings_file(leaf: &ArgMatches) -> Option<&Path> {
    leaf.try_get_one::<PathBuf>("config").ok().flatten().map(PathBuf::as_path)
}

/// The names and the arguments of the verb.
fn verb(found: &ArgMatches) -> (Vec<String>, &ArgMatches) {
    let (mut names, mut leaf) = (Vec::new(), found);
    while let Some((name, inner)) = leaf.subcommand() {
        names.push(name.to_owned());
        leaf = inner;
    }
    (names, leaf)
}

fn subcommand<'a>(command: &'a clap::Command, names: &[String]) -> &'a clap::Command {
    let inner = |command: &'a clap::Command, name| command.find_subcommand(name);
    names.iter().try_fold(command, inner).expect("clap only matches verbs that exist")
}

/// The command with these values as defaults of the verb's flags.
fn with_defaults(
    command: clap::Command,
    names: &[String],
    values: &[(String, String)],
) -> clap::Command {
    match names.split_first() {
        Some((name, rest)) => {
            command.mut_subcommand(name, |inner| with_defaults(inner, rest, values))
        }
        None => values.iter().fold(command, |command, (id, value)| {
            command.mut_arg(id, |arg| match arg.get_value_delimiter() {
                Some(delimiter) => {
                    let values: Vec<_> = value.split(delimiter).map(str::to_owned).collect();
                    arg.default_values(values)
                }
                None => arg.default_value(value.clone()),
            })
        }),
    }
}

/// An error that names the variable or the file in place of the flag.
fn named(error: &clap::Error, settings: &[(String, Setting)]) -> CliError {
    let argument = error.get(ContextKind::InvalidArg).map(ToString::to_string).unwrap_or_default();
    let flag = argument.trim_start_matches("--").split([' ', '[']).next().unwrap_or_default();
    let set = settings.iter().find(|(_, setting)| setting.flag == flag);
    let origin = set.map(|(_, set)| format!(" (from {})", set.origin)).unwrap_or_default();
    CliError::usage(format!("{}{origin}", complaint(&error.render().to_string())))
        .hint(format!("correct it there, or override it with --{flag} on the command line"))
}

/// clap's error message, with its tips as the hint and without its usage.
pub(crate) fn wrong(error: &clap::Error) -> CliError {
    let said = error.render().to_string();
    let tips: Vec<_> = said.lines().filter_map(|line| line.trim().strip_prefix("tip: ")).collect();
    CliError::usage(complaint(&said)).hint(if tips.is_empty() {
        "see --help".to_owned()
    } else {
        tips.join("; ")
    })
}

/// The first paragraph of clap's message in one line, with the argument and its possible values.
fn complaint(said: &str) -> String {
    let lines = said.lines().take_while(|line| !line.is_empty()).map(str::trim);
    let line = lines.collect::<Vec<_>>().join(" ");
    line.strip_prefix("error: ").unwrap_or(&line).to_owned()
}

impl Setting {
    /// A note about a setting in a found file that was ignored, for a failed call.
    pub(crate) fn remark(&self) -> Option<String> {
        let Origin::Ignored(path, why) = &self.origin else { return None };
        let (flag, shown) = (&self.flag, path.display());
        Some(format!(
            "--{flag} in {shown} is ignored: {why}; give the flag, or the file with --config {shown} \
             if it is yours"
        ))
    }
}

impl From<clap::Error> for ArgsError {
    fn from(error: clap::Error) -> Self {
        Self::Clap(error)
    }
}

impl From<CliError> for ArgsError {
    fn from(fault: CliError) -> Self {
        Self::CliError(fault)
    }
}
