//! Tests of `herald serve --adapter` with the examples of the reference of coding-agent-a2a, pasted with another
//! address, and a script in place of Claude Code.

use std::{fs, os::unix::fs::PermissionsExt};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    http::{Call, Stream},
    support::{Herald, Options, SOON, ended, eventually, uuid},
    tasks::artifact,
};

/// Claude Code as far as these tests go: the message selects what it does.
const CLAUDE: &str = r##"#!/bin/sh
cd "$(dirname "$0")"
note() { printf '%s\n' "$*" >> notes; }
say() { printf '%s\n' "$1"; }
text() { say '{"type":"stream_event","event":{"type":"content_block_delta","delta":{"type":"text_delta","text":"'"$1"'"}}}'; }
finish() {
    say '{"type":"result","is_error":false,"result":"'"$1"'","duration_ms":12,"num_turns":2,"usage":{"input_tokens":3,"output_tokens":4}}'
    cat > /dev/null
}
read -r prompt
note "$prompt"
say '{"type":"system","subtype":"init","session_id":"sess-1","model":"m"}'
case $prompt in
*"exit three"*) exit 3 ;;
*"exit at once"*) exit 0 ;;
*"be silent"*) exec sleep 600 ;;
*"be stubborn"*)
    trap 'note term; exit' TERM
    note ready
    read -r cancel
    note interrupt
    sleep 0.9
    note answer
    ;;
*"be polite"*)
    trap 'note term; exit' TERM
    note ready
    read -r cancel
    say '{"type":"control_response","response":{"subtype":"success","request_id":"cancel"}}'
    sleep 0.5
    note clean
    ;;
*"use a terminal"*)
    say "Removing files"
    printf 'Run rm -r build? [Y/n] '
    read -r answer
    note "answer $answer"
    finish "done"
    ;;
*"print a question"*)
    say 'Run rm -r build? [Y/n]'
    read -r answer
    note "answer $answer"
    finish "done"
    ;;
*"ask"*)
    say '{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"rm -r build"}}}'
    read -r answer
    note "$answer"
    finish "done"
    ;;
*)
    text "I'll start by reading the auth module..."
    # Long enough for the text to be written before anything else happens.
    sleep 0.3
    say '{"type":"assistant","message":{"content":[{"type":"tool_use","name":"read_file"}]}}'
    say '{"type":"user","message":{"content":[{"type":"tool_result","content":"export function"}]}}'
    text "Done."
    sleep 0.3
    finish "Refactored auth.ts to use JWT."
    ;;
esac
"##;

struct Bench {
    herald: Herald,
    home: TempDir,
}

impl Bench {
    async fn start(variables: &[(&str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let program = home.path().join("claude");
        fs::write(&program, CLAUDE).unwrap();
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let options = Options::default().environment("CLAUDE_CODE_PATH", program.to_str().unwrap());
        let options =
            variables.iter().fold(options, |it, (name, value)| it.environment(name, value));
        let herald = Herald::start(options.arguments(["--adapter", "claude-code"])).await;
        Self { herald, home }
    }

    /// The notes of the program.
    fn notes(&self) -> Vec<String> {
        let notes = fs::read_to_string(self.home.path().join("notes")).unwrap_or_default();
        notes.lines().map(str::to_owned).collect()
    }

    /// Waits until the program has noted one of these.
    async fn noted(&self, words: &[&str]) {
        let has = |note: &String| words.contains(&note.as_str());
        eventually(SOON, "the program notes it", async || self.notes().iter().any(has)).await;
    }

    /// The result of an example, with the id of a task in its place.
    async fn result(&self, example: &str) -> Value {
        let answer = self.herald.call(&pasted(example)).await.json();
        assert_eq!(answer["jsonrpc"], "2.0");
        assert!(answer.get("result").is_some(), "{answer}");
        answer["result"].clone()
    }

    /// A message, without waiting for the end.
    async fn begin(&self, text: &str) -> String {
        let message = json!({ "kind": "message", "messageId": uuid(), "role": "user",
            "parts": [{ "kind": "text", "text": text }] });
        let params = json!({ "message": message, "configuration": { "blocking": false } });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params });
        let task = self.herald.call(&Call::post("/a2a/jsonrpc", &call)).await.json();
        task["result"]["id"].as_str().unwrap().to_owned()
    }

    /// The task once it has one of these states.
    async fn once(&self, id: &str, states: &[&str]) -> Value {
        eventually(SOON, "the task gets there", async || {
            let task = self.result(&GET.replace("task-uuid", id)).await;
            states.contains(&task["status"]["state"].as_str().unwrap())
        })
        .await;
        self.result(&GET.replace("task-uuid", id)).await
    }
}

