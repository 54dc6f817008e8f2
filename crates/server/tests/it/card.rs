//! The card, the page and the probes.

use std::{sync::Arc, time::Duration};

use herald_engine::{Engine, Profile, Scopes, Skill, store::sqlite::Sqlite};
use herald_protocol::{AgentName, TenantId, card::AgentProvider};
use herald_server::{CardInterface, Config, Token};
use serde_json::{Value, json};

use crate::{
    agents::Script,
    client::{Call, message, old_message},
    hub::Hub,
};

const WEBSOCKET: &str = "https://github.com/herald-a2a/herald/bindings/websocket/v1";
const CARD: &str = "/.well-known/agent-card.json";

// proves: CARD-001, CARD-002, CARD-003, CARD-004, CARD-023, CARD-006, CARD-007, VER-006
#[tokio::test]
async fn one_document_serves_readers_of_every_generation() {
    let hub = Hub::start().await;
    let card = hub.call(Call::get(CARD)).await;
    assert_eq!(card.status(), 200);
    assert_eq!(card.header("content-type"), Some("application/json"));
    for path in ["/.well-known/agent.json", "/agent-card.json"] {
        assert_eq!(hub.call(Call::get(path)).await.body, card.body, "{path}");
    }
    let card = card.json();
    assert_eq!(card["name"], "Script & Co");
    for member in ["description", "version"] {
        assert!(!card[member].as_str().unwrap().is_empty(), "{member}");
    }
    for member in ["defaultInputModes", "defaultOutputModes", "skills"] {
        assert!(!card[member].as_array().unwrap().is_empty(), "{member}");
    }
    assert!(!card["skills"][0]["tags"].as_array().unwrap().is_empty());
    let expected = [
        ("JSONRPC", "1.0", hub.url("/a2a/jsonrpc")),
        ("HTTP+JSON", "1.0", hub.url("")),
        ("JSONRPC", "0.3", hub.url("/a2a/jsonrpc")),
        ("HTTP+JSON", "0.3", hub.url("")),
    ];
    assert_eq!(interfaces(&card), expected.map(owned));
    assert!(card.get("provider").is_none());
    assert!(!card.to_string().contains("push_notifications"));
}

/// The binding, the version and the address of every interface of a card.
fn interfaces(card: &Value) -> Vec<(String, String, String)> {
    let listed = card["supportedInterfaces"].as_array().unwrap().iter();
    let read = |one: &Value| {
        let text = |member: &str| one[member].as_str().unwrap().to_owned();
        (text("protocolBinding"), text("protocolVersion"), text("url"))
    };
    listed.map(read).collect()
}

fn owned((binding, version, url): (&str, &str, String)) -> (String, String, String) {
    (binding.to_owned(), version.to_owned(), url)
}

/// A Rust agent of its own, with a skill for each of its tools.
#[tokio::test]
async fn an_embedded_agent_has_the_card_of_its_profile() {
    let tool = |id: &str, description: &str| Skill {
        id: id.into(),
        name: id.into(),
        description: description.into(),
        tags: vec!["tool".into()],
        ..Skill::default()
    };
    let mut profile = Profile::new("researcher", "Research agent that summarizes topics");
    profile.title = "Researcher".into();
    profile.version = Some("0.21.0".into());
    profile.icon_url = Some("https://example.com/icon.png".into());
    profile.skills = vec![tool("summarize", "Summarize a text"), tool("search", "Search the web")];
    let script = Script::new();
    let store = Arc::new(Sqlite::memory().unwrap());
    let engine = Engine::builder(store).agent(profile, script.clone()).build().unwrap();
    let config = Config {
        documentation_url: Some("https://example.com/docs".into()),
        icon_url: Some("https://example.com/other.png".into()),
        ..Config::default()
    };
    let hub = Hub::over(engine, script, |builder| builder.config(config)).await;
    let card = hub.call(Call::get(CARD)).await.json();
    let tools = json!([
        { "id": "summarize", "name": "summarize", "description": "Summarize a text", "tags": ["tool"] },
        { "id": "search", "name": "search", "description": "Search the web", "tags": ["tool"] },
    ]);
    for (member, expected) in [
        ("protocolVersion", json!("0.3.0")),
        ("name", json!("Researcher")),
        ("description", json!("Research agent that summarizes topics")),
        ("version", json!("0.21.0")),
        ("iconUrl", json!("https://example.com/icon.png")),
        ("documentationUrl", json!("https://example.com/docs")),
        ("defaultInputModes", json!(["text/plain"])),
        ("defaultOutputModes", json!(["text/plain"])),
        ("skills", tools),
    ] {
        assert_eq!(card[member], expected, "{card:#}");
    }
    assert_eq!(card["capabilities"]["streaming"], true);
}

