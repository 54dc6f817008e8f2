//! Signed cards: keys, rotation, and the client's verdict.

use std::{path::Path, sync::Arc};

use herald_client::{CardKeys, Client, Verdict, protocol::card::signature::SignedForm};
use herald_protocol::{AgentCard, card::signature::ProtectedHeader};
use herald_server::{Config, Server, ServerBuildError, SigningKey, Token};
use serde_json::{Value, json};

use crate::{
    agents::Script,
    client::Call,
    hub::{Hub, engine},
};

const CARD: &str = "/.well-known/agent-card.json";
const KEYS: &str = "/.well-known/jwks.json";

fn key(directory: &Path, id: &str) -> Arc<SigningKey> {
    let path = directory.join(format!("{id}.pem"));
    if !path.exists() {
        SigningKey::create(directory, id).unwrap();
    }
    Arc::new(SigningKey::read(&path).unwrap())
}

async fn keys(hub: &Hub) -> CardKeys {
    CardKeys::new().jwks(&hub.call(Call::get(KEYS)).await.body).unwrap()
}

fn header(card: &AgentCard) -> ProtectedHeader {
    card.signatures[0].protected_header().unwrap()
}

/// A client that accepts signed cards only.
async fn strict(hub: &Hub, path: &str, keys: &CardKeys) -> Result<Client, herald_client::Error> {
    let client = Client::builder().card_keys(keys.clone()).require_signature();
    client.connect(&hub.url(path)).await
}

// proves: SIG-001, SIG-003, SIG-007, SIG-008, SIG-009, SIG-010
#[tokio::test]
async fn cards_are_signed_and_our_client_verifies_them() {
    let directory = tempfile::tempdir().unwrap();
    let token = Token { secret: "hush".into(), principal: "ci".into(), ..Token::default() };
    for tokens in [Vec::new(), vec![token]] {
        let signing_keys = vec![key(directory.path(), "cards")];
        let forms = if tokens.is_empty() { 1 } else { 2 };
        let hub = Hub::with(Config { signing_keys, tokens, ..Config::default() }).await;
        let keys = keys(&hub).await;
        for path in ["", "/agents/files"] {
            let client = strict(&hub, path, &keys).await.unwrap();
            let Verdict::Verified { key, form } = client.verdict() else { panic!() };
            assert_eq!((key.as_str(), form), ("cards", SignedForm::Specified));
            let signatures = client.card().signatures;
            assert_eq!(signatures.len(), forms, "a requirement without scopes is empty");
            let header = header(&client.card());
            assert_eq!((header.alg.as_str(), header.kid.as_str()), ("ES256", "cards"));
            assert_eq!((header.typ.as_deref(), header.jku), (Some("JOSE"), None));
            assert_eq!(hub.call(Call::get(format!("{path}{KEYS}"))).await.status(), 200);
        }
        let (hybrid, pure) =
            (hub.call(Call::get(CARD)).await, hub.call(Call::get(CARD).v1()).await);
        assert_eq!(hybrid.json()["signatures"], pure.json()["signatures"]);
        let again = hub.call(Call::get(CARD)).await;
        assert_eq!(again.body, hybrid.body, "a card is signed once");
        let other = hub.call(Call::get(CARD).header("Host", "localhost")).await;
        assert_ne!(other.json()["signatures"], hybrid.json()["signatures"]);
    }
    let (hub, other) = (Hub::start().await, CardKeys::new());
    assert_eq!(hub.call(Call::get(KEYS)).await.status(), 404);
    assert!(hub.call(Call::get(CARD)).await.json().get("signatures").is_none());
    assert!(strict(&hub, "", &other).await.unwrap_err().is_untrusted());
}

// proves: SIG-002, SIG-009, SIG-011
#[tokio::test]
async fn a_new_key_signs_while_the_old_one_is_still_published() {
    let directory = tempfile::tempdir().unwrap();
    let (old, new) = (key(directory.path(), "old"), key(directory.path(), "new"));
    let before =
        Hub::with(Config { signing_keys: vec![Arc::clone(&old)], ..Config::default() }).await;
    let earlier = before.call(Call::get(CARD).v1()).await;
    let rotated = Hub::with(Config { signing_keys: vec![new, old], ..Config::default() }).await;
    let published = rotated.call(Call::get(KEYS)).await;
    assert_eq!(published.header("content-type"), Some("application/json"));
    assert_eq!(published.header("access-control-allow-origin"), Some("*"));
    let listed = published.json();
    let ids: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|key| &key["kid"]).collect();
    assert_eq!(ids, ["new", "old"]);
    let key = &listed["keys"][0];
    assert_eq!((&key["kty"], &key["crv"]), (&json!("EC"), &json!("P-256")));
    assert_eq!((&key["use"], &key["alg"]), (&json!("sig"), &json!("ES256")));
    assert!(key.get("d").is_none(), "the private key stays private");
    let keys = keys(&rotated).await;
    let client = strict(&rotated, "", &keys).await.unwrap();
    assert!(matches!(client.verdict(), Verdict::Verified { key, .. } if key == "new"));
    // A card that was cached before the rotation.
    let cached: AgentCard = serde_json::from_slice(&earlier.body).unwrap();
    let client = Client::builder().card_keys(keys.clone()).require_signature();
    let client = client.card(cached).unwrap();
    assert!(matches!(client.verdict(), Verdict::Verified { key, .. } if key == "old"));
    assert!(strict(&rotated, "", &keys.revoke("new")).await.is_err());
}

// proves: SIG-012
#[tokio::test]
async fn signatures_name_the_url_of_their_keys_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let config = Config {
        signing_keys: vec![key(directory.path(), "cards")],
        public_url: Some("https://agents.example/herald/".into()),
        key_url: true,
        ..Config::default()
    };
    let hub = Hub::with(config).await;
    let card: Value = hub.call(Call::get(CARD)).await.json();
    let card: AgentCard = serde_json::from_value(card).unwrap();
    let url = "https://agents.example/herald/.well-known/jwks.json";
    assert_eq!(header(&card).jku.as_deref(), Some(url));
}

#[tokio::test]
async fn keys_with_the_same_id_and_a_key_url_without_a_public_url_are_mistakes() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let build = |config: Config| Server::builder(engine(&Script::new())).config(config).build();
    let signing_keys = vec![key(one.path(), "cards"), key(two.path(), "cards")];
    let error = build(Config { signing_keys, ..Config::default() }).unwrap_err();
    assert_eq!(error, ServerBuildError::SameKey("cards".into()));
    let signing_keys = vec![key(one.path(), "cards")];
    let error = build(Config { signing_keys, key_url: true, ..Config::default() }).unwrap_err();
    assert_eq!(error, ServerBuildError::KeyUrl);
}
