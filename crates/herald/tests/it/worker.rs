//! Tests of `herald worker`: programs and handlers on a worker, cancel, questions, restarts, drain.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use serde_json::{Value, json};

use crate::{
    http::Call,
    processes::{none_runs, pids},
    support::{Ended, Herald, Options, SOON, ended as output_of, eventually, uuid},
    tasks::{ended, failure, printed, task},
    upstream::passing::{passing, upstream, url},
    wire::{Draft, Wire, id, state},
    worker_process::{
        PATH, ROLE, WorkerProcess, asked, queued, server_on_fixed_port, worker_command,
    },
};

/// A handler that asks once and then repeats the answer.
const ASKING: &str = r#"
while read -r line; do
    turn=${line#*\"turn\":\"}
    turn=${turn%%\"*}
    case $line in
        *'"type":"hello"'*) printf '%s\n' '{"type":"hello","protocol":1}' ;;
        *'"type":"begin"'*)
            text=${line#*\"message\":}
            text=${text#*\"text\":\"}
            text=${text%%\"*}
            case $text in
                ask*) state=input-required ;;
                *) state=completed ;;
            esac
            printf '%s\n' "{\"type\":\"status\",\"turn\":\"$turn\",\"state\":\"$state\",\"text\":\"heard $text\"}" ;;
    esac
done
"#;

/// A coding agent that asks for a permission within its turn.
const PERMISSION: &str = r#"
say() { printf '%s\n' "{\"jsonrpc\":\"2.0\",$1}"; }
asking='"id":"may-i","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t","title":"it"},"options":[{"optionId":"yes","name":"Allow","kind":"allow_once"},{"optionId":"no","name":"Reject","kind":"reject_once"}]}'
while read -r line; do
    id=${line#*\"id\":}
    id=${id%%[,\}]*}
    case $line in
        *'"method":"initialize"'*)
            say "\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{}}" ;;
        *'"method":"session/new"'*) say "\"id\":$id,\"result\":{\"sessionId\":\"s\"}" ;;
        *'"method":"session/prompt"'*) prompt=$id; echo run >> runs; say "$asking" ;;
        *'"outcome"'*)
            say '"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"Done."}}}'
            say "\"id\":$prompt,\"result\":{\"stopReason\":\"end_turn\"}" ;;
    esac
done
"#;

async fn agents_of(herald: &Herald, role: &str) -> Vec<Value> {
    let answer = herald.call(&Call::get(format!("/api/agents?role={role}"))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["agents"].as_array().unwrap().clone()
}

async fn answer(herald: &Herald, task: &str, text: &str) {
    let draft = Draft::new(uuid(), text).to(task);
    Wire::Rest.sent(&herald.call(&Wire::Rest.send(PATH, &draft, true)).await).unwrap();
}

async fn reaches(herald: &Herald, task_id: &str, expected: &str) -> Value {
    let what = format!("the task is {expected}");
    eventually(SOON, &what, async || state(&task(herald, task_id).await) == expected).await;
    task(herald, task_id).await
}

#[tokio::test]
async fn a_program_on_a_worker_answers_the_tasks_of_its_role() {
    let herald = Herald::start(Options::agents()).await;
    let mut worker =
        WorkerProcess::start(&herald, &["--exec", "tr a-z A-Z", "--instance", "w1"]).await;
    let done = asked(&herald, "hello").await;
    assert_eq!((state(&done).as_str(), printed(&done).as_str()), ("completed", "HELLO"));
    let found = agents_of(&herald, ROLE).await;
    let name =
        found.iter().filter_map(|agent| agent["name"].as_str()).find(|name| name.contains(':'));
    let name = name.unwrap_or_else(|| panic!("no worker in {found:?}"));
    assert!(name.starts_with("shout:") && name.ends_with(":w1"), "{name}");
    worker.terminate().await;
    assert!(worker.wait(SOON).await.success(), "{}", worker.log());
    for line in
        ["starting a worker", "registered", "took a turn", "a turn has ended", "left the server"]
    {
        assert!(worker.log().contains(line), "no {line:?} in {}", worker.log());
    }
    let left = agents_of(&herald, ROLE).await;
    assert!(!left.iter().any(|agent| agent["name"] == name), "{left:?}");
}

#[tokio::test]
async fn a_failure_on_a_worker_has_the_reason_of_a_local_one() {
    let herald = Herald::start(Options::agents()).await;
    let _worker = WorkerProcess::start(&herald, &["--exec", "exit 3"]).await;
    let failed = asked(&herald, "hello").await;
    let (text, reason) = failure(&failed);
    assert_eq!(reason, "AGENT_FAILED");
    assert!(text.contains("3"), "{text}");
}

#[tokio::test]
async fn a_cancel_stops_the_program_of_a_worker() {
    let herald = Herald::start(Options::agents()).await;
    let worker =
        WorkerProcess::start(&herald, &["--exec", "echo $$ >> pids; exec sleep 600"]).await;
    let task = queued(&herald, "wait").await;
    let running = pids(worker.home(), 1).await;
    let cancelled = herald.call(&Wire::Rest.cancel(&task)).await;
    assert_eq!(state(&Wire::Rest.result(&cancelled).unwrap()), "canceled");
    none_runs(&running).await;
    eventually(SOON, "the worker notes it", async || worker.log().contains("stopped")).await;
}

#[tokio::test]
async fn a_handler_on_a_worker_asks_and_gets_the_answer() {
    let herald = Herald::start(Options::agents()).await;
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "[[agents]]\nname = \"other\"\nkind = \"echo\"\n\
         [[agents]]\nname = \"shout\"\nkind = \"handler\"\ncommand = [\"sh\", \"-c\", '''{ASKING}''']\n"
    );
    fs::write(home.path().join("agents.toml"), config).unwrap();
    let worker = WorkerProcess::spawn(&herald, home.path(), &["--config", "agents.toml"]);
    worker.registered().await;
    let question = asked(&herald, "ask me").await;
    assert_eq!(state(&question), "input-required", "{question}");
    answer(&herald, id(&question), "blue").await;
    let done = reaches(&herald, id(&question), "completed").await;
    assert_eq!(done["status"]["message"]["parts"][0]["text"], "heard blue");
}

