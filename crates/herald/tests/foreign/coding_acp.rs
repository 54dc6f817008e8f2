//! Tests of agents with the Agent Client Protocol, with a scripted model on
//! loopback.

use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    coding::{LONG_TIMEOUT, TIMEOUT, installed, running_with, text},
    model::{Model, Step},
    support::{Herald, Options, eventually, uuid},
    tasks::{artifact, begun, failure, task},
    wire::{Draft, Wire, id, is_terminal, state},
};

/// The command of the model, which creates a file.
const COMMAND: &str = "touch made-it && echo was-here";

/// A coding agent that is installed for the tests.
pub(crate) struct Cli {
    pub(crate) kind: &'static str,
    pub(crate) command: &'static [&'static str],
    /// More settings.
    pub(crate) settings: &'static str,
    /// Its environment, by the address of its model.
    pub(crate) environment: fn(&Model) -> Vec<(&'static str, String)>,
    /// The tool call of a command.
    pub(crate) tool: &'static str,
}

/// OpenCode as a plain ACP agent.
const ANY: Cli = Cli {
    kind: "acp",
    command: &["opencode", "acp"],
    settings: "model = \"scripted/small\"\nprofile = \"build\"",
    environment: |model| {
        let ask = ("OPENCODE_PERMISSION", r#"{"bash":"ask"}"#.to_owned());
        crate::coding_opencode::environment(model).into_iter().chain([ask]).collect()
    },
    tool: "bash",
};

/// A server with the agent, and its model.
struct Bench {
    herald: Herald,
    model: Model,
    home: TempDir,
}

impl Cli {
    async fn start(&self, steps: Vec<Step>, settings: &str) -> Bench {
        let model = Model::start(steps).await;
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("repo")).unwrap();
        let program = installed(self.command[0]);
        let mut command = vec![program.to_str().unwrap()];
        command.extend(&self.command[1..]);
        let mut config = format!(
            "[[agents]]\nname = \"coder\"\nkind = {:?}\ncommand = {command:?}\nworkdir = {:?}\n\
             {LONG_TIMEOUT}\n{}\n{settings}\n[agents.env]\nHOME = {:?}\n",
            self.kind,
            home.path().join("repo"),
            self.settings,
            home.path(),
        );
        for (name, value) in (self.environment)(&model) {
            config += &format!("{name} = '{value}'\n");
        }
        let herald = Herald::start(Options::config(config)).await;
        Bench { herald, model, home }
    }

    fn command(&self) -> Step {
        let arguments = json!({ "command": COMMAND, "description": "makes it" });
        Step::Tool { name: self.tool.to_owned(), arguments }
    }

    /// Asks, continues after a yes, and keeps its session in the next task of the conversation.
    pub(crate) async fn asks_goes_on_and_remembers(&self) {
        let steps = vec![self.command(), text("All is done."), text("Once more.")];
        let bench = self.start(steps, "").await;
        let id = begun(&bench.herald, "make it, please").await;
        let asking = bench.reached(&id, "input-required").await;
        let question = asking["status"]["message"]["parts"].as_array().unwrap();
        assert!(question[0]["text"].as_str().unwrap().contains(COMMAND), "{asking}");
        assert!(
            question[1]["data"]["approval"]["choices"].as_array().unwrap().len() >= 2,
            "{asking}"
        );
        assert!(!bench.is_made(), "nobody allowed it");
        assert!(!bench.processes().is_empty(), "it waits");

        let context = asking["contextId"].as_str().unwrap();
        // In 0.3 a message to the context answers its only question.
        let yes = Wire::OldRpc.send("", &Draft::new(uuid(), "y").within(context), true);
        Wire::OldRpc.sent(&bench.herald.call(&yes).await).unwrap();
        let done = bench.reached(&id, "completed").await;
        assert!(bench.is_made());
        assert_eq!(artifact(&done, "assistant-response"), "All is done.");
        let result = artifact(&done, "result");
        assert_eq!(result["summary"], "All is done.", "{done}");
        let stats = &result["stats"];
        let (read, written) = (&stats["inputTokens"], &stats["outputTokens"]);
        let total = read.as_u64().unwrap() + written.as_u64().unwrap();
        assert_eq!(stats["totalTokens"], total, "{done}");
        assert!(stats["raw"]["usage"].is_object(), "the agent's own figures: {done}");
        let session = artifact(&done, "agent-metadata")["sessionId"].clone();
        assert!(session.is_string(), "{done}");
        bench.none_is_left().await;

        let again = bench.say(Draft::new(uuid(), "and again").within(context)).await;
        let again = bench.reached(&again, "completed").await;
        assert_eq!(artifact(&again, "assistant-response"), "Once more.", "nothing is told again");
        assert_eq!(artifact(&again, "agent-metadata")["sessionId"], session);
        let asked = bench.model.asked().last().unwrap().body.to_string();
        for known in ["make it, please", "was-here", "All is done.", "and again"] {
            assert!(asked.contains(known), "the model is not told {known:?}: {asked}");
        }
        assert_eq!(bench.model.unused(), 0);
    }

    /// Does not perform a denied action.
    pub(crate) async fn takes_a_no(&self, settings: &str, answer: Option<&str>) {
        let bench = self.start(vec![self.command(), text("Then not.")], settings).await;
        let id = begun(&bench.herald, "make it, please").await;
        if let Some(answer) = answer {
            bench.reached(&id, "input-required").await;
            bench.say(Draft::new(uuid(), answer).to(&id)).await;
        }
        bench.reached(&id, "completed").await;
        assert!(bench.model.unused() < 2, "the model wanted it");
        assert!(!bench.is_made());
        bench.none_is_left().await;
    }

    /// Asks no question.
    pub(crate) async fn is_forced(&self) {
        let steps = vec![self.command(), text("All is done.")];
        let bench = self.start(steps, "force = true").await;
        let id = begun(&bench.herald, "make it, please").await;
        let done = bench.reached(&id, "completed").await;
        assert!(bench.is_made());
        assert_eq!(artifact(&done, "assistant-response"), "All is done.");
        assert_eq!(bench.model.unused(), 0);
    }

    /// Is cancelled in the middle, killed in the middle, and killed while it waits.
    pub(crate) async fn is_cut_off(&self) {
        let bench = self.start(vec![Step::Hang, Step::Hang, self.command()], "").await;
        let id = begun(&bench.herald, "think").await;
        bench.left(2).await;
        let cancelled = bench.herald.call(&Wire::Rest.cancel(&id)).await;
        assert_eq!(state(&Wire::Rest.result(&cancelled).unwrap()), "canceled");
        bench.none_is_left().await;

        let id = begun(&bench.herald, "think again").await;
        bench.left(1).await;
        bench.killed(&id).await;

        let id = begun(&bench.herald, "make it, please").await;
        bench.reached(&id, "input-required").await;
        bench.killed(&id).await;
        assert!(!bench.is_made());
    }

    /// Takes too long.
    pub(crate) async fn is_late(&self) {
        let bench = self.start(vec![Step::Hang], "timeout = \"1s\"").await;
        let id = begun(&bench.herald, "think").await;
        let late = bench.reached(&id, "failed").await;
        assert_eq!(failure(&late).1, "TIMED_OUT");
        bench.none_is_left().await;
    }

    /// Has a model that refuses.
    pub(crate) async fn hears_a_refusal(&self) {
        let bench = self.start(vec![Step::Status(400)], "").await;
        let id = begun(&bench.herald, "think").await;
        let failed = bench.reached(&id, "failed").await;
        let (why, _) = failure(&failed);
        assert!(why.contains("the model says 400"), "{why}");
        bench.none_is_left().await;
    }
}

