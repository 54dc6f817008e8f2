#![expect(clippy::disallowed_methods, reason = "json! is how tests write values")]

use std::path::PathBuf;

use serde_json::json;

use super::{
    super::{
        activity::{StepStatus, ToolEnd, ToolKind, ToolLocation, ToolStart},
        gemini, opencode,
    },
    *,
};

/// Answer of Gemini CLI 0.61.0 to `initialize`, shortened.
const GEMINI: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"authMethods":[{"id":"oauth-personal","name":"Log in with Google","description":"Log in with your Google account"},{"id":"gemini-api-key","name":"Gemini API key","description":"Use an API key with Gemini Developer API","_meta":{"api-key":{"provider":"google"}}}],"agentInfo":{"name":"gemini-cli","title":"Gemini CLI","version":"0.61.0"},"agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true,"audio":true,"embeddedContext":true},"mcpCapabilities":{"http":true,"sse":true}}}}"#;

/// Its answer to `session/new`.
const GEMINI_SESSION: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"7444b436-ae7f","modes":{"availableModes":[{"id":"default","name":"Default","description":"Prompts for approval"},{"id":"yolo","name":"YOLO","description":"Auto-approves all tools"}],"currentModeId":"default"},"models":{"availableModels":[{"modelId":"auto","name":"Auto"},{"modelId":"gemini-2.5-pro","name":"gemini-2.5-pro"}],"currentModelId":"auto"}}}"#;

/// Its request to run a command.
const GEMINI_WANTS: &str = r#"{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"7444b436-ae7f","options":[{"optionId":"proceed_always","name":"Allow for this session","kind":"allow_always"},{"optionId":"proceed_once","name":"Allow","kind":"allow_once"},{"optionId":"cancel","name":"Reject","kind":"reject_once"}],"toolCall":{"toolCallId":"run_1","status":"pending","title":"touch made-it && echo out","content":[{"type":"content","content":{"type":"text","text":"[current working directory /w]"}}],"locations":[],"kind":"execute"}}}"#;

/// Answer of OpenCode 1.18.33 to `initialize`.
const OPENCODE: &str = r#"{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"mcpCapabilities":{"http":true,"sse":true},"promptCapabilities":{"embeddedContext":true,"image":true},"sessionCapabilities":{"close":{},"fork":{},"list":{},"resume":{}}},"authMethods":[{"description":"Run `opencode auth login` in the terminal","name":"Login with opencode","id":"opencode-login"}],"agentInfo":{"name":"OpenCode","version":"1.18.33"}}}"#;

/// Its answer to `session/new`, shortened.
const OPENCODE_SESSION: &str = r#"{"jsonrpc":"2.0","id":2,"result":{"sessionId":"ses_e1d1","configOptions":[{"id":"model","name":"Model","category":"model","type":"select","currentValue":"scripted/m1","options":[{"value":"scripted/m1","name":"Scripted/M1"}]},{"id":"mode","name":"Session Mode","category":"mode","type":"select","currentValue":"build","options":[{"value":"build","name":"build"},{"value":"plan","name":"plan"}]}]}}"#;

fn ask() -> CodingRequest {
    CodingRequest {
        text: "hello".to_owned(),
        directory: PathBuf::from("/w"),
        ..CodingRequest::default()
    }
}

/// The lines to the agent and the events for these lines of it.
fn play(acp: &mut Acp, lines: &[&str]) -> (Vec<Value>, Vec<AgentEvent>) {
    let mut out = DialectOutput::default();
    for line in lines {
        acp.handle_line(line, &mut out).unwrap();
    }
    output(out)
}

fn output(out: DialectOutput) -> (Vec<Value>, Vec<AgentEvent>) {
    let lines = String::from_utf8(out.lines).unwrap();
    let lines = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, out.events)
}

/// The failure that the last line causes.
fn failure(acp: &mut Acp, lines: &[&str]) -> Failure {
    let (last, before) = lines.split_last().unwrap();
    play(acp, before);
    acp.handle_line(last, &mut DialectOutput::default()).unwrap_err()
}

