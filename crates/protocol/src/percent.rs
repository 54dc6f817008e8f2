//! Percent-encoding, for paths, queries and the ids of events.

use std::{borrow::Cow, fmt::Write};

/// Escapes all but unreserved characters. The colon is escaped too, because it separates the verb of a path
/// and the number of an event id.
pub fn encode(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => write!(out, "%{byte:02X}").expect("a String takes everything"),
        }
    }
}

/// Decodes `%XX`; a malformed escape stays unchanged. `None` if the result is not text.
pub fn decode(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (mut rest, mut out) = (text.as_bytes(), Vec::with_capacity(text.len()));
    while let Some((&byte, after)) = rest.split_first() {
        match (byte, digit(after.first()), digit(after.get(1))) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                rest = &after[2..];
            }
            _ => {
                out.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    // proves: REST-007
    #[test]
    fn escapes_are_decoded_and_what_is_none_stays() {
        for (text, expected) in [
            ("plain", Some("plain")),
            ("%41%7a", Some("Az")),
            ("%E4%B8%AD", Some("中")),
            ("100%", Some("100%")),
            ("%4", Some("%4")),
            ("%zz%", Some("%zz%")),
            ("%+1", Some("%+1")),
            ("a+b", Some("a+b")),
            ("%FF", None),
        ] {
            assert_eq!(decode(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let text = "a:b/100%+ä 中~";
        let mut out = String::new();
        encode(&mut out, text);
        assert!(out.is_ascii() && !out.contains(':'), "{out}");
        assert_eq!(decode(&out).as_deref(), Some(text));
    }
}
