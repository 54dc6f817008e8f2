//! Tests of log lines and formats.

use serde_json::{Value, json};

use crate::{
    http::Call,
    support::{Herald, Options, SOON, eventually, uuid},
    wire::{Draft, Wire, id, state},
};

/// Sends a message and returns its task once all its log lines are there.
async fn told(herald: &Herald, words: &str) -> String {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {
        "message": { "messageId": "m", "role": "ROLE_USER", "parts": [{ "text": words }] }
    } });
    let answer = herald.call(&Call::post("/rpc", &body).header("a2a-version", "1.0")).await.json();
    let task = answer["result"]["task"]["id"].as_str().unwrap().to_owned();
    let last = format!("Background runner completed for task {task}");
    eventually(SOON, "the story is told", async || herald.log().contains(&last)).await;
    task
}

#[tokio::test]
async fn the_classic_format_has_the_log_lines_of_a2a_server() {
    let arguments = ["--log-level", "debug", "--log-format", "classic"];
    let herald = Herald::start(Options::default().arguments(arguments)).await;
    let task = told(&herald, "good morning").await;
    let log = herald.log();
    let story: Vec<_> = log
        .lines()
        .filter(|line| line.contains("a2a.server.methods"))
        .map(|line| {
            // 2026-11-16 08:05:09,120
            let (time, rest) = line.split_at(23);
            let shape: String =
                time.chars().map(|one| if one.is_ascii_digit() { '0' } else { one }).collect();
            assert_eq!(shape, "0000-00-00 00:00:00,000", "{line}");
            rest.trim_start()
        })
        .collect();
    let expected = [
        format!("INFO a2a.server.methods: Task created {task}, scheduling background runner"),
        format!("DEBUG a2a.server.methods: Updating task {task} to working"),
        format!("DEBUG a2a.server.methods: Task {task} initial text: 'good morning'"),
        format!("DEBUG a2a.server.methods: Adding artifact to task {task}: Echo: good morning"),
        format!("DEBUG a2a.server.methods: Updating task {task} to completed"),
        format!("INFO a2a.server.methods: Background runner completed for task {task}"),
    ];
    assert_eq!(story, expected);
}

#[tokio::test]
async fn a_text_with_line_breaks_is_one_line_and_a_long_one_is_truncated() {
    let arguments = ["--log-level", "debug", "--log-format", "classic"];
    let herald = Herald::start(Options::default().arguments(arguments)).await;
    let task = told(&herald, &format!("one\nERROR forged: two{}", "x".repeat(500))).await;
    let log = herald.log();
    let line = log.lines().find(|line| line.contains(&format!("{task} initial text"))).unwrap();
    assert!(line.contains(r"'one\nERROR forged: twox"), "{line}");
    assert!(line.ends_with("x…'") && line.chars().count() < 400, "{line}");
}

#[tokio::test]
async fn other_formats_have_the_same_lines_without_message_texts() {
    for format in ["text", "json"] {
        let arguments = ["--log-level", "debug", "--log-format", format];
        let herald = Herald::start(Options::default().arguments(arguments)).await;
        let task = told(&herald, "good morning").await;
        let log = herald.log();
        for words in [
            format!("Task created {task}, scheduling background runner"),
            format!("Task {task} initial text: 12 characters"),
            format!("Adding artifact to task {task}: 18 characters"),
            format!("Updating task {task} to completed"),
            "a2a.server.methods".to_owned(),
        ] {
            assert!(log.contains(&words), "no {words:?} in {log}");
        }
        assert!(!log.contains("joke"), "{log}");
    }
}

