//! Tests of the commands in the pages about roles and workers, which are run in a shell.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Stdio,
};

use tokio::process::{Child, Command};

use crate::{
    http::Call,
    pages::{blocks, paste},
    support::{AGENTS, Herald, Options, SOON, eventually, uuid},
    wire::{Draft, Wire, state},
};

const ROLES: &str = "docs/roles.md";
const WORKERS: &str = "docs/workers.md";

/// The server in the page about workers.
const SERVER: &str = "https://agents.example.com";

/// A server with its data where the pages have it.
async fn server() -> Herald {
    let config = format!("{AGENTS}[push]\nallowed_hosts = [\"127.0.0.1\"]\n");
    Herald::start(Options::config(config).no_data()).await
}

/// The keys in a text, in their order.
fn keys(text: &str) -> Vec<&str> {
    text.split_whitespace().filter(|word| word.starts_with("hrld_")).collect()
}

/// A worker that a page starts, in a directory of its own. It is killed when it is dropped.
struct PageWorker {
    child: Child,
    home: tempfile::TempDir,
}

impl PageWorker {
    /// Runs a command of a page, which `prepare` can give files, and waits until it has registered.
    async fn start(command: &str, prepare: impl FnOnce(&Path)) -> Self {
        let home = tempfile::tempdir().unwrap();
        let programs = home.path().join("bin");
        fs::create_dir(&programs).unwrap();
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_herald"), programs.join("herald")).unwrap();
        program(&home.path().join("review.sh"), "tr a-z A-Z");
        prepare(home.path());
        let log = File::create(home.path().join("log")).unwrap();
        // Nothing but the programs of the test, so that no coding agent of this machine is found.
        let search = format!("{}:/usr/bin:/bin", programs.display());
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("exec env {}", command.trim())).env_clear();
        shell.env("PATH", search).env("HOME", home.path()).current_dir(home.path());
        shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).kill_on_drop(true);
        let worker = Self { child: shell.spawn().unwrap(), home };
        eventually(SOON, "it registers", async || worker.log().contains("registered")).await;
        worker
    }

    fn log(&self) -> String {
        fs::read_to_string(self.home.path().join("log")).unwrap_or_default()
    }

    async fn end(mut self) {
        self.child.kill().await.unwrap();
    }
}

impl Drop for PageWorker {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the worker's log:\n{}", self.log());
        }
    }
}

