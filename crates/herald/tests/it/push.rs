//! Tests of `[push]`: generated keys, reload and mistakes.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::json;

use crate::{
    http::Call,
    support::{Herald, Options, SOON, eventually},
};

/// The ids of the published keys.
async fn keys(herald: &Herald) -> Vec<String> {
    let set = herald.call(&Call::get("/.well-known/jwks.json")).await.json();
    let keys = set["keys"].as_array().unwrap().iter();
    keys.map(|key| {
        assert_eq!((&key["kty"], &key["crv"]), (&"OKP".into(), &"Ed25519".into()));
        key["kid"].as_str().unwrap().to_owned()
    })
    .collect()
}

#[tokio::test]
async fn the_first_start_generates_private_keys_and_the_next_one_uses_them() {
    let mut herald = Herald::start(Options::default()).await;
    let files = ["push.key", "push.pem"].map(|name| herald.database().with_file_name(name));
    let read = || files.each_ref().map(|file| fs::read(file).unwrap());
    for file in &files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (before, published) = (read(), keys(&herald).await);
    assert_eq!(published.len(), 1);
    herald.restart_cleanly().await;
    assert_eq!(read(), before);
    assert_eq!(keys(&herald).await, published);
}

#[tokio::test]
async fn keys_are_replaced_on_sighup() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("herald.toml");
    let key = |name: &str| {
        let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let path = home.path().join(format!("{name}.pem"));
        fs::write(&path, pair.serialize_pem()).unwrap();
        format!("\"file:{}\"", path.display())
    };
    let (old, new) = (key("old"), key("new"));
    let write = |keys: &[&str]| {
        fs::write(&file, format!("[push]\nsigning_keys = [{}]\n", keys.join(", "))).unwrap();
    };
    write(&[&old]);
    let options = Options::default().arguments(["--config", file.to_str().unwrap()]);
    let herald = Herald::start(options).await;
    assert_eq!(keys(&herald).await, ["old"]);
    assert!(!herald.database().with_file_name("push.pem").exists());
    write(&[&old, &new]);
    herald.signal("HUP").await;
    eventually(SOON, "both keys are live", async || keys(&herald).await == ["old", "new"]).await;
    assert!(!herald.log().contains("need a restart"), "{}", herald.log());
    fs::write(&file, "[push]\ntimeout = \"1h\"\n").unwrap();
    herald.signal("HUP").await;
    let refused = async || herald.log().contains("timeout must be between 1s and 30s");
    eventually(SOON, "the mistake is logged", refused).await;
    assert_eq!(keys(&herald).await, ["old", "new"]);
}

#[tokio::test]
async fn mistakes_in_push_are_refused_with_their_line() {
    for (line, word) in [
        ("allowed_hosts = [\"a b\"]", "allowed_hosts"),
        ("allowed_cidrs = [\"10/8\"]", "10.1.0.0/16"),
        ("allowed_ports = [0]", "8000-8999"),
        ("allowed_ports = [\"9-8\"]", "8000-8999"),
        ("signing_secrets = [\"secret\"]", "whsec_"),
        ("signing_keys = [\"key.pem\"]", "file:PATH"),
        ("signing_keys = [\"file:/none.pem\"]", "/none.pem"),
        ("signing_keys = [\"env:HERALD_TEST_NOT_SET\"]", "HERALD_TEST_NOT_SET"),
        ("secrets_key = \"c2hvcnQ=\"", "openssl rand"),
        ("timeout = \"31s\"", "30s"),
        ("retry = [\"0s\"]", "1s and 7d"),
        ("https_onyl = true", "https_only"),
    ] {
        let refused = Options::config(format!("[push]\n{line}\n")).refused().await;
        for word in ["line 2", word] {
            assert!(refused.stderr.contains(word), "no {word} for {line}: {}", refused.stderr);
        }
    }
    let variable = Options::default().environment("PUSH_NOTIFICATION_ALLOWED_HOSTS", "ok, a b");
    let refused = variable.refused().await;
    assert!(refused.stderr.contains("\"a b\""), "{}", refused.stderr);
}

#[tokio::test]
async fn webhooks_are_refused_for_an_agent_without_them_and_for_forbidden_addresses() {
    let agents = "[[agents]]\nname = \"with\"\nkind = \"echo\"\n\n[[agents]]\nname = \"without\"\nkind = \"echo\"\npush = false\n";
    let herald = Herald::start(Options::config(agents)).await;
    let send = |agent: &str, url: &str| {
        let webhook = json!({ "url": url, "token": "canary-7c5e-push" });
        let message = json!({
            "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": "hello" }] },
            "configuration": { "taskPushNotificationConfig": webhook },
        });
        Call::post(format!("/agents/{agent}/message:send"), &message).header("a2a-version", "1.0")
    };
    for (agent, expected) in [("with", true), ("without", false)] {
        let path = format!("/agents/{agent}/.well-known/agent-card.json");
        let card = herald.call(&Call::get(&path)).await.json();
        assert_eq!(card["capabilities"]["pushNotifications"], expected, "{agent}");
    }
    let accepted = herald.call(&send("with", "https://receiver.invalid/hook")).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text());
    let without = herald.call(&send("without", "https://receiver.invalid/hook")).await;
    assert_eq!(without.status, 400, "{}", without.text());
    assert!(without.text().contains("PUSH_NOTIFICATION_NOT_SUPPORTED"), "{}", without.text());
    for (url, word) in [
        ("http://169.254.169.254/latest/meta-data", "allowed_cidrs"),
        ("http://10.0.0.1/hook", "allowed_cidrs"),
        ("http://localhost/hook", "allowed_hosts"),
        ("http://internal-db:5432/hook", "allowed_ports"),
        ("http://internal-db/hook", "allowed_hosts"),
        ("ftp://receiver.invalid/", "https://"),
    ] {
        let refused = herald.call(&send("with", url)).await;
        assert_eq!(refused.status, 400, "{url}");
        assert!(refused.text().contains(word), "{url}: {}", refused.text());
    }
}
