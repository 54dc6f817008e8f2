//! Tests of `herald conformance` against the official SDK servers. `cargo xtask test` installs them.

use std::{collections::BTreeMap, env, path::PathBuf, process::Stdio, time::Duration};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::report::{Row, report};

/// Failed tests with their bindings.
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

/// An agent on an official SDK, which ends with the test.
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

    /// The only tests that it fails.
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
async fn it_finds_the_known_faults_of_the_python_server_1_x() {
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
async fn it_finds_the_known_faults_of_the_javascript_server_1_x() {
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
async fn it_finds_the_known_faults_of_the_rust_server() {
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
async fn it_finds_the_known_faults_of_the_python_server_0_3() {
    Official::python("python03").await.fails(&["PUSH-026 jsonrpc"], &[]).await;
}

#[tokio::test]
async fn it_finds_no_faults_of_the_javascript_server_0_3() {
    Official::javascript("js03").await.fails(&[], &[]).await;
}
