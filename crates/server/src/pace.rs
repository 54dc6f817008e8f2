//! Whether the peer of an HTTP/2 request takes its answer.
//!
//! A socket that takes nothing is given up by [`crate::socket`]. On HTTP/2 a peer can also keep the
//! window of one request closed while everything else goes on; hyper waits for that without end, and
//! asks nobody meanwhile. So the task that carries a request looks at the clock itself.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    task::Poll,
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};

tokio::task_local! {
    /// That of the request which the running task carries: the task and the body of its answer have
    /// nothing else in common.
    static CARRIED: Pace;
}

/// Since when a peer has left alone what it was offered of an answer.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pace(Arc<Mutex<Option<Instant>>>);

impl Pace {
    /// That of the request which this task carries; none on HTTP/1.
    pub(crate) fn current() -> Option<Self> {
        CARRIED.try_with(Self::clone).ok()
    }

    /// There is something for the peer to take.
    pub(crate) fn offered(&self) {
        *self.lock() = Some(Instant::now());
    }

    /// It has taken everything there was.
    pub(crate) fn idle(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Instant>> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}

/// Carries a request to its end. One whose peer takes nothing of the answer for so long is dropped,
/// which resets it.
pub(crate) async fn carry(request: impl Future, patience: Duration) {
    let pace = Pace::default();
    let mut request = pin!(CARRIED.scope(pace.clone(), request));
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    let taken = poll_fn(|cx| {
        if request.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        let Some(since) = *pace.lock() else { return Poll::Pending };
        let due = since + patience;
        let timer = timer.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if timer.deadline() != due {
            timer.as_mut().reset(due);
        }
        timer.as_mut().poll(cx).map(|()| false)
    });
    if !taken.await {
        tracing::debug!("an answer is given up: its peer takes nothing of it");
    }
}
