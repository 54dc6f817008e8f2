//! 0.3, over JSON-RPC and over REST.

use serde_json::{Value, json};

use crate::{
    client::{Call, data, message, old_message},
    hub::Hub,
};

// proves: FMT-016, FMT-017, SEND-022, EQV-003
#[tokio::test]
async fn a_task_is_written_as_0_3_writes_it_and_is_the_same_task() {
    let hub = Hub::start().await;
    let task = hub.call(Call::old_rpc("message/send", &old_message("hello"))).await.result();
    assert_eq!(task["kind"], "task");
    assert_eq!(task["status"]["state"], "completed");
    assert_eq!(task["history"][0]["kind"], "message");
    assert_eq!(task["history"][0]["role"], "user");
    assert_eq!(task["artifacts"][0]["parts"][0], json!({ "kind": "text", "text": "hello" }));
    let id = task["id"].as_str().unwrap();
    let new = hub.call(Call::rpc("GetTask", &json!({ "id": id }))).await.result();
    assert_eq!(new["status"]["state"], "TASK_STATE_COMPLETED");
    let sent = hub.call(Call::rpc("SendMessage", &message("hello"))).await.result();
    let old = hub.call(Call::old_rpc("tasks/get", &json!({ "id": sent["task"]["id"] }))).await;
    assert_eq!(old.result()["status"]["state"], "completed");
}

#[tokio::test]
async fn the_messages_of_the_seeds_are_understood() {
    let hub = Hub::start().await;
    let seed =
        json!({ "message": { "parts": [{ "type": "text", "content": "Count the apples" }] } });
    let task = hub.call(Call::old_rpc("message/send", &seed)).await.result();
    assert_eq!(task["artifacts"][0]["parts"][0]["text"], "Count the apples");
    let minted = task["history"][0]["messageId"].as_str().unwrap();
    assert!(uuid::Uuid::try_parse(minted).is_ok(), "{minted}");
    for member in ["id", "taskId", "task_id"] {
        let got = hub.call(Call::old_rpc("tasks/get", &json!({ member: task["id"] }))).await;
        assert_eq!(got.result()["id"], task["id"], "{member}");
    }
}

// proves: SEND-005
#[tokio::test]
async fn a_finished_task_takes_no_more_messages() {
    let hub = Hub::start().await;
    for text in ["hello", "fail", "reject"] {
        let task = hub.call(Call::old_rpc("message/send", &old_message(text))).await.result();
        let mut params = old_message("again");
        params["message"]["taskId"] = task["id"].clone();
        let answer = hub.call(Call::old_rpc("message/send", &params)).await;
        assert_eq!(answer.error().0, -32004, "{text}");
    }
}

// proves: SEND-021
#[tokio::test]
async fn a_send_that_does_not_block_returns_at_once() {
    let hub = Hub::start().await;
    let mut params = old_message("wait x");
    params["configuration"] = json!({ "blocking": false });
    let task = hub.call(Call::old_rpc("message/send", &params)).await.result();
    assert!(["submitted", "working"].contains(&task["status"]["state"].as_str().unwrap()));
    // The official clients leave out a false in the JSON of the protobuf.
    for configuration in [json!({ "blocking": false }), json!({}), json!({ "historyLength": 1 })] {
        let rest = json!({ "configuration": configuration, "message": {
            "messageId": "m", "role": "ROLE_USER", "content": [{ "text": "wait x" }]
        } });
        let task = hub.call(Call::post("/v1/message:send", &rest)).await.json();
        let state = task["task"]["status"]["state"].as_str().unwrap();
        assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state), "{task}");
    }
}

#[tokio::test]
async fn every_send_waits_for_the_end_unless_told_otherwise() {
    let hub = Hub::start().await;
    let first = json!({ "message": { "parts": [{ "type": "text", "content": "wait x" }] } });
    let mut blocking = old_message("wait x");
    blocking["configuration"] = json!({ "blocking": true });
    let proto = json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "content": [{ "text": "wait x" }]
    } });
    for call in [
        Call::old_rpc("message/send", &old_message("wait x")),
        Call::old_rpc("message/send", &blocking),
        Call::old_rpc("message/send", &first),
        Call::post("/a2a/rest/message:send", &first),
        Call::post("/v1/message:send", &proto),
    ] {
        let answer = hub.call_until_released(call).await.json();
        let (rpc, rest) = (&answer["result"]["status"], &answer["task"]["status"]);
        let states = (&rpc["state"], &rest["state"]);
        let completed =
            [(&json!("completed"), &Value::Null), (&Value::Null, &json!("TASK_STATE_COMPLETED"))];
        assert!(completed.contains(&states), "{answer}");
    }
}

