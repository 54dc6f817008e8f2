//! Words of refusals: those of JSON and of the protocol, not those of Rust.

use serde_json::{Value, json};

use crate::{
    client::Call,
    hub::Hub,
    replaced::{has_plain_words, replaced},
    ws::Socket,
};

fn parameters() -> Value {
    json!({
        "message": {
            "messageId": "m", "contextId": "c", "taskId": "t", "role": "ROLE_USER",
            "parts": [
                { "text": "x", "metadata": { "a": 1 }, "filename": "f", "mediaType": "text/plain" },
                { "raw": "aGk=" }, { "url": "https://example.com" }, { "data": { "a": [1] } },
            ],
            "metadata": { "a": 1 }, "extensions": ["urn:a"], "referenceTaskIds": ["t2"],
        },
        "configuration": {
            "acceptedOutputModes": ["text/plain"], "historyLength": 3, "returnImmediately": true,
        },
        "metadata": { "a": 1 },
    })
}

fn request() -> Value {
    json!({ "jsonrpc": "2.0", "id": "one", "method": "SendMessage", "params": parameters() })
}

/// Checks the error of an answer. Returns true if there is one.
#[track_caller]
fn is_plain(case: &str, answer: &Value) -> bool {
    let error = &answer["error"];
    if !error.is_null() {
        has_plain_words(case, &error.to_string());
    }
    !error.is_null()
}

#[tokio::test]
async fn a_refusal_over_json_rpc_has_no_words_of_rust() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    let mut refused = 0;
    // An unknown method is named in its error.
    let is_checked = |case: &str| !case.starts_with("/method");
    for (case, request) in replaced(&request()).into_iter().filter(|(case, _)| is_checked(case)) {
        let answer = client.call(Call::post("/", &request).v1()).await;
        refused += usize::from(!answer.text().is_empty() && is_plain(&case, &answer.json()));
    }
    assert!(refused > 200, "{refused}");
}

#[tokio::test]
async fn a_refusal_over_rest_has_no_words_of_rust() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    let mut refused = 0;
    for (case, body) in replaced(&parameters()) {
        let answer = client.call(Call::post("/message:send", &body).v1()).await;
        refused += usize::from(is_plain(&case, &answer.json()));
    }
    assert!(refused > 200, "{refused}");
    for (name, least) in [
        ("pageSize", "must be"),
        ("historyLength", "must be"),
        ("status", "must be"),
        ("includeArtifacts", "must be true or false"),
        ("statusTimestampAfter", "must be"),
    ] {
        let path = format!("/tasks?{name}=zebra-4711");
        let answer = client.call(Call::get(&path).v1()).await;
        assert_eq!(answer.status(), 400, "{path}");
        assert!(is_plain(&path, &answer.json()));
        assert!(answer.text().contains(least), "{path}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_refusal_over_a_websocket_has_no_words_of_rust() {
    let hub = Hub::start().await;
    let mut socket = Socket::open(&hub).await;
    let mut refused = 0;
    for (case, params) in replaced(&parameters()) {
        refused += usize::from(is_plain(&case, &socket.call("SendMessage", &params).await));
    }
    assert!(refused > 200, "{refused}");
}