#[tokio::test]
async fn a_question_within_a_turn_is_answered_in_that_turn() {
    let mut herald = server_on_fixed_port().await;
    let home = tempfile::tempdir().unwrap();
    let config = format!(
        "[[agents]]\nname = \"coder\"\nkind = \"acp\"\ncommand = [\"sh\", \"-c\", '''{PERMISSION}''']\n"
    );
    fs::write(home.path().join("agents.toml"), config).unwrap();
    let worker = WorkerProcess::spawn(&herald, home.path(), &["--config", "agents.toml"]);
    worker.registered().await;
    for restarts in [false, true] {
        let question = asked(&herald, "work").await;
        assert_eq!(state(&question), "input-required", "{question}");
        if restarts {
            herald.kill9().await;
            herald.restart().await;
        }
        answer(&herald, id(&question), "yes").await;
        let done = reaches(&herald, id(&question), "completed").await;
        assert!(done.to_string().contains("Done."), "{done}");
    }
    let runs = fs::read_to_string(home.path().join("runs")).unwrap();
    assert_eq!(runs.lines().count(), 2, "each turn ran once");
}

#[tokio::test]
async fn an_agent_on_a_worker_learns_of_the_end_of_a_task_without_a_turn() {
    let (herald, other) =
        (Herald::start(Options::agents()).await, Herald::start(Options::agents()).await);
    let home = tempfile::tempdir().unwrap();
    let agent = passing(ROLE, &format!("{}/agents/conformance", url(&other)), "");
    fs::write(home.path().join("agents.toml"), agent).unwrap();
    let worker = WorkerProcess::spawn(&herald, home.path(), &["--config", "agents.toml"]);
    worker.registered().await;
    let question = asked(&herald, "tck-multi-turn").await;
    assert_eq!(state(&question), "input-required", "{question}");
    let paused = upstream(&task(&herald, id(&question)).await).to_owned();
    assert_eq!(state(&task(&other, &paused).await), "input-required");
    let cancelled = herald.call(&Wire::Rest.cancel(id(&question))).await;
    assert_eq!(state(&Wire::Rest.result(&cancelled).unwrap()), "canceled");
    reaches(&other, &paused, "canceled").await;
}

