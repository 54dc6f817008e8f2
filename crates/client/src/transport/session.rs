//! Multiplexed JSON-RPC connection: concurrent calls and streams over WebSocket or stdio, which differ
//! only in how they frame messages.
//!
//! The next call replaces a connection that has ended, and its streams resume on the new one. No call waits for
//! another one to be read: a stream that exceeds its buffer is dropped and resumes after the last event that
//! was read.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, mem,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use herald_protocol::{
    Dialect,
    jsonrpc::{self, NoResult, result_of},
    version::{EXTENSIONS_HEADER, LEGACY_EXTENSIONS_HEADER, VERSION_HEADER},
};
use tokio::{sync::mpsc, time::timeout};
use tokio_util::task::TaskTracker;

use super::{Answered, Frame, Frames, HttpEndpoint, Transport, jsonrpc::absent};
use crate::{call::Outgoing, error::Error};

/// Messages that may wait to be written.
const OUTBOX: usize = 32;
/// Messages of one call that may wait to be read; their bytes are limited too.
const INBOX: usize = 1024;
/// Time that the peer has to close the connection.
pub(crate) const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// The headers that are sent with each call.
const PARAMETERS: [&str; 7] = [
    VERSION_HEADER,
    EXTENSIONS_HEADER,
    LEGACY_EXTENSIONS_HEADER,
    "idempotency-key",
    "last-event-id",
    "traceparent",
    "tracestate",
];

/// Reading half of a connection: whole messages.
#[async_trait]
pub(crate) trait MessageReader: Send {
    /// The next message. Cancel safe.
    async fn next(&mut self) -> Result<Bytes, Error>;
}

/// Writing half of a connection: whole messages.
#[async_trait]
pub(crate) trait MessageWriter: Send {
    async fn send(&mut self, message: Bytes) -> Result<(), Error>;

    /// Closes the writing half.
    async fn close(&mut self);
}

/// Opens connections.
#[async_trait]
pub(crate) trait Dial: fmt::Debug + Send + Sync + 'static {
    async fn dial(&self) -> Result<(Box<dyn MessageReader>, Box<dyn MessageWriter>), Error>;
}

/// Transport over a long-lived connection.
#[derive(Debug)]
pub(crate) struct Lasting {
    endpoint: HttpEndpoint,
    dial: Arc<dyn Dial>,
    session: Mutex<Option<Arc<SharedConnection>>>,
    calls: AtomicU64,
}

/// One connection. It is closed when its last user drops it.
#[derive(Debug)]
struct SharedConnection {
    outbox: mpsc::Sender<Bytes>,
    table: Arc<Mutex<CallTable>>,
}

/// The pending calls by id.
#[derive(Debug)]
enum CallTable {
    Open(HashMap<u64, PendingCall>),
    /// The connection has ended, for this reason.
    Over(Error),
}

/// A call whose answer is pending.
#[derive(Debug)]
struct PendingCall {
    inbox: mpsc::Sender<CallMessage>,
    /// Bytes that wait to be read.
    waiting: Arc<AtomicUsize>,
}

/// A message of a call.
#[derive(Debug)]
enum CallMessage {
    Answer { text: Bytes, event_id: Option<String> },
    End,
}

/// The messages that answer a call. Dropping it cancels the call.
struct Answers {
    id: u64,
    dialect: Dialect,
    session: Arc<SharedConnection>,
    inbox: mpsc::Receiver<CallMessage>,
    waiting: Arc<AtomicUsize>,
    /// A message that was peeked at.
    first: Option<CallMessage>,
    over: bool,
}

impl Lasting {
    pub(crate) fn new(endpoint: HttpEndpoint, dial: impl Dial) -> Self {
        let (session, calls) = (Mutex::default(), AtomicU64::new(0));
        Self { endpoint, dial: Arc::new(dial), session, calls }
    }

