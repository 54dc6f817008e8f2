//! Tests of handlers in Python with the helper.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    support::{Herald, Options, ended, uuid},
    tasks::{failure, printed, task},
    wire::{Draft, Wire, id, state},
};

/// A handler with the imports of the server that such handlers were written for.
const HANDLER: &str = r#"
from a2a.json_rpc.spec import Artifact, Message, Role, TextPart
from a2a.json_rpc.spec import TaskArtifactUpdateEvent, TaskState, TaskStatus, TaskStatusUpdateEvent
from a2a.server.tasks.task_handler import TaskHandler

def status(task, state, said=None, **more):
    message = Message(role=Role.agent, parts=[TextPart(text=said)]) if said else None
    return TaskStatusUpdateEvent(id=task, status=TaskStatus(state=state, message=message), **more)

class Shouter(TaskHandler):
    """Shouts."""

    @property
    def name(self):
        return "loud_one"

    async def process_task(self, task_id, message, session_id=None):
        print("this goes to the log")
        yield status(task_id, TaskState.working, f"{task_id} in {session_id}", final=False)
        text = message.parts[0].text
        if text == "fail":
            raise RuntimeError("the inside of it")
        shouted = Artifact(name="answer", parts=[TextPart(text=text.upper())])
        yield TaskArtifactUpdateEvent(id=task_id, artifact=shouted)
        yield status(task_id, TaskState.completed, final=True)
"#;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A package with one handler, an entry point that names it, and the search path to both and the
/// helper.
fn package() -> (TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    let package = place.path().join("town");
    let about = place.path().join("mine-1.0.dist-info");
    fs::create_dir(&package).unwrap();
    fs::create_dir(&about).unwrap();
    fs::write(package.join("__init__.py"), "").unwrap();
    fs::write(package.join("handlers.py"), HANDLER).unwrap();
    fs::write(about.join("METADATA"), "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n").unwrap();
    let points = "[a2a.task_handlers]\nloud_one = town.handlers:Shouter\n";
    fs::write(about.join("entry_points.txt"), points).unwrap();
    let helper = root().join("python/src").canonicalize().unwrap();
    let search = format!("{}:{}", helper.display(), place.path().display());
    (place, search)
}

#[tokio::test]
async fn handlers_of_a_package_and_of_entry_points_are_agents() {
    let (_place, search) = package();
    for source in ["town", "entry-points"] {
        let options = Options::default()
            .arguments(["--handler-package", source])
            .environment("PYTHONPATH", &search);
        let herald = Herald::start(options).await;
        assert!(herald.greeting.contains("serves echo, loud-one"), "{}", herald.greeting);
        let send = async |text: &str| {
            let draft = Draft::new(uuid(), text);
            let call = Wire::Rest.send("/agents/loud-one", &draft, false);
            let done = Wire::Rest.sent(&herald.call(&call).await).unwrap();
            task(&herald, id(&done)).await
        };
        let done = send("loud").await;
        assert_eq!((state(&done).as_str(), printed(&done).as_str()), ("completed", "LOUD"));
        assert_eq!(done["artifacts"][0]["name"], "answer");
        let (named, session) = (id(&done), done["contextId"].as_str().unwrap());
        let said = done["history"].as_array().unwrap().last().unwrap();
        assert_eq!(said["parts"][0]["text"], format!("{named} in {session}"), "{done}");
        let text = "agent loud-one failed (RuntimeError)";
        assert_eq!(failure(&send("fail").await), (text, "AGENT_FAILED"));
        let log = herald.log();
        assert!(log.contains("this goes to the log") && log.contains("the inside of it"), "{log}");
    }
}

/// A handler whose first event decides about the message.
const DECIDING: &str = r#"
from herald import TaskHandler, TaskState, TaskStatus, TaskStatusUpdateEvent

class Picky(TaskHandler):
    """Takes nothing."""

    admission = True
    name = "picky"

    async def process_task(self, task_id, message, session_id=None):
        yield TaskStatusUpdateEvent(task_id, TaskStatus(TaskState.rejected), True)
"#;

#[tokio::test]
async fn a_python_handler_rejects_a_message_before_its_turn_begins() {
    let (place, search) = package();
    fs::write(place.path().join("town/picky.py"), DECIDING).unwrap();
    let options = Options::default().arguments(["--handler-package", "town"]);
    let herald = Herald::start(options.environment("PYTHONPATH", &search)).await;
    let call = Wire::Rest.stream("/agents/picky", &Draft::new(uuid(), "hello"));
    let mut stream = herald.client().await.open(&call).await.unwrap();
    let frames = Wire::Rest.rest_of(&mut stream).await.unwrap();
    let states: Vec<_> = frames.iter().filter_map(|frame| frame.state()).collect();
    assert_eq!(states, ["submitted", "rejected"]);
}

#[tokio::test]
async fn handlers_of_a_package_are_listed_and_a_missing_package_is_named() {
    let (place, search) = package();
    let list = |package: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
        command.env("PYTHONPATH", &search);
        command.args(["serve", "--list-handlers=json", "--handler-package", package]);
        ended(command)
    };
    let listed: Vec<Value> = serde_json::from_str(&list("town").await.stdout).unwrap();
    let one = listed.iter().find(|one| one["name"] == "loud_one").unwrap();
    assert_eq!((&one["source"], &one["description"]), (&"package".into(), &"Shouts.".into()));
    assert_eq!(one["agent"], "loud-one");
    let refused = list("no_such_module").await;
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("No module named 'no_such_module'"), "{}", refused.stderr);
    fs::write(place.path().join("town/broken.py"), "import os\nthis is no python\n").unwrap();
    let refused = list("town").await.stderr;
    assert!(refused.contains("cannot load the module town.broken"), "{refused}");
    assert!(refused.contains("SyntaxError") && refused.contains("line 2"), "{refused}");
}

#[tokio::test]
async fn a_handler_package_is_refused_without_the_helper() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_a2a-server"));
    command.args(["--handler-package", "my_custom_module.handlers"]);
    let refused = ended(command).await;
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(refused.stderr.starts_with("a2a-server: "), "{refused:?}");
    assert!(refused.stderr.contains("my_custom_module.handlers"), "{refused:?}");
    assert!(refused.stderr.contains("install the helper"), "{refused:?}");
}

#[tokio::test]
async fn the_helpers_own_tests_pass() {
    let mut command = Command::new("python3");
    command.args(["-B", "-m", "unittest", "discover", "-s", "tests"]);
    command.current_dir(root().join("python"));
    let ended = ended(command).await;
    assert!(ended.status.success(), "{}", ended.stderr);
}
