//! Hostile servers: whatever they do costs bounded time and memory and ends in an error.

use std::time::Duration;

use herald_client::{Credential, Limits, Retry, Timeouts, protocol::ErrorKind};
use serde_json::json;

use crate::{
    fake::{
        Fake, Reaction, answer, events, piece, response, result, rpc_card, status, stream, task,
    },
    hub::{all, pieces, quick, soon},
};

const SMALL: Limits = Limits { card: 10_000, response: 10_000, event: 10_000 };

/// A fake with JSON-RPC, which reacts to every call in this way.
async fn calls(
    react: impl Fn(usize, &crate::fake::Received) -> Reaction + Send + Sync + 'static,
) -> Fake {
    Fake::start(
        move |url, before, request| {
            if request.is_card() { rpc_card(url) } else { react(before, request) }
        },
    )
    .await
}

async fn client(fake: &Fake) -> herald_client::Client {
    quick().limits(SMALL).connect(&fake.url()).await.unwrap()
}

#[tokio::test]
async fn an_endless_card_is_too_large() {
    let endless = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"name\":\"".to_vec();
    let fake =
        Fake::start(move |_, _, _| Reaction::Endless(endless.clone(), vec![b'x'; 1000])).await;
    let error = soon(quick().limits(SMALL).connect(&fake.url())).await.unwrap_err();
    assert!(error.is_too_large(), "{error}");
}

#[tokio::test]
async fn an_endless_answer_and_a_false_length_are_too_large() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n".to_vec();
    let fake = calls(move |_, _| Reaction::Endless(head.clone(), vec![b' '; 1000])).await;
    let error = soon(client(&fake).await.send("hello")).await.unwrap_err();
    assert!(error.is_too_large(), "{error}");

    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n".to_vec();
    let fake = calls(move |_, _| Reaction::Hold(head.clone())).await;
    let error = soon(client(&fake).await.send("hello")).await.unwrap_err();
    assert!(error.is_too_large(), "{error}");
}

#[tokio::test]
async fn an_event_that_never_ends_is_too_large() {
    for filler in ["x", "data: x\n", "data:\n"] {
        let fake = calls(move |_, _| {
            let mut head = events(&[]);
            head.extend_from_slice(b"data: ");
            Reaction::Endless(head, filler.repeat(1000).into_bytes())
        })
        .await;
        let mut stream = client(&fake).await.stream("hello").await.unwrap();
        let error = soon(stream.next()).await.unwrap_err();
        assert!(error.is_too_large(), "{filler:?} {error}");
        assert!(soon(stream.next()).await.unwrap().is_none(), "nothing follows an error");
    }
}

#[tokio::test]
async fn an_event_of_another_task_ends_the_stream() {
    let fake = calls(|_, request| {
        let items = [json!({ "task": task("mine", "WORKING") }), piece("another", "secret")];
        Reaction::Hold(stream(request, &items))
    })
    .await;
    let mut stream = client(&fake).await.stream("hello").await.unwrap();
    soon(stream.next()).await.unwrap().unwrap();
    let error = soon(stream.next()).await.unwrap_err();
    assert!(error.is_invalid(), "{error}");
}

#[tokio::test]
async fn an_answer_about_another_task_or_to_another_call_is_refused() {
    let fake = calls(|_, request| result(request, &task("another", "WORKING"))).await;
    assert!(client(&fake).await.get("mine").await.unwrap_err().is_invalid());

    let fake = calls(|_, _| {
        answer(200, &json!({ "jsonrpc": "2.0", "id": 4711, "result": task("mine", "WORKING") }))
    })
    .await;
    assert!(client(&fake).await.get("mine").await.unwrap_err().is_invalid());
}

