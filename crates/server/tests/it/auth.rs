//! Credentials and tenants.

use herald_engine::Scopes;
use herald_server::{CardInterface, Config, Server, ServerBuildError, Token};
use serde_json::{Value, json};

use crate::{
    agents::Script,
    client::{Answer, Call, message, old_message},
    hub::{Hub, engine, token},
};

async fn guarded() -> Hub {
    let tokens = vec![
        token("canary-7c5e-alice", "acme", "alice", Scopes::ALL),
        token("canary-7c5e-bob", "acme", "bob", Scopes::ALL),
        token("canary-7c5e-reader", "acme", "alice", Scopes::READ),
        token("canary-7c5e-eve", "other", "eve", Scopes::ALL),
    ];
    Hub::with(Config { tokens, ..Config::default() }).await
}

fn as_(who: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer canary-7c5e-{who}"))
}

/// Every operation, over both bindings and both versions.
fn everything(task: &str) -> Vec<Call> {
    let id = json!({ "id": task });
    let mut continued = message("more");
    continued["message"]["taskId"] = json!(task);
    let mut old = old_message("more");
    old["message"]["taskId"] = json!(task);
    vec![
        Call::rpc("GetTask", &id),
        Call::rpc("CancelTask", &id),
        Call::rpc("SubscribeToTask", &id),
        Call::rpc("SendMessage", &continued),
        Call::rpc("SendStreamingMessage", &continued),
        Call::old_rpc("tasks/get", &id),
        Call::old_rpc("tasks/cancel", &id),
        Call::old_rpc("tasks/resubscribe", &id),
        Call::old_rpc("message/send", &old),
        Call::old_rpc("message/stream", &old),
        Call::get(format!("/tasks/{task}")).v1(),
        Call::new("POST", format!("/tasks/{task}:cancel")).v1(),
        Call::get(format!("/tasks/{task}:subscribe")).v1(),
        Call::post("/message:send", &continued).v1(),
        Call::post("/message:stream", &continued).v1(),
        Call::get(format!("/v1/tasks/{task}")),
        Call::new("POST", format!("/v1/tasks/{task}:cancel")),
        Call::get(format!("/v1/tasks/{task}:subscribe")),
        Call::post("/v1/message:send", &old),
    ]
}

