//! Connection of a worker to its server: requests with credentials, and the meaning of each answer.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use herald_api::{ApiCall, routes::Nothing};
use herald_protocol::{Dialect, Error, failure};
use reqwest::{
    Client, Method, Response,
    header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER},
};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::{WorkerError, backoff::RetryDelays};

/// The most bytes of a response: an assignment has the task and its conversation.
const LARGEST: usize = 64 << 20;
/// The time limit of a request, beside the time that the server may wait before it answers.
pub(super) const ANSWER: Duration = Duration::from_secs(30);

/// The server of a worker.
pub struct WorkerConnection {
    url: String,
    client: Client,
    credentials: HeaderMap,
    is_lost: AtomicBool,
}

/// The reason why a request has no result.
#[derive(Debug)]
pub(super) enum RequestError {
    /// There was no answer, or the server asks for another attempt.
    Failed(FailedRequest),
    /// The server refused the request. Another attempt would be refused too.
    Refused(RefusedRequest),
}

/// A failure that time may cure.
#[derive(Debug)]
pub(super) struct FailedRequest {
    pub(super) text: String,
    pub(super) retry_after: Option<Duration>,
}

/// A refusal.
#[derive(Debug)]
pub(super) struct RefusedRequest {
    pub(super) status: u16,
    pub(super) reason: String,
    pub(super) message: String,
}

impl WorkerConnection {
    /// The server at this base URL, which has no slash at its end. `client` has the settings of TLS, and
    /// `credentials` go into every request.
    pub fn new(url: impl Into<String>, client: Client, credentials: HeaderMap) -> Self {
        Self { url: url.into(), client, credentials, is_lost: AtomicBool::new(false) }
    }

    /// The base URL.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Sends one request, with the parameters of its path.
    pub(super) async fn call<C>(
        &self,
        parameters: &[&str],
        body: &C::Body,
        limit: Duration,
    ) -> Result<C::Reply, RequestError>
    where
        C: ApiCall<Query = Nothing>,
        C::Reply: DeserializeOwned,
    {
        let url = format!("{}{}", self.url, C::ROUTE.target(parameters, &Nothing {}));
        let method = if C::ROUTE.method() == "DELETE" { Method::DELETE } else { Method::POST };
        let mut request = self.client.request(method.clone(), url);
        request = request.headers(self.credentials.clone()).timeout(limit);
        if method == Method::POST {
            let body = serde_json::to_vec(body).expect("the bodies have string keys");
            request = request.header(CONTENT_TYPE, "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| unavailable(&error.without_url()))?;
        read(response).await
    }

    /// Sends a request until it is answered. `None` if `stopped` fires before that.
    pub(super) async fn call_until<C>(
        &self,
        parameters: &[&str],
        body: &C::Body,
        stopped: &CancellationToken,
    ) -> Option<Result<C::Reply, RefusedRequest>>
    where
        C: ApiCall<Query = Nothing>,
        C::Reply: DeserializeOwned,
    {
        let mut backoff = RetryDelays::new();
        let attempts = async {
            loop {
                match self.call::<C>(parameters, body, ANSWER).await {
                    Ok(reply) => return Ok(reply),
                    Err(RequestError::Refused(refusal)) => return Err(refusal),
                    Err(RequestError::Failed(fault)) => {
                        let route = C::ROUTE.name();
                        tracing::debug!(error = %fault.text, route, "repeating a request");
                        backoff.wait(fault.retry_after).await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = stopped.cancelled() => None,
            done = attempts => Some(done),
        }
    }

    /// Notes an answer. The first one after an outage is logged.
    pub(super) fn answered(&self) {
        if self.is_lost.swap(false, Ordering::Relaxed) {
            tracing::info!(server = %self.url, "the server answers again");
        }
    }

    /// Notes a request without an answer. The first one of an outage is logged.
    pub(super) fn lost(&self, error: &str) {
        if !self.is_lost.swap(true, Ordering::Relaxed) {
            tracing::warn!(server = %self.url, error, "the server cannot be reached; retrying until it answers");
        }
    }
}

async fn read<R: DeserializeOwned>(mut response: Response) -> Result<R, RequestError> {
    let status = response.status();
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
    let retry_after = retry_after.map(Duration::from_secs);
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(None) => break,
            Ok(Some(chunk)) if body.len() + chunk.len() > LARGEST => {
                let text = "the server's answer is larger than 64 MiB".to_owned();
                return Err(RequestError::Failed(FailedRequest { text, retry_after: None }));
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) => return Err(unavailable(&error.without_url())),
        }
    }
    if status.is_success() {
        return serde_json::from_slice(&body).map_err(|error| {
            let text = format!("the server's answer cannot be read: {error}");
            RequestError::Failed(FailedRequest { text, retry_after: None })
        });
    }
    let error = failure::rest(Dialect::V1, status.as_u16(), &body);
    // Without an error of Herald's own form, a proxy in front of the server answered.
    let again = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429);
    match error {
        Some(error) if !again => Err(RequestError::Refused(RefusedRequest {
            status: status.as_u16(),
            reason: reason(&error),
            message: error.message,
        })),
        Some(error) => {
            Err(RequestError::Failed(FailedRequest { text: error.message, retry_after }))
        }
        None if matches!(status.as_u16(), 401 | 403) => {
            Err(RequestError::Refused(RefusedRequest {
                status: status.as_u16(),
                reason: String::new(),
                message: format!("the server refused the credential: {status}"),
            }))
        }
        None => {
            let text = format!("the server answered {status}");
            Err(RequestError::Failed(FailedRequest { text, retry_after }))
        }
    }
}

fn reason(error: &Error) -> String {
    let unknown = error.detail.as_ref().and_then(|detail| detail.metadata.get("reason"));
    unknown.cloned().unwrap_or_else(|| error.kind.codes().reason.to_owned())
}

fn unavailable(error: &reqwest::Error) -> RequestError {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    RequestError::Failed(FailedRequest { text, retry_after: None })
}

impl RefusedRequest {
    /// True if the server does not know the session (any more): the worker must register again.
    pub(super) fn is_expired(&self) -> bool {
        matches!(self.reason.as_str(), "WORKER_EXPIRED" | "WORKER_UNKNOWN")
    }

    /// True if the turn is no longer this worker's.
    pub(super) fn is_over(&self) -> bool {
        self.reason == "TURN_OVER" || self.is_expired() || matches!(self.status, 401 | 403 | 404)
    }
}

impl From<RefusedRequest> for WorkerError {
    fn from(refusal: RefusedRequest) -> Self {
        Self { status: refusal.status, message: refusal.message }
    }
}

impl fmt::Debug for WorkerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerConnection").field("url", &self.url).finish_non_exhaustive()
    }
}
