//! The one writer. It takes whatever is queued into one transaction, so that one flush of the disk
//! serves every caller who came while the last one was under way; there is no timer.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use herald_protocol::AgentName;
use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use crate::{
    metrics::StoreMetrics,
    store::{Append, Holder, Snapshot, StoreError},
};

use super::{
    append::{Batch, Memory, Next},
    checkpoint::Checkpoints,
    files::Files,
    names::Totals,
    prepared::Prepared,
    rows::{Fault, run},
    statements as sql,
    sweep::Swept,
};

/// Jobs in one transaction, and bytes after which no further one is taken into it.
const BATCH_JOBS: usize = 256;
const BATCH_BYTES: usize = 4 << 20;

/// How often writes look whether the files are still there. A look costs two calls of the system.
const CHECK_FILES: Duration = Duration::from_millis(100);

/// Bytes of the pages that a job touches, however little it writes.
const PAGES: usize = 48 << 10;

/// Something to write.
#[derive(Debug)]
pub(super) enum Work {
    /// Answers with the new head.
    Append(Box<Append>),
    /// Removes these rows of finished tasks; answers with how many there were.
    Remove(Vec<i64>),
    /// Builds and keeps the serial queue of an agent; the answer has no meaning.
    EnableSerial(AgentName, Holder),
    /// Proves that a write succeeds; the answer has no meaning.
    Probe,
}

/// Work and where its outcome goes once it is durable.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) reply: oneshot::Sender<Result<u64, StoreError>>,
}

/// The state of the writing thread.
#[derive(Debug)]
pub(super) struct Writer {
    /// Nobody else uses the connection, except that a database in memory is read through it.
    conn: Arc<Mutex<Connection>>,
    /// None in memory.
    checkpoints: Option<Checkpoints>,
    /// None in memory.
    files: Option<Files>,
    /// When the files were last looked at.
    checked: Instant,
    memory: Memory,
    next: Next,
    metrics: Arc<StoreMetrics>,
    /// Whether the last transaction failed, so that a full disk is reported once and not with
    /// every attempt.
    failing: bool,
}

impl Writer {
    pub(super) fn new(
        conn: Arc<Mutex<Connection>>,
        checkpoints: Option<Checkpoints>,
        files: Option<Files>,
        next: Next,
        metrics: Arc<StoreMetrics>,
    ) -> Self {
        let (memory, checked) = (Memory::default(), Instant::now());
        Self { conn, checkpoints, files, checked, memory, next, metrics, failing: false }
    }

    /// Serves until every sender is gone and the queue is empty.
    pub(super) fn serve(mut self, mut jobs: mpsc::Receiver<Job>) {
        let mut held = None;
        while let Some(job) = held.take().or_else(|| jobs.blocking_recv()) {
            let mut weight = job.work.weight();
            let mut batch = vec![job];
            while batch.len() < BATCH_JOBS && weight < BATCH_BYTES {
                let Ok(job) = jobs.try_recv() else { break };
                if job.work.is_large() {
                    held = Some(job);
                    break;
                }
                weight += job.work.weight();
                batch.push(job);
            }
            let written = weight + batch.len() * PAGES;
            self.write(batch, written as u64);
        }
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.finish();
        }
    }

    fn write(&mut self, mut jobs: Vec<Job>, written: u64) {
        let shared = Arc::clone(&self.conn);
        let mut conn = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        match self.commit(&mut conn, &mut jobs) {
            Ok(outcomes) => {
                self.metrics.commits.took(begun.elapsed());
                self.metrics.batches.observe(jobs.len() as u64);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the store can be written again");
                }
                for (job, outcome) in jobs.into_iter().zip(outcomes) {
                    // A caller who has gone away asked for it all the same.
                    let _ = job.reply.send(outcome);
                }
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.after_commit(&conn, written);
                }
            }
            Err(Fault(error)) => {
                self.metrics.errors.count();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%error, "the store cannot be written");
                }
                // What was first seen in this transaction is not stored after all.
                self.memory.forget();
                for job in jobs {
                    let _ = job.reply.send(Err(error.clone()));
                }
                if let Some(checkpoints) = &self.checkpoints {
                    checkpoints.wake();
                }
            }
        }
    }

    /// All of them in one transaction: what it returns is durable. On an error nothing is written.
    /// The bytes of each append are dropped as they are written.
    fn commit(
        &mut self,
        conn: &mut Connection,
        jobs: &mut [Job],
    ) -> Result<Vec<Result<u64, StoreError>>, Fault> {
        let failing = self.failing;
        self.check_files(jobs)?;
        // Rolls back when it is dropped, and so on every early return.
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut batch = Batch {
            conn: &transaction,
            prepared: Prepared::new(&transaction),
            memory: &mut self.memory,
            next: &mut self.next,
            totals: Totals::default(),
        };
        let mut swept = Swept::default();
        let mut outcomes = Vec::with_capacity(jobs.len());
        for job in jobs {
            outcomes.push(match &mut job.work {
                Work::Append(append) => batch.append(append)?,
                Work::Remove(rows) => Ok(batch.remove(rows, &mut swept)?),
                Work::EnableSerial(agent, living) => {
                    batch.enable_serial(agent, *living).map(|()| Ok(0))?
                }
                Work::Probe => probe(&transaction, failing).map(|()| Ok(0))?,
            });
        }
        let next = batch.finish()?;
        swept.tidy(&transaction, next)?;
        transaction.commit()?;
        if swept.any() {
            // Their numbers may be gone with their last task.
            self.memory.names.forget();
        }
        Ok(outcomes)
    }
}

