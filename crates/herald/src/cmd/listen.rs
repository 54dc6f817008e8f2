//! `herald listen`: a webhook server that prints notifications.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use herald_protocol::{Dialect, StreamEvent};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    signal,
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::timeout,
};

use crate::{
    args::Listen,
    client::error::{CliError, CliErrorKind},
    output::{Output, note, warn},
};

/// The most bytes of a notification.
const LARGEST: usize = 16 << 20;
/// The most connections at once.
const SENDERS: usize = 64;
/// The time limit of a connection.
const SENDER_TIMEOUT: Duration = Duration::from_secs(30);
/// The headers that may contain the token.
const TOKEN_HEADERS: [&str; 2] = ["x-a2a-notification-token", "a2a-notification-token"];

/// Prints notifications, up to `--count` of them.
pub(crate) async fn run(args: &Listen) -> Result<(), CliError> {
    let out =
        Output { stream: args.count != Some(1) || args.output.stream, ..Output::new(&args.output) };
    let address = SocketAddr::new(args.host, args.port);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let text = format!("cannot listen on {address}: {error}");
        CliError::usage(text).hint("choose another --port, or 0 for a free one")
    })?;
    let address = listener.local_addr().map_err(|error| CliError::internal(error.to_string()))?;
    // Standard output is for notifications only.
    note("Listening", &format!("http://{address}/"));
    if !args.host.is_loopback() && args.token.is_none() {
        warn("everyone who can reach this address can post to it; use --token");
    }
    let (sender, mut received) = mpsc::channel(SENDERS);
    let hook = Arc::new(Webhook { token: args.token.as_ref().map(|one| one.0.clone()), sender });
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(listener, hook));
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event: StreamEvent = tokio::select! {
            Some(event) = received.recv() => event,
            _ = signal::ctrl_c() => return Err(CliError::new(CliErrorKind::Interrupted, "interrupted")),
        };
        out.show(&event)?;
        left -= 1;
    }
    Ok(())
}

/// Receiver of notifications.
#[derive(Debug)]
struct Webhook {
    token: Option<String>,
    sender: mpsc::Sender<StreamEvent>,
}

async fn accept(listener: TcpListener, hook: Arc<Webhook>) {
    let permits = Arc::new(Semaphore::new(SENDERS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        // A failed accept concerns one connection only.
        let Ok((socket, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let hook = Arc::clone(&hook);
        connections.spawn(async move {
            let _permit = permit;
            let service = service_fn(|request| {
                let hook = Arc::clone(&hook);
                async move { Ok::<_, Infallible>(hook.answer(request).await) }
            });
            let serve = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SENDER_TIMEOUT)
                .keep_alive(false)
                .serve_connection(TokioIo::new(socket), service);
            // Senders retry after a timeout or a broken connection.
            let _ = timeout(SENDER_TIMEOUT, serve).await;
        });
    }
}

impl Webhook {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, text) = match self.take(request).await {
            Ok(()) => (StatusCode::OK, ""),
            Err((status, text)) => (status, text),
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    }

    async fn take(&self, request: Request<Incoming>) -> Result<(), (StatusCode, &'static str)> {
        if request.method() != Method::POST {
            return Err((StatusCode::METHOD_NOT_ALLOWED, "notifications are sent with POST\n"));
        }
        if let Some(token) = &self.token
            && !carries(request.headers(), token)
        {
            warn("refused a notification without the right token");
            return Err((StatusCode::UNAUTHORIZED, "the token is missing or wrong\n"));
        }
        let body = Limited::new(request.into_body(), LARGEST).collect().await;
        let body = body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, "too large\n"))?.to_bytes();
        let event = read(&body).ok_or_else(|| {
            warn("refused a request that is not a notification");
            (StatusCode::BAD_REQUEST, "the body is not a notification of A2A 1.0 or 0.3\n")
        })?;
        let closed = (StatusCode::SERVICE_UNAVAILABLE, "the listener has stopped\n");
        self.sender.send(event).await.map_err(|_| closed)
    }
}

/// True if one of the headers that agents use contains the token.
fn carries(headers: &HeaderMap, token: &str) -> bool {
    let plain = TOKEN_HEADERS.iter().filter_map(|name| headers.get(*name));
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| value.split_once(' ')).map(|(_, token)| token);
    plain.filter_map(|value| value.to_str().ok()).chain(bearer).any(|given| given == token)
}

/// A notification: a stream item of 1.0, or a whole task as 0.3 posts it.
fn read(body: &[u8]) -> Option<StreamEvent> {
    let current = Dialect::V1.decode_event(body).ok();
    current.or_else(|| Dialect::V03.decode_event(body).ok())
}
