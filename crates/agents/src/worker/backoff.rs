//! Delays between attempts to reach the server: growing, with jitter, without end.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const FIRST: Duration = Duration::from_millis(100);
/// Short beside the lease of 15 s, so that a worker is back before a server that restarted gives up its
/// turns. Jitter can double a delay.
const LONGEST: Duration = Duration::from_secs(3);

/// The delays since the last success.
#[derive(Debug)]
pub(super) struct RetryDelays(ExponentialBackoff);

impl RetryDelays {
    pub(super) fn new() -> Self {
        let builder = ExponentialBuilder::default().with_min_delay(FIRST).with_max_delay(LONGEST);
        Self(builder.with_factor(2.0).with_jitter().without_max_times().build())
    }

    /// Waits before the next attempt, at least as long as the server asked for, if that is reasonable.
    pub(super) async fn wait(&mut self, asked: Option<Duration>) {
        let delay = self.0.next().unwrap_or(LONGEST);
        let asked = asked.unwrap_or_default().min(LONGEST * 2);
        tokio::time::sleep(delay.max(asked)).await;
    }
}
