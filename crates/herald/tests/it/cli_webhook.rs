//! Tests of `herald webhook`: lists, attempts, replay and enabling, on a running and a stopped server.

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    cli_support::cli,
    http::Call,
    support::{Herald, Options, SOON, eventually, uuid},
};

/// Sends a message with a webhook to this URL, as a caller without credentials.
async fn send(herald: &Herald, url: &str) {
    let message = json!({
        "message": { "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": "hello" }] },
        "configuration": { "taskPushNotificationConfig": { "url": url } },
    });
    let call = Call::post("/message:send", &message).header("a2a-version", "1.0");
    let answer = herald.call(&call).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// The output of a verb on the server's data directory, as JSON.
async fn on(herald: &Herald, arguments: &[&str]) -> Value {
    let data = herald.database().parent().unwrap().to_str().unwrap().to_owned();
    cli(arguments.iter().copied().chain(["--data", &data])).json().await
}

#[tokio::test]
async fn a_webhook_that_cannot_be_reached_is_shown_replayed_and_enabled() {
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let allowed = gone.to_string();
    let options = Options::agents().environment("PUSH_NOTIFICATION_ALLOWED_HOSTS", &allowed);
    let mut herald = Herald::start(options).await;
    for path in ["a", "b"] {
        send(&herald, &format!("http://{gone}/{path}")).await;
    }
    let data = herald.database().parent().unwrap().to_str().unwrap().to_owned();
    let own = cli(["webhook", "list", "--data", &data]).ok().await;
    assert!(own.stderr.contains("--all"), "the operator has none: {}", own.stderr);
    let list = ["webhook", "list", "--all", "--state", "waiting"];
    eventually(SOON, "both wait for their next attempt", async || {
        on(&herald, &list).await["deliveries"].as_array().unwrap().len() == 2
    })
    .await;
    let listed = on(&herald, &list).await;
    let id = listed["deliveries"][0]["id"].as_str().unwrap();
    let shown = on(&herald, &["webhook", "show", id]).await;
    assert_eq!(shown["delivery"]["state"], "waiting");
    assert_eq!(shown["attempts"][0]["outcome"], "unreachable");
    assert!(shown["attempts"][0]["detail"].is_string(), "the operator sees the cause");
    let replayed = on(&herald, &["webhook", "replay", id, "--event", "1"]).await;
    assert!(replayed["attempts"].as_array().unwrap().len() >= 2, "{replayed}");
    let enabled = on(&herald, &["webhook", "enable", "--all"]).await;
    assert_eq!(enabled["deliveries"].as_array().unwrap().len(), 2);
    let replayed = on(&herald, &["webhook", "replay", "--all", "--since", "1h"]).await;
    assert_eq!(replayed["deliveries"].as_array().unwrap().len(), 2);

    herald.terminate().await;
    herald.wait(SOON).await;
    let listed = on(&herald, &["webhook", "list", "--all"]).await;
    assert_eq!(listed["deliveries"].as_array().unwrap().len(), 2, "the server is stopped");
    let refused = cli(["webhook", "enable", id, "--data", &data]).end().await;
    assert!(refused.stderr.contains("is not running"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_replay_names_its_events_and_its_webhooks() {
    for (arguments, word) in [
        (&["webhook", "replay", "ID"][..], "--event"),
        (&["webhook", "replay", "--from", "1"], "ID"),
        (&["webhook", "replay", "ID", "--from", "1", "--event", "2"], "--event"),
        (&["webhook", "enable"], "ID"),
        (&["webhook", "list", "--state", "lost"], "parked"),
    ] {
        let refused = cli(arguments.iter().copied()).end().await;
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}: {}", refused.stderr);
        assert!(refused.stderr.contains(word), "{arguments:?}: {}", refused.stderr);
    }
}
