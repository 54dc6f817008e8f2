//! Budgets and their measurements.

use std::fmt;

use serde::Serialize;

use super::Table;
use crate::bench::{
    load::{Case, Kind},
    median,
    rounds::{Readings, Results, Scale},
    server::Subject,
};

const SEND_1: Case = Case::new(Kind::Send, 1);
const SEND_64: Case = Case::new(Kind::Send, 64);
const STREAM_1: Case = Case::new(Kind::Stream, 1);

/// Herald may need this multiple of another server's CPU time.
const RATIOS: [(Case, f64, Subject); 7] = [
    (SEND_1, 1.5, Subject::Floor),
    (SEND_64, 1.5, Subject::Floor),
    (SEND_64, 1.0, Subject::OfficialRust),
    (Case::new(Kind::Get, 1), 1.5, Subject::Floor),
    (Case::new(Kind::Get, 64), 1.5, Subject::Floor),
    (STREAM_1, 1.5, Subject::Floor),
    (Case::new(Kind::Stream, 64), 1.5, Subject::Floor),
];

/// Herald may need this multiple of its own CPU time over JSON-RPC.
const BINDINGS: [(Case, Case, f64); 4] = [
    (Case::new(Kind::GrpcSend, 1), SEND_1, 1.5),
    (Case::new(Kind::GrpcSend, 64), SEND_64, 1.5),
    (Case::new(Kind::GrpcGet, 1), Case::new(Kind::Get, 1), 1.5),
    (Case::new(Kind::GrpcGet, 64), Case::new(Kind::Get, 64), 1.5),
];

/// One budget and its measurement.
#[derive(Serialize)]
pub(crate) struct Verdict {
    name: String,
    unit: &'static str,
    herald: Option<f64>,
    limit: Option<f64>,
    /// Where the figures come from.
    because: String,
    /// A figure with wrong answers is invalid.
    wrong_answers: bool,
    #[serde(skip)]
    case: Option<Case>,
}

#[derive(Clone, Copy, PartialEq)]
enum Standing {
    Met,
    Missed,
    NotMeasured,
}

impl Verdict {
    fn plain(
        name: impl Into<String>,
        unit: &'static str,
        herald: Option<f64>,
        limit: f64,
        because: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            unit,
            herald,
            limit: Some(limit),
            because: because.into(),
            wrong_answers: false,
            case: None,
        }
    }

    fn standing(&self) -> Standing {
        match (self.herald, self.limit) {
            (Some(_), Some(_)) if self.wrong_answers => Standing::Missed,
            (Some(herald), Some(limit)) if herald <= limit => Standing::Met,
            (Some(_), Some(_)) => Standing::Missed,
            (None, _) | (_, None) => Standing::NotMeasured,
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::NotMeasured => "not measured",
        })
    }
}

pub(crate) fn judge(results: &Results, scale: &Scale) -> Vec<Verdict> {
    let herald = results.of(Subject::Herald);
    let mut verdicts: Vec<Verdict> =
        RATIOS.into_iter().map(|(case, times, to)| ratio(results, case, times, to)).collect();
    verdicts.extend(BINDINGS.map(|(case, over, times)| binding(results, case, over, times)));
    verdicts.push(first_frame(herald));
    verdicts.extend(memory(herald, scale));
    let startup = herald.and_then(|herald| median(herald.startup_ms.iter().copied()));
    verdicts.push(Verdict::plain("start to first card", "ms", startup, 100.0, ""));
    verdicts
}

/// The median of the rounds' ratios rather than the ratio of two medians: the two servers of a round
/// were measured within seconds of each other.
fn ratio(results: &Results, case: Case, times: f64, to: Subject) -> Verdict {
    let both = results.of(Subject::Herald).zip(results.of(to));
    let ratios = both.map(|(herald, to)| herald.ratios(to, case)).unwrap_or_default();
    let cpu = |subject| {
        let cpu = results.of(subject).and_then(|readings| readings.cpu(case));
        cpu.map_or_else(|| "–".to_owned(), |cpu| format!("{cpu:.1} µs"))
    };
    let range =
        ratios.iter().copied().reduce(f64::min).zip(ratios.iter().copied().reduce(f64::max));
    let range = range.map(|(low, high)| format!("; rounds {low:.2} to {high:.2}"));
    let (own, other, name) = (cpu(Subject::Herald), cpu(to), to.name());
    Verdict {
        name: format!("{case}, CPU against {name}"),
        unit: "×",
        herald: median(ratios),
        limit: Some(times),
        because: format!("herald {own}, {name} {other}{}", range.unwrap_or_default()),
        wrong_answers: [Subject::Herald, to]
            .iter()
            .any(|subject| is_wrong(results, *subject, case)),
        case: Some(case),
    }
}

