//! Report of a run: text table, JSON and JUnit XML.
//!
//! The JSON contains reports in the format of ACTS (its section 13), one for each binding and
//! version, with the requirements of every test beside its id.

use std::{
    fmt::{self, Write},
    time::Duration,
};

use herald_protocol::{Timestamp, Version};
use serde::Serialize;
use serde_json::Value;

use super::{
    assertion::Mismatch,
    suite::{CheckedBinding, Level},
};

/// The results of a run.
#[derive(Debug, Clone)]
pub struct Report {
    pub(crate) url: String,
    pub(crate) agent: AgentInfo,
    pub(crate) declares: Declared,
    pub(crate) at: Timestamp,
    pub(crate) rows: Vec<TestResult>,
}

/// The agent under test.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AgentInfo {
    pub(crate) name: String,
    pub(crate) version: String,
}

/// The declarations of its card.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Declared {
    pub(crate) interfaces: Vec<DeclaredInterface>,
    pub(crate) capabilities: Value,
}

/// One interface on the card.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DeclaredInterface {
    pub(crate) binding: &'static str,
    pub(crate) version: String,
    pub(crate) url: String,
}

/// One test over one binding in one version.
#[derive(Debug, Clone)]
pub(crate) struct TestResult {
    pub(crate) suite: String,
    pub(crate) suite_name: String,
    pub(crate) test: String,
    pub(crate) name: String,
    pub(crate) requirements: Vec<String>,
    pub(crate) level: Level,
    /// `None` for tests of the card.
    pub(crate) binding: Option<CheckedBinding>,
    pub(crate) version: Version,
    pub(crate) verdict: TestVerdict,
    pub(crate) took: Duration,
}

/// The verdict of a test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TestVerdict {
    Pass,
    Fail(TestFailure),
    /// The test does not apply, with the reason.
    Skip(String),
    /// The test could not be run, with the reason. The server is not at fault.
    Error(String),
}

/// The step and the reason of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestFailure {
    step: String,
    said: String,
    mismatch: Option<Mismatch>,
}

/// Numbers of tests by verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Tally {
    pub(crate) total: usize,
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    pub(crate) errors: usize,
}

impl TestFailure {
    pub(super) fn new(step: &str, mismatch: Mismatch) -> Self {
        let said = mismatch.to_string();
        Self { step: step.to_owned(), said, mismatch: Some(mismatch) }
    }

    pub(super) fn plain(step: &str, said: String) -> Self {
        Self { step: step.to_owned(), said, mismatch: None }
    }
}

impl fmt::Display for TestFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step.as_str() {
            "" => f.write_str(&self.said),
            step => write!(f, "{step}: {}", self.said),
        }
    }
}

impl TestVerdict {
    const fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail(_) => "fail",
            Self::Skip(_) => "skip",
            Self::Error(_) => "error",
        }
    }

    /// The reason of a verdict other than pass.
    fn reason(&self) -> Option<String> {
        match self {
            Self::Pass => None,
            Self::Fail(failure) => Some(failure.to_string()),
            Self::Skip(why) | Self::Error(why) => Some(why.clone()),
        }
    }
}

impl TestResult {
    fn binding(&self) -> &'static str {
        self.binding.map_or("card", CheckedBinding::name)
    }
}

impl Tally {
    fn of<'a>(rows: impl Iterator<Item = &'a TestResult>) -> Self {
        let mut tally = Self::default();
        for row in rows {
            tally.total += 1;
            match row.verdict {
                TestVerdict::Pass => tally.passed += 1,
                TestVerdict::Fail(_) => tally.failed += 1,
                TestVerdict::Skip(_) => tally.skipped += 1,
                TestVerdict::Error(_) => tally.errors += 1,
            }
        }
        tally
    }
}

impl Report {
    /// True if every MUST that could be checked is met.
    pub fn is_conformant(&self) -> bool {
        let must = self.tally(Level::Must);
        must.failed == 0 && must.errors == 0
    }

    /// Numbers of tests of one level.
    pub(crate) fn tally(&self, level: Level) -> Tally {
        Tally::of(self.rows.iter().filter(|row| row.level == level))
    }