impl Writer {
    /// Fails if what is written now could be found by nobody. Every probe looks, and so does every
    /// write while they fail.
    fn check_files(&mut self, jobs: &[Job]) -> Result<(), Fault> {
        let Some(files) = &self.files else { return Ok(()) };
        let is_probe = jobs.iter().any(|job| matches!(job.work, Work::Probe));
        if self.failing || is_probe || self.checked.elapsed() >= CHECK_FILES {
            files.check()?;
            self.checked = Instant::now();
        }
        Ok(())
    }
}

/// Takes up some room, as any append would have to. While writes fail it takes up much, and new
/// bytes each time: what a failed append left behind would have room for a small or an equal one.
fn probe(conn: &Connection, failing: bool) -> Result<(), Fault> {
    if failing {
        run(conn, sql::PUT_RANDOM_META, ["probe"])?;
        return Ok(());
    }
    run(conn, sql::PUT_META, ("probe", [0_u8; 16384].as_slice()))?;
    run(conn, sql::DROP_META, ["probe"])?;
    Ok(())
}

impl Work {
    /// Roughly the bytes it writes.
    fn weight(&self) -> usize {
        match self {
            Self::Append(append) => {
                let events: usize = append.events.iter().map(|(_, body)| body.len()).sum();
                events + append.snapshot.as_ref().map_or(0, Snapshot::size)
            }
            // It is bounded, but not small.
            Self::Remove(_) => BATCH_BYTES / 2,
            Self::EnableSerial(..) => BATCH_BYTES,
            Self::Probe => 16384,
        }
    }

    /// Whether it has a transaction to itself: it touches as many tasks as wait, and what is wrong
    /// with one of them must fail nobody else's write.
    fn is_large(&self) -> bool {
        match self {
            Self::EnableSerial(..) => true,
            Self::Append(_) | Self::Remove(_) | Self::Probe => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use herald_protocol::{TaskState, Timestamp};

    use crate::store::{Dedup, Header, Key, Kind, Owner, Run};

    use super::{super::open, *};

    fn job(task: &str, expect: u64, key: u8) -> Job {
        let now = Timestamp::from_millis(1);
        let header = Header {
            agent: "echo".into(),
            context: "chat".into(),
            state: TaskState::InputRequired,
            changed: now,
            created: now,
            hidden: false,
            bytes: 0,
            run: Run::default(),
        };
        let owner = Owner { tenant: "acme".into(), principal: "ann".into() };
        let append = Append {
            key: Key { owner, task: task.into() },
            expect,
            fence: None,
            header,
            events: vec![(Kind::Artifact, bytes::Bytes::new())],
            snapshot: None,
            dedup: Some(Dedup { key: [key; 32], content: [0; 32] }),
        };
        Job { work: Work::Append(Box::new(append)), reply: oneshot::channel().0 }
    }

    #[test]
    fn a_spoiled_task_fails_no_other_in_its_transaction() {
        let opened = open::memory().unwrap();
        let conn = Arc::new(Mutex::new(opened.conn));
        let mut writer = Writer::new(Arc::clone(&conn), None, None, opened.next, Arc::default());
        let mut conn = conn.lock().unwrap();
        assert_eq!(writer.commit(&mut conn, &mut [job("spoiled", 0, 1)]).unwrap(), [Ok(1)]);
        conn.execute_batch("UPDATE tasks SET unread = 'x'; UPDATE dedup SET position = 77")
            .unwrap();
        let mut jobs = [job("spoiled", 1, 2), job("again", 0, 1), job("whole", 0, 3)];
        let outcomes = writer.commit(&mut conn, &mut jobs).unwrap();
        assert!(matches!(outcomes[0], Err(StoreError::Corrupt(_))), "{outcomes:?}");
        assert!(matches!(outcomes[1], Err(StoreError::Corrupt(_))), "{outcomes:?}");
        assert_eq!(outcomes[2], Ok(1));
        // What was refused has taken no key.
        assert_eq!(writer.commit(&mut conn, &mut [job("other", 0, 2)]).unwrap(), [Ok(1)]);
    }
}
