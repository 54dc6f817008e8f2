use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use herald_engine::store::{
    Store,
    sqlite::{Form, Health, Inspection, OpenError, Sqlite},
};
use herald_protocol::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;

use crate::{open, task};

const SOON: Duration = Duration::from_secs(120);

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd ?#% name.db");
    (directory, path)
}

/// Every file beside the database, with its content; what readers share in memory apart.
fn files(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap());
    let named = entries.map(|entry| (entry.file_name().into_string().unwrap(), entry.path()));
    named.map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

/// Looks, and sees to it that nothing was changed by looking.
fn look(path: &Path) -> Result<Option<Inspection>, OpenError> {
    let before = files(path);
    let seen = Sqlite::inspect(path, SOON);
    assert!(files(path) == before, "something was written");
    seen
}

async fn fill(store: &Sqlite) {
    for number in 0..50 {
        store.append(task(&format!("t{number}"), vec![b'x'; 2000])).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_not_there_yet_is_not_made_by_looking() {
    let (_directory, path) = place();
    assert_eq!(look(&path).unwrap(), None);
}

#[tokio::test]
async fn a_closed_database_shows_what_it_holds() {
    let (_directory, path) = place();
    let store = open(&path).await;
    fill(&store).await;
    drop(store);
    let seen = look(&path).unwrap().unwrap();
    assert!(!seen.in_use && !seen.unclosed && seen.bytes > 100_000, "{seen:?}");
    assert_eq!((seen.tasks, seen.form, seen.health), (50, Form::Current, Health::Whole));
    assert_eq!(seen.newest, Some(Timestamp::from_millis(1_700_000_000_000)));
}

#[tokio::test]
async fn one_that_is_in_use_is_read_beside_its_user() {
    let (_directory, path) = place();
    let store = open(&path).await;
    fill(&store).await;
    let seen = Sqlite::inspect(&path, SOON).unwrap().unwrap();
    assert!(seen.in_use && !seen.unclosed, "{seen:?}");
    assert_eq!((seen.tasks, seen.health), (50, Health::Whole));
    // Its user has not noticed, nor does the next one.
    fill_more(&store).await;
    drop(store);
    assert_eq!(look(&path).unwrap().unwrap().tasks, 51);
    drop(open(&path).await);
}

async fn fill_more(store: &Sqlite) {
    store.append(task("more", vec![])).await.unwrap();
}

#[tokio::test]
async fn one_that_was_left_open_is_read_with_its_log_and_keeps_it() {
    let (directory, path) = place();
    let store = open(&path).await;
    fill(&store).await;
    // What a power cut leaves: the file and the log as they are now.
    let left = directory.path().join("left");
    fs::create_dir(&left).unwrap();
    for ending in ["", "-wal"] {
        let name = format!("odd ?#% name.db{ending}");
        fs::copy(directory.path().join(&name), left.join(&name)).unwrap();
    }
    let left = left.join(path.file_name().unwrap());
    let seen = look(&left).unwrap().unwrap();
    assert!(seen.unclosed && !seen.in_use, "{seen:?}");
    assert_eq!((seen.tasks, seen.health), (50, Health::Whole));
    drop(open(&left).await);
    let seen = look(&left).unwrap().unwrap();
    assert!(!seen.unclosed && seen.tasks == 50, "{seen:?}");
}

#[tokio::test]
async fn damage_is_found_and_named() {
    let (_directory, path) = place();
    let store = open(&path).await;
    fill(&store).await;
    drop(store);
    let whole = fs::read(&path).unwrap();
    let mut scratched = whole.clone();
    let (middle, end) = (whole.len() / 2, whole.len() / 2 + 20_000);
    scratched[middle..end].fill(0xa5);
    fs::write(&path, &scratched).unwrap();
    match look(&path) {
        Ok(Some(Inspection { health: Health::Damaged(faults), .. })) => {
            assert!(!faults.is_empty());
        }
        Err(OpenError::Damaged { .. }) => {}
        other => panic!("{other:?}"),
    }
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    assert!(matches!(look(&path), Err(OpenError::Corrupt { .. })));
    fs::write(&path, b"no database").unwrap();
    assert!(matches!(look(&path), Err(OpenError::Corrupt { .. })));
}

#[tokio::test]
async fn other_forms_are_told_apart() {
    let (_directory, path) = place();
    drop(open(&path).await);
    let change = |sql: &str| Connection::open(&path).unwrap().execute_batch(sql).unwrap();
    change("INSERT INTO refinery_schema_history VALUES (999, 'x', '2030-01-01T00:00:00Z', '1')");
    assert!(matches!(look(&path), Err(OpenError::Newer { .. })));
    change("DELETE FROM refinery_schema_history WHERE version = 999");
    assert_eq!(look(&path).unwrap().unwrap().form, Form::Current);
    // Of an earlier version, which has fewer tables.
    change("DROP TABLE presence");
    assert!(matches!(look(&path), Err(OpenError::Corrupt { .. })));
    change("DELETE FROM refinery_schema_history WHERE version > 1");
    assert_eq!(look(&path).unwrap().unwrap().form, Form::Older);
}

#[tokio::test]
async fn looking_ends_in_time() {
    let (_directory, path) = place();
    drop(open(&path).await);
    // Far more than can be read at once.
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "CREATE TABLE filler AS
         WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 100000)
         SELECT n, randomblob(300) AS blob FROM numbers;",
    )
    .unwrap();
    drop(conn);
    let seen = Sqlite::inspect(&path, Duration::ZERO).unwrap().unwrap();
    assert_eq!(seen.health, Health::SoFar);
    assert_eq!(look(&path).unwrap().unwrap().health, Health::Whole);
}
