//! Herald's own interface, `/api`.

use herald_engine::Scopes;
use herald_server::Config;
use serde_json::{Value, json};

use crate::{
    client::{Answer, Call, message},
    hub::{Hub, token},
};

async fn guarded() -> Hub {
    let tokens = vec![
        token("alice", "acme", "alice", Scopes::CALLER),
        token("bob", "acme", "bob", Scopes::CALLER),
        token("sender", "acme", "alice", Scopes::SEND),
        token("root", "ops", "root", Scopes::ALL),
    ];
    Hub::with(Config { tokens, ..Config::default() }).await
}

fn as_(who: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer {who}"))
}

async fn get(hub: &Hub, who: &str, path: &str) -> Answer {
    hub.call(as_(who, Call::get(path))).await
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

/// Sends a message as a caller; the id of its task.
async fn send(hub: &Hub, who: &str, text: &str) -> String {
    let sent = hub.call(as_(who, Call::rpc("SendMessage", &message(text)))).await.result();
    sent["task"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_status_tells_callers_who_they_are() {
    let hub = guarded().await;
    let answer = get(&hub, "alice", "/api").await;
    let status = ok(&answer);
    assert_eq!(status["identity"]["tenant"], "acme");
    assert_eq!(status["identity"]["principal"], "alice");
    assert_eq!(status["identity"]["scopes"], json!(["send", "read", "cancel", "push"]));
    assert_eq!(status["identity"]["credential"], "token");
    assert_eq!(status["schemes"][0]["usage"], "Authorization: Bearer TOKEN");
    assert!(status["started"].as_str().unwrap().ends_with('Z'));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(
        answer.header("content-security-policy"),
        Some("default-src 'none'; frame-ancestors 'none'; sandbox")
    );
    assert_eq!(ok(&get(&hub, "alice", "/api/v1/").await), status);
    let document = ok(&get(&hub, "alice", "/api/openapi.json").await);
    assert_eq!(document["openapi"], "3.1.0");
    let agents = ok(&get(&hub, "alice", "/api/agents").await);
    assert_eq!(agents["routing_note"], "Use 'role' with send_to_agent for routing.");
    let names: Vec<_> =
        agents["agents"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["files", "script", "silent", "strict"]);
    let script = ok(&get(&hub, "alice", "/api/agents/script").await);
    assert_eq!(script["title"], agents["agents"][1]["title"]);
    assert_eq!(script["url"], hub.url("/agents/script"));
    assert_eq!(script["capabilities"], json!({ "streaming": true, "push_notifications": false }));
    assert_eq!((&script["role"], &script["is_default"]), (&json!("script"), &json!(true)));
    refused(&get(&hub, "alice", "/api/agents/none").await, 404, "RESOURCE_NOT_FOUND");
}

#[tokio::test]
async fn unknown_paths_methods_and_members_are_refused() {
    let hub = guarded().await;
    for path in ["/api/workers", "/api/v2/tasks", "/api/tasks/a/b/c"] {
        let answer = get(&hub, "root", path).await;
        refused(&answer, 404, "METHOD_NOT_FOUND");
        assert!(answer.text().contains("/api/openapi.json"), "{}", answer.text());
    }
    let answer = hub.call(as_("root", Call::new("PUT", "/api/keys"))).await;
    assert_eq!((answer.status(), answer.header("allow")), (405, Some("GET, POST")));
    refused(&get(&hub, "alice", "/api/tasks?page=1").await, 400, "INVALID_PARAMS");
    refused(&get(&hub, "alice", "/api/tasks?page_size=101").await, 400, "INVALID_PARAMS");
    refused(&get(&hub, "alice", "/api/tasks?page_token=x").await, 400, "INVALID_PARAMS");
    refused(&get(&hub, "alice", "/api?x=1").await, 400, "INVALID_PARAMS");
    for body in [json!({ "principal": "p", "scope": ["read"] }), json!({}), json!([])] {
        let answer = hub.call(as_("root", Call::post("/api/keys", &body))).await;
        refused(&answer, 400, "INVALID_PARAMS");
    }
    let plain = Call::new("POST", "/api/keys").body("{}").header("Content-Type", "text/plain");
    refused(&hub.call(as_("root", plain)).await, 400, "CONTENT_TYPE_NOT_SUPPORTED");
}

#[tokio::test]
async fn callers_list_their_own_tasks_and_administrators_those_of_every_owner() {
    let hub = guarded().await;
    for number in 0..3 {
        send(&hub, "alice", &format!("hello {number}")).await;
    }
    send(&hub, "bob", "hello bob").await;
    let page = ok(&get(&hub, "alice", "/api/tasks?page_size=2").await);
    assert_eq!(page["tasks"].as_array().unwrap().len(), 2);
    let head = &page["tasks"][0];
    assert_eq!((&head["preview"], &head["agent"]), (&json!("hello 2"), &json!("script")));
    assert_eq!((&head["tenant"], &head["principal"]), (&json!("acme"), &json!("alice")));
    assert_eq!(head["state"], "TASK_STATE_COMPLETED");
    let next = page["next_page_token"].as_str().unwrap();
    let page = ok(&get(&hub, "alice", &format!("/api/tasks?page_size=2&page_token={next}")).await);
    assert_eq!(page["tasks"].as_array().unwrap().len(), 1);
    assert!(page.get("next_page_token").is_none());
    let foreign = format!("/api/tasks?page_size=2&page_token={next}");
    refused(&get(&hub, "bob", &foreign).await, 400, "INVALID_PARAMS");
    for query in ["owner=*", "tenant=acme", "tenant=other", "principal=bob"] {
        let answer = get(&hub, "alice", &format!("/api/tasks?{query}")).await;
        refused(&answer, 403, "AUTHORIZATION_FAILED");
    }
    for (query, count) in [
        ("", 0),
        ("?owner=*", 4),
        ("?tenant=acme", 4),
        ("?tenant=acme&principal=bob", 1),
        ("?owner=*&state=TASK_STATE_FAILED", 0),
        ("?owner=*&agent=files", 0),
    ] {
        let page = ok(&get(&hub, "root", &format!("/api/tasks{query}")).await);
        assert_eq!(page["tasks"].as_array().unwrap().len(), count, "{query}");
    }
    let tenants = ok(&get(&hub, "root", "/api/tenants?page_size=1").await);
    assert_eq!(tenants["tenants"][0]["principal"], "alice");
    assert_eq!(tenants["tenants"][0]["tasks"], 3);
    let next = tenants["next_page_token"].as_str().unwrap();
    let tenants = ok(&get(&hub, "root", &format!("/api/tenants?page_token={next}")).await);
    assert_eq!(tenants["tenants"][0]["principal"], "bob");
}

#[tokio::test]
async fn an_answer_names_its_question_and_is_stored_once() {
    let hub = guarded().await;
    let task = send(&hub, "alice", "ask").await;
    let detail = ok(&get(&hub, "alice", &format!("/api/tasks/{task}")).await);
    assert_eq!(detail["question"]["prompt"], "which one?");
    assert_eq!(detail["task"]["id"], *task);
    let question = detail["question"]["question"].as_str().unwrap();
    let path = format!("/api/tasks/{task}:answer");
    let answer = |who: &'static str, body: Value| {
        let call = as_(who, Call::post(&*path, &body));
        async { hub.call(call).await }
    };
    let wrong = answer("alice", json!({ "question": "other", "text": "yes" })).await;
    refused(&wrong, 409, "QUESTION_CHANGED");
    refused(&answer("alice", json!({ "text": "yes" })).await, 400, "INVALID_PARAMS");
    refused(&answer("alice", json!({ "question": question })).await, 400, "INVALID_PARAMS");
    let choice = answer("alice", json!({ "question": question, "choice": "allow" })).await;
    refused(&choice, 400, "INVALID_PARAMS");
    assert!(choice.text().contains("answered with a text"), "{}", choice.text());
    let stale = answer("alice", json!({ "question": "other", "choice": "allow" })).await;
    refused(&stale, 409, "QUESTION_CHANGED");
    let body = json!({ "question": question, "text": "hello" });
    refused(&answer("bob", body.clone()).await, 404, "TASK_NOT_FOUND");
    // The scope `send` is enough, also for the reply.
    ok(&answer("sender", body.clone()).await);
    ok(&answer("alice", body.clone()).await);
    let other = answer("alice", json!({ "question": question, "text": "no" })).await;
    refused(&other, 409, "IDEMPOTENCY_CONFLICT");
    let log = ok(&get(&hub, "alice", &format!("/api/tasks/{task}/log")).await);
    let messages = log["entries"].as_array().unwrap().iter();
    let messages: Vec<_> = messages.filter(|entry| entry["kind"] == "message").collect();
    assert_eq!(messages.len(), 2, "{log}");
    assert_eq!(messages[1]["item"]["message"]["parts"][0]["text"], "hello");
}

#[tokio::test]
async fn an_administrator_acts_for_an_owner_under_its_own_name() {
    let hub = guarded().await;
    let task = send(&hub, "alice", "ask").await;
    let detail = ok(&get(&hub, "root", &format!("/api/tasks/{task}")).await);
    assert_eq!(detail["head"]["principal"], "alice");
    let question = detail["question"]["question"].as_str().unwrap();
    let body = json!({ "question": question, "text": "ask" });
    ok(&hub.call(as_("root", Call::post(format!("/api/tasks/{task}:answer"), &body))).await);
    let plain = |who: &str| as_(who, Call::new("POST", format!("/api/tasks/{task}:cancel")));
    for kind in ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
        let answer = hub.call(plain("root").header("Content-Type", kind)).await;
        refused(&answer, 400, "CONTENT_TYPE_NOT_SUPPORTED");
    }
    refused(&hub.call(plain("root")).await, 400, "CONTENT_TYPE_NOT_SUPPORTED");
    let cancel = || plain("root").header("Content-Type", "application/json");
    let cancelled = ok(&hub.call(cancel()).await);
    assert_eq!(cancelled["head"]["state"], "TASK_STATE_CANCELED");
    assert_eq!(
        ok(&hub.call(cancel()).await)["head"],
        cancelled["head"],
        "a repetition changes nothing"
    );
    refused(
        &hub.call(plain("bob").header("Content-Type", "application/json")).await,
        404,
        "TASK_NOT_FOUND",
    );

    let log = ok(&get(&hub, "alice", &format!("/api/tasks/{task}/log?limit=100")).await);
    assert_eq!(log["is_complete"], true);
    let entries = log["entries"].as_array().unwrap();
    let actors: Vec<_> = entries
        .iter()
        .filter(|entry| entry["cause"].is_object())
        .map(|entry| {
            (entry["cause"]["actor"].as_str().unwrap(), entry["cause"]["principal"].as_str())
        })
        .filter(|(actor, _)| *actor == "caller" || *actor == "operator")
        .collect();
    assert_eq!(actors, [("caller", None), ("operator", Some("root")), ("operator", Some("root"))]);
    assert!(entries.iter().all(|entry| entry["at"].is_string()), "{log}");
    assert_eq!(entries[0]["cause"]["binding"], "jsonrpc");
    assert_eq!(entries.last().unwrap()["cause"]["binding"], "api");
    let by = &entries.iter().filter(|entry| entry["kind"] == "message").nth(1).unwrap()["item"];
    assert_eq!(by["message"]["metadata"]["herald.by"], "root");

    let audit = ok(&get(&hub, "root", "/api/audit?action=task.").await);
    let acts: Vec<_> = audit["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| {
            (record["action"].as_str().unwrap(), record["subject"]["id"].as_str().unwrap())
        })
        .collect();
    assert!(acts.contains(&("task.send", &task)), "{audit}");
    assert!(acts.contains(&("task.cancel", &task)), "{audit}");
    assert!(
        audit["records"].as_array().unwrap().iter().all(|record| record["principal"] == "root")
    );
    let verified = ok(&get(&hub, "root", "/api/audit:verify").await);
    assert_eq!(verified["ok"], true);
    let (last, hash) = (&verified["last"], verified["hash"].as_str().unwrap());
    let path = format!("/api/audit:verify?number={last}&hash={hash}");
    assert_eq!(ok(&get(&hub, "root", &path).await)["ok"], true);
    let path = format!("/api/audit:verify?number={last}&hash={}", "0".repeat(64));
    let verified = ok(&get(&hub, "root", &path).await);
    assert_eq!((&verified["ok"], &verified["fault"]["number"]), (&json!(false), last));
}

