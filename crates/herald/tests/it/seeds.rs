//! Tests of the requests of the five documents behind docs/compatibility.md. The examples of the first and of the last
//! are pasted with another address; other requests have the shapes of the documents, with texts and ids of our own.
//!
//! The examples of the second are in adapter_examples.rs, the handlers, workers and calls in Python in the tests of other
//! programs, and the cards in server_card.rs. The stream without an envelope of the second is left out, because the
//! documents contradict each other there.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    http::{Answer, Call, Stream},
    model::{Model, Step},
    support::{Herald, Options, ended},
};

/// One agent that answers at once, and one that always asks for input.
const AGENTS: &str = r#"
[[agents]]
name = "echo"
kind = "echo"
default = true

[[agents]]
name = "asks"
kind = "conformance"
otherwise = "ask"
"#;

/// A call with this text as its body.
fn pasted(path: &str, body: &str) -> Call {
    Call::post(path, &serde_json::from_str(body).unwrap())
}

#[track_caller]
fn result(answer: &Answer) -> Value {
    let json = answer.json();
    assert!(answer.status == 200 && json.get("error").is_none(), "{json}");
    assert_eq!(json["jsonrpc"], "2.0");
    json["result"].clone()
}

#[track_caller]
fn code(answer: &Answer) -> i64 {
    let json = answer.json();
    json["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {json}"))
}

/// The names and the data of a stream's events.
async fn events(mut stream: Stream) -> Vec<(Option<String>, Value)> {
    let mut events = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        events.push((event.event, serde_json::from_str(&event.data).unwrap()));
    }
    events
}

/// The output of the line in a shell.
async fn shell(line: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    let ended = ended(command).await;
    assert!(ended.status.success(), "{line}: {ended:?}");
    ended.stdout
}

/// The state of a task, which must have a timestamp.
#[track_caller]
fn state(task: &Value) -> &str {
    assert!(task["status"]["timestamp"].as_str().unwrap().ends_with('Z'), "{task}");
    task["status"]["state"].as_str().unwrap()
}

mod first {
    use super::*;

    #[tokio::test]
    async fn the_card_is_at_both_well_known_paths() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let url = format!("http://{}/.well-known/agent-card.json", herald.address);
        let card: Value = serde_json::from_str(&shell(&format!("curl -s {url}")).await).unwrap();
        for member in ["name", "description", "url", "version"] {
            assert!(card[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {card}");
        }
        assert_eq!(card["capabilities"]["streaming"], true);
        for member in ["id", "name", "description"] {
            assert!(card["skills"][0][member].is_string(), "{card}");
        }
    }

    /// Messages without role and id, whose text is called `content`.
    const SEND: &str = r#"{
  "jsonrpc": "2.0",
  "method": "message/send",
  "params": {
    "message": {
      "parts": [{"type": "text", "content": "Analyze this code"}]
    }
  },
  "id": "1"
}"#;

