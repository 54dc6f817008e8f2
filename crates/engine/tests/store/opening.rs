//! Opening of databases: locks, damage, permissions and migrations.

use std::{
    fs,
    path::{Path, PathBuf},
};

use herald_engine::store::{
    Append, Dedup, Due, DueQuery, FeedQuery, MemberId, Retention, Run, Scope, Snapshot, Store,
    StoreError, TaskVersion,
    sqlite::{OpenError, Options, Sqlite},
};
use herald_protocol::{TaskState, TenantId};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{bare, has, is_unavailable, key, open, task};

fn temp_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    (directory, path)
}

fn refusal(path: &Path) -> OpenError {
    let error = Sqlite::open(path, Options::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&path.display().to_string()), "{text}");
    error
}

#[tokio::test]
async fn a_reopened_store_has_all_tasks() {
    let (_directory, path) = temp_database();
    let dedup = Dedup { key: [1; 32], content: [2; 32] };
    let store = open(&path).await;
    let secret = store.secret();
    for number in 0..50 {
        store.append(task(&format!("t{number}"), vec![b'x'; 2000])).await.unwrap();
    }
    store.append(Append { dedup: Some(dedup.clone()), ..task("keyed", vec![]) }).await.unwrap();
    let before = store.load(&key("t7"), None, u64::MAX).await;
    drop(store);
    assert!(
        !path.with_file_name("herald.db-wal").exists(),
        "a clean shutdown removes the write-ahead log"
    );

    let store = open(&path).await;
    assert_eq!(store.secret(), secret);
    assert_eq!(store.load(&key("t7"), None, u64::MAX).await, before);
    assert_eq!(store.original(&dedup.key).await.unwrap().unwrap().key.task.as_str(), "keyed");
    store.append(task("more", vec![])).await.unwrap();
}

#[tokio::test]
async fn queued_appends_are_written_before_the_store_closes() {
    let (_directory, path) = temp_database();
    let store = open(&path).await;
    let mut sent = Vec::new();
    for number in 0..100 {
        let mut append = Box::pin(store.append(task(&format!("t{number}"), vec![])));
        // Queued by the first poll; the result is not awaited.
        let waiting = std::future::poll_fn(|context| {
            std::task::Poll::Ready(append.as_mut().poll(context).is_pending())
        });
        sent.push(waiting.await);
    }
    drop(store);
    let store = open(&path).await;
    for number in 0..100 {
        assert!(has(&store, &format!("t{number}")).await);
    }
}

#[test]
fn a_second_process_is_refused_until_the_first_has_ended() {
    let (_directory, path) = temp_database();
    let first = bare(&path);
    let error = refusal(&path);
    assert!(matches!(error, OpenError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("--data"), "{error}");
    drop(first);
    bare(&path);
}

#[test]
fn a_lock_that_is_released_within_two_seconds_is_waited_for() {
    let (_directory, path) = temp_database();
    // A child between clone and exec still holds the lock of the killed server.
    let held = fs::File::create(path.with_file_name("herald.db.lock")).unwrap();
    held.lock().unwrap();
    let (opened, wait) = std::sync::mpsc::channel::<()>();
    let release = std::thread::spawn(move || {
        // As long as it holds the lock, no other process can open the database.
        let is_early = wait.recv_timeout(std::time::Duration::from_millis(300)).is_ok();
        drop(held);
        assert!(!is_early, "it was opened while another process had the lock");
    });
    bare(&path);
    let _ = opened.send(());
    release.join().unwrap();
}

#[cfg(unix)]
#[tokio::test]
async fn only_their_owner_can_read_the_files_of_a_database() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let set = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let files = |path: &Path| {
        ["", "-wal", "-shm", ".lock"].map(|end| PathBuf::from(format!("{}{end}", path.display())))
    };
    let (directory, path) = temp_database();
    set(directory.path(), 0o755);
    let store = open(&path).await;
    store.append(task("one", vec![])).await.unwrap();
    for file in files(&path) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    assert_eq!(mode(directory.path()), 0o755, "the mode of an existing directory is not changed");
    // Files of an earlier version that was killed.
    let crashed = directory.path().join("crashed.db");
    for (from, to) in files(&path).iter().zip(files(&crashed)) {
        fs::copy(from, &to).unwrap();
        set(&to, 0o644);
    }
    drop(store);
    let store = open(&crashed).await;
    assert!(has(&store, "one").await);
    store.append(task("two", vec![])).await.unwrap();
    for file in files(&crashed) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    // A directory that the store creates.
    let below = directory.path().join("new/er");
    drop(open(&below.join("herald.db")).await);
    assert_eq!(mode(&below), 0o700);
}

