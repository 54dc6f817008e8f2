//! Messages of the Codex app server: the fields that are used here.
//! `codex app-server generate-ts` prints the complete types.

use std::{borrow::Cow, collections::HashMap, path::Path};

use herald_protocol::json;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::{
    coding::{
        activity::{ModelRetry, StepStatus, ToolEnd, ToolKind, ToolLocation, ToolStart},
        dialect::Image,
        diff::unified,
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

/// Names of tools that Codex does not name itself.
pub(super) const SHELL: &str = "shell";
pub(super) const PATCH: &str = "apply_patch";

/// Bytes of diffs that an approval shows.
const MAX_DIFFS: usize = 64 << 10;

/// The calls to Codex. At most one of each waits for its answer, so its number is its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CodexCall {
    Initialize = 1,
    Start,
    Resume,
    Turn,
    Interrupt,
    Steer,
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
    DynamicToolCall {
        id: String,
        tool: String,
        #[serde(default)]
        arguments: Value,
        status: String,
        content_items: Option<Vec<McpContent>>,
    },
    WebSearch {
        id: String,
        #[serde(default)]
        query: String,
    },
    /// Reasoning of the model, in summaries or in full.
    Reasoning {
        #[serde(default)]
        summary: Vec<String>,
        #[serde(default)]
        content: Vec<String>,
    },
    /// A call that starts a subagent or talks to some.
    CollabAgentToolCall {
        id: String,
        tool: String,
        status: String,
        #[serde(default)]
        receiver_thread_ids: Vec<String>,
        prompt: Option<String>,
        #[serde(default)]
        agents_states: HashMap<String, AgentState>,
    },
    /// The start or the end of a subagent, in versions that do not report the call.
    SubAgentActivity {
        id: String,
        kind: String,
        agent_thread_id: String,
        #[serde(default)]
        agent_path: String,
    },
    ImageView {
        id: String,
        path: String,
    },
    ImageGeneration {
        id: String,
        status: String,
        revised_prompt: Option<String>,
        saved_path: Option<String>,
        failure: Option<Value>,
    },
    #[serde(other)]
    Other,
}

/// State of a subagent.
#[derive(Debug, Deserialize)]
pub(super) struct AgentState {
    status: String,
    message: Option<String>,
}

/// A change of a file.
#[derive(Debug, Deserialize)]
struct FileUpdate {
    path: String,
    kind: FileUpdateKind,
    /// A unified diff without its first two lines, or the whole file if it is new or deleted.
    diff: String,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase")]
enum FileUpdateKind {
    Add,
    Delete,
    Update { move_path: Option<String> },
}

#[derive(Debug, Deserialize)]
pub(super) struct McpResult {
    #[serde(default)]
    content: Vec<McpContent>,
}

#[derive(Debug, Deserialize)]
pub(super) struct McpContent {
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
    cache_write_input_tokens: u64,
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
    pub(super) error: TurnError,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct TurnError {
    message: String,
    /// A name, or an object whose only member is named like it and has the details.
    #[serde(default)]
    codex_error_info: Value,
    additional_details: Option<String>,
}

/// The plan of a turn.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PlanNotice {
    pub(super) thread_id: String,
    pub(super) plan: Vec<CodexStep>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CodexStep {
    pub(super) step: String,
    pub(super) status: StepStatus,
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

/// Request for more permissions than the sandbox gives.
#[derive(Debug, Deserialize)]
pub(super) struct PermissionsApproval {
    pub(super) reason: Option<String>,
    pub(super) permissions: Map<String, Value>,
}

/// Question of an MCP server, or of Codex on its behalf.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Elicitation {
    pub(super) message: String,
    #[serde(default)]
    pub(super) requested_schema: Value,
    /// The page that the server asks the caller to open.
    pub(super) url: Option<String>,
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

/// The answer to a request for permissions: those that are granted.
#[derive(Debug, Serialize)]
pub(super) struct GrantedPermissions<'a> {
    pub(super) permissions: &'a Map<String, Value>,
    pub(super) scope: &'static str,
}

impl CodexCall {
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Initialize => "initialize",
            Self::Start => "thread/start",
            Self::Resume => "thread/resume",
            Self::Turn => "turn/start",
            Self::Interrupt => "turn/interrupt",
            Self::Steer => "turn/steer",
        }
    }

    fn numbered(id: &RawValue) -> Option<Self> {
        let calls =
            [Self::Initialize, Self::Start, Self::Resume, Self::Turn, Self::Interrupt, Self::Steer];
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

    /// The line that starts a turn or, with the id of one, adds to it.
    pub(super) fn input(
        thread_id: &str,
        expected_turn_id: Option<&str>,
        text: &str,
        images: &[Image],
    ) -> String {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct InputParams<'a> {
            thread_id: &'a str,
            input: Vec<TurnInput<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            expected_turn_id: Option<&'a str>,
        }
        #[derive(Serialize)]
        #[serde(tag = "type", rename_all = "camelCase")]
        enum TurnInput<'a> {
            Text { text: &'a str },
            LocalImage { path: &'a Path },
        }
        let images = images.iter().map(|image| TurnInput::LocalImage { path: &image.path });
        let input = [TurnInput::Text { text }].into_iter().chain(images).collect();
        let call = if expected_turn_id.is_some() { Self::Steer } else { Self::Turn };
        call.line(&InputParams { thread_id, input, expected_turn_id })
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
        let input = |name: &str, text: &str| {
            Some(Value::from(Map::from_iter([(name.to_owned(), Value::from(text))])))
        };
        let location = |path: &str| ToolLocation { path: path.to_owned(), line: None };
        let start = match self {
            Self::AgentMessage { .. }
            | Self::Reasoning { .. }
            | Self::SubAgentActivity { .. }
            | Self::Other => return None,
            Self::CommandExecution { id, command, .. } => ToolStart {
                id: id.clone(),
                name: SHELL.to_owned(),
                kind: ToolKind::Execute,
                title: Some(command.clone()),
                input: input("command", command),
                ..ToolStart::default()
            },
            Self::FileChange { id, changes, .. } => ToolStart {
                id: id.clone(),
                name: PATCH.to_owned(),
                kind: ToolKind::Edit,
                title: Some(paths(changes).join(", ")),
                locations: paths(changes).into_iter().map(location).collect(),
                ..ToolStart::default()
            },
            Self::McpToolCall { id, server, tool, arguments, .. } => ToolStart {
                id: id.clone(),
                name: format!("{server}.{tool}"),
                input: Some(arguments.clone()),
                ..ToolStart::default()
            },
            Self::DynamicToolCall { id, tool, arguments, .. } => ToolStart {
                id: id.clone(),
                name: tool.clone(),
                input: Some(arguments.clone()),
                ..ToolStart::default()
            },
            Self::WebSearch { id, query } => ToolStart {
                id: id.clone(),
                name: "web_search".to_owned(),
                kind: ToolKind::Fetch,
                title: Some(query.clone()),
                input: input("query", query),
                ..ToolStart::default()
            },
            Self::CollabAgentToolCall { id, tool, prompt, .. } => ToolStart {
                id: id.clone(),
                name: tool.clone(),
                kind: ToolKind::Agent,
                title: prompt.clone(),
                input: prompt.as_deref().and_then(|prompt| input("prompt", prompt)),
                ..ToolStart::default()
            },
            Self::ImageView { id, path } => ToolStart {
                id: id.clone(),
                name: "view_image".to_owned(),
                kind: ToolKind::Read,
                title: Some(path.clone()),
                locations: vec![location(path)],
                ..ToolStart::default()
            },
            Self::ImageGeneration { id, revised_prompt, .. } => ToolStart {
                id: id.clone(),
                name: "image_generation".to_owned(),
                title: revised_prompt.clone(),
                ..ToolStart::default()
            },
        };
        Some(start)
    }

    /// The end of the tool call.
    pub(super) fn end(self) -> Option<ToolEnd> {
        let has_failed = |status: &str| matches!(status, "failed" | "declined");
        let end = match self {
            Self::AgentMessage { .. }
            | Self::Reasoning { .. }
            | Self::SubAgentActivity { .. }
            | Self::Other => return None,
            Self::CommandExecution { id, status, aggregated_output, exit_code, .. } => {
                let is_error = has_failed(&status) || exit_code.is_some_and(|code| code != 0);
                let printed = aggregated_output.filter(|output| !output.trim().is_empty());
                let code = exit_code.map(|code| format!("exit code {code}"));
                let output = printed.or(code).unwrap_or(status);
                ToolEnd { id, is_error, output, diff: None }
            }
            Self::FileChange { id, status, changes } => {
                let diffs = changes
                    .iter()
                    .filter_map(|change| Some(FileUpdate::deserialize(change).ok()?.unified()));
                let diff = Some(diffs.collect::<String>()).filter(|diff| !diff.is_empty());
                let output = format!("{status}: {}", paths(&changes).join(", "));
                ToolEnd { id, is_error: has_failed(&status), output, diff }
            }
            Self::McpToolCall { id, status, result, error, .. } => {
                let is_error = has_failed(&status) || error.is_some();
                let error = error.map(|error| error.message);
                let text = error.or_else(|| texts(result?.content));
                ToolEnd { id, is_error, output: text.unwrap_or(status), diff: None }
            }
            Self::DynamicToolCall { id, status, content_items, .. } => ToolEnd {
                id,
                is_error: has_failed(&status),
                output: content_items.and_then(texts).unwrap_or(status),
                diff: None,
            },
            Self::WebSearch { id, query } => {
                ToolEnd { id, is_error: false, output: query, diff: None }
            }
            Self::CollabAgentToolCall { id, status, agents_states, .. } => {
                let messages = agents_states.into_values().map(|state| match state.message {
                    Some(message) => format!("{}: {message}", state.status),
                    None => state.status,
                });
                let output = Some(messages.collect::<Vec<_>>().join("\n"));
                let output = output.filter(|output| !output.is_empty());
                let is_error = has_failed(&status);
                ToolEnd { id, is_error, output: output.unwrap_or(status), diff: None }
            }
            Self::ImageView { id, path } => {
                ToolEnd { id, is_error: false, output: path, diff: None }
            }
            Self::ImageGeneration { id, status, saved_path, failure, .. } => {
                let is_error = has_failed(&status) || failure.is_some();
                let failure = failure.map(|failure| failure.to_string());
                let saved = saved_path.map(|path| format!("saved as {path}"));
                let output = failure.or(saved).unwrap_or(status);
                ToolEnd { id, is_error, output, diff: None }
            }
        };
        Some(end)
    }
}

/// The texts of a tool's result.
fn texts(content: Vec<McpContent>) -> Option<String> {
    let texts = content.into_iter().map(|content| content.text);
    let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    Some(text).filter(|text| !text.is_empty())
}

impl Elicitation {
    /// True if yes or no is enough for an answer.
    pub(super) fn is_yes_or_no(&self) -> bool {
        let fields = self.requested_schema.get("properties").and_then(Value::as_object);
        self.url.is_some() || fields.is_none_or(Map::is_empty)
    }
}

impl TurnError {
    /// The retry that the error announces, which is the `attempt`-th as far as is known here.
    pub(super) fn retry(self, attempt: u64) -> ModelRetry {
        // `Reconnecting... 2/5`
        let counted = self.message.rsplit_once(' ').and_then(|(_, last)| last.split_once('/'));
        let counted = counted.and_then(|(now, most)| Some((now.parse().ok()?, most.parse().ok()?)));
        let (attempt, most) = counted.map_or((attempt, None), |(now, most)| (now, Some(most)));
        let info = self.codex_error_info.as_object().and_then(|info| info.values().next());
        let status = info.and_then(|details| details.get("httpStatusCode")?.as_u64());
        ModelRetry {
            attempt,
            most,
            status: status.and_then(|status| u16::try_from(status).ok()),
            error: self.additional_details.or(Some(self.message)),
            delay_ms: None,
        }
    }
}

impl FileUpdate {
    /// The whole unified diff.
    fn unified(&self) -> String {
        let Self { path, kind, diff } = self;
        match kind {
            FileUpdateKind::Add => unified(path, None, Some(diff)),
            FileUpdateKind::Delete => unified(path, Some(diff), None),
            FileUpdateKind::Update { move_path } => {
                let new = move_path.as_ref().unwrap_or(path);
                let note = format!("\n\nMoved to: {new}");
                let hunks = diff.strip_suffix(&note).unwrap_or(diff).trim_end_matches('\n');
                format!("--- {path}\n+++ {new}\n{hunks}\n")
            }
        }
    }
}

impl CodexUsage {
    pub(super) fn add(&mut self, more: &Self) {
        self.input_tokens += more.input_tokens;
        self.cached_input_tokens += more.cached_input_tokens;
        self.cache_write_input_tokens += more.cache_write_input_tokens;
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
            cache_write_tokens: Some(self.cache_write_input_tokens),
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
pub(super) fn paths(changes: &[Value]) -> Vec<&str> {
    changes.iter().filter_map(|change| change["path"].as_str()).collect()
}

/// The command that a shell runs: `touch a` for `/bin/bash -lc 'touch a'`. Other commands stay as they are.
pub(super) fn script(command: &str) -> String {
    let words = shell_words(command);
    let is_shell =
        |program: &str| matches!(program.rsplit('/').next(), Some("bash" | "sh" | "zsh"));
    match words.as_slice() {
        [program, flag, script] if is_shell(program) && matches!(&**flag, "-lc" | "-c") => {
            script.clone()
        }
        _ => command.to_owned(),
    }
}

/// The words of a command line, without their quotes.
fn shell_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match (quote, char) {
            (None, ' ') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(char);
                word.get_or_insert_default();
            }
            (Some(open), close) if open == close => quote = None,
            (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
            (_, char) => word.get_or_insert_default().push(char),
        }
    }
    words.extend(word);
    words
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