#[tokio::test]
async fn a_json_line_has_its_span_once() {
    let arguments = ["--log-level", "debug", "--log-format", "json"];
    let herald = Herald::start(Options::default().arguments(arguments)).await;
    let task = told(&herald, "hello").await;
    let log = herald.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line.get("spans").is_none()), "{log}");
    let answered = lines.iter().find(|line| line["message"] == "request answered").unwrap();
    assert_eq!(answered["span"]["task"], task.as_str());
    assert_eq!(answered["span"]["operation"], "SendMessage");
    assert_eq!(answered["span"]["seq"], 1);
    // Log lines of a task have the id of its request.
    let created = lines.iter().find(|line| line["target"] == "a2a.server.methods").unwrap();
    assert!(created["message"].as_str().unwrap().starts_with("Task created"), "{created}");
    assert_eq!(created["span"]["id"], answered["span"]["id"], "{created}");
}

#[tokio::test]
async fn the_use_of_an_old_version_is_logged_once_and_counted_always() {
    let herald = Herald::start(Options::agents()).await;
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": { "message": {
        "kind": "message", "messageId": "m", "role": "user", "parts": [{ "kind": "text", "text": "x" }]
    } } });
    for _ in 0..3 {
        let call = Call::post("/rpc", &body).header("user-agent", "old-client/0.1");
        assert!(herald.call(&call).await.json()["result"].is_object());
    }
    herald.call(&Call::post("/agents/conformance/rpc", &body)).await;
    let log = herald.log();
    let lines: Vec<_> = log.lines().filter(|line| line.contains("still uses A2A 0.3")).collect();
    assert_eq!(lines.len(), 2, "one for each agent: {log}");
    assert!(lines[0].contains("agent=echo") && lines[0].contains("old-client/0.1"), "{log}");
    assert!(lines[1].contains("agent=conformance"), "{log}");
    let metrics = herald.call(&Call::get("/metrics")).await;
    let counted = r#"herald_calls_total{agent="echo",operation="SendMessage",version="0.3",binding="jsonrpc",outcome="ok"} 3"#;
    assert!(metrics.text().contains(counted), "{}", metrics.text());
}

#[tokio::test]
async fn the_file_sets_the_log_format_without_a_flag_or_a_variable() {
    let said = |herald: &Herald| {
        let log = herald.log();
        let first = log.lines().next().unwrap_or_default().to_owned();
        (first.starts_with('{'), log.contains("read the configuration"))
    };
    let file = |text: &str| Options::config(format!("[log]\n{text}\n"));
    let json = Herald::start(file("format = \"json\"")).await;
    assert_eq!(said(&json), (true, true));
    let quiet = Herald::start(file("level = \"WARNING\"")).await;
    assert_eq!(said(&quiet), (false, false));
    let variable = file("level = \"error\"").environment("HERALD_LOG_LEVEL", "info");
    let variable = Herald::start(variable.arguments(["--log-format", "json"])).await;
    assert_eq!(said(&variable), (true, true));
    let flag = file("format = \"json\"").environment("HERALD_LOG_FORMAT", "json");
    let flag = Herald::start(flag.arguments(["--log-format", "text"])).await;
    assert_eq!(said(&flag), (false, true));
    for (text, words) in [
        ("level = \"loud\"", "`error`, `warn`, `info`, `debug`, `trace`"),
        ("format = \"jsn\"", "did you mean `json`?"),
    ] {
        let refused = file(text).refused().await;
        assert!(refused.stderr.contains("line 2: unknown value"), "{refused:?}");
        assert!(refused.stderr.contains(words), "{refused:?}");
    }
}

/// Agents that fail in every possible way.
const FAILING: &str = r#"
[[agents]]
name = "program"
kind = "exec"
command = ["sh", "-c", "echo oops >&2; exit 3"]

[[agents]]
name = "slow"
kind = "exec"
command = ["sleep", "600"]
timeout = "300ms"
kill_grace = "100ms"

[[agents]]
name = "silent"
kind = "exec"
command = ["sleep", "600"]
idle_timeout = "300ms"
kill_grace = "100ms"

[[agents]]
name = "steered"
kind = "conformance"

[[agents]]
name = "handler"
kind = "handler"
command = ["sh", "-c", "read -r line; exit 4"]

[[agents]]
name = "model"
kind = "llm"
url = "http://127.0.0.1:9/v1"
model = "none"

