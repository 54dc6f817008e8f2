//! `herald listen`: a webhook on this machine.

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
    client::fault::{Fault, Kind},
    output::{Output, note, warn},
};

/// The largest notification that is taken.
const LARGEST: usize = 16 << 20;
/// Senders that are served at once.
const SENDERS: usize = 64;
/// How long one sender may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The headers that a token comes in.
const TOKEN_HEADERS: [&str; 2] = ["x-a2a-notification-token", "a2a-notification-token"];

/// Prints what agents post, until it was enough.
pub(crate) async fn run(args: &Listen) -> Result<(), Fault> {
    let out =
        Output { stream: args.count != Some(1) || args.output.stream, ..Output::new(&args.output) };
    let address = SocketAddr::new(args.host, args.port);
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let text = format!("cannot listen on {address}: {error}");
        Fault::usage(text).hint("name another --port, or 0 for a free one")
    })?;
    let address = listener.local_addr().map_err(|error| Fault::internal(error.to_string()))?;
    // Not on standard output, where nothing but notifications belongs.
    note("Listening", &format!("http://{address}/"));
    if !args.host.is_loopback() && args.token.is_none() {
        warn("everybody who can reach this address can post to it; give --token");
    }
    let (sender, mut received) = mpsc::channel(SENDERS);
    let hook = Arc::new(Hook { token: args.token.as_ref().map(|one| one.0.clone()), sender });
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(listener, hook));
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let event: StreamEvent = tokio::select! {
            Some(event) = received.recv() => event,
            _ = signal::ctrl_c() => return Err(Fault::new(Kind::Interrupted, "interrupted")),
        };
        out.show(&event)?;
        left -= 1;
    }
    Ok(())
}

/// Takes notifications.
#[derive(Debug)]
struct Hook {
    token: Option<String>,
    sender: mpsc::Sender<StreamEvent>,
}

async fn accept(listener: TcpListener, hook: Arc<Hook>) {
    let room = Arc::new(Semaphore::new(SENDERS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        // A connection that fails before it begins is no reason to stop.
        let Ok((socket, _)) = listener.accept().await else { continue };
        while connections.try_join_next().is_some() {}
        let hook = Arc::clone(&hook);
        connections.spawn(async move {
            let _place = place;
            let service = service_fn(|request| {
                let hook = Arc::clone(&hook);
                async move { Ok::<_, Infallible>(hook.answer(request).await) }
            });
            let serve = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(PATIENCE)
                .keep_alive(false)
                .serve_connection(TokioIo::new(socket), service);
            // Whoever is too slow or breaks off sends again.
            let _ = timeout(PATIENCE, serve).await;
        });
    }
}

impl Hook {
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
            return Err((StatusCode::METHOD_NOT_ALLOWED, "notifications are posted\n"));
        }
        if let Some(token) = &self.token
            && !carries(request.headers(), token)
        {
            warn("refused a notification without the right token");
            return Err((StatusCode::UNAUTHORIZED, "the token is missing or another one\n"));
        }
        let body = Limited::new(request.into_body(), LARGEST).collect().await;
        let body = body.map_err(|_| (StatusCode::PAYLOAD_TOO_LARGE, "too large\n"))?.to_bytes();
        let event = read(&body).ok_or_else(|| {
            warn("refused something that is no notification");
            (StatusCode::BAD_REQUEST, "this is no notification of A2A 1.0 or 0.3\n")
        })?;
        let closed = (StatusCode::SERVICE_UNAVAILABLE, "it has had enough\n");
        self.sender.send(event).await.map_err(|_| closed)
    }
}

/// Whether the headers hold the token, in whichever of the places agents put it.
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
