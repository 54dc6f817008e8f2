//! WebSocket binding: a JSON-RPC session whose messages are text frames.

use std::{
    io,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{
    SinkExt, StreamExt,
    stream::{SplitSink, SplitStream},
};
use herald_engine::{Validity, budget::Payer};
use herald_protocol::{AgentName, Dialect, locks::lock};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Version, header, request::Parts};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf},
    time::{Instant, MissedTickBehavior, interval_at, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{
        self, Message,
        handshake::derive_accept_key,
        protocol::{
            CloseFrame, Role, WebSocketConfig,
            frame::{
                Frame,
                coding::{CloseCode, Data, OpCode},
            },
        },
    },
};
use tokio_util::sync::CancellationToken;

use crate::{
    activity::ConnectionState,
    bind::{
        Exchange, rest,
        session::{OutputMessage, Session, SessionOutput},
    },
    binding::Binding,
    body::Body,
    config::Timeouts,
    guard::Ingress,
    refusal::Refusal,
    shared::Shared,
};

/// The subprotocol, for clients that ask for one.
const PROTOCOL: &str = "a2a.jsonrpc";
/// Bytes read at once, and bytes written at once.
const READ: usize = 4 << 10;
const WRITE: usize = 8 << 10;
/// Larger messages are sent in pieces, because a connection keeps a buffer of its largest piece.
const PIECE: usize = 64 << 10;
/// Bytes of one message that are accepted without a reservation.
const SMALL: usize = 64 << 10;
/// Pings that a peer may leave unanswered.
const PINGS: u32 = 2;
/// The time for the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection that becomes a WebSocket after the response to its handshake.
#[derive(Debug, Clone)]
pub(crate) struct Upgrade {
    upgraded: OnUpgrade,
    parts: Box<Parts>,
    agent: Option<AgentName>,
    ingress: Ingress,
    /// The payer of the memory of its calls.
    payer: Payer,
    /// The end of the credentials.
    validity: Validity,
}

/// The end of a WebSocket.
#[derive(Debug)]
enum SocketEnd {
    /// The peer closed the connection or is unreachable.
    Gone,
    /// All output is written.
    Written,
    /// The server closes it, for this reason.
    Close(CloseCode, &'static str),
}

type MeteredStream = Metered<TokioIo<hyper::upgrade::Upgraded>>;

/// Answers the handshake.
pub(crate) async fn answer(exchange: &Exchange<'_>) -> Response<Body> {
    let accepted = match accept(exchange.parts) {
        Ok(accepted) => accepted,
        Err(refusal) => {
            let mut response = refusal.into_response();
            if response.status() == StatusCode::UPGRADE_REQUIRED {
                let headers = response.headers_mut();
                headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
                headers.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
            return response;
        }
    };
    // Before the switch, so that bad credentials are refused as over HTTP.
    let (payer, validity) = match exchange.caller().await {
        Ok(caller) => (exchange.payer(&caller), caller.identity().validity.clone()),
        Err(error) => return rest::refuse(exchange, Dialect::V1, error),
    };
    let upgraded = exchange.parts.extensions.get::<OnUpgrade>().cloned();
    // The connections of a host application cannot be taken over.
    let Some(upgraded) = upgraded.filter(|_| exchange.ingress != Ingress::InProcess) else {
        let text = "WebSockets are available on the server's own port only";
        return Refusal::new(StatusCode::NOT_IMPLEMENTED, text).into_response();
    };
    let mut parts = exchange.parts.clone();
    parts.extensions.remove::<OnUpgrade>();
    let (parts, agent, ingress) = (Box::new(parts), exchange.agent.clone(), exchange.ingress);
    let upgrade = Upgrade { upgraded, parts, agent, ingress, payer, validity };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(header::SEC_WEBSOCKET_ACCEPT, accepted);
    if words(&exchange.parts.headers, &header::SEC_WEBSOCKET_PROTOCOL).any(|one| one == PROTOCOL) {
        let protocol = HeaderValue::from_static(PROTOCOL);
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response.extensions_mut().insert(upgrade);
    response
}

/// The value of `Sec-WebSocket-Accept`, if the handshake is valid.
fn accept(parts: &Parts) -> Result<HeaderValue, Refusal> {
    if parts.version != Version::HTTP_11 {
        let text = "WebSockets require HTTP/1.1";
        return Err(Refusal::new(StatusCode::HTTP_VERSION_NOT_SUPPORTED, text));
    }
    let headers = &parts.headers;
    let asks = |name, word: &str| words(headers, name).any(|one| one.eq_ignore_ascii_case(word));
    let current = headers.get(header::SEC_WEBSOCKET_VERSION).is_some_and(|one| one == "13");
    if !asks(&header::CONNECTION, "upgrade") || !asks(&header::UPGRADE, "websocket") || !current {
        let text = "this path is a WebSocket: send Upgrade: websocket, Connection: upgrade and \
                    Sec-WebSocket-Version: 13";
        return Err(Refusal::new(StatusCode::UPGRADE_REQUIRED, text));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    // The key is sixteen bytes in base64.
    let Some(key) = key.filter(|key| key.len() == 24 && key.ends_with(b"==")) else {
        let text = "Sec-WebSocket-Key is missing or malformed";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, text));
    };
    let accepted = HeaderValue::try_from(derive_accept_key(key));
    Ok(accepted.expect("base64 is valid in a header"))
}

/// The comma-separated words in all headers of this name.
fn words<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim)
}