#[tokio::test]
async fn each_kind_of_unreadable_answer_has_its_own_error() {
    for body in ["", "hello", "<html></html>", "{}", "[]", "null", r#"{"jsonrpc":"2.0","id":1}"#] {
        let fake = calls(move |_, _| response(200, &[], body)).await;
        let error = client(&fake).await.get("mine").await.unwrap_err();
        assert!(error.is_invalid(), "{body:?} {error}");
        let error = match client(&fake).await.stream("hello").await {
            Ok(mut events) => soon(events.next()).await.unwrap_err(),
            Err(error) => error,
        };
        assert!(error.is_invalid(), "{body:?} {error}");
    }
    let fake = calls(|_, _| response(502, &[], "<html>Bad\u{1b} gateway</html>")).await;
    let error = client(&fake).await.send("hello").await.unwrap_err();
    assert_eq!(error.status(), Some(502), "{error}");
    assert!(!error.to_string().contains('\u{1b}'), "{error}");
}

#[tokio::test]
async fn an_error_in_place_of_a_stream_is_not_an_empty_stream() {
    let refusal = json!({ "code": -32004, "message": "no" });
    for kind in ["application/json", "application/a2a+json", "text/event-stream"] {
        let refusal = refusal.clone();
        let fake = calls(move |_, request| {
            let body = json!({ "jsonrpc": "2.0", "id": request.json()["id"], "error": refusal });
            let body = match kind {
                "text/event-stream" => format!("event: error\ndata: {body}\n\n"),
                _ => body.to_string(),
            };
            response(200, &[("Content-Type", kind)], &body)
        })
        .await;
        let error = match client(&fake).await.stream("hello").await {
            Ok(mut events) => soon(events.next()).await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(error.kind(), Some(ErrorKind::UnsupportedOperation), "{kind}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_or_without_credentials() {
    let trap = Fake::start(|_, _, _| response(200, &[], "{}")).await;
    let target = format!("{}/elsewhere?token=secret", trap.url());
    for status in [301, 302, 303, 307, 308] {
        let target = target.clone();
        let fake = calls(move |_, _| response(status, &[("Location", &target)], "")).await;
        let client = quick().credential(Credential::bearer("hunter2"));
        let client = client.connect(&fake.url()).await.unwrap();
        let error = client.send("hello").await.unwrap_err();
        assert!(error.is_redirect(), "{error}");
        assert!(error.to_string().contains("/elsewhere"), "{error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let target = trap.url();
    let fake = Fake::start(move |_, _, _| response(302, &[("Location", &target)], "")).await;
    assert!(quick().connect(&fake.url()).await.unwrap_err().is_redirect());
    assert!(trap.calls().is_empty(), "{:?}", trap.calls());
}

#[tokio::test]
async fn a_call_to_a_silent_server_times_out() {
    let short = Timeouts {
        call: Duration::from_secs(1),
        send: Duration::from_secs(1),
        ..Timeouts::default()
    };
    let fake = calls(|_, _| Reaction::Hold(Vec::new())).await;
    let client = quick().timeouts(short.clone()).connect(&fake.url()).await.unwrap();
    assert!(soon(client.send("hello")).await.unwrap_err().is_timeout());
    assert!(soon(client.get("mine")).await.unwrap_err().is_timeout());
    assert!(soon(client.stream("hello")).await.unwrap_err().is_timeout());
    let fake = Fake::start(|_, _, _| Reaction::Hold(Vec::new())).await;
    let error = soon(quick().timeouts(short).connect(&fake.url())).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
}

#[tokio::test]
async fn a_stream_that_is_closed_repeatedly_is_lost() {
    let fake = calls(|_, request| match request.json()["method"].as_str() {
        Some("GetTask") => result(request, &task("t", "WORKING")),
        _ => Reaction::Answer(stream(request, &[json!({ "task": task("t", "WORKING") })])),
    })
    .await;
    let mut events = client(&fake).await.stream("hello").await.unwrap();
    let mut seen = 0;
    let error = loop {
        match soon(events.next()).await {
            Ok(Some(_)) => seen += 1,
            Ok(None) => panic!("the stream ended in silence"),
            Err(error) => break error,
        }
    };
    assert!(error.is_lost(), "{error}");
    assert!(error.to_string().contains("task t"), "{error}");
    assert!(seen <= 2, "the same task was returned {seen} times");
    // Two calls for each attempt. A call on a connection that the server has just closed is made again
    // on a new one, which a busy machine makes more likely.
    let attempts = 1 + Retry::default().repeats;
    assert!(fake.calls().len() <= 4 * attempts, "{}", fake.calls().len());
}

#[tokio::test]
async fn a_stream_that_stays_open_after_the_end_of_its_task_ends() {
    let fake = calls(|_, request| {
        let items = [
            json!({ "task": task("t", "WORKING") }),
            status("t", "COMPLETED"),
            status("t", "WORKING"),
            piece("t", "late"),
            json!({ "task": task("t", "COMPLETED") }),
        ];
        Reaction::Hold(stream(request, &items))
    })
    .await;
    let events = all(client(&fake).await.stream("hello").await.unwrap()).await;
    assert_eq!(pieces(&events), "late", "an artifact that came late is not lost");
    let states: Vec<_> = events.iter().filter_map(herald_client::StreamEvent::state).collect();
    let [.., end, last] = &states[..] else { panic!("{states:?}") };
    assert!(end.is_terminal() && end == last, "nothing undoes the end: {states:?}");
}

#[tokio::test]
async fn a_list_that_repeats_its_pages_ends() {
    let fake = calls(|_, request| {
        let page = json!({ "tasks": [], "nextPageToken": "again", "pageSize": 1, "totalSize": 9 });
        result(request, &page)
    })
    .await;
    let mut pages = client(&fake).await.list(Default::default());
    pages.next().await.unwrap().unwrap();
    assert!(pages.next().await.unwrap_err().is_invalid());
    assert!(pages.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_cycle_of_pages_of_any_length_is_detected() {
    let fake = calls(|_, request| {
        let token =
            request.json()["params"]["pageToken"].as_str().map_or(0, |one| one.parse().unwrap());
        // Twenty pages that lead into a cycle of thirty.
        let next: usize = if token == 49 { 20 } else { token + 1 };
        let page = json!({ "tasks": [], "nextPageToken": next.to_string(), "pageSize": 1,
            "totalSize": 9 });
        result(request, &page)
    })
    .await;
    let mut pages = client(&fake).await.list(Default::default());
    let mut seen = 0;
    let error = loop {
        match soon(pages.next()).await {
            Ok(page) => assert!(page.is_some()),
            Err(error) => break error,
        }
        seen += 1;
        assert!(seen < 200, "it goes on and on");
    };
    assert!(error.is_invalid(), "{error}");
    assert!(seen >= 49, "no page is missed: {seen}");
}

#[tokio::test]
async fn a_long_event_id_is_ignored() {
    let fake = calls(|_, request| match request.json()["method"].as_str() {
        Some("SendStreamingMessage") => {
            let mut bytes = events(&[]);
            let huge = "x".repeat(2000);
            let id = &request.json()["id"];
            for (cursor, item) in
                [("short", json!({ "task": task("t", "WORKING") })), (&huge, piece("t", "a"))]
            {
                let item = json!({ "jsonrpc": "2.0", "id": id, "result": item });
                bytes.extend_from_slice(format!("id: {cursor}\ndata: {item}\n\n").as_bytes());
            }
            Reaction::Answer(bytes)
        }
        Some("GetTask") => result(request, &task("t", "COMPLETED")),
        _ => Reaction::Answer(stream(request, &[status("t", "COMPLETED")])),
    })
    .await;
    let events = all(client(&fake).await.stream("hello").await.unwrap()).await;
    assert_eq!(pieces(&events), "a");
    let calls = fake.calls();
    let again = calls.iter().find(|call| call.json()["method"] == "SubscribeToTask").unwrap();
    assert_eq!(again.header("last-event-id"), Some("short"), "the last one that is known");
}

#[tokio::test]
async fn events_without_content_do_not_delay_a_deadline() {
    let fake = calls(|_, _| {
        let mut head = events(&[]);
        head.extend_from_slice(format!("id: {}\n", "x".repeat(9000)).as_bytes());
        Reaction::Endless(head, b"data:\n\n".repeat(100))
    })
    .await;
    let mut events = client(&fake).await.stream("hello").await.unwrap();
    let limit = Duration::from_millis(200);
    assert!(soon(tokio::time::timeout(limit, events.next())).await.is_err());
}
