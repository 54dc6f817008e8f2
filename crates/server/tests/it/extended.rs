//! Extended cards: their content for each caller, over every binding and version.

use std::sync::Arc;

use herald_client::{Binding, CardKeys, Client, Credential, protocol::Version};
use herald_engine::{
    Audience, Engine, ExtendedCard, Profile, Scopes, Skill, store::sqlite::Sqlite,
};
use herald_protocol::{AgentName, TenantId, card::AgentInterface};
use herald_server::{CardInterface, Config, SigningKey, Token};
use serde_json::{Value, json};

use crate::{
    agents::Script,
    client::{Answer, Call, message},
    hub::Hub,
};

const CARD: &str = "/.well-known/agent-card.json";

/// Every binding and version that has the operation.
const EVERY_WAY: [(Binding, Version); 7] = [
    (Binding::JsonRpc, Version::V1_0),
    (Binding::Rest, Version::V1_0),
    (Binding::Grpc, Version::V1_0),
    (Binding::WebSocket, Version::V1_0),
    (Binding::JsonRpc, Version::V0_3),
    (Binding::Rest, Version::V0_3),
    (Binding::Grpc, Version::V0_3),
];

fn skill(id: &str) -> Skill {
    Skill { id: id.into(), name: id.into(), description: format!("Does {id}"), ..Skill::default() }
}

/// An agent with one public skill and an extended card.
fn shop() -> Profile {
    let mut profile = Profile::new("shop", "Sells things");
    let everybody = Audience::EVERYBODY;
    profile.extended_card = Some(ExtendedCard {
        description: Some("Sells things and takes them back".into()),
        skills: vec![
            (skill("refund"), everybody.clone()),
            (skill("audit"), Audience { scopes: Scopes::ADMIN, ..everybody.clone() }),
            (skill("acme"), Audience { tenants: Some(vec!["acme".into()]), ..everybody.clone() }),
            (skill("bob"), Audience { principals: Some(vec!["bob".into()]), ..everybody.clone() }),
        ],
        interfaces: vec![(
            AgentInterface {
                url: "https://internal.example/a2a".into(),
                protocol_binding: "JSONRPC".into(),
                protocol_version: "1.0".into(),
                tenant: None,
            },
            Audience { scopes: Scopes::ADMIN, ..everybody },
        )],
    });
    profile
}

/// An agent whose extended card has something for administrators only.
fn vault() -> Profile {
    let mut profile = Profile::new("vault", "Keeps things");
    let audience = Audience { scopes: Scopes::ADMIN, ..Audience::EVERYBODY };
    let skills = vec![(skill("open"), audience)];
    profile.extended_card = Some(ExtendedCard { skills, ..ExtendedCard::default() });
    profile
}

fn token(principal: &str, tenant: &str, scopes: Scopes) -> Token {
    Token {
        secret: format!("{principal}-secret"),
        tenant: TenantId::from(tenant),
        principal: principal.into(),
        scopes,
        ..Token::default()
    }
}

fn config() -> Config {
    let limited = Token {
        skills: Some(vec!["refund".into()]),
        agents: Some(vec![AgentName::new("shop")]),
        ..token("limited", "other", Scopes::CALLER)
    };
    let tokens = vec![
        token("alice", "acme", Scopes::ALL),
        token("bob", "other", Scopes::CALLER),
        token("writer", "other", Scopes::SEND),
        limited,
    ];
    Config { tokens, card_interfaces: CardInterface::ALL.into(), ..Config::default() }
}

async fn started(config: Config) -> Hub {
    let script = Script::new();
    let engine = Engine::builder(Arc::new(Sqlite::memory().unwrap()))
        .agent(shop(), script.clone())
        .agent(vault(), script.clone())
        .agent(Profile::new("plain", "Has a public card only"), script.clone())
        .build()
        .unwrap();
    Hub::over(engine, script, |builder| builder.config(config)).await
}

fn as_(who: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer {who}-secret"))
}

fn ids(card: &Value) -> Vec<&str> {
    let skills = card["skills"].as_array().unwrap().iter();
    skills.map(|skill| skill["id"].as_str().unwrap()).collect()
}

/// The operation over HTTP in 1.0 and 0.3, and the path of 0.2, at an agent.
fn requests(agent: &str) -> [Call; 6] {
    let (new, old) = ("GetExtendedAgentCard", "agent/getAuthenticatedExtendedCard");
    let rpc = format!("/agents/{agent}/a2a/jsonrpc");
    [
        Call::rpc(new, &json!({})).at(&rpc),
        Call::get(format!("/agents/{agent}/extendedAgentCard")).v1(),
        Call::old_rpc(old, &json!({})).at(&rpc),
        Call::get(format!("/agents/{agent}/v1/card")),
        // The path next to the address in the card, and the one next to the agent's own.
        Call::get(format!("/agents/{agent}/a2a/agent/authenticatedExtendedCard")),
        Call::get(format!("/agents/{agent}/agent/authenticatedExtendedCard")),
    ]
}

