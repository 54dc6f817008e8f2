//! The JSON of a message of A2A 1.0 as its protobuf, `google.protobuf.Struct` and all.

use anyhow::Context;
use serde_json::Value;

const ROLE_USER: u8 = 1;

/// A `SendMessageRequest` with this message.
pub(crate) fn send_request(message: &Value) -> anyhow::Result<Vec<u8>> {
    let mut fields = Vec::new();
    field(&mut fields, 1, message["messageId"].as_str().context("no message id")?.as_bytes());
    fields.extend([4 << 3, ROLE_USER]);
    for part in message["parts"].as_array().context("no parts")? {
        let mut content = Vec::new();
        match (part["text"].as_str(), part.get("data")) {
            (Some(text), _) => field(&mut content, 1, text.as_bytes()),
            (None, Some(data)) => field(&mut content, 4, &value(data)),
            (None, None) => anyhow::bail!("a part that is neither text nor data"),
        }
        field(&mut fields, 5, &content);
    }
    if let Some(metadata) = message["metadata"].as_object() {
        field(&mut fields, 6, &structure(metadata));
    }
    let mut request = Vec::new();
    field(&mut request, 2, &fields);
    Ok(request)
}

fn value(json: &Value) -> Vec<u8> {
    let mut bytes = Vec::new();
    match json {
        Value::Null => bytes.extend([1 << 3, 0]),
        Value::Number(number) => {
            bytes.push(2 << 3 | 1);
            bytes.extend(number.as_f64().unwrap_or_default().to_le_bytes());
        }
        Value::String(text) => field(&mut bytes, 3, text.as_bytes()),
        Value::Bool(bool) => bytes.extend([4 << 3, u8::from(*bool)]),
        Value::Object(members) => field(&mut bytes, 5, &structure(members)),
        Value::Array(items) => {
            let mut list = Vec::new();
            items.iter().for_each(|item| field(&mut list, 1, &value(item)));
            field(&mut bytes, 6, &list);
        }
    }
    bytes
}

fn structure(members: &serde_json::Map<String, Value>) -> Vec<u8> {
    let mut fields = Vec::new();
    for (name, member) in members {
        let mut entry = Vec::new();
        field(&mut entry, 1, name.as_bytes());
        field(&mut entry, 2, &value(member));
        field(&mut fields, 1, &entry);
    }
    fields
}

/// A field with a length and bytes.
fn field(bytes: &mut Vec<u8>, number: u8, content: &[u8]) {
    bytes.push(number << 3 | 2);
    let mut length = content.len();
    while length >= 0x80 {
        bytes.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(content);
}
