//! Tests of `herald conformance` against Herald and against servers with faults.

mod broken;
mod report;

use std::{env, time::Duration};

use tokio::process::Command;

use self::report::{STEERED, conformance, report};
use crate::support::{Herald, Options, ended_within};

#[tokio::test]
async fn herald_passes_every_check_over_every_binding_and_version() {
    let herald = Herald::start(Options::config(STEERED)).await;
    let url = format!("http://{}", herald.address);
    let (report, rows) = report(&[&url, "--sut", "tck"]).await;
    let wrong: Vec<_> =
        rows.iter().filter(|row| !["pass", "skip"].contains(&row.result.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    for version in ["1.0", "0.3"] {
        for binding in ["jsonrpc", "rest", "grpc"] {
            let passed = rows.iter().filter(|row| {
                row.version == version && row.binding == binding && row.result == "pass"
            });
            assert!(passed.count() >= 5, "{binding} {version}");
        }
    }
    // Checks are skipped only because of the card or the agent's behaviour.
    for row in rows.iter().filter(|row| row.result == "skip") {
        let known = row.said.starts_with("the card says") || row.said.starts_with("inconclusive");
        assert!(known, "{row:?}");
    }
    assert_eq!(report["declares"]["interfaces"].as_array().unwrap().len(), 6);
    assert_eq!(report["summary"]["total"], rows.len());
}

#[tokio::test]
async fn an_agent_without_prefixes_is_checked_as_far_as_possible() {
    let herald = Herald::start(Options::agents()).await;
    let (_, rows) = report(&[&format!("http://{}", herald.address)]).await;
    let wrong: Vec<_> =
        rows.iter().filter(|row| !["pass", "skip"].contains(&row.result.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let asked = |test: &str| rows.iter().filter(|row| row.test == test).collect::<Vec<_>>();
    let said = &asked("CAN-001")[0].said;
    assert!(said.contains("--sut tck"), "{said}");
}

#[tokio::test]
async fn extensions_of_the_card_are_sent_with_every_check() {
    let extension = r#"extensions = [{ uri = "urn:test:required", required = true }]"#;
    let config = format!("{STEERED}{extension}\n");
    let herald = Herald::start(Options::config(config)).await;
    let (_, rows) = report(&[&format!("http://{}", herald.address), "--sut", "tck"]).await;
    let wrong: Vec<_> =
        rows.iter().filter(|row| !["pass", "skip"].contains(&row.result.as_str())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    let passed = rows.iter().filter(|row| row.test == "EXT-005" && row.result == "pass");
    assert_eq!(passed.count(), 3, "over every binding of 1.0");
}

#[tokio::test]
async fn a_suite_file_replaces_the_built_in_suites() {
    let herald = Herald::start(Options::config(STEERED)).await;
    let url = format!("http://{}", herald.address);
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("own.acts.yaml");
    std::fs::write(&suite, include_str!("conformance/own.acts.yaml")).unwrap();
    let suite = suite.to_str().unwrap();
    let run = [&url, "--suite", suite, "--sut", "tck", "--set", "word=chosen"];
    let (_, rows) = report(&run).await;
    let result = |test: &str| {
        let rows = rows.iter().filter(|row| row.test == test);
        rows.map(|row| format!("{} {} {}", row.binding, row.result, row.said)).collect::<Vec<_>>()
    };
    for test in ["OWN-POLL", "OWN-CLAIM", "OWN-STREAM"] {
        assert_eq!(result(test), ["jsonrpc pass ", "rest pass ", "grpc pass "], "{test}");
    }
    assert_eq!(result("OWN-RAW"), ["rest pass "]);
    assert_eq!(result("OWN-RAW-ERROR"), ["rest pass "]);
    let [wrong] = &result("OWN-WRONG")[..] else { panic!("{rows:#?}") };
    assert!(wrong.starts_with("rest fail status: expected 299, found 404"), "{wrong}");
    let [unset] = &result("OWN-UNSET")[..] else { panic!("{rows:#?}") };
    assert!(unset.contains("error get: {{nobody}} has no value"), "{unset}");
    assert!(result("OWN-WEBHOOK")[0].contains("needs a webhook"), "{rows:#?}");
    assert!(result("OWN-CLIENT")[0].contains("client"), "{rows:#?}");
    assert!(result("OWN-SKILL")[0].contains("not have the skill flying"), "{rows:#?}");
    assert!(result("OWN-EXTENSION")[0].contains("not have the extension urn:none"), "{rows:#?}");
}

#[tokio::test]
async fn the_exit_code_reports_the_result() {
    let herald = Herald::start(Options::agents()).await;
    let url = format!("http://{}", herald.address);
    let folder = tempfile::tempdir().unwrap();
    let suite = folder.path().join("bad.acts.yaml");
    std::fs::write(&suite, "acts_version: \"1.0\"\nspec_version: 1.0\nsuites: [{}]\n").unwrap();
    let suite = suite.to_str().unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let closed = format!("http://{closed}");
    for (arguments, code, said) in [
        (vec![url.as_str(), "--level", "must", "--only", "CARD"], 0, ""),
        (vec![&url, "--only", "NOTHING"], 2, "nothing to check"),
        (vec![&url, "--suite", suite], 2, "bad.acts.yaml: suites[0]"),
        (vec![], 2, "no server is given"),
        (vec!["./card.json"], 2, "on the network"),
        (vec!["http://me:secret@host"], 3, "credentials"),
        (vec!["gopher://host"], 3, "use http"),
        (vec![closed.as_str()], 3, "no program listens on that port"),
        (vec![&format!("{url}/agents/nobody")], 3, "no agent card"),
    ] {
        let ended = conformance(&arguments).await;
        assert_eq!(ended.status.code(), Some(code), "{arguments:?} {ended:?}");
        assert!(ended.stderr.contains(said), "{arguments:?} {ended:?}");
        assert!(!ended.stderr.contains("secret"), "{ended:?}");
        assert!(!ended.stderr.contains("Progress"), "no terminal, no progress: {ended:?}");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    command.args(["conformance", "--only", "CARD"]).env("A2ACLI_AGENT_CARD", &url);
    let ended = ended_within(command, Duration::from_secs(180)).await;
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
}

#[tokio::test]
async fn flags_select_the_checks_and_the_output() {
    let herald = Herald::start(Options::config(STEERED)).await;
    let url = format!("http://{}", herald.address);
    let chosen = [url.as_str(), "--only", "GET", "--binding", "rest", "--a2a-version", "1.0"];
    let (_, rows) = report(&chosen).await;
    assert!(!rows.is_empty());
    for row in &rows {
        assert!(row.test.starts_with("GET"), "{row:?}");
        assert_eq!((row.binding.as_str(), row.version.as_str()), ("rest", "1.0"), "{row:?}");
    }
    let (_, strict) = report(&[&chosen[..], &["--level", "must"]].concat()).await;
    assert!(!strict.is_empty() && strict.len() < rows.len());
    assert!(strict.iter().all(|row| row.level == "must"));
    let table = conformance(&chosen).await.stdout;
    let line = "GET-002,ERR-001,ERR-021,ERR-041  MUST    rest     1.0      pass     A task that";
    assert!(table.contains(line), "{table}");
    assert!(table.contains("declares  grpc 0.3"), "{table}");
    assert!(table.contains("declares  rest (HTTP+JSON) 1.0 http"), "{table}");
    assert!(table.ends_with("Every MUST that could be checked is met.\n"), "{table}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.xml");
    conformance(&[&chosen[..], &["--junit", file.to_str().unwrap()]].concat()).await;
    let xml = std::fs::read_to_string(file).unwrap();
    assert!(xml.contains("<testsuite name=\"rest 1.0\" tests=\""), "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), rows.len(), "{xml}");
}

#[tokio::test]
async fn a_server_that_requires_credentials_gets_them() {
    let config = r#"
[auth]
required = true
tokens = [{ token = "canary-7c5e-token", tenant = "t", principal = "p" }]
[card]
interfaces = ["jsonrpc", "http+json", "grpc"]
"#;
    let herald = Herald::start(Options::config(config)).await;
    let url = format!("http://{}", herald.address);
    let only = ["--only", "SEND-001", "--only", "ERR-068", "--only", "ERR-069"];
    let run = [&[url.as_str(), "--bearer", "canary-7c5e-token"], &only[..]].concat();
    let (report, rows) = report(&run).await;
    assert!(rows.len() >= 6 && rows.iter().all(|row| row.result == "pass"), "{rows:#?}");
    assert!(!report.to_string().contains("canary-7c5e"), "{report:#}");
    let ended = conformance(&[&[url.as_str()], &only[..]].concat()).await;
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert!(ended.stderr.contains("A2ACLI_BEARER"), "{ended:?}");
    for binding in ["jsonrpc", "grpc"] {
        let wrong = [url.as_str(), "--bearer", "guess", "--binding", binding];
        let ended = conformance(&wrong).await;
        assert_eq!(ended.status.code(), Some(4), "{ended:?}");
        assert!(ended.stderr.contains("does not accept the token"), "{ended:?}");
        assert!(!ended.stdout.contains("FAIL"), "{ended:?}");
    }
}