#[tokio::test]
async fn a_task_id_of_several_owners_needs_an_owner() {
    let hub = guarded().await;
    // In 0.1 callers choose the ids of their tasks.
    for who in ["alice", "bob"] {
        let text =
            json!({ "role": "user", "parts": [{ "type": "text", "text": format!("ask {who}") }] });
        let call = Call::post(
            "/rpc",
            &crate::client::envelope("tasks/send", &json!({ "id": "mine", "message": text })),
        );
        hub.call(as_(who, call)).await.result();
    }
    let answer = get(&hub, "root", "/api/tasks/mine").await;
    refused(&answer, 409, "AMBIGUOUS_TASK");
    assert!(answer.text().contains("acme/alice"), "{}", answer.text());
    let task = ok(&get(&hub, "root", "/api/tasks/mine?tenant=acme&principal=bob").await);
    assert_eq!(task["head"]["preview"], "ask bob");
    assert_eq!(ok(&get(&hub, "bob", "/api/tasks/mine").await)["head"]["preview"], "ask bob");
    refused(
        &get(&hub, "bob", "/api/tasks/mine?tenant=acme&principal=alice").await,
        403,
        "AUTHORIZATION_FAILED",
    );
    refused(
        &get(&hub, "bob", "/api/tasks/none?tenant=acme&principal=alice").await,
        403,
        "AUTHORIZATION_FAILED",
    );
}

