//! Responses that the peer does not read: bounded in memory and in time.

use std::time::Duration;

use herald_server::{Config, Limits, Timeouts};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http2::{Builder, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::{net::TcpStream, time::timeout};
use tokio_util::task::TaskTracker;

use crate::{
    client::{Call, message},
    hub::{Hub, SOON},
};

type Sender = SendRequest<Full<Bytes>>;

/// A budget for one response of a megabyte for each of four callers.
fn narrow(stall: Duration) -> Config {
    let limits = Limits { responses: 6 << 20, ..Limits::default() };
    let timeouts = Timeouts { stall, ..Timeouts::default() };
    Config { limits, timeouts, ..Config::default() }
}

/// Somebody who takes little of an answer before it is asked for more.
async fn connect(hub: &Hub) -> Sender {
    let stream = TcpStream::connect(hub.address).await.unwrap();
    let mut http = Builder::new(TokioExecutor::new());
    http.initial_stream_window_size(16 << 10);
    let (sender, connection) = http.handshake(TokioIo::new(stream)).await.unwrap();
    TaskTracker::new().spawn(connection);
    sender
}

async fn get(hub: &Hub, sender: &mut Sender, path: &str) -> Response<Incoming> {
    let request = Request::get(hub.url(path)).header("a2a-version", "1.0");
    let request = request.body(Full::default()).unwrap();
    timeout(SOON, sender.send_request(request)).await.unwrap().unwrap()
}

/// The path of a task of about a megabyte.
async fn large(hub: &Hub) -> String {
    let sent = hub.call(Call::rpc("SendMessage", &message("big 1"))).await.result();
    format!("/tasks/{}", sent["task"]["id"].as_str().unwrap())
}

#[tokio::test]
async fn one_who_reads_nothing_leaves_room_for_the_others() {
    let hub = Hub::with(narrow(SOON)).await;
    let path = large(&hub).await;
    let mut idle = connect(&hub).await;
    let unread = get(&hub, &mut idle, &path).await;
    assert_eq!(unread.status(), 200);
    let refused = get(&hub, &mut idle, &path).await;
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
    let small = get(&hub, &mut idle, "/tasks?pageSize=1").await;
    assert_eq!(small.status(), 200, "small answers are not counted");
    let neighbour = hub.call(Call::get(&path).v1()).await;
    assert_eq!(neighbour.status(), 503, "another connection of the same host");
    let other = hub.call_from(2, Call::get(&path).v1()).await;
    assert_eq!((other.status(), other.body.len() > 1 << 20), (200, true));
    let read = timeout(SOON, unread.into_body().collect()).await.unwrap().unwrap().to_bytes();
    assert_eq!(read, other.body, "it is all there for whoever reads it after all");
    let again = get(&hub, &mut idle, &path).await;
    assert_eq!(again.status(), 200, "what was read takes up no room");
}

#[tokio::test]
async fn an_answer_that_nobody_reads_is_given_up_and_its_connection_goes_on() {
    let hub = Hub::with(narrow(Duration::from_secs(2))).await;
    let path = large(&hub).await;
    let mut idle = connect(&hub).await;
    let unread = get(&hub, &mut idle, &path).await;
    assert_eq!(unread.status(), 200);
    let waited = async { while get(&hub, &mut idle, &path).await.status() == 503 {} };
    timeout(SOON, waited).await.expect("its room is free again");
    let error = timeout(SOON, unread.into_body().collect()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("error reading a body"), "{error}");
    assert_eq!(get(&hub, &mut idle, "/tasks?pageSize=1").await.status(), 200);
}

/// The path of a task of about a megabyte that is at work until it is released.
async fn at_work(hub: &Hub) -> String {
    let mut params = message(&format!("wait {}", "x".repeat(1 << 20)));
    params["configuration"] = json!({ "returnImmediately": true });
    let sent = hub.call(Call::rpc("SendMessage", &params)).await.result();
    format!("/tasks/{}", sent["task"]["id"].as_str().unwrap())
}

async fn whole(body: Incoming) -> Bytes {
    timeout(SOON, body.collect()).await.unwrap().unwrap().to_bytes()
}

#[tokio::test]
async fn streams_that_nobody_reads_have_their_snapshots_in_the_same_room() {
    let hub = Hub::with(narrow(SOON)).await;
    let path = at_work(&hub).await;
    let mut idle = connect(&hub).await;
    let mut first = get(&hub, &mut idle, &format!("{path}:subscribe")).await.into_body();
    let begun = timeout(SOON, first.frame()).await.unwrap().unwrap().unwrap();
    let begun = begun.into_data().unwrap();
    assert_eq!(get(&hub, &mut idle, &path).await.status(), 503, "the stream holds its task");
    let second = get(&hub, &mut idle, &format!("{path}:subscribe")).await.into_body();
    // The second one gets its snapshot when the task has long gone on, and it is still the same.
    hub.release(1);
    let (first, second) = tokio::join!(whole(first), whole(second));
    let first = [begun, first].concat();
    assert!(first.ends_with(b"\n\n") && first.len() > 2 << 20, "{}", first.len());
    assert!(String::from_utf8(first.clone()).unwrap().contains("TASK_STATE_COMPLETED"));
    assert!(first == second, "{} and {} bytes", first.len(), second.len());
    assert_eq!(get(&hub, &mut idle, &path).await.status(), 200);
}

#[tokio::test]
async fn all_of_ones_events_have_their_place_there_too() {
    let hub = Hub::with(narrow(SOON)).await;
    let path = large(&hub).await;
    let mut idle = connect(&hub).await;
    let mut feed = get(&hub, &mut idle, "/events?lastEventId=0").await.into_body();
    let mut seen = 0;
    while seen < 16 << 10 {
        let frame = timeout(SOON, feed.frame()).await.unwrap().unwrap().unwrap();
        seen += frame.into_data().unwrap().len();
    }
    assert_eq!(get(&hub, &mut idle, &path).await.status(), 503, "the feed holds an event");
    assert_eq!(hub.call_from(2, Call::get(&path).v1()).await.status(), 200);
    drop(feed);
    let waited = async { while get(&hub, &mut idle, &path).await.status() == 503 {} };
    timeout(SOON, waited).await.expect("who hangs up holds nothing");
}
