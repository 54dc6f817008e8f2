//! Messages of the Codex app server: the fields that are used here.
//! `codex app-server generate-ts` prints the complete types.

use std::{borrow::Cow, path::Path};

use herald_protocol::json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    coding::{
        activity::{ToolEnd, ToolKind, ToolLocation, ToolStart},
        dialect::Image,
        usage::Usage,
    },
    failure::Failure,
};

/// Notifications that are not used here and would be the longest lines.
const UNWANTED: [&str; 4] = [
    "account/rateLimits/updated",
    "item/commandExecution/outputDelta",
    "item/fileChange/outputDelta",
    "turn/diff/updated",
];

/// Bytes of diffs that an approval shows.
const MAX_DIFFS: usize = 64 << 10;

/// The calls to Codex. Each is made once, so its number is its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodexCall {
    Initialize = 1,
    Start,
    Resume,
    Turn,
    Interrupt,
}

/// A line of Codex.
#[derive(Debug)]
pub(super) enum FromCodex<'a> {
    /// The answer to a call.
    Reply(CodexCall, Result<&'a RawValue, String>),
    /// A call that needs an answer.
    Request { id: &'a RawValue, method: Cow<'a, str>, params: &'a RawValue },
    /// A notification.
    Notice { method: Cow<'a, str>, params: &'a RawValue },
    /// Anything else.
    Other,
}

/// Parameters of the start or resumption of a thread.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThreadParams<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) thread_id: Option<&'a str>,
    /// True to leave out earlier turns.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) exclude_turns: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<&'a str>,
    pub(super) cwd: &'a Path,
    pub(super) approval_policy: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sandbox: Option<&'static str>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(super) config: &'a Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct ThreadReply {
    pub(super) thread: ObjectId,
    pub(super) model: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ObjectId {
    pub(super) id: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct TurnReply {
    pub(super) turn: ObjectId,
}

/// A chunk of a message.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexDelta {
    pub(super) thread_id: String,
    pub(super) item_id: String,
    pub(super) delta: String,
}

/// The start or end of an item.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ItemNotice {
    pub(super) thread_id: String,
    pub(super) item: CodexItem,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub(super) enum CodexItem {
    AgentMessage {
        id: String,
        text: String,
    },
    CommandExecution {
        id: String,
        #[serde(default)]
        command: String,
        status: String,
        aggregated_output: Option<String>,
        exit_code: Option<i64>,
    },
    FileChange {
        id: String,
        status: String,
        changes: Vec<Value>,
    },
    McpToolCall {
        id: String,
        server: String,
        tool: String,
        status: String,
        result: Option<McpResult>,
        #[serde(default)]
        arguments: Value,
        error: Option<CodexError>,
    },
    WebSearch {
        id: String,
        query: String,
    },
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
pub(super) struct McpResult {
    #[serde(default)]
    content: Vec<McpContent>,
}

#[derive(Debug, Deserialize)]
struct McpContent {
    #[serde(default)]
    text: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct CodexError {
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UsageNotice {
    pub(super) thread_id: String,
    pub(super) turn_id: String,
    pub(super) token_usage: TokenUsage,
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenUsage {
    /// Usage of the last call to the model.
    pub(super) last: CodexUsage,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct CodexUsage {
    input_tokens: u64,
    cached_input_tokens: u64,
    output_tokens: u64,
    reasoning_output_tokens: u64,
    total_tokens: u64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnNotice {
    pub(super) thread_id: String,
    pub(super) turn: CodexTurn,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CodexTurn {
    pub(super) status: String,
    pub(super) error: Option<CodexError>,
    pub(super) duration_ms: Option<u64>,
}

/// An error that Codex may retry.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ErrorNotice {
    pub(super) thread_id: String,
    pub(super) will_retry: bool,
}

/// Request to run a command.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommandApproval {
    pub(super) command: Option<String>,
    pub(super) reason: Option<String>,
    #[serde(default)]
    pub(super) available_decisions: Vec<Value>,
}

/// Request to change files.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileApproval {
    pub(super) item_id: String,
    pub(super) reason: Option<String>,
}

/// Question of an MCP server, or of Codex on its behalf.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Elicitation {
    pub(super) message: String,
    #[serde(default)]
    requested_schema: ElicitationForm,
}

/// The answer to an approval.
#[derive(Debug, Serialize)]
pub(super) struct ApprovalDecision<'a> {
    pub(super) decision: &'a str,
}

/// The answer to an elicitation.
#[derive(Debug, Serialize)]
pub(super) struct ElicitationAction<'a> {
    pub(super) action: &'a str,
    pub(super) content: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
struct ElicitationForm {
    #[serde(default)]
    properties: Map<String, Value>,
}

impl CodexCall {
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Start => "thread/start",
            Self::Resume => "thread/resume",
            Self::Turn => "turn/start",
            Self::Interrupt => "turn/interrupt",
        }
    }

    fn numbered(id: &RawValue) -> Option<Self> {
        let calls = [Self::Initialize, Self::Start, Self::Resume, Self::Turn, Self::Interrupt];
        calls.into_iter().find(|call| id.get() == (*call as u8).to_string())
    }

    /// The line of this call.
    pub(super) fn line(self, params: &impl Serialize) -> String {
        #[derive(Serialize)]
        struct CallLine<'a, P> {
            id: u8,
            method: &'a str,
            params: &'a P,
        }
        write(&CallLine { id: self as u8, method: self.method(), params })
    }

    /// The line of the first call, with the client's name and capabilities.
    pub(super) fn initialize() -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct InitializeParams {
            client_info: ClientIdentity,
            capabilities: ClientCapabilities,
        }
        #[derive(Serialize)]
        struct ClientIdentity {
            name: &'static str,
            title: &'static str,
            version: &'static str,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct ClientCapabilities {
            experimental_api: bool,
            request_attestation: bool,
            opt_out_notification_methods: [&'static str; 4],
        }
        Self::Initialize.line(&InitializeParams {
            client_info: ClientIdentity {
                name: "herald",
                title: "Herald",
                version: env!("CARGO_PKG_VERSION"),
            },
            capabilities: ClientCapabilities {
                experimental_api: false,
                request_attestation: false,
                opt_out_notification_methods: UNWANTED,
            },
        })
    }

    /// The line that starts a turn.
    pub(super) fn turn(thread_id: &str, text: &str, images: &[Image]) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct StartTurnParams<'a> {
            thread_id: &'a str,
            input: Vec<TurnInput<'a>>,
        }
        #[derive(Serialize)]
        #[serde(tag = "type", rename_all = "camelCase")]
        enum TurnInput<'a> {
            Text { text: &'a str },
            LocalImage { path: &'a Path },
        }
        let images = images.iter().map(|image| TurnInput::LocalImage { path: &image.path });
        let input = [TurnInput::Text { text }].into_iter().chain(images).collect();
        Self::Turn.line(&StartTurnParams { thread_id, input })
    }

    /// The line that interrupts a turn.
    pub(super) fn interrupt(thread_id: &str, turn_id: &str) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct InterruptParams<'a> {
            thread_id: &'a str,
            turn_id: &'a str,
        }
        Self::Interrupt.line(&InterruptParams { thread_id, turn_id })
    }
}

