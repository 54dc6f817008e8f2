//! Credentials: their place in a request, their origin, and their absence in output.

use herald_client::{Credential, Secret, protocol::ErrorKind};
use herald_engine::Scopes;
use herald_server::{Config, config::Token};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, Received, answer, card, result, task},
    hub::{EVERY_WAY, Hub, all, over, pieces, quick},
};

/// A fake whose card has these security members.
async fn secured(schemes: Value, requirements: Value) -> Fake {
    Fake::start(move |url, _, request| {
        if request.is_card() {
            let mut card = card(&[(url, "JSONRPC", "1.0")]);
            card["securitySchemes"] = schemes.clone();
            card["securityRequirements"] = requirements.clone();
            answer(200, &card)
        } else {
            result(request, &json!({ "task": task("t", "COMPLETED") }))
        }
    })
    .await
}

async fn sent(fake: &Fake, credentials: &[Credential]) -> Received {
    let builder = credentials.iter().cloned().fold(quick(), |one, next| one.credential(next));
    builder.connect(&fake.url()).await.unwrap().send("hello").await.unwrap();
    fake.calls().pop().unwrap()
}

fn required(names: &[&str]) -> Value {
    let schemes: serde_json::Map<_, _> =
        names.iter().map(|name| ((*name).to_owned(), json!({ "list": [] }))).collect();
    json!([{ "schemes": schemes }])
}

#[tokio::test]
async fn an_api_key_goes_to_the_location_in_the_card() {
    for (place, check) in [
        (
            "header",
            (|request| request.header("x-key") == Some("canary-7c5e&=1")) as fn(&Received) -> bool,
        ),
        ("query", |request| request.path == "/?x-key=canary-7c5e%26%3D1"),
        ("cookie", |request| request.header("cookie") == Some("x-key=canary-7c5e&=1")),
    ] {
        let scheme = json!({ "apiKeySecurityScheme": { "location": place, "name": "x-key" } });
        let fake = secured(json!({ "key": scheme }), required(&["key"])).await;
        let request = sent(&fake, &[Credential::api_key("canary-7c5e&=1")]).await;
        assert!(check(&request), "{place}: {request:?}");
        let fetched = fake.cards().pop().unwrap();
        assert!(
            !format!("{fetched:?}").contains("canary-7c5e&=1"),
            "a card needs no key: {fetched:?}"
        );
    }
}

#[tokio::test]
async fn the_first_requirement_that_can_be_satisfied_is_satisfied_as_a_whole() {
    let schemes = json!({
        "mtls": { "mtlsSecurityScheme": {} },
        "key": { "apiKeySecurityScheme": { "location": "header", "name": "x-key" } },
        "oauth": { "oauth2SecurityScheme": { "flows": {} } },
        "basic": { "httpAuthSecurityScheme": { "scheme": "Basic" } },
    });
    let one = |names: &[&str]| required(names)[0].clone();
    let requirements = json!([one(&["mtls"]), one(&["key", "oauth"]), one(&["basic"])]);
    let fake = secured(schemes, requirements).await;
    let both = [Credential::api_key("canary-7c5e-k"), Credential::bearer("canary-7c5e-t")];
    let request = sent(&fake, &both).await;
    assert_eq!(
        (request.header("x-key"), request.header("authorization")),
        (Some("canary-7c5e-k"), Some("Bearer canary-7c5e-t"))
    );
    let request = sent(
        &fake,
        &[Credential::api_key("canary-7c5e-k"), Credential::basic("me", "canary-7c5e-pw")],
    )
    .await;
    assert_eq!(request.header("authorization"), Some("Basic bWU6Y2FuYXJ5LTdjNWUtcHc="));
    assert_eq!(request.header("x-key"), None);
}

#[tokio::test]
async fn a_card_without_schemes_gets_a_token_but_no_api_key() {
    let fake = secured(json!({}), json!([])).await;
    let request = sent(&fake, &[Credential::bearer("canary-7c5e-t")]).await;
    assert_eq!(request.header("authorization"), Some("Bearer canary-7c5e-t"));
    let error = quick().credential(Credential::api_key("canary-7c5e-k")).connect(&fake.url()).await;
    assert!(error.unwrap_err().is_setup());
}

