//! Store trait: the durable log of every task, and its queries.

mod audit;
mod change;
#[cfg(feature = "test-util")]
pub mod conformance;
#[cfg(feature = "test-util")]
pub mod flaky;
mod registrations;
pub mod sqlite;
mod webhooks;

use std::{collections::HashSet, fmt, sync::LazyLock};

use async_trait::async_trait;
use bytes::Bytes;
use herald_protocol::{AgentName, ContextId, Seq, TaskId, TaskState, TenantId, Timestamp};

use crate::metrics::StoreMetrics;

pub use crate::model::{
    api_key::{ApiKey, ApiKeyId},
    audit::{AuditActor, AuditEnds, AuditEntry, AuditRecord, AuditSubject, ChainLink},
    audit_chain::{ChainFault, ChainFaultKind, ChainVerifier},
    cause::{Actor, Cause},
    event::{Entry, Kind},
    key::{Conversation, Key, Owner, Scope, Visibility},
    member::{HeartbeatReply, Member, MemberId, MemberKind},
    record::Header,
    registration::{Declaration, DeclaredSkill, PinnedCard, Registration, RegistrationName},
    run::{Epoch, Run, TaskVersion, TurnClaim},
    scopes::Scopes,
    webhook::{DeliveryAttempt, Webhook, WebhookId, WebhookState, WebhookTarget},
    worker::WorkerMember,
};
pub use audit::{AuditPage, AuditQuery, AuditRetention, verify_audit};
pub use change::{Change, Changes};
pub use registrations::{NewRegistration, RegistrationStore};
pub use webhooks::{
    ClaimedWebhook, NewWebhook, NextDelivery, WebhookClaim, WebhookLimits, WebhookPage,
    WebhookProgress, WebhookQuery, WebhookStore,
};

/// A stored event, with the data of its commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The event.
    pub entry: Entry,
    /// The position among the events of all tasks.
    pub position: Position,
    /// The time of the commit; `None` for events of a schema that did not record it.
    pub at: Option<Timestamp>,
    /// The cause; `None` for events of a schema that did not record it.
    pub cause: Option<Cause>,
}

/// A page of the log of one task.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogPage {
    /// The events, in order.
    pub entries: Vec<Entry>,
    /// True if no event can follow.
    pub closed: bool,
}

/// A task with something to do that no living member holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// The task.
    pub key: Key,
    /// The epoch of the task. A claim fails if the task has another epoch by then.
    pub epoch: Epoch,
    /// The dead member that held the turn, if there is one.
    pub holder: Option<MemberId>,
}

/// Query of due tasks.
#[derive(Debug, Clone, Copy)]
pub struct DueQuery<'a> {
    /// The agent.
    pub agent: &'a AgentName,
    /// The owner whose turn was the last.
    pub after: Option<&'a Owner>,
    /// Only tasks of this tenant. `None` means those of every tenant.
    pub tenant: Option<&'a TenantId>,
    /// Tasks that are passed over.
    pub except: &'a HashSet<Key>,
    /// The labels of the worker that asks, sorted: only tasks that require no others. `None` means every
    /// task.
    pub labels: Option<&'a [String]>,
    /// The most tasks to find.
    pub limit: usize,
}

impl<'a> DueQuery<'a> {
    /// Any due tasks of an agent.
    pub fn new(agent: &'a AgentName, limit: usize) -> Self {
        static NONE: LazyLock<HashSet<Key>> = LazyLock::new(HashSet::new);
        Self { agent, after: None, tenant: None, except: &NONE, labels: None, limit }
    }
}

/// Position of an event in the order of all commits. Positions grow, are never used twice, and may
/// have gaps.
pub type Position = u64;

/// Query of the events of all tasks in a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedQuery {
    /// The owners whose events are returned.
    pub scope: Scope,
    /// Only events of this agent's tasks.
    pub agent: Option<AgentName>,
    /// Only events of these tasks; empty means of all tasks.
    pub tasks: Vec<TaskId>,
    /// Only events after this position. `None` returns no events, only the current end.
    pub after: Option<Position>,
    /// The maximum number of events. A page of large events has fewer.
    pub limit: usize,
}

