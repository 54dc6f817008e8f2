//! Tests of help, completion, chat and demo-server.

use std::process::Stdio;

use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
    time::timeout,
};

use crate::{
    cli_support::{agent, cli, herald, steered, task},
    support::SOON,
};

#[tokio::test]
async fn help_explains_every_verb_and_shows_the_defaults() {
    for arguments in [&["help"][..], &["--help"], &["-h"]] {
        let help = cli(arguments.iter().copied()).ok().await.stdout;
        for verb in ["card", "send", "task", "chat", "config", "completion", "demo-server", "help"]
        {
            assert!(help.contains(&format!("\n  {verb} ")), "no {verb} in {help}");
        }
    }
    for verb in [
        &["card", "get"][..],
        &["send"],
        &["task", "get"],
        &["task", "list"],
        &["task", "cancel"],
        &["task", "subscribe"],
        &["task", "download"],
        &["task", "push-config", "create"],
        &["chat"],
        &["config", "show"],
    ] {
        let help = cli(verb.iter().copied().chain(["--help"])).ok().await.stdout;
        let streams = verb != ["config", "show"];
        assert_eq!(help.contains("--stream"), streams, "{verb:?}");
        for flag in [
            "--agent-card",
            "--transport",
            "--a2a-version",
            "--bearer",
            "--api-key",
            "--svc-param",
            "--output",
            "--verbose",
            "--debug",
            "--timeout",
            "--poll-interval",
            "--config",
            "[default: text]",
            "[default: 10m]",
            "[default: 2s]",
            "[default: the order of the card]",
        ] {
            assert!(
                help.replace("\n          ", " ").contains(flag),
                "no {flag} in {verb:?}: {help}"
            );
        }
    }
    for flag in ["-v", "--version", "version"] {
        let version = cli([flag]).ok().await.stdout;
        assert_eq!(version, format!("herald {}\n", env!("CARGO_PKG_VERSION")));
    }
    assert!(cli(["send", "-v"]).ok().await.stdout.contains(env!("CARGO_PKG_VERSION")));
    assert!(cli(["help", "task", "get"]).ok().await.stdout.contains("--wait"));
}

#[tokio::test]
async fn completion_scripts_are_printed_for_each_shell() {
    for (shell, sign) in [
        ("bash", "complete -F _herald"),
        ("zsh", "#compdef herald"),
        ("fish", "complete -c herald"),
    ] {
        let script = cli(["completion", shell]).ok().await.stdout;
        assert!(script.contains(sign) && script.contains("push-config"), "{shell}");
    }
    cli(["completion", "cmd"]).fails(2, "A2ACLI_ERR_USAGE").await;
}

#[tokio::test]
async fn a_chat_keeps_its_context_and_the_waiting_task() {
    let server = herald().await;
    let agent = steered(&server);
    let lines = "tck-multi-turn\n\nand more\ndone\ntck-complete-task\n/quit\nnot sent\n";
    let talk = cli(["chat", "-a", &agent, "-o", "json"]).stdin(lines).ok().await.lines();
    let states: Vec<_> = talk.iter().map(|turn| turn["task"]["status"]["state"].clone()).collect();
    let expected = ["INPUT_REQUIRED", "INPUT_REQUIRED", "COMPLETED", "COMPLETED"];
    assert_eq!(states, expected.map(|state| json!(format!("TASK_STATE_{state}"))));
    assert!(talk.iter().all(|turn| turn["task"]["contextId"] == talk[0]["task"]["contextId"]));
    let ids: Vec<_> = talk.iter().map(|turn| &turn["task"]["id"]).collect();
    assert!(ids[0] == ids[1] && ids[1] == ids[2] && ids[2] != ids[3], "{ids:?}");
    let text = cli(["chat", &agent]).stdin("Hello\n").ok().await;
    assert_eq!(text.field("State"), "COMPLETED");
}

