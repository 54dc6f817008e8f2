//! Reader of error bodies that other implementations write.
//!
//! Every version and every SDK has its own body. The `reason` of an `ErrorInfo` comes first, because it
//! means the same everywhere; then the JSON-RPC code; then the HTTP status, whose meaning changed between
//! versions. An unknown code or reason is kept in the metadata, as `code` and `reason`.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Value, value::RawValue};

use crate::{
    dialect::Dialect,
    error::{Error, ErrorContext, ErrorKind, Violation},
    grpc::{
        filled,
        status::{BadRequest, ErrorInfo, RetryInfo, RpcStatus},
    },
    percent,
    request::Operation,
};

/// The `error` of a JSON-RPC response.
pub fn rpc(dialect: Dialect, object: &[u8]) -> Option<Error> {
    let object: ErrorBodyObject<'_> = serde_json::from_slice(object).ok()?;
    object.read(dialect, None)
}

/// The body of a REST response with this status: the `error` of 1.0, the bare `code` and `message` of
/// 0.3, or a problem (RFC 9457). `None` for any other body.
pub fn rest(dialect: Dialect, status: u16, body: &[u8]) -> Option<Error> {
    #[derive(Deserialize)]
    struct ErrorBody<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let whole: ErrorBody<'_> = serde_json::from_slice(body).ok()?;
    let inner = whole.error.map_or(body, |error| error.get().as_bytes());
    let object: ErrorBodyObject<'_> = serde_json::from_slice(inner).ok()?;
    object.read(dialect, Some(status))
}

/// True if an event of a REST stream is an error.
pub fn is_error(event: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct ErrorMember {
        error: Option<IgnoredAny>,
    }
    serde_json::from_slice::<ErrorMember>(event).is_ok_and(|probe| probe.error.is_some())
}

/// The status of a gRPC call that failed, from its trailers: the number, the text of `grpc-message`
/// and that of `grpc-status-details-bin`.
pub fn grpc(
    operation: Operation,
    code: i32,
    message: Option<&str>,
    details: Option<&str>,
) -> Error {
    let status = details.and_then(RpcStatus::from_details_bin).unwrap_or_default();
    let said = message.map(|text| percent::decode(text).unwrap_or(text.into()).into_owned());
    let said = said.filter(|text| !text.is_empty()).unwrap_or(status.message);
    let mut detail = ErrorContext::default();
    let mut reason = None;
    for any in &status.details {
        if let Ok(info) = any.to_msg::<ErrorInfo>() {
            let facts = info.metadata.into_iter().map(|(key, fact)| (key.into(), fact));
            detail.metadata.extend(facts);
            reason = filled(info.reason).or(reason);
        } else if let Ok(bad) = any.to_msg::<BadRequest>() {
            detail.violations.extend(bad.field_violations.into_iter().map(|violation| Violation {
                field: violation.field,
                description: violation.description,
            }));
        } else if let Ok(info) = any.to_msg::<RetryInfo>() {
            detail.retry_after = info.retry_delay.and_then(|delay| delay.try_into().ok());
        }
    }
    // Servers of 0.3 send no details; the name of the error at the start of the message is all there is.
    let reason = reason.or_else(|| said.split_once(':').and_then(|(name, _)| class_reason(name)));
    let by_reason = reason.as_deref().and_then(ErrorKind::from_reason);
    if let (None, Some(reason)) = (by_reason, reason) {
        detail.metadata.insert("reason".into(), reason);
    }
    let message = Some(printable(&said)).filter(|text| !text.is_empty());
    Error {
        kind: by_reason.unwrap_or_else(|| kind_of_grpc(operation, code)),
        message: message.unwrap_or_else(|| format!("the agent ended the call with status {code}")),
        detail: Some(detail).filter(|detail| *detail != ErrorContext::default()).map(Box::new),
    }
}

/// A duration in the JSON of protobuf, such as `1.5s`.
fn delay(text: &str) -> Option<Duration> {
    let seconds = text.strip_suffix('s')?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// Members of an error, in any of its shapes.
#[derive(Deserialize)]
struct ErrorBodyObject<'a> {
    code: Option<i64>,
    message: Option<String>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    r#type: Option<String>,
    title: Option<String>,
    detail: Option<String>,
}

/// One typed detail.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Typed {
    reason: Option<String>,
    metadata: Option<BTreeMap<String, Value>>,
    #[serde(default, alias = "field_violations")]
    field_violations: Vec<FieldViolationBody>,
    #[serde(alias = "retry_delay")]
    retry_delay: Option<String>,
}

#[derive(Deserialize)]
struct FieldViolationBody {
    #[serde(default)]
    field: String,
    #[serde(default)]
    description: String,
}