fn update(update: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"session/update","params":{{"sessionId":"s","update":{update}}}}}"#
    )
}

fn answer(acp: &mut Acp, approval: &Approval, choice: usize) -> (Vec<Value>, Vec<AgentEvent>) {
    let mut out = DialectOutput::default();
    acp.answer(approval, &approval.choices[choice].clone().into(), &mut out);
    output(out)
}

/// The start of a command.
fn started(id: &str, title: &str, input: Option<Value>) -> AgentEvent {
    AgentEvent::Activity(AgentActivity::ToolStarted(ToolStart {
        id: id.to_owned(),
        name: "execute".to_owned(),
        kind: ToolKind::Execute,
        title: Some(title.to_owned()),
        locations: input.iter().map(|_| location("/w", None)).collect(),
        input,
        ..ToolStart::default()
    }))
}

fn location(path: &str, line: Option<u64>) -> ToolLocation {
    ToolLocation { path: path.to_owned(), line }
}

/// A piece of the answer, or of the reasoning.
fn chunk(kind: &str, text: &str) -> String {
    let content = json!({ "type": "text", "text": text });
    update(&json!({ "sessionUpdate": kind, "content": content }).to_string())
}

fn ended(id: &str, output: &str) -> AgentEvent {
    let (id, output) = (id.to_owned(), output.to_owned());
    AgentEvent::Activity(AgentActivity::ToolEnded(ToolEnd { id, output, ..ToolEnd::default() }))
}

