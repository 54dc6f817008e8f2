//! Connections: protocol detection (HTTP/1.1 or HTTP/2), idle timeouts and graceful shutdown.

use std::{
    convert::Infallible,
    future::Future,
    io,
    net::IpAddr,
    pin::{Pin, pin},
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use herald_protocol::locks::lock;
use http::{Request, Response, Version};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{
    body::Incoming,
    rt::Executor,
    server::conn::{http1, http2},
    service::Service,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::Interest,
    net::TcpStream,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    activity::{Busy, ConnectionState, Wait},
    auth::PeerCertificate,
    bind::ws::Upgrade,
    body::Body,
    config::{Limits, Timeouts},
    guard::Ingress,
    h2_stall::{self, StallTimer},
    limits::{self, AdmissionLimit},
    server::Server,
    socket::{self, Socket},
    tls::ServerStream,
};

/// The first bytes of HTTP/2, which no request of HTTP/1 has.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The longest pause between two checks for the rest of the preface.
const PREFACE_PAUSE: Duration = Duration::from_millis(200);
/// Bytes a peer may send on one HTTP/2 request, and on all of a connection, before it must wait.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Buffer of one HTTP/2 response whose peer does not read.
const SEND_BUFFER: usize = 16 << 10;
/// Bytes of headers, uncompressed, on HTTP/2.
const HEADER_LIST: u32 = 64 << 10;
/// Requests that a peer has reset before hyper has seen them, until the connection is closed. The
/// activity of the connection counts those that it has seen.
const MAX_RESETS: usize = 20;
/// Requests that were reset because of an error of the peer, until the connection is closed.
const MAX_ERRORS: usize = 100;
/// The time for the end of a connection without any request.
const FAREWELL: Duration = Duration::from_secs(1);
/// The time of a connection beyond a limit, from its beginning to its end.
const BEYOND_LIMIT: Duration = Duration::from_secs(2);

/// The connections of a listener.
#[derive(Debug)]
pub(crate) struct Connections {
    shared: Arc<ListenerState>,
    tasks: TaskTracker,
}

/// The state that all connections of a listener share.
#[derive(Debug)]
struct ListenerState {
    server: Server,
    /// The address of the listener.
    bound: IpAddr,
    http1: http1::Builder,
    http2: http2::Builder<TrackedExecutor>,
    /// Fires when connections should finish their requests and close.
    finish: CancellationToken,
    /// Fires when connections must close at once; never before `finish`.
    abort: CancellationToken,
}

/// Executor of HTTP/2 requests, which the shutdown waits for.
#[derive(Debug, Clone)]
struct TrackedExecutor {
    tasks: TaskTracker,
    abort: CancellationToken,
    /// The longest time in which a peer may read nothing of a response.
    stall_timeout: Duration,
}

impl<F> Executor<F> for TrackedExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        let (abort, stall_timeout) = (self.abort.clone(), self.stall_timeout);
        let request = Box::pin(h2_stall::run(future, stall_timeout));
        self.tasks.spawn(abort.run_until_cancelled_owned(request));
    }
}

impl Connections {
    pub(crate) fn new(server: Server, bound: IpAddr) -> Self {
        let (tasks, abort) = (TaskTracker::new(), CancellationToken::new());
        let config = &server.shared.config;
        let stall_timeout = config.timeouts.stall;
        let executor =
            TrackedExecutor { tasks: tasks.clone(), abort: abort.clone(), stall_timeout };
        let http1 = http1(&config.limits);
        let http2 = http2(&config.limits, &config.timeouts, executor);
        let finish = CancellationToken::new();
        let shared = ListenerState { server, bound, http1, http2, finish, abort };
        Self { shared: Arc::new(shared), tasks }
    }

    /// Serves one socket in the background. The permits are dropped when it closes. One that is beyond a
    /// limit has little time.
    pub(crate) fn open(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        beyond: Option<AdmissionLimit>,
        permits: impl Send + 'static,
    ) {
        let shared = Arc::clone(&self.shared);
        socket::prepare(&stream, shared.timeouts().stall);
        let is_proxy = shared.server.shared.proxies.trusts(peer);
        let ingress = Ingress::Socket { bound: shared.bound, client: peer, is_proxy, beyond };
        let accepted = Instant::now();
        self.tasks.spawn(async move {
            let _permits = (permits, shared.server.shared.metrics.connection());
            let served = shared.serve(stream, ingress, accepted);
            if beyond.is_some() {
                let _ = Box::pin(timeout(BEYOND_LIMIT, served)).await;
            } else {
                served.await;
            }
        });
    }

    /// Asks every connection to finish its requests and close.
    pub(crate) fn finish(&self) {
        self.shared.finish.cancel();
        self.tasks.close();
    }

    /// Waits until all connections are closed.
    pub(crate) async fn finished(&self) {
        self.tasks.wait().await;
    }

    /// The number of open connections and HTTP/2 requests in progress.
    pub(crate) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Closes every connection at once.
    pub(crate) fn abort(&self) {
        self.shared.abort.cancel();
    }
}

