//! Test of Claude Code as an MCP client of Herald, with a scripted model.

use std::{fs, process::Stdio};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    coding::{TIMEOUT, package, text},
    model::{Model, Step},
    support::{Herald, Options, ended_within},
};

/// The requests of Claude Code to the model that contain this text.
fn asked_with(model: &Model, text: &str) -> Vec<Value> {
    let asked = model.asked().into_iter().filter(|asked| asked.path.starts_with("/v1/messages"));
    asked.map(|asked| asked.body).filter(|body| body.to_string().contains(text)).collect()
}

#[tokio::test]
async fn claude_code_gives_an_agent_a_task_through_the_bridge() {
    let herald = Herald::start(Options::default()).await;
    let url = format!("http://{}", herald.address);
    let arguments = json!({ "agent_name": "echo", "message": "hello from Claude" });
    let steps = vec![
        Step::Tool { name: "mcp__herald__send_to_agent".to_owned(), arguments },
        text("The agent answered."),
    ];
    let model = Model::start(steps).await;
    let home = tempfile::tempdir().unwrap();
    let config = json!({ "mcpServers": { "herald": {
        "command": env!("CARGO_BIN_EXE_herald"), "args": ["mcp", "--server", url],
    } } });
    let file = home.path().join("mcp.json");
    fs::write(&file, config.to_string()).unwrap();
    let mut claude = Command::new(package("@anthropic-ai/claude-code").join("bin/claude.exe"));
    claude
        .args(["--print", "--strict-mcp-config", "--mcp-config"])
        .arg(&file)
        .args(["--allowedTools", "mcp__herald__send_to_agent", "--output-format", "json"])
        .args(["--", "Ask the echo agent to say hello."])
        .current_dir(home.path())
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", home.path())
        .env("ANTHROPIC_BASE_URL", format!("http://{}", model.address))
        .env("ANTHROPIC_API_KEY", "none")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("MCP_TIMEOUT", TIMEOUT.as_millis().to_string())
        .stdin(Stdio::null());
    let ended = ended_within(claude, TIMEOUT).await;
    assert!(ended.status.success(), "{ended:?}");
    assert!(ended.stdout.contains("The agent answered."), "{ended:?}");
    // The model saw the tools with their descriptions, and the answer of the agent in its frame.
    let offered = asked_with(&model, "mcp__herald__discover_agents");
    assert!(!offered.is_empty(), "{:?}", model.asked());
    let answered = asked_with(&model, "tool_result");
    let shown = answered.last().expect("the model gets the result of the tool").to_string();
    assert!(shown.contains("hello from Claude") && shown.contains("completed"), "{shown}");
    assert!(shown.contains("--- begin untrusted text from agent"), "{shown}");
}
