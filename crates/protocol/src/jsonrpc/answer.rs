//! Client side of JSON-RPC: writer of calls, reader of responses.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use super::{CANCEL_REQUEST, STREAM_END};
use crate::{
    dialect::Dialect,
    error::{Error, ErrorKind},
    failure, json,
};

/// Reason why a response has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoResult {
    /// The agent refused the call.
    Refused(Error),
    /// It is not a response to the call.
    Malformed(Error),
}

/// The call that a message on a long-lived connection belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incoming {
    /// The call that it belongs to; `None` for an error to a call whose id could not be read.
    pub call: Option<u64>,
    /// The id of the event in it.
    pub event_id: Option<String>,
    /// True if it ends the stream of the call.
    pub is_end: bool,
}

/// Writes a call with encoded parameters.
pub fn call(id: u64, method: &str, params: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(params.len() + method.len() + 64);
    let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":"#);
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(params);
    out.push(b'}');
    out
}

/// Writes a call for a session, with its headers as service parameters.
pub fn session_call(
    id: u64,
    method: &str,
    params: &[u8],
    headers: &BTreeMap<&str, &str>,
) -> Vec<u8> {
    let mut out = call(id, method, params);
    out.pop();
    out.extend_from_slice(br#","serviceParameters":"#);
    out.extend_from_slice(&json::write(headers));
    out.push(b'}');
    out
}

/// Writes the notification that cancels a call.
pub fn cancel_call(id: u64) -> Vec<u8> {
    format!(r#"{{"jsonrpc":"2.0","method":"{CANCEL_REQUEST}","params":{{"id":{id}}}}}"#)
        .into_bytes()
}

/// The call that a message on a long-lived connection belongs to; `None` if there is none.
pub fn incoming(message: &[u8]) -> Option<Incoming> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct SessionMessage<'a> {
        id: Option<u64>,
        event_id: Option<String>,
        #[serde(borrow)]
        method: Option<Cow<'a, str>>,
        params: Option<StreamEndParams>,
        error: Option<IgnoredAny>,
    }
    #[derive(Deserialize)]
    struct StreamEndParams {
        id: u64,
    }
    let wire: SessionMessage<'_> = json::object(message).ok()?;
    match (wire.method.as_deref(), wire.id) {
        (Some(STREAM_END), _) => {
            Some(Incoming { call: Some(wire.params?.id), event_id: None, is_end: true })
        }
        (Some(_), _) => None,
        (None, None) if wire.error.is_none() => None,
        (None, call) => Some(Incoming { call, event_id: wire.event_id, is_end: false }),
    }
}

/// The encoded result in the response to the call `id`. A missing result reads as `null`, because some
/// servers confirm a deletion so.
pub fn result_of(dialect: Dialect, id: u64, body: &[u8]) -> Result<&[u8], NoResult> {
    #[derive(Deserialize)]
    struct ResponseMembers<'a> {
        #[serde(borrow)]
        jsonrpc: Option<&'a RawValue>,
        #[serde(borrow)]
        id: Option<&'a RawValue>,
        #[serde(borrow)]
        result: Option<&'a RawValue>,
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let malformed =
        |text: &str| NoResult::Malformed(Error::new(ErrorKind::InvalidAgentResponse, text));
    let wire: ResponseMembers<'_> =
        json::object(body).map_err(|_| malformed("expected a JSON-RPC response"))?;
    if let Some(error) = wire.error {
        return Err(match failure::rpc(dialect, error.get().as_bytes()) {
            Some(error) => NoResult::Refused(error),
            None => malformed("expected a JSON-RPC error with a code and a message"),
        });
    }
    if wire.jsonrpc.is_none() && wire.result.is_none() {
        return Err(malformed("expected a JSON-RPC response"));
    }
    let ours = id.to_string();
    // Some servers return the number as a string.
    if wire.id.is_some_and(|id| id.get().trim_matches('"') != ours) {
        return Err(malformed("the response belongs to another call"));
    }
    Ok(wire.result.map_or(b"null", |result| result.get().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(body: &str) -> Result<&[u8], NoResult> {
        result_of(Dialect::V1, 7, body.as_bytes())
    }

    #[test]
    fn a_server_reads_the_calls_of_a_client() {
        let bytes = call(7, "GetTask", br#"{"id":"t"}"#);
        let read = super::super::parse(&bytes).unwrap();
        assert_eq!((read.id.as_json(), &*read.method), ("7", "GetTask"));
        assert_eq!(read.params.unwrap().get(), r#"{"id":"t"}"#);
    }

    #[test]
    fn a_call_of_a_session_carries_its_headers() {
        let bytes = session_call(7, "GetTask", b"{}", &[("a2a-version", "1.0")].into());
        let read = super::super::parse(&bytes).unwrap();
        assert_eq!(read.service_parameters.unwrap().get(), r#"{"a2a-version":"1.0"}"#);
        let read = cancel_call(7);
        let read = super::super::parse(&read).unwrap();
        assert_eq!((&*read.method, read.params.unwrap().get()), (CANCEL_REQUEST, r#"{"id":7}"#));
        assert!(read.is_notification);
    }

    #[test]
    fn a_message_is_matched_to_its_call() {
        let about = |call, event_id: Option<&str>, is_end| {
            Some(Incoming { call, event_id: event_id.map(str::to_owned), is_end })
        };
        for (text, expected) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, about(Some(7), None, false)),
            (r#"{"id":7,"result":{},"eventId":"t:1"}"#, about(Some(7), Some("t:1"), false)),
            (r#"{"id":7,"error":{"code":-1}}"#, about(Some(7), None, false)),
            (r#"{"id":null,"error":{"code":-32600}}"#, about(None, None, false)),
            (r#"{"method":"stream/end","params":{"id":7}}"#, about(Some(7), None, true)),
            (r#"{"method":"stream/end"}"#, None),
            (r#"{"method":"other","params":{"id":7}}"#, None),
            (r#"{"id":"seven","result":{}}"#, None),
            ("{}", None),
            ("listening on port 8000", None),
        ] {
            assert_eq!(incoming(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn a_result_is_read_only_from_the_response_to_this_call() {
        assert_eq!(result(r#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#), Ok(&br#"{"a":1}"#[..]));
        assert_eq!(result(r#"{"jsonrpc":"2.0","id":"7","result":1}"#), Ok(&b"1"[..]));
        for deleted in [r#"{"jsonrpc":"2.0","id":7,"result":null}"#, r#"{"jsonrpc":"2.0","id":7}"#]
        {
            assert_eq!(result(deleted), Ok(&b"null"[..]));
        }
        for other in
            [r#"{"jsonrpc":"2.0","id":8,"result":1}"#, "{}", r#"{"detail":"Not Found"}"#, "<html>"]
        {
            assert!(matches!(result(other), Err(NoResult::Malformed(_))), "{other}");
        }
    }

    #[test]
    fn an_error_counts_whatever_its_id() {
        let body =
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no such task"}}"#;
        let Err(NoResult::Refused(error)) = result(body) else { panic!("expected a refusal") };
        assert_eq!((error.kind, &*error.message), (ErrorKind::TaskNotFound, "no such task"));
    }
}
