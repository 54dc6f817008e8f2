//! WebSocket: one long-lived connection for calls and streams.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use herald_client::{
    Binding, Client, Limits, SendResult, StreamEvent, TaskState, Timeouts, protocol::Version,
};
use serde_json::{Value, json};
use tokio::{net::TcpListener, task::JoinSet};
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{CloseFrame, frame::coding::CloseCode},
};
use tokio_util::task::TaskTracker;

use crate::{
    fake::{Fake, Reaction, answer, card, response, task},
    hub::{Hub, all, over, pieces, quick, soon},
    proxy::Proxy,
};

/// The name of the binding in cards.
const WEBSOCKET: &str = "https://github.com/herald-a2a/herald/bindings/websocket/v1";

/// A client over WebSocket behind a proxy.
async fn behind(proxy: &Proxy) -> Client {
    over(Binding::WebSocket, Version::V1_0).connect(&proxy.url()).await.unwrap()
}

#[tokio::test]
async fn one_socket_carries_concurrent_calls_and_streams() {
    let hub = Hub::start().await;
    let proxy = Proxy::start(hub.address).await;
    let client = behind(&proxy).await;
    let waiting = client.stream("wait for all").await.unwrap();
    let mut tasks = JoinSet::new();
    for number in 0..40 {
        let client = client.clone();
        tasks.spawn(async move {
            if number % 2 == 0 {
                let text = format!("hello {number}");
                assert_eq!(client.send(text.as_str()).await.unwrap().text(), text);
            } else {
                let events = all(client.stream("chunks 5").await.unwrap()).await;
                assert_eq!(pieces(&events), "1;2;3;4;5;");
            }
        });
    }
    while let Some(done) = soon(tasks.join_next()).await {
        done.unwrap();
    }
    hub.release(1);
    assert_eq!(pieces(&all(waiting).await), "for all");
    assert_eq!(proxy.accepted(), 2, "one connection for the card and one for the rest");
}

#[tokio::test]
async fn a_dropped_call_affects_neither_the_others_nor_its_task() {
    let hub = Hub::start().await;
    let proxy = Proxy::start(hub.address).await;
    let client = behind(&proxy).await;
    let mut dropped = client.stream("wait alone").await.unwrap();
    let first = soon(dropped.next()).await.unwrap().unwrap();
    let task = first.task_id().unwrap().clone();
    drop(dropped);
    assert_eq!(client.send("hello").await.unwrap().text(), "hello");
    assert!(!client.get(task.clone()).await.unwrap().status.state.is_terminal());
    hub.release(1);
    let events = all(client.resume(task.clone(), format!("{task}:1"))).await;
    assert_eq!(pieces(&events), "alone");
    assert_eq!(proxy.accepted(), 2);
}

#[tokio::test]
async fn a_slowly_read_stream_loses_nothing_and_delays_no_other_call() {
    let hub = Hub::start().await;
    // The buffer is small, so that the stream is dropped and resumed.
    let limits = Limits { event: 4000, response: 4000, ..Limits::default() };
    let client = over(Binding::WebSocket, Version::V1_0).limits(limits);
    let client = client.connect(&hub.url()).await.unwrap();
    let mut events = client.stream("chunks 300").await.unwrap();
    let mut seen = vec![soon(events.next()).await.unwrap().unwrap()];
    let other = hub.client().await;
    let task = other.get(seen[0].task_id().unwrap().clone()).await.unwrap();
    soon(other.finish(SendResult::Task(task))).await.unwrap();
    assert_eq!(soon(client.send("hello")).await.unwrap().text(), "hello");
    seen.extend(all(events).await);
    let expected: String = (1..=300).map(|number| format!("{number};")).collect();
    assert_eq!(pieces(&seen), expected);
    let ends = seen.iter().filter(|event| event.state().is_some_and(TaskState::is_terminal));
    assert_eq!(ends.count(), 1);
}

#[tokio::test]
async fn a_lost_socket_is_replaced_and_its_streams_resume() {
    let hub = Hub::start().await;
    let proxy = Proxy::start(hub.address).await;
    let client = behind(&proxy).await;
    let mut events = client.stream("steps 3").await.unwrap();
    let mut other = client.stream("wait over there").await.unwrap();
    let mut seen = Vec::new();
    hub.release(1);
    while !format!("{seen:?}").contains("step 1") {
        seen.push(soon(events.next()).await.unwrap().unwrap());
    }
    assert!(matches!(soon(other.next()).await.unwrap(), Some(StreamEvent::Task(_))));
    proxy.cut_now();
    hub.release(3);
    seen.extend(all(events).await);
    let text = format!("{seen:?}");
    assert!(text.contains("step 2") && text.contains("step 3"), "{text}");
    assert_eq!(text.matches("step 1").count(), 1, "{text}");
    assert_eq!(pieces(&all(other).await), "over there");
    assert_eq!(proxy.accepted(), 3, "both streams share the new socket");
}

/// A fake with a WebSocket, which reacts to the handshake in this way.
async fn handshake(react: impl Fn() -> Reaction + Send + Sync + 'static) -> Fake {
    Fake::start(move |url, _, request| {
        if request.is_card() {
            let socket = format!("{}/ws", url.replace("http://", "ws://"));
            answer(200, &card(&[(&socket, WEBSOCKET, "1.0")]))
        } else {
            react()
        }
    })
    .await
}