impl ErrorBodyObject<'_> {
    fn read(self, dialect: Dialect, status: Option<u16>) -> Option<Error> {
        let problem = self.r#type.as_deref().and_then(problem_reason);
        let code = self.code.and_then(|code| i32::try_from(code).ok()).filter(|code| *code < 0);
        let details = self.details.or(self.data).map(|details| details.get());
        let typed: Vec<Typed> =
            details.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        // `{"detail": "Not Found"}` comes from a web framework, not from the agent.
        let said = self.message.is_some() || self.code.is_some();
        if !said && problem.is_none() && typed.is_empty() {
            return None;
        }
        let message = [self.message, self.detail, self.title].into_iter().flatten();
        let message = message.map(|text| printable(&text)).find(|text| !text.is_empty());
        let mut detail = ErrorContext::default();
        let mut reason = problem;
        for one in typed {
            for (key, value) in one.metadata.unwrap_or_default() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                detail.metadata.insert(key.into(), text);
            }
            detail.violations.extend(one.field_violations.into_iter().map(|violation| Violation {
                field: violation.field,
                description: violation.description,
            }));
            detail.retry_after = one.retry_delay.as_deref().and_then(delay).or(detail.retry_after);
            reason = one.reason.or(reason);
        }
        let by_reason = reason.as_deref().and_then(ErrorKind::from_reason);
        let by_code = code.and_then(|code| kind_of_code(dialect, code));
        if let (None, Some(reason)) = (by_reason, reason) {
            detail.metadata.insert("reason".into(), reason);
        }
        if let (None, None, Some(code)) = (by_reason, by_code, self.code) {
            detail.metadata.insert("code".into(), code.to_string());
        }
        let kind = by_reason.or(by_code).or_else(|| status.map(kind_of_status));
        let kind = kind.unwrap_or(ErrorKind::Internal);
        let message = message.unwrap_or_else(|| "the agent sent no error message".to_owned());
        // The kind has its title already.
        let message = match message.strip_prefix(&format!("{}: ", kind.title())) {
            Some(rest) => rest.to_owned(),
            None => message,
        };
        let detail = Some(detail).filter(|detail| *detail != ErrorContext::default()).map(Box::new);
        Some(Error { kind, message, detail })
    }
}

/// A problem's type ends in the reason, in lower case and with hyphens.
fn problem_reason(url: &str) -> Option<String> {
    let (_, name) = url.split_once("/errors/")?;
    Some(name.trim_end_matches("-error").replace('-', "_").to_ascii_uppercase())
}

/// The reason for the name of an error: `TASK_NOT_FOUND` for `TaskNotFoundError`.
fn class_reason(name: &str) -> Option<String> {
    let name = name.strip_suffix("Error").filter(|name| !name.is_empty())?;
    if !name.bytes().all(|byte| byte.is_ascii_alphabetic()) {
        return None;
    }
    let mut reason = String::with_capacity(name.len() + 4);
    for (index, letter) in name.char_indices() {
        if index > 0 && letter.is_ascii_uppercase() {
            reason.push('_');
        }
        reason.push(letter.to_ascii_uppercase());
    }
    Some(reason)
}

/// The kind of error that a gRPC status without details means for this operation.
fn kind_of_grpc(operation: Operation, code: i32) -> ErrorKind {
    match code {
        3 | 11 => ErrorKind::InvalidParams,
        5 => ErrorKind::TaskNotFound,
        6 => ErrorKind::IdempotencyConflict,
        7 => ErrorKind::Forbidden,
        8 => ErrorKind::LimitExceeded,
        9 if operation == Operation::CancelTask => ErrorKind::TaskNotCancelable,
        9 => ErrorKind::UnsupportedOperation,
        12 => ErrorKind::MethodNotFound,
        14 => ErrorKind::Unavailable,
        16 => ErrorKind::Unauthenticated,
        _ => ErrorKind::Internal,
    }
}

/// If several kinds share a code, the first in the table is the protocol's own.
fn kind_of_code(dialect: Dialect, code: i32) -> Option<ErrorKind> {
    ErrorKind::ALL.iter().copied().find(|kind| dialect.json_rpc_code(*kind) == code)
}

/// The kind that an HTTP status alone suggests. The table of 1.0.1 says little more than whose fault it
/// is; earlier tables distinguished more kinds.
fn kind_of_status(status: u16) -> ErrorKind {
    match status {
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::Forbidden,
        404 => ErrorKind::TaskNotFound,
        405 => ErrorKind::MethodNotFound,
        409 => ErrorKind::TaskNotCancelable,
        413 => ErrorKind::TooLarge,
        415 => ErrorKind::ContentTypeNotSupported,
        422 => ErrorKind::InvalidParams,
        429 => ErrorKind::LimitExceeded,
        501 => ErrorKind::UnsupportedOperation,
        502 => ErrorKind::InvalidAgentResponse,
        503 | 504 => ErrorKind::Unavailable,
        400..=499 => ErrorKind::InvalidRequest,
        _ => ErrorKind::Internal,
    }
}

/// A message of a peer without control characters and of limited length.
fn printable(text: &str) -> String {
    let plain = |c: &char| !c.is_control() || *c == '\n';
    text.chars().filter(plain).take(2000).collect::<String>().trim().to_owned()
}
