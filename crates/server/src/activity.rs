//! Activity of a connection: requests in progress, the input that it waits for, and signs of a flood.

use std::sync::{Arc, Mutex, MutexGuard};

use herald_engine::budget::Reservation;
use herald_protocol::locks::lock;
use tokio::time::Instant;

use crate::config::Timeouts;

/// Bytes that a peer may send on HTTP/2 beside requests and bodies, such as pings and settings.
const FREE_BYTES: u64 = 64 << 10;
/// The part of them that a peer may send at full speed. The rest is read slowly, so that many connections
/// that send only pings take little time from others.
const FULL_SPEED_BYTES: u64 = 16 << 10;
/// The same for each second of the connection.
const FREE_BYTES_PER_SECOND: u64 = 1 << 10;
/// The same for each request: its headers, and the part of a body that fits the window and is not read.
const FREE_BYTES_PER_REQUEST: u64 = 320 << 10;
/// Bytes that a peer may send for each byte of a body, for small frames.
const BYTES_PER_BODY_BYTE: u64 = 2;
/// Bytes that are sent to a peer for each byte that it may send about them, such as window updates.
const SENT_PER_FREE_BYTE: u64 = 2;
/// Requests that a peer may reset before it has the response, beyond those that it lets finish.
const FREE_RESETS: u64 = 100;

/// Activity of a connection. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionState(Arc<Mutex<Activity>>);

#[derive(Debug)]
struct Activity {
    /// Requests in progress.
    busy: usize,
    /// The expected input while no request is in progress.
    wait: Wait,
    since: Instant,
    /// True if the peer may still be sending a body that was not read to its end.
    unread: bool,
    /// True if the last request was in memory before the response to the one before it was sent.
    pipelined: bool,
    /// The traffic on HTTP/2, where a peer can send much that is no request.
    traffic: Option<Box<Traffic>>,
}

/// Traffic of an HTTP/2 connection.
#[derive(Debug)]
struct Traffic {
    opened: Instant,
    /// Bytes that have arrived.
    received: u64,
    /// Bytes that the requests so far explain.
    explained: u64,
    /// Requests that were reset before their response, less those that were not.
    resets: u64,
}

/// The verdict on bytes that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inflow {
    /// They belong to requests, or are few.
    Ordinary,
    /// There are many beside requests: read on slowly.
    Excessive,
    /// The peer floods the connection: with frames that are no requests, or with requests that it resets.
    Flood,
}

/// The input that a connection without a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The end of the headers, on HTTP/1.
    Head,
    /// The first byte of the next request, on HTTP/1.
    Next,
    /// The first request, on HTTP/2.
    FirstRequest,
    /// A further request, on HTTP/2, which has other traffic between requests.
    Request,
}

/// A request in progress, until its response is sent, and its memory, if that is counted.
#[derive(Debug)]
pub(crate) struct Busy {
    state: ConnectionState,
    _memory: Option<Reservation>,
}

impl ConnectionState {
    /// An HTTP/1 connection that was accepted at this time.
    pub(crate) fn http1(accepted: Instant) -> Self {
        Self::new(Wait::Head, accepted, None)
    }

    /// An HTTP/2 connection that was accepted at this time.
    pub(crate) fn http2(accepted: Instant) -> Self {
        let traffic = Traffic { opened: accepted, received: 0, explained: 0, resets: 0 };
        Self::new(Wait::FirstRequest, accepted, Some(Box::new(traffic)))
    }

    fn new(wait: Wait, since: Instant, traffic: Option<Box<Traffic>>) -> Self {
        let (unread, pipelined) = (false, false);
        Self(Arc::new(Mutex::new(Activity { busy: 0, wait, since, unread, pipelined, traffic })))
    }

    /// Records that a request has arrived.
    pub(crate) fn begin(&self, memory: Option<Reservation>) -> Busy {
        let mut state = self.lock();
        state.busy += 1;
        if let Some(traffic) = &mut state.traffic {
            traffic.explained += FREE_BYTES_PER_REQUEST;
        }
        drop(state);
        Busy { state: self.clone(), _memory: memory }
    }

    /// The expected input and its deadline; `None` while a request is in progress.
    pub(crate) fn deadline(&self, timeouts: &Timeouts) -> Option<(Wait, Instant)> {
        let state = self.lock();
        if state.busy > 0 {
            return None;
        }
        let timeout = match state.wait {
            Wait::Head | Wait::FirstRequest => timeouts.head,
            Wait::Next | Wait::Request => timeouts.idle,
        };
        Some((state.wait, state.since + timeout))
    }

    /// Records that the body of a request was not read to its end.
    pub(crate) fn leave_unread(&self) {
        self.lock().unread = true;
    }

    /// True if the peer may still be sending a body that was not read to its end.
    pub(crate) fn is_unread(&self) -> bool {
        self.lock().unread
    }