// proves: CARD-020
#[tokio::test]
async fn the_configuration_chooses_the_interfaces_and_their_order() {
    use CardInterface::{Grpc, JsonRpc, Rest, WebSocket};
    let config = Config {
        card_interfaces: CardInterface::ALL.into(),
        agent_card_interfaces: [(AgentName::new("files"), vec![WebSocket, Grpc, JsonRpc])].into(),
        ..Config::default()
    };
    assert_eq!(CardInterface::ALL, [JsonRpc, Rest, Grpc, WebSocket]);
    let hub = Hub::with(config).await;
    let grpc = hub.address.to_string();
    let card = hub.call(Call::get(CARD)).await.json();
    let expected = [
        ("JSONRPC", "1.0", hub.url("/a2a/jsonrpc")),
        ("HTTP+JSON", "1.0", hub.url("")),
        ("GRPC", "1.0", grpc.clone()),
        (WEBSOCKET, "1.0", hub.url("/ws").replace("http", "ws")),
        ("JSONRPC", "0.3", hub.url("/a2a/jsonrpc")),
        ("HTTP+JSON", "0.3", hub.url("")),
        ("GRPC", "0.3", grpc.clone()),
    ];
    assert_eq!(interfaces(&card), expected.map(owned));
    let card = hub.call(Call::get(format!("/agents/files{CARD}"))).await.json();
    let expected = [
        (WEBSOCKET, "1.0", hub.url("/agents/files/ws").replace("http", "ws")),
        ("GRPC", "1.0", grpc),
        ("JSONRPC", "1.0", hub.url("/agents/files/a2a/jsonrpc")),
        ("JSONRPC", "0.3", hub.url("/agents/files/a2a/jsonrpc")),
    ];
    assert_eq!(interfaces(&card), expected.map(owned));
}

// proves: CARD-015, CARD-016, CARD-017
#[tokio::test]
async fn its_0_3_members_agree_with_the_endpoints() {
    let hub = Hub::start().await;
    let card = hub.call(Call::get(CARD)).await.json();
    assert!(card["protocolVersion"].as_str().unwrap().starts_with("0.3"));
    assert_eq!(card["url"], hub.url("/a2a/jsonrpc"));
    assert_eq!(card["preferredTransport"], "JSONRPC");
    assert_eq!(card["capabilities"]["stateTransitionHistory"], true);
    let others = card["additionalInterfaces"].as_array().unwrap();
    let mut transports = std::collections::HashMap::new();
    for one in others {
        let transport = one["transport"].as_str().unwrap();
        let known = transports.insert(one["url"].as_str().unwrap(), transport);
        assert!(known.is_none_or(|known| known == transport), "{others:?}");
    }
    assert_eq!(transports.get(card["url"].as_str().unwrap()), Some(&"JSONRPC"));
}

