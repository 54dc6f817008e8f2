//! Settings of the engine.

use std::time::Duration;

use crate::rules::Limits;

/// How the engine behaves.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How large one task may grow. Its bytes are at most a third of `memory`, so that every task can
    /// be read again.
    pub limits: Limits,
    /// About how many bytes of tasks are held in memory: a fourth by requests on their way into the
    /// log, a fourth by turns, an eighth by the earlier tasks that they are given, an eighth by large
    /// tasks while they are read, and a fourth for the tasks that were used last. Requests and turns
    /// beyond that wait; everything else is read when it is needed.
    pub memory: u64,
    /// How long a blocking send waits before it returns the unsettled task.
    pub send_wait: Duration,
    /// Whether cancelling a cancelled task returns it instead of refusing.
    pub repeat_cancel: bool,
    /// Remove tasks that ended so long ago.
    pub keep_for: Option<Duration>,
    /// Keep at most so many tasks per tenant.
    pub keep_tasks: Option<u64>,
    /// Keep at most so many bytes of log per tenant.
    pub keep_bytes: Option<u64>,
    /// How often to look for what has expired.
    pub sweep_every: Duration,
    /// Whether the debug log shows what callers and agents say, or only how much.
    pub log_content: bool,
    /// The share of new traces that is recorded, from 0 to 1. Without it there are no spans of our
    /// own, and agents get the trace that callers sent.
    pub trace: Option<f64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            memory: 256 << 20,
            send_wait: Duration::from_secs(600),
            repeat_cancel: false,
            keep_for: Some(Duration::from_secs(30 * 24 * 3600)),
            keep_tasks: Some(1_000_000),
            keep_bytes: Some(10 << 30),
            sweep_every: Duration::from_secs(30),
            log_content: false,
            trace: None,
        }
    }
}