fn program(path: &Path, script: &str) {
    fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The task of the role for a message, with this key.
async fn answer(herald: &Herald, key: &str) -> String {
    let call = Wire::Rest.send("/agents/code-reviewer", &Draft::new(uuid(), "hello"), false);
    let call =
        if key.is_empty() { call } else { call.header("authorization", format!("Bearer {key}")) };
    let done = Wire::Rest.sent(&herald.call(&call).await).unwrap();
    assert_eq!(state(&done), "completed", "{done}");
    done.to_string()
}

#[tokio::test]
async fn every_command_of_the_roles_page_works() {
    let (herald, other) = (server().await, Herald::start(Options::agents()).await);
    let address = herald.address.to_string();
    let blocks: Vec<_> =
        blocks(ROLES, "sh").iter().map(|block| block.replace("127.0.0.1:8000", &address)).collect();
    let [keys_block, worker, calls, request, tenants, remote] = &blocks[..] else {
        panic!("{blocks:?}")
    };

    // The first line starts the server, and the last one takes over what the others printed.
    let create = keys_block.strip_prefix("herald serve\n").unwrap();
    let (create, export) = create.split_once("export ").unwrap();
    let created = paste(herald.home(), create).await;
    let found = keys(&created.stdout);
    assert_eq!(found.len(), 2, "{created:?}");
    let export = found
        .iter()
        .fold(format!("export {export}"), |line, key| line.replacen("hrld_...", key, 1));

    // No home of the test's own user, and a pause until the worker has registered.
    let listed = format!(
        "curl -s 'http://{address}/api/agents?role=code-reviewer' \
        -H \"Authorization: Bearer $CALLER_KEY\" | grep -q code-reviewer:"
    );
    let script = format!(
        "export HOME=$PWD; {export}\n{worker} worker=$!; trap 'kill $worker' EXIT\n\
         until {listed}; do sleep 0.1; done\n{calls}\n{request}"
    );
    let pasted = paste(herald.home(), &script).await;
    assert!(pasted.status.success(), "{pasted:?}");
    let shown = [
        "LAST SEEN",
        "Python code review specialist",
        // The answer of the program: the number of words.
        "\n5\n",
        "\"name\":\"code-reviewer:dev-vm:abc123\"",
        "\"session\":",
        "Use 'role' with send_to_agent for routing.",
    ];
    for shown in shown {
        assert!(pasted.stdout.contains(shown), "no {shown:?} in {pasted:?}");
    }

    let created = paste(herald.home(), &format!("export HOME=$PWD; set -e\n{tenants}")).await;
    assert_eq!(keys(&created.stdout).len(), 2, "{created:?}");

    let remote = remote.replace("https://other.example.com", &format!("http://{}", other.address));
    let pasted = paste(herald.home(), &format!("export HOME=$PWD; set -e\n{remote}")).await;
    assert!(pasted.status.success(), "{pasted:?}");
    assert!(pasted.stdout.contains("researcher"), "{pasted:?}");
}

#[tokio::test]
async fn the_role_in_the_roles_page_is_valid() {
    let herald = Herald::start(Options::config(blocks(ROLES, "toml").concat())).await;
    let found = herald.call(&Call::get("/api/agents/linters")).await.json();
    assert_eq!((&found["kind"], &found["available"]), (&"role".into(), &false.into()), "{found}");
}

#[tokio::test]
async fn every_command_of_the_workers_page_starts_a_worker() {
    let herald = server().await;
    let url = format!("http://{}", herald.address);
    let blocks = |language| -> Vec<_> {
        blocks(WORKERS, language).iter().map(|block| block.replace(SERVER, &url)).collect()
    };
    let commands = blocks("bash");
    let [plain, with_key, _python] = &commands[..] else { panic!("{commands:?}") };

    let events = [
        r#"{"type":"system","subtype":"init","session_id":"s","model":"m"}"#,
        r#"{"type":"assistant","message":{"content":[{"type":"text","text":"Looks good."}]}}"#,
        r#"{"type":"result","subtype":"success","is_error":false,"result":"Looks good."}"#,
    ];
    let claude = events.map(|event| format!("echo '{event}'")).join("\n");
    let worker = PageWorker::start(plain, |home| program(&home.join("bin/claude"), &claude)).await;
    assert!(worker.log().contains("adapter=\"claude-code\""), "{}", worker.log());
    assert!(answer(&herald, "").await.contains("Looks good."));
    worker.end().await;

    let unit = blocks("ini").concat();
    let (_, start) = unit.split_once("ExecStart=/usr/local/bin/").unwrap();
    let (start, _) = start.split_once("\nEnvironmentFile").unwrap();
    let start = start.replace("%i", "w1").replace("/srv/reviewer/run.sh", "./review.sh");
    let worker = PageWorker::start(&start, |_| {}).await;
    assert!(worker.log().contains(":w1"), "{}", worker.log());
    assert!(answer(&herald, "").await.contains("HELLO"));
    worker.end().await;

    // The keys come last: from the first one on, calls need credentials.
    let (create, start) = with_key.split_once('\n').unwrap();
    let created =
        paste(herald.home(), &format!("{create}\nherald key create --principal ci")).await;
    let found = keys(&created.stdout);
    let [own, caller] = found[..] else { panic!("{created:?}") };
    let worker = PageWorker::start(&start.replace("hrld_...", own), |_| {}).await;
    assert!(answer(&herald, caller).await.contains("HELLO"));
    worker.end().await;
}