impl Upgrade {
    /// Serves the socket until the peer closes it, it is idle for too long, or `finish` fires and all calls
    /// in progress have their responses.
    pub(crate) async fn serve(
        self,
        server: &Arc<Shared>,
        finish: &CancellationToken,
        state: &ConnectionState,
    ) {
        let Ok(upgraded) = self.upgraded.await else { return };
        let config = &server.config;
        let meter = Arc::new(UploadMeter::new(Arc::clone(server)));
        let stream = Metered { stream: TokioIo::new(upgraded), meter: Arc::clone(&meter) };
        let limit = Some(config.limits.body);
        let framing = WebSocketConfig::default()
            .read_buffer_size(READ)
            .write_buffer_size(WRITE)
            .max_message_size(limit)
            .max_frame_size(limit);
        let socket = WebSocketStream::from_raw_socket(stream, Role::Server, Some(framing)).await;
        let (mut sink, mut stream) = socket.split();
        let (binding, ingress, payer) = (Binding::WebSocket, self.ingress, self.payer);
        let (mut session, outgoing) =
            Session::new(Arc::clone(server), *self.parts, self.agent, binding, ingress, payer);
        let end = {
            let mut writing = pin!(write(&mut sink, outgoing, &meter, &config.timeouts));
            let end = tokio::select! {
                end = read(&mut stream, &mut session, &meter) => Some(end),
                end = writing.as_mut() => Some(end),
                // An idle connection ends too. Streams and calls end by themselves, with an error.
                _ = self.validity.ended() => {
                    Some(SocketEnd::Close(CloseCode::Policy, "the credentials have ended"))
                }
                () = finish.cancelled() => None,
            };
            match end {
                Some(end) => end,
                None => {
                    meter.pause();
                    let answered = async {
                        session.finish().await;
                        drop(session);
                    };
                    let ((), end) = tokio::join!(answered, writing);
                    match end {
                        SocketEnd::Written => {
                            SocketEnd::Close(CloseCode::Away, "the server is shutting down")
                        }
                        SocketEnd::Gone | SocketEnd::Close(..) => end,
                    }
                }
            }
        };
        tracing::debug!(?end, "WebSocket closed");
        if let SocketEnd::Close(code, reason) = end {
            if code == CloseCode::Size {
                state.leave_unread();
            }
            // The connection ends even if the peer does not answer.
            let _ = timeout(CLOSE_TIMEOUT, close(&mut sink, &mut stream, code, reason)).await;
        }
        if let Ok(mut socket) = stream.reunite(sink) {
            let _ = socket.get_mut().shutdown().await;
        }
    }
}

