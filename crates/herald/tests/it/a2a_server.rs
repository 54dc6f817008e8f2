//! Tests of `a2a-server`: the binary under its other name and flags.

use std::{os::unix::fs::symlink, path::PathBuf};

use serde_json::json;
use tokio::process::Command;

use crate::{
    http::Call,
    support::{Ended, Herald, Options, ended, herald},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_a2a-server");

async fn a2a_server(arguments: &[&str]) -> Ended {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("COLUMNS", "100");
    ended(command).await
}

fn send(text: &str) -> Call {
    let params = json!({ "message": { "parts": [{ "type": "text", "text": text }] } });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params });
    Call::post("/a2a", &call)
}

#[tokio::test]
async fn it_serves_the_echo_handler_with_every_flag_it_has() {
    let flags = [
        &["--port", "0"][..],
        &["--host", "127.0.0.1", "--port", "0"],
        &["--port", "0", "--log-level", "debug", "--no-discovery"],
        &["--port", "0", "--log-level", "WARNING"],
        &["--port", "0", "--log-level", "Critical"],
        &["--port", "0", "--log-level", "INFO"],
    ];
    for flags in flags {
        let options = Options::a2a_server(PROGRAM).no_port().arguments(flags.iter().copied());
        let herald = Herald::start(options).await;
        let task = herald.call(&send("good morning")).await.json();
        let text = &task["result"]["artifacts"][0]["parts"][0]["text"];
        assert_eq!(text, "Echo: good morning", "{task}");
        assert_eq!(herald.log().contains("DEBUG"), flags.contains(&"debug"));
    }
}

#[tokio::test]
async fn it_logs_in_the_classic_format_unless_the_file_says_otherwise() {
    let listening = async |options: Options| {
        let herald = Herald::start(options).await;
        herald.ready().await;
        let log = herald.log();
        log.lines().find(|line| line.contains("listening")).unwrap().to_owned()
    };
    let usual = listening(Options::a2a_server(PROGRAM)).await;
    assert!(usual.contains(" INFO herald.cmd.serve: listening"), "{usual}");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("herald.toml");
    std::fs::write(&file, "[log]\nformat = \"json\"\n").unwrap();
    let options = Options::a2a_server(PROGRAM).arguments(["--config", file.to_str().unwrap()]);
    let asked = listening(options).await;
    assert!(asked.starts_with('{'), "{asked}");
}

#[tokio::test]
async fn a_link_with_that_name_works_too() {
    let directory = tempfile::tempdir().unwrap();
    let link: PathBuf = directory.path().join("a2a-server");
    symlink(env!("CARGO_BIN_EXE_herald"), &link).unwrap();
    let herald = Herald::start(Options::a2a_server(&link)).await;
    let task = herald.call(&send("hello")).await.json();
    assert_eq!(task["result"]["status"]["state"], "completed", "{task}");
}

#[tokio::test]
async fn handlers_are_listed_under_both_names() {
    let listed = a2a_server(&["--list-handlers"]).await;
    assert!(listed.status.success(), "{listed:?}");
    let lines: Vec<_> = listed.stdout.lines().collect();
    assert!(lines[0].starts_with("HANDLER"), "{listed:?}");
    for name in ["echo", "conformance"] {
        assert!(lines.iter().any(|line| line.starts_with(name)), "no {name} in {listed:?}");
    }
    assert_eq!(herald(&["serve", "--list-handlers"]).await.stdout, listed.stdout);
    let both = a2a_server(&["--list-handlers", "--no-discovery"]).await;
    assert_eq!(both.stdout, listed.stdout);
}

#[tokio::test]
async fn unsupported_features_are_refused_with_a_message() {
    let unknown = a2a_server(&["--adapter", "x"]).await;
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let level = a2a_server(&["--log-level", "loud"]).await;
    assert_eq!(level.status.code(), Some(2), "{level:?}");
}

#[tokio::test]
async fn it_warns_and_serves_the_network_without_credentials() {
    let options = Options::a2a_server(PROGRAM).arguments(["--host", "0.0.0.0"]);
    let herald = Herald::start(options).await;
    let task = herald.call(&send("hello")).await.json();
    assert_eq!(task["result"]["status"]["state"], "completed", "{task}");
    let log = herald.log();
    let warned = log.lines().find(|line| line.contains("no credentials are required"));
    let warned = warned.unwrap_or_else(|| panic!("no warning in {log}"));
    assert!(warned.contains("WARNING") || warned.contains("WARN"), "{warned}");
    for word in ["everyone who can reach", "[auth]", "127.0.0.1"] {
        assert!(warned.contains(word), "no {word} in {warned}");
    }
}

#[tokio::test]
async fn help_and_version_are_its_own() {
    let help = a2a_server(&["--help"]).await;
    assert!(help.status.success());
    for words in [
        "Usage: a2a-server",
        "--host",
        "--port",
        "--log-level",
        "--list-handlers",
        "--no-discovery",
    ] {
        assert!(help.stdout.contains(words), "no {words} in {}", help.stdout);
    }
    for absent in ["--config", "--data", "--public-url", "--ephemeral"] {
        assert!(!help.stdout.contains(absent), "{absent} in {}", help.stdout);
    }
    let version = a2a_server(&["--version"]).await;
    assert_eq!(version.stdout, format!("a2a-server {}\n", env!("CARGO_PKG_VERSION")));
}
