//! Writer thread. It puts all queued jobs into one transaction, so that one flush of the disk
//! serves every caller that arrived during the last one (group commit). There is no timer: while jobs
//! come in numbers, the writer lets the threads that queue them run first.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
    time::{Duration, Instant},
};

use rusqlite::{Connection, TransactionBehavior};
use tokio::sync::mpsc;

use crate::{clock::Clock, metrics::StoreMetrics, store::change::ChangeBus};

use super::{
    append::{AfterCommit, Batch, JobResult, NextNumbers, WriterCache},
    checkpoint::Checkpoints,
    dead_holders::DeadHolders,
    files::Files,
    job::{Queued, Work},
    members::Heartbeats,
    names::Totals,
    prepared::Prepared,
    rows::{Fault, run},
    statements as sql,
    sweep::Swept,
};

/// The maximum number of jobs in one transaction, and the size after which no further job is added.
const BATCH_JOBS: usize = 256;
pub(super) const BATCH_BYTES: usize = 4 << 20;

/// The longest time between two checks of the files. A check costs two system calls.
const CHECK_FILES: Duration = Duration::from_millis(100);

/// The bytes of the pages that a job changes, even if it writes little.
const PAGES: usize = 48 << 10;

/// Parts of the store that the writer shares with its callers.
#[derive(Debug)]
pub(super) struct WriterShared {
    /// Only the writer uses this connection, except that a database in memory is also read through
    /// it.
    pub(super) conn: Arc<Mutex<Connection>>,
    pub(super) heartbeats: Arc<Heartbeats>,
    pub(super) bus: Arc<ChangeBus>,
    /// True once two nodes were members at the same time.
    pub(super) is_shared: Arc<AtomicBool>,
    pub(super) dead_holders: Arc<DeadHolders>,
    pub(super) clock: Clock,
    pub(super) metrics: Arc<StoreMetrics>,
}

/// The state of the writing thread.
#[derive(Debug)]
pub(super) struct Writer {
    shared: WriterShared,
    /// `None` in memory.
    checkpoints: Option<Checkpoints>,
    /// `None` in memory.
    files: Option<Files>,
    /// The time of the last check of the files.
    checked: Instant,
    memory: WriterCache,
    next: NextNumbers,
    /// True if the last transaction failed, so that an outage is logged once and not for every
    /// attempt.
    failing: bool,
}

impl Writer {
    pub(super) fn new(
        shared: WriterShared,
        checkpoints: Option<Checkpoints>,
        files: Option<Files>,
        next: NextNumbers,
    ) -> Self {
        let (memory, checked) = (WriterCache::default(), Instant::now());
        Self { shared, checkpoints, files, checked, memory, next, failing: false }
    }

    /// Runs until all senders are gone and the queue is empty.
    pub(super) fn serve(mut self, mut jobs: mpsc::Receiver<Box<dyn Queued>>) {
        let (mut held, mut several) = (None, false);
        while let Some(job) = held.take().or_else(|| jobs.blocking_recv()) {
            if several {
                let_queue_grow(&jobs);
            }
            let mut weight = job.weight();
            let mut batch = vec![job];
            while batch.len() < BATCH_JOBS && weight < BATCH_BYTES {
                let Ok(job) = jobs.try_recv() else { break };
                if job.is_large() {
                    held = Some(job);
                    break;
                }
                weight += job.weight();
                batch.push(job);
            }
            several = batch.len() > 1;
            let written = weight + batch.len() * PAGES;
            self.write(batch, written as u64);
        }
        if let Some(checkpoints) = &self.checkpoints {
            checkpoints.finish();
        }
    }

    fn write(&mut self, mut jobs: Vec<Box<dyn Queued>>, written: u64) {
        let conn = Arc::clone(&self.shared.conn);
        let mut conn = conn.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        match self.commit(&mut conn, &mut jobs) {
            Ok(()) => {
                self.shared.metrics.commits.took(begun.elapsed());
                self.shared.metrics.batches.observe(jobs.len() as u64);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the store can be written again");
                }
                for job in jobs {
                    job.reply(Ok(()));
                }
                if let Some(checkpoints) = &mut self.checkpoints {
                    checkpoints.after_commit(&conn, written);
                }
            }
            Err(Fault(error)) => {
                self.shared.metrics.errors.count();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::error!(%error, "the store cannot be written");
                }
                // Cached data of the rolled-back transaction is not stored.
                self.memory.forget();
                for job in jobs {
                    job.reply(Err(error.clone()));
                }
                if let Some(checkpoints) = &self.checkpoints {
                    checkpoints.wake();
                }
            }
        }
    }

    /// Runs the jobs in one transaction. After `Ok` they are durable; after an error nothing is
    /// written.
    fn commit(&mut self, conn: &mut Connection, jobs: &mut [Box<dyn Queued>]) -> Result<(), Fault> {
        self.check_files(jobs)?;
        let compares = jobs.iter().any(|job| job.compares_heartbeats());
        let heartbeats = compares.then(|| self.shared.heartbeats.lock());
        // Rolls back when it is dropped, including every early return.
        let transaction = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let mut batch = Batch {
            conn: &transaction,
            prepared: Prepared::new(&transaction),
            memory: &mut self.memory,
            next: &mut self.next,
            totals: Totals::default(),
            swept: Swept::default(),
            failing: self.failing,
            heartbeats: heartbeats.as_deref(),
            first_event: None,
            clock: &self.shared.clock,
            bus: &self.shared.bus,
            is_shared: &self.shared.is_shared,
            changes: Vec::new(),
            died: Vec::new(),
            has_ready_webhooks: false,
        };
        for job in &mut *jobs {
            job.run(&mut batch)?;
        }
        let AfterCommit { swept, changes, died } = batch.finish()?;
        transaction.commit()?;
        self.shared.dead_holders.add(died);
        for (writer, change) in changes {
            self.shared.bus.publish(writer, change);
        }
        if swept.any() {
            // The numbers of removed owners are no longer valid.
            self.memory.names.forget();
        }
        Ok(())
    }
}

