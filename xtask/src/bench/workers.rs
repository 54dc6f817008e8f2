//! Workers of one role: the cost of registrations, the rate of dispatch from a long queue, memory, and discovery.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdout, Stdio},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

use super::{
    Options,
    install::{Bench, raise_open_files},
    pause, print,
    probe::{Cpu, peak, resident},
    report::{Table, word},
    say,
    server::{Data, Running, Subject},
};

const WORKERS: u64 = 1000;
const TASKS: u64 = 10_000;

/// The last tenth of the registrations may take this multiple of the first.
const REGISTRATION: f64 = 1.5;

/// A task may cost this multiple of CPU time when the queue is long.
const CLAIM: f64 = 1.25;

/// The time over which idle workers are measured: two polls of each.
const IDLE: Duration = Duration::from_secs(10);

/// The role waits for workers as long as the queue is filled.
const CONFIG: &str = "[[agents]]\nname = \"bench\"\nkind = \"worker\"\nunavailable = \"queue\"\n";

/// A line that the load generator prints.
#[derive(Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
enum Line {
    Queued { per_second: f64 },
    Registered { first_us: f64, last_us: f64 },
    Progress { done: u64 },
    Dispatched { elapsed_s: f64, per_second: f64 },
    Discovery { search: String, entries: usize, p50_us: f64, p99_us: f64 },
    Sends { p50_us: f64, p99_us: f64 },
}

/// The load generator at work. Dropping it ends it.
struct Load {
    child: Child,
    output: BufReader<ChildStdout>,
}

/// CPU time and memory of the server after a phase.
struct Reading {
    cpu_us: f64,
    mib: f64,
}

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    let share = if options.quick { 10 } else { 1 };
    let (workers, tasks) = (WORKERS / share, TASKS / share);
    let files = raise_open_files()?;
    ensure!(files > workers + 100, "only {files} open files are allowed");
    say(format!("{workers} workers, {tasks} queued tasks"));
    let data = Data::create(bench)?;
    data.configure(CONFIG)?;
    let server = Running::start(bench, Subject::Herald, &data)?;
    let read = || -> anyhow::Result<Reading> {
        let cpu_us = Cpu::of(server.pid()).context("the server died")?.total();
        Ok(Reading { cpu_us, mib: resident(server.pid())? / 1024.0 })
    };
    let mut table = Table::with_words_from(2);
    table.heading(&format!("\n{workers} workers of one role, {tasks} queued tasks"));
    let empty = read()?;
    let mut load = Load::start(bench, &server, workers, tasks)?;

    let Line::Queued { per_second } = load.line()? else { bail!("queued is missing") };
    let queued = read()?;
    table.row("tasks queued", format!("{per_second:.0} per second"), "");
    let Line::Registered { first_us, last_us } = load.line()? else {
        bail!("registered is missing")
    };
    let registered = read()?;
    let ratio = last_us / first_us;
    let figure = format!("{:.2} and {:.2} ms", first_us / 1e3, last_us / 1e3);
    let verdict = format!("{ratio:.2}×, limit {REGISTRATION}: {}", word(ratio <= REGISTRATION));
    table.row("registration, first and last tenth (median)", figure, &verdict);
    let cpu = (registered.cpu_us - queued.cpu_us) / workers as f64;
    table.row("CPU of a registration", format!("{cpu:.0} µs"), "");

    let mut readings = vec![registered];
    for part in 1..=5 {
        let Line::Progress { done } = load.line()? else { bail!("progress is missing") };
        ensure!(done == tasks * part / 5, "{done} tasks");
        readings.push(read()?);
    }
    let Line::Dispatched { elapsed_s, per_second } = load.line()? else {
        bail!("dispatched is missing")
    };
    let figure = format!("{per_second:.0} per second");
    let words = format!("poll, claim and end, all in {elapsed_s:.1} s");
    table.row("tasks dispatched", figure, &words);
    let each =
        |part: usize| (readings[part].cpu_us - readings[part - 1].cpu_us) / (tasks as f64 / 5.0);
    // Not the first fifth, in which every worker polls for the first time.
    let (long, short) = (each(2), each(5));
    let ratio = long / short;
    let figure = format!("{long:.0} and {short:.0} µs");
    let verdict = format!("{ratio:.2}×, limit {CLAIM}: {}", word(ratio <= CLAIM));
    let left = tasks * 4 / 5;
    table.row(&format!("CPU of a task with {left} waiting, and with few"), figure, &verdict);

    let before = read()?;
    pause(IDLE);
    let idle = read()?;
    let busy = (idle.cpu_us - before.cpu_us) / IDLE.as_micros() as f64;
    table.row("CPU while all workers wait", format!("{:.1} % of a core", 100.0 * busy), "");
    let [empty, queued, registered, idle] =
        [empty.mib, queued.mib, readings[0].mib, idle.mib].map(|mib| format!("{mib:.1}"));
    let highest = peak(server.pid())? / 1024.0;
    let figure = format!("{empty}, {queued}, {registered}, {idle} MiB");
    let label = "memory: empty, with the queue, with the workers, with their polls";
    table.row(label, figure, &format!("peak {highest:.1} MiB"));

    load.go_on()?;
    for _ in 0..5 {
        let Line::Discovery { search, entries, p50_us, p99_us } = load.line()? else {
            bail!("discovery is missing")
        };
        let label = format!("discovery, {search}, p50 and p99");
        let words = format!("{entries} entries");
        table.row(&label, milliseconds(p50_us, p99_us), &words);
    }
    let Line::Sends { p50_us, p99_us } = load.line()? else { bail!("sends is missing") };
    let label = "send that an idle worker answers, p50 and p99";
    table.row(label, milliseconds(p50_us, p99_us), "");
    load.end()?;
    print(table)
}

impl Load {
    fn start(bench: &Bench, server: &Running, workers: u64, tasks: u64) -> anyhow::Result<Self> {
        let mut load = bench.load();
        load.args(["workers", "--url", &server.url()])
            .args(["--requests", &tasks.to_string()])
            .args(["--concurrency", &workers.to_string()]);
        let mut child = load.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().context("its output is piped")?;
        Ok(Self { child, output: BufReader::new(output) })
    }

    fn line(&mut self) -> anyhow::Result<Line> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the load generator ended early; its error is above");
        serde_json::from_str(&line).with_context(|| format!("an unexpected line: {line}"))
    }

    /// Ends its wait.
    fn go_on(&mut self) -> anyhow::Result<()> {
        let input = self.child.stdin.as_mut().context("its input is piped")?;
        Ok(writeln!(input)?)
    }

    fn end(mut self) -> anyhow::Result<()> {
        drop(self.child.stdin.take());
        let status = self.child.wait()?;
        ensure!(status.success(), "the load generator failed: {status}");
        Ok(())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn milliseconds(p50_us: f64, p99_us: f64) -> String {
    format!("{:.2} and {:.2} ms", p50_us / 1e3, p99_us / 1e3)
}