/// Passes the messages of the peer to the session.
async fn read(
    stream: &mut SplitStream<WebSocketStream<MeteredStream>>,
    session: &mut Session,
    meter: &UploadMeter,
) -> SocketEnd {
    while let Some(message) = stream.next().await {
        let text = match message {
            Ok(Message::Text(text)) => Bytes::from(text),
            // Some clients send text in binary messages.
            Ok(Message::Binary(bytes)) => bytes,
            Ok(Message::Ping(data) | Message::Pong(data)) => {
                meter.control(data.len());
                continue;
            }
            Ok(Message::Close(_) | Message::Frame(_)) => continue,
            Err(error) => return meter.fault(&error),
        };
        meter.message();
        session.receive(text).await;
        meter.resume();
    }
    SocketEnd::Gone
}

/// Writes the output of the session, and pings.
async fn write(
    sink: &mut SplitSink<WebSocketStream<MeteredStream>, Message>,
    mut outgoing: SessionOutput,
    meter: &UploadMeter,
    timeouts: &Timeouts,
) -> SocketEnd {
    let mut beat = interval_at(Instant::now() + timeouts.keep_alive, timeouts.keep_alive);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let written = tokio::select! {
            waiting = outgoing.next() => match waiting {
                Some(waiting) => write_all(sink, waiting, &mut outgoing).await,
                None => return SocketEnd::Written,
            },
            _ = beat.tick() => {
                if let Some(end) = meter.overdue(timeouts) {
                    return end;
                }
                if outgoing.idle_since().is_some_and(|since| since.elapsed() >= timeouts.idle) {
                    return SocketEnd::Close(CloseCode::Normal, "idle timeout: no call for too long");
                }
                sink.send(Message::Ping(Bytes::new())).await
            }
        };
        if written.is_err() {
            return SocketEnd::Gone;
        }
    }
}

/// Writes one message and all others that are ready, and flushes once.
async fn write_all(
    sink: &mut SplitSink<WebSocketStream<MeteredStream>, Message>,
    first: OutputMessage,
    outgoing: &mut SessionOutput,
) -> tungstenite::Result<()> {
    let mut next = Some(first);
    while let Some(waiting) = next {
        let mut rest = waiting.text.clone();
        let mut opcode = OpCode::Data(Data::Text);
        loop {
            let piece = rest.split_to(rest.len().min(PIECE));
            let last = rest.is_empty();
            sink.feed(Message::Frame(Frame::message(piece, opcode, last))).await?;
            if last {
                break;
            }
            opcode = OpCode::Data(Data::Continue);
        }
        next = outgoing.next_now();
    }
    sink.flush().await
}

/// Makes the closing handshake.
async fn close(
    sink: &mut SplitSink<WebSocketStream<MeteredStream>, Message>,
    stream: &mut SplitStream<WebSocketStream<MeteredStream>>,
    code: CloseCode,
    reason: &'static str,
) {
    let frame = CloseFrame { code, reason: reason.into() };
    if sink.send(Message::Close(Some(frame))).await.is_ok() {
        while let Some(Ok(_)) = stream.next().await {}
    }
}

/// A stream that counts the bytes it reads.
#[derive(Debug)]
struct Metered<S> {
    stream: S,
    meter: Arc<UploadMeter>,
}

/// Limits of a message that is being received: its memory, its time, and the liveness of the peer.
#[derive(Debug)]
struct UploadMeter {
    server: Arc<Shared>,
    arriving: Mutex<UploadState>,
}

#[derive(Debug)]
struct UploadState {
    /// Bytes of the message so far, and those of them that are reserved.
    bytes: usize,
    reserved: usize,
    /// The time of its first byte.
    since: Option<Instant>,
    /// True if there was no memory for it.
    refused: bool,
    /// Pings since the last byte from the peer.
    unanswered: u32,
    /// True while nothing is read, so that silence of the peer means nothing.
    paused: bool,
}

impl UploadMeter {
    fn new(server: Arc<Shared>) -> Self {
        let (bytes, reserved, since) = (0, 0, None);
        let (refused, unanswered, paused) = (false, 0, false);
        let arriving = UploadState { bytes, reserved, since, refused, unanswered, paused };
        Self { server, arriving: Mutex::new(arriving) }
    }

