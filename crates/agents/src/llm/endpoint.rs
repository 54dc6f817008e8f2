//! Endpoint of a model: requests with retry until the first event, and the stream of the answer.

use std::{collections::VecDeque, fmt, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use herald_client::Secrets;
use herald_protocol::{TraceContext, sse};
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{
        ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
    },
    redirect::Policy,
};
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    chat::{AnswerEvent, CompletionChunk, Finish},
    error_body,
};
use crate::{failure::Failure, text::replace_unpaired_surrogates};

/// Largest event of a stream, and largest response that is not a stream.
const EVENT: usize = 1 << 20;

/// Largest error body. A longer one is dropped as a whole: a truncated one could end within a secret,
/// which redaction would then miss.
const MAX_ERROR_BODY: usize = 64 << 10;

/// Time that a stream has for usage and its end marker after the finish reason. Many servers send no end
/// marker and leave the connection open.
const AFTER_FINISH: Duration = Duration::from_secs(1);

/// First delay before a retry; each further one is about twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(250);

/// Longest delay before a retry. If an endpoint asks for more, the request fails.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// A model's endpoint: its URL, key and timeouts.
#[derive(Clone)]
pub struct Endpoint {
    client: Client,
    url: Url,
    authorization: Option<HeaderValue>,
    /// Secrets to redact: the key, and credentials in the URL.
    secrets: Secrets,
    timeouts: EndpointTimeouts,
}

/// Timeouts and retries of an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndpointTimeouts {
    /// Timeout of the connection.
    pub connect: Duration,
    /// Timeout of the first event, per request.
    pub first_token: Duration,
    /// Stall timeout between two reads of a stream; `None` for no limit.
    pub idle: Option<Duration>,
    /// Retries of a request before its first event.
    pub retries: usize,
}

/// Error in the settings of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndpointError {
    /// The URL cannot be called.
    Url,
    /// The key contains characters that a header cannot have.
    Key,
    /// TLS cannot be set up; the text says why.
    Tls(String),
}

/// The events of one answer.
pub(super) struct AnswerStream {
    response: Response,
    parser: sse::Parser,
    events: VecDeque<AnswerEvent>,
    finish: Finish,
    /// Deadline for the rest of the stream, set once the finish reason has arrived.
    ends: Option<Instant>,
    idle: Duration,
}

/// A failed request, and when it may be repeated.
pub(super) struct RequestFailure {
    pub(super) failure: Failure,
    pub(super) again: Option<RetryTime>,
}

/// The policy for a retry.
#[derive(Clone, Copy)]
pub(super) enum RetryTime {
    Soon,
    After(Duration),
}

impl Default for EndpointTimeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            first_token: Duration::from_secs(120),
            idle: Some(Duration::from_secs(60)),
            retries: 3,
        }
    }
}