impl Writer {
    /// Fails if the files were removed or replaced, because no later start could find the data.
    /// Checked every [`CHECK_FILES`], for every probe, and for every write while writes fail.
    fn check_files(&mut self, jobs: &[Box<dyn Queued>]) -> Result<(), Fault> {
        let Some(files) = &self.files else { return Ok(()) };
        let is_probe = jobs.iter().any(|job| job.is_probe());
        if self.failing || is_probe || self.checked.elapsed() >= CHECK_FILES {
            files.check()?;
            self.checked = Instant::now();
        }
        Ok(())
    }
}

/// Lets the threads run that are about to queue jobs, for as long as they do. The first job of many
/// wakes the writer; a transaction for it alone would write the same pages as one for all of them.
/// Called only while jobs come in numbers, so that a single caller never waits for other threads.
fn let_queue_grow(jobs: &mpsc::Receiver<Box<dyn Queued>>) {
    let mut known = jobs.len();
    while known < BATCH_JOBS {
        std::thread::yield_now();
        let grown = jobs.len();
        if grown == known {
            return;
        }
        known = grown;
    }
}

/// A job that checks that a write succeeds.
#[derive(Debug)]
pub(super) struct Probe;

impl Work for Probe {
    type Answer = ();

    /// Writes some bytes, as any append would. While writes fail it writes many, with new content
    /// each time: the space that a failed append left free would fit a small write, or an equal
    /// one.
    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        if batch.failing {
            run(batch.conn, sql::PUT_RANDOM_META, ["probe"])?;
            return Ok(Ok(()));
        }
        run(batch.conn, sql::PUT_META, ("probe", [0_u8; 16384].as_slice()))?;
        run(batch.conn, sql::DROP_META, ["probe"])?;
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        16384
    }

    fn is_probe(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use herald_protocol::{Seq, TaskState, Timestamp};

    use crate::store::{
        Append, Cause, Dedup, Header, Key, Kind, MemberId, Owner, Run, StoreError, TaskVersion,
    };

    use super::{
        super::{job::Job, open},
        *,
    };

    fn append(task: &str, expect: u64, key: u8) -> Append {
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
        Append {
            key: Key { owner, task: task.into() },
            expect: TaskVersion::new(expect, 0),
            fence: None,
            writer: MemberId(1),
            node: None,
            header,
            events: vec![(Kind::Artifact, bytes::Bytes::new())],
            snapshot: None,
            dedup: Some(Dedup { key: [key; 32], content: [0; 32] }),
            webhook: None,
            cause: Cause::default(),
            demands: None,
        }
    }

    /// The results of these appends in one transaction.
    fn outcomes<const N: usize>(
        writer: &mut Writer,
        conn: &mut Connection,
        appends: [Append; N],
    ) -> [Result<Seq, StoreError>; N] {
        let (mut jobs, mut answers) = (Vec::new(), Vec::new());
        for append in appends {
            let (job, answer) = Job::queued(Box::new(append));
            jobs.push(job);
            answers.push(answer);
        }
        writer.commit(conn, &mut jobs).unwrap();
        for job in jobs {
            job.reply(Ok(()));
        }
        let outcomes: Vec<_> =
            answers.iter_mut().map(|answer| answer.try_recv().unwrap()).collect();
        outcomes.try_into().unwrap()
    }

    #[test]
    fn a_damaged_task_does_not_fail_other_appends_of_its_transaction() {
        let opened = open::memory().unwrap();
        let conn = Arc::new(Mutex::new(opened.conn));
        let shared = WriterShared {
            conn: Arc::clone(&conn),
            heartbeats: Arc::default(),
            clock: Clock::system(),
            bus: Arc::default(),
            is_shared: Arc::default(),
            dead_holders: Arc::default(),
            metrics: Arc::default(),
        };
        let mut writer = Writer::new(shared, None, None, opened.next);
        let mut conn = conn.lock().unwrap();
        conn.execute("INSERT INTO members VALUES (?1, 0, '', '[]', NULL)", [MemberId(1).blob()])
            .unwrap();
        assert_eq!(outcomes(&mut writer, &mut conn, [append("damaged", 0, 1)]), [Ok(1)]);
        conn.execute_batch("UPDATE tasks SET unread = 'x'; UPDATE dedup SET position = 77")
            .unwrap();
        let appends = [append("damaged", 1, 2), append("again", 0, 1), append("whole", 0, 3)];
        let refused = outcomes(&mut writer, &mut conn, appends);
        assert!(matches!(refused[0], Err(StoreError::Corrupt(_))), "{refused:?}");
        assert!(matches!(refused[1], Err(StoreError::Corrupt(_))), "{refused:?}");
        assert_eq!(refused[2], Ok(1));
        // A refused append has taken no key.
        assert_eq!(outcomes(&mut writer, &mut conn, [append("other", 0, 2)]), [Ok(1)]);
    }
}
