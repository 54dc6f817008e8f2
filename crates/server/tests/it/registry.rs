//! Registry over `/api`: discovery, registration, heartbeats, removal, roles as agents, routing.

use std::{path::Path, sync::Arc, time::Duration};

use herald_engine::{
    Clock, DiscoverySettings, Engine, EngineBuilder, Profile, RoleSettings, Scopes, Settings,
    Unavailable,
    store::{
        Store,
        sqlite::{Options, Sqlite},
    },
};
use herald_protocol::Timestamp;
use herald_server::{Config, Token};
use serde_json::{Value, json};

use crate::{
    agents::Script,
    client::{Answer, Call, message},
    hub::{Hub, SOON, token},
};

const WORKER: Scopes = Scopes::WORK.with(Scopes::REGISTER).with(Scopes::READ);

fn tokens() -> Vec<Token> {
    vec![
        token("caller", "acme", "alice", Scopes::CALLER),
        token("worker", "acme", "worker", WORKER),
        token("work-only", "acme", "worker", Scopes::WORK),
        token("other-worker", "acme", "other", WORKER),
        Token { agents: Some(vec!["files".into()]), ..token("limited", "acme", "limited", WORKER) },
        token("root", "ops", "root", Scopes::ALL),
    ]
}

fn start_time() -> Timestamp {
    "2026-01-15T12:00:00Z".parse().unwrap()
}

fn after(seconds: i64) -> Timestamp {
    Timestamp::from_millis(start_time().as_millis() + 1000 * seconds)
}

