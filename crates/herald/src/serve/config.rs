//! `herald.toml` as types. Every key is optional; unknown keys are refused.

#![expect(
    clippy::disallowed_methods,
    reason = "the schema is built of JSON values by the derived code, once and on request"
)]

mod agent;
mod auth;
mod error;
mod kind;
mod push;
mod schema;

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use clap::ValueEnum;
use herald_protocol::Version;
use schemars::{JsonSchema, Schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, IgnoredAny},
};
use toml::{Spanned, de::DeValue};

use crate::args::{LogFormat, LogLevel, TransportArg};

use schema::{alias, choice_schema, choices_schema};

pub(crate) use agent::{
    A2aSection, AgentSection, AudienceSection, BackgroundKey, CodingSection, CommonSection,
    ConformanceSection, ErrorDetailKey, ExecSection, ExtendedCardSection, HandlerSection, InputKey,
    InterfaceSection, IsolationKey, KindSection, LlmSection, OtherwiseKey, ProgramSection,
    ProviderSection, RecoveryKey, SkillSection, ToolDetailKey, UnavailableKey, UpstreamAuthSection,
    UpstreamTlsSection, WorkerSection, WorktreeAfterKey,
};
pub(crate) use auth::{
    AuthSection, CertificateNameKey, ClientAuthKey, JwtSection, ScopeKey, TenantFromKey,
    VisibilityKey,
};
pub(crate) use error::{ConfigError, ConfigTable, ConfigText};
pub(crate) use kind::{AgentKind, KeyError};
pub(crate) use push::{PortRange, PushSection};
pub(crate) use schema::schema;

/// The configuration of `herald serve`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(title = "herald.toml")]
pub(crate) struct FileConfig {
    pub(crate) server: ServerSection,
    pub(crate) store: StoreSection,
    pub(crate) limits: LimitsSection,
    pub(crate) protocol: ProtocolSection,
    pub(crate) grpc: GrpcSection,
    pub(crate) mcp: McpSection,
    pub(crate) card: CardSection,
    pub(crate) auth: AuthSection,
    pub(crate) trace: TraceSection,
    pub(crate) metrics: MetricsSection,
    pub(crate) push: PushSection,
    pub(crate) discovery: DiscoverySection,
    pub(crate) log: LogSection,
    /// The versions that are served, by name: `"0.3" = false` switches one off.
    pub(crate) dialects: Dialects,
    #[serde(deserialize_with = "unread")]
    pub(crate) agents: Vec<AgentSection>,
    /// The text of the file, for error messages.
    #[serde(skip)]
    pub(crate) source: ConfigText,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSection {
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) public_url: Option<String>,
    /// Host names that are accepted in `Host`, besides the server's own.
    pub(crate) allowed_hosts: Vec<String>,
    /// Origins of web pages that may call the server, besides its own.
    pub(crate) allowed_origins: Vec<String>,
    /// Proxies whose `X-Forwarded-*` and `Forwarded` headers count: addresses and networks.
    pub(crate) trusted_proxies: Vec<String>,
    /// The longest duration of a shutdown.
    pub(crate) drain: Option<TimeSpan>,
    pub(crate) tls: Option<TlsSection>,
}

/// Registrations of workers and remote agents.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct DiscoverySection {
    /// A worker that was not seen for this time is not listed any more.
    pub(crate) max_age: Option<TimeSpan>,
    /// The maximum number of registrations.
    pub(crate) registrations: Option<usize>,
}

/// The files of a certificate and its key, in PEM.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsSection {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// A file with the authorities of client certificates, in PEM.
    #[serde(default)]
    pub(crate) client_ca: Option<PathBuf>,
    /// Client certificates are requested or demanded.
    #[serde(default)]
    pub(crate) client_auth: ClientAuthKey,
    /// A file with lists of revoked client certificates, in PEM.
    #[serde(default)]
    pub(crate) client_crl: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSection {
    pub(crate) url: Option<String>,
    pub(crate) retention: RetentionSection,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = |schema: &mut Schema| alias(schema, "tasks", "max_tasks"))]
