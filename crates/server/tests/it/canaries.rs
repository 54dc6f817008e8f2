//! Tests of the canaries themselves. Apart from the canaries, which other test binaries share.

use crate::canary::{check_log, leak, scan, secret, watch_log};

#[test]
fn a_secret_is_recognised_in_every_encoding() {
    for text in [
        "Bearer canary-7c5e-key",
        r#"{"header":"canary-7c5e\/key"}"#,
        "/?key=canary-7c5e%2Fkey",
        // In base64, behind zero, one and two other bytes.
        "Y2FuYXJ5LTdjNWUta2V5",
        "YWNhbmFyeS03YzVlLWtleQ==",
        "YWJjYW5hcnktN2M1ZS1rZXk=",
    ] {
        assert!(leak(text).is_some(), "{text}");
    }
    assert_eq!(leak("canary-7c5 and a canary"), None);
}

#[test]
#[should_panic(expected = "a secret is in the response: Bearer canary-7c5e-key")]
fn a_secret_in_an_output_fails_the_test() {
    scan("the response", format!("Bearer {}", secret("key")));
}

#[test]
fn a_logged_secret_is_noticed() {
    watch_log();
    tracing::trace!(target: "herald_server", key = secret("key"), "a line");
    let found = std::panic::catch_unwind(check_log).unwrap_err();
    let found = found.downcast_ref::<String>().unwrap();
    assert!(found.contains("a_logged_secret_is_noticed") && found.contains("a line"), "{found}");
}
