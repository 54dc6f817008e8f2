//! TLS of the bindings with connections of their own: gRPC and WebSocket.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use herald_client::{AgentCard, Credential, protocol::card::AgentInterface};
use rcgen::generate_simple_self_signed;
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_util::task::TaskTracker;

use crate::hub::{quick, soon};

const WEBSOCKET: &str = "https://github.com/herald-a2a/herald/bindings/websocket/v1";

/// A server with a self-signed certificate. It counts clients that accept it.
async fn stranger() -> (SocketAddr, Arc<AtomicUsize>) {
    let made = generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, believed) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let count = Arc::clone(&believed);
    TaskTracker::new().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if acceptor.accept(stream).await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    (address, believed)
}

// proves: SEC-004
#[tokio::test]
async fn grpc_and_websockets_verify_certificates_like_the_other_bindings() {
    let (address, believed) = stranger().await;
    for (binding, url) in [
        ("GRPC", format!("https://{address}")),
        ("GRPC", format!("grpcs://{address}")),
        (WEBSOCKET, format!("wss://{address}/ws")),
    ] {
        let interface = AgentInterface {
            url,
            protocol_binding: binding.to_owned(),
            tenant: None,
            protocol_version: "1.0".to_owned(),
        };
        let mut card = AgentCard { supported_interfaces: vec![interface], ..AgentCard::default() };
        card.capabilities.streaming = Some(true);
        let client = quick().credential(Credential::bearer("hunter2")).card(card).unwrap();
        let calls = [
            soon(client.send("hello")).await.map(drop),
            soon(client.stream("hello")).await.map(drop),
        ];
        for error in calls.map(Result::unwrap_err) {
            assert!(error.is_connect(), "{binding} {error:?}");
            assert!(format!("{error:?}").contains("ertificate"), "{binding} {error:?}");
        }
    }
    assert_eq!(believed.load(Ordering::Relaxed), 0);
}