// proves: STR-011, STR-012
#[tokio::test]
async fn events_say_their_kind_and_the_last_one_is_final() {
    let hub = Hub::start().await;
    for (text, last) in [("hello", "completed"), ("fail", "failed"), ("ask", "input-required")] {
        let call = Call::old_rpc("message/stream", &old_message(text));
        let mut stream = hub.client().await.open(call).await;
        let events = stream.rest().await;
        assert!(events.iter().all(|event| event.id.is_some()));
        let names: Vec<_> = events.iter().map(|event| event.event.clone()).collect();
        let events = data(&events);
        for (name, event) in names.iter().zip(&events) {
            assert_eq!(name.as_deref(), event["result"]["kind"].as_str(), "{event}");
        }
        assert_eq!(events[0]["result"]["kind"], "task");
        for event in &events {
            assert_eq!((&event["jsonrpc"], &event["id"]), (&json!("2.0"), &json!("call-1")));
            let kind = event["result"]["kind"].as_str().unwrap();
            assert!(["task", "status-update", "artifact-update"].contains(&kind), "{event}");
        }
        let (end, before) = events.split_last().unwrap();
        assert_eq!(end["result"]["final"], true, "{end}");
        assert_eq!(end["result"]["status"]["state"], last);
        assert!(before.iter().all(|event| event["result"]["final"] != true), "{before:#?}");
    }
}

// proves: SEC-017
#[tokio::test]
async fn a_task_that_needs_credentials_says_so() {
    let hub = Hub::start().await;
    let task = hub.call(Call::old_rpc("message/send", &old_message("auth"))).await.result();
    assert_eq!(task["status"]["state"], "auth-required");
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "log in first");
    hub.release(1);
}

