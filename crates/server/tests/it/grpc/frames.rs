//! Invalid gRPC frames, byte by byte.

use herald_protocol::grpc::generated::v1;
use herald_server::{Config, Limits};
use http::{HeaderMap, Version};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::{net::TcpStream, time::timeout};
use tokio_util::task::TaskTracker;

use super::{Client, V1, all, send, text_of};
use crate::{
    client::Call,
    hub::{Hub, SOON},
};

/// One connection, on which everything must be answered.
struct Raw {
    hub: Hub,
    sender: http2::SendRequest<Full<Bytes>>,
}

struct Answer {
    headers: HeaderMap,
    body: Bytes,
    trailers: HeaderMap,
}

impl Answer {
    /// The status, wherever it stands.
    fn status(&self) -> &str {
        let status = self.trailers.get("grpc-status").or(self.headers.get("grpc-status"));
        status.unwrap().to_str().unwrap()
    }

    fn message(&self) -> &str {
        self.headers["grpc-message"].to_str().unwrap()
    }
}

impl Raw {
    async fn connect(hub: Hub) -> Self {
        let stream = TcpStream::connect(hub.address).await.unwrap();
        let handshake = http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
        let (sender, connection) = handshake.await.unwrap();
        TaskTracker::new().spawn(connection);
        Self { hub, sender }
    }

    async fn post(&mut self, body: Vec<u8>) -> Answer {
        self.call("SendMessage", &[], body).await
    }

    async fn call(&mut self, method: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
        let mut request = Request::post(self.hub.url(&format!("/{V1}/{method}")))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .header("a2a-version", "1.0");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::from(body)).unwrap();
        let response = timeout(SOON, self.sender.send_request(request)).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        let (parts, body) = response.into_parts();
        assert_eq!(parts.headers["content-type"], "application/grpc");
        let collected = timeout(SOON, body.collect()).await.unwrap().unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        Answer { headers: parts.headers, body: collected.to_bytes(), trailers }
    }
}

fn framed(flag: u8, length: usize, message: &[u8]) -> Vec<u8> {
    let mut body = vec![flag];
    body.extend(u32::try_from(length).unwrap().to_be_bytes());
    body.extend(message);
    body
}

fn plain(message: &[u8]) -> Vec<u8> {
    framed(0, message.len(), message)
}

#[tokio::test]
async fn an_answer_is_a_message_and_trailers_and_a_refusal_only_trailers() {
    let mut raw = Raw::connect(Hub::start().await).await;
    let fine = raw.post(plain(&send("hello").encode_to_vec())).await;
    assert!(!fine.headers.contains_key("grpc-status"));
    assert_eq!(fine.trailers["grpc-status"], "0");
    assert_eq!(fine.headers["grpc-accept-encoding"], "identity");
    assert!(fine.headers.contains_key("x-request-id"));
    let sent = v1::SendMessageResponse::decode(&fine.body[5..]).unwrap();
    assert!(sent.payload.is_some());
    let refused = raw.post(plain(b"")).await;
    assert_eq!((refused.status(), refused.body.len(), refused.trailers.len()), ("3", 0, 0));
}

#[tokio::test]
async fn a_broken_frame_is_refused_and_the_connection_lives() {
    let mut raw = Raw::connect(Hub::start().await).await;
    let good = send("hello").encode_to_vec();
    let mut deep = Vec::new();
    for _ in 0..200 {
        // A list in a value in a list, and so on.
        let inner = [vec![0x0a], varint(deep.len()), deep].concat();
        deep = [vec![0x32], varint(inner.len()), inner].concat();
    }
    let data = [vec![0x22], varint(deep.len()), deep].concat();
    let part = [vec![0x2a], varint(data.len()), data].concat();
    let nested = [vec![0x12], varint(part.len()), part].concat();
    for (body, status, says) in [
        (Vec::new(), "3", "five bytes"),
        (vec![0, 0], "3", "five bytes"),
        (framed(0, good.len() + 1, &good), "3", "shorter than its declared length"),
        (framed(0, good.len() - 1, &good), "3", "more than one"),
        ([plain(&good), plain(&good)].concat(), "3", "more than one"),
        (framed(7, good.len(), &good), "3", "compression flag"),
        (framed(1, good.len(), &good), "12", "compressed"),
        (plain(&good[..good.len() - 1]), "3", "decode"),
        (plain(b"\xff\xff\xff\xff"), "3", "decode"),
        (plain(&[0x12, 0x03, 0x0a, 0x01, 0xff]), "3", "UTF-8"),
        (plain(&nested), "3", "nested too deeply"),
    ] {
        let answer = raw.post(body).await;
        assert_eq!(answer.status(), status, "{says}: {}", answer.message());
        assert!(answer.message().contains(says), "{says}: {}", answer.message());
    }
    assert_eq!(raw.post(plain(&good)).await.status(), "0");
}

