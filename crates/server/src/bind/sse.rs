//! Streams as server-sent events. The reader is pulled by the connection: there is no task and no
//! channel between the log and the socket, so a slow peer slows only its own reader.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use herald_engine::{Item, Subscription, store::Owner};
use herald_protocol::{Dialect, Error, TaskId, jsonrpc::RequestId, sse};
use http::{HeaderValue, Response, StatusCode, header};
use tokio::time::{Instant, Sleep, sleep};
use tracing::Span;
use uuid::Uuid;

use crate::{
    bind::{cursor, respond, translate::Translator},
    body::Body,
    limits::Slot,
};

/// Events that are ready at the same time go out together, up to about so many bytes.
const BATCH: usize = 8 << 10;

/// How an event looks on its binding.
#[derive(Debug)]
pub(crate) struct Framing {
    pub(crate) dialect: Dialect,
    /// The call each event answers; `None` on REST.
    pub(crate) call: Option<RequestId>,
    /// Names the request to its caller if something goes wrong.
    pub(crate) id: Uuid,
}

/// The events of one stream, as bytes.
pub(crate) struct Events {
    reader: Pin<Box<dyn Future<Output = ()> + Send>>,
    out: Out,
    /// Whether the reader has come to the end.
    over: bool,
    beat: Pin<Box<Sleep>>,
    every: Duration,
    last: Instant,
    opened: Instant,
    span: Span,
    _slot: Option<Slot<Owner>>,
}

/// What the reader has written and the connection has not taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Out(Arc<Mutex<Vec<u8>>>);

/// The response that carries the stream of one task.
pub(crate) fn response(
    events: Subscription,
    framing: Framing,
    every: Duration,
    slot: Option<Slot<Owner>>,
) -> Response<Body> {
    carry(|out| follow(events, framing, out), every, slot)
}

/// The response that carries what `read` writes until it ends.
pub(crate) fn carry<F>(
    read: impl FnOnce(Out) -> F,
    every: Duration,
    slot: Option<Slot<Owner>>,
) -> Response<Body>
where
    F: Future<Output = ()> + Send + 'static,
{
    let out = Out::default();
    let reader = Box::pin(read(out.clone()));
    let mut response = Response::new(Body::events(Events::new(reader, out, every, slot)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A stream that holds nothing but an error.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> Response<Body> {
    let mut out = Vec::new();
    sse::frame(&mut out, None, None, body);
    let mut response = respond(status, "text/event-stream", out);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

impl Events {
    fn new(
        reader: Pin<Box<dyn Future<Output = ()> + Send>>,
        out: Out,
        every: Duration,
        slot: Option<Slot<Owner>>,
    ) -> Self {
        let now = Instant::now();
        Self {
            reader,
            out,
            over: false,
            beat: Box::pin(sleep(every)),
            every,
            last: now,
            opened: now,
            span: Span::current(),
            _slot: slot,
        }
    }

    /// The next bytes, or `None` at the end.
    pub(crate) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let _inside = self.span.enter();
        if !self.over {
            self.over = self.reader.as_mut().poll(cx).is_ready();
        }
        let bytes = std::mem::take(&mut *self.out.lock());
        if !bytes.is_empty() {
            self.last = Instant::now();
            return Poll::Ready(Some(bytes.into()));
        }
        if self.over {
            return Poll::Ready(None);
        }
        loop {
            ready!(self.beat.as_mut().poll(cx));
            // The timer is only wound up again when it goes off, not with every event.
            let due = self.last + self.every;
            let now = Instant::now();
            if due <= now {
                self.last = now;
                self.beat.as_mut().reset(now + self.every);
                return Poll::Ready(Some(Bytes::from_static(sse::KEEP_ALIVE)));
            }
            self.beat.as_mut().reset(due);
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over && self.out.lock().is_empty()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        let _inside = self.span.enter();
        tracing::debug!(elapsed = ?self.opened.elapsed(), whole = self.over, "stream closed");
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").field("over", &self.over).finish_non_exhaustive()
    }
}

impl Out {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }

    /// Waits until there is room. Nobody wakes the reader for it: whoever takes the bytes polls it
    /// next.
    pub(crate) async fn room(&self) {
        poll_fn(|_| if self.lock().len() < BATCH { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}

/// Writes events until there are no more.
async fn follow(mut events: Subscription, framing: Framing, out: Out) {
    let prefix = cursor::prefix(events.task_id());
    let mut translator = match Translator::new(framing.dialect, &events).await {
        Ok(translator) => translator,
        Err(error) => return framing.failure(&mut out.lock(), events.task_id(), error),
    };
    loop {
        let framed = match events.next().await {
            Ok(Some(item)) => framing.item(&mut out.lock(), &mut translator, &prefix, &item),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = framed {
            framing.failure(&mut out.lock(), events.task_id(), error);
            return;
        }
        out.room().await;
    }
}

impl Framing {
    fn item(
        &self,
        out: &mut Vec<u8>,
        translator: &mut Translator,
        prefix: &str,
        item: &Item,
    ) -> Result<(), Error> {
        let id = format!("{prefix}{}", item.seq);
        let items = translator.items(item)?;
        // Who has seen the id has seen the whole event.
        let last = items.len().saturating_sub(1);
        for (index, (name, body)) in items.iter().enumerate() {
            let id = Some(id.as_str()).filter(|_| index == last);
            self.frame(out, id, *name, body);
        }
        Ok(())
    }

    fn frame(&self, out: &mut Vec<u8>, id: Option<&str>, name: Option<&str>, body: &[u8]) {
        match &self.call {
            Some(call) => sse::frame(out, id, name, &herald_protocol::jsonrpc::result(call, body)),
            None => sse::frame(out, id, name, body),
        }
    }

    /// The last event of a stream that broke. It has no id, so that a client resumes after the last
    /// real one.
    fn failure(&self, out: &mut Vec<u8>, task: &TaskId, error: Error) {
        tracing::warn!(%task, %error, "a stream broke off");
        let error = error.with("requestId", self.id);
        let body = match &self.call {
            Some(call) => self.dialect.encode_error(call, &error),
            None => self.dialect.encode_status(&error),
        };
        sse::frame(out, None, Some("error"), &body);
    }
}
