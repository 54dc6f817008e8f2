//! Tests of `herald send`.

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::{
    cli_support::{agent, cli, herald, steered, task},
    support::{Herald, Options},
};

#[tokio::test]
async fn a_message_starts_a_task_and_its_result_is_printed() {
    let server = herald().await;
    let sent = cli(["send", &server.address.to_string(), "Hello"]).ok().await;
    assert!(!sent.field("Task ID").is_empty() && !sent.field("Context ID").is_empty());
    assert_eq!(sent.field("State"), "COMPLETED");
    assert!(sent.stdout.contains("\nText:\nEcho: Hello\n\n"), "{sent:?}");
    assert_eq!(sent.stderr, "");
    let document = cli(["send", "-a", &server.address.to_string(), "Hello"]).json().await;
    assert_eq!(document["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(document["task"]["artifacts"][0]["parts"][0]["text"], "Echo: Hello");
}

#[tokio::test]
async fn a_send_waits_by_default_and_returns_at_once_with_async() {
    let server = herald().await;
    let agent = steered(&server);
    let long = "tck-long-running delay_ms=300";
    let waited = cli(["send", "-a", &agent, long]).json().await;
    assert_eq!(waited["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    for flag in ["--async", "--return-immediately", "--no-wait"] {
        let left = cli(["send", "-a", &agent, "tck-cancel", flag]).json().await;
        let task = &left["task"];
        assert!(task["id"].is_string() && task["contextId"].is_string(), "{left}");
        assert_ne!(task["status"]["state"], "TASK_STATE_COMPLETED");
    }
    let left = cli(["send", "-a", &agent, "tck-cancel", "--async"]).ok().await;
    assert!(left.field("Resume").starts_with("herald task get -a "), "{left:?}");
    let waited = cli(["send", "-a", &agent, long, "--wait"]).env("A2ACLI_ASYNC", "true");
    assert_eq!(waited.ok().await.field("State"), "COMPLETED");
}

#[tokio::test]
async fn parts_keep_their_order_and_a_media_type_applies_to_the_part_before_it() {
    let fake = agent(json!({ "task": task("COMPLETED") })).await;
    let home = tempdir().unwrap();
    std::fs::write(home.path().join("a.bin"), b"\x00\x01").unwrap();
    std::fs::write(home.path().join("b.json"), r#"{"k":1}"#).unwrap();
    let arguments = [
        "send",
        "-a",
        &fake.url,
        "first",
        "--file",
        "a.bin",
        "--media-type",
        "application/pdf",
        "--data",
        "b.json",
        "--text",
        "last",
        "--media-type",
        "text/markdown",
        "--data",
        "-",
        "--file",
        "https://example.com/x/photo.png?y=1",
        "--file",
        "b.json",
    ];
    cli(arguments).at(home.path()).stdin("[1,2]").ok().await;
    let sent = fake.calls()[0].body["params"]["message"]["parts"].clone();
    let expected = json!([
        { "text": "first" },
        { "raw": "AAE=", "filename": "a.bin", "mediaType": "application/pdf" },
        { "data": { "k": 1 } },
        { "text": "last", "mediaType": "text/markdown" },
        { "data": [1, 2] },
        { "url": "https://example.com/x/photo.png?y=1", "filename": "photo.png",
          "mediaType": "image/png" },
        { "raw": "eyJrIjoxfQ==", "filename": "b.json", "mediaType": "application/json" },
    ]);
    assert_eq!(sent, expected);
    let misplaced = ["send", "-a", &fake.url, "x", "--media-type", "text/plain"];
    cli(misplaced).fails(2, "A2ACLI_ERR_USAGE").await;
    let piped = ["send", "-a", &fake.url, "--file", "-", "--media-type", "image/png"];
    cli(piped).stdin("\x01\x02").ok().await;
    let sent = fake.calls().pop().unwrap().body["params"]["message"]["parts"].clone();
    assert_eq!(sent, json!([{ "raw": "AQI=", "mediaType": "image/png" }]));
    let twice = ["send", "-a", &fake.url, "-", "--data", "-"];
    cli(twice).stdin("1").fails(2, "A2ACLI_ERR_USAGE").await;
}

#[tokio::test]
async fn missing_arguments_are_named() {
    for (arguments, message, hint) in [
        (&["send", "localhost:1"][..], "no message for localhost:1", "in quotes after it"),
        (&["send", "localhost:1", "two", "words"], "several texts", "whole text in quotes"),
        (&["send", "two", "words"], "\"two\" does not look like an agent", "in quotes"),
        (
            &["send", "Hello", "localhost:1"],
            "\"Hello\" does not look like an agent",
            "the agent comes first: herald send localhost:1 \"Hello\"",
        ),
        (
            &["send", "it's me", "localhost:1"],
            "does not look like an agent",
            r"comes first: herald send localhost:1 'it'\''s me'",
        ),
        (
            &["send", "localhost:1", "x", "--data", "{bad"],
            "cannot read {bad: ",
            "--data takes the path of a JSON file, or - for standard input",
        ),
        (&["get", "card"], "'get'", "herald card get"),
        (&["send", "far", "too", "many", "words"], "\"far\" does not", "in quotes"),
        (&["send", "-a", "localhost:1", "a", "b", "c"], "several texts", "in quotes"),
        (&["task", "get", "localhost:1"], "a task is missing", "herald task list localhost:1"),
        (&["task", "cancel", "localhost:1"], "a task is missing", "after the agent"),
        (&["task", "push-config", "get", "localhost:1", "t-1"], "its webhook", "after the agent"),
        (&["task", "push-config", "create", "localhost:1", "t-1"], "not provided: --url", "--help"),
        (&["send", "x", "--output", "yaml"], "[possible values: text, json]", "--help"),
        (&["send", "x", "--strem"], "'--strem'", "'--stream'"),
        (&["tsk", "get"], "'tsk'", "'task'"),
        (&["send", "x", "--media-type", "a/b"], "--text TEXT --media-type TYPE", "--help"),
    ] {
        let error = cli(arguments.iter().copied()).fails(2, "A2ACLI_ERR_USAGE").await;
        let said = (error["message"].as_str().unwrap(), error["hint"].as_str().unwrap());
        assert!(said.0.contains(message) && said.1.contains(hint), "{arguments:?} {error}");
    }
}

#[tokio::test]
async fn a_message_to_an_ended_task_fails_with_the_command_for_a_new_one() {
    let server = herald().await;
    let agent = steered(&server);
    let done = cli(["send", "-a", &agent, "tck-complete-task"]).ok().await;
    let (id, context) = (done.field("Task ID"), done.field("Context ID"));
    for more in [&[][..], &["--stream"], &["--async"]] {
        let send = ["send", "-a", &agent, "--task-id", id, "x"].into_iter();
        let error = cli(send.chain(more.iter().copied())).fails(1, "UnsupportedOperationError");
        let hint = error.await["hint"].as_str().unwrap().to_owned();
        let next = format!("herald send -a {agent} --context-id {context} \"TEXT\"");
        assert!(hint.contains(&next) && hint.contains("--debug"), "{hint}");
    }
    let error = cli(["task", "cancel", "-a", &agent, id]).fails(1, "TaskNotCancelableError").await;
    assert!(error["hint"].as_str().unwrap().contains("herald task get -a "), "{error}");
}

#[tokio::test]
async fn a_stream_is_one_event_per_line_and_ends_with_the_state() {
    let server = herald().await;
    let agent = steered(&server);
    let arguments = ["send", "-a", &agent, "tck-stream-chunked chunks=3", "--stream", "-o", "json"];
    let lines = cli(arguments).ok().await.lines();
    assert!(lines[0]["task"]["id"].is_string(), "{lines:?}");
    let chunks = lines.iter().filter(|line| line.get("artifactUpdate").is_some()).count();
    assert_eq!(chunks, 3);
    let last = &lines.last().unwrap()["statusUpdate"];
    assert_eq!(last["status"]["state"], "TASK_STATE_COMPLETED");
    assert!(last["taskId"].is_string() && last["contextId"].is_string());

    let text = cli(["send", "-a", &agent, "tck-stream-chunked", "--stream"]).ok().await;
    let tail = text.stdout.rsplit("Event: ").next().unwrap();
    assert!(tail.contains("Task ID: ") && tail.contains("State: COMPLETED"), "{text:?}");

    let direct = ["send", "-a", &agent, "tck-message-response", "--stream", "-o", "json"];
    let lines: Vec<Value> = cli(direct).ok().await.lines();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0]["message"]["parts"][0]["text"], "Direct message response");
}

#[tokio::test]
async fn a_skill_is_named_for_a_credential_that_is_limited_to_some() {
    let config = "[[auth.tokens]]\ntoken = \"limited\"\ntenant = \"acme\"\nprincipal = \"ci\"\n\
                  skills = [\"echo\"]\n";
    let herald = Herald::start(Options::config(config)).await;
    let url = format!("http://{}", herald.address);
    let send = |more: &[&str]| {
        cli(["send", &url, "Hello"].into_iter().chain(more.iter().copied()))
            .env("A2ACLI_BEARER", "limited")
    };
    send(&[]).fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
    send(&["--skill", "other"]).fails(4, "A2ACLI_ERR_AUTH_FAILED").await;
    let sent = send(&["--skill", "echo"]).json().await;
    assert_eq!(sent["task"]["history"][0]["metadata"]["skill"], "echo", "{sent}");
}
