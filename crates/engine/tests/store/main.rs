//! Tests of the SQLite store: the conformance suite, and its own guarantees.

#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod audit;
mod changes;
mod disk;
mod inspecting;
mod log;
mod opening;

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use herald_engine::store::{
    Actor, Append, Header, Key, Kind, MemberId, MemberKind, Owner, Run, Snapshot, Store,
    StoreError, TaskVersion, conformance,
    sqlite::{Options, Sqlite},
};
use herald_protocol::{TaskState, Timestamp};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_a_file_passes_the_conformance_suite() {
    let directory = tempfile::tempdir().unwrap();
    let mut stores = 0..;
    let path = std::sync::Mutex::new(|| directory.path().join(stores.next().unwrap().to_string()));
    conformance::run(async || {
        let path = (path.lock().unwrap())();
        bare(&path)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_store_in_memory_passes_the_conformance_suite() {
    conformance::run(async || Sqlite::memory().unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_share_a_store_in_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let mut stores = 0..;
    let path = std::sync::Mutex::new(|| directory.path().join(stores.next().unwrap().to_string()));
    conformance::run_shared(async || {
        let store: Arc<dyn Store> = Arc::new(bare(&(path.lock().unwrap())()));
        (Arc::clone(&store), store)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_nodes_share_a_store_in_memory() {
    conformance::run_shared(async || {
        let store: Arc<dyn Store> = Arc::new(Sqlite::memory().unwrap());
        (Arc::clone(&store), store)
    })
    .await;
}

const ME: MemberId = MemberId(0x11);

/// A database without members.
fn bare(path: &Path) -> Sqlite {
    Sqlite::open(path, Options::default()).unwrap()
}

async fn open(path: &Path) -> Sqlite {
    joined(bare(path)).await
}

async fn joined(store: Sqlite) -> Sqlite {
    store.join(ME, MemberKind::Node, "first node").await.unwrap();
    store
}

fn key(task: &str) -> Key {
    Key { owner: Owner { tenant: "acme".into(), principal: "ann".into() }, task: task.into() }
}

/// A task that ends with its first event.
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
        expect: TaskVersion::default(),
        fence: None,
        writer: ME,
        node: None,
        header,
        events,
        snapshot,
        dedup: None,
        webhook: None,
        cause: Actor::Caller.into(),
        demands: None,
    }
}

async fn has(store: &Sqlite, name: &str) -> bool {
    store.load(&key(name), None, u64::MAX).await.unwrap().whole().is_some()
}

fn is_unavailable<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}
