//! What the tests of all coding agents need: where they are installed, what their model says, what
//! runs of them and what a task holds of theirs.

use std::{env, fs, path::PathBuf, time::Duration};

use serde_json::Value;

use crate::{
    exec::{ended, failure, runs, told},
    model::Step,
    support::{Herald, Options, uuid},
    wire::{Draft, Wire, id, state},
};

/// Coding agents take seconds to start, and much longer where everything runs at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// As long as that, in their settings.
pub(crate) const PATIENTLY: &str = "start_timeout = \"10m\"";

/// All kinds of them. What is told of all is tried with programs that are none.
const KINDS: [&str; 6] = ["claude-code", "codex", "cursor", "gemini", "opencode", "acp"];

/// A server whose coding agent is this script.
fn script(kind: &str, script: &str, settings: &str) -> Options {
    Options::config(format!(
        "[[agents]]\nname = \"coder\"\nkind = {kind:?}\n\
         command = [\"sh\", \"-c\", '''{script}''']\n{settings}\n"
    ))
}

/// Where the coding agents are that the tests run.
pub(crate) fn installed(name: &str) -> PathBuf {
    package(".bin").join(name)
}

/// Where a package of theirs is, for those that are there in several versions.
pub(crate) fn package(name: &str) -> PathBuf {
    let directory = env::var_os("HERALD_TEST_CODING");
    let directory = directory.expect("`cargo xtask test` installs them and says where");
    PathBuf::from(directory).join("node_modules").join(name)
}

/// What the model says, and has finished.
pub(crate) fn text(text: &str) -> Step {
    Step::Text(text.to_owned())
}

/// The processes that run with this variable: those of one agent and nobody else's, if its value is.
pub(crate) fn running_with(variable: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    };
    pids.filter(|pid| runs(*pid) && has_it(pid)).collect()
}

/// The one artifact with this name, as the text of its parts or as its data.
pub(crate) fn artifact(task: &Value, name: &str) -> Value {
    let artifacts = task["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<_> = artifacts.iter().filter(|artifact| artifact["name"] == name).collect();
    let [artifact] = found[..] else { panic!("{} artifacts {name}: {task}", found.len()) };
    let parts = artifact["parts"].as_array().unwrap();
    match parts[0].get("data") {
        Some(data) => data.clone(),
        None => parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<String>().into(),
    }
}

/// Answers that break off in the middle of a character, for each dialect, and the text that callers read.
fn answers() -> [(&'static str, &'static str, &'static str); 4] {
    let claude = r#"
{"type":"system","subtype":"init","session_id":"s","model":"m"}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"a\ud83e"}}}
{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"\udd80b"}}}
{"type":"assistant","message":{"content":[{"type":"text","text":"a\ud83e\udd80b"}]}}
{"type":"result","is_error":false,"result":"a\ud83e\udd80b"}"#;
    let cursor = r#"
{"type":"system","subtype":"init","session_id":"s","model":"m"}
{"type":"assistant","message":{"content":[{"type":"text","text":"a\ud83e\udd80\ud83e\ud83eb"}]}}
{"type":"result","is_error":false,"result":"done"}"#;
    let codex = r#"
{"id":1,"result":{}}
{"id":2,"result":{"thread":{"id":"t"},"model":"m"}}
{"id":4,"result":{"turn":{"id":"u"}}}
{"method":"item/agentMessage/delta","params":{"threadId":"t","itemId":"i","delta":"a\ud83e"}}
{"method":"item/agentMessage/delta","params":{"threadId":"t","itemId":"i","delta":"\udd80b"}}
{"method":"turn/completed","params":{"threadId":"t","turn":{"status":"completed"}}}"#;
    let acp = r#"
{"id":1,"result":{"protocolVersion":1}}
{"id":2,"result":{"sessionId":"s","modes":{}}}
{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\ud83e"}}}}
{"method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"\udd80b"}}}}
{"id":3,"result":{"stopReason":"end_turn"}}"#;
    [
        ("claude-code", claude, "a\u{fffd}\u{fffd}b"),
        ("cursor", cursor, "a🦀\u{fffd}\u{fffd}b"),
        ("codex", codex, "a\u{fffd}\u{fffd}b"),
        ("acp", acp, "a\u{fffd}\u{fffd}b"),
    ]
}

#[tokio::test]
async fn half_a_character_is_no_reason_to_lose_the_others() {
    for (kind, lines, text) in answers() {
        let says = format!("cat <<\"END\"{lines}\nEND\ncat > /dev/null");
        let herald = Herald::start(script(kind, &says, unasked(kind))).await;
        let done = told(&herald, "hello").await;
        assert_eq!(state(&done), "completed", "{kind}: {done}");
        assert_eq!(artifact(&done, "assistant-response"), text, "{kind}");
    }
}

/// What Cursor's agent needs to print, as it does in the tests.
fn unasked(kind: &str) -> &'static str {
    if kind == "cursor" { "force = true" } else { "" }
}