fn card_of(answer: &Answer) -> Value {
    let mut json = answer.json();
    match json.get_mut("result") {
        Some(result) => result.take(),
        None => json,
    }
}

// proves: XC-005, XC-006, REST-021
#[tokio::test]
async fn every_binding_and_version_has_it() {
    let hub = started(config()).await;
    for (binding, version) in EVERY_WAY {
        let way = format!("{binding:?} {version}");
        let client = Client::builder().prefer([binding]).version(version);
        let client = client.credential(Credential::bearer("bob-secret"));
        let client = client.connect(&hub.url("")).await.unwrap();
        assert_eq!(client.card().description, "Sells things", "{way}");
        let card = client.extended_card().await.unwrap();
        assert_eq!(card.description, "Sells things and takes them back", "{way}");
        let ids: Vec<_> = card.skills.iter().map(|skill| skill.id.as_str()).collect();
        assert_eq!(ids, ["shop", "refund", "bob"], "{way}");
        assert_eq!(client.card(), card, "it replaces the public one");
    }
}

// proves: XC-006
#[tokio::test]
async fn each_caller_gets_the_entries_that_name_it() {
    let hub = started(config()).await;
    for (who, expected, internal) in [
        ("alice", &["shop", "refund", "audit", "acme"][..], true),
        ("bob", &["shop", "refund", "bob"], false),
        ("limited", &["refund"], false),
    ] {
        for (index, call) in requests("shop").into_iter().enumerate() {
            let answer = hub.call(as_(who, call.clone())).await;
            assert_eq!(answer.status(), 200, "{who} {call:?}");
            assert_eq!(ids(&card_of(&answer)), expected, "{who} {call:?}");
            // Cards of 0.3 leave out an interface of 1.0.
            let shown = answer.text().contains("https://internal.example/a2a");
            assert_eq!(shown, internal && index < 2, "{who} {call:?}");
        }
    }
    let public = hub.call(as_("alice", Call::get(CARD))).await.json();
    assert_eq!(ids(&public), ["shop"], "the public card is the same for everybody");
    for call in requests("vault") {
        let answer = hub.call(as_("limited", call)).await;
        assert_eq!(answer.status(), 403, "credentials for another agent");
    }
    for call in requests("shop") {
        let answer = hub.call(as_("writer", call)).await;
        assert_eq!(answer.status(), 403, "without the scope read");
        assert!(!answer.text().contains("refund"));
    }
}

// proves: XC-001, XC-004, XC-007, XC-009, CARD-021
#[tokio::test]
async fn it_needs_the_credentials_that_the_public_card_declares() {
    let hub = started(config()).await;
    let public = hub.call(Call::get(CARD)).await.json();
    let schemes: Vec<_> = public["securitySchemes"].as_object().unwrap().keys().collect();
    assert_eq!(schemes, ["apiKey", "bearer"]);
    for call in requests("shop") {
        for call in [
            call.clone(),
            call.clone().header("Authorization", "Bearer wrong"),
            call.clone().header("Authorization", "Basic Ym9iOmJvYi1zZWNyZXQ="),
            call.clone()
                .header("X-API-Key", "bob-secret")
                .header("Authorization", "Digest bob-secret"),
        ] {
            let answer = hub.call(call.clone()).await;
            assert_eq!(answer.status(), 401, "{call:?} {}", answer.text());
            assert!(answer.header("www-authenticate").unwrap().starts_with("Bearer"), "{call:?}");
            assert!(answer.text().contains("AUTHENTICATION_REQUIRED"), "{}", answer.text());
            assert!(!answer.text().contains("refund"));
        }
    }
}

