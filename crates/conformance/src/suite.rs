//! Suites as data: the documents of ACTS, the declarative conformance tests of the A2A project.
//!
//! The types follow its specification (0.1.0) and also the files of the A2A project, where these
//! differ: an error may be named by `code`, the expected body may be written beside `status`, and
//! the operations on webhooks have a second name. Four fields are extensions of ours:
//! `requirements` of a test, `require` and `headers` of a step, and `stop_after` of a
//! stream. Any other unknown field is refused, since an unknown check must not seem to pass.

use std::{collections::BTreeMap, time::Duration};

use herald_protocol::Operation;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};

use super::{assertion::Assertion, error_name::ErrorName, path::Path};

/// One file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SuiteFile {
    pub(super) acts_version: String,
    pub(super) spec_version: String,
    #[serde(rename = "spec_ref")]
    _spec_ref: Option<IgnoredAny>,
    #[serde(rename = "metadata")]
    _metadata: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) variables: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) include: Vec<String>,
    #[serde(default)]
    pub(super) suites: Vec<Suite>,
}

/// Tests that belong together.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Suite {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    /// Every test has them too.
    #[serde(default)]
    pub(super) tags: Vec<String>,
    pub(super) tests: Vec<Test>,
}

/// One check.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Test {
    pub(super) id: String,
    pub(super) name: String,
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    #[serde(rename = "spec_ref")]
    _spec_ref: Option<IgnoredAny>,
    pub(super) level: Level,
    #[serde(default)]
    pub(super) tags: Vec<String>,
    /// The bindings it applies to; all if there are none.
    #[serde(default)]
    pub(super) transport: Vec<CheckedBinding>,
    #[serde(default)]
    pub(super) preconditions: Preconditions,
    /// The message prefixes that the agent must act on.
    #[serde(default)]
    pub(super) requires_behaviors: Vec<String>,
    #[serde(rename = "origin")]
    _origin: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) runner_requirements: Vec<RunnerRequirement>,
    /// Ours: the requirements that it checks. The default is its id.
    #[serde(default)]
    pub(super) requirements: Vec<String>,
    pub(super) steps: Vec<Step>,
    #[serde(default)]
    pub(super) assertions: Vec<Claim>,
}

/// The level of a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Required for conformance
    Must,
    /// Recommended
    Should,
    /// Optional
    May,
}

/// The bindings that are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckedBinding {
    /// JSON-RPC 2.0 over HTTP
    JsonRpc,
    /// HTTP and JSON
    Rest,
    /// gRPC
    Grpc,
}

/// An ability that a test requires of its runner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RunnerRequirement {
    WebhookEndpoint,
    ConcurrentStreams,
    StreamDisconnect,
    AuthCredentials,
    HeaderInspection,
}

/// Conditions on the card for a test to apply.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Preconditions {
    #[serde(default)]
    pub(super) capabilities: BTreeMap<String, Value>,
    #[serde(default)]
    pub(super) skills: Vec<RequiredSkill>,
    #[serde(default)]
    pub(super) transport: Vec<CheckedBinding>,
    #[serde(default)]
    pub(super) extensions: Vec<String>,
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
}

/// A skill that the card must name.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct RequiredSkill {
    pub(super) id: String,
}

/// One step of a test: an action and its expected result.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "StepText")]
pub(super) struct Step {
    pub(super) id: String,
    pub(super) action: Action,
    /// Ours: a condition on the result. If it is not fulfilled, the test is skipped.
    pub(super) require: Option<Expect>,
    pub(super) expect: Option<Expect>,
    pub(super) expect_error: Option<ExpectError>,
    pub(super) expect_stream: Option<ExpectStream>,
    pub(super) capture: BTreeMap<String, Path>,
    pub(super) assertions: Vec<Claim>,
    pub(super) repeat: Option<Repeat>,
    pub(super) delay: Duration,
}

/// The action of a step.
#[derive(Debug, Clone)]
pub(super) enum Action {
    /// Calls an operation over the binding under test.
    Call {
        operation: Called,
        params: Map<String, Value>,
        /// Ours: service parameters that replace the usual ones. An empty one is not sent.
        headers: BTreeMap<String, String>,
    },
    /// Sends an HTTP request unchanged.
    Raw(Raw),
    /// Checks the responses of earlier steps.
    Claim(Claim),
    /// Tests how a client reads a response, which does not apply to a server.
    Client,
}