    const STREAM: &str = r#"{
  "jsonrpc": "2.0",
  "method": "message/stream",
  "params": {
    "message": {
      "parts": [{"type": "text", "content": "Generate a report"}]
    }
  },
  "id": "1"
}"#;

    /// The server makes the ids of tasks.
    const TASK: &str = "task-123";

    const GET: &str = r#"{
  "jsonrpc": "2.0",
  "method": "tasks/get",
  "params": {
    "task_id": "task-123"
  },
  "id": "2"
}"#;

    const CANCEL: &str = r#"{
  "jsonrpc": "2.0",
  "method": "tasks/cancel",
  "params": {
    "task_id": "task-123"
  },
  "id": "3"
}"#;

    #[tokio::test]
    async fn the_four_methods_work_at_one_url() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        // The card's `url` may be the bare origin, so that calls come there too.
        for path in ["/a2a/jsonrpc", "/"] {
            let answer = herald.call(&pasted(path, SEND)).await;
            assert_eq!(answer.json()["id"], "1");
            let task = result(&answer);
            assert_eq!(state(&task), "completed");
            assert_eq!(task["artifacts"][0]["parts"][0]["text"], "Echo: Analyze this code");
            let id = task["id"].as_str().unwrap();
            let got = herald.call(&pasted(path, &GET.replace(TASK, id))).await;
            assert_eq!((&got.json()["id"], result(&got)), (&json!("2"), task.clone()));
            let cancel = herald.call(&pasted(path, &CANCEL.replace(TASK, id))).await;
            assert_eq!((&cancel.json()["id"], code(&cancel)), (&json!("3"), -32002));
            for unknown in [GET, CANCEL] {
                assert_eq!(code(&herald.call(&pasted(path, unknown)).await), -32001);
            }
            let stream = herald.client().await.open(&pasted(path, STREAM)).await.unwrap();
            let (_, last) = events(stream).await.pop().unwrap();
            assert_eq!((&last["id"], &last["result"]["final"]), (&json!("1"), &json!(true)));
        }
    }

    #[tokio::test]
    async fn a_running_task_is_cancelled() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let path = "/agents/asks/a2a/jsonrpc";
        let task = result(&herald.call(&pasted(path, SEND)).await);
        assert_eq!(state(&task), "input-required");
        let id = task["id"].as_str().unwrap();
        let cancelled = herald.call(&pasted(path, &CANCEL.replace(TASK, id))).await;
        assert_eq!(state(&result(&cancelled)), "canceled");
    }

    #[tokio::test]
    async fn the_same_methods_work_over_rest() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let message = &serde_json::from_str::<Value>(SEND).unwrap()["params"];
        let sent = herald.call(&Call::post("/a2a/rest/message:send", message)).await;
        assert_eq!(sent.status, 200, "{sent:?}");
        let task = &sent.json()["task"];
        assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED", "it waits: {task}");
        let id = task["id"].as_str().unwrap().to_owned();
        let call = Call::post("/a2a/rest/message:stream", message);
        let stream = events(herald.client().await.open(&call).await.unwrap()).await;
        assert_eq!(stream.last().unwrap().1["statusUpdate"]["final"], true, "{stream:?}");
        let got = herald.call(&Call::get(format!("/a2a/rest/tasks/{id}"))).await;
        assert_eq!((got.status, &got.json()["id"]), (200, &json!(id)));
        let cancel = Call::post(format!("/a2a/rest/tasks/{id}:cancel"), &json!({}));
        let cancel = herald.call(&cancel).await;
        assert_eq!(cancel.json()["error"]["details"][0]["reason"], "TASK_NOT_CANCELABLE");
    }

    /// The response of discovery, with another address and another time.
    const DISCOVERY: &str = r#"{
  "agents": [
    {
      "name": "code-reviewer:dev-vm:abc123",
      "role": "code-reviewer",
      "instance_id": "dev-vm:abc123",
      "description": "CodeTether worker agent...",
      "url": "https://api.codetether.run",
      "capabilities": {"streaming": true, "push_notifications": true},
      "last_seen": "2026-01-15T12:00:00"
    }
  ],
  "routing_note": "Use 'role' with send_to_agent for routing."
}"#;

    #[tokio::test]
    async fn discovery_has_the_listed_members_of_a_worker() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let expected: Value = serde_json::from_str(DISCOVERY).unwrap();
        let entry = &expected["agents"][0];
        let mut worker = json!({});
        for member in ["role", "instance_id", "description", "capabilities"] {
            worker[member] = entry[member].clone();
        }
        let registered = herald.call(&Call::post("/api/agents", &worker)).await;
        assert_eq!(registered.status, 201, "{}", registered.text());
        let found = herald.call(&Call::get("/api/agents?role=code-reviewer")).await.json();
        assert_eq!(found["routing_note"], expected["routing_note"]);
        let [found] = &found["agents"].as_array().unwrap()[..] else { panic!("{found}") };
        for (member, value) in entry.as_object().unwrap() {
            match member.as_str() {
                "url" => {
                    let url = format!("http://{}/agents/code-reviewer", herald.address);
                    assert_eq!(found["url"], url);
                }
                "last_seen" => {
                    let (found, value) = (found["last_seen"].as_str(), value.as_str().unwrap());
                    let shape = |time: &str| time.replace(|it: char| it.is_ascii_digit(), "0");
                    assert_eq!(found.map(shape), Some(shape(value)));
                }
                _ => assert_eq!(&found[member], value, "{member}: {found}"),
            }
        }
    }
}

