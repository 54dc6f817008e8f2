//! Tests of `a2a-server` with handlers in Python, as the third document behind docs/compatibility.md has them.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::Command,
    time::timeout,
};

use crate::{
    http::Call,
    support::{Ended, Herald, Options, SOON, ended},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_a2a-server");

/// The handler of the document, word for word.
pub(crate) const DOCUMENTED: &str = r#"from a2a.server.tasks.task_handler import TaskHandler
from a2a.json_rpc.spec import (
    Message, TaskStatus, TaskState, Artifact, TextPart,
    TaskStatusUpdateEvent, TaskArtifactUpdateEvent, Role
)

class MyCustomHandler(TaskHandler):
    @property
    def name(self) -> str:
        return "my_handler"
    
    async def process_task(self, task_id, message, session_id=None):
        # Update status to working
        yield TaskStatusUpdateEvent(
            id=task_id,
            status=TaskStatus(state=TaskState.working),
            final=False
        )
        
        # Process the message...
        
        # Yield completion
        yield TaskStatusUpdateEvent(
            id=task_id,
            status=TaskStatus(state=TaskState.completed),
            final=True
        )
"#;

/// A handler that waits in the middle, without the help of its caller.
const PATIENT: &str = r#"
from a2a.server.tasks.task_handler import TaskHandler
from a2a.json_rpc.spec import Artifact, Message, Role, TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent, TextPart

class Patient(TaskHandler):
    """Waits."""

    @property
    def name(self):
        return "patient_one"

    async def process_task(self, task_id, message, session_id=None):
        text = message.parts[0].text
        question = Message(role=Role.agent, parts=[TextPart(text="a key, please")])
        def status(state, final, message=None):
            return TaskStatusUpdateEvent(id=task_id, status=TaskStatus(state=state, message=message), final=final)
        if text == "the key":
            yield status(TaskState.working, False)
            yield status(TaskState.completed, True)
            return
        yield status(TaskState.working, False)
        yield status(TaskState.input_required, text == "end", question)
        if text == "return":
            return
        yield status(TaskState.working, False)
        found = Artifact(name="answer", parts=[TextPart(text="found one")])
        yield TaskArtifactUpdateEvent(id=task_id, artifact=found)
        yield status(TaskState.completed, True)
"#;

/// A directory for modules and installed packages, which Python searches, as it does the helper.
struct Site(TempDir);

impl Site {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With a package that has this module of handlers.
    fn with(self, package: &str, handlers: &str) -> Self {
        let directory = self.path().join(package);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("__init__.py"), "").unwrap();
        fs::write(directory.join("handlers.py"), handlers).unwrap();
        self
    }

    /// With an installed package that declares this entry point.
    fn installed(self, package: &str, point: &str) -> Self {
        let about = self.path().join(format!("{package}-1.0.dist-info"));
        fs::create_dir(&about).unwrap();
        let metadata = format!("Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n");
        fs::write(about.join("METADATA"), metadata).unwrap();
        let points = format!("[a2a.task_handlers]\n{point}\n");
        fs::write(about.join("entry_points.txt"), points).unwrap();
        self
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn search(&self) -> String {
        format!("{}:{}", helper().display(), self.path().display())
    }

    fn options(&self, arguments: &[&str]) -> Options {
        let options = Options::a2a_server(PROGRAM).arguments(arguments.iter().copied());
        options.environment("PYTHONPATH", &self.search())
    }

    async fn start(&self, arguments: &[&str]) -> Herald {
        Herald::start(self.options(arguments)).await
    }

    async fn list(&self, arguments: &[&str]) -> Ended {
        let home = tempfile::tempdir().unwrap();
        let mut command = Command::new(PROGRAM);
        command.current_dir(home.path()).env("PYTHONPATH", self.search());
        command.arg("--list-handlers").args(arguments);
        ended(command).await
    }
}

fn helper() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../python/src")).canonicalize().unwrap()
}