fn varint(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number > 0x7f {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

#[tokio::test]
async fn a_message_may_be_as_large_as_any_body_and_no_larger() {
    let limits = Limits { body: 64 << 10, ..Limits::default() };
    let hub = Hub::with(Config { limits, ..Config::default() }).await;
    let mut raw = Raw::connect(hub).await;
    let room = (64 << 10) - send("").encoded_len();
    // The lengths of what stands around the text grow by a few bytes with it.
    let fits = send(&"x".repeat(room - 16)).encode_to_vec();
    assert!(fits.len() <= 64 << 10);
    assert_eq!(raw.post(plain(&fits)).await.status(), "0");
    let large = raw.post(plain(&send(&"x".repeat(64 << 10)).encode_to_vec())).await;
    assert_eq!(large.status(), "8", "{}", large.message());
    assert!(large.message().contains("65536"));
    let lies = raw.post(framed(0, u32::MAX as usize, b"short")).await;
    assert_eq!(lies.status(), "3");
    assert_eq!(raw.post(plain(&fits)).await.status(), "0");
}

// tonic's client keeps deadlines itself, so it cannot tell whether the server does.
#[tokio::test]
async fn a_deadline_ends_the_call_and_not_the_task() {
    let mut raw = Raw::connect(Hub::start().await).await;
    let soon = [("grpc-timeout", "50m")];
    let blocked = raw.call("SendMessage", &soon, plain(&send("wait x").encode_to_vec())).await;
    assert_eq!((blocked.status(), blocked.body.len()), ("4", 0));
    let client = Client::v1(&raw.hub).await;
    let now = v1::SendMessageConfiguration { return_immediately: true, ..Default::default() };
    let request = v1::SendMessageRequest { configuration: Some(now), ..send("wait y") };
    let sent: v1::SendMessageResponse = client.call(V1, "SendMessage", request).await.unwrap();
    let Some(v1::send_message_response::Payload::Task(task)) = sent.payload else {
        panic!("no task")
    };
    let subscribe = v1::SubscribeToTaskRequest { id: task.id.clone(), ..Default::default() };
    let cut = raw.call("SubscribeToTask", &soon, plain(&subscribe.encode_to_vec())).await;
    assert_eq!(cut.status(), "4");
    let there = client.get(&task.id).await.unwrap();
    assert_eq!(there.status.unwrap().state(), v1::TaskState::Working);
    let subscribed = client.stream(V1, "SubscribeToTask", subscribe).await.unwrap();
    raw.hub.release(2);
    assert!(all::<v1::StreamResponse>(subscribed.into_inner()).await.1.is_none());
    assert_eq!(text_of(&client.get(&task.id).await.unwrap()), "y");
    let body = plain(&send("hello").encode_to_vec());
    let odd = raw.call("SendMessage", &[("grpc-timeout", "soon")], body).await;
    assert_eq!(odd.status(), "3");
}

#[tokio::test]
async fn what_is_not_grpc_is_told_so_in_http() {
    let hub = Hub::start().await;
    let path = format!("/{V1}/SendMessage");
    // Over HTTP/1 there is no place for trailers.
    let call = Call::new("POST", path.clone()).header("content-type", "application/grpc");
    assert_eq!(hub.call(call).await.status(), 505);
    let call = Call::new("GET", path.clone()).header("content-type", "application/grpc");
    assert_eq!(hub.call(call).await.status(), 405);
    let call = Call::new("POST", path.clone()).header("content-type", "application/grpc-web");
    assert_eq!(hub.call(call).await.status(), 415);
    let mut raw = Raw::connect(hub).await;
    for (authority, origin, status) in
        [("evil.example", None, 421), ("localhost", Some("https://evil.example"), 403)]
    {
        let mut request = Request::post(format!("http://{authority}{path}"))
            .version(Version::HTTP_2)
            .header("content-type", "application/grpc");
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        let request = request.body(Full::from(plain(&send("x").encode_to_vec()))).unwrap();
        let response = raw.sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), status);
    }
    assert_eq!(raw.post(plain(&send("hello").encode_to_vec())).await.status(), "0");
}
