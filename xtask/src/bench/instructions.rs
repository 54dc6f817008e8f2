//! Instructions per request, counted by callgrind.
//!
//! Each figure is the difference of two runs with different numbers of requests on new servers, so that the start, the first tasks and
//! the stop cancel out. Counts depend less on the machine than times do, but not on the build alone: two copies of one build differed by
//! up to 2 % for sends and gets and 5 % for streams. A copy of the same build as the baseline shows how much it is here.

use std::{
    ffi::OsString,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, ensure};

use super::{
    Options,
    install::Bench,
    load::{Case, Kind, Outcome},
    median, print,
    report::Table,
    say,
    server::{Data, Running, Subject},
};
use crate::prepare;

const CONCURRENCY: u64 = 64;

/// Tasks that are there before a case begins: gets read them, and statements and connections are warm.
const BEFORE: u64 = 200;

/// Cases, and how many requests the shorter and the longer run have.
const CASES: [(Kind, u64, u64); 3] =
    [(Kind::Send, 300, 2300), (Kind::Get, 500, 4500), (Kind::Stream, 100, 900)];

/// Bytes of the data part of each message, and what the table calls it.
const MESSAGES: [(usize, &str); 2] = [(0, "text"), (2048, "text and 2 KB of data")];

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    prepare::need("valgrind", &["valgrind"])?;
    let mut binaries: Vec<PathBuf> = options.baseline.iter().cloned().collect();
    binaries.push(bench.herald());
    let mut table = Table::with_words_from(if options.baseline.is_some() { 4 } else { 2 });
    table.heading(&format!(
        "\nInstructions per request, JSON-RPC, {CONCURRENCY} at once (callgrind, by the difference of two runs; medians of {} rounds)",
        options.rounds
    ));
    let titles =
        if options.baseline.is_some() { &["before", "after", "ratio"][..] } else { &["now"] };
    table.cells("", titles.iter().map(|title| (*title).to_owned()), "rounds");
    for (kind, few, many) in CASES {
        for (data, words) in MESSAGES {
            let mut counts = vec![Vec::new(); binaries.len()];
            // In turn, so that a change of the machine's load affects both builds.
            for round in 1..=options.rounds {
                say(format!("{}, {words}: round {round} of {}", kind.name(), options.rounds));
                for (binary, counts) in binaries.iter().zip(&mut counts) {
                    let none = BenchCredential::None;
                    let one = |requests| count(bench, binary, kind, data, requests, none);
                    counts.push((one(many)? as f64 - one(few)? as f64) / (many - few) as f64);
                }
            }
            table.cells(format!("{}, {words}", kind.name()), cells(&counts), &ranges(&counts));
        }
    }
    print(table)
}

/// The bearer token of the case with credentials, and the configuration that accepts it.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const TOKENS: &str = "[[auth.tokens]]\ntoken = \"0123456789abcdef0123456789abcdef\"\n\
                      tenant = \"acme\"\nprincipal = \"ann\"\n";

/// Instructions with credentials may be this multiple of those without.
const AUTH: f64 = 1.05;

/// The credential of each request.
#[derive(Clone, Copy)]
enum BenchCredential {
    None,
    /// A token of the configuration.
    Token,
    /// An API key of the store.
    ApiKey,
}

/// Instructions per send without credentials, with a token of the configuration and with an API key.
pub(crate) fn auth(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    prepare::need("valgrind", &["valgrind"])?;
    let (kind, few, many) = CASES[0];
    use BenchCredential::{ApiKey, None, Token};
    let mut counts = vec![Vec::new(); 3];
    for round in 1..=options.rounds {
        say(format!("{}: round {round} of {}", kind.name(), options.rounds));
        for (credential, counts) in [None, Token, ApiKey].into_iter().zip(&mut counts) {
            let one = |requests| count(bench, &bench.herald(), kind, 0, requests, credential);
            counts.push((one(many)? as f64 - one(few)? as f64) / (many - few) as f64);
        }
    }
    let mut table = Table::with_words_from(4);
    table.heading(&format!(
        "\nInstructions per send, JSON-RPC, {CONCURRENCY} at once (callgrind, medians of {} rounds; limit {AUTH}×)",
        options.rounds
    ));
    let titles = ["without", "with", "ratio"].map(str::to_owned);
    table.cells("", titles, "rounds");
    for (index, name) in [(1, "a token"), (2, "an API key")] {
        let pair = [counts[0].clone(), counts[index].clone()];
        table.cells(format!("{}, {name}", kind.name()), cells(&pair), &ranges(&pair));
    }
    print(table)
}

