//! HTTP client of the checker: unchanged status, headers, bodies, events and trailers, within limits.

use std::{collections::BTreeMap, error::Error, fmt, time::Duration};

use bytes::{Buf, BytesMut};
use herald_protocol::sse;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, header};
use http_body_util::BodyExt;
use reqwest::{Client, Url, redirect::Policy};
use tokio::time::{Instant, timeout_at};

/// The most bytes that are read of a response.
const MAX_BYTES: usize = 16 * 1024 * 1024;
/// The most events that are read of a stream.
const MAX_EVENTS: usize = 10_000;
/// The most bytes of an event or a gRPC message.
const MAX_EVENT: usize = 4 * 1024 * 1024;

/// Connections to the server under test.
#[derive(Debug, Clone)]
pub(super) struct RawHttp {
    http: Client,
    /// HTTP/2 with prior knowledge, which gRPC without TLS needs.
    http2: Client,
    timeout: Duration,
    token: Option<HeaderValue>,
    /// The origin that the user named. The token is sent to no other, whatever the card says.
    origin: String,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct RawRequest {
    pub(super) method: Method,
    pub(super) url: Url,
    /// A header with an empty value is not sent, and no default takes its place.
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: Vec<u8>,
    pub(super) http2: bool,
}

/// The end of the reading of a response.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReadLimit {
    /// Close the connection after this many events.
    pub(super) stop_after: Option<usize>,
    /// The timeout, if it is not the usual one.
    pub(super) timeout: Option<Duration>,
}

/// A response.
#[derive(Debug, Clone)]
pub(super) struct RawResponse {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) trailers: HeaderMap,
    pub(super) body: RawBody,
}

/// A request without a complete response.
#[derive(Debug)]
pub struct ExchangeError {
    message: String,
    source: Option<reqwest::Error>,
}

/// The body of a response.
#[derive(Debug, Clone)]
pub(super) enum RawBody {
    Whole(Vec<u8>),
    /// The data of server-sent events, or the messages of gRPC.
    Pieces {
        pieces: Vec<Vec<u8>>,
        /// True if the server ended the stream. Otherwise the read limit was reached.
        ended: bool,
    },
}

/// Parser of a body into events or messages, by its content type.
enum BodyParser {
    Whole(Vec<u8>),
    Events(sse::Parser, Vec<sse::SseEvent>),
    Messages(BytesMut, Vec<Vec<u8>>),
}

impl RawHttp {
    pub(super) fn new(
        origin: String,
        timeout: Duration,
        bearer: Option<&str>,
    ) -> Result<Self, String> {
        let build = |http2: bool| {
            let builder = Client::builder()
                .redirect(Policy::none())
                .no_proxy()
                .referer(false)
                .connect_timeout(timeout)
                .user_agent(concat!("herald-conformance/", env!("CARGO_PKG_VERSION")));
            let builder = if http2 { builder.http2_prior_knowledge() } else { builder };
            builder.build().map_err(|fault| format!("the HTTP client cannot be created: {fault}"))
        };
        let token = bearer.map(|token| {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value = value.map_err(|_| {
                "the token contains characters that a header cannot have".to_owned()
            })?;
            value.set_sensitive(true);
            Ok::<_, String>(value)
        });
        Ok(Self {
            http: build(false)?,
            http2: build(true)?,
            timeout,
            token: token.transpose()?,
            origin,
        })
    }

    /// Sends a request and reads its response up to the limit.
    pub(super) async fn exchange(
        &self,
        sent: RawRequest,
        read_limit: ReadLimit,
    ) -> Result<RawResponse, ExchangeError> {
        let timeout = read_limit.timeout.unwrap_or(self.timeout);
        let deadline = Instant::now() + timeout;
        let client = if sent.http2 { &self.http2 } else { &self.http };
        let request = self.request(sent)?;
        let response = timeout_at(deadline, client.execute(request)).await;
        let response =
            response.map_err(|_| format!("no response within {timeout:?}"))?.map_err(|error| {
                let error = error.without_url();
                let message = format!("the request failed: {}", cause(&error));
                ExchangeError { message, source: Some(error) }
            })?;
        let (parts, mut body) = Response::<reqwest::Body>::from(response).into_parts();
        let mut parser = BodyParser::for_content(&parts.headers);
        let (mut trailers, mut read, mut ended) = (HeaderMap::new(), 0, false);
        while !parser.has_enough(read_limit.stop_after) {
            let frame = match timeout_at(deadline, body.frame()).await {
                Ok(Some(frame)) => frame,
                Ok(None) => {
                    ended = true;
                    break;
                }
                Err(_) if parser.is_whole() => {
                    return Err(format!("the response did not end within {timeout:?}").into());
                }
                Err(_) => break,
            };
            let frame =
                frame.map_err(|fault| format!("the response ended early: {}", cause(&fault)))?;
            match frame.into_data() {
                Ok(data) => {
                    read += data.len();
                    if read > MAX_BYTES {
                        return Err(format!("the response is larger than {MAX_BYTES} bytes").into());
                    }
                    parser.push(&data)?;
                }
                Err(frame) => trailers.extend(frame.into_trailers().unwrap_or_default()),
            }
        }
        let (status, headers) = (parts.status.as_u16(), parts.headers);
        Ok(RawResponse {
            status,
            headers,
            trailers,
            body: parser.finish(ended, read_limit.stop_after),
        })
    }