mod second {
    use super::*;

    const PATH: &str = "/a2a/jsonrpc";

    #[tokio::test]
    async fn the_card_has_its_url_and_its_fields() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let card = herald.call(&Call::get("/.well-known/agent-card.json")).await.json();
        assert_eq!(card["protocolVersion"], "0.3.0");
        assert_eq!(card["url"], format!("http://{}/a2a/jsonrpc", herald.address));
        assert_eq!(card["capabilities"]["streaming"], true);
        // It is false with `--adapter` only.
        assert_eq!(card["capabilities"]["pushNotifications"], true);
        for modes in ["defaultInputModes", "defaultOutputModes"] {
            assert!(card[modes].as_array().unwrap().contains(&json!("text/plain")), "{card}");
        }
        assert!(!card["skills"][0]["tags"].as_array().unwrap().is_empty(), "{card}");
    }

    #[tokio::test]
    async fn a_send_waits_for_the_end() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let send = r#"{"id": 1, "jsonrpc": "2.0", "method": "message/send", "params": {
            "configuration": {"blocking": true},
            "message": {"role": "user", "kind": "message", "messageId": "m-1",
                "parts": [{"text": "Water the plants", "kind": "text"}]}}}"#;
        for _ in 0..2 {
            let answer = herald.call(&pasted(PATH, send)).await;
            assert_eq!(answer.json()["id"], 1);
            let task = result(&answer);
            assert_eq!((&task["kind"], state(&task)), (&json!("task"), "completed"));
            for member in ["id", "contextId"] {
                assert!(!task[member].as_str().unwrap().is_empty());
            }
            assert!(task["artifacts"].is_array() && task["history"].is_array(), "{task}");
        }
    }

    #[tokio::test]
    async fn the_curl_line_streams() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let line = r#"curl -sN -H 'accept: text/event-stream' -H 'content-type: application/json' \
            -d '{"id": 1, "jsonrpc": "2.0", "method": "message/stream", "params": {
                "message": {"role": "user", "kind": "message", "messageId": "m-2",
                    "parts": [{"text": "List the planets", "kind": "text"}]}}}' \
            http://ADDRESS/a2a/jsonrpc"#;
        let line = line.replace("ADDRESS", &herald.address.to_string());
        let text = shell(&line).await;
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let shown: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        let shown: Vec<_> = shown.iter().map(|event| &event["result"]).collect();
        for event in &shown[1..] {
            assert!(event["taskId"].is_string() && event["contextId"].is_string(), "{event}");
        }
        let working = json!("working");
        assert!(shown.iter().any(|event| event["status"]["state"] == working), "{shown:?}");
        let artifact = shown.iter().find(|event| event["kind"] == "artifact-update").unwrap();
        assert!(artifact["artifact"]["artifactId"].is_string(), "{artifact}");
        assert_eq!(artifact["artifact"]["parts"][0]["kind"], "text");
        let last = shown.last().unwrap();
        assert_eq!((&last["kind"], &last["final"]), (&json!("status-update"), &json!(true)));
        assert_eq!(last["status"]["state"], "completed");
    }

    #[tokio::test]
    async fn a_task_is_looked_up_cancelled_and_answered() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let path = "/agents/asks/a2a/jsonrpc";
        let first = r#"{"id": 1, "jsonrpc": "2.0", "method": "message/send", "params": {"message": {
            "role": "user", "kind": "message", "messageId": "m-3",
            "parts": [{"text": "Water the plants", "kind": "text"}]}}}"#;
        let task = result(&herald.call(&pasted(path, first)).await);
        assert_eq!(state(&task), "input-required");
        let id = task["id"].as_str().unwrap();
        let get =
            r#"{"id": 2, "jsonrpc": "2.0", "method": "tasks/get", "params": {"taskId": "TASK"}}"#;
        assert_eq!(code(&herald.call(&pasted(path, get)).await), -32001);
        let got = result(&herald.call(&pasted(path, &get.replace("TASK", id))).await);
        assert_eq!((&got["kind"], &got["id"]), (&json!("task"), &task["id"]));
        // The context alone selects the task that waits in it.
        let answer = r#"{"id": 4, "jsonrpc": "2.0", "method": "message/send", "params": {"message": {
            "role": "user", "kind": "message", "messageId": "m-4", "contextId": "CONTEXT",
            "parts": [{"text": "yes", "kind": "text"}]}}}"#;
        let answer = answer.replace("CONTEXT", task["contextId"].as_str().unwrap());
        let answered = result(&herald.call(&pasted(path, &answer)).await);
        assert_eq!(answered["id"], task["id"], "the task that waited goes on");
        let cancel = r#"{"id": 3, "jsonrpc": "2.0", "method": "tasks/cancel", "params": {"taskId": "TASK"}}"#;
        assert_eq!(code(&herald.call(&pasted(path, cancel)).await), -32001);
        let cancel = pasted(path, &cancel.replace("TASK", id));
        let cancelled = result(&herald.call(&cancel).await);
        assert_eq!(state(&cancelled), "canceled");
        assert_eq!(result(&herald.call(&cancel).await), cancelled, "done is done");
    }

    #[tokio::test]
    async fn mistakes_have_the_listed_codes() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let missing = pasted(PATH, r#"{"jsonrpc": "2.0", "id": 1}"#);
        assert_eq!(code(&herald.call(&missing).await), -32600);
        let unknown = pasted(PATH, r#"{"jsonrpc": "2.0", "id": 1, "method": "tasks/explode"}"#);
        assert_eq!(code(&herald.call(&unknown).await), -32601);
    }
}

