//! Rounds of measurements: all servers in turn, case by case.
//!
//! Within a round all servers run, and all but the one under load are idle, so that a case is
//! measured on each within seconds. A slow minute of the machine affects all of them, and the
//! median drops it. Each round begins with another server and with empty stores.

use std::{collections::BTreeMap, path::Path, time::Duration};

use serde::Serialize;

use super::{
    Options,
    install::{Bench, raise_open_files},
    load::{Case, Held, Kind, Reading, fill},
    median, pause,
    probe::resident,
    say,
    server::{Data, Running, Subject},
};

/// How many requests each case takes: enough that the ten-millisecond ticks of the kernel's CPU
/// clock are a few per cent of the floor's time.
const CASES: [(Case, u64); 16] = [
    (Case::new(Kind::Send, 1), 2_000),
    (Case::new(Kind::Send, 16), 10_000),
    (Case::new(Kind::Send, 64), 20_000),
    (Case::new(Kind::Get, 1), 10_000),
    (Case::new(Kind::Get, 16), 20_000),
    (Case::new(Kind::Get, 64), 40_000),
    (Case::new(Kind::Stream, 1), 400),
    (Case::new(Kind::Stream, 16), 1_500),
    (Case::new(Kind::Stream, 64), 3_000),
    (Case::new(Kind::Socket, 1), 2_000),
    (Case::new(Kind::Socket, 64), 20_000),
    (Case::new(Kind::GrpcSend, 1), 2_000),
    (Case::new(Kind::GrpcSend, 64), 20_000),
    (Case::new(Kind::GrpcGet, 1), 10_000),
    (Case::new(Kind::GrpcGet, 64), 40_000),
    (Case::new(Kind::GrpcGetApart, 64), 20_000),
];

/// Tasks that are created before the measurement: they warm the server up, and gets read them.
const WARM_UP: u64 = 1_000;

/// The time that a server has to return memory, finish checkpoints and become idle.
pub(crate) const SETTLE: Duration = Duration::from_millis(500);

/// All measurements of a server.
#[derive(Default)]
pub(crate) struct Results {
    pub(crate) servers: BTreeMap<Subject, Readings>,
}

#[derive(Default)]
pub(crate) struct Readings {
    pub(crate) startup_ms: Vec<f64>,
    pub(crate) idle_kb: Vec<f64>,
    pub(crate) cases: BTreeMap<Case, Vec<Reading>>,
    pub(crate) memory: Option<Memory>,
}

#[derive(Serialize)]
pub(crate) struct Memory {
    /// Resident kilobytes after so many tasks.
    pub(crate) after: Vec<(u64, f64)>,
    pub(crate) streams: u64,
    pub(crate) per_stream_kb: f64,
    /// The same over WebSockets with a stream on each, where the server has them.
    pub(crate) per_socket_kb: Option<f64>,
    /// Streams that failed to open or did not stay open.
    pub(crate) lost: u64,
    pub(crate) error: Option<String>,
}

/// Streams that were held open.
struct Streams {
    open: u64,
    each_kb: f64,
    lost: u64,
    error: Option<String>,
}

/// One server for the length of a round. It is stopped before its data goes: fields are dropped in
/// this order.
struct Lane {
    subject: Subject,
    server: Running,
    data: Data,
}

/// Numbers of requests, tasks and streams.
pub(crate) struct Scale {
    divisor: u64,
    pub(crate) sizes: [u64; 2],
    pub(crate) streams: u64,
}

impl Scale {
    pub(crate) fn of(options: &Options) -> Self {
        if options.quick {
            Self { divisor: 5, sizes: [1_000, 5_000], streams: 200 }
        } else {
            Self { divisor: 1, sizes: [10_000, 50_000], streams: 1_000 }
        }
    }

    pub(crate) fn requests(&self, subject: Subject, case: Case) -> u64 {
        let full = CASES.iter().find(|(known, _)| *known == case).map_or(0, |(_, full)| *full);
        (full / self.divisor / subject.handicap()).max(2 * case.concurrency)
    }
}

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<Results> {
    let mut scale = Scale::of(options);
    // The server and the load generator need some file descriptors for themselves.
    let limit = raise_open_files()?.saturating_sub(100);
    if limit < scale.streams {
        say(format!("only {limit} files may be open, so only {limit} streams"));
        scale.streams = limit;
    }
    let mut results = Results::default();
    let mut order = bench.ready.clone();
    for number in 1..=options.rounds {
        say(format!("round {number} of {}", options.rounds));
        round(bench, &scale, &order, &mut results)?;
        if !order.is_empty() {
            order.rotate_left(1);
        }
    }
    for &subject in &bench.ready {
        say(format!("memory: {}", subject.name()));
        let memory = memory(bench, subject, &scale)?;
        results.servers.entry(subject).or_default().memory = Some(memory);
    }
    Ok(results)
}

fn round(
    bench: &Bench,
    scale: &Scale,
    order: &[Subject],
    results: &mut Results,
) -> anyhow::Result<()> {
    let mut lanes = Vec::new();
    for &subject in order {
        lanes.push(Lane::start(bench, subject, results.servers.entry(subject).or_default())?);
    }
    for case in cases() {
        say(format!("  {case}"));
        for Lane { subject, server, data } in &lanes {
            if !case.kind.is_served_by(*subject) {
                continue;
            }
            let requests = scale.requests(*subject, case);
            let reading = case.run(bench, server, requests, &data.file("ids"))?;
            let readings = results.servers.entry(*subject).or_default();
            readings.cases.entry(case).or_default().push(reading);
        }
    }
    Ok(())
}