#[tokio::test]
async fn a_server_that_is_killed_finds_the_turn_of_its_worker_again() {
    let mut herald = server_on_fixed_port().await;
    let program = "echo run >> runs; while ! [ -e go ]; do sleep 0.05; done; cat";
    let worker = WorkerProcess::start(&herald, &["--exec", program]).await;
    let task = queued(&herald, "once").await;
    let runs = || fs::read_to_string(worker.home().join("runs")).unwrap_or_default();
    eventually(SOON, "the program runs", async || !runs().is_empty()).await;
    herald.kill9().await;
    eventually(SOON, "the worker notes it", async || worker.log().contains("cannot be reached"))
        .await;
    // The program ends while the server is down: its output and its end wait for the server.
    fs::write(worker.home().join("go"), "").unwrap();
    herald.restart().await;
    let done = ended(&herald, &task).await;
    assert_eq!((state(&done).as_str(), printed(&done).as_str()), ("completed", "once"));
    assert_eq!(runs(), "run\n", "the turn ran once");
    eventually(SOON, "the worker notes it", async || worker.log().contains("answers again")).await;
    assert_eq!(worker.log().matches("cannot be reached").count(), 1, "{}", worker.log());
    assert_eq!(worker.log().matches("registered").count(), 1, "the session goes on");
}

#[tokio::test]
async fn another_worker_finishes_the_task_of_a_killed_one() {
    let herald = Herald::start(Options::agents()).await;
    let hangs =
        ["--exec", "echo $$ >> pids; exec sleep 600", "--attempts", "3", "--instance", "w1"];
    let mut first = WorkerProcess::start(&herald, &hangs).await;
    let task = queued(&herald, "again").await;
    let left = pids(first.home(), 1).await;
    let second = ["--exec", "tr a-z A-Z", "--attempts", "3", "--instance", "w2"];
    let _second = WorkerProcess::start(&herald, &second).await;
    first.kill9().await;
    // The same worker starts again: its turn is due at once, and its programs of the former life end.
    let quick = ["--exec", "tr a-z A-Z", "--attempts", "3", "--instance", "w1"];
    let reborn = WorkerProcess::spawn(&herald, first.home(), &quick);
    none_runs(&left).await;
    let done = ended(&herald, &task).await;
    assert_eq!((state(&done).as_str(), printed(&done).as_str()), ("completed", "AGAIN"));
    drop(reborn);
}

#[tokio::test]
async fn a_turn_that_may_not_run_twice_fails_with_its_worker() {
    let herald = Herald::start(Options::agents()).await;
    let hangs = ["--exec", "echo $$ >> pids; exec sleep 600", "--instance", "w1"];
    let mut worker = WorkerProcess::start(&herald, &hangs).await;
    let task = queued(&herald, "once").await;
    pids(worker.home(), 1).await;
    worker.kill9().await;
    let reborn = WorkerProcess::spawn(&herald, worker.home(), &hangs);
    let failed = ended(&herald, &task).await;
    assert_eq!(failure(&failed).1, "INTERRUPTED");
    drop(reborn);
}

#[tokio::test]
async fn a_worker_that_drains_ends_its_turn_and_hands_back_what_it_cannot_end() {
    let herald = Herald::start(Options::agents()).await;
    let program = "echo $$ >> pids; while ! [ -e go ]; do sleep 0.05; done; cat";
    let mut first = WorkerProcess::start(&herald, &["--exec", program]).await;
    let task = queued(&herald, "finish").await;
    pids(first.home(), 1).await;
    first.terminate().await;
    eventually(SOON, "it drains", async || first.log().contains("taking no more work")).await;
    fs::write(first.home().join("go"), "").unwrap();
    assert!(first.wait(SOON).await.success(), "{}", first.log());
    assert_eq!(state(&ended(&herald, &task).await), "completed");

    let hangs = "echo $$ >> pids; exec sleep 600";
    let hangs = ["--exec", hangs, "--drain-timeout", "100ms", "--attempts", "2"];
    let mut second = WorkerProcess::start(&herald, &hangs).await;
    let task = queued(&herald, "hand back").await;
    let running = pids(second.home(), 1).await;
    second.terminate().await;
    assert!(second.wait(SOON).await.success(), "{}", second.log());
    assert!(second.log().contains("outcome=\"returned\""), "{}", second.log());
    none_runs(&running).await;
    let third = ["--exec", "tr a-z A-Z", "--attempts", "2"];
    let third = WorkerProcess::start(&herald, &third).await;
    let done = ended(&herald, &task).await;
    assert_eq!((state(&done).as_str(), printed(&done).as_str()), ("completed", "HAND BACK"));
    assert!(
        third.log().contains("attempt=1"),
        "a handed back attempt does not count: {}",
        third.log()
    );
}