    /// Records that a part of a body was read.
    pub(crate) fn body_read(&self, bytes: usize) {
        if let Some(traffic) = &mut self.lock().traffic {
            traffic.explained += bytes as u64 * BYTES_PER_BODY_BYTE;
        }
    }

    /// Records that so many bytes have arrived, after `sent` bytes in all were sent.
    pub(crate) fn received(&self, bytes: usize, sent: u64) -> Inflow {
        let mut state = self.lock();
        if state.busy == 0 && state.wait == Wait::Next {
            state.wait = Wait::Head;
            state.since = Instant::now();
        }
        state.pipelined = false;
        let traffic = state.traffic.as_mut();
        traffic.map_or(Inflow::Ordinary, |traffic| traffic.add(bytes as u64, sent))
    }

    /// True if the request that begins now was in memory together with the one before it. A connection
    /// whose requests are all in memory would otherwise be served to its end before any other.
    pub(crate) fn is_pipelined(&self) -> bool {
        std::mem::replace(&mut self.lock().pipelined, true)
    }

    fn lock(&self) -> MutexGuard<'_, Activity> {
        lock(&self.0)
    }
}

impl Traffic {
    fn add(&mut self, bytes: u64, sent: u64) -> Inflow {
        self.received += bytes;
        if self.resets > FREE_RESETS {
            return Inflow::Flood;
        }
        let explained = self.explained + sent / SENT_PER_FREE_BYTE;
        if self.received <= explained + FULL_SPEED_BYTES {
            return Inflow::Ordinary;
        }
        let explained = explained + self.opened.elapsed().as_secs() * FREE_BYTES_PER_SECOND;
        if self.received <= explained + FULL_SPEED_BYTES {
            Inflow::Ordinary
        } else if self.received <= explained + FREE_BYTES {
            Inflow::Excessive
        } else {
            Inflow::Flood
        }
    }
}

impl Busy {
    /// Records that the response is ready, or that the peer has reset its request before.
    pub(crate) fn answered(&self, is_answered: bool) {
        if let Some(traffic) = &mut self.state.lock().traffic {
            traffic.resets =
                if is_answered { traffic.resets.saturating_sub(1) } else { traffic.resets + 1 };
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        state.busy -= 1;
        if state.busy == 0 {
            state.wait = match state.wait {
                Wait::Head | Wait::Next => Wait::Next,
                Wait::FirstRequest | Wait::Request => Wait::Request,
            };
            state.since = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MIB: usize = 1 << 20;

    #[tokio::test(start_paused = true)]
    async fn frames_that_are_no_requests_are_read_slowly_and_then_a_flood() {
        let state = ConnectionState::http2(Instant::now());
        assert_eq!(state.received(16 << 10, 0), Inflow::Ordinary);
        assert_eq!(state.received(48 << 10, 0), Inflow::Excessive);
        assert_eq!(state.received(17, 0), Inflow::Flood, "more than is free");
        let more = 34;
        assert_eq!(state.received(0, more), Inflow::Excessive, "a window update answers it");
        drop(state.begin(None));
        assert_eq!(state.received(200 << 10, more), Inflow::Ordinary, "a request has headers");
        assert_eq!(state.received(MIB, more), Inflow::Flood);
        state.body_read(MIB);
        assert_eq!(state.received(0, more), Inflow::Ordinary, "a body is no flood");
        assert_eq!(state.received(2 * MIB, more), Inflow::Flood);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(state.received(0, more), Inflow::Ordinary, "a long connection has many pings");
        let http1 = ConnectionState::http1(Instant::now());
        assert_eq!(
            http1.received(64 * MIB, 0),
            Inflow::Ordinary,
            "HTTP/1 has nothing but requests"
        );
    }

    #[test]
    fn requests_that_are_reset_are_a_flood_unless_others_finish() {
        let state = ConnectionState::http2(Instant::now());
        for _ in 0..1000 {
            state.begin(None).answered(false);
            state.begin(None).answered(true);
        }
        for _ in 0..FREE_RESETS {
            assert_eq!(state.received(1, 0), Inflow::Ordinary);
            state.begin(None).answered(false);
        }
        assert_eq!(state.received(1, 0), Inflow::Ordinary);
        state.begin(None).answered(false);
        assert_eq!(state.received(1, 0), Inflow::Flood);
    }

    #[test]
    fn the_first_request_has_less_time_than_the_next() {
        let (timeouts, now) = (Timeouts::default(), Instant::now());
        let state = ConnectionState::http2(now);
        assert_eq!(state.deadline(&timeouts), Some((Wait::FirstRequest, now + timeouts.head)));
        let busy = state.begin(None);
        assert_eq!(state.deadline(&timeouts), None);
        drop(busy);
        let (wait, due) = state.deadline(&timeouts).unwrap();
        assert_eq!(wait, Wait::Request);
        assert!(due >= now + timeouts.idle);
    }
}
