//! `herald.toml`. Every key is optional; unknown ones are refused.

use std::{collections::BTreeMap, path::Path, str::FromStr, time::Duration};

use anyhow::{Context, anyhow, bail};
use serde::{Deserialize, Deserializer, de};

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    pub(crate) server: ServerSection,
    pub(crate) store: StoreSection,
    pub(crate) limits: LimitsSection,
    pub(crate) protocol: ProtocolSection,
    pub(crate) grpc: GrpcSection,
    pub(crate) auth: AuthSection,
    pub(crate) trace: TraceSection,
    pub(crate) metrics: MetricsSection,
    /// Which versions are served, by name: `"0.3" = false` switches one off.
    pub(crate) dialects: BTreeMap<String, bool>,
    pub(crate) agents: Vec<AgentSection>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServerSection {
    pub(crate) host: Option<String>,
    pub(crate) port: Option<u16>,
    pub(crate) public_url: Option<String>,
    /// Names that requests may carry in `Host`, besides our own.
    pub(crate) allowed_hosts: Vec<String>,
    /// Web pages that may call us, besides our own.
    pub(crate) allowed_origins: Vec<String>,
    /// How long a shutdown may take.
    pub(crate) drain: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct StoreSection {
    pub(crate) url: Option<String>,
    pub(crate) retention: RetentionSection,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct RetentionSection {
    pub(crate) age: Option<Span>,
    #[serde(alias = "max_tasks")]
    pub(crate) tasks: Option<u64>,
    pub(crate) bytes: Option<Size>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsSection {
    #[serde(alias = "max_body_bytes")]
    pub(crate) body: Option<Size>,
    pub(crate) connections: Option<usize>,
    pub(crate) streams_per_caller: Option<usize>,
    pub(crate) memory: Option<Size>,
    pub(crate) task_events: Option<u64>,
    pub(crate) task_bytes: Option<Size>,
    pub(crate) send_wait: Option<Span>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ProtocolSection {
    /// What a 1.0 method without a version header gets.
    pub(crate) missing_version: MissingVersionKey,
    /// What cancelling a cancelled task gets.
    pub(crate) repeated_cancel: RepeatedCancel,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct GrpcSection {
    /// Whether clients may ask which services and messages there are.
    pub(crate) reflection: bool,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MissingVersionKey {
    #[default]
    Strict,
    Lenient,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RepeatedCancel {
    #[default]
    Error,
    Return,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AuthSection {
    /// `false` allows everybody in, also off loopback.
    pub(crate) required: Option<bool>,
    pub(crate) tokens: Vec<TokenSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TokenSection {
    pub(crate) token: Secret,
    pub(crate) tenant: String,
    pub(crate) principal: String,
    #[serde(default = "all_scopes")]
    pub(crate) scopes: Vec<Scope>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scope {
    Send,
    Read,
    Cancel,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct TraceSection {
    /// The collector that spans are sent to.
    pub(crate) otlp: Option<String>,
    /// The share of new traces that is recorded.
    pub(crate) sample: Option<f64>,
    /// What the spans say they come from.
    pub(crate) service: Option<String>,
    /// Headers that the collector wants.
    pub(crate) headers: BTreeMap<String, Secret>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MetricsSection {
    /// What a scraper has to present.
    pub(crate) token: Option<Secret>,
    /// Whether everybody may read them.
    pub(crate) open: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentSection {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) description: Option<String>,
    #[serde(default)]
    pub(crate) default: bool,
    pub(crate) streaming: Option<bool>,
    pub(crate) concurrency: Option<usize>,
    pub(crate) timeout: Option<Span>,
    pub(crate) idle_timeout: Option<Span>,
    pub(crate) paused_timeout: Option<Span>,
    pub(crate) kill_grace: Option<Span>,
    #[serde(default)]
    pub(crate) extensions: Vec<ExtensionSection>,
    /// As `[dialects]`, for this agent alone.
    #[serde(default)]
    pub(crate) dialects: BTreeMap<String, bool>,
    /// Only for `kind = "conformance"`.
    pub(crate) otherwise: Option<OtherwiseKey>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtensionSection {
    pub(crate) uri: String,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) required: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OtherwiseKey {
    Complete,
    Ask,
}

/// A length of time such as `30s`, `10m`, `12h` or `30d`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span(pub(crate) Duration);

/// A number of bytes such as `4MiB`, or a plain number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

/// A secret, given as it is, as `env:NAME` or as `file:PATH`. It is never printed.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl Config {
    /// Reads a file. The error says where in it the fault is.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the configuration file {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("in {}", path.display()))
    }

    /// Reads the text of a file.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        toml::from_str(text).map_err(|fault| {
            let said = without_values(&fault.to_string());
            match likely(fault.message()) {
                Some(meant) => anyhow!("{said}\ndid you mean `{meant}`?"),
                None => anyhow!("{said}"),
            }
        })
    }
}

/// The name that was probably meant, from a fault such as ``unknown field `prot`, expected one of
/// `host`, `port` ``.
fn likely(fault: &str) -> Option<&str> {
    let mut names = fault.strip_prefix("unknown ")?.split('`').skip(1).step_by(2);
    let given = names.next()?;
    let alike = names.map(|name| (strsim::jaro_winkler(given, name), name));
    let best = alike.max_by(|(one, _), (other, _)| one.total_cmp(other));
    best.filter(|(alike, _)| *alike > 0.8).map(|(_, name)| name)
}

/// The text of a fault without what stands in quotes on a line that may hold a secret: what is said
/// about a fault ends up in logs.
fn without_values(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.trim_end().lines() {
        let quoting = line.trim_start().split_once(" | ");
        match quoting.filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit())) {
            Some((_, source)) => {
                let (before, _) = line.split_at(line.len() - source.len());
                let secret =
                    ["tok", "secret", "pass", "key"].iter().any(|hint| source.contains(hint));
                let shown = if secret { masked(source) } else { source.to_owned() };
                lines.push(format!("{before}{shown}"));
            }
            None => match line.strip_prefix("invalid type: string \"") {
                Some(rest) => {
                    let (_, expected) = rest.rsplit_once("\", expected").unwrap_or_default();
                    lines.push(format!("invalid type: string, expected{expected}"));
                }
                None => lines.push(line.to_owned()),
            },
        }
    }
    lines.join("\n")
}

/// A line with a star for every character in quotes, so that what points at it still fits.
fn masked(line: &str) -> String {
    let mut quote = None;
    let mask = |char| {
        match (char, quote) {
            ('"' | '\'', None) => quote = Some(char),
            (_, Some(open)) if open == char => quote = None,
            (_, Some(_)) => return '*',
            (_, None) => {}
        }
        char
    };
    line.chars().map(mask).collect()
}

impl AgentSection {
    /// An agent of this name and kind, with every other key absent.
    pub(crate) fn new(name: &str, kind: &str) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            description: None,
            default: false,
            streaming: None,
            concurrency: None,
            timeout: None,
            idle_timeout: None,
            paused_timeout: None,
            kill_grace: None,
            extensions: Vec::new(),
            dialects: BTreeMap::new(),
            otherwise: None,
        }
    }
}

fn all_scopes() -> Vec<Scope> {
    vec![Scope::Send, Scope::Read, Scope::Cancel]
}

impl Secret {
    fn read(text: &str) -> anyhow::Result<Self> {
        let secret = if let Some(name) = text.strip_prefix("env:") {
            std::env::var(name)
                .map_err(|_| anyhow!("the environment variable {name} is not set"))?
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

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::read(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|_| {
            de::Error::custom(format!("{text:?} is no length of time; write 30s, 10m, 12h or 30d"))
        })
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
    fn fuzz_no_text_makes_it_panic() {
        bolero::check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let _ = Config::parse(&text);
            let _ = Config::parse(&format!("[limits]\nbody = {text}\n"));
            let _ = Config::parse(&format!("[[agents]]\nname = \"a\"\ntimeout = \"{text}\"\n"));
        });
    }

    #[test]
    fn a_name_that_is_nearly_right_is_recognised() {
        let field =
            |given: &str| format!("unknown field `{given}`, expected one of `host`, `port`");
        assert_eq!(likely(&field("prot")), Some("port"));
        assert_eq!(likely(&field("hosts")), Some("host"));
        assert_eq!(likely(&field("colour")), None);
        assert_eq!(likely("unknown variant `sent`, expected `send`"), Some("send"));
        assert_eq!(likely("invalid type: string `prot`, expected `port`"), None);
    }

    #[test]
    fn sizes_and_spans_are_read_as_people_write_them() {
        let text = "[limits]\nbody = \"4MiB\"\nsend_wait = \"90s\"\n\
                    [store.retention]\nage = \"30d\"\nmax_tasks = 7\nbytes = 1024\n";
        let config = Config::parse(text).unwrap();
        assert_eq!(config.limits.body.unwrap().0, 4 << 20);
        assert_eq!(config.limits.send_wait.unwrap().0.as_secs(), 90);
        assert_eq!(config.store.retention.age.unwrap().0.as_secs(), 30 * 24 * 3600);
        assert_eq!(config.store.retention.tasks, Some(7));
        assert_eq!(config.store.retention.bytes.unwrap().0, 1024);
    }
}