[[agents]]
name = "upstream"
kind = "a2a"
url = "http://127.0.0.1:9"

[[agents]]
name = "coder"
kind = "acp"
command = ["false"]
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_warning_about_a_task_names_it_and_its_agent_at_every_level() {
    for (format, level) in
        [("text", "warn"), ("json", "info"), ("classic", "error"), ("json", "debug")]
    {
        let arguments = ["--log-level", level, "--log-format", format];
        let herald = Herald::start(Options::config(FAILING).arguments(arguments)).await;
        for agent in
            ["program", "slow", "silent", "steered", "handler", "model", "upstream", "coder"]
        {
            let draft = Draft::new(uuid(), if agent == "steered" { "tck-crash" } else { "x" });
            let sent =
                herald.call(&Wire::Rest.send(&format!("/agents/{agent}"), &draft, false)).await;
            // An agent out of reach is an error that names the failed task.
            let task = match Wire::Rest.sent(&sent) {
                Ok(task) => {
                    assert_eq!(state(&task), "failed", "{agent}: {task}");
                    id(&task).to_owned()
                }
                Err(fault) => fault.task.unwrap_or_else(|| panic!("{agent}: {sent:?}")),
            };
            if level == "error" && agent != "steered" {
                continue;
            }
            let names = |line: &&str| {
                let bare = line.replace('"', "").replace(": ", "=").replace(':', "=");
                bare.contains(&format!("task={task}")) && bare.contains(&format!("agent={agent}"))
            };
            let log = herald.log();
            let is_loud = |line: &&str| line.contains("WARN") || line.contains("ERROR");
            let loud: Vec<_> = log.lines().filter(is_loud).filter(names).collect();
            assert!(
                !loud.is_empty(),
                "{format}, {level}: no warning names {agent} and {task}: {log}"
            );
        }
        // A warning without a task concerns no task.
        for line in
            herald.log().lines().filter(|line| line.contains("WARN") || line.contains("ERROR"))
        {
            // A request that fails because its agent is out of reach has had a warning about its task before.
            let is_about_none = ["the handler's process ended", "panicked at", "request failed"]
                .iter()
                .any(|word| line.contains(word));
            assert!(line.contains("task") || is_about_none, "{line}");
        }
    }
}

#[tokio::test]
async fn an_error_about_a_stored_task_names_it() {
    let mut herald = Herald::start(Options::default()).await;
    let sent = herald.call(&Wire::Rest.send("", &Draft::new(uuid(), "x"), false)).await;
    let task = id(&Wire::Rest.sent(&sent).unwrap()).to_owned();
    herald.terminate().await;
    assert!(herald.wait(SOON).await.success());
    let conn = rusqlite::Connection::open(herald.database()).unwrap();
    conn.execute("UPDATE tasks SET status = x'00'", []).unwrap();
    drop(conn);
    herald.restart().await;
    assert_eq!(herald.call(&Wire::Rest.get(&task)).await.status, 500);
    let log = herald.log();
    let error = log.lines().find(|line| line.contains("ERROR")).unwrap_or_default();
    assert!(error.contains(&task), "{log}");
}

#[tokio::test]
async fn lines_on_a_terminal_are_coloured_unless_no_color_is_set() {
    let colours = async |variable: &str| {
        let home = tempfile::tempdir().unwrap();
        let herald = env!("CARGO_BIN_EXE_herald");
        // A terminal of its own, on which the server ends as soon as it has listened.
        let line = format!("{variable} exec timeout -s TERM 1 {herald} serve --ephemeral --port 0");
        let mut command = tokio::process::Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(home.path()).env_remove("NO_COLOR");
        let shown = crate::support::ended(command).await.stdout;
        assert!(shown.contains("listening"), "{shown}");
        shown.contains('\u{1b}')
    };
    assert!(colours("").await);
    assert!(colours("NO_COLOR=").await, "an empty one does not count");
    assert!(!colours("NO_COLOR=1").await);
}
