//! `result.json`: all measurements by round.

use std::collections::BTreeMap;

use serde::Serialize;

use super::budgets::Verdict;
use crate::bench::{
    Options,
    install::Missing,
    load::{Case, Outcome},
    rounds::{Memory, Readings, Results},
    server::Subject,
};

#[derive(Serialize)]
pub(crate) struct Saved<'a> {
    rounds: usize,
    quick: bool,
    servers: BTreeMap<&'static str, Server<'a>>,
    missing: BTreeMap<&'static str, &'a str>,
    budgets: &'a [Verdict],
}

#[derive(Serialize)]
struct Server<'a> {
    startup_ms: &'a [f64],
    idle_kb: &'a [f64],
    memory: Option<&'a Memory>,
    cases: Vec<Measured<'a>>,
}

#[derive(Serialize)]
struct Measured<'a> {
    #[serde(flatten)]
    case: Case,
    cpu_us: Option<f64>,
    rounds: Vec<Round<'a>>,
}

#[derive(Serialize)]
struct Round<'a> {
    user_us: f64,
    system_us: f64,
    threads_us: &'a BTreeMap<String, f64>,
    load: &'a Outcome,
}

impl<'a> Saved<'a> {
    pub(crate) fn new(
        results: &'a Results,
        budgets: &'a [Verdict],
        missing: &'a [Missing],
        options: &Options,
    ) -> Self {
        let server =
            |(subject, readings): (&Subject, &'a Readings)| (subject.name(), Server::new(readings));
        Self {
            rounds: options.rounds,
            quick: options.quick,
            servers: results.servers.iter().map(server).collect(),
            missing: missing.iter().map(|one| (one.subject.name(), one.remedy.as_str())).collect(),
            budgets,
        }
    }
}

impl<'a> Server<'a> {
    fn new(readings: &'a Readings) -> Self {
        Self {
            startup_ms: &readings.startup_ms,
            idle_kb: &readings.idle_kb,
            memory: readings.memory.as_ref(),
            cases: readings.cases.keys().map(|case| Measured::new(readings, *case)).collect(),
        }
    }
}

impl<'a> Measured<'a> {
    fn new(readings: &'a Readings, case: Case) -> Self {
        let rounds = readings.cases.get(&case).into_iter().flatten();
        let rounds = rounds.map(|reading| Round {
            user_us: reading.cpu.user,
            system_us: reading.cpu.system,
            threads_us: &reading.cpu.threads,
            load: &reading.outcome,
        });
        Self { case, cpu_us: readings.cpu(case), rounds: rounds.collect() }
    }
}
