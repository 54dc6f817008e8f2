//! Floods: many connections, silent ones, frames without requests, resets, calls that are never read.

use std::time::Duration;

use herald_server::{Config, Limits, Timeouts};
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http2::{SendRequest, handshake},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use crate::{
    client::{Call, Client, connect_from, envelope, message},
    hub::{Hub, SOON},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];

async fn with(limits: Limits) -> Hub {
    Hub::with(Config { limits, ..Config::default() }).await
}

/// Takes this many places of one host, and returns when they are taken.
async fn take_places(hub: &Hub, host: u8, count: usize) -> Vec<Client> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let mut client = Client::connect_from(host, hub.address).await;
        assert_eq!(client.call(Call::get("/")).await.status(), 200);
        taken.push(client);
    }
    taken
}

async fn until_served(hub: &Hub, host: u8) {
    let served = async { while hub.call_from(host, Call::get("/")).await.status() == 503 {} };
    timeout(SOON, served).await.expect("a place is free");
}

#[tokio::test]
async fn probes_are_answered_when_every_place_is_taken() {
    let hub = with(Limits { connections: 2, ..Limits::default() }).await;
    let mut taken = take_places(&hub, 1, 2).await;
    for host in [1, 2] {
        for path in ["/healthz", "/readyz"] {
            let mut probe = Client::connect_from(host, hub.address).await;
            assert_eq!(probe.call(Call::get(path)).await.status(), 200, "{path}");
            assert!(probe.is_closed().await, "its place is for others");
        }
        let refused = hub.call_from(host, Call::get("/")).await;
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.head.header("retry-after"), Some("1"));
        let text = String::from_utf8(refused.body).unwrap();
        assert!(text.contains("[limits] connections in herald.toml"), "{text}");
    }
    assert_eq!(taken.pop().unwrap().call(Call::get("/")).await.status(), 200);
    until_served(&hub, 2).await;
}

#[tokio::test]
async fn one_address_has_only_its_share() {
    let limits = Limits { connections_per_address: Some(2), ..Limits::default() };
    let hub = with(limits).await;
    let taken = take_places(&hub, 1, 2).await;
    let refused = hub.call_from(1, Call::get("/")).await;
    assert_eq!(refused.status(), 503);
    let text = String::from_utf8(refused.body).unwrap();
    assert!(text.contains("[limits] connections_per_address"), "{text}");
    assert_eq!(hub.call_from(1, Call::get("/healthz")).await.status(), 200);
    assert_eq!(hub.call_from(2, Call::get("/")).await.status(), 200);
    drop(taken);
    until_served(&hub, 1).await;
}

#[tokio::test]
async fn one_address_cannot_take_the_reserve() {
    let hub = with(Limits { connections: 1, ..Limits::default() }).await;
    let _taken = take_places(&hub, 1, 1).await;
    let mut silent = Vec::new();
    for _ in 0..40 {
        silent.push(Client::connect_from(1, hub.address).await);
        assert_eq!(hub.call_from(2, Call::get("/healthz")).await.status(), 200);
    }
    // Without any input of theirs, because the reserve has little time for each.
    for mut client in silent {
        assert!(client.is_closed().await);
    }
}

#[tokio::test]
async fn loopback_has_no_share_unless_it_is_configured() {
    let hub = Hub::start().await;
    let _taken = take_places(&hub, 1, 300).await;
    assert_eq!(hub.call_from(1, Call::get("/")).await.status(), 200);
}

/// A connection of HTTP/2 whose frames are sent as they are.
async fn open_http2(hub: &Hub) -> TcpStream {
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(&[PREFACE, SETTINGS].concat()).await.unwrap();
    stream
}

/// Sends bytes again and again, and reads whatever comes, until the server closes the connection. Returns
/// the number of bytes sent.
async fn flood(stream: TcpStream, bytes: &[u8]) -> usize {
    let (mut read, mut write) = stream.into_split();
    let closed = async {
        let mut buffer = vec![0; 64 << 10];
        while matches!(read.read(&mut buffer).await, Ok(read) if read > 0) {}
    };
    let sent = async {
        let mut sent = 0;
        while sent < 64 << 20 && write.write_all(bytes).await.is_ok() {
            sent += bytes.len();
        }
        sent
    };
    let (sent, ()) = timeout(SOON, async { tokio::join!(sent, closed) }).await.expect("an end");
    sent
}

