//! Tests of `herald serve --adapter`, with scripts in place of coding agents.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    http::Call,
    support::{Herald, Options, ended},
    tasks::told,
    wire::state,
};

/// A turn of Cursor's agent, from its documentation and recordings.
const CURSOR: &str = include_str!("../../../agents/src/coding/recorded/cursor-tool.jsonl");

/// A program that prints this and stores its arguments and input.
fn player(directory: &Path, says: &str) -> String {
    let (program, lines) = (directory.join("player"), directory.join("lines"));
    fs::write(&lines, says).unwrap();
    let kept = directory.display();
    let script = format!(
        "#!/bin/sh\necho \"$@\" > {kept}/arguments\npwd > {kept}/place\ncat > {kept}/input\ncat {}\n",
        lines.display()
    );
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    program.to_str().unwrap().to_owned()
}

fn kept(directory: &TempDir, name: &str) -> String {
    fs::read_to_string(directory.path().join(name)).unwrap().trim().to_owned()
}

#[tokio::test]
async fn its_card_is_that_of_coding_agent_a2a() {
    let home = tempfile::tempdir().unwrap();
    let options = Options::default()
        .environment("AGENT_ADAPTER", "cursor")
        .environment("CURSOR_AGENT_PATH", &player(home.path(), CURSOR));
    let herald = Herald::start(options).await;
    let card = herald.call(&Call::get("/.well-known/agent-card.json")).await.json();
    assert_eq!(card["name"], "coding-agent-a2a (cursor)");
    let description = "Delegates coding tasks to the cursor agent and streams results back via the \
                       A2A protocol.";
    assert_eq!(card["description"], description);
    assert_eq!(card["protocolVersion"], "0.3.0");
    assert_eq!(card["version"], "0.1.0");
    assert_eq!(card["url"], format!("http://{}/a2a/jsonrpc", herald.address));
    let capabilities = &card["capabilities"];
    assert_eq!(capabilities["streaming"], true);
    assert_eq!(capabilities["pushNotifications"], false);
    assert_eq!(capabilities["stateTransitionHistory"], true);
    let (input, output) = (json!(["text/plain"]), json!(["text/plain", "application/json"]));
    assert_eq!(card["defaultInputModes"], input);
    assert_eq!(card["defaultOutputModes"], output);
    let skill = json!({
        "id": "code-task",
        "name": "Execute coding task",
        "description": "Runs a coding task (edit, refactor, analyse, explain, test) via a coding agent CLI.",
        "tags": ["coding", "refactor", "edit", "test"],
        "inputModes": input,
        "outputModes": output,
        "examples": [
            "Refactor the auth module to use JWT",
            "Add unit tests for src/utils/date.ts",
            "Explain how the rate limiter works",
        ],
    });
    assert_eq!(card["skills"], json!([skill]));
}

#[tokio::test]
async fn its_variables_work_and_flags_override_them() {
    let (home, repo) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let repo_path = repo.path().canonicalize().unwrap();
    let options = Options::default()
        .environment("AGENT_ADAPTER", "codex")
        .environment("AGENT_MODEL", "gpt-5")
        .environment("AGENT_FORCE", "YES")
        .environment("AGENT_REPO_PATH", repo.path().to_str().unwrap())
        .environment("AGENT_ALLOWED_REPO_ROOTS", &format!("/nowhere/near, {}", repo_path.display()))
        .environment("CURSOR_AGENT_PATH", &player(home.path(), CURSOR));
    // An allowed root has to exist.
    let refused = options.clone().arguments(["--adapter", "cursor"]).refused().await;
    assert!(refused.stderr.contains("/nowhere/near"), "{refused:?}");
    let roots = repo_path.to_str().unwrap();
    let options = options.environment("AGENT_ALLOWED_REPO_ROOTS", roots);
    let herald = Herald::start(options.arguments(["--adapter", "cursor", "--model", "auto"])).await;
    let task = told(&herald, "Count the files").await;
    assert_eq!(state(&task), "completed", "{task}");
    assert_eq!(kept(&home, "place"), roots);
    assert_eq!(kept(&home, "input"), "Count the files");
    let arguments = kept(&home, "arguments");
    assert_eq!(arguments, "-p --trust --force --output-format=stream-json --model=auto");
    let answer = task["artifacts"].as_array().unwrap();
    let answer = answer.iter().find(|artifact| artifact["name"] == "assistant-response").unwrap();
    let parts = answer["parts"].as_array().unwrap().iter().map(|part| part["text"].as_str());
    assert_eq!(parts.map(Option::unwrap).collect::<String>(), "I'll look.\n\nThere are 7.");
}

