//! gRPC: both services, health and reflection, on the same listener as everything else.
//!
//! A call has one message, which is read whole within the limits of every other body, and its
//! answer is one message or a stream that follows the log as server-sent events do. The framing is
//! five bytes before each message and a status after the last one.

mod health;
mod reflection;

use std::{
    future::Future,
    pin::{Pin, pin},
    time::Duration,
};

use bytes::Bytes;
use herald_engine::{Caller, Engine, Reply, Subscription, budget::Reservation, store::Owner};
use herald_protocol::{
    AgentName, Dialect, Error, ErrorKind, Operation, Request, TenantId,
    grpc::{Service, status::Status},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header,
    request::Parts,
};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::{
    bind::{
        Binding, Exchange, cursor,
        stream::{Events, Out},
    },
    body::Body,
    guard::Ingress,
    limits::{self, KeyedPermit, Unread},
    refusal::Refusal,
    server::Shared,
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

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// What begins the tenant of a call to a named agent, since gRPC has no paths to name it with.
pub(crate) const AGENTS: &str = "agents/";

/// Why a call failed.
enum Failure {
    /// In the protocol's terms.
    Error(Error),
    /// In gRPC's own.
    Plain(i32, &'static str),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

const TOO_LATE: Failure = Failure::Plain(DEADLINE_EXCEEDED, "the deadline has passed");
const STOPPING: Failure = Failure::Plain(UNAVAILABLE, "the server is shutting down");

/// Whether a request means to be a call, by its content type.
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
    // Probes come by whatever name their prober has for us.
    if service == health::SERVICE {
        return Ok(answered(&exchange, health::answer(&exchange, method, body).await));
    }
    let host = shared.guard.host(parts, ingress)?;
    shared.guard.origin(&parts.headers, host.as_ref())?;
    if shared.config.grpc_reflection && reflection::SERVICES.contains(&service) {
        return Ok(answered(&exchange, reflection::answer(&exchange, service, body).await));
    }
    exchange.join(trace::of(&parts.headers));
    let called = match Service::ALL.into_iter().find(|known| known.name() == service) {
        Some(service) => {
            let called = call(&mut exchange, service, method, body).await;
            called.map_err(|failure| match failure {
                Failure::Error(error) => Failure::Error(exchange.explain(error)),
                plain @ Failure::Plain(..) => plain,
            })
        }
        None => Err(unknown(format_args!("there is no service {service:?} here"))),
    };
    let mut response = answered(&exchange, called);
    exchange.answer_extensions(response.headers_mut());
    Ok(response)
}

/// The response to a call, whether it came to something or not.
fn answered(exchange: &Exchange<'_>, called: Result<Response<Body>, Failure>) -> Response<Body> {
    called.unwrap_or_else(|failure| {
        // A call that fails at once has its trailers for headers.
        let mut response = respond(Body::empty());
        let headers = response.headers_mut();
        headers.extend(trailers(&failure));
        match failure {
            Failure::Error(error) => exchange.mark(headers, error.kind),
            Failure::Plain(..) => {}
        }
        response
    })
}

/// What makes a request none that gRPC could answer.
fn check_transport(parts: &Parts, ingress: Ingress) -> Result<(), Refusal> {
    if parts.method != Method::POST {
        return Err(Refusal::method("POST"));
    }
    let content = parts.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let content = content.and_then(|content| content.split(|byte| *byte == b';').next());
    if !matches!(content, Some(b"application/grpc" | b"application/grpc+proto")) {
        let text = "gRPC is spoken in protobuf here: send Content-Type: application/grpc";
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    // A status that follows the messages has no place in HTTP/1.
    if parts.version < Version::HTTP_2 && ingress != Ingress::InProcess {
        let text = "gRPC needs HTTP/2";
        return Err(Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text));
    }
    Ok(())
}

fn unknown(text: impl std::fmt::Display) -> Failure {
    Error::new(ErrorKind::MethodNotFound, text).into()
}

async fn call<B>(
    exchange: &mut Exchange<'_>,
    service: Service,
    method: &str,
    body: B,
) -> Result<Response<Body>, Failure>
where
    B: http_body::Body<Data = Bytes>,
{
    let Some(operation) = service.operation(method) else {
        let name = service.name();
        return Err(unknown(format_args!("{name} has no method {method:?}")));
    };
    let deadline = deadline(&exchange.parts.headers)?;
    let (caller, reply, permit) = {
        let performed = pin!(perform(exchange, service, operation, body));
        until(deadline, performed).await.unwrap_or(Err(TOO_LATE))?
    };
    let message = match reply {
        Reply::Stream(events) => return Ok(stream(exchange, service, events, permit, deadline)),
        Reply::Sent(sent) => service.encode_send_result(sent.decode()?),
        Reply::Task(task) => service.encode_task(task.decode()?),
        Reply::Tasks(page) => service.encode_page(page),
    };
    let body = exchange.hold(framed(message), &caller)?;
    Ok(respond(Body::trailed(body, success())))
}

async fn perform<B>(
    exchange: &mut Exchange<'_>,
    service: Service,
    operation: Operation,
    body: B,
) -> Result<(Caller, Reply, Option<KeyedPermit<Owner>>), Failure>
where
    B: http_body::Body<Data = Bytes>,
{
    let caller = exchange.caller(None).await?;
    let policy = exchange.shared.config.missing_version;
    service.dialect().check_version(exchange.version().as_deref(), policy)?;
    let (message, reservation) = read(exchange, &caller, body).await?;
    let dialect = service.dialect();
    let request = service.decode(operation, &message);
    drop(message);
    let request = request.and_then(|mut request| {
        exchange.agent = agent(exchange.shared, &mut request)?;
        exchange.serves(dialect, operation)?;
        Ok(request)
    });
    let request = request.inspect_err(|error| exchange.count(dialect, operation, Some(error)))?;
    let (reply, permit) = exchange.call(&caller, dialect, request, reservation).await?;
    Ok((caller, reply, permit))
}

/// The agent a request is for: that of the server, or the one its tenant names, which then is no
/// tenant.
fn agent(shared: &Shared, request: &mut Request) -> Result<Option<AgentName>, Error> {
    let named = request.tenant().and_then(|tenant| tenant.as_str().strip_prefix(AGENTS));
    let Some(agent) = named.map(AgentName::from) else { return Ok(None) };
    if shared.engine.profile(Some(&agent)).is_none() {
        return Err(Error::field("tenant", "names an agent that is not here"));
    }
    request.set_tenant(TenantId::default());
    Ok(Some(agent))
}

/// When a call is to be over, if its caller says so.
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

/// What `future` leads to, unless the deadline comes first.
async fn until<F: Future>(deadline: Option<Instant>, future: Pin<&mut F>) -> Option<F::Output> {
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
) -> Result<(Bytes, Option<Reservation>), Failure>
where
    B: http_body::Body<Data = Bytes>,
{
    let limit = exchange.shared.config.limits.body;
    let (wait, payer) = (exchange.shared.config.timeouts.body, || exchange.payer(caller));
    let limit_with_prefix = limit.saturating_add(PREFIX);
    let uploads = exchange.uploads();
    let body = limits::read_body(body, limit_with_prefix, wait, uploads, payer).await;
    match body {
        Ok((body, reservation)) => Ok((unframe(body)?, reservation)),
        Err(Unread::TooLarge) => {
            let text = format!("the message is larger than {limit} bytes");
            Err(Error::new(ErrorKind::TooLarge, text).with("limit", limit).into())
        }
        Err(Unread::TooSlow) => {
            Err(Failure::Plain(DEADLINE_EXCEEDED, "the message did not arrive in time"))
        }
        Err(Unread::NoMemory) => Err(limits::no_memory().into()),
        Err(Unread::Broken) => Err(broken("the message broke off")),
    }
}

fn broken(text: &str) -> Failure {
    Error::new(ErrorKind::Parse, text).into()
}

/// Takes the one message out of a body.
fn unframe(mut body: Bytes) -> Result<Bytes, Failure> {
    let Some((prefix, rest)) = body.split_first_chunk::<PREFIX>() else {
        return Err(broken("a message begins with five bytes, and there are fewer"));
    };
    let [flag, length @ ..] = *prefix;
    let length = u64::from(u32::from_be_bytes(length));
    match flag {
        0 => {}
        1 => return Err(Failure::Plain(UNIMPLEMENTED, "compressed messages are not taken")),
        _ => return Err(broken("the first byte of a message says whether it is compressed")),
    }
    match length.cmp(&(rest.len() as u64)) {
        std::cmp::Ordering::Equal => Ok(body.split_off(PREFIX)),
        std::cmp::Ordering::Greater => Err(broken("the message is shorter than it says")),
        std::cmp::Ordering::Less => Err(broken("more than one message was sent")),
    }
}

/// Puts a message into a body. Nothing we send comes near what the prefix can say.
fn frame(out: &mut Vec<u8>, message: &[u8]) {
    out.reserve(PREFIX + message.len());
    out.push(0);
    out.extend_from_slice(&u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend_from_slice(message);
}

/// The body of an answer of one message, in the message's own buffer.
fn framed(mut message: Vec<u8>) -> Bytes {
    let length = message.len();
    message.reserve_exact(PREFIX);
    message.resize(length + PREFIX, 0);
    message.copy_within(..length, PREFIX);
    let length = u32::try_from(length).unwrap_or(u32::MAX);
    message[1..PREFIX].copy_from_slice(&length.to_be_bytes());
    message[0] = 0;
    message.into()
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

/// How a call that failed ends.
fn trailers(failure: &Failure) -> HeaderMap {
    let status = match failure {
        Failure::Error(error) => Status::from(error),
        Failure::Plain(code, message) => {
            Status { code: *code, message: (*message).to_owned(), details: Vec::new() }
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
    permit: Option<KeyedPermit<Owner>>,
    deadline: Option<Instant>,
) -> Response<Body> {
    let first = format!("{}{}", cursor::prefix(events.task_id()), events.next_seq());
    let (engine, id) = (exchange.shared.engine.clone(), exchange.id);
    let follow = move |out| async move {
        let followed = pin!(follow(events, &engine, service, id, out));
        let ended = until(deadline, followed).await;
        Some(match ended.unwrap_or(Err(TOO_LATE)) {
            Ok(()) => success(),
            Err(failure) => trailers(&failure),
        })
    };
    let mut response = respond(Body::events(Events::new(follow, permit)));
    let first = HeaderValue::try_from(first).expect("ids of events are printable ASCII");
    response.headers_mut().insert(FIRST_EVENT, first);
    response
}

/// Writes events until there are no more.
async fn follow(
    mut events: Subscription,
    engine: &Engine,
    service: Service,
    id: Uuid,
    out: Out,
) -> Result<(), Failure> {
    let mut whole = false;
    loop {
        let written = match events.next().await {
            // What ends without its last event is to be taken up again.
            Ok(None) if !whole && engine.is_draining() => return Err(STOPPING),
            Ok(None) => return Ok(()),
            // The log holds the JSON of 1.0.
            Ok(Some(item)) => Dialect::V1.decode_event(&item.body).map(|event| {
                frame(&mut out.lock(), &service.encode_event(event, item.closing));
                whole = item.closing;
                item.reservation
            }),
            Err(error) => Err(error),
        };
        match written {
            Ok(reservation) => out.ready(reservation).await,
            Err(error) => {
                tracing::warn!(task = %events.task_id(), %error, "a stream broke off");
                return Err(error.with("requestId", id).into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(matches!(cut, Err(Failure::Error(_))), "{length}");
        }
        let twice = [body.clone(), body.clone()].concat();
        assert!(matches!(unframe(twice.into()), Err(Failure::Error(_))));
        body[0] = 1;
        assert!(matches!(unframe(body.clone().into()), Err(Failure::Plain(UNIMPLEMENTED, _))));
        body[0] = 2;
        assert!(matches!(unframe(body.into()), Err(Failure::Error(_))));
    }
}
