//! The JSON-RPC envelope.

use serde_json::{Value, json};

use crate::{
    client::{Call, message, old_message},
    hub::Hub,
};

fn raw(body: &str) -> Call {
    Call::new("POST", "/a2a/jsonrpc")
        .v1()
        .header("Content-Type", "application/json")
        .body(body.as_bytes())
}

// proves: RPC-001, RPC-006, RPC-021
#[tokio::test]
async fn only_a_request_object_of_2_0_is_a_request() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    for body in [
        r#"{"jsonrpc":"1.0","id":7,"method":"GetTask"}"#,
        r#"{"jsonrpc":2.0,"id":7,"method":"GetTask"}"#,
        r#"{"id":7,"method":"GetTask"}"#,
        r#"{"jsonrpc":"2.0","id":7}"#,
        r#"{"jsonrpc":"2.0","id":7,"method":5}"#,
    ] {
        let answer = client.call(raw(body)).await;
        assert_eq!((answer.status(), answer.error().0), (200, -32600), "{body}");
        assert_eq!(answer.json()["jsonrpc"], "2.0");
        assert_eq!(answer.json()["id"], 7, "{body}");
    }
    for body in ["[]", r#""x""#, "{}", "7", "null", "true", r#"[{"jsonrpc":"2.0"}]"#] {
        let answer = client.call(raw(body)).await;
        assert_eq!((answer.status(), answer.error().0), (200, -32600), "{body}");
        assert_eq!(answer.json()["id"], Value::Null, "{body}");
    }
}

