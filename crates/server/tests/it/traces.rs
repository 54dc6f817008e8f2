//! Trace context of calls, as the agent sees it.

use serde_json::{Value, json};

use crate::{
    client::{Call, message, old_message},
    hub::Hub,
};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A message whose agent answers with its trace, and the metadata of the send.
fn traced(metadata: Value) -> Value {
    let mut params = message("trace");
    params["metadata"] = metadata;
    params
}

fn ids() -> Value {
    json!({ "a2a.trace": { "traceId": "abc123", "spanId": "def456" } })
}

fn padded() -> String {
    format!("00-{:0>32}-{:0>16}-01", "abc123", "def456")
}

async fn seen(hub: &Hub, call: Call) -> String {
    let answer = hub.call(call).await;
    let json = answer.json();
    let task = json.pointer("/result/task").or(json.pointer("/result")).or(json.get("task"));
    let text = task.and_then(|task| task.pointer("/artifacts/0/parts/0/text")).cloned();
    text.unwrap_or_else(|| panic!("{json}")).as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_headers_name_the_trace_on_every_binding() {
    let hub = Hub::start().await;
    for call in [
        Call::rpc("SendMessage", &message("trace")),
        Call::old_rpc("message/send", &old_message("trace")),
        Call::post("/message:send", &message("trace")).v1(),
    ] {
        let call = call.header("traceparent", PARENT).header("tracestate", "vendor=1");
        assert_eq!(seen(&hub, call).await, format!("{PARENT} vendor=1"));
    }
}

#[tokio::test]
async fn metadata_names_the_trace_where_the_headers_do_not() {
    let hub = Hub::start().await;
    let call = Call::rpc("SendMessage", &traced(ids()));
    assert_eq!(seen(&hub, call.clone()).await, padded());
    assert_eq!(seen(&hub, call.header("traceparent", PARENT)).await, PARENT);
    let mut params = old_message("trace");
    params["metadata"] = ids();
    assert_eq!(seen(&hub, Call::old_rpc("message/send", &params)).await, padded());
    let mut params = old_message("trace");
    params["message"]["metadata"] = ids();
    assert_eq!(seen(&hub, Call::old_rpc("message/send", &params)).await, padded());
}

#[tokio::test]
async fn a_trace_that_makes_no_sense_is_none_and_breaks_nothing() {
    let hub = Hub::start().await;
    let call = Call::rpc("SendMessage", &message("trace"));
    assert_eq!(seen(&hub, call.clone()).await, "");
    for broken in ["", "00", "00-0-0-00", &PARENT.to_uppercase(), &format!("{PARENT}, {PARENT}")] {
        assert_eq!(seen(&hub, call.clone().header("traceparent", broken)).await, "", "{broken}");
    }
    let broken = json!({ "a2a.trace": "abc123" });
    assert_eq!(seen(&hub, Call::rpc("SendMessage", &traced(broken.clone()))).await, "");
    let call = Call::rpc("SendMessage", &traced(ids())).header("traceparent", "nonsense");
    assert_eq!(seen(&hub, call).await, padded());
    let long = Call::rpc("SendMessage", &message("trace")).header("traceparent", PARENT);
    let long = long.header("tracestate", &"x".repeat(600));
    assert_eq!(seen(&hub, long).await, PARENT);
}
