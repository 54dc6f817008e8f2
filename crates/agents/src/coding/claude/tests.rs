use serde_json::json;

use super::*;

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

/// The events and the lines to Claude Code for these lines of it, with the same choice for each question.
fn play(ask: CodingRequest, lines: &str, choice: usize) -> (Vec<AgentEvent>, Vec<Value>) {
    let (mut claude, mut out) = (Claude::new(ask), DialectOutput::default());
    let mut answered = 0;
    for line in lines.lines() {
        claude.handle_line(line, &mut out).unwrap();
        while let Some(AgentEvent::Approval(approval)) = out.events.get(answered).cloned() {
            answered += 1;
            claude.answer(&approval, &approval.choices[choice], &mut out);
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
    let tools = events.iter().filter(|event| matches!(event, AgentEvent::ToolUse { .. }));
    assert_eq!(tools.collect::<Vec<_>>(), [&AgentEvent::ToolUse { name: "Bash".to_owned() }]);
    assert!(events.contains(&AgentEvent::ToolResult { output: "done it".to_owned() }));
    let Some(AgentEvent::Done { summary, stats }) = events.last() else { panic!("{events:?}") };
    assert_eq!(summary.as_deref(), Some("Hello there, you."));
    let expected = json!({
        "durationMs": 931, "turns": 2, "costUsd": 0.0011, "inputTokens": 20,
        "outputTokens": 40, "cacheReadTokens": 0, "cacheWriteTokens": 0,
    });
    assert_eq!(Value::from(stats.clone()), expected);
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

    let (_, sent) = play(CodingRequest::default(), TOOL, 2);
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
    assert!(first_approval(&events).is_question);
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
        let ends = |event: &&AgentEvent| matches!(event, AgentEvent::Done { .. });
        assert_eq!(out.events.iter().filter(ends).count(), 1);
        let Some(AgentEvent::Done { summary, stats }) = out.events.last() else {
            panic!("{:?}", out.events)
        };
        assert_eq!(summary.as_deref(), Some("Notified: all is done."));
        assert_eq!((&stats["turns"], &stats["outputTokens"]), (&json!(3), &json!(60)));
        assert!(out.is_closed);
    }
}

#[test]
fn a_result_of_earlier_work_does_not_end_the_message() {
    let session = Some("c29277ad-1b20-400a-9e4e-f4343e8782ff".to_owned());
    let (events, _) = play(CodingRequest { session, ..CodingRequest::default() }, STALE, 0);
    let ends = |event: &&AgentEvent| matches!(event, AgentEvent::Done { .. });
    assert_eq!(events.iter().filter(ends).count(), 1);
    let Some(AgentEvent::Done { summary, stats }) = events.last() else { panic!("{events:?}") };
    assert_eq!(summary.as_deref(), Some("Notified: all is done."));
    assert_eq!(stats["turns"], 1);
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
    assert_eq!(out.events.last(), Some(&AgentEvent::Background(vec!["bg".to_owned()])));
    claude.finish_idle(&mut out);
    let Some(AgentEvent::Done { summary, .. }) = out.events.last() else { panic!() };
    assert_eq!(summary.as_deref(), Some("First result: launched."));
    // A turn that has begun is not ended by silence.
    let mut claude = Claude::new(CodingRequest::default());
    for line in LISTED.lines().take_while(|line| !line.contains("Notified")) {
        claude.handle_line(line, &mut out).unwrap();
    }
    assert!(!claude.is_idle());
}

#[test]
fn each_retry_of_the_model_is_an_event() {
    let (events, _) = play(CodingRequest::default(), RETRY, 0);
    let retry = |attempt| AgentEvent::Retry { attempt, most: Some(10) };
    assert_eq!(events[1..], [retry(1), retry(2)]);
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
    claude.answer(&first, &first.choices[0], &mut out);
    let [_, AgentEvent::Approval(second)] = &out.events[..] else { panic!("{:?}", out.events) };
    assert!(second.id.starts_with("00000000"));
}

#[test]
fn an_error_has_the_agents_message_and_is_not_text_of_the_answer() {
    let (events, _) = play(CodingRequest::default(), REFUSED, 0);
    assert_eq!(texts(&events), "");
    let error = AgentEvent::Error("Invalid API key · Fix external API key".to_owned());
    assert_eq!(events.last(), Some(&error));
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