#[tokio::test]
async fn keys_are_created_shown_once_and_revoked() {
    let hub = guarded().await;
    let body = json!({ "tenant": "ops", "principal": "ci", "scopes": ["read"], "label": "CI" });
    let created = ok(&hub.call(as_("root", Call::post("/api/keys", &body))).await);
    let (id, key) = (created["id"].as_str().unwrap(), created["key"].as_str().unwrap());
    assert!(key.len() > 40);
    let shown = get(&hub, "root", &format!("/api/keys/{id}")).await;
    assert!(!shown.text().contains(key), "the secret is shown once");
    let shown = ok(&shown);
    assert_eq!((&shown["state"], &shown["created_by"]), (&json!("active"), &json!("root")));
    assert_eq!(shown["scopes"], json!(["read"]));
    let listed = ok(&get(&hub, "root", "/api/keys?tenant=ops").await);
    assert_eq!(listed["keys"], json!([shown]));
    assert_eq!(ok(&get(&hub, "root", "/api/keys?tenant=other").await)["keys"], json!([]));
    let revoke = || as_("root", Call::new("DELETE", format!("/api/keys/{id}")));
    let revoked = ok(&hub.call(revoke()).await);
    assert_eq!(revoked["state"], "revoked");
    assert_eq!(ok(&hub.call(revoke()).await), revoked, "a repetition changes nothing");
    refused(&get(&hub, "root", "/api/keys/none").await, 404, "RESOURCE_NOT_FOUND");
    let wrong = json!({ "tenant": "ops", "principal": "ci", "scopes": ["everything"] });
    refused(&hub.call(as_("root", Call::post("/api/keys", &wrong))).await, 400, "INVALID_PARAMS");
    let audit = ok(&get(&hub, "root", "/api/audit?action=key.").await);
    let acts: Vec<_> =
        audit["records"].as_array().unwrap().iter().map(|one| &one["action"]).collect();
    assert_eq!(acts, ["key.revoke", "key.create"]);
    assert!(!audit.to_string().contains(key));
    let store = ok(&get(&hub, "root", "/api/store").await);
    assert_eq!((&store["is_writable"], &store["audit_records"]), (&json!(true), &json!(2)));
    // Without a tenant it is that of the caller, and no other one is allowed.
    let own = json!({ "principal": "ci" });
    assert_eq!(ok(&hub.call(as_("root", Call::post("/api/keys", &own))).await)["tenant"], "ops");
    let other = json!({ "tenant": "acme", "principal": "ci" });
    let other = hub.call(as_("root", Call::post("/api/keys", &other))).await;
    refused(&other, 403, "AUTHORIZATION_FAILED");
}

