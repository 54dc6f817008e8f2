//! SQLite store, in one file or in memory.
//!
//! One thread writes and puts all waiting writes into one transaction; each reader has its own
//! connection. The cost of a write or a read does not depend on the number of stored tasks.

mod api_keys;
mod append;
mod audit;
mod checkpoint;
mod dead_holders;
mod due;
mod error;
mod feed;
mod files;
#[cfg(test)]
mod growth;
mod inspect;
mod job;
mod label_sets;
mod list;
mod locks;
mod members;
mod names;
mod open;
mod owners;
mod prepared;
mod reader;
mod registrations;
mod rows;
mod serial_queue;
mod statements;
mod status;
mod sweep;
mod webhooks;
mod writer;

use std::{
    fmt,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use herald_protocol::{AgentName, Seq, TaskId, Timestamp};
use rusqlite::Connection;
use tokio::sync::{Semaphore, mpsc};

use crate::{clock::Clock, metrics::StoreMetrics};

use super::{
    ApiKey, ApiKeyId, ApiKeyQuery, Append, AuditEnds, AuditEntry, AuditPage, AuditQuery,
    AuditRetention, Changes, Conversation, Due, DueQuery, FeedPage, FeedQuery, HeartbeatReply,
    HistoryQuery, Key, ListQuery, Listing, Loaded, LogEntry, LogPage, MemberId, MemberKind,
    Original, Owner, OwnerQuery, Retention, Scope, Store, StoreError, StoreStatus, Stored,
    TaskVersion, Usage, WorkerMember, change::ChangeBus,
};

pub use error::OpenError;
pub use inspect::{Health, Inspection, SchemaStatus};

use api_keys::{AddApiKey, RecordKeyUses, RevokeKey};
use audit::{AppendAudit, SweepAudit};
use checkpoint::Checkpoints;
use dead_holders::DeadHolders;
use job::{Job, Queued, Work};
use locks::Unlock;
use members::{Heartbeats, Join, JoinWorker, Leave, MarkDead, SetServedAgents};
use open::Opened;
use reader::Readers;
use rows::Fault;
use serial_queue::EnableSerial;
use sweep::Removal;
use writer::{Probe, Writer, WriterShared};

/// The number of writes that may wait for the writer. Beyond it callers wait before they enqueue
/// (backpressure).
const QUEUE: usize = 1024;

/// The number of long reads that run at once. Each needs a thread and a connection.
const LONG_READS: usize = 4;

/// Disk settings of the store. The defaults suit most servers.
#[derive(Debug, Clone)]
pub struct Options {
    /// The size of the write-ahead log from which a background checkpoint starts.
    pub checkpoint_bytes: u64,
    /// The size of the write-ahead log at which writers wait for a checkpoint.
    pub log_cap_bytes: u64,
    /// The clock for the times of commits.
    pub clock: Clock,
}

impl Default for Options {
    fn default() -> Self {
        Self { checkpoint_bytes: 4 << 20, log_cap_bytes: 32 << 20, clock: Clock::system() }
    }
}

/// Tasks in SQLite. Dropping it waits until all queued writes are committed and the file is closed.
pub struct Sqlite {
    jobs: Option<mpsc::Sender<Box<dyn Queued>>>,
    threads: Vec<JoinHandle<()>>,
    #[cfg(feature = "test-util")]
    conn: Arc<Mutex<Connection>>,
    /// Dropped after the other connections, because it holds the directory lock.
    readers: Arc<Readers>,
    long_reads: Semaphore,
    heartbeats: Arc<Heartbeats>,
    bus: Arc<ChangeBus>,
    is_shared: Arc<AtomicBool>,
    dead_holders: Arc<DeadHolders>,
    metrics: Arc<StoreMetrics>,
    secret: [u8; 32],
}

impl Sqlite {
    /// Opens or creates a database. No other process can open it until the store is dropped.
    pub fn open(path: &Path, options: Options) -> Result<Self, OpenError> {
        let lock = open::lock(path)?;
        let opened = open::file(path, options.log_cap_bytes);
        let opened = opened.map_err(|error| inspect::explain(path, error))?;
        let conn = open::checkpointer(path)?;
        let (checkpoints, thread) =
            Checkpoints::start(conn, &options).map_err(OpenError::Thread)?;
        let idle = Mutex::new(Vec::new());
        let readers = |_| Readers::Pool {
            path: path.to_owned(),
            idle,
            failing: AtomicBool::new(false),
            _lock: lock,
        };
        Self::start(opened, Some(checkpoints), options.clock, readers, vec![thread])
    }

    /// Inspects a database for at most `timeout`, without changing it, even while another process
    /// has it open. `None` if the file does not exist. Blocks.
    pub fn inspect(path: &Path, timeout: Duration) -> Result<Option<Inspection>, OpenError> {
        inspect::inspect(path, timeout)
    }

    /// The damage in a database, as an error for the person who starts the server; `None` if a
    /// check of a few seconds finds none. Blocks.
    pub fn damage(path: &Path) -> Option<OpenError> {
        inspect::damage(path)
    }

    /// Fails if another process has the database open. It waits at most two seconds for a process
    /// that is ending, and creates no file. Blocks.
    pub fn check_unused(path: &Path) -> Result<(), OpenError> {
        open::check_unused(path)
    }

    /// A database in memory, which is lost when the store is dropped.
    pub fn memory() -> Result<Self, OpenError> {
        Self::start(open::memory()?, None, Clock::system(), Readers::Shared, Vec::new())
    }

    fn start(
        opened: Opened,
        checkpoints: Option<Checkpoints>,
        clock: Clock,
        readers: impl FnOnce(Arc<Mutex<Connection>>) -> Readers,
        mut threads: Vec<JoinHandle<()>>,
    ) -> Result<Self, OpenError> {
        let Opened { conn, next, secret, members, files } = opened;
        let heartbeats = Arc::new(Heartbeats::default());
        for member in members {
            heartbeats.start(member);
        }
        let conn = Arc::new(Mutex::new(conn));
        let metrics = Arc::new(StoreMetrics::default());
        let (bus, is_shared) = (Arc::new(ChangeBus::default()), Arc::default());
        let dead_holders = Arc::new(DeadHolders::default());
        let shared = WriterShared {
            conn: Arc::clone(&conn),
            heartbeats: Arc::clone(&heartbeats),
            bus: Arc::clone(&bus),
            is_shared: Arc::clone(&is_shared),
            dead_holders: Arc::clone(&dead_holders),
            clock,
            metrics: Arc::clone(&metrics),
        };
        let writer = Writer::new(shared, checkpoints, files, next);
        let (jobs, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("herald-store".into())
            .spawn(move || writer.serve(queue))
            .map_err(OpenError::Thread)?;
        // The writer first: the checkpoint thread ends after the writer.
        threads.insert(0, thread);
        Ok(Self {
            jobs: Some(jobs),
            threads,
            readers: Arc::new(readers(Arc::clone(&conn))),
            #[cfg(feature = "test-util")]
            conn,
            long_reads: Semaphore::new(LONG_READS),
            heartbeats,
            bus,
            is_shared,
            dead_holders,
            metrics,
            secret,
        })
    }

    /// Limits the database to this number of pages, to simulate a full disk.
    #[cfg(feature = "test-util")]
    pub fn limit_pages(&self, pages: u32) {
        let conn = self.conn.lock().expect("no holder of the connection panics");
        conn.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))
            .expect("the limit can be set whenever no transaction is open");
    }

    /// Drops all notifications of changes to other members from now on, or sends them again.
    #[cfg(feature = "test-util")]
    pub fn lose_changes(&self, lose: bool) {
        self.bus.lose(lose);
    }

    /// Sends a job to the writer. The answer arrives once the job is durable.
    async fn write<W: Work>(&self, work: W) -> Result<W::Answer, StoreError> {
        let stopped = || StoreError::Unavailable("the writer has stopped".into());
        let jobs = self.jobs.as_ref().ok_or_else(stopped)?;
        let (job, answer) = Job::queued(work);
        jobs.send(job).await.map_err(|_| stopped())?;
        answer.await.map_err(|_| stopped())?
    }

    /// Runs a long read on a blocking thread.
    async fn read_long<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, StoreError> {
        let _permit = self.long_reads.acquire().await.expect("the semaphore is never closed");
        let readers = Arc::clone(&self.readers);
        let done = tokio::task::spawn_blocking(move || readers.with(read)).await;
        done.unwrap_or_else(|_| Err(StoreError::Unavailable("a read was aborted".into())))
    }
}

