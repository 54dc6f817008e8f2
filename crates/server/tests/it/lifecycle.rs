//! Start, shutdown and connection limits.

use std::{net::Ipv4Addr, time::Duration};

use async_trait::async_trait;
use herald_engine::{Caller, Scopes};
use herald_protocol::{Error, TenantId};
use herald_server::{Authenticate, Config, Limits, Scheme, ServeError, Server, Timeouts};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::net::TcpListener;
use tower::ServiceExt;

use crate::{
    agents::Script,
    client::{Call, message},
    hub::{Hub, SOON, engine},
};

fn stream(text: &str) -> Call {
    Call::rpc("SendStreamingMessage", &message(text))
}

#[tokio::test]
async fn a_stop_ends_streams_properly_and_finishes_requests() {
    // Whatever waited for this would be waited for in vain.
    let timeouts = Timeouts { stop: Duration::from_secs(3600), ..Timeouts::default() };
    let mut hub = Hub::with(Config { timeouts, ..Config::default() }).await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut open = hub.client().await.open(stream("wait x")).await;
        open.json().await;
        streams.push(open);
    }
    let mut waiting = hub.client().await;
    waiting.send(&Call::rpc("SendMessage", &message("wait x"))).await;
    let mut idle = hub.client().await;
    assert_eq!(idle.call(Call::get("/readyz")).await.status(), 200);
    let fresh = hub.client().await;
    hub.stop();
    for mut open in streams {
        // Whatever was still to come ends with the last chunk, not with a broken connection.
        let last = open.rest().await;
        assert!(last.iter().all(|event| event.id.is_some()));
        assert!(open.client.is_closed().await);
    }
    let answer = waiting.answer().await;
    assert!(answer.result()["task"]["id"].is_string(), "the task as it stands");
    assert!(idle.is_closed().await);
    let mut fresh = fresh;
    assert!(fresh.is_closed().await);
    // Running turns hold the engine up, not the connections.
    hub.release(101);
    hub.stopped().await;
}

#[tokio::test]
async fn readiness_goes_at_once() {
    let mut hub = Hub::start().await;
    let mut open = hub.client().await.open(stream("wait x")).await;
    open.json().await;
    let server = Server::builder(hub.engine.clone()).build().unwrap();
    let ready = async || {
        let request = http::Request::get("/readyz").body(String::new()).unwrap();
        server.clone().oneshot(request).await.unwrap().status()
    };
    assert_eq!(ready().await, 200);
    hub.stop();
    open.rest().await;
    assert_eq!(ready().await, 503);
    hub.release(1);
    hub.stopped().await;
    let body = message("hello").to_string();
    let request = http::Request::post("/message:send")
        .header("a2a-version", "1.0")
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let refused = server.clone().oneshot(request).await.unwrap();
    assert_eq!(refused.status(), 503);
    assert!(refused.headers().contains_key("retry-after"));
}

#[tokio::test]
async fn what_does_not_finish_is_cut_off_in_time() {
    let timeouts = Timeouts { stop: Duration::from_millis(200), ..Timeouts::default() };
    let mut hub = Hub::with(Config { timeouts, ..Config::default() }).await;
    let mut slow = hub.client().await;
    slow.write(
        "POST /a2a/jsonrpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: 100\r\n\r\n{",
    )
    .await;
    // Once this has been answered, the slow one has been accepted too.
    assert_eq!(hub.call(Call::get("/healthz")).await.status(), 200);
    let mut open = hub.client().await.open(stream("wait x")).await;
    open.json().await;
    hub.stop();
    hub.stopped().await;
    assert!(slow.is_closed().await);
}

#[tokio::test]
async fn a_peer_that_takes_nothing_is_cut_off() {
    let timeouts = Timeouts { stall: Duration::from_secs(2), ..Timeouts::default() };
    let limits = Limits { streams_per_caller: 1, ..Limits::default() };
    let hub = Hub::with(Config { timeouts, limits, ..Config::default() }).await;
    // More than the kernel's buffers hold, and never read.
    let mut stuck = hub.client().await;
    stuck.send(&Call::rpc("SendStreamingMessage", &message("big 12"))).await;
    loop {
        let answer = hub.call(Call::rpc("SubscribeToTask", &json!({ "id": "x" }))).await;
        if answer.status() == 429 {
            break;
        }
    }
    // Its place among the streams is free again once it has been cut off.
    tokio::time::timeout(SOON, async {
        while hub.call(Call::rpc("SubscribeToTask", &json!({ "id": "x" }))).await.status() == 429 {}
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn nobody_serves_the_network_without_credentials_by_accident() {
    let build =
        |config: Config| Server::builder(engine(&Script::new())).config(config).build().unwrap();
    let bind = async || TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).await.unwrap();
    let refused = build(Config::default()).serve(bind().await, async {}).await;
    assert!(matches!(refused, Err(ServeError::Open(_))), "{refused:?}");
    assert!(refused.unwrap_err().to_string().contains("open_to_network"));
    let config = Config { open_to_network: true, ..Config::default() };
    build(config).serve(bind().await, async {}).await.unwrap();
    let token = herald_server::Token {
        secret: "canary-7c5e".into(),
        tenant: TenantId::from("t"),
        principal: "p".into(),
        scopes: Scopes::ALL,
        ..herald_server::Token::default()
    };
    let config = Config { tokens: vec![token], ..Config::default() };
    build(config).serve(bind().await, async {}).await.unwrap();
}

#[tokio::test]
async fn a_host_application_can_mount_it() {
    let server = Server::builder(engine(&Script::new())).build().unwrap();
    let body = crate::client::envelope("SendMessage", &message("hello")).to_string();
    let request = http::Request::post("/rpc")
        .header("a2a-version", "1.0")
        .header("content-type", "application/json")
        .body(body)
        .unwrap();
    let socket = http::Request::get("/ws")
        .header("upgrade", "websocket")
        .header("connection", "upgrade")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .body(String::new())
        .unwrap();
    assert_eq!(server.clone().oneshot(socket).await.unwrap().status(), 501);
    let response = server.clone().oneshot(request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["result"]["task"]["artifacts"][0]["parts"][0]["text"], "hello");
    let request = http::Request::get("/.well-known/agent-card.json").body(String::new()).unwrap();
    let response = server.oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
}

/// Knows everybody by a header, as a host application's own sign-on would.
#[derive(Debug)]
struct Header;

#[async_trait]
impl Authenticate for Header {
    async fn authenticate(&self, parts: &http::request::Parts) -> Result<Option<Caller>, Error> {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        Ok(user.map(|user| Caller::new(TenantId::from("t"), user, Scopes::ALL)))
    }

    fn schemes(&self) -> Vec<Scheme> {
        Vec::new()
    }
}

#[tokio::test]
async fn callers_can_be_known_by_other_means() {
    let hub = Hub::built(|builder| builder.authenticate(Header)).await;
    assert_eq!(hub.call(Call::rpc("ListTasks", &json!({}))).await.status(), 401);
    let call = Call::rpc("ListTasks", &json!({})).header("X-User", "ann");
    assert_eq!(hub.call(call).await.status(), 200);
}
