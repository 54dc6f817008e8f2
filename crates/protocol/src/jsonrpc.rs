//! The JSON-RPC 2.0 envelope, on borrowed data. HTTP, WebSocket and stdio share it.

mod answer;

use std::{borrow::Cow, collections::HashMap};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::{
    error::{Error, ErrorKind},
    json, status,
};

pub use answer::{Incoming, NoResult, call, cancel_call, incoming, result_of, session_call};

/// The longest request id that is echoed, in bytes.
pub const MAX_ID_BYTES: usize = 1024;

/// The notification that cancels a call, but not its task. The name comes from the Language Server
/// Protocol.
pub const CANCEL_REQUEST: &str = "$/cancelRequest";
/// The notification at the end of the stream of a call.
pub const STREAM_END: &str = "stream/end";

/// A request id, kept exactly as the caller wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RequestId(Box<str>);

/// A JSON-RPC request.
#[derive(Debug)]
pub struct JsonRpcCall<'a> {
    /// The id, which the response repeats.
    pub id: RequestId,
    /// The method, in any dialect.
    pub method: Cow<'a, str>,
    /// The parameters, not decoded.
    pub params: Option<&'a RawValue>,
    /// True if the request has no id, so that a session sends no response.
    pub is_notification: bool,
    /// The service parameters of a call in a session, not decoded; over HTTP they are headers.
    pub service_parameters: Option<&'a RawValue>,
}

impl RequestId {
    /// The id in the response to a request whose id could not be read.
    pub fn null() -> Self {
        Self("null".into())
    }

    /// The id as JSON.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

/// Reads one call. An error comes with the id of the call, if that could be read. A2A over HTTP has no
/// notifications, so a call without an id gets a response there, with the id `null`.
pub fn parse(body: &[u8]) -> Result<JsonRpcCall<'_>, (RequestId, Error)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct CallMembers<'a> {
        #[serde(borrow)]
        jsonrpc: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present")]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        method: Option<&'a RawValue>,
        #[serde(borrow)]
        params: Option<&'a RawValue>,
        #[serde(borrow)]
        service_parameters: Option<&'a RawValue>,
    }
    let refuse = |kind, message: &str| (RequestId::null(), Error::new(kind, message));
    let wire: CallMembers<'_> = match json::object(body) {
        Ok(wire) => wire,
        Err(fault) if fault.is_data() && is_json(body) => {
            let text = match body.trim_ascii_start().first() {
                Some(b'[') => "batches are not part of A2A: send one request object at a time",
                Some(b'{') => "a member of the request occurs twice",
                _ => "expected a JSON-RPC 2.0 request object",
            };
            return Err(refuse(ErrorKind::InvalidRequest, text));
        }
        Err(_) if std::str::from_utf8(body).is_err() => {
            return Err(refuse(ErrorKind::Parse, "Invalid JSON payload (not UTF-8)"));
        }
        Err(fault) => return Err((RequestId::null(), json::malformed(&fault))),
    };
    let is_notification = wire.id.is_none();
    let id = match wire.id.filter(|raw| raw.get() != "null") {
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
    let method = read_text(method.get());
    let method = method.ok_or_else(|| refuse(r#"the member "method" must be a string"#))?;
    Ok(JsonRpcCall {
        id,
        method,
        params: wire.params,
        is_notification,
        service_parameters: wire.service_parameters,
    })
}

/// A member that is present, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The text of a JSON string; `None` for other JSON.
fn read_text(raw: &str) -> Option<Cow<'_, str>> {
    #[derive(Deserialize)]
    struct JsonText<'a>(#[serde(borrow)] Cow<'a, str>);
    // The value is valid JSON, so without a backslash the text is between the quotation marks.
    let text = raw.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match text {
        Some(text) if !text.contains('\\') => Some(Cow::Borrowed(text)),
        Some(_) | None => serde_json::from_str::<JsonText<'_>>(raw).ok().map(|text| text.0),
    }
}

fn is_json(body: &[u8]) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

