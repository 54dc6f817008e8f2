//! `[[agents]]`: the keys that every agent takes, and one section type for each kind.
//!
//! A key is a field here and nothing else: the check for unknown keys and the JSON schema are derived
//! from these types.

use std::{collections::BTreeMap, num::NonZeroUsize, ops::Range, path::PathBuf};

use herald_agents::Preset;
use herald_protocol::AgentName;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};
use toml::{
    Spanned,
    de::{DeTable, DeValue, Error, ValueDeserializer},
};

use super::{
    CalledVersion, ConfigError, Dialects, ScopeKey, SecretValue, Size, SpokenVersion, TimeSpan,
    choice,
    error::{ConfigTable, unknown_key},
    kind::AgentKind,
    schema::{choice_schema, keys},
};
use crate::args::TransportArg;

/// One agent, of `herald.toml` or of a manifest.
#[derive(Debug, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct AgentSection {
    #[schemars(flatten)]
    pub(crate) common: CommonSection,
    #[schemars(flatten)]
    pub(crate) kind: KindSection,
    /// The name that a handler gives itself, if that differs from the agent's.
    #[schemars(skip)]
    pub(crate) handler: Option<String>,
    /// The directory that paths are relative to, if not the server's.
    #[schemars(skip)]
    pub(crate) base: PathBuf,
    /// The table in the file, for error messages.
    #[schemars(skip)]
    pub(crate) place: ConfigTable,
}

/// An agent that tasks are sent to.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct CommonSection {
    /// The last segment of its endpoint, `/agents/NAME/`.
    #[serde(deserialize_with = "agent_name")]
    #[schemars(regex(pattern = "^[a-z0-9-]{1,63}$"))]
    pub(crate) name: String,
    /// The name on its card, for people.
    pub(crate) title: Option<String>,
    /// The description on its card.
    pub(crate) description: Option<String>,
    /// Its own version, on its card.
    #[schemars(length(min = 1))]
    pub(crate) version: Option<String>,
    /// The skills on its card, instead of the kind's own.
    #[serde(default)]
    pub(crate) skills: Vec<SkillSection>,
    /// Media types of input on its card, instead of the kind's own.
    #[serde(default)]
    pub(crate) input_modes: Vec<String>,
    /// Media types of output on its card, instead of the kind's own.
    #[serde(default)]
    pub(crate) output_modes: Vec<String>,
    /// Its extended card, for authenticated callers.
    pub(crate) extended_card: Option<ExtendedCardSection>,
    /// The address of a picture, on its card.
    pub(crate) icon_url: Option<String>,
    /// The address of its documentation, on its card.
    pub(crate) documentation_url: Option<String>,
    /// The organization that offers it, on its card.
    pub(crate) provider: Option<ProviderSection>,
    /// Also serve it at the root.
    #[serde(default)]
    pub(crate) default: bool,
    /// False to refuse streams of its tasks.
    pub(crate) streaming: Option<bool>,
    /// False to refuse webhooks for its tasks.
    pub(crate) push: Option<bool>,
    /// The number of turns that run at once.
    pub(crate) concurrency: Option<NonZeroUsize>,
    /// True to run the turns of one conversation one after the other.
    pub(crate) serial: Option<bool>,
    /// The longest time for one message, all attempts together.
    pub(crate) timeout: Option<TimeSpan>,
    /// The longest time without output of a turn.
    pub(crate) idle_timeout: Option<TimeSpan>,
    /// The longest time that a task waits for its caller.
    pub(crate) paused_timeout: Option<TimeSpan>,
    /// The time that a stopped turn or program has to clean up.
    pub(crate) kill_grace: Option<TimeSpan>,
    /// Protocol extensions that its card names.
    #[serde(default)]
    pub(crate) extensions: Vec<ExtensionSection>,
    /// As `[dialects]`, for this agent alone.
    #[serde(default)]
    pub(crate) dialects: Dialects,
}