/// An operation, or the public card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Called {
    Card,
    Operation(Operation),
}

/// An HTTP request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) method: Method,
    pub(super) path: String,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Option<Value>,
    pub(super) body_raw: Option<String>,
}

/// The methods of a raw request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Method {
    Get,
    Post,
    Put,
    Delete,
}

/// An assertion whose variables are not replaced yet.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Value")]
pub(super) struct Pattern(pub(super) Value);

/// The expected response.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(super) struct Expect {
    pub(super) status: Option<Pattern>,
    /// Ours: the headers of the response, by their names in lower case.
    pub(super) headers: Option<Pattern>,
    pub(super) body: Option<Pattern>,
    /// An error of any kind that fulfils this.
    pub(super) error: Option<Pattern>,
}

/// The expected error.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "ErrorText")]
pub(super) struct ExpectError {
    /// One of these; any error if there are none.
    pub(super) names: Vec<ErrorName>,
    pub(super) message: Option<Pattern>,
    /// The metadata of the error's `ErrorInfo`.
    pub(super) details: Option<Pattern>,
    pub(super) data: Option<Pattern>,
}

/// The expected stream.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExpectStream {
    pub(super) min_count: Option<usize>,
    pub(super) max_count: Option<usize>,
    timeout_ms: Option<u64>,
    pub(super) ordering: Option<Ordering>,
    #[serde(default)]
    pub(super) events: Vec<EventClaim>,
    pub(super) final_event: Option<Pattern>,
    pub(super) each_event: Option<Pattern>,
    /// Ours: close the stream after this many events instead of waiting for its end.
    pub(super) stop_after: Option<usize>,
}

/// The one rule about the order of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ordering {
    MonotonicState,
}

/// The expected event.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
pub(super) struct EventClaim {
    /// Its position; any position if there is none.
    pub(super) index: Option<usize>,
    pub(super) pattern: Pattern,
}

/// An assertion about the response of an earlier step.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Claim {
    #[serde(rename = "id")]
    _id: Option<IgnoredAny>,
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    pub(super) source: String,
    pub(super) path: Option<Path>,
    #[serde(rename = "match")]
    pub(super) matches: Option<Pattern>,
    pub(super) any: Option<Collection>,
    pub(super) all: Option<Collection>,
    pub(super) none: Option<Collection>,
}

/// The elements at a path, and the assertion for them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Collection {
    pub(super) path: Path,
    #[serde(rename = "match")]
    pub(super) matches: Pattern,
}

/// The repetition of a step until its response fulfils a condition.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "RepeatText")]
pub(super) struct Repeat {
    pub(super) until: RepeatUntil,
    pub(super) attempts: u32,
    delay: Duration,
    backoff: Backoff,
}

/// A condition on a response.
#[derive(Debug, Clone)]
pub(super) struct RepeatUntil {
    path: Path,
    values: Vec<String>,
    negated: bool,
}

/// The growth of waits between attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Backoff {
    #[default]
    None,
    Linear,
    Exponential,
}

/// The longest delay of a step or between attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The longest timeout of a stream.
const LONGEST_STREAM: Duration = Duration::from_secs(600);
/// The most attempts at a step.
const MOST_ATTEMPTS: u32 = 100;

impl ExpectStream {
    /// The timeout of the stream, if it is not the usual one.
    pub(super) fn timeout(&self) -> Option<Duration> {
        self.timeout_ms.map(|timeout| Duration::from_millis(timeout).min(LONGEST_STREAM))
    }
}

impl Repeat {
    /// The wait after this attempt, the first of which is 1.
    pub(super) fn wait(&self, attempt: u32) -> Duration {
        let factor = match self.backoff {
            Backoff::None => 1,
            Backoff::Linear => attempt,
            Backoff::Exponential => 1 << (attempt - 1).min(16),
        };
        self.delay.saturating_mul(factor).min(LONGEST_WAIT)
    }
}

