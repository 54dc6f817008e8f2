//! Webhooks with several servers: tasks of upstream agents, and webhooks that would call each other in a circle.

use serde_json::{Value, json};

use crate::{
    http::Call,
    receiver::{Receiver, ReceiverAnswer},
    support::{CONFORMANCE, Herald, Options, SOON, eventually, uuid},
    upstream::passing::{passing, url},
};

fn send(agent: &str, text: &str, webhook: &str) -> Call {
    let message = json!({
        "message": { "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": text }] },
        "configuration": { "taskPushNotificationConfig": { "url": webhook } },
    });
    Call::post(format!("{agent}/message:send"), &message).header("a2a-version", "1.0")
}

/// The bodies of the deliveries on a path.
fn bodies(receiver: &Receiver, path: &str) -> Vec<Value> {
    let received = receiver.received();
    let here = received.iter().filter(|one| one.path == path);
    here.map(|one| serde_json::from_slice(&one.body).unwrap()).collect()
}

/// The text of all chunks of artifacts.
fn text(bodies: &[Value]) -> String {
    let parts = bodies.iter().filter_map(|body| {
        body["artifactUpdate"]["artifact"]["parts"][0]["text"].as_str().map(str::to_owned)
    });
    parts.collect()
}

#[tokio::test]
async fn a_task_of_an_upstream_agent_is_pushed() {
    let receiver = Receiver::start(|_| ReceiverAnswer::status(200, "")).await;
    let allowed = receiver.address.to_string();
    let behind = Herald::start(Options::agents()).await;
    let upstream = format!("{}{CONFORMANCE}", url(&behind));
    let options = Options::config(passing("passed", &upstream, ""));
    let options = options.environment("PUSH_NOTIFICATION_ALLOWED_HOSTS", &allowed);
    let before = Herald::start(options).await;
    let call = send("", "tck-stream-chunked chunks=4 size=8 delay_ms=20", &receiver.url("/x"));
    let answer = before.call(&call).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let task = answer.json()["task"].clone();
    let ended = |body: &Value| body["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED";
    eventually(SOON, "the end is delivered", async || {
        bodies(&receiver, "/x").last().is_some_and(ended)
    })
    .await;
    let bodies = bodies(&receiver, "/x");
    assert_eq!(bodies[0]["task"]["id"], task["id"]);
    let parts = task["artifacts"][0]["parts"].as_array().unwrap();
    let whole: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
    assert_eq!(text(&bodies), whole, "every chunk of the upstream agent");

    // A question of the upstream agent travels too.
    let asked = before.call(&send("", "tck-multi-turn", &receiver.url("/question"))).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    let asks = |body: &Value| {
        body["statusUpdate"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            && body["statusUpdate"]["status"]["message"]["parts"][0]["text"].is_string()
    };
    eventually(SOON, "the question is delivered", async || {
        self::bodies(&receiver, "/question").iter().any(asks)
    })
    .await;
}

/// The number of tasks of a server.
async fn tasks(herald: &Herald) -> Value {
    let list = Call::get("/tasks").header("a2a-version", "1.0");
    herald.call(&list).await.json()["totalSize"].clone()
}

#[tokio::test]
async fn webhooks_to_servers_in_a_circle_end_after_one_delivery() {
    for size in [1, 2, 3] {
        let mut servers = Vec::new();
        for _ in 0..size {
            let options = Options::agents();
            let options = options.environment("PUSH_NOTIFICATION_ALLOWED_HOSTS", "127.0.0.1");
            servers.push(Herald::start(options).await);
        }
        for (at, herald) in servers.iter().enumerate() {
            let next = url(&servers[(at + 1) % size]);
            for path in ["/message:send", "/a2a/jsonrpc", "/agents/conformance/message:stream"] {
                let answer = herald.call(&send("", "round", &format!("{next}{path}"))).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
            }
        }
        for herald in &servers {
            let list = async || {
                let all = herald.call(&Call::get("/api/deliveries")).await.json();
                all["deliveries"].as_array().unwrap().clone()
            };
            let disabled = |webhook: &Value| webhook["state"] == "disabled";
            eventually(SOON, "every webhook is disabled", async || {
                list().await.iter().all(disabled)
            })
            .await;
            for webhook in list().await {
                assert_eq!((&webhook["attempts"], &webhook["cursor"]), (&1.into(), &0.into()));
            }
            assert_eq!(tasks(herald).await, 3, "no delivery became a task: ring of {size}");
        }
    }
}