/// The keys of one kind.
#[derive(Debug)]
pub(crate) enum KindSection {
    Exec(ProgramSection, ExecSection),
    Handler(ProgramSection, HandlerSection),
    A2a(Box<A2aSection>),
    Llm(Box<LlmSection>),
    Worker(WorkerSection),
    Echo,
    Conformance(ConformanceSection),
    Coding(Preset, ProgramSection, Box<CodingSection>),
}

/// The program of an agent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ProgramSection {
    /// The program and its arguments. A coding agent has a usual one.
    pub(crate) command: Option<Vec<String>>,
    /// The working directory.
    pub(crate) workdir: Option<PathBuf>,
    /// Directories that must contain the working directory once its links are followed.
    #[serde(default)]
    pub(crate) allowed_roots: Vec<PathBuf>,
    /// Environment variables for it.
    #[serde(default)]
    pub(crate) env: BTreeMap<String, SecretValue>,
    /// Bytes it may write in one turn.
    pub(crate) max_output: Option<Size>,
    /// The number of attempts at a turn that a crash interrupts, the first one included.
    pub(crate) attempts: Option<u32>,
    /// The details of its failures that callers see.
    pub(crate) error_detail: Option<ErrorDetailKey>,
}

/// A program that is run for each turn.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ExecSection {
    /// The form of a message on standard input.
    pub(crate) input: Option<InputKey>,
}

/// A process for many turns.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct HandlerSection {
    /// True if the first line of a turn decides whether the message is taken.
    #[serde(default)]
    pub(crate) admission: bool,
}

/// A coding agent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct CodingSection {
    /// The model to ask for.
    pub(crate) model: Option<String>,
    /// The name of one of the agent's own profiles.
    pub(crate) profile: Option<String>,
    /// True to let it do everything without asking.
    pub(crate) force: Option<bool>,
    /// The number of earlier tasks of a conversation that it is given.
    pub(crate) memory: Option<usize>,
    /// The longest time until its first output.
    pub(crate) start_timeout: Option<TimeSpan>,
    /// The time after which an unanswered question counts as refused.
    pub(crate) approval_timeout: Option<TimeSpan>,
    /// The number of its questions that may be open beside the running turns.
    pub(crate) max_waiting: Option<usize>,
    /// Tool calls that need no question, such as `Edit` or `Bash(npm run *)`.
    #[serde(default)]
    pub(crate) allow: Vec<String>,
    /// Tool calls that the caller is asked about, although `allow` or `force` has them.
    #[serde(default)]
    pub(crate) ask: Vec<String>,
    /// Tool calls that are always denied.
    #[serde(default)]
    pub(crate) deny: Vec<String>,
    /// The amount of detail about tool calls that callers see.
    pub(crate) tool_detail: Option<ToolDetailKey>,
    /// True to let callers see its thoughts.
    pub(crate) thinking: Option<bool>,
    /// The end of a turn whose background work goes on.
    pub(crate) background: Option<BackgroundKey>,
    /// False to leave out the changes of the work tree.
    pub(crate) changes: Option<bool>,
    /// The separation of conversations from each other.
    pub(crate) isolation: Option<IsolationKey>,
    /// The branch or commit that the work tree of a conversation begins with.
    pub(crate) base: Option<String>,
    /// The treatment of a conversation's work tree after a completed turn.
    pub(crate) worktree_after: Option<WorktreeAfterKey>,
    /// The directory of the work trees.
    pub(crate) worktree_dir: Option<PathBuf>,
}

/// The amount of detail about tool calls.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ToolDetailKey {
    Name,
    Short,
    Full,
}

/// The end of a turn whose background work goes on.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BackgroundKey {
    Wait,
    End,
}

