//! What every verb that calls an agent takes.

use std::{fmt, path::PathBuf, time::Duration};

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum, parser::ValueSource};
use herald_protocol::Version;
use http::{HeaderName, HeaderValue};

use super::LoginArgs;
use crate::output::quoted;

/// Which agent is called, how, and how the answer is shown.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentArgs {
    // Before the others, each of which takes its flag away when it is read.
    #[command(flatten)]
    pub(crate) again: Again,

    /// The agent: a host or an origin, the URL of a card, a file with one, or CATALOG#NAME
    #[arg(short, long, value_name = "REF", help_heading = "Agent")]
    pub(crate) agent_card: Option<String>,

    /// Call over this binding if the agent has it; give it again for a second choice [default: the
    /// order of the card]
    #[arg(long, value_name = "BINDING", value_enum, ignore_case = true, value_delimiter = ',')]
    #[arg(help_heading = "Agent")]
    pub(crate) transport: Vec<Binding>,

    /// The version of A2A to speak; older ones than 1.0 are spoken only when asked for [default: the
    /// highest that both sides know, from 1.0 on]
    #[arg(long, value_name = "VERSION", value_parser = version, help_heading = "Agent")]
    pub(crate) a2a_version: Option<Version>,

    /// A protocol extension to name in every call [default: those the card requires]
    #[arg(long, value_name = "URI", help_heading = "Agent")]
    pub(crate) extension: Vec<String>,

    /// A service parameter to send along, as a header or as gRPC metadata; may be given again
    #[arg(long, value_name = "KEY:VALUE", help_heading = "Agent")]
    pub(crate) svc_param: Vec<ServiceParameter>,

    /// A bearer token. Others on this machine can see the flag in the list of processes and in the
    /// shell's history; A2ACLI_BEARER is not seen there
    #[arg(long, value_name = "TOKEN", help_heading = "Credentials")]
    pub(crate) bearer: Option<Hidden>,

    /// An API key, sent where the card wants it. What is said about --bearer holds here too; the
    /// variable is A2ACLI_API_KEY
    #[arg(long, value_name = "KEY", help_heading = "Credentials")]
    pub(crate) api_key: Option<Hidden>,

    /// Send credentials to this origin too: a card may name interfaces elsewhere
    #[arg(long, value_name = "URL", help_heading = "Credentials")]
    pub(crate) trust_origin: Vec<String>,

    #[command(flatten)]
    pub(crate) login: LoginArgs,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// How long to wait in all, such as 30s or 2h; 0 is for ever
    #[arg(long, value_parser = duration, default_value = "10m", help_heading = "Waiting")]
    #[arg(value_name = "DURATION")]
    pub(crate) timeout: Duration,

    /// How often to look at a task that cannot be followed
    #[arg(long, value_parser = duration, default_value = "2s", help_heading = "Waiting")]
    #[arg(value_name = "DURATION")]
    pub(crate) poll_interval: Duration,
}

/// The flags of this call that another one to the same agent needs too, as they were written. Secrets
/// are not among them, nor is what may be one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Again {
    /// With a space before each.
    pub(crate) flags: String,
    /// Whether a flag names the agent, and no setting.
    pub(crate) named: bool,
}

/// How an agent is reached and believed.
const WAY: [&str; 14] = [
    "config",
    "transport",
    "a2a_version",
    "extension",
    "trust_origin",
    "client_id",
    "scope",
    "insecure",
    "ca_cert",
    "client_cert",
    "client_key",
    "card_keys",
    "card_keys_from",
    "require_signature",
];

/// Whom to believe, and what to show whoever asks for a certificate.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrustArgs {
    /// Do not check the certificate of the server, for servers of your own in development
    /// [default: false, certificates are checked]
    #[arg(long, value_name = "BOOL", help_heading = "Trust")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) insecure: Option<bool>,

    /// Believe servers that this authority vouches for, too: a file in PEM
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(crate) ca_cert: Option<PathBuf>,

    /// The certificate to show, with its chain: a file in PEM
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(crate) client_cert: Option<PathBuf>,

    /// The key of that certificate: a file in PEM [default: it is in the same file]
    #[arg(long, value_name = "FILE", requires = "client_cert", help_heading = "Trust")]
    pub(crate) client_key: Option<PathBuf>,

    /// Keys that cards may be signed with: a file with a JSON Web Key Set
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(crate) card_keys: Option<PathBuf>,

    /// Fetch the keys that a signature names from this origin, such as https://keys.example.com
    #[arg(long, value_name = "ORIGIN", help_heading = "Trust")]
    pub(crate) card_keys_from: Vec<String>,

    /// Call no agent whose card is not signed by one of these keys
    #[arg(long, value_name = "BOOL", help_heading = "Trust")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) require_signature: Option<bool>,
}