impl Endpoint {
    /// The endpoint below a base URL such as `http://127.0.0.1:11434/v1`.
    pub fn new(
        url: &str,
        key: Option<String>,
        timeouts: EndpointTimeouts,
    ) -> Result<Self, EndpointError> {
        let mut url = Url::parse(url).map_err(|_| EndpointError::Url)?;
        let is_plain = url.scheme() == "http";
        let is_bare = url.username().is_empty() && url.password().is_none();
        if !(is_plain || url.scheme() == "https") || !is_bare || url.fragment().is_some() {
            return Err(EndpointError::Url);
        }
        let mut path = url.path_segments_mut().map_err(|()| EndpointError::Url)?;
        path.pop_if_empty().extend(["chat", "completions"]);
        drop(path);
        let secrets = Secrets::default();
        key.iter().for_each(|key| secrets.add(key));
        url.query_pairs().for_each(|(_, value)| secrets.add(&value));
        let authorization = key.map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {key}"))?;
            value.set_sensitive(true);
            Ok::<_, reqwest::header::InvalidHeaderValue>(value)
        });
        let authorization = authorization.transpose().map_err(|_| EndpointError::Key)?;
        // A redirect would send the key to another server.
        let client = Client::builder()
            .redirect(Policy::none())
            .no_proxy()
            .referer(false)
            .connect_timeout(timeouts.connect)
            // Shorter than the idle timeout of most servers, so that no request meets a connection
            // that is being closed.
            .pool_idle_timeout(Duration::from_secs(20))
            .user_agent(concat!("herald/", env!("CARGO_PKG_VERSION")));
        // Loading the system's roots is slow, and plain HTTP does not need them.
        let client = if is_plain { client.tls_certs_only([]) } else { client };
        let client = client.build().map_err(|fault| EndpointError::Tls(causes(&fault)))?;
        Ok(Self { client, url, authorization, secrets, timeouts })
    }

    /// Secrets to redact in everything that the endpoint sends.
    pub(super) fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Sends the request, with retries until the first event, and returns that and the rest of the stream.
    pub(super) async fn ask(
        &self,
        body: Vec<u8>,
        trace: Option<&TraceContext>,
    ) -> Result<(AnswerEvent, AnswerStream), RequestFailure> {
        let headers = self.headers(trace);
        let mut pauses = ExponentialBuilder::new()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_max_times(self.timeouts.retries)
            .with_jitter()
            .build();
        loop {
            let limit = self.timeouts.first_token;
            let answered = timeout(limit, self.try_once(headers.clone(), body.clone())).await;
            let failed = match answered {
                Ok(Ok(answered)) => return Ok(answered),
                Ok(Err(failed)) => failed,
                Err(_) => {
                    let limit = limit.as_secs_f64();
                    let kind = format!("got no answer from its model within {limit} s");
                    // A request that used up its whole timeout is not repeated.
                    return Err(RequestFailure {
                        failure: Failure::new(kind),
                        again: Some(RetryTime::Soon),
                    });
                }
            };
            let (Some(again), Some(pause)) = (failed.again, pauses.next()) else {
                return Err(failed);
            };
            let pause = match again {
                RetryTime::Soon => pause,
                RetryTime::After(asked) if asked > LONGEST_PAUSE => return Err(failed),
                RetryTime::After(asked) => pause.max(asked),
            };
            tracing::debug!(kind = failed.failure.kind, ?pause, "repeating a request to the model");
            sleep(pause).await;
        }
    }

    async fn try_once(
        &self,
        headers: HeaderMap,
        body: Vec<u8>,
    ) -> Result<(AnswerEvent, AnswerStream), RequestFailure> {
        let request = self.client.post(self.url.clone()).headers(headers).body(body);
        let response = request.send().await.map_err(|fault| {
            let failure = broken("could not reach its model", fault);
            RequestFailure { failure, again: Some(RetryTime::Soon) }
        })?;
        if !response.status().is_success() {
            return Err(self.refused(response).await);
        }
        let mut answer = AnswerStream {
            response,
            parser: sse::Parser::new(EVENT),
            events: VecDeque::new(),
            finish: Finish::default(),
            ends: None,
            // Until the first event the timeout of the whole request applies.
            idle: Duration::MAX,
        };
        let event =
            if answer.is_stream() { answer.next_or_end().await } else { answer.read_whole().await };
        match event {
            Ok(Some(event)) => {
                answer.idle = self.timeouts.idle.unwrap_or(Duration::MAX);
                Ok((event, answer))
            }
            Ok(None) => Err(RequestFailure { failure: broke_off(), again: Some(RetryTime::Soon) }),
            Err(failure) => Err(RequestFailure { failure, again: None }),
        }
    }

    fn headers(&self, trace: Option<&TraceContext>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in trace.into_iter().flat_map(TraceContext::headers) {
            let value = HeaderValue::try_from(&*value).ok();
            headers.extend(value.map(|value| (HeaderName::from_static(name), value)));
        }
        headers
    }

    async fn refused(&self, mut response: Response) -> RequestFailure {
        let status = response.status();
        let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let wait = wait.and_then(|seconds| seconds.trim().parse().ok()).map(Duration::from_secs);
        // If the error body cannot be read, the status alone is reported.
        let body = body(&mut response, MAX_ERROR_BODY).await.ok().flatten();
        let kind = if status.is_redirection() {
            "was sent elsewhere by its model's endpoint, which is not followed".to_owned()
        } else {
            format!("was refused by its model's endpoint with status {}", status.as_u16())
        };
        let passes = status.is_server_error()
            || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
        let again = passes.then(|| wait.map_or(RetryTime::Soon, RetryTime::After));
        let message = body.and_then(|body| error_body::message(&body));
        RequestFailure { failure: Failure { message, ..Failure::new(kind) }, again }
    }
}

impl AnswerStream {
    /// The next event; the last one is [`AnswerEvent::End`].
    pub(super) async fn next(&mut self) -> Result<AnswerEvent, Failure> {
        self.next_or_end().await?.ok_or_else(broke_off)
    }

