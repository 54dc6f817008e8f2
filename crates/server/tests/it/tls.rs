//! TLS on the server's own port.

use std::{sync::Arc, time::Duration};

use herald_protocol::grpc::generated::v1;
use herald_server::{Config, Timeouts, Tls};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, body::Bytes, client::conn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs, pki_types::ServerName},
};
use tokio_util::task::TaskTracker;
use tonic::{
    Code, Status,
    client::Grpc,
    transport::{Channel, Endpoint},
};
use tonic_prost::ProstCodec;
use uuid::Uuid;

use crate::hub::{Hub, SOON};

type Made = CertifiedKey<KeyPair>;

fn certificate() -> Made {
    generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap()
}

fn tls(made: &Made) -> Tls {
    Tls::new(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes()).unwrap()
}

/// A connection as one makes it who believes in this certificate alone.
async fn connect(hub: &Hub, made: &Made, speaks: &[&str]) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = speaks.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(hub.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    timeout(SOON, TlsConnector::from(Arc::new(config)).connect(name, stream)).await.unwrap()
}

async fn read(mut stream: TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    timeout(SOON, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    answer
}

// proves: SEC-002
#[tokio::test]
async fn both_versions_of_http_are_spoken_over_tls_and_the_card_says_so() {
    let made = certificate();
    let hub = Hub::built(|builder| builder.tls(tls(&made))).await;
    let card = |path: &str| Request::get(path).header("host", "localhost");

    let stream = connect(&hub, &made, &["http/1.1"]).await.unwrap();
    let (mut sender, driver) = conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    TaskTracker::new().spawn(driver);
    let request = card("/.well-known/agent-card.json").body(Empty::<Bytes>::new()).unwrap();
    let response = timeout(SOON, sender.send_request(request)).await.unwrap().unwrap();
    // On loopback it would hold for whatever else is tried out under the same name.
    assert!(!response.headers().contains_key("strict-transport-security"));
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let told: Value = serde_json::from_slice(&body).unwrap();
    let url = told["supportedInterfaces"][0]["url"].as_str().unwrap();
    assert!(url.starts_with("https://localhost"), "{url}");

    let stream = connect(&hub, &made, &["h2"]).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let io = TokioIo::new(stream);
    let (mut sender, driver) = conn::http2::handshake(TokioExecutor::new(), io).await.unwrap();
    TaskTracker::new().spawn(driver);
    let request = Request::get("https://localhost/.well-known/agent-card.json");
    let response = sender.send_request(request.body(Empty::<Bytes>::new()).unwrap());
    assert_eq!(timeout(SOON, response).await.unwrap().unwrap().status(), 200);
}

// proves: GRPC-003
#[tokio::test]
async fn grpc_goes_through_tls_and_not_past_it() {
    let made = certificate();
    let hub = Arc::new(Hub::built(|builder| builder.tls(tls(&made))).await);
    let plain = Endpoint::from_shared(hub.url("")).unwrap().connect_lazy();
    let refused = get_nothing(plain).await;
    assert_ne!(refused.code(), Code::NotFound, "a call went through without TLS: {refused:?}");
    let (reached, made) = (Arc::clone(&hub), Arc::new(made));
    let connector = tower::service_fn(move |_| {
        let (hub, made) = (Arc::clone(&reached), Arc::clone(&made));
        async move { connect(&hub, &made, &["h2"]).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("https://localhost");
    let channel = endpoint.connect_with_connector(connector).await.unwrap();
    assert_eq!(get_nothing(channel).await.code(), Code::NotFound);
}

/// Asks for a task that nobody made.
async fn get_nothing(channel: Channel) -> Status {
    let mut grpc = Grpc::new(channel);
    if let Err(error) = grpc.ready().await {
        return Status::unavailable(error.to_string());
    }
    let message = v1::GetTaskRequest { id: Uuid::nil().to_string(), ..Default::default() };
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("a2a-version", "1.0".parse().unwrap());
    let path = "/lf.a2a.v1.A2AService/GetTask".parse().unwrap();
    let codec = ProstCodec::<v1::GetTaskRequest, v1::Task>::default();
    timeout(SOON, grpc.unary(request, path, codec)).await.unwrap().unwrap_err()
}

#[tokio::test]
async fn who_speaks_http_to_it_is_told_to_use_https() {
    let hub = Hub::built(|builder| builder.tls(tls(&certificate()))).await;
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(read(stream).await).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
    assert!(body.contains("https"), "{body}");
}

// proves: SEC-003
#[tokio::test]
async fn tls_1_1_is_refused() {
    let hub = Hub::built(|builder| builder.tls(tls(&certificate()))).await;
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    // No session, one cipher suite that TLS 1.1 had, no compression.
    hello.extend([0, 0, 2, 0xc0, 0x13, 1, 0]);
    let mut record = vec![0x16, 3, 1];
    record.extend((hello.len() as u16 + 4).to_be_bytes());
    record.extend([1, 0]);
    record.extend((hello.len() as u16).to_be_bytes());
    record.extend(hello);
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    stream.write_all(&record).await.unwrap();
    let answer = read(stream).await;
    const ALERT: u8 = 0x15;
    assert_eq!(answer.first(), Some(&ALERT), "{answer:?}");
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_whoever_comes_next() {
    let (first, second) = (certificate(), certificate());
    let shown = tls(&first);
    let hub = Hub::built(|builder| builder.tls(shown.clone())).await;
    assert!(connect(&hub, &first, &["h2"]).await.is_ok());
    let key = second.signing_key.serialize_pem();
    assert!(shown.replace(b"nothing", key.as_bytes()).is_err());
    assert!(shown.replace(first.cert.pem().as_bytes(), key.as_bytes()).is_err());
    assert!(connect(&hub, &first, &["h2"]).await.is_ok(), "a mistake took away the one in use");
    shown.replace(second.cert.pem().as_bytes(), key.as_bytes()).unwrap();
    assert!(connect(&hub, &second, &["h2"]).await.is_ok());
    assert!(connect(&hub, &first, &["h2"]).await.is_err());
}

#[tokio::test]
async fn who_never_says_hello_is_let_go() {
    let timeouts = Timeouts { head: Duration::from_millis(50), ..Timeouts::default() };
    let config = Config { timeouts, ..Config::default() };
    let hub = Hub::built(|builder| builder.config(config).tls(tls(&certificate()))).await;
    let mut stream = TcpStream::connect(hub.address).await.unwrap();
    stream.write_all(&[0x16, 3, 1]).await.unwrap();
    assert_eq!(read(stream).await, b"");
}
