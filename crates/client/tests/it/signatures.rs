//! Signatures of cards: valid and forged ones.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use herald_client::{
    AgentCard, CardKeys, Client, Verdict,
    protocol::card::{
        AgentCardSignature,
        signature::{ProtectedHeader, SignedForm, payload, signing_input},
    },
};
use http_body_util::Full;
use jsonwebtoken::{Algorithm, EncodingKey, crypto, jwk::Jwk};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, answer, card, result, task},
    hub::{quick, soon},
};

/// A key pair of the test.
struct Signer {
    kid: &'static str,
    secret: EncodingKey,
}

impl Signer {
    fn new(kid: &'static str) -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        Self { kid, secret: EncodingKey::from_ec_der(key.serialized_der()) }
    }

    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.secret, Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(self.kid.to_owned());
        serde_json::from_slice(&serde_json::to_vec(&jwk).unwrap()).unwrap()
    }

    fn sign(&self, card: &mut AgentCard, change: impl FnOnce(&mut ProtectedHeader)) {
        let mut header = ProtectedHeader::new("ES256", self.kid);
        change(&mut header);
        let protected = header.encode();
        let input = signing_input(&protected, &payload(card, SignedForm::Specified));
        let signature = crypto::sign(input.as_bytes(), &self.secret, Algorithm::ES256).unwrap();
        card.signatures.push(AgentCardSignature { protected, signature, header: None });
    }
}

fn keys(of: &[Value]) -> CardKeys {
    CardKeys::new().jwks(json!({ "keys": of }).to_string()).unwrap()
}

fn plain() -> AgentCard {
    let card = card(&[("http://127.0.0.1:1/", "JSONRPC", "1.0")]);
    serde_json::from_str(&card.to_string()).unwrap()
}

fn judged(card: &AgentCard, keys: CardKeys) -> Verdict {
    Client::builder().card_keys(keys).card(card.clone()).unwrap().verdict()
}

// proves: SIG-002, SIG-009
#[tokio::test]
async fn one_valid_signature_of_several_is_enough() {
    let (first, second) = (Signer::new("first"), Signer::new("second"));
    let mut card = plain();
    first.sign(&mut card, |_| {});
    second.sign(&mut card, |_| {});
    let by = |key: &str| Verdict::Verified { key: key.into(), form: SignedForm::Specified };
    assert_eq!(judged(&card, keys(&[first.jwk(), second.jwk()])), by("first"));
    assert_eq!(judged(&card, keys(&[second.jwk()])), by("second"));
    card.signatures[0].signature = card.signatures[1].signature.clone();
    assert_eq!(judged(&card, keys(&[first.jwk(), second.jwk()])), by("second"));
    assert!(matches!(judged(&card, keys(&[first.jwk()])), Verdict::Invalid { .. }));
}

// proves: SIG-010
#[tokio::test]
async fn a_signature_is_required_only_if_configured() {
    let signer = Signer::new("k");
    let (unsigned, mut signed, mut changed) = (plain(), plain(), plain());
    signer.sign(&mut signed, |_| {});
    signer.sign(&mut changed, |_| {});
    changed.name.push('!');
    let unknown = Verdict::UnknownKey { keys: vec!["k".into()] };
    for (card, keys, expected) in [
        (&unsigned, keys(&[signer.jwk()]), Verdict::Unsigned),
        (&signed, CardKeys::new(), unknown),
        (
            &changed,
            keys(&[signer.jwk()]),
            Verdict::Invalid { reason: "the signature of key \"k\" is not over it".into() },
        ),
    ] {
        assert_eq!(judged(card, keys.clone()), expected);
        let builder = Client::builder().card_keys(keys).require_signature();
        assert!(builder.card(card.clone()).unwrap_err().is_untrusted());
    }
    let error = Client::builder().require_signature().card(signed.clone()).unwrap_err();
    assert!(error.to_string().contains("card_keys"), "{error}");
    let builder = Client::builder().card_keys(keys(&[signer.jwk()])).require_signature();
    assert!(builder.card(signed).unwrap().verdict().is_verified());
}

#[tokio::test]
async fn later_cards_need_a_signature_too() {
    let signer = Signer::new("k");
    let jwks = keys(&[signer.jwk()]);
    let fake = Fake::start(move |url, before, request| {
        let mut signed: AgentCard =
            serde_json::from_str(&card(&[(url, "JSONRPC", "1.0")]).to_string()).unwrap();
        signer.sign(&mut signed, |_| {});
        let mut value: Value =
            serde_json::from_slice(&serde_json::to_vec(&signed).unwrap()).unwrap();
        match (request.is_card(), before) {
            (true, 0) => {}
            (true, _) => value["name"] = json!("changed"),
            (false, 0) => return result(request, &task("t", "COMPLETED")),
            (false, _) => {
                value["description"] = json!("extended");
                return result(request, &value);
            }
        }
        answer(200, &value)
    })
    .await;
    let builder = quick().card_keys(jwks).require_signature();
    let client = soon(builder.connect(&fake.url())).await.unwrap();
    client.get("t").await.unwrap();
    assert!(soon(client.refresh()).await.unwrap_err().is_untrusted());
    assert!(soon(client.extended_card()).await.unwrap_err().is_untrusted());
    assert_eq!(client.card().name, "fake", "the card that was good stays");
}

