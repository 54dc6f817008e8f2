//! The caller's half: writing a call and reading its answer.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    dialect::Dialect,
    error::{Error, ErrorKind},
    failure,
};

/// Why an answer holds no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoResult {
    /// The agent refused the call.
    Refused(Error),
    /// It is no answer to the call at all.
    Malformed(Error),
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

/// The encoded result in the answer to the call `id`. An answer without one is `null`, since that is
/// how some servers confirm a deletion.
pub fn result_of(dialect: Dialect, id: u64, body: &[u8]) -> Result<&[u8], NoResult> {
    #[derive(Deserialize)]
    struct Wire<'a> {
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
    let wire: Wire<'_> =
        serde_json::from_slice(body).map_err(|_| malformed("expected a JSON-RPC answer"))?;
    if let Some(error) = wire.error {
        return Err(match failure::rpc(dialect, error.get().as_bytes()) {
            Some(error) => NoResult::Refused(error),
            None => malformed("expected a JSON-RPC error with a code and a message"),
        });
    }
    if wire.jsonrpc.is_none() && wire.result.is_none() {
        return Err(malformed("expected a JSON-RPC answer"));
    }
    let ours = id.to_string();
    // Some servers turn numbers into text.
    if wire.id.is_some_and(|id| id.get().trim_matches('"') != ours) {
        return Err(malformed("the answer belongs to another call"));
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
    fn what_a_caller_writes_a_server_reads() {
        let bytes = call(7, "GetTask", br#"{"id":"t"}"#);
        let read = super::super::parse(&bytes).unwrap();
        assert_eq!((read.id.as_json(), &*read.method), ("7", "GetTask"));
        assert_eq!(read.params.unwrap().get(), r#"{"id":"t"}"#);
    }

    #[test]
    fn a_result_is_taken_only_from_an_answer_to_this_call() {
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
