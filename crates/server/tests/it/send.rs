//! Sending, getting and cancelling, over JSON-RPC and over REST.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use serde_json::{Value, json};
use uuid::Uuid;

use crate::{
    client::{Answer, Call, message, old_message},
    hub::Hub,
};

/// One binding: how an operation is called there.
#[derive(Debug, Clone, Copy)]
enum Binding {
    JsonRpc,
    Rest,
}

const BOTH: [Binding; 2] = [Binding::JsonRpc, Binding::Rest];

impl Binding {
    fn send(self, params: &Value) -> Call {
        match self {
            Self::JsonRpc => Call::rpc("SendMessage", params),
            Self::Rest => Call::post("/message:send", params).v1(),
        }
    }

    fn get(self, id: &str) -> Call {
        match self {
            Self::JsonRpc => Call::rpc("GetTask", &json!({ "id": id })),
            Self::Rest => Call::get(format!("/tasks/{id}")).v1(),
        }
    }

    fn get_history(self, id: &str, length: i32) -> Call {
        match self {
            Self::JsonRpc => Call::rpc("GetTask", &json!({ "id": id, "historyLength": length })),
            Self::Rest => Call::get(format!("/tasks/{id}?historyLength={length}")).v1(),
        }
    }

    fn cancel(self, id: &str) -> Call {
        match self {
            Self::JsonRpc => Call::rpc("CancelTask", &json!({ "id": id })),
            Self::Rest => Call::new("POST", format!("/tasks/{id}:cancel")).v1(),
        }
    }

    #[track_caller]
    fn result(self, answer: &Answer) -> Value {
        match self {
            Self::JsonRpc => answer.result(),
            Self::Rest => {
                assert_eq!(answer.status(), 200, "{}", answer.text());
                assert_eq!(answer.header("content-type"), Some("application/a2a+json"));
                answer.json()
            }
        }
    }

    #[track_caller]
    fn reason(self, answer: &Answer) -> String {
        match self {
            Self::JsonRpc => answer.error().1,
            Self::Rest => answer.reason(),
        }
    }
}

fn follow_up(task: &Value, text: &str) -> Value {
    let mut params = message(text);
    params["message"]["taskId"] = task["id"].clone();
    params
}

fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

// proves: SEND-001, SEND-008, SEND-010, SEND-012, SEND-019, GET-001, REST-009, REST-010
#[tokio::test]
async fn a_send_waits_and_returns_everything() {
    let hub = Hub::start().await;
    for binding in BOTH {
        let sent = binding.result(&hub.call(binding.send(&message("hello"))).await);
        let task = &sent["task"];
        assert_eq!(sent.as_object().unwrap().len(), 1);
        assert_eq!(state(task), "TASK_STATE_COMPLETED");
        assert_eq!(task["artifacts"][0]["parts"][0]["text"], "hello");
        assert_eq!(task["history"][0]["parts"][0]["text"], "hello");
        assert!(!task["contextId"].as_str().unwrap().is_empty());
        let id = task["id"].as_str().unwrap();
        for other in BOTH {
            assert_eq!(other.result(&hub.call(other.get(id)).await), *task, "EQV: {other:?}");
        }
    }
}

// proves: SEND-002
#[tokio::test]
async fn every_new_task_has_a_name_of_its_own() {
    let hub = Hub::start().await;
    let mut seen = std::collections::HashSet::new();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(hub.client().await);
    }
    for _ in 0..25 {
        for client in &mut clients {
            let task = client.call(Binding::JsonRpc.send(&message("hello"))).await.result();
            assert!(seen.insert(task["task"]["id"].to_string()));
        }
    }
    assert_eq!(seen.len(), 100);
}

