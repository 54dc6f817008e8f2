//! Messages of the Agent Client Protocol: the subset that is sent and read here.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::coding::{
    activity::{StepStatus, ToolEnd, ToolKind, ToolLocation, ToolStart},
    diff::unified,
    rules::ToolSubject,
    usage::{RunUsage, sum},
};

/// Error code of an agent that requires a login.
pub(super) const AUTH_REQUIRED: i64 = -32_000;

/// Error code for parameters that cannot be read.
pub(super) const INVALID_PARAMS: i64 = -32_602;

/// Error code for a method that is not supported.
pub(super) const METHOD_NOT_FOUND: i64 = -32_601;

/// A request or notification to the agent.
#[derive(Debug, Serialize)]
#[serde(tag = "method", content = "params", rename_all_fields = "camelCase")]
pub(super) enum AcpRequest<'a> {
    #[serde(rename = "initialize")]
    Initialize {
        protocol_version: u16,
        client_capabilities: Map<String, Value>,
        client_info: ClientInfo,
    },
    #[serde(rename = "authenticate")]
    Authenticate { method_id: &'a str },
    #[serde(rename = "session/new")]
    New { cwd: &'a str, mcp_servers: [(); 0] },
    #[serde(rename = "session/resume")]
    Resume { session_id: &'a str, cwd: &'a str, mcp_servers: [(); 0] },
    #[serde(rename = "session/load")]
    Load { session_id: &'a str, cwd: &'a str, mcp_servers: [(); 0] },
    #[serde(rename = "session/set_mode")]
    SetMode { session_id: &'a str, mode_id: &'a str },
    #[serde(rename = "session/set_model")]
    SetModel { session_id: &'a str, model_id: &'a str },
    #[serde(rename = "session/set_config_option")]
    SetOption { session_id: &'a str, config_id: &'a str, value: &'a str },
    #[serde(rename = "session/prompt")]
    Prompt { session_id: &'a str, prompt: Vec<AcpBlock<'a>> },
    #[serde(rename = "session/cancel")]
    Cancel { session_id: &'a str },
}

/// The client's name and version.
#[derive(Debug, Serialize)]
pub(super) struct ClientInfo {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) version: &'static str,
}

/// A part of a prompt.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum AcpBlock<'a> {
    Text { text: Cow<'a, str> },
    Image { mime_type: &'a str, data: &'a str },
}

/// An answer to a request of the agent.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AcpReply<'a> {
    Result { outcome: PermissionOutcome<'a> },
    Error { code: i64, message: &'a str },
}

/// The outcome of a permission request.
#[derive(Debug, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub(super) enum PermissionOutcome<'a> {
    Selected { option_id: &'a str },
    Cancelled,
}

/// A line of the agent.
#[derive(Debug, Deserialize)]
pub(super) struct AcpLine<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) params: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<AcpError>,
}

/// The error in answer to a request.
#[derive(Debug, Deserialize)]
pub(super) struct AcpError {
    #[serde(default)]
    pub(super) code: i64,
    #[serde(default)]
    message: String,
    #[serde(default)]
    data: Value,
}

/// The agent's version and capabilities.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Initialized {
    pub(super) protocol_version: u16,
    #[serde(default)]
    pub(super) agent_capabilities: AcpCapabilities,
    #[serde(default)]
    pub(super) auth_methods: Vec<AuthMethod>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct AcpCapabilities {
    pub(super) load_session: bool,
    pub(super) prompt_capabilities: PromptCapabilities,
    pub(super) session_capabilities: SessionCapabilities,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PromptCapabilities {
    pub(super) image: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct SessionCapabilities {
    /// Present if the agent can resume sessions.
    pub(super) resume: Option<Value>,
}

/// An authentication method.
#[derive(Debug, Deserialize)]
pub(super) struct AuthMethod {
    #[serde(default)]
    pub(super) name: String,
}

/// An open session and its settings.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SessionOpened {
    pub(super) session_id: Option<String>,
    pub(super) config_options: Option<Vec<ConfigOption>>,
    pub(super) modes: Option<Value>,
    pub(super) models: Option<SessionModels>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConfigOption {
    pub(super) id: String,
    #[serde(default)]
    pub(super) category: Option<String>,
    #[serde(default)]
    pub(super) current_value: Value,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionModels {
    #[serde(default)]
    pub(super) current_model_id: Option<String>,
}

/// An update of a session.
#[derive(Debug, Deserialize)]
pub(super) struct SessionNotice {
    pub(super) update: SessionUpdate,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "sessionUpdate", rename_all = "snake_case")]
pub(super) enum SessionUpdate {
    AgentMessageChunk {
        content: AcpContent,
    },
    AgentThoughtChunk {
        content: AcpContent,
    },
    #[serde(alias = "tool_call_update")]
    ToolCall(Box<ToolCall>),
    Plan {
        entries: Vec<PlanEntry>,
    },
    #[serde(rename = "usage_update")]
    Usage {
        #[serde(default)]
        cost: Option<Value>,
    },
    /// Commands, modes and the like: neither part of the answer nor of the work.
    #[serde(other)]
    Other,
}

/// A step of a plan.
#[derive(Debug, Deserialize)]
pub(super) struct PlanEntry {
    pub(super) content: String,
    pub(super) status: StepStatus,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AcpContent {
    Text {
        text: String,
    },
    #[serde(other)]
    Other,
}

/// A tool call: the fields of an update or, merged, of all updates so far.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ToolCall {
    pub(super) tool_call_id: String,
    title: Option<String>,
    kind: Option<String>,
    status: Option<ToolStatus>,
    content: Option<Vec<ToolContent>>,
    raw_input: Option<Value>,
    raw_output: Option<Value>,
    locations: Option<Vec<ToolLocation>>,
    #[serde(rename = "_meta")]
    meta: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolStatus {
    Pending,
    Completed,
    Failed,
    /// It is in progress.
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", rename_all_fields = "camelCase")]
enum ToolContent {
    Content {
        content: AcpContent,
    },
    Diff {
        path: String,
        old_text: Option<String>,
        #[serde(default)]
        new_text: String,
    },
    #[serde(other)]
    Other,
}

/// A permission request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AcpPermission<'a> {
    #[serde(borrow)]
    pub(super) tool_call: &'a RawValue,
    pub(super) options: Vec<PermissionOption>,
}

/// A possible answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PermissionOption {
    pub(super) option_id: String,
    pub(super) name: String,
    pub(super) kind: PermissionKind,
}

/// Kinds of answers, in the order in which callers see them: a plain yes means this time only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PermissionKind {
    AllowOnce,
    AllowAlways,
    RejectOnce,
    RejectAlways,
    /// An unknown kind counts as a denial.
    #[serde(other)]
    Other,
}

/// The end of a prompt.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PromptResult {
    pub(super) stop_reason: String,
    #[serde(default)]
    usage: Option<Map<String, Value>>,
    #[serde(rename = "_meta", default)]
    meta: Option<PromptMeta>,
}

/// Token counts of Gemini CLI.
#[derive(Debug, Deserialize)]
struct PromptMeta {
    #[serde(default)]
    quota: Option<AcpQuota>,
}

#[derive(Debug, Deserialize)]
struct AcpQuota {
    #[serde(default)]
    token_count: Option<Map<String, Value>>,
}

impl AcpRequest<'_> {
    /// The line without its end; with an id it is a request, without one a notification.
    pub(super) fn line(&self, id: Option<u64>) -> String {
        #[derive(Serialize)]
        struct RequestLine<'a> {
            jsonrpc: &'static str,
            #[serde(skip_serializing_if = "Option::is_none")]
            id: Option<u64>,
            #[serde(flatten)]
            request: &'a AcpRequest<'a>,
        }
        encode(&RequestLine { jsonrpc: "2.0", id, request: self })
    }
}

