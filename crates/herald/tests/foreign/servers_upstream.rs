//! Tests of agents on the official SDK servers behind Herald. `cargo xtask test` installs them.

use std::{env, path::PathBuf, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    passing::{draft, made, passing, told, word},
    support::{Herald, Options, SOON},
    tasks::failure,
    wire::{Frame, Wire, id, state},
};

/// An agent on an official SDK, which ends with the test.
pub(crate) struct Official {
    pub(crate) url: String,
    _process: Child,
}

impl Official {
    pub(crate) async fn start(name: &str) -> Self {
        let installed = env::var_os("HERALD_TEST_SERVERS");
        let installed = installed.expect("the servers are not installed; run `cargo xtask test`");
        let installed = PathBuf::from(installed).join(name);
        let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers");
        let mut command = if name.starts_with("js") {
            let mut command = Command::new("node");
            command.arg(installed.join("server.mjs"));
            command
        } else {
            let mut command = Command::new(installed.join("bin/python"));
            // Two releases of one SDK share their script.
            let script = if name == "python0322" { "python03" } else { name };
            command.arg(sources.join(script).join("server.py"));
            command
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.kill_on_drop(true).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let port = timeout(SOON * 2, lines.next_line()).await.expect("it starts").unwrap();
        Self { url: format!("http://127.0.0.1:{}", port.expect("a port")), _process: process }
    }
}

async fn serves(name: &str) {
    let official = Official::start(name).await;
    let bindings = ["jsonrpc", "http+json", "grpc"];
    let agent = |(at, binding): (usize, &&str)| {
        passing(&format!("way-{at}"), &official.url, &format!("binding = \"{binding}\""))
    };
    let agents: String = bindings.iter().enumerate().map(agent).collect();
    let herald = Herald::start(Options::config(agents)).await;
    for (at, binding) in bindings.iter().enumerate() {
        let agent = &format!("/agents/way-{at}");
        let call = Wire::OldRpc.stream(agent, &draft("chunks 5"));
        let mut stream = herald.client().await.open(&call).await.unwrap();
        let frames = Wire::OldRpc.rest_of(&mut stream).await.unwrap();
        let pieces: String = frames.iter().filter_map(Frame::text).collect();
        assert_eq!(pieces, "1;2;3;4;5;", "{name} {binding}: {frames:?}");
        assert_eq!(frames.last().and_then(Frame::state).as_deref(), Some("completed"));

        let asked = told(&herald, agent, &draft("ask")).await;
        assert_eq!((&*state(&asked), word(&asked)), ("input-required", "which one?"), "{binding}");
        let done = told(&herald, agent, &draft("that one").to(id(&asked))).await;
        assert_eq!((&*state(&done), &*made(&done).concat()), ("completed", "that one"));
        let failed = told(&herald, agent, &draft("fail")).await;
        assert_eq!(failure(&failed), ("it broke", "AGENT_FAILED"), "{name} {binding}");
        let reply = told(&herald, agent, &draft("reply directly")).await;
        assert_eq!((&*state(&reply), word(&reply)), ("completed", "directly"), "{name} {binding}");
    }
}

#[tokio::test]
async fn the_official_python_server_of_1_0_works_behind_herald() {
    serves("python1").await;
}

#[tokio::test]
async fn the_official_python_server_of_0_3_works_behind_herald() {
    serves("python03").await;
}

#[tokio::test]
async fn the_official_javascript_server_of_1_0_works_behind_herald() {
    // This SDK refuses a stream that does not begin with the task, and its agents publish the task
    // only when it is new. The client then sends without a stream and polls.
    serves("js1").await;
}