/// The median of each build, and their ratio where there are two.
fn cells(counts: &[Vec<f64>]) -> Vec<String> {
    let medians = counts.iter().map(|rounds| median(rounds.iter().copied()).unwrap_or(f64::NAN));
    let medians: Vec<f64> = medians.collect();
    let mut cells: Vec<String> = medians.iter().map(|median| thousands(*median)).collect();
    if let [before, after] = medians[..] {
        cells.push(format!("{:.3}×", after / before));
    }
    cells
}

/// The smallest and the largest count of each build: where these overlap, the difference between the builds says nothing.
fn ranges(counts: &[Vec<f64>]) -> String {
    let range = |rounds: &Vec<f64>| {
        let (low, high) =
            (rounds.iter().copied().reduce(f64::min), rounds.iter().copied().reduce(f64::max));
        format!("{} to {}", thousands(low.unwrap_or(f64::NAN)), thousands(high.unwrap_or(f64::NAN)))
    };
    counts.iter().map(range).collect::<Vec<_>>().join("; ")
}

/// All instructions of a server from its start to its end.
fn count(
    bench: &Bench,
    binary: &Path,
    kind: Kind,
    data: usize,
    requests: u64,
    credential: BenchCredential,
) -> anyhow::Result<u64> {
    let place = Data::create(bench)?;
    let (lines, token) = match credential {
        BenchCredential::None => ("", None),
        BenchCredential::Token => (TOKENS, Some(TOKEN)),
        BenchCredential::ApiKey => ("", Some(&*create_key(binary, &place)?.leak())),
    };
    place.configure(lines)?;
    let (ids, out) = (place.file("ids"), place.file("callgrind.out"));
    let mut tool: Vec<OsString> =
        ["valgrind", "--quiet", "--tool=callgrind"].map(Into::into).into();
    let mut file = OsString::from("--callgrind-out-file=");
    file.push(&out);
    tool.push(file);
    // Under one name for all builds, so that they get the same arguments.
    let link = place.file("herald");
    symlink(binary, &link)?;
    let server = Running::launch(bench.wrapped(&tool, &link), Subject::Herald, &place)?;
    let run = |kind, requests| -> anyhow::Result<()> {
        let case = Case::new(kind, CONCURRENCY).with_data(data).with_token(token);
        let outcome: Outcome = case.answers(bench, &server, requests, &ids)?;
        let error = outcome.error.unwrap_or_default();
        ensure!(
            outcome.errors == 0,
            "{}: {} errors, the first: {error}",
            kind.name(),
            outcome.errors
        );
        Ok(())
    };
    run(Kind::Send, BEFORE)?;
    run(kind, requests)?;
    server.stop()?;
    total(&fs::read_to_string(&out).context("callgrind wrote no result")?)
}

/// A new API key in the store of a server that is not started yet.
fn create_key(binary: &Path, place: &Data) -> anyhow::Result<String> {
    fs::create_dir_all(place.file("store"))?;
    let mut command = Command::new(binary);
    command.args(["key", "create", "--principal", "bench", "-o", "json", "--data"]);
    let output = command.arg(place.file("store")).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let created: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    Ok(created["key"].as_str().context("a reply without a key")?.to_owned())
}

/// The count in a file of callgrind.
fn total(text: &str) -> anyhow::Result<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("summary:").or_else(|| line.strip_prefix("totals:")));
    Ok(line.context("a file of callgrind without a total")?.trim().parse()?)
}

/// A number for people, rounded to hundreds.
fn thousands(count: f64) -> String {
    let digits = ((count / 100.0).round() as i64 * 100).to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_of_callgrind_is_found() {
        let text = "version: 1\nevents: Ir\nsummary: 123456\n\nfn=(1) main\n";
        assert_eq!(total(text).unwrap(), 123_456);
        assert!(total("version: 1\n").is_err());
    }

    #[test]
    fn counts_are_rounded_and_grouped() {
        assert_eq!(thousands(278_049.4), "278,000");
        assert_eq!(thousands(900.0), "900");
        assert_eq!(thousands(1_173_612.0), "1,173,600");
    }
}