    /// The current connection, or a new one. It may still be connecting; calls wait for it.
    fn session(&self) -> Arc<SharedConnection> {
        let mut current = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(session) if !session.is_over() => Arc::clone(session),
            _ => {
                let session = self.start();
                *current = Some(Arc::clone(&session));
                session
            }
        }
    }

    fn start(&self) -> Arc<SharedConnection> {
        let (outbox, messages) = mpsc::channel(OUTBOX);
        let table = Arc::new(Mutex::new(CallTable::Open(HashMap::new())));
        let limits = &self.endpoint.http.limits;
        let driver = Driver {
            dial: Arc::clone(&self.dial),
            connect: self.endpoint.http.timeouts.connect,
            limit: limits.event.max(limits.response),
            table: Arc::clone(&table),
        };
        TaskTracker::new().spawn(driver.run(messages));
        Arc::new(SharedConnection { outbox, table })
    }

    /// Retires this connection: new calls get another one, pending ones may finish.
    fn retire(&self, session: &Arc<SharedConnection>) {
        let mut current = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        current.take_if(|current| Arc::ptr_eq(current, session));
    }

    async fn exchange(
        &self,
        session: &Arc<SharedConnection>,
        call: &Outgoing,
    ) -> Result<Answered, Error> {
        let HttpEndpoint { http, dialect, .. } = &self.endpoint;
        let operation = call.request.operation();
        let method = dialect.method(operation).ok_or_else(|| absent(dialect.version()))?;
        let headers = self.endpoint.headers(call)?;
        let parameters: BTreeMap<&str, &str> = PARAMETERS
            .into_iter()
            .filter_map(|name| Some((name, headers.get(name)?.to_str().ok()?)))
            .collect();
        let id = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let params = dialect.encode_request(&self.endpoint.request(call));
        let message = jsonrpc::session_call(id, method, &params, &parameters);
        let mut answers = Arc::clone(session).ask(id, *dialect, message.into()).await?;
        if operation.is_streaming() {
            // A refusal comes at once. After the connect timeout without a message, the server has
            // accepted the call and has no event yet.
            if let Ok(refused) = timeout(http.timeouts.connect, answers.look()).await {
                refused?;
            }
            return Ok(Answered::Frames(Box::new(answers)));
        }
        let CallMessage::Answer { text, .. } = answers.next_message().await? else {
            return Err(Error::invalid("the call ended without an answer"));
        };
        answers.over = true;
        let reply = dialect.decode_reply(operation, answers.result(&text)?);
        reply.map(Box::new).map(Answered::Reply).map_err(|error| Error::unreadable(&error))
    }
}

#[async_trait]
impl Transport for Lasting {
    async fn call(&self, call: &Outgoing) -> Result<Answered, Error> {
        let session = self.session();
        let answer = self.exchange(&session, call).await;
        if answer.as_ref().is_err_and(Error::is_unauthenticated) {
            self.retire(&session);
        }
        answer
    }
}

impl SharedConnection {
    fn table(&self) -> MutexGuard<'_, CallTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_over(&self) -> bool {
        matches!(*self.table(), CallTable::Over(_))
    }

    /// Queues a call for writing.
    async fn ask(
        self: Arc<Self>,
        id: u64,
        dialect: Dialect,
        message: Bytes,
    ) -> Result<Answers, Error> {
        let (sender, inbox) = mpsc::channel(INBOX);
        let waiting = Arc::<AtomicUsize>::default();
        match &mut *self.table() {
            CallTable::Open(calls) => {
                calls.insert(id, PendingCall { inbox: sender, waiting: Arc::clone(&waiting) });
            }
            CallTable::Over(why) => return Err(why.clone()),
        }
        let answers =
            Answers { id, dialect, session: self, inbox, waiting, first: None, over: false };
        match answers.session.outbox.send(message).await {
            Ok(()) => Ok(answers),
            Err(_) => Err(answers.lost()),
        }
    }
}

impl Answers {
    async fn next_message(&mut self) -> Result<CallMessage, Error> {
        if let Some(message) = self.first.take() {
            return Ok(message);
        }
        let Some(message) = self.inbox.recv().await else { return Err(self.lost()) };
        if let CallMessage::Answer { text, .. } = &message {
            self.waiting.fetch_sub(text.len(), Ordering::Relaxed);
        }
        Ok(message)
    }

    /// Waits for the first message, and returns its error if it is a refusal.
    async fn look(&mut self) -> Result<(), Error> {
        let message = self.next_message().await?;
        if let CallMessage::Answer { text, .. } = &message
            && let Err(NoResult::Refused(error)) = result_of(self.dialect, self.id, text)
        {
            self.over = true;
            return Err(Error::refused(error));
        }
        self.first = Some(message);
        Ok(())
    }

