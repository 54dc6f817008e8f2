//! Event stream as a response body. A reader writes frames into a buffer, the connection drains it.
//!
//! The reader goes on when the connection has taken the buffer, so a slow peer slows only its own
//! reader, and no queue grows.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use herald_engine::budget::Reservation;
use herald_protocol::locks::lock;
use http::HeaderMap;
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep};
use tracing::Span;

use crate::{
    caller_limits::StreamPermit,
    limits::{self, Pieces},
};

/// Frames that are ready at the same time are sent together, up to about so many bytes.
const BATCH: usize = 8 << 10;

/// The body of a streaming response.
pub(crate) struct EventBody {
    reader: Pin<Box<dyn Future<Output = Option<HeaderMap>> + Send>>,
    buffer: FrameBuffer,
    /// Bytes that were taken from the buffer and are not sent yet.
    sending: Pieces,
    /// True once the reader has ended.
    ended: bool,
    /// Trailers after the last frame.
    trailers: Option<HeaderMap>,
    keep_alive: Option<KeepAlive>,
    opened: Instant,
    span: Span,
    _permit: Option<StreamPermit>,
}

/// Frames that the reader has written and the connection has not taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct FrameBuffer(Arc<Mutex<BufferedFrames>>);

#[derive(Debug, Default)]
pub(crate) struct BufferedFrames {
    pub(crate) bytes: Vec<u8>,
    /// The reservation of the last event, if that is large.
    reservation: Option<Reservation>,
}

/// Keep-alive bytes for a stream without events, so that no proxy closes the connection.
#[derive(Debug)]
struct KeepAlive {
    bytes: &'static [u8],
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    last: Instant,
}

impl EventBody {
    /// The frames that `read` writes until it ends. The trailers that it returns follow them.
    pub(crate) fn new<F>(read: impl FnOnce(FrameBuffer) -> F, permit: Option<StreamPermit>) -> Self
    where
        F: Future<Output = Option<HeaderMap>> + Send + 'static,
    {
        let buffer = FrameBuffer::default();
        Self {
            reader: Box::pin(read(buffer.clone())),
            buffer,
            sending: Pieces::default(),
            ended: false,
            trailers: None,
            keep_alive: None,
            opened: Instant::now(),
            span: Span::current(),
            _permit: permit,
        }
    }

    /// Sends `bytes` after each `interval` without a frame.
    pub(crate) fn with_keep_alive(mut self, bytes: &'static [u8], interval: Duration) -> Self {
        let (timer, last) = (Box::pin(sleep(interval)), Instant::now());
        self.keep_alive = Some(KeepAlive { bytes, interval, timer, last });
        self
    }

    /// The next piece, or `None` at the end.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Some(piece) = self.sending.next() {
            return Poll::Ready(Some(Frame::data(piece)));
        }
        let _entered = self.span.enter();
        if !self.ended
            && let Poll::Ready(trailers) = self.reader.as_mut().poll(cx)
        {
            self.ended = true;
            self.trailers = trailers;
        }
        self.sending = Pieces::new(self.buffer.take());
        if let Some(piece) = self.sending.next() {
            if let Some(keep_alive) = &mut self.keep_alive {
                keep_alive.last = Instant::now();
            }
            return Poll::Ready(Some(Frame::data(piece)));
        }
        if self.ended {
            return Poll::Ready(self.trailers.take().map(Frame::trailers));
        }
        match &mut self.keep_alive {
            Some(keep_alive) => keep_alive.poll(cx).map(|bytes| Some(Frame::data(bytes))),
            None => Poll::Pending,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        let sent = self.sending.len() == 0 && self.buffer.lock().bytes.is_empty();
        self.ended && self.trailers.is_none() && sent
    }
}

impl KeepAlive {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            std::task::ready!(self.timer.as_mut().poll(cx));
            // The timer is reset when it fires, not with every frame: resets cost more.
            let due = self.last + self.interval;
            let now = Instant::now();
            if due <= now {
                self.last = now;
                self.timer.as_mut().reset(now + self.interval);
                return Poll::Ready(Bytes::from_static(self.bytes));
            }
            self.timer.as_mut().reset(due);
        }
    }
}

impl Drop for EventBody {
    fn drop(&mut self) {
        let _entered = self.span.enter();
        tracing::debug!(elapsed = ?self.opened.elapsed(), whole = self.ended, "stream closed");
    }
}

impl fmt::Debug for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventBody").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl FrameBuffer {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BufferedFrames> {
        lock(&self.0)
    }

    /// Takes the frames that were written since the last call.
    fn take(&self) -> Bytes {
        let BufferedFrames { bytes, reservation } = std::mem::take(&mut *self.lock());
        match reservation {
            Some(reservation) => limits::held(bytes, reservation),
            None => bytes.into(),
        }
    }

    /// Attaches a reservation to the written frames and waits until there is space for more. No waker
    /// is needed: the connection polls the reader after it has taken the frames.
    pub(crate) async fn ready(&self, reservation: Option<Reservation>) {
        if reservation.is_some() {
            self.lock().reservation = reservation;
        }
        poll_fn(|_| if self.lock().bytes.len() < BATCH { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }
}
