//! JSON-RPC session: many calls over one long-lived connection, with responses in the order in which they
//! are ready. WebSocket and standard input differ only in how they frame messages.
//!
//! Backpressure instead of dropped messages: the output buffer is bounded, a stream reads its next event
//! only when the last one is in the buffer, and no input is read while too many calls wait.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use herald_engine::budget::{BYTES_PER_REQUEST_BYTE, Payer, Quota, Reservation};
use herald_protocol::{
    AgentName, Error, ErrorKind, MissingVersion,
    dialect::EntryPoint,
    jsonrpc::{self, RequestId},
    locks::lock,
    version::{EXTENSIONS_HEADER, LEGACY_EXTENSIONS_HEADER, VERSION_HEADER},
};
use http::{HeaderName, HeaderValue, Uri, header, request::Parts};
use serde_json::value::RawValue;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    task::JoinSet,
    time::Instant,
};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use uuid::Uuid;

use crate::{
    bind::{
        Exchange, IDEMPOTENCY_KEY,
        call::EncodedReply,
        frames::{FrameStream, FrameWriter, StreamFrame},
        jsonrpc::{JsonRpcFailure, decode},
        query,
    },
    binding::Binding,
    guard::Ingress,
    limits,
    shared::Shared,
    trace,
};

/// Bytes and messages of the output buffer. A message that is larger is buffered alone.
const BUFFER_BYTES: usize = 64 << 10;
const BUFFER_MESSAGES: usize = 32;

/// Calls that may wait for a permit, if they are small. Together they have at most the bytes of one
/// message of the largest size.
const QUEUE_CALLS: usize = 256;

/// Sessions come from 0.1, so methods that 0.1 and 0.3 share are read as 0.1.
const ENTRY: EntryPoint = EntryPoint::V01;

const LAST_EVENT_ID: &str = "last-event-id";

/// Service parameters of a call: the headers that a call over HTTP can have.
const PARAMETERS: [&str; 7] = [
    VERSION_HEADER,
    EXTENSIONS_HEADER,
    LEGACY_EXTENSIONS_HEADER,
    "idempotency-key",
    LAST_EVENT_ID,
    "traceparent",
    "tracestate",
];

/// The calls of one session. Dropping it cancels the calls; their tasks go on.
#[derive(Debug)]
pub(crate) struct Session {
    state: Arc<SessionShared>,
    calls: JoinSet<()>,
}

/// The output of a session.
#[derive(Debug)]
pub(crate) struct SessionOutput {
    messages: mpsc::Receiver<OutputMessage>,
    open: Arc<Mutex<OpenCalls>>,
}

/// A message in the output buffer. It counts against the buffer until it is written.
#[derive(Debug)]
pub(crate) struct OutputMessage {
    pub(crate) text: Bytes,
    _buffered: OwnedSemaphorePermit,
    /// The reservation of a large event.
    _reservation: Option<Reservation>,
}

/// The state that all calls of a session share.
#[derive(Debug)]
struct SessionShared {
    server: Arc<Shared>,
    /// The head of the request that opened the session, with credentials and version.
    parts: Parts,
    agent: Option<AgentName>,
    binding: Binding,
    ingress: Ingress,
    /// Permits of calls in progress. Streams have a limit per caller instead.
    calls: Arc<Semaphore>,
    /// Permits of bytes of calls that wait for a permit.
    queue: Arc<Semaphore>,
    /// The number of bytes that a smaller call counts as.
    min_queued: usize,
    open: Arc<Mutex<OpenCalls>>,
    messages: mpsc::Sender<OutputMessage>,
    buffer: Arc<Semaphore>,
    /// Memory quota of calls until they are stored.
    requests: Arc<Quota>,
    /// Memory quota of responses, and of calls in progress.
    responses: Arc<Quota>,
}

/// The calls without a response.
#[derive(Debug)]
struct OpenCalls {
    calls: HashMap<RequestId, CancellationToken>,
    /// The time of the last change.
    since: Instant,
}

/// A call that was read.
#[derive(Debug)]
struct SessionCall {
    /// `None` for a notification, which has no response.
    id: Option<RequestId>,
    method: String,
    params: Option<Bytes>,
    parameters: Option<Box<RawValue>>,
    /// Size of the message in bytes.
    size: usize,
}

