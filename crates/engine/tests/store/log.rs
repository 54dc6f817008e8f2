//! Times and causes of events.

use herald_engine::{
    Clock,
    store::{
        Actor, Append, Retention, Snapshot, Store, TaskVersion,
        sqlite::{Options, Sqlite},
    },
};
use herald_protocol::{TaskState, Timestamp};
use rusqlite::Connection;

use crate::{joined, key, open, task};

async fn times(store: &Sqlite, name: &str) -> Vec<i64> {
    let log = store.read_log(&key(name), 0, 10).await.unwrap();
    log.into_iter().map(|one| one.at.unwrap().as_millis()).collect()
}

#[tokio::test]
async fn an_event_has_the_time_of_its_commit() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let clock = Clock::manual(Timestamp::from_millis(1000));
    let options = Options { clock: clock.clone(), ..Options::default() };
    let store = joined(Sqlite::open(&path, options).unwrap()).await;
    let mut begun = task("first", Vec::new());
    begun.header.state = TaskState::InputRequired;
    begun.snapshot = None;
    let second = begun.events[0].clone();
    begun.events.push(second);
    store.append(begun.clone()).await.unwrap();
    clock.set(Timestamp::from_millis(2000));
    store.append(task("between", Vec::new())).await.unwrap();
    // A write without an event has no commit time.
    clock.set(Timestamp::from_millis(3000));
    store.probe().await.unwrap();
    begun.header.run.epoch = 1;
    let claim = Append { expect: TaskVersion::new(2, 0), events: Vec::new(), ..begun };
    store.append(claim).await.unwrap();
    clock.set(Timestamp::from_millis(4000));
    let mut end = Append { expect: TaskVersion::new(2, 1), ..task("first", Vec::new()) };
    end.snapshot = Some(Snapshot { seq: 3, ..Snapshot::default() });
    store.append(end).await.unwrap();
    drop(store);
    let store = open(&path).await;
    assert_eq!(times(&store, "first").await, [1000, 1000, 4000]);
    assert_eq!(times(&store, "between").await, [2000]);
}

#[tokio::test]
async fn retention_leaves_no_times_and_causes_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let store = open(&path).await;
    for number in 0..20 {
        let mut append = task(&format!("t{number}"), Vec::new());
        if number % 5 == 0 {
            // It waits for its caller, so retention keeps it.
            append.header.state = TaskState::InputRequired;
            append.snapshot = None;
        }
        if number % 2 == 0 {
            append.cause = Actor::Agent.into();
        }
        store.append(append).await.unwrap();
    }
    let nothing = Retention { ended_before: None, tasks: Some(0), bytes: None };
    assert_eq!(store.sweep(nothing, 100).await, Ok(16));
    for number in [0, 5, 10, 15] {
        assert_eq!(times(&store, &format!("t{number}")).await.len(), 1);
    }
    let conn = Connection::open(&path).unwrap();
    let count = |table: &str| -> i64 {
        conn.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
    };
    assert_eq!((count("events"), count("commits"), count("causes")), (4, 4, 2));
}
