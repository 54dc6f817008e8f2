//! Inspection of databases without changing them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use herald_engine::store::{
    Store,
    sqlite::{Health, Inspection, OpenError, SchemaStatus, Sqlite},
};
use herald_protocol::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{open, task};

const SOON: Duration = Duration::from_secs(120);

fn temp_database() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd ?#% name.db");
    (directory, path)
}

/// All files of the database with their content, except the shared memory.
fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

/// Inspects, and asserts that no file has changed.
fn inspect_unchanged(path: &Path) -> Result<Option<Inspection>, OpenError> {
    let before = files(path);
    let seen = Sqlite::inspect(path, SOON);
    assert!(files(path) == before, "the inspection changed a file");
    seen
}

async fn fill(store: &Sqlite) {
    for number in 0..50 {
        store.append(task(&format!("t{number}"), vec![b'x'; 2000])).await.unwrap();
    }
}

#[tokio::test]
async fn an_inspection_creates_no_database() {
    let (_directory, path) = temp_database();
    assert_eq!(inspect_unchanged(&path).unwrap(), None);
}

#[tokio::test]
async fn a_closed_database_is_inspected() {
    let (_directory, path) = temp_database();
    let store = open(&path).await;
    fill(&store).await;
    drop(store);
    let seen = inspect_unchanged(&path).unwrap().unwrap();
    assert!(!seen.in_use && !seen.unclosed && seen.bytes > 100_000, "{seen:?}");
    assert_eq!((seen.tasks, seen.schema, seen.health), (50, SchemaStatus::Current, Health::Intact));
    assert_eq!(seen.newest, Some(Timestamp::from_millis(1_700_000_000_000)));
}

#[tokio::test]
async fn a_database_in_use_is_inspected() {
    let (_directory, path) = temp_database();
    let store = open(&path).await;
    fill(&store).await;
    let seen = Sqlite::inspect(&path, SOON).unwrap().unwrap();
    assert!(seen.in_use && !seen.unclosed, "{seen:?}");
    assert_eq!((seen.tasks, seen.health), (50, Health::Intact));
    // Neither this process nor the next one is affected.
    fill_more(&store).await;
    drop(store);
    assert_eq!(inspect_unchanged(&path).unwrap().unwrap().tasks, 51);
    drop(open(&path).await);
}

async fn fill_more(store: &Sqlite) {
    store.append(task("more", vec![])).await.unwrap();
}

#[tokio::test]
async fn an_unclosed_database_is_inspected_with_its_log_and_keeps_it() {
    let (directory, path) = temp_database();
    let store = open(&path).await;
    fill(&store).await;
    // The state after a power failure: the file and the write-ahead log as they are now.
    let left = directory.path().join("left");
    fs::create_dir(&left).unwrap();
    for ending in ["", "-wal"] {
        let name = format!("odd ?#% name.db{ending}");
        fs::copy(directory.path().join(&name), left.join(&name)).unwrap();
    }
    let left = left.join(path.file_name().unwrap());
    let seen = inspect_unchanged(&left).unwrap().unwrap();
    assert!(seen.unclosed && !seen.in_use, "{seen:?}");
    assert_eq!((seen.tasks, seen.health), (50, Health::Intact));
    drop(open(&left).await);
    let seen = inspect_unchanged(&left).unwrap().unwrap();
    assert!(!seen.unclosed && seen.tasks == 50, "{seen:?}");
}

#[tokio::test]
async fn damage_is_found_and_named() {
    let (_directory, path) = temp_database();
    let store = open(&path).await;
    fill(&store).await;
    drop(store);
    let whole = fs::read(&path).unwrap();
    let mut scratched = whole.clone();
    let (middle, end) = (whole.len() / 2, whole.len() / 2 + 20_000);
    scratched[middle..end].fill(0xa5);
    fs::write(&path, &scratched).unwrap();
    match inspect_unchanged(&path) {
        Ok(Some(Inspection { health: Health::Damaged(faults), .. })) => {
            assert!(!faults.is_empty());
        }
        Err(OpenError::Damaged { .. }) => {}
        other => panic!("{other:?}"),
    }
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(inspect_unchanged(&path), Err(OpenError::Corrupt { .. })));
    fs::write(&path, b"no database").unwrap();
    assert!(matches!(inspect_unchanged(&path), Err(OpenError::Corrupt { .. })));
}

#[tokio::test]
async fn other_schemas_are_recognised() {
    let (_directory, path) = temp_database();
    drop(open(&path).await);
    let change = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    change("INSERT INTO refinery_schema_history VALUES (999, 'x', '2030-01-01T00:00:00Z', '1')");
    assert!(matches!(inspect_unchanged(&path), Err(OpenError::Newer { .. })));
    change("DELETE FROM refinery_schema_history WHERE version = 999");
    assert_eq!(inspect_unchanged(&path).unwrap().unwrap().schema, SchemaStatus::Current);
    // A schema of an earlier version has fewer tables.
    change("DROP TABLE presence");
    assert!(matches!(inspect_unchanged(&path), Err(OpenError::Corrupt { .. })));
    change("DELETE FROM refinery_schema_history WHERE version > 1");
    assert_eq!(inspect_unchanged(&path).unwrap().unwrap().schema, SchemaStatus::Older);
}

#[tokio::test]
async fn an_inspection_ends_at_its_timeout() {
    let (_directory, path) = temp_database();
    drop(open(&path).await);
    // Far more than can be read within the timeout.
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "CREATE TABLE filler AS
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 100000)
         SELECT n, randomblob(300) AS blob FROM numbers;",
    )
    .unwrap();
    drop(conn);
    let seen = Sqlite::inspect(&path, Duration::ZERO).unwrap().unwrap();
    assert_eq!(seen.health, Health::IntactSoFar);
    assert_eq!(inspect_unchanged(&path).unwrap().unwrap().health, Health::Intact);
}