/// One event of a feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedEntry {
    /// The position among the events of all tasks.
    pub position: Position,
    /// The task of the event.
    pub key: Key,
    /// The agent of that task.
    pub agent: AgentName,
    /// The event.
    pub entry: Entry,
}

/// One page of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedPage {
    /// The matching events. A page before the end may be empty.
    pub entries: Vec<FeedEntry>,
    /// The last position that was examined. At the end it equals the position of the query.
    pub reached: Position,
}

/// A task as it was after some event, in pieces, so that lists need not read the artifacts. Each
/// piece is the 1.0 JSON of one member of the task; an empty piece means that the member is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The sequence number of the last event that it contains.
    pub seq: Seq,
    /// `status`.
    pub status: Bytes,
    /// `history`.
    pub history: Bytes,
    /// `metadata`.
    pub metadata: Bytes,
    /// `artifacts`.
    pub artifacts: Bytes,
}

/// The stored form of one task: a snapshot and the events after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The header.
    pub header: Header,
    /// The sequence number of the last event in the log.
    pub head: Seq,
    /// The latest snapshot, if one was written.
    pub snapshot: Option<Snapshot>,
    /// The events after the snapshot.
    pub since: Vec<Entry>,
}

/// The answer to a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// The task is at the known version.
    Same,
    /// The task changed since the known version.
    More {
        /// The header. Its `bytes` count only the events in `since`, because the caller knows the
        /// earlier ones.
        header: Header,
        /// The sequence number of the last event in the log.
        head: Seq,
        /// The events after the known version.
        since: Vec<Entry>,
    },
    /// The whole task.
    Whole(Stored),
    /// The task does not exist.
    Gone,
}

impl Loaded {
    /// The whole task, for a caller that passed no known version.
    pub fn whole(self) -> Option<Stored> {
        match self {
            Self::Whole(stored) => Some(stored),
            Self::Same | Self::More { .. } | Self::Gone => None,
        }
    }
}

/// Idempotency key of a send. A repeated send with the same key finds the task of the first one.
/// Kept as long as that task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedup {
    /// The hash of owner, agent and key.
    pub key: [u8; 32],
    /// The hash of the message.
    pub content: [u8; 32],
}

/// The result of an earlier send with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// The task that the send created or continued. Its owner may be another principal than the
    /// sender.
    pub key: Key,
    /// The sequence number of its [`Kind::Received`] entry.
    pub seq: Seq,
    /// The hash of its message.
    pub content: [u8; 32],
}

/// An atomic write of one task.
#[derive(Debug, Clone)]
pub struct Append {
    /// The task.
    pub key: Key,
    /// The version for which the write was decided. A head of zero means that the task must not
    /// exist.
    pub expect: TaskVersion,
    /// The epoch of the writer's claim, if it has one. The write is refused if the task has another
    /// epoch.
    pub fence: Option<Epoch>,
    /// The member that writes. A dead member is refused.
    pub writer: MemberId,
    /// The node that makes the write for its worker, which is the writer. It is not notified of its own
    /// change.
    pub node: Option<MemberId>,
    /// The header after the events.
    pub header: Header,
    /// The events, numbered from `expect.head + 1`. Empty if only the run state changes.
    pub events: Vec<(Kind, Bytes)>,
    /// A snapshot of the task after the events: at the end of a task and at some of its pauses.
    pub snapshot: Option<Snapshot>,
    /// An idempotency key that names the first event. The write is refused if the key is taken.
    pub dedup: Option<Dedup>,
    /// A webhook of the task that begins at the first event.
    pub webhook: Option<Box<NewWebhook>>,
    /// The cause. Stored with the first event, if the actor is a caller, another principal or a worker.
    pub cause: Cause,
    /// The demands of a new task on its worker. Only the append that creates the task sets them.
    pub demands: Option<Box<Demands>>,
}

