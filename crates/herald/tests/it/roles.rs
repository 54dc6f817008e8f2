//! Tests of roles, workers and remote agents with the real binary.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    time::timeout,
};

use crate::{
    cli_support::{Run, cli},
    http::Call,
    support::{AGENTS, Herald, Options, SOON},
};

/// A role in `herald.toml`, beside the usual agents.
const ROLE: &str = r#"
[[agents]]
name = "linters"
kind = "worker"
description = "Runs linters"
unavailable = "refuse"
deadline = "10m"
lease = "20s"
recovery = "resume"
attempts = 2
skills = [{ id = "lint", description = "Finds mistakes", tags = ["style"] }]
"#;

/// A verb for this server.
fn at(herald: &Herald, arguments: &[&str]) -> Run {
    let url = format!("http://{}", herald.address);
    cli(arguments.iter().copied().chain(["--server", &url]))
}

async fn register(herald: &Herald, body: &Value) -> Value {
    let answer = herald.call(&Call::post("/api/agents", body)).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()
}

#[tokio::test]
async fn the_age_limit_of_workers_comes_from_the_environment() {
    let variable = "A2A_AGENT_DISCOVERY_MAX_AGE";
    let file = "[discovery]\nmax_age = \"60s\"\n";
    let worker = json!({ "role": "linters", "instance_id": "host:1" });
    let herald = Herald::start(Options::config(file).environment(variable, "7")).await;
    assert_eq!(register(&herald, &worker).await["discovery_seconds"], 7);
    let herald = Herald::start(Options::config(file)).await;
    assert_eq!(register(&herald, &worker).await["discovery_seconds"], 60);
    let herald = Herald::start(Options::default()).await;
    assert_eq!(register(&herald, &worker).await["discovery_seconds"], 120);
    let refused = Options::default().environment(variable, "soon").refused().await;
    assert!(refused.stderr.contains("A2A_AGENT_DISCOVERY_MAX_AGE=\"soon\""), "{refused:?}");
    assert!(refused.stderr.contains("a number of seconds"), "{refused:?}");
    let refused = Options::config("[discovery]\nmax_age = \"0s\"\n").refused().await;
    assert!(refused.stderr.contains("max_age"), "{refused:?}");
}

#[tokio::test]
async fn a_role_of_the_configuration_is_served_by_workers() {
    let herald = Herald::start(Options::config(format!("{AGENTS}{ROLE}"))).await;
    let shown = at(&herald, &["agent", "show", "linters"]).json().await;
    assert_eq!((&shown["kind"], &shown["available"]), (&json!("role"), &json!(false)));
    let send = ["send", "--agent-card"];
    let url = format!("http://{}/agents/linters", herald.address);
    let refused = cli(send.into_iter().chain([url.as_str(), "check this"])).end().await;
    assert_ne!(refused.status.code(), Some(0));
    assert!(refused.stderr.contains("no worker serves the agent linters"), "{refused:?}");
    let registered = register(&herald, &json!({ "role": "linters", "instance_id": "vm:1" })).await;
    assert_eq!(registered["name"], "linters:vm:1");
    let listed = at(&herald, &["agent", "list", "--role", "linters"]).ok().await;
    let row = listed.stdout.lines().nth(1).unwrap();
    assert!(row.contains("linters:vm:1") && row.contains("worker") && row.contains("20"), "{row}");
    assert!(listed.stdout.contains("LAST SEEN"), "{listed:?}");
    let found = at(&herald, &["agent", "list", "--skill", "lint", "--tag", "STYLE"]).json().await;
    assert_eq!(found["agents"][0]["name"], "linters:vm:1");
    let none = at(&herald, &["agent", "list", "--text", "no such words"]).json().await;
    assert_eq!(none["agents"], json!([]));
    let removed = at(&herald, &["agent", "remove", "linters:vm:1"]).ok().await;
    assert_eq!(removed.field("Removed"), "linters:vm:1");
    let again = at(&herald, &["agent", "remove", "linters:vm:1"]).end().await;
    assert!(again.stderr.contains("herald agent list"), "{again:?}");
    for (key, word) in [
        ("unavailable = \"maybe\"", "queue"),
        ("lease = \"1s\"", "at least 3s"),
        ("command = [\"x\"]", "belongs to kind"),
    ] {
        let file = format!("[[agents]]\nname = \"w\"\nkind = \"worker\"\n{key}\n");
        let refused = Options::config(file).refused().await;
        assert!(refused.stderr.contains(word), "{key}: {refused:?}");
    }
}

#[tokio::test]
async fn a_remote_agent_is_called_by_its_role_and_is_there_after_a_restart() {
    let other = Herald::start(Options::agents()).await;
    let closed = Herald::start(Options::agents()).await;
    let url = format!("http://{}", other.address);
    let arguments = ["agent", "register", &url, "--role", "far-echo"];
    let refused = at(&closed, &arguments).end().await;
    assert!(refused.stderr.contains("not public"), "{refused:?}");
    let allowed = format!("{AGENTS}[push]\nallowed_hosts = [\"127.0.0.1\"]\n");
    let mut herald = Herald::start(Options::config(allowed)).await;
    let registered = at(&herald, &arguments).ok().await;
    assert_eq!(registered.field("Role"), "far-echo");
    let send = async |herald: &Herald| {
        let url = format!("http://{}/agents/far-echo", herald.address);
        cli(["send", "--agent-card", &url, "hello there"]).ok().await
    };
    assert!(send(&herald).await.stdout.contains("Echo: hello there"));
    let shown = at(&herald, &["agent", "show", "far-echo"]).json().await;
    assert_eq!((&shown["kind"], &shown["card_url"]), (&json!("remote"), &json!(url)));
    assert_eq!(shown["card_changed"], false);
    herald.kill9().await;
    herald.restart().await;
    assert!(send(&herald).await.stdout.contains("Echo: hello there"));
    at(&herald, &["agent", "remove", "far-echo"]).ok().await;
    let gone = at(&herald, &["agent", "show", "far-echo"]).end().await;
    assert!(gone.stderr.contains("no agent"), "{gone:?}");
}

