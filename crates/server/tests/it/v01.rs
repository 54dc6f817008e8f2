//! 0.1: `/rpc`, where its servers have it, and `tasks/send` everywhere else.

use herald_engine::Scopes;
use herald_protocol::TenantId;
use herald_server::{Config, Token};
use serde_json::{Value, json};

use crate::{
    client::{Call, data, old_message},
    hub::Hub,
};

/// A call as a client of 0.1 makes it.
fn call(method: &str, params: &Value) -> Call {
    Call::old_rpc(method, params).at("/rpc")
}

/// The parameters of a send.
fn text(text: &str) -> Value {
    json!({ "message": { "role": "user", "parts": [{ "type": "text", "text": text }] } })
}

/// The same for a task of this name.
fn named(id: &str, words: &str) -> Value {
    let mut params = text(words);
    params["id"] = json!(id);
    params
}

/// The task of this name once it has ended or waits.
async fn settled(hub: &Hub, id: &str) -> Value {
    let mut stream = hub.client().await.open(call("tasks/resubscribe", &json!({ "id": id }))).await;
    while let Some(event) = stream.next().await {
        let event: Value = serde_json::from_str(&event.data).unwrap();
        let state = event["result"]["status"]["state"].as_str().unwrap_or_default().to_owned();
        if ["completed", "failed", "canceled", "input-required"].contains(&state.as_str()) {
            break;
        }
    }
    hub.call(call("tasks/get", &json!({ "id": id }))).await.result()
}

// proves: RPC-013, RPC-016, FMT-021
#[tokio::test]
async fn a_send_returns_at_once_and_the_task_is_looked_up() {
    let hub = Hub::start().await;
    let mut params = named("task-abc-123", "wait Paris");
    params["sessionId"] = json!("session-xyz-789");
    let sent = hub.call(call("tasks/send", &params)).await.result();
    assert_eq!(
        (&sent["id"], &sent["sessionId"]),
        (&json!("task-abc-123"), &json!("session-xyz-789"))
    );
    assert!(
        ["submitted", "working"].contains(&sent["status"]["state"].as_str().unwrap()),
        "{sent}"
    );
    assert!(sent.get("kind").is_none() && sent.get("contextId").is_none(), "{sent}");
    hub.release(1);
    let task = settled(&hub, "task-abc-123").await;
    assert_eq!(task["status"]["state"], "completed");
    let parts = json!([{ "type": "text", "text": "Paris" }]);
    assert_eq!(
        (&task["artifacts"][0]["index"], &task["artifacts"][0]["parts"]),
        (&json!(0), &parts)
    );
    assert_eq!(task["history"][0]["parts"][0], json!({ "type": "text", "text": "wait Paris" }));
    let short = json!({ "id": "task-abc-123", "historyLength": 0 });
    assert!(hub.call(call("tasks/get", &short)).await.result().get("history").is_none());
}

#[tokio::test]
async fn elsewhere_a_send_waits_for_the_task_to_settle() {
    let hub = Hub::start().await;
    for path in ["/", "/a2a", "/a2a/jsonrpc", "/v1/a2a"] {
        let send = call("tasks/send", &text("wait hello")).at(path);
        let task = hub.call_until_released(send).await.result();
        assert_eq!(task["status"]["state"], "completed", "{path}");
        assert_eq!(task["artifacts"][0]["parts"][0], json!({ "type": "text", "text": "hello" }));
        // There the names that both generations have are those of 0.3.
        let got = hub.call(call("tasks/get", &json!({ "id": task["id"] })).at(path)).await.result();
        assert_eq!((&got["kind"], &got["contextId"]), (&json!("task"), &task["sessionId"]));
    }
    let mut params = text("wait x");
    params["configuration"] = json!({ "blocking": false });
    let task = hub.call(call("tasks/send", &params).at("/a2a")).await.result();
    assert_ne!(task["status"]["state"], "completed");
}

