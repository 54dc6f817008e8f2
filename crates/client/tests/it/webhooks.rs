//! Verification of webhooks: genuine, forged, old and repeated ones.

use std::time::{Duration, SystemTime};

use aws_lc_rs::{
    hmac,
    signature::{Ed25519KeyPair, KeyPair},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use herald_client::{
    TaskState, WebhookError, WebhookProof, WebhookVerifier,
    protocol::{Dialect, StreamEvent},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

const NOW: u64 = 1_800_000_000;
const BODY: &[u8] = br#"{"statusUpdate":{"taskId":"t-1","contextId":"c-1","status":{"state":"TASK_STATE_WORKING"}}}"#;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

/// A shared secret that differs from those of other numbers.
fn secret(number: u8) -> String {
    format!("whsec_{}", STANDARD.encode([number; 32]))
}

fn private_key(number: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[number; 32]).unwrap()
}

fn public_key(number: u8) -> String {
    format!("whpk_{}", STANDARD.encode(private_key(number).public_key()))
}

/// The key of a signature.
#[derive(Clone, Copy)]
enum Key {
    Secret(u8),
    Private(u8),
}

fn signature(key: Key, id: &str, time: u64, body: &[u8]) -> String {
    let text = [format!("{id}.{time}.").as_bytes(), body].concat();
    match key {
        Key::Secret(number) => {
            let key = hmac::Key::new(hmac::HMAC_SHA256, &[number; 32]);
            format!("v1,{}", STANDARD.encode(hmac::sign(&key, &text)))
        }
        Key::Private(number) => {
            format!("v1a,{}", STANDARD.encode(private_key(number).sign(&text)))
        }
    }
}

fn headers<const N: usize>(list: [(&'static str, &str); N]) -> HeaderMap {
    let header = |(name, value): (&'static str, &str)| {
        (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
    };
    list.into_iter().map(header).collect()
}

/// The headers of a webhook that is signed with these keys.
fn signed(keys: &[Key], id: &str, time: u64, body: &[u8]) -> HeaderMap {
    let signatures: Vec<_> = keys.iter().map(|key| signature(*key, id, time, body)).collect();
    headers([
        ("webhook-id", id),
        ("webhook-timestamp", &time.to_string()),
        ("webhook-signature", &signatures.join(" ")),
    ])
}

/// A verifier of both kinds of signatures.
fn verifier() -> WebhookVerifier {
    WebhookVerifier::new().secret(secret(1)).unwrap().public_key(&public_key(1)).unwrap()
}

// proves: PUSH-020
#[test]
fn a_forged_webhook_is_refused() {
    let unsigned = WebhookError::Unsigned;
    let wrong = WebhookError::WrongSignature;
    let header = WebhookError::InvalidHeader;
    let with = |name: &'static str, value: &str| {
        let mut headers = signed(&[Key::Secret(1)], "m", NOW, BODY);
        headers.insert(name, value.parse().unwrap());
        headers
    };
    let without = |name: &str| {
        let mut headers = signed(&[Key::Secret(1)], "m", NOW, BODY);
        headers.remove(name);
        headers
    };
    let twice = |name: &'static str, value: &str| {
        let mut headers = signed(&[Key::Secret(1)], "m", NOW, BODY);
        headers.append(name, value.parse().unwrap());
        headers
    };
    let hmac = signature(Key::Secret(1), "m", NOW, BODY);
    let ed25519 = signature(Key::Private(1), "m", NOW, BODY);
    let encoded = hmac.strip_prefix("v1,").unwrap();
    let cases = [
        ("another secret", signed(&[Key::Secret(2)], "m", NOW, BODY), wrong.clone()),
        ("another key", signed(&[Key::Private(2)], "m", NOW, BODY), wrong.clone()),
        ("another body", signed(&[Key::Secret(1)], "m", NOW, b"{}"), wrong.clone()),
        ("another body", signed(&[Key::Private(1)], "m", NOW, b"{}"), wrong.clone()),
        ("another id", with("webhook-id", "n"), wrong.clone()),
        ("another time", with("webhook-timestamp", &(NOW + 1).to_string()), wrong.clone()),
        ("old", signed(&[Key::Secret(1)], "m", NOW - 301, BODY), WebhookError::TooOld),
        ("future", signed(&[Key::Secret(1)], "m", NOW + 301, BODY), WebhookError::TooNew),
        ("no headers", HeaderMap::new(), unsigned.clone()),
        ("no id", without("webhook-id"), unsigned.clone()),
        ("no time", without("webhook-timestamp"), unsigned.clone()),
        ("no signature", without("webhook-signature"), unsigned),
        ("empty signature", with("webhook-signature", ""), wrong.clone()),
        ("no version", with("webhook-signature", encoded), wrong.clone()),
        ("version 2", with("webhook-signature", &format!("v2,{encoded}")), wrong.clone()),
        ("an HMAC as ed25519", with("webhook-signature", &format!("v1a,{encoded}")), wrong.clone()),
        (
            "an ed25519 as HMAC",
            with("webhook-signature", &ed25519.replace("v1a", "v1")),
            wrong.clone(),
        ),
        ("upper case", with("webhook-signature", &format!("V1,{encoded}")), wrong.clone()),
        ("truncated", with("webhook-signature", &hmac[..hmac.len() - 1]), wrong.clone()),
        ("truncated", with("webhook-signature", &hmac[..hmac.len() - 5]), wrong.clone()),
        ("only the version", with("webhook-signature", "v1,"), wrong.clone()),
        (
            "nine signatures",
            with("webhook-signature", &format!("{}{hmac}", "v1,AA== ".repeat(8))),
            wrong,
        ),
        ("two ids", twice("webhook-id", "n"), header("webhook-id")),
        ("two times", twice("webhook-timestamp", "1"), header("webhook-timestamp")),
        ("two lists", twice("webhook-signature", "v1,AA=="), header("webhook-signature")),
        ("a full stop", signed(&[Key::Secret(1)], "m.1", NOW, BODY), header("webhook-id")),
        ("an empty id", signed(&[Key::Secret(1)], "", NOW, BODY), header("webhook-id")),
        ("a long id", signed(&[Key::Secret(1)], &"m".repeat(257), NOW, BODY), header("webhook-id")),
        ("a sign", with("webhook-timestamp", &format!("+{NOW}")), header("webhook-timestamp")),
        ("a fraction", with("webhook-timestamp", &format!("{NOW}.0")), header("webhook-timestamp")),
        ("huge", with("webhook-timestamp", &"9".repeat(30)), header("webhook-timestamp")),
    ];
    let verifier = verifier();
    for (name, headers, expected) in cases {
        let refused = verifier.verify(&headers, BODY, at(NOW)).unwrap_err();
        assert_eq!(refused, expected, "{name}");
        let status = if matches!(expected, WebhookError::InvalidHeader(_)) { 400 } else { 401 };
        assert_eq!(refused.status(), status, "{name}");
    }
    // None of them was taken for the genuine webhook.
    let genuine = signed(&[Key::Secret(1)], "m", NOW, BODY);
    assert_eq!(verifier.verify(&genuine, BODY, at(NOW)).unwrap().proofs, [WebhookProof::Hmac]);
}

// proves: PUSH-019
#[test]
fn one_valid_signature_of_several_is_enough() {
    let cases = [
        (vec![Key::Secret(1)], WebhookProof::Hmac),
        (vec![Key::Private(1)], WebhookProof::Ed25519),
        (vec![Key::Secret(2), Key::Private(2), Key::Secret(1)], WebhookProof::Hmac),
        (vec![Key::Secret(2), Key::Private(2), Key::Private(1)], WebhookProof::Ed25519),
    ];
    let verifier = verifier();
    for (number, (keys, proof)) in cases.into_iter().enumerate() {
        let id = format!("m-{number}");
        let mut headers = signed(&keys, &id, NOW, BODY);
        let list = headers["webhook-signature"].to_str().unwrap().to_owned();
        headers.insert("webhook-signature", format!("v9,x junk  {list}").parse().unwrap());
        let webhook = verifier.verify(&headers, BODY, at(NOW)).unwrap();
        assert_eq!((webhook.id, webhook.sent), (Some(id), Some(NOW)));
        assert_eq!(webhook.proofs, [proof]);
        assert_eq!(webhook.event.state(), Some(TaskState::Working));
    }
}

#[test]
fn keys_can_be_rotated_without_a_gap() {
    let sender = [vec![Key::Secret(1)], vec![Key::Secret(1), Key::Secret(2)], vec![Key::Secret(2)]];
    let both = WebhookVerifier::new().secret(secret(1)).unwrap().secret(secret(2)).unwrap();
    let old = WebhookVerifier::new().secret(secret(1)).unwrap();
    let new = WebhookVerifier::new().secret(secret(2)).unwrap();
    let accepted = |verifier: &WebhookVerifier| {
        let verify = |(step, keys): (usize, &Vec<Key>)| {
            verifier.verify(&signed(keys, &format!("m-{step}"), NOW, BODY), BODY, at(NOW)).is_ok()
        };
        sender.iter().enumerate().map(verify).collect::<Vec<_>>()
    };
    assert_eq!(accepted(&both), [true, true, true]);
    assert_eq!(accepted(&old), [true, true, false]);
    assert_eq!(accepted(&new), [false, true, true]);
}

#[test]
fn the_published_keys_of_a_server_verify_its_webhooks() {
    let key = |number: u8| {
        let x = URL_SAFE_NO_PAD.encode(private_key(number).public_key());
        json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "use": "sig", "kid": "w" })
    };
    let mut encrypts = key(3);
    encrypts["use"] = json!("enc");
    let other = json!({ "kty": "EC", "crv": "P-256", "x": "AA", "y": "AA" });
    let set = json!({ "keys": [other, { "kty": "new" }, 7, encrypts, key(1), key(2), key(2)] });
    let verifier = WebhookVerifier::new().jwks(set.to_string()).unwrap();
    for (number, accepted) in [(1, true), (2, true), (3, false)] {
        let headers = signed(&[Key::Private(number)], &format!("m-{number}"), NOW, BODY);
        assert_eq!(verifier.verify(&headers, BODY, at(NOW)).is_ok(), accepted, "{number}");
    }
    for useless in [json!({ "keys": [other] }), json!({ "keys": [] }), json!([]), json!("{")] {
        let error = WebhookVerifier::new().jwks(useless.to_string()).unwrap_err();
        assert!(error.is_setup() && error.to_string().contains("JSON Web Key Set"), "{error}");
    }
    let many: Vec<_> = (1..=9).map(key).collect();
    assert!(WebhookVerifier::new().jwks(json!({ "keys": many }).to_string()).is_err());
}

