//! `herald conformance` against Herald, against the official SDK servers, and against servers that
//! are broken on purpose.

mod broken;

use std::{collections::BTreeMap, env, path::PathBuf, process::Stdio, time::Duration};

use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::support::{Ended, Herald, Options, ended_within};

/// The agent that obeys the prefixes of the public suites.
const STEERED: &str = r#"
[[agents]]
name = "conformance"
kind = "conformance"
default = true
"#;

/// One line of a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    test: String,
    level: String,
    binding: String,
    version: String,
    result: String,
    said: String,
}

/// Runs the verb, which takes longer than others.
async fn conformance(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("A2ACLI_") {
            command.env_remove(name);
        }
    }
    command.arg("conformance").args(arguments).env("COLUMNS", "100");
    ended_within(command, Duration::from_secs(180)).await
}

/// Runs it with `-o json`, and reads what it says.
async fn report(arguments: &[&str]) -> (Value, Vec<Row>) {
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

/// What failed, as the test and the bindings.
fn failed(rows: &[Row], level: &str) -> Vec<String> {
    let mut failed: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.result == "fail" && row.level == level) {
        failed.entry(&row.test).or_default().push(&row.binding);
    }
    failed.into_iter().map(|(test, bindings)| format!("{test} {}", bindings.join(", "))).collect()
}

fn names(list: &[&str]) -> Vec<String> {
    list.iter().map(|name| (*name).to_owned()).collect()
}

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
    // What is skipped is skipped because of what the card says or the agent does.
    for row in rows.iter().filter(|row| row.result == "skip") {
        let known = row.said.starts_with("the card says") || row.said.starts_with("inconclusive");
        assert!(known, "{row:?}");
    }
    assert_eq!(report["declares"]["interfaces"].as_array().unwrap().len(), 6);
    assert_eq!(report["summary"]["total"], rows.len());
}