/// A language model behind an HTTP endpoint.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct LlmSection {
    /// The base URL of the endpoint.
    pub(crate) url: Option<String>,
    /// The model to ask for.
    pub(crate) model: Option<String>,
    /// Sent as a bearer token.
    pub(crate) api_key: Option<SecretValue>,
    /// The system prompt. Callers never see it.
    pub(crate) system: Option<String>,
    /// True if the model takes images.
    pub(crate) images: Option<bool>,
    /// As the endpoint understands it.
    pub(crate) temperature: Option<f64>,
    /// As the endpoint understands it.
    pub(crate) max_tokens: Option<u64>,
    /// Further members of each request.
    #[serde(default)]
    pub(crate) parameters: Map<String, Value>,
    /// The number of earlier tasks of a conversation that it is given.
    pub(crate) memory: Option<usize>,
    /// The longest time to connect.
    pub(crate) connect_timeout: Option<TimeSpan>,
    /// The longest time until the first token of an answer.
    pub(crate) first_token_timeout: Option<TimeSpan>,
    /// The number of retries of a request before its first token.
    pub(crate) retries: Option<usize>,
    /// Bytes it may write in one turn.
    pub(crate) max_output: Option<Size>,
    /// The number of attempts at a turn that a crash interrupts, the first one included.
    pub(crate) attempts: Option<u32>,
    /// The details of its failures that callers see.
    pub(crate) error_detail: Option<ErrorDetailKey>,
}

/// Another A2A agent.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct A2aSection {
    /// Its base URL, or that of its card if it ends in `.json`.
    pub(crate) url: Option<String>,
    /// The binding to prefer.
    #[serde(default, deserialize_with = "choice")]
    #[schemars(schema_with = "choice_schema::<TransportArg>")]
    pub(crate) binding: Option<TransportArg>,
    /// The only protocol version to use.
    pub(crate) a2a_version: Option<CalledVersion>,
    /// Credentials, sent as its card requires.
    pub(crate) auth: Option<UpstreamAuthSection>,
    /// Files of certificates.
    pub(crate) tls: Option<UpstreamTlsSection>,
    /// Further origins that may get the credentials.
    #[serde(default)]
    pub(crate) trusted_origins: Vec<String>,
    /// True if it treats a repeated message id as a retry, so that a message may be sent again.
    pub(crate) idempotent: Option<bool>,
    /// The number of earlier tasks of a conversation that it is given.
    pub(crate) memory: Option<usize>,
    /// The number of retries of a call before the agent counts as unavailable.
    pub(crate) retries: Option<usize>,
    /// The details of its failures that callers see.
    pub(crate) error_detail: Option<ErrorDetailKey>,
}

/// A role that workers on other machines serve.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct WorkerSection {
    /// The treatment of messages while no worker is there.
    pub(crate) unavailable: Option<UnavailableKey>,
    /// The longest time that a task waits for its turn to begin.
    pub(crate) deadline: Option<TimeSpan>,
    /// The time without a sign of a worker after which its turns are given to others.
    pub(crate) lease: Option<TimeSpan>,
    /// The treatment of a turn whose worker died.
    pub(crate) recovery: Option<RecoveryKey>,
    /// The number of attempts at a turn, the first one included.
    pub(crate) attempts: Option<u32>,
    /// The number of earlier tasks of a conversation that a turn gets.
    pub(crate) memory: Option<usize>,
    /// True if the workers wait for answers within their turns.
    pub(crate) waits: Option<bool>,
}

/// The test agent for the public conformance suites.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct ConformanceSection {
    /// The answer to a message without a known keyword.
    pub(crate) otherwise: Option<OtherwiseKey>,
}