#[tokio::test]
async fn each_kind_of_failed_handshake_has_its_own_error() {
    type Check = fn(&herald_client::Error) -> bool;
    let switched = "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Accept: nonsense\r\n\r\n";
    let cases: [(Reaction, Check); 5] = [
        (response(404, &[], "not here"), |error| error.status() == Some(404)),
        (response(200, &[], "a page"), |error| error.status() == Some(200)),
        (response(302, &[("Location", "/elsewhere")], ""), |error| error.is_redirect()),
        (Reaction::Answer(switched.into()), |error| error.is_invalid()),
        (Reaction::HangUp, |error| error.is_connect()),
    ];
    for (reaction, check) in cases {
        let shown = reaction.clone();
        let fake = handshake(move || reaction.clone()).await;
        let client = quick().connect(&fake.url()).await.unwrap();
        let error = soon(client.send("hello")).await.unwrap_err();
        assert!(check(&error), "{shown:?} {error:?}");
    }
}

#[tokio::test]
async fn an_unfinished_handshake_times_out() {
    let fake = handshake(|| Reaction::Hold(Vec::new())).await;
    let timeouts = Timeouts { connect: Duration::from_secs(1), ..Timeouts::default() };
    let client = quick().timeouts(timeouts).connect(&fake.url()).await.unwrap();
    let error = soon(client.send("hello")).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
}

/// Behaviour of a scripted socket after its first call.
#[derive(Debug, Clone)]
enum Then {
    /// Answers it, and all that follow.
    Answer,
    /// Sends these messages and waits for the client to go.
    Say(Vec<Message>),
    /// Closes the connection without an answer.
    Leave,
}

/// A server with a WebSocket. The n-th socket waits for a call and acts by the n-th entry, further ones by the
/// last.
async fn sockets(acts: Vec<Then>) -> Fake {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tasks = TaskTracker::new();
    tasks.clone().spawn(async move {
        let mut acts = acts.into_iter();
        let mut act = acts.next().unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            let now = act.clone();
            act = acts.next().unwrap_or(act);
            tasks.spawn(async move {
                let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    let Ok(call) = message.to_text() else { continue };
                    let messages = match &now {
                        Then::Answer => vec![done(call)],
                        Then::Say(messages) => messages.clone(),
                        Then::Leave => return,
                    };
                    for message in messages {
                        socket.send(message).await.unwrap();
                    }
                }
            });
        }
    });
    Fake::start(move |_, _, _| {
        answer(200, &card(&[(&format!("ws://{address}"), WEBSOCKET, "1.0")]))
    })
    .await
}

fn text(value: &Value) -> Message {
    Message::text(value.to_string())
}

/// The answer to a send.
fn done(call: &str) -> Message {
    let call: Value = serde_json::from_str(call).unwrap();
    let result = json!({ "task": task("t", "COMPLETED") });
    text(&json!({ "jsonrpc": "2.0", "id": call["id"], "result": result }))
}

#[tokio::test]
async fn messages_without_a_call_are_ignored() {
    let fake = sockets(vec![Then::Say(vec![
        Message::text("nonsense"),
        Message::binary(vec![0xff]),
        text(&json!([1, 2, 3])),
        text(&json!({ "jsonrpc": "2.0", "method": "weather", "params": { "id": 1 } })),
        text(&json!({ "jsonrpc": "2.0", "id": 77, "result": {} })),
        Message::Ping(Bytes::new()),
        done(r#"{"id":1}"#),
    ])])
    .await;
    let client = quick().connect(&fake.url()).await.unwrap();
    soon(client.send("hello")).await.unwrap();
}

#[tokio::test]
async fn a_failed_socket_fails_its_calls_and_the_next_call_opens_another() {
    type Check = fn(&herald_client::Error) -> bool;
    let close = CloseFrame { code: CloseCode::Away, reason: "for a walk".into() };
    let cases: [(Then, Check); 4] = [
        (Then::Leave, |error| error.is_broken()),
        (Then::Say(vec![Message::Close(Some(close))]), |error| {
            error.is_broken() && format!("{error:?}").contains("for a walk")
        }),
        (Then::Say(vec![Message::text("x".repeat(5000))]), |error| error.is_too_large()),
        (Then::Say(Vec::new()), |error| error.is_timeout()),
    ];
    for (act, check) in cases {
        let shown = format!("{act:?}").chars().take(100).collect::<String>();
        let fake = sockets(vec![act, Then::Answer]).await;
        let limits = Limits { event: 4000, response: 4000, ..Limits::default() };
        let timeouts = Timeouts { idle: Duration::from_secs(2), ..Timeouts::default() };
        let client = quick().limits(limits).timeouts(timeouts).connect(&fake.url()).await.unwrap();
        let error = soon(client.send("hello")).await.unwrap_err();
        assert!(check(&error), "{shown} {error:?}");
        // On a busy machine the next socket may be too slow as well, but not every one of them.
        soon(async { while client.send("hello").await.is_err() {} }).await;
    }
}