/// A server on this store, with the agents `script` and `files` and the roles that `add` brings.
async fn hub_on(
    store: Arc<dyn Store>,
    clock: &Clock,
    settings: Settings,
    add: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> Hub {
    let script = Script::new();
    let mut files = Profile::new("files", "Takes anything");
    files.skills[0].id = "store-files".to_owned();
    let builder = Engine::builder(store)
        .agent(Profile::new("script", "Does what it is told"), script.clone())
        .agent(files, script.clone())
        .settings(settings)
        .clock(clock.clone());
    let engine = add(builder).build().unwrap();
    let config = Config { tokens: tokens(), ..Config::default() };
    Hub::over(engine, script, |builder| builder.config(config)).await
}

async fn hub(clock: &Clock) -> Hub {
    let store = Arc::new(Sqlite::memory().unwrap());
    hub_on(store, clock, Settings::default(), |builder| builder).await
}

fn as_(who: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer {who}"))
}

async fn get(hub: &Hub, who: &str, path: &str) -> Answer {
    hub.call(as_(who, Call::get(path))).await
}

async fn post(hub: &Hub, who: &str, path: &str, body: &Value) -> Answer {
    hub.call(as_(who, Call::post(path, body))).await
}

async fn delete(hub: &Hub, who: &str, path: &str) -> Answer {
    hub.call(as_(who, Call::new("DELETE", path))).await
}

#[track_caller]
fn ok(answer: &Answer) -> Value {
    assert!(matches!(answer.status(), 200 | 201), "{}", answer.text());
    answer.json()
}

#[track_caller]
fn refused(answer: &Answer, status: u16, reason: &str) {
    assert_eq!((answer.status(), answer.reason()), (status, reason.into()), "{}", answer.text());
}

/// Registers a worker of the role `code-reviewer`.
async fn register(hub: &Hub, instance: &str) -> Value {
    let body = json!({
        "role": "code-reviewer", "instance_id": instance,
        "description": "Python code review specialist",
        "skills": [{ "id": "review", "description": "Reviews code", "tags": ["python"] }],
        "labels": ["gpu"], "version": "0.1.0",
    });
    ok(&post(hub, "worker", "/api/agents", &body).await)
}

/// The names in the list of agents.
async fn names(hub: &Hub, query: &str) -> Vec<String> {
    let list = ok(&get(hub, "caller", &format!("/api/agents{query}")).await);
    let agents = list["agents"].as_array().unwrap().clone();
    agents.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_worker_is_told_the_lease_of_its_role() {
    let settings = RoleSettings { lease: Some(Duration::from_secs(3)) };
    let role = |builder: EngineBuilder| {
        builder.role(Profile::new("code-reviewer", "Reviews code"), settings)
    };
    let (store, clock) = (Arc::new(Sqlite::memory().unwrap()), Clock::manual(start_time()));
    let hub = hub_on(store, &clock, Settings::default(), role).await;
    let registered = register(&hub, "host-a:1").await;
    assert_eq!((&registered["lease_seconds"], &registered["poll_seconds"]), (&json!(3), &json!(1)));
}

#[tokio::test]
async fn a_worker_gets_two_identities_and_is_discovered() {
    let clock = Clock::manual(start_time());
    let hub = hub(&clock).await;
    let body = json!({ "role": "code-reviewer", "instance_id": "dev-vm:abc123" });
    let answer = post(&hub, "worker", "/api/agents", &body).await;
    assert_eq!(answer.status(), 201, "{}", answer.text());
    let registered = answer.json();
    assert_eq!(registered["name"], "code-reviewer:dev-vm:abc123");
    assert_eq!(registered["role"], "code-reviewer");
    assert_eq!(registered["instance_id"], "dev-vm:abc123");
    assert_eq!(registered["url"], hub.url("/agents/code-reviewer"));
    assert_eq!(registered["heartbeat_seconds"], 45);
    assert_eq!(registered["discovery_seconds"], 120);
    assert_eq!(registered["lease_seconds"], 15);
    assert_eq!(registered["poll_seconds"], 5);
    assert_eq!(registered["session"].as_str().unwrap().len(), 36);
    register(&hub, "host-a:1").await;
    let list = ok(&get(&hub, "caller", "/api/agents?role=code-reviewer").await);
    assert_eq!(list["routing_note"], "Use 'role' with send_to_agent for routing.");
    let agents = list["agents"].as_array().unwrap();
    assert_eq!(agents.len(), 2, "each instance has an entry");
    let entry = &agents[1];
    assert_eq!(entry["name"], "code-reviewer:host-a:1");
    assert_eq!(entry["role"], "code-reviewer");
    assert_eq!(entry["instance_id"], "host-a:1");
    assert_eq!(entry["description"], "Python code review specialist");
    assert_eq!(entry["url"], hub.url("/agents/code-reviewer"));
    assert_eq!(entry["capabilities"], json!({ "streaming": true, "push_notifications": false }));
    assert_eq!(entry["last_seen"], "2026-01-15T12:00:00");
    assert_eq!((&entry["kind"], &entry["labels"]), (&json!("worker"), &json!(["gpu"])));
    let one = ok(&get(&hub, "caller", "/api/agents/code-reviewer%3Ahost-a%3A1").await);
    assert_eq!(one["name"], "code-reviewer:host-a:1");
    assert_eq!(ok(&get(&hub, "caller", "/api/agents/code-reviewer").await)["kind"], "role");
    // Without an instance id the server makes one.
    let made = ok(&post(&hub, "worker", "/api/agents", &json!({ "role": "linters" })).await);
    let made = made["name"].as_str().unwrap();
    assert!(made.starts_with("linters:worker:"), "{made}");
}

#[tokio::test]
async fn workers_that_are_not_seen_leave_discovery_and_take_their_role_with_them() {
    let clock = Clock::manual(start_time());
    let hub = hub(&clock).await;
    register(&hub, "host-a:1").await;
    register(&hub, "host-b:1").await;
    clock.set(after(100));
    let beat = |name: &str| format!("/api/agents/code-reviewer:{name}/heartbeat");
    let seen = ok(&post(&hub, "worker", &beat("host-a:1"), &json!({})).await);
    assert_eq!(seen["last_seen"], "2026-01-15T12:01:40");
    assert_eq!(seen["heartbeat_seconds"], 45);
    assert_eq!(names(&hub, "?role=code-reviewer").await.len(), 2);
    clock.set(after(121));
    assert_eq!(names(&hub, "?role=code-reviewer").await, ["code-reviewer:host-a:1"]);
    refused(&post(&hub, "worker", &beat("host-b:1"), &json!({})).await, 404, "WORKER_UNKNOWN");
    let card = "/agents/code-reviewer/.well-known/agent-card.json";
    assert_eq!(hub.call(Call::get(card)).await.status(), 200);
    clock.set(after(300));
    assert_eq!(names(&hub, "?role=code-reviewer").await, Vec::<String>::new());
    hub.engine.sweep().await.unwrap();
    assert_eq!(hub.call(Call::get(card)).await.status(), 404, "the role goes with its last worker");
    // It registers again, as the answer to its heartbeat says.
    let answer = post(&hub, "worker", &beat("host-a:1"), &json!({})).await;
    assert!(answer.text().contains("register again"), "{}", answer.text());
    register(&hub, "host-a:1").await;
    assert_eq!(hub.call(Call::get(card)).await.status(), 200);
}

#[tokio::test]
async fn the_age_limit_is_a_setting() {
    let clock = Clock::manual(start_time());
    let max_age = Duration::from_secs(10);
    let discovery = DiscoverySettings { max_age, ..DiscoverySettings::default() };
    let settings = Settings { discovery, ..Settings::default() };
    let store = Arc::new(Sqlite::memory().unwrap());
    let hub = hub_on(store, &clock, settings, |builder| builder).await;
    let registered = register(&hub, "host-a:1").await;
    assert_eq!(registered["discovery_seconds"], 10);
    assert_eq!(registered["heartbeat_seconds"], 5, "two heartbeats fit into the age limit");
    clock.set(after(10));
    assert_eq!(names(&hub, "?role=code-reviewer").await.len(), 1);
    clock.set(after(11));
    assert_eq!(names(&hub, "?role=code-reviewer").await.len(), 0);
}

#[tokio::test]
async fn registrations_and_their_roles_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let open = |path: &Path| Arc::new(Sqlite::open(path, Options::default()).unwrap());
    let clock = Clock::manual(start_time());
    let mut first = hub_on(open(&path), &clock, Settings::default(), |builder| builder).await;
    register(&first, "host-a:1").await;
    register(&first, "host-b:1").await;
    clock.set(after(90));
    let beat = "/api/agents/code-reviewer:host-a:1/heartbeat";
    ok(&post(&first, "worker", beat, &json!({})).await);
    first.stop();
    first.stopped().await;
    drop(first);
    clock.set(after(150));
    let second = hub_on(open(&path), &clock, Settings::default(), |builder| builder).await;
    let card = "/agents/code-reviewer/.well-known/agent-card.json";
    let found = async { while second.call(Call::get(card)).await.status() != 200 {} };
    tokio::time::timeout(SOON, found).await.expect("the role is there again");
    assert_eq!(names(&second, "?role=code-reviewer").await, ["code-reviewer:host-a:1"]);
    let entry = ok(&get(&second, "caller", "/api/agents/code-reviewer:host-a:1").await);
    assert_eq!(entry["last_seen"], "2026-01-15T12:01:30", "signs of life are stored");
    assert_eq!((&entry["skills"], &entry["version"]), (&json!(["review"]), &json!("0.1.0")));
}

#[tokio::test]
async fn a_registration_that_is_not_allowed_is_refused_with_the_reason() {
    let clock = Clock::manual(start_time());
    let hub = hub(&clock).await;
    let path = "/api/agents";
    register(&hub, "host-a:1").await;
    let try_ = async |who: &str, body: Value| post(&hub, who, path, &body).await;
    // Scopes: a role that exists needs `work`, a new one `register` beside it.
    refused(&try_("caller", json!({ "role": "code-reviewer" })).await, 403, "AUTHORIZATION_FAILED");
    refused(&try_("work-only", json!({ "role": "new-role" })).await, 403, "AUTHORIZATION_FAILED");
    ok(&try_("work-only", json!({ "role": "code-reviewer", "instance_id": "host-c:1" })).await);
    refused(
        &try_("limited", json!({ "role": "code-reviewer" })).await,
        403,
        "AUTHORIZATION_FAILED",
    );
    // Another principal cannot take over a living name; the same one begins a new life.
    let same = json!({ "role": "code-reviewer", "instance_id": "host-a:1" });
    refused(&try_("other-worker", same.clone()).await, 409, "WORKER_NAME_TAKEN");
    let again = ok(&try_("worker", same.clone()).await);
    let first = again["session"].as_str().unwrap().to_owned();
    let next = ok(&try_("worker", same.clone()).await);
    assert_ne!(next["session"].as_str().unwrap(), first);
    let beat = "/api/agents/code-reviewer:host-a:1/heartbeat";
    let former = post(&hub, "worker", beat, &json!({ "session": first })).await;
    refused(&former, 404, "WORKER_UNKNOWN");
    ok(&post(&hub, "worker", beat, &json!({ "session": next["session"] })).await);
    refused(&post(&hub, "other-worker", beat, &json!({})).await, 404, "WORKER_UNKNOWN");
    refused(&post(&hub, "worker", beat, &json!({ "session": "x" })).await, 400, "INVALID_PARAMS");
    // Once its lease is over, too, the name is free.
    for seconds in 0..=125 {
        clock.set(after(seconds));
        hub.engine.heartbeat().await.unwrap();
    }
    ok(&try_("other-worker", same).await);
    let skills: Vec<_> =
        (0..20).map(|n| json!({ "id": n.to_string(), "description": "x".repeat(4000) })).collect();
    for (body, word) in [
        (json!({ "role": "x", "skills": skills }), "65536 bytes"),
        (json!({ "role": "code-reviewer:host:1" }), "not the name of an instance"),
        (json!({ "role": "Code Reviewer" }), "a-z, 0-9 and -"),
        (json!({ "role": "script" }), "runs itself"),
        (json!({ "role": "x", "instance_id": "a b" }), "host:id"),
        (json!({ "role": "x", "instance_id": "a\u{1b}[2J" }), "host:id"),
        (json!({ "role": "x", "instance_id": "x".repeat(200) }), "too long"),
        (json!({ "role": "x", "instance_id": "h:1", "name": "y:h:1" }), "not the role"),
        (json!({ "role": "x", "description": "\u{7}" }), "control characters"),
        (json!({ "role": "x", "skills": [{ "id": "" }] }), "must not be empty"),
        (json!({ "role": "x", "recovery": "hope" }), "resume, rerun or fail"),
        (json!({ "role": "x", "concurrency": 0 }), "concurrency"),
        (json!({ "role": "x", "colour": "red" }), "colour"),
        (json!({}), "role"),
    ] {
        let answer = try_("worker", body.clone()).await;
        refused(&answer, 400, "INVALID_PARAMS");
        assert!(answer.text().contains(word), "{body}: {}", answer.text());
    }
    assert_eq!(names(&hub, "?role=x").await, Vec::<String>::new(), "a refusal leaves no role");
}

#[tokio::test]
async fn the_number_of_registrations_is_limited() {
    let clock = Clock::manual(start_time());
    let discovery = DiscoverySettings { registrations: 2, ..DiscoverySettings::default() };
    let settings = Settings { discovery, ..Settings::default() };
    let store = Arc::new(Sqlite::memory().unwrap());
    let hub = hub_on(store, &clock, settings, |builder| builder).await;
    register(&hub, "host:1").await;
    register(&hub, "host:2").await;
    register(&hub, "host:2").await;
    let third = json!({ "role": "code-reviewer", "instance_id": "host:3" });
    let answer = post(&hub, "worker", "/api/agents", &third).await;
    refused(&answer, 429, "LIMIT_EXCEEDED");
    assert!(answer.text().contains("[discovery] registrations"), "{}", answer.text());
    // Stale ones do not count.
    clock.set(after(121));
    ok(&post(&hub, "worker", "/api/agents", &third).await);
}

#[tokio::test]
async fn a_removed_worker_is_gone_and_its_removal_is_recorded() {
    let clock = Clock::manual(start_time());
    let hub = hub(&clock).await;
    register(&hub, "host-a:1").await;
    register(&hub, "host-b:1").await;
    let path = "/api/agents/code-reviewer:host-a:1";
    refused(&delete(&hub, "other-worker", path).await, 404, "RESOURCE_NOT_FOUND");
    refused(&delete(&hub, "caller", path).await, 403, "AUTHORIZATION_FAILED");
    let removed = ok(&delete(&hub, "worker", path).await);
    assert_eq!(removed["removed"], json!(["code-reviewer:host-a:1"]));
    refused(&delete(&hub, "worker", path).await, 404, "RESOURCE_NOT_FOUND");
    assert_eq!(names(&hub, "?role=code-reviewer").await, ["code-reviewer:host-b:1"]);
    // An administrator removes the whole role.
    ok(&delete(&hub, "root", "/api/agents/code-reviewer").await);
    let card = "/agents/code-reviewer/.well-known/agent-card.json";
    assert_eq!(hub.call(Call::get(card)).await.status(), 404);
    let audit = ok(&get(&hub, "root", "/api/audit").await);
    let records = audit["records"].as_array().unwrap();
    let of = |action: &str| {
        let found = records.iter().filter(|one| one["action"] == action);
        found.map(|one| one["subject"]["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(of("agent.register").len(), 2, "{records:?}");
    assert_eq!(of("agent.remove"), ["code-reviewer:host-b:1", "code-reviewer:host-a:1"]);
}

#[tokio::test]
async fn agents_are_found_by_role_skill_tag_and_text() {
    let clock = Clock::manual(start_time());
    let hub = hub(&clock).await;
    register(&hub, "host-a:1").await;
    let writer = json!({
        "role": "writer", "instance_id": "host-a:2", "description": "Writes release notes",
        "skills": [{ "id": "notes", "tags": ["Markdown"], "examples": ["Summarise the week"] }],
    });
    ok(&post(&hub, "worker", "/api/agents", &writer).await);
    let reviewer = "code-reviewer:host-a:1";
    for (query, expected) in [
        ("", vec!["code-reviewer:host-a:1", "files", "script", "writer:host-a:2"]),
        ("?role=writer", vec!["writer:host-a:2"]),
        ("?role=files", vec!["files"]),
        ("?skill=review", vec![reviewer]),
        ("?tag=python", vec![reviewer]),
        ("?tag=gpu", vec![reviewer]),
        ("?tag=markdown", vec!["writer:host-a:2"]),
        ("?text=RELEASE", vec!["writer:host-a:2"]),
        ("?text=summarise", vec!["writer:host-a:2"]),
        ("?text=host-a", vec![reviewer, "writer:host-a:2"]),
        ("?skill=review&text=release", vec![]),
        ("?skill=none", vec![]),
    ] {
        assert_eq!(names(&hub, query).await, expected, "{query}");
    }
    let long = format!("?text={}", "x".repeat(300));
    refused(&get(&hub, "caller", &format!("/api/agents{long}")).await, 400, "INVALID_PARAMS");
    refused(&get(&hub, "caller", "/api/agents?name=x").await, 400, "INVALID_PARAMS");
    // A limited caller sees the agents that it may use.
    let list = ok(&get(&hub, "limited", "/api/agents").await);
    assert_eq!(list["agents"].as_array().unwrap().len(), 1);
}

/// The names on each page of the list of agents.
async fn pages(hub: &Hub, query: &str) -> Vec<Vec<String>> {
    let (mut pages, mut token) = (Vec::new(), String::new());
    loop {
        let list = ok(&get(hub, "caller", &format!("/api/agents?{query}{token}")).await);
        assert_eq!(list["routing_note"], "Use 'role' with send_to_agent for routing.");
        let agents = list["agents"].as_array().unwrap().iter();
        pages.push(agents.map(|one| one["name"].as_str().unwrap().to_owned()).collect());
        assert!(pages.len() < 100, "the list does not end");
        match list["next_page_token"].as_str() {
            Some(next) => token = format!("&page_token={next}"),
            None => return pages,
        }
    }
}

#[tokio::test]
async fn the_list_of_agents_has_pages() {
    let clock = Clock::manual(start_time());
    let hub = hub(&clock).await;
    // By name "a-b:h:1" comes before "a:h:1", by role after it.
    for (role, instance) in [("a", "h:1"), ("a", "h:2"), ("a-b", "h:1"), ("a", "h:3")] {
        let body = json!({ "role": role, "instance_id": instance, "labels": ["gpu"] });
        ok(&post(&hub, "worker", "/api/agents", &body).await);
    }
    let all = ["a-b:h:1", "a:h:1", "a:h:2", "a:h:3", "files", "script"];
    assert_eq!(pages(&hub, "").await, [all], "one page without parameters");
    let list = ok(&get(&hub, "caller", "/api/agents").await);
    let members: Vec<_> = list.as_object().unwrap().keys().collect();
    assert_eq!(members, ["agents", "routing_note"]);
    let of = |size| all.chunks(size).map(<[&str]>::to_vec).collect::<Vec<_>>();
    for size in [1, 2, 4, 6, 1000] {
        assert_eq!(pages(&hub, &format!("page_size={size}")).await, of(size), "{size}");
    }
    let gpus = [["a-b:h:1", "a:h:1", "a:h:2"].to_vec(), ["a:h:3"].to_vec()];
    assert_eq!(pages(&hub, "tag=gpu&page_size=3").await, gpus);
    // A page goes on after its last name, also if that is gone.
    let first = ok(&get(&hub, "caller", "/api/agents?page_size=2").await);
    let token = first["next_page_token"].as_str().unwrap();
    ok(&delete(&hub, "worker", "/api/agents/a:h:1").await);
    let next = format!("/api/agents?page_size=1&page_token={token}");
    assert_eq!(ok(&get(&hub, "caller", &next).await)["agents"][0]["name"], "a:h:2");
    for wrong in [
        "page_size=0".to_owned(),
        "page_size=1001".to_owned(),
        "page_token=x".to_owned(),
        // The token of another search.
        format!("role=a&page_token={token}"),
    ] {
        let answer = get(&hub, "caller", &format!("/api/agents?{wrong}")).await;
        refused(&answer, 400, "INVALID_PARAMS");
    }
}

/// A worker without skills of its own has those of its role in its entry.
#[tokio::test]
async fn a_page_of_agents_ends_before_it_is_large() {
    let clock = Clock::manual(start_time());
    let hub = hub(&clock).await;
    let skill = |number: usize| json!({ "id": format!("{number:0>250}") });
    let skills: Vec<_> = (0..64).map(skill).collect();
    let first = json!({ "role": "large", "instance_id": "h:0", "skills": skills });
    ok(&post(&hub, "worker", "/api/agents", &first).await);
    for number in 1..100 {
        let body = json!({ "role": "large", "instance_id": format!("h:{number}") });
        ok(&post(&hub, "worker", "/api/agents", &body).await);
    }
    let answer = get(&hub, "caller", "/api/agents?role=large").await;
    assert!(answer.body.len() < 2 << 20, "{}", answer.body.len());
    let pages = pages(&hub, "role=large").await;
    assert!((2..4).contains(&pages.len()), "{pages:?}");
    assert_eq!(pages.concat().len(), 100);
    let found = names(&hub, &format!("?skill={:0>250}&page_size=5", 63)).await;
    assert_eq!(found.len(), 5, "the skills of the role count for its workers");
}

#[tokio::test]
async fn a_role_has_a_card_of_its_workers_and_the_name_of_an_instance_does_not_route() {
    let clock = Clock::manual(start_time());
    let hub = hub(&clock).await;
    register(&hub, "host-a:1").await;
    let second = json!({
        "role": "code-reviewer", "instance_id": "host-b:1", "description": "Another one",
        "skills": [{ "id": "review" }, { "id": "explain", "name": "Explain" }],
        "input_modes": ["image/png"],
    });
    ok(&post(&hub, "worker", "/api/agents", &second).await);
    let card = Call::get("/agents/code-reviewer/.well-known/agent-card.json").v1();
    let card = ok(&hub.call(card).await);
    assert_eq!(card["description"], "Python code review specialist", "that of the first worker");
    let skills: Vec<_> = card["skills"].as_array().unwrap().iter().map(|one| &one["id"]).collect();
    assert_eq!(skills, ["review", "explain"]);
    assert_eq!(card["defaultInputModes"], json!(["text/plain", "image/png"]));
    assert_eq!(card["supportedInterfaces"][0]["url"], hub.url("/agents/code-reviewer/a2a/jsonrpc"));
    for path in ["/agents/code-reviewer:host-a:1", "/agents/code-reviewer%3Ahost-a%3A1"] {
        for rest in ["/a2a/jsonrpc", "/message:send", "/.well-known/agent-card.json"] {
            let call = Call::rpc("SendMessage", &message("hi")).at(format!("{path}{rest}"));
            let answer = hub.call(as_("caller", call)).await;
            assert_eq!(answer.status(), 404, "{}", answer.text());
            let expected = "is the name of an instance; messages are routed by role: use /agents/code-reviewer";
            assert!(answer.text().contains(expected), "{path}{rest}: {}", answer.text());
        }
    }
}

/// Sends a message with metadata to the root endpoint.
async fn send(hub: &Hub, metadata: Value) -> Answer {
    let mut body = message("hello");
    body["message"]["metadata"] = metadata;
    body["configuration"] = json!({ "returnImmediately": true });
    hub.call(as_("caller", Call::rpc("SendMessage", &body))).await
}

/// The agent of the task that a send created.
async fn agent_of(hub: &Hub, answer: &Answer) -> String {
    let id = answer.result()["task"]["id"].as_str().unwrap().to_owned();
    let task = ok(&get(hub, "caller", &format!("/api/tasks/{id}")).await);
    task["head"]["agent"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_root_endpoint_routes_by_skill_and_by_role() {
    let clock = Clock::system();
    let hub = hub(&clock).await;
    register(&hub, "host-a:1").await;
    for (metadata, agent) in [
        (json!({}), "script"),
        (json!({ "skill": "script" }), "script"),
        (json!({ "skill": "store-files" }), "files"),
        (json!({ "skill": "review" }), "code-reviewer"),
        (json!({ "role": "code-reviewer" }), "code-reviewer"),
        (json!({ "role": "files", "skill": "review" }), "files"),
        // The role of a chat message names no agent.
        (json!({ "role": "user" }), "script"),
        (json!({ "role": 7 }), "script"),
    ] {
        let answer = send(&hub, metadata.clone()).await;
        assert_eq!(agent_of(&hub, &answer).await, agent, "{metadata}");
    }
    let other = json!({ "role": "second", "instance_id": "h:1", "skills": [{ "id": "review" }] });
    ok(&post(&hub, "worker", "/api/agents", &other).await);
    for (metadata, word) in [
        (json!({ "skill": "unheard-of" }), "no agent that you may use has this skill"),
        (json!({ "skill": "review" }), "/agents/code-reviewer, /agents/second"),
        (json!({ "role": "unheard-of" }), "names no agent that you may use"),
        (json!({ "role": "code-reviewer:host-a:1" }), "use /agents/code-reviewer"),
    ] {
        let answer = send(&hub, metadata.clone()).await;
        assert_eq!(answer.error().0, -32602, "{metadata}: {}", answer.text());
        assert!(answer.text().contains(word), "{metadata}: {}", answer.text());
    }
}

#[tokio::test]
async fn a_role_without_a_worker_queues_or_refuses() {
    let clock = Clock::manual(start_time());
    let store = Arc::new(Sqlite::memory().unwrap());
    let hub = hub_on(store, &clock, Settings::default(), |builder| {
        let mut strict = Profile::new("strict-role", "Refuses without workers");
        strict.unavailable = Unavailable::Refuse;
        let mut patient = Profile::new("patient-role", "Waits for workers");
        patient.queue_timeout = Some(Duration::from_secs(3600));
        let builder = builder.role(strict, RoleSettings::default());
        builder.role(patient, RoleSettings::default())
    })
    .await;
    let entry = ok(&get(&hub, "caller", "/api/agents/strict-role").await);
    assert_eq!((&entry["kind"], &entry["available"]), (&json!("role"), &json!(false)));
    let now = |text: &str| {
        let mut body = message(text);
        body["configuration"] = json!({ "returnImmediately": true });
        body
    };
    // 503 over REST, -31010 in 1.0, -32007 in 0.3.
    let rest = Call::post("/agents/strict-role/message:send", &now("hi")).v1();
    let answer = hub.call(as_("caller", rest)).await;
    refused(&answer, 503, "AGENT_UNAVAILABLE");
    let rpc = Call::rpc("SendMessage", &now("hi")).at("/agents/strict-role/a2a/jsonrpc");
    assert_eq!(hub.call(as_("caller", rpc)).await.error().0, -31010);
    let stream =
        Call::rpc("SendStreamingMessage", &now("hi")).at("/agents/strict-role/a2a/jsonrpc");
    assert_eq!(hub.call(as_("caller", stream)).await.error().0, -31010);
    let old = Call::old_rpc("message/send", &crate::client::old_message("hi"));
    let old = old.at("/agents/strict-role/a2a/jsonrpc");
    assert_eq!(hub.call(as_("caller", old)).await.error().0, -32007);
    let queued = Call::rpc("SendMessage", &now("hi")).at("/agents/patient-role/a2a/jsonrpc");
    let queued = hub.call(as_("caller", queued)).await.result();
    assert_eq!(queued["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
    let id = queued["task"]["id"].as_str().unwrap();
    clock.set(after(3500));
    hub.engine.sweep().await.unwrap();
    let state = async || {
        let task = ok(&get(&hub, "caller", &format!("/api/tasks/{id}")).await);
        (task["head"]["state"].clone(), task["head"]["reason"].clone())
    };
    assert_eq!(state().await, (json!("TASK_STATE_SUBMITTED"), Value::Null));
    clock.set(after(3601));
    hub.engine.sweep().await.unwrap();
    assert_eq!(state().await, (json!("TASK_STATE_FAILED"), json!("NOT_STARTED")));
    // With a worker the strict role takes messages.
    let worker = json!({ "role": "strict-role", "instance_id": "h:1" });
    ok(&post(&hub, "work-only", "/api/agents", &worker).await);
    let rpc = Call::rpc("SendMessage", &now("hi")).at("/agents/strict-role/a2a/jsonrpc");
    let taken = hub.call(as_("caller", rpc)).await.result();
    assert_eq!(taken["task"]["status"]["state"], "TASK_STATE_SUBMITTED");
}

#[tokio::test]
async fn operators_fail_tasks_and_retry_them_as_new_ones() {
    let clock = Clock::system();
    let hub = hub(&clock).await;
    let mut body = message("wait for it");
    body["configuration"] = json!({ "returnImmediately": true });
    let running = hub.call(as_("caller", Call::rpc("SendMessage", &body))).await.result();
    let (id, context) = (running["task"]["id"].clone(), running["task"]["contextId"].clone());
    let path = format!("/api/tasks/{}", id.as_str().unwrap());
    refused(
        &post(&hub, "worker", &format!("{path}:fail"), &json!({})).await,
        403,
        "AUTHORIZATION_FAILED",
    );
    refused(
        &post(&hub, "caller", &format!("{path}:retry"), &json!({})).await,
        400,
        "UNSUPPORTED_OPERATION",
    );
    let end = json!({ "text": "the repository is gone" });
    let failed = ok(&post(&hub, "caller", &format!("{path}:fail"), &end).await);
    assert_eq!(failed["head"]["state"], "TASK_STATE_FAILED");
    assert_eq!(failed["head"]["reason"], "FAILED_BY_OPERATOR");
    assert_eq!(failed["task"]["status"]["message"]["parts"][0]["text"], "the repository is gone");
    refused(
        &post(&hub, "caller", &format!("{path}:fail"), &end).await,
        400,
        "UNSUPPORTED_OPERATION",
    );
    let stopped = async {
        while !hub.engine.at_work().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON, stopped).await.expect("the running turn is told to stop");
    // An administrator retries it for its owner.
    let retried = ok(&post(&hub, "root", &format!("{path}:retry"), &json!({})).await);
    let new = retried["head"]["id"].clone();
    assert_ne!(new, id);
    assert_eq!(
        (&retried["head"]["agent"], &retried["head"]["context_id"]),
        (&json!("script"), &context)
    );
    assert_eq!(
        (&retried["head"]["principal"], &retried["head"]["preview"]),
        (&json!("alice"), &json!("wait for it"))
    );
    let first = &retried["task"]["history"][0];
    assert_eq!(first["referenceTaskIds"], json!([id]));
    assert_eq!(first["metadata"]["herald.retry_of"], id);
    let again = ok(&post(&hub, "root", &format!("{path}:retry"), &json!({})).await);
    assert_eq!(again["head"]["id"], new, "a second retry finds the task of the first");
    hub.release(1);
    let done = async {
        loop {
            let task =
                ok(&get(&hub, "caller", &format!("/api/tasks/{}", new.as_str().unwrap())).await);
            if task["head"]["state"] == "TASK_STATE_COMPLETED" {
                return;
            }
        }
    };
    tokio::time::timeout(SOON, done).await.expect("the new task runs");
    let old = ok(&get(&hub, "caller", &path).await);
    assert_eq!(old["head"]["state"], "TASK_STATE_FAILED", "the old one stays as it is");
    let audit = ok(&get(&hub, "root", "/api/audit").await);
    let actions: Vec<_> =
        audit["records"].as_array().unwrap().iter().map(|one| &one["action"]).collect();
    assert!(
        actions.contains(&&json!("task.fail")) && actions.contains(&&json!("task.send")),
        "{actions:?}"
    );
}

#[tokio::test]
async fn failed_tasks_are_listed_by_their_reason() {
    let clock = Clock::system();
    let hub = hub(&clock).await;
    for text in ["fail", "fail", "hello", "fail"] {
        hub.call(as_("caller", Call::rpc("SendMessage", &message(text)))).await.result();
    }
    let mut body = message("wait");
    body["configuration"] = json!({ "returnImmediately": true });
    let id = hub.call(as_("caller", Call::rpc("SendMessage", &body))).await.result()["task"]["id"]
        .clone();
    ok(&post(&hub, "caller", &format!("/api/tasks/{}:fail", id.as_str().unwrap()), &json!({}))
        .await);
    let list = async |query: &str| {
        let page = ok(&get(&hub, "caller", &format!("/api/tasks?{query}")).await);
        (page["tasks"].as_array().unwrap().clone(), page["next_page_token"].clone())
    };
    let (failed, next) = list("reason=FAILED_BY_OPERATOR").await;
    assert_eq!((failed.len(), next), (1, Value::Null));
    assert_eq!(failed[0]["id"], id);
    assert_eq!(list("reason=AGENT_FAILED").await.0.len(), 3);
    assert_eq!(list("reason=INTERRUPTED").await.0.len(), 0);
    let (mut found, mut query) = (0, "reason=AGENT_FAILED&page_size=1".to_owned());
    loop {
        let (tasks, next) = list(&query).await;
        found += tasks.len();
        let Some(next) = next.as_str() else { break };
        query = format!("reason=AGENT_FAILED&page_size=1&page_token={next}");
    }
    assert_eq!(found, 3, "every task is on one page");
}

#[tokio::test]
async fn the_catalogs_list_every_agent_with_its_card() {
    let clock = Clock::system();
    let hub = hub(&clock).await;
    register(&hub, "host-a:1").await;
    let answer = hub.call(Call::get("/.well-known/api-catalog")).await;
    let links = ok(&answer);
    assert_eq!(
        answer.header("content-type"),
        Some(r#"application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727""#)
    );
    assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    assert!(answer.header("link").unwrap().ends_with("rel=\"api-catalog\""));
    let contexts = links["linkset"].as_array().unwrap();
    assert_eq!(contexts[0]["anchor"], hub.url("/.well-known/api-catalog"));
    assert_eq!(contexts[0]["item"][0]["href"], hub.url("/agents/code-reviewer"));
    let role = contexts.iter().find(|one| one["anchor"] == hub.url("/agents/code-reviewer"));
    let card = hub.url("/agents/code-reviewer/.well-known/agent-card.json");
    assert_eq!(role.unwrap()["service-desc"][0]["href"], card);
    let answer = hub.call(Call::get("/.well-known/ai-catalog.json")).await;
    let catalog = ok(&answer);
    assert_eq!(answer.header("content-type"), Some("application/ai-catalog+json"));
    assert_eq!(catalog["specVersion"], "1.0");
    let entry = &catalog["entries"][0];
    assert_eq!(entry["type"], "application/a2a-agent-card+json");
    assert_eq!((&entry["url"], &entry["tags"]), (&json!(card), &json!(["python"])));
    assert_eq!(entry["identifier"], "urn:air:127.0.0.1:a2a:code-reviewer");
    assert_eq!(catalog["entries"].as_array().unwrap().len(), 3);
    let head = hub.call(Call::new("HEAD", "/.well-known/api-catalog")).await;
    assert_eq!((head.status(), head.text()), (200, ""));
}
