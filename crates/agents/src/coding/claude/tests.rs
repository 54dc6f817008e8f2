use serde_json::json;

use super::*;
use crate::coding::{
    activity::{PlanStep, StepStatus, ToolKind, ToolLocation, ToolStart},
    dialect::ApprovalKind,
};

// Recorded from Claude Code 2.1.197, without the members that are not used.
const TOOL: &str = include_str!("../recorded/claude-tool.jsonl");
const QUESTION: &str = include_str!("../recorded/claude-ask.jsonl");
const REFUSED: &str = include_str!("../recorded/claude-error.jsonl");
const LOST: &str = include_str!("../recorded/claude-lost.jsonl");
const RETRY: &str = include_str!("../recorded/claude-retry.jsonl");
const BACKGROUND: &str = include_str!("../recorded/claude-background-2.1.197.jsonl");
// Recorded from 2.1.325: a command that ends after the turn that started it, one that ends within
// it, and a message after a process that was killed while such a command ran.
const LISTED: &str = include_str!("../recorded/claude-background.jsonl");
const ENDED_WITHIN: &str = include_str!("../recorded/claude-background-fast.jsonl");
const STALE: &str = include_str!("../recorded/claude-stale.jsonl");
// Recorded from 2.1.325: thoughts, edits, a failed command, a to-do list and a retry; the next message of that
// session; a message in the middle of the work.
const ACTIVITY: &str = include_str!("../recorded/claude-activity.jsonl");
const RESUMED: &str = include_str!("../recorded/claude-resumed.jsonl");
const STEERED: &str = include_str!("../recorded/claude-steer.jsonl");

