//! `cargo xtask bench`: measures Herald, the floor and the official SDKs in one run.
//!
//! Absolute figures depend on the machine, so each budget is a ratio within one run. CPU time per
//! request is the most reliable figure: latency and throughput depend on the machine's load.

mod flood;
mod growth;
mod install;
mod instructions;
mod live;
mod load;
mod memory;
mod probe;
mod profile;
mod programs;
mod push;
mod receiver;
mod report;
mod rounds;
mod server;
mod turns;
mod workers;

use std::{
    fmt::Display,
    fs,
    io::{self, Write},
    path::PathBuf,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};

use self::{install::Bench, report::Report, server::Subject};

const USAGE: &str = "usage: cargo xtask bench [options]
  --rounds N     how often each server is started and measured; medians are reported (3)
  --quick        one round with fewer requests, tasks and streams: a look, not a measurement
  --only A,B     some of herald, floor, official-rust, python, js
  --growth       instead: what a request costs with few stored tasks and with many
  --tasks N      how many is many (100000)
  --programs     instead: what a program costs as an agent, beside running it
  --instructions instead: instructions per send, get and stream, with text and with data (callgrind)
  --auth         instead: instructions per send with a token or an API key, and without
  --live         instead: CPU per frame and memory per task of 1,000 streams as language models make them
  --baseline P   with --instructions or --live: another herald to measure in the same run, as the state before
  --memory       instead: memory for large messages of every shape over every binding
  --turns        instead: bytes written and time per turn of one long task
  --push         instead: deliveries to webhooks: rate, CPU, sends with and without one, a receiver that hangs,
                 parked webhooks
  --flood        instead: other callers, probes and memory during floods of connections, frames and resets
  --workers      instead: 1,000 workers of one role and 10,000 queued tasks: registration, dispatch, memory, discovery";

pub(crate) struct Options {
    rounds: usize,
    quick: bool,
    subjects: Vec<Subject>,
    mode: Mode,
    tasks: u64,
    baseline: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Rounds,
    Growth,
    Programs,
    Instructions,
    Auth,
    Live,
    Memory,
    Turns,
    Push,
    Flood,
    Workers,
}

/// Runs the benchmark and prints its table. A missed budget is a printed result; an error means that
/// there is no result, or that a server gave wrong answers.
pub(crate) fn run(args: &[String]) -> anyhow::Result<()> {
    let Some(options) = Options::parse(args)? else {
        return print(USAGE);
    };
    let bench = Bench::prepare(&crate::root(), &options.subjects)?;
    match options.mode {
        Mode::Rounds => rounds(&bench, &options),
        Mode::Growth => growth::run(&bench, &options),
        Mode::Programs => programs::run(&bench, &options),
        Mode::Instructions => instructions::run(&bench, &options),
        Mode::Auth => instructions::auth(&bench, &options),
        Mode::Live => live::run(&bench, &options),
        Mode::Memory => memory::run(&bench, &options),
        Mode::Turns => turns::run(&bench),
        Mode::Push => push::run(&bench, &options),
        Mode::Flood => flood::run(&bench, &options),
        Mode::Workers => workers::run(&bench, &options),
    }
}

/// Herald beside the floor and the official SDKs.
fn rounds(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    let results = rounds::run(bench, options)?;
    let report = Report::new(bench, options, &results);
    print(&report)?;
    report.save(&bench.file("result.json"))?;
    for case in report.missed() {
        print(profile::of(bench, options, &results, case)?)?;
    }
    let wrong = results.wrong_answers();
    ensure!(wrong.is_empty(), "the figures are invalid because of errors:\n{wrong}");
    Ok(())
}

impl Options {
    /// `None` when the user asked for help.
    fn parse(args: &[String]) -> anyhow::Result<Option<Self>> {
        let mut options = Self {
            rounds: 3,
            quick: false,
            subjects: Subject::ALL.to_vec(),
            mode: Mode::Rounds,
            tasks: 100_000,
            baseline: None,
        };
        let alone = |options: &mut Self, mode| {
            (options.mode, options.subjects) = (mode, vec![Subject::Herald]);
        };
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("{word} needs a value"));
            match word.as_str() {
                "--rounds" => options.rounds = value()?.parse().context("--rounds: a number")?,
                "--quick" => (options.quick, options.rounds) = (true, 1),
                "--only" => options.subjects = subjects(value()?)?,
                "--growth" => options.mode = Mode::Growth,
                "--programs" => alone(&mut options, Mode::Programs),
                "--instructions" => alone(&mut options, Mode::Instructions),
                "--auth" => alone(&mut options, Mode::Auth),
                "--live" => alone(&mut options, Mode::Live),
                "--memory" => alone(&mut options, Mode::Memory),
                "--turns" => alone(&mut options, Mode::Turns),
                "--push" => alone(&mut options, Mode::Push),
                "--flood" => alone(&mut options, Mode::Flood),
                "--workers" => alone(&mut options, Mode::Workers),
                "--baseline" => {
                    let path = value()?;
                    let path =
                        fs::canonicalize(path).with_context(|| format!("--baseline {path}"))?;
                    options.baseline = Some(path);
                }
                "--tasks" => options.tasks = value()?.parse().context("--tasks: a number")?,
                "-h" | "--help" => return Ok(None),
                _ => bail!("unknown option {word}\n{USAGE}"),
            }
        }
        ensure!(options.rounds > 0, "--rounds must be at least 1");
        if let Some(baseline) = &options.baseline {
            let compares = matches!(options.mode, Mode::Instructions | Mode::Live);
            ensure!(compares, "--baseline needs --instructions or --live");
            ensure!(baseline.is_file(), "--baseline {} is not a file", baseline.display());
        }
        Ok(Some(options))
    }
}

fn subjects(names: &str) -> anyhow::Result<Vec<Subject>> {
    let find = |name: &str| Subject::ALL.into_iter().find(|subject| subject.name() == name);
    names.split(',').map(|name| find(name).with_context(|| format!("no server {name}"))).collect()
}

fn print(text: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout(), "{text}")?)
}

/// Progress goes to standard error, so that the table alone can be redirected.
fn say(text: impl Display) {
    // A closed standard error must not stop the measurement.
    drop(writeln!(io::stderr(), "bench: {text}"));
}

/// Waits for a server to become idle. The loop handles spurious wake-ups.
fn pause(length: Duration) {
    let end = Instant::now() + length;
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        thread::park_timeout(left);
    }
}

/// The middle one, or the mean of the middle two.
fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_nothing_is_nothing() {
        assert_eq!(median([]), None);
    }

    #[test]
    fn the_median_ignores_one_wild_round() {
        assert_eq!(median([2.0, 900.0, 1.0]), Some(2.0));
        assert_eq!(median([1.0, 3.0]), Some(2.0));
    }

    #[test]
    fn unknown_servers_and_options_are_refused() {
        assert!(Options::parse(&["--only".into(), "herald,nobody".into()]).is_err());
        assert!(Options::parse(&["--fast".into()]).is_err());
    }

    #[test]
    fn quick_means_one_round_unless_said_otherwise() {
        let words = ["--quick", "--rounds", "2"].map(Into::into);
        let options = Options::parse(&words).unwrap().unwrap();
        assert!(options.quick && options.rounds == 2);
    }
}