fn pasted(example: &str) -> Call {
    Call::post("/a2a/jsonrpc", &serde_json::from_str(example).unwrap())
}

/// The output of a line in a shell.
async fn shell(line: &str) -> String {
    let mut command = Command::new("sh");
    command.args(["-c", line]);
    let ended = ended(command).await;
    assert!(ended.status.success(), "{line}: {ended:?}");
    ended.stdout
}

async fn frames(mut stream: Stream) -> Vec<Value> {
    let mut frames = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        frames.push(serde_json::from_str::<Value>(&event.data).unwrap()["result"].take());
    }
    frames
}

/// Fails for a member in snake_case.
#[track_caller]
fn assert_camel_case(value: &Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                assert!(!name.contains('_'), "{name} in {value}");
                assert_camel_case(value);
            }
        }
        Value::Array(items) => items.iter().for_each(assert_camel_case),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

const SEND: &str = r#"{
  "jsonrpc": "2.0",
  "id": 1,
  "method": "message/send",
  "params": {
    "message": {
      "kind": "message",
      "messageId": "msg-uuid",
      "role": "user",
      "parts": [{ "kind": "text", "text": "Add a health check endpoint" }]
    },
    "configuration": {
      "blocking": true
    }
  }
}"#;

const STREAM: &str = r#"{
  "jsonrpc": "2.0",
  "id": 1,
  "method": "message/stream",
  "params": {
    "message": {
      "kind": "message",
      "messageId": "msg-uuid",
      "role": "user",
      "parts": [{ "kind": "text", "text": "Refactor the auth module to use JWT" }]
    }
  }
}"#;

const GET: &str = r#"{
  "jsonrpc": "2.0",
  "id": 2,
  "method": "tasks/get",
  "params": { "taskId": "task-uuid" }
}"#;

const CANCEL: &str = r#"{
  "jsonrpc": "2.0",
  "id": 3,
  "method": "tasks/cancel",
  "params": { "taskId": "task-uuid" }
}"#;

const RESUME: &str = r#"{
  "jsonrpc": "2.0",
  "id": 4,
  "method": "message/send",
  "params": {
    "message": {
      "kind": "message",
      "messageId": "msg-2",
      "role": "user",
      "contextId": "<same contextId>",
      "parts": [{ "kind": "text", "text": "y" }]
    }
  }
}"#;

#[tokio::test]
async fn a_send_returns_the_task_in_its_final_state() {
    let bench = Bench::start(&[]).await;
    let task = bench.result(SEND).await;
    assert_eq!(task["kind"], "task");
    assert_eq!(task["status"]["state"], "completed");
    assert!(task["status"]["timestamp"].as_str().unwrap().ends_with('Z'), "{task}");
    assert!(task["id"].is_string() && task["contextId"].is_string(), "{task}");
    assert!(task["history"].is_array(), "{task}");
    let answer = "I'll start by reading the auth module...Done.";
    assert_eq!(artifact(&task, "assistant-response"), answer);
    let result = json!({
        "summary": "Refactored auth.ts to use JWT.",
        "stats": {
            "durationMs": 12, "turns": 2, "inputTokens": 3, "outputTokens": 4, "totalTokens": 7,
        },
    });
    assert_eq!(artifact(&task, "result"), result);
    for artifact in task["artifacts"].as_array().unwrap() {
        let parts = artifact["parts"].as_array().unwrap();
        assert!(parts.iter().all(|part| part["text"] != ""), "no empty part: {artifact}");
    }
    assert_camel_case(&task);

    let id = task["id"].as_str().unwrap();
    assert_eq!(bench.result(&GET.replace("task-uuid", id)).await, task);
    let unknown = bench.herald.call(&pasted(GET)).await.json();
    assert_eq!(unknown["error"]["code"], -32001);
}