// proves: XC-002, XC-003
#[tokio::test]
async fn an_agent_or_a_caller_without_one_gets_the_error_of_the_version() {
    let hub = started(config()).await;
    for (agent, flag) in [("shop", true), ("vault", true), ("plain", false)] {
        let card = hub.call(Call::get(format!("/agents/{agent}{CARD}"))).await.json();
        assert_eq!(card["capabilities"]["extendedAgentCard"], flag, "{agent}");
        assert_eq!(card["supportsAuthenticatedExtendedCard"], flag, "{agent}");
    }
    let reason = |answer: &Answer| answer.text().contains("EXTENDED_AGENT_CARD_NOT_CONFIGURED");
    let [rpc, rest, old_rpc, old_rest, beside, below] = requests("plain");
    assert_eq!(hub.call(as_("bob", rpc)).await.error().0, -32004);
    assert_eq!(hub.call(as_("bob", rest)).await.reason(), "UNSUPPORTED_OPERATION");
    assert_eq!(hub.call(as_("bob", old_rpc)).await.error().0, -32007);
    assert!(reason(&hub.call(as_("bob", old_rest)).await));
    for call in [beside, below] {
        assert_eq!(hub.call(as_("bob", call)).await.status(), 404);
    }
    let [rpc, rest, old_rpc, ..] = requests("vault");
    for call in [rpc.clone(), old_rpc] {
        assert_eq!(hub.call(as_("bob", call)).await.error().0, -32007);
    }
    assert!(reason(&hub.call(as_("bob", rest)).await));
    assert_eq!(ids(&card_of(&hub.call(as_("alice", rpc)).await)), ["vault", "open"]);
}

#[tokio::test]
async fn a_server_without_credentials_declares_none() {
    let hub = started(Config::default()).await;
    let card = hub.call(Call::get(CARD)).await.json();
    assert_eq!(card["capabilities"]["extendedAgentCard"], false);
    let [rpc, _, old, ..] = requests("shop");
    assert_eq!(hub.call(rpc).await.error().0, -32004);
    assert_eq!(hub.call(old).await.error().0, -32007);
}

// proves: XC-008
#[tokio::test]
async fn it_is_not_stored_by_caches_and_not_read_by_other_origins() {
    let hub = started(config()).await;
    for call in requests("shop") {
        let answer = hub.call(as_("bob", call)).await;
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("access-control-allow-origin"), None);
    }
}

// proves: SIG-002, SIG-009
#[tokio::test]
async fn it_is_signed_like_the_public_one() {
    let directory = tempfile::tempdir().unwrap();
    let key = SigningKey::create(directory.path(), "cards").unwrap();
    let key = Arc::new(SigningKey::read(&key).unwrap());
    let hub = started(Config { signing_keys: vec![key], ..config() }).await;
    let keys = hub.call(Call::get("/.well-known/jwks.json")).await;
    let keys = CardKeys::new().jwks(&keys.body).unwrap();
    for binding in [Binding::JsonRpc, Binding::Rest, Binding::Grpc, Binding::WebSocket] {
        let client = Client::builder().prefer([binding]).version(Version::V1_0);
        let client = client.credential(Credential::bearer("alice-secret"));
        let client = client.card_keys(keys.clone()).require_signature();
        let client = client.connect(&hub.url("")).await.unwrap();
        assert!(client.verdict().is_verified());
        assert_eq!(client.extended_card().await.unwrap().skills.len(), 4);
        assert!(client.verdict().is_verified(), "{binding:?}");
    }
}

#[tokio::test]
async fn a_skill_with_scopes_declares_and_enforces_them() {
    let script = Script::new();
    let mut profile = Profile::new("shop", "Sells things");
    profile.skills.push(Skill { scopes: Some(Scopes::ADMIN), ..skill("audit") });
    let engine = Engine::builder(Arc::new(Sqlite::memory().unwrap()))
        .agent(profile, script.clone())
        .build()
        .unwrap();
    let hub = Hub::over(engine, script, |builder| builder.config(config())).await;
    let card = hub.call(Call::get(CARD)).await.json();
    assert!(card["skills"][0].get("securityRequirements").is_none());
    let needed = &card["skills"][1]["securityRequirements"];
    let by = |scheme: &str| json!({ "schemes": { scheme: { "list": ["admin"] } } });
    assert_eq!(*needed, json!([by("bearer"), by("apiKey")]));
    let security = json!([{ "bearer": ["admin"] }, { "apiKey": ["admin"] }]);
    assert_eq!(card["skills"][1]["security"], security);
    let mut audit = message("hello");
    audit["message"]["metadata"] = json!({ "skill": "audit" });
    let mut list = audit.clone();
    list["message"]["metadata"]["skill"] = json!(["audit"]);
    let malformed = hub.call(as_("bob", Call::rpc("SendMessage", &list))).await;
    assert_eq!(malformed.error().0, -32602, "a skill that is not a string names no skill");
    let refused = hub.call(as_("bob", Call::rpc("SendMessage", &audit))).await;
    assert_eq!(refused.status(), 403, "{}", refused.text());
    let sent = hub.call(as_("alice", Call::rpc("SendMessage", &audit))).await;
    assert!(sent.result()["task"].is_object());
    let plain = hub.call(as_("bob", Call::rpc("SendMessage", &message("hello")))).await;
    assert!(plain.result()["task"].is_object());
}
