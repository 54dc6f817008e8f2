//! REST binding: a route table onto the operations.

use bytes::Bytes;
use herald_engine::{Caller, budget::Reservation};
use herald_protocol::{
    Dialect, Error, ErrorKind, Operation,
    rest::{self, Route, RouteError},
};
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    bind::{Exchange, Outcome, jsonrpc, respond, sse},
    body::Body,
    guard,
    limits::{self, Unread},
    refusal::Refusal,
    routes::Mount,
};

/// Answers a request to `path`, which is relative to its mount.
pub(crate) async fn answer<B>(
    exchange: &Exchange<'_>,
    method: &http::Method,
    mount: Mount,
    path: &str,
    body: B,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
{
    let mut route = match rest::route(method.as_str(), path) {
        Ok(route) => route,
        Err(RouteError::NotFound) => return Refusal::not_found().into_response(),
        Err(RouteError::MethodNotAllowed(allow)) => {
            return Refusal::method(allow).into_response();
        }
    };
    let version = exchange.version();
    if mount == Mount::Shared && is_old(&route, version.as_deref()) {
        route.dialect = Dialect::V03Rest;
    }
    let policy = exchange.shared.config.missing_version;
    let served = exchange.serves(route.dialect, route.operation);
    let served = served.and_then(|()| route.dialect.check_version(version.as_deref(), policy));
    let answered = match served {
        Ok(()) => perform(exchange, &route, body).await,
        Err(error) => {
            exchange.count(route.dialect, route.operation, Some(&error));
            Err(error.into())
        }
    };
    match answered {
        Ok(response) => response,
        Err(Failure::Error(error)) => refuse(exchange, route.dialect, error),
        Err(Failure::TooSlow) => jsonrpc::too_slow(),
    }
}

enum Failure {
    Error(Error),
    TooSlow,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// Whether a request below `/a2a/rest` is one of 0.3: it names no version, or that one, and asks
/// for something 0.3 has.
fn is_old(route: &Route, version: Option<&str>) -> bool {
    let version = version.map(str::trim).unwrap_or_default();
    let named = version.is_empty() || version == "0.3" || version.starts_with("0.3.");
    named && route.tenant.is_none() && route.operation != Operation::ListTasks
}

async fn perform<B>(
    exchange: &Exchange<'_>,
    route: &Route,
    body: B,
) -> Result<Response<Body>, Failure>
where
    B: http_body::Body<Data = Bytes>,
{
    let caller = exchange.caller(None).await?;
    let (body, reservation) = read(exchange, &caller, body).await?;
    let request = rest::request(route, exchange.parts.uri.query(), &body);
    drop(body);
    let request = request.inspect_err(|error| {
        exchange.count(route.dialect, route.operation, Some(error));
    })?;
    match exchange.perform(&caller, route.dialect, request, reservation, None).await? {
        Outcome::Result(result) => {
            let body = exchange.hold(result, &caller)?;
            Ok(respond(StatusCode::OK, content_type(route.dialect), body))
        }
        Outcome::Stream(events, permit) => {
            let framing = sse::Framing { dialect: route.dialect, call: None, id: exchange.id };
            let every = exchange.shared.config.timeouts.keep_alive;
            Ok(sse::response(events, framing, every, permit))
        }
    }
}

/// The body of a request that may have one. What comes with a GET or a DELETE means nothing.
async fn read<B>(
    exchange: &Exchange<'_>,
    caller: &Caller,
    body: B,
) -> Result<(Bytes, Option<Reservation>), Failure>
where
    B: http_body::Body<Data = Bytes>,
{
    if exchange.parts.method != http::Method::POST || body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    if let Some(text) = guard::refuse_content(&exchange.parts.headers) {
        return Err(Error::new(ErrorKind::ContentTypeNotSupported, text).into());
    }
    let limit = exchange.shared.config.limits.body;
    let wait = exchange.shared.config.timeouts.body;
    let read =
        limits::read_body(body, limit, wait, exchange.uploads(), || exchange.payer(caller)).await;
    read.map_err(|unread| match unread {
        Unread::TooLarge => {
            let text = format!("the body is larger than {limit} bytes");
            Error::new(ErrorKind::TooLarge, text).with("limit", limit).into()
        }
        Unread::TooSlow => Failure::TooSlow,
        Unread::NoMemory => limits::no_memory().into(),
        Unread::Broken => Error::new(ErrorKind::Parse, "the body broke off").into(),
    })
}

/// An error under its own HTTP status.
pub(crate) fn refuse(exchange: &Exchange<'_>, dialect: Dialect, error: Error) -> Response<Body> {
    let error = exchange.explain(error);
    let status = StatusCode::from_u16(error.kind.codes().http);
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = respond(status, content_type(dialect), dialect.encode_status(&error));
    exchange.mark(response.headers_mut(), error.kind);
    if error.kind == ErrorKind::TooLarge {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

const fn content_type(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::V1 => "application/a2a+json",
        Dialect::V03 | Dialect::V03Rest | Dialect::V01 => "application/json",
    }
}