// proves: SIG-011
#[tokio::test]
async fn keys_outside_their_validity_are_not_used() {
    let signer = Signer::new("k");
    let mut card = plain();
    signer.sign(&mut card, |_| {});
    let with = |name: &str, value: Value| {
        let mut jwk = signer.jwk();
        jwk[name] = value;
        keys(&[jwk])
    };
    let (long_ago, far_away) = (json!(1_000_000_000), json!(9_999_999_999u64));
    assert!(judged(&card, with("exp", far_away.clone())).is_verified());
    assert!(judged(&card, with("nbf", long_ago.clone())).is_verified());
    let unknown = Verdict::UnknownKey { keys: vec!["k".into()] };
    for keys in [
        with("exp", long_ago),
        with("nbf", far_away),
        with("revoked", json!({ "revoked_at": 1 })),
        keys(&[signer.jwk()]).revoke("k"),
    ] {
        assert_eq!(judged(&card, keys), unknown);
    }
}

// proves: SIG-014
#[tokio::test]
async fn a_signature_cannot_choose_the_algorithm_of_a_key() {
    let signer = Signer::new("k");
    let judge = |change: fn(&mut ProtectedHeader), jwk: Value| {
        let mut card = plain();
        signer.sign(&mut card, change);
        judged(&card, keys(&[jwk]))
    };
    assert!(judge(|_| {}, signer.jwk()).is_verified());
    let changes: [fn(&mut ProtectedHeader); 4] = [
        |header| header.alg = "none".into(),
        |header| header.alg = "HS256".into(),
        |header| header.alg = "RS256".into(),
        |header| header.alg = "ES384".into(),
    ];
    for change in changes {
        assert!(matches!(judge(change, signer.jwk()), Verdict::Invalid { .. }));
    }
    for (name, value) in
        [("use", json!("enc")), ("key_ops", json!(["sign"])), ("alg", json!("ES384"))]
    {
        let mut jwk = signer.jwk();
        jwk[name] = value;
        assert!(matches!(judge(|_| {}, jwk), Verdict::Invalid { .. }), "{name}");
    }
    // The public key used as a shared secret, which everybody knows.
    let mut card = plain();
    let protected = ProtectedHeader::new("HS256", "k").encode();
    let input = signing_input(&protected, &payload(&card, SignedForm::Specified));
    let shared = EncodingKey::from_secret(signer.jwk()["x"].as_str().unwrap().as_bytes());
    let signature = crypto::sign(input.as_bytes(), &shared, Algorithm::HS256).unwrap();
    card.signatures.push(AgentCardSignature { protected, signature, header: None });
    assert!(matches!(judged(&card, keys(&[signer.jwk()])), Verdict::Invalid { .. }));
}

// proves: SIG-009, SIG-012
#[tokio::test]
async fn keys_are_fetched_only_over_https_from_trusted_origins() {
    let signer = Signer::new("k");
    let asked = Arc::new(Mutex::new(Vec::new()));
    let connect = |jku: &'static str, place: Option<&str>| {
        let mut card = plain();
        signer.sign(&mut card, |header| header.jku = Some(jku.into()));
        let card = serde_json::to_vec(&card).unwrap();
        let jwks = json!({ "keys": [signer.jwk()] }).to_string();
        let seen = Arc::clone(&asked);
        let service = tower::service_fn(move |request: http::Request<Full<Bytes>>| {
            let url = request.uri().to_string();
            let body = if url.contains("agent-card") { card.clone() } else { jwks.clone().into() };
            seen.lock().unwrap().push((url, request.headers().clone()));
            async move {
                Ok::<_, std::convert::Infallible>(http::Response::new(Full::new(Bytes::from(body))))
            }
        });
        let keys = match place {
            Some(place) => CardKeys::new().fetched_from(place).unwrap(),
            None => CardKeys::new(),
        };
        let builder = quick().service(service).card_keys(keys);
        builder
            .credential(herald_client::Credential::bearer("hunter2"))
            .trust_origin("http://127.0.0.1:1")
            .connect("https://agent.example")
    };
    let good = "https://keys.example/agents.json?v=1";
    let client = connect(good, Some("https://keys.example")).await.unwrap();
    assert!(client.verdict().is_verified());
    {
        let asked = asked.lock().unwrap();
        let (url, headers) = asked.last().unwrap();
        assert_eq!((url.as_str(), headers.get("authorization")), (good, None));
    }
    let unknown = Verdict::UnknownKey { keys: vec!["k".into()] };
    for (jku, place) in [
        (good, None),
        (good, Some("https://other.example")),
        ("http://keys.example/agents.json", Some("https://keys.example")),
        ("https://keys.example.evil.example/", Some("https://keys.example")),
    ] {
        asked.lock().unwrap().clear();
        assert_eq!(connect(jku, place).await.unwrap().verdict(), unknown, "{jku}");
        assert_eq!(asked.lock().unwrap().len(), 1, "only the card was fetched");
    }
    assert!(CardKeys::new().fetched_from("http://keys.example").unwrap_err().is_setup());
    assert!(CardKeys::new().jwks("[]").unwrap_err().is_setup());
}
