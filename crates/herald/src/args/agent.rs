//! Arguments of every verb that calls an agent.

use std::{fmt, path::PathBuf, time::Duration};

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum, parser::ValueSource};
use herald_protocol::Version;
use http::{HeaderName, HeaderValue};

use super::LoginArgs;
use crate::output::quoted;

/// The agent, the way to call it, and the output format.
#[derive(Debug, Clone, Args)]
pub(crate) struct AgentArgs {
    // Before the others, since reading a flag removes it from the matches.
    #[command(flatten)]
    pub(crate) again: RepeatFlags,

    /// The agent: a host or an origin, the URL of a card, the file of a card, or CATALOG#NAME
    #[arg(short, long, value_name = "REF", help_heading = "Agent")]
    pub(crate) agent_card: Option<String>,

    /// Prefer this binding; repeat it for a second choice [default: the order of the card]
    #[arg(long, value_name = "BINDING", value_enum, ignore_case = true, value_delimiter = ',')]
    #[arg(help_heading = "Agent")]
    pub(crate) transport: Vec<TransportArg>,

    /// The protocol version; versions before 1.0 are used on request only [default: the highest that
    /// both sides support, at least 1.0]
    #[arg(long, value_name = "VERSION", value_parser = version, help_heading = "Agent")]
    pub(crate) a2a_version: Option<Version>,

    /// A protocol extension to declare in every call [default: those the card requires]
    #[arg(long, value_name = "URI", help_heading = "Agent")]
    pub(crate) extension: Vec<String>,

    /// A service parameter, sent as a header or as gRPC metadata; may be repeated
    #[arg(long, value_name = "KEY:VALUE", help_heading = "Agent")]
    pub(crate) svc_param: Vec<ServiceParameter>,

    /// A bearer token. The flag is visible in the process list and in the shell's history;
    /// A2ACLI_BEARER is not
    #[arg(long, value_name = "TOKEN", help_heading = "Credentials")]
    pub(crate) bearer: Option<SecretArg>,

    /// An API key, sent as the card requires. The flag is visible as --bearer is; A2ACLI_API_KEY is
    /// not
    #[arg(long, value_name = "KEY", help_heading = "Credentials")]
    pub(crate) api_key: Option<SecretArg>,

    /// Also send credentials to this origin, if the card has interfaces there
    #[arg(long, value_name = "URL", help_heading = "Credentials")]
    pub(crate) trust_origin: Vec<String>,

    #[command(flatten)]
    pub(crate) login: LoginArgs,

    #[command(flatten)]
    pub(crate) trust: TrustArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    /// The total time limit, such as 30s or 2h; 0 is no limit
    #[arg(long, value_parser = duration, default_value = "10m", help_heading = "Waiting")]
    #[arg(value_name = "DURATION")]
    pub(crate) timeout: Duration,

    /// The pause between polls of a task that cannot be streamed
    #[arg(long, value_parser = duration, default_value = "2s", help_heading = "Waiting")]
    #[arg(value_name = "DURATION")]
    pub(crate) poll_interval: Duration,
}

/// The flags of this call that the next call to the same agent needs, without possible secrets.
#[derive(Debug, Clone, Default)]
pub(crate) struct RepeatFlags {
    /// The flags, each with a space before it.
    pub(crate) flags: String,
    /// True if a flag names the agent, not a setting.
    pub(crate) named: bool,
}

