//! `herald doctor`: looks at everything a server needs, and says what to do about what is wrong.
//! It changes nothing; in the data directory it writes a file of its own, and removes it.

mod clock;
mod config;
mod disk;
mod port;
mod public;
mod store;
mod tls;

use std::fmt::Write;

use serde::Serialize;

use crate::{
    args::{Doctor, Format},
    client::fault::Fault,
    output::{self, inline},
};

/// What all checks found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The worst of them.
    verdict: Verdict,
    checks: Vec<Finding>,
}

/// What one check found.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    check: &'static str,
    verdict: Verdict,
    seen: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    /// As it should be.
    Ok,
    /// It works, and somebody should look at it.
    Warn,
    /// The server does not start, loses something, or cannot be reached.
    Fail,
}

impl Finding {
    fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, verdict: Verdict::Ok, seen: seen.into(), remedy: None }
    }

    fn warn(check: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { check, verdict: Verdict::Warn, seen: seen.into(), remedy }
    }

    fn fail(check: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { check, verdict: Verdict::Fail, seen: seen.into(), remedy }
    }
}

/// Looks at everything, prints what was found, and returns the worst of it.
pub(crate) async fn run(args: &Doctor) -> Result<Verdict, Fault> {
    let checks = look(args).await;
    let verdict = checks.iter().map(|finding| finding.verdict).max().unwrap_or(Verdict::Ok);
    let report = Report { verdict, checks };
    match args.output {
        Format::Text => output::print(&report.table())?,
        Format::Json => output::document(&report)?,
    }
    Ok(verdict)
}

async fn look(args: &Doctor) -> Vec<Finding> {
    let watch = clock::Watch::start();
    let (found, subject) = config::check(&args.serve).await;
    let mut checks = vec![found];
    // Without settings nobody knows what else to look at.
    let Some(subject) = subject else { return checks };
    let settings = &subject.settings;
    let (found, inspection) = store::check(settings, args.timeout).await;
    let in_use = inspection.as_ref().is_some_and(|inspection| inspection.in_use);
    let (port, serving) = port::check(&subject, in_use, args.timeout).await;
    checks.extend(port);
    checks.push(found);
    checks.extend(disk::check(settings).await);
    let (found, date) = public::check(&subject, serving, args.timeout).await;
    checks.push(watch.check(settings, inspection.as_ref(), date));
    checks.extend(tls::check(settings));
    checks.extend(found);
    checks
}

impl Report {
    fn table(&self) -> String {
        let mut text = String::new();
        let width = self.checks.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        for finding in &self.checks {
            let Finding { check, verdict, seen, remedy } = finding;
            let mut label = format!("{:<6}{check:<width$}  ", verdict.name());
            let indent = " ".repeat(label.len());
            let remedy = remedy.iter().map(|remedy| format!("-> {remedy}"));
            for line in seen.lines().map(str::to_owned).chain(remedy) {
                writeln!(text, "{label}{}", inline(&line)).expect("writing to a string");
                label.clone_from(&indent);
            }
        }
        text
    }
}

impl Verdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}