/// Point reads run on the caller's thread: their pages are nearly always in memory, and then a
/// change of threads costs more than the read.
#[async_trait]
impl Store for Sqlite {
    async fn append(&self, append: Append) -> Result<Seq, StoreError> {
        let task = append.key.task.clone();
        self.write(Box::new(append)).await.map_err(|error| error.of(&task))
    }

    async fn load(
        &self,
        key: &Key,
        known: Option<TaskVersion>,
        limit: u64,
    ) -> Result<Loaded, StoreError> {
        let load = self.readers.with(|conn| reader::load(conn, key, known, limit));
        load.map_err(|error| error.of(&key.task))
    }

    async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<LogPage, StoreError> {
        let read = self.readers.with(|conn| reader::read(conn, key, after, limit));
        read.map_err(|error| error.of(&key.task))
    }

    async fn read_log(
        &self,
        key: &Key,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError> {
        let read = self.readers.with(|conn| reader::read_log(conn, key, after, limit));
        read.map_err(|error| error.of(&key.task))
    }

    async fn feed(&self, query: &FeedQuery) -> Result<FeedPage, StoreError> {
        self.readers.with(|conn| feed::read(conn, query))
    }

    async fn list(&self, query: ListQuery) -> Result<Listing, StoreError> {
        self.read_long(move |conn| list::list(conn, &query)).await
    }

    async fn conversation_history(
        &self,
        query: HistoryQuery,
    ) -> Result<Vec<(TaskId, Stored)>, StoreError> {
        self.read_long(move |conn| list::conversation_history(conn, &query)).await
    }

    async fn agents_unserved(&self) -> Result<Vec<AgentName>, StoreError> {
        self.readers.with(reader::agents_unserved)
    }

    async fn due(&self, query: DueQuery<'_>) -> Result<Vec<Due>, StoreError> {
        self.readers.with(|conn| due::due(conn, &self.dead_holders, &query))
    }

    async fn enable_serial(&self, agent: &AgentName) -> Result<(), StoreError> {
        self.write(EnableSerial(agent.clone())).await
    }

    async fn next_serial(&self, query: DueQuery<'_>) -> Result<Vec<Due>, StoreError> {
        self.readers.with(|conn| serial_queue::next_serial(conn, &query))
    }

    async fn unlock_conversation(
        &self,
        agent: &AgentName,
        conversation: &Conversation,
        me: MemberId,
    ) -> Result<(), StoreError> {
        let (agent, conversation) = (agent.clone(), conversation.clone());
        self.write(Unlock { agent, conversation, me }).await
    }

    async fn original(&self, key: &[u8; 32]) -> Result<Option<Original>, StoreError> {
        self.readers.with(|conn| rows::original(conn, key))
    }

    async fn paused(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Key, Timestamp)>, StoreError> {
        let agent = agent.clone();
        self.read_long(move |conn| reader::paused(conn, &agent, before, limit)).await
    }

    async fn queued(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Key, Timestamp)>, StoreError> {
        let agent = agent.clone();
        self.read_long(move |conn| reader::queued(conn, &agent, before, limit)).await
    }

    async fn sweep(&self, retention: Retention, limit: usize) -> Result<usize, StoreError> {
        let chosen = self.read_long(move |conn| sweep::choose(conn, &retention, limit)).await?;
        let mut removed = 0;
        for rows in chosen {
            removed += self.write(Removal(rows)).await?;
        }
        Ok(removed)
    }

    async fn join(&self, id: MemberId, kind: MemberKind, name: &str) -> Result<(), StoreError> {
        // A counter without a member has no effect: the table defines the living members.
        self.heartbeats.start(id);
        let name = name.to_owned();
        self.write(Join { id, kind, name }).await
    }

    async fn join_worker(
        &self,
        id: MemberId,
        worker: &WorkerMember,
    ) -> Result<Vec<MemberId>, StoreError> {
        self.heartbeats.start(id);
        let former = self.write(JoinWorker { id, worker: worker.clone() }).await?;
        for member in &former {
            self.heartbeats.stop(*member);
        }
        Ok(former)
    }

    async fn find_worker(&self, id: MemberId) -> Result<Option<WorkerMember>, StoreError> {
        self.readers.with(|conn| members::find_worker(conn, id))
    }

    async fn is_member(&self, id: MemberId) -> Result<bool, StoreError> {
        self.readers.with(|conn| members::is_living(conn, &id.blob()))
    }

    async fn count_heartbeat(&self, me: MemberId) -> Result<(), StoreError> {
        if !self.heartbeats.count(me) {
            return Err(StoreError::NotMember);
        }
        // A counter may be left of a join that failed.
        if self.is_member(me).await? { Ok(()) } else { Err(StoreError::NotMember) }
    }

    async fn held(
        &self,
        agent: &AgentName,
        holder: MemberId,
        limit: usize,
    ) -> Result<Vec<Due>, StoreError> {
        self.readers.with(|conn| due::held(conn, agent, holder, limit))
    }

    async fn serve(&self, me: MemberId, agents: &[AgentName]) -> Result<(), StoreError> {
        self.write(SetServedAgents { me, agents: agents.to_vec() }).await
    }

    async fn heartbeat(&self, me: MemberId) -> Result<HeartbeatReply, StoreError> {
        if !self.heartbeats.count(me) {
            return Err(StoreError::NotMember);
        }
        let mut members = self.readers.with(members::living)?;
        if !members.iter().any(|member| member.id == me) {
            self.heartbeats.stop(me);
            return Err(StoreError::NotMember);
        }
        let counters = self.heartbeats.lock();
        for member in &mut members {
            member.heartbeat = counters.get(&member.id).copied().unwrap_or_default();
        }
        Ok(HeartbeatReply { members, now: None })
    }

    async fn mark_dead(&self, member: MemberId, seen: u64) -> Result<bool, StoreError> {
        let died = self.write(MarkDead { member, seen }).await?;
        if died {
            self.heartbeats.stop(member);
        }
        Ok(died)
    }

    async fn leave(&self, me: MemberId) -> Result<(), StoreError> {
        self.write(Leave(me)).await?;
        self.heartbeats.stop(me);
        Ok(())
    }

    async fn owners_of(
        &self,
        scope: &Scope,
        task: &TaskId,
        limit: usize,
    ) -> Result<Vec<Owner>, StoreError> {
        if let Scope::Own(_) = scope {
            return self.readers.with(|conn| owners::owners_of(conn, scope, task, limit));
        }
        let (scope, task) = (scope.clone(), task.clone());
        self.read_long(move |conn| owners::owners_of(conn, &scope, &task, limit)).await
    }

    async fn usage(&self, scope: &Scope) -> Result<Usage, StoreError> {
        self.readers.with(|conn| owners::usage(conn, scope))
    }

    async fn owners(&self, query: OwnerQuery) -> Result<Vec<(Owner, Usage)>, StoreError> {
        self.read_long(move |conn| owners::owners(conn, &query)).await
    }

    async fn status(&self) -> Result<StoreStatus, StoreError> {
        let readers = Arc::clone(&self.readers);
        self.read_long(move |conn| status::status(conn, readers.path())).await
    }

    async fn create_key(&self, key: ApiKey, audit: AuditEntry) -> Result<(), StoreError> {
        self.write(AddApiKey(Box::new((key, audit)))).await
    }

    async fn revoke_key(
        &self,
        id: &str,
        at: Timestamp,
        audit: AuditEntry,
    ) -> Result<Option<ApiKey>, StoreError> {
        let (id, audit) = (id.into(), Box::new(audit));
        self.write(RevokeKey { id, at, audit }).await
    }

    async fn record_key_uses(&self, uses: Vec<(ApiKeyId, Timestamp)>) -> Result<(), StoreError> {
        self.write(RecordKeyUses(uses)).await
    }

    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError> {
        self.readers.with(|conn| api_keys::find(conn, id))
    }

    async fn find_key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<ApiKey>, StoreError> {
        self.readers.with(|conn| api_keys::find_by_hash(conn, hash))
    }

    async fn list_keys(&self, query: ApiKeyQuery) -> Result<Vec<ApiKey>, StoreError> {
        self.read_long(move |conn| api_keys::list(conn, &query)).await
    }

    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError> {
        self.write(AppendAudit(entries)).await
    }

    async fn read_audit(&self, query: AuditQuery) -> Result<AuditPage, StoreError> {
        self.read_long(move |conn| audit::read(conn, &query)).await
    }

    async fn audit_ends(&self) -> Result<AuditEnds, StoreError> {
        self.readers.with(audit::ends)
    }

    async fn sweep_audit(
        &self,
        retention: AuditRetention,
        limit: usize,
    ) -> Result<usize, StoreError> {
        self.write(SweepAudit { retention, limit }).await
    }

    async fn probe(&self) -> Result<(), StoreError> {
        self.write(Probe).await
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    fn changes(&self, me: MemberId) -> Changes {
        self.bus.subscribe(me)
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        Some(&self.metrics)
    }

    fn is_durable(&self) -> bool {
        match &*self.readers {
            Readers::Pool { .. } => true,
            Readers::Shared(_) => false,
        }
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.jobs = None;
        self.readers.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has logged it.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Sqlite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqlite").field("readers", &self.readers).finish_non_exhaustive()
    }
}