#[tokio::test]
async fn a_stream_has_the_listed_frames_in_their_order() {
    let bench = Bench::start(&[]).await;
    let stream = bench.herald.client().await.open(&pasted(STREAM)).await.unwrap();
    let frames = frames(stream).await;
    frames.iter().for_each(assert_camel_case);
    let (first, events) = frames.split_first().unwrap();
    assert_eq!(first["kind"], "task", "the protocol begins a stream with the task");
    let named = |event: &Value| -> String {
        assert_eq!((&event["taskId"], &event["contextId"]), (&first["id"], &first["contextId"]));
        match event["kind"].as_str().unwrap() {
            "artifact-update" => {
                assert!(event["artifact"]["artifactId"].is_string(), "{event}");
                event["artifact"]["name"].as_str().unwrap().to_owned()
            }
            "status-update" => {
                assert!(event["final"].is_boolean(), "{event}");
                let status = &event["status"];
                let text = status["message"]["parts"][0]["text"].as_str().unwrap_or_default();
                format!("{} {text}", status["state"].as_str().unwrap()).trim().to_owned()
            }
            kind => panic!("{kind}"),
        }
    };
    let names: Vec<String> = events.iter().map(named).collect();
    let expected = [
        "working",
        // The `init` of the agent.
        "working",
        "agent-metadata",
        "assistant-response",
        "working Using tool: read_file",
        "working Tool result: export function",
        "assistant-response",
        "result",
        "completed",
    ];
    assert_eq!(names, expected, "{frames:#?}");
    let pieces: Vec<_> =
        events.iter().filter(|event| event["artifact"]["name"] == "assistant-response").collect();
    let text = |event: &Value| event["artifact"]["parts"][0]["text"].as_str().unwrap().to_owned();
    assert_eq!(text(pieces[0]), "I'll start by reading the auth module...");
    assert_eq!((text(pieces[1]).as_str(), &pieces[1]["append"]), ("Done.", &json!(true)));
    assert_ne!(pieces[0]["append"], true, "the first piece begins the artifact");
    assert_eq!(pieces[0]["artifact"]["parts"][0]["kind"], "text");
    let result = &events[events.len() - 2];
    assert!(result.get("append").is_none(), "it is whole: {result}");
    assert_eq!(result["artifact"]["parts"][0]["kind"], "data");
    assert_eq!(result["artifact"]["parts"][0]["data"]["summary"], "Refactored auth.ts to use JWT.");
    let finals: Vec<_> = events.iter().filter(|event| event["final"] == true).collect();
    assert_eq!(finals, [events.last().unwrap()], "the stream closes after the final event");
}

#[tokio::test]
async fn the_curl_lines_work() {
    let bench = Bench::start(&[]).await;
    let here = |line: &str| line.replace("localhost:41242", &bench.herald.address.to_string());
    let card = shell(&here("curl -s http://localhost:41242/.well-known/agent-card.json")).await;
    let card: Value = serde_json::from_str(&card).unwrap();
    assert_eq!(card["name"], "coding-agent-a2a (claude-code)");
    let stream = here(
        r#"curl -s -N -X POST http://localhost:41242/a2a/jsonrpc \
  -H "Content-Type: application/json" \
  -H "Accept: text/event-stream" \
  -d '{
    "jsonrpc": "2.0",
    "id": 1,
    "method": "message/stream",
    "params": {
      "message": {
        "kind": "message",
        "messageId": "test-1",
        "role": "user",
        "parts": [{"kind": "text", "text": "Explain the main function in src/index.ts"}]
      }
    }
  }'"#,
    );
    let stream = shell(&stream).await;
    let last = stream.lines().filter_map(|line| line.strip_prefix("data: ")).next_back().unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!((&last["id"], &last["result"]["final"]), (&json!(1), &json!(true)), "{stream}");
}

#[tokio::test]
async fn a_cancel_of_an_ended_task_is_a_no_op_in_every_spelling() {
    let bench = Bench::start(&[]).await;
    let completed = bench.result(SEND).await;
    let silent = bench.begin("be silent").await;
    let canceled = bench.result(&CANCEL.replace("task-uuid", &silent)).await;
    assert_eq!(canceled["status"]["state"], "canceled");
    let failed = bench.begin("exit three").await;
    let failed = bench.once(&failed, &["failed"]).await;
    for task in [completed, canceled, failed] {
        let cancel = CANCEL.replace("task-uuid", task["id"].as_str().unwrap());
        for spelling in ["taskId", "id", "task_id"] {
            let cancel = cancel.replace("taskId", spelling);
            let after = bench.result(&cancel).await;
            assert_eq!(after["status"], task["status"], "{spelling}");
        }
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "CancelTask", "params": { "id": task["id"] } });
        let call = Call::post("/a2a/jsonrpc", &call).header("a2a-version", "1.0");
        let refused = bench.herald.call(&call).await.json();
        assert_eq!(refused["error"]["code"], -32002, "1.0 has no such thing");
    }
}

#[tokio::test]
async fn a_cancel_ends_the_program_without_waiting_for_it() {
    let bench = Bench::start(&[]).await;
    let id = bench.begin("be stubborn").await;
    bench.noted(&["ready"]).await;
    let task = bench.result(&CANCEL.replace("task-uuid", &id)).await;
    assert_eq!(task["status"]["state"], "canceled");
    bench.noted(&["term", "answer"]).await;
    let notes = bench.notes();
    assert!(notes.contains(&"interrupt".to_owned()), "its own protocol comes first: {notes:?}");
    assert!(!notes.contains(&"answer".to_owned()), "SIGTERM does not wait for it: {notes:?}");
}

