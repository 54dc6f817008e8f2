//! gRPC transport: length-prefixed messages, the outcome in the trailers.

use std::{fmt, pin::Pin, time::Duration};

use async_trait::async_trait;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use herald_protocol::{Dialect, Operation, failure, grpc::Service};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version, header};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::{
    Answered, Frame, Frames, Transport,
    http::{HttpBody, HttpEndpoint, refuse_redirect, request},
    jsonrpc::absent,
};
use crate::{call::Outgoing, error::Error};

const CONTENT_TYPE: &str = "application/grpc";
/// Header of Herald with the id of a stream's first event; the ids count up from there.
const FIRST_EVENT: &str = "first-event-id";
/// Bytes before each message: a flag and a length.
const PREFIX: usize = 5;

type GrpcRequest = Pin<Box<dyn Future<Output = Result<Response<HttpBody>, Error>> + Send>>;

/// gRPC interface of an agent.
#[derive(Debug)]
pub(crate) struct Grpc {
    endpoint: HttpEndpoint,
    service: Service,
}

/// The messages of one response.
struct Messages {
    operation: Operation,
    body: HttpBody,
    buffer: BytesMut,
    /// Largest message in bytes.
    limit: usize,
}

/// The events of one response.
struct GrpcStream {
    operation: Operation,
    service: Service,
    idle: Duration,
    limit: usize,
    head: Head,
    /// Task and number of the next event's id, if the server numbers events.
    next: Option<(String, u64)>,
}

/// State of the response. Many servers send the head only with the first event.
enum Head {
    Pending(GrpcRequest),
    Open(Messages),
}

impl Grpc {
    pub(crate) fn new(endpoint: HttpEndpoint) -> Self {
        let service = match endpoint.dialect {
            Dialect::V1 => Service::V1,
            Dialect::V03 | Dialect::V03Rest | Dialect::V01 => Service::V03,
        };
        Self { endpoint, service }
    }

    fn send(&self, call: &Outgoing, method: &str) -> Result<GrpcRequest, Error> {
        let HttpEndpoint { http, .. } = &self.endpoint;
        let operation = call.request.operation();
        let message = self.service.encode_request(self.endpoint.request(call));
        let length = u32::try_from(message.len())
            .map_err(|_| Error::setup("the message is larger than 4 GiB, the limit of gRPC"))?;
        let mut body = BytesMut::with_capacity(PREFIX + message.len());
        body.put_u8(0);
        body.put_u32(length);
        body.put_slice(&message);

        let mut headers = self.endpoint.headers(call)?;
        headers.extend(self.endpoint.proof());
        // gRPC has no query, so such a key goes into the metadata.
        for (name, secret) in self.endpoint.secrets() {
            let unusable = |_| {
                Error::setup(format!("the API key's name {name:?} cannot be used in gRPC metadata"))
            };
            let key = HeaderName::try_from(name.as_str()).map_err(unusable)?;
            let value = HeaderValue::try_from(secret.expose());
            let mut value = value.map_err(|_| {
                Error::setup("the API key contains characters that a header cannot have")
            })?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        if !operation.is_streaming() {
            // gRPC allows eight digits, which is more than a day.
            let millis = http.timeouts.of(operation).as_millis().clamp(1, 99_999_999);
            let value = HeaderValue::try_from(format!("{millis}m"));
            headers
                .extend(value.ok().map(|value| (HeaderName::from_static("grpc-timeout"), value)));
        }
        let mut url = self.endpoint.url.clone();
        url.set_path(&format!("/{}/{method}", self.service.name()));
        let mut request = request(Method::POST, &url, headers, body.freeze())?;
        *request.version_mut() = Version::HTTP_2;
        let http = http.clone();
        Ok(Box::pin(async move { http.send(request).await.map_err(hint_http2) }))
    }
}

/// Adds a hint to a lost connection: the answer of a server without HTTP/2 cannot be parsed and looks like one.
fn hint_http2(error: Error) -> Error {
    if error.is_broken() {
        let text = "the connection was lost before a gRPC answer; does this address support \
                    HTTP/2?";
        Error::broken(text, error)
    } else {
        error
    }
}

#[async_trait]
impl Transport for Grpc {
    async fn call(&self, call: &Outgoing) -> Result<Answered, Error> {
        let HttpEndpoint { http, dialect, .. } = &self.endpoint;
        let operation = call.request.operation();
        let method = self.service.method(operation).ok_or_else(|| absent(dialect.version()))?;
        let mut sent = self.send(call, method)?;
        if operation.is_streaming() {
            let (idle, limit) = (http.timeouts.idle, http.limits.event);
            let mut stream = GrpcStream {
                operation,
                service: self.service,
                idle,
                limit,
                head: Head::Pending(sent),
                next: None,
            };
            // A connection is open by then. A server without a first answer has received the call and has
            // no event yet.
            if let Ok(opened) = timeout(http.timeouts.connect, stream.open()).await {
                opened?;
            }
            return Ok(Answered::Frames(Box::new(stream)));
        }
        let response = (&mut sent).await?;
        let mut messages = Messages::new(operation, response, http.limits.response)?;
        let message = messages.next().await?;
        let message = message.ok_or_else(|| Error::invalid("the answer has no message"))?;
        if messages.next().await?.is_some() {
            return Err(Error::invalid("expected one answer and got several"));
        }
        let reply = self.service.decode_reply(operation, &message);
        reply.map(Box::new).map(Answered::Reply).map_err(|error| Error::unreadable(&error))
    }
}

impl Messages {
    /// The messages of a successful response.
    fn new(
        operation: Operation,
        response: Response<HttpBody>,
        limit: usize,
    ) -> Result<Self, Error> {
        refuse_redirect(&response)?;
        let (parts, body) = response.into_parts();
        if parts.status != StatusCode::OK {
            return Err(Error::bad_status(parts.status.as_u16(), "instead of a gRPC answer"));
        }
        let content = parts.headers.get(header::CONTENT_TYPE);
        if !content.is_some_and(|content| content.as_bytes().starts_with(CONTENT_TYPE.as_bytes())) {
            return Err(Error::invalid("the server has no gRPC at this address"));
        }
        // A call that fails at once has its status in the head.
        if parts.headers.contains_key("grpc-status") {
            outcome(operation, &parts.headers)?;
        }
        Ok(Self { operation, body, buffer: BytesMut::new(), limit })
    }

