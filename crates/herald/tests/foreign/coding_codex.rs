//! Tests of Codex, with a scripted model.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    coding::{LONG_TIMEOUT, TIMEOUT, installed, running_with, text},
    http::Call,
    model::{Model, Step},
    support::{Herald, Options, eventually, uuid},
    tasks::{artifact, failure, task},
    wire::{Draft, Frame, Wire, id, is_terminal, state},
};

/// A server with Codex as its agent, and the model that it asks.
struct Bench {
    herald: Herald,
    model: Model,
    /// Its home, with the code it works on in `repo`.
    home: TempDir,
}

impl Bench {
    async fn start(steps: Vec<Step>, settings: &str) -> Self {
        let model = Model::start(steps).await;
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("repo")).unwrap();
        fs::create_dir(home.path().join("codex")).unwrap();
        let provider = format!(
            "model = \"scripted\"\nmodel_provider = \"test\"\ncheck_for_update_on_startup = false\n\
             [analytics]\nenabled = false\n\
             [model_providers.test]\nname = \"test\"\nbase_url = {:?}\nwire_api = \"responses\"\n\
             supports_websockets = false\nrequest_max_retries = 0\nstream_max_retries = 0\n",
            model.url()
        );
        fs::write(home.path().join("codex/config.toml"), provider).unwrap();
        let profile = "model = \"quick\"\n[sandbox_workspace_write]\nnetwork_access = true\n";
        fs::write(home.path().join("codex/quick.config.toml"), profile).unwrap();
        let herald = Herald::start(Self::options(home.path(), settings)).await;
        Self { herald, model, home }
    }

    fn options(home: &Path, settings: &str) -> Options {
        Options::config(format!(
            "[[agents]]\nname = \"coder\"\nkind = \"codex\"\ncommand = [{:?}]\n\
             workdir = {:?}\n{LONG_TIMEOUT}\n{settings}\n[agents.env]\nHOME = {:?}\nCODEX_HOME = {:?}\n",
            installed("codex"),
            home.join("repo"),
            home,
            home.join("codex"),
        ))
    }

    /// True if the agent has created this file.
    fn made(&self, name: &str) -> bool {
        self.home.path().join("repo").join(name).exists()
    }

    /// Sends a message and returns the id of its task.
    async fn say(&self, wire: Wire, draft: &Draft) -> String {
        let sent = wire.sent(&self.herald.call(&wire.send("", draft, true)).await).unwrap();
        id(&sent).to_owned()
    }

    /// The id of a new task with this text.
    async fn begun(&self, text: &str) -> String {
        self.say(Wire::Rest, &Draft::new(uuid(), text)).await
    }

    /// Waits for a task in this state.
    async fn reached(&self, id: &str, wanted: &str) -> Value {
        let mut seen = task(&self.herald, id).await;
        eventually(TIMEOUT, &format!("a task is {wanted}"), async || {
            seen = task(&self.herald, id).await;
            let now = state(&seen);
            assert!(now == wanted || !is_terminal(&now), "{seen}");
            now == wanted
        })
        .await;
        seen
    }

    /// Waits for a question with this text.
    async fn question(&self, id: &str, about: &str) -> Value {
        let mut question = Value::Null;
        eventually(TIMEOUT, &format!("it asks about {about}"), async || {
            let task = task(&self.herald, id).await;
            assert!(!is_terminal(&state(&task)), "{task}");
            question = task["status"]["message"]["parts"].clone();
            state(&task) == "input-required"
                && question[0]["text"].as_str().unwrap().contains(about)
        })
        .await;
        question
    }

    /// Cancels a task, and waits until no process of Codex is left.
    async fn cancel(&self, id: &str) {
        let cancelled = self.herald.call(&Wire::Rest.cancel(id)).await;
        assert_eq!(state(&Wire::Rest.result(&cancelled).unwrap()), "canceled");
        self.is_left().await;
    }

    /// The whole log of a task that has ended.
    async fn log(&self, id: &str) -> Vec<Frame> {
        Wire::Rest.replay(self.herald.client().await, id).await.unwrap().1
    }

    /// All processes of Codex, found by its home directory.
    fn processes(&self) -> Vec<u32> {
        running_with(&format!("CODEX_HOME={}", self.home.path().join("codex").display()))
    }

    /// Waits until it runs a slow command.
    async fn sleeps(&self) {
        let sleeps = |pid: &u32| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            arguments.starts_with(b"sleep\0")
        };
        eventually(TIMEOUT, "a command runs", async || self.processes().iter().any(sleeps)).await;
    }

    /// Waits until no process of it runs.
    async fn is_left(&self) {
        eventually(TIMEOUT, "no process is left", async || self.processes().is_empty()).await;
    }

    /// Kills Codex.
    fn kill(&self) {
        let processes = self.processes();
        assert!(!processes.is_empty(), "it does not run");
        // Some processes end with others before they are killed.
        let pids = processes.iter().map(ToString::to_string);
        Command::new("kill").arg("-9").args(pids).output().unwrap();
    }
}