impl Lane {
    fn start(bench: &Bench, subject: Subject, readings: &mut Readings) -> anyhow::Result<Self> {
        let data = Data::create(bench)?;
        let server = Running::start(bench, subject, &data)?;
        readings.startup_ms.push(server.startup.as_secs_f64() * 1e3);
        pause(SETTLE);
        readings.idle_kb.push(resident(server.pid())?);
        warm_up(bench, &server, subject, &data.file("ids"))?;
        Ok(Self { subject, server, data })
    }
}

pub(crate) fn warm_up(
    bench: &Bench,
    server: &Running,
    subject: Subject,
    ids: &Path,
) -> anyhow::Result<()> {
    let tasks = WARM_UP / subject.handicap();
    fill(bench, server, tasks, ids)?;
    Case::new(Kind::Get, 16).run(bench, server, tasks, ids)?;
    Case::new(Kind::Stream, 16).run(bench, server, tasks / 10, ids)?;
    Ok(())
}

/// Measures tasks, streams and WebSockets each on a new server, since memory that was returned before
/// would hide the use of the next.
fn memory(bench: &Bench, subject: Subject, scale: &Scale) -> anyhow::Result<Memory> {
    let after = memory_of_tasks(bench, subject, scale.sizes)?;
    let streams = memory_of_streams(bench, subject, scale.streams, Running::stream_url)?;
    let sockets = if subject.has_every_binding() {
        Some(memory_of_streams(bench, subject, scale.streams, Running::stream_socket_url)?)
    } else {
        None
    };
    let lost = sockets.as_ref().map_or(0, |sockets| sockets.lost);
    Ok(Memory {
        after,
        streams: streams.open,
        per_stream_kb: streams.each_kb,
        per_socket_kb: sockets.as_ref().map(|sockets| sockets.each_kb),
        lost: streams.lost + lost,
        error: streams.error.or(sockets.and_then(|sockets| sockets.error)),
    })
}

fn memory_of_streams(
    bench: &Bench,
    subject: Subject,
    streams: u64,
    url: impl Fn(&Running) -> String,
) -> anyhow::Result<Streams> {
    let data = Data::create(bench)?;
    let server = Running::start(bench, subject, &data)?;
    warm_up(bench, &server, subject, &data.file("ids"))?;
    pause(SETTLE);
    let before = resident(server.pid())?;
    let held = Held::open(bench, &url(&server), streams)?;
    pause(SETTLE);
    let grown = resident(server.pid())? - before;
    let (open, error) = (held.opened.open, held.opened.error.clone());
    let failed = held.opened.errors;
    let alive = held.close()?;
    let each_kb = grown / open.max(1) as f64;
    Ok(Streams { open, each_kb, lost: failed + (open - alive), error })
}

fn memory_of_tasks(
    bench: &Bench,
    subject: Subject,
    sizes: [u64; 2],
) -> anyhow::Result<Vec<(u64, f64)>> {
    let data = Data::create(bench)?;
    let server = Running::start(bench, subject, &data)?;
    let mut made = 0;
    let mut after = Vec::new();
    for size in sizes {
        fill(bench, &server, size - made, &data.file("ids"))?;
        made = size;
        pause(SETTLE);
        after.push((size, resident(server.pid())?));
    }
    Ok(after)
}

impl Results {
    /// One line for each case in which a server failed or answered wrongly.
    pub(crate) fn wrong_answers(&self) -> String {
        let mut lines = Vec::new();
        for (subject, readings) in &self.servers {
            for (case, rounds) in &readings.cases {
                for outcome in rounds.iter().map(|reading| &reading.outcome) {
                    let Some(error) = &outcome.error else { continue };
                    let (name, wrong) = (subject.name(), outcome.errors);
                    lines.push(format!("  {name}, {case}: {wrong} errors, the first: {error}"));
                }
            }
            if let Some(memory) = readings.memory.as_ref().filter(|memory| memory.lost > 0) {
                let (name, lost) = (subject.name(), memory.lost);
                let error = memory.error.as_deref().unwrap_or("closed by the server");
                lines.push(format!("  {name}, open streams: {lost} lost, the first: {error}"));
            }
        }
        lines.join("\n")
    }

    pub(crate) fn of(&self, subject: Subject) -> Option<&Readings> {
        self.servers.get(&subject)
    }
}

impl Readings {
    /// The median over the rounds of one figure of one case.
    pub(crate) fn figure(
        &self,
        case: Case,
        figure: impl Fn(&Reading) -> Option<f64>,
    ) -> Option<f64> {
        median(self.cases.get(&case)?.iter().filter_map(figure))
    }

    pub(crate) fn cpu(&self, case: Case) -> Option<f64> {
        self.figure(case, |reading| Some(reading.cpu.total()))
    }

    /// What this server needed of another's CPU time, round by round.
    pub(crate) fn ratios(&self, other: &Self, case: Case) -> Vec<f64> {
        let cpu = |readings: &Self| -> Vec<f64> {
            let rounds = readings.cases.get(&case).into_iter().flatten();
            rounds.map(|reading| reading.cpu.total()).collect()
        };
        cpu(self).into_iter().zip(cpu(other)).map(|(own, other)| own / other).collect()
    }

    /// Resident kilobytes after the larger number of tasks.
    pub(crate) fn full_kb(&self) -> Option<f64> {
        Some(self.memory.as_ref()?.after.last()?.1)
    }
}

/// The cases that are measured, in the order of the report.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    CASES.into_iter().map(|(case, _)| case)
}
