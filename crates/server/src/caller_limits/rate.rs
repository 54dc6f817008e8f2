//! Rate by key: a number per second with a burst (GCRA). Keys that have not used any of it lately are
//! forgotten.

use std::{
    hash::Hash,
    num::NonZeroU32,
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use governor::{Quota, RateLimiter, clock::Clock, state::keyed::HashMapStateStore};

/// Keys that are kept without a look at their age.
const FEW: usize = 1024;

/// A rate of each key.
#[derive(Debug)]
pub(super) struct Rate<K: Hash + Eq + Clone> {
    limiter: RateLimiter<K, HashMapStateStore<K>, RuntimeClock>,
    per_second: NonZeroU32,
    /// The number of keys at which the idle ones are forgotten.
    full: AtomicUsize,
}

/// The clock of the runtime, which tests can stop.
#[derive(Debug, Clone, Copy)]
struct RuntimeClock;

impl Clock for RuntimeClock {
    type Instant = Instant;

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

impl<K: Hash + Eq + Clone> Rate<K> {
    /// A rate with a burst; `None` if either is zero, which is no limit.
    pub(super) fn new(per_second: u32, burst: u32) -> Option<Self> {
        let (per_second, burst) = (NonZeroU32::new(per_second)?, NonZeroU32::new(burst)?);
        let quota = Quota::per_second(per_second).allow_burst(burst);
        let limiter = RateLimiter::hashmap_with_clock(quota, RuntimeClock);
        Some(Self { limiter, per_second, full: AtomicUsize::new(FEW) })
    }

    pub(super) const fn per_second(&self) -> u32 {
        self.per_second.get()
    }

    /// Counts one for this key. The error is the time after which it would be counted.
    pub(super) fn check(&self, key: &K) -> Result<(), Duration> {
        let checked = self.limiter.check_key(key);
        self.forget_idle();
        checked.map_err(|not_until| not_until.wait_time_from(RuntimeClock.now()))
    }

    /// Forgets the keys that have their whole burst again, each time that there are twice as many keys as
    /// were left the last time.
    fn forget_idle(&self) {
        if self.limiter.len() >= self.full.load(Ordering::Relaxed) {
            self.limiter.retain_recent();
            self.limiter.shrink_to_fit();
            self.full.store(self.limiter.len() * 2 + FEW, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_then_the_rate() {
        let rate = Rate::new(10, 3).unwrap();
        for _ in 0..3 {
            assert_eq!(rate.check(&"a"), Ok(()));
        }
        let delay = rate.check(&"a").unwrap_err();
        assert_eq!(delay, Duration::from_millis(100));
        assert_eq!(rate.check(&"b"), Ok(()), "others have their own");
        tokio::time::advance(delay).await;
        assert_eq!(rate.check(&"a"), Ok(()));
        assert!(rate.check(&"a").is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_that_are_idle_are_forgotten() {
        let rate = Rate::new(1, 1).unwrap();
        for key in 0..100_000 {
            assert_eq!(rate.check(&key), Ok(()));
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        assert!(rate.limiter.len() <= 2 * FEW, "{}", rate.limiter.len());
        assert!(rate.check(&99_999).is_err(), "and those that are not are kept");
    }
}
