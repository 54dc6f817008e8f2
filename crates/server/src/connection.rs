//! One connection: HTTP/1.1 or HTTP/2 as its first bytes say, until it ends, idles or is stopped.

use std::{convert::Infallible, future::Future, net::IpAddr, pin::Pin, pin::pin};

use http::{Request, Response};
use hyper::{body::Incoming, rt::Executor, service::Service};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep_until},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    body::Body,
    config::{Limits, Timeouts},
    guard::Door,
    server::Server,
    socket::{Pulse, Socket, Wait},
};

/// Bytes a peer may send on one HTTP/2 request, and on all of a connection, before it must wait.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Bytes held for one HTTP/2 response that its peer does not take.
const SEND_BUFFER: usize = 16 << 10;
/// Bytes of headers, uncompressed, on HTTP/2.
const HEADER_LIST: u32 = 64 << 10;
/// Requests a peer may have reset before we hang up: a flood of those costs it nothing.
const RESETS: usize = 20;

/// Makes connections of sockets.
#[derive(Debug)]
pub(crate) struct Connections {
    server: Server,
    http: auto::Builder<Tracked>,
    /// Where the listener is bound.
    bound: IpAddr,
    tasks: TaskTracker,
    /// Fires when connections are to finish what they are at.
    finish: CancellationToken,
    /// Fires when they are to end at once.
    cut: CancellationToken,
}

/// Runs HTTP/2 requests where the end of the server waits for them.
#[derive(Debug, Clone)]
struct Tracked {
    tasks: TaskTracker,
    cut: CancellationToken,
}

impl<F> Executor<F> for Tracked
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    fn execute(&self, future: F) {
        let cut = self.cut.clone();
        self.tasks.spawn(async move { cut.run_until_cancelled_owned(future).await.is_some() });
    }
}

impl Connections {
    pub(crate) fn new(server: Server, bound: IpAddr) -> Self {
        let (tasks, cut) = (TaskTracker::new(), CancellationToken::new());
        let config = &server.shared.config;
        let tracked = Tracked { tasks: tasks.clone(), cut: cut.clone() };
        let http = http(&config.limits, &config.timeouts, tracked);
        Self { server, http, bound, tasks, finish: CancellationToken::new(), cut }
    }

    /// Serves one socket in the background. `kept` is dropped when it closes.
    pub(crate) fn open(&self, stream: TcpStream, kept: impl Send + 'static) {
        let _ = stream.set_nodelay(true);
        let timeouts = self.server.shared.config.timeouts.clone();
        let pulse = Pulse::new();
        let socket = Socket::new(stream, pulse.clone(), timeouts.stall);
        let door = Door::Socket(self.bound);
        let service = Requests { server: self.server.clone(), door, pulse: pulse.clone() };
        let http = self.http.clone();
        let (finish, cut) = (self.finish.clone(), self.cut.clone());
        self.tasks.spawn(async move {
            let _kept = kept;
            let mut connection = pin!(http.serve_connection(TokioIo::new(socket), service));
            let mut finishing = false;
            // The next look is never further away than the shortest deadline that could begin
            // meanwhile.
            let mut look = pin!(sleep_until(Instant::now() + timeouts.head));
            loop {
                tokio::select! {
                    ended = connection.as_mut() => {
                        if let Err(error) = ended {
                            tracing::debug!(error, "a connection broke off");
                        }
                        return;
                    }
                    () = cut.cancelled() => return,
                    () = finish.cancelled(), if !finishing => {
                        finishing = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    () = look.as_mut() => {
                        let (now, next) = (Instant::now(), Instant::now() + timeouts.head);
                        match pulse.deadline(&timeouts) {
                            Some((Wait::Next, due)) if due <= now && !finishing => {
                                finishing = true;
                                connection.as_mut().graceful_shutdown();
                                look.as_mut().reset(next);
                            }
                            Some((_, due)) if due <= now => return,
                            Some((_, due)) => look.as_mut().reset(due.min(next)),
                            None => look.as_mut().reset(next),
                        }
                    }
                }
            }
        });
    }

    /// Asks every connection to finish what it is at.
    pub(crate) fn finish(&self) {
        self.finish.cancel();
        self.tasks.close();
    }

    /// Waits until none is left.
    pub(crate) async fn finished(&self) {
        self.tasks.wait().await;
    }

    /// How many are open, with the HTTP/2 requests under way.
    pub(crate) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Ends every connection at once.
    pub(crate) fn cut(&self) {
        self.cut.cancel();
    }
}

/// Nobody is left to stop them, so they stop.
impl Drop for Connections {
    fn drop(&mut self) {
        self.cut.cancel();
    }
}

fn http(limits: &Limits, timeouts: &Timeouts, tracked: Tracked) -> auto::Builder<Tracked> {
    let mut http = auto::Builder::new(tracked);
    // The time for headers is kept by the socket's pulse: hyper's own clock would also run while a
    // connection idles, and not at all until the first bytes have told the version.
    http.http1().timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(limits.head);
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.requests_per_connection)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(HEADER_LIST)
        .max_pending_accept_reset_streams(RESETS)
        .keep_alive_interval(timeouts.ping)
        .keep_alive_timeout(timeouts.ping);
    http
}

/// The requests of one connection.
struct Requests {
    server: Server,
    door: Door,
    pulse: Pulse,
}

impl Service<Request<Incoming>> for Requests {
    type Response = Response<Body>;
    type Error = Infallible;
    // On the heap, so that a connection with a long stream does not keep room for a request.
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let busy = self.pulse.begin(request.version());
        let (server, door) = (self.server.clone(), self.door);
        Box::pin(async move {
            let response = server.handle(request, door).await;
            Ok(response.map(|body| body.keeping(busy)))
        })
    }
}
