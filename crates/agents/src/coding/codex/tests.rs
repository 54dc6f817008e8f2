//! Recorded output of the app server of Codex 0.166.0 with a scripted model; ids are shortened and lines
//! without meaning for the dialect left out.

#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they expect")]

use serde_json::{Map, Value, json};

use super::Codex;
use crate::coding::dialect::{AgentEvent, Approval, CliDialect, CodingRequest, DialectOutput};

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

/// All that is made of a recording, with every approval answered by the choice that this names.
fn heard(ask: CodingRequest, recording: &str, choice: &str) -> DialectOutput {
    let (mut codex, mut out) = (Codex::new(ask), DialectOutput::default());
    codex.open(&mut out);
    for line in recording.lines() {
        let before = out.events.len();
        codex.hear(line, &mut out).unwrap();
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
        | AgentEvent::ToolUse { .. }
        | AgentEvent::ToolResult { .. }
        | AgentEvent::Retry { .. }
        | AgentEvent::Done { .. }
        | AgentEvent::Background(_)
        | AgentEvent::Error(_) => None,
    });
    approvals.collect()
}

#[test]
fn work_is_told_as_it_happens() {
    let out = heard(CodingRequest { force: true, ..ask() }, WORK, "accept");
    let text = |text: &str| AgentEvent::Text(text.to_owned());
    let Some((AgentEvent::Done { summary, stats }, events)) = out.events.split_last() else {
        panic!("it is not done: {out:?}");
    };
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
            AgentEvent::ToolUse { name: "shell".to_owned() },
            AgentEvent::ToolResult { output: "found\n".to_owned() },
            text("\n\n"),
            text("There "),
            text("is "),
            text("nothing. "),
        ]
    );
    assert_eq!(summary.as_deref(), Some("There is nothing."));
    assert_eq!(stats["inputTokens"], 20, "of both calls to the model: {stats:?}");
    assert_eq!(stats["totalTokens"], 30);
    assert!(stats.contains_key("durationMs"));
    assert!(out.is_closed, "nothing more is wanted");
}

#[test]
fn a_thread_is_started_with_nothing_of_the_caller_on_the_command_line() {
    assert_eq!(Codex::new(ask()).arguments(), ["app-server"]);
    let out = heard(CodingRequest { model: Some("large".to_owned()), ..ask() }, WORK, "accept");
    let lines = lines(&out);
    let said: Vec<_> = lines.iter().map(|line| line["method"].as_str().unwrap()).collect();
    assert_eq!(said, ["initialize", "initialized", "thread/start", "turn/start"]);
    let asks = json!({
        "model": "large", "cwd": "/repo", "approvalPolicy": "on-request", "sandbox": "read-only"
    });
    assert_eq!(lines[2]["params"], asks, "without force nothing is changed unasked");
    let input = json!([{ "type": "text", "text": "Look around" }]);
    assert_eq!(lines[3]["params"], json!({ "threadId": "id-1", "input": input }));
}