    /// The next message; `None` after the last one of a successful call.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let broken =
                |fault| Error::broken("the connection was lost in the middle of the answer", fault);
            let Some(frame) = self.body.frame().await.transpose().map_err(broken)? else {
                return Err(broken("it has no trailers".into()));
            };
            match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => {
                    let Ok(trailers) = frame.into_trailers() else { continue };
                    outcome(self.operation, &trailers)?;
                    return if self.buffer.is_empty() {
                        Ok(None)
                    } else {
                        Err(Error::invalid("the last message is incomplete"))
                    };
                }
            }
        }
    }

    /// Takes the first message from the buffer, if it is complete.
    fn take(&mut self) -> Result<Option<Bytes>, Error> {
        let Some((mut prefix, _)) = self.buffer.split_at_checked(PREFIX) else { return Ok(None) };
        if prefix.get_u8() != 0 {
            return Err(Error::invalid("the answer is compressed, which was not requested"));
        }
        let length = prefix.get_u32() as usize;
        if length > self.limit {
            let what = if self.operation.is_streaming() { "an event" } else { "the answer" };
            return Err(Error::too_large(what, self.limit));
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }
}

/// The status of the call in the trailers.
fn outcome(operation: Operation, trailers: &HeaderMap) -> Result<(), Error> {
    let text = |name: &str| trailers.get(name).and_then(|value| value.to_str().ok());
    let code = text("grpc-status").and_then(|code| code.trim().parse().ok());
    let code = code.ok_or_else(|| Error::invalid("the answer has no status"))?;
    if code == 0 {
        return Ok(());
    }
    let refusal =
        failure::grpc(operation, code, text("grpc-message"), text("grpc-status-details-bin"));
    Err(match code {
        // Cancelled, or past its deadline, on the way: not an answer of the agent.
        1 | 4 => Error::broken("the call was cancelled on the way", refusal),
        _ => Error::refused(refusal),
    })
}

impl GrpcStream {
    /// Waits for the head of the response.
    async fn open(&mut self) -> Result<&mut Messages, Error> {
        if let Head::Pending(sent) = &mut self.head {
            let response = sent.await?;
            let first = response.headers().get(FIRST_EVENT).and_then(|id| id.to_str().ok());
            self.next = first.and_then(|id| {
                let (task, number) = id.rsplit_once(':')?;
                Some((task.to_owned(), number.parse().ok()?))
            });
            self.head = Head::Open(Messages::new(self.operation, response, self.limit)?);
        }
        match &mut self.head {
            Head::Open(messages) => Ok(messages),
            Head::Pending(_) => Err(Error::invalid("the answer has no head")),
        }
    }
}

#[async_trait]
impl Frames for GrpcStream {
    async fn next(&mut self) -> Result<Option<Frame>, Error> {
        let (service, idle) = (self.service, self.idle);
        let message = timeout(idle, async { self.open().await?.next().await }).await;
        let message = message.map_err(|_| Error::timeout("the stream sent nothing", idle))??;
        let Some(message) = message else { return Ok(None) };
        let event = service.decode_event(&message).map_err(|error| Error::unreadable(&error))?;
        let cursor = self.next.as_mut().map(|(task, number)| {
            let cursor = format!("{task}:{number}");
            *number += 1;
            cursor
        });
        Ok(Some(Frame { cursor, event }))
    }
}

impl fmt::Debug for GrpcStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = matches!(self.head, Head::Open(_));
        f.debug_struct("GrpcStream").field("open", &open).finish_non_exhaustive()
    }
}
