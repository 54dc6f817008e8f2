//! Disk use: the write-ahead log, a full disk, transactions.

use std::{fs, sync::Arc};

use herald_engine::store::{
    Append, Kind, Loaded, Retention, Store, StoreError, TaskVersion,
    sqlite::{Options, Sqlite},
};
use herald_protocol::TaskState;
use tokio::task::JoinSet;

use crate::{has, is_unavailable, joined, key, open, task};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_write_ahead_log_stays_below_its_cap() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let cap = 2 << 20;
    let options = Options { checkpoint_bytes: 256 << 10, log_cap_bytes: cap, ..Options::default() };
    let store = Arc::new(joined(Sqlite::open(&path, options).unwrap()).await);
    let mut largest = 0;
    for round in 0..40 {
        let mut writers = JoinSet::new();
        for number in 0..16 {
            let store = Arc::clone(&store);
            writers.spawn(async move {
                let append = task(&format!("{round}-{number}"), vec![b'x'; 60_000]);
                store.append(append).await.unwrap();
                store.read(&key(&format!("{round}-{number}")), 0, 1).await.unwrap();
            });
        }
        writers.join_all().await;
        largest = largest.max(fs::metadata(directory.path().join("herald.db-wal")).unwrap().len());
    }
    // 40 MB were written. A transaction may begin just below the cap.
    assert!(largest < cap + (2 << 20), "{largest}");
    let size = fs::metadata(&path).unwrap().len();
    assert!(size > 30 << 20, "{size}");
}

#[tokio::test]
async fn the_last_events_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let mut said = task("t", b"begun".to_vec());
    said.header.state = TaskState::Working;
    said.header.run.unread = vec![1];
    said.events[0].0 = Kind::Received(TaskState::Working);
    said.snapshot = None;
    let store = open(&path).await;
    store.append(said.clone()).await.unwrap();
    said.events = vec![(Kind::Artifact, "chunk".into())];
    for head in 1..4 {
        said.expect = TaskVersion::new(head, 0);
        said.header.bytes += 5;
        store.append(said.clone()).await.unwrap();
    }
    drop(store);
    let store = open(&path).await;
    assert_eq!(store.append(said.clone()).await, Err(StoreError::Conflict));
    let loaded = store.load(&key("t"), None, u64::MAX).await.unwrap().whole().unwrap();
    assert_eq!((loaded.head, loaded.header), (4, said.header.clone()));
    said.expect = TaskVersion::new(4, 0);
    assert_eq!(store.append(said).await, Ok(5));
}

#[tokio::test]
async fn a_full_disk_refuses_writes_until_space_is_free() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let store = open(&path).await;
    store.append(task("before", vec![b'x'; 5000])).await.unwrap();
    store.limit_pages(1);
    let refused = store.append(task("refused", vec![b'x'; 200_000])).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    assert!(is_unavailable(&store.probe().await));
    // Reads still work, and the refused write left nothing behind.
    assert!(has(&store, "before").await);
    assert!(!has(&store, "refused").await);

    store.limit_pages(1_000_000);
    store.probe().await.unwrap();
    store.append(task("refused", vec![b'x'; 200_000])).await.unwrap();
    drop(store);
    let store = open(&path).await;
    assert!(has(&store, "before").await && has(&store, "refused").await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_caller_of_a_failed_transaction_gets_an_error() {
    let store = Arc::new(joined(Sqlite::memory().unwrap()).await);
    store.append(task("before", vec![])).await.unwrap();
    store.limit_pages(1);
    let mut writers = JoinSet::new();
    for number in 0..100 {
        let store = Arc::clone(&store);
        writers.spawn(async move {
            // A new owner each time: the writer must cache none of them.
            let mut append = task("t", vec![b'x'; 20_000]);
            append.key.owner.principal = number.to_string().into();
            let refused = store.append(append.clone()).await;
            (append, refused)
        });
    }
    let refused = writers.join_all().await;
    assert!(refused.iter().all(|(_, refused)| is_unavailable(refused)));
    store.limit_pages(1_000_000);
    for (append, _) in refused {
        let key = append.key.clone();
        assert_eq!(store.load(&key, None, u64::MAX).await, Ok(Loaded::Gone));
        assert_eq!(store.append(append).await, Ok(1));
        assert!(store.load(&key, None, u64::MAX).await.unwrap().whole().is_some());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_see_whole_transactions_while_others_write_and_sweep() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&directory.path().join("herald.db")).await);
    let mut work = JoinSet::new();
    for writer in 0..4 {
        let store = Arc::clone(&store);
        work.spawn(async move {
            for number in 0..50 {
                let mut append = task(&format!("{writer}-{number}"), vec![b'x'; 3000]);
                append.snapshot = None;
                let second = append.events[0].clone();
                append.events.push(second);
                store.append(append).await.unwrap();
            }
        });
    }
    for reader in 0..4 {
        let store = Arc::clone(&store);
        work.spawn(async move {
            for number in 0..50 {
                let key = key(&format!("{reader}-{number}"));
                if let Some(stored) = store.load(&key, None, u64::MAX).await.unwrap().whole() {
                    assert_eq!((stored.head, stored.since.len()), (2, 2));
                }
                let page = store.read(&key, 0, 10).await.unwrap();
                assert!(matches!(page.entries.len(), 0 | 2));
            }
        });
    }
    let sweeper = Arc::clone(&store);
    work.spawn(async move {
        let few = Retention { ended_before: None, tasks: Some(20), bytes: None };
        for _ in 0..20 {
            sweeper.sweep(few.clone(), 50).await.unwrap();
            tokio::task::yield_now().await;
        }
    });
    work.join_all().await;
}

#[tokio::test]
async fn two_appends_of_one_task_fit_in_one_transaction() {
    let store = joined(Sqlite::memory().unwrap()).await;
    let first = task("t", vec![]);
    let events = vec![(Kind::Artifact, bytes::Bytes::new())];
    let second = Append { expect: TaskVersion::new(1, 0), events, ..task("t", vec![]) };
    let third = Append { expect: TaskVersion::new(2, 0), ..second.clone() };
    let (a, b, c) = tokio::join!(store.append(first), store.append(second), store.append(third));
    assert_eq!((a, b, c), (Ok(1), Ok(2), Ok(3)));
}
