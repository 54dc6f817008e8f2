//! The examples of handlers, at work behind a real engine.

#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use herald_agents::{
    Handler,
    process::{Processes, Program, Workdir},
};
use herald_engine::{AgentRoute, Caller, Engine, Reply, store::sqlite::Sqlite};
use herald_protocol::{
    Message, Request, SendResult, Task, TaskState,
    request::{CancelTask, GetTask, SendMessage},
};

struct Bench {
    engine: Engine,
    caller: Caller,
    route: AgentRoute,
}

impl Bench {
    async fn new(program: &Path) -> Self {
        let command = [program.to_str().unwrap().to_owned()];
        let here = Workdir::new(Path::new("."), &[]).unwrap();
        let grace = Duration::from_secs(5);
        let program = Program::new(&command, here, BTreeMap::new(), grace).unwrap();
        let handler = Handler::new("example", program, Processes::new(None));
        let engine = Engine::builder(Arc::new(Sqlite::memory().unwrap()));
        let engine = engine.agent(handler.profile(), handler).build().unwrap();
        engine.start_work().await.unwrap();
        Self { engine, caller: Caller::anonymous("".into()), route: AgentRoute::default() }
    }

    async fn call(&self, request: Request) -> Reply {
        self.engine.call(&self.caller, &self.route, request).await.unwrap()
    }

    async fn send(&self, text: &str, immediately: bool) -> Task {
        let message = Message::user(uuid::Uuid::new_v4().to_string(), text);
        let mut send = SendMessage { message, ..SendMessage::default() };
        send.configuration.return_immediately = immediately;
        let Reply::Sent(sent) = self.call(Request::SendMessage(Box::new(send))).await else {
            panic!("no answer to a send")
        };
        match sent.decode().unwrap() {
            SendResult::Task(task) => task,
            SendResult::Message(message) => panic!("no task: {message:?}"),
        }
    }
}

/// The path of an example, which cargo puts beside the directory of the tests.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.parent().unwrap().with_file_name("examples").join(name)
}

#[tokio::test]
async fn the_handler_in_the_shell_works() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/handler.sh");
    let bench = Bench::new(&source).await;
    for text in ["one", "a \"quoted\" one"] {
        let task = bench.send(text, false).await;
        assert_eq!(task.status.state, TaskState::Completed);
        let artifact = &task.artifacts.as_ref().unwrap()[0];
        assert_eq!(artifact.name.as_deref(), Some("response"));
        let said = task.text();
        assert!(said.strip_suffix(" bytes").is_some_and(|n| n.parse::<u64>().is_ok()), "{said}");
    }
}

#[tokio::test]
async fn the_handler_in_rust_works_for_many_at_once_and_can_be_cancelled() {
    let bench = Bench::new(&example("handler")).await;
    let long = bench.send(&"x".repeat(100_000), true).await;
    let task = bench.send("abc", false).await;
    assert_eq!((task.status.state, task.text().as_str()), (TaskState::Completed, "a b c "));
    let cancel = CancelTask { id: long.id.clone(), ..CancelTask::default() };
    bench.call(Request::CancelTask(cancel)).await;
    assert_eq!(bench.send("d", false).await.text(), "d ");
    let get = GetTask { id: long.id, ..GetTask::default() };
    let Reply::Task(long) = bench.call(Request::GetTask(get)).await else { panic!("no task") };
    assert_eq!(long.decode().unwrap().status.state, TaskState::Canceled);
}
