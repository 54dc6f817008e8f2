//! The JSON-RPC 2.0 envelope, on borrowed data. HTTP, WebSocket and stdio share it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    error::{Error, ErrorKind},
    json, status,
};

/// The longest request id that is echoed, in bytes.
pub const MAX_ID_BYTES: usize = 1024;

/// A request id, kept exactly as the caller wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestId(Box<str>);

/// A call: which method, with which parameters.
#[derive(Debug)]
pub struct Call<'a> {
    /// To be echoed.
    pub id: RequestId,
    /// The method, in whatever dialect.
    pub method: Cow<'a, str>,
    /// The parameters, unread.
    pub params: Option<&'a RawValue>,
}

impl RequestId {
    /// The id of an answer to a request whose id could not be read.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The id as JSON.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// Reads one call. On failure the id is the caller's where it could be read. A2A has no
/// notifications, so a call without an id is answered like any other, to the id `null`.
pub fn parse(body: &[u8]) -> Result<Call<'_>, (RequestId, Error)> {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        jsonrpc: Option<&'a RawValue>,
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<&'a RawValue>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
    }
    let refuse = |kind, message: &str| (RequestId::null(), Error::new(kind, message));
    let wire: Wire<'_> = match serde_json::from_slice(body) {
        Ok(wire) => wire,
        Err(fault) if fault.is_data() && is_json(body) => {
            let text = match body.trim_ascii_start().first() {
                Some(b'[') => "batches are not part of A2A: send one request object at a time",
                Some(b'{') => "a member of the request occurs twice",
                _ => "expected a JSON-RPC 2.0 request object",
            };
            return Err(refuse(ErrorKind::InvalidRequest, text));
        }
        Err(fault) => return Err((RequestId::null(), json::malformed(&fault))),
    };
    let id = match wire.id {
        None => RequestId::null(),
        Some(raw) => match read_id(raw.get()) {
            Ok(id) => id,
            Err(text) => return Err(refuse(ErrorKind::InvalidRequest, text)),
        },
    };
    let refuse = |text: &str| (id.clone(), Error::new(ErrorKind::InvalidRequest, text));
    if wire.jsonrpc.is_none_or(|version| version.get() != r#""2.0""#) {
        return Err(refuse(r#"the member "jsonrpc" must be "2.0""#));
    }
    let Some(method) = wire.method else {
        return Err(refuse(r#"the member "method" is missing"#));
    };
    let method = serde_json::from_str::<Name<'_>>(method.get())
        .map_err(|_| refuse(r#"the member "method" must be a string"#))?;
    Ok(Call { id, method: method.0, params: wire.params })
}

#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

fn read_id(raw: &str) -> Result<RequestId, &'static str> {
    if raw.len() > MAX_ID_BYTES {
        return Err(r#"the member "id" is too long"#);
    }
    let fits = match raw.as_bytes().first() {
        // Raw text may escape half a surrogate pair, and an echo of that would break our answer.
        Some(b'"') => serde_json::from_str::<Name<'_>>(raw).is_ok(),
        Some(b'-' | b'0'..=b'9') => !raw.contains(['.', 'e', 'E']),
        _ => false,
    };
    if fits {
        Ok(RequestId(raw.into()))
    } else {
        Err(r#"the member "id" must be a string, an integer or null"#)
    }
}

/// Frames an encoded result. It is copied, not encoded again.
pub fn result(id: &RequestId, result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(result.len() + id.0.len() + 40);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.0.as_bytes());
    out.extend_from_slice(br#","result":"#);
    out.extend_from_slice(result);
    out.push(b'}');
    out
}

/// Frames an error under a number: `data` is an array of typed details, as 1.0 asks.
pub(crate) fn error(id: &RequestId, code: i32, error: &Error) -> Vec<u8> {
    #[derive(Serialize)]
    struct Object<'a> {
        code: i32,
        message: &'a str,
        data: status::Details<'a>,
    }
    let object = Object { code, message: &error.message, data: status::Details(error) };
    let object = serde_json::to_vec(&object).expect("an error has only string keys");
    let mut out = Vec::with_capacity(object.len() + id.0.len() + 40);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.0.as_bytes());
    out.extend_from_slice(br#","error":"#);
    out.extend_from_slice(&object);
    out.push(b'}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(body: &str) -> i32 {
        parse(body.as_bytes()).unwrap_err().1.kind.codes().json_rpc
    }

    // proves: RPC-001
    #[test]
    fn rpc_001_a_request_says_2_0() {
        assert_eq!(code(r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#), -32600);
        assert_eq!(code(r#"{"id":1,"method":"GetTask"}"#), -32600);
    }

    // proves: RPC-002, RPC-003
    #[test]
    fn rpc_002_ids_are_echoed_with_their_type() {
        for id in [r#""a""#, "7", "-7", "123456789012345678901234567890"] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"X"}}"#);
            assert_eq!(parse(body.as_bytes()).unwrap().id.as_json(), id);
        }
        for absent in [r#""id":null,"#, ""] {
            let body = format!(r#"{{"jsonrpc":"2.0",{absent}"method":"X"}}"#);
            assert_eq!(parse(body.as_bytes()).unwrap().id.as_json(), "null");
        }
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1.5,"method":"X"}"#), -32600);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":{},"method":"X"}"#), -32600);
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":"\ud83d","method":"X"}"#), -32600);
        let huge = "9".repeat(MAX_ID_BYTES + 1);
        assert_eq!(code(&format!(r#"{{"jsonrpc":"2.0","id":{huge},"method":"X"}}"#)), -32600);
    }

    // proves: RPC-003, RPC-005
    #[test]
    fn rpc_005_broken_json_is_a_parse_error() {
        for body in ["{", "", "\u{feff}{}", r#"{"a":}"#, "{\"jsonrpc\":\"2.0\u{0}\"}"] {
            assert_eq!(code(body), -32700, "{body}");
        }
        assert_eq!(parse(b"\xff{}").unwrap_err().1.kind, ErrorKind::Parse);
    }

    // proves: RPC-006
    #[test]
    fn rpc_006_other_json_is_an_invalid_request() {
        for body in ["[]", "\"x\"", "{}", "1", "null", r#"[{"jsonrpc":"2.0"}]"#] {
            assert_eq!(code(body), -32600, "{body}");
        }
        assert_eq!(code(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"X"}"#), -32600);
    }

    #[test]
    fn depth_bombs_are_refused_without_recursion() {
        let deep = "[".repeat(100_000);
        assert_eq!(code(&deep), -32700);
        let closed = format!("{}{}", deep, "]".repeat(100_000));
        assert!(matches!(code(&closed), -32600 | -32700));
    }
}