#[tokio::test]
async fn with_kinds_a_send_elsewhere_is_message_send_by_another_name() {
    let hub = Hub::start().await;
    let kinds = json!({ "message": { "role": "user", "messageId": "m",
        "parts": [{ "kind": "text", "text": "wait hello" }] } });
    // Everything that differs between two tasks is taken out.
    let shape = |mut task: Value| {
        for member in ["id", "contextId"] {
            assert!(task[member].as_str().is_some_and(|id| !id.is_empty()), "{task}");
            task[member] = json!(null);
        }
        task["status"]["timestamp"] = json!(null);
        for message in task["history"].as_array_mut().unwrap() {
            (message["taskId"], message["contextId"]) = (json!(null), json!(null));
        }
        task
    };
    for path in ["/", "/a2a", "/a2a/jsonrpc"] {
        let alias = hub.call_until_released(call("tasks/send", &kinds).at(path)).await.result();
        assert_eq!(alias["status"]["state"], "completed", "{path}: it waits");
        let sent = hub.call_until_released(call("message/send", &kinds).at(path)).await.result();
        assert_eq!(shape(alias), shape(sent), "{path}");
    }
    let direct = json!({ "message": { "parts": [{ "kind": "text", "text": "reply hi" }] } });
    let direct = hub.call(call("tasks/send", &direct).at("/a2a")).await.result();
    assert_eq!(direct["kind"], "message", "direct answers are those of 0.3 too: {direct}");
    let first = hub.call(call("tasks/send", &kinds)).await.result();
    hub.release(1);
    assert!(first.get("kind").is_none(), "at /rpc it is that of 0.1: {first}");
}

#[tokio::test]
async fn methods_of_later_generations_work_at_rpc_too() {
    let hub = Hub::start().await;
    let task = hub.call(call("message/send", &old_message("hello"))).await.result();
    assert_eq!((&task["kind"], &task["status"]["state"]), (&json!("task"), &json!("completed")));
    let new =
        hub.call(Call::rpc("GetTask", &json!({ "id": task["id"] })).at("/rpc")).await.result();
    assert_eq!(new["status"]["state"], "TASK_STATE_COMPLETED");
    let old = hub.call(call("tasks/get", &json!({ "id": task["id"] }))).await.result();
    assert_eq!(old["sessionId"], task["contextId"]);
    assert_eq!(old["artifacts"][0]["parts"][0], json!({ "type": "text", "text": "hello" }));
    let unversioned = call("GetTask", &json!({ "id": task["id"] }));
    assert_eq!(hub.call(unversioned).await.error(), (-32009, "VERSION_NOT_SUPPORTED".into()));
    let mixed = call("tasks/send", &text("x")).v1();
    let answer = hub.call(mixed).await;
    assert_eq!(answer.error(), (-32601, "METHOD_NOT_FOUND".into()));
    assert!(answer.text().contains("call SendMessage"), "{}", answer.text());
}

// proves: STR-014, STR-012
#[tokio::test]
async fn a_stream_tells_of_status_and_artifacts_and_says_when_it_is_over() {
    let hub = Hub::start().await;
    for (words, last) in [("chunks 3", "completed"), ("fail", "failed"), ("reject", "failed")] {
        let params = named(&format!("story {words}"), words);
        let mut stream = hub.client().await.open(call("tasks/sendSubscribe", &params)).await;
        let events = stream.rest().await;
        assert!(events.iter().all(|event| event.event.is_none() && event.id.is_some()));
        let events = data(&events);
        for event in &events {
            assert_eq!((&event["jsonrpc"], &event["id"]), (&json!("2.0"), &json!("call-1")));
            let result = event["result"].as_object().unwrap();
            assert_eq!(result["id"], params["id"], "{event}");
            assert_ne!(result.contains_key("status"), result.contains_key("artifact"), "{event}");
        }
        assert_eq!(events[0]["result"]["status"]["state"], "submitted");
        assert_eq!(events[1]["result"]["status"]["state"], "working");
        let (end, before) = events.split_last().unwrap();
        assert_eq!(
            (&end["result"]["final"], &end["result"]["status"]["state"]),
            (&json!(true), &json!(last))
        );
        assert!(before.iter().all(|event| event["result"]["final"] != true));
        let pieces: Vec<_> =
            events.iter().filter_map(|event| event["result"].get("artifact")).collect();
        if words == "chunks 3" {
            assert!(pieces.iter().all(|piece| piece["index"] == 0), "{pieces:?}");
            let appended: Vec<_> = pieces.iter().map(|piece| piece["append"] == true).collect();
            assert_eq!(appended, [false, true, true]);
            assert_eq!(pieces[2]["lastChunk"], true);
        }
    }
}

