//! Refusals before any protocol applies: a forbidden host, an unknown path, a wrong method.

use std::borrow::Cow;

use herald_engine::role_of;
use herald_protocol::{Error, ErrorKind, percent, status::Details};
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{body::Body, limits::AdmissionLimit};

/// A refusal: a status and a sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The value of the `Allow` header.
    pub(crate) allow: Option<Cow<'static, str>>,
    /// The error of the protocol, if there is one for it.
    kind: Option<ErrorKind>,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), allow: None, kind: None }
    }

    pub(crate) fn not_found() -> Self {
        Self::nothing_at("no such path")
    }

    /// The refusal of a path below `/agents` whose agent does not exist. The name is still percent-encoded.
    pub(crate) fn no_agent(name: &str) -> Self {
        let decoded = percent::decode(name).unwrap_or(Cow::Borrowed(name));
        match role_of(&decoded) {
            Some(role) => Self::nothing_at(format!(
                "{decoded:?} is the name of an instance; messages are routed by role: use /agents/{role}"
            )),
            None => Self::nothing_at(format!("no agent {name:?}")),
        }
    }

    /// The refusal of an unknown path below `/api`.
    pub(crate) fn no_api() -> Self {
        Self::nothing_at("no such path; GET /api/openapi.json lists the paths")
    }

    fn nothing_at(message: impl Into<String>) -> Self {
        let refusal = Self::new(StatusCode::NOT_FOUND, message);
        Self { kind: Some(ErrorKind::MethodNotFound), ..refusal }
    }

    /// The refusal of a request that is beyond this limit.
    pub(crate) fn beyond(limit: AdmissionLimit) -> Self {
        let refusal = Self::new(StatusCode::SERVICE_UNAVAILABLE, limit.message());
        Self { kind: Some(ErrorKind::Unavailable), ..refusal }
    }

    pub(crate) fn method(allow: impl Into<Cow<'static, str>>) -> Self {
        let allow = allow.into();
        let message = format!("method not allowed; this path allows {allow}");
        Self { allow: Some(allow), ..Self::new(StatusCode::METHOD_NOT_ALLOWED, message) }
    }

    /// A response in the format of a REST error, with a reason if the protocol has one.
    pub(crate) fn into_response(self) -> Response<Body> {
        #[derive(Serialize)]
        struct RefusalDocument<'a> {
            error: RefusalStatus<'a>,
        }
        #[derive(Serialize)]
        struct RefusalStatus<'a> {
            code: u16,
            status: &'static str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            details: Option<Details<'a>>,
        }
        let known = self.kind.map(|kind| Error::new(kind, &self.message));
        let error = RefusalStatus {
            code: self.status.as_u16(),
            status: name(self.status),
            message: &self.message,
            details: known.as_ref().map(Details),
        };
        let body =
            serde_json::to_vec(&RefusalDocument { error }).expect("a refusal has only string keys");
        let mut response = Response::new(Body::whole(body));
        *response.status_mut() = self.status;
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if self.kind.is_some_and(ErrorKind::is_temporary) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(allow) = self.allow.and_then(|allow| HeaderValue::try_from(&*allow).ok()) {
            response.headers_mut().insert(header::ALLOW, allow);
        }
        response
    }
}

/// The name of a status in `google.rpc.Code`.
fn name(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "NOT_FOUND",
        StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED => "UNIMPLEMENTED",
        StatusCode::UNAUTHORIZED => "UNAUTHENTICATED",
        StatusCode::FORBIDDEN => "PERMISSION_DENIED",
        StatusCode::REQUEST_TIMEOUT => "DEADLINE_EXCEEDED",
        StatusCode::SERVICE_UNAVAILABLE => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}
