//! Streams of 1.0, over JSON-RPC and over REST.

use std::time::Duration;

use herald_server::{Config, Limits, Timeouts};
use serde_json::{Value, json};

use crate::{
    client::{Call, Client, Stream, data, message},
    hub::Hub,
};

/// Both ways to open a stream of a new task.
fn sends(text: &str) -> [Call; 2] {
    [
        Call::rpc("SendStreamingMessage", &message(text)),
        Call::post("/message:stream", &message(text)).v1(),
    ]
}

/// Every way to follow a task.
fn subscribes(task: &str) -> [Call; 3] {
    [
        Call::rpc("SubscribeToTask", &json!({ "id": task })),
        Call::get(format!("/tasks/{task}:subscribe")).v1(),
        Call::new("POST", format!("/tasks/{task}:subscribe")).v1(),
    ]
}

/// What an event says, whichever binding it came by.
fn item(event: &Value) -> &Value {
    event.get("result").unwrap_or(event)
}

async fn first_task(stream: &mut Stream) -> Value {
    let first = stream.json().await;
    item(&first)["task"].clone()
}

fn state(event: &Value) -> Option<&str> {
    item(event)["statusUpdate"]["status"]["state"].as_str()
}

// proves: STR-001, STR-003, STR-008, STR-028, STR-031, REST-018
#[tokio::test]
async fn a_stream_begins_with_the_task_and_closes_at_its_end() {
    let hub = Hub::start().await;
    for (text, last) in [
        ("hello", "TASK_STATE_COMPLETED"),
        ("fail", "TASK_STATE_FAILED"),
        ("reject", "TASK_STATE_REJECTED"),
    ] {
        for call in sends(text) {
            let mut stream = hub.client().await.open(call).await;
            assert_eq!(stream.head.header("cache-control"), Some("no-cache"));
            assert_eq!(stream.head.header("x-accel-buffering"), Some("no"));
            let events = data(&stream.rest().await);
            let task = &item(&events[0])["task"];
            assert_eq!(task["status"]["state"], "TASK_STATE_SUBMITTED", "{events:#?}");
            assert_eq!(state(events.last().unwrap()), Some(last), "{events:#?}");
            for event in &events[1..] {
                let item = item(event).as_object().unwrap();
                assert_eq!(item.len(), 1, "{event}");
                let update = item.values().next().unwrap();
                assert_eq!(update["taskId"], task["id"], "{event}");
                assert_eq!(update["contextId"], task["contextId"], "{event}");
                assert!(update.get("final").is_none(), "{event}");
            }
        }
    }
}

// proves: STR-002
#[tokio::test]
async fn a_direct_answer_is_the_only_event() {
    let hub = Hub::start().await;
    for call in sends("reply hello") {
        let events = data(&hub.client().await.open(call).await.rest().await);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(item(&events[0])["message"]["parts"][0]["text"], "hello");
    }
}

// proves: SEND-014
#[tokio::test]
async fn returning_immediately_means_nothing_to_a_stream() {
    let hub = Hub::start().await;
    let mut params = message("hello");
    params["configuration"] = json!({ "returnImmediately": true });
    let call = Call::rpc("SendStreamingMessage", &params);
    let events = data(&hub.client().await.open(call).await.rest().await);
    assert_eq!(state(events.last().unwrap()), Some("TASK_STATE_COMPLETED"));
}

// proves: STR-004, STR-026, STR-027
#[tokio::test]
async fn pieces_arrive_in_order_and_add_up_to_the_artifact() {
    let hub = Hub::start().await;
    for call in sends("chunks 200") {
        let mut stream = hub.client().await.open(call).await;
        let task = first_task(&mut stream).await;
        let events = data(&stream.rest().await);
        let pieces: Vec<_> =
            events.iter().filter_map(|event| item(event).get("artifactUpdate")).collect();
        assert_eq!(pieces.len(), 200);
        for (index, piece) in pieces.iter().enumerate() {
            assert_eq!(piece["artifact"]["parts"][0]["text"], format!("{};", index + 1));
            assert_eq!(piece["append"] == true, index > 0, "{piece}");
            assert_eq!(piece["lastChunk"] == true, index == 199, "{piece}");
        }
        let task = hub.call(Call::rpc("GetTask", &json!({ "id": task["id"] }))).await.result();
        let parts = task["artifacts"][0]["parts"].as_array().unwrap();
        let text: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
        let expected: String = (1..=200).map(|index| format!("{index};")).collect();
        assert_eq!(text, expected);
    }
}

