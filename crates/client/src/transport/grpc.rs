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
/// Herald's name for the first event of a stream; each further one counts one up.
const FIRST_EVENT: &str = "first-event-id";
/// A flag and a length.
const PREFIX: usize = 5;

type GrpcRequest = Pin<Box<dyn Future<Output = Result<Response<HttpBody>, Error>> + Send>>;

/// An interface that speaks gRPC.
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
    /// The id of the next event, if the server numbers them.
    next: Option<(String, u64)>,
}

/// The head of the response. Many servers send it with the first event only.
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
            .map_err(|_| Error::setup("a message of gRPC is smaller than 4 GiB"))?;
        let mut body = BytesMut::with_capacity(PREFIX + message.len());
        body.put_u8(0);
        body.put_u32(length);
        body.put_slice(&message);

        let mut headers = self.endpoint.headers(call)?;
        headers.extend(self.endpoint.proof());
        // There is no query here; metadata is where such a key belongs.
        for (name, secret) in self.endpoint.secrets() {
            let unusable = |_| Error::setup(format!("gRPC cannot carry an API key named {name:?}"));
            let key = HeaderName::try_from(name.as_str()).map_err(unusable)?;
            let value = HeaderValue::try_from(secret.expose());
            let mut value =
                value.map_err(|_| Error::setup("no header can carry the API key as it is"))?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(CONTENT_TYPE));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        if !operation.is_streaming() {
            // At most eight digits are allowed, which is more than a day.
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
        Ok(Box::pin(async move { http.send(request).await.map_err(unheard) }))
    }
}

/// The response of a server that supports HTTP/1.1 only is not HTTP/2, so it looks like a broken connection.
fn unheard(error: Error) -> Error {
    if error.is_broken() {
        let text = "nothing in gRPC came back before the connection broke off; does this \
                        address speak HTTP/2?";
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
            // The connection is there by then. A server that has received the call may send its head with
            // the first event.
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
    /// The messages of a response that has begun well.
    fn new(
        operation: Operation,
        response: Response<HttpBody>,
        limit: usize,
    ) -> Result<Self, Error> {
        refuse_redirect(&response)?;
        let (parts, body) = response.into_parts();
        if parts.status != StatusCode::OK {
            return Err(Error::bad_status(parts.status.as_u16(), "instead of an answer of gRPC"));
        }
        let content = parts.headers.get(header::CONTENT_TYPE);
        if !content.is_some_and(|content| content.as_bytes().starts_with(CONTENT_TYPE.as_bytes())) {
            return Err(Error::invalid("the server does not speak gRPC at this address"));
        }
        // A call that fails at once has its outcome in the head.
        if parts.headers.contains_key("grpc-status") {
            outcome(operation, &parts.headers)?;
        }
        Ok(Self { operation, body, buffer: BytesMut::new(), limit })
    }

    /// The next message; `None` after the last one of a call that went well.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(message) = self.cut()? {
                return Ok(Some(message));
            }
            let broken = |fault| Error::broken("the answer broke off", fault);
            let Some(frame) = self.body.frame().await.transpose().map_err(broken)? else {
                return Err(broken("there is no status at its end".into()));
            };
            match frame.into_data() {
                Ok(data) => self.buffer.extend_from_slice(&data),
                Err(frame) => {
                    let Ok(trailers) = frame.into_trailers() else { continue };
                    outcome(self.operation, &trailers)?;
                    return if self.buffer.is_empty() {
                        Ok(None)
                    } else {
                        Err(Error::invalid("the last message is not whole"))
                    };
                }
            }
        }
    }

    /// The first message in the buffer, if it is whole.
    fn cut(&mut self) -> Result<Option<Bytes>, Error> {
        let Some((mut prefix, _)) = self.buffer.split_at_checked(PREFIX) else { return Ok(None) };
        if prefix.get_u8() != 0 {
            return Err(Error::invalid("the answer is compressed, which nobody asked for"));
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

/// The status of the call in its trailers.
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
        // Given up by somebody on the way, or out of time there: that is no word of the agent.
        1 | 4 => Error::broken("the call was given up", refusal),
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
        let message =
            message.map_err(|_| Error::timeout("the stream showed no sign of life", idle))??;
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
        f.debug_struct("Stream").field("open", &open).finish_non_exhaustive()
    }
}
