//! API keys of the store, and the operator token.

use std::{sync::Arc, time::Duration};

use herald_engine::{
    Engine, Profile, Scopes, Visibility,
    keys::{ApiKeySecret, new_key_id},
    store::{
        ApiKey, AuditActor, AuditEntry, AuditQuery, Owner, Store, flaky::Flaky, sqlite::Sqlite,
    },
};
use herald_protocol::{AgentName, TenantId, Timestamp};
use herald_server::Config;
use serde_json::json;

use crate::{
    agents::Script,
    client::{Answer, Call, message},
    hub::Hub,
};

/// A server with the store under it.
struct Keyed<S> {
    hub: Hub,
    store: Arc<S>,
}

impl Keyed<Sqlite> {
    async fn start(config: Config) -> Self {
        Self::over(Sqlite::memory().unwrap(), config).await
    }
}

impl<S: Store> Keyed<S> {
    async fn over(store: S, config: Config) -> Self {
        let (store, script) = (Arc::new(store), Script::new());
        let engine = Engine::builder(Arc::<S>::clone(&store))
            .agent(Profile::new("script", "Does what it is told"), script.clone())
            .agent(Profile::new("other", "Another"), script.clone())
            .build()
            .unwrap();
        let hub = Hub::over(engine, script, |builder| builder.config(config)).await;
        Self { hub, store }
    }

    /// Creates a key. Its secret is returned.
    async fn create(&self, change: impl FnOnce(&mut ApiKey)) -> (ApiKeySecret, ApiKey) {
        let secret = ApiKeySecret::generate();
        let mut key = ApiKey {
            id: new_key_id(),
            hash: secret.hash(),
            owner: Owner { tenant: TenantId::from("acme"), principal: "ci".into() },
            scopes: Scopes::CALLER,
            agents: None,
            skills: None,
            visibility: None,
            created: self.hub.engine.now(),
            created_by: "test".into(),
            expires: None,
            last_used: None,
            revoked: None,
            label: String::new(),
        };
        change(&mut key);
        self.store.create_key(key.clone(), entry("key.create")).await.unwrap();
        (secret, key)
    }

    async fn revoke(&self, key: &ApiKey) {
        let now = self.hub.engine.now();
        self.store.revoke_key(&key.id, now, entry("key.revoke")).await.unwrap().unwrap();
    }

    async fn send(&self, secret: &str) -> Answer {
        self.hub.call(with(secret, Call::rpc("SendMessage", &message("hello")))).await
    }

    /// Sends until the status is as expected.
    async fn eventually(&self, secret: &str, status: u16) {
        while self.send(secret).await.status() != status {}
    }
}

fn entry(action: &'static str) -> AuditEntry {
    AuditEntry::new(AuditActor::default(), action)
}

fn with(secret: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer {secret}"))
}

