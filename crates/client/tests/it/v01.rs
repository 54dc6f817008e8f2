//! A2A 0.1 and early 0.2, whose cards have no version.

use herald_client::{
    AgentCard, Binding, Client, SendResult, StreamEvent, TaskState,
    protocol::{
        ErrorKind, Message, Version,
        card::AgentInterface,
        push::PushConfig,
        request::{ListPushConfigs, ListTasks},
    },
};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, Reaction, Received, answer, events, response},
    hub::{Hub, all, pieces, quick, soon},
};

/// A client of Herald's endpoint for 0.1, which no card lists.
fn client(hub: &Hub) -> Client {
    let interface = AgentInterface {
        url: format!("{}/rpc", hub.url()),
        protocol_binding: "JSONRPC".into(),
        tenant: None,
        protocol_version: "0.1".into(),
    };
    let mut card = AgentCard { supported_interfaces: vec![interface], ..AgentCard::default() };
    card.capabilities.streaming = Some(true);
    quick().version(Version::V0_1).card(card).unwrap()
}

// proves: RPC-016
#[tokio::test]
async fn the_same_calls_are_those_of_0_1() {
    let hub = Hub::start().await;
    let client = client(&hub);
    let sent = client.send(Message::user("mine", "hello")).await.unwrap();
    let SendResult::Task(task) = sent else { panic!("there are no direct answers") };
    assert_eq!(task.id.as_str(), "mine", "the client names its tasks");
    let SendResult::Task(task) = client.finish(SendResult::Task(task)).await.unwrap() else {
        panic!("a task stays one");
    };
    assert_eq!((task.status.state, task.text()), (TaskState::Completed, "hello".to_owned()));
    assert_eq!(client.get("mine").await.unwrap().text(), "hello");

    let events = all(client.stream("chunks 3").await.unwrap()).await;
    assert_eq!(pieces(&events), "1;2;3;");
    let last = events.last().and_then(StreamEvent::state);
    assert_eq!(last, Some(TaskState::Completed));

    let asked = client.send("ask").await.unwrap();
    let SendResult::Task(asked) = client.finish(asked).await.unwrap() else { panic!("no task") };
    assert_eq!(asked.status.state, TaskState::InputRequired);
    let mut reply = Message::user("", "this one");
    reply.task_id = Some(asked.id.clone());
    let answered = client.send(reply).await.unwrap();
    let SendResult::Task(answered) = client.finish(answered).await.unwrap() else { panic!() };
    assert_eq!((answered.id, answered.status.state), (asked.id, TaskState::Completed));

    let SendResult::Task(waiting) = client.send("wait for me").await.unwrap() else { panic!() };
    let following = client.subscribe(waiting.id.clone()).await.unwrap();
    hub.release(1);
    assert_eq!(pieces(&all(following).await), "for me");

    let SendResult::Task(doomed) = client.send("wait in vain").await.unwrap() else { panic!() };
    let canceled = client.cancel(doomed.id).await.unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    let error = client.get("nowhere").await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::TaskNotFound));
}

#[tokio::test]
async fn operations_that_0_1_does_not_have_are_unsupported() {
    let hub = Hub::start().await;
    let client = client(&hub);
    let unsupported = Some(ErrorKind::UnsupportedOperation);
    let error = client.list(ListTasks::default()).next().await.unwrap_err();
    assert_eq!(error.kind(), unsupported);
    let query = ListPushConfigs { task_id: "t".into(), ..ListPushConfigs::default() };
    assert_eq!(client.push_configs(query).await.unwrap_err().kind(), unsupported);
    assert_eq!(client.delete_push_config("t", "one").await.unwrap_err().kind(), unsupported);
    assert_eq!(client.extended_card().await.unwrap_err().kind(), unsupported);
    // Version 0.1 has these, and Herald refuses them.
    let config = PushConfig { task_id: Some("t".into()), ..PushConfig::default() };
    let error = client.create_push_config(config).await.unwrap_err();
    assert_ne!(error.kind(), unsupported, "{error:?}");
}

/// A server with its card at the old path and with these methods only.
async fn old(authentication: Value, methods: &'static [&'static str]) -> Fake {
    Fake::start(move |url, _, request| match request.path.as_str() {
        "/.well-known/agent.json" => {
            let mut card = json!({
                "name": "old", "url": url, "version": "1", "capabilities": { "streaming": true },
                "skills": [{ "id": "s", "name": "s" }],
            });
            if !authentication.is_null() {
                card["authentication"] = authentication.clone();
            }
            answer(200, &card)
        }
        path if path.ends_with(".json") => response(404, &[], ""),
        _ => call(request, methods),
    })
    .await
}

fn call(request: &Received, methods: &[&str]) -> Reaction {
    let body = request.json();
    let method = body["method"].as_str().unwrap();
    if !methods.contains(&method) {
        let error = json!({ "code": -32601, "message": "Method not found" });
        return answer(200, &json!({ "jsonrpc": "2.0", "id": body["id"], "error": error }));
    }
    let status = json!({ "state": "completed", "timestamp": "2025-04-02T16:59:25.331844" });
    let result = match method {
        "tasks/send" => {
            let artifacts = json!([{ "parts": [{ "type": "text", "text": "0.1" }], "index": 0 }]);
            json!({ "id": body["params"]["id"], "sessionId": "s", "status": status, "artifacts": artifacts })
        }
        "tasks/sendSubscribe" => {
            let id = &body["params"]["id"];
            let part = json!({ "type": "text", "text": "0.1" });
            let items = [
                json!({ "id": id, "artifact": { "parts": [part], "index": 0 } }),
                json!({ "id": id, "status": status, "final": true }),
            ];
            let items =
                items.map(|item| json!({ "jsonrpc": "2.0", "id": body["id"], "result": item }));
            return Reaction::Answer(events(&items));
        }
        _ => {
            let artifacts =
                json!([{ "artifactId": "a", "parts": [{ "kind": "text", "text": "0.2" }] }]);
            json!({ "kind": "task", "id": "t", "contextId": "c", "status": status, "artifacts": artifacts })
        }
    };
    answer(200, &json!({ "jsonrpc": "2.0", "id": body["id"], "result": result }))
}

// proves: FMT-023, CARD-024
#[tokio::test]
async fn the_first_call_finds_out_which_old_version_an_agent_has() {
    let bearer = json!({ "schemes": ["bearer"] });
    for (authentication, is_first, tried) in [
        (bearer.clone(), true, 0),
        (bearer, false, 1),
        (Value::Null, true, 1),
        (Value::Null, false, 0),
    ] {
        let (methods, expected): (&[&str], _) = if is_first {
            (&["tasks/send", "tasks/sendSubscribe"], "0.1")
        } else {
            (&["message/send"], "0.2")
        };
        let fake = old(authentication, methods).await;
        let client = quick().connect(&fake.url()).await.unwrap();
        assert_eq!(client.card().skills[0].id, "s");
        assert_eq!(soon(client.send("hello")).await.unwrap().text(), expected);
        assert_eq!(soon(client.send("hello")).await.unwrap().text(), expected);
        let asked: Vec<_> = fake.calls().iter().map(|call| call.json()["method"].clone()).collect();
        assert_eq!(asked.len(), 2 + tried, "{asked:?}");
        assert!(asked[tried..].iter().all(|method| method == methods[0]), "{asked:?}");
        if is_first {
            let events = all(client.stream("hello").await.unwrap()).await;
            assert_eq!(pieces(&events), "0.1");
        }
        let way = Binding::from_name(&client.interface().protocol_binding);
        assert_eq!(way, Some(Binding::JsonRpc));
    }
}
