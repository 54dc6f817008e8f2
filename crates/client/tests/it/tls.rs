//! Certificates.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use herald_client::Credential;
use rcgen::generate_simple_self_signed;
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, rustls};
use tokio_util::task::TaskTracker;

use crate::hub::{quick, soon};

// proves: SEC-004
#[tokio::test]
async fn a_certificate_that_nobody_signed_is_refused_before_anything_is_sent() {
    let made =
        generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (tried, let_in) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&tried), Arc::clone(&let_in));
    TaskTracker::new().spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counts.0.fetch_add(1, Ordering::Relaxed);
            if acceptor.accept(stream).await.is_ok() {
                counts.1.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let client = quick().credential(Credential::bearer("hunter2"));
    let error = soon(client.connect(&format!("https://{address}"))).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    assert!(format!("{error:?}").contains("ertificate"), "{error:?}");
    assert_eq!((tried.load(Ordering::Relaxed), let_in.load(Ordering::Relaxed)), (1, 0));
}
