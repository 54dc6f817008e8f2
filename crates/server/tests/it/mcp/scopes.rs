//! Permissions: every tool, called by a caller without the scope that the tool needs.

use herald_engine::Scopes;
use herald_server::{Config, Token};
use serde_json::{Value, json};

use super::{done, failed, outcome, request, tool};
use crate::{
    client::Call,
    hub::{Hub, SOON, token},
};

/// The scope that a tool needs, and arguments for it.
fn needs(name: &str, task: &str) -> (Option<&'static str>, Value) {
    match name {
        "get_agent_card" | "coding_agent_info" => (None, json!({})),
        "discover_agents" => (Some("read"), json!({})),
        "register_agent" => (Some("register"), json!({ "agent_name": "reviewer:vm:1" })),
        "refresh_agent_heartbeat" => (Some("work"), json!({ "agent_name": "reviewer:vm:1" })),
        "send_to_agent" => (Some("send"), json!({ "agent_name": "script", "message": "hello" })),
        "send_message" => (Some("send"), json!({ "message": "hello" })),
        "coding_agent_run" => (Some("send"), json!({ "task": "hello" })),
        "get_task" => (Some("read"), json!({ "task_id": task })),
        "list_tasks" => (Some("read"), json!({})),
        "coding_agent_poll" | "coding_agent_result" => (Some("read"), json!({ "jobId": task })),
        "cancel_task" => (Some("cancel"), json!({ "task_id": task })),
        "coding_agent_cancel" => (Some("cancel"), json!({ "jobId": task })),
        _ => panic!("{name} is not in this table"),
    }
}

async fn hub() -> Hub {
    let named = |names: &[&str]| names.iter().map(|name| name.parse::<Scopes>().unwrap()).collect();
    let all = ["send", "read", "cancel", "push", "register", "work", "inspect"];
    let mut tokens = vec![token("all", "acme", "alice", named(&all))];
    for scope in all {
        let others: Vec<_> = all.into_iter().filter(|name| *name != scope).collect();
        tokens.push(token(&format!("no-{scope}"), "acme", "alice", named(&others)));
    }
    let agents = Some(vec!["files".into()]);
    tokens.push(token("root", "ops", "root", Scopes::ALL));
    tokens.push(Token { agents, ..token("other-agent", "acme", "alice", Scopes::CALLER) });
    Hub::with(Config { tokens, ..Config::default() }).await
}

fn as_(who: &str, call: Call) -> Call {
    call.header("Authorization", &format!("Bearer {who}"))
}

#[tokio::test]
async fn every_tool_needs_its_scope() {
    let hub = hub().await;
    let send = as_("all", tool("send_message", &json!({ "message": "ask" })));
    let (sent, _) = done(&hub.call(send).await);
    let task = sent["task_id"].as_str().unwrap();
    let tools = hub.call(as_("all", request("tools/list", &json!({})))).await.result();
    let total = || as_("all", tool("list_tasks", &json!({})));
    for listed in tools["tools"].as_array().unwrap() {
        let name = listed["name"].as_str().unwrap();
        let (scope, arguments) = needs(name, task);
        let before = done(&hub.call(total()).await).0["total"].take();
        if let Some(scope) = scope {
            let call = as_(&format!("no-{scope}"), tool(name, &arguments));
            let (reason, text) = failed(&hub.call(call).await);
            assert_eq!(reason, "AUTHORIZATION_FAILED", "{name}");
            assert!(text.contains("permission denied") && text.contains(scope), "{name}: {text}");
        }
        assert_eq!(done(&hub.call(total()).await).0["total"], before, "{name}");
        // All other scopes are not needed.
        for other in ["push", "inspect"] {
            if !name.contains("cancel") {
                let call = as_(&format!("no-{other}"), tool(name, &arguments));
                let (result, text) = outcome(&hub.call(call).await);
                assert_eq!(result["isError"], false, "{name}: {text}");
            }
        }
    }
    // Refusals are recorded a little later, and equal ones together.
    let recorded = async {
        let audit = || as_("root", Call::get("/api/audit?action=auth.denied"));
        while hub.call(audit()).await.json()["records"].as_array().unwrap().len() < 8 {}
    };
    tokio::time::timeout(SOON, recorded).await.expect("refusals are in the audit log");
}

#[tokio::test]
async fn a_caller_of_one_agent_sees_no_other() {
    let hub = hub().await;
    let send = as_("all", tool("send_message", &json!({ "message": "ask" })));
    let (sent, _) = done(&hub.call(send).await);
    let (found, _) = done(&hub.call(as_("other-agent", tool("discover_agents", &json!({})))).await);
    let agents = found["agents"].as_array().unwrap();
    assert_eq!((agents.len(), &agents[0]["role"]), (1, &json!("files")));
    for (name, arguments) in [
        ("get_agent_card", json!({ "agent_name": "script" })),
        ("coding_agent_info", json!({})),
        ("send_to_agent", json!({ "agent_name": "script", "message": "hello" })),
        ("send_message", json!({ "message": "hello" })),
        ("coding_agent_run", json!({ "task": "hello" })),
        ("get_task", json!({ "task_id": sent["task_id"] })),
        ("cancel_task", json!({ "task_id": sent["task_id"] })),
        ("coding_agent_poll", json!({ "jobId": sent["task_id"] })),
    ] {
        let (reason, text) = failed(&hub.call(as_("other-agent", tool(name, &arguments))).await);
        let expected = ["AUTHORIZATION_FAILED", "RESOURCE_NOT_FOUND", "TASK_NOT_FOUND"];
        assert!(expected.contains(&reason.as_str()), "{name}: {text}");
    }
    let send = json!({ "agent_name": "files", "message": "hello" });
    let (sent, _) = done(&hub.call(as_("other-agent", tool("send_to_agent", &send))).await);
    assert_eq!(sent["state"], "completed");
}