impl<'a> FromCodex<'a> {
    /// Parses a line. Plugins of Codex may print between its lines, so anything else is ignored.
    pub(super) fn read(line: &'a str) -> Self {
        #[derive(Deserialize)]
        struct IncomingLine<'a> {
            #[serde(borrow)]
            id: Option<&'a RawValue>,
            #[serde(borrow)]
            method: Option<Cow<'a, str>>,
            #[serde(borrow, default = "null")]
            params: &'a RawValue,
            #[serde(borrow, default = "null")]
            result: &'a RawValue,
            error: Option<CodexError>,
        }
        let Ok(IncomingLine { id, method, params, result, error }) = serde_json::from_str(line)
        else {
            return Self::Other;
        };
        match (id, method) {
            (Some(id), Some(method)) => Self::Request { id, method, params },
            (None, Some(method)) => Self::Notice { method, params },
            (Some(id), None) => match (CodexCall::numbered(id), error) {
                (Some(call), None) => Self::Reply(call, Ok(result)),
                (Some(call), Some(error)) => Self::Reply(call, Err(error.message)),
                (None, _) => Self::Other,
            },
            (None, None) => Self::Other,
        }
    }
}

impl CodexItem {
    /// The start of the tool call, if the item is one.
    pub(super) fn start(&self) -> Option<ToolStart> {
        let text = |name: &str, text: &str| Map::from_iter([(name.to_owned(), Value::from(text))]);
        let start = match self {
            Self::AgentMessage { .. } | Self::Other => return None,
            Self::CommandExecution { id, command, .. } => ToolStart {
                id: id.clone(),
                name: "shell".to_owned(),
                kind: ToolKind::Execute,
                title: Some(command.clone()),
                input: Some(text("command", command).into()),
                ..ToolStart::default()
            },
            Self::FileChange { id, changes, .. } => {
                let paths = changes.iter().filter_map(|change| change["path"].as_str());
                let location = |path: &str| ToolLocation { path: path.to_owned(), line: None };
                ToolStart {
                    id: id.clone(),
                    name: "apply_patch".to_owned(),
                    kind: ToolKind::Edit,
                    title: Some(self::paths(changes)),
                    locations: paths.map(location).collect(),
                    ..ToolStart::default()
                }
            }
            Self::McpToolCall { id, server, tool, arguments, .. } => ToolStart {
                id: id.clone(),
                name: format!("{server}.{tool}"),
                input: Some(arguments.clone()),
                ..ToolStart::default()
            },
            Self::WebSearch { id, query } => ToolStart {
                id: id.clone(),
                name: "web_search".to_owned(),
                kind: ToolKind::Fetch,
                title: Some(query.clone()),
                input: Some(text("query", query).into()),
                ..ToolStart::default()
            },
        };
        Some(start)
    }

