//! Clock of the engine, the only source of the times in tasks.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use herald_protocol::Timestamp;

/// Tells the time. A clone shows the same time.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<Arc<AtomicI64>>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(None)
    }

    /// A clock that stands still until [`Clock::set`].
    pub fn manual(now: Timestamp) -> Self {
        Self(Some(Arc::new(AtomicI64::new(now.as_millis()))))
    }

    /// Sets a manual clock; the machine's clock is left alone.
    pub fn set(&self, now: Timestamp) {
        if let Some(millis) = &self.0 {
            millis.store(now.as_millis(), Ordering::Relaxed);
        }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Some(millis) => Timestamp::from_millis(millis.load(Ordering::Relaxed)),
            None => Timestamp::from_millis(machine_millis()),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this is the clock everything else asks")]
fn machine_millis() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