// proves: SEND-003, SEND-004, SEND-006, SEND-007, IMM-002
#[tokio::test]
async fn a_message_continues_only_a_task_that_is_there_and_open() {
    let hub = Hub::start().await;
    for binding in BOTH {
        let unknown = follow_up(&json!({ "id": "nope" }), "hello");
        assert_eq!(binding.reason(&hub.call(binding.send(&unknown)).await), "TASK_NOT_FOUND");
        for text in ["hello", "fail", "reject"] {
            let task = binding.result(&hub.call(binding.send(&message(text))).await);
            let again = hub.call(binding.send(&follow_up(&task["task"], "again"))).await;
            assert_eq!(binding.reason(&again), "UNSUPPORTED_OPERATION", "{text}");
        }
        let asked = binding.result(&hub.call(binding.send(&message("ask"))).await);
        let task = &asked["task"];
        let mut wrong = follow_up(task, "this one");
        wrong["message"]["contextId"] = json!("another context");
        assert_eq!(binding.reason(&hub.call(binding.send(&wrong)).await), "INVALID_PARAMS");
        let answered = binding.result(&hub.call(binding.send(&follow_up(task, "this"))).await);
        assert_eq!(answered["task"]["id"], task["id"]);
        assert_eq!(answered["task"]["contextId"], task["contextId"]);
        assert_eq!(state(&answered["task"]), "TASK_STATE_COMPLETED");
        let mut refined = message("refine");
        refined["message"]["contextId"] = task["contextId"].clone();
        refined["message"]["referenceTaskIds"] = json!([task["id"]]);
        let refined = binding.result(&hub.call(binding.send(&refined)).await);
        assert_ne!(refined["task"]["id"], task["id"]);
        assert_eq!(refined["task"]["contextId"], task["contextId"]);
    }
}

// proves: SEND-011, SEND-013, SEND-015, SEND-016
#[tokio::test]
async fn a_send_returns_when_it_is_the_callers_turn_or_at_once_if_asked() {
    let hub = Hub::start().await;
    for binding in BOTH {
        let asked = binding.result(&hub.call(binding.send(&message("ask"))).await);
        assert_eq!(state(&asked["task"]), "TASK_STATE_INPUT_REQUIRED");
        let auth = binding.result(&hub.call(binding.send(&message("auth"))).await);
        assert_eq!(state(&auth["task"]), "TASK_STATE_AUTH_REQUIRED");
        hub.release(1);
        let mut params = message("wait done");
        params["configuration"] = json!({ "returnImmediately": true });
        let begun = binding.result(&hub.call(binding.send(&params)).await);
        let begun = &begun["task"];
        assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state(begun)), "{begun}");
        hub.release(1);
    }
}

// proves: SEND-017, ERR-005, ERR-025
#[tokio::test]
async fn a_part_the_agent_does_not_take_is_refused() {
    let hub = Hub::start().await;
    let mut params = message("hello");
    params["message"]["parts"][0]["mediaType"] = json!("application/x-unknown");
    let answer = hub.call(Binding::JsonRpc.send(&params)).await;
    assert_eq!((answer.status(), answer.error().0), (200, -32005));
    for binding in BOTH {
        let answer = hub.call(binding.send(&params)).await;
        assert_eq!(binding.reason(&answer), "CONTENT_TYPE_NOT_SUPPORTED");
    }
    let call = Binding::Rest.send(&params).at("/agents/files/message:send");
    assert_eq!(hub.call(call).await.status(), 200);
}

// proves: SEND-025
#[tokio::test]
async fn a_retry_runs_nothing_twice() {
    let hub = Hub::start().await;
    let mut params = message("hello");
    params["message"]["messageId"] = json!(Uuid::new_v4().to_string());
    let mut ids = std::collections::HashSet::new();
    for binding in BOTH {
        for _ in 0..3 {
            let task = binding.result(&hub.call(binding.send(&params)).await);
            ids.insert(task["task"]["id"].to_string());
        }
    }
    assert_eq!(ids.len(), 1, "the same message over both bindings is one task");
    let mut other = params.clone();
    other["message"]["parts"][0]["text"] = json!("something else");
    for binding in BOTH {
        let answer = hub.call(binding.send(&other)).await;
        assert_eq!(binding.reason(&answer), "IDEMPOTENCY_CONFLICT");
    }
    assert_eq!(hub.call(Binding::Rest.send(&other)).await.status(), 409);
    let keyed = |key: &str| Binding::JsonRpc.send(&message("hi")).header("Idempotency-Key", key);
    let first = hub.call(keyed("k")).await.result();
    assert_eq!(hub.call(keyed("k")).await.result()["task"]["id"], first["task"]["id"]);
    assert_ne!(hub.call(keyed("l")).await.result()["task"]["id"], first["task"]["id"]);
    let long = "k".repeat(256);
    assert_eq!(hub.call(keyed(&long)).await.error().0, -32602);
    // A label is not a key: public suites use one and the same for everything.
    let one = hub.call(Binding::JsonRpc.send(&message("hi"))).await.result();
    let two = hub.call(Binding::JsonRpc.send(&message("hi"))).await.result();
    assert_ne!(one["task"]["id"], two["task"]["id"]);
}