#[test]
fn a_malformed_key_is_an_error_that_does_not_contain_it() {
    let short = format!("whsec_{}", STANDARD.encode([7; 23]));
    let long = format!("whsec_{}", STANDARD.encode([7; 65]));
    for secret in ["", "whsec_", "canary-7c5e-secret", "whsec_canary-7c5e", &short, &long] {
        let error = WebhookVerifier::new().secret(secret).unwrap_err();
        assert!(error.is_setup(), "{secret}");
        let encoded = secret.trim_start_matches("whsec_");
        assert!(encoded.is_empty() || !error.to_string().contains(encoded), "{error}");
    }
    for key in ["", "whpk_", "whpk_AAAA", &secret(1)] {
        assert!(WebhookVerifier::new().public_key(key).unwrap_err().is_setup(), "{key}");
    }
}

/// Changes each byte of a text in turn, to each other byte.
fn changes(text: &[u8]) -> impl Iterator<Item = Vec<u8>> + '_ {
    (0..text.len()).flat_map(move |at| {
        let others = (0..=u8::MAX).filter(move |byte| *byte != text[at]);
        others.map(move |byte| {
            let mut changed = text.to_vec();
            changed[at] = byte;
            changed
        })
    })
}

#[test]
fn a_change_of_any_byte_is_refused() {
    for (key, name) in [(Key::Secret(1), "hmac"), (Key::Private(1), "ed25519")] {
        let verifier = verifier();
        let genuine = signed(&[key], "message-1", NOW, BODY);
        let mut tried = 0;
        // The slower check gets fewer changes of each byte.
        let step = if name == "hmac" { 1 } else { 16 };
        for body in changes(BODY).step_by(step) {
            let refused = verifier.verify(&genuine, &body, at(NOW)).unwrap_err();
            assert_eq!(refused, WebhookError::WrongSignature, "{name}: {body:?}");
            tried += 1;
        }
        for header in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
            for value in changes(genuine[header].as_bytes()).step_by(step) {
                // Control characters cannot be in a header.
                let Ok(value) = HeaderValue::from_bytes(&value) else { continue };
                let mut changed = genuine.clone();
                changed.insert(header, value.clone());
                let verified = verifier.verify(&changed, BODY, at(NOW));
                assert!(verified.is_err(), "{name}: {header}: {value:?}");
                tried += 1;
            }
        }
        assert!(tried > 2_000, "{tried}");
        assert!(verifier.verify(&genuine, BODY, at(NOW)).is_ok(), "{name}");
    }
}

