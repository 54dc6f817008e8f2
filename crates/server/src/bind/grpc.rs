//! gRPC: both services, health and reflection, on the same listener as everything else.
//!
//! A call has one message, which is read whole within the limits of every other body. Its reply is one
//! message or a stream of the log, like server-sent events. The framing is five bytes before each
//! message and a status after the last one.

pub(crate) mod framing;
mod health;
mod reflection;

use std::{future::Future, time::Duration};

use bytes::Bytes;
use herald_engine::{Caller, Subscription, budget::Reservation};
use herald_protocol::{
    AgentName, Error, ErrorKind, Request, TenantId,
    grpc::{Service, status::RpcStatus},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header,
    request::Parts,
};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use self::framing::{PREFIX, frame};

use crate::{
    bind::{
        Exchange,
        call::EncodedReply,
        cursor,
        frames::{FrameStream, FrameWriter, StreamFrame},
        stream::{EventBody, FrameBuffer},
    },
    binding::{AGENTS, Binding},
    body::Body,
    caller_limits::StreamPermit,
    guard::Ingress,
    limits::UnreadBody,
    refusal::Refusal,
    shared::Shared,
    trace,
};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const ACCEPT_ENCODING: HeaderName = HeaderName::from_static("grpc-accept-encoding");
/// The id of the first event of a stream, in its headers; the ids of the others count up from it.
const FIRST_EVENT: HeaderName = HeaderName::from_static("first-event-id");

const DEADLINE_EXCEEDED: i32 = 4;
const NOT_FOUND: i32 = 5;
const UNIMPLEMENTED: i32 = 12;
const UNAVAILABLE: i32 = 14;

/// Why a call failed.
enum GrpcFailure {
    /// An error of the protocol.
    Error(Error),
    /// A status of gRPC that is no error of the protocol.
    Plain(i32, &'static str),
}

impl From<Error> for GrpcFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<UnreadBody> for GrpcFailure {
    fn from(unread: UnreadBody) -> Self {
        match unread {
            UnreadBody::TooSlow => {
                Self::Plain(DEADLINE_EXCEEDED, "the message did not arrive in time")
            }
            UnreadBody::TooLarge { .. } | UnreadBody::Broken | UnreadBody::NoMemory => {
                Self::Error(unread.into())
            }
        }
    }
}

const TOO_LATE: GrpcFailure = GrpcFailure::Plain(DEADLINE_EXCEEDED, "the deadline has passed");
const STOPPING: GrpcFailure = GrpcFailure::Plain(UNAVAILABLE, "the server is shutting down");

/// True if the content type is that of gRPC.
pub(crate) fn is_call(headers: &HeaderMap) -> bool {
    let content = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    content.is_some_and(|content| content.starts_with(b"application/grpc"))
}

/// Answers a call.
pub(crate) async fn answer<B>(
    shared: &Shared,
    id: Uuid,
    parts: &Parts,
    body: B,
    ingress: Ingress,
) -> Result<Response<Body>, Refusal>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    check_transport(parts, ingress)?;
    let (service, method) = parts.uri.path()[1..].rsplit_once('/').unwrap_or_default();
    let mut exchange = Exchange::new(shared, parts, None, Binding::Grpc, id, ingress);
    // Before the check of the host: probes use any name.
    if service == health::SERVICE {
        return Ok(response_to(&exchange, health::answer(&exchange, method, body).await));
    }
    let host = shared.guard.host(parts, ingress)?;
    shared.guard.origin(&parts.headers, host)?;
    if shared.config.grpc_reflection && reflection::SERVICES.contains(&service) {
        return Ok(response_to(&exchange, reflection::answer(&exchange, service, body).await));
    }
    exchange.join_trace(trace::of(&parts.headers).as_ref());
    let called = match Service::ALL.into_iter().find(|known| known.name() == service) {
        Some(service) => {
            let called = call(&mut exchange, service, method, body).await;
            called.map_err(|failure| match failure {
                GrpcFailure::Error(error) => GrpcFailure::Error(exchange.explain(error)),
                plain @ GrpcFailure::Plain(..) => plain,
            })
        }
        None => Err(unknown(format_args!("unknown service {service:?}"))),
    };
    let mut response = response_to(&exchange, called);
    exchange.add_extensions(response.headers_mut());
    Ok(response)
}

/// The response to a call that succeeded or failed.
fn response_to(
    exchange: &Exchange<'_>,
    called: Result<Response<Body>, GrpcFailure>,
) -> Response<Body> {
    called.unwrap_or_else(|failure| {
        // A call without messages has its trailers as headers.
        let mut response = respond(Body::empty());
        let headers = response.headers_mut();
        headers.extend(trailers(&failure));
        match failure {
            GrpcFailure::Error(error) => exchange.mark(headers, error.kind, error.retry_delay()),
            GrpcFailure::Plain(..) => {}
        }
        response
    })
}