#[tokio::test]
async fn a_card_is_fetched_without_credentials_unless_that_is_refused() {
    let open = secured(json!({}), json!([])).await;
    sent(&open, &[Credential::bearer("canary-7c5e-t")]).await;
    let shown = |fake: &Fake| -> Vec<_> {
        let cards = fake.cards();
        cards.iter().map(|card| card.header("authorization").map(str::to_owned)).collect()
    };
    assert_eq!(shown(&open), [None]);
    for status in [401, 403] {
        let guarded = Fake::start(move |url, _, request| {
            if !request.is_card() {
                result(request, &json!({ "task": task("t", "COMPLETED") }))
            } else if request.header("authorization") == Some("Bearer canary-7c5e-t") {
                answer(200, &card(&[(url, "JSONRPC", "1.0")]))
            } else {
                answer(status, &json!({}))
            }
        })
        .await;
        sent(&guarded, &[Credential::bearer("canary-7c5e-t")]).await;
        assert_eq!(shown(&guarded), [None, Some("Bearer canary-7c5e-t".to_owned())]);
        let error =
            quick().credential(Credential::bearer("canary-7c5e-u")).connect(&guarded.url()).await;
        assert_eq!(error.unwrap_err().status(), Some(status));
        let error = quick().connect(&guarded.url()).await;
        assert_eq!(error.unwrap_err().status(), Some(status));
        assert_eq!(shown(&guarded).len(), 5, "nobody asks twice in the same way");
    }
}

#[tokio::test]
async fn a_card_cannot_direct_credentials_to_another_origin() {
    let trap = secured(json!({}), json!([])).await;
    let target = trap.url();
    let fake = Fake::start(move |_, _, _| answer(200, &card(&[(&target, "JSONRPC", "1.0")]))).await;
    let token = || quick().credential(Credential::bearer("canary-7c5e"));
    let error = token().connect(&fake.url()).await.unwrap_err();
    assert!(error.is_setup(), "{error}");
    assert_eq!(error.untrusted_origin(), Some(trap.url().as_str()), "{error}");
    assert!(trap.calls().is_empty());

    token().trust_origin(&trap.url()).connect(&fake.url()).await.unwrap().send("x").await.unwrap();
    assert_eq!(trap.calls()[0].header("authorization"), Some("Bearer canary-7c5e"));
    quick().connect(&fake.url()).await.unwrap().send("x").await.unwrap();
    assert_eq!(trap.calls()[1].header("authorization"), None);
}

#[tokio::test]
async fn herald_lets_a_token_in_and_nobody_else_over_every_binding_and_version() {
    let token = Token {
        secret: "canary-7c5e".into(),
        tenant: "acme".into(),
        principal: "ci".into(),
        scopes: Scopes::ALL,
        ..Token::default()
    };
    let hub = Hub::with(Config { tokens: vec![token], ..Config::default() }).await;
    for (binding, version) in EVERY_WAY {
        let client = over(binding, version).connect(&hub.url()).await.unwrap();
        let error = client.send("hello").await.unwrap_err();
        assert_eq!(
            error.kind(),
            Some(ErrorKind::Unauthenticated),
            "{binding:?} {version} {error:?}"
        );
        let error = match client.stream("hello").await {
            Ok(mut events) => events.next().await.unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(
            error.kind(),
            Some(ErrorKind::Unauthenticated),
            "{binding:?} {version} {error:?}"
        );
        let client = over(binding, version).credential(Credential::bearer("canary-7c5e"));
        let client = client.connect(&hub.url()).await.unwrap();
        assert_eq!(client.send("hello").await.unwrap().text(), "hello");
        assert_eq!(pieces(&all(client.stream("chunks 2").await.unwrap()).await), "1;2;");
    }
}

#[tokio::test]
async fn secrets_are_never_printed() {
    let scheme = json!({ "apiKeySecurityScheme": { "location": "query", "name": "key" } });
    let fake = Fake::start(move |url, _, request| {
        let mut card = card(&[(url, "JSONRPC", "1.0")]);
        card["securitySchemes"] = json!({ "key": scheme });
        if request.is_card() { answer(200, &card) } else { crate::fake::Reaction::HangUp }
    })
    .await;
    let builder = quick().credential(Credential::api_key("canary-7c5e"));
    let builder = builder.credential(Credential::basic("me", "canary-7c5e"));
    assert!(!format!("{builder:?}").contains("canary-7c5e"));
    let client = builder.connect(&fake.url()).await.unwrap();
    assert!(!format!("{client:?}").contains("canary-7c5e"));
    let mut error: &dyn std::error::Error = &client.send("hello").await.unwrap_err();
    assert!(fake.calls()[0].path.contains("canary-7c5e"), "the key was sent");
    loop {
        assert!(!format!("{error} {error:?}").contains("canary-7c5e"), "{error:?}");
        let Some(source) = error.source() else { break };
        error = source;
    }
    assert_eq!(format!("{:?}", Secret::new("canary-7c5e")), "Secret(…)");
}
