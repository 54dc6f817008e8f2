//! Tests of the sources of client settings.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};
use tempfile::tempdir;

use crate::cli_support::{agent, cli, task};

fn setting<'a>(shown: &'a Value, name: &str) -> (&'a str, &'a str) {
    let all = shown["settings"].as_array().unwrap();
    let found = all.iter().find(|setting| setting["name"] == name).unwrap();
    (found["value"].as_str().unwrap_or("none"), found["source"].as_str().unwrap())
}

#[tokio::test]
async fn flags_override_variables_then_the_local_file_then_the_users_file() {
    let home = tempdir().unwrap();
    let work = home.path().join("project/deep");
    fs::create_dir_all(&work).unwrap();
    let own = home.path().join(".config/a2a-cli");
    fs::create_dir_all(&own).unwrap();
    let global = "A2ACLI_TIMEOUT=1s\nA2ACLI_POLL_INTERVAL=11s\nA2ACLI_A2A_VERSION=1.0\nA2ACLI_AGENT_CARD=global\n";
    fs::write(own.join(".env"), global).unwrap();
    let local =
        "OTHER=x\nA2ACLI_TIMEOUT=2s\nA2ACLI_POLL_INTERVAL=22s\nA2ACLI_TRANSPORT=grpc,jsonrpc\n";
    fs::write(home.path().join("project/.env"), local).unwrap();
    fs::write(home.path().join("named.env"), "A2ACLI_TIMEOUT=5s\n").unwrap();
    let show = |more: &[&str]| {
        let all = ["config", "show"].into_iter().chain(more.iter().copied());
        cli(all).at(&work).env("HOME", home.path().to_str().unwrap())
    };
    let shown = show(&["--timeout", "4s"]).env("A2ACLI_TIMEOUT", "3s").json().await;
    assert_eq!(setting(&shown, "timeout"), ("4s", "flag"));
    let shown = show(&[]).env("A2ACLI_TIMEOUT", "3s").json().await;
    assert_eq!(setting(&shown, "timeout"), ("3s", "environment A2ACLI_TIMEOUT"));
    let (value, source) = setting(&shown, "poll-interval");
    assert!(value == "22s" && source.ends_with("project/.env"), "{value} {source}");
    let (value, source) = setting(&shown, "agent-card");
    assert!(value == "global" && source.ends_with("a2a-cli/.env"), "{value} {source}");
    assert_eq!(setting(&shown, "transport").0, "grpc,jsonrpc");
    assert_eq!(setting(&shown, "output"), ("json", "flag"));
    assert_eq!(setting(&shown, "verbose"), ("none", "default"));
    let named = show(&["--config", "../../named.env"]).json().await;
    assert_eq!(setting(&named, "timeout").0, "5s");
    assert_eq!(
        setting(&named, "poll-interval").0,
        "11s",
        "it stands in the place of the local one"
    );
    let text = show(&[]).ok().await;
    assert!(text.field("timeout").starts_with("2s (file "), "{text:?}");
    show(&["--config", "missing.env"]).fails(2, "A2ACLI_ERR_USAGE").await;
    let wrong = show(&[]).env("A2ACLI_TIMEOUT", "soon").fails(2, "A2ACLI_ERR_USAGE").await;
    assert!(wrong["message"].as_str().unwrap().contains("A2ACLI_TIMEOUT"), "{wrong}");
}

#[tokio::test]
async fn a_file_for_one_agent_has_its_reference_and_its_credential() {
    let fake = agent(json!({ "task": task("COMPLETED") })).await;
    let home = tempdir().unwrap();
    let file = home.path().join("fake.env");
    fs::write(&file, format!("A2ACLI_AGENT_CARD={}\nA2ACLI_BEARER='canary-7c5e-h'\n", fake.url))
        .unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let arguments = ["send", "x", "--config", "fake.env"];
    let sent = cli(arguments).at(home.path()).ok().await;
    assert_eq!(sent.stderr, "");
    assert_eq!(fake.calls()[0].header("authorization"), Some("Bearer canary-7c5e-h"));
    let flagged = cli(arguments.into_iter().chain(["--bearer", "other"])).at(home.path());
    flagged.ok().await;
    assert_eq!(fake.calls()[1].header("authorization"), Some("Bearer other"));
    // The command to continue has the same flags, without secrets.
    let way = ["--transport", "jsonrpc", "--insecure", "--bearer", "hunter3"];
    let sent = cli(arguments.into_iter().chain(way)).at(home.path()).ok().await;
    let flags = "--config fake.env --transport jsonrpc --insecure=true --context-id c-1 \"TEXT\"";
    assert_eq!(sent.field("Resume"), format!("herald send -a {} {flags}", fake.url));
    // A file that others can read causes a warning.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let warned = cli(arguments).at(home.path()).ok().await;
    assert!(warned.stderr.contains("chmod 600"), "{warned:?}");
    let shown = cli(["config", "show", "--config", "fake.env"]).at(home.path()).ok().await;
    assert!(!shown.stdout.contains("canary-7c5e-h"), "{shown:?}");
    assert!(shown.field("bearer").starts_with("(hidden) (file "), "{shown:?}");
}

