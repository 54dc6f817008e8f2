//! Tests of upstream agents that violate the protocol, disconnect or leave the fate of a message open: each affects its own
//! task only.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::{
    draft, made, passing,
    raw::{Raw, Reaction, Received, more, piece, result, status, stream, task, whole},
    told,
};
use crate::{
    support::{Herald, Options, SOON, eventually},
    tasks::{self, ended, failure},
    wire::{Frame, Wire, state},
};

/// The protocol violation of an agent, by the text of the message.
fn misbehave(call: &Received) -> Reaction {
    let text = &call.body["params"]["message"]["parts"][0]["text"];
    let streamed = |items: &[Value]| Reaction::Close(stream(call, items));
    match (call.body["method"].as_str(), text.as_str()) {
        (Some("SendStreamingMessage"), Some("after the end")) => {
            streamed(&[whole("WORKING"), status("t", "COMPLETED"), piece("t", "x", (false, true))])
        }
        (Some("SendStreamingMessage"), Some("another task")) => {
            streamed(&[whole("WORKING"), piece("theirs", "x", (false, false))])
        }
        (Some("SendStreamingMessage"), Some("out of order")) => streamed(&[
            whole("WORKING"),
            piece("t", "last", (false, true)),
            piece("t", "first", (true, false)),
        ]),
        (Some("SendStreamingMessage"), Some("empty piece")) => {
            let artifact = json!({ "artifactId": "a", "parts": [] });
            let update = json!({ "taskId": "t", "contextId": "c", "artifact": artifact });
            streamed(&[whole("WORKING"), json!({ "artifactUpdate": update })])
        }
        (Some("SendStreamingMessage"), Some("no sense")) => {
            streamed(&[json!({ "weather": "fine" })])
        }
        (Some("SendStreamingMessage"), Some("endless frame")) => {
            let head = [stream(call, &[whole("WORKING")]), b"data: ".to_vec()].concat();
            Reaction::Endless(head, vec![b'x'; 64 << 10])
        }
        (Some("SendStreamingMessage" | "SubscribeToTask"), _) => {
            let mut bytes = stream(call, &[whole("WORKING")]);
            bytes.extend_from_slice(b"data: {\"jsonrpc\":\"2.0\",\"id\"");
            Reaction::Close(bytes)
        }
        (Some("GetTask"), _) => result(call, &task("WORKING")),
        (_, _) => result(call, &task("CANCELED")),
    }
}

async fn before(raw: &Raw, settings: &str) -> Herald {
    let raw = passing("hostile", &raw.url(), &format!("retries = 1\n{settings}"));
    Herald::start(Options::config(format!("{raw}[[agents]]\nname = \"echo\"\nkind = \"echo\"\n")))
        .await
}

#[tokio::test]
async fn an_upstream_that_violates_the_protocol_fails_its_own_task_only() {
    let raw = Raw::start(misbehave).await;
    let herald = before(&raw, "").await;
    for (text, what) in [
        ("after the end", "sent artifact \"a\" after the end of its task"),
        ("another task", "event of another task"),
        ("out of order", "continued artifact \"a\" after its last chunk"),
        ("empty piece", "at least one part"),
        ("no sense", "cannot be read"),
        ("endless frame", "is larger than"),
        ("half a frame", "ended its stream before its task"),
    ] {
        let sent = Wire::Rpc.sent(&herald.call(&Wire::Rpc.send("", &draft(text), false)).await);
        let fault = sent.expect_err(text);
        assert_eq!((fault.code, &*fault.reason), (-32006, "INVALID_AGENT_RESPONSE"), "{text}");
        assert!(fault.message.contains("agent hostile"), "{text}: {fault:?}");
        assert!(fault.message.contains(what), "{text}: {fault:?}");
        let other = told(&herald, "/agents/echo", &draft("hello")).await;
        assert_eq!(made(&other), ["Echo: hello"]);
    }
    let listed = herald.call(&crate::wire::list(Some("FAILED"), 100, "")).await.json();
    assert_eq!(listed["totalSize"], 7, "{listed}");
    let listed = herald.call(&crate::wire::list(Some("WORKING"), 100, "")).await.json();
    assert_eq!(listed["totalSize"], 0, "{listed}");
    // Their tasks were cancelled.
    assert!(raw.calls("CancelTask").len() >= 4, "{:?}", raw.calls("CancelTask"));
}

