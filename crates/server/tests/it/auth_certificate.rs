//! Client certificates.

use std::sync::Arc;

use herald_engine::{Scopes, Visibility};
use herald_protocol::TenantId;
use herald_server::{
    CertificateName, CertificateSettings, CertificateTenant, Certificates, ClientCertificates,
    ServerBuilder, Tls, Token,
};
use http_body_util::{BodyExt, Full};
use hyper::{Request, body::Bytes, client::conn};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SanType, SerialNumber,
    date_time_ymd,
};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    },
};
use tokio_util::task::TaskTracker;

use crate::{
    client::{Call, envelope, message},
    hub::Hub,
};

/// An authority that issues certificates.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate with its key.
struct Issued {
    der: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { issuer }
    }

    fn issue(&self, change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.serial_number = Some(SerialNumber::from(vec![7]));
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Issued { der: certificate.der().clone(), pem: certificate.pem(), key }
    }

    /// The list of revoked certificates, with serial number 7 if `revoked`.
    fn revocations(&self, revoked: bool) -> Vec<u8> {
        let certificate = RevokedCertParams {
            serial_number: SerialNumber::from(vec![7]),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(vec![1]),
            issuing_distribution_point: None,
            revoked_certs: if revoked { vec![certificate] } else { Vec::new() },
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).unwrap().pem().unwrap().into_bytes()
    }

    fn clients(&self, required: bool) -> ClientCertificates {
        let authorities = self.issuer.pem().into_bytes();
        ClientCertificates { authorities, revoked: None, required }
    }
}

fn settings(name: CertificateName) -> CertificateSettings {
    CertificateSettings {
        name,
        identities: Vec::new(),
        tenant: Some(CertificateTenant::Fixed(TenantId::from("acme"))),
        scopes: Scopes::CALLER,
        visibility: Visibility::Owner,
    }
}

struct Port {
    hub: Hub,
    tls: Tls,
    servers: Authority,
    server: Issued,
    authority: Authority,
}

impl Port {
    async fn open(required: bool, settings: CertificateSettings) -> Self {
        Self::with(required, |builder| builder.authenticate(Certificates::new(settings))).await
    }

    async fn with(required: bool, build: impl FnOnce(ServerBuilder) -> ServerBuilder) -> Self {
        let authority = Authority::new("clients");
        let servers = Authority::new("servers");
        let server = servers.issue(|_| {});
        let key = server.key.serialize_pem();
        let clients = Some(authority.clients(required));
        let tls = Tls::with_clients(server.pem.as_bytes(), key.as_bytes(), clients).unwrap();
        let hub = Hub::built(|builder| build(builder.tls(tls.clone()))).await;
        Self { hub, tls, servers, server, authority }
    }

    /// Replaces the accepted client certificates.
    fn trust(&self, clients: ClientCertificates) {
        let key = self.server.key.serialize_pem();
        let replaced =
            self.tls.replace_all(self.server.pem.as_bytes(), key.as_bytes(), Some(clients));
        replaced.unwrap();
    }

