//! `/metrics`: who may read it, and its text.

use herald_engine::metrics::Text;
use herald_protocol::Timestamp;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};

use crate::{
    auth::bearer,
    body::{Body, respond},
    config::MetricsAccess,
    guard::Ingress,
    health::fresh,
    refusal::Refusal,
    shared::Shared,
};

/// Answers a scrape.
pub(crate) async fn answer(shared: &Shared, parts: &Parts, ingress: Ingress) -> Response<Body> {
    if let Some(refused) = refused(shared, parts, ingress) {
        return refused;
    }
    let mut text = Text::default();
    shared.metrics.write(shared.caller_limits.open_streams(), &mut text);
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