#[tokio::test]
async fn an_upstream_without_end_is_stopped_at_the_limit() {
    let raw = Raw::start(|call| match call.body["method"].as_str() {
        Some("SendStreamingMessage") => {
            let head = stream(call, &[whole("WORKING"), piece("t", "x", (false, false))]);
            Reaction::Endless(head, more(call, &[piece("t", "x", (true, false))]))
        }
        _ => result(call, &task("CANCELED")),
    })
    .await;
    let limits = "[limits]\ntask_events = 50\n";
    let config = passing("talker", &raw.url(), "");
    let herald = Herald::start(Options::config(format!("{config}{limits}"))).await;
    let failed = told(&herald, "", &draft("go on")).await;
    let (text, reason) = failure(&failed);
    assert!(text.contains("limit of 50 events") && reason == "AGENT_FAILED", "{failed}");
    assert_eq!(raw.calls("CancelTask").len(), 1);
}

#[tokio::test]
async fn an_unreachable_upstream_fails_its_task_with_a_reason() {
    let gone = super::port();
    let url = format!("http://127.0.0.1:{gone}");
    let herald = Herald::start(Options::config(passing("absent", &url, "retries = 0"))).await;
    for (wire, code, status) in
        [(Wire::Rpc, -31010, 200), (Wire::OldRpc, -32007, 200), (Wire::Rest, 503, 503)]
    {
        let sent = wire.sent(&herald.call(&wire.send("", &draft("hello"), false)).await);
        let fault = sent.expect_err("nobody is there");
        assert_eq!((fault.code, fault.status, &*fault.reason), (code, status, "AGENT_UNAVAILABLE"));
        assert!(fault.message.ends_with("agent absent cannot be reached"), "{fault:?}");
        let left = tasks::task(&herald, &fault.task.expect("its task is named")).await;
        assert_eq!(failure(&left), ("agent absent cannot be reached", "AGENT_UNAVAILABLE"));
    }
    let call = Wire::Rest.stream("", &draft("hello"));
    let mut stream = herald.client().await.open(&call).await.unwrap();
    let frames = Wire::Rest.rest_of(&mut stream).await.unwrap();
    assert_eq!(frames.last().and_then(Frame::state).as_deref(), Some("failed"), "{frames:?}");
    let failed = told(&herald, "", &draft("hello")).await;
    assert_eq!(failure(&failed), ("agent absent cannot be reached", "AGENT_UNAVAILABLE"));
    assert!(!failed.to_string().contains(&gone), "where it is, is nobody's business: {failed}");
    assert!(herald.log().contains("absent"), "{}", herald.log());
    // The agent is found once it is running.
    let options = Options::config(super::STEERED).no_port().arguments(["--port", &gone]);
    let _found = Herald::start(options).await;
    assert_eq!(state(&told(&herald, "", &draft("tck-complete-task")).await), "completed");
}

#[tokio::test]
async fn an_upstream_that_answers_with_http_500_fails_its_task() {
    for (answered, told_as) in [
        ("500 Internal Server Error", "agent up answered with HTTP 500"),
        ("501 Not Implemented", "agent up answered with HTTP 501"),
        ("404 Not Found", "agent up answered with HTTP 404"),
    ] {
        let raw = Raw::start(move |_| {
            let body = "no such luck";
            let head = format!("HTTP/1.1 {answered}\r\ncontent-length: {}\r\n\r\n", body.len());
            Reaction::Close([head.as_bytes(), body.as_bytes()].concat())
        })
        .await;
        let herald = Herald::start(Options::config(passing("up", &raw.url(), ""))).await;
        let failed = told(&herald, "", &draft("hello")).await;
        assert_eq!(failure(&failed), (told_as, "AGENT_FAILED"), "{failed}");
        let agent = format!("answered with HTTP status {}: no such luck", &answered[..3]);
        assert!(herald.log().contains(&agent), "{}", herald.log());
    }
}

