//! Remote agents: registered by a card, called through the URL guard, pinned until they are registered again.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_engine::{
    Agent, Engine, Profile, Scopes,
    store::sqlite::{Options, Sqlite},
};
use herald_protocol::{AgentCard, AgentName, Error, locks::lock};
use herald_server::{Config, HttpSender, RemoteAgentFactory, WebhookConfig};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use crate::{
    agents::Script,
    client::{Answer, Call, message},
    hub::{Hub, SOON, token},
};

/// Makes agents that echo, in place of a client.
#[derive(Debug)]
struct Echoes(Script);

impl RemoteAgentFactory for Echoes {
    fn build(
        &self,
        name: &AgentName,
        _: &AgentCard,
        _: &Arc<HttpSender>,
    ) -> Result<(Profile, Arc<dyn Agent>), Error> {
        Ok((Profile::new(name.clone(), "forwards"), Arc::new(self.0.clone())))
    }
}

/// A web server with one document, which is also its answer to every path that ends in `.json`.
#[derive(Debug)]
struct CardServer {
    address: SocketAddr,
    document: Arc<Mutex<String>>,
    requests: Arc<Mutex<usize>>,
    _served: AbortOnDropHandle<()>,
}

impl CardServer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (document, requests) = (Arc::new(Mutex::new(String::new())), Arc::default());
        let state = (Arc::clone(&document), Arc::clone(&requests));
        let served = TaskTracker::new().spawn(serve(listener, state));
        let served = AbortOnDropHandle::new(served);
        let server = Self { address, document, requests, _served: served };
        server.publish(&server.card("Remote Researcher"));
        server
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn card(&self, name: &str) -> Value {
        json!({
            "name": name, "description": "Finds papers", "version": "2.0",
            "supportedInterfaces": [
                { "url": format!("{}/rpc", self.url()), "protocolBinding": "JSONRPC", "protocolVersion": "1.0" },
            ],
            "capabilities": { "streaming": true },
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{ "id": "find", "name": "Find", "description": "Finds", "tags": ["papers"] }],
        })
    }

    fn publish(&self, card: &Value) {
        *lock(&self.document) = card.to_string();
    }

    fn requests(&self) -> usize {
        *lock(&self.requests)
    }
}

async fn serve(
    listener: TcpListener,
    (document, requests): (Arc<Mutex<String>>, Arc<Mutex<usize>>),
) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).await.unwrap_or(0) == 0 {
                break;
            }
            head.push(byte[0]);
        }
        *lock(&requests) += 1;
        let found = String::from_utf8_lossy(&head).contains("agent-card.json");
        let body = if found { lock(&document).clone() } else { String::new() };
        let status = if found { "200 OK" } else { "404 Not Found" };
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let _ = stream.write_all(answer.as_bytes()).await;
    }
}

/// A server whose callers may register agents on these hosts.
async fn hub_on(store: Arc<Sqlite>, allowed: &[&str]) -> Hub {
    let script = Script::new();
    let allowed_hosts = allowed.iter().map(|host| (*host).to_owned()).collect();
    let webhooks = WebhookConfig { allowed_hosts, ..WebhookConfig::default() };
    let http = Arc::new(HttpSender::new(&webhooks).unwrap());
    let agent = Profile::new("script", "Does what it is told");
    let engine = Engine::builder(store).agent(agent, script.clone()).build().unwrap();
    let tokens = vec![
        token("caller", "acme", "alice", Scopes::CALLER),
        token("registrar", "acme", "reg", Scopes::REGISTER.with(Scopes::READ)),
        token("other", "acme", "other", Scopes::REGISTER),
        token("root", "ops", "root", Scopes::ALL),
    ];
    let config = Config { tokens, ..Config::default() };
    let echoes = Echoes(script.clone());
    Hub::over(engine, script, |builder| {
        let builder = builder.config(config).remote_agents(echoes, http);
        builder.check_cards_every(Duration::from_millis(50))
    })
    .await
}

async fn hub(allowed: &[&str]) -> Hub {
    hub_on(Arc::new(Sqlite::memory().unwrap()), allowed).await
}

fn as_(who: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer {who}"))
}

async fn register(hub: &Hub, who: &str, body: &Value) -> Answer {
    hub.call(as_(who, Call::post("/api/agents", body))).await
}

async fn entry(hub: &Hub, name: &str) -> Value {
    hub.call(as_("caller", Call::get(format!("/api/agents/{name}")))).await.json()
}

#[track_caller]
fn refused(answer: &Answer, status: u16, reason: &str, word: &str) {
    assert_eq!((answer.status(), answer.reason()), (status, reason.into()), "{}", answer.text());
    assert!(answer.text().contains(word), "{word}: {}", answer.text());
}

#[tokio::test]
async fn a_remote_agent_is_registered_by_its_card_and_called_by_its_role() {
    let cards = CardServer::start().await;
    let hub = hub(&["127.0.0.1"]).await;
    let body = json!({ "card_url": cards.url(), "role": "researcher" });
    let answer = register(&hub, "registrar", &body).await;
    assert_eq!(answer.status(), 201, "{}", answer.text());
    assert_eq!(answer.json()["name"], "researcher");
    assert!(answer.json().get("session").is_none());
    let listed = entry(&hub, "researcher").await;
    assert_eq!(
        (&listed["kind"], &listed["title"]),
        (&json!("remote"), &json!("Remote Researcher"))
    );
    assert_eq!(
        (&listed["card_url"], &listed["card_changed"]),
        (&json!(cards.url()), &json!(false))
    );
    assert_eq!(listed["skills"], json!(["find"]));
    let send = Call::rpc("SendMessage", &message("hello")).at("/agents/researcher/a2a/jsonrpc");
    let sent = hub.call(as_("caller", send)).await.result();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
    // Without a role, its own name is used.
    let answer = register(&hub, "registrar", &json!({ "card_url": cards.url() })).await;
    assert_eq!(answer.json()["name"], "remote-researcher", "{}", answer.text());
    // It is removed by the one who registered it.
    let remove = |who| as_(who, Call::new("DELETE", "/api/agents/researcher"));
    assert_eq!(hub.call(remove("other")).await.status(), 404);
    assert_eq!(hub.call(remove("registrar")).await.status(), 200);
    let card = Call::get("/agents/researcher/.well-known/agent-card.json");
    assert_eq!(hub.call(card).await.status(), 404);
}

