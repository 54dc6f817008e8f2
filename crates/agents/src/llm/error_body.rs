//! Error bodies of model endpoints: extraction of the message, redaction of secrets and system prompt.
//!
//! Many endpoints echo the request in their error: the key from a header, or the whole body with the
//! system prompt. Callers must see neither.

use herald_client::Secrets;
use herald_protocol::escape;
use serde_json::Value;

/// Members that hold the message, in the order in which they are tried. Endpoints differ in the name.
const NAMES: [&str; 4] = ["error", "message", "detail", "msg"];

/// Characters of a message that are passed on.
const MAX_MESSAGE: usize = 500;

/// Letters in a row that count as a quotation of the system prompt; shorter matches occur by chance.
const REPEATED_LETTERS: usize = 20;

/// Shorter system prompts are not searched for: any sentence could contain them.
const MIN_REPEATED_LETTERS: usize = 6;

/// The message in the body of an error. Other members of a JSON body are dropped; a body that is not
/// JSON is the message.
pub(super) fn message(body: &str) -> Option<String> {
    match serde_json::from_str(body) {
        Ok(json) => message_in(&json),
        Err(_) => Some(body.to_owned()),
    }
}

/// The message in a parsed body.
pub(super) fn message_in(json: &Value) -> Option<String> {
    match json {
        Value::String(text) => Some(text.clone()),
        Value::Array(items) => items.first().and_then(message_in),
        Value::Object(members) => NAMES.iter().find_map(|name| message_in(members.get(*name)?)),
        Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// A message without secrets, truncated where it begins to quote the system prompt.
pub(super) fn redact(text: &str, secrets: &Secrets, system: Option<&str>) -> Option<String> {
    let mut text: String =
        secrets.redact_sentence(text).trim().chars().take(2 * MAX_MESSAGE).collect();
    if let Some(repeated) = system.and_then(|system| repeated(&text, system)) {
        text.truncate(repeated);
        text.push('…');
    }
    let text: String = text.chars().take(MAX_MESSAGE).collect();
    Some(text).filter(|text| !text.is_empty())
}

/// Offset at which `text` begins to quote `private`. Only letters and digits are compared, because
/// endpoints escape and reformat what they quote.
fn repeated(text: &str, private: &str) -> Option<usize> {
    let private: String = letters(private).map(|(_, letter)| letter).collect();
    let row = private.chars().count().min(REPEATED_LETTERS);
    if row < MIN_REPEATED_LETTERS {
        return None;
    }
    let letters: Vec<_> = letters(text).collect();
    let mut rows = letters.windows(row).map(|row| {
        let (positions, row): (Vec<_>, String) = row.iter().copied().unzip();
        (positions[0], row)
    });
    rows.find(|(_, row)| private.contains(row)).map(|(at, _)| at)
}

/// The letters and digits of a text with their byte offsets, escapes decoded.
fn letters(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut at = 0;
    let all = std::iter::from_fn(move || {
        let (letter, length) = escape::letter(&text[at..])?;
        at += length;
        Some((at - length, letter))
    });
    all.filter(|(_, letter)| letter.is_alphanumeric())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_is_found_under_any_name() {
        for (body, expected) in [
            (r#"{"error":{"message":"no","code":"x"}}"#, Some("no")),
            (r#"{"error":"no","request":"secret"}"#, Some("no")),
            (r#"[{"error":{"code":400,"message":"no"}}]"#, Some("no")),
            (r#"{"object":"error","message":"no"}"#, Some("no")),
            (r#"{"error":true,"message":"no"}"#, Some("no")),
            (r#"{"detail":[{"loc":["body"],"msg":"no","input":{"model":1}}]}"#, Some("no")),
            ("404 page not found", Some("404 page not found")),
            (r#"{"status":"no"}"#, None),
            ("[]", None),
        ] {
            assert_eq!(message(body).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn a_message_ends_where_it_repeats_the_system_prompt() {
        let system = "Be a poet.\nNever say “no”.\nThe password is swordfish.";
        for (body, expected) in [
            (r"bad input 'Be a poet.\nNever say \u201cno\u201d.\nThe pass", "bad input '…"),
            (r#"bad "say \\u201cno\\u201d.\\nThe password is swordf"#, "bad \"…"),
            ("the password is wrong", "the password is wrong"),
        ] {
            let redacted = redact(body, &Secrets::default(), Some(system));
            assert_eq!(redacted.as_deref(), Some(expected), "{body}");
        }
        let short = redact("bad: Sing!", &Secrets::default(), Some("Sing"));
        assert_eq!(short.as_deref(), Some("bad: Sing!"), "one short word is not redacted");
        let short = redact("bad: Sing well!", &Secrets::default(), Some("Sing well."));
        assert_eq!(short.as_deref(), Some("bad: …"));
    }
}