/// Credentials for another agent. Its card says which of them it asks for.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamAuthSection {
    pub(crate) token: Option<SecretValue>,
    pub(crate) api_key: Option<SecretValue>,
    pub(crate) basic: Option<BasicSection>,
    pub(crate) oauth: Option<OAuthSection>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BasicSection {
    pub(crate) name: String,
    pub(crate) password: SecretValue,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OAuthSection {
    pub(crate) client_id: String,
    pub(crate) client_secret: SecretValue,
    #[serde(default)]
    pub(crate) scopes: Vec<String>,
}

/// PEM files: a further certificate authority, and the client certificate with its key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UpstreamTlsSection {
    pub(crate) ca: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// One thing that an agent can do.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SkillSection {
    /// Unique within the agent.
    #[schemars(length(min = 1))]
    pub(crate) id: String,
    /// A name for people, if not the id.
    pub(crate) name: Option<String>,
    /// A sentence about it.
    pub(crate) description: String,
    /// Words to find it by, if not the id.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
    /// Messages that show it.
    #[serde(default)]
    pub(crate) examples: Vec<String>,
    /// Media types that it takes, if not the agent's.
    #[serde(default)]
    pub(crate) input_modes: Vec<String>,
    /// Media types that it produces, if not the agent's.
    #[serde(default)]
    pub(crate) output_modes: Vec<String>,
    /// The scopes that a message for it needs, beside `send`.
    pub(crate) scopes: Option<Vec<ScopeKey>>,
    /// The callers that get it, in an extended card.
    pub(crate) only_for: Option<AudienceSection>,
}

/// The additions of an extended card.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ExtendedCardSection {
    /// The description, instead of the public one.
    pub(crate) description: Option<String>,
    /// Further skills.
    pub(crate) skills: Vec<SkillSection>,
    /// Further interfaces.
    pub(crate) interfaces: Vec<InterfaceSection>,
}

/// An interface of an extended card.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct InterfaceSection {
    /// Its URL; `host:port` for gRPC.
    #[schemars(length(min = 1))]
    pub(crate) url: String,
    /// Its binding as cards name it: `JSONRPC`, `HTTP+JSON`, `GRPC` or a URI.
    pub(crate) binding: String,
    /// Its protocol version.
    #[schemars(with = "String")]
    pub(crate) version: SpokenVersion,
    /// The callers that get it.
    pub(crate) only_for: Option<AudienceSection>,
}

/// The callers that get an entry of an extended card. Every condition has to hold.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AudienceSection {
    /// The scopes that they have.
    pub(crate) scopes: Vec<ScopeKey>,
    /// Their tenants.
    pub(crate) tenants: Option<Vec<String>>,
    /// Their principals.
    pub(crate) principals: Option<Vec<String>>,
}

