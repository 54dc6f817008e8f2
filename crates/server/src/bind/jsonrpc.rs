//! JSON-RPC over HTTP: one URL, every dialect, chosen per request.

use bytes::Bytes;
use herald_engine::Caller;
use herald_protocol::{
    Dialect, Error, ErrorKind, dialect,
    jsonrpc::{self, RequestId},
};
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    bind::{Exchange, Outcome, respond, sse},
    body::Body,
    guard,
    limits::{self, Unread},
    refusal::Refusal,
};

/// Why a call failed, and as much as is known about it.
struct Failure {
    call: RequestId,
    dialect: Option<Dialect>,
    /// Whether a stream was asked for. Clients of 0.3 take nothing else for an answer then.
    streams: bool,
    error: Error,
}

/// Answers a call. The order of the checks is the one every conformance suite accepts: parse,
/// envelope, method, version, parameters, capability, semantics.
pub(crate) async fn answer<B>(exchange: &Exchange<'_>, body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
{
    let caller = match exchange.caller(None).await {
        Ok(caller) => caller,
        Err(error) => return refuse(exchange, Failure::early(error)),
    };
    if !body.is_end_stream()
        && let Some(text) = guard::refuse_content(&exchange.parts.headers)
    {
        let error = Error::new(ErrorKind::ContentTypeNotSupported, text);
        let mut response = refuse(exchange, Failure::early(error));
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let limit = exchange.shared.config.limits.body;
    let (wait, room) = (exchange.shared.config.timeouts.body, &exchange.shared.bodies);
    let body = match limits::read_body(body, limit, wait, room).await {
        Ok(body) => body,
        Err(Unread::TooLarge) => {
            let text = format!("the body is larger than {limit} bytes");
            let error = Error::new(ErrorKind::TooLarge, text).with("limit", limit);
            let mut response = refuse(exchange, Failure::early(error));
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        Err(Unread::TooSlow) => return too_slow(),
        Err(Unread::NoRoom) => return refuse(exchange, Failure::early(limits::no_room())),
        Err(Unread::Broken) => {
            let error = Error::new(ErrorKind::Parse, "the body broke off");
            return refuse(exchange, Failure::early(error));
        }
    };
    match call(exchange, caller, &body).await {
        Ok(response) => response,
        Err(failure) => refuse(exchange, failure),
    }
}

async fn call(
    exchange: &Exchange<'_>,
    caller: Caller,
    body: &[u8],
) -> Result<Response<Body>, Failure> {
    let call = jsonrpc::parse(body).map_err(|(call, error)| Failure {
        call,
        dialect: None,
        streams: false,
        error,
    })?;
    let policy = exchange.shared.config.missing_version;
    let resolved = dialect::resolve(&call.method, exchange.version().as_deref(), policy);
    let (dialect, operation) = match resolved {
        Ok(resolved) => resolved,
        Err(error) => return Err(Failure { call: call.id, dialect: None, streams: false, error }),
    };
    let params = call.params.map(|params| params.get().as_bytes());
    let outcome = match dialect.decode(operation, params) {
        Ok(request) => exchange.perform(caller, dialect, request).await,
        Err(error) => Err(error),
    };
    match outcome {
        Ok(Outcome::Result(result)) => {
            let body = jsonrpc::result(&call.id, &result);
            match limits::hold(body.into(), &exchange.shared.responses) {
                Ok(body) => Ok(respond(StatusCode::OK, "application/json", body)),
                Err(error) => {
                    let dialect = Some(dialect);
                    Err(Failure { call: call.id, dialect, streams: false, error })
                }
            }
        }
        Ok(Outcome::Stream(events, slot)) => {
            let framing = sse::Framing { dialect, call: Some(call.id), id: exchange.id };
            let every = exchange.shared.config.timeouts.keep_alive;
            Ok(sse::response(events, framing, every, slot))
        }
        Err(error) => {
            let streams = operation.is_streaming();
            Err(Failure { call: call.id, dialect: Some(dialect), streams, error })
        }
    }
}

impl Failure {
    /// Before anything of the body is known.
    fn early(error: Error) -> Self {
        Self { call: RequestId::null(), dialect: None, streams: false, error }
    }
}

pub(crate) fn too_slow() -> Response<Body> {
    let text = "the body did not arrive in time";
    let mut response = Refusal::new(StatusCode::REQUEST_TIMEOUT, text).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn refuse(exchange: &Exchange<'_>, failure: Failure) -> Response<Body> {
    let Failure { call, dialect, streams, error } = failure;
    let error = exchange.explain(error);
    let status = match error.kind {
        ErrorKind::Unauthenticated => StatusCode::UNAUTHORIZED,
        ErrorKind::Forbidden => StatusCode::FORBIDDEN,
        ErrorKind::LimitExceeded => StatusCode::TOO_MANY_REQUESTS,
        // Everything else is a matter between the two ends of JSON-RPC.
        ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::InvalidParams
        | ErrorKind::Internal
        | ErrorKind::TaskNotFound
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::AgentUnavailable
        | ErrorKind::IdempotencyConflict
        | ErrorKind::TooLarge
        | ErrorKind::Unavailable => StatusCode::OK,
    };
    // Without a method to go by, the version says which generation is asking.
    let dialect = dialect.unwrap_or_else(|| match exchange.version() {
        Some(version) if !version.is_empty() && !version.starts_with("0.") => Dialect::V1,
        Some(_) | None => Dialect::V03,
    });
    let body = dialect.encode_error(&call, &error);
    let mut response = if streams && dialect == Dialect::V03 {
        sse::refusal(status, &body)
    } else {
        respond(status, "application/json", body)
    };
    exchange.mark(response.headers_mut(), error.kind);
    response
}