/// Closes all connections, because nothing else can stop them.
impl Drop for Connections {
    fn drop(&mut self) {
        self.shared.finish.cancel();
        self.abort();
    }
}

/// True if the peer begins with HTTP/2. The bytes are only peeked at: hyper keeps a second buffer for
/// bytes that were read before.
async fn is_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut start = [0; PREFACE.len()];
    let mut pause = Duration::from_millis(5);
    loop {
        let length = stream.peek(&mut start).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !PREFACE.starts_with(&start[..length]) {
            return Ok(false);
        }
        if length == PREFACE.len() {
            return Ok(true);
        }
        // A peek returns the bytes that are there, even after the peer has closed the connection.
        if stream.ready(Interest::READABLE).await?.is_read_closed() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // A peek cannot wait for more bytes than there are. Hardly any client sends the preface in pieces.
        sleep(pause).await;
        pause = (pause * 2).min(PREFACE_PAUSE);
    }
}

fn http1(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // The connection state has the timeout for headers: hyper's own timer would also run while a
    // connection idles.
    http.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.head);
    http
}

fn http2(
    limits: &Limits,
    timeouts: &Timeouts,
    executor: TrackedExecutor,
) -> http2::Builder<TrackedExecutor> {
    let mut http = http2::Builder::new(executor);
    http.timer(TokioTimer::new())
        .max_concurrent_streams(limits.requests_per_connection)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_LIST)
        .max_pending_accept_reset_streams(MAX_RESETS)
        .max_local_error_reset_streams(MAX_ERRORS)
        .keep_alive_interval(timeouts.ping)
        .keep_alive_timeout(timeouts.ping);
    http
}

impl ListenerState {
    fn timeouts(&self) -> &Timeouts {
        &self.server.shared.config.timeouts
    }

    /// Opens a connection. The flag is true for HTTP/2.
    async fn open_stream(&self, stream: TcpStream) -> io::Result<(ServerStream, bool)> {
        if let Some(tls) = &self.server.shared.tls {
            return Box::pin(tls.accept(stream)).await;
        }
        let http2 = is_http2(&stream).await?;
        Ok((ServerStream::Plain(stream), http2))
    }

    /// Serves one socket to its end.
    async fn serve(&self, stream: TcpStream, ingress: Ingress, accepted: Instant) {
        let opened = tokio::select! {
            opened = timeout(self.timeouts().head, self.open_stream(stream)) => opened,
            () = self.finish.cancelled() => return,
        };
        match opened {
            Ok(Ok((stream, false))) => self.serve_http1(stream, ingress, accepted).await,
            // Boxed: it is rare and large, and would enlarge every connection.
            Ok(Ok((stream, true))) => Box::pin(self.serve_http2(stream, ingress, accepted)).await,
            Ok(Err(error)) => tracing::debug!(%error, "a connection could not be opened"),
            Err(_) => {}
        }
    }

    async fn serve_http1(&self, stream: ServerStream, ingress: Ingress, accepted: Instant) {
        let state = ConnectionState::http1(accepted);
        let (socket, service) = self.ends(stream, ingress, &state);
        let pending = Arc::clone(&service.upgrade);
        let socket = TokioIo::new(socket);
        self.run(self.http1.serve_connection(socket, service).with_upgrades(), &state).await;
        let upgrade = lock(&pending).take();
        if let Some(upgrade) = upgrade {
            let serve = Box::pin(upgrade.serve(&self.server.shared, &self.finish, &state));
            self.abort.run_until_cancelled(serve).await;
        }
    }

    async fn serve_http2(&self, stream: ServerStream, ingress: Ingress, accepted: Instant) {
        let state = ConnectionState::http2(accepted);
        let (socket, service) = self.ends(stream, ingress, &state);
        let socket = TokioIo::new(socket.gathering());
        self.run(self.http2.serve_connection(socket, service), &state).await;
    }

    fn ends(
        &self,
        stream: ServerStream,
        ingress: Ingress,
        state: &ConnectionState,
    ) -> (Socket, Requests) {
        let certificate = stream.peer_certificate().cloned();
        let socket = Socket::new(stream, state.clone(), self.timeouts().stall);
        let (server, upgrade) = (self.server.clone(), PendingUpgrade::default());
        (socket, Requests { server, ingress, certificate, state: state.clone(), upgrade })
    }

