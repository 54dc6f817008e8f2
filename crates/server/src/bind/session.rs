//! A JSON-RPC session: a connection that lasts, with calls that come one after the other and are
//! answered as they are done. WebSocket and standard input differ only in how they frame messages.
//!
//! Nothing is dropped for a peer that does not keep up. What waits to be written is bounded; a
//! stream takes the next event from the log only once the last one has a place there, and nothing is
//! read while too many calls wait for others to be answered.

use std::{
    borrow::Cow,
    collections::{HashMap, hash_map},
    sync::{Arc, Mutex, MutexGuard},
};

use bytes::Bytes;
use herald_engine::budget::{BYTES_PER_REQUEST_BYTE, Payer, Quota, Reservation};
use herald_protocol::{
    AgentName, Error, ErrorKind, MissingVersion,
    dialect::EntryPoint,
    jsonrpc::{self, RequestId},
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
        Binding, Exchange, IDEMPOTENCY_KEY,
        call::EncodedReply,
        frames::{Frame, FrameStream, FrameWriter},
        jsonrpc::{JsonRpcFailure, decode},
        query,
    },
    guard::Ingress,
    server::Server,
    trace,
};

/// Bytes and messages that may wait to be written. A message that is larger waits alone.
const WAITING_BYTES: usize = 64 << 10;
const WAITING_MESSAGES: usize = 32;

/// Calls that may wait for their turn, if they are small. All together they have as many bytes as one
/// message may have.
const QUEUE_CALLS: usize = 256;

/// Servers of 0.1 had these connections, so the methods it shares with 0.3 are its own here.
const ENTRY: EntryPoint = EntryPoint::V01;

const LAST_EVENT_ID: &str = "last-event-id";

/// What one call may say about itself beside its parameters, and over HTTP says in headers.
const PARAMETERS: [&str; 7] = [
    VERSION_HEADER,
    EXTENSIONS_HEADER,
    LEGACY_EXTENSIONS_HEADER,
    "idempotency-key",
    LAST_EVENT_ID,
    "traceparent",
    "tracestate",
];

/// The calls of one session. Dropping it gives all of them up; their tasks go on.
#[derive(Debug)]
pub(crate) struct Session {
    talk: Arc<SessionState>,
    calls: JoinSet<()>,
}

/// What there is to write.
#[derive(Debug)]
pub(crate) struct SessionOutput {
    messages: mpsc::Receiver<OutputMessage>,
    open: Arc<Mutex<OpenCalls>>,
}

/// A message that counts against the buffer until it is written.
#[derive(Debug)]
pub(crate) struct OutputMessage {
    pub(crate) text: Bytes,
    _buffered: OwnedSemaphorePermit,
    /// The reservation of its memory, if it is a large event.
    _reservation: Option<Reservation>,
}

/// What all calls of a session have in common.
#[derive(Debug)]
struct SessionState {
    server: Server,
    /// What the connection began with: who is calling, and in which version.
    parts: Parts,
    agent: Option<AgentName>,
    binding: Binding,
    ingress: Ingress,
    /// How many calls may be under way, streams apart: those are counted by caller.
    calls: Arc<Semaphore>,
    /// How many bytes of calls may wait for that.
    queue: Arc<Semaphore>,
    /// What the smallest of them counts as.
    least: usize,
    open: Arc<Mutex<OpenCalls>>,
    messages: mpsc::Sender<OutputMessage>,
    buffer: Arc<Semaphore>,
    /// What calls may take up until they are stored.
    uploads: Arc<Quota>,
}

/// The calls that have not been answered.
#[derive(Debug)]
struct OpenCalls {
    calls: HashMap<RequestId, CancellationToken>,
    /// Since when it was so.
    since: Instant,
}

/// A call as it was read.
#[derive(Debug)]
struct SessionCall {
    /// `None` if it is not to be answered.
    id: Option<RequestId>,
    method: String,
    params: Option<Bytes>,
    parameters: Option<Box<RawValue>>,
    /// Bytes of the message.
    size: usize,
}

impl Session {
    /// A session that began with this request, at this agent's endpoint.
    pub(crate) fn new(
        server: Server,
        parts: Parts,
        agent: Option<AgentName>,
        binding: Binding,
        ingress: Ingress,
    ) -> (Self, SessionOutput) {
        let (messages, waiting) = mpsc::channel(WAITING_MESSAGES);
        let at_once = server.shared.config.limits.requests_per_connection as usize;
        let open = OpenCalls { calls: HashMap::new(), since: Instant::now() };
        let open = Arc::new(Mutex::new(open));
        let least = server.shared.config.limits.body.min(u32::MAX as usize) / QUEUE_CALLS;
        let least = least.max(1);
        let uploads = Payer::Connection(ingress.connection());
        let uploads = server.shared.engine.requests().quota(uploads);
        let talk = SessionState {
            server,
            parts: lasting(parts),
            agent,
            binding,
            ingress,
            calls: Arc::new(Semaphore::new(at_once.min(Semaphore::MAX_PERMITS))),
            queue: Arc::new(Semaphore::new(least * QUEUE_CALLS)),
            least,
            open: Arc::clone(&open),
            messages,
            buffer: Arc::new(Semaphore::new(WAITING_BYTES)),
            uploads,
        };
        let session = Self { talk: Arc::new(talk), calls: JoinSet::new() };
        (session, SessionOutput { messages: waiting, open })
    }