// proves: SEC-001, ERR-068, ERR-069, XC-007, EXT-009
#[tokio::test]
async fn nothing_happens_without_credentials() {
    let hub = guarded().await;
    for call in everything("x") {
        for call in [
            call.clone(),
            call.clone().header("Authorization", "Bearer canary-7c5e-wrong"),
            call.clone().header("Authorization", "Bearer "),
            call.clone().header("Authorization", "Basic YWxpY2U6eA=="),
            call.clone().header("A2A-Extensions", "urn:known"),
        ] {
            let answer = hub.call(call.clone()).await;
            assert_eq!(answer.status(), 401, "{call:?} {}", answer.text());
            assert_eq!(answer.header("www-authenticate"), Some(r#"Bearer realm="herald""#));
            assert!(answer.text().contains("AUTHENTICATION_REQUIRED"));
        }
    }
    let answer = hub.call(Call::rpc("GetTask", &json!({ "id": "x" }))).await;
    assert_eq!((answer.error().0, &answer.json()["id"]), (-31011, &Value::Null));
    let answer = hub.call(Call::old_rpc("tasks/get", &json!({ "id": "x" }))).await;
    assert_eq!(answer.error().0, -32008);
}

#[tokio::test]
async fn a_body_is_not_awaited_from_a_stranger() {
    let hub = guarded().await;
    let mut client = hub.client().await;
    client
        .write(
            "POST /a2a/jsonrpc HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: 4000000\r\n\r\n",
        )
        .await;
    assert_eq!(client.answer().await.status(), 401);
}

// proves: ERR-070, SEC-006, SEC-007
#[tokio::test]
async fn a_token_allows_what_its_scopes_say() {
    let hub = guarded().await;
    let call = as_("alice", Call::rpc("SendMessage", &message("ask")));
    let task = hub.call(call).await.result()["task"]["id"].clone();
    let get = Call::rpc("GetTask", &json!({ "id": task }));
    assert_eq!(hub.call(as_("reader", get)).await.result()["id"], task);
    for call in [
        Call::rpc("SendMessage", &message("hello")),
        Call::rpc("CancelTask", &json!({ "id": task })),
    ] {
        let answer = hub.call(as_("reader", call)).await;
        assert_eq!(
            (answer.status(), answer.error()),
            (403, (-31012, "AUTHORIZATION_FAILED".into()))
        );
        assert_eq!(answer.json()["id"], "call-1");
    }
    let cancel = |id: &Value| as_("reader", Call::rpc("CancelTask", &json!({ "id": id })));
    let (known, unknown) = (hub.call(cancel(&task)).await, hub.call(cancel(&json!("x"))).await);
    assert_eq!(known.text(), unknown.text(), "nothing is looked up for who may not");
    let call = Call::old_rpc("message/send", &old_message("hello"));
    let answer = hub.call(as_("reader", call)).await;
    assert_eq!((answer.status(), answer.error().0), (403, -32009));
    let call = Call::post("/message:send", &message("hello")).v1();
    let answer = hub.call(as_("reader", call)).await;
    assert_eq!((answer.status(), answer.reason()), (403, "AUTHORIZATION_FAILED".into()));
}

// proves: ERR-067, SEC-005, LIST-001, LIST-014
#[tokio::test]
async fn somebody_elses_task_looks_like_none() {
    let hub = guarded().await;
    let call = as_("alice", Call::rpc("SendMessage", &message("ask")));
    let task = hub.call(call).await.result()["task"]["id"].as_str().unwrap().to_owned();
    let unknown = task.replace(|digit: char| digit.is_ascii_hexdigit(), "0");
    for who in ["bob", "eve"] {
        for (foreign, missing) in everything(&task).into_iter().zip(everything(&unknown)) {
            let foreign = hub.call(as_(who, foreign)).await;
            let missing = hub.call(as_(who, missing)).await;
            assert_eq!(foreign.status(), missing.status());
            assert_eq!(foreign.text(), missing.text());
            assert!(foreign.text().contains("TASK_NOT_FOUND"), "{}", foreign.text());
        }
        let list = hub.call(as_(who, Call::rpc("ListTasks", &json!({})))).await.result();
        assert_eq!(list["totalSize"], 0);
    }
    let list = hub.call(as_("alice", Call::rpc("ListTasks", &json!({})))).await.result();
    assert_eq!(list["totalSize"], 1);
}

// proves: SEC-012
#[tokio::test]
async fn the_tenant_comes_from_the_credentials() {
    let hub = guarded().await;
    let mut params = message("hello");
    params["tenant"] = json!("acme");
    let task = hub.call(as_("alice", Call::rpc("SendMessage", &params))).await.result();
    let id = task["task"]["id"].as_str().unwrap();
    let path = format!("/acme/tasks/{id}");
    assert_eq!(hub.call(as_("alice", Call::get(&path).v1())).await.status(), 200);
    params["tenant"] = json!("other");
    for call in [
        Call::rpc("SendMessage", &params),
        Call::get(format!("/other/tasks/{id}")).v1(),
        Call::get(format!("/tasks/{id}?tenant=other")).v1(),
        Call::get("/other/tasks").v1(),
    ] {
        let answer = hub.call(as_("alice", call)).await;
        assert_eq!(answer.status(), 403, "{}", answer.text());
        assert!(answer.text().contains("AUTHORIZATION_FAILED"));
    }
}

// proves: TEN-003, TEN-004, TEN-005, REST-002
#[tokio::test]
async fn without_credentials_the_tenant_is_a_namespace() {
    let hub = Hub::start().await;
    for tenant in ["a", "ünïcode", "a/b", "x y%", "v2"] {
        let mut params = message("hello");
        params["tenant"] = json!(tenant);
        let task = hub.call(Call::rpc("SendMessage", &params)).await.result()["task"].clone();
        let id = task["id"].as_str().unwrap();
        let get = |tenant: &str| Call::rpc("GetTask", &json!({ "id": id, "tenant": tenant }));
        assert_eq!(hub.call(get(tenant)).await.result()["id"], id);
        assert_eq!(hub.call(get("b")).await.error().0, -32001);
        assert_eq!(hub.call(Call::rpc("GetTask", &json!({ "id": id }))).await.error().0, -32001);
        let escaped: String = tenant.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let path = format!("/{escaped}/tasks/{id}");
        assert_eq!(hub.call(Call::get(path).v1()).await.status(), 200, "{tenant}");
        let path = format!("/agents/script/{escaped}/tasks/{id}");
        assert_eq!(hub.call(Call::get(path).v1()).await.status(), 200, "{tenant}");
        assert_eq!(hub.call(Call::get(format!("/b/tasks/{id}")).v1()).await.status(), 404);
    }
    let sent = hub.call(Call::post("/a/message:send", &message("hello")).v1()).await;
    assert_eq!(sent.status(), 200);
    let list = hub.call(Call::get("/a/tasks").v1()).await.json();
    assert_eq!(list["totalSize"], 2);
    let cancel = Call::new("POST", "/a/tasks/x:cancel").v1();
    assert_eq!(hub.call(cancel).await.reason(), "TASK_NOT_FOUND");
    assert_eq!(hub.call(Call::get("/a/tasks/x:subscribe").v1()).await.reason(), "TASK_NOT_FOUND");
    assert_eq!(hub.call(Call::get("/a/extendedAgentCard").v1()).await.status(), 400);
    let configs = Call::get("/a/tasks/x/pushNotificationConfigs").v1();
    assert_eq!(hub.call(configs).await.reason(), "PUSH_NOTIFICATION_NOT_SUPPORTED");
    // A tenant that is named like a path of the server's own is addressed by field only.
    let mut params = message("hello");
    params["tenant"] = json!("agents");
    assert!(hub.call(Call::rpc("SendMessage", &params)).await.result()["task"].is_object());
    assert_eq!(hub.call(Call::get("/agents/tasks").v1()).await.status(), 404);
}

#[tokio::test]
async fn mistakes_in_the_configuration_are_found_when_the_server_is_built() {
    let build = |config: Config| Server::builder(engine(&Script::new())).config(config).build();
    let config = Config::default;
    for (config, expected) in [
        (
            Config { public_url: Some("agents.example.com".into()), ..config() },
            ServerBuildError::PublicUrl("agents.example.com".into()),
        ),
        (
            Config { allowed_hosts: vec!["http://x".into()], ..config() },
            ServerBuildError::AllowedHost("http://x".into()),
        ),
        (
            Config { allowed_origins: vec!["x.example".into()], ..config() },
            ServerBuildError::AllowedOrigin("x.example".into()),
        ),
        (
            Config { allowed_origins: vec!["https://x.example/".into()], ..config() },
            ServerBuildError::AllowedOrigin("https://x.example/".into()),
        ),
        (
            Config { tokens: vec![token("", "t", "p", Scopes::ALL)], ..config() },
            ServerBuildError::Token("p".into()),
        ),
        (
            Config {
                tokens: vec![token("s", "t", "p", Scopes::ALL), token("s", "t", "q", Scopes::ALL)],
                ..config()
            },
            ServerBuildError::SameToken("p".into(), "q".into()),
        ),
        (Config { card_interfaces: Vec::new(), ..config() }, ServerBuildError::NoInterface),
        (
            Config {
                public_url: Some("https://a.example/herald".into()),
                card_interfaces: vec![CardInterface::Grpc],
                ..config()
            },
            ServerBuildError::NoInterface,
        ),
    ] {
        assert_eq!(build(config).unwrap_err(), expected);
    }
    let secret = format!("{:?}", token("do-not-show", "t", "p", Scopes::ALL));
    assert!(!secret.contains("do-not-show"));
}

#[tokio::test]
async fn a_token_allows_the_agents_and_skills_that_it_names() {
    let limited = Token {
        agents: Some(vec!["files".into()]),
        ..token("canary-7c5e-files", "acme", "alice", Scopes::ALL)
    };
    let skilled = Token {
        skills: Some(vec!["lint".into()]),
        ..token("canary-7c5e-skilled", "acme", "alice", Scopes::ALL)
    };
    let all = token("canary-7c5e-alice", "acme", "alice", Scopes::ALL);
    let tokens = vec![limited, skilled, all];
    let hub = Hub::with(Config { tokens, ..Config::default() }).await;
    let refused = |answer: Answer| assert_eq!(answer.status(), 403, "{}", answer.text());
    let send = || Call::rpc("SendMessage", &message("hello"));
    refused(hub.call(as_("files", send())).await);
    refused(hub.call(as_("files", send().at("/agents/script/a2a/jsonrpc"))).await);
    let own = hub.call(as_("files", send().at("/agents/files/a2a/jsonrpc"))).await;
    let own = own.result()["task"]["id"].clone();
    let foreign = hub.call(as_("alice", send())).await.result()["task"]["id"].clone();
    let get = |id: &Value| as_("files", Call::rpc("GetTask", &json!({ "id": id })));
    assert_eq!(hub.call(get(&own)).await.result()["id"], own);
    assert_eq!(hub.call(get(&foreign)).await.error().0, -32001, "another agent's task");
    let list = hub.call(as_("files", Call::rpc("ListTasks", &json!({})))).await;
    assert_eq!(list.result()["totalSize"], 1);
    refused(hub.call(as_("skilled", send())).await);
    let mut named = message("hello");
    named["message"]["metadata"] = json!({ "skill": "lint" });
    let answer = hub.call(as_("skilled", Call::rpc("SendMessage", &named))).await;
    assert_eq!(answer.status(), 200, "{}", answer.text());
}

// proves: SEC-014, SEC-018
#[tokio::test]
async fn a_task_that_needs_a_login_is_continued_with_credentials_only_and_a_later_one_needs_it_again()
 {
    let hub = guarded().await;
    let asked = hub.call(as_("alice", Call::rpc("SendMessage", &message("auth")))).await.result();
    let task = &asked["task"];
    assert_eq!(task["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
    let mut resume = message("I am logged in");
    resume["message"]["taskId"] = task["id"].clone();
    let resume = Call::rpc("SendMessage", &resume);
    assert_eq!(hub.call(resume.clone()).await.status(), 401);
    assert_eq!(hub.call(as_("nobody", resume.clone())).await.status(), 401);
    assert_eq!(hub.call(as_("reader", resume.clone())).await.status(), 403);
    assert_eq!(hub.call(as_("bob", resume)).await.error().1, "TASK_NOT_FOUND");
    let get = || as_("alice", Call::rpc("GetTask", &json!({ "id": task["id"] })));
    let state = hub.call(get()).await.result()["status"]["state"].clone();
    assert_eq!(state, "TASK_STATE_AUTH_REQUIRED", "none of them was an authorisation");
    // The agent learns of the login, and ends the task.
    hub.release(1);
    while hub.call(get()).await.result()["status"]["state"] != "TASK_STATE_COMPLETED" {}
    let mut later = message("auth");
    later["message"]["contextId"] = task["contextId"].clone();
    let later = hub.call(as_("alice", Call::rpc("SendMessage", &later))).await.result();
    assert_eq!(later["task"]["status"]["state"], "TASK_STATE_AUTH_REQUIRED");
    hub.release(1);
}