#[tokio::test]
async fn nothing_is_written_to_files_that_were_removed_or_replaced() {
    fn remove(path: &Path) {
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
    fn remove_log(path: &Path) {
        fs::remove_file(path.with_file_name("herald.db-wal")).unwrap();
    }
    fn replace(path: &Path) {
        let copy = path.with_file_name("copy");
        fs::copy(path, &copy).unwrap();
        fs::rename(copy, path).unwrap();
    }
    for how in ["removed", "without its log", "replaced"] {
        let (directory, _) = temp_database();
        let path = directory.path().join("data/herald.db");
        let store = open(&path).await;
        store.append(task("before", vec![])).await.unwrap();
        assert_eq!(store.probe().await, Ok(()));
        match how {
            "removed" => remove(&path),
            "replaced" => replace(&path),
            _ => remove_log(&path),
        }
        let Err(StoreError::Unavailable(said)) = store.probe().await else {
            panic!("{how}: it would be lost");
        };
        for word in ["herald.db", "removed or replaced", "restart"] {
            assert!(said.contains(word), "{how}: {said}");
        }
        let refused = store.append(task("after", vec![])).await;
        assert!(is_unavailable(&refused), "{how}: {refused:?}");
    }
}

#[tokio::test]
async fn a_directory_that_was_moved_away_and_back_is_written_again() {
    let (directory, _) = temp_database();
    let (here, away) = (directory.path().join("data"), directory.path().join("away"));
    let store = open(&here.join("herald.db")).await;
    fs::rename(&here, &away).unwrap();
    assert!(is_unavailable(&store.probe().await));
    fs::rename(&away, &here).unwrap();
    assert_eq!(store.probe().await, Ok(()));
    store.append(task("one", vec![])).await.unwrap();
    assert!(has(&store, "one").await);
}

#[test]
fn a_missing_or_different_migration_is_named() {
    let cases = [
        ("DELETE FROM refinery_schema_history WHERE version = 2", "lacks the migration V2"),
        ("UPDATE refinery_schema_history SET checksum = '7' WHERE version = 2", "another V2"),
        ("DELETE FROM refinery_schema_history WHERE version = 3", "migration V3"),
    ];
    for (change, words) in cases {
        let (_directory, path) = temp_database();
        drop(bare(&path));
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch("UPDATE meta SET value = '0.0.9' WHERE key = 'version'").unwrap();
        assert_eq!(conn.execute(change, []).unwrap(), 1);
        drop(conn);
        let error = refusal(&path).to_string();
        for word in [words, "herald 0.0.9", "backup"] {
            assert!(error.contains(word), "{change}: {error}");
        }
        assert!(!error.contains("writable"), "{change}: {error}");
    }
}

#[test]
fn a_database_of_a_newer_version_is_refused_unchanged() {
    let (_directory, path) = temp_database();
    drop(bare(&path));
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "INSERT INTO refinery_schema_history VALUES (999, 'later', '2030-01-01T00:00:00Z', '1');
         UPDATE meta SET value = '9.8.7' WHERE key = 'version';",
    )
    .unwrap();
    drop(conn);
    let error = refusal(&path);
    let text = error.to_string();
    let OpenError::Newer { found, known, made_by, .. } = error else { panic!("{error:?}") };
    assert_eq!((found, made_by.as_str()), (999, "herald 9.8.7"));
    for words in ["version 999 ", &format!("versions up to {known};"), "install a newer herald"] {
        assert!(text.contains(words), "no {words:?} in {text:?}");
    }
}