// proves: CARD-005, CARD-025, TEN-006
#[tokio::test]
async fn every_interface_of_every_card_answers() {
    let hub = Hub::listing_everything().await;
    for prefix in ["", "/agents/script", "/agents/files"] {
        let card = hub.call(Call::get(format!("{prefix}{CARD}"))).await.json();
        assert_eq!(card["capabilities"]["streaming"], true);
        assert_eq!(card["capabilities"]["pushNotifications"], false);
        assert_eq!(card["capabilities"]["extendedAgentCard"], false);
        let interfaces = card["supportedInterfaces"].as_array().unwrap();
        // Those of gRPC answer in the tests of gRPC.
        for one in interfaces.iter().filter(|one| one["protocolBinding"] != "GRPC") {
            if one["protocolBinding"] == WEBSOCKET {
                let socket = one["url"].as_str().unwrap();
                assert_eq!(socket, hub.url(&format!("{prefix}/ws")).replace("http", "ws"));
                continue;
            }
            let path = one["url"].as_str().unwrap().strip_prefix(&hub.url("")).unwrap();
            let (binding, version) = (&one["protocolBinding"], &one["protocolVersion"]);
            let call = match (binding.as_str().unwrap(), version.as_str().unwrap()) {
                ("JSONRPC", "1.0") => Call::rpc("SendMessage", &message("hello")).at(path),
                ("JSONRPC", "0.3") => Call::old_rpc("message/send", &old_message("hello")).at(path),
                ("HTTP+JSON", "1.0") => {
                    Call::post(format!("{path}/message:send"), &message("hello")).v1()
                }
                _ => Call::post(format!("{path}/v1/message:send"), &old_message("hello")),
            };
            let answer = hub.call(call).await;
            assert_eq!(answer.status(), 200, "{one}");
            assert!(answer.json().get("error").is_none(), "{one} {}", answer.text());
        }
    }
    let silent = hub.call(Call::get(format!("/agents/silent{CARD}"))).await.json();
    assert_eq!(silent["capabilities"]["streaming"], false);
    for path in [CARD, "/tasks", "/", ""] {
        let answer = hub.call(Call::get(format!("/agents/Script{path}")).v1()).await;
        assert_eq!(answer.status(), 404, "{path}");
        assert_eq!(answer.json()["error"]["message"], "no agent \"Script\"", "{path}");
    }
}

// proves: EXT-008
#[tokio::test]
async fn extensions_are_declared() {
    let hub = Hub::start().await;
    let card = hub.call(Call::get(format!("/agents/strict{CARD}"))).await.json();
    let declared = &card["capabilities"]["extensions"][0];
    assert_eq!((&declared["uri"], &declared["required"]), (&json!("urn:needed"), &json!(true)));
}

// proves: VER-013, CARD-011, CARD-012
#[tokio::test]
async fn a_card_can_be_cached_and_asked_for_again() {
    let config = Config { card_max_age: Duration::from_secs(77), ..Config::default() };
    let hub = Hub::with(config).await;
    let mut client = hub.client().await;
    let hybrid = client.call(Call::get(CARD)).await;
    assert_eq!(hybrid.header("cache-control"), Some("public, max-age=77"));
    assert_eq!(hybrid.header("vary"), Some("A2A-Version"));
    assert_eq!(hybrid.header("access-control-allow-origin"), Some("*"));
    let modified = hybrid.header("last-modified").unwrap();
    assert!(modified.ends_with(" GMT"), "{modified}");
    let tag = hybrid.header("etag").unwrap();

    let pure = client.call(Call::get(CARD).v1()).await;
    assert_ne!(pure.header("etag"), Some(tag));
    for member in ["url", "protocolVersion", "preferredTransport", "additionalInterfaces"] {
        assert!(pure.json().get(member).is_none(), "{member}");
        assert!(hybrid.json().get(member).is_some(), "{member}");
    }
    for call in [
        Call::get(CARD).header("If-None-Match", tag),
        Call::get(CARD).header("If-None-Match", &format!("\"x\", W/{tag}")),
        Call::get(CARD).header("If-None-Match", "*"),
        Call::get(CARD).header("If-Modified-Since", modified),
    ] {
        let answer = client.call(call).await;
        assert_eq!((answer.status(), answer.body.len()), (304, 0));
        assert_eq!(answer.header("etag"), Some(tag));
    }
    let other = Call::get(CARD).header("If-None-Match", "\"x\"");
    let other = other.header("If-Modified-Since", modified);
    assert_eq!(client.call(other).await.status(), 200, "the tag counts for more than the date");

    let head = client.call(Call::new("HEAD", CARD)).await;
    assert_eq!((head.status(), head.header("etag")), (200, Some(tag)));
    assert_eq!(head.header("content-length"), Some(hybrid.body.len().to_string().as_str()));
    assert_eq!(client.call(Call::get("/healthz")).await.status(), 200, "HEAD sent no body");
}