#[test]
fn with_force_nobody_is_asked_and_a_profile_may_choose_the_sandbox() {
    let forced = |settings: Map<String, Value>| {
        lines(&heard(CodingRequest { force: true, settings, ..ask() }, WORK, "accept"))[2]["params"]
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
fn a_session_is_taken_up_and_only_the_new_turn_is_counted() {
    let out = heard(CodingRequest { session: Some("id-1".to_owned()), ..ask() }, RESUMED, "accept");
    let lines = lines(&out);
    assert_eq!(lines[2]["method"], "thread/resume");
    assert_eq!(lines[2]["params"]["threadId"], "id-1");
    let Some(AgentEvent::Done { summary, stats }) = out.events.last() else {
        panic!("it is not done: {out:?}");
    };
    assert_eq!(summary.as_deref(), Some("Still nothing."));
    assert_eq!(stats["totalTokens"], 15, "the thread has cost 45 so far");
}

#[test]
fn a_session_that_codex_has_forgotten_is_lost() {
    let out =
        heard(CodingRequest { session: Some("id-1".to_owned()), ..ask() }, FORGOTTEN, "accept");
    assert_eq!(out.events, [AgentEvent::SessionLost]);
    assert!(out.is_closed);
}

#[test]
fn what_the_model_refuses_is_told_in_its_words() {
    let out = heard(ask(), REFUSED, "accept");
    let Some(AgentEvent::Error(why)) = out.events.last() else { panic!("it went well: {out:?}") };
    assert!(why.starts_with("unexpected status 401 Unauthorized"), "{why}");
    assert!(out.is_closed);
}

#[test]
fn commands_files_and_tools_are_asked_for() {
    let out = heard(ask(), APPROVALS, "accept");
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
fn a_choice_that_lasts_is_offered_where_codex_has_one_and_never_one_that_changes_its_rules() {
    let out = heard(ask(), APPROVALS, "decline");
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
fn changes_too_large_to_be_shown_are_named() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let long = "x".repeat(40 << 10);
    for line in APPROVALS.lines() {
        let changes = r#"{"path":"/repo/patched.txt","kind":{"type":"add"},"diff":"hello\n"}"#;
        let two = format!(r#"{{"path":"a","diff":"{long}"}},{{"path":"b","diff":"{long}"}}"#);
        codex.hear(&line.replace(changes, &two), &mut out).unwrap();
    }
    let approval = approvals(&out)[1];
    assert_eq!(approval.prompt, "apply_patch: a, b");
    assert_eq!(approval.detail["changes"][0]["diff"], long);
    assert_eq!(approval.detail["changes"][1], json!({ "path": "b" }));
}

#[test]
fn what_nobody_here_can_do_is_refused_and_forms_are_declined() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let form = r#"{"method":"mcpServer/elicitation/request","id":"a","params":{"message":"Who?",
        "requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}"#;
    codex.hear(form, &mut out).unwrap();
    codex.hear(r#"{"method":"attestation/generate","id":7,"params":{}}"#, &mut out).unwrap();
    let lines = lines(&out);
    assert_eq!(lines[0], json!({ "id": "a", "result": { "action": "decline", "content": null } }));
    assert_eq!((&lines[1]["id"], &lines[1]["error"]["code"]), (&json!(7), &json!(-32601)));
    assert_eq!(out.events, []);
}

#[test]
fn helpers_of_its_own_are_not_mistaken_for_the_answer() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let (begin, rest) = WORK.split_at(WORK.find("\n{\"method\":\"item/").unwrap());
    let helper = rest.replace("id-1", "id-of-helper");
    for line in begin.lines().chain(helper.trim().lines()) {
        codex.hear(line, &mut out).unwrap();
    }
    assert!(matches!(out.events[..], [AgentEvent::Init { .. }]), "{out:?}");
    assert!(!out.is_closed);
}

#[test]
fn a_cancelled_turn_is_interrupted() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    for line in WORK.lines().take(5) {
        codex.hear(line, &mut out).unwrap();
    }
    codex.cancel(&mut out);
    let interrupt = lines(&out).pop().unwrap();
    assert_eq!(interrupt["method"], "turn/interrupt");
    assert_eq!(interrupt["params"], json!({ "threadId": "id-1", "turnId": "id-2" }));
    assert!(out.is_closed);
}

#[test]
fn what_is_not_understood_is_passed_over_unless_it_is_waited_for() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let new = r#"{"method":"item/started","params":{"threadId":"id-1","item":{"type":"dance"}}}"#;
    let strange = r#"{"method":"item/completed","params":{"threadId":"id-1","item":7}}"#;
    for line in ["Segmentation fault", "[]", new, strange] {
        codex.hear(line, &mut out).unwrap();
    }
    let asks = r#"{"method":"item/fileChange/requestApproval","id":3,"params":[]}"#;
    codex.hear(asks, &mut out).unwrap();
    assert_eq!(lines(&out)[0]["error"]["code"], -32601, "whoever asks is answered");
    assert_eq!(out.events, []);
    let end = r#"{"method":"turn/completed","params":{"threadId":"id-1","turn":"over"}}"#;
    let failure = codex.hear(end, &mut out).unwrap_err();
    assert_eq!(failure.kind, "said something that is not understood");
}

#[test]
fn a_model_that_does_not_answer_is_told_of_each_time() {
    let out = heard(ask(), RETRY, "accept");
    let retry = |attempt| AgentEvent::Retry { attempt, most: None };
    assert_eq!(out.events[1..], [retry(1), retry(2)]);
}
