//! Server metrics and the access to them.

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
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use crate::{
    auth::bearer,
    bind::{Binding, respond},
    body::Body,
    config::MetricsAccess,
    guard::Ingress,
    health::fresh,
    refusal::Refusal,
    server::Shared,
};

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

    fn write(&self, shared: &Shared, text: &mut Text) {
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
        let streams = shared.streams.count();
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

/// Answers a scrape.
pub(crate) async fn answer(shared: &Shared, parts: &Parts, ingress: Ingress) -> Response<Body> {
    if let Some(refused) = refused(shared, parts, ingress) {
        return refused;
    }
    let mut text = Text::default();
    shared.metrics.write(shared, &mut text);
    shared.engine.write_metrics(&mut text).await;
    process(shared.metrics.started, &mut text);
    let prometheus = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    fresh(respond(StatusCode::OK, prometheus, text.finish()))
}

fn refused(shared: &Shared, parts: &Parts, ingress: Ingress) -> Option<Response<Body>> {
    match &shared.config.metrics {
        MetricsAccess::Everybody => None,
        MetricsAccess::Token(token) => {
            let given = bearer(&parts.headers).map(blake3::hash);
            // Hashes of this crate are compared in constant time.
            if given == Some(blake3::hash(token.as_bytes())) {
                return None;
            }
            let text = "metrics have a token of their own: send Authorization: Bearer TOKEN";
            let mut response = Refusal::new(StatusCode::UNAUTHORIZED, text).into_response();
            let challenge = HeaderValue::from_static(r#"Bearer realm="herald metrics""#);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            Some(response)
        }
        MetricsAccess::Loopback => {
            let near = match ingress {
                Ingress::Socket { bound, .. } => bound.to_canonical().is_loopback(),
                Ingress::InProcess => true,
            };
            // Behind a proxy all requests come from loopback, and a server with tokens may be behind
            // one.
            if near && shared.auth.is_open() {
                return None;
            }
            let text = "permission denied: without a token, metrics are served on loopback only, and \
                        only if no credentials are configured; set token or open under [metrics]";
            Some(Refusal::new(StatusCode::FORBIDDEN, text).into_response())
        }
    }
}

/// Metrics of the process, on systems with `/proc`.
fn process(started: Timestamp, text: &mut Text) {
    let started = started.as_millis() as f64 / 1000.0;
    let help = "Start of the process, in seconds since 1970.";
    text.single("process_start_time_seconds", "gauge", help, started);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|rest| rest.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    if let Some(kilobytes) = resident {
        let help = "Memory in use, in bytes.";
        text.single("process_resident_memory_bytes", "gauge", help, kilobytes * 1024);
    }
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(seconds) = cpu_seconds(&stat) {
        let help = "Processor time, in seconds.";
        text.single("process_cpu_seconds_total", "counter", help, seconds);
    }
}

/// User and system time, which `/proc` gives in hundredths of a second on every Linux.
fn cpu_seconds(stat: &str) -> Option<f64> {
    // The name of the program, in brackets, may contain spaces and brackets.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_found_behind_any_program_name() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 150 75 0 0";
        assert_eq!(cpu_seconds(&format!("7 (a) b)) {rest}")), Some(2.25));
        assert_eq!(cpu_seconds("7 (herald"), None);
    }
}