#[tokio::test]
async fn a_retry_in_another_spelling_is_the_same_send() {
    let hub = Hub::start().await;
    let id = Uuid::new_v4();
    let send = |parts: &str| {
        let body = format!(
            r#"{{"message":{{"messageId":"{id}","role":"ROLE_USER","parts":[{{"text":"hi"}},{parts}]}}}}"#
        );
        Call::new("POST", "/agents/files/message:send")
            .header("content-type", "application/json")
            .body(body)
            .v1()
    };
    let plain = r#"{"data":{"a":[1,"é"],"b":{"c":null,"d":2}}}"#;
    let first = hub.call(send(plain)).await.json();
    assert!(first["task"]["id"].is_string(), "{first}");
    for same in [
        "{ \"data\" : {\"b\":{\"d\":2,\"c\":null},\n\t\"a\": [1,\"\\u00e9\"]} }",
        r#"{"data":{"a":"before","b":{"c":null,"d":2},"a":[1,"\u00E9"]}}"#,
    ] {
        let again = hub.call(send(same)).await.json();
        assert_eq!(again["task"]["id"], first["task"]["id"], "{same}");
    }
    for other in [r#"{"data":{"a":["é",1],"b":{"c":null,"d":2}}}"#, r#"{"data":{"a":[1,"é"]}}"#] {
        assert_eq!(hub.call(send(other)).await.status(), 409, "{other}");
    }
}

