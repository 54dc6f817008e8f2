//! Cost of a program as an agent, compared with the program alone.

use std::{
    io::Write,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::ensure;

use super::{
    Options,
    install::Bench,
    load::{Case, Kind},
    median, pause, print,
    report::{Table, pinning},
    say,
    server::{Data, Running, Subject},
};

/// Numbers of connections and of programs.
const CASES: [(u64, u64); 2] = [(1, 300), (32, 1_000)];

const TEXT: &[u8] = b"a line that the program says again as it was said";

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    let data = Data::create(bench)?;
    let server = Running::start(bench, Subject::Herald, &data)?;
    pause(Duration::from_millis(500));
    let mut table = Table::with_words_from(5);
    table.heading(&format!(
        "\nA program (cat) as an agent, {}; milliseconds from start to end, program after program",
        pinning(bench.pinned)
    ));
    let titles = ["itself", "as an agent", "more", "server CPU µs"];
    table.cells("", titles.map(str::to_owned), "");
    for (concurrency, full) in CASES {
        let count = if options.quick { full / 5 } else { full };
        let case = Case::new(Kind::Program, concurrency);
        let (mut alone, mut served, mut cpu) = (Vec::new(), Vec::new(), Vec::new());
        for round in 1..=options.rounds {
            say(format!("{case}: round {round} of {}", options.rounds));
            alone.push(by_itself(concurrency, count)?);
            let reading = case.run(bench, &server, count, &data.file("ids"))?;
            let errors = reading.outcome.errors;
            let first = reading.outcome.error.unwrap_or_default();
            ensure!(errors == 0, "{case}: {errors} errors, the first: {first}");
            served.push(1e3 / reading.outcome.per_second);
            cpu.push(reading.cpu.total());
        }
        let [alone, served, cpu] = [alone, served, cpu].map(|all| median(all).unwrap_or(f64::NAN));
        let cells = [alone, served, served - alone].map(|value| format!("{value:.2}"));
        let cells = cells.into_iter().chain([format!("{cpu:.0}")]);
        table.cells(format!("{concurrency} at once"), cells, "");
    }
    print(table)
}

/// Milliseconds per program, with so many running at once.
fn by_itself(concurrency: u64, count: u64) -> anyhow::Result<f64> {
    let each = count.div_ceil(concurrency);
    let begun = Instant::now();
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..concurrency).map(|_| scope.spawn(move || lane(each))).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().expect("no lane panics"))
    })?;
    Ok(begun.elapsed().as_secs_f64() * 1e3 / (each * concurrency) as f64)
}

fn lane(count: u64) -> anyhow::Result<()> {
    for _ in 0..count {
        let piped = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut program = piped?;
        if let Some(mut stdin) = program.stdin.take() {
            stdin.write_all(TEXT)?;
        }
        ensure!(program.wait_with_output()?.stdout == TEXT, "cat said something else");
    }
    Ok(())
}
