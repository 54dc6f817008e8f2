//! Store failures, as callers see them.

use std::sync::Arc;

use herald_engine::{
    Engine, Profile,
    store::{Store, flaky::Flaky},
};
use serde_json::{Value, json};

use crate::{
    agents::Script,
    client::{Call, message},
    hub::Hub,
};

pub(crate) async fn over(store: &Arc<Flaky>) -> Hub {
    let script = Script::new();
    let engine = Engine::builder(Arc::clone(store) as Arc<dyn Store>)
        .agent(Profile::new("script", "Does what it is told"), script.clone())
        .build()
        .unwrap();
    Hub::over(engine, script, |builder| builder).await
}

/// Waits until the probe answers so. An answer holds for a second, since each look is a write.
async fn readiness(hub: &Hub, status: u16) {
    while hub.call(Call::get("/readyz")).await.status() != status {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

// proves: ERR-071
#[tokio::test]
async fn a_store_that_takes_no_writes_is_a_passing_fault_with_a_name() {
    let store = Arc::new(Flaky::new().unwrap());
    let hub = over(&store).await;
    assert_eq!(hub.call(Call::get("/readyz")).await.status(), 200);
    store.fail_writes(true);
    readiness(&hub, 503).await;
    assert_eq!(hub.call(Call::get("/healthz")).await.status(), 200);
    let answer = hub.call(Call::post("/message:send", &message("hello")).v1()).await;
    assert_eq!((answer.status(), answer.reason()), (503, "UNAVAILABLE".into()));
    assert!(answer.header("retry-after").is_some());
    let id = answer.json()["error"]["details"][0]["metadata"]["requestId"].clone();
    assert_eq!(id.as_str(), answer.header("x-request-id"));
    assert!(!answer.text().contains("disk"), "the cause stays in the log: {}", answer.text());
    let answer = hub.call(Call::rpc("SendMessage", &message("hello"))).await;
    assert_eq!((answer.status(), answer.error().0), (200, -32603));
    assert!(answer.header("retry-after").is_some());
    store.fail_writes(false);
    readiness(&hub, 200).await;
    let answer = hub.call(Call::rpc("SendMessage", &message("hello"))).await;
    assert!(answer.result()["task"].is_object());
}

// proves: STR-029
#[tokio::test]
async fn a_stream_that_breaks_off_says_so_in_its_last_event_and_can_be_resumed() {
    let store = Arc::new(Flaky::new().unwrap());
    let hub = over(&store).await;
    let call = Call::rpc("SendMessage", &message("chunks 100"));
    let task = hub.call(call).await.result()["task"]["id"].clone();
    for call in [
        Call::rpc("SubscribeToTask", &json!({ "id": task })),
        Call::get(format!("/tasks/{}:subscribe", task.as_str().unwrap())).v1(),
    ] {
        store.fail_reads_after(2);
        let call = call.header("Last-Event-ID", "0");
        let events = hub.client().await.open(call.clone()).await.rest().await;
        let (last, before) = events.split_last().unwrap();
        assert_eq!(last.event.as_deref(), Some("error"));
        assert!(before.len() > 10, "{}", before.len());
        let body: Value = serde_json::from_str(&last.data).unwrap();
        assert!(body["error"]["code"].is_number(), "{body}");
        assert!(!last.data.contains("disk"), "{body}");
        let id = before.last().unwrap().id.clone();
        assert_eq!(last.id, id, "the failure is no event to resume after");
        store.fail_reads_after(usize::MAX);
        let call = call.header("Last-Event-ID", &id.unwrap());
        let rest = hub.client().await.open(call).await.rest().await;
        assert!(rest.iter().all(|event| event.event.is_none()));
        assert!(rest.last().unwrap().data.contains("TASK_STATE_COMPLETED"));
        assert_eq!(before.len() + rest.len(), 103, "nothing is lost and nothing comes twice");
    }
}
