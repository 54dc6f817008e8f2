//! Worker protocol over HTTP: polls, writes, answers and ends.

use herald_engine::{
    Profile, Recovery, RoleSettings, Scopes,
    workers::{NewWorker, SessionRef},
};
use herald_protocol::{AgentName, TenantId};
use herald_server::Config;
use serde_json::{Value, json};

use crate::{
    client::{Answer, Call, message},
    hub::{Hub, token},
};

/// A server with a role, and a session of one of its workers.
struct Bench {
    hub: Hub,
    session: SessionRef,
}

async fn bench() -> Bench {
    let tokens = vec![
        token("worker", "acme", "robot", Scopes::WORK),
        token("caller", "acme", "alice", Scopes::CALLER),
        token("other", "acme", "mallory", Scopes::WORK),
        herald_server::Token {
            agents: Some(vec![AgentName::from("script")]),
            ..token("limited", "acme", "robot", Scopes::WORK)
        },
    ];
    let hub = Hub::with(Config { tokens, ..Config::default() }).await;
    let role = Profile { recovery: Recovery::Rerun(3), ..Profile::new("reviewer", "Reviews code") };
    hub.engine.workers().declare_role(role, RoleSettings::default()).unwrap();
    let caller = herald_engine::Caller::new(TenantId::from("acme"), "robot", Scopes::WORK);
    let new = NewWorker {
        role: "reviewer".into(),
        instance: "vm:1".to_owned(),
        concurrency: 2,
        labels: Vec::new(),
    };
    let session = hub.engine.workers().join(&caller, new).await.unwrap();
    Bench { hub, session }
}

impl Bench {
    async fn post(&self, who: &str, path: &str, mut body: Value) -> Answer {
        if body.get("session").is_none() {
            body["session"] = json!(self.session.id());
        }
        let call = Call::post(format!("/api/agents/reviewer:vm:1/{path}"), &body);
        self.hub.call(call.header("Authorization", &format!("Bearer {who}"))).await
    }

    async fn poll(&self, body: Value) -> Value {
        ok(&self.post("worker", "poll", body).await)
    }

    /// A request for a turn.
    async fn turn(&self, given: &Value, verb: &str, mut body: Value) -> Answer {
        body["epoch"] = given["epoch"].clone();
        let path = format!("turns/{}/{verb}", given["id"].as_str().unwrap());
        self.post("worker", &path, body).await
    }

    async fn send(&self, text: &str) -> Value {
        let mut params = message(text);
        params["configuration"] = json!({ "returnImmediately": true });
        params["message"].as_object_mut().unwrap().remove("messageId");
        params["message"]["messageId"] = json!(text);
        let call = Call::rpc("SendMessage", &params).at("/agents/reviewer/a2a/jsonrpc");
        let call = call.header("Authorization", "Bearer caller");
        self.hub.call(call).await.result()["task"].clone()
    }

    async fn task(&self, task: &Value) -> Value {
        let call = Call::rpc("GetTask", &json!({ "id": task["id"] }));
        self.hub.call(call.header("Authorization", "Bearer caller")).await.result()
    }
}

#[track_caller]
fn ok(answer: &Answer) -> Value {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.json()
}

#[track_caller]
fn refused(answer: &Answer, status: u16, reason: &str) {
    assert_eq!((answer.status(), answer.reason()), (status, reason.into()), "{}", answer.text());
}

fn text(content: &str) -> Value {
    json!({ "parts": [{ "text": content }] })
}

