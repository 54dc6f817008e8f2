//! WebSocket: one connection that lasts and carries everything.

use std::time::Duration;

use herald_client::{
    Binding, Client, Limits, SendResult, StreamEvent, TaskState, Timeouts, protocol::Version,
};
use tokio::task::JoinSet;

use crate::{
    fake::{Fake, Reaction, answer, card, response},
    hub::{Hub, all, over, pieces, quick, soon},
    proxy::Proxy,
};

/// A client that speaks over WebSocket through a proxy.
async fn behind(proxy: &Proxy) -> Client {
    over(Binding::WebSocket, Version::V1_0).connect(&proxy.url()).await.unwrap()
}

#[tokio::test]
async fn one_socket_carries_many_calls_and_streams_at_once() {
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
async fn a_call_that_is_given_up_leaves_the_others_and_its_task_alone() {
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
async fn a_stream_that_is_read_slowly_loses_nothing_and_holds_nobody_up() {
    let hub = Hub::start().await;
    // Little may wait, so that the stream is given up and taken up again.
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
async fn a_socket_that_is_cut_is_replaced_and_its_streams_go_on() {
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

/// A fake whose card names a WebSocket, and which does this with the handshake.
async fn handshake(react: impl Fn() -> Reaction + Send + Sync + 'static) -> Fake {
    Fake::start(move |url, _, request| match request.is_card() {
        true => {
            let binding = "https://github.com/herald-a2a/herald/bindings/websocket/v1";
            let socket = format!("{}/ws", url.replace("http://", "ws://"));
            answer(200, &card(&[(&socket, binding, "1.0")]))
        }
        false => react(),
    })
    .await
}

#[tokio::test]
async fn a_handshake_that_fails_is_an_error_of_its_kind() {
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
async fn a_server_that_does_not_finish_the_handshake_is_not_waited_for() {
    let fake = handshake(|| Reaction::Hold(Vec::new())).await;
    let timeouts = Timeouts { connect: Duration::from_millis(20), ..Timeouts::default() };
    let client = quick().timeouts(timeouts).connect(&fake.url()).await.unwrap();
    let error = soon(client.send("hello")).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
}
