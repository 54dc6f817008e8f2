//! Replies of tools: a text for the model and the same as structured content.

use herald_protocol::{Error, ErrorKind};
use rmcp::model::{CallToolResult, ContentBlock};
use serde::Serialize;
use serde_json::Value;

use super::untrusted::short;

/// The most characters of an error. The text of some errors comes from an agent.
const MAX_ERROR: usize = 2000;

/// The reply of a tool.
#[derive(Debug)]
pub(super) struct ToolReply {
    text: String,
    structured: Value,
}

impl ToolReply {
    /// A reply with this text, and the same for programs.
    pub(super) fn new(text: String, structured: &impl Serialize) -> Self {
        Self { text, structured: tree(structured) }
    }
}

impl From<ToolReply> for CallToolResult {
    fn from(reply: ToolReply) -> Self {
        let mut result = Self::success(vec![ContentBlock::text(reply.text)]);
        result.structured_content = Some(reply.structured);
        result
    }
}

/// The error as the result of a tool, which a model can read and react to.
pub(super) fn failed(error: &Error) -> CallToolResult {
    #[derive(Serialize)]
    struct ToolFailure<'a> {
        error: FailureDetail<'a>,
    }
    #[derive(Serialize)]
    struct FailureDetail<'a> {
        reason: &'static str,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        request_id: Option<&'a str>,
        is_temporary: bool,
    }
    let fact = |name| error.detail.as_ref().and_then(|detail| detail.metadata.get(name));
    let message = short(&error.message, MAX_ERROR);
    let hint = fact("hint").map(|hint| short(hint, MAX_ERROR));
    let reason = error.kind.codes().reason;
    let mut text = format!("{reason}: {message}");
    for further in hint.iter().map(String::as_str).chain(advice(error.kind)) {
        text.push_str("; ");
        text.push_str(further);
    }
    let error = FailureDetail {
        reason,
        message: &message,
        hint: hint.as_deref(),
        request_id: fact("requestId").map(String::as_str),
        is_temporary: error.kind.is_temporary(),
    };
    let mut result = CallToolResult::error(vec![ContentBlock::text(text)]);
    result.structured_content = Some(tree(&ToolFailure { error }));
    result
}

/// The next step after an error, where the tools have one.
fn advice(kind: ErrorKind) -> Option<&'static str> {
    if kind.is_temporary() {
        Some("try again later")
    } else if kind == ErrorKind::TaskNotFound {
        Some("list_tasks lists your tasks")
    } else if kind == ErrorKind::TaskEnded {
        Some("send a message without task_id to begin a new task")
    } else if matches!(kind, ErrorKind::WorkerUnknown | ErrorKind::WorkerExpired) {
        Some("register again with register_agent")
    } else {
        None
    }
}

/// A value as the tree that the SDK takes. The replies of tools are limited in size.
pub(super) fn tree(value: &impl Serialize) -> Value {
    let bytes = serde_json::to_vec(value).expect("replies have string keys");
    serde_json::from_slice(&bytes).expect("the bytes are JSON")
}