/// A command that is run in a shell.
fn run(command: &str) -> Step {
    Step::Tool { name: "exec_command".to_owned(), arguments: json!({ "cmd": command }) }
}

/// A command that has to leave the sandbox.
fn leave_sandbox(command: &str) -> Step {
    let arguments = json!({
        "cmd": command, "sandbox_permissions": "require_escalated", "justification": "It has to be."
    });
    Step::Tool { name: "exec_command".to_owned(), arguments }
}

fn context(task: &Value) -> &str {
    task["contextId"].as_str().unwrap()
}

/// The status texts of a log.
fn told_on_the_way(log: &[Frame]) -> Vec<&str> {
    let texts = log.iter().filter_map(|frame| {
        frame.body["statusUpdate"]["status"]["message"]["parts"][0]["text"].as_str()
    });
    texts.collect()
}

#[tokio::test]
async fn an_answer_is_streamed_and_a_second_message_continues_the_session() {
    let bench = Bench::start(vec![text("It is a parser."), text("It still is.")], "").await;
    let begun = bench.begun("What is this?").await;
    let first = bench.reached(&begun, "completed").await;
    assert_eq!(artifact(&first, "assistant-response"), "It is a parser.");
    let result = artifact(&first, "result");
    assert_eq!(result["summary"], "It is a parser.");
    assert_eq!(result["stats"]["inputTokens"], 7, "{result}");
    assert_eq!(result["stats"]["totalTokens"], 10, "{result}");
    let metadata = artifact(&first, "agent-metadata");
    assert_eq!((&metadata["adapter"], &metadata["model"]), (&json!("codex"), &json!("scripted")));
    let log = bench.log(&begun).await;
    let [.., result, end] = &log[..] else { panic!("{log:?}") };
    assert_eq!(result.body["artifactUpdate"]["artifact"]["name"], "result", "{log:?}");
    assert_eq!(end.state().as_deref(), Some("completed"), "{log:?}");

    let next = Draft::new(uuid(), "And now?").within(context(&first));
    let second = bench.say(Wire::Rest, &next).await;
    let second = bench.reached(&second, "completed").await;
    assert_eq!(artifact(&second, "assistant-response"), "It still is.");
    assert_eq!(artifact(&second, "agent-metadata")["sessionId"], metadata["sessionId"]);
    assert_eq!(artifact(&second, "result")["stats"]["totalTokens"], 10, "only what is new");
    let asked = bench.model.asked()[1].body["input"].to_string();
    for known in ["What is this?", "It is a parser.", "And now?"] {
        assert!(asked.contains(known), "the model is not told {known:?}: {asked}");
    }
}

#[tokio::test]
async fn a_session_that_codex_no_longer_has_is_replaced() {
    let bench = Bench::start(vec![text("One."), text("Two.")], "").await;
    let first = bench.begun("Count").await;
    let first = bench.reached(&first, "completed").await;
    bench.is_left().await;
    let codex = bench.home.path().join("codex");
    for entry in fs::read_dir(&codex).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else if path.extension().is_none_or(|extension| extension != "toml") {
            fs::remove_file(path).unwrap();
        }
    }
    let next = Draft::new(uuid(), "Go on").within(context(&first));
    let second = bench.say(Wire::Rest, &next).await;
    let second = bench.reached(&second, "completed").await;
    assert_eq!(artifact(&second, "assistant-response"), "Two.");
    let session = |task| artifact(task, "agent-metadata")["sessionId"].clone();
    assert_ne!(session(&first), session(&second));
}

#[tokio::test]
async fn tools_are_reported_and_force_asks_no_questions() {
    let steps = vec![run("touch made && seq -s, 1 200"), text("Counted.")];
    let bench = Bench::start(steps, "force = true").await;
    let id = bench.begun("Count").await;
    bench.reached(&id, "completed").await;
    assert!(bench.made("made"));
    let log = bench.log(&id).await;
    let told = told_on_the_way(&log);
    let [tool, output] = told[..] else { panic!("{told:?}") };
    assert_eq!(tool, "Using tool: shell");
    assert!(output.starts_with("Tool result: 1,2,3,") && output.ends_with('…'), "{output}");
    assert_eq!(output.chars().count(), "Tool result: ".len() + 200, "{output}");
}