// proves: CARD-014
#[tokio::test]
async fn the_public_url_is_what_cards_say() {
    let provider =
        AgentProvider { organization: "Example".into(), url: "https://example.com".into() };
    let config = Config {
        public_url: Some("https://agents.example.com/herald/".into()),
        provider: Some(provider),
        agent_version: "9.1".into(),
        ..Config::default()
    };
    let hub = Hub::with(config).await;
    let card = hub.call(Call::get(CARD)).await.json();
    assert_eq!(card["url"], "https://agents.example.com/herald/a2a/jsonrpc");
    assert_eq!(card["provider"]["organization"], "Example");
    assert_eq!(card["version"], "9.1");
    let card = hub.call(Call::get(format!("/agents/files{CARD}"))).await.json();
    let url = &card["supportedInterfaces"][1]["url"];
    assert_eq!(url, "https://agents.example.com/herald/agents/files");
}

// proves: CARD-022
#[tokio::test]
async fn the_card_declares_exactly_what_is_enforced_and_needs_no_credentials_itself() {
    let open = Hub::start().await.call(Call::get(CARD)).await.json();
    for member in ["securitySchemes", "securityRequirements", "security"] {
        assert!(open.get(member).is_none_or(|value| value.as_array().is_some_and(Vec::is_empty)));
    }
    let token = Token {
        secret: "canary-7c5e-card".into(),
        tenant: TenantId::from("acme"),
        principal: "ci".into(),
        scopes: Scopes::ALL,
        ..Token::default()
    };
    let hub = Hub::with(Config { tokens: vec![token], ..Config::default() }).await;
    let answer = hub.call(Call::get(CARD)).await;
    assert!(!answer.text().contains("canary-7c5e-card"));
    let card = answer.json();
    let scheme = &card["securitySchemes"]["bearer"];
    assert_eq!(scheme["httpAuthSecurityScheme"]["scheme"], "Bearer");
    assert_eq!((&scheme["type"], &scheme["scheme"]), (&json!("http"), &json!("Bearer")));
    assert!(card["securityRequirements"][0]["schemes"]["bearer"].is_object());
    assert_eq!(card["security"][0]["bearer"], json!([]));
    assert_eq!(hub.call(Call::rpc("ListTasks", &json!({}))).await.status(), 401);
}

#[tokio::test]
async fn the_page_shows_the_agents_and_a_line_that_works() {
    let hub = Hub::start().await;
    let page = hub.call(Call::get("/")).await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
    let text = page.text();
    assert!(text.contains("Script &amp; Co"), "{text}");
    assert!(text.contains(&hub.url("/agents/files/")), "{text}");
    assert!(text.contains(&hub.url(CARD)), "{text}");
    let line = text.split("<pre>").nth(1).unwrap().split("</pre>").next().unwrap();
    let line = line.replace("&#39;", "'").replace("&quot;", "\"");
    let body = line.split("-d '").nth(1).unwrap().trim_end_matches('\'');
    let body: Value = serde_json::from_str(body).unwrap();
    let answer = hub.call(Call::post("/a2a/jsonrpc", &body).v1()).await;
    assert_eq!(answer.result()["task"]["artifacts"][0]["parts"][0]["text"], "hello");
    assert_eq!(hub.call(Call::get("/agents/files/")).await.status(), 200);
    assert_eq!(hub.call(Call::get("/agents/nobody/")).await.status(), 404);
}

#[tokio::test]
async fn probes_are_answered() {
    let hub = Hub::start().await;
    for path in ["/healthz", "/readyz"] {
        let answer = hub.call(Call::get(path).header("Host", "10.1.2.3:8000")).await;
        assert_eq!(answer.status(), 200, "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
}