/// The demands of a task on the worker that runs its turns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Demands {
    /// The labels that the worker must have, sorted and without repetitions.
    pub labels: Vec<String>,
    /// The priority. Among the due tasks of one owner those with a higher one come first.
    pub priority: i8,
}

/// Query of a list of tasks, newest status first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// The owners whose tasks are listed.
    pub scope: Scope,
    /// Only tasks of this agent.
    pub agent: Option<AgentName>,
    /// Only tasks of this conversation.
    pub context: Option<ContextId>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks whose status changed at this time or later.
    pub since: Option<Timestamp>,
    /// Only tasks after this cursor.
    pub after: Option<ListCursor>,
    /// The maximum number of tasks. A page of large tasks has fewer.
    pub limit: usize,
    /// True if artifacts are read.
    pub artifacts: bool,
}

/// Query of a conversation history: the newest tasks of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The owner.
    pub owner: Owner,
    /// The agent of the tasks.
    pub agent: AgentName,
    /// The conversation.
    pub context: ContextId,
    /// The maximum number of tasks; the newest are returned.
    pub tasks: usize,
    /// The maximum number of bytes of these tasks.
    pub bytes: usize,
}

/// Cursor of a list. The next page starts after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    /// The status time of the task at the cursor.
    pub changed: Timestamp,
    /// Orders tasks with the same time. Its meaning is internal to the store.
    pub row: i64,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The tasks. Their snapshots have no artifacts unless the query asked for them.
    pub tasks: Vec<(Key, Stored)>,
    /// The cursor of the next page, if there is one.
    pub next: Option<ListCursor>,
    /// The number of matching tasks on all pages.
    pub total: u64,
}

/// Retention limits of finished tasks. Each limit applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Tasks that ended before this time are removed.
    pub ended_before: Option<Timestamp>,
    /// The maximum number of tasks per tenant.
    pub tasks: Option<u64>,
    /// The maximum bytes of logs per tenant.
    pub bytes: Option<u64>,
}

/// Query of API keys, in the order of their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyQuery {
    /// Only keys of this tenant.
    pub tenant: Option<TenantId>,
    /// Only keys after this one.
    pub after: Option<ApiKeyId>,
    /// The maximum number of keys.
    pub limit: usize,
}

/// Query of the owners that have tasks, in the order of tenant and principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerQuery {
    /// Only owners of this tenant.
    pub tenant: Option<TenantId>,
    /// Only owners after this one.
    pub after: Option<Owner>,
    /// The maximum number of owners.
    pub limit: usize,
}

/// Stored tasks of some owners, in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tasks that have not ended, including direct answers that are not given yet.
    pub active: u64,
    /// Tasks that wait for their agent.
    pub queued: u64,
    /// All tasks, without direct answers.
    pub tasks: u64,
    /// The bytes of the logs of all tasks, as of the last status change of each.
    pub bytes: u64,
}

/// State of a store, for operators.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStatus {
    /// The bytes of the database.
    pub bytes: u64,
    /// The bytes of the write-ahead log.
    pub log_bytes: u64,
    /// The free bytes of the disk; `None` if the store is not on a disk of this machine.
    pub free_bytes: Option<u64>,
    /// The version of the schema.
    pub schema: u32,
    /// The tasks of all owners.
    pub usage: Usage,
    /// The time of the oldest event.
    pub oldest: Option<Timestamp>,
    /// Both ends of the audit log.
    pub audit: AuditEnds,
}

/// Errors of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The task is not at [`Append::expect`], because another writer was first. Read the task and
    /// decide again.
    Conflict,
    /// The task has a newer claim than the writer's.
    Fenced,
    /// The writer is not a living member. It must stop its turns and join again.
    NotMember,
    /// Another turn of the conversation runs, and the agent is serial. The task is due once that
    /// turn has stopped.
    Locked,
    /// The idempotency key is taken.
    Duplicate(Original),
    /// The store cannot be used now, for example because the disk is full, read-only or gone. The
    /// text is for the log.
    Unavailable(String),
    /// Stored data cannot be read. The text is for the log.
    Corrupt(String),
    /// The task has this many bytes, which is more than the limit of the read.
    TooLarge(u64),
    /// There are too many of these.
    LimitReached(&'static str),
}

