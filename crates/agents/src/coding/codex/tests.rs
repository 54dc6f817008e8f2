//! Recorded output of the app server of Codex 0.166.0 with a scripted model; ids are shortened and lines
//! without meaning for the dialect left out.

#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they expect")]

use serde_json::{Map, Value, json};

use super::Codex;
use crate::coding::{
    activity::{Activity, ModelRetry, ToolEnd, ToolKind, ToolStart},
    dialect::{AgentEvent, Approval, CliDialect, CodingRequest, DialectOutput},
};

const WORK: &str = include_str!("../recorded/codex-work.jsonl");
const RESUMED: &str = include_str!("../recorded/codex-resumed.jsonl");
const APPROVALS: &str = include_str!("../recorded/codex-approvals.jsonl");
const REFUSED: &str = include_str!("../recorded/codex-refused.jsonl");
const RETRY: &str = include_str!("../recorded/codex-retry.jsonl");
const FORGOTTEN: &str = include_str!("../recorded/codex-forgotten.jsonl");

fn ask() -> CodingRequest {
    CodingRequest {
        text: "Look around".to_owned(),
        directory: "/repo".into(),
        ..CodingRequest::default()
    }
}

/// The output for a recording, with this choice for every approval.
fn play(ask: CodingRequest, recording: &str, choice: &str) -> DialectOutput {
    let (mut codex, mut out) = (Codex::new(ask), DialectOutput::default());
    codex.open(&mut out);
    for line in recording.lines() {
        let before = out.events.len();
        codex.handle_line(line, &mut out).unwrap();
        if let Some(AgentEvent::Approval(approval)) = out.events.get(before) {
            let chosen = approval.choices.iter().find(|one| one.id == choice).unwrap().clone();
            codex.answer(&approval.clone(), &chosen, &mut out);
        }
    }
    out
}

