//! Counters of the server.

pub(crate) mod scrape;

use std::{
    collections::HashMap,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use herald_engine::metrics::{Counter, Histogram, LATENCY, Text};
use herald_protocol::{AgentName, Error, Operation, Timestamp, Version, locks};
use http::StatusCode;

use crate::binding::Binding;

const OPERATIONS: usize = Operation::ALL.len();
const VERSIONS: usize = Version::SPOKEN.len();
const BINDINGS: usize = Binding::ALL.len();

/// Counters of the server.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// By agent, made with the first call: agents come and go at run time.
    agents: RwLock<HashMap<AgentName, Arc<Calls>>>,
    seconds: [Histogram; OPERATIONS],
    /// Responses by the first digit of their status.
    responses: [Counter; 6],
    /// Every open connection holds a clone.
    connections: Arc<()>,
    started: Timestamp,
}

/// The calls of one agent.
#[derive(Debug, Default)]
struct Calls {
    counts: Box<[[[[Counter; CallOutcome::ALL.len()]; BINDINGS]; VERSIONS]; OPERATIONS]>,
    /// The day on which the use of each version was last logged, counted from one at the start.
    logged_on: [AtomicU64; VERSIONS],
}

/// A call with its labels and its duration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredCall<'a> {
    pub(crate) agent: &'a AgentName,
    pub(crate) operation: Operation,
    pub(crate) version: Version,
    pub(crate) binding: Binding,
    pub(crate) took: Duration,
}

/// The outcome of a call.
#[derive(Debug, Clone, Copy)]
enum CallOutcome {
    Ok,
    Refused,
    Failed,
}

impl CallOutcome {
    const ALL: [Self; 3] = [Self::Ok, Self::Refused, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }

    /// An error of the caller is a refusal, every other error a failure.
    fn of(error: Option<&Error>) -> Self {
        match error.map(|error| error.kind.codes().http) {
            None => Self::Ok,
            Some(500..) => Self::Failed,
            Some(_) => Self::Refused,
        }
    }
}

impl Metrics {
    /// The time of the start of the server.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    pub(crate) fn new(started: Timestamp) -> Self {
        Self {
            agents: RwLock::default(),
            seconds: std::array::from_fn(|_| Histogram::new(&LATENCY)),
            responses: Default::default(),
            connections: Arc::default(),
            started,
        }
    }

    /// Counts a connection as open until the returned handle is dropped.
    pub(crate) fn connection(&self) -> Arc<()> {
        Arc::clone(&self.connections)
    }

    pub(crate) fn responded(&self, status: StatusCode) {
        if let Some(count) = self.responses.get(usize::from(status.as_u16() / 100)) {
            count.count();
        }
    }

    /// Counts a call. Returns true for the first call of the day in an old version of its agent.
    pub(crate) fn called(&self, call: &AnsweredCall<'_>, error: Option<&Error>) -> bool {
        self.seconds[call.operation as usize].took(call.took);
        let version = Version::SPOKEN.iter().position(|known| *known == call.version);
        let Some(version) = version else { return false };
        let calls = self.calls(call.agent);
        let outcome = CallOutcome::of(error);
        calls.counts[call.operation as usize][version][call.binding as usize][outcome as usize]
            .count();
        if call.version == Version::V1_0 {
            return false;
        }
        let now = herald_engine::Clock::system().now().as_millis();
        let day = now.saturating_sub(self.started.as_millis()) / (24 * 60 * 60 * 1000);
        let day = u64::try_from(day).unwrap_or_default() + 1;
        calls.logged_on[version].load(Ordering::Relaxed) < day
            && calls.logged_on[version].fetch_max(day, Ordering::Relaxed) < day
    }

    /// The counters of an agent. Only registered agents are called, so the number of series is bounded.
    fn calls(&self, agent: &AgentName) -> Arc<Calls> {
        let known = locks::read(&self.agents).get(agent).cloned();
        known.unwrap_or_else(|| {
            let mut agents = locks::write(&self.agents);
            Arc::clone(agents.entry(agent.clone()).or_default())
        })
    }

    fn write(&self, streams: usize, text: &mut Text) {
        let name = "herald_calls_total";
        text.metric(name, "counter", "Calls by agent, operation, version, binding and outcome.");
        let known = locks::read(&self.agents).clone();
        let mut agents: Vec<_> = known.iter().collect();
        agents.sort_by_key(|(agent, _)| *agent);
        for (agent, calls) in agents {
            calls.write(name, agent, text);
        }
        let name = "herald_call_seconds";
        let help = "Time from the head of a call to its response, or to the start of its stream.";
        text.metric(name, "histogram", help);
        for (operation, seconds) in Operation::ALL.iter().zip(&self.seconds) {
            if !seconds.is_empty() {
                text.histogram(name, &[("operation", operation.name())], seconds);
            }
        }
        let name = "herald_http_responses_total";
        text.metric(name, "counter", "HTTP responses by class of status.");
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"].iter().zip(&self.responses[1..]) {
            text.value(name, &[("status", class)], count.get());
        }
        let connections = Arc::strong_count(&self.connections) - 1;
        text.single("herald_connections_open", "gauge", "Open connections.", connections);
        text.single("herald_streams_open", "gauge", "Open streams.", streams);
    }
}

impl Calls {
    fn write(&self, name: &str, agent: &AgentName, text: &mut Text) {
        for (operation, versions) in Operation::ALL.iter().zip(&*self.counts) {
            for (version, bindings) in Version::SPOKEN.iter().zip(versions) {
                for (binding, counts) in Binding::ALL.iter().zip(bindings) {
                    for (outcome, count) in CallOutcome::ALL.iter().zip(counts) {
                        if count.get() == 0 {
                            continue;
                        }
                        let version = version.to_string();
                        let labels = [
                            ("agent", agent.as_str()),
                            ("operation", operation.name()),
                            ("version", version.as_str()),
                            ("binding", binding.name()),
                            ("outcome", outcome.name()),
                        ];
                        text.value(name, &labels, count.get());
                    }
                }
            }
        }
    }
}