#[tokio::test]
async fn a_stream_can_be_taken_up_again_while_the_task_runs_and_after_it() {
    let hub = Hub::start().await;
    let params = named("t", "steps 2");
    let mut stream = hub.client().await.open(call("tasks/sendSubscribe", &params)).await;
    let first = stream.next().await.unwrap();
    let seen = first.id.unwrap();
    drop(stream);
    let again = call("tasks/resubscribe", &json!({ "id": "t" }));
    let mut live = hub.client().await.open(again.clone()).await;
    let mut resumed = hub.client().await.open(again.clone().header("Last-Event-ID", &seen)).await;
    hub.release(2);
    let rest = data(&live.rest().await);
    assert_eq!(rest.last().unwrap()["result"]["status"]["state"], "completed");
    let rest = data(&resumed.rest().await);
    assert_eq!(rest[0]["result"]["status"]["state"], "working", "the event after the one seen");
    assert_eq!(rest.last().unwrap()["result"]["final"], true);
    let replayed = data(&hub.client().await.open(again).await.rest().await);
    assert_eq!(replayed.len(), rest.len() + 1, "the whole log");
    assert_eq!(replayed[0]["result"]["status"]["state"], "submitted");
}

#[tokio::test]
async fn an_artifact_keeps_its_number_when_a_stream_starts_late() {
    let hub = Hub::start().await;
    let first = hub.call(call("tasks/send", &named("t", "auth")).at("/a2a")).await.result();
    assert_eq!(first["status"]["state"], "input-required", "what 0.1 has for it");
    hub.call(call("tasks/send", &named("t", "chunks 2"))).await.result();
    let late = call("tasks/resubscribe", &json!({ "id": "t" }));
    let mut stream = hub.client().await.open(late).await;
    hub.release(1);
    let events = data(&stream.rest().await);
    let mut numbers: Vec<_> = events
        .iter()
        .filter_map(|event| event["result"].get("artifact"))
        .map(|piece| {
            (piece["parts"][0]["text"].as_str().unwrap(), piece["index"].as_u64().unwrap())
        })
        .collect();
    numbers.dedup();
    assert_eq!(numbers, [("authorised", 0), ("1;", 1), ("2;", 1)]);
    let task = hub.call(call("tasks/get", &json!({ "id": "t" }))).await.result();
    assert_eq!(task["artifacts"][1]["index"], 1);
    let from = call("tasks/resubscribe", &json!({ "id": "t" })).header("Last-Event-ID", "t:7");
    let events = data(&hub.client().await.open(from).await.rest().await);
    let piece = events.iter().find_map(|event| event["result"].get("artifact")).unwrap();
    assert_eq!(piece["index"], 1, "{events:?}");
}