    /// Runs a connection to its end.
    async fn run(&self, connection: impl Connection, state: &ConnectionState) {
        let mut connection = pin!(connection);
        let timeouts = self.timeouts();
        let mut finishing = false;
        // The next check is never later than the shortest deadline that can start meanwhile.
        let latest = Instant::now() + timeouts.head;
        let first = state.deadline(timeouts).map_or(latest, |(_, due)| due.min(latest));
        let mut check = pin!(sleep_until(first));
        loop {
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection failed");
                    }
                    return;
                }
                // Only after `finish`, which always comes first: each wait costs every wake-up of the connection.
                () = self.abort.cancelled(), if finishing => return,
                () = self.finish.cancelled(), if !finishing => {
                    finishing = true;
                    connection.as_mut().finish();
                }
                () = check.as_mut() => {
                    let now = Instant::now();
                    let next = now + timeouts.head;
                    match state.deadline(timeouts) {
                        Some((wait, due)) if due <= now => {
                            if finishing || wait == Wait::Head {
                                return;
                            }
                            finishing = true;
                            connection.as_mut().finish();
                            // A peer without any request may not stay by ignoring the end.
                            let is_new = wait == Wait::FirstRequest;
                            check.as_mut().reset(if is_new { now + FAREWELL } else { next });
                        }
                        Some((_, due)) => check.as_mut().reset(due.min(next)),
                        None => check.as_mut().reset(next),
                    }
                }
            }
        }
    }
}

/// The common part of hyper's two types of connections.
trait Connection: Future<Output = hyper::Result<()>> {
    /// Closes it after the requests in progress.
    fn finish(self: Pin<&mut Self>);
}

impl Connection for http1::UpgradeableConnection<TokioIo<Socket>, Requests> {
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl Connection for http2::Connection<TokioIo<Socket>, Requests, TrackedExecutor> {
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// The requests of one connection.
#[derive(Debug)]
struct Requests {
    server: Server,
    ingress: Ingress,
    certificate: Option<PeerCertificate>,
    state: ConnectionState,
    upgrade: PendingUpgrade,
}

/// The upgrade of the connection after its last response.
type PendingUpgrade = Arc<Mutex<Option<Upgrade>>>;

impl Service<Request<Incoming>> for Requests {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Handling;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (mut parts, body) = request.into_parts();
        if let Some(certificate) = &self.certificate {
            parts.extensions.insert(certificate.clone());
        }
        let (mut ingress, mut memory, mut yields) = (self.ingress, None, false);
        if parts.version == Version::HTTP_2 {
            let responses = &self.server.shared.responses;
            memory = limits::try_reserve_call(responses, || responses.quota(ingress.payer()));
            if memory.is_none() {
                ingress = ingress.with_beyond(AdmissionLimit::CallMemory);
            }
        } else {
            yields = self.state.is_pipelined();
        }
        let busy = Some(self.state.begin(memory));
        let body = Upload { body, whole: false, state: self.state.clone() };
        let response = Box::pin(self.server.clone().handle(parts, body, ingress));
        Handling { response, busy, yields, upgrade: Arc::clone(&self.upgrade) }
    }
}

/// A request in progress.
struct Handling {
    // Boxed, so that a connection with a long stream does not keep the memory of a request.
    response: Pin<Box<dyn Future<Output = Response<Body>> + Send>>,
    busy: Option<Busy>,
    /// True until it has let the other connections go first.
    yields: bool,
    upgrade: PendingUpgrade,
}

impl Future for Handling {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if std::mem::take(&mut self.yields) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut response = ready!(self.response.as_mut().poll(cx));
        if let Some(upgrade) = response.extensions_mut().remove::<Upgrade>() {
            *lock(&self.upgrade) = Some(upgrade);
        }
        let busy = self.busy.take();
        if let Some(busy) = &busy {
            busy.answered(true);
        }
        Poll::Ready(Ok(response.map(|body| body.with_connection(busy, StallTimer::current()))))
    }
}

impl Drop for Handling {
    fn drop(&mut self) {
        if let Some(busy) = &self.busy {
            busy.answered(false);
        }
    }
}

/// The body of a request. It records if it was not read to its end.
#[derive(Debug)]
struct Upload {
    body: Incoming,
    whole: bool,
    state: ConnectionState,
}

impl http_body::Body for Upload {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        self.whole = frame.is_none();
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.state.body_read(data.len());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.whole && !self.body.is_end_stream() {
            self.state.leave_unread();
        }
    }
}

#[cfg(test)]
mod tests {
    use http::request::Parts;

    use super::*;
    use crate::bind::{Exchange, jsonrpc, rest};

    /// The largest block that glibc keeps in the cache of a thread. A larger one costs as much as a
    /// thousand instructions, which matters for blocks that every request needs.
    const CACHED: usize = 1032;

    #[test]
    fn futures_of_a_request_fit_into_the_cache_of_the_allocator() {
        fn handle<F>(_: impl FnOnce(Server, Parts, Upload, Ingress) -> F) -> usize {
            size_of::<F>()
        }
        fn answer<'a, T, F>(_: impl FnOnce(&'a Exchange<'a>, T, Upload) -> F) -> usize {
            size_of::<F>()
        }
        let sizes = [
            handle(Server::handle),
            answer(jsonrpc::answer),
            answer(|exchange, (method, mount, path), body| {
                rest::answer(exchange, method, mount, path, body)
            }),
        ];
        assert!(sizes.iter().all(|size| *size <= CACHED), "{sizes:?}");
    }
}