impl Session {
    /// A session that was opened by this request, at this agent's endpoint.
    pub(crate) fn new(
        server: Arc<Shared>,
        parts: Parts,
        agent: Option<AgentName>,
        binding: Binding,
        ingress: Ingress,
        payer: Payer,
    ) -> (Self, SessionOutput) {
        let (messages, waiting) = mpsc::channel(BUFFER_MESSAGES);
        let at_once = server.config.limits.requests_per_connection as usize;
        let open = OpenCalls { calls: HashMap::new(), since: Instant::now() };
        let open = Arc::new(Mutex::new(open));
        let min_queued = server.config.limits.body.min(u32::MAX as usize) / QUEUE_CALLS;
        let min_queued = min_queued.max(1);
        let responses = server.responses.quota(payer.clone());
        let requests = server.engine.requests().quota(payer);
        let state = SessionShared {
            server,
            parts: without_call_headers(parts),
            agent,
            binding,
            ingress,
            calls: Arc::new(Semaphore::new(at_once.min(Semaphore::MAX_PERMITS))),
            queue: Arc::new(Semaphore::new(min_queued * QUEUE_CALLS)),
            min_queued,
            open: Arc::clone(&open),
            messages,
            buffer: Arc::new(Semaphore::new(BUFFER_BYTES)),
            requests,
            responses,
        };
        let session = Self { state: Arc::new(state), calls: JoinSet::new() };
        (session, SessionOutput { messages: waiting, open })
    }

    /// Receives one message. A call waits for a permit while too many are in progress, and can be
    /// cancelled meanwhile. This method itself waits while too many calls wait.
    pub(crate) async fn receive(&mut self, text: Bytes) {
        while self.calls.try_join_next().is_some() {}
        let call = match jsonrpc::parse(&text) {
            Ok(call) => call,
            Err((id, error)) => return self.state.refuse(&id, error).await,
        };
        if call.method == jsonrpc::CANCEL_REQUEST {
            return self.state.cancel(&call).await;
        }
        let call = SessionCall {
            id: (!call.is_notification).then_some(call.id),
            method: call.method.into_owned(),
            params: call.params.map(|params| text.slice_ref(params.get().as_bytes())),
            parameters: call.service_parameters.map(ToOwned::to_owned),
            size: text.len(),
        };
        let memory = self.state.call_memory().await;
        let cancelled = CancellationToken::new();
        if let Some(id) = &call.id
            && !self.state.begin(id, &cancelled)
        {
            // Not to that id: the response would belong to the call in progress.
            let text = format!("the id {} belongs to a call in progress", id.as_json());
            let error = Error::new(ErrorKind::InvalidRequest, text);
            return self.state.refuse(&RequestId::null(), error).await;
        }
        let queued = self.state.queue(text.len()).await;
        let answer = Arc::clone(&self.state).answer(call, queued, cancelled);
        self.calls.spawn(async move {
            let _memory = memory;
            answer.await;
        });
    }

    /// Sends an error for a message that could not be read.
    pub(crate) async fn refuse(&self, error: Error) {
        self.state.refuse(&RequestId::null(), error).await;
    }

    /// Waits until every call has its response.
    pub(crate) async fn finish(&mut self) {
        while self.calls.join_next().await.is_some() {}
    }
}

impl SessionOutput {
    /// The next message, or `None` once the session is gone.
    pub(crate) async fn next(&mut self) -> Option<OutputMessage> {
        self.messages.recv().await
    }

    /// The next message, if there is one now.
    pub(crate) fn next_now(&mut self) -> Option<OutputMessage> {
        self.messages.try_recv().ok()
    }

    /// The time since which no call has been in progress; `None` if one is.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let open = lock(&self.open);
        open.calls.is_empty().then_some(open.since)
    }
}

