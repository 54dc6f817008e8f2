//! `herald doctor`: checks of everything that a server needs, with a remedy for each fault.
//! It changes nothing, apart from a test file that it creates and removes in the data directory.

mod auth;
mod clock;
mod config;
mod disk;
mod port;
mod public;
mod store;
mod tls;
mod webhook;

use std::fmt::Write;

use serde::Serialize;

use crate::{
    args::{Doctor, Format},
    client::error::CliError,
    output::{self, inline},
};

/// The findings of all checks.
#[derive(Debug, Serialize)]
pub(crate) struct DoctorReport {
    /// The worst verdict.
    verdict: CheckVerdict,
    checks: Vec<Finding>,
}

/// The finding of one check.
#[derive(Debug, Serialize)]
pub(crate) struct Finding {
    check: &'static str,
    verdict: CheckVerdict,
    seen: String,
    /// The action to take.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum CheckVerdict {
    Ok,
    /// It works, but needs attention.
    Warn,
    /// The server does not start, loses data, or cannot be reached.
    Fail,
}

impl Finding {
    fn ok(check: &'static str, seen: impl Into<String>) -> Self {
        Self { check, verdict: CheckVerdict::Ok, seen: seen.into(), remedy: None }
    }

    fn warn(check: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { check, verdict: CheckVerdict::Warn, seen: seen.into(), remedy }
    }

    fn fail(check: &'static str, seen: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { check, verdict: CheckVerdict::Fail, seen: seen.into(), remedy }
    }
}

/// Runs all checks, prints their findings, and returns the worst verdict.
pub(crate) async fn run(args: &Doctor) -> Result<CheckVerdict, CliError> {
    let checks = run_checks(args).await;
    let verdict = checks.iter().map(|finding| finding.verdict).max().unwrap_or(CheckVerdict::Ok);
    let report = DoctorReport { verdict, checks };
    match args.output {
        Format::Text => output::print(&report.table())?,
        Format::Json => output::document(&report)?,
    }
    Ok(verdict)
}

async fn run_checks(args: &Doctor) -> Vec<Finding> {
    let watch = clock::ClockCheck::start();
    let (found, subject) = config::check(&args.serve).await;
    let mut checks = vec![found];
    // The other checks need valid settings.
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
    checks.extend(auth::check(settings, args.timeout).await);
    checks.extend(found);
    checks.extend(webhook::check(settings, &args.webhook).await);
    checks
}

impl DoctorReport {
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

impl CheckVerdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
        }
    }
}
