//! Listing tasks, over JSON-RPC and over REST.

use serde_json::{Value, json};

use crate::{
    client::{Call, message},
    hub::Hub,
};

/// The same list over both bindings, which must agree.
async fn list(hub: &Hub, params: Value) -> Value {
    let rpc = hub.call(Call::rpc("ListTasks", &params)).await.result();
    let query: Vec<_> = params
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| match value.as_str() {
            Some(text) => format!("{name}={}", escape(text)),
            None => format!("{name}={value}"),
        })
        .collect();
    let rest = hub.call(Call::get(format!("/tasks?{}", query.join("&"))).v1()).await;
    assert_eq!(rest.status(), 200, "{}", rest.text());
    let mut rest = rest.json();
    rest["nextPageToken"] = rpc["nextPageToken"].clone();
    assert_eq!(rpc, rest);
    rpc
}

fn escape(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn send(hub: &Hub, text: &str, context: &str) -> Value {
    let mut params = message(text);
    params["message"]["contextId"] = json!(context);
    hub.call(Call::rpc("SendMessage", &params)).await.result()["task"].clone()
}

// proves: LIST-004, LIST-005
#[tokio::test]
async fn an_empty_list_has_all_its_members() {
    let hub = Hub::start().await;
    let page = list(&hub, json!({})).await;
    let expected = json!({ "tasks": [], "nextPageToken": "", "pageSize": 50, "totalSize": 0 });
    assert_eq!(page, expected);
}

// proves: LIST-002, LIST-003, LIST-008, LIST-012, LIST-016, LIST-006, LIST-007
#[tokio::test]
async fn pages_cover_everything_once_newest_first() {
    let hub = Hub::start().await;
    let mut sent = Vec::new();
    for index in 0..7 {
        let task = send(&hub, &format!("m{index}"), "c").await;
        sent.insert(0, task["id"].clone());
    }
    let mut seen = Vec::new();
    let mut params = json!({ "pageSize": 3 });
    loop {
        let page = list(&hub, params.clone()).await;
        assert_eq!((&page["pageSize"], &page["totalSize"]), (&json!(3), &json!(7)));
        let tasks = page["tasks"].as_array().unwrap();
        for task in tasks {
            assert!(task.get("artifacts").is_none(), "{task}");
            seen.push(task["id"].clone());
        }
        if page["nextPageToken"] == "" {
            break;
        }
        params["pageToken"] = page["nextPageToken"].clone();
    }
    assert_eq!(seen.len(), 7);
    let unique: std::collections::HashSet<_> = seen.iter().map(Value::to_string).collect();
    assert_eq!(unique.len(), 7);
    let page = list(&hub, json!({ "includeArtifacts": true })).await;
    assert_eq!(page["tasks"][0]["artifacts"][0]["artifactId"], "echo");
    for size in [0, 101, -1] {
        let answer = hub.call(Call::rpc("ListTasks", &json!({ "pageSize": size }))).await;
        assert_eq!(answer.error().0, -32602, "{size}");
        let answer = hub.call(Call::get(format!("/tasks?pageSize={size}")).v1()).await;
        assert_eq!(answer.status(), 400, "{size}");
    }
    assert_eq!(list(&hub, json!({ "pageSize": 100 })).await["pageSize"], 100);
}

// proves: LIST-009, LIST-010, LIST-011, LIST-013, LIST-015, SEND-026, REST-006, REST-007, REST-008
#[tokio::test]
async fn filters_are_applied_and_nonsense_is_refused() {
    let hub = Hub::start().await;
    send(&hub, "hello", "one").await;
    send(&hub, "fail", "one").await;
    let asked = send(&hub, "ask", "tw o+ü").await;
    assert_eq!(list(&hub, json!({ "contextId": "one" })).await["totalSize"], 2);
    assert_eq!(list(&hub, json!({ "contextId": "tw o+ü" })).await["totalSize"], 1);
    let waiting = list(&hub, json!({ "status": "TASK_STATE_INPUT_REQUIRED" })).await;
    assert_eq!(waiting["tasks"][0]["id"], asked["id"]);
    assert_eq!(list(&hub, json!({ "status": "TASK_STATE_WORKING" })).await["totalSize"], 0);
    let time = asked["status"]["timestamp"].clone();
    let since = list(&hub, json!({ "statusTimestampAfter": time })).await;
    assert!(since["tasks"].as_array().unwrap().iter().any(|task| task["id"] == asked["id"]));
    let both = list(&hub, json!({ "contextId": "one", "status": "TASK_STATE_FAILED" })).await;
    assert_eq!(both["totalSize"], 1);
    let short = list(&hub, json!({ "historyLength": 0 })).await;
    assert!(short["tasks"][0].get("history").is_none());
    for (name, value) in [
        ("status", "TASK_STATE_RUNNING"),
        ("pageToken", "!!!"),
        ("statusTimestampAfter", "yesterday"),
        ("pageSize", "many"),
        ("includeArtifacts", "maybe"),
    ] {
        let answer = hub.call(Call::rpc("ListTasks", &json!({ name: value }))).await;
        assert_eq!(answer.error().0, -32602, "{name}");
        let answer = hub.call(Call::get(format!("/tasks?{name}={value}")).v1()).await;
        assert_eq!((answer.status(), answer.reason()), (400, "INVALID_PARAMS".into()), "{name}");
    }
}
