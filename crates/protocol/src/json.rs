//! JSON decoding into validated types, with the path of the field in the error.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    error::{Error, ErrorKind},
    object::ObjectOnly,
    validate::{Validate, check},
};

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

/// True if `bytes` begin like a JSON object.
pub(crate) fn is_object(bytes: &[u8]) -> bool {
    bytes.trim_ascii_start().first() == Some(&b'{')
}

fn explain<T: DeserializeOwned>(bytes: &[u8]) -> Error {
    let deserializer = &mut serde_json::Deserializer::from_slice(bytes);
    match serde_path_to_error::deserialize::<_, T>(ObjectOnly(deserializer)) {
        Err(fault) => {
            let path = fault.path().to_string();
            let path = if path == "." { String::new() } else { path };
            Error::field(path, without_position(&fault.inner().to_string()))
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

/// An error without line and column: they would count within the parameters, not within the body.
fn without_position(text: &str) -> &str {
    text.rfind(" at line ").map_or(text, |end| &text[..end])
}
