//! REST of 1.0.

use serde_json::json;

use crate::{
    client::{Call, message},
    hub::Hub,
};

async fn waiting(hub: &Hub) -> String {
    let task = hub.call(Call::post("/message:send", &message("ask")).v1()).await.json();
    task["task"]["id"].as_str().unwrap().to_owned()
}

// proves: REST-001, REST-003, REST-004, REST-013, REST-014
#[tokio::test]
async fn every_route_is_there_without_a_prefix() {
    let hub = Hub::start().await;
    let id = waiting(&hub).await;
    let config = json!({ "url": "https://example.com/hook" });
    for (call, status) in [
        (Call::post("/message:send", &message("hello")), 200),
        (Call::get(format!("/tasks/{id}")), 200),
        (Call::get("/tasks"), 200),
        (Call::post(format!("/tasks/{id}/pushNotificationConfigs"), &config), 400),
        (Call::get(format!("/tasks/{id}/pushNotificationConfigs/c")), 400),
        (Call::get(format!("/tasks/{id}/pushNotificationConfigs")), 400),
        (Call::new("DELETE", format!("/tasks/{id}/pushNotificationConfigs/c")), 400),
        (Call::get("/extendedAgentCard"), 400),
        (Call::new("POST", format!("/tasks/{id}:cancel")), 200),
    ] {
        let answer = hub.call(call.clone().v1()).await;
        assert_eq!(answer.status(), status, "{call:?} {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/a2a+json"), "{call:?}");
    }
    let call = Call::post("/message:send", &message("hello")).v1();
    let answer = hub.call(call.header("Content-Type", "application/a2a+json")).await;
    assert_eq!(answer.status(), 200);
    let stream = hub
        .client()
        .await
        .open(Call::get(format!("/tasks/{}:subscribe", waiting(&hub).await)).v1());
    assert_eq!(stream.await.head.status, 200);
}

// proves: ERR-003, ERR-023, PUSH-001
#[tokio::test]
async fn without_push_notifications_each_of_their_operations_says_so() {
    let hub = Hub::start().await;
    let params = json!({ "taskId": "x", "id": "c", "url": "https://example.com/hook" });
    for method in [
        "CreateTaskPushNotificationConfig",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "DeleteTaskPushNotificationConfig",
    ] {
        let answer = hub.call(Call::rpc(method, &params)).await;
        assert_eq!(answer.error(), (-32003, "PUSH_NOTIFICATION_NOT_SUPPORTED".into()));
    }
    for call in [
        Call::post("/tasks/x/pushNotificationConfigs", &params),
        Call::get("/tasks/x/pushNotificationConfigs/c"),
        Call::get("/tasks/x/pushNotificationConfigs"),
        Call::new("DELETE", "/tasks/x/pushNotificationConfigs/c"),
    ] {
        let answer = hub.call(call.v1()).await;
        assert_eq!(answer.reason(), "PUSH_NOTIFICATION_NOT_SUPPORTED");
        assert_eq!(answer.status(), 400);
    }
}

// proves: REST-005
#[tokio::test]
async fn a_body_that_comes_with_a_get_means_nothing() {
    let hub = Hub::start().await;
    let id = waiting(&hub).await;
    let body = json!({ "id": "other", "historyLength": 0 }).to_string();
    let answer = hub.call(Call::get(format!("/tasks/{id}")).v1().body(body)).await;
    assert_eq!(answer.json()["id"], id);
    assert!(answer.json().get("history").is_some());
}

// proves: REST-015
#[tokio::test]
async fn a_suffix_is_not_part_of_the_id() {
    let hub = Hub::start().await;
    let answer = hub.call(Call::get("/tasks/x:subscribe").v1()).await;
    assert_eq!((answer.status(), answer.reason()), (404, "TASK_NOT_FOUND".into()));
    let answer = hub.call(Call::get("/tasks/x:cancel").v1()).await;
    assert_eq!((answer.status(), answer.header("allow")), (405, Some("POST")));
}

// proves: REST-024
#[tokio::test]
async fn a_body_that_names_another_task_is_refused() {
    let hub = Hub::start().await;
    let body = json!({ "taskId": "other", "url": "https://example.com/hook" });
    let answer = hub.call(Call::post("/tasks/x/pushNotificationConfigs", &body).v1()).await;
    assert_eq!((answer.status(), answer.reason()), (400, "INVALID_PARAMS".into()));
}

