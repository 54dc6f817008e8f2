//! Tests of the Python worker and of the Python calls by role, against the real server.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::{
    http::Call,
    support::{Herald, Options, SOON, ended, eventually, uuid},
    tasks::{ended as task_ended, failure, printed, task},
    wire::{Draft, Wire, id, state},
};

/// Handlers that do what they are told.
const HANDLERS: &str = r#"
import asyncio
from herald import Artifact, Message, Role, TaskArtifactUpdateEvent, TaskHandler, TaskState, TaskStatus
from herald import TaskStatusUpdateEvent, TextPart

class Reviewer(TaskHandler):
    """Reviews."""

    @property
    def name(self):
        return "code-reviewer"

    async def process_task(self, task_id, message, session_id=None, history=()):
        def status(state, text=None):
            said = Message(role=Role.agent, parts=[TextPart(text=text)]) if text else None
            return TaskStatusUpdateEvent(id=task_id, status=TaskStatus(state=state, message=said))
        yield status(TaskState.working, "reading")
        text = message.text
        if text == "fail":
            raise RuntimeError("a secret")
        if text == "wait":
            open("waiting", "w").close()
            try:
                await asyncio.sleep(600)
            finally:
                open("stopped", "w").close()
        if text == "ask":
            yield status(TaskState.input_required, "which file?")
            return
        parts = [TextPart(text=f"{text} is fine")]
        yield TaskArtifactUpdateEvent(id=task_id, artifact=Artifact(name="review", parts=parts))
        yield status(TaskState.completed)
"#;

/// A program with the interface for functions.
const FUNCTION: &str = r#"
import logging, sys
from agent_worker import Worker

logging.basicConfig(level="INFO")

def work(turn):
    turn.progress("asking")
    name = turn.ask("who are you?")
    return f"{turn.text}, {name}"

Worker(sys.argv[1], "code-reviewer", "Python code review specialist", instance="f1").run(work)
"#;

/// The worker command of the first document behind docs/compatibility.md, word for word.
const WORKER: &str = r#"# Register worker as a discoverable agent
python -m agent_worker.worker \
  --agent-name code-reviewer \
  --agent-description "Python code review specialist" \
  --server https://api.codetether.run"#;

/// The routing example of that document, word for word.
const ROUTING: &str = r#"# Discover available agents
agents = await discover_agents()
# Returns: [{"name": "code-reviewer:host-a:1", "role": "code-reviewer", ...}]

# Route to agent by ROLE (not name!)
await send_to_agent(
    agent_name="code-reviewer",  # Uses role
    message="Review auth.py for security issues"
)
"#;

/// The calls by role, as programs write them.
const CALLS: &str = r#"
import asyncio
from agent_worker import Refused, discover_agents, send_to_agent

async def main():
    agents = await discover_agents(role="code-reviewer")
    workers = [agent for agent in agents if ":" in agent["name"]]
    print([agent["role"] for agent in workers], [agent["description"] for agent in workers])
    task = await send_to_agent(
        agent_name="code-reviewer",  # Uses role
        message="Review auth.py for security issues"
    )
    print(task["status"]["state"], task["artifacts"][0]["parts"][0]["text"])
    try:
        await send_to_agent(agent_name=workers[0]["name"], message="Hello")
    except Refused as refusal:
        print("refused:", refusal)

asyncio.run(main())
"#;

const PATH: &str = "/agents/code-reviewer";

/// A worker in Python, with a directory of its own.
#[derive(Debug)]
struct PythonWorker {
    child: Child,
    home: TempDir,
}

impl PythonWorker {
    async fn start(herald: &Herald, arguments: &[&str]) -> Self {
        Self::spawn(herald, |command| {
            command.args(["-m", "agent_worker.worker", "--agent-name", "code-reviewer"]);
            command.args(["--agent-description", "Python code review specialist"]);
            command.arg("--server").arg(format!("http://{}", herald.address)).args(arguments);
        })
        .await
    }

    async fn spawn(herald: &Herald, prepare: impl FnOnce(&mut Command)) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("handlers.py"), HANDLERS).unwrap();
        fs::write(home.path().join("function.py"), FUNCTION).unwrap();
        let mut command = python(herald, home.path()).await;
        prepare(&mut command);
        command.stderr(File::create(home.path().join("log")).unwrap()).kill_on_drop(true);
        let worker = Self { child: command.spawn().unwrap(), home };
        eventually(SOON, "it has registered", async || worker.log().contains("registered")).await;
        worker
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    fn has(&self, file: &str) -> bool {
        self.home.path().join(file).exists()
    }

    async fn terminate(&mut self) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").arg(&id).status().await.unwrap().success());
        let ended = tokio::time::timeout(SOON, self.child.wait()).await;
        assert!(ended.expect("it ends").unwrap().success(), "{}", self.log());
    }
}

impl Drop for PythonWorker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the worker's log:\n{}", self.log());
        }
    }
}

