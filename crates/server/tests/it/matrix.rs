//! Matrix of permissions: every operation of every binding and version, and every route of `/api`, called
//! by callers that have no right to it, and by one that has.
//!
//! The probes are generated from the tables of operations, dialects, services and routes. A new
//! operation or route is covered, or this does not compile or fails.

mod outcome;
mod probe;

use herald_api::{ApiRoute, ApiScope};
use herald_engine::Scopes;
use herald_protocol::{Dialect, ErrorKind, Operation};
use herald_server::{Config, Token};
use serde_json::json;

use self::{
    outcome::{Credentials, Outcome, Prober},
    probe::{Probe, Subject, Target, Wire},
};
use crate::{
    client::{Call, message},
    hub::{Hub, SOON, token},
};

/// A text in the victim's task that nobody else may see.
const CANARY: &str = "canary-7f3a91";

/// The id of no task.
const UNKNOWN: &str = "00000000-0000-7000-8000-000000000000";

const NAMES: [&str; 8] = ["send", "read", "cancel", "push", "register", "work", "inspect", "admin"];

/// Every scope but one.
fn without(scope: &str) -> Scopes {
    NAMES
        .iter()
        .filter(|name| **name != scope)
        .fold(Scopes::NONE, |scopes, name| scopes.with(name.parse().unwrap()))
}

/// A server with the victim, an administrator, and callers without rights.
async fn hub() -> Hub {
    let mut tokens = vec![
        token("owner", "acme", "alice", Scopes::CALLER),
        token("root", "acme", "root", Scopes::ALL),
        token("worker", "acme", "alice", Scopes::WORK.with(Scopes::REGISTER)),
        token("foreign-tenant", "other", "alice", without("admin")),
        token("foreign-owner", "acme", "bob", without("admin")),
        Token {
            agents: Some(vec!["files".into()]),
            ..token("other-agent", "acme", "alice", without("admin"))
        },
    ];
    // Without one scope, and without admin, which is enough for every route of `/api`.
    for scope in NAMES {
        let scopes = NAMES.iter().filter(|name| **name != scope && **name != "admin");
        let scopes = scopes.fold(Scopes::NONE, |all, name| all.with(name.parse().unwrap()));
        tokens.push(token(&format!("no-{scope}"), "acme", "alice", scopes));
    }
    Hub::pushing(Config { tokens, ..Config::default() }, &["127.0.0.1:9"]).await
}

fn bearer(secret: &str) -> Credentials {
    vec![("authorization", format!("Bearer {secret}"))]
}

/// A task of the victim that waits for an answer and contains the canary.
async fn task(hub: &Hub) -> String {
    let call = Call::rpc("SendMessage", &message(&format!("offer {CANARY}")));
    let answer = hub.call(call.header("Authorization", "Bearer owner")).await;
    answer.result()["task"]["id"].as_str().unwrap().to_owned()
}

/// A new API key.
async fn key(hub: &Hub) -> String {
    let call = Call::post("/api/keys", &json!({ "tenant": "acme", "principal": "new" }));
    let answer = hub.call(call.header("Authorization", "Bearer root")).await;
    answer.json()["id"].as_str().unwrap().to_owned()
}

/// The secret of an API key of the victim that was revoked. It worked before.
async fn revoked_key(hub: &Hub) -> String {
    let call = Call::post("/api/keys", &json!({ "tenant": "acme", "principal": "alice" }));
    let created = hub.call(call.header("Authorization", "Bearer root")).await.json();
    let secret = created["key"].as_str().unwrap().to_owned();
    let status = || Call::get("/api").header("X-API-Key", &secret);
    assert_eq!(hub.call(status()).await.status(), 200);
    let revoke = Call::new("DELETE", format!("/api/keys/{}", created["id"].as_str().unwrap()));
    assert_eq!(hub.call(revoke.header("Authorization", "Bearer root")).await.status(), 200);
    let refused = async { while hub.call(status()).await.status() != 401 {} };
    tokio::time::timeout(SOON, refused).await.expect("a revoked key is refused");
    secret
}

