//! JSON decoding into validated types, with the path of the field in the error.

mod reason;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::{Error, ErrorKind},
    object::ObjectOnly,
    validate::{Validate, check},
};

use self::reason::Reason;
pub use self::reason::reason;

/// Reads JSON straight into its type and checks its required fields.
pub fn decode<T: DeserializeOwned + Validate>(bytes: &[u8]) -> Result<T, Error> {
    let value = read(bytes)?;
    check(&value)?;
    Ok(value)
}

/// Reads JSON straight into its type. On failure it is read again for the path of the error.
pub fn read<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Error> {
    object(bytes).map_err(|_| explain::<T>(bytes))
}

/// Reads JSON into its type, and a struct from an object only.
pub(crate) fn object<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> serde_json::Result<T> {
    // Checked once and fast, because a reader of bytes checks every string by itself.
    let text = std::str::from_utf8(bytes).map_err(|_| not_utf8())?;
    let mut json = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(ObjectOnly(&mut json))?;
    json.end()?;
    Ok(value)
}

/// The syntax error of bytes that are not UTF-8.
fn not_utf8() -> serde_json::Error {
    serde_json::from_slice::<&str>(b"\"\xff\"").expect_err("the string is not UTF-8")
}

/// Writes one of our own types, for which writing never fails.
pub(crate) fn write(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("protocol types have string keys and finite numbers")
}

/// Appends a text as a JSON string.
pub fn write_text(out: &mut Vec<u8>, text: &str) {
    // Without an early exit, so that the compiler checks many bytes at once.
    let escaped = |byte: u8| (byte < b' ') | (byte == b'"') | (byte == b'\\');
    if text.bytes().fold(false, |found, byte| found | escaped(byte)) {
        serde_json::to_writer(out, text).expect("a string can be written to memory");
    } else {
        out.reserve(text.len() + 2);
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    }
}

/// True if `bytes` begin like a JSON object.
pub(crate) fn is_object(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'{')
}

fn explain<T: DeserializeOwned>(bytes: &[u8]) -> Error {
    let deserializer = &mut serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(ObjectOnly(deserializer)) {
        Err(fault) => {
            let Reason { member, is_reached, text } = Reason::of(fault.inner());
            let path = fault.path().to_string();
            let ends_with = |name: &String| {
                path.strip_suffix(name.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            };
            let member = member.filter(|name| !(is_reached && ends_with(name)));
            Error::field(
                match (path.as_str(), member) {
                    (".", member) => member.unwrap_or_default(),
                    (path, None) => path.to_owned(),
                    (path, Some(member)) => format!("{path}.{member}"),
                },
                text,
            )
        }
        // The value is complete, so the error is in the bytes after it.
        Ok(_) if std::str::from_utf8(bytes).is_err() => {
            Error::new(ErrorKind::InvalidParams, "the JSON is not UTF-8")
        }
        Ok(_) => Error::new(ErrorKind::InvalidParams, "unexpected characters after the value"),
    }
}

/// The error for malformed JSON, with its position.
pub(crate) fn malformed(fault: &serde_json::Error) -> Error {
    let (line, column) = (fault.line(), fault.column());
    let text = format!("Invalid JSON payload (line {line}, column {column})");
    Error::new(ErrorKind::Parse, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_written_as_serde_json_writes_it() {
        for text in
            ["", "plain-0198", "täsk ☕", "a\"b", "back\\slash", "line\nbreak", "\u{7f}\u{85}"]
        {
            let mut out = Vec::new();
            write_text(&mut out, text);
            assert_eq!(out, serde_json::to_vec(text).unwrap(), "{text:?}");
        }
    }

    #[test]
    fn an_unknown_or_missing_member_is_named_once() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct OuterObject {
            #[serde(default)]
            inner: Option<InnerObject>,
        }
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct InnerObject {
            #[expect(dead_code, reason = "only its absence matters")]
            inner: bool,
        }
        for (json, said) in [
            (r#"{"foo":1}"#, "foo: is not known"),
            (r#"{"inner":{"foo":1}}"#, "inner.foo: is not known"),
            (r#"{"inner":{"inner":true,"oof":1}}"#, "inner.oof: is not known"),
            (r#"{"inner":{}}"#, "inner.inner: is required"),
        ] {
            let error = read::<OuterObject>(json.as_bytes()).map(|outer| outer.inner.is_some());
            assert_eq!(error.unwrap_err().message, said, "{json}");
        }
    }

    #[test]
    fn json_must_be_utf_8() {
        assert!(object::<String>(b"\"\xff\"").unwrap_err().is_syntax());
        let text = read::<Vec<String>>(b"[\"\xff\"]").unwrap_err();
        assert_eq!(text.kind, ErrorKind::InvalidParams);
    }
}