/// The events and the lines to Claude Code for these lines of it, with the same choice for each question.
fn play(ask: CodingRequest, lines: &str, choice: usize) -> (Vec<AgentEvent>, Vec<Value>) {
    let (mut claude, mut out) = (Claude::new(ask), DialectOutput::default());
    let mut answered = 0;
    for line in lines.lines() {
        claude.handle_line(line, &mut out).unwrap();
        while let Some(AgentEvent::Approval(approval)) = out.events.get(answered).cloned() {
            answered += 1;
            claude.answer(&approval, &approval.choices[choice].clone().into(), &mut out);
        }
        answered = out.events.len();
    }
    let sent = String::from_utf8(out.lines).unwrap();
    (out.events, sent.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn texts(events: &[AgentEvent]) -> String {
    let mut all = String::new();
    for event in events {
        if let AgentEvent::Text(text) = event {
            all.push_str(text);
        }
    }
    all
}

/// The activities.
fn activities(events: &[AgentEvent]) -> Vec<&AgentActivity> {
    let activities = events.iter().filter_map(|event| match event {
        AgentEvent::Activity(activity) => Some(activity),
        AgentEvent::Init { .. }
        | AgentEvent::SessionLost
        | AgentEvent::Text(_)
        | AgentEvent::Approval(_)
        | AgentEvent::Done(_)
        | AgentEvent::Error { .. } => None,
    });
    activities.collect()
}

/// The result, which is the last event and the only one.
fn result(events: &[AgentEvent]) -> &CodingResult {
    let ends = events.iter().filter(|event| matches!(event, AgentEvent::Done(_)));
    assert_eq!(ends.count(), 1, "{events:?}");
    let Some(AgentEvent::Done(result)) = events.last() else { panic!("{events:?}") };
    result
}

/// A dialect that has written its message.
fn opened() -> (Claude, DialectOutput) {
    let (mut claude, mut out) = (Claude::new(CodingRequest::default()), DialectOutput::default());
    claude.open(&mut out);
    (claude, out)
}

/// The first approval.
fn first_approval(events: &[AgentEvent]) -> &Approval {
    let is_question = |event: &&AgentEvent| matches!(event, AgentEvent::Approval(_));
    let Some(AgentEvent::Approval(approval)) = events.iter().find(is_question) else {
        panic!("{events:?}")
    };
    approval
}

#[test]
fn system_events_of_unknown_form_are_ignored() {
    let ask = CodingRequest { profile: Some("reviewer".to_owned()), ..CodingRequest::default() };
    let lines = r#"{"type":"system","subtype":"init","session_id":"s","agents":[{"name":"reviewer"}]}
        {"type":"system","subtype":"api_retry","attempt":"first"}
        {"type":"system","subtype":"api_retry"}
        {"type":"system","subtype":"session_state_changed","state":{"is":"idle"}}
        {"type":"system","subtype":"background_tasks_changed","tasks":{"one":"task"}}
        {"type":"system","subtype":"task_started","task_id":7}
        {"type":"system","subtype":"task_notification","task_id":7}"#;
    let begun = AgentEvent::Init { model: None, session: Some("s".to_owned()) };
    assert_eq!(play(ask, lines, 0).0, [begun]);
}

#[test]
fn lines_become_events_once_each() {
    let (events, sent) = play(CodingRequest { force: true, ..CodingRequest::default() }, TOOL, 0);
    assert_eq!(
        events[0],
        AgentEvent::Init {
            model: Some("claude-opus-4-8[1m]".to_owned()),
            session: Some("f31acf28-d77a-4aa3-a063-201f6cb8fe3a".to_owned()),
        }
    );
    assert_eq!(texts(&events), "Let me look.\n\nHello there, you.");
    let command = "touch made.txt && echo done it";
    let started = AgentActivity::ToolStarted(ToolStart {
        id: "toolu_1".to_owned(),
        name: "Bash".to_owned(),
        kind: ToolKind::Execute,
        title: Some(command.to_owned()),
        input: Some(json!({ "command": command, "description": "Run it" })),
        ..ToolStart::default()
    });
    let ended = AgentActivity::ToolEnded(ToolEnd {
        id: "toolu_1".to_owned(),
        output: "done it".to_owned(),
        ..ToolEnd::default()
    });
    assert_eq!(activities(&events), [&started, &ended]);
    let CodingResult { summary, usage, .. } = result(&events);
    assert_eq!(summary.as_deref(), Some("Hello there, you."));
    let expected = json!({
        "durationMs": 931, "turns": 2, "costUsd": 0.0011, "inputTokens": 20, "outputTokens": 40,
        "cacheReadTokens": 0, "cacheWriteTokens": 0, "totalTokens": 60,
    });
    assert_eq!(serde_json::to_value(usage).unwrap(), expected);
    // With `force` nobody is asked.
    assert!(!events.iter().any(|event| matches!(event, AgentEvent::Approval(_))));
    assert_eq!(sent[0]["response"]["response"]["behavior"], "allow");
}

#[test]
fn without_force_the_caller_decides() {
    let (events, sent) = play(CodingRequest::default(), TOOL, 0);
    let approval = first_approval(&events);
    assert_eq!(approval.prompt, "Bash: touch made.txt && echo done it");
    assert_eq!(approval.detail["input"]["command"], "touch made.txt && echo done it");
    let response = &sent[0]["response"];
    assert_eq!(response["request_id"], approval.id.as_str());
    assert_eq!(response["response"]["updatedInput"], approval.detail["input"]);
    assert_eq!(response["response"]["updatedPermissions"], json!([]));

    // "Do not ask again" is limited to this run: neither settings nor modes change.
    let (_, sent) = play(CodingRequest::default(), TOOL, 1);
    let rules = sent[0]["response"]["response"]["updatedPermissions"].as_array().unwrap();
    assert_eq!(rules.len(), 2);
    assert!(rules.iter().all(|rule| rule["destination"] == "session"));

    let (_, sent) = play(CodingRequest::default(), TOOL, 3);
    assert_eq!(sent[0]["response"]["response"]["behavior"], "deny");
}

#[test]
fn questions_of_the_agent_offer_its_own_options() {
    let (events, sent) = play(CodingRequest::default(), QUESTION, 0);
    let labels: Vec<_> =
        first_approval(&events).choices.iter().map(|choice| &*choice.label).collect();
    assert_eq!(labels, ["Red", "Blue", "No answer"]);
    let input = &sent[0]["response"]["response"]["updatedInput"];
    assert_eq!(input["answers"], json!({ "Which color?": "Red" }));
}

#[test]
fn an_option_may_have_the_name_of_our_own_choice() {
    // Rules that come with a question must not be granted by its answer.
    let rules = r#""permission_suggestions":[{"type":"addRules"}],"tool_name""#;
    let lines = QUESTION.replace("Red", "always").replace(r#""tool_name""#, rules);
    let (events, sent) = play(CodingRequest::default(), &lines, 0);
    assert_eq!(first_approval(&events).kind, ApprovalKind::Question);
    let response = &sent[0]["response"]["response"];
    assert_eq!(response["updatedInput"]["answers"], json!({ "Which color?": "always" }));
    assert_eq!(response["updatedPermissions"], json!([]));
}

#[test]
fn the_work_ends_with_the_turn_after_its_last_background_task() {
    for lines in [BACKGROUND, LISTED, ENDED_WITHIN] {
        let (mut claude, mut out) =
            (Claude::new(CodingRequest::default()), DialectOutput::default());
        for line in lines.lines() {
            assert!(!out.is_closed, "before {line}");
            claude.handle_line(line, &mut out).unwrap();
        }
        let CodingResult { summary, usage, .. } = result(&out.events);
        assert_eq!(summary.as_deref(), Some("Notified: all is done."));
        assert_eq!((usage.turns, usage.output_tokens), (Some(3), Some(60)));
        assert!(out.is_closed);
    }
}

#[test]
fn a_result_of_earlier_work_does_not_end_the_message() {
    let session = Some("c29277ad-1b20-400a-9e4e-f4343e8782ff".to_owned());
    let (events, _) = play(CodingRequest { session, ..CodingRequest::default() }, STALE, 0);
    let CodingResult { summary, usage, .. } = result(&events);
    assert_eq!(summary.as_deref(), Some("Notified: all is done."));
    assert_eq!(usage.turns, Some(1));
}

#[test]
fn silence_ends_the_work_if_no_turn_follows_a_background_task() {
    let (mut claude, mut out) = (Claude::new(CodingRequest::default()), DialectOutput::default());
    for line in LISTED.lines() {
        if claude.is_idle() {
            break;
        }
        claude.handle_line(line, &mut out).unwrap();
    }
    let background = AgentActivity::Background(vec!["bg".to_owned()]);
    assert_eq!(out.events.last(), Some(&AgentEvent::Activity(background)));
    claude.finish_idle(&mut out);
    assert_eq!(result(&out.events).summary.as_deref(), Some("First result: launched."));
    // A turn that has begun is not ended by silence.
    let mut claude = Claude::new(CodingRequest::default());
    for line in LISTED.lines().take_while(|line| !line.contains("Notified")) {
        claude.handle_line(line, &mut out).unwrap();
    }
    assert!(!claude.is_idle());
}

#[test]
fn each_retry_of_the_model_is_an_event_with_its_cause() {
    let (events, _) = play(CodingRequest::default(), RETRY, 0);
    let retry = |attempt, delay_ms| {
        AgentActivity::Retry(ModelRetry {
            attempt,
            most: Some(10),
            status: None,
            error: Some("unknown".to_owned()),
            delay_ms: Some(delay_ms),
        })
    };
    assert_eq!(activities(&events), [&retry(1, 583), &retry(2, 1198)]);

    let (events, _) = play(CodingRequest::default(), ACTIVITY, 0);
    let overloaded = AgentActivity::Retry(ModelRetry {
        attempt: 1,
        most: Some(10),
        status: Some(529),
        error: Some("overloaded".to_owned()),
        delay_ms: Some(531),
    });
    assert!(activities(&events).contains(&&overloaded), "{events:?}");
}

#[test]
fn thoughts_changes_of_files_failures_and_plans_are_activities() {
    let (events, _) = play(CodingRequest::default(), ACTIVITY, 0);
    let activities = activities(&events);
    assert_eq!(activities[0], &AgentActivity::Thinking("let me think".to_owned()));
    let path = "/repo/a.txt";
    let edits = |id: &str, name: &str, input: Value| {
        AgentActivity::ToolStarted(ToolStart {
            id: id.to_owned(),
            name: name.to_owned(),
            kind: ToolKind::Edit,
            title: Some(path.to_owned()),
            input: Some(input),
            locations: vec![ToolLocation { path: path.to_owned(), line: None }],
            ..ToolStart::default()
        })
    };
    let write = json!({ "file_path": path, "content": "one\ntwo\n" });
    assert_eq!(activities[1], &edits("toolu_1_2", "Write", write));
    let ends = activities.iter().filter_map(|activity| match activity {
        AgentActivity::ToolEnded(end) => Some((&*end.id, end.is_error, end.diff.as_deref())),
        AgentActivity::ToolStarted(_)
        | AgentActivity::Plan(_)
        | AgentActivity::Thinking(_)
        | AgentActivity::Retry(_)
        | AgentActivity::Background(_)
        | AgentActivity::SessionLost
        | AgentActivity::Steered => None,
    });
    let made = "--- /dev/null\n+++ /repo/a.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n";
    let changed = "--- /repo/a.txt\n+++ /repo/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n";
    let expected = [
        ("toolu_1_2", false, Some(made)),
        ("toolu_2_0", false, Some(changed)),
        ("toolu_2_1", true, None),
        // This version does not have the tool.
        ("toolu_3_0", true, None),
    ];
    assert_eq!(ends.collect::<Vec<_>>(), expected);
    let step = |text: &str, status| PlanStep { text: text.to_owned(), status };
    let steps = vec![step("read", StepStatus::Completed), step("write", StepStatus::InProgress)];
    assert!(activities.contains(&&AgentActivity::Plan(steps)), "{activities:?}");
}

#[test]
fn a_tool_call_of_a_subagent_names_its_parent() {
    let lines = r#"{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"inner"},{"type":"thinking","thinking":"inner"},{"type":"tool_use","id":"toolu_2","name":"Read","input":{}}]},"parent_tool_use_id":"toolu_1"}"#;
    let (events, _) = play(CodingRequest::default(), lines, 0);
    let [AgentEvent::Activity(AgentActivity::ToolStarted(start))] = events.as_slice() else {
        panic!("text and thoughts of a subagent are not told: {events:?}")
    };
    assert_eq!(start.parent.as_deref(), Some("toolu_1"));
}

#[test]
fn the_usage_of_a_resumed_session_is_that_of_the_message() {
    let (events, _) = play(CodingRequest::default(), RESUMED, 0);
    let usage = &result(&events).usage;
    assert_eq!(usage.cost_usd, Some(0.000_210_599_999_999_999_97), "the session cost 0.001053");
    let tokens = (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens);
    assert_eq!(tokens, (Some(15), Some(3), Some(2)));
    assert_eq!(usage.total_tokens, Some(23));
    assert!(usage.raw.contains_key("claude-opus-5-5"));
}

#[test]
fn a_message_in_the_middle_of_the_work_is_written_and_the_work_goes_on_until_it_was_read() {
    let (mut claude, mut out) = opened();
    let mut lines = STEERED.lines();
    assert!(!claude.can_steer(), "the version is not known yet");
    for line in lines.by_ref().take(4) {
        claude.handle_line(line, &mut out).unwrap();
    }
    assert!(claude.can_steer());
    out.lines.clear();
    claude.steer("also say STEER", &[], &mut out);
    let sent: Value = serde_json::from_slice(&out.lines).unwrap();
    assert_eq!(sent["type"], "user");
    assert_eq!(sent["message"]["content"][0]["text"], "also say STEER");
    // The turn ends before the message was read: another turn follows.
    let end = STEERED.lines().rev().take(2).collect::<Vec<_>>();
    for line in end.into_iter().rev() {
        claude.handle_line(line, &mut out).unwrap();
    }
    assert!(!claude.is_idle());
    assert!(!out.is_closed);
    let read: Vec<_> = STEERED.lines().rev().take(4).collect();
    for line in read.into_iter().rev() {
        assert!(!out.is_closed, "before {line}");
        claude.handle_line(line, &mut out).unwrap();
    }
    assert!(out.is_closed);
    assert_eq!(result(&out.events).usage.turns, Some(4), "of both turns");
}

#[test]
fn the_work_may_end_with_the_answer_although_a_background_task_runs() {
    let (mut claude, mut out) = opened();
    let until_answer = LISTED.lines().take_while(|line| !line.contains("task_updated"));
    for line in until_answer {
        claude.handle_line(line, &mut out).unwrap();
    }
    assert!(!out.is_closed);
    claude.end_background(&mut out);
    assert!(out.is_closed);
    assert_eq!(result(&out.events).summary.as_deref(), Some("First result: launched."));
}

#[test]
fn the_answer_before_a_background_task_is_the_result_so_far() {
    let (mut claude, mut out) = opened();
    assert_eq!(claude.result_so_far(), None);
    for line in LISTED.lines().take_while(|line| !line.contains("task_updated")) {
        claude.handle_line(line, &mut out).unwrap();
    }
    let so_far = claude.result_so_far().unwrap();
    assert_eq!(so_far.summary.as_deref(), Some("First result: launched."));
    assert_eq!(so_far.usage.total_tokens, Some(60));
}

#[test]
fn an_unknown_agent_name_is_an_error() {
    let handle = |agent: &str| {
        let ask = CodingRequest { profile: Some(agent.to_owned()), ..CodingRequest::default() };
        let mut out = DialectOutput::default();
        Claude::new(ask).handle_line(RETRY.lines().next().unwrap(), &mut out)
    };
    assert_eq!(handle("Plan"), Ok(()));
    assert_eq!(handle("plain").unwrap_err().kind, "has no agent `plain`");
}

#[test]
fn approvals_are_asked_one_after_the_other() {
    let (mut claude, mut out) = (Claude::new(CodingRequest::default()), DialectOutput::default());
    let asks = TOOL.lines().find(|line| line.contains("can_use_tool")).unwrap();
    claude.handle_line(asks, &mut out).unwrap();
    claude.handle_line(&asks.replace("4d5f0c15", "00000000"), &mut out).unwrap();
    let [AgentEvent::Approval(first)] = &out.events[..] else { panic!("{:?}", out.events) };
    let first = first.clone();
    claude.answer(&first, &first.choices[0].clone().into(), &mut out);
    let [_, AgentEvent::Approval(second)] = &out.events[..] else { panic!("{:?}", out.events) };
    assert!(second.id.starts_with("00000000"));
}

#[test]
fn an_error_has_the_agents_message_and_is_not_text_of_the_answer() {
    let (events, _) = play(CodingRequest::default(), REFUSED, 0);
    assert_eq!(texts(&events), "");
    let Some(AgentEvent::Error { message, usage }) = events.last() else { panic!("{events:?}") };
    assert_eq!(message, "Invalid API key · Fix external API key");
    assert!(usage.duration_ms.is_some(), "the figures until then: {usage:?}");
}

#[test]
fn a_missing_session_is_reported_as_lost() {
    let session = Some("186179ba-0511-463d-bf2f-6b7b75e5388f".to_owned());
    let (events, _) = play(CodingRequest { session, ..CodingRequest::default() }, LOST, 0);
    assert_eq!(events, [AgentEvent::SessionLost]);
}

#[test]
fn a_text_in_pieces_or_started_over_is_emitted_whole() {
    let piece = |text: &str| {
        let delta = json!({ "type": "text_delta", "text": text });
        let event = json!({ "type": "content_block_delta", "index": 0, "delta": delta });
        json!({ "type": "stream_event", "event": event, "parent_tool_use_id": null })
    };
    let whole = |text: &str| {
        let content = json!([{ "type": "text", "text": text }]);
        json!({ "type": "assistant", "message": { "role": "assistant", "content": content } })
    };
    for (lines, expected) in [
        (vec![piece("Hel"), whole("Hello")], "Hello"),
        // Two halves of a character came in two pieces.
        (vec![piece("a\u{fffd}"), piece("\u{fffd}b"), whole("a🦀b.")], "a\u{fffd}\u{fffd}b."),
        (vec![piece("Goo"), whole("Hello")], "Goo\n\nHello"),
        (vec![whole("One"), whole("Two")], "One\n\nTwo"),
    ] {
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        let (events, _) = play(CodingRequest::default(), &lines.join("\n"), 0);
        assert_eq!(texts(&events), expected);
    }
}

#[test]
fn the_command_line_contains_nothing_of_the_caller() {
    let ask = CodingRequest {
        text: "--version".to_owned(),
        session: Some("s".to_owned()),
        model: Some("sonnet".to_owned()),
        ..CodingRequest::default()
    };
    let arguments = Claude::new(ask).arguments();
    assert!(!arguments.contains(&"--version".to_owned()));
    assert!(arguments.ends_with(&["--model=sonnet".to_owned(), "--resume=s".to_owned()]));
}