#[tokio::test]
async fn a_part_of_an_artifact_is_a_file_that_no_browser_renders() {
    let hub = guarded().await;
    let task = send(&hub, "alice", "<script>alert(1)</script>").await;
    let path = format!("/api/tasks/{task}/artifacts/echo/parts/0");
    let answer = get(&hub, "alice", &path).await;
    assert_eq!((answer.status(), answer.text()), (200, "<script>alert(1)</script>"));
    assert_eq!(answer.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(
        answer.header("content-security-policy"),
        Some("default-src 'none'; frame-ancestors 'none'; sandbox")
    );
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert!(answer.header("content-disposition").unwrap().starts_with("attachment; "));
    for path in ["artifacts/echo/parts/1", "artifacts/none/parts/0", "artifacts/echo/parts/x"] {
        let answer = get(&hub, "alice", &format!("/api/tasks/{task}/{path}")).await;
        refused(&answer, 404, "RESOURCE_NOT_FOUND");
    }
    refused(&get(&hub, "bob", &path).await, 404, "TASK_NOT_FOUND");
}

#[tokio::test]
async fn without_credentials_only_the_local_user_administers() {
    let hub = Hub::start().await;
    let sent = hub.call(Call::rpc("SendMessage", &message("hello"))).await.result();
    let task = sent["task"]["id"].as_str().unwrap();
    assert_eq!(ok(&hub.call(Call::get("/api/keys")).await)["keys"], json!([]));
    assert_eq!(ok(&hub.call(Call::get("/api")).await)["identity"]["credential"], "anonymous");
    let proxied = |path: &str| Call::get(path).header("X-Forwarded-For", "10.0.0.1");
    refused(&hub.call(proxied("/api/keys")).await, 403, "AUTHORIZATION_FAILED");
    ok(&hub.call(proxied(&format!("/api/tasks/{task}"))).await);
    for site in ["cross-site", "same-site"] {
        let answer = hub.call(Call::get("/api/keys").header("Sec-Fetch-Site", site)).await;
        assert_eq!(answer.status(), 403, "{site}");
    }
    ok(&hub.call(Call::get("/api/keys").header("Sec-Fetch-Site", "same-origin")).await);
    let foreign = Call::get("/api/keys").header("Origin", "https://evil.example");
    assert_eq!(hub.call(foreign).await.status(), 403);
    let rebound = Call::get("/api/keys").header("Host", "evil.example");
    assert_eq!(hub.call(rebound).await.status(), 421);
}
