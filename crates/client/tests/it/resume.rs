//! Streams from servers without cursors, and from servers that do not stream.

use herald_client::{
    Binding, StreamEvent, TaskState,
    protocol::{ErrorKind, Version},
};
use serde_json::{Value, json};

use crate::{
    fake::{
        Fake, Reaction, Received, answer, card, events, piece, response, result, rpc_card, status,
        stream, task,
    },
    hub::{Hub, all, over, pieces, quick, soon},
};

/// A fake with JSON-RPC, which reacts to every call in this way.
async fn calls(react: impl Fn(&str, &Received) -> Reaction + Send + Sync + 'static) -> Fake {
    Fake::start(move |url, _, request| {
        if request.is_card() {
            rpc_card(url)
        } else {
            react(request.json()["method"].as_str().unwrap(), request)
        }
    })
    .await
}

fn states(events: &[StreamEvent]) -> Vec<TaskState> {
    events.iter().filter_map(StreamEvent::state).collect()
}

fn methods(fake: &Fake) -> Vec<String> {
    let method = |call: Received| call.json()["method"].as_str().unwrap().to_owned();
    fake.calls().into_iter().map(method).collect()
}

#[tokio::test]
async fn without_cursors_a_snapshot_replaces_missed_events() {
    let fake = calls(|method, request| match method {
        "SendStreamingMessage" => {
            Reaction::Answer(stream(request, &[json!({ "task": task("t", "SUBMITTED") })]))
        }
        "GetTask" => result(request, &task("t", "WORKING")),
        _ => {
            let items = [
                json!({ "task": task("t", "WORKING") }),
                piece("t", "new"),
                status("t", "COMPLETED"),
            ];
            Reaction::Answer(stream(request, &items))
        }
    })
    .await;
    let events =
        all(quick().connect(&fake.url()).await.unwrap().stream("hello").await.unwrap()).await;
    use TaskState::{Completed, Submitted, Working};
    assert_eq!(states(&events), [Submitted, Working, Completed], "no snapshot comes twice");
    assert_eq!(pieces(&events), "new");
    assert_eq!(methods(&fake), ["SendStreamingMessage", "SubscribeToTask", "GetTask"]);
}

#[tokio::test]
async fn a_task_that_cannot_be_subscribed_to_is_polled() {
    let refusal = json!({ "error": { "code": -32004, "message": "not while it rains" } });
    for refusal in [refusal, json!({ "result": null })] {
        let looks = std::sync::atomic::AtomicUsize::new(0);
        let fake = calls(move |method, request| match method {
            "SendStreamingMessage" => {
                Reaction::Answer(stream(request, &[json!({ "task": task("t", "WORKING") })]))
            }
            "GetTask" => {
                let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                result(request, &task("t", if look < 3 { "WORKING" } else { "COMPLETED" }))
            }
            _ => {
                let mut refusal = refusal.clone();
                refusal["jsonrpc"] = "2.0".into();
                refusal["id"] = request.json()["id"].clone();
                answer(200, &refusal)
            }
        })
        .await;
        let events =
            all(quick().connect(&fake.url()).await.unwrap().stream("hello").await.unwrap()).await;
        use TaskState::{Completed, Working};
        assert_eq!(states(&events), [Working, Working, Completed], "only changes are returned");
        assert_eq!(methods(&fake).iter().filter(|method| *method == "SubscribeToTask").count(), 1);
    }
}

// proves: STR-023
#[tokio::test]
async fn a_stream_may_end_or_continue_while_the_task_waits_for_its_caller() {
    for state in ["INPUT_REQUIRED", "AUTH_REQUIRED"] {
        let closing = calls(move |_, request| {
            Reaction::Answer(stream(
                request,
                &[json!({ "task": task("t", "WORKING") }), status("t", state)],
            ))
        })
        .await;
        let client = quick().connect(&closing.url()).await.unwrap();
        let events = all(client.stream("hello").await.unwrap()).await;
        assert!(states(&events).last().unwrap().is_interrupted());
        assert_eq!(closing.calls().len(), 1, "nothing is asked again");

        let staying = calls(move |_, request| {
            let items = [status("t", state), status("t", "WORKING"), status("t", "COMPLETED")];
            Reaction::Answer(stream(request, &items))
        })
        .await;
        let client = quick().connect(&staying.url()).await.unwrap();
        let events = all(client.stream("hello").await.unwrap()).await;
        assert_eq!(states(&events).last(), Some(&TaskState::Completed));
    }
}