// proves: PUSH-022
#[test]
fn a_repeat_is_answered_with_200_and_not_processed() {
    let verifier = verifier();
    let first = signed(&[Key::Secret(1)], "m", NOW, BODY);
    let webhook = verifier.verify(&first, BODY, at(NOW)).unwrap();
    // The same request again, and another attempt of the sender with a new time.
    let retry = signed(&[Key::Secret(1)], "m", NOW + 60, BODY);
    for headers in [&first, &retry] {
        let repeated = verifier.verify(headers, BODY, at(NOW + 60)).unwrap_err();
        assert_eq!(repeated.status(), 200);
        let WebhookError::Repeated(repeated) = repeated else { panic!("{repeated}") };
        assert_eq!(repeated.id, webhook.id);
    }
    // A copy is refused when it is old, though the id is still known.
    assert_eq!(verifier.verify(&first, BODY, at(NOW + 301)), Err(WebhookError::TooOld));
    // Another event is no repeat, even with the same body.
    let second = signed(&[Key::Secret(1)], "m-2", NOW, BODY);
    verifier.verify(&second, BODY, at(NOW)).unwrap();
    // A webhook that could not be processed is processed when it is sent again.
    verifier.forget(&webhook);
    verifier.verify(&retry, BODY, at(NOW + 60)).unwrap();
    assert_eq!(verifier.verify(&retry, BODY, at(NOW + 60)).unwrap_err().status(), 200);
}