    fn lock(&self) -> MutexGuard<'_, UploadState> {
        lock(&self.arriving)
    }

    fn arrived(&self, bytes: usize) -> io::Result<()> {
        let mut arriving = self.lock();
        arriving.unanswered = 0;
        arriving.bytes += bytes;
        arriving.since.get_or_insert(Instant::now());
        let unreserved = arriving.bytes - arriving.reserved;
        if arriving.bytes <= SMALL {
            return Ok(());
        }
        // A message in pieces that are smaller than their headers is an attack on the memory of
        // others.
        let most = self.server.config.limits.body.saturating_mul(2).saturating_add(SMALL);
        let wanted = u32::try_from(unreserved).ok().filter(|_| arriving.bytes <= most);
        match wanted.and_then(|wanted| self.server.bodies.try_acquire_many(wanted).ok()) {
            Some(permit) => {
                permit.forget();
                arriving.reserved += unreserved;
                Ok(())
            }
            None => {
                arriving.refused = true;
                Err(io::Error::other("the memory limit for messages is reached"))
            }
        }
    }

    /// Ends a message: it was received whole. Nothing is read until the session has accepted it.
    fn message(&self) {
        let mut arriving = self.lock();
        self.server.bodies.add_permits(std::mem::take(&mut arriving.reserved));
        (arriving.bytes, arriving.since, arriving.paused) = (0, None, true);
    }

    /// Subtracts a ping or pong, which may stand between two pieces of a message.
    fn control(&self, payload: usize) {
        let mut arriving = self.lock();
        // Its header has two bytes and its mask four.
        arriving.bytes = arriving.bytes.saturating_sub(payload + 6).max(arriving.reserved);
        if arriving.bytes == 0 {
            arriving.since = None;
        }
    }

    fn pause(&self) {
        self.lock().paused = true;
    }

    fn resume(&self) {
        let mut arriving = self.lock();
        (arriving.paused, arriving.unanswered) = (false, 0);
    }

    /// The end for a peer that was silent or slow for too long. Call it before each ping.
    fn overdue(&self, timeouts: &Timeouts) -> Option<SocketEnd> {
        let mut arriving = self.lock();
        if arriving.paused {
            return None;
        }
        if arriving.unanswered >= PINGS {
            return Some(SocketEnd::Gone);
        }
        arriving.unanswered += 1;
        let slow = arriving.since.is_some_and(|since| since.elapsed() > timeouts.body);
        slow.then_some(SocketEnd::Close(CloseCode::Policy, "the message did not arrive in time"))
    }

    /// The end after a failed read.
    fn fault(&self, error: &tungstenite::Error) -> SocketEnd {
        use tungstenite::Error;
        if self.lock().refused {
            return SocketEnd::Close(
                CloseCode::Again,
                "the memory limit for messages is reached; try again later",
            );
        }
        match error {
            Error::Capacity(_) => SocketEnd::Close(CloseCode::Size, "the message is too large"),
            Error::Utf8(_) => SocketEnd::Close(CloseCode::Invalid, "text must be UTF-8"),
            Error::Protocol(tungstenite::error::ProtocolError::ResetWithoutClosingHandshake) => {
                SocketEnd::Gone
            }
            Error::Protocol(_) => {
                SocketEnd::Close(CloseCode::Protocol, "malformed WebSocket frame")
            }
            Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Io(_)
            | Error::Tls(_)
            | Error::WriteBufferFull(_)
            | Error::AttackAttempt
            | Error::Url(_)
            | Error::Http(_)
            | Error::HttpFormat(_) => SocketEnd::Gone,
        }
    }
}

impl Drop for UploadMeter {
    fn drop(&mut self) {
        let reserved = self.lock().reserved;
        self.server.bodies.add_permits(reserved);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let read = buf.filled().len() - before;
        Poll::Ready(if read == 0 { Ok(()) } else { self.meter.arrived(read) })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