// proves: STR-005, STR-006, STR-015, STR-018, STR-019, REST-012
#[tokio::test]
async fn every_reader_sees_the_same_and_leaving_disturbs_nobody() {
    let hub = Hub::start().await;
    let call = Call::rpc("SendStreamingMessage", &message("steps 6"));
    let mut first = hub.client().await.open(call).await;
    let task = first_task(&mut first).await;
    let id = task["id"].as_str().unwrap();
    hub.release(2);
    while !first.json().await.to_string().contains("step 2") {}
    let mut others = Vec::new();
    for call in subscribes(id) {
        let mut stream = hub.client().await.open(call).await;
        let snapshot = first_task(&mut stream).await;
        assert_eq!(snapshot["id"], task["id"]);
        assert_eq!(snapshot["status"]["state"], "TASK_STATE_WORKING");
        others.push(stream);
    }
    drop(first);
    hub.release(4);
    let mut seen = Vec::new();
    for mut stream in others {
        let events = stream.rest().await;
        let ids: Vec<_> = events.iter().map(|event| event.id.clone()).collect();
        let items: Vec<_> = data(&events).iter().map(|event| item(event).clone()).collect();
        assert_eq!(state(items.last().unwrap()), Some("TASK_STATE_COMPLETED"));
        assert!(items[0].to_string().contains("step 3"), "{items:#?}");
        seen.push((ids, items));
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0], seen[2]);
}

// proves: STR-009
#[tokio::test]
async fn each_event_over_json_rpc_answers_the_call() {
    let hub = Hub::start().await;
    let call = Call::rpc("SendStreamingMessage", &message("hello"));
    for event in data(&hub.client().await.open(call).await.rest().await) {
        assert_eq!(event["jsonrpc"], "2.0");
        assert_eq!(event["id"], "call-1");
        assert_eq!(event["result"].as_object().unwrap().len(), 1);
        assert!(event.get("error").is_none());
    }
}

// proves: STR-010
#[tokio::test]
async fn each_event_over_rest_is_the_bare_item() {
    let hub = Hub::start().await;
    let call = Call::post("/message:stream", &message("hello")).v1();
    for event in data(&hub.client().await.open(call).await.rest().await) {
        let members: Vec<_> = event.as_object().unwrap().keys().collect();
        assert_eq!(members.len(), 1);
        assert!(["task", "statusUpdate", "artifactUpdate"].contains(&members[0].as_str()));
    }
}

// proves: STR-007, ERR-004, ERR-024
#[tokio::test]
async fn an_agent_that_does_not_stream_says_so() {
    let hub = Hub::start().await;
    let call = Call::rpc("SendStreamingMessage", &message("hello")).at("/agents/silent/rpc");
    assert_eq!(hub.call(call).await.error(), (-32004, "UNSUPPORTED_OPERATION".into()));
    let call = Call::post("/agents/silent/message:stream", &message("hello")).v1();
    let answer = hub.call(call).await;
    assert_eq!((answer.status(), answer.reason()), (400, "UNSUPPORTED_OPERATION".into()));
    let call = Call::rpc("SendMessage", &message("ask")).at("/agents/silent/rpc");
    let task = hub.call(call).await.result()["task"]["id"].clone();
    let call = Call::rpc("SubscribeToTask", &json!({ "id": task })).at("/agents/silent/rpc");
    assert_eq!(hub.call(call).await.error().0, -32004);
}

// proves: STR-016, STR-017
#[tokio::test]
async fn a_finished_or_unknown_task_cannot_be_followed() {
    let hub = Hub::start().await;
    let task = hub.call(Call::rpc("SendMessage", &message("hello"))).await.result()["task"].clone();
    for call in subscribes(task["id"].as_str().unwrap()) {
        assert!(hub.call(call).await.text().contains("UNSUPPORTED_OPERATION"));
    }
    for call in subscribes("nope") {
        assert!(hub.call(call).await.text().contains("TASK_NOT_FOUND"));
    }
}

// proves: STR-022, SEND-016
#[tokio::test]
async fn a_stream_stays_open_while_credentials_come_by_another_way() {
    let hub = Hub::start().await;
    let mut stream = hub.client().await.open(sends("auth")[0].clone()).await;
    loop {
        if state(&stream.json().await) == Some("TASK_STATE_AUTH_REQUIRED") {
            break;
        }
    }
    hub.release(1);
    let events = data(&stream.rest().await);
    assert_eq!(state(events.last().unwrap()), Some("TASK_STATE_COMPLETED"));
}

#[tokio::test]
async fn a_send_stream_closes_when_the_caller_has_to_answer() {
    let hub = Hub::start().await;
    for call in sends("ask") {
        let events = data(&hub.client().await.open(call).await.rest().await);
        assert_eq!(state(events.last().unwrap()), Some("TASK_STATE_INPUT_REQUIRED"));
    }
}

// proves: STR-030, SEND-027
#[tokio::test]
async fn the_task_goes_on_when_its_only_reader_leaves() {
    let hub = Hub::start().await;
    let mut stream = hub.client().await.open(sends("wait done")[0].clone()).await;
    let task = first_task(&mut stream).await;
    drop(stream);
    hub.release(1);
    let call =
        Call::rpc("SubscribeToTask", &json!({ "id": task["id"] })).header("Last-Event-ID", "0");
    let events = data(&hub.client().await.open(call).await.rest().await);
    assert_eq!(state(events.last().unwrap()), Some("TASK_STATE_COMPLETED"));
}