#[tokio::test]
async fn an_array_is_no_object_at_any_level() {
    let hub = Hub::start().await;
    for params in [
        r#"[{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]}]"#,
        r#"{"message":["m",null,null,"ROLE_USER",[{"text":"x"}]]}"#,
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[["x"]]}}"#,
        r#"{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":[]}"#,
    ] {
        let body =
            format!(r#"{{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{params}}}"#);
        let answer = hub.call(Call::rpc("SendMessage", &json!({})).body(body)).await;
        assert_eq!(answer.error().0, -32602, "{params}");
        assert!(!answer.text().contains("with 7 elements"), "{}", answer.text());
        let answer = hub.call(Binding::Rest.send(&json!({})).body(params)).await;
        assert_eq!(answer.status(), 400, "{params}");
    }
    let six = format!("[{}]", [r#"{"jsonrpc":"2.0","id":1,"method":"ListTasks"}"#; 6].join(","));
    for body in [r#"["2.0",1,"ListTasks",{},null]"#, &six] {
        let answer = hub.call(Call::rpc("ListTasks", &json!({})).body(body)).await;
        assert_eq!(answer.error().0, -32600, "{body}");
    }
}

#[tokio::test]
async fn a_message_of_too_many_parts_is_refused() {
    let hub = Hub::start().await;
    for (count, is_taken) in [(10_000, true), (10_001, false)] {
        let parts = vec![r#"{"text":""}"#; count].join(",");
        let message = format!(r#"{{"messageId":"m{count}","role":"ROLE_USER","parts":[{parts}]}}"#);
        let body = format!(r#"{{"message":{message}}}"#);
        let answer = hub.call(Binding::Rest.send(&json!({})).body(body)).await;
        assert_eq!(answer.status() == 200, is_taken, "{}", answer.text());
        assert_eq!(answer.text().contains("at most 10000 parts"), !is_taken);
    }
}

// proves: SEND-027
#[tokio::test]
async fn a_caller_that_hangs_up_changes_nothing() {
    let hub = Hub::start().await;
    for binding in BOTH {
        let key = Uuid::new_v4().to_string();
        let call = binding.send(&message("wait done")).header("Idempotency-Key", &key);
        let mut client = hub.client().await;
        client.send(&call).await;
        // The task exists once a list shows it.
        loop {
            let list = hub.call(Call::rpc("ListTasks", &json!({}))).await.result();
            if list["tasks"]
                .as_array()
                .unwrap()
                .iter()
                .any(|task| ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state(task)))
            {
                break;
            }
        }
        drop(client);
        hub.release(1);
        let task = binding.result(&hub.call(call).await);
        assert_eq!(state(&task["task"]), "TASK_STATE_COMPLETED");
    }
}

// proves: GET-002, ERR-001, ERR-021, CAN-003
#[tokio::test]
async fn an_unknown_task_is_not_found() {
    let hub = Hub::start().await;
    for binding in BOTH {
        for call in [binding.get("nope"), binding.cancel("nope")] {
            assert_eq!(binding.reason(&hub.call(call).await), "TASK_NOT_FOUND");
        }
    }
    assert_eq!(hub.call(Binding::JsonRpc.get("nope")).await.error().0, -32001);
    assert_eq!(hub.call(Binding::Rest.get("nope")).await.status(), 404);
}

// proves: GET-003, GET-004, GET-005, GET-006, GET-007, GET-008, GET-010
#[tokio::test]
async fn history_is_cut_to_the_most_recent_messages() {
    let hub = Hub::start().await;
    let mut task =
        hub.call(Binding::JsonRpc.send(&message("ask 1"))).await.result()["task"].clone();
    for turn in 2..=4 {
        let next = follow_up(&task, &format!("ask {turn}"));
        task = hub.call(Binding::JsonRpc.send(&next)).await.result()["task"].clone();
    }
    let id = task["id"].as_str().unwrap();
    let texts = |task: &Value| -> Vec<String> {
        let history = task["history"].as_array().unwrap();
        history.iter().map(|one| one["parts"][0]["text"].as_str().unwrap().to_owned()).collect()
    };
    for binding in BOTH {
        let all = binding.result(&hub.call(binding.get(id)).await);
        let all = texts(&all);
        let asked: Vec<_> = all.iter().filter(|text| text.starts_with("ask")).collect();
        assert_eq!(asked, ["ask 1", "ask 2", "ask 3", "ask 4"], "{all:?}");
        for length in [1, 2] {
            let cut = binding.result(&hub.call(binding.get_history(id, length as i32)).await);
            assert_eq!(texts(&cut), all[all.len() - length..]);
        }
        let none = binding.result(&hub.call(binding.get_history(id, 0)).await);
        assert!(none.get("history").is_none(), "{none}");
        let negative = hub.call(binding.get_history(id, -1)).await;
        assert_eq!(binding.reason(&negative), "INVALID_PARAMS");
        let mut params = message("hello");
        params["configuration"] = json!({ "historyLength": 0 });
        let sent = binding.result(&hub.call(binding.send(&params)).await);
        assert!(sent["task"].get("history").is_none(), "{sent}");
    }
}

// proves: CAN-001, CAN-005, REST-011
#[tokio::test]
async fn a_cancelled_task_is_cancelled_at_once_and_stays_so() {
    let hub = Hub::start().await;
    for (body, binding) in
        [(None, BOTH[0]), (None, BOTH[1]), (Some("{}"), BOTH[1]), (Some("null"), BOTH[1])]
    {
        let call = Call::rpc("SendStreamingMessage", &message("wait x"));
        let mut stream = hub.client().await.open(call).await;
        let id = stream.json().await["result"]["task"]["id"].as_str().unwrap().to_owned();
        let mut call = binding.cancel(&id);
        if let Some(body) = body {
            call = call.body(body).header("Content-Type", "application/json");
        }
        let task = binding.result(&hub.call(call).await);
        assert_eq!((state(&task), task["id"].as_str()), ("TASK_STATE_CANCELED", Some(id.as_str())));
        let events = stream.rest().await;
        let last = &events.last().unwrap().data;
        assert!(last.contains("TASK_STATE_CANCELED"), "{last}");
    }
}

// proves: CAN-002, ERR-002, ERR-022, IMM-001
#[tokio::test]
async fn a_finished_task_cannot_be_cancelled() {
    let hub = Hub::start().await;
    for text in ["hello", "fail", "reject"] {
        let task = hub.call(Binding::JsonRpc.send(&message(text))).await.result()["task"].clone();
        let id = task["id"].as_str().unwrap();
        let answer = hub.call(Binding::JsonRpc.cancel(id)).await;
        assert_eq!(answer.error(), (-32002, "TASK_NOT_CANCELABLE".into()), "{text}");
        let answer = hub.call(Binding::Rest.cancel(id)).await;
        assert_eq!((answer.status(), answer.reason()), (400, "TASK_NOT_CANCELABLE".into()));
        assert_eq!(hub.call(Binding::Rest.get(id)).await.json()["status"], task["status"]);
    }
}

// proves: FMT-001, FMT-002, FMT-003, FMT-004, FMT-005, FMT-006, FMT-011, FMT-014
#[tokio::test]
async fn a_task_is_written_as_1_0_writes_it() {
    let hub = Hub::start().await;
    for binding in BOTH {
        let asked = binding.result(&hub.call(binding.send(&message("ask"))).await);
        let task = &asked["task"];
        scan(task);
        assert_eq!(task["history"][0]["role"], "ROLE_USER");
        assert_eq!(task["status"]["message"]["role"], "ROLE_AGENT");
        let time = task["status"]["timestamp"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z') && &time[19..20] == ".", "{time}");
        for member in ["id", "contextId", "status"] {
            assert!(task.get(member).is_some(), "{member}");
        }
        for member in ["messageId", "role", "parts"] {
            assert!(task["status"]["message"].get(member).is_some(), "{member}");
        }
    }
}

/// No member in snake case, no `kind`, and nothing empty that could be left out.
fn scan(value: &Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                assert!(!name.contains('_') && name != "kind", "{name}");
                assert!(value != "", "{name} is empty");
                scan(value);
            }
        }
        Value::Array(values) => values.iter().for_each(scan),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

// proves: FMT-007, FMT-008, FMT-009, FMT-010, FMT-012, FMT-013, ERR-064, ERR-072
#[tokio::test]
async fn a_message_is_checked_before_anything_happens() {
    let hub = Hub::start().await;
    let bad = |change: fn(&mut Value)| {
        let mut params = message("hello");
        change(&mut params["message"]);
        params
    };
    for (params, field) in [
        (bad(|message| message["parts"] = json!([])), "message.parts"),
        (bad(|message| message["messageId"] = json!("")), "message.messageId"),
        (bad(|message| drop(message.as_object_mut().unwrap().remove("role"))), "message.role"),
        (bad(|message| message["parts"] = json!([{}])), "message.parts"),
        (bad(|message| message["parts"] = json!([{ "text": "a", "url": "b" }])), "message.parts"),
        (bad(|message| message["parts"] = json!([{ "raw": "not base64!" }])), "message.parts"),
    ] {
        for binding in BOTH {
            let answer = hub.call(binding.send(&params)).await;
            assert_eq!(binding.reason(&answer), "INVALID_PARAMS", "{params}");
            let text = answer.text();
            assert!(text.contains("google.rpc.BadRequest") && text.contains(field), "{text}");
        }
    }
    assert_eq!(hub.call(Call::get("/tasks").v1()).await.json()["totalSize"], 0);
    let mut rich = message("x");
    rich["unknown"] = json!(1);
    rich["message"]["unknown"] = json!({ "deep": [1] });
    rich["message"]["parts"] = json!([
        { "data": [1, null, "x", { "y": true }], "unknown": 1 }, { "data": null }, { "data": 1.5 },
        { "raw": "AAEC/w==" }, { "url": "https://example.com/x" }, { "text": "" }
    ]);
    for (binding, path) in [(BOTH[0], "/agents/files/rpc"), (BOTH[1], "/agents/files/message:send")]
    {
        let sent = binding.result(&hub.call(binding.send(&rich).at(path)).await);
        let parts = &sent["task"]["history"][0]["parts"];
        assert_eq!(parts[0]["data"], json!([1, null, "x", { "y": true }]));
        assert_eq!(parts[1], json!({ "data": null }));
        assert_eq!(parts[3]["raw"], "AAEC/w==");
        assert_eq!(parts[5], json!({ "text": "" }));
    }
}

// proves: ERR-006, ERR-026
/// An agent behind which nobody answers.
#[tokio::test]
async fn an_agent_that_cannot_be_reached_is_reported_and_leaves_its_failed_task() {
    let hub = Hub::start().await;
    let failed = async |answer: &Answer| {
        let details = answer.json()["error"]["data"].clone();
        let details =
            if details.is_null() { answer.json()["error"]["details"].clone() } else { details };
        let id = details[0]["metadata"]["taskId"].as_str().unwrap().to_owned();
        let task = hub.call(Call::rpc("GetTask", &json!({ "id": id }))).await.result();
        assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
        assert_eq!(task["status"]["message"]["metadata"]["reason"], "AGENT_UNAVAILABLE");
        id
    };
    let answer = hub.call(Binding::JsonRpc.send(&message("absent"))).await;
    assert_eq!(answer.error(), (-31010, "AGENT_UNAVAILABLE".into()));
    assert_eq!(answer.json()["error"]["message"], "Agent unavailable: it is not there");
    failed(&answer).await;
    let answer = hub.call(Binding::Rest.send(&message("absent"))).await;
    assert_eq!((answer.status(), answer.reason()), (503, "AGENT_UNAVAILABLE".into()));
    failed(&answer).await;
    let answer = hub.call(Call::old_rpc("message/send", &old_message("absent"))).await;
    assert_eq!(answer.error(), (-32007, "AGENT_UNAVAILABLE".into()));
    let id = failed(&answer).await;
    let old = hub.call(Call::old_rpc("tasks/get", &json!({ "id": id }))).await.result();
    assert_eq!(old["status"]["state"], "failed");
    let first =
        json!({ "message": { "role": "user", "parts": [{ "type": "text", "text": "absent" }] } });
    let answer = hub.call(Call::old_rpc("tasks/send", &first).at("/a2a")).await;
    assert_eq!(answer.error(), (-32011, "AGENT_UNAVAILABLE".into()));
    let id = failed(&answer).await;
    let first =
        hub.call(Call::old_rpc("tasks/get", &json!({ "id": id })).at("/rpc")).await.result();
    assert_eq!(first["status"]["state"], "failed");

    // A stream shows the failed status.
    let stream = hub.call(Call::old_rpc("message/stream", &old_message("absent"))).await;
    assert!(stream.text().contains("it is not there"), "{}", stream.text());
    assert!(stream.text().contains(r#""state":"failed""#) && !stream.text().contains("-32007"));

    // What an agent has written before it went away stays visible.
    let lost = hub.call(Binding::JsonRpc.send(&message("lost half"))).await.result();
    assert_eq!(lost["task"]["status"]["message"]["metadata"]["reason"], "AGENT_UNAVAILABLE");
    assert_eq!(lost["task"]["artifacts"][0]["parts"][0]["text"], "half");

    // A caller that does not wait gets the task.
    let mut at_once = message("absent");
    at_once["configuration"] = json!({ "returnImmediately": true });
    assert!(hub.call(Binding::JsonRpc.send(&at_once)).await.result()["task"].is_object());
}

/// The text of an error stays in the log, at level warning; a text for callers is not touched.
#[tokio::test]
async fn callers_see_the_kind_of_an_error_of_an_embedded_agent() {
    // The server runs on the thread of its test.
    let log = Arc::new(Mutex::new(Vec::new()));
    let lines = tracing_subscriber::fmt().with_ansi(false).with_max_level(tracing::Level::WARN);
    let written = Arc::clone(&log);
    let lines = lines.with_writer(move || Lines(Arc::clone(&written))).finish();
    let _logging = tracing::subscriber::set_default(lines);
    let hub = Hub::start().await;
    for (text, shown) in [("raise secret", "Agent execution failed"), ("fail", "it broke")] {
        let task = hub.call(Binding::JsonRpc.send(&message(text))).await.result()["task"].clone();
        assert_eq!(task["status"]["state"], "TASK_STATE_FAILED");
        assert_eq!(task["status"]["message"]["parts"][0]["text"], shown, "{task}");
        assert_eq!(task["status"]["message"]["metadata"]["reason"], "AGENT_FAILED");
        assert!(!task["status"].to_string().contains("secret"), "{task}");
    }
    let log = String::from_utf8(log.lock().unwrap().clone()).unwrap();
    let line = log.lines().find(|line| line.contains("the agent failed")).expect("a line");
    assert!(line.contains(" WARN ") && line.contains("RuntimeError: secret"), "{log}");
}

/// A log in memory.
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_agent_that_breaks_the_protocol_is_reported() {
    let hub = Hub::start().await;
    let answer = hub.call(Binding::JsonRpc.send(&message("babble x"))).await;
    assert_eq!(answer.error(), (-32006, "INVALID_AGENT_RESPONSE".into()));
    let answer = hub.call(Binding::Rest.send(&message("babble x"))).await;
    assert_eq!((answer.status(), answer.reason()), (500, "INVALID_AGENT_RESPONSE".into()));
}
