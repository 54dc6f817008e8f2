//! Server-sent events: streams as response bodies that the connection pulls from the log.

use std::time::Duration;

use herald_protocol::{
    Dialect, Error,
    jsonrpc::{self, RequestId},
    sse,
};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};

use crate::{
    bind::{
        frames::{FrameStream, FrameWriter, StreamFrame},
        stream::{EventBody, FrameBuffer},
    },
    body::{Body, respond},
    caller_limits::StreamPermit,
};

const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
static ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// The JSON document that each frame stands in.
#[derive(Debug)]
pub(crate) enum FrameEnvelope {
    /// The event itself, on REST.
    Bare,
    /// The result of this JSON-RPC call.
    Result(RequestId),
    /// The parameters of a JSON-RPC notification of this method.
    Notification(&'static str),
}

/// Writes frames as server-sent events.
struct SseWriter<'a> {
    buffer: &'a FrameBuffer,
    /// The envelope before and after each body.
    before: Vec<u8>,
    after: &'static [u8],
    /// False for notifications, which have no `event:`.
    named: bool,
}

/// The response that carries a stream. A stream that resumes begins with the id in `start`, so that a
/// reader who gets no event before the connection breaks can resume too.
pub(crate) fn response(
    mut frames: FrameStream,
    dialect: Dialect,
    envelope: FrameEnvelope,
    start: Option<String>,
    keep_alive: Duration,
    permit: Option<StreamPermit>,
) -> Response<Body> {
    let read = |buffer: FrameBuffer| async move {
        if let Some(id) = start {
            sse::mark(&mut buffer.lock().bytes, &id);
        }
        if let Err(error) = frames.copy(&mut envelope.writer(&buffer)).await {
            // Without an id, so that a client resumes after the last event.
            let body = envelope.error(dialect, &error);
            sse::frame(&mut buffer.lock().bytes, None, Some("error"), &[&body]);
        }
        None
    };
    let body = EventBody::new(read, permit).with_keep_alive(sse::KEEP_ALIVE, keep_alive);
    let mut response = Response::new(Body::events(body));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENT_STREAM);
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    // For nginx, which buffers responses otherwise.
    headers.insert(&ACCEL_BUFFERING, const { HeaderValue::from_static("no") });
    response
}

/// A stream whose only event is an error.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> Response<Body> {
    let mut out = Vec::new();
    sse::frame(&mut out, None, None, &[body]);
    let mut response = respond(status, EVENT_STREAM, out);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_CACHE);
    response
}

impl FrameEnvelope {
    fn writer<'a>(&self, buffer: &'a FrameBuffer) -> SseWriter<'a> {
        let mut before = Vec::new();
        let after: &[u8] = match self {
            Self::Bare => b"",
            Self::Result(call) => {
                jsonrpc::begin_result(&mut before, call);
                b"}"
            }
            Self::Notification(method) => {
                jsonrpc::begin_notification(&mut before, method);
                b"}"
            }
        };
        let named = !matches!(self, Self::Notification(_));
        SseWriter { buffer, before, after, named }
    }

    fn error(&self, dialect: Dialect, error: &Error) -> Vec<u8> {
        match self {
            Self::Bare => dialect.encode_status(error),
            Self::Result(call) => dialect.encode_error(call, error),
            Self::Notification(_) => dialect.encode_error(&RequestId::null(), error),
        }
    }
}

impl FrameWriter for SseWriter<'_> {
    async fn write(&mut self, frame: StreamFrame<'_>) {
        let document = [&self.before, frame.body, self.after];
        let name = frame.name.filter(|_| self.named);
        sse::frame(&mut self.buffer.lock().bytes, frame.id, name, &document);
        // The frames of one event go out together, under its reservation.
        if frame.id.is_some() {
            self.buffer.ready(frame.reservation).await;
        }
    }
}