/// Flags that decide how an agent is reached and trusted.
const REPEATED: [&str; 14] = [
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

/// Trusted certificates, and the client certificate.
#[derive(Debug, Clone, Args)]
pub(crate) struct TlsArgs {
    /// Do not check the server's certificate; for development only [default: false, certificates are
    /// checked]
    #[arg(long, value_name = "BOOL", help_heading = "Trust")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) insecure: Option<bool>,

    /// Also trust this certificate authority: a file in PEM
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(crate) ca_cert: Option<PathBuf>,

    /// The client certificate with its chain: a file in PEM
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(crate) client_cert: Option<PathBuf>,

    /// The key of the client certificate: a file in PEM [default: in the same file]
    #[arg(long, value_name = "FILE", requires = "client_cert", help_heading = "Trust")]
    pub(crate) client_key: Option<PathBuf>,
}

/// Trusted certificates and keys, and the client certificate.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrustArgs {
    #[command(flatten)]
    pub(crate) tls: TlsArgs,

    /// Trusted keys for signatures of cards: a file with a JSON Web Key Set
    #[arg(long, value_name = "FILE", help_heading = "Trust")]
    pub(crate) card_keys: Option<PathBuf>,

    /// Fetch the keys that a signature names from this origin, such as https://keys.example.com
    #[arg(long, value_name = "ORIGIN", help_heading = "Trust")]
    pub(crate) card_keys_from: Vec<String>,

    /// Refuse agents whose card is not signed with one of these keys
    #[arg(long, value_name = "BOOL", help_heading = "Trust")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) require_signature: Option<bool>,
}

/// The output format and diagnostics.
#[derive(Debug, Clone, Args)]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(id = "output", short = 'o', long = "output", value_enum, default_value_t)]
    #[arg(value_name = "FORMAT", help_heading = "Output")]
    pub(crate) format: Format,

    /// Print events when they arrive; with -o json, one JSON object per line
    #[arg(long, help_heading = "Output")]
    pub(crate) stream: bool,

    /// Show every part and member separately [default: false, a short view]
    #[arg(long, value_name = "BOOL", help_heading = "Output")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) verbose: Option<bool>,

    /// Print requests and responses on standard error, without credentials [default: false]
    #[arg(long, value_name = "BOOL", help_heading = "Output")]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) debug: Option<bool>,

    /// A settings file, one A2ACLI_NAME=value per line [default: .env in this directory or above]
    #[arg(long, value_name = "PATH", help_heading = "Settings")]
    pub(crate) config: Option<PathBuf>,
}

/// The bindings that an agent can be called over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportArg {
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

/// Output formats.
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
pub(crate) struct SecretArg(pub(crate) String);

/// A key and a value beside the payload of a call.
#[derive(Debug, Clone)]
pub(crate) struct ServiceParameter {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
}

impl Args for RepeatFlags {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for RepeatFlags {
    fn from_arg_matches(found: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |id: &str| found.value_source(id) == Some(ValueSource::CommandLine);
        let mut flags = String::new();
        for id in REPEATED.into_iter().filter(|id| given(id)) {
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

impl TransportArg {
    /// Its name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Jsonrpc => "jsonrpc",
            Self::HttpJson => "http+json",
            Self::Grpc => "grpc",
            Self::Websocket => "websocket",
        }
    }
}

impl From<TransportArg> for herald_client::Binding {
    fn from(binding: TransportArg) -> Self {
        match binding {
            TransportArg::Jsonrpc => Self::JsonRpc,
            TransportArg::HttpJson => Self::Rest,
            TransportArg::Grpc => Self::Grpc,
            TransportArg::Websocket => Self::WebSocket,
        }
    }
}

impl From<&str> for SecretArg {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for SecretArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl std::str::FromStr for ServiceParameter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once(':').ok_or("write it as KEY:VALUE")?;
        let name = name.trim().parse().map_err(|_| "the key is not a valid header name")?;
        let mut value = HeaderValue::from_str(value.trim())
            .map_err(|_| "the value is not a valid header value")?;
        // Any service parameter may be a credential.
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

fn version(text: &str) -> Result<Version, String> {
    let known = VERSIONS.map(|version| version.to_string()).join(", ");
    let wrong = || format!("the supported versions are {known}");
    let version: Version = text.parse().map_err(|()| wrong())?;
    if VERSIONS.contains(&version) { Ok(version) } else { Err(wrong()) }
}

/// The supported versions.
pub(crate) const VERSIONS: [Version; 4] =
    [Version::V1_0, Version::V0_3, Version::V0_2, Version::V0_1];

/// A length of time such as `500ms`, `30s` or `2h`; a plain number is in seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse() {
        return Ok(Duration::from_secs(seconds));
    }
    humantime::parse_duration(text).map_err(|_| "write it as 500ms, 30s, 10m or 2h".to_owned())
}