// proves: SEND-023, SEND-024
#[tokio::test]
async fn a_task_is_made_under_the_callers_id_and_continued_by_it() {
    let hub = Hub::start().await;
    let first = hub.call(call("tasks/send", &named("booking", "ask")).at("/a2a")).await.result();
    assert_eq!(
        (&first["id"], &first["status"]["state"]),
        (&json!("booking"), &json!("input-required"))
    );
    assert_eq!(
        first["status"]["message"]["parts"][0],
        json!({ "type": "text", "text": "which one?" })
    );
    let second =
        hub.call(call("tasks/send", &named("booking", "the red one")).at("/a2a")).await.result();
    assert_eq!(
        (&second["id"], &second["status"]["state"]),
        (&json!("booking"), &json!("completed"))
    );
    assert_eq!(second["sessionId"], first["sessionId"]);
    let third = hub.call(call("tasks/send", &named("booking", "once more"))).await;
    assert_eq!(third.error(), (-32009, "UNSUPPORTED_OPERATION".into()));
    let third = hub.call(call("tasks/sendSubscribe", &named("booking", "once more"))).await;
    assert_eq!(third.header("content-type"), Some("text/event-stream"));
    assert_eq!(third.error(), (-32009, "UNSUPPORTED_OPERATION".into()));
    let mut elsewhere = named("other", "ask");
    elsewhere["sessionId"] = json!("s");
    hub.call(call("tasks/send", &elsewhere).at("/a2a")).await.result();
    elsewhere["sessionId"] = json!("another");
    let answer = hub.call(call("tasks/send", &elsewhere)).await;
    assert_eq!(answer.error().0, -32602);
    assert!(answer.text().contains("sessionId"), "{}", answer.text());
}

#[tokio::test]
async fn without_an_id_the_server_makes_one_and_the_session_finds_the_task_that_waits() {
    let hub = Hub::start().await;
    let mut params = text("ask");
    params["session_id"] = json!("s");
    let first = hub.call(call("tasks/send", &params).at("/a2a")).await.result();
    assert!(uuid::Uuid::try_parse(first["id"].as_str().unwrap()).is_ok(), "{first}");
    let mut answer = text("the red one");
    answer["session_id"] = json!("s");
    let second = hub.call(call("tasks/send", &answer).at("/a2a")).await.result();
    assert_eq!((&second["id"], &second["status"]["state"]), (&first["id"], &json!("completed")));
}

#[tokio::test]
async fn two_sends_with_the_same_new_id_are_one_task() {
    let hub = Hub::start().await;
    for round in 0..16 {
        let id = format!("race {round}");
        let [one, other] = ["wait a", "wait b"].map(|text| call("tasks/send", &named(&id, text)));
        let sent = tokio::join!(hub.call(one), hub.call(other));
        for answer in [sent.0, sent.1] {
            assert_eq!(answer.result()["id"], json!(id));
        }
        hub.release(2);
        let task = settled(&hub, &id).await;
        assert_eq!(task["status"]["state"], "completed", "{task}");
        assert_eq!(task["history"].as_array().unwrap().len(), 2, "both messages are its own");
    }
}

#[tokio::test]
async fn two_agents_do_not_share_a_task_by_its_id() {
    let hub = Hub::start().await;
    for round in 0..16 {
        let id = format!("race {round}");
        let [one, other] = ["/agents/script/a2a", "/agents/files/a2a"]
            .map(|path| call("tasks/send", &named(&id, "hello")).at(path));
        let sent = tokio::join!(hub.call(one), hub.call(other));
        let sent = [sent.0, sent.1];
        let made = sent.iter().filter(|answer| answer.json().get("result").is_some()).count();
        assert_eq!(made, 1, "{round}");
        let refused = sent.iter().find(|answer| answer.json().get("error").is_some()).unwrap();
        assert_eq!(refused.error(), (-32602, "INVALID_PARAMS".into()));
    }
}

fn token(who: &str) -> Token {
    Token {
        secret: format!("canary-7c5e-{who}"),
        tenant: TenantId::from("acme"),
        principal: who.into(),
        scopes: if who == "reader" { Scopes::READ } else { Scopes::ALL },
        ..Token::default()
    }
}