// proves: STR-024
#[tokio::test]
async fn a_whole_task_may_come_anywhere_in_a_stream() {
    let fake = calls(|_, request| {
        let items = [
            status("t", "SUBMITTED"),
            json!({ "task": task("t", "WORKING") }),
            piece("t", "x"),
            json!({ "task": task("t", "WORKING") }),
            status("t", "COMPLETED"),
            json!({ "task": task("t", "COMPLETED") }),
        ];
        Reaction::Answer(stream(request, &items))
    })
    .await;
    let events =
        all(quick().connect(&fake.url()).await.unwrap().stream("hello").await.unwrap()).await;
    assert_eq!(events.len(), 6, "{events:?}");
}

// proves: STR-025
#[tokio::test]
async fn frames_of_many_lines_with_comments_and_returns_are_read() {
    let fake = calls(|_, request| {
        let id = request.json()["id"].clone();
        let mut bytes = events(&[]);
        for item in [json!({ "task": task("t", "WORKING") }), status("t", "COMPLETED")] {
            let frame = json!({ "jsonrpc": "2.0", "id": id, "result": item });
            let pretty = serde_json::to_string_pretty(&frame).unwrap().replace('\n', "\r\ndata: ");
            bytes.extend_from_slice(
                format!(": hello\r\nretry: 5\r\ndata: {pretty}\r\n\r\n").as_bytes(),
            );
        }
        Reaction::Answer(bytes)
    })
    .await;
    let events =
        all(quick().connect(&fake.url()).await.unwrap().stream("hello").await.unwrap()).await;
    assert_eq!(states(&events), [TaskState::Working, TaskState::Completed]);
}