/// Durable storage of tasks. A write for which [`Store::append`] returned `Ok` survives a power
/// failure.
#[async_trait]
pub trait Store: WebhookStore + RegistrationStore + fmt::Debug + Send + Sync + 'static {
    /// Writes events, header, snapshot and idempotency key in one transaction. It checks, in this
    /// order, that the writer is a living member, that its claim is current and that the task is at
    /// `expect`. This is the only write of task state. Returns the new head.
    async fn append(&self, append: Append) -> Result<Seq, StoreError>;

    /// Reads a task, or its changes since the version `known`. It reads at most `limit` bytes of
    /// events: for more it returns [`StoreError::TooLarge`] with the size, so that the caller can
    /// reserve memory first.
    ///
    /// A task that retention removed may be created again under the same id. Its time of creation
    /// then differs.
    async fn load(
        &self,
        key: &Key,
        known: Option<TaskVersion>,
        limit: u64,
    ) -> Result<Loaded, StoreError>;

    /// Reads the events of a task after `after`, in order. A page of large events may end before
    /// `limit`: only `closed` means that no event can follow. An unknown task has an empty, closed
    /// log.
    async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<LogPage, StoreError>;

    /// Reads the events of a task after `after`, in order, with their times and causes. A page of
    /// large events may end before `limit`: only an empty page is the end. An unknown task has an
    /// empty log.
    async fn read_log(
        &self,
        key: &Key,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError>;

    /// Reads events of all tasks in the scope, in the order of their commits, without those of
    /// hidden logs. One call examines a bounded number of events, including events outside the
    /// scope.
    ///
    /// The feed of one owner skips the events of other owners at no cost. The feed of a tenant
    /// reads past them.
    async fn feed(&self, query: &FeedQuery) -> Result<FeedPage, StoreError>;

    /// Reads one page of the tasks in the scope. The cost grows with the number of owners in the
    /// scope, not with the number of tasks.
    async fn list(&self, query: ListQuery) -> Result<Listing, StoreError>;

    /// Reads the newest idle tasks of a conversation, in the order of their acceptance, without
    /// hidden logs.
    async fn conversation_history(
        &self,
        query: HistoryQuery,
    ) -> Result<Vec<(TaskId, Stored)>, StoreError>;

    /// The agents with active tasks that no living member serves.
    async fn agents_unserved(&self) -> Result<Vec<AgentName>, StoreError>;

    /// The active tasks of an agent that no living member holds. The owners take turns: first one task of
    /// each owner, beginning with the owner after [`DueQuery::after`] in an order of the store, then the
    /// others. Of one owner the highest priority comes first, and then the oldest task. The cost depends on
    /// the limit and on the number of different label sets, not on the number of tenants, owners or tasks.
    async fn due(&self, query: DueQuery<'_>) -> Result<Vec<Due>, StoreError>;

    /// Makes an agent serial. From now on the store keeps its waiting tasks in the order of their
    /// messages, for [`Store::next_serial`], and every claim locks the conversation of its task. A
    /// claim is refused with [`StoreError::Locked`] while the conversation is locked, even by the
    /// same member.
    async fn enable_serial(&self, agent: &AgentName) -> Result<(), StoreError>;

    /// As [`Store::due`], but each owner's tasks in the order in which their waiting messages were
    /// accepted, and without tasks of locked conversations. The agent must be serial; see
    /// [`Store::enable_serial`]. The cost depends neither on the number of waiting tasks nor on the number
    /// of conversations.
    async fn next_serial(&self, query: DueQuery<'_>) -> Result<Vec<Due>, StoreError>;

    /// Unlocks a conversation after the agent of its turn has stopped. No effect unless `me` holds
    /// the lock.
    async fn unlock_conversation(
        &self,
        agent: &AgentName,
        conversation: &Conversation,
        me: MemberId,
    ) -> Result<(), StoreError>;

    /// The result of an earlier send with this idempotency key.
    async fn original(&self, key: &[u8; 32]) -> Result<Option<Original>, StoreError>;

    /// Tasks that have waited for their callers since before `before`, oldest first, each with the
    /// time of its status, so that a timeout can be conditional on that time.
    async fn paused(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Key, Timestamp)>, StoreError>;

    /// Tasks that have waited for their turn since before `before`, oldest first, each with the time of its
    /// status, so that a deadline can be conditional on that time.
    async fn queued(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Key, Timestamp)>, StoreError>;

    /// Removes up to `limit` finished tasks by the retention limits, the oldest first, with their
    /// events, idempotency keys, times and causes. Returns the number of removed tasks.
    async fn sweep(&self, retention: Retention, limit: usize) -> Result<usize, StoreError>;

    /// Adds a member under a new id. Only members can write.
    async fn join(&self, id: MemberId, kind: MemberKind, name: &str) -> Result<(), StoreError>;

    /// Adds a worker under a new id, which serves its role. Former lives of the same name die in the same
    /// transaction: everything that they held is due. Returns their ids. [`StoreError::Conflict`] if a
    /// living worker of another owner has the name.
    async fn join_worker(
        &self,
        id: MemberId,
        worker: &WorkerMember,
    ) -> Result<Vec<MemberId>, StoreError>;

    /// The living worker with this id.
    async fn find_worker(&self, id: MemberId) -> Result<Option<WorkerMember>, StoreError>;

    /// True if a living member has this id.
    async fn is_member(&self, id: MemberId) -> Result<bool, StoreError>;

    /// Counts a heartbeat of a member, as [`Store::heartbeat`] without its reply. The cost does not depend
    /// on the number of members.
    async fn count_heartbeat(&self, me: MemberId) -> Result<(), StoreError>;

    /// The active tasks of an agent that this member holds, at most `limit`.
    async fn held(
        &self,
        agent: &AgentName,
        holder: MemberId,
        limit: usize,
    ) -> Result<Vec<Due>, StoreError>;

    /// Replaces the agents that a member serves. [`StoreError::NotMember`] if the member is dead.
    async fn serve(&self, me: MemberId, agents: &[AgentName]) -> Result<(), StoreError>;

    /// Counts a heartbeat of a member and returns all living members. [`StoreError::NotMember`] if
    /// the member is dead. A heartbeat writes nothing to the disk.
    async fn heartbeat(&self, me: MemberId) -> Result<HeartbeatReply, StoreError>;

    /// Declares a member dead if its heartbeat counter is still `seen`. Everything that it held is
    /// due, and its conversations are unlocked. Returns false if the member is alive or was dead
    /// before.
    async fn mark_dead(&self, member: MemberId, seen: u64) -> Result<bool, StoreError>;

    /// Removes a member. Everything that it held is due, and its conversations are unlocked.
    async fn leave(&self, me: MemberId) -> Result<(), StoreError>;

    /// The owners in the scope that have a task with this id, at most `limit`. The cost grows with
    /// the number of owners in the scope, not with the number of tasks.
    async fn owners_of(
        &self,
        scope: &Scope,
        task: &TaskId,
        limit: usize,
    ) -> Result<Vec<Owner>, StoreError>;

    /// The usage of all owners in the scope, from counters. The cost grows with the number of
    /// owners in the scope, not with the number of tasks.
    async fn usage(&self, scope: &Scope) -> Result<Usage, StoreError>;

    /// Reads a page of the owners that have tasks, each with its usage.
    async fn owners(&self, query: OwnerQuery) -> Result<Vec<(Owner, Usage)>, StoreError>;

    /// The state of the store.
    async fn status(&self) -> Result<StoreStatus, StoreError>;

    /// Stores a new API key, and the audit record of its creation, in one transaction.
    /// [`StoreError::Conflict`] if a key has the same id or the same hash.
    async fn create_key(&self, key: ApiKey, audit: AuditEntry) -> Result<(), StoreError>;

    /// Revokes an API key, and stores the audit record, in one transaction. A key that was revoked
    /// before keeps its time, and no record is added. Returns the key; `None` if it does not exist.
    /// All members, including the writer, are notified.
    async fn revoke_key(
        &self,
        id: &str,
        at: Timestamp,
        audit: AuditEntry,
    ) -> Result<Option<ApiKey>, StoreError>;

    /// Notes the times at which API keys were used. An earlier time than the stored one has no
    /// effect, nor has an unknown key.
    async fn record_key_uses(&self, uses: Vec<(ApiKeyId, Timestamp)>) -> Result<(), StoreError>;

    /// The API key with this id.
    async fn find_key(&self, id: &str) -> Result<Option<ApiKey>, StoreError>;

    /// The API key whose secret has this hash.
    async fn find_key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<ApiKey>, StoreError>;

    /// Reads a page of API keys, including revoked and expired ones.
    async fn list_keys(&self, query: ApiKeyQuery) -> Result<Vec<ApiKey>, StoreError>;

    /// Adds records to the audit log, in this order.
    async fn append_audit(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError>;

    /// Reads a page of the audit log. One call examines a bounded number of records, so that a page
    /// before the end may be short or empty. Records that cannot be read are missing.
    async fn read_audit(&self, query: AuditQuery) -> Result<AuditPage, StoreError>;

    /// Both ends of the audit log.
    async fn audit_ends(&self) -> Result<AuditEnds, StoreError>;

    /// Removes up to `limit` of the oldest audit records by the retention limits, and keeps the
    /// last removed one as the checkpoint. Returns the number of removed records.
    async fn sweep_audit(
        &self,
        retention: AuditRetention,
        limit: usize,
    ) -> Result<usize, StoreError>;

    /// Checks that a write would succeed now.
    async fn probe(&self) -> Result<(), StoreError>;

    /// True if two nodes have been members at the same time since the store was opened. A cached
    /// record may then be older than the stored one.
    fn is_shared(&self) -> bool;

    /// Subscribes to the changes that members other than `me` make from now on. A change may be
    /// delivered twice or late, but never before it can be read.
    fn changes(&self, me: MemberId) -> Changes;

    /// The metrics of the store, if it has any.
    fn metrics(&self) -> Option<&StoreMetrics> {
        None
    }

    /// True if the data survives the end of the process.
    fn is_durable(&self) -> bool {
        true
    }

    /// A secret that is stored with the data, for signing page tokens.
    fn secret(&self) -> [u8; 32];
}

impl StoreError {
    /// The same error, with the id of the task that cannot be read.
    pub(crate) fn of(self, task: &TaskId) -> Self {
        match self {
            Self::Corrupt(cause) => Self::Corrupt(format!("task {task}: {cause}")),
            Self::Unavailable(_)
            | Self::Conflict
            | Self::Fenced
            | Self::NotMember
            | Self::Locked
            | Self::Duplicate(_)
            | Self::TooLarge(_)
            | Self::LimitReached(_) => self,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another writer changed the task first"),
            Self::Fenced => f.write_str("a newer claim exists"),
            Self::NotMember => f.write_str("the writer is not a living member"),
            Self::Locked => f.write_str("another turn of the conversation runs"),
            Self::Duplicate(_) => f.write_str("the idempotency key is taken"),
            Self::Unavailable(cause) => write!(f, "the store is unavailable: {cause}"),
            Self::Corrupt(cause) => write!(f, "the store is corrupt: {cause}"),
            Self::TooLarge(bytes) => write!(f, "the task has {bytes} bytes"),
            Self::LimitReached(limit) => write!(f, "the limit of {limit} is reached"),
        }
    }
}

impl std::error::Error for StoreError {}

impl Snapshot {
    /// The bytes of all pieces.
    pub fn size(&self) -> usize {
        self.status.len() + self.history.len() + self.metadata.len() + self.artifacts.len()
    }
}

impl Stored {
    /// The bytes of the snapshot and the events, without the header.
    pub fn size(&self) -> usize {
        let since: usize = self.since.iter().map(|entry| entry.body.len()).sum();
        since + self.snapshot.as_ref().map_or(0, Snapshot::size)
    }
}
