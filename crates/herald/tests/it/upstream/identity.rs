//! Tests of the identity at an upstream agent: the configured one, never the caller's.

use serde_json::{Value, json};

use super::{
    STEERED, draft, passing,
    raw::{Raw, Reaction, stream, whole},
    told, url,
};
use crate::{
    http::Call,
    support::{Herald, Options, uuid},
    tasks::failure,
    wire::{Wire, state},
};

/// A server that requires a token.
fn guarded(token: &str) -> String {
    format!("[auth]\ntokens = [{{ token = \"{token}\", tenant = \"t\", principal = \"p\" }}]\n")
}

#[tokio::test]
async fn the_upstream_gets_the_configured_credentials_and_none_of_the_callers() {
    let raw = Raw::start(|call| Reaction::Close(stream(call, &[whole("COMPLETED")]))).await;
    let agents = passing("up", &raw.url(), "auth = { token = \"env:BEHIND\" }");
    let options = Options::config(format!("{agents}{}", guarded("canary-7c5e-caller")))
        .environment("BEHIND", "canary-7c5e-behind");
    let herald = Herald::start(options).await;
    let mut message =
        json!({ "messageId": uuid(), "role": "ROLE_USER", "parts": [{ "text": "x" }] });
    message["metadata"] = json!({ "color": "green" });
    let body = json!({ "message": message, "metadata": { "shape": "round" } });
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let call = Call::post("/message:send", &body)
        .header("a2a-version", "1.0")
        .header("authorization", "Bearer canary-7c5e-caller")
        .header("cookie", "session=canary-7c5e-caller")
        .header("x-api-key", "canary-7c5e-caller")
        .header("traceparent", trace);
    let answer = herald.call(&call).await.json();
    assert_eq!(state(&answer["task"]), "completed", "{answer}");
    let calls = raw.calls("SendStreamingMessage");
    let [call] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(call.headers["authorization"], "Bearer canary-7c5e-behind");
    assert_eq!(call.headers["traceparent"], trace, "the trace goes on");
    let all = format!("{:?}{}", call.headers, call.body);
    assert!(!all.contains("canary-7c5e-caller"), "{all}");
    let params = &call.body["params"];
    assert_eq!(params["message"]["metadata"]["color"], "green");
    assert_eq!(params["metadata"]["shape"], "round");
    assert_ne!(params["message"]["messageId"], message["messageId"], "it is a message of ours");
    assert_eq!(params["message"].get("taskId"), None, "{params}");
    assert!(!herald.log().contains("canary-7c5e-behind"), "{}", herald.log());
}

#[tokio::test]
async fn every_binding_and_version_sends_the_configured_token() {
    let behind = Herald::start(Options::config(format!("{STEERED}{}", guarded("let-me-in")))).await;
    let agent = |(at, (binding, version, _)): (usize, &(&str, &str, &str))| {
        let auth = "auth = { token = \"let-me-in\" }";
        let settings = format!("binding = \"{binding}\"\na2a_version = \"{version}\"\n{auth}");
        passing(&format!("way-{at}"), &url(&behind), &settings)
    };
    let agents: String = super::WAYS.iter().enumerate().map(agent).collect();
    let wrong = passing("wrong", &url(&behind), "auth = { token = \"canary-7c5e-wrong\" }");
    let without = passing("without", &url(&behind), "");
    let before = Herald::start(Options::config(format!("{agents}{wrong}{without}"))).await;
    for (at, way) in super::WAYS.iter().enumerate() {
        let done = told(&before, &format!("/agents/way-{at}"), &draft("tck-complete-task")).await;
        assert_eq!(state(&done), "completed", "{way:?}: {done}");
    }
    for agent in ["wrong", "without"] {
        let failed = told(&before, &format!("/agents/{agent}"), &draft("hello")).await;
        let expected =
            format!("agent {agent} does not accept our credentials (AUTHENTICATION_REQUIRED)");
        assert_eq!(failure(&failed), (&*expected, "AGENT_FAILED"));
    }
    assert!(!before.log().contains("canary-7c5e-wrong"), "{}", before.log());
}

#[tokio::test]
async fn tenants_with_equal_task_ids_have_separate_tasks_upstream() {
    let behind = Herald::start(Options::config(STEERED)).await;
    let agents = passing("up", &url(&behind), "idempotent = true");
    let token = |name: &str| {
        format!("{{ token = \"{name}\", tenant = \"{name}\", principal = \"{name}\" }}")
    };
    let auth = format!("[auth]\ntokens = [{}, {}]\n", token("one"), token("other"));
    let before = Herald::start(Options::config(format!("{agents}{auth}"))).await;
    for tenant in ["one", "other"] {
        let parts = json!([{ "type": "text", "text": "hello" }]);
        let params = json!({ "id": "mine", "sessionId": "ours", "message": { "role": "user", "parts": parts } });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params });
        let call = Call::post("/rpc", &body).header("authorization", format!("Bearer {tenant}"));
        let sent = before.call(&call).await.json();
        assert_eq!(sent["result"]["id"], "mine", "{sent}");
        let get =
            json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": { "id": "mine" } });
        let get = Call::post("/rpc", &get).header("authorization", format!("Bearer {tenant}"));
        crate::support::eventually(crate::support::SOON, "it is done", async || {
            let found: Value = before.call(&get).await.json();
            found["result"]["status"]["state"] == "completed"
        })
        .await;
    }
    let far = Wire::Rest.result(&behind.call(&crate::wire::list(None, 100, "")).await).unwrap();
    assert_eq!(far["totalSize"], 2, "{far}");
    assert_ne!(far["tasks"][0]["contextId"], far["tasks"][1]["contextId"]);
}