#[tokio::test]
async fn an_approved_action_is_performed() {
    let patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: written\n+text\n\
                 *** End Patch\nEOF\n";
    let steps = vec![leave_sandbox("touch made"), run(patch), text("Both are there.")];
    let bench = Bench::start(steps, "").await;
    let id = bench.begun("Make it").await;
    let question = bench.question(&id, "touch made").await;
    assert!(!bench.made("made"), "before anybody allowed it");
    assert!(question[0]["text"].as_str().unwrap().contains("It has to be."), "{question}");
    let choices = question[1]["data"]["approval"]["choices"].as_array().unwrap();
    let choices: Vec<_> = choices.iter().map(|choice| &choice["id"]).collect();
    assert_eq!(choices, ["accept", "decline"], "{question}");

    bench.say(Wire::Rest, &Draft::new(uuid(), "y").to(&id)).await;
    let question = bench.question(&id, "apply_patch").await;
    assert!(bench.made("made") && !bench.made("written"));
    assert_eq!(
        question[1]["data"]["approval"]["request"]["changes"][0]["diff"], "text\n",
        "{question}"
    );

    bench.say(Wire::Rest, &Draft::new(uuid(), "acceptForSession").to(&id)).await;
    let done = bench.reached(&id, "completed").await;
    assert_eq!(artifact(&done, "assistant-response"), "Both are there.");
    assert!(bench.made("written"));
}

#[tokio::test]
async fn images_are_shown_to_the_model() {
    let bench = Bench::start(vec![text("I see.")], "").await;
    let pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let parts = json!([{ "text": "What is this?" }, { "raw": pixel, "mediaType": "image/png" }]);
    let message = json!({ "messageId": uuid(), "role": "ROLE_USER", "parts": parts });
    let call = Call::post("/message:send", &json!({ "message": message }));
    let sent = bench.herald.call(&call.header("a2a-version", "1.0")).await;
    let done = bench.reached(id(&Wire::Rest.sent(&sent).unwrap()), "completed").await;
    assert_eq!(artifact(&done, "assistant-response"), "I see.");
    let asked = bench.model.asked()[0].body["input"].to_string();
    assert!(asked.contains("data:image/png;base64,"), "{asked}");
}

#[tokio::test]
async fn a_denied_action_is_not_performed_and_the_model_is_informed() {
    let bench = Bench::start(vec![leave_sandbox("touch made"), text("Then not.")], "").await;
    let id = bench.begun("Make it").await;
    let asked = bench.reached(&id, "input-required").await;
    // In 0.3 the only task of a context that waits need not be named.
    let answer = Draft::new(uuid(), "n").within(context(&asked));
    assert_eq!(bench.say(Wire::OldRpc, &answer).await, id);
    bench.reached(&id, "completed").await;
    assert!(!bench.made("made"));
    let heard = bench.model.asked()[1].body["input"].to_string();
    assert!(heard.contains("rejected by user"), "{heard}");
}

#[tokio::test]
async fn an_unanswered_question_is_denied() {
    let steps = vec![leave_sandbox("touch made"), text("Then not.")];
    let bench = Bench::start(steps, "approval_timeout = \"100ms\"").await;
    let id = bench.begun("Make it").await;
    bench.reached(&id, "completed").await;
    assert!(!bench.made("made"));
    let log = bench.log(&id).await;
    assert!(told_on_the_way(&log).contains(&"Denied: nobody answered in time"), "{log:?}");
}

#[tokio::test]
async fn without_force_commands_can_only_read() {
    let bench = Bench::start(vec![run("touch made; echo tried"), text("It cannot be.")], "").await;
    let id = bench.begun("Make it").await;
    bench.reached(&id, "completed").await;
    assert!(!bench.made("made"));
}

#[tokio::test]
async fn a_cancelled_task_leaves_no_process() {
    let bench = Bench::start(vec![run("sleep 600"), Step::Hang], "force = true").await;
    let id = bench.begun("Wait").await;
    bench.sleeps().await;
    bench.cancel(&id).await;
}

#[tokio::test]
async fn a_task_that_waits_for_an_answer_can_be_cancelled() {
    let bench = Bench::start(vec![leave_sandbox("touch made")], "").await;
    let id = bench.begun("Make it").await;
    bench.reached(&id, "input-required").await;
    bench.cancel(&id).await;
    assert!(!bench.made("made"));
}

#[tokio::test]
async fn a_turn_ends_with_its_timeout() {
    let bench = Bench::start(vec![Step::Hang], "timeout = \"2s\"").await;
    let id = bench.begun("Wait").await;
    let task = bench.reached(&id, "failed").await;
    assert_eq!(failure(&task).1, "TIMED_OUT", "{task}");
    bench.is_left().await;
}

