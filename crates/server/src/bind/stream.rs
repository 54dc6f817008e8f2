//! Event stream as a response body. A reader writes into a buffer, the connection drains it.
//!
//! Nothing is queued: when the connection has taken what the reader wrote, the reader goes on. A
//! slow reader therefore slows only itself.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use herald_engine::{budget::Reservation, store::Owner};
use http::HeaderMap;
use http_body::Frame;
use tokio::time::{Instant, Sleep, sleep};
use tracing::Span;

use crate::limits::{self, KeyedPermit, Pieces};

/// Events that are ready at the same time go out together, up to about so many bytes.
const BATCH: usize = 8 << 10;

/// The events of one stream, as bytes.
pub(crate) struct Events {
    reader: Pin<Box<dyn Future<Output = Option<HeaderMap>> + Send>>,
    out: Out,
    /// What was taken from there and is on its way.
    sending: Pieces,
    /// Whether the reader has come to the end.
    over: bool,
    /// What follows the last event.
    trailers: Option<HeaderMap>,
    beat: Option<Beat>,
    opened: Instant,
    span: Span,
    _permit: Option<KeyedPermit<Owner>>,
}

/// What the reader has written and the connection has not taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Out(Arc<Written>);

#[derive(Debug, Default)]
struct Written {
    bytes: Mutex<Vec<u8>>,
    /// The reservation of the last item, if that is large.
    reservation: Mutex<Option<Reservation>>,
}

/// A sign of life for a peer that would otherwise hear nothing.
#[derive(Debug)]
struct Beat {
    sign: &'static [u8],
    every: Duration,
    timer: Pin<Box<Sleep>>,
    last: Instant,
}

impl Events {
    /// What `read` writes, until it ends. What it returns follows as trailers.
    pub(crate) fn new<F>(read: impl FnOnce(Out) -> F, permit: Option<KeyedPermit<Owner>>) -> Self
    where
        F: Future<Output = Option<HeaderMap>> + Send + 'static,
    {
        let out = Out::default();
        Self {
            reader: Box::pin(read(out.clone())),
            out,
            sending: Pieces::default(),
            over: false,
            trailers: None,
            beat: None,
            opened: Instant::now(),
            span: Span::current(),
            _permit: permit,
        }
    }

    /// Sends `sign` whenever nothing else was sent for so long.
    pub(crate) fn beating(mut self, sign: &'static [u8], every: Duration) -> Self {
        let (timer, last) = (Box::pin(sleep(every)), Instant::now());
        self.beat = Some(Beat { sign, every, timer, last });
        self
    }

    /// The next piece, or `None` at the end.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        if let Some(piece) = self.sending.next() {
            return Poll::Ready(Some(Frame::data(piece)));
        }
        let _inside = self.span.enter();
        if !self.over
            && let Poll::Ready(trailers) = self.reader.as_mut().poll(cx)
        {
            self.over = true;
            self.trailers = trailers;
        }
        self.sending = Pieces::new(self.out.take());
        if let Some(piece) = self.sending.next() {
            if let Some(beat) = &mut self.beat {
                beat.last = Instant::now();
            }
            return Poll::Ready(Some(Frame::data(piece)));
        }
        if self.over {
            return Poll::Ready(self.trailers.take().map(Frame::trailers));
        }
        match &mut self.beat {
            Some(beat) => beat.poll(cx).map(|sign| Some(Frame::data(sign))),
            None => Poll::Pending,
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        let taken = self.sending.len() == 0 && self.out.lock().is_empty();
        self.over && self.trailers.is_none() && taken
    }
}

impl Beat {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            std::task::ready!(self.timer.as_mut().poll(cx));
            // The timer is only wound up again when it goes off, not with every event.
            let due = self.last + self.every;
            let now = Instant::now();
            if due <= now {
                self.last = now;
                self.timer.as_mut().reset(now + self.every);
                return Poll::Ready(Bytes::from_static(self.sign));
            }
            self.timer.as_mut().reset(due);
        }
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
        self.0.bytes.lock().expect("nothing panics while it holds this lock")
    }

    fn reservation(&self) -> MutexGuard<'_, Option<Reservation>> {
        self.0.reservation.lock().expect("nothing panics while it holds this lock")
    }

    /// What was written since.
    fn take(&self) -> Bytes {
        let bytes = Bytes::from(std::mem::take(&mut *self.lock()));
        match self.reservation().take() {
            Some(reservation) => limits::held(bytes, reservation),
            None => bytes,
        }
    }

    /// Attaches a reservation to the written bytes and waits until the buffer takes more. Nothing wakes
    /// the reader for that: the connection polls it after taking the bytes.
    pub(crate) async fn ready(&self, reservation: Option<Reservation>) {
        if reservation.is_some() {
            *self.reservation() = reservation;
        }
        poll_fn(|_| if self.lock().len() < BATCH { Poll::Ready(()) } else { Poll::Pending }).await;
    }
}