/// The open question of a task.
async fn question(hub: &Hub, task: &str) -> String {
    let call = Call::get(format!("/api/tasks/{task}"));
    let answer = hub.call(call.header("Authorization", "Bearer owner")).await;
    answer.json()["question"]["question"].as_str().unwrap().to_owned()
}

/// The id of a webhook of this task, whose config is named "hook".
async fn webhook(hub: &Hub, task: &str) -> String {
    let config = json!({ "taskId": task, "id": "hook", "url": "http://127.0.0.1:9/" });
    let create = Call::rpc("CreateTaskPushNotificationConfig", &config);
    hub.call(create.header("Authorization", "Bearer owner")).await.result();
    let list = Call::get("/api/deliveries").header("Authorization", "Bearer owner");
    let listed = hub.call(list).await.json();
    let deliveries = listed["deliveries"].as_array().unwrap();
    let found = deliveries.iter().find(|one| one["task"] == task).unwrap();
    found["id"].as_str().unwrap().to_owned()
}

/// The name and the session of a worker that the victim registered.
async fn worker(hub: &Hub) -> (String, String) {
    let body = json!({ "role": "matrix", "instance_id": "host:1" });
    let register = Call::post("/api/agents", &body).header("Authorization", "Bearer worker");
    let worker = hub.call(register).await.json();
    let member = |name: &str| worker[name].as_str().unwrap().to_owned();
    (member("name"), member("session"))
}

fn all(target: &Target) -> Vec<Probe> {
    [probe::operations(target), probe::feeds(target), probe::api(target)].concat()
}

fn target(task: &str) -> Target {
    let (key, question) = ("unknown".to_owned(), "unknown".to_owned());
    let (webhook, worker) = (UNKNOWN.to_owned(), "matrix:unknown:1".to_owned());
    let session = UNKNOWN.to_owned();
    Target { task: task.to_owned(), key, question, webhook, worker, session, tenant: None }
}

