//! Metrics: lock-free counters and histograms, written as Prometheus text (0.0.4).
//!
//! Label values come from closed sets: configured agents, operations, versions, states. A value
//! that callers can choose (a task, a tenant, a path) is never a label, so the number of series is
//! bounded.

use std::{
    fmt::{Display, Write},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use herald_protocol::TaskState;

use crate::model::event::Entry;

/// A counter that only increases.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram: the number of observations per bucket, and their sum.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static Scale,
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// The bucket bounds of a histogram, in whole units.
#[derive(Debug)]
pub struct Scale {
    /// The upper bounds, ascending.
    pub bounds: &'static [u64],
    /// The number of units in one unit of the output, for example 1,000,000 for microseconds that
    /// are written as seconds.
    pub units: u64,
}

/// Bounds from 0.25 milliseconds to 10 seconds.
pub const LATENCY: Scale = Scale {
    bounds: &[
        250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000,
        10_000_000,
    ],
    units: MICROS,
};

/// Bounds from 10 milliseconds to one hour.
const WORK: Scale = Scale {
    bounds: &[10_000, 100_000, 1_000_000, 10_000_000, 60_000_000, 600_000_000, 3_600_000_000],
    units: MICROS,
};

const BATCH: Scale = Scale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256], units: 1 };

const MICROS: u64 = 1_000_000;

impl Histogram {
    /// An empty histogram.
    pub fn new(scale: &'static Scale) -> Self {
        let counts = scale.bounds.iter().map(|_| AtomicU64::new(0)).chain([AtomicU64::new(0)]);
        Self { scale, counts: counts.collect(), sum: AtomicU64::new(0) }
    }

    /// Adds an observation, in units of the scale.
    pub fn observe(&self, value: u64) {
        let bucket = self.scale.bounds.iter().position(|bound| value <= *bound);
        let bucket = bucket.unwrap_or(self.scale.bounds.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Adds a duration, on a scale of microseconds.
    pub fn took(&self, time: Duration) {
        self.observe(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    /// True if nothing was observed.
    pub fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| count.load(Ordering::Relaxed) == 0)
    }
}

/// Metrics of webhooks.
#[derive(Debug)]
pub struct WebhookMetrics {
    /// Events that receivers have.
    pub delivered: Counter,
    /// Attempts that failed.
    pub failed: Counter,
    /// Webhooks that were parked after their last attempt.
    pub parked: Counter,
    /// Webhooks whose receiver wanted no more events.
    pub disabled: Counter,
    /// The time between an event and its delivery.
    pub lag: Histogram,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            delivered: Counter::default(),
            failed: Counter::default(),
            parked: Counter::default(),
            disabled: Counter::default(),
            lag: Histogram::new(&WORK),
        }
    }
}

/// The response to a scrape. All values of one metric must be written together.
#[derive(Debug, Default)]
pub struct Text(String);

/// The name and the value of a label.
pub type Label<'a> = (&'a str, &'a str);

impl Text {
    /// Begins a metric. `kind` is `counter`, `gauge` or `histogram`.
    pub fn metric(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// Writes one value of the metric. Label values are not escaped: they come from closed sets
    /// that contain no special characters.
    pub fn value(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (index, (label, text)) in labels.iter().enumerate() {
            let before = if index == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{text}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// Writes a metric with one value.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.metric(name, kind, help);
        self.value(name, &[], value);
    }

    /// Writes a histogram of the metric.
    pub fn histogram(&mut self, name: &str, labels: &[Label<'_>], histogram: &Histogram) {
        let scaled = |value: u64| value as f64 / histogram.scale.units as f64;
        let bounds = histogram.scale.bounds.iter().map(|bound| scaled(*bound).to_string());
        let mut total = 0;
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&histogram.counts) {
            total += count.load(Ordering::Relaxed);
            let labels: Vec<_> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.value(&format!("{name}_bucket"), &labels, total);
        }
        let sum = scaled(histogram.sum.load(Ordering::Relaxed));
        self.value(&format!("{name}_sum"), labels, sum);
        self.value(&format!("{name}_count"), labels, total);
    }

    /// The complete text.
    pub fn finish(self) -> String {
        self.0
    }
}

/// Metrics of a store.
#[derive(Debug)]
pub struct StoreMetrics {
    /// Durations of transactions.
    pub commits: Histogram,
    /// Numbers of writes per transaction.
    pub batches: Histogram,
    /// The number of failed transactions.
    pub errors: Counter,
}

impl Default for StoreMetrics {
    fn default() -> Self {
        let (commits, batches) = (Histogram::new(&LATENCY), Histogram::new(&BATCH));
        Self { commits, batches, errors: Counter::default() }
    }
}

/// Metrics of one agent.
#[derive(Debug)]
pub(crate) struct AgentMetrics {
    /// The number of changes of its tasks into each state.
    pub(crate) entered: [Counter; STATES],
    /// Durations of its turns.
    pub(crate) turns: Histogram,
}

/// The number of states, including the unspecified one.
const STATES: usize = TaskState::ALL.len() + 1;

impl Default for AgentMetrics {
    fn default() -> Self {
        Self { entered: Default::default(), turns: Histogram::new(&WORK) }
    }
}

impl AgentMetrics {
    /// Counts the state changes in these events of a task that was in `state`.
    pub(crate) fn count_states(&self, mut state: Option<TaskState>, entries: &[Entry]) {
        for next in entries.iter().filter_map(|entry| entry.kind.state()) {
            if state.replace(next) != Some(next) {
                self.entered[usize::from(next.number())].count();
            }
        }
    }
}