#[tokio::test]
async fn an_agent_that_obeys_nobody_is_checked_as_far_as_it_goes() {
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
async fn extensions_that_the_card_requires_are_named_in_every_call() {
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

/// An agent on an official SDK, which dies with the test.
struct Official {
    url: String,
    _process: Child,
}

impl Official {
    async fn start(program: PathBuf, script: Option<PathBuf>) -> Self {
        let mut process = Command::new(program)
            .args(script)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = timeout(Duration::from_secs(180), lines.next_line()).await.expect("it starts");
        let url = format!("http://127.0.0.1:{}", port.unwrap().expect("a port"));
        Self { url, _process: process }
    }

    async fn python(name: &str) -> Self {
        let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers");
        let program = installed().join(name).join("bin/python");
        Self::start(program, Some(sources.join(name).join("server.py"))).await
    }

    async fn javascript(name: &str) -> Self {
        Self::start("node".into(), Some(installed().join(name).join("server.mjs"))).await
    }

    async fn rust() -> Self {
        Self::start(installed().join("rust/official-rust-server"), None).await
    }

    /// What it fails, and nothing else.
    async fn fails(&self, must: &[&str], should: &[&str]) {
        let (_, rows) = report(&[&self.url]).await;
        assert_eq!(failed(&rows, "must"), names(must), "{rows:#?}");
        assert_eq!(failed(&rows, "should"), names(should), "{rows:#?}");
        assert!(rows.iter().all(|row| row.result != "error"), "{rows:#?}");
    }
}

fn installed() -> PathBuf {
    let directory = env::var_os("HERALD_TEST_SERVERS");
    directory.expect("the servers are not installed; run `cargo xtask test`").into()
}

/// The official Python SDK 1.3.0. It takes every version of the same major for its own, and any at
/// all over gRPC, where the specification (3.6.2) compares major and minor and has others refused;
/// and it takes parts of media types that the card does not list, for which there is an error of its
/// own (3.1.1). Its card should say for how long it may be kept (8.6.1).
#[tokio::test]
async fn it_finds_what_the_python_server_1_x_does_wrong() {
    let must =
        ["SEND-017 jsonrpc, rest, grpc", "VER-003 grpc", "VER-003-MINOR jsonrpc, rest, grpc"];
    Official::python("python1").await.fails(&must, &["CARD-011 jsonrpc"]).await;
}

/// The official JavaScript SDK 1.3.0. It refuses `1.0.7`, where patch numbers must not count when
/// versions are negotiated (3.6); it answers an empty object with -32602, where JSON-RPC has -32600
/// for what is no request; and it takes parts of media types that the card does not list (3.1.1).
/// Required fields should be checked (5.7): it takes messages without a role or parts, with no
/// parts, with a part of two contents, and a negative length of the history on JSON-RPC.
#[tokio::test]
async fn it_finds_what_the_javascript_server_1_x_does_wrong() {
    let must = ["RPC-006 jsonrpc", "SEND-017 jsonrpc, rest, grpc", "VER-005 jsonrpc, rest, grpc"];
    let should = [
        "FMT-007 jsonrpc, rest",
        "FMT-012-PARTS jsonrpc, rest",
        "FMT-012-ROLE jsonrpc, rest",
        "FMT-013 jsonrpc, rest",
        "GET-008 jsonrpc",
    ];
    Official::javascript("js1").await.fails(&must, &should).await;
}

/// The official Rust SDK (server 0.5). It lists tasks by their ids, where the newest must come first
/// (3.1.4), with artifacts that nobody asked for, which must be left out (3.1.4); keeps webhooks for
/// tasks that do not exist, which is an error (3.1.7); looks at the version on JSON-RPC alone, and
/// there at the major number (3.6.2); and takes parts of media types that the card does not list.
/// Required fields should be checked (5.7), and it checks few.
#[tokio::test]
async fn it_finds_what_the_rust_server_does_wrong() {
    let must = [
        "LIST-002 jsonrpc, rest, grpc",
        "LIST-006 jsonrpc, rest",
        "PUSH-003 jsonrpc, rest, grpc",
        "SEND-017 jsonrpc, rest, grpc",
        "VER-003 rest, grpc",
        "VER-003-MINOR jsonrpc, rest, grpc",
    ];
    let should = [
        "FMT-012-ID jsonrpc",
        "FMT-012-PARTS jsonrpc, rest",
        "FMT-012-ROLE jsonrpc, rest",
        "FMT-013 jsonrpc, rest",
        "GET-008 jsonrpc, rest",
    ];
    Official::rust().await.fails(&must, &should).await;
}

/// The official Python SDK 0.3.26. It answers the deletion of a webhook with neither a result nor an
/// error; JSON-RPC requires one of them, and A2A 0.3 (7.8) a result that is null.
#[tokio::test]
async fn it_finds_what_the_python_server_0_3_does_wrong() {
    Official::python("python03").await.fails(&["PUSH-026 jsonrpc"], &[]).await;
}

#[tokio::test]
async fn it_finds_nothing_wrong_with_the_javascript_server_0_3() {
    Official::javascript("js03").await.fails(&[], &[]).await;
}

#[tokio::test]
async fn a_suite_of_ones_own_is_run_instead() {
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
    assert!(unset.contains("error get: nothing has set {{nobody}}"), "{unset}");
    assert!(result("OWN-WEBHOOK")[0].contains("no webhook"), "{rows:#?}");
    assert!(result("OWN-CLIENT")[0].contains("client"), "{rows:#?}");
    assert!(result("OWN-SKILL")[0].contains("no skill flying"), "{rows:#?}");
    assert!(result("OWN-EXTENSION")[0].contains("no extension urn:none"), "{rows:#?}");
}

/// What stands in for the TCK, which is not ours to keep: it takes its arguments, looks at the server
/// and writes the report of its form.
const KIT: &str = r#"
import json, os, sys, urllib.request
host = [word.split("=", 1)[1] for word in sys.argv if word.startswith("--sut-host=")][0]
card = json.load(urllib.request.urlopen(host + ".well-known/agent-card.json"))
print("dots go here", sys.argv[2:], "A2ACLI_BEARER" in os.environ)
if "--level=must" in sys.argv:
    sys.exit(4)
row = lambda level, status, transports, errors: dict(
    level=level, status=status, transports=transports, errors=errors, test_ids=["a", "b"])
found = {
    "CARD-1": row("MUST", "PASS" if card["name"] else "FAIL", {"agent_card": "PASS"}, []),
    "SEND-1": row("MUST", "FAIL", {"grpc": "PASS", "jsonrpc": "FAIL"}, ["no", "no"]),
    "HTTP-1": row("SHOULD", "FAIL", {"http_json": "PASS"}, ["an earlier test"]),
    "PUSH-1": row("MUST", "SKIPPED", {"grpc": "SKIPPED"}, []),
    "SIGN-1": row("MAY", "NOT TESTED", {}, []),
}
if "--transport=http_json" in sys.argv:
    found["HTTP-1"] = row("SHOULD", "PASS", {"http_json": "PASS"}, [])
os.makedirs("reports", exist_ok=True)
json.dump({"summary": {}, "per_requirement": found}, open("reports/compatibility.json", "w"))
sys.exit(1)
"#;

#[tokio::test]
async fn the_kit_of_the_a2a_project_is_run_where_it_is_installed() {
    let herald = Herald::start(Options::config(STEERED)).await;
    let url = format!("http://{}", herald.address);
    let folder = tempfile::tempdir().unwrap();
    let kit = folder.path().to_str().unwrap();
    let run = [url.as_str(), "--tck", kit];
    let ended = conformance(&run).await;
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("a checkout of github.com/a2aproject/a2a-tck"), "{ended:?}");
    std::fs::write(folder.path().join("run_tck.py"), KIT).unwrap();
    let (report, rows) = report(&run).await;
    assert_eq!(report["conformant"], false);
    let line = |row: &Row| {
        format!("{} {} {} {} {}", row.test, row.level, row.binding, row.result, row.said)
    };
    let mut seen: Vec<_> = rows.iter().map(line).collect();
    seen.sort();
    let expected = [
        "CARD-1 must rest pass ",
        "HTTP-1 should rest fail an earlier test",
        "PUSH-1 must grpc skip the TCK skips it",
        "SEND-1 must grpc pass ",
        "SEND-1 must jsonrpc fail no",
        "SIGN-1 may rest skip it only stands in its list",
    ];
    assert_eq!(seen, names(&expected));
    // A run that fails and does not say of what has failed.
    let ended = conformance(&[&run[..], &["--binding", "rest"]].concat()).await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    assert!(ended.stderr.contains("dots go here ['--transport=http_json'] False"), "{ended:?}");
    assert!(ended.stdout.contains("reports no failure"), "{ended:?}");
    assert!(!ended.stdout.contains("grpc     1.0      pass"), "{ended:?}");
    // What an earlier run left is not taken for this one's.
    let ended = conformance(&[&run[..], &["--level", "must"]].concat()).await;
    assert_eq!(ended.status.code(), Some(2), "{ended:?}");
    assert!(ended.stderr.contains("without a report"), "{ended:?}");
}

#[tokio::test]
async fn the_exit_code_says_what_happened() {
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
        (vec![], 2, "no server is named"),
        (vec!["./card.json"], 2, "over the network"),
        (vec!["http://me:secret@host"], 3, "credentials"),
        (vec!["gopher://host"], 3, "expected http"),
        (vec![closed.as_str()], 3, "nothing listens there"),
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
async fn flags_choose_what_is_checked_and_how_it_is_shown() {
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
    assert!(table.ends_with("Every MUST that could be checked is met.\n"), "{table}");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.xml");
    conformance(&[&chosen[..], &["--junit", file.to_str().unwrap()]].concat()).await;
    let xml = std::fs::read_to_string(file).unwrap();
    assert!(xml.contains("<testsuite name=\"rest 1.0\" tests=\""), "{xml}");
    assert_eq!(xml.matches("<testcase ").count(), rows.len(), "{xml}");
}

#[tokio::test]
async fn a_server_that_wants_credentials_gets_them() {
    let config = r#"
[auth]
required = true
tokens = [{ token = "s3cret-token", tenant = "t", principal = "p" }]
[card]
interfaces = ["jsonrpc", "http+json", "grpc"]
"#;
    let herald = Herald::start(Options::config(config)).await;
    let url = format!("http://{}", herald.address);
    let only = ["--only", "SEND-001", "--only", "ERR-068", "--only", "ERR-069"];
    let run = [&[url.as_str(), "--bearer", "s3cret-token"], &only[..]].concat();
    let (report, rows) = report(&run).await;
    assert!(rows.len() >= 6 && rows.iter().all(|row| row.result == "pass"), "{rows:#?}");
    assert!(!report.to_string().contains("s3cret"), "{report:#}");
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
