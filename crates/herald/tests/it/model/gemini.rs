//! Wire format of Google's `streamGenerateContent`.

use serde_json::{Value, json};

use super::Format;

pub(super) const FORMAT: Format =
    Format { content_type: "text/event-stream", begin, say, tool, end, refusal };

fn begin(_request: &Value) -> String {
    String::new()
}

fn say(text: &str) -> String {
    chunk(&json!({ "candidates": [candidate(&json!({ "text": text }))] }))
}

fn tool(name: &str, arguments: &Value) -> String {
    let call = json!({ "functionCall": { "name": name, "args": arguments } });
    chunk(&json!({ "candidates": [candidate(&call)] }))
}

fn end(_said: &str, _tool: bool) -> String {
    let mut last = candidate(&json!({ "text": "" }));
    last["finishReason"] = json!("STOP");
    let usage = json!({ "promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10 });
    chunk(&json!({ "candidates": [last], "usageMetadata": usage }))
}

fn refusal(status: u16) -> String {
    let message = format!("the model says {status}");
    json!({ "error": { "code": status, "message": message, "status": "SCRIPTED" } }).to_string()
}

fn candidate(part: &Value) -> Value {
    json!({ "index": 0, "content": { "role": "model", "parts": [part] } })
}

fn chunk(chunk: &Value) -> String {
    format!("data: {chunk}\r\n\r\n")
}