#[tokio::test]
async fn a_program_that_answers_the_cancel_may_end_by_itself() {
    let bench = Bench::start(&[]).await;
    let id = bench.begin("be polite").await;
    bench.noted(&["ready"]).await;
    bench.result(&CANCEL.replace("task-uuid", &id)).await;
    bench.noted(&["clean", "term"]).await;
    assert!(!bench.notes().contains(&"term".to_owned()), "{:?}", bench.notes());
}

#[tokio::test]
async fn a_prompt_on_its_output_is_a_question_and_the_answer_is_its_input() {
    for (text, written) in
        [("use a terminal", "answer y"), ("print a question", "answer y"), ("ask", "allow")]
    {
        let bench = Bench::start(&[("AGENT_FORCE", "false")]).await;
        let asked = bench.result(&SEND.replace("Add a health check endpoint", text)).await;
        assert_eq!(asked["status"]["state"], "input-required", "{text}: {asked}");
        let question = asked["status"]["message"]["parts"][0]["text"].as_str().unwrap();
        assert!(question.contains("rm -r build"), "{question}");
        let context = asked["contextId"].as_str().unwrap();
        let done = bench.result(&RESUME.replace("<same contextId>", context)).await;
        assert_eq!(done["id"], asked["id"]);
        assert_eq!(done["status"]["state"], "completed", "{text}: {done}");
        let notes = bench.notes();
        assert!(notes.iter().any(|note| note.contains(written)), "{text}: {notes:?}");
    }
}

#[tokio::test]
async fn a_stream_goes_on_with_working_after_the_answer() {
    let bench = Bench::start(&[("AGENT_FORCE", "false")]).await;
    let ask = STREAM.replace("Refactor the auth module to use JWT", "ask");
    let mut stream = bench.herald.client().await.open(&pasted(&ask)).await.unwrap();
    let mut states = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        let frame = serde_json::from_str::<Value>(&event.data).unwrap()["result"].take();
        let Some(state) = frame["status"]["state"].as_str() else { continue };
        states.push(state.to_owned());
        if state == "input-required" {
            assert_eq!(frame["final"], false, "the stream stays open: {frame}");
            let context = frame["contextId"].as_str().unwrap();
            let done = bench.result(&RESUME.replace("<same contextId>", context)).await;
            assert_eq!(done["status"]["state"], "completed");
        }
    }
    let asked = states.iter().position(|state| state == "input-required").expect("a question");
    assert!(states[asked..].contains(&"working".to_owned()), "{states:?}");
    assert_eq!(states.last().map(String::as_str), Some("completed"), "{states:?}");
}

#[tokio::test]
async fn with_force_a_prompt_is_answered_with_yes() {
    let bench = Bench::start(&[("AGENT_FORCE", "true")]).await;
    let done = bench.result(&SEND.replace("Add a health check endpoint", "use a terminal")).await;
    assert_eq!(done["status"]["state"], "completed", "{done}");
    assert!(bench.notes().contains(&"answer y".to_owned()), "{:?}", bench.notes());
}

#[tokio::test]
async fn completion_needs_the_result_and_every_other_end_fails() {
    let bench = Bench::start(&[]).await;
    for (text, said) in [
        ("exit three", "agent claude-code ended with exit code 3"),
        ("exit at once", "agent claude-code ended with exit code 0"),
    ] {
        let task = bench.result(&SEND.replace("Add a health check endpoint", text)).await;
        assert_eq!(task["status"]["state"], "failed", "{text}: {task}");
        assert_eq!(task["status"]["message"]["parts"][0]["text"], said);
    }
    for (variable, reason) in [("AGENT_TIMEOUT_MS", "TIMED_OUT"), ("AGENT_IDLE_EXIT_MS", "IDLE")] {
        let bench = Bench::start(&[(variable, "700")]).await;
        let task = bench.result(&SEND.replace("Add a health check endpoint", "be silent")).await;
        assert_eq!(task["status"]["state"], "failed", "{variable}: {task}");
        assert_eq!(task["status"]["message"]["metadata"]["reason"], reason);
    }
}

#[tokio::test]
async fn data_and_files_are_taken() {
    let bench = Bench::start(&[]).await;
    let parts = json!([
        { "kind": "text", "text": "Explain these" },
        { "kind": "data", "data": { "size": 3 } },
        { "kind": "file", "file": { "name": "a.bin", "mimeType": "application/x-unknown", "bytes": "AAEC" } },
    ]);
    let mut send: Value = serde_json::from_str(SEND).unwrap();
    send["params"]["message"]["parts"] = parts;
    let task = bench.result(&send.to_string()).await;
    assert_eq!(task["status"]["state"], "completed", "{task}");
    let prompt = &bench.notes()[0];
    for shown in ["Explain these", r#"{\"size\":3}"#, "a.bin"] {
        assert!(prompt.contains(shown), "{shown} is not in {prompt}");
    }
}