#[tokio::test]
async fn a_subscription_over_rest_is_a_post_or_else_a_get() {
    for unknown in [404, 405] {
        let fake = Fake::start(move |url, _, request| {
            if request.is_card() {
                return answer(200, &card(&[(url, "HTTP+JSON", "1.0")]));
            }
            match request.method.as_str() {
                "POST" => response(unknown, &[], r#"{"detail":"Not Found"}"#),
                _ => Reaction::Answer(events(&[json!({ "task": task("t", "COMPLETED") })])),
            }
        })
        .await;
        let client = over(Binding::Rest, Version::V1_0).connect(&fake.url()).await.unwrap();
        let seen = all(client.subscribe("t").await.unwrap()).await;
        assert_eq!(states(&seen), [TaskState::Completed]);
        let methods: Vec<_> =
            fake.calls().into_iter().map(|call| (call.method, call.path)).collect();
        let path = "/tasks/t:subscribe".to_owned();
        assert_eq!(methods, [("POST".to_owned(), path.clone()), ("GET".to_owned(), path)]);
    }
}

#[tokio::test]
async fn after_an_error_in_a_stream_the_task_has_the_outcome() {
    for (binding, name) in [(Binding::JsonRpc, "JSONRPC"), (Binding::Rest, "HTTP+JSON")] {
        let fake = Fake::start(move |url, _, request| {
            if request.is_card() {
                return answer(200, &card(&[(url, name, "1.0")]));
            }
            let sends = request.path.contains("message:stream")
                || binding == Binding::JsonRpc
                    && request.json()["method"] == "SendStreamingMessage";
            let failure = json!({ "code": -32603, "message": "oops" });
            match (binding, sends) {
                (Binding::JsonRpc, true) => {
                    let mut bytes = stream(request, &[json!({ "task": task("t", "WORKING") })]);
                    let id = &request.json()["id"];
                    let frame = json!({ "jsonrpc": "2.0", "id": id, "error": failure });
                    bytes.extend_from_slice(format!("event: error\ndata: {frame}\n\n").as_bytes());
                    Reaction::Answer(bytes)
                }
                (_, true) => {
                    let items =
                        [json!({ "task": task("t", "WORKING") }), json!({ "error": failure })];
                    Reaction::Answer(events(&items))
                }
                (Binding::JsonRpc, false) => result(request, &task("t", "FAILED")),
                (_, false) => answer(200, &task("t", "FAILED")),
            }
        })
        .await;
        let client = over(binding, Version::V1_0).connect(&fake.url()).await.unwrap();
        let seen = all(client.stream("hello").await.unwrap()).await;
        assert_eq!(states(&seen), [TaskState::Working, TaskState::Failed], "{binding:?}");
    }
}

#[tokio::test]
async fn a_subscription_may_be_refused_within_the_stream() {
    let looks = std::sync::atomic::AtomicUsize::new(0);
    let fake = Fake::start(move |url, _, request| {
        if request.is_card() {
            return answer(200, &card(&[(url, "JSONRPC", "0.3")]));
        }
        let old = |state: &str| {
            json!({ "kind": "task", "id": "t", "contextId": "c", "status": { "state": state } })
        };
        match request.json()["method"].as_str() {
            Some("message/stream") => Reaction::Answer(stream(request, &[old("working")])),
            Some("tasks/get") => {
                let look = looks.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                result(request, &old(if look < 2 { "working" } else { "completed" }))
            }
            _ => {
                let error = json!({ "code": -32004, "message": "nobody works on it" });
                let id = &request.json()["id"];
                Reaction::Answer(events(&[json!({ "jsonrpc": "2.0", "id": id, "error": error })]))
            }
        }
    })
    .await;
    let client = over(Binding::JsonRpc, Version::V0_3).connect(&fake.url()).await.unwrap();
    let seen = all(client.stream("hello").await.unwrap()).await;
    assert_eq!(states(&seen).last(), Some(&TaskState::Completed), "{seen:?}");
    let asked = methods(&fake).into_iter().filter(|method| method == "tasks/resubscribe");
    assert_eq!(asked.count(), 1);
}

#[tokio::test]
async fn an_error_as_the_first_event_is_returned() {
    let fake = calls(|_, request| {
        let error = json!({ "code": -32603, "message": "oops" });
        let id = &request.json()["id"];
        Reaction::Answer(events(&[json!({ "jsonrpc": "2.0", "id": id, "error": error })]))
    })
    .await;
    let client = quick().connect(&fake.url()).await.unwrap();
    let error = soon(client.stream("hello").await.unwrap().next()).await.unwrap_err();
    assert_eq!(error.kind(), Some(ErrorKind::Internal), "{error}");
    assert_eq!(fake.calls().len(), 1);
}

#[tokio::test]
async fn a_stream_without_a_first_event_is_lost() {
    let fake = calls(|_, request| Reaction::Answer(stream(request, &[]))).await;
    let client = quick().connect(&fake.url()).await.unwrap();
    let error = soon(client.stream("hello").await.unwrap().next()).await.unwrap_err();
    assert!(
        error.is_lost() && error.to_string().contains("may have received the message"),
        "{error}"
    );
    assert_eq!(fake.calls().len(), 1, "the message was not sent again");
}

#[tokio::test]
async fn an_agent_that_does_not_stream_is_polled() {
    let hub = Hub::start().await;
    let client = quick().connect(&format!("{}/agents/silent", hub.url())).await.unwrap();
    let mut events = client.stream("wait for it").await.unwrap();
    let first = soon(events.next()).await.unwrap().unwrap();
    assert!(!first.state().unwrap().is_terminal());
    hub.release(1);
    let rest = all(events).await;
    let Some(StreamEvent::Task(done)) = rest.last() else { panic!("{rest:?}") };
    assert_eq!((done.status.state, done.text()), (TaskState::Completed, "for it".to_owned()));
    let said = all(client.stream("reply at once").await.unwrap()).await;
    assert!(matches!(&said[..], [StreamEvent::Message(_)]), "{said:?}");
}

// proves: SEC-016
#[tokio::test]
async fn a_task_that_waits_for_credentials_is_followed_until_it_has_them() {
    let hub = Hub::start().await;
    let client = hub.client().await;
    let asked = client.send("auth").await.unwrap();
    let herald_client::SendResult::Task(asked) = asked else { panic!("{asked:?}") };
    assert_eq!(asked.status.state, TaskState::AuthRequired);
    let events = client.subscribe(asked.id).await.unwrap();
    hub.release(1);
    assert_eq!(pieces(&all(events).await), "authorised");
}

#[tokio::test]
async fn an_answer_in_place_of_a_stream_is_its_only_event() {
    let fake = calls(|_, request| {
        let message: Value =
            json!({ "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "hi" }] });
        result(request, &json!({ "message": message }))
    })
    .await;
    let seen =
        all(quick().connect(&fake.url()).await.unwrap().stream("hello").await.unwrap()).await;
    assert!(
        matches!(&seen[..], [StreamEvent::Message(message)] if message.text() == "hi"),
        "{seen:?}"
    );
}

/// Refuses to stream, in an answer or in the stream itself, and takes the message otherwise.
async fn refusing_streams(in_stream: bool) -> Fake {
    let polls = std::sync::atomic::AtomicUsize::new(0);
    calls(move |method, request| match method {
        "SendStreamingMessage" => {
            let error = json!({ "code": -32004, "message": "no streams here" });
            let refusal = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": error });
            if in_stream { Reaction::Answer(events(&[refusal])) } else { answer(200, &refusal) }
        }
        "SendMessage" => result(request, &json!({ "task": task("t", "WORKING") })),
        _ => {
            let poll = polls.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            result(request, &task("t", if poll < 2 { "WORKING" } else { "COMPLETED" }))
        }
    })
    .await
}

#[tokio::test]
async fn an_agent_that_refuses_to_stream_gets_the_same_message_without_a_stream() {
    for in_stream in [false, true] {
        let fake = refusing_streams(in_stream).await;
        let client = quick().connect(&fake.url()).await.unwrap();
        let seen = all(client.stream("hello").await.unwrap()).await;
        assert_eq!(states(&seen).last(), Some(&TaskState::Completed), "{seen:?}");
        let id = |call: &Received| call.json()["params"]["message"]["messageId"].clone();
        let ids: Vec<_> = fake.calls()[..2].iter().map(id).collect();
        assert!(ids[0].is_string() && ids[0] == ids[1], "{ids:?}");
        assert_eq!(methods(&fake)[..2], ["SendStreamingMessage", "SendMessage"]);
    }
}

#[tokio::test]
async fn send_and_wait_returns_the_ended_task_whatever_the_agent_supports() {
    let done = |result| {
        let herald_client::SendResult::Task(task) = result else { panic!("{result:?}") };
        assert_eq!(task.status.state, TaskState::Completed);
    };
    // A stream that is lost, with a task that cannot be followed.
    let lost = calls(|method, request| match method {
        "SendStreamingMessage" => {
            Reaction::Answer(stream(request, &[json!({ "task": task("t", "WORKING") })]))
        }
        "GetTask" => result(request, &task("t", "COMPLETED")),
        _ => response(500, &[], "down"),
    })
    .await;
    for fake in [refusing_streams(false).await, refusing_streams(true).await, lost] {
        let client = quick().connect(&fake.url()).await.unwrap();
        let mut known = Vec::new();
        done(soon(client.send_and_wait("hello", |id| known.push(id.clone()))).await.unwrap());
        assert_eq!(known.first().map(|id: &herald_client::TaskId| id.as_str()), Some("t"));
    }
    let hub = Hub::start().await;
    for agent in ["", "/agents/silent"] {
        let client = quick().connect(&format!("{}{agent}", hub.url())).await.unwrap();
        hub.release(1);
        done(soon(client.send_and_wait("wait for it", |_| ())).await.unwrap());
    }
}