    /// The end of the tool call.
    pub(super) fn end(self) -> Option<ToolEnd> {
        let has_failed = |status: &str| matches!(status, "failed" | "declined");
        let end = match self {
            Self::AgentMessage { .. } | Self::Other => return None,
            Self::CommandExecution { id, status, aggregated_output, exit_code, .. } => {
                let is_error = has_failed(&status) || exit_code.is_some_and(|code| code != 0);
                let printed = aggregated_output.filter(|output| !output.trim().is_empty());
                let code = exit_code.map(|code| format!("exit code {code}"));
                let output = printed.or(code).unwrap_or(status);
                ToolEnd { id, is_error, output, diff: None }
            }
            Self::FileChange { id, status, changes } => {
                let diffs = changes.iter().filter_map(|change| {
                    let (path, diff) = (change["path"].as_str()?, change["diff"].as_str()?);
                    Some(format!("--- {path}\n+++ {path}\n{diff}"))
                });
                let diff = diffs.collect::<Vec<_>>().join("\n");
                let output = format!("{status}: {}", paths(&changes));
                let diff = Some(diff).filter(|diff| !diff.is_empty());
                ToolEnd { id, is_error: has_failed(&status), output, diff }
            }
            Self::McpToolCall { id, status, result, error, .. } => {
                let is_error = has_failed(&status) || error.is_some();
                let error = error.map(|error| error.message);
                let texts = result.map(|result| {
                    let texts = result.content.into_iter().map(|content| content.text);
                    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
                });
                let text = error.or(texts).filter(|text| !text.is_empty());
                ToolEnd { id, is_error, output: text.unwrap_or(status), diff: None }
            }
            Self::WebSearch { id, query } => {
                ToolEnd { id, is_error: false, output: query, diff: None }
            }
        };
        Some(end)
    }
}

impl Elicitation {
    /// True if yes or no is enough for an answer.
    pub(super) fn is_yes_or_no(&self) -> bool {
        self.requested_schema.properties.is_empty()
    }
}

impl CodexUsage {
    pub(super) fn add(&mut self, more: &Self) {
        self.input_tokens += more.input_tokens;
        self.cached_input_tokens += more.cached_input_tokens;
        self.output_tokens += more.output_tokens;
        self.reasoning_output_tokens += more.reasoning_output_tokens;
        self.total_tokens += more.total_tokens;
    }

    /// The usage in the common shape.
    pub(super) fn usage(&self, duration_ms: Option<u64>) -> Usage {
        if self.total_tokens == 0 && self.input_tokens == 0 {
            return Usage { duration_ms, ..Usage::default() };
        }
        let usage = Usage {
            duration_ms,
            input_tokens: Some(self.input_tokens),
            output_tokens: Some(self.output_tokens),
            cache_read_tokens: Some(self.cached_input_tokens),
            reasoning_tokens: Some(self.reasoning_output_tokens),
            total_tokens: Some(self.total_tokens).filter(|total| *total > 0),
            ..Usage::default()
        };
        usage.with_total()
    }
}

/// The line that completes the initialization.
pub(super) fn initialized() -> String {
    #[derive(Serialize)]
    struct NotificationLine {
        method: &'static str,
    }
    write(&NotificationLine { method: "initialized" })
}

/// The line that answers a call.
pub(super) fn answer(id: &RawValue, result: &impl Serialize) -> String {
    #[derive(Serialize)]
    struct ResultLine<'a, R> {
        id: &'a RawValue,
        result: &'a R,
    }
    write(&ResultLine { id, result })
}

/// The line that refuses a call.
pub(super) fn refuse(id: &RawValue) -> String {
    #[derive(Serialize)]
    struct ErrorLine<'a> {
        id: &'a RawValue,
        error: CallError,
    }
    #[derive(Serialize)]
    struct CallError {
        code: i32,
        message: &'static str,
    }
    write(&ErrorLine {
        id,
        error: CallError { code: -32601, message: "this method is not supported" },
    })
}

/// The paths of changed files.
pub(super) fn paths(changes: &[Value]) -> String {
    let paths = changes.iter().filter_map(|change| change["path"].as_str());
    paths.collect::<Vec<_>>().join(", ")
}

/// Removes diffs beyond [`MAX_DIFFS`].
pub(super) fn limit_diffs(mut changes: Vec<Value>) -> Vec<Value> {
    let mut free = MAX_DIFFS;
    for change in changes.iter_mut().filter_map(Value::as_object_mut) {
        let length = change.get("diff").and_then(Value::as_str).map_or(0, str::len);
        match free.checked_sub(length) {
            Some(left) => free = left,
            None => drop(change.remove("diff")),
        }
    }
    changes
}

/// The named members of an object that are not null.
pub(super) fn members(raw: &RawValue, names: &[&str]) -> Result<Map<String, Value>, Failure> {
    let mut all: Map<String, Value> = read(raw)?;
    all.retain(|name, value| names.contains(&name.as_str()) && !value.is_null());
    Ok(all)
}

/// Parses the content of a message.
pub(super) fn read<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, Failure> {
    let invalid = |why| Failure::because("wrote a message that cannot be read", json::reason(&why));
    serde_json::from_str(raw.get()).map_err(invalid)
}

fn write(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("plain data can be written")
}

fn null<'a>() -> &'a RawValue {
    RawValue::NULL
}
