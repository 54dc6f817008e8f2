//! Push notifications over every binding and version: configs, and deliveries to a real receiver.

use herald_server::Config;
use serde_json::{Value, json};

use crate::{
    client::{Call, message, old_message},
    hub::Hub,
    receiver::{Received, Receiver, ReceiverAnswer},
};

const TOKEN: &str = "canary-7c5e-push-token";

async fn receiving() -> (Hub, Receiver) {
    let receiver = Receiver::start(|_| ReceiverAnswer::status(200, "")).await;
    let hub = Hub::pushing(Config::default(), &[&receiver.address.to_string()]).await;
    (hub, receiver)
}

/// Waits for the delivery of the end of a task on this path, and returns all deliveries there.
async fn deliveries(
    receiver: &Receiver,
    path: &str,
    end: impl Fn(&Value) -> bool,
) -> Vec<Received> {
    loop {
        let received = receiver.received();
        let received: Vec<_> = received.into_iter().filter(|it| it.path == path).collect();
        let last = received.last().map(|it| serde_json::from_slice(&it.body).unwrap());
        if last.as_ref().is_some_and(&end) {
            return received;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

async fn task(hub: &Hub) -> String {
    let sent = hub.call(Call::rpc("SendMessage", &message("hello"))).await.result();
    sent["task"]["id"].as_str().unwrap().to_owned()
}

// proves: PUSH-002, PUSH-004, PUSH-005, PUSH-006, PUSH-024, REST-013
#[tokio::test]
async fn configs_work_over_json_rpc_and_rest_of_1_0_without_their_secrets() {
    let (hub, receiver) = receiving().await;
    let id = task(&hub).await;
    let config = |name: &str| {
        json!({
            "taskId": id,
            "id": name,
            "url": receiver.url("/a"),
            "token": TOKEN,
            "authentication": { "scheme": "Basic", "credentials": TOKEN },
        })
    };
    let shown = |name: &str| {
        json!({
            "taskId": id,
            "id": name,
            "url": receiver.url("/a"),
            "authentication": { "scheme": "Basic" },
        })
    };
    let create = Call::rpc("CreateTaskPushNotificationConfig", &config("one"));
    assert_eq!(hub.call(create).await.result(), shown("one"));
    let path = format!("/tasks/{id}/pushNotificationConfigs");
    let created = hub.call(Call::post(&path, &config("two")).v1()).await;
    assert_eq!((created.status(), created.json()), (200, shown("two")));
    let named = json!({ "taskId": id, "id": "one" });
    let get = Call::rpc("GetTaskPushNotificationConfig", &named);
    assert_eq!(hub.call(get).await.result(), shown("one"));
    let got = hub.call(Call::get(format!("{path}/two")).v1()).await;
    assert_eq!(got.json(), shown("two"));
    let all = json!([shown("one"), shown("two")]);
    let list = Call::rpc("ListTaskPushNotificationConfigs", &json!({ "taskId": id }));
    assert_eq!(hub.call(list).await.result()["configs"], all);
    assert_eq!(hub.call(Call::get(&path).v1()).await.json()["configs"], all);
    let page = hub.call(Call::get(format!("{path}?pageSize=1")).v1()).await.json();
    assert_eq!(page["configs"], json!([shown("one")]));
    let next = page["nextPageToken"].as_str().unwrap();
    let page = hub.call(Call::get(format!("{path}?pageSize=1&pageToken={next}")).v1()).await;
    assert_eq!(page.json()["configs"], json!([shown("two")]));
    let delete = Call::rpc("DeleteTaskPushNotificationConfig", &named);
    hub.call(delete).await.result();
    for _ in 0..2 {
        let deleted = hub.call(Call::new("DELETE", format!("{path}/two")).v1()).await;
        assert!(matches!(deleted.status(), 200 | 204), "{}", deleted.text());
    }
    assert_eq!(hub.call(Call::get(&path).v1()).await.json()["configs"], json!([]));
    let gone = hub.call(Call::get(format!("{path}/two")).v1()).await;
    assert_eq!((gone.status(), gone.reason()), (404, "TASK_NOT_FOUND".into()));
}

// proves: PUSH-026, PUSH-027, PUSH-028, RPC-013, RPC-018, RPC-019
#[tokio::test]
async fn configs_work_in_0_3_and_0_1() {
    let (hub, receiver) = receiving().await;
    let id = task(&hub).await;
    let rpc = |method: &str, params: &Value| Call::old_rpc(method, params);
    let config = json!({ "url": receiver.url("/b"), "token": TOKEN });
    let set = json!({ "taskId": id, "pushNotificationConfig": config });
    let set = hub.call(rpc("tasks/pushNotificationConfig/set", &set)).await.result();
    assert_eq!(set["taskId"], *id);
    let inner = &set["pushNotificationConfig"];
    assert_eq!(inner["url"], receiver.url("/b"));
    assert_eq!(inner.get("token"), None);
    let name = inner["id"].as_str().unwrap();
    let only = hub.call(rpc("tasks/pushNotificationConfig/get", &json!({ "id": id }))).await;
    assert_eq!(only.result(), set, "the only one needs no id");
    let named = json!({ "id": id, "pushNotificationConfigId": name });
    let got = hub.call(rpc("tasks/pushNotificationConfig/get", &named)).await.result();
    assert_eq!(got, set);
    let listed = hub.call(rpc("tasks/pushNotificationConfig/list", &json!({ "id": id }))).await;
    assert_eq!(listed.result(), json!([set]));
    let deleted = hub.call(rpc("tasks/pushNotificationConfig/delete", &named)).await;
    assert_eq!(deleted.json().get("result"), Some(&Value::Null));

    let set = json!({ "id": id, "pushNotificationConfig": config });
    let set = hub.call(rpc("tasks/pushNotification/set", &set).at("/rpc")).await.result();
    assert_eq!(set["pushNotificationConfig"]["url"], receiver.url("/b"));
    let again = json!({ "id": id, "pushNotificationConfig": { "url": receiver.url("/c") } });
    hub.call(rpc("tasks/pushNotification/set", &again).at("/rpc")).await.result();
    let got = hub.call(rpc("tasks/pushNotification/get", &json!({ "id": id })).at("/rpc")).await;
    assert_eq!(got.result()["pushNotificationConfig"]["url"], receiver.url("/c"), "one per task");
}

// proves: PUSH-008, PUSH-009, PUSH-010, PUSH-015
#[tokio::test]
async fn a_message_of_1_0_with_a_webhook_is_followed_by_deliveries() {
    let (hub, receiver) = receiving().await;
    let mut params = message("chunks 3");
    params["configuration"] = json!({
        "taskPushNotificationConfig": { "url": receiver.url("/new"), "token": TOKEN },
    });
    let sent = hub.call(Call::rpc("SendMessage", &params)).await.result();
    let id = &sent["task"]["id"];
    let ended = |body: &Value| body["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED";
    let received = deliveries(&receiver, "/new", ended).await;
    let bodies: Vec<Value> =
        received.iter().map(|it| serde_json::from_slice(&it.body).unwrap()).collect();
    assert_eq!(bodies[0]["task"]["id"], *id);
    for (body, delivery) in bodies.iter().zip(&received) {
        assert_eq!(body.as_object().unwrap().len(), 1, "exactly one member: {body}");
        assert_eq!(delivery.header("content-type"), Some("application/a2a+json"));
        assert_eq!(delivery.header("authorization"), Some(&*format!("Bearer {TOKEN}")));
        assert_eq!(delivery.header("x-a2a-notification-token"), Some(TOKEN));
        assert_eq!(delivery.header("a2a-notification-token"), Some(TOKEN));
        assert!(delivery.header("webhook-id").unwrap().starts_with("msg_"));
    }
}

// proves: PUSH-016
#[tokio::test]
async fn a_message_of_0_3_with_a_webhook_is_followed_by_whole_tasks() {
    let (hub, receiver) = receiving().await;
    let mut params = old_message("chunks 3");
    params["configuration"] = json!({
        "pushNotificationConfig": {
            "url": receiver.url("/old"),
            "authentication": { "schemes": ["Bearer"], "credentials": TOKEN },
        },
    });
    let sent = hub.call(Call::old_rpc("message/send", &params)).await.result();
    let ended = |body: &Value| body["status"]["state"] == "completed";
    let received = deliveries(&receiver, "/old", ended).await;
    for delivery in &received {
        let body: Value = serde_json::from_slice(&delivery.body).unwrap();
        assert_eq!((&body["kind"], &body["id"]), (&"task".into(), &sent["id"]));
        assert_eq!(delivery.header("content-type"), Some("application/json"));
        assert_eq!(delivery.header("authorization"), Some(&*format!("Bearer {TOKEN}")));
    }
}

// proves: PUSH-017
#[tokio::test]
async fn a_forbidden_url_is_refused_and_nothing_is_stored() {
    let (hub, _receiver) = receiving().await;
    let id = task(&hub).await;
    for url in [
        "http://169.254.169.254/latest/meta-data",
        "http://10.0.0.1/hook",
        "http://localhost/hook",
        "http://internal-db:5432/hook",
        "ftp://example.com/",
        "/hook",
        "http://user:secret@example.com/",
        "http://example.com/\r\nX-Injected: 1",
    ] {
        let config = json!({ "taskId": id, "url": url });
        let refused = hub.call(Call::rpc("CreateTaskPushNotificationConfig", &config)).await;
        assert_eq!(refused.error().0, -32602, "{url}: {}", refused.text());
        let mut params = message("hello");
        params["configuration"] = json!({ "taskPushNotificationConfig": { "url": url } });
        let refused = hub.call(Call::rpc("SendMessage", &params)).await;
        assert_eq!(refused.error().0, -32602, "{url}: {}", refused.text());
    }
    for (member, value) in [("token", "a\r\nX-Injected: 1"), ("token", "a\u{0}b")] {
        let mut config = json!({ "taskId": id, "url": "https://receiver.invalid/" });
        config[member] = json!(value);
        let refused = hub.call(Call::rpc("CreateTaskPushNotificationConfig", &config)).await;
        assert_eq!(refused.error().0, -32602, "{value:?}: {}", refused.text());
    }
    let list = Call::rpc("ListTaskPushNotificationConfigs", &json!({ "taskId": id }));
    assert_eq!(hub.call(list).await.result()["configs"], json!([]));
    assert_eq!(hub.call(Call::get("/api/deliveries")).await.json()["deliveries"], json!([]));
}

#[tokio::test]
async fn an_operator_sees_attempts_and_replays_them() {
    let (hub, receiver) = receiving().await;
    let mut params = message("hello");
    params["configuration"] =
        json!({ "taskPushNotificationConfig": { "url": receiver.url("/again") } });
    hub.call(Call::rpc("SendMessage", &params)).await.result();
    let ended = |body: &Value| body["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED";
    let first = deliveries(&receiver, "/again", ended).await;
    let listed = hub.call(Call::get("/api/deliveries")).await.json();
    let id = listed["deliveries"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/api/deliveries/{id}");
    let post = |verb: &str, body: &Value| Call::post(format!("{path}:{verb}"), body);
    let once = hub.call(post("replay", &json!({ "event": 1 }))).await.json();
    assert_eq!(once["attempts"][0]["event"], 1);
    assert_eq!(once["attempts"][0]["outcome"], "delivered");
    assert_eq!(receiver.received().len(), first.len() + 1);
    hub.call(post("replay", &json!({ "from": 1 }))).await.json();
    let again = async || {
        let received = receiver.received();
        received.len() == 2 * first.len() + 1
    };
    while !again().await {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let received = receiver.received();
    let ids = |all: &[Received]| -> Vec<String> {
        all.iter().map(|it| it.header("webhook-id").unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&received[first.len() + 1..]), ids(&first), "the same ids, in the same order");
    for body in [json!({}), json!({ "event": 1, "from": 1 })] {
        assert_eq!(hub.call(post("replay", &body)).await.status(), 400);
    }
    let enabled = hub.call(post("enable", &json!({}))).await;
    assert_eq!(enabled.status(), 200, "{}", enabled.text());
    let unknown = hub.call(Call::get("/api/deliveries/unknown")).await;
    assert_eq!(unknown.status(), 404);
    let state = hub.call(Call::get("/api/deliveries?state=lost")).await;
    assert_eq!(state.status(), 400);
}