// proves: PUSH-025
#[test]
fn a_flood_is_refused_and_takes_no_more_memory() {
    let verifier = verifier().remembered(3).tolerance(Duration::from_secs(10));
    let verify = |id: usize, time: u64| {
        let headers = signed(&[Key::Secret(1)], &format!("m-{id}"), time, BODY);
        verifier.verify(&headers, BODY, at(time))
    };
    for id in 0..3 {
        verify(id, NOW).unwrap();
    }
    let refused = verify(3, NOW).unwrap_err();
    assert_eq!((&refused, refused.status().as_u16()), (&WebhookError::TooMany, 429));
    // A flood does not displace an id that could be replayed.
    assert_eq!(verify(0, NOW).unwrap_err().status(), 200);
    verify(3, NOW + 11).unwrap();
}

// proves: PUSH-020
#[test]
fn a_token_is_found_in_each_of_its_headers() {
    let verifier = WebhookVerifier::new().token("canary-7c5e-old").token("canary-7c5e-new");
    let accepted = [
        ("x-a2a-notification-token", "canary-7c5e-old"),
        ("x-a2a-notification-token", "canary-7c5e-new"),
        ("a2a-notification-token", "canary-7c5e-new"),
        ("authorization", "Bearer canary-7c5e-new"),
        ("authorization", "bearer  canary-7c5e-new"),
    ];
    for header in accepted {
        let webhook = verifier.verify(&headers([header]), BODY, at(NOW)).unwrap();
        assert_eq!(webhook.proofs, [WebhookProof::Token], "{header:?}");
        // Without an id the same body may be another event.
        assert_eq!(webhook.id, None);
    }
    let refused = [
        ("x-a2a-notification-token", ""),
        ("x-a2a-notification-token", "canary-7c5e-ne"),
        ("x-a2a-notification-token", "canary-7c5e-new2"),
        ("x-a2a-notification-token", "Bearer canary-7c5e-new"),
        ("x-notification-token", "canary-7c5e-new"),
        ("authorization", "canary-7c5e-new"),
        ("authorization", "Basic canary-7c5e-new"),
        ("cookie", "canary-7c5e-new"),
    ];
    for header in refused {
        let error = verifier.verify(&headers([header]), BODY, at(NOW)).unwrap_err();
        assert_eq!(
            (&error, error.status().as_u16()),
            (&WebhookError::WrongToken, 401),
            "{header:?}"
        );
    }
    assert!(!format!("{verifier:?}").contains("canary"));
}