/// The program behind `python3`, which is found whatever `PATH` a test sets.
async fn interpreter() -> PathBuf {
    let mut command = Command::new("python3");
    command.args(["-c", "import sys; print(sys.executable)"]);
    ended(command).await.stdout.trim().into()
}

async fn python(herald: &Herald, home: &Path) -> Command {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/src");
    let mut command = Command::new(interpreter().await);
    command.arg("-B").current_dir(home).env("HOME", home).env("PYTHONPATH", source);
    command.env("A2A_SERVER_URL", format!("http://{}", herald.address));
    command.env_remove("A2ACLI_BEARER").env_remove("A2ACLI_API_KEY");
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

async fn sent(herald: &Herald, draft: Draft, immediately: bool) -> Value {
    let call = Wire::Rest.send(PATH, &draft, immediately);
    Wire::Rest.sent(&herald.call(&call).await).unwrap()
}

async fn told(herald: &Herald, text: &str) -> Value {
    sent(herald, Draft::new(uuid(), text), false).await
}

/// The worker command of other programs, whose coding agent is the only one on `PATH`.
#[tokio::test]
async fn the_worker_command_works_as_written() {
    let herald = Herald::start(Options::agents()).await;
    let line = WORKER.replace("https://api.codetether.run", &format!("http://{}", herald.address));
    let interpreter = interpreter().await;
    let worker = PythonWorker::spawn(&herald, |command| {
        let home = command.as_std().get_current_dir().unwrap().to_owned();
        let search = programs(&home);
        std::os::unix::fs::symlink(interpreter, search.join("python")).unwrap();
        // The interpreter of the command runs a shell, so that the line is read as it is written.
        let run = "import os, sys; os.execv('/bin/sh', ['sh', '-c', 'exec ' + sys.argv[1]])";
        let line = line.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
        command.args(["-c", run]).arg(line.join("\n")).env("PATH", search);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
    })
    .await;
    assert!(worker.log().contains("adapter=\"claude-code\""), "{}", worker.log());
    let card = herald.call(&Call::get(format!("{PATH}/.well-known/agent-card.json"))).await.json();
    assert_eq!(card["description"], "Python code review specialist", "{card}");
    let done = told(&herald, "auth.py").await;
    assert!(done.to_string().contains("Looks good."), "{done}");
}

/// A directory with a coding agent, `herald` and the programs that both need.
fn programs(home: &Path) -> PathBuf {
    let directory = home.join("bin");
    fs::create_dir(&directory).unwrap();
    let herald = Path::new(env!("CARGO_BIN_EXE_herald"));
    std::os::unix::fs::symlink(herald, directory.join("herald")).unwrap();
    let claude = directory.join("claude");
    let events = [
        r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"Looks good."}]}}"#,
        r#"{"type":"result","subtype":"success","is_error":false,"result":"Looks good."}"#,
    ];
    let events = events.map(|event| format!("echo '{event}'")).join("\n");
    fs::write(&claude, format!("#!/bin/sh\n{events}\n")).unwrap();
    fs::set_permissions(claude, Permissions::from_mode(0o755)).unwrap();
    directory
}

#[tokio::test]
async fn a_handler_of_a_python_worker_answers_asks_fails_and_is_cancelled() {
    let herald = Herald::start(Options::agents()).await;
    let mut worker = PythonWorker::start(&herald, &["--handler", "handlers:Reviewer"]).await;
    let done = told(&herald, "auth.py").await;
    assert_eq!((state(&done).as_str(), printed(&done).as_str()), ("completed", "auth.py is fine"));
    let failed = told(&herald, "fail").await;
    assert_eq!(failure(&failed), ("the agent failed: RuntimeError", "AGENT_FAILED"));
    let asked = told(&herald, "ask").await;
    assert_eq!(state(&asked), "input-required", "{asked}");
    let done = sent(&herald, Draft::new(uuid(), "main.py").to(id(&asked)), false).await;
    assert_eq!(printed(&task(&herald, id(&done)).await), "main.py is fine");
    let waiting = sent(&herald, Draft::new(uuid(), "wait"), true).await;
    eventually(SOON, "the handler works", async || worker.has("waiting")).await;
    herald.call(&Wire::Rest.cancel(id(&waiting))).await;
    eventually(SOON, "the handler stops", async || worker.has("stopped")).await;
    worker.terminate().await;
    assert!(worker.log().contains("left the server"), "{}", worker.log());
}

#[tokio::test]
async fn a_function_asks_within_its_turn_and_a_program_answers() {
    let herald = Herald::start(Options::agents()).await;
    let mut function = PythonWorker::spawn(&herald, |command| {
        command.arg("function.py").arg(format!("http://{}", herald.address));
    })
    .await;
    let asked = told(&herald, "hello").await;
    assert_eq!(state(&asked), "input-required", "{asked}");
    sent(&herald, Draft::new(uuid(), "Ann").to(id(&asked)), true).await;
    let done = task_ended(&herald, id(&asked)).await;
    assert_eq!(printed(&done), "hello, Ann");
    function.terminate().await;
    let _program = PythonWorker::start(&herald, &["--exec", "tr a-z A-Z"]).await;
    assert_eq!(printed(&told(&herald, "louder").await), "LOUDER");
}