#[test]
fn files_of_other_programs_are_refused_unchanged() {
    let (_directory, path) = temp_database();
    let mut others: Vec<Vec<u8>> =
        vec![b"short".to_vec(), vec![7; 20_000], b"SQLite format 3\0".to_vec()];
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("CREATE TABLE notes (text)").unwrap();
    drop(conn);
    others.push(fs::read(&path).unwrap());
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("DROP TABLE notes; PRAGMA application_id = 7").unwrap();
    drop(conn);
    others.push(fs::read(&path).unwrap());
    for other in others {
        fs::write(&path, &other).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
        assert!(fs::read(&path).unwrap() == other);
    }
    fs::write(&path, b"").unwrap();
    bare(&path);
}

#[tokio::test]
async fn a_damaged_database_is_refused() {
    let (_directory, path) = temp_database();
    let store = open(&path).await;
    for number in 0..50 {
        store.append(task(&format!("t{number}"), vec![b'x'; 2000])).await.unwrap();
    }
    drop(store);
    let whole = fs::read(&path).unwrap();
    for length in [whole.len() - 1, whole.len() / 2, 4096, 99] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, OpenError::Corrupt { .. }), "{length}: {error}");
    }
    fs::write(&path, &whole).unwrap();
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("DROP TABLE snapshots").unwrap();
    drop(conn);
    assert!(matches!(refusal(&path), OpenError::Corrupt { .. }));
    // A write-ahead log whose database was truncated.
    fs::write(&path, b"").unwrap();
    fs::write(path.with_file_name("herald.db-wal"), b"something").unwrap();
    assert!(matches!(refusal(&path), OpenError::Corrupt { .. }));
}

#[tokio::test]
async fn a_torn_log_opens_with_the_complete_transactions() {
    let (_directory, path) = temp_database();
    let store = open(&path).await;
    for number in 0..40 {
        store.append(task(&format!("t{number}"), vec![b'x'; 500])).await.unwrap();
    }
    // The state after a power failure: the database and the write-ahead log, with the end of the
    // log missing.
    let crashed = path.with_file_name("crashed.db");
    fs::copy(&path, &crashed).unwrap();
    let log = fs::read(path.with_file_name("herald.db-wal")).unwrap();
    drop(store);
    for (cut, garbage) in [(0, 0), (10, 0), (4120 * 3, 0), (9000, 5000)] {
        let mut torn = log[..log.len() - cut].to_vec();
        torn.extend(vec![0xa5; garbage]);
        let database = path.with_file_name(format!("torn-{cut}.db"));
        fs::copy(&crashed, &database).unwrap();
        fs::write(path.with_file_name(format!("torn-{cut}.db-wal")), torn).unwrap();
        let store = open(&database).await;
        let mut there = Vec::new();
        for number in 0..40 {
            there.push(has(&store, &format!("t{number}")).await);
        }
        let kept = there.iter().filter(|there| **there).count();
        assert!(there.iter().take(kept).all(|there| *there), "a prefix: {there:?}");
        assert!(if cut == 0 { kept == 40 } else { (20..40).contains(&kept) }, "{cut}: {kept}");
        store.append(task("after", vec![])).await.unwrap();
    }
}

#[test]
fn a_path_that_cannot_be_written_is_refused() {
    let (directory, path) = temp_database();
    fs::create_dir(&path).unwrap();
    assert!(matches!(refusal(&path), OpenError::Unwritable { .. }));
    let below_a_file = directory.path().join("file").join("herald.db");
    fs::write(directory.path().join("file"), b"").unwrap();
    assert!(matches!(refusal(&below_a_file), OpenError::Unwritable { .. }));
}

