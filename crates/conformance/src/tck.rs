//! Runner of the A2A project's TCK, from a checkout: its results become those of our own report.

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
    CheckError, CheckOptions,
    report::{TestFailure, TestResult, TestVerdict},
    suite::{CheckedBinding, Level},
    target::{ServerUnderTest, WELL_KNOWN},
};

/// The TCK's report, relative to its directory.
const REPORT: &str = "reports/compatibility.json";
/// The most bytes of a report.
const LARGEST: u64 = 64 << 20;

/// The TCK's report.
#[derive(Deserialize)]
struct TckReport {
    per_requirement: BTreeMap<String, Requirement>,
}

#[derive(Deserialize)]
struct Requirement {
    level: TckLevel,
    status: TckStatus,
    /// By transport, the result of the last test there.
    transports: BTreeMap<TckTransport, TckStatus>,
    errors: Vec<String>,
    test_ids: Vec<String>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum TckLevel {
    Must,
    Should,
    May,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum TckStatus {
    Pass,
    Fail,
    Skipped,
    #[serde(rename = "NOT TESTED")]
    NotTested,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TckTransport {
    AgentCard,
    Jsonrpc,
    HttpJson,
    Grpc,
}

/// Runs the TCK of `directory` against the server. Its output goes to standard error.
pub(super) async fn run(
    directory: &Path,
    target: &ServerUnderTest,
    options: &CheckOptions,
) -> Result<Vec<TestResult>, CheckError> {
    // The working directory of the process changes, so its path must be absolute.
    let directory = &std::path::absolute(directory).unwrap_or_else(|_| directory.to_owned());
    let report = directory.join(REPORT);
    match fs::remove_file(&report) {
        Err(fault) if fault.kind() != ErrorKind::NotFound => {
            return Err(CheckError::Usage(format!("cannot replace {}: {fault}", report.display())));
        }
        Ok(()) | Err(_) => {}
    }
    let mut command = command(directory, base(target)?, options)?;
    let started = Instant::now();
    let ended = command.status().await.map_err(|fault| {
        CheckError::Usage(format!("the TCK needs Python, which cannot be run: {fault}"))
    })?;
    let found = read(&report).map_err(|why| {
        let shown = directory.display();
        CheckError::Usage(format!("the TCK in {shown} ended ({ended}) without a report: {why}"))
    })?;
    let mut rows = rows(found, started.elapsed(), options);
    // The TCK can fail because of a test that belongs to no requirement.
    let failed = rows.iter().any(|row| matches!(row.verdict, TestVerdict::Fail(_)));
    if !ended.success() && !failed {
        let said = format!("the TCK ended with {ended} and reports no failure; see its output");
        rows.push(row("TCK", Level::Must, None, TestVerdict::Error(said), "the run as a whole"));
    }
    Ok(rows)
}

fn command(directory: &Path, base: &Url, options: &CheckOptions) -> Result<Command, CheckError> {
    if !directory.join("run_tck.py").is_file() {
        let shown = directory.display();
        return Err(CheckError::Usage(format!(
            "{shown} has no run_tck.py; give a checkout of github.com/a2aproject/a2a-tck"
        )));
    }
    let own = directory.join(".venv/bin/python");
    let mut command = Command::new(if own.is_file() { own } else { "python3".into() });
    command.arg("run_tck.py").arg(format!("--sut-host={base}"));
    if options.level == Level::Must {
        command.arg("--level=must");
    }
    if !options.bindings.is_empty() {
        let name = |binding: &CheckedBinding| match binding {
            CheckedBinding::JsonRpc => "jsonrpc",
            CheckedBinding::Rest => "http_json",
            CheckedBinding::Grpc => "grpc",
        };
        let names: Vec<_> = options.bindings.iter().map(name).collect();
        command.arg(format!("--transport={}", names.join(",")));
    }
    // The TCK does not use credentials, so it does not get ours.
    for name in &options.secret_variables {
        command.env_remove(name);
    }
    command.current_dir(directory).stdin(Stdio::null()).stdout(io::stderr()).kill_on_drop(true);
    Ok(command)
}

/// The server's URL for the TCK, which appends the card's path itself.
fn base(target: &ServerUnderTest) -> Result<&Url, CheckError> {
    if target.card_url.path().ends_with(WELL_KNOWN[0]) {
        Ok(&target.base)
    } else {
        Err(CheckError::Usage(format!(
            "the TCK looks for the card at {} only, and it is at {}",
            WELL_KNOWN[0], target.card_url
        )))
    }
}

fn read(path: &Path) -> Result<TckReport, String> {
    let file = File::open(path).map_err(|fault| format!("{}: {fault}", path.display()))?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|fault| fault.to_string())?;
    serde_json::from_slice(&bytes).map_err(|fault| format!("{}: {fault}", path.display()))
}

/// A row for each requirement and transport that was asked for.
fn rows(report: TckReport, took: Duration, options: &CheckOptions) -> Vec<TestResult> {
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
            let why = "the TCK has no test for it".to_owned();
            rows.push(row(&id, level, None, TestVerdict::Skip(why), &name));
        }
        for (transport, status) in &found.transports {
            let binding = transport.binding();
            if all || binding.is_some_and(|binding| options.bindings.contains(&binding)) {
                rows.push(row(&id, level, binding, found.verdict(*status), &name));
            }
        }
    }
    // The time of single tests is unknown, so the first row gets that of the whole run.
    if let Some(first) = rows.first_mut() {
        first.took = took;
    }
    rows
}

fn row(
    id: &str,
    level: Level,
    binding: Option<CheckedBinding>,
    verdict: TestVerdict,
    name: &str,
) -> TestResult {
    TestResult {
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
    /// The report has only the last of several tests over a transport. A requirement that failed
    /// without a failed transport counts as failed over all of them.
    fn verdict(&self, last: TckStatus) -> TestVerdict {
        let nowhere = self.transports.values().all(|status| *status != TckStatus::Fail);
        match last {
            TckStatus::Skipped | TckStatus::NotTested => {
                TestVerdict::Skip("skipped by the TCK".to_owned())
            }
            TckStatus::Pass if self.status != TckStatus::Fail || !nowhere => TestVerdict::Pass,
            TckStatus::Pass | TckStatus::Fail => {
                let said: BTreeSet<_> = self.errors.iter().map(String::as_str).collect();
                let said = said.into_iter().collect::<Vec<_>>().join("; ");
                TestVerdict::Fail(TestFailure::plain("", super::assertion::short(&said)))
            }
        }
    }
}

impl TckLevel {
    const fn ours(self) -> Level {
        match self {
            Self::Must => Level::Must,
            Self::Should => Level::Should,
            Self::May => Level::May,
        }
    }
}

impl TckTransport {
    const fn binding(self) -> Option<CheckedBinding> {
        match self {
            Self::AgentCard => None,
            Self::Jsonrpc => Some(CheckedBinding::JsonRpc),
            Self::HttpJson => Some(CheckedBinding::Rest),
            Self::Grpc => Some(CheckedBinding::Grpc),
        }
    }
}
