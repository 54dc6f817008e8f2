//! Recorded output of the app server of Codex 0.166.0 with a scripted model; ids are shortened and lines
//! without meaning for the dialect left out.

#![expect(clippy::disallowed_methods, reason = "json! is how tests write what they expect")]

use serde_json::{Map, Value, json};

use super::Codex;
use crate::coding::{
    activity::{AgentActivity, ModelRetry, PlanStep, StepStatus, ToolEnd, ToolKind, ToolStart},
    dialect::{
        AgentEvent, Approval, ApprovalAnswer, ApprovalChoice, ApprovalKind, CliDialect,
        CodingRequest, DialectOutput,
    },
};

const WORK: &str = include_str!("../recorded/codex-work.jsonl");
const RESUMED: &str = include_str!("../recorded/codex-resumed.jsonl");
const APPROVALS: &str = include_str!("../recorded/codex-approvals.jsonl");
const REFUSED: &str = include_str!("../recorded/codex-refused.jsonl");
const RETRY: &str = include_str!("../recorded/codex-retry.jsonl");
const FORGOTTEN: &str = include_str!("../recorded/codex-forgotten.jsonl");

/// Label of the choice for the rest of the session.
const AGAIN: &str = "Yes, and do not ask again in this task";

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
            codex.answer(&approval.clone(), &chosen.into(), &mut out);
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
    let started = AgentActivity::ToolStarted(ToolStart {
        id: "c1".to_owned(),
        name: "shell".to_owned(),
        kind: ToolKind::Execute,
        title: Some(command.to_owned()),
        input: Some(json!({ "command": command })),
        ..ToolStart::default()
    });
    let ended = AgentActivity::ToolEnded(ToolEnd {
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
        "cacheWriteTokens": 0,
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
fn unsupported_requests_are_refused_and_unknown_forms_are_declined() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    let form = r#"{"method":"mcpServer/elicitation/request","id":"a","params":{"message":"Who?",
        "requestedSchema":{"type":"object","properties":{"name":{"type":"object"}}}}}"#;
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
fn each_retry_of_the_model_is_an_event_with_its_cause() {
    let out = play(ask(), RETRY, "accept");
    let retry = |retry| AgentEvent::Activity(AgentActivity::Retry(retry));
    let lost = |attempt| ModelRetry {
        attempt,
        error: Some("Connection failed: error sending request".to_owned()),
        ..ModelRetry::default()
    };
    assert_eq!(out.events[1..], [retry(lost(1)), retry(lost(2))]);

    let counted = RETRY
        .replace("Reconnecting... waiting for network", "Reconnecting... 2/5")
        .replace(r#""httpStatusCode":null"#, r#""httpStatusCode":429"#)
        .replace(r#""Connection failed: error sending request""#, "null");
    let out = play(ask(), &counted, "accept");
    let limited = ModelRetry {
        attempt: 2,
        most: Some(5),
        status: Some(429),
        error: Some("Reconnecting... 2/5".to_owned()),
        delay_ms: None,
    };
    assert_eq!(out.events[1], retry(limited));
}

/// The answer to a steer, and the end of a turn.
const TAKEN: &str = r#"{"id":6,"result":{"turnId":"id-2"}}"#;
const NOT_TAKEN: &str = r#"{"id":6,"error":{"code":-32600,"message":"no active turn to steer"}}"#;

/// Lines of [`WORK`] until the turn has begun, and a dialect that has handled them.
fn at_work() -> (Codex, DialectOutput) {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    for line in WORK.lines().take(4) {
        codex.handle_line(line, &mut out).unwrap();
    }
    out.lines.clear();
    (codex, out)
}

fn end_of_turn() -> &'static str {
    WORK.lines().last().unwrap()
}

#[test]
fn a_message_in_the_middle_of_the_work_reaches_the_turn() {
    let (mut codex, mut out) = (Codex::new(ask()), DialectOutput::default());
    for line in WORK.lines().take(2) {
        codex.handle_line(line, &mut out).unwrap();
    }
    assert!(!codex.can_steer(), "the turn has not begun");
    let (mut codex, mut out) = at_work();
    assert!(codex.can_steer());
    codex.steer("one", &[], &mut out);
    codex.steer("two", &[], &mut out);
    let sent = lines(&out);
    let input = json!([{ "type": "text", "text": "one" }]);
    let params = json!({ "threadId": "id-1", "expectedTurnId": "id-2", "input": input });
    assert_eq!(sent, [json!({ "id": 6, "method": "turn/steer", "params": params })]);
    codex.handle_line(TAKEN, &mut out).unwrap();
    assert_eq!(lines(&out)[1]["params"]["input"][0]["text"], "two");
    codex.handle_line(TAKEN, &mut out).unwrap();
    codex.handle_line(end_of_turn(), &mut out).unwrap();
    assert!(matches!(out.events.last(), Some(AgentEvent::Done(_))), "{out:?}");
    assert!(!codex.can_steer());
}

#[test]
fn a_message_that_the_turn_did_not_take_gets_a_turn_of_its_own() {
    // Codex refuses it before or after the end of the turn.
    for order in [[NOT_TAKEN, end_of_turn()], [end_of_turn(), NOT_TAKEN]] {
        let (mut codex, mut out) = at_work();
        codex.steer("one", &[], &mut out);
        out.lines.clear();
        for line in order {
            assert!(out.lines.is_empty());
            codex.handle_line(line, &mut out).unwrap();
        }
        let sent = lines(&out);
        assert_eq!(sent[0]["method"], "turn/start");
        assert_eq!(sent[0]["params"]["input"][0]["text"], "one");
        assert!(!out.is_closed);
        let begun = r#"{"id":4,"result":{"turn":{"id":"id-3"}}}"#;
        codex.handle_line(begun, &mut out).unwrap();
        codex.handle_line(end_of_turn(), &mut out).unwrap();
        let Some(AgentEvent::Done(result)) = out.events.last() else { panic!("{out:?}") };
        assert_eq!(result.usage.duration_ms, Some(2 * 654), "of both turns");
        assert!(out.is_closed);
    }
}

/// The events for these parameters of notifications of the thread, by method.
fn notified(notices: &[(&str, Value)]) -> Vec<AgentEvent> {
    let (mut codex, mut out) = at_work();
    out.events.clear();
    for (method, params) in notices {
        codex.handle_line(&notice(method, params), &mut out).unwrap();
    }
    out.events
}

fn notice(method: &str, params: &Value) -> String {
    let mut params = params.clone();
    let members = params.as_object_mut().unwrap();
    members.entry("threadId").or_insert_with(|| "id-1".into());
    members.insert("turnId".to_owned(), "id-2".into());
    json!({ "method": method, "params": params }).to_string()
}

#[test]
fn plans_and_thoughts_are_activities() {
    let plan = json!({ "explanation": null, "plan": [
        { "step": "read", "status": "completed" },
        { "step": "write", "status": "inProgress" },
        { "step": "test", "status": "pending" },
    ] });
    let thought = json!({ "item": {
        "type": "reasoning", "id": "r1", "summary": ["First.", "Then."], "content": [],
    } });
    let silent =
        json!({ "item": { "type": "reasoning", "id": "r2", "summary": [], "content": [] } });
    let events = notified(&[
        ("turn/plan/updated", plan),
        ("item/completed", thought),
        ("item/completed", silent),
    ]);
    let step = |text: &str, status| PlanStep { text: text.to_owned(), status };
    let steps = vec![
        step("read", StepStatus::Completed),
        step("write", StepStatus::InProgress),
        step("test", StepStatus::Pending),
    ];
    let expected =
        [AgentActivity::Plan(steps), AgentActivity::Thinking("First.\n\nThen.".to_owned())];
    assert_eq!(events, expected.map(AgentEvent::Activity));
}

#[test]
fn changes_of_files_have_a_unified_diff() {
    let change =
        |path: &str, kind: Value, diff: &str| json!({ "path": path, "kind": kind, "diff": diff });
    let changes = [
        change("/repo/new", json!({ "type": "add" }), "one\n"),
        change("/repo/old", json!({ "type": "delete" }), "one\n"),
        change(
            "/repo/here",
            json!({ "type": "update", "move_path": "/repo/there" }),
            "@@ -1 +1 @@\n-a\n+b\n\n\nMoved to: /repo/there",
        ),
    ];
    let item = json!({ "type": "fileChange", "id": "f1", "status": "failed", "changes": changes });
    let events = notified(&[
        ("item/started", json!({ "item": item })),
        ("item/completed", json!({ "item": item })),
    ]);
    let [
        AgentEvent::Activity(AgentActivity::ToolStarted(start)),
        AgentEvent::Activity(AgentActivity::ToolEnded(end)),
    ] = events.as_slice()
    else {
        panic!("{events:?}")
    };
    let paths: Vec<_> = start.locations.iter().map(|location| &*location.path).collect();
    assert_eq!(
        paths,
        ["/repo/new", "/repo/old", "/repo/here", "/repo/there"],
        "also the target of a move"
    );
    assert!(end.is_error);
    let diff = "--- /dev/null\n+++ /repo/new\n@@ -0,0 +1,1 @@\n+one\n\
                --- /repo/old\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-one\n\
                --- /repo/here\n+++ /repo/there\n@@ -1 +1 @@\n-a\n+b\n";
    assert_eq!(end.diff.as_deref(), Some(diff));
}

#[test]
fn tool_calls_of_a_subagent_name_the_call_that_started_it() {
    let spawn = json!({ "item": {
        "type": "collabAgentToolCall", "id": "s1", "tool": "spawnAgent", "status": "completed",
        "senderThreadId": "id-1", "receiverThreadIds": ["id-7"], "prompt": "Look", "agentsStates": {
            "id-7": { "status": "running", "message": null }
        },
    } });
    let activity = json!({ "item": {
        "type": "subAgentActivity", "id": "s2", "kind": "started", "agentThreadId": "id-8",
        "agentPath": "/main/helper",
    } });
    let over = json!({ "item": {
        "type": "subAgentActivity", "id": "s3", "kind": "completed", "agentThreadId": "id-8",
        "agentPath": "/main/helper",
    } });
    let view = |thread: &str| json!({ "threadId": thread, "item": { "type": "imageView", "id": "v", "path": "/a.png" } });
    let events = notified(&[
        ("item/started", spawn.clone()),
        ("item/completed", spawn),
        ("item/completed", activity),
        ("item/started", view("id-7")),
        ("item/started", view("id-8")),
        ("item/started", view("id-9")),
        ("item/completed", over),
    ]);
    let shown = events.iter().map(|event| {
        let AgentEvent::Activity(activity) = event else { panic!("{event:?}") };
        if let AgentActivity::ToolStarted(start) = activity {
            return (&*start.id, &*start.name, start.parent.as_deref());
        }
        let AgentActivity::ToolEnded(end) = activity else { panic!("{event:?}") };
        (&*end.id, &*end.output, None)
    });
    let expected = [
        ("s1", "spawnAgent", None),
        ("s1", "running", None),
        ("s2", "subagent", None),
        ("v", "view_image", Some("s1")),
        ("v", "view_image", Some("s2")),
        ("s2", "completed", None),
    ];
    assert_eq!(shown.collect::<Vec<_>>(), expected);
}

/// The questions and the last line to Codex for a request with these answers: a choice, or own words.
fn answered(method: &str, params: &Value, answers: &[&str]) -> (Vec<Approval>, Value) {
    let (mut codex, mut out) = at_work();
    out.events.clear();
    let line = json!({ "method": method, "id": 9, "params": params }).to_string();
    codex.handle_line(&line, &mut out).unwrap();
    let mut asked = Vec::new();
    for answer in answers {
        let Some(AgentEvent::Approval(approval)) = out.events.pop() else { panic!("{out:?}") };
        let chosen = approval.choices.iter().find(|choice| choice.label == *answer).cloned();
        let decision = chosen.map_or_else(
            || ApprovalAnswer {
                choice: ApprovalChoice { grants: true, ..ApprovalChoice::default() },
                words: Some((*answer).to_owned()),
            },
            ApprovalAnswer::from,
        );
        codex.answer(&approval, &decision, &mut out);
        asked.push(approval);
    }
    assert_eq!(out.events, []);
    (asked, lines(&out).pop().unwrap())
}

#[test]
fn questions_of_the_model_are_asked_one_after_the_other() {
    let question = |id: &str, options: Value| {
        json!({
            "id": id, "header": "h", "question": format!("Which {id}?"), "isOther": true,
            "isSecret": false, "options": options,
        })
    };
    let colours =
        json!([{ "label": "Red", "description": "" }, { "label": "Blue", "description": "" }]);
    let questions = json!([
        question("colour", colours),
        question("name", Value::Null),
        question("size", json!([]))
    ]);
    let (asked, sent) = answered(
        "item/tool/requestUserInput",
        &json!({ "itemId": "q1", "questions": questions }),
        &["Blue", "Mauve", "No answer"],
    );
    assert_eq!(asked[0].prompt, "Which colour?");
    assert_eq!(asked[0].kind, ApprovalKind::Question);
    let labels: Vec<_> = asked[0].choices.iter().map(|choice| &*choice.label).collect();
    assert_eq!(labels, ["Red", "Blue", "No answer"]);
    let answers = json!({ "colour": { "answers": ["Blue"] }, "name": { "answers": ["Mauve"] } });
    assert_eq!(sent, json!({ "id": 9, "result": { "answers": answers } }));
}

#[test]
fn fields_of_a_form_are_asked_one_after_the_other() {
    let properties = json!({
        "a_size": { "type": "integer", "title": "Size", "description": "in cm" },
        "b_colour": { "type": "string", "enum": ["r", "b"], "enumNames": ["Red", "Blue"] },
        "c_tags": { "type": "array", "items": { "anyOf": [
            { "const": "x", "title": "Ex" }, { "const": "y", "title": "Why" },
        ] } },
        "d_sure": { "type": "boolean" },
        "e_note": { "type": "string" },
    });
    let form = json!({
        "threadId": "id-1", "serverName": "brush", "mode": "form", "message": "Paint",
        "requestedSchema": { "type": "object", "properties": properties, "required": ["d_sure"] },
    });
    let method = "mcpServer/elicitation/request";
    // A size that is not a number is asked for once more.
    let answers = ["large", "7", "Blue", "ex, Why", "Yes", "No answer"];
    let (asked, sent) = answered(method, &form, &answers);
    assert_eq!(asked[0].prompt, "Paint – Size (in cm)");
    assert_eq!(asked[1], asked[0]);
    assert_eq!(asked[3].kind, ApprovalKind::MultipleChoice);
    let content = json!({ "a_size": 7, "b_colour": "b", "c_tags": ["x", "y"], "d_sure": true });
    assert_eq!(sent["result"], json!({ "action": "accept", "content": content }));

    let (_, sent) = answered(method, &form, &["No answer", "No answer", "No answer", "No answer"]);
    let declined = json!({ "action": "decline", "content": null });
    assert_eq!(sent["result"], declined, "a required field has no answer");
}

#[test]
fn permissions_are_granted_as_they_were_requested_or_not_at_all() {
    let params = json!({
        "threadId": "id-1", "itemId": "p1", "cwd": "/repo", "reason": "to fetch",
        "permissions": { "network": { "enabled": true }, "fileSystem": null },
    });
    for (answer, permissions, scope) in [
        ("Yes", json!({ "network": { "enabled": true } }), "turn"),
        (AGAIN, json!({ "network": { "enabled": true } }), "session"),
        ("No", json!({}), "turn"),
    ] {
        let (asked, sent) = answered("item/permissions/requestApproval", &params, &[answer]);
        assert_eq!(asked[0].prompt, r#"permissions: {"network":{"enabled":true}} (to fetch)"#);
        assert_eq!(sent["result"], json!({ "permissions": permissions, "scope": scope }));
    }
}

#[test]
fn rules_see_the_command_without_its_shell_and_every_file() {
    for (command, subject) in [
        ("/bin/bash -lc 'touch made'", "touch made"),
        (r#"bash -lc "echo 'a b'""#, "echo 'a b'"),
        (r#"/usr/bin/zsh -c 'say "'"it's"'"; rm -r .'"#, r#"say "it's"; rm -r ."#),
        ("touch made", "touch made"),
        ("/bin/bash -lc 'touch' made", "/bin/bash -lc 'touch' made"),
    ] {
        let params = json!({ "command": command });
        let (asked, _) = answered("item/commandExecution/requestApproval", &params, &["No"]);
        let tool = asked[0].tool.as_ref().unwrap();
        assert_eq!((&*tool.subject, tool.kind), (subject, ToolKind::Execute));
    }
}
