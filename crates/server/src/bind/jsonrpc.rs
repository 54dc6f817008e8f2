//! JSON-RPC binding: every dialect, chosen per call. HTTP has one call per request at one URL; sessions
//! use the decoder and the errors of this file too.

use bytes::Bytes;
use herald_protocol::{
    Dialect, Error, ErrorKind, MissingVersion, Operation, Request,
    dialect::{self, EntryPoint},
    jsonrpc::{self, RequestId},
};
use http::{HeaderValue, Response, StatusCode, header};

use crate::{
    bind::{
        Exchange,
        call::EncodedReply,
        frames::FrameStream,
        sse::{self, FrameEnvelope},
    },
    body::{Body, JSON, respond},
    guard,
    limits::UnreadBody,
    refusal::Refusal,
};

/// The error of a call with what is known about the call.
#[derive(Debug)]
pub(crate) struct JsonRpcFailure {
    dialect: Option<Dialect>,
    /// True if the caller expects a stream. Clients before 1.0 accept nothing else then.
    streams: bool,
    error: Error,
}

/// Answers a request at `entry`. The order of the checks is the one every conformance suite accepts: parse,
/// envelope, method, version, parameters, capability, semantics.
#[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
pub(crate) fn answer<B>(
    exchange: &Exchange<'_>,
    entry: EntryPoint,
    body: B,
) -> impl Future<Output = Response<Body>>
where
    B: http_body::Body<Data = Bytes>,
{
    async move {
        let caller = match exchange.caller().await {
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
        let (body, reservation) = match exchange.read_body(&caller, body, 0).await {
            Ok(read) => read,
            Err(UnreadBody::TooSlow) => return too_slow(),
            Err(unread) => {
                let mut response =
                    refuse(exchange, entry, &RequestId::null(), Error::from(unread).into());
                if matches!(unread, UnreadBody::TooLarge { .. }) {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(header::CONNECTION, close);
                }
                return response;
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
        // The request holds everything by now, and the call can take long.
        drop(body);
        let (dialect, request) = match decoded {
            Ok(decoded) => decoded,
            Err(failure) => return refuse(exchange, entry, &id, failure),
        };
        let operation = request.operation();
        let reply = exchange.call(&caller, dialect, request, reservation).await;
        match reply.and_then(|reply| reply.encode(exchange, &caller, Some(&id))) {
            Ok(EncodedReply::Whole(body)) => respond(StatusCode::OK, JSON, body),
            Ok(EncodedReply::Stream(events, dialect, permit)) => {
                let frames = FrameStream::of_task(events, dialect, exchange.id);
                let keep_alive = exchange.shared.config.timeouts.keep_alive;
                let envelope = FrameEnvelope::Result(id);
                sse::response(frames, dialect, envelope, None, keep_alive, permit)
            }
            Err(error) => {
                refuse(exchange, entry, &id, JsonRpcFailure::of(dialect, operation, error))
            }
        }
    }
}

/// Decodes one call, of HTTP or of a session.
pub(crate) fn decode(
    exchange: &Exchange<'_>,
    entry: EntryPoint,
    policy: MissingVersion,
    method: &str,
    params: Option<&[u8]>,
) -> Result<(Dialect, Request), JsonRpcFailure> {
    let version = exchange.version();
    let resolved = dialect::resolve(entry, method, version.as_deref(), policy);
    let (dialect, operation) = resolved.map_err(|error| {
        // A method of 1.0 is known by its name, also where its version is missing or wrong.
        let dialect = Operation::from_name(method).map(|_| Dialect::V1);
        JsonRpcFailure { dialect, streams: false, error }
    })?;
    let request = exchange.serves(dialect, operation);
    let request = request.and_then(|()| dialect.decode(operation, params)).inspect_err(|error| {
        exchange.count(dialect, operation, Some(error));
    });
    let reply = entry.reply_dialect(dialect, operation, params.unwrap_or_default());
    let mut request = request.map_err(|error| JsonRpcFailure::of(reply, operation, error))?;
    entry.complete(dialect, reply, &mut request);
    Ok((reply, request))
}

/// An error before the dialect of the call is known.
impl From<Error> for JsonRpcFailure {
    fn from(error: Error) -> Self {
        Self { dialect: None, streams: false, error }
    }
}

impl JsonRpcFailure {
    pub(crate) fn of(dialect: Dialect, operation: Operation, error: Error) -> Self {
        Self { dialect: Some(dialect), streams: operation.is_streaming(), error }
    }

    /// The JSON-RPC error for a call at `entry`, the error itself, and the dialect that it is written in.
    pub(crate) fn encode(
        self,
        exchange: &Exchange<'_>,
        entry: EntryPoint,
        call: &RequestId,
    ) -> (Vec<u8>, Error, Dialect) {
        let error = exchange.explain(self.error);
        // Without a known method the version tells the dialect, and without a version the entry.
        let dialect = self.dialect.unwrap_or_else(|| match (exchange.version(), entry) {
            (Some(version), _) if version.starts_with("0.") => Dialect::V03,
            (Some(version), _) if !version.is_empty() => Dialect::V1,
            (Some(_) | None, EntryPoint::Main) => Dialect::V03,
            (Some(_) | None, EntryPoint::V01) => Dialect::V01,
        });
        (dialect.encode_error(call, &error), error, dialect)
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
    entry: EntryPoint,
    call: &RequestId,
    failure: JsonRpcFailure,
) -> Response<Body> {
    let streams = failure.streams;
    let (body, error, dialect) = failure.encode(exchange, entry, call);
    let status = StatusCode::from_u16(error.kind.codes().json_rpc_http);
    let status = status.expect("the error table has statuses of HTTP");
    let mut response = match dialect {
        Dialect::V03 | Dialect::V01 if streams => sse::refusal(status, &body),
        Dialect::V1 | Dialect::V03 | Dialect::V03Rest | Dialect::V01 => respond(status, JSON, body),
    };
    exchange.mark(response.headers_mut(), error.kind, error.retry_delay());
    response
}
