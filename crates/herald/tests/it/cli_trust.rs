//! Tests of trust in the client verbs: server certificates, client certificates, signed cards.

use std::{fs, net::SocketAddr, path::Path};

use herald_protocol::{
    AgentCard,
    card::{
        AgentCardSignature,
        signature::{ProtectedHeader, SignedForm, payload, signing_input},
    },
};
use jsonwebtoken::{Algorithm, EncodingKey, crypto, jwk::Jwk};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::tempdir;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    authority::Authority,
    cli_support::{Fake, answer, card, cli, result, task},
};

/// An agent behind TLS. It accepts every client, or only those for whom `clients` vouches.
struct Secured {
    url: String,
    fake: Fake,
    _front: JoinSet<()>,
}

async fn secured(server: &Authority, clients: Option<&Authority>) -> Secured {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let own = url.clone();
    let fake = Fake::start(move |_, request| {
        if request.is_card() {
            answer(&card(&own))
        } else {
            result(request, &json!({ "task": task("COMPLETED") }))
        }
    })
    .await;
    let behind: SocketAddr = fake.url.strip_prefix("http://").unwrap().parse().unwrap();
    let acceptor = server.acceptor(clients);
    let mut front = JoinSet::new();
    front.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            connections.spawn(async move {
                let mut stream = acceptor.accept(stream).await?;
                copy_bidirectional(&mut stream, &mut TcpStream::connect(behind).await?).await
            });
        }
    });
    Secured { url, fake, _front: front }
}

#[tokio::test]
async fn certificates_are_checked_unless_insecure_warns() {
    let authority = Authority::new();
    let agent = secured(&authority, None).await;
    let send = ["send", "x", "-a", &agent.url];
    let error = cli(send).fails(3, "A2ACLI_ERR_UNREACHABLE").await;
    assert!(error["hint"].as_str().unwrap().contains("--insecure"), "{error}");
    assert!(agent.fake.cards().is_empty(), "the card was asked for");

    let blind = cli(send.into_iter().chain(["--insecure"])).ok().await;
    assert_eq!(blind.stderr.matches("Warning: ").count(), 1, "{blind:?}");
    let more = ["--insecure", "--bearer", "canary-7c5e-h"];
    let exposed = cli(send.into_iter().chain(more)).ok().await;
    assert!(exposed.stderr.contains("Warning: SECURITY: "), "{exposed:?}");
    assert!(!exposed.stderr.contains("canary-7c5e-h"), "{exposed:?}");
    let careful = cli(send.into_iter().chain(["--insecure=false"]));
    careful.env("A2ACLI_INSECURE", "true").fails(3, "A2ACLI_ERR_UNREACHABLE").await;

    let home = tempdir().unwrap();
    fs::write(home.path().join("ca.pem"), authority.pem()).unwrap();
    let trusted = cli(send.into_iter().chain(["--ca-cert", "ca.pem"])).at(home.path()).ok().await;
    assert_eq!((trusted.field("State"), trusted.stderr.as_str()), ("COMPLETED", ""));
}

#[tokio::test]
async fn a_client_certificate_is_sent_on_request() {
    let (server, clients) = (Authority::new(), Authority::new());
    let agent = secured(&server, Some(&clients)).await;
    let home = tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text).unwrap();
    let (certificate, key) = clients.vouch("me");
    write("ca.pem", &server.pem());
    write("me.pem", &certificate.pem());
    write("me.key", &key.serialize_pem());
    write("both.pem", &format!("{}{}", certificate.pem(), key.serialize_pem()));
    let send = ["send", "x", "-a", &agent.url, "--ca-cert", "ca.pem"];
    cli(send).at(home.path()).fails(3, "A2ACLI_ERR_UNREACHABLE").await;
    for own in
        [&["--client-cert", "me.pem", "--client-key", "me.key"][..], &["--client-cert", "both.pem"]]
    {
        let shown = cli(send.into_iter().chain(own.iter().copied())).at(home.path()).ok().await;
        assert_eq!(shown.field("State"), "COMPLETED");
    }
    let missing = cli(send.into_iter().chain(["--client-cert", "nobody.pem"])).at(home.path());
    missing.fails(2, "A2ACLI_ERR_USAGE").await;
    for (own, said) in [
        (&["--client-cert", "me.pem"][..], "me.pem has no private key"),
        (
            &["--client-cert", "me.key", "--client-key", "me.key"],
            "me.key (--client-cert) has no certificate",
        ),
        (&["--client-cert", "me.pem", "--client-key", "ca.pem"], "ca.pem has no private key"),
    ] {
        let refused = cli(send.into_iter().chain(own.iter().copied())).at(home.path());
        let error = refused.fails(2, "A2ACLI_ERR_USAGE").await;
        assert!(error["message"].as_str().unwrap().contains(said), "{own:?}: {error}");
    }
    let status = ["status", "--server", &agent.url, "--ca-cert", "me.key"];
    let error = cli(status).at(home.path()).fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(error["message"].as_str().unwrap().contains("me.key (--ca-cert)"), "{error}");
}