#[tokio::test]
async fn a_connection_of_http2_without_a_request_has_the_time_of_a_head() {
    let (head, idle) = (Duration::from_secs(1), Duration::from_secs(3600));
    let timeouts = Timeouts { head, idle, ..Timeouts::default() };
    let hub = Hub::with(Config { timeouts, ..Config::default() }).await;
    let mut stream = open_http2(&hub).await;
    let closed = async {
        let mut buffer = [0; 1024];
        loop {
            // It is alive in every other way.
            if stream.write_all(PING).await.is_err() {
                break;
            }
            if !matches!(stream.read(&mut buffer).await, Ok(read) if read > 0) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SOON, closed).await.expect("it is closed");
}

#[tokio::test]
async fn frames_without_requests_end_the_connection() {
    let hub = Hub::start().await;
    let window: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let priority: &[u8] = &[0, 0, 5, 2, 0, 0, 0, 0, 3, 0, 0, 0, 1, 1];
    let unknown: &[u8] = &[0, 0, 1, 0x42, 0, 0, 0, 0, 0, 0];
    for frame in [PING, SETTINGS, window, priority, unknown] {
        let sent = flood(open_http2(&hub).await, &frame.repeat(1000)).await;
        assert!(sent < 16 << 20, "{frame:?}: {sent} bytes");
        assert_eq!(hub.call(Call::get("/healthz")).await.status(), 200);
    }
}

#[tokio::test]
async fn headers_without_end_end_the_connection() {
    let hub = Hub::start().await;
    let continuation = [&[0, 0x40, 0, 9, 0, 0, 0, 0, 1][..], &vec![0; 0x4000]].concat();
    let mut stream = open_http2(&hub).await;
    stream.write_all(&[0, 0, 0, 1, 0, 0, 0, 0, 1]).await.unwrap();
    assert!(flood(stream, &continuation).await < 4 << 20);
    let mut client = hub.client().await;
    client.write("GET / HTTP/1.1\r\nHost: localhost\r\n").await;
    let sent = flood(client.stream, "X-Header: value\r\n".repeat(1000).as_bytes()).await;
    assert!(sent < 16 << 20, "{sent}");
    assert_eq!(hub.call(Call::get("/healthz")).await.status(), 200);
}

type Sender = SendRequest<Full<Bytes>>;

async fn connect(hub: &Hub, host: u8) -> Sender {
    let stream = connect_from(host, hub.address).await;
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    TaskTracker::new().spawn(connection);
    sender
}

fn call(hub: &Hub, method: &str, params: &Value) -> Request<Full<Bytes>> {
    Request::post(hub.url("/a2a/jsonrpc"))
        .header("a2a-version", "1.0")
        .header("content-type", "application/json")
        .body(Full::from(envelope(method, params).to_string()))
        .unwrap()
}

async fn send(hub: &Hub, sender: &mut Sender, method: &str, params: &Value) -> Response<Incoming> {
    timeout(SOON, sender.send_request(call(hub, method, params))).await.unwrap().unwrap()
}

#[tokio::test]
async fn resets_of_requests_in_progress_end_the_connection() {
    let hub = Hub::start().await;
    let mut flood = connect(&hub, 2).await;
    let mut resets = 0;
    let ended = async {
        loop {
            let request = call(&hub, "SendMessage", &message("wait x"));
            let mut response = Box::pin(flood.send_request(request));
            let begun = resets + 1;
            let seen = async {
                // The server is at work on it, so that HTTP/2 itself does not count its reset.
                loop {
                    let answer = hub.call(Call::rpc("ListTasks", &json!({ "pageSize": 1 }))).await;
                    if answer.result()["totalSize"].as_u64().unwrap() >= begun {
                        break;
                    }
                }
            };
            tokio::select! {
                answered = response.as_mut() => break assert!(answered.is_err()),
                () = seen => resets = begun,
            }
        }
    };
    timeout(SOON, ended).await.expect("an end");
    assert!((90..150).contains(&resets), "{resets}");
    hub.release(200);
}

/// Memory for eight calls of everybody, and for 14 more of each caller.
fn narrow() -> Limits {
    Limits { responses: 64 * (8 << 10), ..Limits::default() }
}

const CALLS: usize = 8 + 14;

#[tokio::test]
async fn calls_in_progress_on_http2_take_memory() {
    let hub = with(narrow()).await;
    let mut waiting = Vec::new();
    let mut first = connect(&hub, 2).await;
    let mut second = connect(&hub, 2).await;
    for count in 0..CALLS {
        let sender = if count % 2 == 0 { &mut first } else { &mut second };
        waiting.push(sender.send_request(call(&hub, "SendMessage", &message("wait x"))));
    }
    until_tasks(&hub, CALLS).await;
    let refused = send(&hub, &mut first, "GetTask", &json!({ "id": "x" })).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "1");
    let probe = Request::get(hub.url("/healthz")).body(Full::default()).unwrap();
    assert_eq!(first.send_request(probe).await.unwrap().status(), 200);
    let mut other = connect(&hub, 3).await;
    assert_eq!(send(&hub, &mut other, "GetTask", &json!({ "id": "x" })).await.status(), 200);
    hub.release(CALLS);
    for response in waiting {
        assert_eq!(timeout(SOON, response).await.unwrap().unwrap().status(), 200);
    }
    let again = send(&hub, &mut first, "GetTask", &json!({ "id": "x" })).await;
    assert_eq!(again.status(), 200, "their memory is free again");
}