impl Bench {
    /// Sends a message, and returns the id of its task at once.
    async fn say(&self, draft: Draft) -> String {
        let answer = self.herald.call(&Wire::Rest.send("", &draft, true)).await;
        id(&Wire::Rest.sent(&answer).unwrap()).to_owned()
    }

    /// Waits for a state of a task, and fails in another final state.
    async fn reached(&self, id: &str, wanted: &str) -> Value {
        eventually(TIMEOUT, "the task gets on", async || {
            let state = state(&task(&self.herald, id).await);
            state == wanted || is_terminal(&state)
        })
        .await;
        let task = task(&self.herald, id).await;
        assert_eq!(state(&task), wanted, "{task}\n{}", self.herald.log());
        task
    }

    /// Waits until the model has this many steps left.
    async fn left(&self, steps: usize) {
        eventually(TIMEOUT, "the model is asked", async || self.model.unused() == steps).await;
    }

    /// Kills the agent, which fails its task with a reason.
    async fn killed(&self, id: &str) {
        let pids: Vec<_> = self.processes().iter().map(ToString::to_string).collect();
        assert!(!pids.is_empty(), "it runs");
        Command::new("kill").arg("-9").args(&pids).status().await.unwrap();
        let task = self.reached(id, "failed").await;
        let (why, _) = failure(&task);
        assert!(why.starts_with("agent coder "), "{why}");
        self.none_is_left().await;
    }

    /// The processes of the agent, found by its home directory.
    fn processes(&self) -> Vec<u32> {
        running_with(&format!("HOME={}", self.home.path().display()))
    }

    async fn none_is_left(&self) {
        eventually(TIMEOUT, "no process is left", async || self.processes().is_empty()).await;
    }

    fn is_made(&self) -> bool {
        self.home.path().join("repo/made-it").exists()
    }
}

#[tokio::test]
async fn an_acp_agent_asks_continues_and_keeps_its_session() {
    ANY.asks_goes_on_and_remembers().await;
}

#[tokio::test]
async fn an_approval_of_an_acp_agent_that_times_out_is_a_no() {
    ANY.takes_a_no("approval_timeout = \"1s\"", None).await;
}

#[tokio::test]
async fn a_program_without_the_protocol_fails_with_a_reason() {
    let config = "[[agents]]\nname = \"coder\"\nkind = \"acp\"\n";
    let programs = [
        (r#"["cat"]"#, "does not support the Agent Client Protocol"),
        (r#"["sh", "-c", "read line; exit 3"]"#, "ended with exit code 3"),
        (
            r#"["sh", "-c", "read line; echo '{\"id\":1,\"result\":{\"protocolVersion\":9}}'; cat"]"#,
            "has version 9",
        ),
    ];
    for (command, reason) in programs {
        let config = format!("{config}command = {command}\n");
        let herald = Herald::start(Options::config(config)).await;
        let failed = crate::tasks::told(&herald, "hello").await;
        let (why, _) = failure(&failed);
        assert!(why.contains(reason), "{why}");
    }
}
