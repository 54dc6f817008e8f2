//! Cards that Herald signed, in the verifiers of the official SDKs. `cargo xtask test` installs them.

use herald_server::SigningKey;

use crate::{
    clients::{javascript, python, run},
    support::{Herald, Options},
};

/// An agent with texts that canonical JSON writes in its own way, and empty values, which the SDKs leave out.
const CONFIG: &str = r#"
[card]
interfaces = ["jsonrpc", "http+json", "grpc"]
signing_keys = ["file:KEYS/new.pem", "file:KEYS/old.pem"]

[auth]
tokens = [{ token = "hush", tenant = "acme", principal = "ci" }]

[[agents]]
name = "echo"
kind = "echo"
description = "Signed “ä” 😀 \u2028 </script>"

[agents.extended_card]
description = "With more than everybody sees"

[[agents.extended_card.skills]]
id = "refund"
description = "Refunds an order"
"#;

async fn signing() -> (Herald, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    for id in ["new", "old"] {
        SigningKey::create(directory.path(), id).unwrap();
    }
    let config = CONFIG.replace("KEYS", directory.path().to_str().unwrap());
    (Herald::start(Options::config(&config)).await, directory)
}

// proves: SIG-001, SIG-006, SIG-009, SIG-013
#[tokio::test]
async fn the_python_sdk_verifies_them_and_refuses_changed_ones() {
    let (herald, _keys) = signing().await;
    let mut verifier = python("python1");
    verifier.script = verifier.script.map(|script| script.with_file_name("verify.py"));
    run(verifier, &[&format!("http://{}", herald.address), "hush"]).await;
    let mut verifier = python("python1");
    verifier.script = verifier.script.map(|script| script.with_file_name("verify.py"));
    run(verifier, &[&format!("http://{}/agents/echo", herald.address)]).await;
}

// proves: SIG-001, SIG-006, SIG-009, SIG-013
#[tokio::test]
async fn the_javascript_sdk_verifies_them_and_refuses_changed_ones() {
    let (herald, _keys) = signing().await;
    let mut verifier = javascript("js1");
    verifier.script = verifier.script.map(|script| script.with_file_name("verify.mjs"));
    run(verifier, &[&format!("http://{}", herald.address), "hush"]).await;
}
