//! Official SDK clients and a role whose tasks run on a real worker: they see what they see of an agent of the
//! server itself. `cargo xtask test` installs the clients.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    clients::{Official, javascript, python, run},
    http::Call,
    support::{Herald, Options},
    worker_process::{PATH, WorkerProcess},
};

/// The agent, on the server or on a worker, with the description that the worker gives.
const AGENT: &str = r#"
[[agents]]
name = "shout"
kind = "conformance"
description = "Says it louder"
"#;

/// Both servers. The agent of the root is another one, and agents of every kind have the same bindings.
const SERVER: &str = r#"
[card]
interfaces = ["jsonrpc", "http+json", "grpc"]

[[agents]]
name = "echo"
kind = "echo"
default = true
"#;

/// Where the agent runs, and the server.
struct Place {
    herald: Herald,
    _worker: Option<WorkerProcess>,
    home: tempfile::TempDir,
}

impl Place {
    async fn local() -> Self {
        let herald = Herald::start(Options::config(format!("{SERVER}{AGENT}"))).await;
        Self { herald, _worker: None, home: tempfile::tempdir().unwrap() }
    }

    async fn worker() -> Self {
        let herald = Herald::start(Options::config(SERVER)).await;
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("agents.toml"), AGENT).unwrap();
        let worker = WorkerProcess::spawn(&herald, home.path(), &["--config", "agents.toml"]);
        worker.registered().await;
        Self { herald, _worker: Some(worker), home }
    }

    /// Runs the scenario of a client, and returns the results of all its calls.
    async fn observed(&self, mut official: Official, transport: &str) -> Vec<Value> {
        // The JavaScript SDK looks for the card beside the last part of a path without a slash at its end.
        let base = format!("http://{}{PATH}/", self.herald.address);
        let file = self.home.path().join("observed");
        let scenario: PathBuf = official.script.clone().expect("a client in a script");
        let extension = scenario.extension().unwrap_or_default().to_owned();
        let observe = scenario.with_file_name("observe").with_extension(extension);
        official.script = Some(observe);
        let [file_text, scenario] = [&file, &scenario].map(|path| path.to_str().unwrap());
        run(official, &[file_text, scenario, &base, "--transport", transport]).await;
        normal(&file)
    }

    async fn card(&self) -> Value {
        let path = format!("{PATH}/.well-known/agent-card.json");
        let card = self.herald.call(&Call::get(path)).await;
        serde_json::from_str(&card.text().replace(&self.herald.address.to_string(), "HOST"))
            .unwrap()
    }
}

/// The calls of a file, with their random and timed parts replaced.
fn normal(file: &Path) -> Vec<Value> {
    let mut ids = HashMap::new();
    let text = fs::read_to_string(file).unwrap();
    let mut calls: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for call in &mut calls {
        let is_subscription =
            matches!(call["call"].as_str(), Some("subscribe" | "resubscribeTask"));
        let results = call["results"].as_array_mut().unwrap();
        if is_subscription && results.len() > 1 {
            // The piece at which a subscription begins depends on the time.
            results.drain(1..results.len() - 1);
            without_artifacts(&mut results[0]);
        }
        replace(call, &mut ids);
    }
    calls
}

fn without_artifacts(value: &mut Value) {
    if let Value::Object(members) = value {
        members.remove("artifacts");
        members.values_mut().for_each(without_artifacts);
    }
}

/// Replaces ids by the order of their first occurrence, times and page tokens by a word.
fn replace(value: &mut Value, ids: &mut HashMap<String, usize>) {
    match value {
        Value::Object(members) => {
            let token = members.get_mut("nextPageToken").filter(|token| *token != "");
            if let Some(token) = token {
                *token = "a token".into();
            }
            members.values_mut().for_each(|member| replace(member, ids));
        }
        Value::Array(members) => members.iter_mut().for_each(|member| replace(member, ids)),
        Value::String(text) => {
            if text.parse::<jiff::Timestamp>().is_ok() {
                *text = "a time".to_owned();
            } else {
                *text = numbered(text, ids);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text with each UUID in it replaced by a number.
fn numbered(text: &str, ids: &mut HashMap<String, usize>) -> String {
    let (mut rest, mut done) = (text, String::new());
    while let Some(letter) = rest.chars().next() {
        match rest.get(..36).filter(|id| uuid::Uuid::try_parse(id).is_ok()) {
            Some(id) => {
                let next = ids.len();
                done += &format!("id {}", ids.entry(id.to_owned()).or_insert(next));
                rest = &rest[36..];
            }
            None => {
                done.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    done
}

/// Compares a role on a worker with an agent of the server, over each transport.
async fn cannot_tell(official: fn() -> Official, transports: &[&str]) {
    let (local, worker) = (Place::local().await, Place::worker().await);
    assert_eq!(local.card().await, worker.card().await);
    for transport in transports {
        let expected = local.observed(official(), transport).await;
        let found = worker.observed(official(), transport).await;
        assert!(expected.len() > 20, "{expected:?}");
        for (expected, found) in expected.iter().zip(&found) {
            assert_eq!(expected, found, "{transport}");
        }
        assert_eq!(expected.len(), found.len(), "{transport}");
    }
}

#[tokio::test]
async fn the_python_client_1_x_cannot_tell_a_role_from_a_local_agent() {
    cannot_tell(|| python("python1"), &["jsonrpc", "rest", "grpc"]).await;
}

#[tokio::test]
async fn the_javascript_client_1_x_cannot_tell_a_role_from_a_local_agent() {
    cannot_tell(|| javascript("js1"), &["jsonrpc", "rest", "grpc"]).await;
}