#[tokio::test]
async fn a_drain_fails_a_turn_that_may_not_run_twice() {
    let herald = Herald::start(Options::agents()).await;
    let hangs = ["--exec", "echo $$ >> pids; exec sleep 600", "--drain-timeout", "100ms"];
    let mut worker = WorkerProcess::start(&herald, &hangs).await;
    let tasks = [queued(&herald, "one").await, queued(&herald, "two").await];
    let running = pids(worker.home(), 2).await;
    let _other = WorkerProcess::start(&herald, &["--exec", "cat"]).await;
    worker.terminate().await;
    assert!(worker.wait(SOON).await.success(), "{}", worker.log());
    none_runs(&running).await;
    for task in tasks {
        assert_eq!(failure(&ended(&herald, &task).await).1, "INTERRUPTED");
    }
    let started = fs::read_to_string(worker.home().join("pids")).unwrap();
    assert_eq!(started.lines().count(), 2, "each ran once");
}

#[tokio::test]
async fn a_session_that_the_server_forgot_is_registered_again() {
    let herald = Herald::start(Options::agents()).await;
    let worker = WorkerProcess::start(&herald, &["--exec", "tr a-z A-Z", "--instance", "w1"]).await;
    let found = agents_of(&herald, ROLE).await;
    let name =
        found.iter().filter_map(|agent| agent["name"].as_str()).find(|name| name.ends_with(":w1"));
    let path = format!("/api/agents/{}", name.unwrap().replace(':', "%3A"));
    let removed = herald.call(&Call::delete(path)).await;
    assert!(removed.status < 300, "{removed:?}");
    eventually(SOON, "it registers again", async || {
        worker.log().matches("registered").count() >= 2
    })
    .await;
    let done = asked(&herald, "still here").await;
    assert_eq!(printed(&done), "STILL HERE");
}

async fn refused(arguments: &[&str], prepare: impl FnOnce(&std::path::Path)) -> Ended {
    let home = tempfile::tempdir().unwrap();
    prepare(home.path());
    // Nothing listens there: the errors come before the first call.
    let mut command = worker_command(home.path(), "http://127.0.0.1:9");
    command.args(arguments).env("PATH", home.path().join("bin"));
    let ended = output_of(command).await;
    assert!(!ended.status.success(), "{ended:?}");
    ended
}

