//! Settings of the engine.

use std::time::Duration;

use crate::rules::TaskLimits;

/// Settings of an engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Limits of one task. Its bytes are at most a third of `memory`, so that every task can be
    /// read again.
    pub limits: TaskLimits,
    /// The approximate number of bytes that tasks take in memory: a quarter for requests until they
    /// are stored, a quarter for running turns, an eighth for the conversation histories of turns,
    /// an eighth for large tasks while they are read, an eighth for the tasks that were used last, a
    /// sixteenth for deliveries to webhooks and a sixteenth for registrations. Requests, turns and
    /// deliveries beyond it wait, and registrations are refused; other tasks are read from the store
    /// when they are needed.
    pub memory: u64,
    /// The longest wait of a blocking send. After it the caller gets the task in its current state.
    pub send_wait: Duration,
    /// True if cancelling a canceled task returns the task instead of an error.
    pub repeat_cancel: bool,
    /// True if cancelling a task that has ended returns the task, as far as the protocol allows: in 1.0 it
    /// is an error.
    pub return_ended: bool,
    /// Tasks are removed this long after they ended. `None` keeps them.
    pub keep_for: Option<Duration>,
    /// The maximum number of tasks per tenant. The oldest finished tasks are removed first.
    pub keep_tasks: Option<u64>,
    /// The maximum bytes of logs per tenant. The oldest finished tasks are removed first.
    pub keep_bytes: Option<u64>,
    /// Audit records are removed this long after they were stored. `None` keeps them.
    pub keep_audit_for: Option<Duration>,
    /// The maximum number of audit records. The oldest are removed first.
    pub keep_audit_records: Option<u64>,
    /// The name of this node among the members of the store.
    pub node: String,
    /// The time between two heartbeats.
    pub heartbeat_every: Duration,
    /// The time without a heartbeat after which a member is declared dead and other members take
    /// over its turns.
    pub lease: Duration,
    /// The tasks of an agent that no member serves fail after this time.
    pub unserved_after: Duration,
    /// The longest time that a caller waits for its write. After it the caller gets an error, but
    /// the write still completes.
    pub commit_wait: Duration,
    /// The time between two sweeps for expired tasks.
    pub sweep_every: Duration,
    /// The ratio of new traces that are sampled, from 0 to 1. `None` turns tracing off: the engine
    /// makes no spans, and agents get the trace context that the caller sent.
    pub trace: Option<f64>,
    /// Limits and retries of webhooks.
    pub webhooks: WebhookSettings,
    /// Registrations of workers and remote agents.
    pub discovery: DiscoverySettings,
}

/// Settings of the registrations of workers and remote agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoverySettings {
    /// A worker that was not seen for this time is not listed any more. It is apart from the lease, after which
    /// the turns of a worker are given to others.
    pub max_age: Duration,
    /// The time between two heartbeats that workers are told to keep.
    pub heartbeat_every: Duration,
    /// The maximum number of registrations.
    pub registrations: usize,
}

/// Settings of webhooks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookSettings {
    /// The pauses between the attempts at one delivery. After the last attempt the webhook is parked.
    pub retry: Vec<Duration>,
    /// The maximum number of webhooks of one task.
    pub per_task: usize,
    /// The maximum number of webhooks of one tenant.
    pub per_tenant: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: TaskLimits::default(),
            memory: 256 << 20,
            send_wait: Duration::from_secs(600),
            repeat_cancel: false,
            return_ended: false,
            keep_for: Some(Duration::from_secs(30 * 24 * 3600)),
            keep_tasks: Some(1_000_000),
            keep_bytes: Some(10 << 30),
            keep_audit_for: Some(Duration::from_secs(365 * 24 * 3600)),
            keep_audit_records: Some(1_000_000),
            node: "herald".to_owned(),
            heartbeat_every: Duration::from_secs(1),
            lease: Duration::from_secs(15),
            unserved_after: Duration::from_secs(600),
            commit_wait: Duration::from_secs(10),
            sweep_every: Duration::from_secs(30),
            trace: None,
            webhooks: WebhookSettings::default(),
            discovery: DiscoverySettings::default(),
        }
    }
}

impl Default for DiscoverySettings {
    fn default() -> Self {
        Self {
            max_age: Duration::from_secs(120),
            heartbeat_every: Duration::from_secs(45),
            registrations: 10_000,
        }
    }
}

impl Default for WebhookSettings {
    fn default() -> Self {
        let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
        Self {
            retry: vec![
                Duration::from_secs(5),
                Duration::from_secs(30),
                minutes(2),
                minutes(15),
                minutes(60),
                minutes(6 * 60),
                minutes(24 * 60),
                minutes(24 * 60),
            ],
            per_task: 10,
            per_tenant: 100_000,
        }
    }
}