// proves: ERR-060, ERR-061, ERR-062, ERR-063, ERR-065, ERR-066
#[tokio::test]
async fn the_same_failure_has_the_same_reason_on_both_bindings() {
    let hub = Hub::start().await;
    let done = hub.call(Call::post("/message:send", &message("hello")).v1()).await.json();
    let done = done["task"]["id"].as_str().unwrap();
    let empty = json!({ "message": { "messageId": "m", "role": "ROLE_USER", "parts": [] } });
    for (rpc, rest, status) in [
        (Call::rpc("GetTask", &json!({ "id": "x" })), Call::get("/tasks/x"), "NOT_FOUND"),
        (
            Call::rpc("CancelTask", &json!({ "id": done })),
            Call::new("POST", format!("/tasks/{done}:cancel")),
            "FAILED_PRECONDITION",
        ),
        (
            Call::rpc("SubscribeToTask", &json!({ "id": done })),
            Call::get(format!("/tasks/{done}:subscribe")),
            "FAILED_PRECONDITION",
        ),
        (Call::rpc("SendMessage", &empty), Call::post("/message:send", &empty), "INVALID_ARGUMENT"),
        (
            Call::rpc("GetExtendedAgentCard", &json!({})),
            Call::get("/extendedAgentCard"),
            "FAILED_PRECONDITION",
        ),
    ] {
        let rpc = hub.call(rpc).await;
        let rest = hub.call(rest.v1()).await;
        assert_eq!(rpc.error().1, rest.reason());
        assert_eq!(rest.json()["error"]["status"], status);
        assert_eq!(rpc.json()["error"]["data"], rest.json()["error"]["details"]);
    }
}

#[tokio::test]
async fn an_agents_endpoints_know_only_its_own_tasks_and_the_root_knows_all() {
    let hub = Hub::start().await;
    let call = Call::post("/agents/files/message:send", &message("ask")).v1();
    let id = hub.call(call).await.json()["task"]["id"].as_str().unwrap().to_owned();
    for (prefix, status) in [("", 200), ("/agents/files", 200), ("/agents/script", 404)] {
        let answer = hub.call(Call::get(format!("{prefix}/tasks/{id}")).v1()).await;
        assert_eq!(answer.status(), status, "{prefix}");
        let answer = hub.call(Call::get(format!("{prefix}/a2a/rest/tasks/{id}")).v1()).await;
        assert_eq!(answer.status(), status, "{prefix}");
        let total = u64::from(status == 200);
        let list = hub.call(Call::get(format!("{prefix}/tasks")).v1()).await.json();
        assert_eq!(list["totalSize"], total, "{prefix}");
    }
}

#[tokio::test]
async fn ids_are_taken_literally_whatever_they_look_like() {
    let hub = Hub::start().await;
    for id in [
        "..%2F..%2Fetc%2Fpasswd",
        "%2e%2e",
        "a%2Fb",
        "x'%20OR%20'1'='1",
        "%E2%80%AE",
        "%3Acancel",
        "%25",
        "a%3Acancel",
    ] {
        let answer = hub.call(Call::get(format!("/tasks/{id}")).v1()).await;
        assert_eq!((answer.status(), answer.reason()), (404, "TASK_NOT_FOUND".into()), "{id}");
    }
    for id in ["%00", "a%0Ab", &"x".repeat(2000)] {
        let answer = hub.call(Call::get(format!("/tasks/{id}")).v1()).await;
        assert_eq!((answer.status(), answer.reason()), (400, "INVALID_PARAMS".into()), "{id}");
    }
    for id in ["%FF", ""] {
        assert_eq!(hub.call(Call::get(format!("/tasks/{id}")).v1()).await.status(), 404, "{id}");
    }
    for id in ["..", "../../etc/passwd", "a\u{202e}b", "x' OR '1'='1", "\u{1f600}"] {
        let answer = hub.call(Call::rpc("GetTask", &json!({ "id": id }))).await;
        assert_eq!(answer.error().0, -32001, "{id}");
    }
    for id in ["a\0b".to_owned(), "\n".to_owned(), "x".repeat(1 << 20)] {
        let answer = hub.call(Call::rpc("GetTask", &json!({ "id": id }))).await;
        assert_eq!(answer.error().0, -32602);
    }
}

// proves: SEC-019
#[tokio::test]
async fn text_is_utf_8_all_the_way() {
    let hub = Hub::start().await;
    let text = "Grüße, 世界 😀 \u{2028}";
    let sent = hub.call(Call::post("/message:send", &message(text)).v1()).await.json();
    assert_eq!(sent["task"]["artifacts"][0]["parts"][0]["text"], text);
    let mut stream =
        hub.client().await.open(Call::post("/message:stream", &message(text)).v1()).await;
    // On a stream, what some readers take for the end of a line is escaped.
    let streamed = "Grüße, 世界 😀 \\u2028";
    assert!(stream.rest().await.iter().any(|event| event.data.contains(streamed)));
}

#[tokio::test]
async fn a_path_that_is_none_is_refused_with_a_reason() {
    let hub = Hub::start().await;
    for path in ["/tasks:explode", "/acme/tasks:explode", "/v1/nowhere", "/a2a/rest/nowhere"] {
        let answer = hub.call(Call::get(path).v1()).await;
        assert_eq!((answer.status(), answer.reason()), (404, "METHOD_NOT_FOUND".into()), "{path}");
    }
}
