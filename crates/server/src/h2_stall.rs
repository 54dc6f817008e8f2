//! Stall timeout of HTTP/2 responses.
//!
//! [`crate::socket`] closes a connection whose peer reads nothing. On HTTP/2 a peer can also keep the
//! flow-control window of one request closed while the rest of the connection works; hyper waits for
//! that without a timeout and does not poll the body meanwhile. So the task that runs a request has a
//! timer of its own.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    task::Poll,
    time::Duration,
};

use herald_protocol::locks::lock;
use tokio::time::{Instant, Sleep, sleep_until};

tokio::task_local! {
    /// The timer of the request that this task runs. A task local, because the task and the body of
    /// its response share nothing else.
    static CURRENT: StallTimer;
}

/// The time of the last piece of a response that was offered and not yet read, if there is one.
#[derive(Debug, Clone, Default)]
pub(crate) struct StallTimer(Arc<Mutex<Option<Instant>>>);

impl StallTimer {
    /// The timer of the request that this task runs; `None` on HTTP/1.
    pub(crate) fn current() -> Option<Self> {
        CURRENT.try_with(Self::clone).ok()
    }

    /// Starts the timer: a piece of the response is ready for the peer.
    pub(crate) fn offered(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// Stops the timer: the peer has read everything so far.
    pub(crate) fn idle(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        lock(&self.0)
    }
}

/// Runs a request to its end. A request whose peer reads nothing of the response for `stall_timeout` is
/// dropped, which resets its stream.
pub(crate) async fn run(request: impl Future, stall_timeout: Duration) {
    let stall_timer = StallTimer::default();
    let mut request = pin!(CURRENT.scope(stall_timer.clone(), request));
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let finished = poll_fn(|cx| {
        if request.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let Some(since) = *stall_timer.lock() else { return Poll::Pending };
        let due = since + stall_timeout;
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        timer.as_mut().poll(cx).map(|()| false)
    });
    if !finished.await {
        tracing::debug!(
            "a response was dropped: its peer read nothing of it until the stall timeout"
        );
    }
}