/// Waits until so many tasks exist.
async fn until_tasks(hub: &Hub, count: usize) {
    let listed = async {
        loop {
            let call = Call::rpc("ListTasks", &json!({ "pageSize": 1 }));
            let answer = hub.call_from(9, call).await.result();
            if answer["totalSize"].as_u64().unwrap() as usize >= count {
                break;
            }
        }
    };
    timeout(SOON, listed).await.expect("the tasks");
}

/// Sends whatever it is told on a connection, and lets the other connections go on in between.
#[tokio::test]
async fn requests_that_are_sent_at_once_are_not_answered_at_once() {
    let hub = Hub::start().await;
    let request = "GET /tasks/x HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\r\n";
    let mut pipelines = Vec::new();
    for _ in 0..10 {
        let client = hub.client().await;
        // All that fits into the buffers of the socket, without letting the server run.
        let written = client.stream.try_write(request.repeat(100).as_bytes()).unwrap();
        pipelines.push((client, written / request.len()));
    }
    let other = hub.call(Call::get("/metrics")).await;
    let text = String::from_utf8(other.body).unwrap();
    let answered: f64 = text
        .lines()
        .filter(|line| line.starts_with("herald_http_responses_total"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
        .sum();
    assert!(answered < 100.0, "{answered} of 1000 came first");
    for (mut client, count) in pipelines {
        for _ in 0..count {
            assert_eq!(client.answer().await.status(), 404);
        }
    }
}

/// The number of open connections.
async fn connections(hub: &Hub) -> f64 {
    let text = String::from_utf8(hub.call(Call::get("/metrics")).await.body).unwrap();
    let line = text.lines().find(|line| line.starts_with("herald_connections_open")).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_flood_from_one_address_leaves_the_others_alone() {
    let limits = Limits { connections_per_address: Some(32), ..Limits::default() };
    let timeouts = Timeouts { head: Duration::from_secs(2), ..Timeouts::default() };
    let hub = Hub::with(Config { limits, timeouts, ..Config::default() }).await;
    let slow_body = "POST /a2a/jsonrpc HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\n\
                     Content-Type: application/json\r\nContent-Length: 4000000\r\n\r\n{";
    let starts = ["", "GET / HTTP/1.1\r\nX-Slow: ", slow_body];
    let mut open = Vec::new();
    for number in 0..300 {
        let mut stream = connect_from(2, hub.address).await;
        // One beyond the limits may be closed by now.
        let _ = stream.write_all(starts[number % 3].as_bytes()).await;
        open.push(stream);
        if number % 10 == 0 {
            let answer = hub.call(Call::rpc("SendMessage", &message("hello"))).await;
            assert_eq!(answer.status(), 200);
            assert_eq!(hub.call(Call::get("/healthz")).await.status(), 200);
        }
    }
    let most = connections(&hub).await;
    assert!(most <= 32.0 + 8.0 + 2.0, "{most} connections are open");
    // The silent ones and those with slow headers are closed, without any input of theirs.
    let mut closed = 0;
    for (number, stream) in open.iter_mut().enumerate() {
        if number % 3 < 2 {
            let read = timeout(SOON, stream.read(&mut [0; 1024])).await.expect("it is closed");
            closed += usize::from(!matches!(read, Ok(1..)));
        }
    }
    assert!(closed > 190, "{closed} of 200");
}