#[tokio::test]
async fn a_worker_in_any_language_runs_a_turn() {
    let bench = bench().await;
    let task = bench.send("review this").await;
    let reply = bench.poll(json!({ "free": 2 })).await;
    assert_eq!((&reply["stop"], &reply["answered"]), (&json!([]), &json!([])));
    assert_eq!(reply["leaving"], false);
    let given = &reply["assignments"][0];
    assert_eq!(given["turn"]["message"]["parts"][0]["text"], "review this");
    assert_eq!(given["turn"]["task"]["id"], task["id"]);
    assert_eq!((&given["turn"]["attempt"], &given["turn"]["resumed"]), (&json!(1), &json!(false)));
    assert_eq!(given["id"], given["turn"]["id"]);
    let artifact = json!({ "artifactId": "out", "parts": [{ "text": "a" }] });
    let commands = json!([
        { "report": { "state": "TASK_STATE_WORKING", "message": text("reading"), "metadata": { "step": 1 } } },
        { "write": { "artifact": artifact, "append": true, "last": false } },
    ]);
    let body = json!({ "number": 1, "after": given["head"], "commands": commands });
    let written = ok(&bench.turn(given, "commands", body.clone()).await);
    assert_eq!(written["head"], given["head"].as_u64().unwrap() + 2);
    assert_eq!(ok(&bench.turn(given, "commands", body).await), written, "a repetition");
    let ask =
        json!([{ "ask": { "state": "TASK_STATE_INPUT_REQUIRED", "message": text("name?") } }]);
    let body = json!({ "number": 2, "after": written["head"], "commands": ask });
    ok(&bench.turn(given, "commands", body).await);
    let mut params = message("Ann");
    params["message"]["taskId"] = task["id"].clone();
    params["message"]["messageId"] = json!("answer");
    params["configuration"] = json!({ "returnImmediately": true });
    let answers = Call::rpc("SendMessage", &params).at("/agents/reviewer/a2a/jsonrpc");
    bench.hub.call(answers.header("Authorization", "Bearer caller")).await.result();
    let held = json!([{ "id": given["id"], "epoch": given["epoch"] }]);
    let reply = bench.poll(json!({ "turns": held })).await;
    assert_eq!(reply["answered"], json!([given["id"]]));
    let taken = ok(&bench.turn(given, "answer", json!({ "number": 3 })).await);
    assert_eq!(taken["message"]["parts"][0]["text"], "Ann");
    let done = json!([{ "report": { "state": "TASK_STATE_COMPLETED", "message": text("done") } }]);
    let body = json!({ "number": 4, "after": taken["head"], "commands": done });
    ok(&bench.turn(given, "commands", body).await);
    let end = json!({ "number": 5, "outcome": { "kind": "done" } });
    assert_eq!(ok(&bench.turn(given, "end", end).await), json!({}));
    let task = bench.task(&task).await;
    assert_eq!(task["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(task["metadata"]["step"], 1);
    assert_eq!(task["artifacts"][0]["parts"], json!([{ "text": "a" }]));
    assert_eq!(task["status"]["message"]["role"], "ROLE_AGENT");
    let path = format!("/api/tasks/{}/log", task["id"].as_str().unwrap());
    let log = bench.hub.call(Call::get(path).header("Authorization", "Bearer caller")).await;
    let actors: Vec<_> = ok(&log)["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["cause"]["actor"].clone())
        .collect();
    assert!(actors.contains(&json!("worker")), "{actors:?}");
    assert!(!log.text().contains(&bench.session.id()), "a session is the worker's own");
}

#[tokio::test]
async fn bad_requests_of_workers_are_refused_with_a_reason() {
    let bench = bench().await;
    let task = bench.send("go").await;
    let reply = bench.poll(json!({ "free": 1 })).await;
    let given = &reply["assignments"][0];
    // Credentials: without the scope, of another principal, for another agent.
    refused(&bench.post("caller", "poll", json!({})).await, 403, "AUTHORIZATION_FAILED");
    refused(&bench.post("other", "poll", json!({})).await, 403, "AUTHORIZATION_FAILED");
    refused(&bench.post("limited", "poll", json!({})).await, 403, "AUTHORIZATION_FAILED");
    // Sessions.
    let unknown = json!({ "session": "6f9e3d52-7f6c-4d0e-9d5b-0a4f1f0f8a11" });
    refused(&bench.post("worker", "poll", unknown).await, 410, "WORKER_EXPIRED");
    refused(&bench.post("worker", "poll", json!({ "session": "x" })).await, 400, "INVALID_PARAMS");
    let too_long = json!({ "wait_seconds": 6 });
    refused(&bench.post("worker", "poll", too_long).await, 400, "INVALID_PARAMS");
    refused(&bench.post("worker", "poll", json!({ "more": 1 })).await, 400, "INVALID_PARAMS");
    // Turns that the session does not hold.
    let done = json!([{ "report": { "state": "TASK_STATE_COMPLETED" } }]);
    let body = json!({ "number": 1, "after": 0, "commands": done });
    let mut old = given.clone();
    old["epoch"] = json!(given["epoch"].as_u64().unwrap() + 1);
    refused(&bench.turn(&old, "commands", body.clone()).await, 409, "TURN_OVER");
    refused(&bench.turn(&old, "answer", json!({ "number": 1 })).await, 409, "TURN_OVER");
    let end = json!({ "outcome": { "kind": "done" } });
    refused(&bench.turn(&old, "end", end).await, 409, "TURN_OVER");
    // Writes that the rules refuse.
    let canceled = json!([{ "report": { "state": "TASK_STATE_CANCELED" } }]);
    let body = json!({ "number": 1, "after": 0, "commands": canceled });
    refused(&bench.turn(given, "commands", body).await, 422, "WRITE_REFUSED");
    refused(&bench.turn(given, "answer", json!({ "number": 1 })).await, 422, "WRITE_REFUSED");
    for commands in [json!([]), json!([{ "cancel": {} }]), json!([{ "report": {} }]), json!({})] {
        let body = json!({ "number": 1, "after": 0, "commands": commands });
        refused(&bench.turn(given, "commands", body).await, 400, "INVALID_PARAMS");
    }
    let outcome = json!({ "outcome": { "kind": "gone" } });
    refused(&bench.turn(given, "end", outcome).await, 400, "INVALID_PARAMS");
    assert_eq!(bench.task(&task).await["status"]["state"], "TASK_STATE_WORKING");
    let failed =
        json!({ "outcome": { "kind": "failed", "error": "unavailable", "text": "no model" } });
    ok(&bench.turn(given, "end", failed).await);
    let task = bench.task(&task).await;
    assert_eq!(task["status"]["message"]["metadata"]["reason"], "AGENT_UNAVAILABLE");
}

#[tokio::test]
async fn a_returned_turn_is_given_again() {
    let bench = bench().await;
    bench.send("go").await;
    let reply = bench.poll(json!({ "free": 1 })).await;
    let given = &reply["assignments"][0];
    let returned = json!({ "outcome": { "kind": "returned" } });
    ok(&bench.turn(given, "end", returned).await);
    let draining = bench.poll(json!({ "free": 1, "draining": true, "wait_seconds": 0 })).await;
    assert_eq!(draining["assignments"], json!([]), "a draining worker gets no turn");
    let reply = bench.poll(json!({ "free": 1 })).await;
    let again = &reply["assignments"][0];
    assert_eq!((&again["id"], &again["turn"]["attempt"]), (&given["id"], &json!(1)));
    assert!(again["epoch"].as_u64() > given["epoch"].as_u64());
}

#[tokio::test]
async fn a_waiting_poll_ends_with_a_cancel_and_with_the_server() {
    let mut bench = bench().await;
    let task = bench.send("go").await;
    let reply = bench.poll(json!({ "free": 1 })).await;
    let given = &reply["assignments"][0];
    let held = json!([{ "id": given["id"], "epoch": given["epoch"] }]);
    let mut waiting = bench.hub.client().await;
    let body = json!({ "session": bench.session.id(), "turns": held });
    let poll = Call::post("/api/agents/reviewer:vm:1/poll", &body)
        .header("Authorization", "Bearer worker");
    let cancels = async {
        let params = json!({ "id": task["id"], "metadata": { "why": "no need" } });
        let call = Call::rpc("CancelTask", &params).header("Authorization", "Bearer caller");
        bench.hub.call(call).await.result()
    };
    let (reply, _) = tokio::join!(waiting.call(poll.clone()), cancels);
    let stop = json!([{
        "id": given["id"], "epoch": given["epoch"], "reason": "cancelled",
        "metadata": { "why": "no need" },
    }]);
    assert_eq!(ok(&reply)["stop"], stop);
    let mut waiting = bench.hub.client().await;
    let body = json!({ "session": bench.session.id() });
    let idle = Call::post("/api/agents/reviewer:vm:1/poll", &body);
    let idle = idle.header("Authorization", "Bearer worker");
    let (reply, ()) = tokio::join!(waiting.call(idle), async {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        bench.hub.stop();
    });
    assert_eq!(ok(&reply)["leaving"], true);
    bench.hub.stopped().await;
}

#[tokio::test]
async fn a_worker_whose_connection_is_gone_gets_no_turn() {
    let bench = bench().await;
    let polls = async |expected: bool| {
        let is_polling = || bench.hub.engine.workers().sessions(None)[0].is_polling;
        while is_polling() != expected {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    };
    let body = json!({ "session": bench.session.id(), "free": 1 });
    let poll = Call::post("/api/agents/reviewer:vm:1/poll", &body);
    let mut client = bench.hub.client().await;
    client.send(&poll.header("Authorization", "Bearer worker")).await;
    polls(true).await;
    // Killed: the system closes its connection.
    drop(client);
    polls(false).await;
    let task = bench.send("go").await;
    assert_eq!(bench.task(&task).await["status"]["state"], "TASK_STATE_SUBMITTED");
    let reply = bench.poll(json!({ "free": 1 })).await;
    assert_eq!(reply["assignments"][0]["turn"]["attempt"], 1, "no attempt was lost");
}

/// A server with a role, and callers and workers of two tenants.
async fn two_tenants() -> Hub {
    let tokens = vec![
        token("acme-caller", "acme", "alice", Scopes::CALLER),
        token("zeta-caller", "zeta", "alice", Scopes::CALLER),
        token("acme-worker", "acme", "robot", Scopes::WORK),
        herald_server::Token {
            agents: Some(vec![AgentName::from("reviewer")]),
            ..token("zeta-worker", "zeta", "robot", Scopes::WORK)
        },
        token("root", "", "root", Scopes::ALL),
    ];
    let hub = Hub::with(Config { tokens, ..Config::default() }).await;
    let role = Profile { recovery: Recovery::Rerun(3), ..Profile::new("reviewer", "Reviews code") };
    hub.engine.workers().declare_role(role, RoleSettings::default()).unwrap();
    hub
}

/// The texts of the messages that a worker is given, each of which it ends, until none is left for it.
async fn texts(hub: &Hub, credential: &str, instance: &str) -> Vec<String> {
    let post = async |path: String, body: &Value| {
        let call = Call::post(path, body);
        hub.call(call.header("Authorization", &format!("Bearer {credential}"))).await
    };
    let body = json!({ "role": "reviewer", "instance_id": instance, "concurrency": 4 });
    let worker = post("/api/agents".to_owned(), &body).await;
    assert_eq!(worker.status(), 201, "{}", worker.text());
    let worker = worker.json();
    let name = worker["name"].as_str().unwrap();
    let mut texts = Vec::new();
    loop {
        let poll = json!({ "session": worker["session"], "free": 4, "wait_seconds": 1 });
        let reply = ok(&post(format!("/api/agents/{name}/poll"), &poll).await);
        let given = reply["assignments"].as_array().unwrap();
        if given.is_empty() {
            return texts;
        }
        for turn in given {
            let text = turn["turn"]["message"]["parts"][0]["text"].as_str().unwrap();
            texts.push(text.to_owned());
            let end = json!({
                "session": worker["session"], "epoch": turn["epoch"], "number": 1,
                "outcome": { "kind": "done" },
            });
            let id = turn["id"].as_str().unwrap();
            ok(&post(format!("/api/agents/{name}/turns/{id}/end"), &end).await);
        }
    }
}

/// Sends a message of each tenant.
async fn send_both(hub: &Hub, round: &str) {
    for tenant in ["acme", "zeta"] {
        let mut params = message(&format!("secret of {tenant}"));
        params["configuration"] = json!({ "returnImmediately": true });
        params["message"]["messageId"] = json!(format!("{tenant} {round}"));
        let call = Call::rpc("SendMessage", &params).at("/agents/reviewer/a2a/jsonrpc");
        hub.call(call.header("Authorization", &format!("Bearer {tenant}-caller"))).await.result();
    }
}

#[tokio::test]
async fn a_worker_of_one_tenant_never_sees_a_message_of_another() {
    let hub = two_tenants().await;
    send_both(&hub, "first").await;
    assert_eq!(texts(&hub, "acme-worker", "vm:1").await, ["secret of acme"]);
    // A credential that names the role is one of its tenant all the same.
    assert_eq!(texts(&hub, "zeta-worker", "vm:2").await, ["secret of zeta"]);
}

#[tokio::test]
async fn a_key_with_the_scope_for_all_tenants_works_on_the_messages_of_every_tenant() {
    let hub = two_tenants().await;
    let create = async |scopes: Value| {
        let body = json!({ "tenant": "ops", "principal": "robot", "scopes": scopes });
        let call = Call::post("/api/keys", &body).header("Authorization", "Bearer root");
        hub.call(call).await.json()["key"].as_str().unwrap().to_owned()
    };
    send_both(&hub, "first").await;
    let limited = create(json!(["work"])).await;
    assert_eq!(texts(&hub, &limited, "vm:1").await, [""; 0]);
    let shared = create(json!(["work", "work-all"])).await;
    let mut found = texts(&hub, &shared, "vm:2").await;
    found.sort();
    assert_eq!(found, ["secret of acme", "secret of zeta"]);
}

#[tokio::test]
async fn a_write_out_of_order_is_refused_with_the_number_that_is_expected() {
    let bench = bench().await;
    bench.send("go").await;
    let reply = bench.poll(json!({ "free": 1 })).await;
    let given = &reply["assignments"][0];
    let working = json!([{ "report": { "state": "TASK_STATE_WORKING" } }]);
    let body = json!({ "number": 2, "after": given["head"], "commands": working });
    let early = bench.turn(given, "commands", body).await;
    refused(&early, 422, "WRITE_REFUSED");
    assert!(early.text().contains("the next number is 1"), "{}", early.text());
}