mod third {
    use super::*;

    /// A call as a table describes it: a method and its parameters.
    fn call(method: &str, params: &Value) -> Call {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Call::post("/rpc", &call)
    }

    fn message() -> Value {
        json!({ "role": "user", "parts": [{ "type": "text", "text": "good morning" }] })
    }

    #[tokio::test]
    async fn the_methods_work_with_the_listed_parameters() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let params = json!({ "message": message(), "session_id": "s" });
        let task = result(&herald.call(&call("tasks/send", &params)).await);
        assert!(uuid::Uuid::try_parse(task["id"].as_str().unwrap()).is_ok(), "{task}");
        assert_eq!(task["sessionId"], "s");
        let named = json!({ "id": task["id"] });
        let stream = herald.client().await.open(&call("tasks/resubscribe", &named)).await.unwrap();
        let (_, last) = events(stream).await.pop().unwrap();
        assert_eq!(last["result"]["final"], true);
        let got = result(&herald.call(&call("tasks/get", &named)).await);
        assert_eq!(state(&got), "completed");
        assert_eq!(got["artifacts"][0]["parts"][0]["text"], "Echo: good morning");
        assert_eq!(code(&herald.call(&call("tasks/cancel", &named)).await), -32002);

        let params = json!({ "message": message(), "session_id": "s", "handler": "echo" });
        let send = call("tasks/sendSubscribe", &params);
        let shown = events(herald.client().await.open(&send).await.unwrap()).await;
        let states: Vec<_> = shown
            .iter()
            .filter_map(|(_, event)| event["result"]["status"]["state"].as_str())
            .collect();
        assert_eq!(states, ["submitted", "working", "completed"]);
        let params = json!({ "message": message(), "handler": "asks" });
        let waiting = result(&herald.call(&call("tasks/send", &params)).await);
        let cancel = call("tasks/cancel", &json!({ "id": waiting["id"] }));
        assert_eq!(state(&result(&herald.call(&cancel).await)), "canceled");
    }
}

mod fourth {
    use super::*;

    #[tokio::test]
    async fn every_event_has_a_name_and_an_envelope() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let body = json!({
            "jsonrpc": "2.0", "id": "1", "method": "message/stream", "params": {
                "message": { "kind": "message", "messageId": "m", "role": "user",
                    "parts": [{ "kind": "text", "text": "hello" }] },
                "metadata": { "a2a.trace": { "traceId": "abc123", "spanId": "def456" } }
            }
        });
        let stream = herald.client().await.open(&Call::post("/a2a", &body)).await.unwrap();
        let shown = events(stream).await;
        assert_eq!(shown[0].0.as_deref(), Some("task"));
        for (name, event) in &shown {
            assert_eq!((&event["jsonrpc"], &event["id"]), (&json!("2.0"), &json!("1")));
            assert_eq!(name.as_deref(), event["result"]["kind"].as_str(), "{event}");
        }
        let task = &shown[0].1["result"]["id"];
        let old = json!({ "jsonrpc": "2.0", "id": "2", "method": "message/sendStream",
            "params": body["params"] });
        let alias = herald.client().await.open(&Call::post("/a2a", &old)).await.unwrap();
        assert_eq!(events(alias).await.len(), shown.len());