fn lines(out: &DialectOutput) -> Vec<Value> {
    let lines = str::from_utf8(&out.lines).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn approvals(out: &DialectOutput) -> Vec<&Approval> {
    let approvals = out.events.iter().filter_map(|event| match event {
        AgentEvent::Approval(approval) => Some(approval),
        AgentEvent::Init { .. }
        | AgentEvent::SessionLost
        | AgentEvent::Text(_)
        | AgentEvent::Activity(_)
        | AgentEvent::Done(_)
        | AgentEvent::Error { .. } => None,
    });
    approvals.collect()
}

#[test]
fn work_becomes_events_in_order() {
    let out = play(CodingRequest { force: true, ..ask() }, WORK, "accept");
    let text = |text: &str| AgentEvent::Text(text.to_owned());
    let Some((AgentEvent::Done(result), events)) = out.events.split_last() else {
        panic!("it is not done: {out:?}");
    };
    let command = "/bin/bash -lc 'echo found'";
    let started = Activity::ToolStarted(ToolStart {
        id: "c1".to_owned(),
        name: "shell".to_owned(),
        kind: ToolKind::Execute,
        title: Some(command.to_owned()),
        input: Some(json!({ "command": command })),
        ..ToolStart::default()
    });
    let ended = Activity::ToolEnded(ToolEnd {
        id: "c1".to_owned(),
        output: "found\n".to_owned(),
        ..ToolEnd::default()
    });
    assert_eq!(
        *events,
        [
            AgentEvent::Init {
                model: Some("scripted".to_owned()),
                session: Some("id-1".to_owned())
            },
            text("I "),
            text("look "),
            text("around. "),
            AgentEvent::Activity(started),
            AgentEvent::Activity(ended),
            text("\n\n"),
            text("There "),
            text("is "),
            text("nothing. "),
        ]
    );
    assert_eq!(result.summary.as_deref(), Some("There is nothing."));
    let usage = json!({
        "durationMs": 654, "inputTokens": 20, "cacheReadTokens": 6, "outputTokens": 10,
        "reasoningTokens": 2, "totalTokens": 30,
    });
    assert_eq!(serde_json::to_value(&result.usage).unwrap(), usage, "of both calls to the model");
    assert!(out.is_closed, "nothing more is wanted");
}

#[test]
fn the_command_line_contains_nothing_of_the_caller() {
    assert_eq!(Codex::new(ask()).arguments(), ["app-server"]);
    let out = play(CodingRequest { model: Some("large".to_owned()), ..ask() }, WORK, "accept");
    let lines = lines(&out);
    let methods: Vec<_> = lines.iter().map(|line| line["method"].as_str().unwrap()).collect();
    assert_eq!(methods, ["initialize", "initialized", "thread/start", "turn/start"]);
    let asks = json!({
        "model": "large", "cwd": "/repo", "approvalPolicy": "on-request", "sandbox": "read-only"
    });
    assert_eq!(lines[2]["params"], asks, "without force nothing is changed unasked");
    let input = json!([{ "type": "text", "text": "Look around" }]);
    assert_eq!(lines[3]["params"], json!({ "threadId": "id-1", "input": input }));
}

#[test]
fn with_force_there_are_no_approvals_and_settings_may_choose_the_sandbox() {
    let forced = |settings: Map<String, Value>| {
        lines(&play(CodingRequest { force: true, settings, ..ask() }, WORK, "accept"))[2]["params"]
            .clone()
    };
    let params = forced(Map::new());
    assert_eq!(
        (&params["approvalPolicy"], &params["sandbox"]),
        (&json!("never"), &json!("danger-full-access"))
    );
    let profile = Map::from_iter([("sandbox_mode".to_owned(), json!("workspace-write"))]);
    let params = forced(profile.clone());
    assert_eq!((&params["sandbox"], &params["config"]), (&Value::Null, &Value::Object(profile)));
}

#[test]
fn a_resumed_session_counts_only_the_new_turn() {
    let out = play(CodingRequest { session: Some("id-1".to_owned()), ..ask() }, RESUMED, "accept");
    let lines = lines(&out);
    assert_eq!(lines[2]["method"], "thread/resume");
    assert_eq!(lines[2]["params"]["threadId"], "id-1");
    let Some(AgentEvent::Done(result)) = out.events.last() else {
        panic!("it is not done: {out:?}");
    };
    assert_eq!(result.summary.as_deref(), Some("Still nothing."));
    assert_eq!(result.usage.total_tokens, Some(15), "the thread has cost 45 so far");
}

#[test]
fn a_session_that_cannot_be_resumed_is_lost() {
    let out =
        play(CodingRequest { session: Some("id-1".to_owned()), ..ask() }, FORGOTTEN, "accept");
    assert_eq!(out.events, [AgentEvent::SessionLost]);
    assert!(out.is_closed);
}

#[test]
fn an_error_of_the_model_has_its_own_message() {
    let out = play(ask(), REFUSED, "accept");
    let Some(AgentEvent::Error { message, usage }) = out.events.last() else {
        panic!("it went well: {out:?}")
    };
    assert!(message.starts_with("unexpected status 401 Unauthorized"), "{message}");
    assert!(usage.duration_ms.is_some(), "{usage:?}");
    assert!(out.is_closed);
}

#[test]
fn commands_files_and_tools_need_approval() {
    let out = play(ask(), APPROVALS, "accept");
    let asked: Vec<_> = approvals(&out).iter().map(|one| one.prompt.as_str()).collect();
    assert_eq!(
        asked,
        [
            "shell: /bin/bash -lc 'touch made' (It is needed.)",
            "apply_patch: /repo/patched.txt",
            "Allow the brush MCP server to run tool \"paint\"",
        ]
    );
    let details: Vec<_> = approvals(&out).iter().map(|one| &one.detail).collect();
    assert_eq!(details[0]["command"], "/bin/bash -lc 'touch made'");
    assert_eq!(details[1]["changes"][0]["diff"], "hello\n");
    assert_eq!(details[2]["serverName"], "brush");
    let answers = lines(&out).split_off(4);
    assert_eq!(
        answers,
        [
            json!({ "id": 0, "result": { "decision": "accept" } }),
            json!({ "id": 1, "result": { "decision": "accept" } }),
            json!({ "id": 2, "result": { "action": "accept", "content": null } }),
        ]
    );
}

#[test]
fn an_approval_for_the_session_is_offered_and_changes_of_rules_are_not() {
    let out = play(ask(), APPROVALS, "decline");
    let choices = |approval: &Approval| -> Vec<(String, bool)> {
        approval.choices.iter().map(|choice| (choice.id.clone(), choice.grants)).collect()
    };
    let offered: Vec<_> = approvals(&out).into_iter().map(choices).collect();
    let choice = |id: &str, grants| (id.to_owned(), grants);
    let (yes, no) = (choice("accept", true), choice("decline", false));
    let again = choice("acceptForSession", true);
    let plain = vec![yes.clone(), no.clone()];
    assert_eq!(offered, [plain.clone(), vec![yes, again, no], plain]);
}

#[test]
fn changes_too_large_to_show_keep_their_paths() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let long = "x".repeat(40 << 10);
    for line in APPROVALS.lines() {
        let changes = r#"{"path":"/repo/patched.txt","kind":{"type":"add"},"diff":"hello\n"}"#;
        let two = format!(r#"{{"path":"a","diff":"{long}"}},{{"path":"b","diff":"{long}"}}"#);
        codex.handle_line(&line.replace(changes, &two), &mut out).unwrap();
    }
    let approval = approvals(&out)[1];
    assert_eq!(approval.prompt, "apply_patch: a, b");
    assert_eq!(approval.detail["changes"][0]["diff"], long);
    assert_eq!(approval.detail["changes"][1], json!({ "path": "b" }));
}

#[test]
fn unsupported_requests_are_refused_and_forms_are_declined() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let form = r#"{"method":"mcpServer/elicitation/request","id":"a","params":{"message":"Who?",
        "requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}"#;
    codex.handle_line(form, &mut out).unwrap();
    codex.handle_line(r#"{"method":"attestation/generate","id":7,"params":{}}"#, &mut out).unwrap();
    let lines = lines(&out);
    assert_eq!(lines[0], json!({ "id": "a", "result": { "action": "decline", "content": null } }));
    assert_eq!((&lines[1]["id"], &lines[1]["error"]["code"]), (&json!(7), &json!(-32601)));
    assert_eq!(out.events, []);
}

#[test]
fn text_of_subagents_is_not_part_of_the_answer() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let (begin, rest) = WORK.split_at(WORK.find("\n{\"method\":\"item/").unwrap());
    let helper = rest.replace("id-1", "id-of-helper");
    for line in begin.lines().chain(helper.trim().lines()) {
        codex.handle_line(line, &mut out).unwrap();
    }
    assert!(matches!(out.events[..], [AgentEvent::Init { .. }]), "{out:?}");
    assert!(!out.is_closed);
}

