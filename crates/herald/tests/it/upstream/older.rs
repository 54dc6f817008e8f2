//! Agents before 1.0 as upstreams and as receivers of `herald send`: cards without a URL, without a version, with a
//! wrong one.

use serde_json::{Value, json};

use super::passing::{draft, made, passing, told};
use crate::{
    cli_support::{Fake, answer, card, cli, response, result},
    support::{Herald, Options},
    tasks::failure,
    wire::state,
};

const TOKEN: &str = "canary-7c5e-older";

/// The task that an agent before 1.0 answers with.
fn done() -> Value {
    let part = json!({ "kind": "text", "text": "an answer" });
    let artifact = json!({ "artifactId": "a", "name": "response", "parts": [part] });
    json!({ "kind": "task", "id": "t-1", "contextId": "c-1", "status": { "state": "completed" },
        "artifacts": [artifact], "history": [] })
}

/// A card for a URL.
type Card = fn(&str) -> Value;

/// An agent with this card at the path of 0.2, and `message/send` at `path` for those with the token.
async fn agent(path: &'static str, card: Card) -> Fake {
    Fake::start(move |url, request| {
        if request.path == "/.well-known/agent.json" {
            answer(&card(url))
        } else if request.path != path {
            response(404, "text/plain", "Not Found")
        } else if request.header("authorization") != Some(&format!("Bearer {TOKEN}")) {
            response(401, "application/json", r#"{"error":{"message":"no token"}}"#)
        } else if request.body["method"] == "message/send" {
            result(request, &done())
        } else {
            let error = json!({ "code": -32601, "message": "Method not found" });
            answer(&json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }))
        }
    })
    .await
}

/// The card of selectools.
fn without_url(_: &str) -> Value {
    json!({ "protocolVersion": "0.2.6", "name": "researcher", "description": "", "url": "", "version": "0.21.0",
        "capabilities": { "streaming": false }, "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"], "skills": [] })
}

/// The card of CodeTether.
fn in_snake_case(url: &str) -> Value {
    json!({ "name": "CodeTether Server", "description": "Production A2A coordination server", "url": url,
        "version": "1.0.0", "capabilities": { "streaming": true, "push_notifications": true,
        "state_transition_history": true }, "skills": [], "authentication": [{ "scheme": "bearer" }] })
}

#[tokio::test]
async fn cards_without_a_url_or_a_version_are_called_by_both() {
    let agents: [(Card, &str, &str, usize); 4] = [
        (without_url, "/a2a", "0.2", 0),
        (without_url, "/", "0.2", 1),
        (in_snake_case, "/", "0.3", 0),
        (in_snake_case, "/a2a/jsonrpc", "0.3", 1),
    ];
    for (card, path, version, missed) in agents {
        let fake = agent(path, card).await;
        let send = ["send", &fake.url, "hello"];
        let error = cli(send).fails(1, "VersionNotSupportedError").await;
        assert_eq!(error["hint"], format!("add --a2a-version {version}"));
        assert!(error["message"].as_str().unwrap().contains("on request only"), "{error}");
        assert!(fake.calls().is_empty());
        let run = cli(send.into_iter().chain(["--a2a-version", version]));
        let sent = run.env("A2ACLI_BEARER", TOKEN).json().await;
        assert_eq!(made(&sent["task"]), ["an answer"], "{sent}");
        assert!(fake.calls().iter().all(|call| call.body["method"] != "tasks/send"));

        let fake = agent(path, card).await;
        let settings = format!("auth = {{ token = \"{TOKEN}\" }}");
        let herald = Herald::start(Options::config(passing("old", &fake.url, &settings))).await;
        let answered = told(&herald, "", &draft("hello")).await;
        assert_eq!((&*state(&answered), &*made(&answered).concat()), ("completed", "an answer"));
        // The message was taken once.
        let taken = |call: &&crate::cli_support::Received| {
            call.path == path && call.body["method"] == "message/send"
        };
        assert_eq!(fake.calls().iter().filter(taken).count(), 1, "{:?}", fake.calls());
        let elsewhere = fake.calls().iter().filter(|call| call.path != path).count();
        assert!(elsewhere >= missed, "{:?}", fake.calls());
    }
}

#[tokio::test]
async fn the_failure_of_an_upstream_whose_card_is_wrong_says_what_was_tried() {
    let fake = Fake::start(|url, request| {
        if request.is_card() {
            return answer(&card(url));
        }
        let error = json!({ "code": -32601, "message": "Method not found" });
        answer(&json!({ "jsonrpc": "2.0", "id": request.body["id"], "error": error }))
    })
    .await;
    let herald = Herald::start(Options::config(passing("liar", &fake.url, ""))).await;
    let failed = told(&herald, "", &draft("hello")).await;
    let (text, reason) = failure(&failed);
    let tried = "tried, in order: JSONRPC 1.0, JSONRPC 0.3, JSONRPC 0.1";
    assert!(text.contains(tried) && reason == "AGENT_FAILED", "{failed}");
    assert!(!text.contains(&fake.url), "the address is for the log: {text}");
    assert!(herald.log().contains(&format!("JSONRPC 0.3 at {}", fake.url)), "{}", herald.log());
    let methods: Vec<_> = fake.calls().iter().map(|call| call.body["method"].clone()).collect();
    assert_eq!(methods, ["SendMessage", "message/send", "tasks/send"]);
}