    /// A table for people, one line for each test.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let printed = self.print(&mut out);
        printed.expect("a String takes everything");
        out
    }

    fn print(&self, out: &mut String) -> fmt::Result {
        writeln!(out, "agent     {} {} at {}", self.agent.name, self.agent.version, self.url)?;
        for interface in &self.declares.interfaces {
            let DeclaredInterface { binding, version, url } = interface;
            // The name in cards, if it is another one.
            let name = if *binding == CheckedBinding::Rest.name() { " (HTTP+JSON)" } else { "" };
            writeln!(out, "declares  {binding}{name} {version} {url}")?;
        }
        writeln!(out, "declares  {}", self.declares.capabilities)?;
        let cells = |row: &TestResult| {
            let seen = row.verdict.reason().unwrap_or_default();
            let seen =
                if seen.is_empty() { row.name.clone() } else { format!("{}: {seen}", row.name) };
            let verdict = row.verdict.name();
            let verdict = if verdict == "fail" { "FAIL" } else { verdict };
            [
                row.requirements.join(","),
                row.level.name().to_uppercase(),
                row.binding().to_owned(),
                row.version.to_string(),
                verdict.to_owned(),
                seen,
            ]
        };
        let head = ["REQUIREMENT", "LEVEL", "BINDING", "VERSION", "VERDICT", "CHECK"];
        let mut lines = vec![head.map(str::to_owned)];
        lines.extend(self.rows.iter().map(cells));
        let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
        let widths = [0, 1, 2, 3, 4].map(|column| width(column).unwrap_or(0));
        writeln!(out)?;
        for line in &lines {
            for (cell, width) in line.iter().zip(widths) {
                write!(out, "{cell:width$}  ")?;
            }
            writeln!(out, "{}", line[5])?;
        }
        writeln!(out)?;
        for level in Level::ALL {
            let Tally { passed, failed, skipped, errors, .. } = self.tally(level);
            let name = level.name().to_uppercase();
            write!(out, "{name:6}  {passed} passed, {failed} failed, {skipped} skipped")?;
            match errors {
                0 => writeln!(out)?,
                errors => writeln!(out, ", {errors} could not be run")?,
            }
        }
        if self.is_conformant() {
            writeln!(out, "Every MUST that could be checked is met.")
        } else {
            writeln!(out, "Not conformant.")
        }
    }

    /// JSON for programs, documented in docs/conformance.md.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(&JsonReport::of(self)).expect("a report is JSON")
    }

    /// JUnit XML for CI systems.
    pub fn junit(&self) -> String {
        let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        for (version, binding) in self.places() {
            let rows: Vec<_> = self.at(version, binding).collect();
            let Tally { total, failed, skipped, errors, .. } = Tally::of(rows.iter().copied());
            let name = format!("{} {version}", binding.name());
            let printed = writeln!(
                out,
                "<testsuite name=\"{name}\" tests=\"{total}\" failures=\"{failed}\" \
                 errors=\"{errors}\" skipped=\"{skipped}\">"
            );
            printed.expect("a String takes everything");
            for row in rows {
                let seconds = row.took.as_secs_f64();
                let title = escaped(&format!("{} {}", row.test, row.name));
                let class = escaped(&format!("{name}.{}", row.suite));
                out.push_str(&format!(
                    "<testcase classname=\"{class}\" name=\"{title}\" time=\"{seconds:.3}\">"
                ));
                let reason = escaped(&row.verdict.reason().unwrap_or_default());
                match &row.verdict {
                    TestVerdict::Pass => {}
                    TestVerdict::Fail(_) => {
                        out.push_str(&format!("<failure message=\"{reason}\"/>"));
                    }
                    TestVerdict::Skip(_) => {
                        out.push_str(&format!("<skipped message=\"{reason}\"/>"));
                    }
                    TestVerdict::Error(_) => {
                        out.push_str(&format!("<error message=\"{reason}\"/>"));
                    }
                }
                out.push_str("</testcase>\n");
            }
            out.push_str("</testsuite>\n");
        }
        out + "</testsuites>\n"
    }

    /// The versions and bindings that were tested, in the order of the tests.
    fn places(&self) -> Vec<(Version, CheckedBinding)> {
        let mut places = Vec::new();
        for place in self.rows.iter().map(|row| self.place(row)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }

    /// The report that a result belongs to. Results of the card have no binding and are in the first one.
    fn place(&self, row: &TestResult) -> (Version, CheckedBinding) {
        let same = |other: &&TestResult| other.version == row.version;
        let mut others = self.rows.iter().filter(same);
        let binding = row.binding.or_else(|| others.find_map(|other| other.binding));
        (row.version, binding.unwrap_or(CheckedBinding::JsonRpc))
    }

    fn at(&self, version: Version, binding: CheckedBinding) -> impl Iterator<Item = &TestResult> {
        self.rows.iter().filter(move |row| self.place(row) == (version, binding))
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML does not allow them, not even escaped.
            letter if letter.is_control() => out.push(' '),
            letter => out.push(letter),
        }
    }
    out
}

/// The whole report as JSON.
#[derive(Serialize)]
struct JsonReport<'a> {
    url: &'a str,
    agent: &'a AgentInfo,
    declares: &'a Declared,
    conformant: bool,
    summary: Summary,
    reports: Vec<ActsReport<'a>>,
}