impl RepeatUntil {
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("{text:?} is not `path == value`, `path != value` or `path in [value, value]`")
        };
        let (path, operator, rest) = [" == ", " != ", " in "]
            .iter()
            .find_map(|operator| {
                text.split_once(operator).map(|(path, rest)| (path, *operator, rest.trim()))
            })
            .ok_or_else(wrong)?;
        let unquoted = |value: &str| value.trim().trim_matches(['"', '\'']).to_owned();
        let values = match operator {
            " in " => {
                let list = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                list.ok_or_else(wrong)?.split(',').map(unquoted).collect()
            }
            _ => vec![unquoted(rest)],
        };
        Ok(Self { path: Path::parse(path.trim())?, values, negated: operator == " != " })
    }

    /// True if a response fulfils the condition.
    pub(super) fn holds(&self, answer: &Value) -> bool {
        let found = self.path.first(answer).is_some_and(|value| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.values.contains(&text)
        });
        found != self.negated
    }
}

impl Level {
    /// Every level, the strictest first.
    pub const ALL: [Self; 3] = [Self::Must, Self::Should, Self::May];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
            Self::May => "may",
        }
    }
}

impl CheckedBinding {
    /// Every binding that is checked.
    pub const ALL: [Self; 3] = [Self::JsonRpc, Self::Rest, Self::Grpc];

    /// Its name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "jsonrpc",
            Self::Rest => "rest",
            Self::Grpc => "grpc",
        }
    }
}

impl Test {
    /// True if it checks the public card only, which is the same for every binding.
    pub(super) fn is_about_the_card(&self) -> bool {
        self.steps.iter().all(|step| match &step.action {
            Action::Call { operation, .. } => *operation == Called::Card,
            Action::Raw(raw) => raw.path.starts_with("/.well-known/"),
            Action::Claim(_) => true,
            Action::Client => false,
        })
    }

    /// The requirements it checks.
    pub(super) fn requirements(&self) -> Vec<String> {
        if self.requirements.is_empty() { vec![self.id.clone()] } else { self.requirements.clone() }
    }
}

/// A step as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepText {
    id: String,
    #[serde(rename = "description")]
    _description: Option<IgnoredAny>,
    operation: Option<String>,
    params: Option<Map<String, Value>>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    raw: Option<Raw>,
    assertion: Option<Claim>,
    client_response: Option<IgnoredAny>,
    #[serde(rename = "expect_parsed")]
    _expect_parsed: Option<IgnoredAny>,
    require: Option<Expect>,
    expect: Option<Expect>,
    expect_error: Option<ExpectError>,
    expect_stream: Option<ExpectStream>,
    #[serde(default)]
    capture: BTreeMap<String, Path>,
    #[serde(default)]
    assertions: Vec<Claim>,
    repeat: Option<Repeat>,
    delay_ms: Option<u64>,
}

impl TryFrom<StepText> for Step {
    type Error = String;

    fn try_from(text: StepText) -> Result<Self, String> {
        let action = match (text.operation, text.raw, text.assertion, text.client_response) {
            (Some(name), None, None, None) => {
                let mut params = text.params.unwrap_or_default();
                let operation = Called::from_name(&name, &mut params)?;
                Action::Call { operation, params, headers: text.headers }
            }
            (None, Some(raw), None, None) => Action::Raw(raw),
            (None, None, Some(claim), None) => Action::Claim(claim),
            (None, None, None, Some(_)) => Action::Client,
            _ => {
                return Err(format!(
                    "step {:?} must have one of operation, raw, assertion and client_response",
                    text.id
                ));
            }
        };
        if text.expect_error.is_some() && (text.expect.is_some() || text.expect_stream.is_some()) {
            return Err(format!("step {:?} expects an error and something else", text.id));
        }
        let delay = Duration::from_millis(text.delay_ms.unwrap_or(0)).min(LONGEST_WAIT);
        Ok(Self {
            id: text.id,
            action,
            require: text.require,
            expect: text.expect,
            expect_error: text.expect_error,
            expect_stream: text.expect_stream,
            capture: text.capture,
            assertions: text.assertions,
            repeat: text.repeat,
            delay,
        })
    }
}

