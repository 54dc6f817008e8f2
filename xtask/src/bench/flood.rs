//! Floods from one address: what they do to other callers, to probes and to memory, and how long their
//! connections stay open.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::{
    Options,
    install::Bench,
    load::{Case, Kind, Outcome},
    pause, print,
    probe::resident,
    report::Table,
    say,
    server::{Data, Running, Subject},
};

/// Healthy callers: sends at once, in one run.
const CONCURRENCY: u64 = 4;
const SENDS: u64 = 4000;

/// Their p99 may be this multiple of that without a flood.
const SLOWER: f64 = 2.0;

/// A flood: its name, the `--shape` of the load generator, how many connections or resets, how many connections at
/// once, and the seconds after which each connection must be closed.
const FLOODS: [(&str, &str, u64, u64, f64); 8] = [
    ("silent connections", "silent", 10_000, 10_000, 12.0),
    ("silent HTTP/2 connections", "silent-http2", 10_000, 10_000, 13.0),
    ("slow headers", "slow-head", 10_000, 10_000, 12.0),
    ("slow bodies", "slow-body", 10_000, 10_000, 33.0),
    ("endless headers", "headers", 20_000, 100, 12.0),
    ("endless bodies", "bodies", 2_000, 50, 33.0),
    ("endless pings", "pings", 200, 50, 33.0),
    ("resets", "resets", 1_000_000, 50, 33.0),
];

/// The limit by address, and without it.
const LIMITED: &str = "[limits]\nconnections_per_address = 256\n";
const UNLIMITED: &str = "";

#[derive(Deserialize)]
struct Flooded {
    connections: u64,
    closed: u64,
    longest_s: f64,
    resets: u64,
    elapsed_s: f64,
}

/// Measurements of the other callers during a flood.
struct Seen {
    p99_ms: f64,
    errors: u64,
    probes: u64,
    failed: u64,
    slowest: Duration,
    peak_mib: f64,
}

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    let share = if options.quick { 10 } else { 1 };
    let mut table = Table::with_words_from(10);
    table.heading(
        "\nFloods from one address: their connections, and healthy callers, probes and memory meanwhile",
    );
    let titles = [
        "connections",
        "closed",
        "longest s",
        "p99 ms",
        "with flood",
        "ratio",
        "probes",
        "slowest ms",
        "MiB",
    ];
    table.cells("", titles.map(str::to_owned), "");
    for (config, limit) in [(LIMITED, "256 per address"), (UNLIMITED, "no limit per address")] {
        for (name, shape, count, at_once, deadline) in FLOODS {
            say(format!("{name}, {limit}"));
            let data = Data::create(bench)?;
            data.configure(config)?;
            let server = Running::start(bench, Subject::Herald, &data)?;
            let case = Case::new(Kind::Send, CONCURRENCY);
            let ids = data.file("ids");
            let sends = SENDS / share;
            case.answers(bench, &server, sends, &ids)?;
            let calm = case.answers(bench, &server, sends, &ids)?;
            let before = resident(server.pid())? / 1024.0;
            let flood = spawn(bench, &server, shape, count / share, (at_once / share).max(10))?;
            let seen = watch(bench, &server, case, sends, &ids)?;
            let flooded = end(flood)?;
            // Before and after: the machine may have become slower or faster meanwhile.
            let after = case.answers(bench, &server, sends, &ids)?;
            let p99 = |calm: &Outcome| calm.p99_us.unwrap_or(f64::NAN) / 1000.0;
            let calm_ms = f64::midpoint(p99(&calm), p99(&after));
            let ratio = seen.p99_ms / calm_ms;
            let is_met = ratio <= SLOWER
                && seen.failed == 0
                && seen.errors == 0
                && flooded.closed == flooded.connections
                && flooded.longest_s <= deadline;
            let what = if flooded.resets > 0 {
                format!("{name}: {} in {:.0} s, {limit}", flooded.resets, flooded.elapsed_s)
            } else {
                format!("{name}, {limit}")
            };
            let cells = [
                flooded.connections.to_string(),
                flooded.closed.to_string(),
                format!("{:.1}", flooded.longest_s),
                format!("{calm_ms:.1}"),
                format!("{:.1}", seen.p99_ms),
                format!("{ratio:.2}×"),
                format!("{}/{}", seen.probes - seen.failed, seen.probes),
                format!("{:.0}", seen.slowest.as_secs_f64() * 1000.0),
                format!("{before:.0} to {:.0}", seen.peak_mib),
            ];
            table.cells(what, cells, if is_met { "met" } else { "MISSED" });
        }
    }
    print(table)
}

fn spawn(
    bench: &Bench,
    server: &Running,
    shape: &str,
    count: u64,
    at_once: u64,
) -> anyhow::Result<Child> {
    let mut load = bench.load();
    load.args(["flood", "--url", &server.url(), "--shape", shape]).args([
        "--requests",
        &count.to_string(),
        "--concurrency",
        &at_once.to_string(),
    ]);
    Ok(load.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?)
}

fn end(mut flood: Child) -> anyhow::Result<Flooded> {
    let mut text = String::new();
    flood.stdout.take().context("the flood has no output")?.read_to_string(&mut text)?;
    ensure!(flood.wait()?.success(), "the flood failed");
    serde_json::from_str(&text).context("the flood printed no result")
}

/// Sends as healthy callers do, and probes the server and its memory meanwhile.
fn watch(
    bench: &Bench,
    server: &Running,
    case: Case,
    sends: u64,
    ids: &std::path::Path,
) -> anyhow::Result<Seen> {
    // The flood needs a moment to begin.
    pause(Duration::from_millis(500));
    let mut load = case.command(bench, server, sends, ids);
    let mut healthy = load.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let (mut probes, mut failed, mut slowest, mut peak) = (0, 0, Duration::ZERO, 0.0_f64);
    while healthy.try_wait()?.is_none() {
        let asked = Instant::now();
        probes += 1;
        failed += u64::from(!is_alive(server.port()));
        slowest = slowest.max(asked.elapsed());
        peak = peak.max(resident(server.pid()).context("the server died")?);
        pause(Duration::from_millis(100));
    }
    let mut text = String::new();
    healthy.stdout.take().context("the load has no output")?.read_to_string(&mut text)?;
    let outcome: Outcome = serde_json::from_str(&text)?;
    let p99_ms = outcome.p99_us.unwrap_or(f64::NAN) / 1000.0;
    let peak_mib = peak / 1024.0;
    Ok(Seen { p99_ms, errors: outcome.errors, probes, failed, slowest, peak_mib })
}

/// True if the server answers a probe of health on a new connection.
fn is_alive(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(Duration::from_secs(5)))?;
        socket
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = [0; 12];
        socket.read_exact(&mut answer)?;
        Ok(answer.ends_with(b"200"))
    };
    ask().unwrap_or(false)
}