    fn request(&self, sent: RawRequest) -> Result<reqwest::Request, String> {
        let names_own = sent.headers.keys().any(|name| name.eq_ignore_ascii_case("authorization"));
        let trusted = sent.url.origin().ascii_serialization() == self.origin;
        let mut request = reqwest::Request::new(sent.method, sent.url);
        for (name, value) in sent.headers.iter().filter(|(_, value)| !value.is_empty()) {
            let header = (HeaderName::try_from(name), HeaderValue::try_from(value));
            let (Ok(name), Ok(value)) = header else {
                return Err(format!("{name:?} cannot be sent as a header"));
            };
            request.headers_mut().insert(name, value);
        }
        if let Some(token) = self.token.clone().filter(|_| trusted && !names_own) {
            request.headers_mut().insert(header::AUTHORIZATION, token);
        }
        *request.body_mut() = (!sent.body.is_empty()).then(|| sent.body.into());
        Ok(request)
    }
}

impl From<String> for ExchangeError {
    fn from(message: String) -> Self {
        Self { message, source: None }
    }
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ExchangeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}

/// The innermost cause of an error. The errors around it only say that a request failed.
fn cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

impl BodyParser {
    fn for_content(headers: &HeaderMap) -> Self {
        let content = text_of(headers, "content-type").unwrap_or_default();
        let kind = content.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "text/event-stream" => Self::Events(sse::Parser::new(MAX_EVENT), Vec::new()),
            kind if kind.starts_with("application/grpc") => {
                Self::Messages(BytesMut::new(), Vec::new())
            }
            _ => Self::Whole(Vec::new()),
        }
    }

    fn is_whole(&self) -> bool {
        matches!(self, Self::Whole(_))
    }

    fn has_enough(&self, stop_after: Option<usize>) -> bool {
        let enough = stop_after.unwrap_or(MAX_EVENTS);
        match self {
            Self::Whole(_) => false,
            Self::Events(_, events) => events.len() >= enough,
            Self::Messages(_, messages) => messages.len() >= enough,
        }
    }

    fn push(&mut self, data: &[u8]) -> Result<(), String> {
        let too_long = || format!("an event is longer than {MAX_EVENT} bytes");
        match self {
            Self::Whole(bytes) => bytes.extend_from_slice(data),
            Self::Events(parser, events) => parser.push(data, events).map_err(|_| too_long())?,
            Self::Messages(buffer, messages) => {
                buffer.extend_from_slice(data);
                // A gRPC message begins with a flag for compression and its length.
                while let Some(prefix) = buffer.get(..5) {
                    let compressed = prefix[0] != 0;
                    let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
                    let length = length as usize;
                    if compressed {
                        return Err(
                            "a message is compressed, although the request does not allow it"
                                .to_owned(),
                        );
                    }
                    if length > MAX_EVENT {
                        return Err(too_long());
                    }
                    if buffer.len() < 5 + length {
                        break;
                    }
                    buffer.advance(5);
                    messages.push(buffer.split_to(length).to_vec());
                }
            }
        }
        Ok(())
    }

    fn finish(self, ended: bool, stop_after: Option<usize>) -> RawBody {
        let mut pieces = match self {
            Self::Whole(bytes) => return RawBody::Whole(bytes),
            // An event without data is a keep-alive.
            Self::Events(_, events) => {
                let data = events.into_iter().map(|event| event.data.into_bytes());
                data.filter(|data| !data.trim_ascii().is_empty()).collect()
            }
            Self::Messages(_, messages) => messages,
        };
        pieces.truncate(stop_after.unwrap_or(MAX_EVENTS));
        RawBody::Pieces { pieces, ended }
    }
}

/// A header that is text.
pub(super) fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
