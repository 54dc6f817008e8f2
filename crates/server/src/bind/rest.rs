//! REST binding: a route table onto the operations.

use bytes::Bytes;
use herald_engine::{Caller, budget::Reservation};
use herald_protocol::{
    Dialect, Error, ErrorKind, Operation,
    rest::{self, Route, RouteError},
};
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    bind::{
        Exchange,
        call::EncodedReply,
        frames::FrameStream,
        jsonrpc,
        sse::{self, FrameEnvelope},
    },
    body::{Body, JSON, respond},
    guard,
    limits::UnreadBody,
    refusal::Refusal,
    routes::Mount,
};

/// Answers a request to `path`, which is relative to its mount.
#[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
pub(crate) fn answer<B>(
    exchange: &Exchange<'_>,
    method: &http::Method,
    mount: Mount,
    path: &str,
    body: B,
) -> impl Future<Output = Response<Body>>
where
    B: http_body::Body<Data = Bytes>,
{
    async move {
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
        let Route { dialect, operation, .. } = route;
        let replied = async {
            let policy = exchange.shared.config.missing_version;
            let served = exchange.serves(dialect, operation);
            let served = served.and_then(|()| dialect.check_version(version.as_deref(), policy));
            served.inspect_err(|error| exchange.count(dialect, operation, Some(error)))?;
            let caller = exchange.caller().await?;
            let (body, reservation) = read(exchange, &caller, body).await?;
            let request = rest::request(&route, exchange.parts.uri.query(), &body);
            drop(body);
            let request =
                request.inspect_err(|error| exchange.count(dialect, operation, Some(error)))?;
            let reply = exchange.call(&caller, dialect, request, reservation).await?;
            Ok(reply.encode(exchange, &caller, None)?)
        };
        match replied.await {
            Ok(EncodedReply::Whole(body)) => respond(StatusCode::OK, content_type(dialect), body),
            Ok(EncodedReply::Stream(events, dialect, permit)) => {
                let frames = FrameStream::of_task(events, dialect, exchange.id);
                let keep_alive = exchange.shared.config.timeouts.keep_alive;
                sse::response(frames, dialect, FrameEnvelope::Bare, None, keep_alive, permit)
            }
            Err(RestFailure::Error(error)) => refuse(exchange, dialect, error),
            Err(RestFailure::TooSlow) => jsonrpc::too_slow(),
        }
    }
}

/// Why a request has no reply.
pub(crate) enum RestFailure {
    Error(Error),
    /// The body did not arrive in time, for which HTTP has a status.
    TooSlow,
}

impl From<Error> for RestFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<UnreadBody> for RestFailure {
    fn from(unread: UnreadBody) -> Self {
        match unread {
            UnreadBody::TooSlow => Self::TooSlow,
            UnreadBody::TooLarge { .. } | UnreadBody::Broken | UnreadBody::NoMemory => {
                Self::Error(unread.into())
            }
        }
    }
}

/// True if a request below `/a2a/rest` is one of 0.3: it names that version or none, and 0.3 has the
/// operation.
fn is_old(route: &Route, version: Option<&str>) -> bool {
    let version = version.map(str::trim).unwrap_or_default();
    let named = version.is_empty() || version == "0.3" || version.starts_with("0.3.");
    named && route.tenant.is_none() && route.operation != Operation::ListTasks
}

/// The body of a request. GET and DELETE have none; bytes that come with them are ignored.
pub(crate) async fn read<B>(
    exchange: &Exchange<'_>,
    caller: &Caller,
    body: B,
) -> Result<(Bytes, Option<Reservation>), RestFailure>
where
    B: http_body::Body<Data = Bytes>,
{
    if exchange.parts.method != http::Method::POST || body.is_end_stream() {
        return Ok((Bytes::new(), None));
    }
    if let Some(text) = guard::refuse_content(&exchange.parts.headers) {
        return Err(Error::new(ErrorKind::ContentTypeNotSupported, text).into());
    }
    Ok(exchange.read_body(caller, body, 0).await?)
}

/// An error under its own HTTP status.
pub(crate) fn refuse(exchange: &Exchange<'_>, dialect: Dialect, error: Error) -> Response<Body> {
    let error = exchange.explain(error);
    let status = StatusCode::from_u16(error.kind.codes().http);
    let status = status.expect("the error table has statuses of HTTP");
    let mut response = respond(status, content_type(dialect), dialect.encode_status(&error));
    exchange.mark(response.headers_mut(), error.kind, error.retry_delay());
    if error.kind == ErrorKind::TooLarge {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

const fn content_type(dialect: Dialect) -> HeaderValue {
    match dialect {
        Dialect::V1 => const { HeaderValue::from_static("application/a2a+json") },
        Dialect::V03 | Dialect::V03Rest | Dialect::V01 => JSON,
    }
}