#[tokio::test]
async fn a_found_file_obtains_no_credential_and_starts_no_program() {
    let fake = agent(json!({ "task": task("COMPLETED") })).await;
    let home = tempdir().unwrap();
    let work = home.path().join("cloned");
    fs::create_dir_all(&work).unwrap();
    let own = home.path().join(".config/a2a-cli");
    fs::create_dir_all(&own).unwrap();
    let theirs = |lines: &str| fs::write(work.join(".env"), lines).unwrap();
    let run = |arguments: &[&str]| {
        let home = home.path().to_str().unwrap();
        cli(arguments.iter().copied()).at(&work).env("HOME", home)
    };
    let send: &[&str] = &["send", "x"];
    let config = work.join(".env");
    let named = ["send", "x", "--config", config.to_str().unwrap()];
    let shown = || fake.calls().pop().unwrap().header("authorization").map(str::to_owned);

    theirs(&format!("A2ACLI_AGENT_CARD={}\n", fake.url));
    run(send).ok().await;
    assert_eq!(shown(), None, "without a credential there is nothing to lose");
    for (name, value) in
        [("BEARER", "canary-7c5e-h"), ("SVC_PARAM", "authorization:Bearer canary-7c5e-h")]
    {
        let name = format!("A2ACLI_{name}");
        let variable = |run: crate::cli_support::Run| run.env(&name, value);
        let before = fake.calls().len();
        let refused = variable(run(send)).end().await;
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        assert!(refused.stderr.contains("no agent is named"), "{refused:?}");
        assert!(refused.stderr.contains("cannot send your credentials"), "{refused:?}");
        assert_eq!(fake.calls().len(), before, "it was asked");
        // The agent of the command line or of the user's own file gets the credential.
        for explicit in [&["send", &fake.url, "x"][..], &["send", "x", "-a", &fake.url], &named] {
            variable(run(explicit)).ok().await;
            assert_eq!(shown().as_deref(), Some("Bearer canary-7c5e-h"), "{explicit:?}");
        }
    }
    // The user's own file counts like a variable, and its agent is not used instead.
    fs::write(own.join(".env"), format!("A2ACLI_API_KEY=k\nA2ACLI_AGENT_CARD={}\n", fake.url))
        .unwrap();
    let refused = run(send).fails(2, "A2ACLI_ERR_USAGE").await;
    assert_eq!(refused["message"], "no agent is named");
    fs::remove_file(own.join(".env")).unwrap();
    // A flag applies to this call, and a credential of the found file may go to its agent.
    run(&["send", "x", "--bearer", "mine"]).ok().await;
    assert_eq!(shown().as_deref(), Some("Bearer mine"));
    theirs(&format!("A2ACLI_AGENT_CARD={}\nA2ACLI_BEARER=theirs\n", fake.url));
    run(send).ok().await;
    assert_eq!(shown().as_deref(), Some("Bearer theirs"));

    theirs("A2ACLI_AGENT_CARD=stdio:touch started\nA2ACLI_INSECURE=true\n");
    let refused = run(send).end().await;
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(refused.stderr.contains("cannot start a program"), "{refused:?}");
    let settings = run(&["config", "show"]).json().await;
    let (value, source) = setting(&settings, "insecure");
    assert!(value == "none" && source.contains("cannot grant trust"), "{value} {source}");
    assert!(!work.join("started").exists());
    run(&named).fails(3, "A2ACLI_ERR_UNREACHABLE").await;
    assert!(work.join("started").exists(), "the user has named the file");
}