// proves: PUSH-020
#[test]
fn each_configured_kind_of_proof_is_required() {
    let all = || {
        let verifier = WebhookVerifier::new().secret(secret(1)).unwrap();
        verifier.token("canary-7c5e-t").authorization("Basic", "canary-7c5e-b")
    };
    let mut complete = signed(&[Key::Secret(1)], "m", NOW, BODY);
    complete.insert("x-a2a-notification-token", "canary-7c5e-t".parse().unwrap());
    complete.insert("authorization", "basic canary-7c5e-b".parse().unwrap());
    let webhook = all().verify(&complete, BODY, at(NOW)).unwrap();
    let proofs = [WebhookProof::Token, WebhookProof::Authorization, WebhookProof::Hmac];
    assert_eq!(webhook.proofs, proofs);
    for (name, expected) in [
        ("x-a2a-notification-token", WebhookError::WrongToken),
        ("authorization", WebhookError::WrongAuthorization),
        ("webhook-signature", WebhookError::Unsigned),
    ] {
        let mut headers = complete.clone();
        headers.remove(name);
        assert_eq!(all().verify(&headers, BODY, at(NOW)), Err(expected.clone()));
        headers.insert(name, "Bearer canary-7c5e-b".parse().unwrap());
        assert!(all().verify(&headers, BODY, at(NOW)).is_err(), "{name}");
    }
    let empty = WebhookVerifier::new();
    let refused = empty.verify(&complete, BODY, at(NOW)).unwrap_err();
    assert_eq!(refused, WebhookError::NothingToCheck);
    assert!(!refused.status().is_success());
    let open = WebhookVerifier::new().danger_accept_anyone();
    assert_eq!(open.verify(&HeaderMap::new(), BODY, at(NOW)).unwrap().proofs, []);
}

// proves: PUSH-021
#[test]
fn an_event_of_an_unexpected_task_is_refused() {
    let verifier = verifier().expected_tasks(|id| id.as_str() == "t-1");
    let post = |id: &str, body: &serde_json::Value| {
        let body = body.to_string();
        let headers = signed(&[Key::Secret(1)], id, NOW, body.as_bytes());
        verifier.verify(&headers, body.as_bytes(), at(NOW))
    };
    let task = |id: &str| json!({ "task": { "id": id, "contextId": "c", "status": { "state": "TASK_STATE_WORKING" } } });
    post("a", &task("t-1")).unwrap();
    let refused = post("b", &task("t-2")).unwrap_err();
    assert_eq!((&refused, refused.status().as_u16()), (&WebhookError::UnexpectedTask, 404));
    // Without a task there is nothing to expect.
    let message = json!({ "message": { "messageId": "m", "role": "ROLE_AGENT", "parts": [{ "text": "x" }] } });
    assert_eq!(post("c", &message).unwrap_err(), WebhookError::UnexpectedTask);
    // The refused event is not taken for a repeat when its task is known later.
    assert_eq!(post("b", &task("t-1")).unwrap().event.task_id().unwrap().as_str(), "t-1");
}

#[test]
fn bodies_of_every_version_are_decoded() {
    let verifier = WebhookVerifier::new().danger_accept_anyone();
    let read = |body: serde_json::Value| {
        verifier.verify(&HeaderMap::new(), body.to_string().as_bytes(), at(NOW))
    };
    let new = json!({ "state": "TASK_STATE_COMPLETED" });
    let old = json!({ "state": "completed" });
    let (v1, v03) = (Dialect::V1, Dialect::V03);
    let bodies = [
        (json!({ "task": { "id": "t", "contextId": "c", "status": new } }), v1),
        (json!({ "statusUpdate": { "taskId": "t", "contextId": "c", "status": new } }), v1),
        (json!({ "kind": "task", "id": "t", "contextId": "c", "status": old }), v03),
        (
            json!({ "kind": "status-update", "taskId": "t", "contextId": "c", "status": old, "final": true }),
            v03,
        ),
        (json!({ "id": "t", "contextId": "c", "status": old }), v03),
        (json!({ "id": "t", "contextId": "c", "status": new, "artifacts": [] }), v03),
    ];
    for (body, dialect) in bodies {
        let webhook = read(body.clone()).unwrap();
        assert_eq!(webhook.dialect, dialect, "{body}");
        assert_eq!(webhook.event.task_id().unwrap().as_str(), "t", "{body}");
        assert_eq!(webhook.event.state(), Some(TaskState::Completed), "{body}");
    }
    let chunk = json!({ "kind": "artifact-update", "taskId": "t", "contextId": "c",
        "artifact": { "artifactId": "a", "parts": [{ "kind": "text", "text": "x" }] } });
    assert!(matches!(read(chunk).unwrap().event, StreamEvent::ArtifactUpdate(_)));
    for body in [
        json!({ "hello": 1 }),
        json!([]),
        json!("task"),
        json!({ "kind": "other" }),
        json!({ "task": 1 }),
    ] {
        let refused = read(body.clone()).unwrap_err();
        assert!(matches!(refused, WebhookError::InvalidBody(_)), "{body}: {refused}");
        assert_eq!(refused.status(), 400);
    }
}