#[tokio::test]
async fn a_chat_does_not_send_its_commands_and_can_stream_its_turns() {
    let server = herald().await;
    let host = server.address.to_string();
    let talk = cli(["chat", &host, "-o", "json"]).stdin("/help\n/nope now\n//etc\n/quit\n").ok();
    let talk = talk.await;
    assert!(talk.stderr.contains("Help: ") && talk.stderr.contains("/nope"), "{talk:?}");
    let answers = talk.lines();
    assert_eq!(answers.len(), 1, "{talk:?}");
    assert_eq!(answers[0]["task"]["artifacts"][0]["parts"][0]["text"], "Echo: /etc");

    let follow = cli(["chat", &steered(&server), "-o", "json", "--stream"]);
    let lines = follow.stdin("tck-multi-turn\ndone\n").ok().await.lines();
    let states: Vec<_> = lines
        .iter()
        .filter_map(|line| line["statusUpdate"]["status"]["state"].as_str())
        .filter(|state| *state != "TASK_STATE_WORKING" && *state != "TASK_STATE_SUBMITTED")
        .collect();
    assert_eq!(states, ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_COMPLETED"], "{lines:?}");
    assert!(lines.len() > 4, "what happens is told as it happens: {lines:?}");
}

#[tokio::test]
async fn an_interrupted_chat_prints_how_to_continue() {
    let server = herald().await;
    let agent = steered(&server);
    let mut chat = cli(["chat", "-a", &agent, "--transport", "jsonrpc"]).piped();
    let mut input = chat.stdin.take().unwrap();
    input.write_all(b"tck-input-required\n").await.unwrap();
    let mut said = BufReader::new(chat.stdout.take().unwrap()).lines();
    let mut context = None;
    while context.is_none() {
        let line = timeout(SOON, said.next_line()).await.unwrap().unwrap().unwrap();
        context = line.strip_prefix("Context ID: ").map(str::to_owned);
    }
    let context = context.unwrap();
    while timeout(SOON, said.next_line()).await.unwrap().unwrap().unwrap() != "Please go on" {}
    let id = chat.id().unwrap().to_string();
    // It is about to wait for a line.
    let sent = Command::new("kill").args(["-s", "INT", &id]).status().await;
    assert!(sent.unwrap().success());
    let output = timeout(SOON, chat.wait_with_output()).await.unwrap().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    let again = format!("herald chat -a {agent} --transport jsonrpc --context-id {context}");
    assert!(said.contains(&again), "{said}");
}

#[tokio::test]
async fn a_chat_on_a_terminal_prints_a_greeting() {
    let agent = agent(json!({ "task": task("COMPLETED") })).await;
    let command = format!("{} chat -a {}", env!("CARGO_BIN_EXE_herald"), agent.url);
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = script.kill_on_drop(true).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"/quit\n").await.unwrap();
    let output = timeout(SOON, child.wait_with_output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("Chat: with fake; /quit ends it, /help lists the commands"), "{said}");
}

#[tokio::test]
async fn a_chat_from_a_terminal_into_a_file_is_refused() {
    let agent = agent(json!({ "task": task("COMPLETED") })).await;
    // A terminal on standard input and a file on standard output.
    let command =
        format!("{} chat -a {} > out; echo $? >> out", env!("CARGO_BIN_EXE_herald"), agent.url);
    let home = tempfile::tempdir().unwrap();
    let mut script = Command::new("script");
    script.args(["-qec", &command, "/dev/null"]).current_dir(home.path());
    // A terminal without input, for as long as it runs.
    let child = script.stdin(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn();
    let mut child = child.unwrap();
    let ended = timeout(SOON, child.wait()).await.expect("it does not wait for a line");
    assert!(ended.unwrap().success());
    assert_eq!(std::fs::read_to_string(home.path().join("out")).unwrap(), "2\n");
}

#[tokio::test]
async fn the_demo_server_serves_test_agents_and_stores_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut child = cli(["demo-server", "--port", "0"]).at(home.path()).spawn();
    let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = timeout(SOON, said.next_line()).await.unwrap().unwrap().unwrap();
    let address = first.split("http://").nth(1).unwrap().split(';').next().unwrap().to_owned();
    let sent = cli(["send", &address, "Hello"]).ok().await;
    assert!(sent.stdout.contains("Echo: Hello"), "{sent:?}");
    let asked = cli(["send", &format!("{address}/agents/demo"), "tck-input-required"]).ok().await;
    assert_eq!(asked.field("State"), "INPUT_REQUIRED");
    let card = cli(["card", "get", &address]).json().await;
    let interfaces = card["supportedInterfaces"].as_array().unwrap();
    let binding = |one: &serde_json::Value| one["protocolBinding"].as_str().unwrap().to_owned();
    assert!(interfaces.iter().map(binding).any(|name| name == "GRPC"), "{card}");
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
    let id = child.id().unwrap().to_string();
    let sent = Command::new("kill").args(["-s", "INT", &id]).status().await;
    assert!(sent.unwrap().success());
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
}
