//! Runs a fixed number of exchanges over a fixed number of connections and adds them up.

use std::{
    cell::{Cell, RefCell},
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use futures::future::join_all;
use hyper::Uri;
use serde::Serialize;
use tokio::sync::Mutex;

use crate::{
    args::Args,
    connection::Connection,
    exchange::{Kind, Sample},
    wire,
};

/// A server that takes longer than this has failed the request. A live stream alone takes ten seconds.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The number of consecutive errors after which a connection gives up.
const GIVE_UP: u32 = 20;

struct Plan {
    kind: Kind,
    url: Uri,
    requests: u64,
    started: Cell<u64>,
    targets: Vec<String>,
    data: String,
    keep_ids: bool,
    shared: Mutex<Option<Connection>>,
    pause: Duration,
}

#[derive(Default)]
struct Tally {
    totals: Vec<Duration>,
    firsts: Vec<Duration>,
    ids: Vec<String>,
    errors: u64,
    first_error: Option<String>,
}

/// The printed table. Latencies are in microseconds; those of failed requests are not among them.
#[derive(Serialize)]
struct Report<'a> {
    mode: &'a str,
    requests: u64,
    concurrency: u64,
    errors: u64,
    error: Option<String>,
    elapsed_s: f64,
    per_second: f64,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    first_p50_us: Option<f64>,
    first_p99_us: Option<f64>,
}

pub(crate) async fn run(kind: Kind, args: &Args) -> anyhow::Result<()> {
    let plan = Rc::new(Plan::new(kind, args)?);
    let tally = Rc::new(RefCell::new(Tally::default()));
    let start = Instant::now();
    let workers = (0..args.concurrency)
        .map(|_| tokio::task::spawn_local(work(Rc::clone(&plan), Rc::clone(&tally))));
    for ended in join_all(workers).await {
        ended.context("a connection's loop panicked")?;
    }
    let elapsed = start.elapsed();
    let tally = tally.take();
    if let Some(path) = args.ids.as_deref().filter(|_| plan.keep_ids) {
        append_lines(path, &tally.ids)?;
    }
    println!("{}", serde_json::to_string(&tally.report(kind, args, elapsed))?);
    Ok(())
}

async fn work(plan: Rc<Plan>, tally: Rc<RefCell<Tally>>) {
    let mut connection = None;
    let mut failures_in_a_row = 0;
    while failures_in_a_row < GIVE_UP
        && let Some(n) = plan.take()
    {
        match tokio::time::timeout(TIMEOUT, plan.once(&mut connection, n)).await {
            Ok(Ok(sample)) => {
                failures_in_a_row = 0;
                tally.borrow_mut().count(sample, plan.keep_ids);
            }
            Ok(Err(error)) => tally.borrow_mut().fail(format!("{error:#}")),
            Err(_) => tally.borrow_mut().fail(format!("no answer within {TIMEOUT:?}")),
        }
        // A failed exchange may have left half an answer behind, and the next one starts afresh.
        if connection.is_none() {
            failures_in_a_row += 1;
        }
        if !plan.pause.is_zero() {
            tokio::time::sleep(plan.pause).await;
        }
    }
}

impl Plan {
    fn new(kind: Kind, args: &Args) -> anyhow::Result<Self> {
        let targets = match (kind, &args.ids) {
            (Kind::Get, Some(path)) => fs::read_to_string(path)?.lines().map(Into::into).collect(),
            (Kind::Get, None) => bail!("get needs --ids"),
            (Kind::Send | Kind::List | Kind::Stream | Kind::Live, _) => Vec::new(),
        };
        Ok(Self {
            kind,
            url: args.url.clone(),
            requests: args.requests,
            started: Cell::new(0),
            shared: Mutex::default(),
            targets,
            data: wire::data(args.data),
            pause: args.pause,
            keep_ids: matches!(kind, Kind::Send) && args.ids.is_some(),
        })
    }

    /// The number of the next request, shared by all connections.
    fn take(&self) -> Option<u64> {
        let n = self.started.get();
        self.started.set(n + 1);
        (n < self.requests).then_some(n)
    }

    /// Leaves the connection in `slot` only if the exchange went well.
    async fn once(&self, slot: &mut Option<Connection>, n: u64) -> anyhow::Result<Sample> {
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.open().await?,
        };
        let sample = self.kind.once(&mut connection, n, self.target(n), &self.data).await?;
        *slot = Some(connection);
        Ok(sample)
    }

    /// A connection, or the one that all share.
    async fn open(&self) -> anyhow::Result<Connection> {
        let mut shared = self.shared.lock().await;
        if let Some(connection) = shared.as_ref().and_then(Connection::shared) {
            return Ok(connection);
        }
        let connection = Connection::open(&self.url).await?;
        *shared = connection.shared();
        Ok(connection)
    }

    /// Multiplying by a large odd number scatters neighbours over the whole store, so that no cache
    /// sees them in the order they were written; the same run always reads the same tasks.
    fn target(&self, n: u64) -> Option<&str> {
        let scattered = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
        let index = scattered.checked_rem(self.targets.len() as u64)?;
        Some(&self.targets[index as usize])
    }
}

impl Tally {
    fn count(&mut self, sample: Sample, keep_id: bool) {
        self.totals.push(sample.total);
        self.firsts.extend(sample.first);
        self.ids.extend(sample.task.filter(|_| keep_id));
    }

    fn fail(&mut self, reason: String) {
        self.errors += 1;
        self.first_error.get_or_insert(reason);
    }

    /// Requests that were never sent, because every connection gave up, are errors too.
    fn report(mut self, kind: Kind, args: &Args, elapsed: Duration) -> Report<'static> {
        self.totals.sort_unstable();
        self.firsts.sort_unstable();
        let done = self.totals.len() as u64;
        Report {
            mode: kind.name(),
            requests: done,
            concurrency: args.concurrency,
            errors: args.requests - done,
            error: self.first_error,
            elapsed_s: elapsed.as_secs_f64(),
            per_second: done as f64 / elapsed.as_secs_f64(),
            p50_us: percentile(&self.totals, 50),
            p99_us: percentile(&self.totals, 99),
            first_p50_us: percentile(&self.firsts, 50),
            first_p99_us: percentile(&self.firsts, 99),
        }
    }
}

/// Nearest rank, in microseconds.
pub(crate) fn percentile(sorted: &[Duration], percent: usize) -> Option<f64> {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).map(|duration| duration.as_nanos() as f64 / 1000.0)
}

fn append_lines(path: &Path, lines: &[String]) -> anyhow::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    let mut text = lines.join("\n");
    text.push('\n');
    Ok(file.write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_take_the_nearest_rank() {
        let sorted: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        assert_eq!(percentile(&sorted, 50), Some(100.0));
        assert_eq!(percentile(&sorted, 99), Some(198.0));
        assert_eq!(percentile(&sorted[..1], 99), Some(1.0));
        assert_eq!(percentile(&[], 50), None);
    }
}