#[tokio::test]
async fn the_states_of_a_task_follow_the_lifecycle() {
    let hub = Hub::start().await;
    let states = |events: &[Value]| -> Vec<String> {
        let states = events.iter().map(|event| &event["result"]["status"]["state"]);
        states.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    for (text, end) in [
        ("hello", "completed"),
        ("fail", "failed"),
        ("reject", "rejected"),
        ("ask", "input-required"),
    ] {
        let call = Call::old_rpc("message/stream", &old_message(text));
        let events = data(&hub.client().await.open(call).await.rest().await);
        assert_eq!(states(&events), ["submitted", "working", end]);
    }
    let call = Call::old_rpc("message/stream", &old_message("wait x"));
    let mut stream = hub.client().await.open(call).await;
    let first = stream.json().await;
    let cancel = Call::old_rpc("tasks/cancel", &json!({ "id": first["result"]["id"] }));
    hub.call(cancel).await.result();
    let events = data(&stream.rest().await);
    assert_eq!(
        (states(&[first]).remove(0).as_str(), states(&events)),
        ("submitted", vec!["working".to_owned(), "canceled".to_owned()])
    );

    let asked = hub.call(Call::old_rpc("message/send", &old_message("ask"))).await.result();
    let mut answer = old_message("hello");
    answer["message"]["taskId"] = asked["id"].clone();
    let call = Call::old_rpc("message/stream", &answer);
    let events = data(&hub.client().await.open(call).await.rest().await);
    assert_eq!(states(&events[1..]), ["working", "completed"], "it goes on with the answer");
}

// proves: STR-020
#[tokio::test]
async fn a_dropped_stream_can_be_taken_up_again() {
    let hub = Hub::start().await;
    let call = Call::old_rpc("message/stream", &old_message("steps 2"));
    let mut stream = hub.client().await.open(call).await;
    let task = stream.json().await["result"]["id"].clone();
    drop(stream);
    let call = Call::old_rpc("tasks/resubscribe", &json!({ "id": task }));
    let mut stream = hub.client().await.open(call).await;
    hub.release(2);
    let events = data(&stream.rest().await);
    let (first, rest) = events.split_first().unwrap();
    assert_eq!((&first["result"]["kind"], &first["result"]["id"]), (&json!("task"), &task));
    let frames = rest.iter().map(|event| &event["result"]);
    let shown = frames.map(|frame| {
        let text = frame["status"]["message"]["parts"][0]["text"].as_str().unwrap_or_default();
        (frame["status"]["state"].as_str().unwrap(), text, frame["final"] == true)
    });
    let shown: Vec<_> = shown.skip_while(|(_, text, _)| text.is_empty()).collect();
    let expected =
        [("working", "step 1", false), ("working", "step 2", false), ("completed", "", true)];
    assert_eq!(shown, expected, "all frames that are missing, and each of them once");
}

#[tokio::test]
async fn a_finished_task_is_replayed_and_closes() {
    let hub = Hub::start().await;
    let call = Call::old_rpc("message/stream", &old_message("chunks 3"));
    let all = data(&hub.client().await.open(call).await.rest().await);
    let call = Call::old_rpc("tasks/resubscribe", &json!({ "id": all[0]["result"]["id"] }));
    let again = data(&hub.client().await.open(call).await.rest().await);
    assert_eq!(again[0]["result"]["status"], all[0]["result"]["status"]);
    assert_eq!(again[1..], all[1..]);
}

// proves: REST-016, REST-017, REST-019, REST-020, FMT-018, FMT-019, FMT-020
#[tokio::test]
async fn rest_lives_under_v1_and_speaks_the_protobufs_json() {
    let hub = Hub::start().await;
    let proto = json!({
        "message": { "messageId": "m", "role": "ROLE_USER", "content": [{ "text": "ask" }] },
        "configuration": { "blocking": true }
    });
    let mut shaped = old_message("ask");
    shaped["configuration"] = json!({ "blocking": true });
    for body in [proto, shaped] {
        let answer = hub.call(Call::post("/v1/message:send", &body)).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        let task = answer.json()["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_INPUT_REQUIRED", "{task}");
        let id = task["id"].as_str().unwrap();
        let got = hub.call(Call::get(format!("/v1/tasks/{id}"))).await;
        assert_eq!((got.status(), &got.json()["id"]), (200, &json!(id)));
        let cancelled = hub.call(Call::new("POST", format!("/v1/tasks/{id}:cancel"))).await;
        assert_eq!(cancelled.json()["status"]["state"], "TASK_STATE_CANCELLED");
    }
    for (call, status) in [
        (Call::get("/v1/tasks/x"), 404),
        (Call::new("POST", "/v1/tasks/x:cancel"), 404),
        (Call::get("/v1/tasks/x:subscribe"), 404),
        (Call::new("POST", "/v1/tasks/x:subscribe"), 404),
        (Call::get("/v1/tasks/x/pushNotificationConfigs"), 400),
        (Call::get("/v1/tasks/x/pushNotificationConfigs/c"), 400),
        (Call::new("DELETE", "/v1/tasks/x/pushNotificationConfigs/c"), 400),
        (Call::post("/v1/message:send", &json!({})), 400),
        (Call::get("/v1/card"), 400),
    ] {
        let answer = hub.call(call.clone()).await;
        assert_eq!(answer.status(), status, "{call:?} {}", answer.text());
        assert_eq!(answer.header("content-type"), Some("application/json"));
        answer.reason();
    }
}

// proves: STR-013
#[tokio::test]
async fn rest_streams_wrap_each_event_and_mark_the_last() {
    let hub = Hub::start().await;
    let body = json!({ "message": {
        "messageId": "m", "role": "ROLE_USER", "content": [{ "text": "hello" }]
    } });
    for path in ["/v1/message:stream", "/a2a/rest/message:stream", "/a2a/rest/v1/message:stream"] {
        let mut stream = hub.client().await.open(Call::post(path, &body)).await;
        let events = data(&stream.rest().await);
        let members: Vec<_> =
            events.iter().map(|event| event.as_object().unwrap().keys().next().unwrap()).collect();
        assert_eq!(
            (members[0].as_str(), *members.last().unwrap()),
            ("task", &"statusUpdate".into())
        );
        assert_eq!(events.last().unwrap()["statusUpdate"]["final"], true);
    }
}

#[tokio::test]
async fn errors_of_0_3_are_numbered_as_0_3_does() {
    let hub = Hub::start().await;
    let done = hub.call(Call::old_rpc("message/send", &old_message("hello"))).await.result();
    let mut file = old_message("x");
    file["message"]["parts"] =
        json!([{ "kind": "file", "file": { "uri": "https://example.com/x" } }]);
    for (method, params, code) in [
        ("tasks/get", json!({ "id": "x" }), -32001),
        ("tasks/cancel", json!({ "id": done["id"] }), -32002),
        ("tasks/pushNotificationConfig/list", json!({ "id": "x" }), -32003),
        ("message/send", file, -32005),
    ] {
        let answer = hub.call(Call::old_rpc(method, &params)).await;
        assert_eq!((answer.status(), answer.error().0), (200, code), "{method} {}", answer.text());
    }
    let answer = hub.call(Call::post("/rpc", &Value::Null)).await;
    assert_eq!(answer.error().0, -32600);
}

#[tokio::test]
async fn a_stream_that_cannot_begin_is_refused_in_an_event() {
    let hub = Hub::start().await;
    for (method, params, code) in [
        ("tasks/resubscribe", json!({ "id": "x" }), -32001),
        ("tasks/resubscribe", json!({}), -32602),
        ("message/stream", json!({ "message": { "parts": [] } }), -32602),
    ] {
        let answer = hub.call(Call::old_rpc(method, &params)).await;
        assert_eq!(answer.header("content-type"), Some("text/event-stream"));
        assert_eq!((answer.status(), answer.error().0), (200, code), "{method}");
        assert_eq!(answer.json()["id"], "call-1");
    }
}