#[test]
fn a_cancelled_turn_is_interrupted() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    for line in WORK.lines().take(5) {
        codex.handle_line(line, &mut out).unwrap();
    }
    codex.cancel(&mut out);
    let interrupt = lines(&out).pop().unwrap();
    assert_eq!(interrupt["method"], "turn/interrupt");
    assert_eq!(interrupt["params"], json!({ "threadId": "id-1", "turnId": "id-2" }));
    assert!(out.is_closed);
}

#[test]
fn unreadable_notifications_are_ignored_except_the_end_of_the_turn() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let new = r#"{"method":"item/started","params":{"threadId":"id-1","item":{"type":"dance"}}}"#;
    let strange = r#"{"method":"item/completed","params":{"threadId":"id-1","item":7}}"#;
    for line in ["Segmentation fault", "[]", new, strange] {
        codex.handle_line(line, &mut out).unwrap();
    }
    let asks = r#"{"method":"item/fileChange/requestApproval","id":3,"params":[]}"#;
    codex.handle_line(asks, &mut out).unwrap();
    assert_eq!(lines(&out)[0]["error"]["code"], -32601, "every request gets an answer");
    assert_eq!(out.events, []);
    let end = r#"{"method":"turn/completed","params":{"threadId":"id-1","turn":"over"}}"#;
    let failure = codex.handle_line(end, &mut out).unwrap_err();
    assert_eq!(failure.kind, "wrote a message that cannot be read");
}

#[test]
fn each_retry_of_the_model_is_an_event() {
    let out = play(ask(), RETRY, "accept");
    let retry = |attempt| {
        AgentEvent::Activity(Activity::Retry(ModelRetry { attempt, ..ModelRetry::default() }))
    };
    assert_eq!(out.events[1..], [retry(1), retry(2)]);
}
