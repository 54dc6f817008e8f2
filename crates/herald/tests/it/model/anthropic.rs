//! Wire format of Anthropic's Messages stream.

use serde_json::{Value, json};

use super::Format;
use crate::support::uuid;

pub(super) const FORMAT: Format =
    Format { content_type: "text/event-stream", begin, say, tool, end, refusal };

/// Every answer begins with a text, which may stay empty.
fn begin(request: &Value) -> String {
    let usage = json!({ "input_tokens": 10, "output_tokens": 1 });
    let message = json!({
        "id": format!("msg_{}", uuid()), "type": "message", "role": "assistant",
        "model": request["model"], "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": usage,
    });
    let start = event(&json!({ "type": "message_start", "message": message }));
    start + &block(0, &json!({ "type": "text", "text": "" }))
}

fn say(text: &str) -> String {
    delta(0, &json!({ "type": "text_delta", "text": text }))
}

fn tool(name: &str, arguments: &Value) -> String {
    let id = format!("toolu_{}", uuid());
    let block = block(1, &json!({ "type": "tool_use", "id": id, "name": name, "input": {} }));
    let input = json!({ "type": "input_json_delta", "partial_json": arguments.to_string() });
    stop(0) + &block + &delta(1, &input)
}

fn end(_said: &str, tool: bool) -> String {
    let (last, reason) = if tool { (1, "tool_use") } else { (0, "end_turn") };
    let delta = json!({ "stop_reason": reason, "stop_sequence": null });
    let usage = json!({ "output_tokens": 20 });
    let delta = json!({ "type": "message_delta", "delta": delta, "usage": usage });
    stop(last) + &event(&delta) + &event(&json!({ "type": "message_stop" }))
}

fn refusal(status: u16) -> String {
    let error = json!({ "type": "scripted", "message": format!("the model says {status}") });
    json!({ "type": "error", "error": error }).to_string()
}

fn block(index: u8, block: &Value) -> String {
    event(&json!({ "type": "content_block_start", "index": index, "content_block": block }))
}

fn delta(index: u8, delta: &Value) -> String {
    event(&json!({ "type": "content_block_delta", "index": index, "delta": delta }))
}

fn stop(index: u8) -> String {
    event(&json!({ "type": "content_block_stop", "index": index }))
}

fn event(event: &Value) -> String {
    format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())
}