/// Counts of probes, by case.
#[derive(Debug, Default)]
struct Tally(Vec<(&'static str, usize)>);

impl Tally {
    fn add(&mut self, case: &'static str) {
        match self.0.iter_mut().find(|(name, _)| *name == case) {
            Some((_, count)) => *count += 1,
            None => self.0.push((case, 1)),
        }
    }

    #[expect(clippy::print_stdout, reason = "the counts are what the test shows")]
    fn print(&self) {
        for (case, count) in &self.0 {
            println!("{count:6}  {case}");
        }
        println!("{:6}  in all", self.0.iter().map(|(_, count)| count).sum::<usize>());
    }
}

#[track_caller]
fn leaks_nothing(probe: &Probe, case: &str, outcome: &Outcome) {
    assert!(!outcome.text().contains(CANARY), "{} as {case}: {}", probe.name, outcome.text());
}

// proves: SEC-001, SEC-005, SEC-006, SEC-007, ERR-067, ERR-068, ERR-069, ERR-070
#[tokio::test]
async fn calls_without_a_right_are_refused_with_the_right_code_and_leak_nothing() {
    let hub = hub().await;
    let prober = Prober::new(&hub).await;
    let victim = task(&hub).await;
    let webhook = webhook(&hub, &victim).await;
    let (worker, session) = worker(&hub).await;
    let known = Target { webhook, worker, session, ..target(&victim) };
    let unknown = target(UNKNOWN);
    let mut tally = Tally::default();

    let revoked = revoked_key(&hub).await;
    for probe in all(&known) {
        let revoked = ("with a revoked key", vec![("x-api-key", revoked.clone())]);
        for (case, credentials) in broken().into_iter().chain([revoked]) {
            let outcome = prober.call(&probe, &credentials).await;
            leaks_nothing(&probe, case, &outcome);
            assert_eq!(outcome.refused, Some(ErrorKind::Unauthenticated), "{} {case}", probe.name);
            if !matches!(probe.wire, Wire::Grpc { .. }) {
                assert!(outcome.challenge.is_some(), "{} {case}", probe.name);
            }
            tally.add(case);
        }
        if let Some(scope) = probe.subject.scope() {
            let outcome = prober.call(&probe, &bearer(&format!("no-{scope}"))).await;
            leaks_nothing(&probe, "without the scope", &outcome);
            assert_eq!(outcome.refused, Some(ErrorKind::Forbidden), "{} {scope}", probe.name);
            tally.add("without the scope");
        }
    }
    // In 0.1 callers choose the ids of their tasks: a send with the victim's id makes a task of their own.
    let probes: Vec<_> = all(&known).into_iter().zip(all(&unknown)).collect();
    let (own, others): (Vec<_>, Vec<_>) =
        probes.into_iter().partition(|(mine, _)| makes_own_task(mine));
    for (mine, none) in others {
        for case in ["foreign-tenant", "foreign-owner", "other-agent"] {
            let found = prober.call(&mine, &bearer(case)).await;
            let missing = prober.call(&none, &bearer(case)).await;
            leaks_nothing(&mine, case, &found);
            if mine.subject.names_task() {
                let both = (found.without(&victim), missing.without(UNKNOWN));
                assert_eq!(both.0, both.1, "{} {case}", mine.name);
                assert!(found.refused.is_some(), "{} {case}", mine.name);
            }
            check_kind(&mine, case, &found);
            tally.add(case);
        }
    }
    for case in ["foreign-tenant", "foreign-owner"] {
        let outcome = prober.call(&own[0].0, &bearer(case)).await;
        leaks_nothing(&own[0].0, case, &outcome);
        assert_eq!(outcome.refused, None, "{}", outcome.text());
        tally.add("a task of its own under the victim's id");
    }
    // A tenant that the request names must be that of the credentials.
    let named = Target { tenant: Some("acme".to_owned()), ..known.clone() };
    for (probe, plain) in all(&named).iter().zip(all(&known)) {
        if format!("{:?}", probe.wire) == format!("{:?}", plain.wire) {
            continue; // The version has no tenant in its requests.
        }
        let outcome = prober.call(probe, &bearer("foreign-tenant")).await;
        leaks_nothing(probe, "naming the tenant", &outcome);
        assert_eq!(outcome.refused, Some(ErrorKind::Forbidden), "{}", probe.name);
        tally.add("naming the foreign tenant");
    }
    let state = hub
        .call(
            Call::rpc("GetTask", &json!({ "id": victim })).header("Authorization", "Bearer owner"),
        )
        .await;
    assert_eq!(state.result()["status"]["state"], "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(state.result()["history"].as_array().unwrap().len(), 1, "no message was added");
    tally.print();
}

/// Credentials that are missing or wrong.
fn broken() -> Vec<(&'static str, Credentials)> {
    let authorization = |value: &str| vec![("authorization", value.to_owned())];
    vec![
        ("without credentials", Vec::new()),
        ("with an unknown token", bearer("unknown")),
        ("with an empty token", authorization("Bearer ")),
        ("with another scheme", authorization("Basic YWxpY2U6b3duZXI=")),
        ("with a token and no scheme", authorization("owner")),
        ("with two tokens", [bearer("owner"), bearer("root")].concat()),
        ("with an unknown key", vec![("x-api-key", "unknown".to_owned())]),
    ]
}

fn makes_own_task(probe: &Probe) -> bool {
    let is_v01 = matches!(
        probe.wire,
        Wire::JsonRpc(Dialect::V01, _) | Wire::Socket { dialect: Dialect::V01, .. }
    );
    let sends = matches!(
        probe.subject,
        Subject::Operation(Operation::SendMessage | Operation::SendStreamingMessage)
    );
    is_v01 && sends
}

/// The kind of error that a caller gets who has the scopes but not the right to this task or agent.
#[track_caller]
fn check_kind(probe: &Probe, case: &str, outcome: &Outcome) {
    let limited = case == "other-agent";
    let allowed: &[Option<ErrorKind>] = match probe.subject {
        // An operation that no agent has is refused alike for everybody.
        Subject::Operation(Operation::GetExtendedAgentCard) => return,
        Subject::Operation(Operation::ListTasks) if limited => &[None, Some(ErrorKind::Forbidden)],
        Subject::Operation(Operation::ListTasks) => &[None],
        Subject::Operation(_) | Subject::Feed if limited => {
            &[Some(ErrorKind::Forbidden), Some(ErrorKind::TaskNotFound)]
        }
        Subject::Operation(_) | Subject::Feed => &[Some(ErrorKind::TaskNotFound)],
        Subject::Api(route) => match (route.scope(), route) {
            (ApiScope::Any, _)
            | (_, ApiRoute::ListTasks | ApiRoute::ListAgents | ApiRoute::ListDeliveries) => &[None],
            (_, ApiRoute::GetDelivery | ApiRoute::ReplayDelivery | ApiRoute::EnableDelivery) => {
                &[Some(ErrorKind::ResourceNotFound)]
            }
            (_, ApiRoute::GetAgent) if limited => &[Some(ErrorKind::ResourceNotFound)],
            (_, ApiRoute::GetAgent) => &[None],
            (ApiScope::Admin, _) => &[Some(ErrorKind::Forbidden)],
            // A foreign caller may register workers of its own, also under a name that another one had before.
            (_, ApiRoute::RegisterAgent) if limited => &[Some(ErrorKind::Forbidden)],
            (_, ApiRoute::RegisterAgent) => &[None, Some(ErrorKind::WorkerNameTaken)],
            (_, ApiRoute::HeartbeatAgent) if limited => &[Some(ErrorKind::Forbidden)],
            (_, ApiRoute::HeartbeatAgent) => &[Some(ErrorKind::WorkerUnknown)],
            (
                _,
                ApiRoute::PollWorker
                | ApiRoute::WriteTurn
                | ApiRoute::TakeTurnAnswer
                | ApiRoute::EndTurn,
            ) => &[Some(ErrorKind::Forbidden), Some(ErrorKind::WorkerExpired)],
            (_, ApiRoute::RemoveAgent) => &[Some(ErrorKind::ResourceNotFound)],
            (
                ApiScope::Read
                | ApiScope::Send
                | ApiScope::Cancel
                | ApiScope::Push
                | ApiScope::Work
                | ApiScope::WorkOrRegister,
                _,
            ) => &[Some(ErrorKind::TaskNotFound)],
        },
    };
    assert!(allowed.contains(&outcome.refused), "{} {case}: {}", probe.name, outcome.text());
}

#[tokio::test]
async fn the_same_calls_of_an_allowed_caller_succeed() {
    let hub = hub().await;
    let prober = Prober::new(&hub).await;
    let mut tally = Tally::default();
    let count = all(&target(UNKNOWN)).len();
    for index in 0..count {
        // Some calls end the task, so each has its own.
        let task = task(&hub).await;
        let (key, question) = (key(&hub).await, question(&hub, &task).await);
        let webhook = webhook(&hub, &task).await;
        let (worker, session) = worker(&hub).await;
        let target = Target { key, question, webhook, worker, session, ..target(&task) };
        let probe = all(&target).swap_remove(index);
        let caller = match probe.subject {
            Subject::Api(route) if route.scope() == ApiScope::Admin => "root",
            Subject::Api(route)
                if matches!(route.scope(), ApiScope::Work | ApiScope::WorkOrRegister) =>
            {
                "worker"
            }
            Subject::Api(_) | Subject::Operation(_) | Subject::Feed => "owner",
        };
        let outcome = prober.call(&probe, &bearer(caller)).await;
        let unsupported = [
            Some(ErrorKind::UnsupportedOperation),
            Some(ErrorKind::ExtendedAgentCardNotConfigured),
        ];
        if unsupported.contains(&outcome.refused) {
            tally.add("refused, because no agent has the operation yet");
        } else if outcome.refused == Some(ErrorKind::TurnOver) {
            tally.add("refused, because the worker has no turn");
        } else {
            assert_eq!(outcome.refused, None, "{}: {}", probe.name, outcome.text());
            tally.add("succeeded");
        }
    }
    tally.print();
}
