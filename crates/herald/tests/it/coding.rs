//! Tests of coding agents, with shell scripts that print recorded lines.

use std::fs;

use crate::{
    support::{Herald, Options, uuid},
    tasks::{artifact, ended, failure, told},
    wire::{Draft, Wire, id, state},
};

/// All kinds of coding agents.
const KINDS: [&str; 6] = ["claude-code", "codex", "cursor", "gemini", "opencode", "acp"];

/// A server whose coding agent is this script.
fn script(kind: &str, script: &str, settings: &str) -> Options {
    Options::config(format!(
        "[[agents]]\nname = \"coder\"\nkind = {kind:?}\n\
         command = [\"sh\", \"-c\", '''{script}''']\n{settings}\n"
    ))
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
async fn a_lone_surrogate_is_replaced() {
    for (kind, lines, text) in answers() {
        let says = format!("cat <<\"END\"{lines}\nEND\ncat > /dev/null");
        let herald = Herald::start(script(kind, &says, unasked(kind))).await;
        let done = told(&herald, "hello").await;
        assert_eq!(state(&done), "completed", "{kind}: {done}");
        assert_eq!(artifact(&done, "assistant-response"), text, "{kind}");
    }
}

/// `force`, without which Cursor's agent does not use its printing mode.
fn unasked(kind: &str) -> &'static str {
    if kind == "cursor" { "force = true" } else { "" }
}

#[tokio::test]
async fn a_task_completes_before_its_process_ends_and_the_next_message_waits() {
    for (kind, lines, _) in answers() {
        let home = tempfile::tempdir().unwrap();
        let (notes, gate) = (home.path().join("notes"), home.path().join("gate"));
        let says = format!(
            "echo begins >> {notes:?}; cat <<\"END\"{lines}\nEND\ncat > /dev/null; trap \"\" TERM\n\
             until [ -e {gate:?} ]; do sleep 0.05; done; echo ends >> {notes:?}; exit 3"
        );
        // It ends neither by itself nor on SIGTERM.
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
async fn standard_error_is_for_the_operator_only() {
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
async fn the_failure_message_of_an_agent_is_shown_unless_error_detail_forbids_it() {
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
async fn an_agent_without_output_ends_with_start_timeout() {
    // It ignores SIGTERM, and the task does not wait for its end.
    let silent = "trap \"\" TERM; cat > /dev/null";
    for kind in KINDS {
        let settings = "start_timeout = \"100ms\"\nkill_grace = \"1h\"";
        let herald = Herald::start(script(kind, silent, settings)).await;
        let failed = told(&herald, "hello").await;
        assert_eq!(failure(&failed).0, "agent coder did not begin within 100ms", "{kind}");
    }
}

#[tokio::test]
async fn an_impossible_profile_is_refused_at_the_start() {
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