        // An ended task can be read and followed until retention removes it.
        let named = |method: &str| {
            let params = json!({ "id": task });
            let call = json!({ "jsonrpc": "2.0", "id": "3", "method": method, "params": params });
            Call::post("/a2a", &call)
        };
        assert_eq!(state(&result(&herald.call(&named("tasks/get")).await)), "completed");
        let again = herald.client().await.open(&named("tasks/resubscribe")).await.unwrap();
        let again = events(again).await;
        let results = |events: &[(Option<String>, Value)]| -> Vec<Value> {
            events.iter().map(|(_, event)| event["result"].clone()).collect()
        };
        assert_eq!(results(&again), results(&shown));
    }
}

mod fifth {
    use super::*;

    const SECURED: &str = r#"
[auth]
tokens = [{ token = "canary-7c5e-test", tenant = "a", principal = "p" }]

[limits]
max_body_bytes = 4096

[[agents]]
name = "conformance"
kind = "conformance"
"#;

    const SEND: &str = r#"{"id": 1, "jsonrpc": "2.0", "method": "message/send", "params": {"message": {
        "role": "user", "messageId": "m-5", "parts": [{"text": "Name a river", "kind": "text"}]}}}"#;

    fn call(method: &str, params: &Value) -> Call {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        Call::post("/a2a", &call)
    }

    #[tokio::test]
    async fn the_card_needs_no_credentials() {
        let herald = Herald::start(Options::config(SECURED)).await;
        let card = herald.call(&Call::get("/.well-known/agent.json")).await;
        assert_eq!(card.status, 200);
        let same = herald.call(&Call::get("/.well-known/agent-card.json")).await;
        assert_eq!(card.body, same.body);
        let card = card.json();
        for member in ["protocolVersion", "name", "description", "url", "version"] {
            assert!(card[member].is_string(), "{member}: {card}");
        }
        let skill = &card["skills"][0];
        assert!(skill["id"].is_string() && !skill["tags"].as_array().unwrap().is_empty());
    }

    #[tokio::test]
    async fn both_sends_return_the_final_task() {
        let herald = Herald::start(Options::config(AGENTS)).await;
        let task = result(&herald.call(&pasted("/a2a", SEND)).await);
        assert_eq!((&task["kind"], state(&task)), (&json!("task"), "completed"));
        let artifact = &task["artifacts"][0];
        assert!(artifact["artifactId"].is_string() && artifact["name"].is_string(), "{artifact}");
        assert_eq!(artifact["parts"][0]["kind"], "text");
        assert!(task["contextId"].is_string() && task["history"].is_array(), "{task}");
        let legacy = SEND.replace("message/send", "tasks/send");
        let legacy = result(&herald.call(&pasted("/a2a", &legacy)).await);
        assert_eq!((&legacy["kind"], state(&legacy)), (&json!("task"), "completed"));
        assert_eq!(legacy["artifacts"], task["artifacts"], "the other name has the same answer");
        assert!(legacy["contextId"].is_string() && legacy["history"].is_array(), "{legacy}");
        for task in [&task, &legacy] {
            let named = json!({ "id": task["id"] });
            assert_eq!(result(&herald.call(&call("tasks/get", &named)).await)["id"], task["id"]);
            assert_eq!(code(&herald.call(&call("tasks/cancel", &named)).await), -32002);
        }
        let parts = json!([
            { "kind": "text", "text": "x" }, { "kind": "data", "data": { "a": 1 } },
            { "kind": "file", "file": { "name": "a.bin", "bytes": "AAEC" } }
        ]);
        let mixed = call("message/send", &json!({ "message": { "role": "user", "parts": parts } }));
        assert_eq!(state(&result(&herald.call(&mixed).await)), "completed");
    }

    /// The example of the request, as it is.
    const EXAMPLE: &str = r#"{
  "jsonrpc": "2.0",
  "id": 1,
  "method": "message/send",
  "params": {
    "message": {
      "role": "user",
      "parts": [{"kind": "text", "text": "Research quantum computing trends"}],
      "messageId": "..."
    }
  }
}"#;

    fn answers_with(model: &Model) -> Options {
        Options::config(format!(
            "[[agents]]\nname = \"researcher\"\nkind = \"llm\"\nurl = \"{}\"\nmodel = \"tiny\"\n",
            model.url()
        ))
    }

    #[tokio::test]
    async fn the_response_has_the_listed_members() {
        let model =
            Model::start(["They grow"; 2].map(|text| Step::Text(text.to_owned())).to_vec()).await;
        let herald = Herald::start(answers_with(&model)).await;
        for example in [EXAMPLE.to_owned(), EXAMPLE.replace("message/send", "tasks/send")] {
            let answer = herald.call(&pasted("/a2a", &example)).await;
            assert_eq!(answer.json()["id"], 1);
            let task = result(&answer);
            assert_eq!((&task["kind"], state(&task)), (&json!("task"), "completed"));
            assert!(task["id"].is_string() && task["contextId"].is_string(), "{task}");
            assert!(!task["history"].as_array().unwrap().is_empty(), "{task}");
            let [artifact] = &task["artifacts"].as_array().unwrap()[..] else { panic!("{task}") };
            assert!(artifact["artifactId"].is_string(), "{artifact}");
            assert_eq!(artifact["name"], "response");
            let parts = artifact["parts"].as_array().unwrap();
            assert!(parts.iter().all(|part| part["kind"] == "text" && part["text"] != ""));
            let text: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
            assert_eq!(text, "They grow");
            assert!(
                task["status"].get("message").is_none(),
                "clients take it for an error: {task}"
            );
        }
    }

    #[tokio::test]
    async fn file_and_data_parts_are_taken() {
        let model = Model::start(vec![Step::Text("Seen".to_owned())]).await;
        let herald = Herald::start(answers_with(&model)).await;
        let parts = json!([
            { "kind": "text", "text": "Read these" },
            { "kind": "data", "data": { "year": 2026 } },
            { "kind": "file", "file": { "name": "a.bin", "mimeType": "application/x-unknown", "bytes": "AAEC" } },
        ]);
        let mixed = call("message/send", &json!({ "message": { "role": "user", "parts": parts } }));
        assert_eq!(state(&result(&herald.call(&mixed).await)), "completed");
        let prompt = model.asked()[0].body["messages"][0]["content"].as_str().unwrap().to_owned();
        let named = "[file a.bin, application/x-unknown, 3 bytes: its content is not shown]";
        assert_eq!(prompt, format!("Read these\n{{\"year\":2026}}\n{named}"));
    }

    #[tokio::test]
    async fn conditions_have_the_listed_results() {
        let herald = Herald::start(Options::config(SECURED)).await;
        let authorised = |call: Call| call.header("authorization", "Bearer canary-7c5e-test");
        let wrong = pasted("/a2a", SEND).header("authorization", "Bearer canary-7c5e-wrong");
        assert_eq!(herald.call(&wrong).await.status, 401);
        assert_eq!(herald.call(&pasted("/a2a", SEND)).await.status, 401);
        let large = call("message/send", &json!({ "x": "x".repeat(5000) }));
        let cases = [
            (large, -32600),
            (Call::post("/a2a", &json!("no request")), -32600),
            (call("tasks/explode", &json!({})), -32601),
            (call("message/send", &json!({})), -32602),
            (call("message/send", &json!({ "message": { "role": "user", "parts": [] } })), -32602),
            (call("tasks/get", &json!({ "id": "evicted" })), -32001),
            (call("tasks/cancel", &json!({ "id": "evicted" })), -32001),
        ];
        for (call, expected) in cases {
            let answer = herald.call(&authorised(call)).await;
            assert_eq!((answer.status, code(&answer)), (200, expected));
        }
        let failing = SEND.replace("Name a river", "tck-task-failure");
        let task = result(&herald.call(&authorised(pasted("/a2a", &failing))).await);
        assert_eq!(state(&task), "failed", "a failure is no error of the call");
    }
}