// proves: RPC-002
#[tokio::test]
async fn the_id_comes_back_with_its_type() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    for id in [r#""a""#, r#""é\n""#, "0", "-7", "123456789012345678901234567890", "null"] {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask","params":{{"id":"x"}}}}"#);
        let answer = client.call(raw(&body)).await;
        assert!(answer.text().contains(&format!(r#""id":{id},"#)), "{}", answer.text());
    }
    // A2A has no notifications, so a call without an id is answered like any other.
    let answer =
        client.call(raw(r#"{"jsonrpc":"2.0","method":"GetTask","params":{"id":"x"}}"#)).await;
    assert_eq!((answer.error().0, &answer.json()["id"]), (-32001, &Value::Null));
    for id in ["1.5", "{}", "[1]", "true", "1e400"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"GetTask"}}"#);
        let answer = client.call(raw(&body)).await;
        assert_eq!((answer.error().0, &answer.json()["id"]), (-32600, &Value::Null), "{id}");
    }
}

// proves: RPC-003, RPC-005
#[tokio::test]
async fn what_is_no_json_is_a_parse_error_to_a_null_id() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    for body in ["{", "", " ", r#"{"jsonrpc":"2.0","id":1,"method":"GetTask"} x"#, "\u{feff}{}"] {
        let answer = client.call(raw(body)).await;
        assert_eq!((answer.status(), answer.error().0), (200, -32700), "{body:?}");
        assert_eq!(answer.json()["id"], Value::Null, "{body:?}");
    }
}

// proves: RPC-004, RPC-014
#[tokio::test]
async fn a_send_has_a_result_with_exactly_one_member() {
    let hub = Hub::start().await;
    for (text, member) in [("hello", "task"), ("reply hello", "message")] {
        let answer = hub.call(Call::rpc("SendMessage", &message(text))).await;
        let result = answer.result();
        let members: Vec<_> = result.as_object().unwrap().keys().collect();
        assert_eq!(members, [member], "{result}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
}

// proves: RPC-007
#[tokio::test]
async fn unknown_methods_are_told_apart_from_bad_ones() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    for method in ["Foo", "tasks/foo", "sendMessage", "SENDMESSAGE", "gettask", ""] {
        let answer = client.call(Call::rpc(method, &json!({}))).await;
        assert_eq!(answer.error(), (-32601, "METHOD_NOT_FOUND".into()), "{method}");
        let answer = client.call(Call::old_rpc(method, &json!({}))).await;
        assert_eq!(answer.error().0, -32601, "{method}");
    }
}

// proves: RPC-008
#[tokio::test]
async fn parameters_that_do_not_fit_are_invalid() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    for (method, params) in [
        ("GetTask", json!({})),
        ("GetTask", json!([])),
        ("GetTask", json!("x")),
        ("GetTask", json!({ "id": 7 })),
        ("GetTask", json!({ "id": "" })),
        ("CancelTask", json!({})),
        ("SubscribeToTask", json!({})),
        ("SendMessage", json!({ "message": "hello" })),
        ("SendMessage", json!({})),
    ] {
        let answer = client.call(Call::rpc(method, &params)).await;
        assert_eq!(answer.error(), (-32602, "INVALID_PARAMS".into()), "{method} {params}");
    }
    for (method, params) in [
        ("tasks/get", json!({})),
        ("tasks/get", json!([])),
        ("tasks/cancel", json!({ "id": {} })),
        ("message/send", json!({})),
        ("message/send", json!({ "message": { "parts": [] } })),
        ("tasks/resubscribe", json!({})),
    ] {
        let answer = client.call(Call::old_rpc(method, &params)).await;
        assert_eq!(answer.error().0, -32602, "{method} {params}");
    }
}

// proves: RPC-009
#[tokio::test]
async fn a_panicking_agent_fails_its_task_and_shows_nothing_of_itself() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    let answer = client.call(Call::rpc("SendMessage", &message("panic"))).await;
    assert_eq!(answer.result()["task"]["status"]["state"], "TASK_STATE_FAILED");
    assert!(!answer.text().contains("secret internals"));
    let answer = client.call(Call::rpc("SendMessage", &message("still here"))).await;
    assert_eq!(answer.result()["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

// proves: RPC-010
#[tokio::test]
async fn bodies_must_be_declared_as_json() {
    let hub = Hub::start().await;
    for kind in ["application/json", "application/json; charset=utf-8", "application/a2a+json"] {
        let call = Call::rpc("GetTask", &json!({ "id": "x" })).header("Content-Type", kind);
        assert_eq!(hub.call(call).await.error().0, -32001, "{kind}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let call = Call::rpc("SendMessage", &message("hello")).header("Content-Type", kind);
        let answer = hub.call(call).await;
        assert_eq!((answer.status(), answer.error().0), (415, -32005), "{kind}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    let call = Call::rpc("SendMessage", &message("hello")).without("Content-Type");
    assert_eq!(hub.call(call).await.status(), 415);
    let call = Call::rpc("SendMessage", &message("hello")).header("Content-Encoding", "gzip");
    assert_eq!(hub.call(call).await.status(), 415);
    let page = hub.call(Call::rpc("ListTasks", &json!({}))).await.result();
    assert_eq!(page["totalSize"], 0, "nothing that was refused has left a task: {page}");
}

// proves: RPC-011
#[tokio::test]
async fn every_operation_of_1_0_is_there() {
    let hub = Hub::start().await;
    for (method, code) in [
        ("GetTask", -32001),
        ("CancelTask", -32001),
        ("SubscribeToTask", -32001),
        ("CreateTaskPushNotificationConfig", -32003),
        ("GetTaskPushNotificationConfig", -32003),
        ("ListTaskPushNotificationConfigs", -32003),
        ("DeleteTaskPushNotificationConfig", -32003),
        ("GetExtendedAgentCard", -32004),
    ] {
        let params = json!({ "id": "x", "taskId": "x", "url": "https://example.com/hook" });
        let answer = hub.call(Call::rpc(method, &params)).await;
        assert_eq!(answer.error().0, code, "{method} {}", answer.text());
    }
    assert!(
        hub.call(Call::rpc("SendMessage", &message("hello"))).await.result()["task"].is_object()
    );
    assert!(hub.call(Call::rpc("ListTasks", &json!({}))).await.result()["tasks"].is_array());
    let mut stream =
        hub.client().await.open(Call::rpc("SendStreamingMessage", &message("hi"))).await;
    assert!(!stream.rest().await.is_empty());
}

// proves: RPC-012, RPC-015, EQV-004
#[tokio::test]
async fn every_method_of_0_3_is_there_and_a_send_returns_the_bare_object() {
    let hub = Hub::start().await;
    for (method, code) in [
        ("tasks/get", -32001),
        ("tasks/cancel", -32001),
        ("tasks/resubscribe", -32001),
        ("tasks/pushNotificationConfig/set", -32003),
        ("tasks/pushNotificationConfig/get", -32003),
        ("tasks/pushNotificationConfig/list", -32003),
        ("tasks/pushNotificationConfig/delete", -32003),
    ] {
        let params = json!({
            "id": "x", "taskId": "x", "pushNotificationConfigId": "c",
            "pushNotificationConfig": { "url": "https://example.com/hook" }
        });
        let params = if method.ends_with("/set") {
            json!({ "taskId": "x", "pushNotificationConfig": params["pushNotificationConfig"] })
        } else {
            json!({ "id": "x", "pushNotificationConfigId": "c" })
        };
        let answer = hub.call(Call::old_rpc(method, &params)).await;
        assert_eq!(answer.error().0, code, "{method} {}", answer.text());
    }
    let answer = hub.call(Call::old_rpc("agent/getAuthenticatedExtendedCard", &json!({}))).await;
    assert!(answer.json()["error"].is_object());
    for (text, kind) in [("hello", "task"), ("reply hello", "message")] {
        let answer = hub.call(Call::old_rpc("message/send", &old_message(text))).await;
        assert_eq!(answer.result()["kind"], kind);
    }
    let call = Call::old_rpc("message/stream", &old_message("hello"));
    assert!(!hub.client().await.open(call).await.rest().await.is_empty());
}

// proves: RPC-017, XC-002
#[tokio::test]
async fn the_extended_card_needs_no_parameters() {
    let hub = Hub::start().await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard"}"#;
    assert_eq!(hub.call(raw(body)).await.error(), (-32004, "UNSUPPORTED_OPERATION".into()));
}

// proves: RPC-020
#[tokio::test]
async fn an_error_before_the_first_event_is_plain_json() {
    let hub = Hub::start().await;
    let answer = hub.call(Call::rpc("SubscribeToTask", &json!({ "id": "nope" }))).await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!((answer.status(), answer.error().0), (200, -32001));
}

#[tokio::test]
async fn json_rpc_is_at_every_address_it_is_known_by() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    for prefix in ["", "/agents/script"] {
        for path in ["/", "/a2a", "/a2a/", "/a2a/jsonrpc", "/a2a/jsonrpc/", "/rpc", "/rpc/"] {
            let path = format!("{prefix}{path}");
            let call = Call::rpc("SendMessage", &message("hello")).at(&path);
            assert!(client.call(call).await.result()["task"].is_object(), "{path}");
        }
    }
    let call = Call::rpc("SendMessage", &message("hello")).at("/agents/script");
    assert!(client.call(call).await.result()["task"].is_object());
    let call = Call::rpc("SendMessage", &message("hello")).at("/agents/nobody");
    assert_eq!(client.call(call).await.status(), 404);
}

#[tokio::test]
async fn other_verbs_and_other_paths_are_refused_as_json() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    for (method, path, allow) in [
        ("GET", "/a2a/jsonrpc", "POST, OPTIONS"),
        ("PUT", "/rpc", "POST, OPTIONS"),
        ("DELETE", "/", "GET, HEAD, POST, OPTIONS"),
        ("POST", "/.well-known/agent-card.json", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
        ("GET", "/message:send", "POST"),
        ("POST", "/tasks", "GET"),
    ] {
        let answer = client.call(Call::new(method, path)).await;
        assert_eq!(
            (answer.status(), answer.header("allow")),
            (405, Some(allow)),
            "{method} {path}"
        );
        assert_eq!(answer.json()["error"]["code"], 405);
    }
    for path in ["/nothing", "/a2a/nothing", "/agents", "/agents/", "//", "/v1/"] {
        let answer = client.call(Call::get(path)).await;
        assert_eq!(answer.status(), 404, "{path}");
        assert_eq!(answer.json()["error"]["status"], "NOT_FOUND");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("x-request-id").map(str::len), Some(36));
    }
    let answer = client.call(Call::new("OPTIONS", "/a2a/jsonrpc")).await;
    assert_eq!(answer.status(), 204);
    assert!(answer.header("allow").unwrap().contains("POST"));
}

// proves: ERR-074
#[tokio::test]
async fn conditions_1_0_has_numbers_for_keep_apart_from_those_of_0_3() {
    let hub = Hub::start().await;
    let call = Call::old_rpc("message/send", &old_message("hello")).at("/agents/strict/rpc");
    assert_eq!(hub.call(call).await.error(), (-32600, "EXTENSION_SUPPORT_REQUIRED".into()));
}

/// Every dialect, over JSON-RPC: the name of JSON-RPC or of A2A first, then the sentence.
#[tokio::test]
async fn messages_begin_with_the_name_of_the_error() {
    let hub = Hub::start().await;
    let mut client = hub.client().await;
    let done = client.call(Call::old_rpc("message/send", &old_message("hello"))).await.result();
    for (body, start) in [
        ("{", "Parse error: "),
        ("[]", "Invalid request: "),
        (r#"{"jsonrpc":"1.0","id":1,"method":"GetTask"}"#, "Invalid request: "),
    ] {
        let answer = client.call(raw(body)).await;
        let said = answer.json()["error"]["message"].clone();
        assert!(said.as_str().unwrap().starts_with(start), "{body}: {said}");
    }
    let (gone, ended) = (json!({ "id": "x" }), json!({ "id": done["id"] }));
    let cases = [
        ([Some("Foo"), Some("foo/bar"), Some("foo/bar")], json!({}), "Method not found: "),
        ([Some("GetTask"), Some("tasks/get"), Some("tasks/get")], json!({}), "Invalid params: "),
        ([Some("GetTask"), Some("tasks/get"), Some("tasks/get")], gone, "Task not found"),
        (
            [Some("CancelTask"), Some("tasks/cancel"), Some("tasks/cancel")],
            ended,
            "Task not cancelable: ",
        ),
        (
            [Some("CreateTaskPushNotificationConfig"), None, Some("tasks/pushNotification/set")],
            json!({ "id": "x", "taskId": "x", "url": "https://example.com/",
                "pushNotificationConfig": { "url": "https://example.com/" } }),
            "Push notification not supported: ",
        ),
    ];
    for ([new, old, oldest], params, start) in cases {
        let calls = [
            new.map(|method| Call::rpc(method, &params)),
            old.map(|method| Call::old_rpc(method, &params)),
            oldest.map(|method| Call::old_rpc(method, &params).at("/rpc")),
        ];
        for call in calls.into_iter().flatten() {
            let answer = client.call(call).await;
            let said = answer.json()["error"]["message"].clone();
            assert!(said.as_str().unwrap().starts_with(start), "{start} {params}: {said}");
        }
    }
    // Two dialects of one error differ in the number only.
    let answer = client.call(Call::rpc("GetTask", &json!({ "id": "x" }))).await;
    assert_eq!(answer.json()["error"]["message"], "Task not found");
}