impl AcpReply<'_> {
    /// The line without its end.
    pub(super) fn line(&self, id: &RawValue) -> String {
        #[derive(Serialize)]
        struct ReplyLine<'a> {
            jsonrpc: &'static str,
            id: &'a RawValue,
            #[serde(flatten)]
            reply: &'a AcpReply<'a>,
        }
        encode(&ReplyLine { jsonrpc: "2.0", id, reply: self })
    }
}

impl AcpError {
    /// The agent's message.
    pub(super) fn text(&self) -> String {
        let details = self.data.get("details").unwrap_or(&self.data).as_str();
        match details {
            Some(details) if self.message.is_empty() => details.to_owned(),
            Some(details) => format!("{}: {details}", self.message),
            None => self.message.clone(),
        }
    }
}

impl ToolCall {
    /// Takes the fields of an update, each of which replaces the one before.
    pub(super) fn merge(&mut self, update: Self) {
        let Self {
            tool_call_id,
            title,
            kind,
            status,
            content,
            raw_input,
            raw_output,
            locations,
            meta,
        } = update;
        self.tool_call_id = tool_call_id;
        self.title = title.or(self.title.take());
        self.kind = kind.or(self.kind.take());
        self.status = status.or(self.status);
        self.content = content.or(self.content.take());
        self.raw_input = raw_input.or(self.raw_input.take());
        self.raw_output = raw_output.or(self.raw_output.take());
        self.locations = locations.or(self.locations.take());
        self.meta = meta.or(self.meta.take());
    }