/// Writes a card that `key` has signed, and returns the key's public half as a set.
fn sign(directory: &Path, key: &EncodingKey) -> Value {
    let mut card: AgentCard =
        serde_json::from_str(&card("http://127.0.0.1:1").to_string()).unwrap();
    let protected = ProtectedHeader::new("ES256", "k-1").encode();
    let input = signing_input(&protected, &payload(&card, SignedForm::Specified));
    let signature = crypto::sign(input.as_bytes(), key, Algorithm::ES256).unwrap();
    card.signatures.push(AgentCardSignature { protected, signature, header: None });
    fs::write(directory.join("card.json"), serde_json::to_string(&card).unwrap()).unwrap();
    let mut jwk = Jwk::from_encoding_key(key, Algorithm::ES256).unwrap();
    jwk.common.key_id = Some("k-1".to_owned());
    let jwk: Value = serde_json::from_slice(&serde_json::to_vec(&jwk).unwrap()).unwrap();
    json!({ "keys": [jwk] })
}

#[tokio::test]
async fn a_signature_is_verified_unverifiable_or_absent() {
    let home = tempdir().unwrap();
    let fresh = || EncodingKey::from_ec_der(KeyPair::generate().unwrap().serialized_der());
    let keys = sign(home.path(), &fresh());
    fs::write(home.path().join("keys.json"), keys.to_string()).unwrap();
    let get = |card: &str, more: &[&str]| {
        let all = ["card", "get", card].into_iter().chain(more.iter().copied());
        cli(all).at(home.path())
    };
    let verified = get("card.json", &["--card-keys", "keys.json"]).ok().await;
    assert_eq!(verified.field("Signature"), "verified by k-1");
    // Members that the signature does not cover are not shown.
    let text = fs::read_to_string(home.path().join("card.json")).unwrap();
    let more = text.replacen('{', r#"{"evil":{"payTo":"me"},"#, 1);
    fs::write(home.path().join("more.json"), more).unwrap();
    let more = get("more.json", &["--card-keys", "keys.json", "-o", "json"]).ok().await;
    assert_eq!(more.stderr, "Signature: verified by k-1\n");
    assert!(!more.stdout.contains("payTo"), "{more:?}");
    assert!(get("more.json", &["-o", "json"]).ok().await.stdout.contains("payTo"));
    let unknown = get("card.json", &[]).ok().await;
    assert!(unknown.field("Signature").starts_with("unverifiable, "), "{unknown:?}");
    // One character of the card is changed.
    let text = fs::read_to_string(home.path().join("card.json")).unwrap();
    fs::write(home.path().join("changed.json"), text.replace("An agent", "an agent")).unwrap();
    let changed = get("changed.json", &["--card-keys", "keys.json"]).ok().await;
    assert!(changed.field("Signature").starts_with("unverifiable, "), "{changed:?}");
    fs::write(home.path().join("plain.json"), card("http://127.0.0.1:1").to_string()).unwrap();
    let absent = get("plain.json", &["--card-keys", "keys.json"]).ok().await;
    assert_eq!(absent.field("Signature"), "absent");
    let json = get("plain.json", &["-o", "json"]).ok().await;
    assert_eq!(json.stderr, "", "nobody asked, and agents need not sign");
    let json = get("plain.json", &["-o", "json", "--card-keys", "keys.json"]).ok().await;
    assert_eq!(json.stderr, "Signature: absent\n");
    let json = get("card.json", &["-o", "json"]).ok().await;
    assert!(json.stderr.starts_with("Signature: unverifiable, "), "{json:?}");
    for (card, good) in [("card.json", true), ("changed.json", false), ("plain.json", false)] {
        let strict = ["--card-keys", "keys.json", "--require-signature"];
        if good {
            drop(get(card, &strict).ok().await);
        } else {
            drop(get(card, &strict).fails(1, "A2ACLI_ERR_CARD_INVALID").await);
        }
    }
}