    /// Takes one message. A call waits for its turn while too many are under way; only when too
    /// many wait already is there nothing more to be taken, and until then a call can be given up.
    pub(crate) async fn take(&mut self, text: Bytes) {
        while self.calls.try_join_next().is_some() {}
        let call = match jsonrpc::parse(&text) {
            Ok(call) => call,
            Err((id, error)) => return self.talk.refuse(&id, error).await,
        };
        if call.method == jsonrpc::CANCEL_REQUEST {
            return self.talk.cancel(&call).await;
        }
        let asked = SessionCall {
            id: (!call.is_notification).then_some(call.id),
            method: call.method.into_owned(),
            params: call.params.map(|params| text.slice_ref(params.get().as_bytes())),
            parameters: call.service_parameters.map(ToOwned::to_owned),
            size: text.len(),
        };
        let given_up = CancellationToken::new();
        if let Some(id) = &asked.id
            && !self.talk.begin(id, &given_up)
        {
            // Not to that id: it would look like the answer to the call that has it.
            let text = format!("the id {} belongs to a call that is under way", id.as_json());
            let error = Error::new(ErrorKind::InvalidRequest, text);
            return self.talk.refuse(&RequestId::null(), error).await;
        }
        let queued = self.talk.queue(text.len()).await;
        self.calls.spawn(Arc::clone(&self.talk).answer(asked, queued, given_up));
    }

    /// Answers a message that could not even be read.
    pub(crate) async fn refuse(&self, error: Error) {
        self.talk.refuse(&RequestId::null(), error).await;
    }

    /// Waits until every call is answered.
    pub(crate) async fn finish(&mut self) {
        while self.calls.join_next().await.is_some() {}
    }
}

impl SessionOutput {
    /// The next message, or `None` once the session is gone.
    pub(crate) async fn next(&mut self) -> Option<OutputMessage> {
        self.messages.recv().await
    }

    /// The next message, if it is there.
    pub(crate) fn next_now(&mut self) -> Option<OutputMessage> {
        self.messages.try_recv().ok()
    }

    /// Since when no call has been under way, if none is.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let open = lock(&self.open);
        open.calls.is_empty().then_some(open.since)
    }
}