#[tokio::test]
async fn a_changed_card_is_shown_and_not_followed_until_the_agent_is_registered_again() {
    let cards = CardServer::start().await;
    let hub = hub(&["127.0.0.1"]).await;
    let body = json!({ "card_url": cards.url(), "role": "researcher" });
    assert_eq!(register(&hub, "registrar", &body).await.status(), 201);
    let pinned = entry(&hub, "researcher").await["card_digest"].clone();
    let wait_for = async |changed: bool| {
        let seen =
            async { while entry(&hub, "researcher").await["card_changed"] != json!(changed) {} };
        tokio::time::timeout(SOON, seen).await.expect("the check sees the card");
    };
    cards.publish(&cards.card("Impostor"));
    wait_for(true).await;
    let listed = entry(&hub, "researcher").await;
    assert_eq!((&listed["title"], &listed["card_digest"]), (&json!("Remote Researcher"), &pinned));
    let mut metrics = herald_engine::metrics::Text::default();
    hub.engine.write_metrics(&mut metrics).await;
    let metrics = metrics.finish();
    assert!(metrics.contains("herald_remote_cards_changed_total 1"), "{metrics}");
    assert!(metrics.contains("herald_remote_cards_changed 1"), "{metrics}");
    // The former card again, and then the new one on purpose.
    cards.publish(&cards.card("Remote Researcher"));
    wait_for(false).await;
    cards.publish(&cards.card("Impostor"));
    wait_for(true).await;
    assert_eq!(register(&hub, "registrar", &body).await.status(), 201);
    let listed = entry(&hub, "researcher").await;
    assert_eq!((&listed["title"], &listed["card_changed"]), (&json!("Impostor"), &json!(false)));
    assert_ne!(listed["card_digest"], pinned);
}

#[tokio::test]
async fn a_remote_agent_is_there_again_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let open = |path: &Path| Arc::new(Sqlite::open(path, Options::default()).unwrap());
    let cards = CardServer::start().await;
    let mut first = hub_on(open(&path), &["127.0.0.1"]).await;
    let body = json!({ "card_url": cards.url(), "role": "researcher" });
    assert_eq!(register(&first, "registrar", &body).await.status(), 201);
    first.stop();
    first.stopped().await;
    drop(first);
    let second = hub_on(open(&path), &["127.0.0.1"]).await;
    let there = async {
        let card = || Call::get("/agents/researcher/.well-known/agent-card.json");
        while second.call(card()).await.status() != 200 {}
    };
    tokio::time::timeout(SOON, there).await.expect("its endpoints are there");
    let send = Call::rpc("SendMessage", &message("hello")).at("/agents/researcher/a2a/jsonrpc");
    let sent = second.call(as_("caller", send)).await.result();
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_card_that_may_not_be_fetched_or_does_not_validate_is_refused() {
    let cards = CardServer::start().await;
    let closed = hub(&[]).await;
    let body = |url: &str| json!({ "card_url": url, "role": "researcher" });
    // A private address that no list allows: nothing is sent to it.
    let answer = register(&closed, "registrar", &body(&cards.url())).await;
    refused(&answer, 400, "INVALID_PARAMS", "not public");
    assert_eq!(cards.requests(), 0);
    for url in ["http://localhost:8000", "http://169.254.169.254/latest", "file:///etc/passwd", "x"]
    {
        let answer = register(&closed, "registrar", &body(url)).await;
        assert_eq!(answer.status(), 400, "{url}: {}", answer.text());
    }
    let hub = hub(&["127.0.0.1"]).await;
    // Only a caller that may register makes the server send a request.
    refused(
        &register(&hub, "caller", &body(&cards.url())).await,
        403,
        "AUTHORIZATION_FAILED",
        "scope",
    );
    assert_eq!(cards.requests(), 0);
    let with = |change: fn(&mut Value)| {
        let mut card = cards.card("Remote");
        change(&mut card);
        card
    };
    for (card, word) in [
        (json!("text"), "not an agent card"),
        (with(|card| card["name"] = json!(" ")), "no name"),
        (with(|card| card["supportedInterfaces"][0]["protocolBinding"] = json!("GRPC")), "JSONRPC"),
        (
            with(|card| card["supportedInterfaces"][0]["url"] = json!("http://10.0.0.1/")),
            "not public",
        ),
    ] {
        cards.publish(&card);
        refused(
            &register(&hub, "registrar", &body(&cards.url())).await,
            400,
            "INVALID_PARAMS",
            word,
        );
    }
    cards.publish(&cards.card("Remote"));
    let more = json!({ "card_url": cards.url(), "role": "r", "description": "mine" });
    refused(&register(&hub, "registrar", &more).await, 400, "INVALID_PARAMS", "card_url alone");
    let taken = json!({ "card_url": cards.url(), "role": "script" });
    refused(&register(&hub, "registrar", &taken).await, 400, "INVALID_PARAMS", "used already");
    assert_eq!(register(&hub, "registrar", &body(&cards.url())).await.status(), 201);
    refused(
        &register(&hub, "other", &body(&cards.url())).await,
        409,
        "WORKER_NAME_TAKEN",
        "another principal",
    );
}