// proves: SEC-007
#[tokio::test]
async fn a_key_is_accepted_in_both_headers_with_its_rights_alone() {
    let keyed = Keyed::start(Config { required: true, ..Config::default() }).await;
    let (secret, _) = keyed.create(|key| key.scopes = Scopes::SEND).await;
    let (secret, other) = (secret.reveal(), ApiKeySecret::generate());
    assert_eq!(keyed.send(secret).await.status(), 200);
    let call = Call::rpc("SendMessage", &message("hello")).header("X-API-Key", secret);
    assert_eq!(keyed.hub.call(call).await.status(), 200);
    let get = with(secret, Call::rpc("GetTask", &json!({ "id": "x" })));
    assert_eq!(keyed.hub.call(get).await.status(), 403);
    let cut = &secret[..secret.len() - 1];
    for wrong in [other.reveal(), cut, &format!("{cut}_"), &secret.to_uppercase(), "hrld_", ""] {
        let answer = keyed.send(wrong).await;
        assert_eq!(answer.status(), 401, "{wrong}");
        assert_eq!(answer.header("www-authenticate"), Some(r#"Bearer realm="herald""#));
    }
    let (limited, _) = keyed.create(|key| key.agents = Some(vec![AgentName::new("other")])).await;
    let call =
        |path: &str| with(limited.reveal(), Call::rpc("SendMessage", &message("x"))).at(path);
    assert_eq!(keyed.hub.call(call("/agents/other/a2a")).await.status(), 200);
    assert_eq!(keyed.hub.call(call("/agents/script/a2a")).await.status(), 403);
}

#[tokio::test]
async fn the_first_key_closes_an_open_server_and_its_revocation_does_not_open_it() {
    let keyed = Keyed::start(Config::default()).await;
    let open = || Call::rpc("SendMessage", &message("hello"));
    assert_eq!(keyed.hub.call(open()).await.status(), 200);
    let card = async || keyed.hub.call(Call::get("/.well-known/agent-card.json").v1()).await.json();
    assert_eq!(card().await.get("securitySchemes"), None);
    let (secret, key) = keyed.create(|_| {}).await;
    assert_eq!(keyed.send(secret.reveal()).await.status(), 200);
    while keyed.hub.call(open()).await.status() != 401 {}
    let schemes = card().await["securitySchemes"].clone();
    assert_eq!(schemes.as_object().unwrap().keys().collect::<Vec<_>>(), ["apiKey", "bearer"]);
    assert_eq!(schemes["apiKey"]["apiKeySecurityScheme"]["name"], "X-API-Key");
    keyed.revoke(&key).await;
    keyed.eventually(secret.reveal(), 401).await;
    assert_eq!(keyed.hub.call(open()).await.status(), 401);
}

#[tokio::test]
async fn keys_are_optional_if_the_configuration_says_so() {
    let keyed = Keyed::start(Config { keys_optional: true, ..Config::default() }).await;
    let (secret, _) = keyed.create(|key| key.scopes = Scopes::READ).await;
    let open = || Call::rpc("SendMessage", &message("hello"));
    assert_eq!(keyed.hub.call(open()).await.status(), 200);
    assert_eq!(keyed.send("a token for something else").await.status(), 200);
    // A key counts: with its own rights, and not at all if it is unknown.
    assert_eq!(keyed.send(secret.reveal()).await.status(), 403);
    assert_eq!(keyed.send(ApiKeySecret::generate().reveal()).await.status(), 401);
}

#[tokio::test]
async fn a_send_that_waits_ends_with_its_key() {
    let keyed = Keyed::start(Config { required: true, ..Config::default() }).await;
    let (secret, key) = keyed.create(|_| {}).await;
    let mut client = keyed.hub.client().await;
    let waiting = with(secret.reveal(), Call::rpc("SendMessage", &message("wait")));
    let (answer, ()) = tokio::join!(client.call(waiting), async {
        // The task exists once the message is stored, and the send waits for its end.
        while keyed.hub.engine.at_work().is_empty() {
            tokio::task::yield_now().await;
        }
        keyed.revoke(&key).await;
    });
    assert_eq!(answer.status(), 401, "{}", answer.text());
}

#[tokio::test]
async fn a_server_that_is_open_to_the_network_closes_with_the_first_key() {
    let keyed = Keyed::start(Config { open_to_network: true, ..Config::default() }).await;
    let open = || Call::rpc("SendMessage", &message("hello"));
    assert_eq!(keyed.hub.call(open()).await.status(), 200);
    let (secret, _) = keyed.create(|_| {}).await;
    keyed.eventually(secret.reveal(), 200).await;
    assert_eq!(keyed.hub.call(open()).await.status(), 401);
}

#[tokio::test]
async fn a_revoked_key_ends_its_streams_and_an_expired_one_is_refused() {
    let keyed = Keyed::start(Config { required: true, ..Config::default() }).await;
    let (secret, key) = keyed.create(|_| {}).await;
    let call = with(secret.reveal(), Call::rpc("SendStreamingMessage", &message("wait")));
    let mut stream = keyed.hub.client().await.open(call).await;
    let mut feed = keyed.hub.client().await.open(with(secret.reveal(), Call::get("/events"))).await;
    assert!(stream.next().await.is_some());
    keyed.revoke(&key).await;
    while stream.next().await.is_some() {}
    while feed.next().await.is_some() {}
    let answer = keyed.send(secret.reveal()).await;
    assert_eq!((answer.status(), answer.error().1), (401, "AUTHENTICATION_REQUIRED".into()));
    let past = Timestamp::from_millis(keyed.hub.engine.now().as_millis() - 1);
    let (expired, _) = keyed.create(|key| key.expires = Some(past)).await;
    assert_eq!(keyed.send(expired.reveal()).await.status(), 401);
    let soon = Timestamp::from_millis(keyed.hub.engine.now().as_millis() + 2000);
    let (short, _) = keyed.create(|key| key.expires = Some(soon)).await;
    let call = with(short.reveal(), Call::rpc("SendStreamingMessage", &message("wait")));
    let mut stream = keyed.hub.client().await.open(call).await;
    while stream.next().await.is_some() {}
    assert_eq!(keyed.send(short.reveal()).await.status(), 401);
}

#[tokio::test]
async fn a_lost_notification_delays_a_revocation_by_seconds() {
    let keyed =
        Keyed::over(Flaky::new().unwrap(), Config { required: true, ..Config::default() }).await;
    let (secret, key) = keyed.create(|_| {}).await;
    assert_eq!(keyed.send(secret.reveal()).await.status(), 200);
    keyed.store.lose_changes(true);
    keyed.revoke(&key).await;
    keyed.eventually(secret.reveal(), 401).await;
}

#[tokio::test]
async fn a_flood_of_unknown_keys_leaves_known_ones_working() {
    let keyed = Keyed::start(Config { required: true, ..Config::default() }).await;
    let (secret, key) = keyed.create(|key| key.visibility = Some(Visibility::Tenant)).await;
    for _ in 0..300 {
        let unknown = ApiKeySecret::generate();
        assert_eq!(keyed.send(unknown.reveal()).await.status(), 401);
    }
    assert_eq!(keyed.send(secret.reveal()).await.status(), 200);
    // The audit log counts the refusals, and has none of the secrets.
    let records = async || {
        let query =
            AuditQuery { action: Some("auth.".into()), limit: 100, ..AuditQuery::default() };
        keyed.store.read_audit(query).await.unwrap().records
    };
    let mut counted = 0;
    while counted < 300 {
        counted = records().await.iter().map(|record| count(&record.entry.detail)).sum();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for record in records().await {
        assert_eq!(record.entry.refused.as_deref(), Some("the API key is unknown"));
        assert_eq!(record.entry.actor.credential, "key");
        assert_eq!(record.entry.address.as_deref(), Some("127.0.0.1"));
        assert!(!format!("{record:?}").contains("hrld_"));
    }
    assert_eq!(keyed.store.find_key(&key.id).await.unwrap().unwrap().revoked, None);
}

#[tokio::test]
async fn missing_permissions_are_in_the_audit_log() {
    let keyed = Keyed::start(Config { required: true, ..Config::default() }).await;
    let (secret, key) = keyed.create(|key| key.scopes = Scopes::READ).await;
    assert_eq!(keyed.send(secret.reveal()).await.status(), 403);
    let keys = with(secret.reveal(), Call::get("/api/keys"));
    assert_eq!(keyed.hub.call(keys).await.status(), 403);
    let query =
        AuditQuery { action: Some("auth.denied".into()), limit: 100, ..AuditQuery::default() };
    let mut records = Vec::new();
    while records.len() < 2 {
        records = keyed.store.read_audit(query.clone()).await.unwrap().records;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for record in records {
        assert_eq!(record.entry.actor.credential_id.as_deref(), Some(&*key.id));
        assert_eq!(&*record.entry.actor.principal, "ci");
        let reason = record.entry.refused.unwrap();
        assert!(reason.contains("do not allow"), "{reason}");
    }
}

/// The number of refusals of a record.
fn count(detail: &str) -> u64 {
    let detail: Option<serde_json::Value> = serde_json::from_str(detail).ok();
    detail.and_then(|detail| detail["count"].as_u64()).unwrap_or(1)
}

#[tokio::test]
async fn the_operator_token_is_accepted_on_this_machine() {
    let secret = ApiKeySecret::generate();
    let operator = secret.clone();
    let config = Config { required: true, ..Config::default() };
    let hub = Hub::built(|builder| builder.config(config).operator(operator)).await;
    let call = |secret: &str| with(secret, Call::rpc("SendMessage", &message("hello")));
    assert_eq!(hub.call(call(secret.reveal())).await.status(), 200);
    assert_eq!(hub.call(call(ApiKeySecret::generate().reveal())).await.status(), 401);
    for name in ["CF-Connecting-IP", "X-Forwarded-Proto", "X-Forwarded-For"] {
        let proxied = call(secret.reveal()).header(name, "203.0.113.9");
        assert_eq!(hub.call(proxied).await.status(), 401, "another machine, by {name}");
    }
}