    async fn connect(&self, client: Option<&Issued>) -> std::io::Result<Connection> {
        let mut roots = RootCertStore::empty();
        roots.add(self.servers.issuer.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match client {
            Some(client) => {
                let key = PrivatePkcs8KeyDer::from(client.key.serialize_der());
                let chain = vec![client.der.clone()];
                config.with_client_auth_cert(chain, PrivateKeyDer::Pkcs8(key)).unwrap()
            }
            None => config.with_no_client_auth(),
        };
        let stream = TcpStream::connect(self.hub.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        let (sender, driver) =
            conn::http1::handshake(TokioIo::new(stream)).await.map_err(std::io::Error::other)?;
        TaskTracker::new().spawn(driver);
        Ok(Connection(sender))
    }

    /// The status and the body of a send over a new connection.
    async fn send(&self, client: Option<&Issued>) -> std::io::Result<(u16, Value)> {
        self.connect(client).await?.send(&[]).await
    }
}

struct Connection(conn::http1::SendRequest<Full<Bytes>>);

impl Connection {
    async fn send(&mut self, headers: &[(&str, &str)]) -> std::io::Result<(u16, Value)> {
        self.call("SendMessage", &message("hello"), headers).await
    }

    async fn call(
        &mut self,
        method: &str,
        params: &Value,
        headers: &[(&str, &str)],
    ) -> std::io::Result<(u16, Value)> {
        let mut request = Request::post("/a2a/jsonrpc")
            .header("host", "localhost")
            .header("content-type", "application/json")
            .header("a2a-version", "1.0");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::from(envelope(method, params).to_string());
        let response = self.0.send_request(request.body(body).unwrap()).await;
        let response = response.map_err(std::io::Error::other)?;
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.map_err(std::io::Error::other)?;
        Ok((status, serde_json::from_slice(&body.to_bytes()).unwrap()))
    }
}

fn named(name: &'static str) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.distinguished_name.push(DnType::CommonName, name)
}

fn also(name: SanType) -> impl FnOnce(&mut CertificateParams) {
    move |params| params.subject_alt_names = vec![name]
}

// proves: SEC-001
#[tokio::test]
async fn a_certificate_of_a_trusted_authority_is_enough_and_others_are_not() {
    let port = Port::open(false, settings(CertificateName::CommonName)).await;
    let alice = port.authority.issue(named("alice"));
    let (status, answer) = port.send(Some(&alice)).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let id = &answer["result"]["task"]["id"];
    let get = json!({ "id": id });
    let again = port.connect(Some(&alice)).await.unwrap().call("GetTask", &get, &[]).await;
    assert_eq!(again.unwrap().1["result"]["id"], *id);
    let bob = port.authority.issue(named("bob"));
    let foreign = port.connect(Some(&bob)).await.unwrap().call("GetTask", &get, &[]).await;
    assert_eq!(foreign.unwrap().1["error"]["code"], -32001);
    // Without a certificate the connection is open, and the call is refused.
    assert_eq!(port.send(None).await.unwrap().0, 401);
    // A certificate of another authority is refused with the connection.
    let stranger = Authority::new("clients").issue(named("alice"));
    assert!(port.send(Some(&stranger)).await.is_err());
    let expired = port.authority.issue(|params| {
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    assert!(port.send(Some(&expired)).await.is_err());
}

#[tokio::test]
async fn a_required_certificate_is_demanded_by_the_handshake() {
    let port = Port::open(true, settings(CertificateName::CommonName)).await;
    assert!(port.send(None).await.is_err());
    assert_eq!(port.send(Some(&port.authority.issue(named("alice")))).await.unwrap().0, 200);
}

#[tokio::test]
async fn wrong_credentials_beside_a_certificate_are_refused() {
    let port = Port::open(false, settings(CertificateName::CommonName)).await;
    let alice = port.authority.issue(named("alice"));
    for header in
        [("authorization", "Bearer wrong"), ("x-api-key", "wrong"), ("authorization", "x")]
    {
        let mut connection = port.connect(Some(&alice)).await.unwrap();
        assert_eq!(connection.send(&[header]).await.unwrap().0, 401, "{header:?}");
        assert_eq!(connection.send(&[]).await.unwrap().0, 200);
    }
}

#[tokio::test]
async fn alternative_names_and_subjects_name_principal_and_tenant() {
    let uri = SanType::URI("spiffe://acme.example/ci".try_into().unwrap());
    let dns = SanType::DnsName("ci.acme.example".try_into().unwrap());
    let mail = SanType::Rfc822Name("ci@acme.example".try_into().unwrap());
    for (kind, name) in [
        (CertificateName::Uri, uri.clone()),
        (CertificateName::Dns, dns),
        (CertificateName::Email, mail),
    ] {
        let port = Port::open(false, settings(kind)).await;
        let right = port.authority.issue(also(name.clone()));
        assert_eq!(port.send(Some(&right)).await.unwrap().0, 200, "{kind:?}");
        let without = port.authority.issue(|params| params.subject_alt_names.clear());
        assert_eq!(port.send(Some(&without)).await.unwrap().0, 401, "{kind:?}");
        let two =
            port.authority.issue(|params| params.subject_alt_names = vec![name.clone(), name]);
        assert_eq!(port.send(Some(&two)).await.unwrap().0, 401, "{kind:?}");
    }
    let known = Token {
        secret: "spiffe://acme.example/ci".into(),
        tenant: TenantId::from("acme"),
        principal: "ci".into(),
        scopes: Scopes::READ,
        ..Token::default()
    };
    let listed = CertificateSettings {
        identities: vec![known],
        tenant: None,
        ..settings(CertificateName::Uri)
    };
    let port = Port::open(false, listed).await;
    let reader = port.authority.issue(also(uri));
    assert_eq!(port.send(Some(&reader)).await.unwrap().0, 403);
    let other = SanType::URI("spiffe://acme.example/other".try_into().unwrap());
    assert_eq!(port.send(Some(&port.authority.issue(also(other)))).await.unwrap().0, 401);
    let tenant = Some(CertificateTenant::Organization);
    let port =
        Port::open(false, CertificateSettings { tenant, ..settings(CertificateName::CommonName) })
            .await;
    let of_acme = port.authority.issue(|params| {
        params.distinguished_name.push(DnType::CommonName, "alice");
        params.distinguished_name.push(DnType::OrganizationName, "acme");
    });
    let params = json!({ "tenant": "acme", "message": message("hello")["message"] });
    let sent = port.connect(Some(&of_acme)).await.unwrap().call("SendMessage", &params, &[]).await;
    assert_eq!(sent.unwrap().0, 200);
    assert_eq!(port.send(Some(&port.authority.issue(named("alice")))).await.unwrap().0, 401);
}

#[tokio::test]
async fn a_revoked_certificate_ends_with_the_reload_of_the_list() {
    let port = Port::open(false, settings(CertificateName::CommonName)).await;
    let clients = |revoked| ClientCertificates {
        revoked: Some(port.authority.revocations(revoked)),
        ..port.authority.clients(false)
    };
    port.trust(clients(false));
    let alice = port.authority.issue(named("alice"));
    let mut connection = port.connect(Some(&alice)).await.unwrap();
    assert_eq!(connection.send(&[]).await.unwrap().0, 200);
    let feed = connection.0.send_request(
        Request::get("/events").header("host", "localhost").body(Full::default()).unwrap(),
    );
    let feed = feed.await.unwrap();
    assert_eq!(feed.status(), 200);
    port.trust(clients(true));
    // The open stream ends, the open connection is of no use, and a new one is refused.
    let _ = feed.into_body().collect().await;
    assert!(!matches!(connection.send(&[]).await, Ok((200, _))));
    assert!(port.send(Some(&alice)).await.is_err());
    let bob = port.authority.issue(|params| {
        params.distinguished_name.push(DnType::CommonName, "bob");
        params.serial_number = Some(SerialNumber::from(vec![8]));
    });
    assert_eq!(port.send(Some(&bob)).await.unwrap().0, 200);
}

#[tokio::test]
async fn the_card_declares_mutual_tls() {
    let made = CertificateName::CommonName;
    let hub = Hub::built(|builder| builder.authenticate(Certificates::new(settings(made)))).await;
    let card = hub.call(Call::get("/.well-known/agent-card.json").v1()).await.json();
    let schemes = card["securitySchemes"].as_object().unwrap();
    assert_eq!(schemes.keys().collect::<Vec<_>>(), ["mutualTLS"]);
    assert!(schemes["mutualTLS"]["mtlsSecurityScheme"].is_object());
    let old = hub.call(Call::get("/.well-known/agent.json")).await.json();
    assert_eq!(old["securitySchemes"]["mutualTLS"]["type"], "mutualTLS");
}
