//! The SQLite store keeps the promises of the trait, and some of its own.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod disk;
mod inspecting;
mod opening;

use std::path::Path;

use bytes::Bytes;
use herald_engine::store::{
    Append, Header, Key, Kind, Owner, Run, Snapshot, Store, StoreError, Version, conformance,
    sqlite::{Options, Sqlite},
};
use herald_protocol::{TaskState, Timestamp};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_a_file_keeps_every_promise() {
    let directory = tempfile::tempdir().unwrap();
    let mut stores = 0..;
    let path = std::sync::Mutex::new(|| directory.path().join(stores.next().unwrap().to_string()));
    conformance::run(async || {
        let path = (path.lock().unwrap())();
        open(&path)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_memory_keeps_every_promise() {
    conformance::run(async || Sqlite::memory().unwrap()).await;
}

fn open(path: &Path) -> Sqlite {
    Sqlite::open(path, Options::default()).unwrap()
}

fn key(task: &str) -> Key {
    Key { owner: Owner { tenant: "acme".into(), principal: "ann".into() }, task: task.into() }
}

/// A task that is over with its first event.
fn task(name: &str, body: Vec<u8>) -> Append {
    let now = Timestamp::from_millis(1_700_000_000_000);
    let header = Header {
        agent: "echo".into(),
        context: name.into(),
        state: TaskState::Completed,
        changed: now,
        created: now,
        hidden: false,
        bytes: body.len() as u64,
        run: Run::default(),
    };
    let events = vec![(Kind::Status(TaskState::Completed), Bytes::from(body))];
    let snapshot = Some(Snapshot { seq: 1, ..Snapshot::default() });
    Append {
        key: key(name),
        expect: Version::default(),
        fence: None,
        header,
        events,
        snapshot,
        dedup: None,
    }
}

async fn has(store: &Sqlite, name: &str) -> bool {
    store.load(&key(name), u64::MAX).await.unwrap().is_some()
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}