#[tokio::test]
async fn without_force_it_asks() {
    let home = tempfile::tempdir().unwrap();
    let program = player(home.path(), "");
    // It ends without output.
    let script = format!("#!/bin/sh\necho \"$@\" > {}/arguments\n", home.path().display());
    fs::write(&program, script).unwrap();
    let options = Options::default().environment("CURSOR_AGENT_PATH", &program);
    for options in [options.clone(), options.environment("AGENT_FORCE", "false")] {
        let herald = Herald::start(options.arguments(["--adapter", "cursor"])).await;
        let task = told(&herald, "Count the files").await;
        assert_eq!(state(&task), "failed", "{task}");
        assert_eq!(kept(&home, "arguments"), "acp");
        fs::remove_file(home.path().join("arguments")).unwrap();
    }
}

#[tokio::test]
async fn timeouts_are_in_milliseconds_and_the_port_is_41242() {
    let home = tempfile::tempdir().unwrap();
    let program = player(home.path(), "");
    let doctor = async |variables: &[(&str, &str)]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
        command.args(["doctor", "--adapter", "claude-code", "-o", "json"]);
        command.env_clear().env("CLAUDE_CODE_PATH", &program).current_dir(home.path());
        command.envs(variables.iter().copied());
        let ended = ended(command).await;
        serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|_| panic!("{ended:?}"))
    };
    assert!(doctor(&[]).await.to_string().contains("127.0.0.1:41242"));
    assert!(doctor(&[("PORT", "41243")]).await.to_string().contains("127.0.0.1:41243"));
    let wrong = doctor(&[("AGENT_TIMEOUT_MS", "2m")]).await.to_string();
    assert!(wrong.contains("AGENT_TIMEOUT_MS") && wrong.contains("milliseconds"), "{wrong}");
    let wrong = doctor(&[("AGENT_FORCE", "banana")]).await.to_string();
    assert!(wrong.contains("AGENT_FORCE") && wrong.contains("not a boolean"), "{wrong}");

    let options = Options::default()
        .environment("CLAUDE_CODE_PATH", &program)
        .environment("AGENT_IDLE_EXIT_MS", "0")
        .environment("AGENT_TIMEOUT_MS", "1500");
    fs::write(&program, "#!/bin/sh\nexec sleep 600\n").unwrap();
    let herald = Herald::start(options.arguments(["--adapter", "claude-code"])).await;
    let task = told(&herald, "Hello").await;
    assert_eq!(task["status"]["message"]["metadata"]["reason"], "TIMED_OUT", "{task}");
}

#[tokio::test]
async fn a_missing_program_is_refused_at_the_start() {
    for (adapter, install) in [
        ("claude-code", "npm install -g @anthropic-ai/claude-code"),
        ("codex", "npm install -g @openai/codex"),
        ("cursor", "curl https://cursor.com/install -fsS | bash"),
        ("gemini", "npm install -g @google/gemini-cli"),
        ("opencode", "npm install -g opencode-ai"),
    ] {
        let options = Options::default().environment("PATH", "/nowhere");
        let refused = options.arguments(["--adapter", adapter]).refused().await;
        assert!(refused.stderr.contains(install), "{refused:?}");
        assert!(refused.stderr.contains("is it installed?"), "{refused:?}");
    }
    let options = Options::default().environment("CLAUDE_CODE_PATH", "/nowhere/claude");
    let refused = options.arguments(["--adapter", "claude-code"]).refused().await;
    assert!(refused.stderr.contains("CLAUDE_CODE_PATH"), "{refused:?}");
    let options = Options::default().environment("CLAUDE_CODE_PATH", "/bin/true");
    let options = options.arguments(["--adapter", "claude-code", "--workdir", "./nowhere"]);
    let refused = options.refused().await;
    assert!(refused.stderr.contains("nowhere"), "{refused:?}");
    assert!(!refused.stderr.contains("npm install"), "it is there: {refused:?}");
    let options = Options::config("[[agents]]\nname = \"any\"\nkind = \"acp\"\n");
    let refused = options.refused().await;
    let said = "kind = \"acp\" needs a command, such as command = [\"opencode\", \"acp\"]";
    assert!(refused.stderr.contains(said), "{refused:?}");
    let refused = Options::default().arguments(["--adapter", "acp"]).refused().await;
    assert!(refused.stderr.contains("put it into herald.toml"), "{refused:?}");
    assert!(refused.stderr.contains("kind = \"acp\"\n"), "{refused:?}");
}
