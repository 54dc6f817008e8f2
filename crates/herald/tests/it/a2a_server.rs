//! Tests of `a2a-server`: the binary under its other name and flags.

use std::{net::TcpListener, os::unix::fs::symlink, path::PathBuf};

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
    process::Command,
    time::timeout,
};
use tokio_tungstenite::tungstenite::Message;

use crate::{
    http::Call,
    support::{AGENTS, Ended, Herald, Options, SOON, ended, eventually, herald},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_a2a-server");

async fn a2a_server(arguments: &[&str]) -> Ended {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env("COLUMNS", "100");
    ended(command).await
}

fn send(text: &str) -> Call {
    send_to("echo", text)
}

fn send_to(handler: &str, text: &str) -> Call {
    let message = json!({ "parts": [{ "type": "text", "text": text }] });
    let params = json!({ "message": message, "handler": handler });
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
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let given = port.to_string();
    let options = Options::a2a_server(PROGRAM).no_port().arguments(["--port", &given]);
    assert_eq!(Herald::start(options).await.address.port(), port);
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
    let listed = a2a_server(&["--list-handlers", "--no-discovery"]).await;
    assert!(listed.status.success(), "{listed:?}");
    let lines: Vec<_> = listed.stdout.lines().collect();
    assert!(lines[0].starts_with("HANDLER") && lines[1].starts_with("echo "), "{listed:?}");
    assert_eq!(lines.len(), 2, "{listed:?}");
    let both = herald(&["serve", "--list-handlers", "--no-discovery"]).await;
    assert_eq!(both.stdout, listed.stdout);
}

#[tokio::test]
async fn exactly_the_listed_handlers_can_be_chosen() {
    for config in ["", AGENTS] {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("herald.toml");
        std::fs::write(&file, config).unwrap();
        let flags = ["--config", file.to_str().unwrap(), "--no-discovery"];
        let listed = a2a_server(&[&["--list-handlers=json"][..], &flags].concat()).await;
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        let names = listed.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
        let names: Vec<_> = names.collect();
        let herald = Herald::start(Options::a2a_server(PROGRAM).arguments(flags)).await;
        for name in ["echo", "conformance", "nobody"] {
            let answer = herald.call(&send_to(name, "hello")).await.json();
            let chosen = answer.get("result").is_some();
            assert_eq!(chosen, names.contains(&name), "{name}: {names:?}, {answer}");
        }
    }
}

#[tokio::test]
async fn without_flags_it_listens_on_port_8000() {
    // Whoever has the port: it cannot be bound again, and the error names it.
    let _taken = TcpListener::bind("127.0.0.1:8000");
    let refused = Options::a2a_server(PROGRAM).no_port().refused().await;
    assert!(refused.stderr.contains("cannot listen on 127.0.0.1:8000"), "{refused:?}");
}

#[tokio::test]
async fn http_websocket_and_events_are_on_its_one_port() {
    let herald = Herald::start(Options::a2a_server(PROGRAM)).await;
    let mut events = herald.client().await.open(&Call::get("/events")).await.unwrap();
    let tcp = TcpStream::connect(herald.address).await.unwrap();
    let url = format!("ws://{}/ws", herald.address);
    let (mut socket, _) = tokio_tungstenite::client_async(url, tcp).await.unwrap();
    let over_http = herald.call(&send("good morning")).await.json()["result"]["id"].clone();
    let call =
        json!({ "jsonrpc": "2.0", "id": 7, "method": "tasks/get", "params": { "id": over_http } });
    socket.send(Message::text(call.to_string())).await.unwrap();
    let answer = timeout(SOON, socket.next()).await.unwrap().unwrap().unwrap();
    let answer: Value = serde_json::from_str(answer.to_text().unwrap()).unwrap();
    assert_eq!((&answer["id"], &answer["result"]["id"]), (&json!(7), &over_http));
    let id = over_http.as_str().unwrap();
    loop {
        let event = events.next().await.unwrap().expect("the events of the task");
        if event.data.contains(id) && event.data.contains("completed") {
            break;
        }
    }
}

#[tokio::test]
async fn task_ids_are_uuids_and_the_echo_is_that_of_the_document() {
    let herald = Herald::start(Options::a2a_server(PROGRAM)).await;
    let task = herald.call(&send("tell me a joke")).await.json();
    let id = task["result"]["id"].as_str().unwrap();
    assert!(uuid::Uuid::try_parse(id).is_ok(), "{task}");
    assert_eq!(task["result"]["artifacts"][0]["parts"][0]["text"], "Echo: tell me a joke");
}

#[tokio::test]
async fn the_line_to_try_is_a_tasks_send_and_old_versions_are_not_logged() {
    let herald = Herald::start(Options::a2a_server(PROGRAM)).await;
    let line = herald.greeting.lines().find_map(|line| line.trim().strip_prefix("try "));
    let line = line.unwrap_or_else(|| panic!("{}", herald.greeting)).trim();
    assert!(line.contains("\"tasks/send\"") && line.contains("/rpc"), "{line}");
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    let answer = ended(command).await;
    let answer: Value = serde_json::from_str(&answer.stdout).unwrap();
    let id = answer["result"]["id"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let done = format!("Background runner completed for task {id}");
    eventually(SOON, "the task is done", async || herald.log().contains(&done)).await;
    let log = herald.log();
    assert!(!log.contains("A2A 0.1") && !log.contains("still uses"), "{log}");
}

#[tokio::test]
async fn unsupported_features_are_refused_with_a_message() {
    let unknown = a2a_server(&["--adapter", "x"]).await;
    assert_eq!(unknown.status.code(), Some(2), "{unknown:?}");
    let level = a2a_server(&["--log-level", "loud"]).await;
    assert_eq!(level.status.code(), Some(2), "{level:?}");
}

#[tokio::test]
async fn with_stdio_it_answers_on_standard_output() {
    let home = tempfile::tempdir().unwrap();
    let mut child = Options::a2a_server(PROGRAM).no_port().spawn_stdio(home.path());
    let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let message = json!({ "parts": [{ "type": "text", "text": "tell me a joke" }] });
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": { "message": message } });
    input.write_all(format!("{call}\n").as_bytes()).await.unwrap();
    let line = timeout(SOON, BufReader::new(output).lines().next_line()).await.unwrap().unwrap();
    let answer: Value = serde_json::from_str(&line.unwrap()).unwrap();
    assert!(answer["result"]["id"].is_string(), "{answer}");
    drop(input);
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
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
