//! Tests of the output of client verbs: streams, formats, errors and exit statuses.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::cli_support::{Fake, agent, answer, card, cli, herald, response, result, steered, task};

/// True if a text contains no terminal control characters.
fn is_harmless(text: &str) -> bool {
    text.chars().all(|c| !c.is_control() || c == '\n') && !text.contains(['\u{202e}', '\u{2066}'])
}

#[tokio::test]
async fn text_of_an_agent_cannot_control_the_terminal() {
    let hostile = "a\u{1b}]0;x\u{7}\u{1b}[2J\u{9b}31m\rb\u{202e}c\n\nState: FAILED\nTask ID: fake";
    let mut done = task("COMPLETED");
    done["artifacts"] = json!([
        { "artifactId": hostile, "name": hostile, "parts": [
            { "text": hostile }, { "data": { hostile: hostile } },
            { "raw": "AA==", "filename": hostile, "mediaType": hostile }, { "url": hostile } ] },
    ]);
    done["status"]["message"] = json!({ "messageId": hostile, "role": "ROLE_AGENT",
        "parts": [{ "text": hostile }], "metadata": { "k": hostile } });
    let mut named = card("http://x");
    for member in ["name", "description", "version"] {
        named[member] = hostile.into();
    }
    named["skills"][0]["name"] = hostile.into();
    let shown = done.clone();
    let fake = Fake::start(move |url, request| {
        if request.is_card() {
            let mut card = named.clone();
            card["supportedInterfaces"][0]["url"] = url.into();
            answer(&card)
        } else if request.body["method"] == "GetTask" && request.body["params"]["id"] == "bad" {
            let error = json!({ "code": -32603, "message": hostile });
            answer(&json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }))
        } else if request.body["method"] == "GetTask" {
            result(request, &shown)
        } else {
            result(request, &json!({ "task": shown }))
        }
    })
    .await;
    for arguments in [
        &["card", "get"][..],
        &["card", "get", "-o", "json", "--verbose"],
        &["send", "x"],
        &["send", "x", "--verbose"],
        &["send", "x", "--stream"],
        &["send", "x", "-o", "json"],
        &["send", "x", "-o", "json", "--stream"],
        &["send", "x", "--debug"],
        &["task", "get", "t-1", "--history", "1"],
        &["task", "get", "bad"],
        &["task", "get", "bad", "-o", "json"],
    ] {
        let all = arguments.iter().copied().chain(["-a", fake.url.as_str()]);
        let ended = cli(all).end().await;
        assert!(is_harmless(&ended.stdout), "{arguments:?}: {ended:?}");
        assert!(is_harmless(&ended.stderr), "{arguments:?}: {ended:?}");
    }
    // Outside of blocks there are only fields of the tool.
    let text = cli(["send", "-a", &fake.url, "x"]).ok().await.stdout;
    let mut fields = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.strip_suffix(':') {
            Some(_) => drop(lines.by_ref().take_while(|line| !line.is_empty()).count()),
            None => fields.push(line.split_once(": ").unwrap().0.to_owned()),
        }
    }
    assert_eq!(fields.iter().filter(|label| *label == "State").count(), 1, "{text}");
    assert_eq!(fields.iter().filter(|label| *label == "Task ID").count(), 1, "{text}");
    // Escapes do not change the value.
    let document = cli(["send", "-a", &fake.url, "x"]).json().await;
    assert_eq!(document["task"], done);
}