#[tokio::test]
async fn a_reader_takes_up_where_it_left_off() {
    let hub = Hub::start().await;
    let mut stream = hub.client().await.open(sends("chunks 20")[0].clone()).await;
    let task = first_task(&mut stream).await;
    let id = task["id"].as_str().unwrap();
    let all = stream.rest().await;
    let (cut, seen) = (all.len() / 2, &all[all.len() / 2 - 1]);
    let last = seen.id.clone().unwrap();
    assert!(last.starts_with(&format!("{id}:")), "{last}");
    let number = last.rsplit(':').next().unwrap();
    let [rpc, get, post] = subscribes(id);
    let query = Call::get(format!("/tasks/{id}:subscribe?A2A-Version=1.0&lastEventId={last}"));
    for call in [
        rpc.clone().header("Last-Event-ID", &last),
        rpc.header("Last-Event-ID", number),
        get.header("Last-Event-ID", &last),
        post.header("last-event-id", &last),
        query,
    ] {
        let rest = hub.client().await.open(call).await.rest().await;
        let ids = |events: &[herald_protocol::sse::SseEvent]| {
            events.iter().map(|event| event.id.clone()).collect::<Vec<_>>()
        };
        assert_eq!(ids(&rest), ids(&all[cut..]));
        for (one, other) in data(&rest).iter().zip(data(&all[cut..])) {
            assert_eq!(item(one), item(&other));
        }
    }
}

#[tokio::test]
async fn a_cursor_of_another_task_or_none_at_all_is_refused() {
    let hub = Hub::start().await;
    let task = hub.call(Call::rpc("SendMessage", &message("ask"))).await.result()["task"].clone();
    for cursor in ["other:1", "garbage", "1:x", "-1", "18446744073709551616", "999999"] {
        for call in subscribes(task["id"].as_str().unwrap()) {
            let answer = hub.call(call.header("Last-Event-ID", cursor)).await;
            assert!(answer.text().contains("INVALID_PARAMS"), "{cursor}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn a_retried_stream_follows_the_same_task() {
    let hub = Hub::start().await;
    let call = sends("chunks 5")[0].clone().header("Idempotency-Key", "key-1");
    let all = hub.client().await.open(call.clone()).await.rest().await;
    let again = hub.client().await.open(call.clone()).await.rest().await;
    assert_eq!(data(&all), data(&again));
    let last = all[3].id.clone().unwrap();
    let rest =
        hub.client().await.open(call.clone().header("Last-Event-ID", &last)).await.rest().await;
    assert_eq!(data(&rest), data(&all[4..]));
    let foreign = hub.call(call.header("Last-Event-ID", "other:3")).await;
    assert_eq!(foreign.error().0, -32602);
    // Without a key it is another send, and its stream is whole whatever the cursor says.
    let fresh = sends("chunks 5")[0].clone().header("Last-Event-ID", &last);
    let fresh = hub.client().await.open(fresh).await.rest().await;
    assert_eq!(fresh.len(), all.len());
    assert_ne!(fresh[0].id, all[0].id);
}

#[tokio::test]
async fn the_first_event_is_there_before_the_agent_has_finished() {
    let hub = Hub::start().await;
    for call in sends("wait x") {
        let mut stream = hub.client().await.open(call).await;
        assert!(first_task(&mut stream).await["id"].is_string());
        hub.release(1);
        assert!(!stream.rest().await.is_empty());
    }
}

#[tokio::test]
async fn a_silent_stream_shows_that_it_lives() {
    let timeouts = Timeouts { keep_alive: Duration::from_millis(20), ..Timeouts::default() };
    let hub = Hub::with(Config { timeouts, ..Config::default() }).await;
    let mut stream = hub.client().await.open(sends("wait x")[0].clone()).await;
    stream.raw_until(": keep-alive\n\n").await;
    hub.release(1);
    let events = data(&stream.rest().await);
    assert_eq!(state(events.last().unwrap()), Some("TASK_STATE_COMPLETED"));
}

// proves: ERR-073
#[tokio::test]
async fn a_caller_has_only_so_many_streams_and_gets_them_back() {
    let limits = Limits { streams_per_caller: 2, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let first = hub.client().await.open(sends("wait a")[0].clone()).await;
    let _second = hub.client().await.open(sends("wait b")[1].clone()).await;
    let [rpc, rest] = sends("hello");
    let answer = hub.call(rpc.clone()).await;
    assert_eq!((answer.status(), answer.error().1.as_str()), (429, "LIMIT_EXCEEDED"));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let answer = hub.call(rest).await;
    assert_eq!((answer.status(), answer.reason()), (429, "LIMIT_EXCEEDED".into()));
    // Those of another host are counted apart.
    let call = Call::rpc("SendStreamingMessage", &message("hello"));
    let elsewhere = Client::connect_from(2, hub.address).await;
    assert!(!elsewhere.open(call).await.rest().await.is_empty());
    drop(first);
    loop {
        let answer = hub.call(Call::rpc("SubscribeToTask", &json!({ "id": "x" }))).await;
        if answer.error().0 == -32001 {
            break;
        }
        tokio::task::yield_now().await;
    }
}