/// Refuses a request that is not a gRPC call over HTTP/2.
fn check_transport(parts: &Parts, ingress: Ingress) -> Result<(), Refusal> {
    if parts.method != Method::POST {
        return Err(Refusal::method("POST"));
    }
    let content = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let content = content.and_then(|content| content.split(|byte| *byte == b';').next());
    if !matches!(content, Some(b"application/grpc" | b"application/grpc+proto")) {
        let text = "gRPC requires protobuf: send Content-Type: application/grpc";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    // The status is in the trailers, which HTTP/1 does not deliver reliably.
    if parts.version < Version::HTTP_2 && ingress != Ingress::InProcess {
        let text = "gRPC needs HTTP/2";
        return Err(Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text));
    }
    Ok(())
}

fn unknown(text: impl std::fmt::Display) -> GrpcFailure {
    Error::new(ErrorKind::MethodNotFound, text).into()
}

async fn call<B>(
    exchange: &mut Exchange<'_>,
    service: Service,
    method: &str,
    body: B,
) -> Result<Response<Body>, GrpcFailure>
where
    B: http_body::Body<Data = Bytes>,
{
    let Some(operation) = service.operation(method) else {
        let name = service.name();
        return Err(unknown(format_args!("{name} has no method {method:?}")));
    };
    let deadline = deadline(&exchange.parts.headers)?;
    let dialect = service.dialect();
    let called = async {
        let caller = exchange.caller().await?;
        let policy = exchange.shared.config.missing_version;
        dialect.check_version(exchange.version().as_deref(), policy)?;
        let (message, reservation) = read(exchange, &caller, body).await?;
        let request = service.decode(operation, &message);
        drop(message);
        let request = request.and_then(|mut request| {
            name_agent(exchange, &mut request)?;
            exchange.serves(dialect, operation)?;
            Ok(request)
        });
        let request =
            request.inspect_err(|error| exchange.count(dialect, operation, Some(error)))?;
        let reply = exchange.call(&caller, dialect, request, reservation).await?;
        Ok(reply.encode_grpc(exchange, &caller, service)?)
    };
    match until(deadline, called).await.unwrap_or(Err(TOO_LATE))? {
        EncodedReply::Whole(body) => Ok(respond(Body::trailed(body, success()))),
        EncodedReply::Stream(events, _, permit) => {
            Ok(stream(exchange, service, events, permit, deadline))
        }
    }
}

/// Sets the agent that the tenant of a request names, and removes that tenant.
fn name_agent(exchange: &mut Exchange<'_>, request: &mut Request) -> Result<(), Error> {
    let named = request.tenant().and_then(|tenant| tenant.as_str().strip_prefix(AGENTS));
    let Some(agent) = named.map(AgentName::from) else { return Ok(()) };
    exchange.profile = exchange.shared.engine.profile(Some(&agent));
    if exchange.profile.is_none() {
        return Err(Error::field("tenant", "names an unknown agent"));
    }
    exchange.agent = Some(agent);
    request.set_tenant(TenantId::default());
    Ok(())
}

/// The deadline of a call, from `grpc-timeout`.
fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Error> {
    let Some(value) = headers.get("grpc-timeout") else { return Ok(None) };
    let wait = value.to_str().ok().and_then(wait);
    let wait = wait.ok_or_else(|| {
        Error::field("grpc-timeout", "must be at most eight digits and one of H, M, S, m, u, n")
    })?;
    Ok(Some(Instant::now() + wait))
}

fn wait(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let plain = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit());
    let count: u64 = digits.parse().ok().filter(|_| plain)?;
    Some(match unit {
        "H" => Duration::from_secs(count * 60 * 60),
        "M" => Duration::from_secs(count * 60),
        "S" => Duration::from_secs(count),
        "m" => Duration::from_millis(count),
        "u" => Duration::from_micros(count),
        "n" => Duration::from_nanos(count),
        _ => return None,
    })
}

/// The output of `future`, or `None` if the deadline comes first.
async fn until<F: Future>(deadline: Option<Instant>, future: F) -> Option<F::Output> {
    match deadline {
        Some(deadline) => timeout_at(deadline, future).await.ok(),
        None => Some(future.await),
    }
}

/// The one message of a call.
async fn read<B>(
    exchange: &Exchange<'_>,
    caller: &Caller,
    body: B,
) -> Result<(Bytes, Option<Reservation>), GrpcFailure>
where
    B: http_body::Body<Data = Bytes>,
{
    let (body, reservation) = exchange.read_body(caller, body, PREFIX).await?;
    Ok((unframe(body)?, reservation))
}

fn malformed(text: &str) -> GrpcFailure {
    Error::new(ErrorKind::Parse, text).into()
}

