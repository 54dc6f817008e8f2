//! A worker under test: the real binary as `herald worker`, beside a server.

use std::{
    fs::{self, File},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{
    http::Call,
    support::{Herald, Options, SOON, eventually, uuid},
    wire::{Draft, Wire, id},
};

/// The role of most tests.
pub(crate) const ROLE: &str = "shout";
/// Its path.
pub(crate) const PATH: &str = "/agents/shout";

/// A running worker with a directory of its own. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct WorkerProcess {
    child: Child,
    home: PathBuf,
    _own: Option<TempDir>,
}

impl WorkerProcess {
    /// Starts a worker of the role in a directory of its own and waits until it has registered.
    pub(crate) async fn start(herald: &Herald, arguments: &[&str]) -> Self {
        let own = tempfile::tempdir().unwrap();
        let mut worker = Self::spawn(herald, own.path(), arguments);
        worker._own = Some(own);
        worker.registered().await;
        worker
    }

    /// Starts a worker in this directory.
    pub(crate) fn spawn(herald: &Herald, home: &Path, arguments: &[&str]) -> Self {
        let log = File::options().create(true).append(true).open(home.join("worker.log")).unwrap();
        let mut command = worker_command(home, &format!("http://{}", herald.address));
        command.args(["--agent-name", ROLE, "--agent-description", "Says it louder"]);
        command.args(arguments).stderr(log).kill_on_drop(true);
        Self { child: command.spawn().unwrap(), home: home.to_owned(), _own: None }
    }

    /// Waits until it has registered.
    pub(crate) async fn registered(&self) {
        eventually(SOON, "the worker has registered", async || self.log().contains("registered"))
            .await;
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home.join("worker.log")).unwrap_or_default()
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill9(&mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) async fn terminate(&self) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", "TERM", &id]).status().await.unwrap();
        assert!(sent.success());
    }

    /// Waits until it has ended by itself, and says how.
    pub(crate) async fn wait(&mut self, limit: Duration) -> ExitStatus {
        let ended = timeout(limit, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("it still runs after {limit:?}: {}", self.log())).unwrap()
    }
}

impl Drop for WorkerProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the worker's log:\n{}", self.log());
        }
    }
}

/// `herald worker` for this server, without settings and coding agents of the test's own machine.
pub(crate) fn worker_command(home: &Path, server: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    command.args(["worker", "--server", server]).current_dir(home).env("HOME", home);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["HERALD_", "AGENT_", "A2ACLI_", "XDG_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// A server on a port that it gets again after a restart.
pub(crate) async fn server_on_fixed_port() -> Herald {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    Herald::start(Options::agents().no_port().arguments(["--port", &free.to_string()])).await
}

/// Sends a text to the role and waits for the outcome.
pub(crate) async fn asked(herald: &Herald, text: &str) -> Value {
    let draft = Draft::new(uuid(), text);
    Wire::Rest.sent(&herald.call(&Wire::Rest.send(PATH, &draft, false)).await).unwrap()
}

/// The id of a new task of the role.
pub(crate) async fn queued(herald: &Herald, text: &str) -> String {
    let draft = Draft::new(uuid(), text);
    let sent = Wire::Rest.sent(&herald.call(&Wire::Rest.send(PATH, &draft, true)).await).unwrap();
    id(&sent).to_owned()
}

/// The whole log of a task, over `/api`.
pub(crate) async fn log_of(herald: &Herald, task: &str) -> Vec<Value> {
    let answer = herald.call(&Call::get(format!("/api/tasks/{task}/log?limit=100"))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["entries"].as_array().unwrap().clone()
}
