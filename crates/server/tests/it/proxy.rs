//! Cards behind a proxy, and forged forwarding headers.

use herald_server::{CardInterface, Config};
use serde_json::Value;

use crate::{
    client::{Answer, Call},
    hub::Hub,
};

const CARD: &str = "/.well-known/agent-card.json";

/// A server that trusts proxies at these addresses and lists every interface.
async fn behind(trusted: &[&str]) -> Hub {
    let config = Config {
        trusted_proxies: trusted.iter().copied().map(Into::into).collect(),
        allowed_hosts: vec!["agents.example".into()],
        card_interfaces: CardInterface::ALL.into(),
        ..Config::default()
    };
    Hub::with(config).await
}

/// A request for a card as a proxy sends it.
fn forwarded(path: &str) -> Call {
    Call::get(path)
        .header("X-Forwarded-For", "203.0.113.9")
        .header("X-Forwarded-Proto", "https")
        .header("X-Forwarded-Host", "agents.example")
        .header("X-Forwarded-Prefix", "/herald")
}

fn urls(answer: &Answer) -> Vec<String> {
    let card = answer.json();
    let listed = card["supportedInterfaces"].as_array().unwrap().iter();
    let url = |one: &Value| one["url"].as_str().unwrap().to_owned();
    listed.filter(|one| one["protocolVersion"] == "1.0").map(url).collect()
}

// proves: CARD-005, CARD-014
#[tokio::test]
async fn cards_have_the_urls_that_a_trusted_proxy_names() {
    for trusted in [&["127.0.0.0/8"][..], &["10.0.0.0/8", "127.0.0.1"]] {
        let hub = behind(trusted).await;
        let answer = hub.call(forwarded(CARD)).await;
        assert_eq!(
            urls(&answer),
            [
                "https://agents.example/herald/a2a/jsonrpc",
                "https://agents.example/herald",
                "wss://agents.example/herald/ws",
            ],
            "gRPC has no paths below a prefix"
        );
        assert_eq!(answer.json()["url"], "https://agents.example/herald/a2a/jsonrpc");
        let vary = answer.header("vary").unwrap();
        assert!(vary.contains("X-Forwarded-Host") && vary.contains("A2A-Version"), "{vary}");
        let answer = hub.call(forwarded(&format!("/agents/files{CARD}"))).await;
        assert_eq!(urls(&answer)[1], "https://agents.example/herald/agents/files");
        let page = hub.call(forwarded("/")).await;
        assert!(page.text().contains("https://agents.example/herald/agents/files/"));
        let standard =
            Call::get(CARD).header("Forwarded", "for=1.2.3.4;proto=https;host=agents.example");
        let urls = urls(&hub.call(standard).await);
        assert_eq!(urls[0], "https://agents.example/a2a/jsonrpc");
        assert_eq!(urls[2], "agents.example:443");
    }
}

#[tokio::test]
async fn forwarding_headers_of_others_are_ignored() {
    for trusted in [&[][..], &["10.0.0.0/8"]] {
        let hub = behind(trusted).await;
        let plain = hub.call(Call::get(CARD)).await;
        for call in [
            forwarded(CARD),
            Call::get(CARD).header("Forwarded", "for=1.2.3.4;proto=https;host=agents.example"),
        ] {
            let forged = hub.call(call).await;
            assert_eq!(forged.text(), plain.text());
            assert_eq!(forged.header("vary"), Some("A2A-Version"));
        }
    }
}

#[tokio::test]
async fn a_forged_host_or_path_does_not_pass_a_trusted_proxy() {
    let hub = behind(&["127.0.0.1"]).await;
    let evil = hub.call(forwarded(CARD).header("X-Forwarded-Host", "evil.example")).await;
    assert_eq!(evil.status(), 421);
    // A page that made its own name resolve here names an allowed host as well.
    let rebound = hub.call(forwarded(CARD).header("Host", "evil.example")).await;
    assert_eq!(rebound.status(), 421);
    for (name, value) in [
        ("X-Forwarded-Host", "agents.example, evil.example"),
        ("X-Forwarded-Host", "user@agents.example"),
        ("X-Forwarded-Proto", "javascript"),
        ("X-Forwarded-Prefix", "//evil.example"),
        ("X-Forwarded-Prefix", "/<script>"),
    ] {
        let answer = hub.call(Call::get(CARD).header(name, value)).await;
        assert_eq!(answer.text(), hub.call(Call::get(CARD)).await.text(), "{name}: {value}");
    }
}

#[tokio::test]
async fn the_public_url_comes_before_the_headers_of_a_proxy() {
    let config = Config {
        trusted_proxies: vec!["127.0.0.1".into()],
        public_url: Some("https://public.example/a".into()),
        allowed_hosts: vec!["agents.example".into()],
        ..Config::default()
    };
    let hub = Hub::with(config).await;
    let answer = hub.call(forwarded(CARD)).await;
    assert_eq!(urls(&answer)[0], "https://public.example/a/a2a/jsonrpc");
}

#[tokio::test]
async fn pages_of_the_host_that_a_trusted_proxy_names_have_the_same_origin() {
    let hub = behind(&["127.0.0.1"]).await;
    let page = || forwarded("/tasks").v1().header("Origin", "https://agents.example");
    assert_eq!(hub.call(page()).await.status(), 200);
    let forged = page().header("Origin", "https://evil.example");
    assert_eq!(hub.call(forged).await.status(), 403);
    let stranger = behind(&[]).await;
    assert_eq!(stranger.call(page()).await.status(), 403);
}
