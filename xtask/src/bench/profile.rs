//! CPU profile of a case that misses its budget.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use super::{
    Options,
    install::Bench,
    load::Case,
    report::Table,
    rounds::{Results, Scale, warm_up},
    say,
    server::{Data, Running, Subject},
};

/// The number of functions in a profile.
const FUNCTIONS: usize = 25;

/// User and system time, the time of each thread, and the functions of Herald, if there is `perf`.
pub(crate) fn of(
    bench: &Bench,
    options: &Options,
    results: &Results,
    case: Case,
) -> anyhow::Result<String> {
    let split = split(results, case);
    let functions = functions(bench, &Scale::of(options), case)?;
    let functions = functions.unwrap_or_else(|| {
        "  (install perf, in package linux-perf or linux-tools, to see the functions)".to_owned()
    });
    Ok(format!(
        "Where the CPU time of {case} goes, µs per request:\n{split}herald, by function:\n{functions}\n"
    ))
}

fn split(results: &Results, case: Case) -> Table {
    let mut table = Table::new();
    for subject in [Subject::Herald, Subject::Floor] {
        let Some(readings) = results.of(subject) else { continue };
        table.heading(subject.name());
        let mut line = |name: &str, value: Option<f64>| {
            let share = value.zip(readings.cpu(case)).map(|(part, all)| part / all * 100.0);
            let text =
                |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.1}"));
            table.cells(name, [text(value), text(share)], "%");
        };
        line("user", readings.figure(case, |reading| Some(reading.cpu.user)));
        line("system", readings.figure(case, |reading| Some(reading.cpu.system)));
        let first = readings.cases.get(&case).and_then(|rounds| rounds.first());
        for name in first.into_iter().flat_map(|reading| reading.cpu.threads.keys()) {
            let time = readings.figure(case, |reading| reading.cpu.threads.get(name).copied());
            line(&format!("thread {name}"), time);
        }
    }
    table
}

/// Runs the case once more under `perf`; `None` if `perf` is missing or not permitted.
fn functions(bench: &Bench, scale: &Scale, case: Case) -> anyhow::Result<Option<String>> {
    say(format!("profiling {case}"));
    let data = Data::create(bench)?;
    let ids = data.file("ids");
    let server = Running::start(bench, Subject::Herald, &data)?;
    warm_up(bench, &server, Subject::Herald, &ids)?;
    let load = case.command(bench, &server, scale.requests(Subject::Herald, case), &ids);
    let recording = bench.file(&format!("perf-{}-{}.data", case.kind.name(), case.concurrency));
    let mut record = Command::new("perf");
    record.args(["record", "--quiet", "--pid", &server.pid().to_string(), "--output"]);
    record.arg(&recording).arg("--").arg(load.get_program()).args(load.get_args());
    let recorded = record.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !recorded.is_ok_and(|status| status.success()) {
        return Ok(None);
    }
    report(&recording).map(Some)
}

fn report(recording: &Path) -> anyhow::Result<String> {
    let mut perf = Command::new("perf");
    perf.args(["report", "--stdio", "--no-children", "--fields", "overhead,comm,dso,sym"]);
    let output =
        perf.arg("--input").arg(recording).stdin(Stdio::null()).stderr(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    Ok(lines.take(FUNCTIONS).map(str::trim_end).collect::<Vec<_>>().join("\n"))
}
