//! Clock of the engine, the only source of the times in tasks.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use herald_protocol::Timestamp;
use tokio::time::Instant;

/// A clock. Clones show the same time.
#[derive(Debug, Clone)]
pub struct Clock(Arc<TimeSource>);

#[derive(Debug)]
enum TimeSource {
    /// The machine's clock, and the milliseconds by which the store's clock is ahead of it.
    Machine { offset: AtomicI64, is_set: AtomicBool },
    /// Milliseconds that only [`Clock::set`] changes.
    Manual(AtomicI64),
}

/// The longest round trip to the store that is used to synchronise the clock. A longer one is too
/// inaccurate.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(100);

/// Milliseconds by which one synchronisation may move the clock. There is one each second.
const SLEW: i64 = 1;

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        let (offset, is_set) = (AtomicI64::new(0), AtomicBool::new(false));
        Self(Arc::new(TimeSource::Machine { offset, is_set }))
    }

    /// A clock that changes only by [`Clock::set`].
    pub fn manual(now: Timestamp) -> Self {
        Self(Arc::new(TimeSource::Manual(AtomicI64::new(now.as_millis()))))
    }

    /// Sets a manual clock. No effect on the machine's clock.
    pub fn set(&self, now: Timestamp) {
        if let TimeSource::Manual(millis) = &*self.0 {
            millis.store(now.as_millis(), Ordering::Relaxed);
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_millis(match &*self.0 {
            TimeSource::Machine { offset, .. } => machine_millis() + offset.load(Ordering::Relaxed),
            TimeSource::Manual(millis) => millis.load(Ordering::Relaxed),
        })
    }

    /// The time since `started`. It never decreases, unless a manual clock was set back.
    pub(crate) fn uptime(&self, started: Instant) -> Duration {
        match &*self.0 {
            TimeSource::Machine { .. } => started.elapsed(),
            TimeSource::Manual(millis) => {
                let millis = millis.load(Ordering::Relaxed);
                Duration::from_millis(u64::try_from(millis).unwrap_or_default())
            }
        }
    }

    /// Follows the clock of the store, which showed `store` in the middle of a round trip that has
    /// just ended. The first call sets the offset; later calls change it slowly, so that times
    /// neither jump nor decrease.
    pub(crate) fn synchronise(&self, store: Timestamp, round_trip: Duration) {
        let TimeSource::Machine { offset, is_set } = &*self.0 else { return };
        if round_trip > LONGEST_ROUND_TRIP {
            return;
        }
        let half = i64::try_from(round_trip.as_millis() / 2).unwrap_or_default();
        let wanted = store.as_millis() + half - machine_millis();
        let current = offset.load(Ordering::Relaxed);
        let next = if is_set.swap(true, Ordering::Relaxed) {
            current + (wanted - current).clamp(-SLEW, SLEW)
        } else {
            wanted
        };
        offset.store(next, Ordering::Relaxed);
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is the only access to the clock of the machine"
)]
fn machine_millis() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_follows_the_store_at_once_and_then_slowly() {
        let clock = Clock::system();
        let ahead = |millis: i64| Timestamp::from_millis(machine_millis() + millis);
        let offset = |clock: &Clock| clock.now().as_millis() - machine_millis();
        clock.synchronise(ahead(60_000), Duration::from_millis(500));
        assert!(offset(&clock).abs() < 1_000, "a long round trip is ignored");
        clock.synchronise(ahead(60_000), Duration::ZERO);
        assert!((59_000..61_000).contains(&offset(&clock)));
        for _ in 0..100 {
            clock.synchronise(ahead(0), Duration::ZERO);
        }
        assert!((58_000..60_000).contains(&offset(&clock)), "{}", offset(&clock));
    }
}