#[cfg(unix)]
#[test]
fn a_read_only_directory_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (directory, path) = temp_database();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Permissions do not apply to every user (root); such a user can open the directory.
    let binds = fs::write(directory.path().join("probe"), b"").is_err();
    let opened = Sqlite::open(&path, Options::default());
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    match opened {
        Ok(_) => assert!(!binds),
        Err(error) => assert!(matches!(error, OpenError::Unwritable { .. }), "{error}"),
    }
}

#[tokio::test]
async fn positions_are_never_used_twice() {
    let (_directory, path) = temp_database();
    let all = Retention { ended_before: None, tasks: Some(0), bytes: None };
    let last = |path: &Path| {
        let conn = Connection::open(path).unwrap();
        let last = "SELECT max(position), max(task) FROM events";
        conn.query_row(last, [], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).unwrap()
    };
    let mut before = (0, 0);
    for round in 0..3 {
        let store = open(&path).await;
        for number in 0..5 {
            store.append(task(&format!("{round}-{number}"), vec![])).await.unwrap();
        }
        let now = last(&path);
        assert!(now.0 >= before.0 + 5 && now.1 >= before.1 + 5, "{before:?} {now:?}");
        before = now;
        assert_eq!(store.sweep(all.clone(), 100).await, Ok(5));
    }
}

/// Reverts every migration after this version.
fn downgrade(conn: &Connection, version: usize) {
    let undo = [
        "DROP TABLE presence",
        "DROP TABLE line; DROP TABLE heads",
        "ALTER TABLE tasks DROP COLUMN kept",
        "DROP TABLE members; DROP TABLE conversation_locks; DROP TABLE commits; DROP TABLE causes;
         ALTER TABLE serial_queue RENAME TO line; ALTER TABLE serial_heads RENAME TO heads;
         DROP INDEX serial_queue_by_conversation;
         CREATE INDEX line_by_conversation ON line (agent, owner, context, position)",
        "DROP TABLE api_keys; DROP TABLE audit",
        "DROP INDEX serial_heads_by_owner; DROP INDEX tasks_active;
         CREATE INDEX tasks_active ON tasks (agent, holder, created) WHERE phase = 1",
        "DROP TABLE webhooks; DROP TABLE webhook_attempts; DROP TABLE webhook_counts;
         ALTER TABLE tasks DROP COLUMN webhooks",
        "DROP INDEX members_by_name; ALTER TABLE members DROP COLUMN worker;
         ALTER TABLE causes DROP COLUMN session; ALTER TABLE causes DROP COLUMN number;
         DROP TABLE label_sets; DROP INDEX tasks_active;
         ALTER TABLE tasks DROP COLUMN requires; ALTER TABLE tasks DROP COLUMN rank;
         CREATE INDEX tasks_active ON tasks (agent, holder, owner, created) WHERE phase = 1",
        "DROP TABLE registrations; DROP INDEX tasks_queued",
        "DROP INDEX tasks_by_label_set; DROP INDEX tasks_with_labels; DROP INDEX tasks_active;
         ALTER TABLE tasks DROP COLUMN tenant;
         CREATE INDEX tasks_active ON tasks (agent, holder, requires, owner, rank, created)
         WHERE phase = 1;
         DROP INDEX serial_heads_by_owner; ALTER TABLE serial_heads DROP COLUMN tenant;
         CREATE INDEX serial_heads_by_owner ON serial_heads (agent, owner, position)",
    ];
    for step in undo.iter().skip(version - 1).rev() {
        conn.execute_batch(step).unwrap();
    }
    let forget = "DELETE FROM refinery_schema_history WHERE version > ?1";
    conn.execute(forget, [i64::try_from(version).unwrap()]).unwrap();
}

