//! Limits, timeouts and retries of a client.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use herald_protocol::Operation;

/// Limits of what a client reads from a server, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// A card.
    pub card: usize,
    /// An answer.
    pub response: usize,
    /// One event of a stream.
    pub event: usize,
}

/// Time limits of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For an answer, repeats included, and for a stream to begin.
    pub call: Duration,
    /// For the answer to a send, which comes when the task is done.
    pub send: Duration,
    /// For the next sign of life on a stream, keep-alive comments included. The stream is then taken
    /// up again.
    pub idle: Duration,
    /// First pause between two polls of a task that cannot be followed; further pauses grow to five times
    /// this.
    pub poll: Duration,
}

/// The policy for temporary failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// The most repetitions of a call, and resumptions of a stream, before it counts as failed.
    pub repeats: usize,
    /// The first pause; each is about twice the one before, and a little random.
    pub first: Duration,
    /// The longest pause, also where a server asks for a longer one.
    pub longest: Duration,
    /// True to repeat sends although the agent may have received them. Safe if the agent recognises a
    /// message by its id, which stays the same: Herald does, most servers do not.
    pub sends: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { card: 1 << 20, response: 64 << 20, event: 16 << 20 }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            call: Duration::from_secs(60),
            send: Duration::from_secs(600),
            idle: Duration::from_secs(60),
            poll: Duration::from_secs(1),
        }
    }
}

impl Timeouts {
    /// For the answer to an operation, or for its stream to begin.
    pub(crate) fn of(&self, operation: Operation) -> Duration {
        if operation == Operation::SendMessage { self.send } else { self.call }
    }

    /// The pauses between polls, without end.
    pub(crate) fn poll_pauses(&self) -> impl Iterator<Item = Duration> + Send + use<> {
        let (first, longest) = (self.poll, self.poll * 5);
        std::iter::successors(Some(first), move |pause| Some((*pause * 3 / 2).min(longest)))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            repeats: 4,
            first: Duration::from_millis(200),
            longest: Duration::from_secs(10),
            sends: false,
        }
    }
}

impl Retry {
    /// The pauses between the repeats.
    pub(crate) fn pauses(&self) -> ExponentialBackoff {
        ExponentialBuilder::new()
            .with_min_delay(self.first)
            .with_max_delay(self.longest)
            .with_max_times(self.repeats)
            .with_jitter()
            .build()
    }
}