pub(crate) struct RetentionSection {
    pub(crate) age: Option<TimeSpan>,
    #[serde(alias = "max_tasks")]
    pub(crate) tasks: Option<u64>,
    pub(crate) bytes: Option<Size>,
    pub(crate) audit_age: Option<TimeSpan>,
    pub(crate) audit_records: Option<u64>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(transform = |schema: &mut Schema| alias(schema, "body", "max_body_bytes"))]
pub(crate) struct LimitsSection {
    #[serde(alias = "max_body_bytes")]
    pub(crate) body: Option<Size>,
    pub(crate) connections: Option<usize>,
    pub(crate) connections_per_address: Option<usize>,
    pub(crate) streams_per_caller: Option<usize>,
    /// The limits of each caller.
    pub(crate) caller: UsageSection,
    /// The limits of each tenant.
    pub(crate) tenant: UsageSection,
    /// The limits of single tenants.
    pub(crate) tenants: Vec<TenantLimitsSection>,
    pub(crate) refused_logins_per_second: Option<u32>,
    pub(crate) memory: Option<Size>,
    pub(crate) task_events: Option<u64>,
    pub(crate) task_bytes: Option<Size>,
    pub(crate) send_wait: Option<TimeSpan>,
}

/// Limits of one caller or of one tenant; 0 is no limit.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UsageSection {
    /// Requests per second.
    pub(crate) requests_per_second: Option<u32>,
    /// Requests at once, after a pause.
    pub(crate) burst: Option<u32>,
    /// Open streams.
    pub(crate) streams: Option<usize>,
    /// Tasks that have not ended.
    pub(crate) active_tasks: Option<u64>,
    /// Tasks that wait for their agent.
    pub(crate) queued_tasks: Option<u64>,
    /// Bytes of the logs of all stored tasks.
    pub(crate) stored_bytes: Option<Size>,
    /// Registrations of workers and remote agents.
    pub(crate) registrations: Option<usize>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TenantLimitsSection {
    pub(crate) name: String,
    /// The limits of each of its callers.
    #[serde(default)]
    pub(crate) caller: UsageSection,
    /// The limits of all of them together.
    #[serde(default)]
    pub(crate) tenant: UsageSection,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProtocolSection {
    /// The response to a 1.0 method without a version header.
    pub(crate) missing_version: MissingVersionKey,
    /// The response to cancelling a cancelled task.
    pub(crate) repeated_cancel: RepeatedCancel,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GrpcSection {
    /// True switches server reflection on.
    pub(crate) reflection: bool,
}

/// Tools for MCP clients, at `/mcp`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct McpSection {
    /// True if `/mcp` is served.
    pub(crate) enabled: bool,
    /// True if every skill of every agent is a tool too.
    pub(crate) skills_as_tools: bool,
}

impl Default for McpSection {
    fn default() -> Self {
        Self { enabled: true, skills_as_tools: false }
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CardSection {
    /// The name on the card at the root, in place of the default agent's.
    pub(crate) title: Option<String>,
    /// The description on the card at the root, in place of the default agent's.
    pub(crate) description: Option<String>,
    /// The version on the cards of agents without a version of their own.
    #[schemars(length(min = 1))]
    pub(crate) version: Option<String>,
    /// The skills on the card at the root, in place of the default agent's.
    pub(crate) skills: Vec<SkillSection>,
    /// Media types of input on the card at the root, in place of the default agent's.
    pub(crate) input_modes: Vec<String>,
    /// Media types of output on the card at the root, in place of the default agent's.
    pub(crate) output_modes: Vec<String>,
    /// The address of a picture, on the cards of agents without one of their own.
    pub(crate) icon_url: Option<String>,
    /// The address of documentation, on the cards of agents without one of their own.
    pub(crate) documentation_url: Option<String>,
    /// The organization on the cards of agents without one of their own.
    pub(crate) provider: Option<ProviderSection>,
    /// A file with the card at the root, in JSON, which is served as it is.
    pub(crate) file: Option<PathBuf>,
    /// True if cards also have the members of early servers, in snake_case.
    pub(crate) legacy_snake_case: bool,
    /// The interfaces that cards list, the preferred one first.
    #[serde(deserialize_with = "interfaces")]
    #[schemars(schema_with = "choices_schema::<TransportArg>")]
    pub(crate) interfaces: Option<Vec<TransportArg>>,
    /// Files of private keys that sign cards, each `file:PATH`. The first one signs, all are published.
    pub(crate) signing_keys: Vec<String>,
    /// True if signatures name the URL of the published keys.
    pub(crate) jku: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MissingVersionKey {
    #[default]
    Strict,
    Lenient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RepeatedCancel {
    #[default]
    Error,
    Return,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TraceSection {
    /// The collector that spans are sent to.
    pub(crate) otlp: Option<String>,
    /// The fraction of new traces that is recorded.
    pub(crate) sample: Option<f64>,
    /// `service.name` of the spans.
    pub(crate) service: Option<String>,
    /// A file with certificate authorities to trust for the collector.
    pub(crate) ca: Option<String>,
    /// Headers for the collector.
    pub(crate) headers: BTreeMap<String, SecretValue>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsSection {
    /// The bearer token of a scraper.
    pub(crate) token: Option<SecretValue>,
    /// True if everyone may read them.
    pub(crate) open: bool,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LogSection {
    #[serde(deserialize_with = "choice")]
    #[schemars(schema_with = "choice_schema::<LogLevel>")]
    pub(crate) level: Option<LogLevel>,
    #[serde(deserialize_with = "choice")]
    #[schemars(schema_with = "choice_schema::<LogFormat>")]
    pub(crate) format: Option<LogFormat>,
}

/// Versions, and whether each is served.
#[derive(Debug, Default)]
pub(crate) struct Dialects(pub(crate) BTreeMap<Version, bool>);

/// The longest duration, so that deadlines do not overflow.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// A length of time such as `30s`, `10m`, `12h` or `30d`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeSpan(pub(crate) Duration);

/// A number of bytes such as `4MiB`, or a plain number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

/// A secret, written as a literal, as `env:NAME` or as `file:PATH`. It is never printed.
#[derive(Clone)]
pub(crate) struct SecretValue(pub(crate) String);

impl FileConfig {
    /// Reads a file. The error names the line.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
        Ok(Self::parse(ConfigText::new(path, text))?)
    }

    /// Reads the text of a file.
    pub(crate) fn parse(source: ConfigText) -> Result<Self, ConfigError> {
        let document = source.document()?;
        let config = Self::deserialize(toml::de::Deserializer::from(document.clone()));
        let mut config = config.map_err(|fault| source.refused(&fault))?;
        if let Some(DeValue::Array(agents)) =
            document.into_inner().remove("agents").map(Spanned::into_inner)
        {
            for (index, agent) in agents.into_iter().enumerate() {
                let place = ConfigTable::new(&source, format!("agents.{index}."));
                config.agents.push(AgentSection::from_value(agent, place)?);
            }
        }
        Ok(Self { source, ..config })
    }
}

impl AgentSection {
    /// Reads the manifest of one agent. Its paths are relative to its directory.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the manifest {}", path.display()))?;
        let source = ConfigText::new(path, text);
        let document = source.document()?;
        let place = ConfigTable::new(&source, String::new());
        let section = Self::from_table(document.span(), document.into_inner(), place)?;
        Ok(Self { base: path.parent().unwrap_or(Path::new("")).to_owned(), ..section })
    }
}

/// Checks that `agents` is a list. [`FileConfig::parse`] reads its elements, since the type of each
/// depends on its kind.
fn unread<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<AgentSection>, D::Error> {
    Vec::<IgnoredAny>::deserialize(deserializer).map(|_| Vec::new())
}

/// A value of the corresponding flag.
fn choice<'de, D: Deserializer<'de>, T: ValueEnum>(deserializer: D) -> Result<Option<T>, D::Error> {
    chosen(&String::deserialize(deserializer)?).map(Some)
}

fn chosen<T: ValueEnum, E: de::Error>(text: &str) -> Result<T, E> {
    T::from_str(text, true).map_err(|_| {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let known: Vec<_> = values.map(|value| format!("`{}`", value.get_name())).collect();
        E::custom(format!("unknown value `{text}`, expected one of {}", known.join(", ")))
    })
}

/// A list of interfaces, each once.
fn interfaces<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<TransportArg>>, D::Error> {
    let mut interfaces = Vec::new();
    for text in Vec::<String>::deserialize(deserializer)? {
        let interface = chosen(&text)?;
        if interfaces.contains(&interface) {
            return Err(de::Error::custom(format!("{text:?} is listed twice")));
        }
        interfaces.push(interface);
    }
    if interfaces.is_empty() {
        return Err(de::Error::custom("a card must list at least one interface"));
    }
    Ok(Some(interfaces))
}

impl SecretValue {
    fn read(text: &str) -> anyhow::Result<Self> {
        let secret = if let Some(name) = text.strip_prefix("env:") {
            std::env::var(name).map_err(|_| {
                anyhow!("the environment variable {name} is not set; export it first")
            })?
        } else if let Some(path) = text.strip_prefix("file:") {
            std::fs::read_to_string(path)
                .map_err(|fault| anyhow!("cannot read the secret file {path}: {fault}"))?
        } else {
            text.to_owned()
        };
        let secret = secret.trim();
        if secret.is_empty() {
            bail!("the secret is empty");
        }
        Ok(Self(secret.to_owned()))
    }
}

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for SecretValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Dialects {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Versions;
        impl<'de> de::Visitor<'de> for Versions {
            type Value = Dialects;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("versions in quotes, such as \"0.3\" = false")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Dialects, A::Error> {
                let mut dialects = BTreeMap::new();
                while let Some(SpokenVersion(version)) = map.next_key()? {
                    dialects.insert(version, map.next_value()?);
                }
                Ok(Dialects(dialects))
            }
        }
        deserializer.deserialize_map(Versions)
    }
}

/// A version that the server supports.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpokenVersion(pub(crate) Version);

impl<'de> Deserialize<'de> for SpokenVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let spoken = text.parse().ok().filter(|version| Version::SPOKEN.contains(version));
        spoken.map(Self).ok_or_else(|| {
            let known = Version::SPOKEN.map(|version| format!("`\"{version}\"`")).join(", ");
            de::Error::custom(format!("unknown version `{text}`, expected one of {known}"))
        })
    }
}

/// A version for calls to other agents. 0.2 is treated as 0.3.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CalledVersion(pub(crate) Version);

impl CalledVersion {
    fn parse(text: &str) -> Option<Self> {
        let version = match text.parse().ok()? {
            Version::V0_2 => Version::V0_3,
            other => other,
        };
        Version::SPOKEN.contains(&version).then_some(Self(version))
    }
}

impl<'de> Deserialize<'de> for CalledVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| {
            let known = "`\"1.0\"`, `\"0.3\"`, `\"0.2\"`, `\"0.1\"`";
            de::Error::custom(format!("unknown version `{text}`, expected one of {known}"))
        })
    }
}

