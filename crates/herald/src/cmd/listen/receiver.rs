//! HTTP server of the receiver: limits, verification, answer.

use std::{
    convert::Infallible,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use herald_client::{VerifiedWebhook, WebhookError, WebhookVerifier};
use http::{Method, Request, Response, StatusCode, request::Parts};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpListener,
    sync::Semaphore,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    forward::Forwarder,
    receipt::{Printer, Receipt, ReceiptVerdict},
};

/// The most bytes of a webhook.
const LARGEST: usize = 16 << 20;
/// The most bytes of its headers.
const LARGEST_HEADERS: usize = 64 << 10;
/// The most connections at once.
const SENDERS: usize = 64;
/// The time limit of a connection.
const SENDER_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The time that open connections have when the receiver stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A receiver of webhooks.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) verifier: WebhookVerifier,
    pub(super) answer: WebhookAnswer,
    pub(super) printer: Printer,
}

/// The answer to verified webhooks.
#[derive(Debug)]
pub(super) enum WebhookAnswer {
    Status(StatusCode),
    Forward(Forwarder),
}

/// The accept loop and its connections.
#[derive(Debug)]
pub(super) struct SenderConnections {
    stop: CancellationToken,
    tasks: TaskTracker,
}

impl SenderConnections {
    /// Accepts no more connections and waits for the open ones, for a while.
    pub(super) async fn stop(self) {
        self.stop.cancel();
        self.tasks.close();
        // A sender that is cut off sends its webhook again.
        let _ = timeout(STOP_TIMEOUT, self.tasks.wait()).await;
    }
}

/// Serves connections.
pub(super) fn serve(listener: TcpListener, receiver: Arc<Receiver>) -> SenderConnections {
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let stopped = stop.clone();
    tasks.spawn(async move {
        let mut connections = JoinSet::new();
        tokio::select! {
            () = accept(&listener, &receiver, &mut connections) => {}
            () = stopped.cancelled() => {}
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    });
    SenderConnections { stop, tasks }
}

async fn accept(listener: &TcpListener, receiver: &Arc<Receiver>, connections: &mut JoinSet<()>) {
    let permits = Arc::new(Semaphore::new(SENDERS));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            // It fails for one connection, or until a descriptor is free.
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        while connections.try_join_next().is_some() {}
        let receiver = Arc::clone(receiver);
        connections.spawn(async move {
            let _permit = permit;
            let service = service_fn(|request| {
                let receiver = Arc::clone(&receiver);
                async move { Ok::<_, Infallible>(receiver.respond(request).await) }
            });
            let serve = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(SENDER_TIMEOUT)
                .max_buf_size(LARGEST_HEADERS)
                .keep_alive(false)
                .serve_connection(TokioIo::new(socket), service);
            // Senders retry after a timeout or a broken connection.
            let _ = timeout(SENDER_TIMEOUT, serve).await;
        });
    }
}

impl Receiver {
    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let receipt = match read(&head, body).await {
            Ok(body) => self.receive(&head, &body).await,
            Err((status, why)) => Receipt::refused(status, why.to_owned(), &head.headers, now()),
        };
        let (status, text) = if self.printer.print(&receipt) {
            (receipt.status, receipt.reason.map(|reason| reason + "\n").unwrap_or_default())
        } else {
            // Nobody has seen the webhook, so it has to be sent again.
            (StatusCode::SERVICE_UNAVAILABLE, "the receiver has stopped\n".to_owned())
        };
        let mut response = Response::new(Full::from(text));
        *response.status_mut() = status;
        response
    }

    async fn receive(&self, head: &Parts, body: &Bytes) -> Receipt {
        let (time, headers) = (now(), &head.headers);
        let receipt = match self.verifier.verify(headers, body, time) {
            Ok(webhook) => {
                let (status, reason) = self.answer(&webhook, head, body).await;
                let mut receipt =
                    Receipt::verified(ReceiptVerdict::Accepted, webhook, status, headers, time);
                receipt.reason = reason;
                receipt
            }
            Err(WebhookError::Repeated(webhook)) => {
                Receipt::verified(ReceiptVerdict::Repeated, *webhook, StatusCode::OK, headers, time)
            }
            Err(error) => Receipt::refused(error.status(), error.to_string(), headers, time),
        };
        receipt.with_body(body)
    }

    /// The status for the sender of a verified webhook, and the reason of a failure.
    async fn answer(
        &self,
        webhook: &VerifiedWebhook,
        head: &Parts,
        body: &Bytes,
    ) -> (StatusCode, Option<String>) {
        let (status, reason) = match &self.answer {
            WebhookAnswer::Status(status) => (*status, None),
            WebhookAnswer::Forward(forwarder) => forwarder.post(&head.headers, body.clone()).await,
        };
        if !status.is_success() {
            // The next attempt of the sender is no repeat.
            self.verifier.forget(webhook);
        }
        (status, reason)
    }
}

/// The body of a request that may be a webhook.
async fn read(head: &Parts, body: Incoming) -> Result<Bytes, (StatusCode, &'static str)> {
    if head.method != Method::POST {
        return Err((StatusCode::METHOD_NOT_ALLOWED, "webhooks are sent with POST"));
    }
    match Limited::new(body, LARGEST).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            Err((StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 16 MiB"))
        }
        Err(_) => Err((StatusCode::BAD_REQUEST, "the body is incomplete")),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the age of a webhook is measured by the clock of the world"
)]
fn now() -> SystemTime {
    SystemTime::now()
}