fn request(method: &str, text: &str, handler: &str) -> Value {
    let message = json!({ "role": "user", "parts": [{ "type": "text", "text": text }] });
    let params = json!({ "message": message, "handler": handler });
    json!({ "jsonrpc": "2.0", "id": 3, "method": method, "params": params })
}

fn send(method: &str, text: &str, handler: &str) -> Call {
    Call::post("/rpc", &request(method, text, handler))
}

/// The states of a stream, each with its `final`. A turn begins with `working`, which a handler may repeat.
async fn states(herald: &Herald, text: &str, handler: &str) -> Vec<(String, bool)> {
    let call = send("tasks/sendSubscribe", text, handler);
    let mut stream = herald.client().await.open(&call).await.unwrap();
    let mut states = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        let event: Value = serde_json::from_str(&event.data).unwrap();
        if let Some(state) = event["result"]["status"]["state"].as_str() {
            states.push((state.to_owned(), event["result"]["final"] == true));
        }
    }
    states.dedup();
    states
}

fn expected(states: &[&str]) -> Vec<(String, bool)> {
    let last = states.len() - 1;
    let states = states.iter().enumerate();
    states.map(|(index, state)| ((*state).to_owned(), index == last)).collect()
}

/// The first column of the list.
fn names(listed: &Ended) -> Vec<&str> {
    assert!(listed.status.success(), "{listed:?}");
    let rows = listed.stdout.lines().skip(1);
    rows.map(|row| row.split_whitespace().next().unwrap()).collect()
}

#[tokio::test]
async fn the_documented_handler_is_chosen_by_the_name_that_it_gives_itself() {
    let site = Site::new().with("my_custom_module", DOCUMENTED);
    let package = ["--handler-package", "my_custom_module.handlers"];
    assert_eq!(names(&site.list(&package).await), ["echo", "my_handler"]);
    let herald = site.start(&package).await;
    let ended = expected(&["submitted", "working", "completed"]);
    for name in ["my_handler", "my-handler"] {
        assert_eq!(states(&herald, "hi", name).await, ended, "{name}");
    }
    // Its URL has no underscore.
    let card = herald.call(&Call::get("/agents/my-handler/.well-known/agent-card.json")).await;
    assert_eq!(card.status, 200, "{card:?}");
    let refused = herald.call(&send("tasks/send", "hi", "nobody")).await.json();
    let said = refused["error"]["message"].as_str().unwrap();
    assert!(said.contains("handler: must be one of: echo, my_handler"), "{refused}");
}