    /// The next event, or `None` if the stream ended before the answer did.
    async fn next_or_end(&mut self) -> Result<Option<AnswerEvent>, Failure> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            if self.finish.reason.is_some() {
                // The stall timeout starts with the read: the time for our own writes does not count.
                let ends = *self.ends.get_or_insert_with(|| Instant::now() + AFTER_FINISH);
                match timeout_at(ends, self.response.chunk()).await {
                    Ok(Ok(Some(bytes))) if Instant::now() < ends => self.take(&bytes)?,
                    // The finish reason has arrived, so the answer is complete.
                    Ok(_) | Err(_) => self.end(),
                }
                continue;
            }
            match timeout(self.idle, self.response.chunk()).await {
                Ok(Ok(Some(bytes))) => self.take(&bytes)?,
                Ok(Ok(None)) => return Ok(None),
                Ok(Err(fault)) => {
                    let fault = causes(&fault.without_url());
                    tracing::debug!(fault, "the answer of a model broke off");
                    return Ok(None);
                }
                Err(_) => {
                    let idle = self.idle.as_secs_f64();
                    let kind = format!("heard nothing from its model for {idle} s");
                    return Err(Failure::new(kind));
                }
            }
        }
    }

    fn is_stream(&self) -> bool {
        let kind = self.response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.and_then(|kind| kind.split(';').next()).unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("text/event-stream")
    }

    /// The first event of a response that is not a stream, or `None` if its body ended early.
    async fn read_whole(&mut self) -> Result<Option<AnswerEvent>, Failure> {
        let Some(body) = body(&mut self.response, EVENT).await? else { return Ok(None) };
        match serde_json::from_slice::<CompletionChunk>(&replace_unpaired_surrogates(
            body.as_bytes(),
        )) {
            Ok(chunk) if !chunk.choices.is_empty() || chunk.error.is_some() => {
                self.handle_chunk(chunk)?;
                self.end();
                Ok(self.events.pop_front())
            }
            Ok(_) | Err(_) => {
                let kind = self.response.headers().get(CONTENT_TYPE);
                let kind = kind.and_then(|value| value.to_str().ok()).unwrap_or("no content type");
                let text = error_body::message(&body).unwrap_or_default();
                let message = Some(format!("{kind}: {text}"));
                let kind = "got an invalid response from its model's endpoint";
                Err(Failure { message, ..Failure::new(kind) })
            }
        }
    }

    /// Ends the answer.
    fn end(&mut self) {
        self.events.push_back(AnswerEvent::End(std::mem::take(&mut self.finish)));
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut events = Vec::new();
        self.parser.push(bytes, &mut events).map_err(|_| too_large(EVENT))?;
        for event in events {
            let data = event.data.trim();
            if data == "[DONE]" {
                self.end();
                return Ok(());
            }
            if data.is_empty() {
                continue;
            }
            let json = replace_unpaired_surrogates(data.as_bytes());
            let chunk = serde_json::from_slice(&json).map_err(|_| {
                let kind = "got an event from its model that cannot be read";
                Failure { message: error_body::message(data), ..Failure::new(kind) }
            })?;
            self.handle_chunk(chunk)?;
        }
        Ok(())
    }

    fn handle_chunk(&mut self, chunk: CompletionChunk) -> Result<(), Failure> {
        if let Some(error) = chunk.error.filter(|error| !error.is_null()) {
            let message = error_body::message_in(&error);
            return Err(Failure { message, ..Failure::new("got an error from its model") });
        }
        self.finish.usage = chunk.usage.or(self.finish.usage.take());
        for choice in chunk.choices.into_iter().filter(|choice| choice.index == 0) {
            let before = self.events.len();
            if let Some(delta) = choice.delta {
                let text = delta.content.filter(|text| !text.is_empty()).map(AnswerEvent::Text);
                let refused =
                    delta.refusal.filter(|text| !text.is_empty()).map(AnswerEvent::Refusal);
                self.events.extend(text.into_iter().chain(refused));
            }
            // Some endpoints send an empty reason with every chunk, and some send text after a valid one.
            let reason = choice.finish_reason.filter(|reason| !reason.is_empty());
            if self.events.len() > before {
                self.ends = None;
            }
            self.finish.reason = reason.or(self.finish.reason.take());
        }
        Ok(())
    }
}

fn broke_off() -> Failure {
    Failure::new("got an answer from its model that broke off")
}

fn too_large(most: usize) -> Failure {
    Failure::new(format!("got an event of more than {most} bytes from its model"))
}

fn broken(kind: &str, fault: reqwest::Error) -> Failure {
    // The error is shown without its URL, which may contain a secret.
    let message = Some(causes(&fault.without_url()));
    Failure { message, ..Failure::new(kind) }
}

/// Reads a body up to a limit; `None` if it ended early.
async fn body(response: &mut Response, most: usize) -> Result<Option<String>, Failure> {
    let mut body = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(piece)) if body.len() + piece.len() > most => return Err(too_large(most)),
            Ok(Some(piece)) => body.extend_from_slice(&piece),
            Ok(None) => return Ok(Some(String::from_utf8_lossy(&body).into_owned())),
            Err(fault) => {
                let fault = causes(&fault.without_url());
                tracing::debug!(fault, "the answer of an endpoint broke off");
                return Ok(None);
            }
        }
    }
}

/// The text of an error with its causes: the first one does not say why a connection failed.
fn causes(fault: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(fault), |fault| fault.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("timeouts", &self.timeouts).finish_non_exhaustive()
    }
}

impl fmt::Display for EndpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url => {
                f.write_str("must look like https://api.example.com/v1, without credentials in it")
            }
            Self::Key => f.write_str("contains characters that a header cannot have"),
            Self::Tls(cause) => write!(f, "cannot be connected to: {cause}"),
        }
    }
}

impl std::error::Error for EndpointError {}
