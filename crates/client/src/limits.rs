//! Limits, timeouts and retries of a client.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use herald_protocol::Operation;

/// Size limits for data from a server, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Of a card.
    pub card: usize,
    /// Of an answer.
    pub response: usize,
    /// Of one event of a stream.
    pub event: usize,
}

/// Timeouts of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// Of a connection.
    pub connect: Duration,
    /// Of a call with all its retries, or of the start of a stream.
    pub call: Duration,
    /// Of a send, which is answered when the task has ended.
    pub send: Duration,
    /// Of the silence on a stream; keep-alive comments count as data. The stream is then resumed.
    pub idle: Duration,
    /// First pause between two polls of a task that cannot be followed; further pauses grow to five times
    /// this.
    pub poll: Duration,
}

/// Retries of calls and streams after temporary failures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// Retries of a call, or resumptions of a stream, before it fails.
    pub repeats: usize,
    /// First delay; each further one is about twice as long, with jitter.
    pub first: Duration,
    /// Longest delay, also if a server asks for a longer one.
    pub longest: Duration,
    /// True if sends are retried although the agent may have received them. This is safe if the agent
    /// deduplicates messages by id: Herald does, most servers do not.
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
    /// The timeout of an operation, or of the start of its stream.
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
    /// The delays between retries.
    pub(crate) fn pauses(&self) -> ExponentialBackoff {
        ExponentialBuilder::new()
            .with_min_delay(self.first)
            .with_max_delay(self.longest)
            .with_max_times(self.repeats)
            .with_jitter()
            .build()
    }
}