/// The cost of a binding compared with JSON-RPC, for the same call.
fn binding(results: &Results, case: Case, over: Case, times: f64) -> Verdict {
    let cpu = |case| results.of(Subject::Herald).and_then(|readings| readings.cpu(case));
    let both = cpu(case).zip(cpu(over));
    let because = both.map(|(own, other)| format!("{own:.1} µs, JSON-RPC {other:.1} µs"));
    Verdict {
        name: format!("{case}, CPU against JSON-RPC"),
        unit: "×",
        herald: both.map(|(own, other)| own / other),
        limit: Some(times),
        because: because.unwrap_or_default(),
        wrong_answers: is_wrong(results, Subject::Herald, case),
        case: Some(case),
    }
}

fn is_wrong(results: &Results, subject: Subject, case: Case) -> bool {
    let rounds = results.of(subject).and_then(|readings| readings.cases.get(&case));
    rounds.is_some_and(|rounds| rounds.iter().any(|reading| reading.outcome.errors > 0))
}

/// A server that sends everything in one burst at the end has its first frame when it has its last.
fn first_frame(herald: Option<&Readings>) -> Verdict {
    let figure = |pick: fn(&Readings) -> Option<f64>| herald.and_then(pick).map(|us| us / 1e3);
    let first = figure(|herald| herald.figure(STREAM_1, |reading| reading.outcome.first_p50_us));
    let whole = figure(|herald| herald.figure(STREAM_1, |reading| reading.outcome.p50_us));
    let lost = herald.and_then(|herald| herald.memory.as_ref()).is_some_and(|held| held.lost > 0);
    Verdict {
        name: "first frame before the agent has finished".to_owned(),
        unit: "ms",
        herald: first,
        limit: whole.map(|whole| whole / 2.0),
        because: "the limit is half of a whole stream at 1".to_owned(),
        wrong_answers: lost,
        case: None,
    }
}

fn memory(herald: Option<&Readings>, scale: &Scale) -> [Verdict; 3] {
    let megabytes = |kilobytes: f64| kilobytes / 1024.0;
    let idle = herald.and_then(|herald| median(herald.idle_kb.iter().copied())).map(megabytes);
    let full = herald.and_then(Readings::full_kb).map(megabytes);
    let each = herald.and_then(|herald| herald.memory.as_ref()).map(|memory| memory.per_stream_kb);
    let (tasks, streams) = (scale.sizes[1], scale.streams);
    [
        Verdict::plain("memory, idle", "MB", idle, 25.0, ""),
        Verdict::plain(
            format!("memory after {tasks} tasks"),
            "MB",
            full,
            60.0,
            "the limit is for 50000",
        ),
        Verdict::plain(format!("memory, each of {streams} streams"), "KB", each, 30.0, ""),
    ]
}

pub(crate) fn table(verdicts: &[Verdict]) -> Table {
    let mut table = Table::with_words_from(3);
    let titles = ["herald", "limit", "", ""].map(str::to_owned);
    table.cells("Budget", titles, "");
    for verdict in verdicts {
        let figure = |value: Option<f64>| {
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.2} {}", verdict.unit))
        };
        let mut standing = verdict.standing().to_string();
        if verdict.wrong_answers {
            standing.push_str(" (wrong answers)");
        }
        let cells = [figure(verdict.herald), figure(verdict.limit), standing];
        table.cells(&verdict.name, cells.into_iter().chain([verdict.because.clone()]), "");
    }
    table
}

/// The cases that miss their CPU budget, except those with wrong answers.
pub(crate) fn missed(verdicts: &[Verdict]) -> Vec<Case> {
    let missed = verdicts.iter().filter(|verdict| verdict.standing() == Standing::Missed);
    let missed = missed.filter(|verdict| !verdict.wrong_answers);
    let mut cases: Vec<Case> = missed.filter_map(|verdict| verdict.case).collect();
    cases.dedup();
    cases
}