#[tokio::test]
async fn an_internal_error_of_an_agent_is_told_as_its_failure_and_not_as_a_refusal() {
    for (status, code, told_as) in [
        (
            "500 Internal Server Error",
            -32603,
            "agent up failed with an internal error (INTERNAL_ERROR)",
        ),
        ("200 OK", -32603, "agent up failed with an internal error (INTERNAL_ERROR)"),
        ("400 Bad Request", -32602, "agent up refused the message (INVALID_PARAMS)"),
    ] {
        let raw = Raw::start(move |call| {
            let error = json!({ "code": code, "message": "no such luck" });
            let body =
                json!({ "jsonrpc": "2.0", "id": call.body["id"], "error": error }).to_string();
            let kind = "content-type: application/json";
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\n{kind}\r\ncontent-length: {length}\r\n\r\n");
            Reaction::Close([head.as_bytes(), body.as_bytes()].concat())
        })
        .await;
        let herald = Herald::start(Options::config(passing("up", &raw.url(), ""))).await;
        let failed = told(&herald, "", &draft("hello")).await;
        assert_eq!(failure(&failed), (told_as, "AGENT_FAILED"), "{status}: {failed}");
        assert!(herald.log().contains("no such luck"), "{}", herald.log());
    }
}

/// A server whose agent received a message and does not answer, and the task's id.
async fn waiting(settings: &str, said: &'static [&'static str]) -> (Raw, Herald, String) {
    let raw = Raw::start(move |call| match call.body["method"].as_str() {
        Some("SendStreamingMessage" | "SubscribeToTask") => {
            let items: Vec<_> = said.iter().map(|state| whole(state)).collect();
            Reaction::Then(stream(call, &items), Arc::new(Notify::new()), Vec::new())
        }
        _ => result(call, &task("CANCELED")),
    })
    .await;
    let herald = before(&raw, settings).await;
    let begun = super::begun(&herald, "", &draft("hello")).await;
    eventually(SOON, "the agent has the message", async || {
        !raw.calls("SendStreamingMessage").is_empty()
    })
    .await;
    (raw, herald, begun)
}

#[tokio::test]
async fn a_message_that_may_have_arrived_is_resent_only_with_idempotent() {
    // The server was killed before the agent's answer.
    let (raw, mut herald, begun) = waiting("", &[]).await;
    herald.kill9().await;
    herald.restart().await;
    let failed = ended(&herald, &begun).await;
    let (text, reason) = failure(&failed);
    assert!(text.contains("agent hostile may have got the message"), "{failed}");
    assert_eq!((reason, raw.calls("SendStreamingMessage").len()), ("AGENT_FAILED", 1));

    let (raw, mut herald, _) = waiting("idempotent = true", &[]).await;
    herald.kill9().await;
    herald.restart().await;
    eventually(SOON, "it is sent again", async || raw.calls("SendStreamingMessage").len() == 2)
        .await;
    let calls = raw.calls("SendStreamingMessage");
    let [first, second] = &calls[..] else { panic!("{calls:?}") };
    assert_eq!(first.body["params"]["message"], second.body["params"]["message"]);
}

#[tokio::test]
async fn a_message_that_has_arrived_is_not_resent() {
    let (raw, mut herald, begun) = waiting("", &["WORKING"]).await;
    eventually(SOON, "it is known what the task is called", async || {
        !super::upstream(&tasks::task(&herald, &begun).await).is_empty()
    })
    .await;
    herald.kill9().await;
    herald.restart().await;
    eventually(SOON, "it is followed", async || raw.calls("SubscribeToTask").len() == 1).await;
    assert_eq!(raw.calls("SubscribeToTask")[0].body["params"]["id"], "t");
    assert_eq!(raw.calls("SendStreamingMessage").len(), 1);
}

