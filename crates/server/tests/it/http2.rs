//! HTTP/2 without TLS, as gRPC clients and proxies speak it.

use std::time::Duration;

use herald_server::{Config, Timeouts};
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response,
    body::{Bytes, Incoming},
    client::conn::http2::{SendRequest, handshake},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::{net::TcpStream, task::JoinHandle, time::timeout};
use tokio_util::task::TaskTracker;

use crate::{
    client::{envelope, message},
    hub::{Hub, SOON},
};

type Sender = SendRequest<Full<Bytes>>;

async fn connect(hub: &Hub) -> Sender {
    connection(hub).await.0
}

/// A connection, and the task that ends with it.
async fn connection(hub: &Hub) -> (Sender, JoinHandle<hyper::Result<()>>) {
    let stream = TcpStream::connect(hub.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    (sender, TaskTracker::new().spawn(connection))
}

fn call(hub: &Hub, method: &str, params: &Value) -> Request<Full<Bytes>> {
    Request::post(hub.url("/a2a/jsonrpc"))
        .header("a2a-version", "1.0")
        .header("content-type", "application/json")
        .body(Full::from(envelope(method, params).to_string()))
        .unwrap()
}

async fn body(response: Response<Incoming>) -> Vec<u8> {
    let body = timeout(SOON, response.into_body().collect()).await.unwrap();
    body.unwrap().to_bytes().to_vec()
}

#[tokio::test]
async fn it_is_understood_without_being_announced() {
    let hub = Hub::start().await;
    let mut sender = connect(&hub).await;
    let response = sender.send_request(call(&hub, "SendMessage", &message("hello"))).await.unwrap();
    assert_eq!(response.version(), http::Version::HTTP_2);
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let result: Value = serde_json::from_slice(&body(response).await).unwrap();
    assert_eq!(result["result"]["task"]["artifacts"][0]["parts"][0]["text"], "hello");
    let evil = Request::get("http://evil.example/").body(Full::default()).unwrap();
    assert_eq!(sender.send_request(evil).await.unwrap().status(), 421);
    let socket = Request::get(hub.url("/ws")).body(Full::default()).unwrap();
    assert_eq!(sender.send_request(socket).await.unwrap().status(), 505);
    let head =
        Request::head(hub.url("/.well-known/agent-card.json")).body(Full::default()).unwrap();
    let head = sender.send_request(head).await.unwrap();
    assert!(head.headers().contains_key("content-length"));
    assert!(body(head).await.is_empty());
}

#[tokio::test]
async fn many_streams_share_a_connection() {
    let hub = Hub::start().await;
    let mut sender = connect(&hub).await;
    let mut responses = Vec::new();
    for _ in 0..100 {
        let request = call(&hub, "SendStreamingMessage", &message("wait x"));
        responses.push(sender.send_request(request).await.unwrap());
    }
    let quick = call(&hub, "SendMessage", &message("hello"));
    assert_eq!(sender.send_request(quick).await.unwrap().status(), 200);
    hub.release(100);
    for response in responses {
        let text = String::from_utf8(body(response).await).unwrap();
        assert!(text.contains("TASK_STATE_COMPLETED"), "{text}");
    }
}

#[tokio::test]
async fn a_stop_ends_its_streams_properly() {
    let mut hub = Hub::start().await;
    let mut sender = connect(&hub).await;
    let mut responses = Vec::new();
    for _ in 0..10 {
        let request = call(&hub, "SendStreamingMessage", &message("wait x"));
        responses.push(sender.send_request(request).await.unwrap());
    }
    hub.stop();
    for response in responses {
        // An error here would be a reset in place of a proper end.
        assert!(!body(response).await.is_empty());
    }
    hub.release(10);
    hub.stopped().await;
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let (head, idle) = (Duration::from_secs(1), Duration::from_secs(2));
    let timeouts = Timeouts { head, idle, ..Timeouts::default() };
    let hub = Hub::with(Config { timeouts, ..Config::default() }).await;
    let mut busy = connect(&hub).await;
    let request = call(&hub, "SendStreamingMessage", &message("wait x"));
    let response = busy.send_request(request).await.unwrap();
    let (_unused, ended) = connection(&hub).await;
    timeout(SOON, ended).await.unwrap().unwrap().unwrap();
    let (mut used, ended) = connection(&hub).await;
    let request = call(&hub, "SendMessage", &message("hello"));
    assert_eq!(used.send_request(request).await.unwrap().status(), 200);
    timeout(SOON, ended).await.unwrap().unwrap().unwrap();
    hub.release(1);
    assert!(String::from_utf8(body(response).await).unwrap().contains("TASK_STATE_COMPLETED"));
}

#[tokio::test]
async fn a_flood_of_resets_harms_nobody_else() {
    let hub = Hub::start().await;
    let mut flood = connect(&hub).await;
    for _ in 0..2000 {
        let request = call(&hub, "GetTask", &json!({ "id": "x" }));
        // Dropping the future resets the request as soon as it is sent.
        let sent = timeout(Duration::ZERO, flood.send_request(request)).await;
        if matches!(sent, Ok(Err(_))) {
            break;
        }
    }
    let mut other = connect(&hub).await;
    let response = other.send_request(call(&hub, "SendMessage", &message("hello"))).await.unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused() {
    let hub = Hub::start().await;
    let mut sender = connect(&hub).await;
    let request = call(&hub, "SendMessage", &message(&"x".repeat(5 << 20)));
    let response = sender.send_request(request).await.unwrap();
    assert!(String::from_utf8(body(response).await).unwrap().contains("TOO_LARGE"));
    let response = sender.send_request(call(&hub, "SendMessage", &message("hello"))).await;
    assert_eq!(response.unwrap().status(), 200, "the connection is still good");
}