#[tokio::test]
async fn standard_output_has_one_document_or_json_lines_only() {
    let server = herald().await;
    let agent = steered(&server);
    let words = "tck-stream-chunked chunks=3";
    for more in [&[][..], &["--verbose", "--debug"]] {
        let arguments = ["send", "-a", &agent, words, "-o", "json"].into_iter();
        let ended = cli(arguments.chain(more.iter().copied())).ok().await;
        let document: Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!(document["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    }
    // Only the flag selects JSON lines.
    let quiet = cli(["send", "-a", &agent, words]).env("A2ACLI_STREAM", "true").json().await;
    assert!(quiet["task"].is_object());
    for (arguments, member) in [
        (&["card", "get"][..], "supportedInterfaces"),
        (&["task", "list"], "id"),
        (&["send", "x"], "task"),
    ] {
        let all = arguments.iter().copied().chain(["-a", &agent, "--stream", "-o", "json"]);
        let lines = cli(all).ok().await.lines();
        assert!(lines[0].get(member).is_some(), "{arguments:?}: {lines:?}");
    }
}

#[tokio::test]
async fn the_exit_status_describes_the_call_not_the_task() {
    let server = herald().await;
    let agent = steered(&server);
    for (words, state) in [
        ("tck-complete-task", "COMPLETED"),
        ("tck-task-failure", "FAILED"),
        ("tck-reject-task", "REJECTED"),
        ("tck-input-required", "INPUT_REQUIRED"),
        ("tck-auth-required", "AUTH_REQUIRED"),
    ] {
        for more in [&[][..], &["--stream"]] {
            let all = ["send", "-a", &agent, words].into_iter().chain(more.iter().copied());
            let ended = cli(all).ok().await;
            assert!(ended.stdout.contains(&format!("State: {state}\n")), "{ended:?}");
            assert_eq!(ended.stderr.contains("Warning: "), state != "COMPLETED", "{ended:?}");
        }
    }
    for more in [&[][..], &["--stream"]] {
        let all = ["send", "-a", &agent, "tck-crash"].into_iter().chain(more.iter().copied());
        let ended = cli(all).ok().await;
        let said = "Warning: the task ended as FAILED (AGENT_CRASHED)\n";
        assert!(ended.stderr.contains(said), "{ended:?}");
        assert!(ended.stdout.contains("Message: agent\n"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_broken_stream_ends_with_an_error_object_on_its_own_line() {
    let fake = Fake::start(|url, request| {
        let mut card = card(url);
        card["capabilities"] = json!({ "streaming": true });
        let event = |member: &str, value: Value| {
            let item = json!({ "jsonrpc": "2.0", "id": request.body["id"], member: value });
            format!("data: {item}\n\n")
        };
        match request.body["method"].as_str() {
            None => answer(&card),
            Some("SendStreamingMessage") => {
                let refusal = json!({ "code": -32005, "message": "not such a thing" });
                let body =
                    event("result", json!({ "task": task("WORKING") })) + &event("error", refusal);
                response(200, "text/event-stream", body)
            }
            Some(_) => response(500, "text/plain", "down"),
        }
    })
    .await;
    let ended = cli(["send", "-a", &fake.url, "x", "--stream", "-o", "json"]).end().await;
    assert_eq!(ended.status.code(), Some(1), "{ended:?}");
    let lines = ended.lines();
    assert_eq!(lines[0]["task"]["id"], "t-1");
    assert_eq!(lines.last().unwrap()["error"]["code"], "ContentTypeNotSupportedError");
}

#[tokio::test]
async fn a_broken_stream_is_continued_by_polling_the_task() {
    let fake = Fake::start(|url, request| {
        let mut card = card(url);
        card["capabilities"] = json!({ "streaming": true });
        match request.body["method"].as_str() {
            None => answer(&card),
            Some("SendStreamingMessage") => {
                let item = json!({ "jsonrpc": "2.0", "id": request.body["id"],
                    "result": { "task": task("WORKING") } });
                response(200, "text/event-stream", format!("data: {item}\n\n"))
            }
            Some("GetTask") => result(request, &task("COMPLETED")),
            Some(_) => response(500, "text/plain", "down"),
        }
    })
    .await;
    let sent = cli(["send", "-a", &fake.url, "x", "--poll-interval", "100ms"]).ok().await;
    assert_eq!(sent.field("State"), "COMPLETED");
}

#[tokio::test]
async fn every_failure_has_a_code_an_exit_status_and_the_same_shape() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().to_string();
    let refuse = |code: i32| {
        Fake::start(move |url, request| {
            if request.is_card() {
                answer(&card(url))
            } else {
                answer(&json!({ "jsonrpc": "2.0", "id": request.body["id"],
                "error": { "code": code, "message": "no" } }))
            }
        })
    };
    let denied = Fake::start(|url, request| {
        if request.is_card() {
            answer(&card(url))
        } else {
            response(401, "text/plain", "who are you?")
        }
    })
    .await;
    let broken = Fake::start(|url, request| {
        if request.is_card() {
            answer(&card(url))
        } else {
            response(502, "text/html", "<html>bad gateway</html>")
        }
    })
    .await;
    let bare = Fake::start(|url, _| {
        let mut card = card(url);
        card["supportedInterfaces"][0]["protocolBinding"] = "SMOKE".into();
        answer(&card)
    })
    .await;
    let unsupported = refuse(-32004).await;
    let invalid = refuse(-32602).await;
    for (url, more, status, code) in [
        (gone.as_str(), &[][..], 3, "A2ACLI_ERR_UNREACHABLE"),
        (&denied.url, &[], 4, "A2ACLI_ERR_CREDENTIALS_MISSING"),
        (&denied.url, &["--bearer", "x"], 4, "A2ACLI_ERR_AUTH_FAILED"),
        (&broken.url, &[], 1, "InvalidAgentResponseError"),
        (&bare.url, &[], 1, "A2ACLI_ERR_CARD_INVALID"),
        (&unsupported.url, &[], 1, "UnsupportedOperationError"),
        (&invalid.url, &[], 1, "InvalidParamsError"),
        (&invalid.url, &["--metadata", "[]"], 2, "A2ACLI_ERR_USAGE"),
        (&invalid.url, &["--wait", "--async"], 2, "A2ACLI_ERR_USAGE"),
        (&invalid.url, &["--output", "yaml"], 2, "A2ACLI_ERR_USAGE"),
    ] {
        let arguments = ["send", "x", "-a", url].into_iter().chain(more.iter().copied());
        let error = cli(arguments).fails(status, code).await;
        let members: Vec<_> = error.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, ["a2aCode", "code", "hint", "message"]);
        assert!(error["hint"].is_string(), "{error}");
    }
    cli(["sned", "x"]).fails(2, "A2ACLI_ERR_USAGE").await;
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    cli(["listen", "--port", &port]).fails(2, "A2ACLI_ERR_USAGE").await;
    let typo = cli(["send", "--strem", "x"]).end().await;
    assert_eq!(typo.status.code(), Some(2));
    assert!(typo.stderr.contains("'--stream'"), "{typo:?}");
}

#[tokio::test]
async fn a_closed_output_ends_the_run_without_a_message() {
    let agent = agent(json!({ "task": task("COMPLETED") })).await;
    let mut child = cli(["send", "-a", &agent.url, "x"]).spawn();
    drop(child.stdout.take());
    let output = child.wait_with_output().await.unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(141), Vec::new()));
}