#[tokio::test]
async fn a_task_fails_cleanly_when_codex_dies_at_any_moment() {
    let steps = vec![Step::Hang, leave_sandbox("touch made"), text("Back again.")];
    let bench = Bench::start(steps, "").await;
    let starting = bench.begun("Hello").await;
    eventually(TIMEOUT, "it starts", async || !bench.processes().is_empty()).await;
    bench.kill();
    let at_work = async || {
        let id = bench.begun("Wait").await;
        eventually(TIMEOUT, "the model is asked", async || !bench.model.asked().is_empty()).await;
        bench.kill();
        id
    };
    for id in [starting, at_work().await] {
        let died = bench.reached(&id, "failed").await;
        let (why, _) = failure(&died);
        assert!(why.starts_with("agent coder was killed"), "{why}");
    }

    let waits = bench.begun("Make it").await;
    bench.reached(&waits, "input-required").await;
    bench.kill();
    let died = bench.reached(&waits, "failed").await;
    let (why, _) = failure(&died);
    assert!(why.starts_with("agent coder ended while it waited for an answer"), "{why}");

    // The message is in its session, which can be resumed.
    let next = Draft::new(uuid(), "And now?").within(context(&died));
    let next = bench.say(Wire::Rest, &next).await;
    let next = bench.reached(&next, "completed").await;
    assert_eq!(artifact(&next, "assistant-response"), "Back again.", "{next}");
    assert!(bench.model.asked()[2].body["input"].to_string().contains("Make it"));
}

#[tokio::test]
async fn a_question_survives_the_server_and_codex_continues_its_session() {
    let steps = vec![leave_sandbox("touch made"), text("I see.")];
    let mut bench = Bench::start(steps, "").await;
    let id = bench.begun("Make it").await;
    bench.reached(&id, "input-required").await;
    bench.herald.kill9().await;
    bench.herald.restart().await;
    bench.is_left().await;
    bench.reached(&id, "input-required").await;
    bench.say(Wire::Rest, &Draft::new(uuid(), "You may").to(&id)).await;
    let done = bench.reached(&id, "completed").await;
    assert_eq!(artifact(&done, "assistant-response"), "I see.", "{done}");
    let heard = bench.model.asked()[1].body["input"].to_string();
    assert!(heard.contains("Make it") && heard.contains("You may"), "{heard}");
}

#[tokio::test]
async fn a_task_fails_cleanly_when_codex_dies_during_a_command() {
    let bench = Bench::start(vec![run("sleep 600"), Step::Hang], "force = true").await;
    let id = bench.begun("Wait").await;
    bench.sleeps().await;
    bench.kill();
    let died = bench.reached(&id, "failed").await;
    let (why, _) = failure(&died);
    assert!(why.starts_with("agent coder was killed"), "{why}");
    bench.is_left().await;
}

#[tokio::test]
async fn a_refusal_of_the_model_fails_the_task_with_a_reason() {
    let bench = Bench::start(vec![Step::Status(401)], "").await;
    let id = bench.begun("Anything").await;
    let task = bench.reached(&id, "failed").await;
    let (why, _) = failure(&task);
    assert!(why.contains("401 Unauthorized"), "{why}");
}

#[tokio::test]
async fn a_model_that_does_not_answer_is_reported() {
    let bench = Bench::start(vec![Step::Die, text("Here again.")], "").await;
    let config = bench.home.path().join("codex/config.toml");
    let settings = fs::read_to_string(&config).unwrap();
    let settings = settings.replace("stream_max_retries = 0", "stream_max_retries = 2");
    fs::write(&config, settings).unwrap();
    let id = bench.begun("Hello").await;
    let task = bench.reached(&id, "completed").await;
    assert_eq!(artifact(&task, "assistant-response"), "Here again.");
    let log = bench.log(&id).await;
    assert_eq!(told_on_the_way(&log), ["The model does not answer: retry 1 of 2"]);
}

#[tokio::test]
async fn a_profile_is_used_and_the_model_of_the_settings_overrides_it() {
    let settings = ["profile = \"quick\"", "profile = \"quick\"\nmodel = \"large\""];
    for (settings, model) in settings.into_iter().zip(["quick", "large"]) {
        let bench = Bench::start(vec![text("It is I.")], settings).await;
        let id = bench.begun("Who are you?").await;
        let task = bench.reached(&id, "completed").await;
        assert_eq!(artifact(&task, "agent-metadata")["model"], model);
        assert_eq!(bench.model.asked()[0].body["model"], model);
    }
}

#[tokio::test]
async fn a_missing_profile_is_refused_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("repo")).unwrap();
    let refused = Bench::options(home.path(), "profile = \"absent\"").refused().await;
    assert!(refused.stderr.contains("absent.config.toml"), "{}", refused.stderr);
    let refused = Bench::options(home.path(), "profile = \"../secret\"").refused().await;
    assert!(refused.stderr.contains("has letters, digits"), "{}", refused.stderr);
}