impl SessionShared {
    async fn answer(
        self: Arc<Self>,
        call: SessionCall,
        queued: OwnedSemaphorePermit,
        cancelled: CancellationToken,
    ) {
        let request = Uuid::new_v4();
        let span = self.server.span(&self.parts, &request.to_string());
        let id = call.id.clone();
        let answered = async {
            let permit = Arc::clone(&self.calls).acquire_owned().await;
            let permit = permit.expect("the semaphore is never closed");
            let size = call.size.saturating_mul(BYTES_PER_REQUEST_BYTE);
            let reservation = self.requests.reserve(size).await;
            drop(queued);
            // Boxed, so that its memory is returned before a stream begins.
            let replied = Box::pin(self.call(call, Some(reservation), request)).await;
            let Some(id) = &id else { return };
            match replied {
                Ok(EncodedReply::Whole(body)) => self.end(id, body).await,
                Ok(EncodedReply::Stream(events, dialect, _permit)) => {
                    drop(permit);
                    let mut frames = FrameStream::of_task(events, dialect, request);
                    match frames.copy(&mut SessionWriter { session: &self, id }).await {
                        Ok(()) if frames.is_over() => self.end(id, jsonrpc::stream_end(id)).await,
                        // The connection is about to end too, and the stream resumes on the next.
                        Ok(()) => self.done(id),
                        Err(error) => self.end(id, dialect.encode_error(id, &error)).await,
                    }
                }
                Err(refusal) => self.end(id, refusal).await,
            }
        };
        let answered = cancelled.run_until_cancelled(answered.instrument(span)).await;
        if let (None, Some(id)) = (answered, &id) {
            self.end(id, jsonrpc::cancelled(id)).await;
        }
    }

    fn exchange<'a>(&'a self, parts: &'a Parts, id: Uuid) -> Exchange<'a> {
        let (shared, agent) = (&self.server, self.agent.clone());
        Exchange::new(shared, parts, agent, self.binding, id, self.ingress)
    }

    /// Passes a call to the engine. The error is the encoded response.
    async fn call(
        &self,
        call: SessionCall,
        reservation: Option<Reservation>,
        request: Uuid,
    ) -> Result<EncodedReply, Vec<u8>> {
        let parts = self.parts_of(call.parameters.as_deref());
        let mut exchange = self.exchange(parts.as_deref().unwrap_or(&self.parts), request);
        exchange.join_trace(trace::of(&exchange.parts.headers).as_ref());
        let id = call.id.unwrap_or_else(RequestId::null);
        let replied = async {
            let _ = parts.as_ref().map_err(Error::clone)?;
            // With every call, because credentials can be withdrawn between two calls.
            let caller = exchange.caller().await?;
            // The name of the method is enough to tell the version.
            let (policy, params) = (MissingVersion::Lenient, call.params.as_deref());
            let (dialect, request) = decode(&exchange, ENTRY, policy, &call.method, params)?;
            drop(call.params);
            let operation = request.operation();
            let reply = exchange.call(&caller, dialect, request, reservation).await;
            reply
                .and_then(|reply| reply.encode(&exchange, &caller, Some(&id)))
                .map_err(|error| JsonRpcFailure::of(dialect, operation, error))
        };
        let replied: Result<_, JsonRpcFailure> = replied.await;
        replied.map_err(|failure| failure.encode(&exchange, ENTRY, &id).0)
    }

    async fn refuse(&self, id: &RequestId, error: Error) {
        let exchange = self.exchange(&self.parts, Uuid::new_v4());
        self.send(JsonRpcFailure::from(error).encode(&exchange, ENTRY, id).0).await;
    }

    /// Cancels the call with the given id, if it is in progress.
    async fn cancel(&self, call: &jsonrpc::JsonRpcCall<'_>) {
        match jsonrpc::read_cancel(call.params) {
            Ok(id) => {
                if let Some(cancelled) = lock(&self.open).calls.get(&id) {
                    cancelled.cancel();
                }
                if !call.is_notification {
                    self.send(jsonrpc::result(&call.id, b"null")).await;
                }
            }
            Err(error) if !call.is_notification => self.refuse(&call.id, error).await,
            Err(error) => tracing::debug!(%error, "a cancel request has no valid id"),
        }
    }

    /// Waits for the memory of a call in progress. Meanwhile no further message is read.
    async fn call_memory(&self) -> Reservation {
        let budget = &self.server.responses;
        match limits::try_reserve_call(budget, || Arc::clone(&self.responses)) {
            Some(memory) => memory,
            None => self.responses.reserve(limits::CALL).await,
        }
    }

