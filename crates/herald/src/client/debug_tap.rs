//! Wire tap of `--debug`: requests and responses on standard error, with credentials redacted.

use std::{fmt::Write, time::Duration};

use bytes::Bytes;
use herald_client::{Secrets, WireTap};
use http::{HeaderMap, Request, header, response::Parts};
use serde_json::Value;

use crate::output::{inline, note};

/// Headers whose values are always redacted.
const HIDDEN_HEADERS: [header::HeaderName; 4] =
    [header::AUTHORIZATION, header::PROXY_AUTHORIZATION, header::COOKIE, header::SET_COOKIE];

/// Members of JSON objects whose values are always redacted.
const HIDDEN_MEMBERS: [&str; 8] = [
    "token",
    "credentials",
    "access_token",
    "refresh_token",
    "id_token",
    "client_secret",
    "device_code",
    "password",
];

/// Prints requests and responses to standard error.
#[derive(Debug, Clone)]
pub(crate) struct DebugTap {
    secrets: Secrets,
}

impl DebugTap {
    pub(crate) fn new(secrets: Secrets) -> Self {
        Self { secrets }
    }

    fn say(&self, text: &str) {
        note("Debug", &self.secrets.redact(&inline(text)));
    }

    fn headers(&self, sign: char, headers: &HeaderMap) {
        for (name, value) in headers {
            let secret = value.is_sensitive() || HIDDEN_HEADERS.contains(name);
            let value =
                if secret { "…".into() } else { String::from_utf8_lossy(value.as_bytes()) };
            self.say(&format!("{sign} {name}: {value}"));
        }
    }

    /// Prints a body, or a chunk of one, line by line. Lines of streams contain JSON.
    fn body(&self, sign: char, bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else {
            self.say(&format!("{sign} {} bytes that are not text", bytes.len()));
            return;
        };
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (before, json) = match line.find('{') {
                Some(at) => line.split_at(at),
                None => (line, ""),
            };
            let mut shown = format!("{sign} {before}");
            match serde_json::from_str::<Value>(json) {
                Ok(mut value) => {
                    mask(&mut value);
                    write!(shown, "{value}").expect("writing to a string");
                }
                Err(_) => shown.push_str(json),
            }
            self.say(&shown);
        }
    }
}

/// Redacts the values of members that are secrets.
fn mask(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                if member.is_string() && HIDDEN_MEMBERS.contains(&name.as_str()) {
                    *member = "…".into();
                }
                mask(member);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl WireTap for DebugTap {
    fn request(&self, request: &Request<Bytes>) {
        self.say(&format!("> {} {}", request.method(), request.uri()));
        self.headers('>', request.headers());
        self.body('>', request.body());
    }

    fn response(&self, head: &Parts, after: Duration) {
        self.say(&format!("< {} after {after:.1?}", head.status));
        self.headers('<', &head.headers);
    }

    fn data(&self, bytes: &[u8]) {
        self.body('<', bytes);
    }

    fn failed(&self, error: &(dyn std::error::Error + 'static)) {
        self.say(&format!("! {}", crate::client::error::sentence(error)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_with_secrets_are_redacted() {
        let mut value = serde_json::from_str(r#"{"a":[{"token":"x","url":"y"}]}"#).unwrap();
        mask(&mut value);
        assert_eq!(value.to_string(), r#"{"a":[{"token":"…","url":"y"}]}"#);
    }
}