/// How a result is shown, and what is said on the way.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputArgs {
    /// How to print the result
    #[arg(id = "output", short = 'o', long = "output", value_enum, default_value_t)]
    #[arg(value_name = "FORMAT", help_heading = "Output")]
    pub(crate) format: Format,

    /// Follow what happens as it happens; with -o json, one JSON object per line
    #[arg(long, help_heading = "Output")]
    pub(crate) stream: bool,

    /// Show every part and member by itself [default: false, a short view]
    #[arg(long, value_name = "BOOL", help_heading = "Output")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) verbose: Option<bool>,

    /// Say on standard error what goes over the wire, without credentials [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Output")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) debug: Option<bool>,

    /// A file of settings, one A2ACLI_NAME=value per line [default: .env here or above]
    #[arg(long, value_name = "PATH", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
}

/// How an agent can be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Binding {
    /// JSON-RPC over HTTP
    Jsonrpc,
    /// HTTP and JSON
    #[value(name = "http+json", alias = "rest", alias = "http-json")]
    HttpJson,
    /// gRPC
    Grpc,
    /// JSON-RPC over a WebSocket, which Herald serves
    #[value(alias = "ws")]
    Websocket,
}

/// How a result is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Format {
    /// Labelled fields, one per line
    #[default]
    Text,
    /// The protocol's own types
    Json,
}

/// A secret of the command line, which is never printed.
#[derive(Clone)]
pub(crate) struct Hidden(pub(crate) String);

/// A key and a value beside the payload of a call.
#[derive(Debug, Clone)]
pub(crate) struct ServiceParameter {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

impl Args for Again {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Again {
    fn from_arg_matches(found: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |id: &str| found.value_source(id) == Some(ValueSource::CommandLine);
        let mut flags = String::new();
        for id in WAY.into_iter().filter(|id| given(id)) {
            let flag = id.replace('_', "-");
            for value in found.get_raw(id).into_iter().flatten() {
                let value = quoted(&value.to_string_lossy());
                // Switches take their value only with an equals sign.
                let between = if matches!(value.as_str(), "true" | "false") { '=' } else { ' ' };
                flags.push_str(&format!(" --{flag}{between}{value}"));
            }
        }
        Ok(Self { flags, named: given("agent_card") })
    }

    fn update_from_arg_matches(&mut self, found: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(found)?;
        Ok(())
    }
}

impl From<Binding> for herald_client::Binding {
    fn from(binding: Binding) -> Self {
        match binding {
            Binding::Jsonrpc => Self::JsonRpc,
            Binding::HttpJson => Self::Rest,
            Binding::Grpc => Self::Grpc,
            Binding::Websocket => Self::WebSocket,
        }
    }
}

impl From<&str> for Hidden {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl std::str::FromStr for ServiceParameter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once(':').ok_or("write it as KEY:VALUE")?;
        let name = name.trim().parse().map_err(|_| "the key cannot be the name of a header")?;
        let mut value = HeaderValue::from_str(value.trim())
            .map_err(|_| "the value cannot stand in a header")?;
        // It may be a credential, whatever its name.
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

fn version(text: &str) -> Result<Version, String> {
    let known = VERSIONS.map(|version| version.to_string()).join(", ");
    let wrong = || format!("this program speaks {known}");
    let version: Version = text.parse().map_err(|()| wrong())?;
    if VERSIONS.contains(&version) { Ok(version) } else { Err(wrong()) }
}

/// What can be asked for.
pub(crate) const VERSIONS: [Version; 4] =
    [Version::V1_0, Version::V0_3, Version::V0_2, Version::V0_1];

/// A length of time such as `500ms`, `30s` or `2h`; a plain number is in seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(text).map_err(|_| "write it as 500ms, 30s, 10m or 2h".to_owned())
}
