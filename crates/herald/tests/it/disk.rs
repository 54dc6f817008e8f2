//! Tests of a full disk: writes are refused, reads are served, nothing acknowledged is lost, and the service recovers.

use std::{
    collections::HashSet,
    fs::{self, File},
    io::Write,
    path::PathBuf,
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    process::Command,
    time::{Instant, sleep},
};

use crate::{
    http::Call,
    support::{AGENTS, CONFORMANCE, Herald, Options, SOON, eventually, uuid},
    wire::{self, Draft, Fault, Wire, id, is_terminal, state},
};

/// Cycles of filling and freeing the disk.
const CYCLES: usize = 2;

/// A small file system for one test.
#[derive(Debug)]
struct Disk(TempDir);

impl Disk {
    /// Mounts a file system, if that is permitted.
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(directory.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Self(directory))
    }

    fn filler(&self) -> PathBuf {
        self.0.path().join("filler")
    }

    /// Fills the free space.
    fn fill(&self) {
        let mut file = File::options().create(true).append(true).open(self.filler()).unwrap();
        while file.write_all(&[0xa5; 4096]).is_ok() {}
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily, since a process may still have a file open.
        let unmount = std::process::Command::new("umount").arg("-l").arg(self.0.path()).status();
        assert!(unmount.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_only_until_space_is_free() {
    // Space for all refused messages, which are sent again in every cycle.
    let Some(disk) = Disk::mount("64m") else {
        println!("not run: no file system can be mounted here");
        return;
    };
    let options = Options::config(AGENTS).data(disk.0.path().join("data"));
    let mut herald = Herald::start(options).await;
    let mut account = Account::open(&herald).await;
    for _ in 0..CYCLES {
        disk.fill();
        account.use_up(&herald).await;
        account.check_refusals(&herald).await;
        fs::remove_file(disk.filler()).unwrap();
        account.check_recovery(&herald).await;
    }
    account.check_restart(&mut herald).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_size_limit_refuses_writes_only_until_it_is_lifted() {
    // The soft limit only, so that it can be lifted. Writing past it is an error, not a signal.
    let limit = "trap '' XFSZ; ulimit -S -f 4096";
    let mut herald = Herald::start(Options::config(AGENTS).shell(limit)).await;
    let mut account = Account::open(&herald).await;
    account.use_up(&herald).await;
    account.check_refusals(&herald).await;
    *herald.options() = Options::config(AGENTS);
    let mut lift = Command::new("prlimit");
    lift.args(["--pid", &herald.id().to_string(), "--fsize=unlimited"]);
    match lift.status().await {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(error) => {
            println!("the limit cannot be lifted from outside: {error}");
            herald.kill9().await;
            herald.restart().await;
        }
    }
    account.check_recovery(&herald).await;
    account.check_restart(&mut herald).await;
}

/// Acknowledged and refused messages.
#[derive(Debug)]
struct Account {
    /// Tasks that had ended, as they were.
    ended: Vec<Value>,
    /// Tasks that were accepted.
    accepted: HashSet<String>,
    /// A task that works until it is cancelled.
    working: String,
    /// Messages that were refused.
    refused: Vec<Draft>,
}

impl Account {
    /// A few tasks from before the disk was full.
    async fn open(herald: &Herald) -> Self {
        let mut ended = Vec::new();
        for number in 0..10 {
            let draft = draft(&format!("before {number}"));
            let sent = herald.call(&Wire::Rest.send("", &draft, false)).await;
            ended.push(Wire::Rest.sent(&sent).unwrap());
        }
        let draft = draft("tck-cancel");
        let sent = herald.call(&Wire::Rest.send(CONFORMANCE, &draft, true)).await;
        let working = id(&Wire::Rest.sent(&sent).unwrap()).to_owned();
        let accepted = ended.iter().map(|task| id(task).to_owned()).chain([working.clone()]);
        Self { accepted: accepted.collect(), ended, working, refused: Vec::new() }
    }

    /// Sends until messages of every size are refused, large ones first.
    async fn use_up(&mut self, herald: &Herald) {
        let mut client = herald.client().await;
        let deadline = Instant::now() + SOON;
        for size in [32 << 10, 4 << 10, 10] {
            let mut refused = 0;
            // More than once, since a checkpoint may free some space.
            while refused < 12 {
                assert!(Instant::now() < deadline, "it never gets full");
                let draft = draft(&"x".repeat(size));
                let answer = client.call(&Wire::Rest.send("", &draft, true)).await.unwrap();
                match Wire::Rest.sent(&answer) {
                    Ok(task) => {
                        self.accepted.insert(id(&task).to_owned());
                        refused = 0;
                    }
                    Err(fault) => {
                        check_fault(Wire::Rest, &fault);
                        assert!(answer.headers.contains_key("retry-after"), "{answer:?}");
                        self.refused.push(draft);
                        refused += 1;
                        sleep(Duration::from_millis(25)).await;
                    }
                }
            }
        }
        assert!(!self.refused.is_empty());
    }

    /// Writes are refused over every binding, and everything else is served.
    async fn check_refusals(&mut self, herald: &Herald) {
        for wire in Wire::ALL {
            let draft = draft("too much");
            let answer = herald.call(&wire.send("", &draft, false)).await;
            check_fault(wire, &wire.sent(&answer).unwrap_err());
            let answer = herald.call(&wire.stream("", &draft)).await;
            check_fault(wire, &wire.result(&answer).unwrap_err());
            self.refused.push(draft);
        }
        // Readiness is cached for a second, since each check is a write.
        eventually(SOON, "it is not ready", async || {
            herald.call(&Call::get("/readyz")).await.status == 503
        })
        .await;
        assert_eq!(herald.call(&Call::get("/healthz")).await.status, 200);
        let card = herald.call(&Call::get("/.well-known/agent-card.json")).await;
        assert_eq!(card.status, 200);
        self.check_ended(herald).await;
        for task in &self.accepted {
            let found = herald.call(&Wire::Rest.get(task)).await;
            Wire::Rest.result(&found).unwrap_or_else(|fault| panic!("{task}: {fault:?}"));
        }
        assert_eq!(total(herald, None).await, self.accepted.len() as u64);
        let task = id(&self.ended[0]);
        let (_, log) = Wire::Rpc.replay(herald.client().await, task).await.unwrap();
        assert_eq!(log.len(), 4, "{log:?}");
        let said = herald.log();
        assert!(said.contains("the store cannot be written"), "{said}");
    }

    /// Once space is free everything works again, and refused messages have left no trace.
    async fn check_recovery(&mut self, herald: &Herald) {
        let freed = Instant::now();
        eventually(SOON, "it is ready again", async || {
            herald.call(&Call::get("/readyz")).await.status == 200
        })
        .await;
        for draft in std::mem::take(&mut self.refused) {
            let answer = herald.call(&Wire::Rest.send("", &draft, false)).await;
            let task = Wire::Rest.sent(&answer).unwrap();
            assert_eq!(state(&task), "completed");
            assert!(self.accepted.insert(id(&task).to_owned()), "it was not refused: {task}");
            self.ended.push(task);
        }
        println!("{} tasks; back after {:?}", self.accepted.len(), freed.elapsed());
        eventually(SOON, "no task is stuck", async || {
            let submitted = total(herald, Some("SUBMITTED")).await;
            let working = total(herald, Some("WORKING")).await;
            (submitted, working) == (0, 1)
        })
        .await;
        assert_eq!(total(herald, None).await, self.accepted.len() as u64);
        self.check_ended(herald).await;
        // A task that the full disk interrupted has a machine-readable reason.
        let failed = herald.call(&wire::list(Some("FAILED"), 100, "")).await.json();
        for task in failed["tasks"].as_array().unwrap() {
            assert!(task["status"]["message"]["metadata"]["reason"].is_string(), "{task}");
        }
    }

    /// A kill and a restart change nothing.
    async fn check_restart(&mut self, herald: &mut Herald) {
        let answer = herald.call(&Wire::Rest.cancel(&self.working)).await;
        self.ended.push(Wire::Rest.result(&answer).unwrap());
        herald.kill9().await;
        herald.restart().await;
        self.check_ended(herald).await;
        for task in &self.accepted {
            let found = herald.call(&Wire::Rest.get(task)).await;
            assert!(is_terminal(&state(&Wire::Rest.result(&found).unwrap())));
            let (_, log) = Wire::Rest.replay(herald.client().await, task).await.unwrap();
            let seqs: Vec<_> = log.iter().map(|frame| frame.seq).collect();
            assert_eq!(seqs, (1..=log.len() as u64).collect::<Vec<_>>());
        }
        assert_eq!(total(herald, None).await, self.accepted.len() as u64);
    }

    async fn check_ended(&self, herald: &Herald) {
        for task in &self.ended {
            let found = herald.call(&Wire::Rest.get(id(task))).await;
            assert_eq!(Wire::Rest.result(&found).unwrap(), *task);
        }
    }
}

fn draft(text: &str) -> Draft {
    Draft::new(uuid(), text)
}

#[track_caller]
fn check_fault(wire: Wire, fault: &Fault) {
    let (status, code) = match wire {
        Wire::Rpc | Wire::OldRpc => (200, -32603),
        Wire::FirstRpc => (200, -32011),
        Wire::Rest | Wire::OldRest => (503, 503),
    };
    assert_eq!((fault.status, fault.code), (status, code), "{fault:?}");
    assert_eq!(fault.reason, "UNAVAILABLE", "{fault:?}");
    assert!(fault.message.contains("try again"), "{fault:?}");
}

async fn total(herald: &Herald, state: Option<&str>) -> u64 {
    let page = herald.call(&wire::list(state, 1, "")).await.json();
    page["totalSize"].as_u64().unwrap_or_else(|| panic!("no totalSize: {page}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_removed_or_replaced_data_directory_is_not_written_to() {
    for replaced in [false, true] {
        let herald = Herald::start(Options::agents()).await;
        let before = herald.call(&Wire::Rest.send("", &draft("before"), false)).await;
        Wire::Rest.sent(&before).unwrap();
        herald.ready().await;
        let data = herald.database().parent().unwrap().to_owned();
        fs::rename(&data, data.with_file_name("away")).unwrap();
        if replaced {
            fs::create_dir(&data).unwrap();
            for entry in fs::read_dir(data.with_file_name("away")).unwrap().flatten() {
                if entry.path().is_file() {
                    fs::copy(entry.path(), data.join(entry.file_name())).unwrap();
                }
            }
        }
        eventually(SOON, "it is not ready", async || {
            herald.call(&Call::get("/readyz")).await.status == 503
        })
        .await;
        for wire in Wire::ALL {
            let answer = herald.call(&wire.send("", &draft("lost"), false)).await;
            check_fault(wire, &wire.sent(&answer).unwrap_err());
        }
        let log = herald.log();
        for word in ["the store cannot be written", "removed or replaced", "restart"] {
            assert!(log.contains(word), "no {word:?} in {log}");
        }
        assert_eq!(herald.call(&Call::get("/healthz")).await.status, 200);
        if replaced {
            fs::remove_dir_all(&data).unwrap();
        }
        fs::rename(data.with_file_name("away"), &data).unwrap();
        eventually(SOON, "it is ready again", async || {
            herald.call(&Call::get("/readyz")).await.status == 200
        })
        .await;
        let after = herald.call(&Wire::Rest.send("", &draft("after"), false)).await;
        Wire::Rest.sent(&after).unwrap();
        assert_eq!(total(&herald, None).await, 2);
    }
}