#[tokio::test]
async fn a_task_is_completed_before_its_process_is_gone_and_the_next_message_waits_for_that() {
    for (kind, lines, _) in answers() {
        let home = tempfile::tempdir().unwrap();
        let (notes, gate) = (home.path().join("notes"), home.path().join("gate"));
        let says = format!(
            "echo begins >> {notes:?}; cat <<\"END\"{lines}\nEND\ncat > /dev/null; trap \"\" TERM\n\
             until [ -e {gate:?} ]; do sleep 0.05; done; echo ends >> {notes:?}; exit 3"
        );
        // It ends neither by itself nor when it is asked to.
        let settings = format!("kill_grace = \"1h\"\n{}", unasked(kind));
        let herald = Herald::start(script(kind, &says, &settings)).await;
        let done = told(&herald, "hello").await;
        assert_eq!(state(&done), "completed", "{kind}: {done}");
        assert_eq!(fs::read_to_string(&notes).unwrap(), "begins\n", "{kind}");

        let context = done["contextId"].as_str().unwrap();
        let next = Draft::new(uuid(), "And now?").within(context);
        let answer = herald.call(&Wire::Rest.send("", &next, true)).await;
        let next = id(&Wire::Rest.sent(&answer).unwrap()).to_owned();
        fs::write(&gate, "").unwrap();
        let done = ended(&herald, &next).await;
        assert_eq!(state(&done), "completed", "{kind}: {done}");
        let notes = fs::read_to_string(&notes).unwrap();
        assert!(notes.starts_with("begins\nends\nbegins\n"), "{kind}: {notes}");
    }
}

#[tokio::test]
async fn what_is_on_standard_error_is_for_whoever_runs_the_agent() {
    let fails = "echo \"cannot open /srv/secret\" >&2; exit 3";
    for kind in KINDS {
        for (settings, text) in [
            ("", "agent coder ended with exit code 3"),
            ("error_detail = \"kind\"", "agent coder ended with exit code 3"),
            ("error_detail = \"message\"", "agent coder ended with exit code 3"),
            (
                "error_detail = \"full\"",
                "agent coder ended with exit code 3: cannot open /srv/secret",
            ),
        ] {
            let herald = Herald::start(script(kind, fails, settings)).await;
            let failed = told(&herald, "hello").await;
            assert_eq!(failure(&failed), (text, "AGENT_FAILED"), "{kind}");
            assert!(herald.log().contains("cannot open /srv/secret"), "the log has everything");
        }
    }
}

#[tokio::test]
async fn what_an_agent_says_of_its_failure_is_told_unless_the_settings_keep_it() {
    let fails = r#"
cat <<"END"
{"type":"system","subtype":"init","session_id":"s","model":"m"}
{"type":"result","is_error":true,"result":"The key was refused"}
END
cat > /dev/null"#;
    for (settings, text) in [
        ("", "agent coder failed: The key was refused"),
        ("error_detail = \"kind\"", "agent coder failed"),
    ] {
        let herald = Herald::start(script("claude-code", fails, settings)).await;
        assert_eq!(failure(&told(&herald, "hello").await).0, text);
    }
}

#[tokio::test]
async fn an_agent_that_never_begins_is_given_up() {
    // It does not end when it is asked to, and nobody has to wait for that.
    let silent = "trap \"\" TERM; cat > /dev/null";
    for kind in KINDS {
        let settings = "start_timeout = \"100ms\"\nkill_grace = \"1h\"";
        let herald = Herald::start(script(kind, silent, settings)).await;
        let failed = told(&herald, "hello").await;
        assert_eq!(failure(&failed).0, "agent coder did not begin within 100ms", "{kind}");
    }
}

#[tokio::test]
async fn a_profile_that_an_agent_cannot_have_is_said_at_the_start() {
    for (kind, settings, said) in [
        ("gemini", "profile = \"auto\"", "one of `default`, `autoEdit`, `yolo`, `plan`"),
        ("cursor", "profile = \"plan\"\nforce = true", "with `force` Cursor has no modes"),
    ] {
        let refused = script(kind, "cat", settings).refused().await;
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
        assert!(refused.stderr.contains("profile"), "{}", refused.stderr);
    }
    Herald::start(script("gemini", "cat", "profile = \"plan\"")).await;
}
