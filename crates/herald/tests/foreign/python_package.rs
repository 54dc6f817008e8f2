//! Handlers in Python, through the helper.

use std::{fs, path::Path};

use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    support::{Herald, Options, ended, uuid},
    tasks::{failure, printed, task},
    wire::{Draft, Wire, id, state},
};

/// As it stands in the document of the server that such handlers were written for, and at work.
const HANDLER: &str = r#"
from a2a.server.tasks.task_handler import TaskHandler
from a2a.json_rpc.spec import (
    Message, TaskStatus, TaskState, Artifact, TextPart,
    TaskStatusUpdateEvent, TaskArtifactUpdateEvent, Role
)

class MyCustomHandler(TaskHandler):
    """Shouts."""

    @property
    def name(self) -> str:
        return "my_handler"

    async def process_task(self, task_id, message, session_id=None):
        print("this goes to the log")
        yield TaskStatusUpdateEvent(
            id=task_id, status=TaskStatus(state=TaskState.working), final=False
        )
        text = message.parts[0].text
        if text == "fail":
            raise RuntimeError("the inside of it")
        yield TaskArtifactUpdateEvent(
            id=task_id, artifact=Artifact(name="answer", parts=[TextPart(text=text.upper())])
        )
        yield TaskStatusUpdateEvent(
            id=task_id, status=TaskStatus(state=TaskState.completed), final=True
        )
"#;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// A package with one handler, an entry point that names it, and the search path to both and the
/// helper.
fn package() -> (TempDir, String) {
    let place = tempfile::tempdir().unwrap();
    let package = place.path().join("my_module");
    let about = place.path().join("mine-1.0.dist-info");
    fs::create_dir(&package).unwrap();
    fs::create_dir(&about).unwrap();
    fs::write(package.join("__init__.py"), "").unwrap();
    fs::write(package.join("handlers.py"), HANDLER).unwrap();
    fs::write(about.join("METADATA"), "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n").unwrap();
    let points = "[a2a.task_handlers]\nmy_handler = my_module.handlers:MyCustomHandler\n";
    fs::write(about.join("entry_points.txt"), points).unwrap();
    let helper = root().join("python/src").canonicalize().unwrap();
    let search = format!("{}:{}", helper.display(), place.path().display());
    (place, search)
}

#[tokio::test]
async fn handlers_of_a_package_and_of_entry_points_are_agents() {
    let (_place, search) = package();
    for source in ["my_module", "entry-points"] {
        let options = Options::default()
            .arguments(["--handler-package", source])
            .environment("PYTHONPATH", &search);
        let herald = Herald::start(options).await;
        assert!(herald.greeting.contains("serves echo, my-handler"), "{}", herald.greeting);
        let send = async |text: &str| {
            let draft = Draft::new(uuid(), text);
            let call = Wire::Rest.send("/agents/my-handler", &draft, false);
            let done = Wire::Rest.sent(&herald.call(&call).await).unwrap();
            task(&herald, id(&done)).await
        };
        let done = send("loud").await;
        assert_eq!((state(&done).as_str(), printed(&done).as_str()), ("completed", "LOUD"));
        assert_eq!(done["artifacts"][0]["name"], "answer");
        let text = "agent my-handler failed (RuntimeError)";
        assert_eq!(failure(&send("fail").await), (text, "AGENT_FAILED"));
        let log = herald.log();
        assert!(log.contains("this goes to the log") && log.contains("the inside of it"), "{log}");
    }
}

#[tokio::test]
async fn handlers_of_a_package_are_listed_and_one_that_is_not_there_is_named() {
    let (place, search) = package();
    let list = |package: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
        command.env("PYTHONPATH", &search);
        command.args(["serve", "--list-handlers=json", "--handler-package", package]);
        ended(command)
    };
    let listed: Vec<Value> = serde_json::from_str(&list("my_module").await.stdout).unwrap();
    let one = listed.iter().find(|one| one["name"] == "my-handler").unwrap();
    assert_eq!((&one["source"], &one["description"]), (&"package".into(), &"Shouts.".into()));
    let refused = list("no_such_module").await;
    assert!(!refused.status.success());
    assert!(refused.stderr.contains("No module named 'no_such_module'"), "{}", refused.stderr);
    fs::write(place.path().join("my_module/broken.py"), "import os\nthis is no python\n").unwrap();
    let refused = list("my_module").await.stderr;
    assert!(refused.contains("cannot load the module my_module.broken"), "{refused}");
    assert!(refused.contains("SyntaxError") && refused.contains("line 2"), "{refused}");
}

#[tokio::test]
async fn a_handler_package_is_refused_where_the_helper_is_not_installed() {
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
