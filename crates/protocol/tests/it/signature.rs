//! What is signed of a card.

use herald_protocol::{
    AgentCard,
    card::{
        self, AgentCardSignature,
        signature::{
            Check, MAX_SIGNATURES, ProtectedHeader, SignedForm, Verdict, payload, verdict,
        },
    },
};

use crate::card::full;

fn text(json: &str, form: SignedForm) -> String {
    let card: AgentCard = serde_json::from_str(json).unwrap();
    String::from_utf8(payload(&card, form)).unwrap()
}

fn signed(kids: &[&str]) -> AgentCard {
    let signature = |kid: &&str| AgentCardSignature {
        protected: ProtectedHeader::new("ES256", *kid).encode(),
        signature: "c2ln".into(),
        header: None,
    };
    AgentCard { signatures: kids.iter().map(signature).collect(), ..full() }
}

// proves: SIG-001, SIG-002, SIG-003, SIG-004, SIG-005, SIG-006
#[test]
fn the_specifications_example_becomes_what_the_specification_says() {
    let json = r#"{
        "name": "Example Agent", "description": "",
        "capabilities": { "streaming": false, "pushNotifications": false, "extensions": [] },
        "skills": [], "signatures": [{ "protected": "a", "signature": "b" }]
    }"#;
    // The example leaves out members that are required; here they are, and empty.
    let expected = r#"{"capabilities":{"pushNotifications":false,"streaming":false},"defaultInputModes":[],"defaultOutputModes":[],"description":"","name":"Example Agent","skills":[],"supportedInterfaces":[],"version":""}"#;
    assert_eq!(text(json, SignedForm::Specified), expected);
    let expected =
        r#"{"capabilities":{"pushNotifications":false,"streaming":false},"name":"Example Agent"}"#;
    assert_eq!(text(json, SignedForm::WithoutEmpty), expected);
}

// proves: SIG-003, SIG-006
#[test]
fn what_cannot_be_told_from_absent_is_left_out_at_every_depth() {
    let json = r#"{
        "name": "n", "documentationUrl": "",
        "supportedInterfaces": [{ "url": "u", "tenant": "" }],
        "capabilities": { "extensions": [
            { "uri": "", "description": "", "required": false, "params": { "kept": "", "too": [null] } }
        ] },
        "securitySchemes": {
            "key": { "apiKeySecurityScheme": { "description": "", "location": "", "name": "" } },
            "oauth": { "oauth2SecurityScheme": {
                "oauth2MetadataUrl": "",
                "flows": { "deviceCode": { "refreshUrl": "", "scopes": {} } }
            } },
            "old": { "oauth2SecurityScheme": { "flows": { "implicit": { "scopes": {} } } } }
        },
        "securityRequirements": [{ "schemes": { "key": { "list": [] } } }, { "schemes": {} }]
    }"#;
    let expected = concat!(
        r#"{"capabilities":{"extensions":[{"params":{"kept":"","too":[null]}}]},"#,
        r#""defaultInputModes":[],"defaultOutputModes":[],"description":"","documentationUrl":"","#,
        r#""name":"n","securityRequirements":[{"schemes":{"key":{}}},{}],"securitySchemes":{"#,
        r#""key":{"apiKeySecurityScheme":{"location":"","name":""}},"#,
        r#""oauth":{"oauth2SecurityScheme":{"flows":{"deviceCode":"#,
        r#"{"deviceAuthorizationUrl":"","scopes":{},"tokenUrl":""}}}},"#,
        r#""old":{"oauth2SecurityScheme":{"flows":{"implicit":{}}}}},"#,
        r#""skills":[],"supportedInterfaces":[{"protocolBinding":"","protocolVersion":"","url":"u"}],"#,
        r#""version":""}"#
    );
    assert_eq!(text(json, SignedForm::Specified), expected);
}

