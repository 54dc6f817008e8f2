//! Tests of the built-in agents and of the default card.

use serde_json::{Value, json};

use crate::{
    http::Call,
    support::{Herald, Options},
};

const TOKENS: &str = r#"
[auth]
tokens = [{ token = "canary-7c5e-token", tenant = "acme", principal = "ci" }]
"#;

fn send(message: &Value, configuration: &Value) -> Call {
    let body = json!({ "message": message, "configuration": configuration });
    Call::post("/message:send", &body).header("a2a-version", "1.0")
}

fn message(text: &str) -> Value {
    json!({ "messageId": "m1", "role": "ROLE_USER", "parts": [{ "text": text }] })
}

// proves: SEND-018
#[tokio::test]
async fn accepted_output_modes_select_the_form_of_the_answer() {
    let herald = Herald::start(Options::agents()).await;
    for (modes, part) in [
        (json!([]), json!({ "text": "Echo: hi" })),
        (json!(["text/plain"]), json!({ "text": "Echo: hi" })),
        (json!(["application/json"]), json!({ "data": { "echo": "Echo: hi" } })),
    ] {
        let call = send(&message("hi"), &json!({ "acceptedOutputModes": modes }));
        let answer = herald.call(&call).await.json();
        assert_eq!(answer["task"]["artifacts"][0]["parts"][0], part, "{modes}");
    }
}

// proves: SEND-009, EXT-012
#[tokio::test]
async fn an_invalid_context_id_is_refused_and_not_replaced() {
    let herald = Herald::start(Options::agents()).await;
    for context in ["a\u{0}b", "line\nbreak", &"x".repeat(2000)] {
        let mut message = message("hi");
        message["contextId"] = context.into();
        let answer = herald.call(&send(&message, &json!({}))).await;
        assert_eq!(answer.status, 400, "{context:?}");
        let violation = &answer.json()["error"]["details"][1]["fieldViolations"][0];
        assert_eq!(violation["field"], "message.contextId");
    }
    let mut message = message("hi");
    message["metadata"] = json!("not an object");
    assert_eq!(herald.call(&send(&message, &json!({}))).await.status, 400);
    let listed = herald.call(&Call::get("/tasks").header("a2a-version", "1.0")).await.json();
    assert_eq!(listed["totalSize"], 0, "nothing refused left a task");
}

// proves: XC-002
#[tokio::test]
async fn a_missing_extended_card_has_the_error_of_each_version() {
    let herald = Herald::start(Options::agents()).await;
    for (version, method, code) in [
        ("1.0", "GetExtendedAgentCard", -32004),
        ("", "agent/getAuthenticatedExtendedCard", -32007),
    ] {
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method });
        let answer = herald.call(&Call::post("/", &body).header("a2a-version", version)).await;
        assert_eq!(answer.json()["error"]["code"], code, "{method}");
    }
}

// proves: SEC-008
#[tokio::test]
async fn no_secret_is_logged() {
    let arguments = ["--log-level", "trace"];
    let mut herald = Herald::start(Options::config(TOKENS).arguments(arguments)).await;
    let bearer = "Bearer canary-7c5e-token";
    let call = send(&message("canary-text-81bc"), &json!({})).header("authorization", bearer);
    assert_eq!(herald.call(&call).await.status, 200);
    let wrong = send(&message("x"), &json!({})).header("authorization", "Bearer canary-7c5e-wrong");
    assert_eq!(herald.call(&wrong).await.status, 401);
    herald.restart_cleanly().await;
    let log = herald.log();
    assert!(log.contains("request"), "the log says something: {log}");
    for canary in ["canary-7c5e", "canary-text"] {
        assert!(!log.contains(canary), "{canary} in the log");
    }
}

/// The bindings of the interfaces that a card lists, as `[card] interfaces` names them.
fn listed(card: &Value) -> Vec<&str> {
    let interfaces = card["supportedInterfaces"].as_array().unwrap().iter();
    let current = interfaces.filter(|interface| interface["protocolVersion"] == "1.0");
    let names = current.map(|interface| match interface["protocolBinding"].as_str().unwrap() {
        "JSONRPC" => "jsonrpc",
        "HTTP+JSON" => "http+json",
        "GRPC" => "grpc",
        _ => interface["url"].as_str().unwrap().split("://").next().unwrap(),
    });
    names.collect()
}

#[tokio::test]
async fn cards_list_json_rpc_and_rest_unless_the_settings_or_the_kind_say_otherwise() {
    let every = ["jsonrpc", "http+json", "grpc", "ws"];
    let usual = &every[..2];
    let agents = "[[agents]]\nname = \"echo\"\nkind = \"echo\"\n\
                  [[agents]]\nname = \"kit\"\nkind = \"conformance\"\n";
    for (settings, echo, kit) in [
        ("", usual, &every[..]),
        ("[card]\n", usual, &every),
        ("[card]\ninterfaces = [\"jsonrpc\"]\n", &["jsonrpc"], &["jsonrpc"]),
        (
            "[card]\ninterfaces = [\"websocket\", \"http+json\"]\n",
            &["ws", "http+json"],
            &["ws", "http+json"],
        ),
    ] {
        let herald = Herald::start(Options::config([settings, agents].concat())).await;
        for (path, expected) in [("", echo), ("/agents/echo", echo), ("/agents/kit", kit)] {
            let path = format!("{path}/.well-known/agent-card.json");
            let card = herald.call(&Call::get(&path)).await.json();
            assert_eq!(listed(&card), expected, "{settings:?} {path}");
        }
    }
}

// proves: EXT-011, CARD-020
#[tokio::test]
async fn a_card_lists_no_unrequested_extension_and_only_named_bindings() {
    let herald = Herald::start(Options::agents()).await;
    let card = herald.call(&Call::get("/.well-known/agent-card.json")).await.json();
    assert_eq!(card["capabilities"].get("extensions"), None);
    for interface in card["supportedInterfaces"].as_array().unwrap() {
        let binding = interface["protocolBinding"].as_str().unwrap();
        assert!(
            matches!(binding, "JSONRPC" | "HTTP+JSON" | "GRPC") || binding.contains("://"),
            "{binding}"
        );
    }
}
