//! Messages of Claude Code: the fields that are used here.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    end::ClaudeResult,
    request::{ClaudePermission, ControlResult},
};
use crate::coding::dialect::DialectOutput;

/// A line that Claude Code writes.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ClaudeLine {
    System(SystemEvent),
    StreamEvent {
        event: ClaudeStreamEvent,
        /// The tool call of the subagent that wrote this.
        parent_tool_use_id: Option<String>,
    },
    Assistant {
        message: ClaudeMessage,
        parent_tool_use_id: Option<String>,
        /// Set if the text describes an error and is not from the model; the result repeats it.
        error: Option<Value>,
    },
    User {
        message: ClaudeMessage,
        /// The tool's own data, beside the text that the model gets.
        tool_use_result: Option<Value>,
        /// True for a message of the caller that the model gets now.
        #[serde(default, rename = "isReplay")]
        is_replay: bool,
    },
    ControlRequest {
        request_id: String,
        request: ControlRequest,
    },
    ControlResponse {
        response: Option<Value>,
    },
    Result(ClaudeResult),
    #[serde(other)]
    Other,
}

/// An event of the session. Most fields are `Value`, so that a later version with other types does not fail
/// the turn.
#[derive(Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum SystemEvent {
    Init {
        model: Option<String>,
        session_id: Option<String>,
        /// Names of the agents that it can run as.
        agents: Option<Value>,
    },
    ApiRetry {
        attempt: Option<Value>,
        max_retries: Option<Value>,
        retry_delay_ms: Option<Value>,
        error_status: Option<Value>,
        error: Option<Value>,
    },
    SessionStateChanged {
        state: Option<Value>,
    },
    BackgroundTasksChanged {
        tasks: Option<Value>,
    },
    TaskStarted(Value),
    TaskNotification {
        task_id: Option<Value>,
    },
    #[serde(other)]
    Other,
}

/// An event of the model's output.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ClaudeStreamEvent {
    ContentBlockStart,
    ContentBlockDelta {
        delta: ClaudeDelta,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ClaudeDelta {
    TextDelta {
        text: String,
    },
    #[serde(other)]
    Other,
}

/// A message of the user or the model. Cursor uses the same format.
#[derive(Deserialize)]
pub(in crate::coding) struct ClaudeMessage {
    pub(super) content: ClaudeContent,
}

#[derive(Deserialize)]
#[serde(untagged)]
pub(in crate::coding) enum ClaudeContent {
    Text(String),
    Blocks(Vec<ClaudeBlock>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(in crate::coding) enum ClaudeBlock {
    Text {
        text: String,
    },
    Thinking {
        thinking: String,
    },
    ToolUse {
        #[serde(default)]
        id: String,
        name: String,
        #[serde(default)]
        input: Value,
    },
    ToolResult {
        #[serde(default)]
        tool_use_id: String,
        content: Option<ClaudeContent>,
        /// Null in some versions.
        is_error: Option<bool>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum ControlRequest {
    CanUseTool(ClaudePermission),
    #[serde(other)]
    Other,
}

/// A line that Claude Code reads.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ToClaude<'a> {
    User { message: ClaudePrompt<'a> },
    ControlRequest { request_id: &'a str, request: ControlCommand },
    ControlResponse { response: ControlResult },
}

#[derive(Serialize)]
pub(super) struct ClaudePrompt<'a> {
    pub(super) role: &'a str,
    pub(super) content: Vec<PromptBlock<'a>>,
}

/// A part of a prompt.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum PromptBlock<'a> {
    Text { text: &'a str },
    Image { source: ImageSource<'a> },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ImageSource<'a> {
    Base64 { media_type: &'a str, data: &'a str },
}

#[derive(Serialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub(super) enum ControlCommand {
    Interrupt,
}

impl ToClaude<'_> {
    pub(super) fn send(&self, out: &mut DialectOutput) {
        out.line(serde_json::to_string(self).expect("its members are plain data"));
    }
}

impl ClaudeMessage {
    pub(in crate::coding) fn blocks(self) -> Vec<ClaudeBlock> {
        match self.content {
            ClaudeContent::Text(text) => vec![ClaudeBlock::Text { text }],
            ClaudeContent::Blocks(blocks) => blocks,
        }
    }
}

impl ClaudeContent {
    pub(super) fn into_text(self) -> String {
        let blocks = match self {
            Self::Text(text) => return text,
            Self::Blocks(blocks) => blocks,
        };
        let texts = blocks.into_iter().filter_map(|block| match block {
            ClaudeBlock::Text { text } => Some(text),
            ClaudeBlock::Thinking { .. }
            | ClaudeBlock::ToolUse { .. }
            | ClaudeBlock::ToolResult { .. }
            | ClaudeBlock::Other => None,
        });
        texts.collect::<Vec<_>>().join("\n")
    }
}