/// An organization that offers an agent.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProviderSection {
    pub(crate) organization: String,
    /// Its web site.
    pub(crate) url: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtensionSection {
    pub(crate) uri: String,
    #[serde(default)]
    pub(crate) description: String,
    /// True if callers must name it.
    #[serde(default)]
    pub(crate) required: bool,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum OtherwiseKey {
    Complete,
    Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum IsolationKey {
    None,
    Worktree,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum WorktreeAfterKey {
    Keep,
    Merge,
    Delete,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum UnavailableKey {
    Queue,
    Refuse,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum RecoveryKey {
    Rerun,
    Resume,
    Fail,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum InputKey {
    Text,
    Json,
}

#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ErrorDetailKey {
    Kind,
    Message,
    Full,
}

impl AgentSection {
    /// An agent that is not from a file.
    pub(crate) fn new(name: &str, kind: KindSection) -> Self {
        let common = CommonSection { name: name.to_owned(), ..CommonSection::default() };
        Self { common, kind, handler: None, base: PathBuf::new(), place: ConfigTable::default() }
    }

    /// Reads an element of `agents`.
    pub(super) fn from_value(
        value: Spanned<DeValue<'_>>,
        place: ConfigTable,
    ) -> Result<Self, ConfigError> {
        let span = value.span();
        let DeValue::Table(table) = value.into_inner() else {
            return Err(place.source.refused_at("invalid value, expected a map", Some(span)));
        };
        Self::from_table(span, table, place)
    }

    /// Reads a table whose keys are those of one agent.
    pub(super) fn from_table(
        span: Range<usize>,
        table: DeTable<'_>,
        place: ConfigTable,
    ) -> Result<Self, ConfigError> {
        let refused = |fault: Error| place.source.refused(&fault);
        let Some(named) = table.get("kind") else {
            return Err(place.source.refused_at("missing field `kind`", Some(span)));
        };
        let named = String::deserialize(ValueDeserializer::from(named.clone())).map_err(refused)?;
        let agent = table.get("name").and_then(|name| name.get_ref().as_str());
        let agent = agent.unwrap_or_default().to_owned();
        let mistaken =
            |key: &str, said: String| place.fault(key, format!("agent {agent:?}: {said}"));
        let kind =
            AgentKind::read(&named).map_err(|mistake| mistaken(&mistake.key, mistake.message))?;
        if kind == AgentKind::A2a
            && let Some(version) = former_a2a_version(&table)
        {
            let said = format!(
                "`version` is the agent's own version; the protocol version is `a2a_version`: write \
                 a2a_version = {version:?}, beside or instead of `version`"
            );
            return Err(mistaken("version", said));
        }
        let (common_keys, kinds) = (keys::<CommonSection>(), KeysByKind::new());
        let (mut common, mut rest) = (DeTable::new(), DeTable::new());
        for (key, value) in table {
            let name: &str = key.get_ref();
            if name == "kind" {
                continue;
            } else if common_keys.iter().any(|known| known == name) {
                common.insert(key, value);
            } else if kinds.of(kind).iter().any(|known| known == name) {
                rest.insert(key, value);
            } else if let Some(owners) = kinds.owners(name) {
                let said = format!("`{name}` belongs to kind = {owners}");
                return Err(mistaken(name, said));
            } else {
                let known = common_keys.iter().chain(kinds.of(kind)).map(String::as_str);
                let said = unknown_key(name, known.chain(["kind"]));
                return Err(place.source.refused_at(&said, Some(key.span())));
            }
        }
        let common = part(&span, common).map_err(refused)?;
        let kind = KindSection::read(kind, &span, rest).map_err(refused)?;
        Ok(Self { common, kind, handler: None, base: PathBuf::new(), place })
    }
}

impl KindSection {
    fn read(kind: AgentKind, span: &Range<usize>, keys: DeTable<'_>) -> Result<Self, Error> {
        Ok(match kind {
            AgentKind::Exec => {
                let (program, own) = program_and_own(span, keys)?;
                Self::Exec(program, own)
            }
            AgentKind::Handler => {
                let (program, own) = program_and_own(span, keys)?;
                Self::Handler(program, own)
            }
            AgentKind::A2a => Self::A2a(part(span, keys)?),
            AgentKind::Llm => Self::Llm(part(span, keys)?),
            AgentKind::Worker => Self::Worker(part(span, keys)?),
            AgentKind::Echo => Self::Echo,
            AgentKind::Conformance => Self::Conformance(part(span, keys)?),
            AgentKind::Coding(preset) => {
                let (program, own): (_, CodingSection) = program_and_own(span, keys)?;
                Self::Coding(preset, program, own.into())
            }
        })
    }

    /// The kind that has these keys.
    pub(crate) fn kind(&self) -> AgentKind {
        match self {
            Self::Exec(..) => AgentKind::Exec,
            Self::Handler(..) => AgentKind::Handler,
            Self::A2a(_) => AgentKind::A2a,
            Self::Llm(_) => AgentKind::Llm,
            Self::Worker(_) => AgentKind::Worker,
            Self::Echo => AgentKind::Echo,
            Self::Conformance(_) => AgentKind::Conformance,
            Self::Coding(preset, ..) => AgentKind::Coding(*preset),
        }
    }

    /// The schema of each section, with the kinds that have it.
    fn sections(generator: &mut SchemaGenerator) -> Vec<(Vec<&'static str>, Schema)> {
        vec![
            (vec![AgentKind::Exec.name()], with_program::<ExecSection>(generator)),
            (vec![AgentKind::Handler.name()], with_program::<HandlerSection>(generator)),
            (vec![AgentKind::A2a.name()], A2aSection::json_schema(generator)),
            (vec![AgentKind::Llm.name()], LlmSection::json_schema(generator)),
            (vec![AgentKind::Worker.name()], WorkerSection::json_schema(generator)),
            (vec![AgentKind::Echo.name()], json_schema!({ "type": "object", "properties": {} })),
            (vec![AgentKind::Conformance.name()], ConformanceSection::json_schema(generator)),
            (Preset::ALL.map(Preset::name).to_vec(), with_program::<CodingSection>(generator)),
        ]
    }
}

impl JsonSchema for KindSection {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Kind".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let sections = Self::sections(generator).into_iter().map(|(kinds, mut schema)| {
            if let Some(Value::Object(properties)) = schema.get_mut("properties") {
                properties.insert("kind".to_owned(), json_schema!({ "enum": kinds }).into());
            }
            schema.insert("required".to_owned(), vec!["kind"].into());
            schema
        });
        json_schema!({ "oneOf": sections.collect::<Vec<_>>() })
    }
}

/// The keys of each kind.
struct KeysByKind(Vec<(Vec<&'static str>, Vec<String>)>);

impl KeysByKind {
    fn new() -> Self {
        let sections = KindSection::sections(&mut SchemaGenerator::default());
        let keys = |schema: &Schema| super::schema::properties(schema);
        Self(sections.iter().map(|(kinds, schema)| (kinds.clone(), keys(schema))).collect())
    }

    fn of(&self, kind: AgentKind) -> &[String] {
        let section = self.0.iter().find(|(kinds, _)| kinds.contains(&kind.name()));
        section.map_or(&[], |(_, keys)| keys)
    }

    /// The kinds that have this key, in words.
    fn owners(&self, key: &str) -> Option<String> {
        let owners = self.0.iter().filter(|(_, keys)| keys.iter().any(|known| known == key));
        let owners = owners.map(|(kinds, _)| match &kinds[..] {
            [only] => format!("{only:?}"),
            _ => "that of a coding agent".to_owned(),
        });
        let owners: Vec<_> = owners.collect();
        match owners.split_last()? {
            (last, []) => Some(last.clone()),
            (last, others) => Some(format!("{} or {last}", others.join(", "))),
        }
    }
}

/// The keys of one agent, of whichever kind.
pub(super) fn all_keys() -> Vec<String> {
    let own = KeysByKind::new().0.into_iter().flat_map(|(_, keys)| keys);
    keys::<CommonSection>().into_iter().chain(own).chain(["kind".to_owned()]).collect()
}

/// A part of a table as its type. Errors point at the whole table or at one of its keys.
fn part<T: de::DeserializeOwned>(span: &Range<usize>, table: DeTable<'_>) -> Result<T, Error> {
    T::deserialize(toml::de::Deserializer::from(Spanned::new(span.clone(), table)))
}

/// The keys of a program and those of its kind, each as its type.
fn program_and_own<T: de::DeserializeOwned>(
    span: &Range<usize>,
    table: DeTable<'_>,
) -> Result<(ProgramSection, T), Error> {
    let known = keys::<ProgramSection>();
    let is_program = |key: &str| known.iter().any(|known| known == key);
    let (program, own) = table.into_iter().partition(|(key, _)| is_program(key.get_ref()));
    Ok((part(span, program)?, part(span, own)?))
}

/// The schema of a kind that runs a program and has keys of its own.
fn with_program<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    let (program, mut own) = (ProgramSection::json_schema(generator), T::json_schema(generator));
    if let (Some(Value::Object(program)), Some(Value::Object(own))) =
        (program.get("properties"), own.get_mut("properties"))
    {
        own.extend(program.clone());
    }
    own
}

/// The protocol version under its former key `version`. If `a2a_version` is set, `version` is the agent's own.
fn former_a2a_version<'a>(table: &'a DeTable<'_>) -> Option<&'a str> {
    if table.contains_key("a2a_version") {
        return None;
    }
    let version = table.get("version")?.get_ref().as_str()?;
    CalledVersion::parse(version).map(|_| version)
}

fn agent_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if AgentName::new(name.as_str()).is_segment() {
        Ok(name)
    } else {
        Err(de::Error::custom(format!(
            "{name:?} is not a valid agent name, since it is part of URLs; use 1 to 63 characters of \
             a-z, 0-9 and -"
        )))
    }
}