/// Removes the frame of the one message of a body.
fn unframe(mut body: Bytes) -> Result<Bytes, GrpcFailure> {
    let Some((prefix, rest)) = body.split_first_chunk::<PREFIX>() else {
        return Err(malformed("the message is shorter than its prefix of five bytes"));
    };
    let [flag, length @ ..] = *prefix;
    let length = u64::from(u32::from_be_bytes(length));
    match flag {
        0 => {}
        1 => {
            return Err(GrpcFailure::Plain(UNIMPLEMENTED, "compressed messages are not supported"));
        }
        _ => return Err(malformed("the compression flag of the message must be 0 or 1")),
    }
    match length.cmp(&(rest.len() as u64)) {
        std::cmp::Ordering::Equal => Ok(body.split_off(PREFIX)),
        std::cmp::Ordering::Greater => {
            Err(malformed("the message is shorter than its declared length"))
        }
        std::cmp::Ordering::Less => Err(malformed("more than one message was sent")),
    }
}

fn respond(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    response
}

fn success() -> HeaderMap {
    HeaderMap::from_iter([(STATUS, HeaderValue::from_static("0"))])
}

/// The trailers of a call that failed.
fn trailers(failure: &GrpcFailure) -> HeaderMap {
    let status = match failure {
        GrpcFailure::Error(error) => RpcStatus::from(error),
        GrpcFailure::Plain(code, message) => {
            RpcStatus { code: *code, message: (*message).to_owned(), details: Vec::new() }
        }
    };
    let mut trailers = HeaderMap::from_iter([(STATUS, HeaderValue::from(status.code))]);
    let text = |text| HeaderValue::try_from(text).expect("it is encoded as printable ASCII");
    trailers.insert(MESSAGE, text(status.message_header()));
    if !status.details.is_empty() {
        trailers.insert(DETAILS, text(status.details_bin()));
    }
    trailers
}

fn stream(
    exchange: &Exchange<'_>,
    service: Service,
    events: Subscription,
    permit: Option<StreamPermit>,
    deadline: Option<Instant>,
) -> Response<Body> {
    let first = format!("{}{}", cursor::prefix(events.task_id()), events.next_seq());
    let engine = exchange.shared.engine.clone();
    let mut frames = FrameStream::of_grpc(events, service, exchange.id);
    let read = move |buffer| async move {
        let copied = until(deadline, frames.copy(&mut GrpcWriter(buffer))).await;
        Some(match copied {
            // A stream that ends before its last event is to be resumed.
            Some(Ok(())) if !frames.is_over() && engine.is_draining() => trailers(&STOPPING),
            Some(Ok(())) => success(),
            Some(Err(error)) => trailers(&error.into()),
            None => trailers(&TOO_LATE),
        })
    };
    let mut response = respond(Body::events(EventBody::new(read, permit)));
    let first = HeaderValue::try_from(first).expect("ids of events are printable ASCII");
    response.headers_mut().insert(FIRST_EVENT, first);
    response
}

/// Writes frames as gRPC messages.
struct GrpcWriter(FrameBuffer);

impl FrameWriter for GrpcWriter {
    async fn write(&mut self, message: StreamFrame<'_>) {
        frame(&mut self.0.lock().bytes, message.body);
        self.0.ready(message.reservation).await;
    }
}

#[cfg(test)]
mod tests {
    use super::{framing::framed, *};

    #[test]
    fn timeouts_are_a_number_and_a_unit() {
        for (text, expected) in [
            ("1H", Duration::from_secs(3600)),
            ("2M", Duration::from_secs(120)),
            ("99999999S", Duration::from_secs(99_999_999)),
            ("250m", Duration::from_millis(250)),
            ("7u", Duration::from_micros(7)),
            ("0n", Duration::ZERO),
        ] {
            assert_eq!(wait(text), Some(expected), "{text}");
        }
        for text in ["", "S", "1", "1s", "-1S", "+1S", "1.5S", "123456789S", "1 S", "1ß"] {
            assert_eq!(wait(text), None, "{text}");
        }
    }

    #[test]
    fn a_body_holds_exactly_one_plain_message() {
        let mut body = Vec::new();
        frame(&mut body, b"hello");
        assert_eq!(framed(b"hello".to_vec()), body);
        assert_eq!(unframe(body.clone().into()).ok().unwrap(), "hello");
        for length in 0..body.len() {
            let cut = unframe(body[..length].to_vec().into());
            assert!(matches!(cut, Err(GrpcFailure::Error(_))), "{length}");
        }
        let twice = [body.clone(), body.clone()].concat();
        assert!(matches!(unframe(twice.into()), Err(GrpcFailure::Error(_))));
        body[0] = 1;
        assert!(matches!(unframe(body.clone().into()), Err(GrpcFailure::Plain(UNIMPLEMENTED, _))));
        body[0] = 2;
        assert!(matches!(unframe(body.into()), Err(GrpcFailure::Error(_))));
    }
}