#[tokio::test]
async fn a_database_of_the_first_version_gets_the_data_that_feeds_need() {
    let (_directory, path) = temp_database();
    let store = open(&path).await;
    for number in 0..700 {
        store.append(task(&format!("t{number}"), Vec::new())).await.unwrap();
    }
    drop(store);
    let conn = Connection::open(&path).unwrap();
    downgrade(&conn, 1);
    drop(conn);
    let store = open(&path).await;
    store.append(task("new", Vec::new())).await.unwrap();
    let scope = Scope::Own(key("new").owner);
    let mut query = FeedQuery { scope, agent: None, tasks: Vec::new(), after: Some(0), limit: 100 };
    let mut found = Vec::new();
    loop {
        let page = store.feed(&query).await.unwrap();
        if query.after.replace(page.reached) == Some(page.reached) {
            break;
        }
        found.extend(page.entries.into_iter().map(|entry| entry.key.task.to_string()));
    }
    found.dedup();
    assert_eq!(found.len(), 701);
    assert_eq!(found.last().unwrap(), "new");
}

#[tokio::test]
async fn a_database_of_the_third_version_gets_the_artifact_counts_of_its_turns() {
    let (_directory, path) = temp_database();
    let store = open(&path).await;
    let artifacts = [("two", r#"[{"a":1},{"a":2}]"#), ("none", ""), ("spoiled", "[{")];
    for (name, artifacts) in artifacts {
        let mut at_work = task(name, Vec::new());
        at_work.header.state = TaskState::Working;
        at_work.header.run = Run { turn: 1, holder: Some(MemberId(7)), ..Run::default() };
        let artifacts = artifacts.as_bytes().to_vec().into();
        at_work.snapshot = Some(Snapshot { seq: 1, artifacts, ..Snapshot::default() });
        store.append(at_work).await.unwrap();
    }
    store.append(task("over", Vec::new())).await.unwrap();
    drop(store);
    let conn = Connection::open(&path).unwrap();
    downgrade(&conn, 3);
    drop(conn);
    let store = open(&path).await;
    for (name, kept) in [("two", 2), ("none", 0), ("spoiled", 0), ("over", 0)] {
        let found = store.load(&key(name), None, u64::MAX).await.unwrap().whole().unwrap();
        assert_eq!(found.header.run.kept, kept, "{name}");
    }
}

/// The schema of the fourth version, as its migrations created it.
const FOURTH: [&str; 4] = [
    include_str!("../../src/store/sqlite/migrations/V1__tasks.sql"),
    include_str!("../../src/store/sqlite/migrations/V2__presence.sql"),
    include_str!("../../src/store/sqlite/migrations/V3__line.sql"),
    include_str!("../../src/store/sqlite/migrations/V4__kept.sql"),
];

/// A task in every state, with one event each. The first waits, the second was claimed by a process
/// that has ended, and the serial queue is the one that it left.
const TASKS: &str = "
    INSERT INTO meta VALUES ('version', '0.0.4'), ('row', 9), ('position', 9);
    INSERT INTO owners VALUES (1, 'acme', 'ann');
    INSERT INTO agents VALUES (1, 'echo');
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8)
    INSERT INTO tasks (row, owner, agent, id, context, state, changed, created, hidden, phase, head,
        bytes, counted, turn, attempt, epoch, unread, holder, kept)
    SELECT i, 1, 1, 't' || i, 'c', i, i, i, 0,
        CASE WHEN i IN (1, 2) THEN 1 WHEN i IN (6, 8) THEN 0 ELSE 2 END, 1, 5, 5, iif(i = 1, 0, 1),
        iif(i = 1, 0, 1), iif(i = 1, 0, 1), iif(i = 1, '1', ''),
        iif(i = 2, x'00000000000000000000000000000007', NULL), 0 FROM n;
    UPDATE tasks SET snapshot = 1, status = x'7b7d', history = x'5b5d', metadata = x'',
        artifacts = x'5b5d' WHERE phase = 2;
    INSERT INTO snapshots SELECT row, x'7b7d', x'5b5d', x'', x'5b5d' FROM tasks WHERE phase = 0;
    UPDATE tasks SET snapshot = 1 WHERE phase = 0;
    INSERT INTO events (position, task, seq, kind, key, content, body)
    SELECT row, row, 1, 33, CAST(printf('%032d', row) AS BLOB), zeroblob(32), x'68656c6c6f'
    FROM tasks;
    INSERT INTO dedup SELECT key, position FROM events;
    INSERT INTO counters SELECT owner, hidden, agent, state, count(*), sum(bytes) FROM tasks
    GROUP BY 1, 2, 3, 4;
    INSERT INTO presence VALUES (1, 0);
    INSERT INTO line VALUES (1, 1, 1, 'c', 1);
    INSERT INTO heads VALUES (1, 1, 1, 'c');";

#[tokio::test]
async fn a_database_of_the_fourth_version_keeps_every_task() {
    let (directory, path) = temp_database();
    let conn = Connection::open(&path).unwrap();
    for migration in FOURTH {
        conn.execute_batch(migration).unwrap();
    }
    // Its history of migrations is that of any database up to that version.
    let fresh = directory.path().join("fresh.db");
    drop(bare(&fresh));
    conn.execute("ATTACH ?1 AS fresh", [fresh.to_str().unwrap()]).unwrap();
    let schema = "SELECT sql FROM fresh.sqlite_schema WHERE name = 'refinery_schema_history'";
    let schema: String = conn.query_row(schema, [], |row| row.get(0)).unwrap();
    conn.execute_batch(&schema).unwrap();
    let notes = "INSERT INTO main.refinery_schema_history
                 SELECT * FROM fresh.refinery_schema_history WHERE version <= 4";
    assert_eq!(conn.execute(notes, []).unwrap(), 4);
    conn.execute_batch(TASKS).unwrap();
    drop(conn);

    let store = open(&path).await;
    for state in TaskState::ALL {
        let key = key(&format!("t{}", state.number()));
        let found = store.load(&key, None, u64::MAX).await.unwrap().whole().unwrap();
        assert_eq!((found.header.state, found.head), (state, 1));
    }
    let echo = "echo".into();
    let claims = [("t1", 0, None), ("t2", 1, Some(MemberId(7)))];
    let due = claims.map(|(task, epoch, holder)| Due { key: key(task), epoch, holder });
    assert_eq!(store.due(DueQuery::new(&echo, 10)).await.unwrap(), due);
    let (own, other) = (TenantId::from("acme"), TenantId::from("other"));
    let of = |tenant| DueQuery { tenant: Some(tenant), ..DueQuery::new(&echo, 10) };
    assert_eq!(store.due(of(&own)).await.unwrap(), due);
    assert_eq!(store.due(of(&other)).await.unwrap(), []);
    assert_eq!(store.agents_unserved().await.unwrap(), std::slice::from_ref(&echo));
    store.enable_serial(&echo).await.unwrap();
    assert_eq!(store.next_serial(DueQuery::new(&echo, 10)).await.unwrap(), due);
    assert_eq!(store.next_serial(of(&own)).await.unwrap(), due);
    assert_eq!(store.next_serial(of(&other)).await.unwrap(), []);
    let mut end = Append { expect: TaskVersion::new(1, 1), ..task("t2", b"done".to_vec()) };
    end.snapshot = Some(Snapshot { seq: 2, ..Snapshot::default() });
    assert_eq!(store.append(end).await, Ok(2));
    let log = store.read_log(&key("t2"), 0, 10).await.unwrap();
    assert_eq!((log[0].at, &log[0].cause), (None, &None), "older versions did not record it");
    assert!(log[1].at.is_some() && log[1].cause.is_some());
    assert_eq!(store.due(DueQuery::new(&echo, 10)).await.unwrap(), due[..1]);
    let all = Retention { ended_before: None, tasks: Some(0), bytes: None };
    assert_eq!(store.sweep(all, 10).await, Ok(5));
    drop(store);
    let store = open(&path).await;
    assert!(has(&store, "t1").await && !has(&store, "t2").await);
}
