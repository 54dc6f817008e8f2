//! Cards that the official SDKs signed. `cargo xtask test` installs them.

use std::{path::PathBuf, process::Stdio};

use herald_client::{CardKeys, Client, Error, Verdict, protocol::card::signature::SignedForm};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, answer},
    hub::{quick, soon},
    servers::installed,
};

/// The output of a script: keys, then cards.
async fn printed(program: PathBuf, script: PathBuf) -> (CardKeys, Vec<Value>) {
    let mut command = tokio::process::Command::new(program);
    let output = command.arg(script).stdin(Stdio::null()).stderr(Stdio::null()).output();
    let output = soon(output).await.unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    let keys = CardKeys::new().jwks(lines.next().unwrap()).unwrap();
    (keys, lines.map(|line| serde_json::from_str(line).unwrap()).collect())
}

async fn by_python() -> (CardKeys, Vec<Value>) {
    let sources = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/servers");
    printed(installed().join("python1/bin/python"), sources.join("python1/sign.py")).await
}

async fn by_javascript() -> (CardKeys, Vec<Value>) {
    printed("node".into(), installed().join("js1/sign.mjs")).await
}

/// Connects to an agent with this card, which has to be signed.
async fn required(card: &Value, keys: &CardKeys) -> Result<Client, Error> {
    let card = card.clone();
    let fake = Fake::start(move |_, _, _| answer(200, &card)).await;
    soon(quick().card_keys(keys.clone()).require_signature().connect(&fake.url())).await
}

// proves: SIG-001, SIG-009, SIG-013
#[tokio::test]
async fn cards_that_the_official_sdks_signed_are_verified_and_changed_ones_refused() {
    let (keys, cards) = by_python().await;
    assert_eq!(cards.len(), 6);
    let (js_keys, js_cards) = by_javascript().await;
    let all = cards.iter().map(|card| (card, &keys));
    let all: Vec<_> = all.chain(js_cards.iter().map(|card| (card, &js_keys))).collect();
    for (card, keys) in &all {
        let client = required(card, keys).await.unwrap();
        let Verdict::Verified { key, form } = client.verdict() else { panic!() };
        assert!(["ES256", "ES384", "RS256", "PS256", "EdDSA", "js"].contains(&key.as_str()));
        assert_eq!(
            form,
            SignedForm::WithoutEmpty,
            "the cards hold empty texts, which the SDKs drop"
        );
    }
    type Change = fn(&mut Value);
    let changes: [Change; 7] = [
        |card| card["name"] = json!("Signed"),
        |card| card["description"] = json!("more"),
        |card| card["supportedInterfaces"][0]["url"] = json!("http://127.0.0.2:1/"),
        |card| card["capabilities"]["streaming"] = json!(true),
        |card| card["securitySchemes"]["key"]["apiKeySecurityScheme"]["location"] = json!("query"),
        |card| card["securitySchemes"] = json!({}),
        |card| card["capabilities"]["extensions"][0]["params"]["new"] = json!(0),
    ];
    for (card, keys) in all {
        for change in changes {
            let mut card = card.clone();
            change(&mut card);
            let error = required(&card, keys).await.unwrap_err();
            assert!(error.is_untrusted() && error.to_string().contains("changed"), "{error}");
        }
    }
}