// proves: SIG-001, SIG-013
#[test]
fn keys_are_ordered_by_utf_16_and_numbers_and_texts_are_canonical() {
    // The example of RFC 8785, section 3.2.3, and numbers of its appendix B.
    let json = r#"{ "name": "Ünï\u00e9 \u2028\u000f\"", "capabilities": { "extensions": [{ "uri": "u", "params": {
        "\u20ac": "Euro Sign", "\r": "Carriage Return", "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One", "\ud83d\ude00": "Emoji: Grinning Face", "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis",
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001, -0.0, 1e21, 1e20]
    } }] } }"#;
    let form = text(json, SignedForm::Specified);
    let order = [
        "\"\\r\"",
        "\"1\"",
        "\"numbers\"",
        "\"\u{80}\"",
        "\"ö\"",
        "\"€\"",
        "\"😀\"",
        "\"\u{fb33}\"",
    ];
    let found: Vec<_> = order.iter().map(|key| form.find(key).expect(key)).collect();
    assert!(found.is_sorted(), "{form}");
    assert!(
        form.contains("[333333333.3333333,1e+30,4.5,0.002,1e-27,0,1e+21,100000000000000000000]")
    );
    assert!(form.contains("\"Ünïé \u{2028}\\u000f\\\"\""), "{form}");
}

// proves: SIG-002
#[test]
fn every_reading_of_a_card_and_every_further_signature_leave_what_is_signed_as_it_is() {
    for form in [SignedForm::Specified, SignedForm::WithoutEmpty] {
        let expected = payload(&full(), form);
        assert_eq!(payload(&signed(&["a", "b"]), form), expected);
        let read = card::read(&card::hybrid(&full())).unwrap();
        assert_eq!(payload(&read, form), expected);
    }
}

// proves: SIG-007, SIG-008
#[test]
fn a_header_names_its_algorithm_its_key_and_its_type() {
    let header = ProtectedHeader::new("ES256", "key-1");
    let signature = AgentCardSignature { protected: header.encode(), ..Default::default() };
    assert_eq!(signature.protected_header().unwrap(), header);
    assert_eq!((header.alg.as_str(), header.typ.as_deref()), ("ES256", Some("JOSE")));
    // {"alg":"ES256"}, and {"alg":"ES256","kid":"k","crit":["b64"],"b64":false}
    for (protected, expected) in [
        ("eyJhbGciOiJFUzI1NiJ9", "its key"),
        ("eyJhbGciOiJFUzI1NiIsImtpZCI6ImsiLCJjcml0IjpbImI2NCJdLCJiNjQiOmZhbHNlfQ", "demands"),
        ("!", "base64url"),
    ] {
        let signature = AgentCardSignature { protected: protected.into(), ..Default::default() };
        let error = signature.protected_header().unwrap_err();
        assert!(error.message.contains(expected), "{error}");
    }
}

// proves: SIG-010
#[test]
fn one_good_signature_is_enough_and_a_bad_one_is_worse_than_an_unknown_one() {
    let judge = |kids: &[&str]| {
        verdict(&signed(kids), |header, _, _| match header.kid.as_str() {
            "good" => Check::Good,
            "bad" => Check::Bad,
            _ => Check::NoKey,
        })
    };
    assert_eq!(judge(&[]), Verdict::Unsigned);
    let unknown = Verdict::UnknownKey { keys: vec!["a".into(), "b".into()] };
    assert_eq!(judge(&["a", "b"]), unknown);
    let found = judge(&["a", "bad", "good"]);
    assert_eq!(found, Verdict::Verified { key: "good".into(), form: SignedForm::Specified });
    assert_eq!(found.to_string(), "verified by \"good\"");
    assert!(matches!(judge(&["a", "bad"]), Verdict::Invalid { reason } if reason.contains("bad")));
    let many = vec!["a"; MAX_SIGNATURES];
    assert!(!judge(&[&many[..], &["good"]].concat()).is_verified(), "work is bounded");
}
