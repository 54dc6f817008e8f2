//! Tests of two versions of Claude Code, with a scripted model.

use std::{env, fs};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    coding::{LONG_TIMEOUT, TIMEOUT, package, running_with, text},
    http::Call,
    model::{Model, Step},
    processes::none_runs,
    support::{Herald, Options, eventually, uuid},
    tasks::{artifact, begun, ended, failure, task, told},
    wire::{Draft, Frame, Wire, id, state},
};

/// A version of Claude Code, by the name of its package in `tests/coding/package.json`, which has the
/// numbers.
#[derive(Clone, Copy)]
struct Cli(&'static str);

const PINNED: Cli = Cli("@anthropic-ai/claude-code");
const NEWEST: Cli = Cli("claude-code-newest");

/// The duration of background work in the tests, in seconds: longer than `kill_grace`.
fn background_seconds() -> u64 {
    let given = env::var("HERALD_BACKGROUND_SECONDS");
    given.map_or(7, |given| given.parse().expect("HERALD_BACKGROUND_SECONDS is a number"))
}

/// A command that takes that long. Claude Code refuses a long `sleep` in the foreground.
fn takes_long() -> String {
    format!("timeout {} tail -f /dev/null; touch made", background_seconds())
}

/// Runs these tests with both versions.
macro_rules! with_both {
    ($($test:ident,)*) => {
        mod pinned {
            $(#[tokio::test] async fn $test() { super::$test(super::PINNED).await; })*
        }
        mod newest {
            $(#[tokio::test] async fn $test() { super::$test(super::NEWEST).await; })*
        }
    };
}

with_both! {
    its_answer_grows_and_its_result_comes_before_the_end,
    with_force_it_asks_nobody,
    what_it_may_not_do_unasked_waits_for_its_caller,
    what_is_denied_is_not_done,
    images_are_shown_to_the_model_and_other_files_are_at_a_path,
    an_unanswered_question_is_denied,
    a_cancel_in_the_middle_leaves_no_process,
    a_second_message_of_a_context_goes_on_in_its_session,
    time_and_silence_end_it,
    its_death_fails_the_task_with_a_reason_and_the_context_goes_on,
    why_it_failed_is_told_in_its_own_words,
    a_model_that_does_not_answer_is_reported,
    it_works_as_the_agent_of_the_settings_and_as_no_other,
    a_message_is_no_command_and_reads_no_file,
    background_work_is_waited_for_and_each_later_message_has_its_own_answer,
    a_message_after_background_work_was_cut_off_has_its_own_answer,
    background_work_ends_with_the_answer_if_the_settings_say_so,
    a_message_to_a_task_at_work_reaches_it_at_once,
    the_words_of_a_denial_reach_the_model,
    a_granted_rule_holds_for_the_conversation,
    the_rules_of_the_settings_decide_before_the_caller,
    a_second_answer_to_a_question_is_not_a_prompt,
    its_own_question_takes_several_choices_and_other_words,
    a_tool_call_has_its_data,
    refused_credentials_end_the_task_at_once,
}

/// A server with Claude Code as its agent, and the model that it asks.
struct Bench {
    herald: Herald,
    model: Model,
    /// Its home, with the code it works on in `repo`.
    home: TempDir,
}

impl Bench {
    async fn start(cli: Cli, steps: impl IntoIterator<Item = Step>, settings: &str) -> Self {
        Self::retrying(cli, 0, steps, settings).await
    }

    /// The number of retries of a request to the model.
    async fn retrying(
        cli: Cli,
        retries: u32,
        steps: impl IntoIterator<Item = Step>,
        settings: &str,
    ) -> Self {
        let model = Model::start(steps.into_iter().collect()).await;
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("repo")).unwrap();
        let config = format!(
            "[[agents]]\nname = \"coder\"\nkind = \"claude-code\"\n\
             command = [{:?}]\nworkdir = {:?}\n{LONG_TIMEOUT}\n{settings}\n\
             [agents.env]\nHOME = {:?}\nANTHROPIC_BASE_URL = {:?}\nANTHROPIC_API_KEY = \"none\"\n\
             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC = \"1\"\nCLAUDE_CODE_MAX_RETRIES = \"{retries}\"\n",
            package(cli.0).join("bin/claude.exe"),
            home.path().join("repo"),
            home.path(),
            format!("http://{}", model.address),
        );
        let herald = Herald::start(Options::config(config)).await;
        Self { herald, model, home }
    }

    /// True if the command was run.
    fn has_run(&self) -> bool {
        self.home.path().join("repo/made").exists()
    }

    /// The process ids of running agents, by their home directory.
    fn agents(&self) -> Vec<u32> {
        running_with(&format!("HOME={}", self.home.path().display()))
    }

    /// The requests to the model.
    fn asked(&self) -> Vec<String> {
        let asked = self.model.asked().into_iter();
        let asked = asked.filter(|asked| asked.path.starts_with("/v1/messages"));
        asked.map(|asked| asked.body.to_string()).collect()
    }

    /// The index of the request with this text.
    fn asked_with(&self, text: &str) -> Vec<usize> {
        let asked = self.asked().into_iter().enumerate();
        asked.filter(|(_, asked)| asked.contains(text)).map(|(number, _)| number).collect()
    }

    /// Sends a message with these parts, optionally to a task, and waits.
    async fn send(&self, parts: Value, task: Option<&str>) -> Value {
        let message = json!({
            "messageId": uuid(), "role": "ROLE_USER", "parts": parts, "taskId": task,
        });
        let call = Call::post("/message:send", &json!({ "message": message }));
        let answer = self.herald.call(&call.header("a2a-version", "1.0")).await;
        Wire::Rest.sent(&answer).unwrap()
    }

    /// Sends a message and waits until the task has ended or asks.
    async fn say(&self, draft: &Draft) -> Value {
        let answer = self.herald.call(&Wire::OldRpc.send("", draft, false)).await;
        Wire::OldRpc.sent(&answer).unwrap()
    }
}

/// A command that creates a file and prints more than callers see.
fn command() -> Step {
    let arguments = json!({ "command": "touch made && seq -s, 1 200", "description": "Counts" });
    Step::Tool { name: "Bash".to_owned(), arguments }
}

/// The status texts of a stream, in order.
fn words(frames: &[Frame]) -> Vec<&str> {
    let texts = frames.iter().map(|frame| &frame.body["status"]["message"]["parts"][0]["text"]);
    texts.filter_map(Value::as_str).collect()
}

/// A command in the background.
fn background(command: &str) -> Step {
    let arguments =
        json!({ "command": command, "description": "Sleeps", "run_in_background": true });
    Step::Tool { name: "Bash".to_owned(), arguments }
}

/// Sends five messages to a context and expects the answers to them, in order.
async fn five_answers(bench: &Bench, context: &str) {
    for answer in FIVE {
        let said = Draft::new(uuid(), format!("Say {answer}")).within(context);
        let done = bench.say(&said).await;
        assert_eq!(state(&done), "completed", "{done}");
        assert_eq!(artifact(&done, "assistant-response"), answer, "{done}");
        assert_eq!(artifact(&done, "result")["summary"], answer, "{done}");
    }
}

const FIVE: [&str; 5] = ["One.", "Two.", "Three.", "Four.", "Five."];

async fn background_work_is_waited_for_and_each_later_message_has_its_own_answer(cli: Cli) {
    let steps = [background(&takes_long()), text("It runs."), text("It has ended.")];
    let steps = steps.into_iter().chain(FIVE.map(text));
    let bench = Bench::start(cli, steps, "force = true").await;
    let task = begun(&bench.herald, "Sleep").await;
    eventually(TIMEOUT, "the command ends", async || bench.has_run()).await;
    let done = ended(&bench.herald, &task).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert_eq!(artifact(&done, "assistant-response"), "It runs.\n\nIt has ended.");
    let result = artifact(&done, "result");
    assert_eq!(result["summary"], "It has ended.");
    assert_eq!(result["stats"]["turns"], 3, "the turns of both results: {result}");
    let context = done["contextId"].as_str().unwrap();
    five_answers(&bench, context).await;
}

async fn a_message_after_background_work_was_cut_off_has_its_own_answer(cli: Cli) {
    let steps = [background("sleep 600"), text("It runs.")].into_iter().chain(FIVE.map(text));
    let bench = Bench::start(cli, steps, "force = true").await;
    let client = bench.herald.client().await;
    let draft = Draft::new(uuid(), "Sleep");
    let mut stream = client.open(&Wire::OldRpc.stream("", &draft)).await.unwrap();
    let frame = loop {
        let frame = Wire::OldRpc.frame(&stream.next().await.unwrap().unwrap());
        if words(std::slice::from_ref(&frame)) == ["Background work goes on: Sleeps"] {
            break frame;
        }
    };
    let agents = bench.agents();
    bench.herald.call(&Wire::Rest.cancel(&frame.task)).await;
    none_runs(&agents).await;
    five_answers(&bench, frame.body["contextId"].as_str().unwrap()).await;
}

// The pinned version waits for its subagents in the foreground.
#[tokio::test]
async fn the_task_waits_for_a_subagent_whose_questions_reach_the_caller() {
    let arguments = json!({
        "description": "Sleeps", "prompt": "You are beside", "subagent_type": "general-purpose",
    });
    let subagent = Step::Tool { name: "Agent".to_owned(), arguments };
    let steps = [subagent, text("It runs."), text("It has ended.")];
    let bench = Bench::start(NEWEST, steps.into_iter().chain(FIVE.map(text)), "").await;
    let arguments = json!({ "command": takes_long(), "description": "Sleeps" });
    let command = Step::Tool { name: "Bash".to_owned(), arguments };
    bench.model.beside("You are beside", [command, text("Made.")]);
    let asked = bench.say(&Draft::new(uuid(), "Sleep")).await;
    assert_eq!(state(&asked), "input-required", "{asked}");
    let answer = Draft::new(uuid(), "y").to(id(&asked));
    bench.herald.call(&Wire::Rest.send("", &answer, true)).await;
    eventually(TIMEOUT, "the command ends", async || bench.has_run()).await;
    let done = ended(&bench.herald, id(&asked)).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert_eq!(artifact(&done, "assistant-response"), "It runs.\n\nIt has ended.");
    assert_eq!(artifact(&done, "result")["summary"], "It has ended.");
    five_answers(&bench, done["contextId"].as_str().unwrap()).await;
}

async fn its_answer_grows_and_its_result_comes_before_the_end(cli: Cli) {
    let bench = Bench::start(cli, [text("It is well.")], "").await;
    let draft = Draft::new(uuid(), "Explain the main function");
    let client = bench.herald.client().await;
    let mut stream = client.open(&Wire::OldRpc.stream("", &draft)).await.unwrap();
    let frames = Wire::OldRpc.rest_of(&mut stream).await.unwrap();
    let names = frames.iter().map(|frame| match frame.body["kind"].as_str().unwrap() {
        "artifact-update" => frame.body["artifact"]["name"].as_str().unwrap(),
        _ => frame.body["status"]["state"].as_str().unwrap(),
    });
    let mut names: Vec<_> = names.collect();
    names.dedup();
    let expected = ["working", "agent-metadata", "assistant-response", "result", "completed"];
    assert_eq!(names[names.len() - 5..], expected, "{frames:#?}");
    assert_eq!(frames.last().unwrap().body["final"], true);
    let task = task(&bench.herald, &frames[0].task).await;
    assert_eq!(artifact(&task, "assistant-response"), "It is well.");
    let result = artifact(&task, "result");
    assert_eq!(result["summary"], "It is well.");
    assert_eq!(result["stats"]["inputTokens"], 10);
    assert_eq!(result["stats"]["outputTokens"], 20);
    assert!(result["stats"]["costUsd"].as_f64().unwrap() > 0.0);
    assert!(!artifact(&task, "agent-metadata")["sessionId"].as_str().unwrap().is_empty());
    assert_eq!(bench.asked_with("Explain the main function"), [0]);
}

async fn with_force_it_asks_nobody(cli: Cli) {
    let bench = Bench::start(cli, [command(), text("Done.")], "force = true").await;
    let draft = Draft::new(uuid(), "Count");
    let client = bench.herald.client().await;
    let mut stream = client.open(&Wire::OldRpc.stream("", &draft)).await.unwrap();
    let frames = Wire::OldRpc.rest_of(&mut stream).await.unwrap();
    let [using, result] = words(&frames)[..] else { panic!("{frames:#?}") };
    assert_eq!(using, "Using tool: Bash");
    let output = result.strip_prefix("Tool result: ").unwrap();
    assert!(output.starts_with("1,2,3,"), "{output}");
    assert_eq!(output.chars().count(), 200);
    assert!(bench.has_run());
    assert_eq!(frames.last().unwrap().state().as_deref(), Some("completed"));
}

async fn what_it_may_not_do_unasked_waits_for_its_caller(cli: Cli) {
    let steps = [command(), text("Counted.")];
    let bench = Bench::start(cli, steps, "").await;
    let draft = Draft::new(uuid(), "Count");
    let client = bench.herald.client().await;
    let mut stream = client.open(&Wire::OldRpc.stream("", &draft)).await.unwrap();
    let asked = loop {
        let frame = Wire::OldRpc.frame(&stream.next().await.unwrap().unwrap());
        if frame.state().as_deref() == Some("input-required") {
            break frame;
        }
    };
    assert_eq!(asked.body["final"], false);
    let parts = &asked.body["status"]["message"]["parts"];
    assert!(parts[0]["text"].as_str().unwrap().starts_with("Approve: Bash: touch made"), "{parts}");
    let choices = parts[1]["data"]["approval"]["choices"].as_array().unwrap();
    let names: Vec<_> = choices.iter().map(|choice| &choice["id"]).collect();
    assert_eq!((names[0], names[names.len() - 1]), (&json!("allow"), &json!("deny")));
    assert!(!bench.has_run());
    assert_eq!(bench.agents().len(), 1, "it waits");

    // The context is enough to answer.
    let context = asked.body["contextId"].as_str().unwrap();
    let answer = Draft { context: Some(context.to_owned()), ..Draft::new(uuid(), "y") };
    let done = bench.say(&answer).await;
    assert_eq!(id(&done), asked.task);
    assert_eq!(state(&done), "completed");
    assert_eq!(artifact(&done, "assistant-response"), "Counted.");
    assert!(bench.has_run());
    // The first stream has the end of the task.
    let rest = Wire::OldRpc.rest_of(&mut stream).await.unwrap();
    assert_eq!(rest.last().unwrap().state().as_deref(), Some("completed"));
    assert_eq!(rest.last().unwrap().body["final"], true);
}

async fn what_is_denied_is_not_done(cli: Cli) {
    let bench = Bench::start(cli, [command(), text("As you like.")], "").await;
    let asked = bench.say(&Draft::new(uuid(), "Count")).await;
    assert_eq!(state(&asked), "input-required");
    let unclear = bench.say(&Draft::new(uuid(), "perhaps").to(id(&asked))).await;
    assert_eq!(state(&unclear), "input-required");
    // An answer as data.
    let choice = json!({ "data": { "choice": "deny" } });
    let denied = bench.send(json!([choice]), Some(id(&asked))).await;
    assert_eq!(state(&denied), "completed", "{denied}");
    assert_eq!(artifact(&denied, "assistant-response"), "As you like.");
    assert!(!bench.has_run());
}

async fn images_are_shown_to_the_model_and_other_files_are_at_a_path(cli: Cli) {
    let bench = Bench::start(cli, [text("I see.")], "").await;
    let parts = json!([
        { "text": "What is this?" },
        { "raw": PIXEL, "mediaType": "image/png", "filename": "pixel.png" },
        { "raw": "JVBERi0=", "mediaType": "application/pdf", "filename": "paper.pdf" },
        { "text": "# Notes", "mediaType": "text/markdown" },
        { "data": { "colour": "cobalt" } },
        { "url": "https://example.org/page", "mediaType": "text/html" },
    ]);
    let done = bench.send(parts, None).await;
    assert_eq!(artifact(&done, "assistant-response"), "I see.");
    let asked = &bench.asked()[0];
    for said in [
        "What is this?",
        r#""media_type":"image/png""#,
        "1-pixel.png",
        "2-paper.pdf",
        "# Notes",
        "cobalt",
        "https://example.org/page",
    ] {
        assert!(asked.contains(said), "{said}: {asked}");
    }
}

/// A PNG of one pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

async fn an_unanswered_question_is_denied(cli: Cli) {
    let steps = [command(), text("Nobody there.")];
    let bench = Bench::start(cli, steps, "approval_timeout = \"1s\"").await;
    let task = begun(&bench.herald, "Count").await;
    let unanswered = ended(&bench.herald, &task).await;
    assert_eq!(state(&unanswered), "completed", "{unanswered}");
    assert_eq!(artifact(&unanswered, "assistant-response"), "Nobody there.");
    assert!(!bench.has_run());
}

async fn a_cancel_in_the_middle_leaves_no_process(cli: Cli) {
    let bench = Bench::start(cli, [Step::Hang, command()], "").await;
    let task = begun(&bench.herald, "Take your time").await;
    eventually(TIMEOUT, "the model is asked", async || !bench.asked().is_empty()).await;
    let agents = bench.agents();
    assert!(!agents.is_empty());
    let canceled = bench.herald.call(&Wire::Rest.cancel(&task)).await;
    assert_eq!(state(&Wire::Rest.result(&canceled).unwrap()), "canceled");
    none_runs(&agents).await;

    // The same while it waits for an answer.
    let asked = told(&bench.herald, "Count").await;
    assert_eq!(state(&asked), "input-required");
    let agents = bench.agents();
    assert!(!agents.is_empty());
    bench.herald.call(&Wire::Rest.cancel(id(&asked))).await;
    assert_eq!(state(&ended(&bench.herald, id(&asked)).await), "canceled");
    none_runs(&agents).await;
}

async fn a_second_message_of_a_context_goes_on_in_its_session(cli: Cli) {
    let steps = ["Blue.", "You said blue.", "Red?", "Fresh."].map(text);
    let mut bench = Bench::start(cli, steps, "").await;
    let first = bench.say(&Draft::new(uuid(), "My colour is cobalt")).await;
    let context = first["contextId"].as_str().unwrap().to_owned();
    bench.herald.restart_cleanly().await;
    let next = Draft { context: Some(context), ..Draft::new(uuid(), "What is it?") };
    let second = bench.say(&next).await;
    let session = |task| artifact(task, "agent-metadata")["sessionId"].clone();
    assert_eq!(session(&first), session(&second));
    assert_eq!(bench.asked_with("cobalt"), [0, 1]);
    let other = bench.say(&Draft::new(uuid(), "What is it?")).await;
    assert_ne!(session(&first), session(&other));
    assert_eq!(bench.asked_with("cobalt"), [0, 1]);

    // A missing session is replaced. The program writes to it until it has ended.
    eventually(TIMEOUT, "no agent is left", async || bench.agents().is_empty()).await;
    fs::remove_dir_all(bench.home.path().join(".claude/projects")).unwrap();
    let context = other["contextId"].as_str().unwrap().to_owned();
    let lost = Draft { context: Some(context), ..Draft::new(uuid(), "And now?") };
    let lost = bench.say(&lost).await;
    assert_eq!(artifact(&lost, "assistant-response"), "Fresh.");
    assert_ne!(session(&lost), session(&other));
    let told = texts(&lost);
    assert!(told.iter().any(|text| text.starts_with("The agent's earlier session")), "{told:?}");
    let asked = bench.asked().pop().unwrap();
    for earlier in ["What is it?", "Red?", "And now?"] {
        assert!(asked.contains(earlier), "the stored conversation: {asked}");
    }
}

async fn background_work_ends_with_the_answer_if_the_settings_say_so(cli: Cli) {
    let steps = [background("sleep 600"), text("It runs.")];
    let bench = Bench::start(cli, steps, "force = true\nbackground = \"end\"").await;
    let done = bench.say(&Draft::new(uuid(), "Sleep")).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert_eq!(artifact(&done, "result")["summary"], "It runs.");
    eventually(TIMEOUT, "no agent is left", async || bench.agents().is_empty()).await;
}

/// A command that runs until the file `go` exists.
fn waits_for_go() -> Step {
    let command = "until [ -e go ]; do sleep 0.1; done; touch made";
    let arguments = json!({ "command": command, "description": "Waits" });
    Step::Tool { name: "Bash".to_owned(), arguments }
}

async fn a_message_to_a_task_at_work_reaches_it_at_once(cli: Cli) {
    let bench = Bench::start(cli, [waits_for_go(), text("Both done.")], "force = true").await;
    let work = begun(&bench.herald, "Wait").await;
    let is_told = async |text: &str| {
        let task = task(&bench.herald, &work).await;
        task["status"]["message"]["parts"][0]["text"] == text
    };
    eventually(TIMEOUT, "it waits", async || is_told("Using tool: Bash").await).await;
    let more = Draft::new(uuid(), "Also count to cobalt").to(&work);
    bench.herald.call(&Wire::Rest.send("", &more, true)).await;
    let steered = "The agent got the message while it works.";
    eventually(TIMEOUT, "the message arrives", async || is_told(steered).await).await;
    assert_eq!(bench.agents().len(), 1, "the same program has it");
    fs::write(bench.home.path().join("repo/go"), "").unwrap();
    let done = ended(&bench.herald, &work).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert_eq!(artifact(&done, "assistant-response"), "Both done.");
    assert_eq!(bench.asked_with("count to cobalt"), [1], "within the same turn");
}

async fn the_words_of_a_denial_reach_the_model(cli: Cli) {
    let bench = Bench::start(cli, [command(), text("With npm, then.")], "").await;
    let asked = bench.say(&Draft::new(uuid(), "Count")).await;
    let denied = Draft::new(uuid(), "no, use npm instead of touch").to(id(&asked));
    let done = bench.say(&denied).await;
    assert_eq!(artifact(&done, "assistant-response"), "With npm, then.", "{done}");
    assert!(!bench.has_run());
    assert_eq!(bench.asked_with("use npm instead of touch"), [1]);
}

/// A command whose rule Claude Code offers to add.
fn plain_command() -> Step {
    let arguments = json!({ "command": "touch made", "description": "Makes" });
    Step::Tool { name: "Bash".to_owned(), arguments }
}

async fn a_granted_rule_holds_for_the_conversation(cli: Cli) {
    let steps = [plain_command(), text("Made."), plain_command(), text("Made again.")];
    let mut bench = Bench::start(cli, steps, "").await;
    let asked = bench.say(&Draft::new(uuid(), "Make")).await;
    let parts = &asked["status"]["message"]["parts"];
    let choices = parts[1]["data"]["approval"]["choices"].as_array().unwrap();
    let always = choices.iter().find(|choice| choice["id"] == "always").unwrap();
    let rule = always["rules"][0].as_str().unwrap();
    assert!(rule.starts_with("Bash("), "{always}");
    assert!(parts[0]["text"].as_str().unwrap().contains(rule), "{parts}");
    let done = bench.say(&Draft::new(uuid(), "always").to(id(&asked))).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert_eq!(artifact(&done, "agent-metadata")["grants"], json!([rule]));
    fs::remove_file(bench.home.path().join("repo/made")).unwrap();
    bench.herald.restart_cleanly().await;
    let context = done["contextId"].as_str().unwrap();
    let again = bench.say(&Draft::new(uuid(), "Make again").within(context)).await;
    assert_eq!(state(&again), "completed", "{again}");
    assert!(bench.has_run());
}

async fn the_rules_of_the_settings_decide_before_the_caller(cli: Cli) {
    let rules = "allow = [\"Bash(touch *)\"]";
    let bench = Bench::start(cli, [plain_command(), text("Made.")], rules).await;
    let done = bench.say(&Draft::new(uuid(), "Make")).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert!(bench.has_run());

    let rules = "force = true\ndeny = [\"Bash(touch *)\"]";
    let bench = Bench::start(cli, [command(), text("Not made.")], rules).await;
    let done = bench.say(&Draft::new(uuid(), "Make")).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert!(!bench.has_run());
    let told = texts(&done);
    let denied = "Denied by the rule Bash(touch *): Bash: touch made";
    assert!(told.iter().any(|text| text.starts_with(denied)), "{told:?}");
}

async fn a_second_answer_to_a_question_is_not_a_prompt(cli: Cli) {
    let bench = Bench::start(cli, [waits_for_go(), text("Made.")], "").await;
    let asked = bench.say(&Draft::new(uuid(), "Wait")).await;
    assert_eq!(state(&asked), "input-required");
    for answer in ["allow", "deny"] {
        let answer = Draft::new(uuid(), answer).to(id(&asked));
        bench.herald.call(&Wire::Rest.send("", &answer, true)).await;
    }
    fs::write(bench.home.path().join("repo/go"), "").unwrap();
    let done = ended(&bench.herald, id(&asked)).await;
    assert_eq!(state(&done), "completed", "{done}");
    assert_eq!(artifact(&done, "assistant-response"), "Made.");
    assert!(bench.has_run());
    assert_eq!(bench.asked().len(), 2, "the model was asked nothing else");
}

async fn its_own_question_takes_several_choices_and_other_words(cli: Cli) {
    let question = |header: &str, multiple: bool| {
        json!({
            "question": format!("Which {header}?"), "header": header, "multiSelect": multiple,
            "options": [
                { "label": "Red", "description": "red" }, { "label": "Blue", "description": "blue" },
            ],
        })
    };
    let arguments = json!({ "questions": [question("colours", true), question("shade", false)] });
    let ask = Step::Tool { name: "AskUserQuestion".to_owned(), arguments };
    let bench = Bench::start(cli, [ask, text("Thanks.")], "").await;
    let asked = bench.say(&Draft::new(uuid(), "Ask me")).await;
    let first = asked["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(first.starts_with("Which colours?"), "{first}");
    let next = bench.say(&Draft::new(uuid(), "Red, Blue").to(id(&asked))).await;
    let second = next["status"]["message"]["parts"][0]["text"].as_str().unwrap();
    assert!(second.starts_with("Which shade?"), "{second}");
    let done = bench.say(&Draft::new(uuid(), "a dark green").to(id(&asked))).await;
    assert_eq!(state(&done), "completed", "{done}");
    let asked = &bench.asked()[1];
    for answer in ["Red, Blue", "a dark green"] {
        assert!(asked.contains(answer), "{answer}: {asked}");
    }
}

async fn a_tool_call_has_its_data(cli: Cli) {
    let file = json!({ "file_path": "PLACE/made", "content": "one\ntwo\n" });
    let write = |home: &str| Step::Tool {
        name: "Write".to_owned(),
        arguments: serde_json::from_str(&file.to_string().replace("PLACE", home)).unwrap(),
    };
    let bench = Bench::start(cli, [text("unused")], "force = true").await;
    let home = bench.home.path().join("repo");
    bench.model.beside("Write it", [write(home.to_str().unwrap()), text("Written.")]);
    let client = bench.herald.client().await;
    let draft = Draft::new(uuid(), "Write it");
    let mut stream = client.open(&Wire::OldRpc.stream("", &draft)).await.unwrap();
    let frames = Wire::OldRpc.rest_of(&mut stream).await.unwrap();
    let data = frames.iter().map(|frame| &frame.body["status"]["message"]["metadata"][ACTIVITY]);
    let tools: Vec<_> = data.map(|data| &data["tool"]).filter(|tool| !tool.is_null()).collect();
    let [started, ended] = tools[..] else { panic!("{frames:#?}") };
    assert_eq!((&started["phase"], &started["name"]), (&json!("started"), &json!("Write")));
    assert_eq!(started["kind"], "edit");
    assert_eq!(started["input"]["content"], "one\ntwo\n");
    assert_eq!(started["locations"][0]["path"], started["input"]["file_path"]);
    assert_eq!((&ended["phase"], &ended["id"]), (&json!("completed"), &started["id"]));
    let diff = ended["diff"].as_str().unwrap();
    assert!(diff.ends_with("@@ -0,0 +1,2 @@\n+one\n+two\n"), "{diff}");
    let card = bench.herald.call(&Call::get("/.well-known/agent-card.json")).await;
    let card = String::from_utf8_lossy(&card.body).into_owned();
    assert!(card.contains(ACTIVITY), "the card names the extension: {card}");
}

const ACTIVITY: &str = "https://github.com/herald-a2a/herald/blob/main/docs/activity.md#v1";

async fn refused_credentials_end_the_task_at_once(cli: Cli) {
    let bench = Bench::retrying(cli, 10, [Step::Status(401)], "").await;
    let task = told(&bench.herald, "Hello").await;
    let (_, reason) = failure(&task);
    assert_eq!(reason, "AGENT_FAILED");
    assert!(bench.asked().len() <= 2, "no retry with the same key: {}", bench.asked().len());
    eventually(TIMEOUT, "no agent is left", async || bench.agents().is_empty()).await;
}

/// The status texts of a task, in order.
fn texts(task: &Value) -> Vec<&str> {
    let history = task["history"].as_array().unwrap().iter();
    let said = history.filter(|message| message["role"] == "agent");
    said.filter_map(|message| message["parts"][0]["text"].as_str()).collect()
}

async fn time_and_silence_end_it(cli: Cli) {
    let bench = Bench::start(cli, [Step::Hang], "timeout = \"5s\"").await;
    let task = told(&bench.herald, "Take your time").await;
    assert_eq!(failure(&task).1, "TIMED_OUT");
    eventually(TIMEOUT, "no agent is left", async || bench.agents().is_empty()).await;
}

async fn its_death_fails_the_task_with_a_reason_and_the_context_goes_on(cli: Cli) {
    let bench = Bench::start(cli, [Step::Hang, command(), text("Here again.")], "").await;
    let task = begun(&bench.herald, "Take your time").await;
    eventually(TIMEOUT, "the model is asked", async || !bench.asked().is_empty()).await;
    kill(&bench.agents()).await;
    let failed = ended(&bench.herald, &task).await;
    let (text, reason) = failure(&failed);
    assert_eq!(reason, "AGENT_FAILED");
    assert!(text.contains("signal 9"), "{text}");

    let asked = told(&bench.herald, "Count").await;
    assert_eq!(state(&asked), "input-required");
    kill(&bench.agents()).await;
    let failed = ended(&bench.herald, id(&asked)).await;
    assert_eq!(failure(&failed).0, "agent coder ended while it waited for an answer");

    let context = failed["contextId"].as_str().unwrap().to_owned();
    let next = Draft { context: Some(context), ..Draft::new(uuid(), "Still there?") };
    assert_eq!(artifact(&bench.say(&next).await, "assistant-response"), "Here again.");
}

async fn why_it_failed_is_told_in_its_own_words(cli: Cli) {
    let bench = Bench::start(cli, [Step::Status(401)], "").await;
    let task = told(&bench.herald, "Hello").await;
    let (text, reason) = failure(&task);
    assert_eq!(reason, "AGENT_FAILED");
    assert!(text.contains("the model says 401"), "{text}");
}

async fn a_model_that_does_not_answer_is_reported(cli: Cli) {
    let bench = Bench::retrying(cli, 2, [Step::Status(503), text("Here again.")], "").await;
    let client = bench.herald.client().await;
    let draft = Draft::new(uuid(), "Hello");
    let mut stream = client.open(&Wire::OldRpc.stream("", &draft)).await.unwrap();
    let frames = Wire::OldRpc.rest_of(&mut stream).await.unwrap();
    let retry = "The model does not answer (HTTP 503): retry 1 of 2";
    assert!(words(&frames)[0].starts_with(retry), "{frames:#?}");
    assert_eq!(frames.last().unwrap().state().as_deref(), Some("completed"));
}

async fn it_works_as_the_agent_of_the_settings_and_as_no_other(cli: Cli) {
    let bench = Bench::start(cli, [text("A plan.")], "profile = \"Plan\"").await;
    let done = told(&bench.herald, "Hello").await;
    assert_eq!(artifact(&done, "assistant-response"), "A plan.");
    let bench = Bench::start(cli, [text("No plan.")], "profile = \"plain\"").await;
    let failed = told(&bench.herald, "Hello").await;
    assert_eq!(failure(&failed).0, "agent coder has no agent `plain`");
}

async fn a_message_is_no_command_and_reads_no_file(cli: Cli) {
    let bench = Bench::start(cli, ["Plain.", "Unread."].map(text), "").await;
    let told = bench.say(&Draft::new(uuid(), "/context")).await;
    assert_eq!(artifact(&told, "assistant-response"), "Plain.");
    let secret = bench.home.path().join("secret");
    fs::write(&secret, "cobalt").unwrap();
    bench.say(&Draft::new(uuid(), format!("What says @{}?", secret.display()))).await;
    assert_eq!(bench.asked().len(), 2);
    assert!(bench.asked_with("cobalt").is_empty());
}

async fn kill(pids: &[u32]) {
    assert!(!pids.is_empty());
    for pid in pids {
        let mut kill = tokio::process::Command::new("kill");
        kill.args(["-s", "KILL", &pid.to_string()]).status().await.unwrap();
    }
}