#[tokio::test]
async fn operators_fail_list_and_retry_tasks() {
    let herald =
        Herald::start(Options::config(format!("{AGENTS}{ROLE}").replace("refuse", "queue"))).await;
    let url = format!("http://{}/agents/linters", herald.address);
    let sent = cli(["send", "--agent-card", &url, "check this", "--no-wait"]).json().await;
    let id = sent["task"]["id"].as_str().or(sent["id"].as_str()).unwrap().to_owned();
    let failed = at(&herald, &["task", "fail", &id, "--reason", "wrong repository"]).json().await;
    assert_eq!(failed["head"]["reason"], "FAILED_BY_OPERATOR");
    let listed = at(&herald, &["task", "list", "--failed-by", "FAILED_BY_OPERATOR"]).json().await;
    assert_eq!(listed["tasks"][0]["id"], id);
    let listed = at(&herald, &["task", "list", "--failed-by", "INTERRUPTED"]).json().await;
    assert_eq!(listed["tasks"], json!([]));
    let retried = at(&herald, &["task", "retry", &id]).json().await;
    assert_eq!(retried["head"]["agent"], "linters");
    assert_ne!(retried["head"]["id"], json!(id));
    assert_eq!(retried["task"]["history"][0]["referenceTaskIds"], json!([id]));
    let again = at(&herald, &["task", "fail", &id]).end().await;
    assert!(again.stderr.contains("has ended already"), "{again:?}");
    // Without a place it is the server of ./herald-data, as for other verbs of operators.
    let home = tempfile::tempdir().unwrap();
    let data = herald.database().parent().unwrap().to_owned();
    std::os::unix::fs::symlink(data, home.path().join("herald-data")).unwrap();
    let failed_by = ["task", "list", "--failed-by", "FAILED_BY_OPERATOR", "--all-owners"];
    let listed = cli(failed_by).at(home.path()).env("A2ACLI_AGENT_CARD", "localhost:1");
    assert_eq!(listed.json().await["tasks"][0]["id"], id);
    let alone = cli(["task", "list", "localhost:1", "--failed-by", "X"]).end().await;
    assert!(alone.stderr.contains("--server"), "{alone:?}");
}

#[tokio::test]
async fn a_wait_goes_on_when_the_last_worker_of_a_role_leaves() {
    let herald = Herald::start(Options::agents()).await;
    register(&herald, &json!({ "role": "fleeting", "instance_id": "vm:1" })).await;
    let url = format!("http://{}/agents/fleeting", herald.address);
    let sent = cli(["send", "--agent-card", &url, "check this", "--no-wait"]).json().await;
    let id = sent["task"]["id"].as_str().or(sent["id"].as_str()).unwrap().to_owned();
    let get = ["task", "get", "--agent-card", &url, &id];
    let mut waiting = cli(get.into_iter().chain(["--wait", "--history", "5", "--debug"])).spawn();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    // It has found the task once.
    while !lines.next_line().await.unwrap().expect("a poll").contains("TASK_STATE_SUBMITTED") {}
    let rest = tokio::spawn(async move {
        let mut rest = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            rest.push(line);
        }
        rest
    });
    at(&herald, &["agent", "remove", "fleeting"]).ok().await;
    let gone = cli(get).end().await;
    assert!(gone.stderr.contains("fleeting"), "{gone:?}");
    at(&herald, &["task", "fail", &id, "--reason", "nobody is left"]).ok().await;
    let ended = timeout(SOON, waiting.wait_with_output()).await.expect("it ends").unwrap();
    let (output, errors) = (String::from_utf8(ended.stdout).unwrap(), rest.await.unwrap());
    assert_eq!(ended.status.code(), Some(0), "{output} {errors:#?}");
    assert!(output.contains("State: FAILED") && output.contains("check this"), "{output}");
}

#[tokio::test]
async fn the_command_to_go_on_has_the_skill_of_the_message() {
    let herald = Herald::start(Options::agents()).await;
    let url = format!("http://{}", herald.address);
    let sent = cli(["send", &url, "hello", "--skill", "echo"]).ok().await;
    let next = sent.field("Resume");
    assert!(next.contains("--skill echo --context-id "), "{next}");
    let words: Vec<_> = next.split(' ').skip(1).map(|word| word.trim_matches('"')).collect();
    cli(words).ok().await;
    let plain = cli(["send", &url, "hello"]).ok().await;
    assert!(!plain.field("Resume").contains("--skill"), "{plain:?}");
}

/// Workers without skills of their own have those of their role, so that a list of them has several pages.
#[tokio::test]
async fn the_list_of_agents_is_read_to_its_last_page() {
    let herald = Herald::start(Options::agents()).await;
    let skills: Vec<_> = (0..64).map(|number| json!({ "id": format!("{number:0>250}") })).collect();
    let first = json!({ "role": "large", "instance_id": "vm:0", "skills": skills });
    register(&herald, &first).await;
    for number in 1..80 {
        let body = json!({ "role": "large", "instance_id": format!("vm:{number}") });
        register(&herald, &body).await;
    }
    let page = herald.call(&Call::get("/api/agents")).await.json();
    assert!(page["next_page_token"].is_string(), "there is one page");
    let listed = at(&herald, &["agent", "list"]).json().await;
    assert_eq!(listed["agents"].as_array().unwrap().len(), 82);
    assert!(listed.get("next_page_token").is_none(), "{listed}");
}