    /// True if its input is known. Some agents announce a call while the model still writes the input.
    pub(super) fn is_known(&self) -> bool {
        let input = self.raw_input.as_ref().and_then(Value::as_object);
        let has_input = input.is_some_and(|input| input.keys().any(|name| name != "cwd"));
        has_input || self.status != Some(ToolStatus::Pending)
    }

    /// The tool's name if the agent tells it, otherwise the kind. The title is different in each call.
    fn name(&self) -> String {
        let title = self.title.as_deref().filter(|title| !title.is_empty());
        let kind = self.kind.as_deref().filter(|kind| *kind != "other");
        self.claude("toolName").or(kind).or(title).unwrap_or("tool").to_owned()
    }

    /// A member of the metadata of the agents for Claude Code.
    fn claude(&self, member: &str) -> Option<&str> {
        self.meta.as_ref()?.get("claudeCode")?.get(member)?.as_str()
    }

    fn tool_kind(&self) -> ToolKind {
        let kind = self.kind.as_deref().map(Value::from);
        kind.and_then(|kind| ToolKind::deserialize(&kind).ok()).unwrap_or_default()
    }

    /// The kind and subject of the call.
    pub(super) fn described(&self) -> String {
        match (self.kind.as_deref(), self.title.as_deref()) {
            (Some(kind), Some(title)) => format!("{kind}: {title}"),
            (None, Some(title)) => title.to_owned(),
            (Some(_) | None, None) => self.name(),
        }
    }

    /// The call, as rules see it.
    pub(super) fn subject(&self) -> ToolSubject {
        let kind = self.tool_kind();
        let command = self.raw_input.as_ref().and_then(|input| input.get("command")?.as_str());
        let paths = self.locations.iter().flatten().map(|location| location.path.as_str());
        let changed = self.content.iter().flatten().filter_map(|content| match content {
            ToolContent::Diff { path, .. } => Some(path.as_str()),
            ToolContent::Content { .. } | ToolContent::Other => None,
        });
        let mut files: Vec<_> = paths.chain(changed).collect();
        files.sort_unstable();
        files.dedup();
        let title = self.title.as_deref().unwrap_or_default();
        let subject = match (kind, command) {
            (ToolKind::Execute, Some(command)) => command.to_owned(),
            (ToolKind::Execute, None) => title.to_owned(),
            (_, _) if files.is_empty() => title.to_owned(),
            (_, _) => files.join("\n"),
        };
        ToolSubject { name: self.name(), kind, subject }
    }