#[tokio::test]
async fn agents_are_discovered_and_reached_by_their_role() {
    let herald = Herald::start(Options::agents()).await;
    let _worker = PythonWorker::start(&herald, &["--handler-package", "handlers"]).await;
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("calls.py"), CALLS).unwrap();
    let mut calls = python(&herald, home.path()).await;
    calls.arg("calls.py");
    let printed = ended(calls).await;
    assert!(printed.status.success(), "{printed:?}");
    let lines: Vec<_> = printed.stdout.lines().collect();
    assert_eq!(lines[0], "['code-reviewer'] ['Python code review specialist']", "{printed:?}");
    let answer = "TASK_STATE_COMPLETED Review auth.py for security issues is fine";
    assert_eq!(lines[1], answer, "{printed:?}");
    assert!(lines[2].starts_with("refused: ") && lines[2].contains("role"), "{printed:?}");

    // The example prints nothing: the list is checked here, and the task has been made.
    let body = ROUTING.replace('\n', "\n    ");
    let checks =
        "assert any(one['role'] == 'code-reviewer' and ':' in one['name'] for one in agents)";
    let program = format!(
        "import asyncio\nfrom agent_worker import discover_agents, send_to_agent\n\nasync def main():\n    \
         {body}\n    {checks}\n\nasyncio.run(main())\n"
    );
    fs::write(home.path().join("routing.py"), program).unwrap();
    let mut routing = python(&herald, home.path()).await;
    routing.arg("routing.py");
    let ran = ended(routing).await;
    assert!(ran.status.success(), "{ran:?}");
    let tasks = herald.call(&Call::get("/tasks").header("a2a-version", "1.0")).await.json();
    assert_eq!(tasks["tasks"].as_array().unwrap().len(), 2, "{tasks}");
}

#[tokio::test]
async fn a_python_worker_without_an_agent_names_the_flags() {
    let herald = Herald::start(Options::agents()).await;
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(interpreter().await);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/src");
    command.args(["-B", "-m", "agent_worker.worker", "--agent-name", "code-reviewer"]);
    command.arg("--server").arg(format!("http://{}", herald.address));
    command.current_dir(home.path()).env("PYTHONPATH", source).env("PATH", home.path());
    let refused = ended(command).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains("--handler") && refused.stderr.contains("herald worker"),
        "{refused:?}"
    );
}

/// The blocks of the page about workers in this language, for this server.
fn blocks(language: &str, herald: &Herald) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/workers.md");
    let page = fs::read_to_string(page).unwrap();
    let page = page.replace("https://agents.example.com", &format!("http://{}", herald.address));
    let begin = format!("```{language}\n");
    let blocks = page.split(&begin).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn the_python_in_the_page_about_workers_runs() {
    let herald = Herald::start(Options::agents()).await;
    let shell = blocks("bash", &herald).pop().unwrap();
    // The package is used from its sources; another test installs it.
    let line = shell.strip_prefix("pip install ./python").unwrap().split_once('\n').unwrap().1;
    let line = line.replace("\\\n", " ").replace("my_package.handlers", "handlers");
    let words: Vec<_> = line.trim().split('"').collect();
    let [before, description, after] = words[..] else { panic!("{line}") };
    let mut worker = PythonWorker::spawn(&herald, |command| {
        let before = before.strip_prefix("python ").unwrap();
        command.args(before.split_whitespace()).arg(description).args(after.split_whitespace());
    })
    .await;
    assert_eq!(printed(&told(&herald, "auth.py").await), "auth.py is fine");
    worker.terminate().await;

    let programs = blocks("python", &herald);
    let [function, calls] = &programs[..] else { panic!("{programs:?}") };
    // The program says on standard error that it has registered.
    let logging = "import logging; logging.basicConfig(level=\"INFO\")";
    let function = format!("{logging}\n{function}");
    let _worker = PythonWorker::spawn(&herald, |command| {
        let home = command.as_std().get_current_dir().unwrap();
        fs::write(home.join("page.py"), function).unwrap();
        command.arg("page.py");
    })
    .await;
    let home = tempfile::tempdir().unwrap();
    let calls = calls.replace("\n", "\n    ");
    let calls = format!(
        "import asyncio\nasync def main():\n    {calls}\n    \
         print([agent[\"role\"] for agent in agents if \":\" in agent[\"name\"]], task[\"artifacts\"])\n\
         asyncio.run(main())\n"
    );
    fs::write(home.path().join("calls.py"), calls).unwrap();
    let mut command = python(&herald, home.path()).await;
    command.arg("calls.py");
    let output = ended(command).await;
    assert!(output.stdout.contains("['code-reviewer']"), "{output:?}");
    assert!(output.stdout.contains("5 words"), "{output:?}");
}
