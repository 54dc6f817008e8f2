//! JSON-RPC: every dialect, chosen per call. HTTP answers one call per request at one URL;
//! connections that last (`session`) have each of their calls performed here too.

use bytes::Bytes;
use herald_engine::{Caller, Subscription, budget::Reservation, store::Owner};
use herald_protocol::{
    Dialect, Error, ErrorKind, MissingVersion, Operation, Request,
    dialect::{self, Entry},
    jsonrpc::{self, RequestId},
};
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    bind::{Exchange, Outcome, respond, sse},
    body::Body,
    guard,
    limits::{self, KeyedPermit, Unread},
    refusal::Refusal,
};

/// What a call led to.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The whole response.
    Whole(Bytes),
    /// A stream, in the dialect of the call.
    Stream(Subscription, Option<KeyedPermit<Owner>>, Dialect),
}

/// Why a call failed, and as much as is known about it.
#[derive(Debug)]
pub(crate) struct Failure {
    dialect: Option<Dialect>,
    /// Whether a stream was asked for. Clients before 1.0 take nothing else for an answer then.
    streams: bool,
    error: Error,
}

/// Answers a request at `entry`. The order of the checks is the one every conformance suite accepts: parse,
/// envelope, method, version, parameters, capability, semantics.
pub(crate) async fn answer<B>(exchange: &Exchange<'_>, entry: Entry, body: B) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
{
    let caller = match exchange.caller(None).await {
        Ok(caller) => caller,
        Err(error) => return refuse(exchange, entry, &RequestId::null(), error.into()),
    };
    if !body.is_end_stream()
        && let Some(text) = guard::refuse_content(&exchange.parts.headers)
    {
        let error = Error::new(ErrorKind::ContentTypeNotSupported, text);
        let mut response = refuse(exchange, entry, &RequestId::null(), error.into());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let limit = exchange.shared.config.limits.body;
    let (wait, payer) = (exchange.shared.config.timeouts.body, || exchange.payer(&caller));
    let read = limits::read_body(body, limit, wait, exchange.uploads(), payer).await;
    let (body, reservation) = match read {
        Ok(read) => read,
        Err(Unread::TooLarge) => {
            let text = format!("the body is larger than {limit} bytes");
            let error = Error::new(ErrorKind::TooLarge, text).with("limit", limit);
            let mut response = refuse(exchange, entry, &RequestId::null(), error.into());
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            return response;
        }
        Err(Unread::TooSlow) => return too_slow(),
        Err(Unread::NoMemory) => {
            return refuse(exchange, entry, &RequestId::null(), limits::no_memory().into());
        }
        Err(Unread::Broken) => {
            let error = Error::new(ErrorKind::Parse, "the body broke off");
            return refuse(exchange, entry, &RequestId::null(), error.into());
        }
    };
    let (id, decoded) = match jsonrpc::parse(&body) {
        Ok(call) => {
            let params = call.params.map(|params| params.get().as_bytes());
            let policy = exchange.shared.config.missing_version;
            (call.id, decode(exchange, entry, policy, &call.method, params))
        }
        Err((id, error)) => return refuse(exchange, entry, &id, error.into()),
    };
    // A call can take long, and all of it is in the request.
    drop(body);
    let answer = match decoded {
        Ok(decoded) => perform(exchange, &caller, &id, decoded, reservation).await,
        Err(failure) => Err(failure),
    };
    match answer {
        Ok(Answer::Whole(body)) => respond(StatusCode::OK, "application/json", body),
        Ok(Answer::Stream(events, permit, dialect)) => {
            let framing = sse::Framing { dialect, call: Some(id), id: exchange.id };
            let every = exchange.shared.config.timeouts.keep_alive;
            sse::response(events, framing, every, permit)
        }
        Err(failure) => refuse(exchange, entry, &id, failure),
    }
}

/// Decodes one call, over whatever it came.
pub(crate) fn decode(
    exchange: &Exchange<'_>,
    entry: Entry,
    policy: MissingVersion,
    method: &str,
    params: Option<&[u8]>,
) -> Result<(Dialect, Request), Failure> {
    let version = exchange.version();
    let resolved = dialect::resolve(entry, method, version.as_deref(), policy);
    let (dialect, operation) = resolved.map_err(|error| {
        // A method of 1.0 is known by its name, also where its version is missing or wrong.
        let dialect = Operation::from_name(method).map(|_| Dialect::V1);
        Failure { dialect, streams: false, error }
    })?;
    let request = exchange.serves(dialect, operation);
    let request = request.and_then(|()| dialect.decode(operation, params)).inspect_err(|error| {
        exchange.count(dialect, operation, Some(error));
    });
    let mut request = request.map_err(|error| Failure::of(dialect, operation, error))?;
    entry.complete(dialect, &mut request);
    Ok((dialect, request))
}

/// Performs one call. Its reservation lasts until the request is stored.
pub(crate) async fn perform(
    exchange: &Exchange<'_>,
    caller: &Caller,
    id: &RequestId,
    (dialect, request): (Dialect, Request),
    reservation: Option<Reservation>,
) -> Result<Answer, Failure> {
    let operation = request.operation();
    let failed = |error| Failure::of(dialect, operation, error);
    match exchange.perform(caller, dialect, request, reservation, Some(id)).await.map_err(failed)? {
        Outcome::Result(result) => {
            let body = exchange.hold(result, caller).map_err(failed)?;
            Ok(Answer::Whole(body))
        }
        Outcome::Stream(events, permit) => Ok(Answer::Stream(events, permit, dialect)),
    }
}

/// Before the call's dialect is known.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self { dialect: None, streams: false, error }
    }
}

impl Failure {
    fn of(dialect: Dialect, operation: Operation, error: Error) -> Self {
        Self { dialect: Some(dialect), streams: operation.is_streaming(), error }
    }

    /// The response to a call at `entry`, and the kind and the dialect of what went wrong.
    pub(crate) fn encode(
        self,
        exchange: &Exchange<'_>,
        entry: Entry,
        call: &RequestId,
    ) -> (Vec<u8>, ErrorKind, Dialect) {
        let error = exchange.explain(self.error);
        // Without a method to go by, the version says which generation is asking, or the place.
        let dialect = self.dialect.unwrap_or_else(|| match (exchange.version(), entry) {
            (Some(version), _) if version.starts_with("0.") => Dialect::V03,
            (Some(version), _) if !version.is_empty() => Dialect::V1,
            (Some(_) | None, Entry::Main) => Dialect::V03,
            (Some(_) | None, Entry::V01) => Dialect::V01,
        });
        (dialect.encode_error(call, &error), error.kind, dialect)
    }
}

pub(crate) fn too_slow() -> Response<Body> {
    let text = "the body did not arrive in time";
    let mut response = Refusal::new(StatusCode::REQUEST_TIMEOUT, text).into_response();
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

fn refuse(
    exchange: &Exchange<'_>,
    entry: Entry,
    call: &RequestId,
    failure: Failure,
) -> Response<Body> {
    let streams = failure.streams;
    let (body, kind, dialect) = failure.encode(exchange, entry, call);
    let status = match kind {
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
        | ErrorKind::StreamingNotSupported
        | ErrorKind::TaskEnded
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
    let mut response = match dialect {
        Dialect::V03 | Dialect::V01 if streams => sse::refusal(status, &body),
        Dialect::V1 | Dialect::V03 | Dialect::V03Rest | Dialect::V01 => {
            respond(status, "application/json", body)
        }
    };
    exchange.mark(response.headers_mut(), kind);
    response
}