    /// The start of the call.
    pub(super) fn start(&self) -> ToolStart {
        ToolStart {
            id: self.tool_call_id.clone(),
            parent: self.claude("parentToolUseId").map(str::to_owned),
            name: self.name(),
            kind: self.tool_kind(),
            title: self.title.clone(),
            input: self.raw_input.clone(),
            locations: self.locations.clone().unwrap_or_default(),
        }
    }

    /// The end of the call, once it has ended.
    pub(super) fn end(&self) -> Option<ToolEnd> {
        let (word, is_error) = match self.status? {
            ToolStatus::Completed => ("done", false),
            ToolStatus::Failed => ("failed", true),
            ToolStatus::Pending | ToolStatus::Other => return None,
        };
        let (mut texts, mut diffs) = (Vec::new(), String::new());
        for piece in self.content.iter().flatten() {
            match piece {
                ToolContent::Content { content: AcpContent::Text { text } } => texts.push(&**text),
                ToolContent::Diff { path, old_text, new_text } => {
                    texts.push(path);
                    diffs += &unified(path, old_text.as_deref(), Some(new_text));
                }
                ToolContent::Content { content: AcpContent::Other } | ToolContent::Other => {}
            }
        }
        let text = texts.join("\n");
        let raw = self.raw_output.as_ref();
        let raw = raw.and_then(|raw| raw.as_str().or_else(|| raw.get("output")?.as_str()));
        let output = if text.is_empty() { raw.unwrap_or(word).to_owned() } else { text };
        let diff = Some(diffs).filter(|diffs| !diffs.is_empty());
        Some(ToolEnd { id: self.tool_call_id.clone(), is_error, output, diff })
    }
}

impl PromptResult {
    /// The agent's own figures, in whatever place it has them.
    pub(super) fn figures(&mut self) -> Option<Map<String, Value>> {
        let quota = self.meta.take().and_then(|meta| meta.quota);
        self.usage.take().or(quota.and_then(|quota| quota.token_count))
    }
}

/// The tokens of a prompt in the common shape.
pub(super) fn tokens(figures: &Map<String, Value>) -> RunUsage {
    let figure = |names: [&str; 2]| names.iter().find_map(|name| figures.get(*name)?.as_u64());
    let mut usage = RunUsage {
        input_tokens: figure(["inputTokens", "input_tokens"]),
        output_tokens: figure(["outputTokens", "output_tokens"]),
        cache_read_tokens: figure(["cachedReadTokens", "cached_read_tokens"]),
        cache_write_tokens: figure(["cachedWriteTokens", "cached_write_tokens"]),
        reasoning_tokens: figure(["thoughtTokens", "thought_tokens"]),
        total_tokens: figure(["totalTokens", "total_tokens"]),
        ..RunUsage::default()
    };
    // Agents differ in whether the input contains the cached tokens, and the output those of reasoning. The
    // total shows it.
    let counted = sum(usage.input_tokens, usage.output_tokens).unwrap_or(0);
    let mut missing = usage.total_tokens.unwrap_or(0).saturating_sub(counted);
    let cached = sum(usage.cache_read_tokens, usage.cache_write_tokens);
    if cached.is_some_and(|cached| cached <= missing) {
        missing -= cached.unwrap_or(0);
        usage.input_tokens = sum(usage.input_tokens, cached);
    }
    if usage.reasoning_tokens.is_some_and(|reasoning| reasoning <= missing) {
        usage.output_tokens = sum(usage.output_tokens, usage.reasoning_tokens);
    }
    usage.with_total()
}

fn encode(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("everything in it has a JSON form")
}