#[tokio::test]
async fn a_task_that_waits_for_credentials_continues_when_the_upstream_does() {
    let go = Arc::new(Notify::new());
    let came = Arc::clone(&go);
    let raw = Raw::start(move |call| {
        let items = [status("t", "WORKING"), piece("t", "done", (false, true))];
        let rest = more(call, &[&items[..], &[status("t", "COMPLETED")]].concat());
        Reaction::Then(stream(call, &[whole("AUTH_REQUIRED")]), Arc::clone(&came), rest)
    })
    .await;
    let herald = before(&raw, "").await;
    let waits = told(&herald, "", &draft("hello")).await;
    assert_eq!(state(&waits), "auth-required");
    go.notify_one();
    let done = ended(&herald, crate::wire::id(&waits)).await;
    assert_eq!((&*state(&done), made(&done)), ("completed", vec!["done".to_owned()]));
}

/// A task with these parts of one artifact.
fn grown(state: &str, parts: &[&str]) -> Value {
    let parts: Vec<_> = parts.iter().map(|text| json!({ "text": text })).collect();
    let mut task = task(state);
    task["artifacts"] = json!([{ "artifactId": "a", "parts": parts }]);
    task
}

#[tokio::test]
async fn missed_events_are_read_from_the_task_and_none_is_repeated() {
    let raw = Raw::start(|call| match call.body["method"].as_str() {
        Some("SendStreamingMessage") => {
            Reaction::Close(stream(call, &[whole("WORKING"), piece("t", "a", (false, false))]))
        }
        Some("GetTask") => result(call, &grown("WORKING", &["a", "b"])),
        _ => {
            let items = [
                json!({ "task": grown("WORKING", &["a", "b"]) }),
                piece("t", "c", (true, true)),
                status("t", "COMPLETED"),
                // Some agents repeat the whole artifact.
                json!({ "task": grown("COMPLETED", &["a", "b", "c", "d"]) }),
            ];
            Reaction::Close(stream(call, &items))
        }
    })
    .await;
    let herald = before(&raw, "").await;
    let call = Wire::Rest.stream("", &draft("hello"));
    let mut events = herald.client().await.open(&call).await.unwrap();
    let frames = Wire::Rest.rest_of(&mut events).await.unwrap();
    let pieces: Vec<_> = frames.iter().filter_map(Frame::text).collect();
    assert_eq!(pieces, ["a", "b", "c", "d"]);
    assert_eq!(made(&tasks::task(&herald, &frames[0].task).await), ["a", "b", "c", "d"]);
}

#[tokio::test]
async fn an_upstream_without_streaming_is_polled() {
    let looks = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let raw = Raw::silent(move |call| match call.body["method"].as_str() {
        Some("SendMessage") => {
            assert_eq!(call.body["params"]["configuration"]["returnImmediately"], true);
            result(call, &whole("SUBMITTED"))
        }
        _ => match looks.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
            0 => result(call, &grown("WORKING", &["one "])),
            _ => result(call, &grown("COMPLETED", &["one ", "two"])),
        },
    })
    .await;
    let herald = before(&raw, "").await;
    let done = told(&herald, "", &draft("hello")).await;
    assert_eq!((&*state(&done), made(&done).concat()), ("completed", "one two".to_owned()));
    assert_eq!(raw.calls("GetTask").len(), 2);
}

#[tokio::test]
async fn a_task_that_ended_while_it_waited_has_the_upstreams_outcome() {
    let raw = Raw::start(|call| match call.body["method"].as_str() {
        Some("SendStreamingMessage") if call.body["params"]["message"].get("taskId").is_none() => {
            Reaction::Close(stream(call, &[whole("INPUT_REQUIRED")]))
        }
        Some("GetTask") => result(call, &grown("COMPLETED", &["without you"])),
        _ => {
            let error = json!({ "code": -32004, "message": "the task has ended" });
            let body = json!({ "jsonrpc": "2.0", "id": call.body["id"], "error": error });
            let head = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json";
            Reaction::Close(format!("{head}\r\n\r\n{body}").into_bytes())
        }
    })
    .await;
    let herald = before(&raw, "").await;
    let asked = told(&herald, "", &draft("hello")).await;
    assert_eq!(state(&asked), "input-required");
    let done = told(&herald, "", &draft("here").to(crate::wire::id(&asked))).await;
    assert_eq!((&*state(&done), made(&done).concat()), ("completed", "without you".to_owned()));
}