/// The command lines of the document. The port alone is changed, by a variable or here.
#[tokio::test]
async fn every_command_line_of_the_document_works() {
    let site = Site::new().with("my_custom_module", DOCUMENTED);
    let environment = |options: Options| options.environment("HERALD_PORT", "0");
    for (line, handler) in [
        ("a2a-server", "echo"),
        ("a2a-server --host 0.0.0.0 --port 0", "echo"),
        ("a2a-server --log-level debug", "echo"),
        ("a2a-server --handler-package my_custom_module.handlers", "my_handler"),
        ("a2a-server --no-discovery", "echo"),
    ] {
        let words: Vec<_> = line.split(' ').skip(1).collect();
        let herald = Herald::start(environment(site.options(&words).no_port())).await;
        let ended = states(&herald, "tell me a joke", handler).await.pop().unwrap();
        assert_eq!(ended, ("completed".to_owned(), true), "{line}");
        if line.contains("debug") {
            assert!(herald.log().contains("initial text: 'tell me a joke'"), "{}", herald.log());
        }
    }
    assert_eq!(names(&site.list(&[]).await), ["echo"], "a2a-server --list-handlers");
    let home = tempfile::tempdir().unwrap();
    let mut child = site.options(&[]).no_port().spawn_stdio(home.path());
    let call = request("tasks/send", "tell me a joke", "echo");
    let mut input = child.stdin.take().unwrap();
    input.write_all(format!("{call}\n").as_bytes()).await.unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let answer = timeout(SOON, output.next_line()).await.unwrap().unwrap().unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert!(answer["result"]["id"].is_string(), "a2a-server --stdio: {answer}");
    drop(input);
    assert!(timeout(SOON, child.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn installed_entry_points_are_found_unless_discovery_is_off() {
    let site = Site::new()
        .with("my_module", DOCUMENTED)
        .installed("my_a2a_handlers", "my_handler = my_module.handlers:MyCustomHandler");
    let listed = site.list(&[]).await;
    assert_eq!(names(&listed), ["echo", "my_handler"]);
    assert!(listed.stdout.lines().any(|row| row.contains("installed")), "{listed:?}");
    let herald = site.start(&[]).await;
    let ended = expected(&["submitted", "working", "completed"]);
    assert_eq!(states(&herald, "hi", "my_handler").await, ended);
    // The same class, named once more, is the same handler.
    let package = site.list(&["--handler-package", "my_module.handlers"]).await;
    assert_eq!(names(&package), ["echo", "my_handler"]);

    assert_eq!(names(&site.list(&["--no-discovery"]).await), ["echo"]);
    let herald = site.start(&["--no-discovery"]).await;
    let refused = herald.call(&send("tasks/send", "hi", "my_handler")).await.json();
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn herald_serve_loads_no_package_that_was_not_named() {
    let site = Site::new()
        .with("my_module", DOCUMENTED)
        .installed("my_a2a_handlers", "my_handler = my_module.handlers:MyCustomHandler");
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    command.env("PYTHONPATH", site.search()).args(["serve", "--list-handlers"]);
    assert_eq!(names(&ended(command).await), ["echo"]);
}

#[tokio::test]
async fn the_current_directory_is_not_searched_for_installed_packages() {
    let site = Site::new()
        .with("my_module", DOCUMENTED)
        .installed("my_a2a_handlers", "my_handler = my_module.handlers:MyCustomHandler");
    let mut command = Command::new(PROGRAM);
    command.current_dir(site.path()).env("PYTHONPATH", helper()).arg("--list-handlers");
    assert_eq!(names(&ended(command).await), ["echo"]);
}

#[tokio::test]
async fn a_broken_installed_package_is_skipped_with_the_reason() {
    let site = Site::new()
        .with("my_module", DOCUMENTED)
        .with("torn", "import no_such_module\n")
        .installed("mine", "my_handler = my_module.handlers:MyCustomHandler")
        .installed("torn", "torn = torn.handlers:Torn");
    let listed = site.list(&[]).await;
    assert_eq!(names(&listed), ["echo", "my_handler"]);
    for words in ["skipped", "entry point torn", "'no_such_module'"] {
        assert!(listed.stderr.contains(words), "no {words} in {listed:?}");
    }
    let herald = site.start(&[]).await;
    assert!(herald.log().contains("entry point torn"), "{}", herald.log());
}

#[tokio::test]
async fn a_new_module_among_the_built_in_handlers_is_found() {
    let site = Site::new();
    let copied = site.path().join("herald");
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(helper().join("herald")).arg(&copied);
    assert!(ended(copy).await.status.success());
    fs::write(copied.join("handlers/my_module.py"), DOCUMENTED).unwrap();
    let options =
        Options::a2a_server(PROGRAM).environment("PYTHONPATH", site.path().to_str().unwrap());
    let herald = Herald::start(options).await;
    let ended = expected(&["submitted", "working", "completed"]);
    assert_eq!(states(&herald, "hi", "my_handler").await, ended);
}

#[tokio::test]
async fn a_name_that_is_given_twice_is_refused_with_both_places() {
    let site = Site::new().with("one", DOCUMENTED).with("other", DOCUMENTED);
    let both = ["--handler-package", "one", "--handler-package", "other"];
    let places = ["one.handlers.MyCustomHandler in ", "other.handlers.MyCustomHandler in "];
    let refused = site.options(&both).refused().await;
    for words in places.into_iter().chain(["my_handler"]) {
        assert!(refused.stderr.contains(words), "no {words} in {refused:?}");
    }
    // Different names, but one segment of the URL.
    let dashed = DOCUMENTED.replace("my_handler", "my-handler");
    let site = Site::new().with("one", DOCUMENTED).with("other", &dashed);
    let refused = site.options(&both).refused().await;
    for words in places.into_iter().chain(["given twice"]) {
        assert!(refused.stderr.contains(words), "no {words} in {refused:?}");
    }
    // A name of the configuration and one of a package.
    let config = "[[agents]]\nname = \"my-handler\"\nkind = \"echo\"\n";
    let file = site.path().join("herald.toml");
    fs::write(&file, config).unwrap();
    let arguments = ["--config", file.to_str().unwrap(), "--handler-package", "one"];
    let refused = site.options(&arguments).refused().await;
    for words in ["herald.toml", "line 2", places[0]] {
        assert!(refused.stderr.contains(words), "no {words} in {refused:?}");
    }
    // Two installed packages.
    let site = Site::new()
        .with("one", DOCUMENTED)
        .with("other", DOCUMENTED)
        .installed("first", "my_handler = one.handlers:MyCustomHandler")
        .installed("second", "my_handler = other.handlers:MyCustomHandler");
    let refused = site.options(&[]).refused().await;
    for words in places.into_iter().chain(["--no-discovery"]) {
        assert!(refused.stderr.contains(words), "no {words} in {refused:?}");
    }
}

#[tokio::test]
async fn one_generator_may_wait_and_go_on() {
    let site = Site::new().with("hall", PATIENT);
    let herald = site.start(&["--handler-package", "hall"]).await;
    let all = expected(&["submitted", "working", "input-required", "working", "completed"]);
    assert_eq!(states(&herald, "go", "patient_one").await, all);
    // `final=True` ends the turn, and so does the end of the generator.
    let asked = expected(&["submitted", "working", "input-required"]);
    assert_eq!(states(&herald, "end", "patient_one").await, asked);
    let returned = states(&herald, "return", "patient_one").await;
    let twice = ["submitted", "working", "input-required", "input-required"];
    assert_eq!(returned, expected(&twice));
}

#[tokio::test]
async fn a_waiting_task_works_again_after_the_answer() {
    let site = Site::new().with("hall", PATIENT);
    let herald = site.start(&["--handler-package", "hall"]).await;
    // At this address, a send waits for the turn.
    let at = |call: &Value| Call::post("/a2a", call);
    let message =
        |text: &str| json!({ "role": "user", "parts": [{ "type": "text", "text": text }] });
    let call = |params: Value| {
        at(&json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/send", "params": params }))
    };
    let first = json!({ "message": message("end"), "handler": "patient_one" });
    let task = herald.call(&call(first)).await.json()["result"].clone();
    assert_eq!(task["status"]["state"], "input-required", "{task}");
    assert_eq!(task["status"]["message"]["parts"][0]["text"], "a key, please");
    let answer =
        json!({ "id": task["id"], "message": message("the key"), "handler": "patient_one" });
    let done = herald.call(&call(answer)).await.json()["result"].clone();
    assert_eq!((&done["id"], &done["status"]["state"]), (&task["id"], &json!("completed")));
    let named = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/resubscribe", "params": { "id": task["id"] } });
    let mut stream = herald.client().await.open(&Call::post("/rpc", &named)).await.unwrap();
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await.unwrap() {
        let event: Value = serde_json::from_str(&event.data).unwrap();
        seen.extend(event["result"]["status"]["state"].as_str().map(str::to_owned));
    }
    seen.dedup();
    let loops = ["working", "input-required", "submitted", "working", "completed"];
    assert!(seen.ends_with(&loops.map(str::to_owned)), "{seen:?}");
}
