//! Validation of required fields after decoding, so that one error lists every violation.

use std::borrow::Borrow;

use serde::{Deserialize, Deserializer};

use crate::{
    error::{Error, Violation},
    id::MAX_ID_BYTES,
};

/// A value whose required fields can be checked.
pub trait Validate {
    /// Adds a violation for each field at fault.
    fn validate(&self, at: &mut Violations<'_>);
}

impl<T: Validate> Validate for Box<T> {
    fn validate(&self, at: &mut Violations<'_>) {
        (**self).validate(at);
    }
}

/// The violations found so far, and where in the request the check is.
#[derive(Debug)]
pub struct Violations<'a> {
    found: &'a mut Vec<Violation>,
    prefix: String,
}

/// Checks `value`; the error names every field at fault.
pub fn check(value: &impl Validate) -> Result<(), Error> {
    Violations::collect(|at| value.validate(at))
}

impl Violations<'_> {
    /// Runs `read`, which may add violations; with any, its result is dropped.
    pub fn collect<T>(read: impl FnOnce(&mut Violations<'_>) -> T) -> Result<T, Error> {
        let mut found = Vec::new();
        let value = read(&mut Violations { found: &mut found, prefix: String::new() });
        if found.is_empty() { Ok(value) } else { Err(Error::violations(found)) }
    }

    /// Runs `read` with its violations reported under `field`.
    pub fn within<T>(&mut self, field: &str, read: impl FnOnce(&mut Violations<'_>) -> T) -> T {
        let prefix = format!("{}{field}.", self.prefix);
        read(&mut Violations { found: self.found, prefix })
    }

    /// Adds a violation of `field`; an empty name is the value itself.
    pub fn add(&mut self, field: &str, description: impl Into<String>) {
        let field = match field {
            "" => self.prefix.trim_end_matches('.').to_owned(),
            _ => format!("{}{field}", self.prefix),
        };
        self.found.push(Violation { field, description: description.into() });
    }

    /// Checks a nested value; its fields are reported under `field`.
    pub fn nested(&mut self, field: &str, value: &impl Validate) {
        self.within(field, |at| value.validate(at));
    }

    /// Checks a required id.
    pub fn required_id(&mut self, field: &str, id: &str) {
        if id.is_empty() {
            self.add(field, "is required");
        } else {
            self.optional_id(field, Some(id));
        }
    }

    /// Checks an optional id.
    pub fn optional_id(&mut self, field: &str, id: Option<&str>) {
        match id {
            None => {}
            Some("") => self.add(field, "must not be empty"),
            Some(id) if id.len() > MAX_ID_BYTES => {
                self.add(field, format!("must be at most {MAX_ID_BYTES} bytes"));
            }
            Some(id) if has_control(id) => {
                self.add(field, "must not contain control characters");
            }
            Some(_) => {}
        }
    }

    /// Checks that a length is not negative.
    pub fn not_negative(&mut self, field: &str, value: Option<i32>) {
        if value.is_some_and(|value| value < 0) {
            self.add(field, "must not be negative");
        }
    }
}

/// True if a text contains control characters.
fn has_control(text: &str) -> bool {
    // Without an early exit, so that the compiler checks many bytes at once.
    let plain = text.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'));
    !plain && text.chars().any(char::is_control)
}

/// Reads `null` as absent, as ProtoJSON does.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Reads an empty text as absent, as ProtoJSON does: clients that print all members of protobuf messages
/// send empty texts.
pub(crate) fn empty_as_none<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Borrow<str>,
{
    let text = Option::<T>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.borrow().is_empty()))
}

/// True if a text is empty, where empty and absent mean the same.
pub(crate) fn is_blank<T: Borrow<str>>(text: &Option<T>) -> bool {
    text.as_ref().is_none_or(|text| text.borrow().is_empty())
}
