//! Store of the floor: one writer thread with group commit, and one reading connection.

use std::{
    path::Path,
    sync::{Mutex, PoisonError, mpsc},
    thread,
};

use bytes::Bytes;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Statement, params};
use tokio::sync::oneshot;
use uuid::Uuid;

/// Rowid tables with a unique index: clustering events by (task, seq) measured three times slower at
/// large groups and took three times the disk. The rowid is the store-wide position of an event.
/// The dedup row is short enough that clustering it saves an index.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS tasks (id BLOB NOT NULL UNIQUE, snapshot BLOB NOT NULL);
    CREATE TABLE IF NOT EXISTS events (
        position INTEGER PRIMARY KEY, task BLOB NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL,
        UNIQUE (task, seq));
    CREATE TABLE IF NOT EXISTS dedup (message_id TEXT PRIMARY KEY, task BLOB NOT NULL)
        WITHOUT ROWID;
";

/// Upper bound of one group, so that the first in it does not wait for ever under load.
const GROUP: usize = 256;

/// Rows that become durable together.
pub(crate) struct Batch {
    pub(crate) task: Uuid,
    pub(crate) new: Option<NewTask>,
    pub(crate) first_seq: u32,
    pub(crate) events: Vec<Bytes>,
    pub(crate) snapshot: Option<Bytes>,
}

pub(crate) struct NewTask {
    pub(crate) message_id: String,
    pub(crate) snapshot: Bytes,
}

pub(crate) struct Store {
    /// Unbounded, and still bounded: each open request has at most one batch in it.
    jobs: mpsc::Sender<Job>,
    /// Read where the request runs: a lookup in the page cache costs less than handing it to another
    /// thread. A server that must not block on a cold page pays for the hand-over; the floor does
    /// not. One connection is enough for the one core the benchmark gives to a server.
    reader: Mutex<Connection>,
}

struct Job {
    batch: Batch,
    done: oneshot::Sender<Outcome>,
}

type Outcome = Result<(), String>;

/// Prepared once for the life of the writer; `BEGIN` and `COMMIT` too.
struct Statements<'db> {
    begin: Statement<'db>,
    commit: Statement<'db>,
    dedup: Statement<'db>,
    task: Statement<'db>,
    event: Statement<'db>,
    finish: Statement<'db>,
}

impl Store {
    pub(crate) fn open(path: &Path) -> rusqlite::Result<Self> {
        let writer = Connection::open(path)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        // FULL: each commit is flushed to the disk before it returns. NORMAL would flush only at
        // checkpoints, and a power cut could take back what a client has seen. Everything else is
        // SQLite's default, the checkpoint inside a commit included.
        writer.pragma_update(None, "synchronous", "FULL")?;
        writer.execute_batch(SCHEMA)?;
        let reader = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let (jobs, queue) = mpsc::channel();
        thread::spawn(move || write_all(&writer, &queue).expect("the schema matches the SQL"));
        Ok(Self { jobs, reader: Mutex::new(reader) })
    }

    /// Returns once the rows are on disk.
    pub(crate) async fn commit(&self, batch: Batch) -> Outcome {
        let (done, wait) = oneshot::channel();
        self.jobs.send(Job { batch, done }).map_err(|_| "the writer is gone".to_owned())?;
        wait.await.map_err(|_| "the writer is gone".to_owned())?
    }

    pub(crate) fn task(&self, id: Uuid) -> rusqlite::Result<Option<Vec<u8>>> {
        // A panic elsewhere leaves the connection as good as before: reads change nothing.
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        let mut find = reader.prepare_cached("SELECT snapshot FROM tasks WHERE id = ?1")?;
        find.query_row([id.as_bytes()], |row| row.get(0)).optional()
    }
}

/// Takes what is queued, writes it as one transaction, acknowledges all of it, and starts again. No
/// timer: alone, a batch waits for nobody; under load, groups grow to what arrives during a flush.
fn write_all(db: &Connection, queue: &mpsc::Receiver<Job>) -> rusqlite::Result<()> {
    let mut sql = Statements::prepare(db)?;
    let mut group = Vec::with_capacity(GROUP);
    while let Ok(first) = queue.recv() {
        sql.begin.execute([])?;
        for job in std::iter::once(first).chain(queue.try_iter()).take(GROUP) {
            group.push((job.done, sql.write(&job.batch).map_err(|error| error.to_string())));
        }
        let committed = sql.commit.execute([]).map(drop).map_err(|error| error.to_string());
        for (done, written) in group.drain(..) {
            // A client that has disconnected needs no acknowledgement.
            drop(done.send(written.and(committed.clone())));
        }
    }
    Ok(())
}

impl<'db> Statements<'db> {
    fn prepare(db: &'db Connection) -> rusqlite::Result<Self> {
        Ok(Self {
            begin: db.prepare("BEGIN IMMEDIATE")?,
            commit: db.prepare("COMMIT")?,
            dedup: db.prepare("INSERT INTO dedup (message_id, task) VALUES (?1, ?2)")?,
            task: db.prepare("INSERT INTO tasks (id, snapshot) VALUES (?1, ?2)")?,
            event: db.prepare("INSERT INTO events (task, seq, body) VALUES (?1, ?2, ?3)")?,
            finish: db.prepare("UPDATE tasks SET snapshot = ?2 WHERE id = ?1")?,
        })
    }

    /// The dedup row comes first: if it is refused, nothing else of this batch has been written and
    /// the rest of the group is untouched.
    fn write(&mut self, batch: &Batch) -> rusqlite::Result<()> {
        let task = batch.task.as_bytes();
        if let Some(new) = &batch.new {
            self.dedup.execute(params![new.message_id, task])?;
            self.task.execute(params![task, &new.snapshot[..]])?;
        }
        for (seq, body) in (batch.first_seq..).zip(&batch.events) {
            self.event.execute(params![task, seq, &body[..]])?;
        }
        if let Some(snapshot) = &batch.snapshot {
            self.finish.execute(params![task, &snapshot[..]])?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> (std::path::PathBuf, Store) {
        let directory = std::env::temp_dir().join(format!("floor-{}", Uuid::new_v4()));
        std::fs::create_dir(&directory).unwrap();
        let store = Store::open(&directory.join("floor.db")).unwrap();
        (directory, store)
    }

    fn accept(message_id: &str) -> Batch {
        let new = NewTask { message_id: message_id.to_owned(), snapshot: "new".into() };
        let task = Uuid::now_v7();
        Batch { task, new: Some(new), first_seq: 1, events: vec!["one".into()], snapshot: None }
    }

    #[tokio::test]
    async fn a_committed_task_can_be_read() {
        let (directory, store) = open();
        let batch = accept("m");
        let task = batch.task;
        store.commit(batch).await.unwrap();
        let done = Some("done".into());
        let finish = Batch { task, new: None, first_seq: 2, events: vec![], snapshot: done };
        store.commit(finish).await.unwrap();
        assert_eq!(store.task(task).unwrap().as_deref(), Some(&b"done"[..]));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[tokio::test]
    async fn a_repeated_message_is_refused_and_harms_nobody() {
        let (directory, store) = open();
        store.commit(accept("m")).await.unwrap();
        let (again, other) = (accept("m"), accept("n"));
        let (refused, kept) = (again.task, other.task);
        let (again, other) = tokio::join!(store.commit(again), store.commit(other));
        assert!(again.is_err() && other.is_ok());
        assert_eq!(store.task(refused).unwrap(), None);
        assert!(store.task(kept).unwrap().is_some());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
