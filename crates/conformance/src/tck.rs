//! The TCK of the A2A project, where somebody has it: it is run as it stands, and what it reports is
//! shown like what our own checks find.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, File},
    io::{self, ErrorKind, Read},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use herald_protocol::Version;
use reqwest::Url;
use serde::Deserialize;
use tokio::process::Command;

use super::{
    Options, Trouble,
    report::{Failure, Row, Verdict},
    suite::{Binding, Level},
    target::{Target, WELL_KNOWN},
};

/// Where it writes what it found, below its own directory.
const REPORT: &str = "reports/compatibility.json";
/// More than any such report holds.
const LARGEST: u64 = 64 << 20;

/// What it reports.
#[derive(Deserialize)]
struct Report {
    per_requirement: BTreeMap<String, Requirement>,
}

#[derive(Deserialize)]
struct Requirement {
    level: TheirLevel,
    status: Status,
    /// By transport, the result of the last test there.
    transports: BTreeMap<Transport, Status>,
    errors: Vec<String>,
    test_ids: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum TheirLevel {
    Must,
    Should,
    May,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Status {
    Pass,
    Fail,
    Skipped,
    #[serde(rename = "NOT TESTED")]
    NotTested,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Transport {
    AgentCard,
    Jsonrpc,
    HttpJson,
    Grpc,
}

/// Runs the TCK of `directory` against the server. What it prints on its way goes to standard error.
pub(super) async fn run(
    directory: &Path,
    target: &Target,
    options: &Options,
) -> Result<Vec<Row>, Trouble> {
    // Programs are looked for from their own directory, so that it has to be named from the root.
    let directory = &std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let report = directory.join(REPORT);
    match fs::remove_file(&report) {
        Err(fault) if fault.kind() != ErrorKind::NotFound => {
            return Err(Trouble::Usage(format!("cannot replace {}: {fault}", report.display())));
        }
        Ok(()) | Err(_) => {}
    }
    let mut command = command(directory, base(target)?, options)?;
    let started = Instant::now();
    let ended = command.status().await.map_err(|fault| {
        Trouble::Usage(format!("Python, which the TCK needs, cannot be run: {fault}"))
    })?;
    let found = read(&report).map_err(|why| {
        let shown = directory.display();
        Trouble::Usage(format!("the TCK in {shown} ended ({ended}) without a report: {why}"))
    })?;
    let mut rows = rows(found, started.elapsed(), options);
    // It fails tests that it reports under no requirement.
    let failed = rows.iter().any(|row| matches!(row.verdict, Verdict::Fail(_)));
    if !ended.success() && !failed {
        let said = format!("it ended with {ended} and reports no failure; see its own output");
        rows.push(row("TCK", Level::Must, None, Verdict::Error(said), "the run as a whole"));
    }
    Ok(rows)
}

fn command(directory: &Path, base: &Url, options: &Options) -> Result<Command, Trouble> {
    if !directory.join("run_tck.py").is_file() {
        let shown = directory.display();
        return Err(Trouble::Usage(format!(
            "{shown} has no run_tck.py; it should be a checkout of github.com/a2aproject/a2a-tck"
        )));
    }
    let own = directory.join(".venv/bin/python");
    let mut command = Command::new(if own.is_file() { own } else { "python3".into() });
    command.arg("run_tck.py").arg(format!("--sut-host={base}"));
    if options.level == Level::Must {
        command.arg("--level=must");
    }
    if !options.bindings.is_empty() {
        let name = |binding: &Binding| match binding {
            Binding::JsonRpc => "jsonrpc",
            Binding::Rest => "http_json",
            Binding::Grpc => "grpc",
        };
        let names: Vec<_> = options.bindings.iter().map(name).collect();
        command.arg(format!("--transport={}", names.join(",")));
    }
    // It has no use for our credentials.
    for name in &options.secret_variables {
        command.env_remove(name);
    }
    command.current_dir(directory).stdin(Stdio::null()).stdout(io::stderr()).kill_on_drop(true);
    Ok(command)
}

/// What the TCK calls the server: it looks for the card below that by itself.
fn base(target: &Target) -> Result<&Url, Trouble> {
    match target.card_url.path().ends_with(WELL_KNOWN[0]) {
        true => Ok(&target.base),
        false => Err(Trouble::Usage(format!(
            "the TCK looks for the card at {} only, and it is at {}",
            WELL_KNOWN[0], target.card_url
        ))),
    }
}

fn read(path: &Path) -> Result<Report, String> {
    let file = File::open(path).map_err(|fault| format!("{}: {fault}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|fault| fault.to_string())?;
    serde_json::from_slice(&bytes).map_err(|fault| format!("{}: {fault}", path.display()))
}

/// A row for each requirement and transport that was asked for.
fn rows(report: Report, took: Duration, options: &Options) -> Vec<Row> {
    let mut rows = Vec::new();
    for (id, found) in report.per_requirement {
        let level = found.level.ours();
        let named = options.only.is_empty() || options.only.iter().any(|one| id.starts_with(one));
        if !named || level > options.level {
            continue;
        }
        let name = match found.test_ids.len() {
            0 => "no test of the TCK".to_owned(),
            1 => "one test of the TCK".to_owned(),
            tests => format!("{tests} tests of the TCK"),
        };
        let all = options.bindings.is_empty();
        if found.transports.is_empty() && all {
            let why = "it only stands in its list".to_owned();
            rows.push(row(&id, level, None, Verdict::Skip(why), &name));
        }
        for (transport, status) in &found.transports {
            let binding = transport.binding();
            if all || binding.is_some_and(|binding| options.bindings.contains(&binding)) {
                rows.push(row(&id, level, binding, found.verdict(*status), &name));
            }
        }
    }
    // It measures the whole run and not its tests.
    if let Some(first) = rows.first_mut() {
        first.took = took;
    }
    rows
}

fn row(id: &str, level: Level, binding: Option<Binding>, verdict: Verdict, name: &str) -> Row {
    Row {
        suite: "tck".to_owned(),
        suite_name: "TCK of the A2A project".to_owned(),
        test: id.to_owned(),
        name: name.to_owned(),
        requirements: vec![id.to_owned()],
        level,
        binding,
        version: Version::V1_0,
        verdict,
        took: Duration::ZERO,
    }
}

impl Requirement {
    /// Only the last of several tests over a transport is in the report. A requirement that failed
    /// and does not say where has failed wherever it was tested.
    fn verdict(&self, last: Status) -> Verdict {
        let nowhere = self.transports.values().all(|status| *status != Status::Fail);
        match last {
            Status::Skipped | Status::NotTested => Verdict::Skip("the TCK skips it".to_owned()),
            Status::Pass if self.status != Status::Fail || !nowhere => Verdict::Pass,
            Status::Pass | Status::Fail => {
                let said: BTreeSet<_> = self.errors.iter().map(String::as_str).collect();
                let said = said.into_iter().collect::<Vec<_>>().join("; ");
                Verdict::Fail(Failure::plain("", super::assertion::short(&said)))
            }
        }
    }
}

impl TheirLevel {
    const fn ours(self) -> Level {
        match self {
            Self::Must => Level::Must,
            Self::Should => Level::Should,
            Self::May => Level::May,
        }
    }
}

impl Transport {
    const fn binding(self) -> Option<Binding> {
        match self {
            Self::AgentCard => None,
            Self::Jsonrpc => Some(Binding::JsonRpc),
            Self::HttpJson => Some(Binding::Rest),
            Self::Grpc => Some(Binding::Grpc),
        }
    }
}
