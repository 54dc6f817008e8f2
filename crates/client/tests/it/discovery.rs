//! Discovery of cards and selection of interfaces.

use herald_client::{Binding, Client, protocol::Version};
use serde_json::{Value, json};

use crate::{
    fake::{Fake, Reaction, Received, answer, card, response, result, rpc_card, task},
    hub::{Hub, assert_way, over, quick},
};

/// A fake with this card, which answers every send on every binding.
async fn agent(make: impl Fn(&str) -> Value + Send + Sync + 'static) -> Fake {
    Fake::start(
        move |url, _, request| {
            if request.is_card() { answer(200, &make(url)) } else { done(request) }
        },
    )
    .await
}

fn done(request: &Received) -> Reaction {
    let finished = task("t", "COMPLETED");
    let old =
        json!({ "kind": "task", "id": "t", "contextId": "c", "status": { "state": "completed" } });
    match request.path.as_str() {
        "/v1/message:send" => {
            let status = json!({ "state": "TASK_STATE_COMPLETED" });
            answer(201, &json!({ "task": { "id": "t", "contextId": "c", "status": status } }))
        }
        path if path.ends_with("message:send") => answer(200, &json!({ "task": finished })),
        _ => match request.json()["method"].as_str() {
            Some("message/send") => result(request, &old),
            _ => result(request, &json!({ "task": finished })),
        },
    }
}

/// Path, binding and version of an interface.
type Offer = (&'static str, &'static str, &'static str);

// proves: CARD-008, CARD-009
#[tokio::test]
async fn the_first_supported_interface_of_the_card_is_called_at_its_url() {
    let orders: [(&[Offer], &str); 4] = [
        (&[("/r", "HTTP+JSON", "1.0"), ("/j", "JSONRPC", "1.0")], "/r/message:send"),
        (&[("/j", "JSONRPC", "1.0"), ("/r", "HTTP+JSON", "1.0")], "/j"),
        (&[("/s", "SOAP", "1.0"), ("/x", "urn:other", "1.0"), ("/j", "JSONRPC", "1.0")], "/j"),
        (&[("/n", "JSONRPC", "9.0"), ("/o", "JSONRPC", "0.3"), ("/j", "JSONRPC", "1.0")], "/j"),
    ];
    for (interfaces, path) in orders {
        let fake = agent(move |url| {
            let urls: Vec<_> = interfaces.iter().map(|one| format!("{url}{}", one.0)).collect();
            let interfaces = interfaces.iter().zip(&urls);
            let interfaces: Vec<_> = interfaces.map(|(one, url)| (&**url, one.1, one.2)).collect();
            card(&interfaces)
        })
        .await;
        quick().connect(&fake.url()).await.unwrap().send("hello").await.unwrap();
        assert_eq!(fake.calls()[0].path, path);
    }
}

// proves: VER-009
#[tokio::test]
async fn a_preferred_binding_and_a_pinned_version_win_over_the_cards_order() {
    let hub = Hub::start().await;
    for (binding, version) in crate::hub::EVERY_WAY {
        let client = over(binding, version).connect(&hub.url()).await.unwrap();
        assert_way(&client.interface(), binding, version);
    }
    let error = quick().version(Version { major: 2, minor: 0 }).connect(&hub.url()).await;
    let error = error.unwrap_err();
    assert!(error.is_setup() && error.to_string().contains("JSONRPC 1.0"), "{error}");
}

// proves: VER-010
#[tokio::test]
async fn a_pinned_version_cannot_be_downgraded() {
    let fake = agent(|url| old_card(url, Some("JSONRPC"), json!([]))).await;
    let error = quick().version(Version::V1_0).connect(&fake.url()).await.unwrap_err();
    assert!(error.is_setup() && error.to_string().contains("JSONRPC 0.3"), "{error}");
    let fake = agent(|url| card(&[(url, "JSONRPC", "0.3"), (url, "HTTP+JSON", "1.0")])).await;
    let client = quick().version(Version::V1_0).connect(&fake.url()).await.unwrap();
    assert_way(&client.interface(), Binding::Rest, Version::V1_0);
    assert!(fake.calls().is_empty());
}

// proves: CARD-010
#[tokio::test]
async fn an_unreachable_interface_is_skipped() {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let fake = agent(move |url| {
        let dead = format!("http://{closed}/");
        card(&[(&dead, "JSONRPC", "1.0"), (url, "HTTP+JSON", "1.0")])
    })
    .await;
    let client = quick().connect(&fake.url()).await.unwrap();
    assert_eq!(Binding::from_name(&client.interface().protocol_binding), Some(Binding::JsonRpc));
    client.send("hello").await.unwrap();
    assert_eq!(Binding::from_name(&client.interface().protocol_binding), Some(Binding::Rest));
    assert_eq!(fake.calls().len(), 1);
}

// proves: CARD-013
#[tokio::test]
async fn an_expired_card_is_revalidated_by_its_etag() {
    let tagged = |age: &'static str| {
        Fake::start(move |url, _, request| match request.header("if-none-match") {
            Some("\"v1\"") => response(304, &[], ""),
            _ => {
                let card = card(&[(url, "JSONRPC", "1.0")]).to_string();
                let age = format!("max-age={age}");
                response(200, &[("ETag", "\"v1\""), ("Cache-Control", &age)], &card)
            }
        })
    };
    let fake = tagged("0").await;
    let client = quick().connect(&fake.url()).await.unwrap();
    assert!(!client.refresh().await.unwrap());
    let cards = fake.cards();
    assert_eq!(cards.len(), 2);
    assert_eq!(cards[0].header("if-none-match"), None);
    assert_eq!(cards[1].header("if-none-match"), Some("\"v1\""));

    let fake = tagged("300").await;
    let client = quick().connect(&fake.url()).await.unwrap();
    assert!(!client.refresh().await.unwrap());
    assert_eq!(fake.cards().len(), 1, "a fresh card is not asked about");
}