impl SessionState {
    async fn answer(
        self: Arc<Self>,
        asked: SessionCall,
        queued: OwnedSemaphorePermit,
        given_up: CancellationToken,
    ) {
        let request = Uuid::new_v4();
        let span = self.server.span(&self.parts, &request.to_string());
        let id = asked.id.clone();
        let answered = async {
            let turn = Arc::clone(&self.calls).acquire_owned().await;
            let turn = turn.expect("the semaphore is never closed");
            let size = asked.size.saturating_mul(BYTES_PER_REQUEST_BYTE);
            let reservation = self.uploads.reserve(size).await;
            drop(queued);
            // Boxed, so that its memory is returned before a stream begins.
            let replied = Box::pin(self.call(asked, Some(reservation), request)).await;
            let Some(id) = &id else { return };
            match replied {
                Ok(EncodedReply::Whole(body)) => self.end(id, body).await,
                Ok(EncodedReply::Stream(events, dialect, _permit)) => {
                    drop(turn);
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
        let answered = given_up.run_until_cancelled(answered.instrument(span)).await;
        if let (None, Some(id)) = (answered, &id) {
            self.end(id, jsonrpc::cancelled(id)).await;
        }
    }

    fn exchange<'a>(&'a self, parts: &'a Parts, id: Uuid) -> Exchange<'a> {
        let (shared, agent) = (&self.server.shared, self.agent.clone());
        Exchange::new(shared, parts, agent, self.binding, id, self.ingress)
    }

    /// Passes a call to the engine. The error is the encoded response.
    async fn call(
        &self,
        asked: SessionCall,
        reservation: Option<Reservation>,
        request: Uuid,
    ) -> Result<EncodedReply, Vec<u8>> {
        let parts = self.parts_of(asked.parameters.as_deref());
        let mut exchange = self.exchange(parts.as_deref().unwrap_or(&self.parts), request);
        exchange.join(trace::of(&exchange.parts.headers));
        let id = asked.id.unwrap_or_else(RequestId::null);
        let replied = async {
            let _ = parts.as_ref().map_err(Error::clone)?;
            // With every call, because credentials can be withdrawn between two calls.
            let caller = exchange.caller(None).await?;
            // The name of the method is enough to tell the version.
            let (policy, params) = (MissingVersion::Lenient, asked.params.as_deref());
            let (dialect, request) = decode(&exchange, ENTRY, policy, &asked.method, params)?;
            drop(asked.params);
            let operation = request.operation();
            let reply = exchange.call(&caller, dialect, request, reservation).await;
            reply
                .and_then(|reply| reply.encode(Some(&id), || exchange.response_quota(&caller)))
                .map_err(|error| JsonRpcFailure::of(dialect, operation, error))
        };
        let replied: Result<_, JsonRpcFailure> = replied.await;
        replied.map_err(|failure| failure.encode(&exchange, ENTRY, &id).0)
    }

    async fn refuse(&self, id: &RequestId, error: Error) {
        let exchange = self.exchange(&self.parts, Uuid::new_v4());
        self.send(JsonRpcFailure::from(error).encode(&exchange, ENTRY, id).0).await;
    }

    /// Gives up the call that is named, if it is still under way.
    async fn cancel(&self, call: &jsonrpc::JsonRpcCall<'_>) {
        match jsonrpc::read_cancel(call.params) {
            Ok(id) => {
                if let Some(given_up) = lock(&self.open).calls.get(&id) {
                    given_up.cancel();
                }
                if !call.is_notification {
                    self.send(jsonrpc::result(&call.id, b"null")).await;
                }
            }
            Err(error) if !call.is_notification => self.refuse(&call.id, error).await,
            Err(error) => tracing::debug!(%error, "a cancellation names no call"),
        }
    }

    /// Waits until a call of so many bytes may wait for its turn.
    async fn queue(&self, bytes: usize) -> OwnedSemaphorePermit {
        let most = self.least * QUEUE_CALLS;
        let size = u32::try_from(bytes.clamp(self.least, most)).unwrap_or(u32::MAX);
        let queued = Arc::clone(&self.queue).acquire_many_owned(size).await;
        queued.expect("the semaphore is never closed")
    }

    /// Notes a call, unless its id is taken.
    fn begin(&self, id: &RequestId, given_up: &CancellationToken) -> bool {
        let mut open = lock(&self.open);
        match open.calls.entry(id.clone()) {
            hash_map::Entry::Occupied(_) => false,
            hash_map::Entry::Vacant(free) => {
                free.insert(given_up.clone());
                true
            }
        }
    }

    /// Frees the id of a call. Before its last message goes out: the peer may use it again at once.
    fn done(&self, id: &RequestId) {
        let mut open = lock(&self.open);
        open.calls.remove(id);
        open.since = Instant::now();
    }

    /// The last message of a call.
    async fn end(&self, id: &RequestId, text: impl Into<Bytes>) {
        self.done(id);
        self.send(text).await;
    }

    async fn send(&self, text: impl Into<Bytes>) {
        self.put(text, None).await;
    }

    /// Waits until a message can be written soon.
    async fn put(&self, text: impl Into<Bytes>, reservation: Option<Reservation>) {
        let text = text.into();
        let size = u32::try_from(text.len().min(WAITING_BYTES)).unwrap_or(u32::MAX);
        let buffered = Arc::clone(&self.buffer).acquire_many_owned(size).await;
        let buffered = buffered.expect("the semaphore is never closed");
        // Nobody writes any more: the connection has ended, and this call with it.
        let _ = self
            .messages
            .send(OutputMessage { text, _buffered: buffered, _reservation: reservation })
            .await;
    }

    /// The headers of one call: those of the session, and over them what the call says itself.
    fn parts_of(&self, parameters: Option<&RawValue>) -> Result<Cow<'_, Parts>, Error> {
        let Some(parameters) = parameters else { return Ok(Cow::Borrowed(&self.parts)) };
        let refuse = |text: &str| Error::field("serviceParameters", text);
        let mut parts = self.parts.clone();
        for (name, value) in jsonrpc::read_service_parameters(parameters)? {
            if name.eq_ignore_ascii_case(header::AUTHORIZATION.as_str()) {
                return Err(refuse("cannot carry credentials: the connection has its own"));
            }
            // Others may mean something to somebody else, as unknown headers do.
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
    session: &'a SessionState,
    id: &'a RequestId,
}

impl FrameWriter for SessionWriter<'_> {
    async fn write(&mut self, frame: Frame<'_>) {
        let text = match frame.id {
            Some(event) => jsonrpc::event(self.id, event, frame.body),
            None => jsonrpc::result(self.id, frame.body),
        };
        self.session.put(text, frame.reservation).await;
    }
}

fn lock(open: &Mutex<OpenCalls>) -> MutexGuard<'_, OpenCalls> {
    open.lock().expect("nothing panics while it holds this lock")
}

/// What holds for every call of a session: not what is said about one, such as where it goes on.
fn lasting(mut parts: Parts) -> Parts {
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
