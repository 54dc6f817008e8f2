//! Wire format of OpenAI's responses stream.

use serde_json::{Value, json};

use super::Format;
use crate::support::uuid;

pub(super) const FORMAT: Format =
    Format { content_type: "text/event-stream", begin, say, tool, end, refusal };

/// Every answer begins with a text, which may stay empty.
fn begin(_request: &Value) -> String {
    let created = json!({ "type": "response.created", "response": { "id": "response" } });
    let begun = json!({ "type": "response.output_item.added", "item": message("") });
    event(&created) + &event(&begun)
}

fn say(text: &str) -> String {
    event(&json!({ "type": "response.output_text.delta", "delta": text }))
}

fn tool(name: &str, arguments: &Value) -> String {
    let call = json!({
        "type": "function_call", "call_id": uuid(), "name": name, "arguments": arguments.to_string()
    });
    event(&json!({ "type": "response.output_item.done", "item": call }))
}

fn end(said: &str, _tool: bool) -> String {
    let whole = json!({ "type": "response.output_item.done", "item": message(said) });
    let whole = if said.is_empty() { String::new() } else { event(&whole) };
    let usage = json!({ "input_tokens": 7, "output_tokens": 3, "total_tokens": 10 });
    let response = json!({ "id": "response", "usage": usage });
    whole + &event(&json!({ "type": "response.completed", "response": response }))
}

fn message(text: &str) -> Value {
    let content = json!([{ "type": "output_text", "text": text }]);
    json!({ "type": "message", "id": "message", "role": "assistant", "content": content })
}

fn refusal(status: u16) -> String {
    json!({ "error": { "message": format!("the model says {status}") } }).to_string()
}

fn event(event: &Value) -> String {
    format!("data: {event}\n\n")
}