#[tokio::test]
async fn two_callers_may_use_the_same_id_and_never_meet() {
    let tokens = ["alice", "bob", "reader"].map(token).to_vec();
    let hub = Hub::with(Config { tokens, ..Config::default() }).await;
    let as_ =
        |who: &str, call: Call| call.header("Authorization", &format!("Bearer canary-7c5e-{who}"));
    for who in ["alice", "bob"] {
        let send = as_(who, call("tasks/send", &named("mine", who)).at("/a2a"));
        let task = hub.call(send).await.result();
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], who);
        assert_eq!(task["history"].as_array().unwrap().len(), 1);
    }
    hub.call(as_("alice", call("tasks/send", &named("secret", "wait x")))).await.result();
    for method in ["tasks/get", "tasks/cancel", "tasks/resubscribe"] {
        let answer = hub.call(as_("bob", call(method, &json!({ "id": "secret" })))).await;
        assert_eq!(answer.error(), (-32001, "TASK_NOT_FOUND".into()), "{method}");
    }
    let nobody = hub.call(call("tasks/get", &json!({ "id": "mine" }))).await;
    assert_eq!((nobody.status(), nobody.error().0), (401, -32007));
    let forbidden = hub.call(as_("reader", call("tasks/send", &text("x")))).await;
    assert_eq!((forbidden.status(), forbidden.error().0), (403, -32008));
}

// proves: ERR-075
#[tokio::test]
async fn errors_have_the_numbers_of_0_1() {
    let hub = Hub::start().await;
    let silent = call("tasks/sendSubscribe", &text("x")).at("/agents/silent/rpc");
    assert_eq!(hub.call(silent).await.error().0, -32006);
    let unknown = json!({ "id": "nowhere" });
    for method in ["tasks/get", "tasks/cancel", "tasks/resubscribe"] {
        assert_eq!(hub.call(call(method, &unknown)).await.error().0, -32001, "{method}");
    }
    let push = json!({ "id": "t", "pushNotificationConfig": { "url": "https://example.com/" } });
    assert_eq!(hub.call(call("tasks/pushNotification/set", &push)).await.error().0, -32003);
    assert_eq!(hub.call(call("tasks/pushNotification/get", &unknown)).await.error().0, -32003);
    let data = json!({ "message": { "parts": [{ "type": "data", "data": {} }] } });
    assert_eq!(hub.call(call("tasks/send", &data)).await.error().0, -32005);
    for params in [json!({}), json!({ "message": { "parts": [] } }), json!([])] {
        assert_eq!(hub.call(call("tasks/send", &params)).await.error().0, -32602, "{params}");
    }
    let torn = Call::post("/rpc", &json!(0)).body("{");
    assert_eq!(hub.call(torn).await.error().0, -32700);
    let unheard = hub.call(call("tasks/sendsubscribe", &text("x"))).await;
    assert_eq!(unheard.error().0, -32601);
    assert!(unheard.text().contains("hint"), "{}", unheard.text());
}

#[tokio::test]
async fn a_cancel_of_an_ended_task_depends_on_how_the_task_is_spelled() {
    let hub = Hub::start().await;
    for path in ["/rpc", "/a2a/jsonrpc"] {
        let done = hub.call(call("tasks/send", &text("hello")).at("/a2a")).await.result();
        let running = hub.call(call("tasks/send", &text("wait x"))).await.result();
        let cancelled = call("tasks/cancel", &json!({ "id": running["id"] })).at(path);
        assert_eq!(hub.call(cancelled).await.result()["status"]["state"], "canceled");
        for task in [&done, &running] {
            for spelling in ["id", "task_id"] {
                let cancel = call("tasks/cancel", &json!({ spelling: task["id"] })).at(path);
                let error = hub.call(cancel).await.error();
                assert_eq!(error, (-32002, "TASK_NOT_CANCELABLE".into()), "{spelling}");
            }
            let before = hub.call(call("tasks/get", &json!({ "id": task["id"] })).at(path)).await;
            let cancel = call("tasks/cancel", &json!({ "taskId": task["id"] })).at(path);
            assert_eq!(hub.call(cancel).await.result(), before.result());
        }
    }
}

