//! Messages of the Agent Client Protocol: the subset that is sent and read here.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::coding::activity::{ToolEnd, ToolKind, ToolLocation, ToolStart};

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
    #[serde(alias = "tool_call_update")]
    ToolCall(ToolCall),
    #[serde(rename = "usage_update")]
    Usage {
        #[serde(default)]
        cost: Option<Value>,
    },
    /// Plans, thoughts, commands: not part of the answer.
    #[serde(other)]
    Other,
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

/// A tool call, with the fields of this update.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ToolCall {
    pub(super) tool_call_id: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    kind: Option<String>,
    #[serde(default)]
    status: Option<ToolStatus>,
    #[serde(default)]
    content: Option<Vec<ToolContent>>,
    #[serde(default)]
    raw_input: Option<Value>,
    #[serde(default)]
    raw_output: Option<Value>,
    #[serde(default)]
    locations: Option<Vec<ToolLocation>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToolStatus {
    Completed,
    Failed,
    /// The call has not ended.
    #[serde(other)]
    Other,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ToolContent {
    Content {
        content: AcpContent,
    },
    Diff {
        path: String,
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
    pub(super) usage: Option<Map<String, Value>>,
    #[serde(rename = "_meta", default)]
    pub(super) meta: Option<PromptMeta>,
}

/// Token counts of Gemini CLI.
#[derive(Debug, Deserialize)]
pub(super) struct PromptMeta {
    #[serde(default)]
    pub(super) quota: Option<AcpUsage>,
}

#[derive(Debug, Deserialize)]
pub(super) struct AcpUsage {
    #[serde(default)]
    pub(super) token_count: Option<Map<String, Value>>,
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
    /// The name that callers see.
    pub(super) fn name(&self) -> String {
        let title = self.title.as_deref().filter(|title| !title.is_empty());
        title.or(self.kind.as_deref()).unwrap_or("tool").to_owned()
    }

    /// The kind and subject of the call.
    pub(super) fn described(&self) -> String {
        match (self.kind.as_deref(), self.title.as_deref()) {
            (Some(kind), Some(title)) => format!("{kind}: {title}"),
            (Some(_), None) | (None, _) => self.name(),
        }
    }

    /// The start of the call.
    pub(super) fn start(&self) -> ToolStart {
        ToolStart {
            id: self.tool_call_id.clone(),
            name: self.name(),
            kind: self
                .kind
                .as_ref()
                .and_then(|kind| ToolKind::deserialize(&Value::from(kind.as_str())).ok())
                .unwrap_or_default(),
            title: self.title.clone(),
            input: self.raw_input.clone(),
            locations: self.locations.clone().unwrap_or_default(),
            ..ToolStart::default()
        }
    }

    /// The end of the call, once it has ended.
    pub(super) fn end(&self) -> Option<ToolEnd> {
        let (word, is_error) = match self.status? {
            ToolStatus::Completed => ("done", false),
            ToolStatus::Failed => ("failed", true),
            ToolStatus::Other => return None,
        };
        let pieces = self.content.iter().flatten().filter_map(|piece| match piece {
            ToolContent::Content { content: AcpContent::Text { text } } => Some(text.as_str()),
            ToolContent::Diff { path } => Some(path.as_str()),
            ToolContent::Content { content: AcpContent::Other } | ToolContent::Other => None,
        });
        let text = pieces.collect::<Vec<_>>().join("\n");
        let raw = self.raw_output.as_ref().and_then(Value::as_str);
        let output = if text.is_empty() { raw.unwrap_or(word).to_owned() } else { text };
        Some(ToolEnd { id: self.tool_call_id.clone(), is_error, output, diff: None })
    }
}

fn encode(line: &impl Serialize) -> String {
    serde_json::to_string(line).expect("everything in it has a JSON form")
}