impl Called {
    fn from_name(name: &str, params: &mut Map<String, Value>) -> Result<Self, String> {
        let extended = params.remove("extended") == Some(Value::Bool(true));
        Ok(Self::Operation(match name {
            "get_agent_card" if !extended => return Ok(Self::Card),
            "get_agent_card" | "get_extended_agent_card" => Operation::GetExtendedAgentCard,
            "send_message" => Operation::SendMessage,
            "send_streaming_message" => Operation::SendStreamingMessage,
            "get_task" => Operation::GetTask,
            "list_tasks" => Operation::ListTasks,
            "cancel_task" => Operation::CancelTask,
            "subscribe_to_task" => Operation::SubscribeToTask,
            "create_push_config" | "set_push_notification_config" => {
                Operation::CreateTaskPushNotificationConfig
            }
            "get_push_config" | "get_push_notification_config" => {
                Operation::GetTaskPushNotificationConfig
            }
            "list_push_configs" | "list_push_notification_configs" => {
                Operation::ListTaskPushNotificationConfigs
            }
            "delete_push_config" | "delete_push_notification_config" => {
                Operation::DeleteTaskPushNotificationConfig
            }
            _ => return Err(format!("unknown operation {name:?}")),
        }))
    }
}

impl TryFrom<Value> for Pattern {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        Assertion::parse(&value).map(|_| Self(value))
    }
}

impl TryFrom<Map<String, Value>> for Expect {
    type Error = String;

    fn try_from(mut map: Map<String, Value>) -> Result<Self, String> {
        let mut take = |name: &str| map.remove(name).map(Pattern::try_from).transpose();
        let mut expect = Self {
            status: take("status")?,
            headers: take("headers")?,
            body: take("body")?,
            error: take("error")?,
        };
        let any = || Pattern(Value::Object(Map::from_iter([("exists".to_owned(), true.into())])));
        // Some files say `status: error` for an error of any kind.
        if expect.status.as_ref().is_some_and(|status| status.0 == "error") {
            expect.status = None;
            expect.error.get_or_insert_with(any);
        }
        // An empty `error` means an error of any kind.
        let said = |error: &Pattern| error.0.as_object().is_none_or(|map| !map.is_empty());
        expect.error = expect.error.map(|error| if said(&error) { error } else { any() });
        if !map.is_empty() {
            if expect.body.is_some() {
                let names: Vec<_> = map.keys().map(String::as_str).collect();
                return Err(format!("{} must be below body", names.join(", ")));
            }
            expect.body = Some(Pattern::try_from(Value::Object(map))?);
        }
        Ok(expect)
    }
}

/// An expected error as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ErrorText {
    #[serde(alias = "code")]
    error_type: Option<OneOrMany>,
    message: Option<Pattern>,
    details: Option<Pattern>,
    data: Option<Pattern>,
}

/// One name, or several alternatives.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Several { one_of: Vec<String> },
}

impl TryFrom<ErrorText> for ExpectError {
    type Error = String;

    fn try_from(text: ErrorText) -> Result<Self, String> {
        let names = match text.error_type {
            None => Vec::new(),
            Some(OneOrMany::One(name)) => vec![name],
            Some(OneOrMany::Several { one_of }) => one_of,
        };
        let names = names.iter().map(|name| ErrorName::from_name(name));
        let ErrorText { message, details, data, .. } = text;
        Ok(Self { names: names.collect::<Result<_, _>>()?, message, details, data })
    }
}

impl TryFrom<Map<String, Value>> for EventClaim {
    type Error = String;

    fn try_from(mut map: Map<String, Value>) -> Result<Self, String> {
        map.remove("description");
        let index = map.remove("index").map(|index| {
            let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
            index.ok_or("index must be a number")
        });
        let index = match (map.remove("match"), index.transpose()?) {
            (Some(how), None) if how == "any_position" => None,
            (None, index) => Some(index.unwrap_or(0)),
            (Some(how), index) if how == "exact_position" => Some(index.unwrap_or(0)),
            _ => return Err("match must be any_position, or exact_position with an index".into()),
        };
        Ok(Self { index, pattern: Pattern::try_from(Value::Object(map))? })
    }
}

/// A repetition as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RepeatText {
    until: String,
    max_attempts: Option<u32>,
    delay_ms: Option<u64>,
    #[serde(default)]
    backoff: Backoff,
}

impl TryFrom<RepeatText> for Repeat {
    type Error = String;

    fn try_from(text: RepeatText) -> Result<Self, String> {
        Ok(Self {
            until: RepeatUntil::parse(&text.until)?,
            attempts: text.max_attempts.unwrap_or(10).clamp(1, MOST_ATTEMPTS),
            delay: Duration::from_millis(text.delay_ms.unwrap_or(1000)),
            backoff: text.backoff,
        })
    }
}

impl<'de> Deserialize<'de> for Path {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}