fn install(home: &std::path::Path, programs: &[&str]) {
    let directory = home.join("bin");
    fs::create_dir_all(&directory).unwrap();
    for program in programs {
        let path = directory.join(program);
        fs::write(&path, "#!/bin/sh\n").unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[tokio::test]
async fn a_worker_without_an_agent_names_the_flags_and_the_agents_that_it_found() {
    let none = refused(&["--agent-name", ROLE], |home| install(home, &[])).await;
    assert!(none.stderr.contains("on PATH") && none.stderr.contains("--exec"), "{none:?}");
    let several =
        refused(&["--agent-name", ROLE], |home| install(home, &["codex", "claude"])).await;
    assert!(several.stderr.contains("claude-code, codex"), "{several:?}");
    let name = refused(&["--agent-name", "shout:host:1"], |_| {}).await;
    assert!(name.stderr.contains("before the first colon"), "{name:?}");
    let missing = refused(&["--agent-name", ROLE, "--config", "none.toml"], |_| {}).await;
    assert!(missing.stderr.contains("none.toml"), "{missing:?}");
}

#[tokio::test]
async fn the_one_installed_coding_agent_is_used_and_named() {
    let herald = Herald::start(Options::agents()).await;
    let home = tempfile::tempdir().unwrap();
    install(home.path(), &["gemini"]);
    let mut command = worker_command(home.path(), &format!("http://{}", herald.address));
    let log = fs::File::create(home.path().join("worker.log")).unwrap();
    command.args(["--agent-name", ROLE]).env("PATH", home.path().join("bin")).stderr(log);
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let log = || fs::read_to_string(home.path().join("worker.log")).unwrap();
    eventually(SOON, "it registers", async || log().contains("registered")).await;
    assert!(log().contains("adapter=\"gemini\""), "{}", log());
    child.kill().await.unwrap();
}

#[tokio::test]
async fn a_worker_waits_for_a_server_that_is_not_there_yet_and_ends_on_a_signal() {
    let home = tempfile::tempdir().unwrap();
    let mut command = worker_command(home.path(), "http://127.0.0.1:9");
    let log = fs::File::create(home.path().join("worker.log")).unwrap();
    command.args(["--agent-name", ROLE, "--exec", "cat"]).stderr(log).kill_on_drop(true);
    let mut child = command.spawn().unwrap();
    let log = || fs::read_to_string(home.path().join("worker.log")).unwrap();
    eventually(SOON, "it retries", async || log().contains("cannot be reached")).await;
    let id = child.id().unwrap().to_string();
    let sent = tokio::process::Command::new("kill").args(["-s", "TERM", &id]).status().await;
    assert!(sent.unwrap().success());
    let ended = tokio::time::timeout(Duration::from_secs(60), child.wait()).await;
    assert!(ended.expect("it ends").unwrap().success(), "{}", log());
}

/// A key for workers, created as the user that runs the server does.
async fn key(herald: &Herald, arguments: &[&str]) -> String {
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_herald"));
    command.args(["key", "create", "--principal", "workers", "-o", "json", "--data"]);
    command.arg(herald.database().parent().unwrap()).args(arguments);
    let created: Value = serde_json::from_str(&output_of(command).await.stdout).unwrap();
    created["key"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_worker_needs_a_credential_for_its_role() {
    let herald = Herald::start(Options::config(
        "[auth]\nrequired = true\ntokens = [{ token = \"of-a-caller\", tenant = \"acme\", principal = \"ann\" }]\n\
         [[agents]]\nname = \"shout\"\nkind = \"worker\"\n",
    ))
    .await;
    let refused = async |key: &str| {
        let home = tempfile::tempdir().unwrap();
        let mut command = worker_command(home.path(), &format!("http://{}", herald.address));
        command.args(["--agent-name", ROLE, "--exec", "cat"]).env("A2ACLI_BEARER", key);
        let ended = output_of(command).await;
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        assert!(key.is_empty() || !ended.stderr.contains(key), "{ended:?}");
        ended.stderr
    };
    assert!(refused("").await.contains("A2ACLI_BEARER"));
    assert!(refused(&key(&herald, &["--scope", "send,read"]).await).await.contains("scope work"));
    let other = key(&herald, &["--scope", "work", "--agent", "echo"]).await;
    refused(&other).await;

    let own = key(&herald, &["--tenant", "acme", "--scope", "work", "--agent", ROLE]).await;
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join(".env"), format!("A2ACLI_BEARER={own}\n")).unwrap();
    fs::set_permissions(home.path().join(".env"), fs::Permissions::from_mode(0o600)).unwrap();
    let worker = WorkerProcess::spawn(&herald, home.path(), &["--exec", "tr a-z A-Z"]);
    worker.registered().await;
    let call = Wire::Rest.send(PATH, &Draft::new(uuid(), "hello"), false);
    let done = herald.call(&call.header("authorization", "Bearer of-a-caller")).await;
    assert_eq!(printed(&Wire::Rest.sent(&done).unwrap()), "HELLO");
}

#[tokio::test]
async fn a_task_that_requires_a_label_goes_to_a_worker_that_has_it() {
    let herald = Herald::start(Options::agents()).await;
    let _plain = WorkerProcess::start(&herald, &["--exec", "echo plain", "--instance", "w1"]).await;
    let message = json!({
        "messageId": uuid(),
        "role": "ROLE_USER",
        "parts": [{ "text": "train" }],
        "metadata": { "herald/requires": ["gpu"] },
    });
    let body = json!({ "message": message, "configuration": { "returnImmediately": true } });
    let call = Call::post(format!("{PATH}/message:send"), &body).header("a2a-version", "1.0");
    let waiting = Wire::Rest.sent(&herald.call(&call).await).unwrap();
    assert_eq!(printed(&asked(&herald, "any").await), "plain\n");
    assert_eq!(state(&task(&herald, id(&waiting)).await), "submitted");
    let labelled = ["--exec", "echo gpu", "--label", "gpu", "--instance", "w2"];
    let _labelled = WorkerProcess::start(&herald, &labelled).await;
    assert_eq!(printed(&ended(&herald, id(&waiting)).await), "gpu\n");
}
