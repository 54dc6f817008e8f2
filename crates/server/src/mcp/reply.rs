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
    let mut text = format!("{reason}: {}", advised(error.kind, &message));
    if let Some(hint) = hint.as_deref().filter(|hint| !text.contains(*hint)) {
        text.push_str("; ");
        text.push_str(hint);
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

/// A message with the next step, where the tools have one. It replaces the advice at the end of the message, which has
/// no tools in it.
fn advised(kind: ErrorKind, message: &str) -> String {
    let (words, advice) = if kind.is_temporary() {
        if message.contains("again") {
            return message.to_owned();
        }
        ("try again", "try again later")
    } else if kind == ErrorKind::TaskNotFound {
        ("list_tasks", "list_tasks lists your tasks")
    } else if kind == ErrorKind::TaskEnded {
        ("start a new one", "send a message without task_id to begin a new task")
    } else if matches!(kind, ErrorKind::WorkerUnknown | ErrorKind::WorkerExpired) {
        ("register again", "register again with register_agent")
    } else {
        return message.to_owned();
    };
    match message.find(words) {
        Some(at) => format!("{}{advice}", &message[..at]),
        None => format!("{message}; {advice}"),
    }
}

/// A value as the tree that the SDK takes. The replies of tools are limited in size.
pub(super) fn tree(value: &impl Serialize) -> Value {
    let bytes = serde_json::to_vec(value).expect("replies have string keys");
    serde_json::from_slice(&bytes).expect("the bytes are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_gives_its_advice_once() {
        for (kind, message, hint, shown) in [
            (
                ErrorKind::Unavailable,
                "the disk is full; try again later",
                None,
                "UNAVAILABLE: the disk is full; try again later",
            ),
            (
                ErrorKind::Unavailable,
                "the disk is full",
                None,
                "UNAVAILABLE: the disk is full; try again later",
            ),
            (
                ErrorKind::TaskEnded,
                "the task has ended; start a new one in the same context to go on",
                None,
                "UNSUPPORTED_OPERATION: the task has ended; send a message without task_id to begin a new task",
            ),
            (
                ErrorKind::WorkerExpired,
                "the session of this worker is over: stop its turns and register again",
                None,
                "WORKER_EXPIRED: the session of this worker is over: stop its turns and register again with \
                 register_agent",
            ),
            (
                ErrorKind::InvalidParams,
                "no such role; use \"a\"",
                Some("use \"a\""),
                "INVALID_PARAMS: no such role; use \"a\"",
            ),
            (
                ErrorKind::TaskNotFound,
                "Task not found",
                Some("look at the root"),
                "TASK_NOT_FOUND: Task not found; list_tasks lists your tasks; look at the root",
            ),
        ] {
            let mut error = Error::new(kind, message);
            if let Some(hint) = hint {
                error = error.with("hint", hint);
            }
            let result = failed(&error);
            let text = result.content[0].as_text().unwrap();
            assert_eq!(text.text, shown);
        }
    }
}