    /// Waits for space in the queue for a call of so many bytes.
    async fn queue(&self, bytes: usize) -> OwnedSemaphorePermit {
        let most = self.min_queued * QUEUE_CALLS;
        let size = u32::try_from(bytes.clamp(self.min_queued, most)).unwrap_or(u32::MAX);
        let queued = Arc::clone(&self.queue).acquire_many_owned(size).await;
        queued.expect("the semaphore is never closed")
    }

    /// Registers a call. Returns false if its id is in use.
    fn begin(&self, id: &RequestId, cancelled: &CancellationToken) -> bool {
        let mut open = lock(&self.open);
        match open.calls.entry(id.clone()) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(free) => {
                free.insert(cancelled.clone());
                true
            }
        }
    }

    /// Frees the id of a call. It is called before the last message, because the peer may then use the id
    /// again.
    fn done(&self, id: &RequestId) {
        let mut open = lock(&self.open);
        open.calls.remove(id);
        open.since = Instant::now();
    }

    /// Sends the last message of a call.
    async fn end(&self, id: &RequestId, text: impl Into<Bytes>) {
        self.done(id);
        self.send(text).await;
    }

    async fn send(&self, text: impl Into<Bytes>) {
        self.put(text, None).await;
    }

    /// Waits for space in the output buffer and puts a message there.
    async fn put(&self, text: impl Into<Bytes>, reservation: Option<Reservation>) {
        let text = text.into();
        let size = u32::try_from(text.len().min(BUFFER_BYTES)).unwrap_or(u32::MAX);
        let buffered = Arc::clone(&self.buffer).acquire_many_owned(size).await;
        let buffered = buffered.expect("the semaphore is never closed");
        // An error means that the connection has ended, and this call with it.
        let _ = self
            .messages
            .send(OutputMessage { text, _buffered: buffered, _reservation: reservation })
            .await;
    }

    /// The head of one call: that of the session, overridden by the service parameters of the call.
    fn parts_of(&self, parameters: Option<&RawValue>) -> Result<Cow<'_, Parts>, Error> {
        let Some(parameters) = parameters else { return Ok(Cow::Borrowed(&self.parts)) };
        let refuse = |text: &str| Error::field("serviceParameters", text);
        let mut parts = self.parts.clone();
        for (name, value) in jsonrpc::read_service_parameters(parameters)? {
            if name.eq_ignore_ascii_case(header::AUTHORIZATION.as_str()) {
                return Err(refuse("must not contain credentials; those of the connection apply"));
            }
            // Unknown ones are ignored, like unknown headers.
            let known = PARAMETERS.into_iter().find(|known| name.eq_ignore_ascii_case(known));
            let Some(known) = known else { continue };
            let value = HeaderValue::try_from(value);
            let value = value.map_err(|_| refuse(&format!("{known} must be plain text")))?;
            parts.headers.insert(HeaderName::from_static(known), value);
        }
        Ok(Cow::Owned(parts))
    }
}

/// Writes frames as responses to one call.
struct SessionWriter<'a> {
    session: &'a SessionShared,
    id: &'a RequestId,
}

impl FrameWriter for SessionWriter<'_> {
    async fn write(&mut self, frame: StreamFrame<'_>) {
        let text = match frame.id {
            Some(event) => jsonrpc::event(self.id, event, frame.body),
            None => jsonrpc::result(self.id, frame.body),
        };
        self.session.put(text, frame.reservation).await;
    }
}

/// The head of the request that opened the session, without the headers that belong to one call, such as
/// the cursor of a stream.
fn without_call_headers(mut parts: Parts) -> Parts {
    let version = query(&parts, VERSION_HEADER).map(HeaderValue::try_from);
    if let Some(Ok(version)) = version
        && !parts.headers.contains_key(VERSION_HEADER)
    {
        parts.headers.insert(VERSION_HEADER, version);
    }
    parts.headers.remove(&IDEMPOTENCY_KEY);
    parts.headers.remove(LAST_EVENT_ID);
    parts.uri = Uri::try_from(parts.uri.path()).unwrap_or_default();
    parts
}