#[derive(Serialize)]
struct Summary {
    #[serde(flatten)]
    all: Tally,
    duration_ms: u128,
    by_level: ByLevel,
}

#[derive(Serialize)]
struct ByLevel {
    must: Tally,
    should: Tally,
    may: Tally,
}

/// A report in the format of ACTS.
#[derive(Serialize)]
struct ActsReport<'a> {
    acts_version: &'static str,
    spec_version: String,
    generated_at: String,
    sdk: Sdk<'a>,
    transport: &'static str,
    summary: Summary,
    suites: Vec<ActsSuite<'a>>,
}

#[derive(Serialize)]
struct Sdk<'a> {
    #[serde(flatten)]
    agent: &'a AgentInfo,
    /// Cards do not contain it, so it is always `unknown`.
    language: &'static str,
}

#[derive(Serialize)]
struct ActsSuite<'a> {
    id: &'a str,
    name: &'a str,
    tests: Vec<ActsTest<'a>>,
}

#[derive(Serialize)]
struct ActsTest<'a> {
    id: &'a str,
    name: &'a str,
    requirements: &'a [String],
    level: &'static str,
    result: &'static str,
    duration_ms: u128,
    #[serde(skip_serializing_if = "Option::is_none")]
    skip_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<ActsFailure<'a>>,
}

#[derive(Serialize)]
struct ActsFailure<'a> {
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    assertion_path: Option<&'a str>,
}

impl<'a> JsonReport<'a> {
    fn of(report: &'a Report) -> Self {
        let reports = report.places().into_iter().map(|(version, binding)| {
            let rows: Vec<_> = report.at(version, binding).collect();
            ActsReport {
                acts_version: "1.0",
                spec_version: version.to_string(),
                generated_at: report.at.to_string(),
                sdk: Sdk { agent: &report.agent, language: "unknown" },
                transport: binding.name(),
                summary: Summary::of(&rows),
                suites: suites(&rows),
            }
        });
        let rows: Vec<_> = report.rows.iter().collect();
        Self {
            url: &report.url,
            agent: &report.agent,
            declares: &report.declares,
            conformant: report.is_conformant(),
            summary: Summary::of(&rows),
            reports: reports.collect(),
        }
    }
}

impl Summary {
    fn of(rows: &[&TestResult]) -> Self {
        let level = |level| Tally::of(rows.iter().copied().filter(|row| row.level == level));
        Self {
            all: Tally::of(rows.iter().copied()),
            duration_ms: rows.iter().map(|row| row.took.as_millis()).sum(),
            by_level: ByLevel {
                must: level(Level::Must),
                should: level(Level::Should),
                may: level(Level::May),
            },
        }
    }
}

fn suites<'a>(rows: &[&'a TestResult]) -> Vec<ActsSuite<'a>> {
    let mut suites: Vec<ActsSuite<'a>> = Vec::new();
    for row in rows {
        let test = ActsTest::of(row);
        match suites.iter_mut().find(|suite| suite.id == row.suite) {
            Some(suite) => suite.tests.push(test),
            None => {
                suites.push(ActsSuite { id: &row.suite, name: &row.suite_name, tests: vec![test] });
            }
        }
    }
    suites
}

impl<'a> ActsTest<'a> {
    fn of(row: &'a TestResult) -> Self {
        let plain = |message: &'a str| ActsFailure {
            message,
            step_id: None,
            expected: None,
            actual: None,
            assertion_path: None,
        };
        let (skip_reason, failure) = match &row.verdict {
            TestVerdict::Pass => (None, None),
            TestVerdict::Skip(why) => (Some(why.as_str()), None),
            TestVerdict::Error(why) => (None, Some(plain(why))),
            TestVerdict::Fail(failure) => {
                let mismatch = failure.mismatch.as_ref();
                let path = mismatch.map(|mismatch| mismatch.path.as_str());
                let shown = ActsFailure {
                    step_id: Some(failure.step.as_str()).filter(|step| !step.is_empty()),
                    expected: mismatch.map(|mismatch| mismatch.expected.as_str()),
                    actual: mismatch.map(|mismatch| mismatch.actual.as_str()),
                    assertion_path: path.filter(|path| !path.is_empty()),
                    ..plain(&failure.said)
                };
                (None, Some(shown))
            }
        };
        Self {
            id: &row.test,
            name: &row.name,
            requirements: &row.requirements,
            level: row.level.name(),
            result: row.verdict.name(),
            duration_ms: row.took.as_millis(),
            skip_reason,
            failure,
        }
    }
}