impl<'de> Deserialize<'de> for TimeSpan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Length;
        impl de::Visitor<'_> for Length {
            type Value = TimeSpan;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a length of time such as \"30s\", \"10m\", \"12h\" or \"30d\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<TimeSpan, E> {
                let wrong = |_| E::invalid_value(de::Unexpected::Str(text), &self);
                let span = humantime::parse_duration(text).map_err(wrong)?;
                if span > LONGEST {
                    Err(E::custom(format!("{text:?} is too long")))
                } else {
                    Ok(TimeSpan(span))
                }
            }
        }
        deserializer.deserialize_str(Length)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;
        impl de::Visitor<'_> for Bytes {
            type Value = Size;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a size such as \"4MiB\" or a number of bytes")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Size, E> {
                u64::try_from(number)
                    .map(Size)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                bytesize::ByteSize::from_str(text)
                    .map(|size| Size(size.as_u64()))
                    .map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fuzz_no_text_causes_a_panic() {
        bolero::check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let parse =
                |text: String| FileConfig::parse(ConfigText::new("herald.toml", text)).is_ok();
            parse(format!("[limits]\nbody = {text}\n"));
            parse(format!("[[agents]]\nname = \"a\"\ntimeout = \"{text}\"\n"));
            parse(text.into_owned());
        });
    }

    /// A file with every key of `[[agents]]`, written before there was a section type for each kind.
    const BEFORE: &str = include_str!("config/before.toml");

    #[test]
    fn an_older_file_is_read_except_for_the_renamed_key() {
        let source = |text: String| ConfigText::new("herald.toml", text);
        let config = FileConfig::parse(source(BEFORE.to_owned())).unwrap();
        let kinds: Vec<_> = config.agents.iter().map(|agent| agent.kind.kind().name()).collect();
        assert_eq!(kinds, ["exec", "handler", "a2a", "llm", "echo", "conformance", "codex"]);
        let renamed = BEFORE.replace("a2a_version", "version");
        let line = renamed.lines().position(|line| line.starts_with("version")).unwrap() + 1;
        let refused = FileConfig::parse(source(renamed)).unwrap_err().to_string();
        for word in [&format!("line {line}: "), "a2a_version = \"0.3\"", "| version = \"0.3\""] {
            assert!(refused.contains(word), "{word}: {refused}");
        }
        // 2.0 is not a protocol version, and with the new key `version` is unambiguous.
        for version in ["version = \"2.0\"", "version = \"1.0\"\na2a_version = \"1.0\""] {
            let text = format!(
                "[[agents]]\nname = \"a\"\nkind = \"a2a\"\nurl = \"http://a.example\"\n{version}\n"
            );
            let config = FileConfig::parse(source(text)).unwrap();
            assert!(config.agents[0].common.version.is_some(), "{version}");
        }
    }

    /// The keys of each table, by its head and the keys that it needs.
    fn keys_of_tables() -> Vec<(String, Vec<String>)> {
        let schema = schema();
        let sections = schema.get("properties").unwrap().as_object().unwrap();
        let mut tables = Vec::new();
        for (section, content) in sections {
            let pointer = content.get("$ref").and_then(serde_json::Value::as_str).unwrap_or("#");
            let content = schema.pointer(pointer.trim_start_matches('#')).unwrap_or(content);
            let keys = content.get("properties").and_then(serde_json::Value::as_object);
            let keys = keys.into_iter().flat_map(serde_json::Map::keys).cloned().collect();
            tables.push((format!("[{section}]"), keys));
        }
        for kind in ["exec", "handler", "a2a", "llm", "echo", "claude-code"] {
            let head = format!("[[agents]]\nname = \"a\"\nkind = \"{kind}\"");
            tables.push((head, agent::all_keys()));
        }
        tables
    }

    #[test]
    fn errors_have_no_words_of_rust() {
        let foreign = [
            "struct",
            "enum",
            "variant",
            "tuple",
            "newtype",
            "sequence",
            "map",
            "unit",
            "floating",
            "untagged",
            "identifier",
            "Option",
            "u8",
            "u16",
            "u32",
            "u64",
            "usize",
            "i32",
            "i64",
            "f32",
            "f64",
            "nonzero",
        ];
        let values = [
            "\"zebra\"",
            "5",
            "-1",
            "1.5",
            "true",
            "2026-01-01",
            "[]",
            "[5]",
            "{}",
            "{ zebra = 5 }",
        ];
        let mut refused = 0;
        for (head, keys) in keys_of_tables() {
            for (key, value) in keys.iter().flat_map(|key| values.map(|value| (key, value))) {
                let text = format!("{head}\n{key} = {value}\n");
                let Err(error) = FileConfig::parse(ConfigText::new("herald.toml", text)) else {
                    continue;
                };
                let error = error.to_string();
                // The second half shows the line of the file.
                let said = error.split("\n").next().unwrap_or_default();
                let mut words = said.split(|letter: char| !letter.is_alphanumeric());
                let found = words.find(|word| foreign.contains(word));
                assert_eq!(found, None, "{key} = {value}: {error}");
                refused += 1;
            }
        }
        assert!(refused > 1000, "only {refused} of the values were refused");
    }

    #[test]
    fn sizes_and_durations_have_units() {
        let text = "[limits]\nbody = \"4MiB\"\nsend_wait = \"90s\"\n\
                    [store.retention]\nage = \"30d\"\nmax_tasks = 7\nbytes = 1024\n";
        let config = FileConfig::parse(ConfigText::new("", text.to_owned())).unwrap();
        assert_eq!(config.limits.body.unwrap().0, 4 << 20);
        assert_eq!(config.limits.send_wait.unwrap().0.as_secs(), 90);
        assert_eq!(config.store.retention.age.unwrap().0.as_secs(), 30 * 24 * 3600);
        assert_eq!(config.store.retention.tasks, Some(7));
        assert_eq!(config.store.retention.bytes.unwrap().0, 1024);
    }
}