    fn result<'a>(&self, text: &'a [u8]) -> Result<&'a [u8], Error> {
        result_of(self.dialect, self.id, text).map_err(|none| match none {
            NoResult::Refused(error) => Error::refused(error),
            NoResult::Malformed(error) => Error::unreadable(&error),
        })
    }

    /// The reason why the connection ended.
    fn lost(&self) -> Error {
        match &*self.session.table() {
            CallTable::Over(why) => why.clone(),
            CallTable::Open(_) => {
                Error::broken("the stream was dropped", "it was not read in time")
            }
        }
    }
}

#[async_trait]
impl Frames for Answers {
    async fn next(&mut self) -> Result<Option<Frame>, Error> {
        if self.over {
            return Ok(None);
        }
        let (text, event_id) = match self.next_message().await? {
            CallMessage::Answer { text, event_id } => (text, event_id),
            CallMessage::End => {
                self.over = true;
                return Ok(None);
            }
        };
        let item = self.result(&text);
        self.over = item.is_err();
        let event = self.dialect.decode_event(item?).map_err(|error| Error::unreadable(&error))?;
        Ok(Some(Frame { cursor: event_id, event }))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        let known = match &mut *self.session.table() {
            CallTable::Open(calls) => calls.remove(&self.id).is_some(),
            CallTable::Over(_) => false,
        };
        if known && !self.over {
            // If the queue is full, the cancel is dropped and the late answer is ignored.
            let _ = self.session.outbox.try_send(jsonrpc::cancel_call(self.id).into());
        }
    }
}

impl fmt::Debug for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answers").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The task that moves the messages of one connection.
struct Driver {
    dial: Arc<dyn Dial>,
    connect: Duration,
    /// Bytes of one call that may wait to be read.
    limit: usize,
    table: Arc<Mutex<CallTable>>,
}

impl Driver {
    /// Runs until the connection ends or its last user drops it.
    async fn run(self, mut messages: mpsc::Receiver<Bytes>) {
        let dialled = timeout(self.connect, self.dial.dial()).await;
        let end = match dialled {
            Ok(Ok((reader, writer))) => self.pass(reader, writer, &mut messages).await,
            // No call has been written yet, so all of them can be repeated safely.
            Ok(Err(error)) if error.is_broken() || error.is_timeout() => Error::connect(error),
            Ok(Err(error)) => error,
            Err(_) => Error::connect(format!("no answer within {:?}", self.connect)),
        };
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        // Dropping the calls wakes their waiters, which read the reason from here.
        drop(mem::replace(&mut *table, CallTable::Over(end)));
    }

    async fn pass(
        &self,
        mut reader: Box<dyn MessageReader>,
        mut writer: Box<dyn MessageWriter>,
        messages: &mut mpsc::Receiver<Bytes>,
    ) -> Error {
        let mut reading = pin!(async {
            loop {
                match reader.next().await {
                    Ok(message) => self.deliver(message),
                    Err(error) => return error,
                }
            }
        });
        let writing = async {
            while let Some(message) = messages.recv().await {
                writer.send(message).await?;
            }
            writer.close().await;
            Ok(())
        };
        let written: Result<(), Error> = tokio::select! {
            end = &mut reading => return end,
            written = writing => written,
        };
        match written {
            Err(error) => error,
            // The last user has dropped the connection. The peer gets time to shut down cleanly.
            Ok(()) => match timeout(CLOSE_TIMEOUT, reading).await {
                Ok(error) => error,
                Err(_) => Error::broken("the connection was closed", "it was no longer used"),
            },
        }
    }

    /// Routes a message to its call.
    fn deliver(&self, message: Bytes) {
        let Some(about) = jsonrpc::incoming(&message) else {
            tracing::debug!(bytes = message.len(), "ignoring a message without a call");
            return;
        };
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let CallTable::Open(calls) = &mut *table else { return };
        let only = calls.keys().next().copied().filter(|_| calls.len() == 1);
        // A message without a readable id can be assigned only if a single call is pending.
        let Some(id) = about.call.or(only) else { return };
        let Some(call) = calls.get(&id) else { return };
        let message = if about.is_end {
            CallMessage::End
        } else {
            let before = call.waiting.fetch_add(message.len(), Ordering::Relaxed);
            if before > 0 && before + message.len() > self.limit {
                calls.remove(&id);
                return;
            }
            CallMessage::Answer { text: message, event_id: about.event_id }
        };
        if call.inbox.try_send(message).is_err() {
            calls.remove(&id);
        }
    }
}
