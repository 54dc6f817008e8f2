//! Cost of requests with few and with many stored tasks.
//!
//! Two servers of one kind run side by side, one with few tasks and one with many, and are measured
//! in turn. Measuring before and after the filling would compare two different hours of the machine.

use std::{collections::BTreeMap, fs, time::Duration};

use anyhow::ensure;
use serde::Serialize;

use super::{
    Options,
    install::Bench,
    load::{Case, Kind, Reading, fill},
    median, pause, print,
    probe::resident,
    report::{Table, pinning},
    say,
    server::{Data, Running, Subject},
};

const FEW: u64 = 1_000;

/// With how many requests each case is measured, and from how many connections: enough of both that
/// a commit carries a group, as it would on a busy server. Sends come last and are few, for they make
/// the small store grow.
const CASES: [(Case, u64); 3] = [
    (Case::new(Kind::Get, 16), 10_000),
    (Case::new(Kind::List, 16), 1_500),
    (Case::new(Kind::Send, 16), 2_000),
];

/// Herald's cost with many may be this multiple of its cost with few.
const LIMIT: f64 = 1.1;
const STARTUP_LIMIT_MS: f64 = 100.0;
const MEMORY_LIMIT_MB: f64 = 60.0;

/// A store of some size and the server on it, which is stopped before its data goes.
struct Side {
    server: Running,
    data: Data,
}

#[derive(Default, Serialize)]
struct Growth {
    few: u64,
    many: u64,
    fill_per_second: f64,
    /// CPU per request with few and with many, by case and round.
    cpu_us: BTreeMap<String, Vec<(f64, f64)>>,
    many_rss_mb: f64,
    few_startup_ms: Vec<f64>,
    many_startup_ms: Vec<f64>,
}

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    let mut results = BTreeMap::new();
    for &subject in &bench.ready {
        // The others store tasks in memory, so their growth is not measured.
        if matches!(subject, Subject::Herald | Subject::Floor) {
            let growth = measure(bench, subject, options)?;
            print(growth.table(subject, bench.pinned))?;
            results.insert(subject.name(), growth);
        }
    }
    Ok(fs::write(bench.file("growth.json"), serde_json::to_vec_pretty(&results)?)?)
}

fn measure(bench: &Bench, subject: Subject, options: &Options) -> anyhow::Result<Growth> {
    say(format!("filling {} with {FEW} and with {} tasks", subject.name(), options.tasks));
    let mut growth = Growth { few: FEW, many: options.tasks, ..Growth::default() };
    let (few, _) = Side::filled(bench, subject, FEW)?;
    let (many, fill_per_second) = Side::filled(bench, subject, options.tasks)?;
    growth.fill_per_second = fill_per_second;
    for round in 1..=options.rounds {
        say(format!("round {round} of {}", options.rounds));
        for (case, requests) in CASES {
            // The floor has no list.
            if (case.kind, subject) == (Kind::List, Subject::Floor) {
                continue;
            }
            let few = few.cpu(bench, case, requests)?;
            let many = many.cpu(bench, case, requests)?;
            growth.cpu_us.entry(case.to_string()).or_default().push((few, many));
        }
    }
    growth.many_rss_mb = resident(many.server.pid())? / 1024.0;
    growth.few_startup_ms = few.restarts(bench, subject, options.rounds)?;
    growth.many_startup_ms = many.restarts(bench, subject, options.rounds)?;
    Ok(growth)
}

impl Side {
    /// And how many tasks a second it took to fill it.
    fn filled(bench: &Bench, subject: Subject, tasks: u64) -> anyhow::Result<(Self, f64)> {
        let data = Data::create(bench)?;
        let server = Running::start(bench, subject, &data)?;
        let outcome = fill(bench, &server, tasks, &data.file("ids"))?;
        pause(Duration::from_secs(1));
        Ok((Self { server, data }, outcome.per_second))
    }

    fn cpu(&self, bench: &Bench, case: Case, requests: u64) -> anyhow::Result<f64> {
        let Reading { outcome, cpu } =
            case.run(bench, &self.server, requests, &self.data.file("ids"))?;
        ensure!(
            outcome.errors == 0,
            "{case}: {} errors, the first: {}",
            outcome.errors,
            outcome.error.unwrap_or_default()
        );
        Ok(cpu.total())
    }

    /// Start-up times on the filled store. Each start follows a kill, so recovery is part of it.
    fn restarts(self, bench: &Bench, subject: Subject, rounds: usize) -> anyhow::Result<Vec<f64>> {
        let Self { server, data } = self;
        drop(server);
        let restart = |_| {
            let server = Running::start(bench, subject, &data)?;
            Ok(server.startup.as_secs_f64() * 1e3)
        };
        (0..rounds).map(restart).collect()
    }
}

impl Growth {
    fn table(&self, subject: Subject, pinned: bool) -> Table {
        let mut table = Table::with_words_from(4);
        table.heading(&format!(
            "\n{}: {} tasks beside {}, {}; filled at {:.0} tasks a second",
            subject.name(),
            self.few,
            self.many,
            pinning(pinned),
            self.fill_per_second
        ));
        let titles = [self.few.to_string(), self.many.to_string(), "ratio".to_owned()];
        table.cells("", titles, "");
        for (case, rounds) in &self.cpu_us {
            let few = median(rounds.iter().map(|(few, _)| *few)).unwrap_or(f64::NAN);
            let many = median(rounds.iter().map(|(_, many)| *many)).unwrap_or(f64::NAN);
            let ratio = median(rounds.iter().map(|(few, many)| many / few)).unwrap_or(f64::NAN);
            let cells = [format!("{few:.1}"), format!("{many:.1}"), format!("{ratio:.2}×")];
            let standing = standing(subject, ratio, LIMIT, "×");
            table.cells(format!("{case}, CPU µs"), cells, &standing);
        }
        self.fixed(&mut table, subject);
        table
    }

    /// Figures with an absolute limit.
    fn fixed(&self, table: &mut Table, subject: Subject) {
        let few = median(self.few_startup_ms.iter().copied()).unwrap_or(f64::NAN);
        let many = median(self.many_startup_ms.iter().copied()).unwrap_or(f64::NAN);
        let cells = [format!("{few:.1}"), format!("{many:.1}"), String::new()];
        let start = standing(subject, many, STARTUP_LIMIT_MS, " ms");
        table.cells("start to first card, ms", cells, &start);
        let memory = [String::new(), format!("{:.1}", self.many_rss_mb), String::new()];
        let flat = standing(subject, self.many_rss_mb, MEMORY_LIMIT_MB, " MB");
        table.cells("memory, MB", memory, &flat);
    }
}

/// Budgets are Herald's; the floor is shown for what SQLite alone does as it grows.
fn standing(subject: Subject, value: f64, limit: f64, unit: &str) -> String {
    let word = if value <= limit { "met" } else { "MISSED" };
    if subject == Subject::Herald { format!("{word} (limit {limit}{unit})") } else { String::new() }
}