/// Opens everything up to the prompt, whose number is then 4.
fn at_work(ask: CodingRequest) -> Acp {
    let mut acp = gemini::dialect(ask);
    acp.open(&mut DialectOutput::default());
    play(&mut acp, &[GEMINI, GEMINI_SESSION, r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
    acp
}

#[test]
fn an_image_is_sent_to_agents_that_accept_images() {
    let image = Image {
        media_type: "image/png".to_owned(),
        path: "/tmp/0-a.png".into(),
        data: "iVBORw0KGgo=".to_owned(),
    };
    for (takes, blocks) in [(true, 2), (false, 1)] {
        let mut acp = gemini::dialect(CodingRequest { images: vec![image.clone()], ..ask() });
        acp.open(&mut DialectOutput::default());
        let can = GEMINI.replace(r#""image":true"#, &format!(r#""image":{takes}"#));
        play(&mut acp, &[&can, GEMINI_SESSION]);
        let (sent, _) = play(&mut acp, &[r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
        let prompt = sent[0]["params"]["prompt"].as_array().unwrap();
        assert_eq!(prompt.len(), blocks, "{prompt:?}");
        if takes {
            let shown = json!({ "type": "image", "mimeType": "image/png", "data": "iVBORw0KGgo=" });
            assert_eq!(prompt[1], shown);
        }
    }
}

#[test]
fn a_turn_of_gemini_cli_with_an_approval_becomes_events() {
    let mut acp = gemini::dialect(ask());
    let mut out = DialectOutput::default();
    acp.open(&mut out);
    let (sent, _) = output(out);
    let initialize = &sent[0]["params"];
    assert_eq!(sent[0]["method"], "initialize");
    assert_eq!(initialize["protocolVersion"], 1);
    assert_eq!(initialize["clientCapabilities"], json!({}), "no files, no terminals");

    let (sent, _) = play(&mut acp, &[GEMINI]);
    let params = json!({ "cwd": "/w", "mcpServers": [] });
    let new = json!({ "jsonrpc": "2.0", "id": 2, "method": "session/new", "params": params });
    assert_eq!(sent, [new]);

    let (sent, events) = play(&mut acp, &[GEMINI_SESSION]);
    assert_eq!(sent[0]["method"], "session/set_mode");
    assert_eq!(sent[0]["params"], json!({ "sessionId": "7444b436-ae7f", "modeId": "default" }));
    assert_eq!(events, []);

    let commands = update(
        r#"{"sessionUpdate":"available_commands_update","availableCommands":[{"name":"memory","description":"Manage memory."}]}"#,
    );
    let (sent, events) = play(&mut acp, &[&commands, r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
    assert_eq!(sent[0]["method"], "session/prompt");
    assert_eq!(sent[0]["params"]["prompt"], json!([{ "type": "text", "text": "hello" }]));
    let (model, session) = (Some("auto".to_owned()), Some("7444b436-ae7f".to_owned()));
    assert_eq!(events, [AgentEvent::Init { model, session }]);

    let (sent, events) = play(&mut acp, &[GEMINI_WANTS]);
    assert_eq!(sent, [] as [Value; 0], "it waits");
    let [AgentEvent::Approval(approval)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(approval.prompt, "execute: touch made-it && echo out");
    let ids: Vec<_> = approval.choices.iter().map(|choice| choice.id.as_str()).collect();
    assert_eq!(ids, ["proceed_once", "proceed_always", "cancel"], "yes means this once");
    let grants: Vec<_> = approval.choices.iter().map(|choice| choice.grants).collect();
    assert_eq!(grants, [true, true, false]);
    assert_eq!(approval.detail["kind"], "execute");

    let (sent, events) = answer(&mut acp, approval, 0);
    let outcome = json!({ "outcome": "selected", "optionId": "proceed_once" });
    let result = json!({ "outcome": outcome });
    assert_eq!(sent, [json!({ "jsonrpc": "2.0", "id": 0, "result": result })]);
    assert_eq!(events, [started("run_1", "touch made-it && echo out", None)]);

    let (_, events) = play(
        &mut acp,
        &[
            &update(
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"run_1","status":"completed","title":"touch made-it && echo out","content":[],"locations":[],"kind":"execute"}"#,
            ),
            &update(
                r#"{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"hm"}}"#,
            ),
            &update(
                r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"All done."}}"#,
            ),
            r#"{"jsonrpc":"2.0","id":4,"result":{"stopReason":"end_turn","_meta":{"quota":{"token_count":{"input_tokens":20,"output_tokens":10},"model_usage":[]}}}}"#,
        ],
    );
    let [used, thought, text, done] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(thought, &AgentEvent::Activity(AgentActivity::Thinking("hm".to_owned())));
    assert_eq!(used, &ended("run_1", "done"));
    assert_eq!(text, &AgentEvent::Text("All done.".to_owned()));
    let AgentEvent::Done(result) = done else { panic!("{done:?}") };
    assert_eq!(result.summary.as_deref(), Some("All done."));
    let raw = json!({ "usage": { "input_tokens": 20, "output_tokens": 10 } });
    let usage = json!({ "inputTokens": 20, "outputTokens": 10, "totalTokens": 30, "raw": raw });
    assert_eq!(serde_json::to_value(&result.usage).unwrap(), usage);
}

#[test]
fn the_replay_of_a_loaded_session_is_ignored() {
    let session = Some("7444b436-ae7f".to_owned());
    let mut acp = gemini::dialect(CodingRequest { session: session.clone(), ..ask() });
    acp.open(&mut DialectOutput::default());
    let (sent, _) = play(&mut acp, &[GEMINI]);
    assert_eq!(sent[0]["method"], "session/load");
    // See gemini.rs for the space.
    assert_eq!(sent[0]["params"]["sessionId"], " 7444b436-ae7f");

    let refused =
        r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Authentication required"}}"#;
    let (sent, _) = play(&mut acp, &[refused]);
    assert_eq!(sent[0]["method"], "authenticate");
    assert_eq!(sent[0]["params"], json!({ "methodId": "gemini-api-key" }));
    let (sent, _) = play(&mut acp, &[r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
    assert_eq!(sent[0]["method"], "session/load");

    let first = update(
        r#"{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"hello"}}"#,
    );
    let again = update(
        r#"{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"First."}}"#,
    );
    let loaded = r#"{"jsonrpc":"2.0","id":4,"result":{"modes":{"availableModes":[],"currentModeId":"default"},"models":{"availableModels":[],"currentModelId":"auto"}}}"#;
    let chosen = r#"{"jsonrpc":"2.0","id":5,"result":{}}"#;
    let (sent, events) = play(&mut acp, &[&first, loaded, &again, chosen]);
    assert_eq!(events, [AgentEvent::Init { model: Some("auto".to_owned()), session }]);
    assert_eq!(sent[1]["params"]["sessionId"], " 7444b436-ae7f");

    let second = again.replace("First", "Second");
    let (_, events) = play(&mut acp, &[&second]);
    assert_eq!(events, [AgentEvent::Text("Second.".to_owned())]);
}

#[test]
fn a_turn_of_opencode_in_a_resumed_session_becomes_events() {
    let (session, model) = (Some("ses_e1d1".to_owned()), Some("scripted/m1".to_owned()));
    let profile = Some("plan".to_owned());
    let chosen = CodingRequest { session: session.clone(), model: model.clone(), profile, ..ask() };
    let mut acp = opencode::dialect(chosen);
    acp.open(&mut DialectOutput::default());
    let (sent, _) = play(&mut acp, &[OPENCODE]);
    assert_eq!(sent[0]["method"], "session/resume", "a resumed session is not replayed");
    let (sent, _) = play(&mut acp, &[OPENCODE_SESSION]);
    assert_eq!(sent[0]["method"], "session/set_config_option");
    let params = json!({ "sessionId": "ses_e1d1", "configId": "model", "value": "scripted/m1" });
    assert_eq!(sent[0]["params"], params);
    let (sent, _) = play(&mut acp, &[r#"{"jsonrpc":"2.0","id":3,"result":{}}"#]);
    assert_eq!(sent[0]["params"]["value"], "plan");
    let (sent, events) = play(&mut acp, &[r#"{"jsonrpc":"2.0","id":4,"result":{}}"#]);
    assert_eq!(sent[0]["method"], "session/prompt");
    assert_eq!(events, [AgentEvent::Init { model, session }]);

    let (sent, events) = play(
        &mut acp,
        &[
            &update(
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"msg_1","content":{"type":"text","text":"I look."}}"#,
            ),
            &update(
                r#"{"sessionUpdate":"tool_call","toolCallId":"call_1","title":"bash","kind":"execute","status":"pending","locations":[{"path":"/w"}],"rawInput":{"cwd":"/w"}}"#,
            ),
            &update(
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"in_progress","kind":"execute","title":"touch made-it && echo out","rawInput":{"command":"touch made-it && echo out"},"content":[{"type":"content","content":{"type":"text","text":"out\n"}}]}"#,
            ),
            &update(
                r#"{"sessionUpdate":"tool_call_update","toolCallId":"call_1","status":"completed","title":"touch made-it && echo out","content":[{"type":"content","content":{"type":"text","text":"out\n"}}],"rawOutput":{"output":"out\n","metadata":{"output":"out\n","exit":0,"truncated":false}}}"#,
            ),
            &update(
                r#"{"sessionUpdate":"agent_message_chunk","messageId":"msg_2","content":{"type":"text","text":"All done."}}"#,
            ),
            &update(
                r#"{"sessionUpdate":"usage_update","used":10,"size":100000,"cost":{"amount":0.00004,"currency":"USD"}}"#,
            ),
            r#"{"jsonrpc":"2.0","id":5,"result":{"stopReason":"end_turn","usage":{"inputTokens":10,"outputTokens":5,"totalTokens":15},"_meta":{}}}"#,
        ],
    );
    assert_eq!(sent, [] as [Value; 0]);
    let stats = json!({
        "cost": { "amount": 0.00004, "currency": "USD" },
        "usage": { "inputTokens": 10, "outputTokens": 5, "totalTokens": 15 },
    });
    let Value::Object(raw) = stats else { panic!("it is an object") };
    let expected = [
        AgentEvent::Text("I look.".to_owned()),
        started(
            "call_1",
            "touch made-it && echo out",
            Some(json!({ "command": "touch made-it && echo out" })),
        ),
        ended("call_1", "out\n"),
        AgentEvent::Text("\n\nAll done.".to_owned()),
        AgentEvent::Done(CodingResult {
            summary: Some("All done.".to_owned()),
            usage: RunUsage {
                input_tokens: Some(10),
                output_tokens: Some(5),
                total_tokens: Some(15),
                // The cost is that of the session, and that of the earlier messages is not known.
                cost_usd: None,
                raw,
                ..RunUsage::default()
            },
            ..CodingResult::default()
        }),
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_session_that_cannot_be_reopened_is_lost() {
    let refused = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32603,"message":"Internal error: OpenCode service failure","data":{"service":"session"}}}"#;
    // Or the agent cannot reopen any.
    let forgetful = OPENCODE.replace(r#""loadSession":true"#, r#""loadSession":false"#);
    let forgetful = forgetful.replace(r#","resume":{}"#, "");
    for lines in [&[OPENCODE, refused][..], &[&forgetful]] {
        let session = Some("gone".to_owned());
        let mut acp = opencode::dialect(CodingRequest { session, ..ask() });
        acp.open(&mut DialectOutput::default());
        let (sent, events) = play(&mut acp, lines);
        assert_eq!(events, [AgentEvent::SessionLost]);
        assert!(sent.iter().all(|line| line["method"] != "session/new"), "{sent:?}");
    }
}

#[test]
fn plans_and_thoughts_are_activities() {
    let plan = update(
        r#"{"sessionUpdate":"plan","entries":[{"content":"read","priority":"high","status":"completed"},{"content":"write","priority":"low","status":"in_progress"}]}"#,
    );
    let (think, speak) = ("agent_thought_chunk", "agent_message_chunk");
    let (_, events) = play(
        &mut at_work(ask()),
        &[
            &chunk(think, "I sho"),
            &chunk(think, "uld plan."),
            &plan,
            &chunk(think, "Now."),
            &chunk(speak, "Hello"),
        ],
    );
    let step = |text: &str, status| PlanStep { text: text.to_owned(), status };
    let steps = vec![step("read", StepStatus::Completed), step("write", StepStatus::InProgress)];
    let expected = [
        AgentEvent::Activity(AgentActivity::Thinking("I should plan.".to_owned())),
        AgentEvent::Activity(AgentActivity::Plan(steps)),
        AgentEvent::Activity(AgentActivity::Thinking("Now.".to_owned())),
        AgentEvent::Text("Hello".to_owned()),
    ];
    assert_eq!(events, expected);
}

#[test]
fn a_tool_call_has_its_name_its_parent_its_input_and_its_diff() {
    let announced = update(
        r#"{"sessionUpdate":"tool_call","toolCallId":"t1","title":"Edit","kind":"edit","status":"pending","rawInput":{},"_meta":{"claudeCode":{"toolName":"MultiEdit","parentToolUseId":"t0"}}}"#,
    );
    let known = update(
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t1","title":"Edit a.txt","rawInput":{"file_path":"/w/a.txt"},"locations":[{"path":"/w/a.txt","line":3}]}"#,
    );
    let done = update(
        r#"{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed","content":[{"type":"diff","path":"/w/a.txt","oldText":"one\n","newText":"two\n"},{"type":"diff","path":"/w/b.txt","newText":"new\n"}]}"#,
    );
    let failed = update(
        r#"{"sessionUpdate":"tool_call","toolCallId":"t2","title":"paint","kind":"other","status":"failed","rawOutput":"no brush"}"#,
    );
    let mut acp = at_work(ask());
    assert_eq!(play(&mut acp, &[&announced]).1, [], "its input is not known yet");
    let (_, events) = play(&mut acp, &[&known, &done, &done, &failed]);
    let edits = ToolStart {
        id: "t1".to_owned(),
        parent: Some("t0".to_owned()),
        name: "MultiEdit".to_owned(),
        kind: ToolKind::Edit,
        title: Some("Edit a.txt".to_owned()),
        input: Some(json!({ "file_path": "/w/a.txt" })),
        locations: vec![location("/w/a.txt", Some(3))],
    };
    let diff = "--- /w/a.txt\n+++ /w/a.txt\n@@ -1,1 +1,1 @@\n-one\n+two\n\
                --- /dev/null\n+++ /w/b.txt\n@@ -0,0 +1,1 @@\n+new\n";
    let edited = ToolEnd {
        id: "t1".to_owned(),
        is_error: false,
        output: "/w/a.txt\n/w/b.txt".to_owned(),
        diff: Some(diff.to_owned()),
    };
    let paints = ToolStart {
        id: "t2".to_owned(),
        name: "paint".to_owned(),
        title: Some("paint".to_owned()),
        ..ToolStart::default()
    };
    let unpainted =
        ToolEnd { id: "t2".to_owned(), is_error: true, output: "no brush".to_owned(), diff: None };
    let expected = [
        AgentActivity::ToolStarted(edits),
        AgentActivity::ToolEnded(edited),
        AgentActivity::ToolStarted(paints),
        AgentActivity::ToolEnded(unpainted),
    ];
    assert_eq!(events, expected.map(AgentEvent::Activity));
}

#[test]
fn rules_see_the_command_or_the_files() {
    let subject = |call: &str| {
        let wants = GEMINI_WANTS.replace(
            r#""title":"touch made-it && echo out""#,
            &format!(r#""title":"Do it",{call}"#),
        );
        let (_, events) = play(&mut at_work(ask()), &[&wants]);
        let [AgentEvent::Approval(approval)] = events.as_slice() else { panic!("{events:?}") };
        approval.tool.as_ref().unwrap().subject.clone()
    };
    assert_eq!(subject(r#""x":0"#), "Do it");
    assert_eq!(subject(r#""rawInput":{"command":"make"}"#), "make");
    let mut acp = at_work(ask());
    let edit = r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","options":[],"toolCall":{"toolCallId":"x","kind":"edit","title":"Edit","locations":[{"path":"/w/b"}],"content":[{"type":"diff","path":"/w/a","newText":""},{"type":"diff","path":"/w/b","newText":""}]}}}"#;
    let (_, events) = play(&mut acp, &[edit]);
    let [AgentEvent::Approval(approval)] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(approval.tool.as_ref().unwrap().subject, "/w/a\n/w/b");
}

#[test]
fn a_denial_that_ends_the_work_is_not_a_failure() {
    for (reason, texts, summary) in [
        ("cancelled", &[][..], "The request was denied: execute: touch made-it && echo out"),
        ("end_turn", &[], "The request was denied: execute: touch made-it && echo out"),
        ("end_turn", &["I stop."], "I stop."),
    ] {
        let mut acp = at_work(ask());
        let before = chunk("agent_message_chunk", "Let me.");
        let (_, events) = play(&mut acp, &[&before, GEMINI_WANTS]);
        let Some(AgentEvent::Approval(approval)) = events.last() else { panic!("{events:?}") };
        answer(&mut acp, approval, 2);
        for text in texts {
            let (_, events) = play(&mut acp, &[&chunk("agent_message_chunk", text)]);
            assert_eq!(events, [AgentEvent::Text(format!("\n\n{text}"))]);
        }
        let end = format!(r#"{{"id":4,"result":{{"stopReason":"{reason}"}}}}"#);
        let (_, events) = play(&mut acp, &[&end]);
        let [AgentEvent::Done(result)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(result.summary.as_deref(), Some(summary));
    }
}

#[test]
fn the_cost_of_a_run_is_that_of_the_session_without_the_earlier_runs() {
    let cost = |amount: f64| {
        let cost = json!({ "amount": amount, "currency": "USD" });
        update(
            &json!({ "sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": cost })
                .to_string(),
        )
    };
    let end = |id: u64| format!(r#"{{"id":{id},"result":{{"stopReason":"end_turn"}}}}"#);
    let total = |events: Vec<AgentEvent>| match events.as_slice() {
        [.., AgentEvent::Done(result)] => result.usage.cost_usd,
        events => panic!("{events:?}"),
    };
    let (_, events) = play(&mut at_work(ask()), &[&cost(0.25), &cost(0.5), &end(4)]);
    assert_eq!(total(events), Some(0.5), "of a new session");

    let session = Some("ses_e1d1".to_owned());
    let mut acp = opencode::dialect(CodingRequest { session, ..ask() });
    acp.open(&mut DialectOutput::default());
    let (_, events) =
        play(&mut acp, &[OPENCODE, &cost(0.5), OPENCODE_SESSION, &cost(0.75), &end(3)]);
    assert_eq!(total(events), Some(0.25), "of a resumed session");
}

#[test]
fn tokens_of_the_cache_and_of_reasoning_are_part_of_the_input_and_the_output() {
    let tokens = |figures: Value| {
        let usage = wire::tokens(figures.as_object().unwrap());
        (usage.input_tokens, usage.output_tokens, usage.total_tokens)
    };
    let counted = (Some(15), Some(7), Some(22));
    let apart = json!({
        "inputTokens": 10, "cachedReadTokens": 3, "cachedWriteTokens": 2, "outputTokens": 5,
        "thoughtTokens": 2, "totalTokens": 22,
    });
    assert_eq!(tokens(apart), counted);
    let within = json!({
        "inputTokens": 15, "cachedReadTokens": 5, "outputTokens": 7, "thoughtTokens": 2,
        "totalTokens": 22,
    });
    assert_eq!(tokens(within), counted);
}

#[test]
fn permissions_are_asked_one_after_the_other() {
    let mut acp = at_work(ask());
    let second = GEMINI_WANTS.replace(r#""id":0"#, r#""id":"b""#).replace("run_1", "run_2");
    let (_, events) = play(&mut acp, &[GEMINI_WANTS, &second]);
    let [AgentEvent::Approval(first)] = events.as_slice() else { panic!("{events:?}") };
    let (sent, events) = answer(&mut acp, first, 2);
    assert_eq!(sent[0]["result"]["outcome"]["optionId"], "cancel");
    let [AgentEvent::Approval(second)] = events.as_slice() else { panic!("{events:?}") };
    let (sent, _) = answer(&mut acp, second, 1);
    assert_eq!(sent[0]["id"], "b");
    assert_eq!(sent[0]["result"]["outcome"]["optionId"], "proceed_always");
}

#[test]
fn with_force_every_permission_is_granted_without_a_question() {
    let mut acp = at_work(CodingRequest { force: true, ..ask() });
    let (sent, events) = play(&mut acp, &[GEMINI_WANTS]);
    assert_eq!(sent[0]["result"]["outcome"]["optionId"], "proceed_once");
    assert_eq!(events, [started("run_1", "touch made-it && echo out", None)]);
    assert!(opencode::dialect(ask()).variables()[0].1.contains("ask"));
    assert_eq!(opencode::dialect(CodingRequest { force: true, ..ask() }).variables(), []);
}

#[test]
fn a_denial_is_offered_even_if_the_agent_offers_none() {
    let mut acp = at_work(ask());
    let wants = r#"{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"s","options":[{"optionId":"go","name":"Go on","kind":"allow_once"}],"toolCall":{"toolCallId":"x"}}}"#;
    let (_, events) = play(&mut acp, &[wants]);
    let [AgentEvent::Approval(approval)] = events.as_slice() else { panic!("{events:?}") };
    assert!(!approval.choices[1].grants);
    let (sent, events) = answer(&mut acp, approval, 1);
    assert_eq!(sent[0]["result"], json!({ "outcome": { "outcome": "cancelled" } }));
    assert_eq!(events, []);
}

#[test]
fn a_cancelled_turn_answers_pending_permissions() {
    let mut acp = at_work(ask());
    play(&mut acp, &[GEMINI_WANTS]);
    let mut out = DialectOutput::default();
    acp.cancel(&mut out);
    let (sent, _) = output(out);
    assert_eq!(sent[0]["result"]["outcome"]["outcome"], "cancelled");
    assert_eq!(sent[1]["method"], "session/cancel");
    assert!(sent[1].get("id").is_none(), "a notification: {sent:?}");
}

#[test]
fn unsupported_methods_are_refused_and_other_lines_ignored() {
    let mut acp = at_work(ask());
    let wants = r#"{"jsonrpc":"2.0","id":"f","method":"fs/read_text_file","params":{"path":"/etc/passwd"}}"#;
    let odd =
        r#"{"jsonrpc":"2.0","id":8,"method":"session/request_permission","params":{"options":[]}}"#;
    let (sent, events) = play(
        &mut acp,
        &["Loading…", "", "[]", r#"{"jsonrpc":"2.0","method":"later"}"#, wants, odd],
    );
    let codes: Vec<_> = sent.iter().map(|line| &line["error"]["code"]).collect();
    assert_eq!(codes, [METHOD_NOT_FOUND, INVALID_PARAMS]);
    assert_eq!(sent[0]["id"], "f");
    assert_eq!(events, []);
}

#[test]
fn each_failed_step_has_its_own_failure() {
    let open = || {
        let mut acp = gemini::dialect(ask());
        acp.open(&mut DialectOutput::default());
        acp
    };
    let old = failure(&mut open(), &[r#"{"id":1,"result":{"protocolVersion":2}}"#]);
    assert!(old.kind.starts_with("has version 2"), "{old:?}");
    let deaf = failure(&mut open(), &[r#"{"id":1,"error":{"code":-32601,"message":"what?"}}"#]);
    assert_eq!(deaf.kind, "does not support the Agent Client Protocol");
    let unsigned = failure(
        &mut open(),
        &[
            GEMINI,
            r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32000,"message":"Gemini API key is missing or not configured."}}"#,
        ],
    );
    assert_eq!(unsigned.kind, "needs a login; its methods are: Log in with Google, Gemini API key");
    let message = unsigned.message.as_deref();
    assert_eq!(message, Some("Gemini API key is missing or not configured."));
    let odd = failure(&mut open(), &[GEMINI, r#"{"id":2,"result":{}}"#]);
    assert!(odd.kind.starts_with("wrote a message that violates"), "{odd:?}");
    let mut unknown =
        gemini::dialect(CodingRequest { profile: Some("nonsense".to_owned()), ..ask() });
    unknown.open(&mut DialectOutput::default());
    let unknown = failure(
        &mut unknown,
        &[
            GEMINI,
            GEMINI_SESSION,
            r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"Internal error","data":{"details":"Invalid or unavailable mode: nonsense"}}}"#,
        ],
    );
    assert_eq!(unknown.kind, "refused the mode `nonsense`");
    let message = unknown.message.as_deref();
    assert_eq!(message, Some("Internal error: Invalid or unavailable mode: nonsense"));
    let mut plain = opencode::dialect(CodingRequest { model: Some("m".to_owned()), ..ask() });
    plain.open(&mut DialectOutput::default());
    let without = r#"{"id":2,"result":{"sessionId":"s"}}"#;
    let without = failure(&mut plain, &[OPENCODE, without]);
    assert_eq!(without.kind, "has no choice of model; `m` is configured");
    let error = |line: &str| {
        let (_, events) = play(&mut at_work(ask()), &[line]);
        let [AgentEvent::Error { message, usage }] = events.as_slice() else {
            panic!("{events:?}")
        };
        (message.clone(), usage.clone())
    };
    for reason in ["max_tokens", "max_turn_requests", "refusal", "cancelled", "new"] {
        let usage = r#""usage":{"inputTokens":4,"outputTokens":2}"#;
        let line = format!(r#"{{"id":4,"result":{{"stopReason":"{reason}",{usage}}}}}"#);
        let (message, usage) = error(&line);
        assert!(message.ends_with(&format!("({reason})")), "{message}");
        assert_eq!(usage.total_tokens, Some(6), "the usage until then");
    }
    let failed = r#"{"id":4,"error":{"code":-32603,"message":"out of quota"}}"#;
    assert_eq!(error(failed).0, "out of quota");
}