fn read_id(raw: &str) -> Result<RequestId, &'static str> {
    if raw.len() > MAX_ID_BYTES {
        return Err(r#"the member "id" is too long"#);
    }
    let fits = match raw.as_bytes().first() {
        // Raw text may contain half a surrogate pair, which would make the response invalid.
        Some(b'"') => read_text(raw).is_some(),
        Some(b'-' | b'0'..=b'9') => !raw.contains(['.', 'e', 'E']),
        _ => false,
    };
    if fits {
        Ok(RequestId(raw.into()))
    } else {
        Err(r#"the member "id" must be a string, an integer or null"#)
    }
}

/// Writes a response with an encoded result.
pub fn result(id: &RequestId, result: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(result.len() + id.0.len() + 40);
    begin_result(&mut out, id);
    out.extend_from_slice(result);
    out.push(b'}');
    out
}

/// Writes a response up to its result; a closing brace goes after it.
pub fn begin_result(out: &mut Vec<u8>, id: &RequestId) {
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(id.0.as_bytes());
    out.extend_from_slice(br#","result":"#);
}

/// Writes one event of a stream in a session: a response with the id from which the stream resumes.
pub fn event(id: &RequestId, event_id: &str, item: &[u8]) -> Vec<u8> {
    let event_id = serde_json::to_string(event_id).expect("a string can be written");
    let mut out = result(id, item);
    out.pop();
    out.extend_from_slice(br#","eventId":"#);
    out.extend_from_slice(event_id.as_bytes());
    out.push(b'}');
    out
}

/// Writes a notification with encoded parameters.
pub fn notification(method: &str, params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len() + method.len() + 40);
    begin_notification(&mut out, method);
    out.extend_from_slice(params);
    out.push(b'}');
    out
}

/// Writes a notification up to its parameters; a closing brace goes after them.
pub fn begin_notification(out: &mut Vec<u8>, method: &str) {
    let method = serde_json::to_string(method).expect("a string can be written");
    out.extend_from_slice(br#"{"jsonrpc":"2.0","method":"#);
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(br#","params":"#);
}

/// The end of a stream in a session, which distinguishes it from a stream that was interrupted.
pub fn stream_end(id: &RequestId) -> Vec<u8> {
    notification(STREAM_END, format!(r#"{{"id":{}}}"#, id.0).as_bytes())
}

/// The response to a call that its caller cancelled. The code comes from the Language Server Protocol.
pub fn cancelled(id: &RequestId) -> Vec<u8> {
    let text = "Request cancelled: the call was cancelled by its caller; the task goes on";
    format!(r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":-32800,"message":"{text}"}}}}"#, id.0)
        .into_bytes()
}

/// The id of the call that a `$/cancelRequest` cancels.
pub fn read_cancel(params: Option<&RawValue>) -> Result<RequestId, Error> {
    #[derive(Deserialize)]
    struct CancelRequest<'a> {
        #[serde(borrow, deserialize_with = "present")]
        id: Option<&'a RawValue>,
    }
    let wire =
        params.and_then(|params| json::object::<CancelRequest<'_>>(params.get().as_bytes()).ok());
    let raw = wire.and_then(|wire| wire.id).map(RawValue::get);
    match raw {
        Some("null") => Ok(RequestId::null()),
        Some(raw) => read_id(raw).map_err(|text| Error::field("id", text)),
        None => Err(Error::field("id", "the id of the call to cancel is missing")),
    }
}

/// The service parameters of a call: names, in any case, and values.
pub fn read_service_parameters(raw: &RawValue) -> Result<HashMap<String, String>, Error> {
    serde_json::from_str(raw.get())
        .map_err(|_| Error::field("serviceParameters", "must be an object of strings"))
}

/// Writes an error response. `data` is an array of typed details, as 1.0 requires.
pub(crate) fn error(id: &RequestId, code: i32, error: &Error) -> Vec<u8> {
    #[derive(Serialize)]
    struct ErrorObject<'a> {
        code: i32,
        message: &'a str,
        data: status::Details<'a>,
    }
    let message = &error.titled_message();
    let object = ErrorObject { code, message, data: status::Details(error) };
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

    #[test]
    fn only_a_call_without_an_id_is_a_notification() {
        for (id, is_notification) in [(r#""id":null,"#, false), (r#""id":7,"#, false), ("", true)] {
            let body = format!(r#"{{"jsonrpc":"2.0",{id}"method":"X"}}"#);
            assert_eq!(parse(body.as_bytes()).unwrap().is_notification, is_notification, "{id}");
        }
    }

    #[test]
    fn frames_of_a_session_are_json() {
        let id = parse(br#"{"jsonrpc":"2.0","id":"a\"b","method":"X"}"#).unwrap().id;
        for (framed, expected) in [
            (event(&id, "t:3", br#"{"x":1}"#), r#""result":{"x":1},"eventId":"t:3""#),
            (stream_end(&id), r#""method":"stream/end","params":{"id":"a\"b"}"#),
            (cancelled(&id), r#""code":-32800"#),
        ] {
            assert!(is_json(&framed));
            assert!(std::str::from_utf8(&framed).unwrap().contains(expected), "{expected}");
        }
    }

    #[test]
    fn a_call_is_cancelled_by_its_id() {
        for (params, id) in
            [(r#"{"id":7}"#, "7"), (r#"{"id":"a"}"#, r#""a""#), (r#"{"id":null}"#, "null")]
        {
            let params: &RawValue = serde_json::from_str(params).unwrap();
            assert_eq!(read_cancel(Some(params)).unwrap().as_json(), id);
        }
        for params in ["{}", "[]", r#"{"id":{}}"#, r#"{"id":1.5}"#] {
            let params: &RawValue = serde_json::from_str(params).unwrap();
            assert_eq!(read_cancel(Some(params)).unwrap_err().kind, ErrorKind::InvalidParams);
        }
        assert!(read_cancel(None).is_err());
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
        let batch = format!("[{}]", [r#"{"jsonrpc":"2.0"}"#; 8].join(","));
        let fields = r#"["2.0",1,"ListTasks",{},null]"#;
        for body in ["[]", "\"x\"", "{}", "1", "null", r#"[{"jsonrpc":"2.0"}]"#, &batch, fields] {
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
