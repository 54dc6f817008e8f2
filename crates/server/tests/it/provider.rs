//! A small OpenID Connect provider on loopback: discovery document, key set, real signatures.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use herald_protocol::{Timestamp, locks::lock};
use jsonwebtoken::{Algorithm, EncodingKey, crypto, jwk::Jwk};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

/// The provider.
#[derive(Debug)]
pub(crate) struct Provider {
    address: SocketAddr,
    state: Arc<Mutex<Published>>,
    _served: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct Published {
    keys: Vec<Value>,
    /// The issuer in the discovery document, if not the own one.
    issuer: Option<String>,
    down: bool,
    requests: Vec<String>,
}

/// A key that signs tokens.
#[derive(Debug)]
pub(crate) struct Signer {
    pub(crate) kid: &'static str,
    pub(crate) algorithm: Algorithm,
    pub(crate) key: EncodingKey,
}

impl Provider {
    pub(crate) async fn start(signers: &[&Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(Published::default()));
        let served = TaskTracker::new().spawn(serve(listener, Arc::clone(&state)));
        let provider = Self { address, state, _served: AbortOnDropHandle::new(served) };
        provider.publish(signers.iter().map(|signer| signer.jwk()).collect());
        provider
    }

    pub(crate) fn issuer(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn publish(&self, keys: Vec<Value>) {
        lock(&self.state).keys = keys;
    }

    pub(crate) fn set_down(&self, down: bool) {
        lock(&self.state).down = down;
    }

    pub(crate) fn claim_to_be(&self, issuer: &str) {
        lock(&self.state).issuer = Some(issuer.to_owned());
    }

    /// The requests for a path so far.
    pub(crate) fn requests(&self, path: &str) -> usize {
        lock(&self.state).requests.iter().filter(|one| *one == path).count()
    }

    /// The claims of a good token.
    pub(crate) fn claims(&self) -> Value {
        json!({
            "iss": self.issuer(), "aud": "herald", "sub": "alice", "tenant": "acme",
            "scope": "openid send read cancel", "iat": seconds(-5), "exp": seconds(600),
        })
    }
}

/// A time so many seconds from now, as in a token.
pub(crate) fn seconds(from_now: i64) -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let now = Timestamp::from_millis(now.as_millis() as i64);
    now.as_millis() / 1000 + from_now
}

impl Signer {
    pub(crate) fn rsa(kid: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap();
        // PKCS #8 has 26 bytes before the key of PKCS #1.
        let key = EncodingKey::from_rsa_der(&pair.serialized_der()[26..]);
        Self { kid, algorithm: Algorithm::RS256, key }
    }

    pub(crate) fn ec(kid: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let key = EncodingKey::from_ec_der(pair.serialized_der());
        Self { kid, algorithm: Algorithm::ES256, key }
    }

    pub(crate) fn p384(kid: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P384_SHA384).unwrap();
        let key = EncodingKey::from_ec_der(pair.serialized_der());
        Self { kid, algorithm: Algorithm::ES384, key }
    }

    pub(crate) fn ed(kid: &'static str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ED25519).unwrap();
        // PKCS #8 without the public key, which follows in this form.
        let mut der = pair.serialized_der()[..48].to_vec();
        (der[1], der[4]) = (46, 0);
        let key = EncodingKey::from_ed_der(&der);
        Self { kid, algorithm: Algorithm::EdDSA, key }
    }

    /// The public key, with its id and use.
    pub(crate) fn jwk(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk
    }

    pub(crate) fn header(&self) -> Value {
        json!({ "alg": format!("{:?}", self.algorithm), "typ": "JWT", "kid": self.kid })
    }

    pub(crate) fn token(&self, claims: &Value) -> String {
        self.sign(&self.header().to_string(), &claims.to_string())
    }

    /// Signs any two texts as if they were a header and claims.
    pub(crate) fn sign(&self, header: &str, claims: &str) -> String {
        sign(&self.key, self.algorithm, header, claims)
    }
}

pub(crate) fn sign(key: &EncodingKey, algorithm: Algorithm, header: &str, claims: &str) -> String {
    let message = format!("{}.{}", encode(header), encode(claims));
    let signature = crypto::sign(message.as_bytes(), key, algorithm).unwrap();
    format!("{message}.{signature}")
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

async fn serve(listener: TcpListener, state: Arc<Mutex<Published>>) {
    let tasks = TaskTracker::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tasks.spawn(answer(stream, Arc::clone(&state)));
    }
}

/// Answers one request and hangs up.
async fn answer(mut stream: TcpStream, state: Arc<Mutex<Published>>) {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let mut buffer = [0; 1024];
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => head.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let address = stream.local_addr().unwrap();
    let (status, body) = {
        let mut state = lock(&state);
        state.requests.push(path.clone());
        match &*path {
            _ if state.down => ("503 Service Unavailable", String::new()),
            "/.well-known/openid-configuration" => {
                let own = format!("http://{address}");
                let issuer = state.issuer.as_ref().unwrap_or(&own);
                let document = json!({ "issuer": issuer, "jwks_uri": format!("{own}/jwks") });
                ("200 OK", document.to_string())
            }
            "/jwks" => ("200 OK", json!({ "keys": state.keys }).to_string()),
            _ => ("404 Not Found", String::new()),
        }
    };
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = stream.write_all(response.as_bytes()).await;
    let _ = stream.shutdown().await;
}
