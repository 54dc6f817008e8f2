//! Wire format of OpenAI's chat completions stream.

use serde_json::{Value, json};

use super::Format;

pub(super) const FORMAT: Format =
    Format { content_type: "text/event-stream", begin, say, tool, end, refusal };

fn begin(_request: &Value) -> String {
    chunk(&json!({ "role": "assistant", "content": "" }), None)
}

fn say(text: &str) -> String {
    chunk(&json!({ "content": text }), None)
}

fn tool(name: &str, arguments: &Value) -> String {
    let function = json!({ "name": name, "arguments": arguments.to_string() });
    let call = json!({ "index": 0, "id": "call_1", "type": "function", "function": function });
    chunk(&json!({ "tool_calls": [call] }), None)
}

fn end(_said: &str, tool: bool) -> String {
    let finished = chunk(&json!({}), Some(if tool { "tool_calls" } else { "stop" }));
    let usage = json!({ "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10 });
    let usage = json!({ "object": "chat.completion.chunk", "choices": [], "usage": usage });
    format!("{finished}data: {usage}\n\ndata: [DONE]\n\n")
}

fn refusal(status: u16) -> String {
    let error = json!({ "message": format!("the model says {status}"), "type": "scripted" });
    json!({ "error": error }).to_string()
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
    let chunk = json!({ "id": "c1", "object": "chat.completion.chunk", "choices": [choice] });
    format!("data: {chunk}\n\n")
}