#[tokio::test]
async fn a_setting_names_the_agent_unless_the_command_line_does() {
    let (one, other) = (agent(json!({ "task": task("COMPLETED") })).await, "http://127.0.0.1:9");
    let sent = cli(["send", one.url.as_str(), "x"]).env("A2ACLI_AGENT_CARD", other).ok().await;
    assert_eq!(sent.field("State"), "COMPLETED");
    let both = ["send", one.url.as_str(), "x", "-a", one.url.as_str()];
    cli(both).fails(2, "A2ACLI_ERR_USAGE").await;
}

#[tokio::test]
async fn a_failure_says_which_setting_names_the_agent() {
    let home = tempdir().unwrap();
    fs::write(home.path().join("a.env"), "A2ACLI_AGENT_CARD=localhost:9\n").unwrap();
    let send = |more: &[&str]| {
        let all = ["send", "x"].into_iter().chain(more.iter().copied());
        cli(all).at(home.path())
    };
    let said = async |run: crate::cli_support::Run| {
        let error = run.fails(3, "A2ACLI_ERR_UNREACHABLE").await;
        error["message"].as_str().unwrap().to_owned()
    };
    let file = said(send(&["--config", "a.env"])).await;
    assert!(file.contains("localhost:9") && file.contains("named by file a.env"), "{file}");
    let variable = said(send(&[]).env("A2ACLI_AGENT_CARD", "localhost:9")).await;
    assert!(variable.contains("named by environment A2ACLI_AGENT_CARD"), "{variable}");
    let flag = send(&["-a", "localhost:9"]).env("A2ACLI_AGENT_CARD", "localhost:8");
    let flag = said(flag).await;
    assert!(!flag.contains("named by"), "{flag}");
}

#[tokio::test]
async fn a_misspelt_setting_causes_a_warning() {
    let home = tempdir().unwrap();
    let file = "A2ACLI_TIMOUT=5s\nA2ACLI_PROFILE_OF_ANOTHER_TOOL=1\nTIMOUT=1\n";
    fs::write(home.path().join(".env"), file).unwrap();
    let shown = cli(["config", "show"]).at(home.path());
    let shown =
        shown.env("A2ACLI_BEARR", "canary-7c5e-h").env("A2ACLI_STREAM", "1").ok().await.stderr;
    for said in [
        "A2ACLI_TIMOUT (file ",
        "did you mean A2ACLI_TIMEOUT?",
        "A2ACLI_BEARR is not a setting; did you mean A2ACLI_BEARER?",
        "A2ACLI_STREAM is ignored",
    ] {
        assert!(shown.contains(said), "no {said:?} in {shown}");
    }
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(!shown.contains("canary-7c5e-h"), "{shown}");
}

#[tokio::test]
async fn nothing_is_stored_between_two_runs() {
    let fake = agent(json!({ "task": task("INPUT_REQUIRED") })).await;
    let home = tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let all = arguments.iter().copied().chain(["-a", fake.url.as_str()]);
        cli(all).at(home.path()).env("HOME", home.path().to_str().unwrap())
    };
    run(&["send", "x"]).ok().await;
    run(&["task", "get", "t-1"]).ok().await;
    run(&["send", "y"]).ok().await;
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0, "something was written");
    let last = fake.calls().pop().unwrap();
    let message = &last.body["params"]["message"];
    assert!(message["taskId"].is_null() && message["contextId"].is_null(), "{message}");
    run(&["send", "y", "--continue"]).fails(2, "A2ACLI_ERR_USAGE").await;
    // Given ids are sent unchanged, and no others are invented.
    run(&["send", "z", "--context-id", "c-9"]).ok().await;
    let message = fake.calls().pop().unwrap().body["params"]["message"].clone();
    assert_eq!(message["contextId"], "c-9");
    assert!(message["taskId"].is_null(), "{message}");
    run(&["send", "z"]).env("A2ACLI_TASK_ID", "t-1").ok().await;
    let message = fake.calls().pop().unwrap().body["params"]["message"].clone();
    assert_eq!((&message["taskId"], &message["contextId"]), (&json!("t-1"), &Value::Null));
}
