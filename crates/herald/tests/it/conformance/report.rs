//! Runs of `herald conformance` and their reports.

use std::{env, time::Duration};

use serde_json::Value;
use tokio::process::Command;

use crate::support::{Ended, ended_within};

/// The agent that acts on the prefixes of the public suites.
pub(crate) const STEERED: &str = r#"
[[agents]]
name = "conformance"
kind = "conformance"
default = true
"#;

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Row {
    pub(crate) test: String,
    pub(crate) level: String,
    pub(crate) binding: String,
    pub(crate) version: String,
    pub(crate) result: String,
    pub(crate) said: String,
}

/// Runs the verb with a long timeout.
pub(crate) async fn conformance(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("A2ACLI_") {
            command.env_remove(name);
        }
    }
    command.arg("conformance").args(arguments).env("COLUMNS", "100");
    ended_within(command, Duration::from_secs(180)).await
}

/// Runs it with `-o json` and parses the report.
pub(crate) async fn report(arguments: &[&str]) -> (Value, Vec<Row>) {
    let ended = conformance(&[arguments, &["-o", "json", "--timeout", "60s"]].concat()).await;
    let report: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"));
    let code = if report["conformant"] == true { 0 } else { 1 };
    assert_eq!(ended.status.code(), Some(code), "{ended:?}");
    let mut rows = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    for one in report["reports"].as_array().unwrap() {
        for suite in one["suites"].as_array().unwrap() {
            for test in suite["tests"].as_array().unwrap() {
                rows.push(Row {
                    test: text(&test["id"]),
                    level: text(&test["level"]),
                    binding: text(&one["transport"]),
                    version: text(&one["spec_version"]),
                    result: text(&test["result"]),
                    said: text(&test["failure"]["message"]) + &text(&test["skip_reason"]),
                });
            }
        }
    }
    (report, rows)
}