#[tokio::test]
async fn calls_use_a_changed_card() {
    let fake = Fake::start(|url, before, request| {
        if !request.is_card() {
            return done(request);
        }
        let path = if before == 0 { "old" } else { "new" };
        answer(200, &card(&[(&format!("{url}/{path}"), "JSONRPC", "1.0")]))
    })
    .await;
    let client = quick().connect(&fake.url()).await.unwrap();
    client.send("hello").await.unwrap();
    assert!(client.refresh().await.unwrap());
    client.send("hello").await.unwrap();
    let paths: Vec<_> = fake.calls().into_iter().map(|call| call.path).collect();
    assert_eq!(paths, ["/old", "/new"]);
}

/// A card of 0.3 or older whose main address has this transport.
fn old_card(url: &str, transport: Option<&str>, additional: Value) -> Value {
    let mut card = json!({
        "name": "old", "description": "", "version": "1", "url": format!("{url}/main"),
        "capabilities": {}, "defaultInputModes": [], "defaultOutputModes": [], "skills": [],
    });
    if let Some(transport) = transport {
        card["protocolVersion"] = "0.3.0".into();
        card["preferredTransport"] = transport.into();
        card["additionalInterfaces"] = additional;
    }
    card
}

// proves: CARD-018, CARD-019, CARD-024
#[tokio::test]
async fn interfaces_of_cards_before_1_0_are_called() {
    let rest = |url: &str| json!([{ "url": format!("{url}/rest"), "transport": "HTTP+JSON" }]);
    let both = move |url: &str| old_card(url, Some("JSONRPC"), rest(url));
    let fake = agent(both).await;
    quick().connect(&fake.url()).await.unwrap().send("hello").await.unwrap();
    let call = &fake.calls()[0];
    assert_eq!((call.path.as_str(), &call.json()["method"]), ("/main", &"message/send".into()));

    let fake = agent(|url| old_card(url, Some("HTTP+JSON"), json!([]))).await;
    fake_send(&fake, Client::connect(&fake.url()).await.unwrap(), "/main/v1/message:send").await;

    let fake = agent(move |url| old_card(url, Some("SOAP"), rest(url))).await;
    fake_send(&fake, Client::connect(&fake.url()).await.unwrap(), "/rest/v1/message:send").await;

    // Cards of 0.2 have no version and no transport.
    let fake = agent(|url| old_card(url, None, Value::Null)).await;
    quick().connect(&fake.url()).await.unwrap().send("hello").await.unwrap();
    assert_eq!(fake.calls()[0].json()["method"], "message/send");
    assert_eq!(fake.calls()[0].header("a2a-version"), None);
}

async fn fake_send(fake: &Fake, client: Client, path: &str) {
    client.send("hello").await.unwrap();
    assert_eq!(fake.calls()[0].path, path);
}

#[tokio::test]
async fn a_card_is_found_at_the_old_path_at_its_own_url_and_in_a_file() {
    let fake = Fake::start(|url, _, request| match request.path.as_str() {
        "/team/.well-known/agent.json" | "/cards/mine.json?v=2" => rpc_card(url),
        path if path.ends_with(".json") => response(404, &[], ""),
        _ => done(request),
    })
    .await;
    let below = quick().connect(&format!("{}/team/", fake.url())).await.unwrap();
    below.send("hello").await.unwrap();
    let paths: Vec<_> = fake.cards().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/team/.well-known/agent-card.json", "/team/.well-known/agent.json"]);

    let exact = quick().connect(&format!("{}/cards/mine.json?v=2", fake.url())).await.unwrap();
    exact.send("hello").await.unwrap();

    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = card(&[(&fake.url(), "JSONRPC", "1.0")]).to_string();
    std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    let url = format!("file://{}", file.path().display());
    quick().connect(&url).await.unwrap().send("hello").await.unwrap();

    let error = quick().connect(&format!("{}/nobody", fake.url())).await.unwrap_err();
    assert!(error.is_setup(), "{error}");
    assert!(error.to_string().contains("/nobody/.well-known/agent-card.json or "), "{error}");
}

#[tokio::test]
async fn an_invalid_url_and_an_absent_server_are_different_errors() {
    for url in [
        "",
        "agent",
        "ftp://127.0.0.1/",
        "http://name:hunter2@127.0.0.1/",
        "http://name:hunter2@127.0.0.1:80x/",
    ] {
        let error = Client::connect(url).await.unwrap_err();
        assert!(error.is_setup(), "{url} {error}");
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
    }
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let error = Client::connect(&format!("http://{closed}")).await.unwrap_err();
    assert!(error.is_connect(), "{error}");
}

// proves: XC-005
#[tokio::test]
async fn an_extended_card_replaces_the_public_one() {
    let fake = Fake::start(|url, _, request| {
        if request.is_card() {
            rpc_card(url)
        } else {
            let mut extended = card(&[(url, "JSONRPC", "1.0")]);
            extended["name"] = "extended".into();
            result(request, &extended)
        }
    })
    .await;
    let client = quick().connect(&fake.url()).await.unwrap();
    assert_eq!(client.card().name, "fake");
    client.extended_card().await.unwrap();
    assert_eq!(client.clone().card().name, "extended");
}
