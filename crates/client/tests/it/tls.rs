//! Certificates: the server's and the client's.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use herald_client::{Binding, CardKeys, Client, ClientBuilder, Credential};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{RootCertStore, ServerConfig, pki_types::PrivateKeyDer, server::WebPkiClientVerifier},
};
use tokio_util::task::TaskTracker;

use crate::{
    fake::{Fake, answer, card, result, task},
    hub::{Hub, SOON, quick, soon},
};

/// Certificate authority of the test.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for `name`, and its key.
    fn vouch(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new([name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    fn credential(&self, name: &str) -> Credential {
        let (certificate, key) = self.vouch(name);
        Credential::certificate(certificate.pem(), key.serialize_pem())
    }
}

/// TLS proxy in front of a plain HTTP server.
struct Front {
    address: SocketAddr,
    tried: Arc<AtomicUsize>,
    let_in: Arc<AtomicUsize>,
}

impl Front {
    /// Accepts every client, or only those with a certificate of `clients`.
    async fn start(server: &Authority, clients: Option<&Authority>, behind: SocketAddr) -> Self {
        let (certificate, key) = server.vouch("127.0.0.1");
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = match clients {
            None => ServerConfig::builder().with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.0.der().clone()).unwrap();
                let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
                ServerConfig::builder().with_client_cert_verifier(verifier)
            }
        };
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let front = Self { address, tried: Arc::default(), let_in: Arc::default() };
        let (tried, let_in) = (Arc::clone(&front.tried), Arc::clone(&front.let_in));
        let tasks = TaskTracker::new();
        tasks.clone().spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tried.fetch_add(1, Ordering::Relaxed);
                let (acceptor, let_in) = (acceptor.clone(), Arc::clone(&let_in));
                tasks.spawn(async move {
                    let mut stream = acceptor.accept(stream).await?;
                    let_in.fetch_add(1, Ordering::Relaxed);
                    let mut behind = TcpStream::connect(behind).await?;
                    copy_bidirectional(&mut stream, &mut behind).await
                });
            }
        });
        front
    }

    fn url(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// An agent behind TLS, with such addresses in its card.
async fn agent(
    server: &Authority,
    clients: Option<&Authority>,
    schemes: serde_json::Value,
) -> Front {
    let (tell, told) = tokio::sync::watch::channel(String::new());
    let fake = Fake::start(move |_, _, request| {
        let mut card = card(&[(&told.borrow(), "JSONRPC", "1.0")]);
        card["securitySchemes"] = schemes.clone();
        let required = |name: &String| json!({ "schemes": { name: {} } });
        card["securityRequirements"] = schemes.as_object().unwrap().keys().map(required).collect();
        if request.is_card() {
            answer(200, &card)
        } else {
            result(request, &json!({ "task": task("t", "COMPLETED") }))
        }
    })
    .await;
    let front = Front::start(server, clients, fake.address).await;
    tell.send(front.url()).unwrap();
    front
}

async fn refused(builder: ClientBuilder, front: &Front) {
    let error = soon(builder.connect(&front.url())).await.unwrap_err();
    assert!(error.is_connect() || error.is_broken(), "{error:?}");
}

// proves: SEC-004
#[tokio::test]
async fn a_self_signed_certificate_is_refused_before_anything_is_sent() {
    let front = agent(&Authority::new(), None, json!({})).await;
    let client = quick().credential(Credential::bearer("hunter2"));
    let error = soon(client.connect(&front.url())).await.unwrap_err();
    assert!(error.is_connect(), "{error:?}");
    assert!(format!("{error:?}").contains("ertificate"), "{error:?}");
    assert_eq!(front.tried.load(Ordering::Relaxed), 1);
    assert_eq!(front.let_in.load(Ordering::Relaxed), 0);
}

// proves: SEC-004
#[tokio::test]
async fn an_own_root_is_trusted_and_any_certificate_if_configured() {
    let authority = Authority::new();
    let front = agent(&authority, None, json!({})).await;
    let client = quick().root_certificate(authority.pem()).connect(&front.url()).await.unwrap();
    soon(client.send("x")).await.unwrap();
    refused(quick().root_certificate(Authority::new().pem()), &front).await;
    let client = quick().danger_accept_any_certificate().connect(&front.url()).await.unwrap();
    soon(client.send("x")).await.unwrap();
    let error = quick().root_certificate("no PEM").connect(&front.url()).await.unwrap_err();
    assert!(error.is_setup(), "{error:?}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_to_a_server_that_asks_for_one() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let scheme = json!({ "mtls": { "mtlsSecurityScheme": {} } });
    let front = agent(&servers, Some(&clients), scheme).await;
    let builder = || quick().root_certificate(servers.pem());
    let client =
        builder().credential(clients.credential("ci")).connect(&front.url()).await.unwrap();
    soon(client.send("x")).await.unwrap();
    refused(builder(), &front).await;
    refused(builder().credential(Authority::new().credential("ci")), &front).await;

    let wrong = Credential::certificate("no chain", "hunter2");
    assert!(!format!("{:?}", builder().credential(wrong.clone())).contains("hunter2"));
    let error = builder().credential(wrong).connect(&front.url()).await.unwrap_err();
    assert!(error.is_setup() && !format!("{error:?}").contains("hunter2"), "{error:?}");
}

#[tokio::test]
async fn a_client_certificate_satisfies_the_requirement_of_the_card() {
    let authority = Authority::new();
    let schemes = json!({
        "a": { "mtlsSecurityScheme": {} },
        "b": { "apiKeySecurityScheme": { "location": "header", "name": "x-key" } },
    });
    let fake = Fake::start(move |url, _, request| {
        let mut card = card(&[(url, "JSONRPC", "1.0")]);
        card["securitySchemes"] = schemes.clone();
        card["securityRequirements"] =
            json!([{ "schemes": { "a": {} } }, { "schemes": { "b": {} } }]);
        if request.is_card() {
            answer(200, &card)
        } else {
            result(request, &json!({ "task": task("t", "COMPLETED") }))
        }
    })
    .await;
    let builder = quick().credential(Credential::api_key("k"));
    builder.connect(&fake.url()).await.unwrap().send("x").await.unwrap();
    let builder =
        quick().credential(Credential::api_key("k")).credential(authority.credential("ci"));
    builder.connect(&fake.url()).await.unwrap().send("x").await.unwrap();
    let keys: Vec<_> = fake.calls().iter().map(|call| call.header("x-key").is_some()).collect();
    assert_eq!(keys, [true, false], "the first requirement that can be met is enough");
}

#[tokio::test]
async fn streams_go_over_tls_with_certificates_on_both_sides() {
    let (servers, clients) = (Authority::new(), Authority::new());
    let hub = Hub::start().await;
    let front = Front::start(&servers, Some(&clients), hub.address).await;
    for binding in [Binding::JsonRpc, Binding::Rest] {
        let mut card = hub.client().await.card();
        for interface in &mut card.supported_interfaces {
            interface.url = interface.url.replace(&hub.url(), &front.url());
        }
        let builder = quick().prefer([binding]).root_certificate(servers.pem());
        let client: Client = builder.credential(clients.credential("ci")).card(card).unwrap();
        let events = tokio::time::timeout(SOON, client.stream("chunks 3")).await.unwrap().unwrap();
        assert_eq!(crate::hub::pieces(&crate::hub::all(events).await), "1;2;3;");
    }
}

// proves: SIG-012
#[tokio::test]
async fn keys_of_cards_are_fetched_over_the_same_tls() {
    let authority = Authority::new();
    let keys = Fake::start(|_, _, _| answer(200, &json!({ "keys": [] }))).await;
    let front = Front::start(&authority, None, keys.address).await;
    let jku = format!("{}/keys.json", front.url());
    let header = json!({ "alg": "ES256", "kid": "k", "jku": jku }).to_string();
    let agent = Fake::start(move |url, _, _| {
        use base64::Engine as _;
        let mut card = card(&[(url, "JSONRPC", "1.0")]);
        let protected = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(&header);
        card["signatures"] = json!([{ "protected": protected, "signature": "c2ln" }]);
        answer(200, &card)
    })
    .await;
    let trusted = || quick().card_keys(CardKeys::new().fetched_from(&front.url()).unwrap());
    trusted().root_certificate(authority.pem()).connect(&agent.url()).await.unwrap();
    assert_eq!(keys.cards().len(), 1);
    let error = trusted().require_signature().connect(&agent.url()).await.unwrap_err();
    assert!(error.is_untrusted() && format!("{error:?}").contains("ertificate"), "{error:?}");
    assert_eq!(keys.cards().len(), 1);
}