#[tokio::test]
async fn a_handler_is_an_agent_by_its_name() {
    let hub = Hub::start().await;
    let mut params = json!({ "message": { "parts": [{ "type": "data", "data": { "x": 1 } }] } });
    params["handler"] = json!("files");
    let task = hub.call(call("tasks/send", &params).at("/a2a")).await.result();
    assert_eq!(task["status"]["state"], "completed");
    let found = call("tasks/get", &json!({ "id": task["id"] })).at("/agents/files/rpc");
    assert_eq!(hub.call(found).await.result()["id"], task["id"]);
    let elsewhere = call("tasks/get", &json!({ "id": task["id"] })).at("/agents/script/rpc");
    assert_eq!(hub.call(elsewhere).await.error().0, -32001);

    params["handler"] = json!("nobody");
    let answer = hub.call(call("tasks/sendSubscribe", &params)).await;
    assert_eq!(answer.error(), (-32602, "INVALID_PARAMS".into()));
    let text_ = answer.text();
    assert!(text_.contains("handler: must be one of: files, script, silent, strict"), "{text_}");
    params["handler"] = json!("files");
    let other = hub.call(call("tasks/send", &params).at("/agents/script/rpc")).await;
    assert_eq!(other.error().0, -32602, "an agent's own endpoint has no other agent");
    let mut strict = text("x");
    strict["handler"] = json!("strict");
    assert_eq!(hub.call(call("tasks/send", &strict)).await.error().1, "EXTENSION_SUPPORT_REQUIRED");
}

#[tokio::test]
async fn a_direct_answer_is_a_task_that_ends_with_it() {
    let hub = Hub::start().await;
    let task = hub.call(call("tasks/send", &named("t", "reply hello")).at("/a2a")).await.result();
    assert_eq!((&task["id"], &task["status"]["state"]), (&json!("t"), &json!("completed")));
    assert_eq!(task["status"]["message"]["parts"][0], json!({ "type": "text", "text": "hello" }));
    let got = hub.call(call("tasks/get", &json!({ "id": "t" }))).await.result();
    assert_eq!(got["status"], task["status"], "what the caller saw is there");
    let stream = call("tasks/sendSubscribe", &named("u", "reply hello"));
    let events = data(&hub.client().await.open(stream).await.rest().await);
    let end = &events.last().unwrap()["result"];
    assert_eq!((&end["status"]["state"], &end["final"]), (&json!("completed"), &json!(true)));
    assert_eq!(end["status"]["message"]["parts"][0]["text"], "hello");
}

#[tokio::test]
async fn a_repeat_is_a_new_message_unless_it_has_a_key() {
    let hub = Hub::start().await;
    let id = uuid::Uuid::new_v4().to_string();
    let send = call("tasks/send", &named(&id, "hello")).at("/a2a");
    hub.call(send.clone()).await.result();
    assert_eq!(hub.call(send).await.error().0, -32009, "0.1 has nothing to tell a retry by");
    for path in ["/a2a", "/rpc"] {
        let send = |id: &str| {
            let send = call("tasks/send", &named(id, "hello")).at(path);
            send.header("Idempotency-Key", &format!("once at {path}"))
        };
        let name = format!("task at {path}");
        let first = hub.call(send(&name)).await.result();
        settled(&hub, &name).await;
        let again = hub.call(send(&name)).await.result();
        assert_eq!(again["id"], first["id"]);
        assert_eq!(again["history"].as_array().unwrap().len(), 1);
        let other = hub.call(send("another")).await;
        assert_eq!(other.error().1, "IDEMPOTENCY_CONFLICT", "the key is that of another task");
    }
    let unnamed = json!({ "message": { "parts": [{ "type": "text", "text": "hello" }] } });
    let old = Call::old_rpc("message/send", &unnamed).header("Idempotency-Key", "k");
    let first = hub.call(old.clone()).await.result();
    assert_eq!(hub.call(old).await.result(), first, "also where the server names the message");
}
