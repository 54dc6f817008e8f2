//! Store trait: the durable log of every task, and its queries.

mod change;
#[cfg(feature = "test-util")]
pub mod conformance;
#[cfg(feature = "test-util")]
pub mod flaky;
pub mod sqlite;

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;
use herald_protocol::{AgentName, ContextId, Seq, TaskId, TaskState, Timestamp};

use crate::metrics::StoreMetrics;

pub use crate::model::{
    cause::{Actor, Cause},
    event::{Entry, Kind},
    key::{Conversation, Key, Owner, Scope},
    member::{Member, MemberId, MemberKind, Membership},
    record::Header,
    run::{Epoch, Run, Version},
};
pub use change::{Change, Changes};

/// A logged event with what is known about its commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// The event.
    pub entry: Entry,
    /// Its position among the events of all tasks.
    pub position: Position,
    /// When it became durable; none for events that are older than this record.
    pub at: Option<Timestamp>,
    /// Who caused it; none for events that are older than this record.
    pub cause: Option<Cause>,
}

/// Some events in order, and whether any can follow them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// The events.
    pub entries: Vec<Entry>,
    /// True if no event can follow.
    pub closed: bool,
}

/// A task with something to do that no living member holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Which task.
    pub key: Key,
    /// Its epoch. A claim that finds another one was overtaken.
    pub epoch: Epoch,
    /// The dead member whose turn was cut off, if there is one.
    pub holder: Option<MemberId>,
}

/// A position in the order in which the events of all tasks were committed. Positions grow and are
/// never given out twice; there may be any number of them between two events.
pub type Position = u64;

/// Query of the events of all tasks in a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedQuery {
    /// Whose.
    pub scope: Scope,
    /// Only those of this agent's tasks.
    pub agent: Option<AgentName>,
    /// Only those of these tasks; empty means of all.
    pub tasks: Vec<TaskId>,
    /// Strictly after this; `None` asks only where the end is.
    pub after: Option<Position>,
    /// At most so many; fewer when they are large.
    pub limit: usize,
}

/// One event and where it belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedEntry {
    /// Its position among the events of all tasks.
    pub position: Position,
    /// Its task.
    pub key: Key,
    /// The agent of that task.
    pub agent: AgentName,
    /// The event.
    pub entry: Entry,
}

/// One page of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedPage {
    /// The matching events. May be empty before the end.
    pub entries: Vec<FeedEntry>,
    /// The last position that was examined. At the end it equals the position of the query.
    pub reached: Position,
}

/// The task as it stood after some event, in pieces so that lists can leave artifacts unread.
/// Each piece is the 1.0 JSON of that member; empty means the member is absent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Snapshot {
    /// The last event it contains.
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

/// Everything stored of one task: a snapshot and the events since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// Its header.
    pub header: Header,
    /// The last event in its log.
    pub head: Seq,
    /// The latest snapshot, if one was written.
    pub snapshot: Option<Snapshot>,
    /// The events after the snapshot.
    pub since: Vec<Entry>,
}

/// The answer to a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// The task is still at the known version.
    Same,
    /// The task has moved on from the known version.
    More {
        /// Its header. The `bytes` are those of the events in `since` alone: what came before is known.
        header: Header,
        /// The last event in its log.
        head: Seq,
        /// The events after the known version.
        since: Vec<Entry>,
    },
    /// Everything stored of it.
    Whole(Stored),
    /// There is no such task, or no longer.
    Gone,
}

impl Loaded {
    /// The task, if it was read as a whole, as it is for a caller that knew no version.
    pub fn whole(self) -> Option<Stored> {
        match self {
            Self::Whole(stored) => Some(stored),
            Self::Same | Self::More { .. } | Self::Gone => None,
        }
    }
}

/// Idempotency key of a send, with which a retry finds the first send's task. Kept as long as the task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dedup {
    /// The hash of owner, agent and key.
    pub key: [u8; 32],
    /// The hash of what was sent.
    pub content: [u8; 32],
}

/// The result of an earlier send with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Original {
    /// The task it created or continued.
    pub task: TaskId,
    /// Its [`Kind::Received`] entry.
    pub seq: Seq,
    /// The hash of what was sent then.
    pub content: [u8; 32],
}

/// One write of one task, all or nothing.
#[derive(Debug, Clone)]
pub struct Append {
    /// Which task.
    pub key: Key,
    /// The version for which the caller decided; the head zero means that the task must not exist.
    pub expect: Version,
    /// The writer's claim, if it writes under one: refused when a newer claim exists.
    pub fence: Option<Epoch>,
    /// The member that writes. A dead one is refused.
    pub writer: MemberId,
    /// The header after the events.
    pub header: Header,
    /// The events, numbered from `expect.head + 1`. May be empty when only the run changes.
    pub events: Vec<(Kind, Bytes)>,
    /// The whole task after the events, written at the end and at some pauses.
    pub snapshot: Option<Snapshot>,
    /// Registers the first event as the outcome of this key, unless the key is taken.
    pub dedup: Option<Dedup>,
    /// Who causes it. Stored with the first event, if it is a caller or an operator.
    pub cause: Cause,
}

/// Query of a list of tasks, newest status first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListQuery {
    /// Whose.
    pub scope: Scope,
    /// Only this agent's.
    pub agent: Option<AgentName>,
    /// Only this conversation's.
    pub context: Option<ContextId>,
    /// Only in this state.
    pub state: Option<TaskState>,
    /// Only with a status this new or newer.
    pub since: Option<Timestamp>,
    /// Strictly after this cursor.
    pub after: Option<ListCursor>,
    /// At most so many; fewer when they are large.
    pub limit: usize,
    /// True to read artifacts.
    pub artifacts: bool,
}

/// The tasks of a conversation to read as its history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryQuery {
    /// Whose.
    pub owner: Owner,
    /// The agent they belong to.
    pub agent: AgentName,
    /// Their conversation.
    pub context: ContextId,
    /// At most so many of the newest.
    pub tasks: usize,
    /// At most so many bytes of the newest.
    pub bytes: usize,
}

/// Position in the order of a list: the next page starts after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListCursor {
    /// The status time of the task at the cursor.
    pub changed: Timestamp,
    /// Orders tasks of the same time. Its meaning is internal to the store.
    pub row: i64,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// The tasks. Without artifacts asked for, snapshots leave them out.
    pub tasks: Vec<(Key, Stored)>,
    /// The cursor of the next page, if there is one.
    pub next: Option<ListCursor>,
    /// How many tasks match on all pages.
    pub total: u64,
}

/// Limits of finished tasks that are kept. Each limit applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retention {
    /// Remove tasks that ended before this.
    pub ended_before: Option<Timestamp>,
    /// Keep at most so many tasks per tenant.
    pub tasks: Option<u64>,
    /// Keep at most so many bytes of log per tenant.
    pub bytes: Option<u64>,
}

/// Errors of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// The task is not at [`Append::expect`]: another writer was first. Read and decide again.
    Conflict,
    /// A newer claim exists; the writer has lost the task.
    Fenced,
    /// The writer is not a living member, or no longer one. It must stop its turns and join again.
    NotMember,
    /// Another turn of the conversation runs, and the agent is serial. It is due once that has stopped.
    Locked,
    /// The idempotency key is taken.
    Duplicate(Original),
    /// The store cannot be used now: the disk is full, read-only or gone. The text is for the log.
    Unavailable(String),
    /// Stored data cannot be read. The text is for the log.
    Corrupt(String),
    /// The task has so many bytes, which is more than the caller's limit.
    TooLarge(u64),
}

/// Durable tasks. Whatever [`Store::append`] returned `Ok` for survives a power cut.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Writes events, header, snapshot and key in one transaction, if the writer lives, the claim still
    /// stands and the task is still at `expect`, in this order. The only write of task state. Returns
    /// the new head.
    async fn append(&self, append: Append) -> Result<Seq, StoreError>;

    /// One task, or what has changed of it since a known version. More than `limit` bytes of events are
    /// not read: [`StoreError::TooLarge`] tells how many, so that the caller can reserve memory first.
    ///
    /// A task that retention has removed may be created again under its id. It then has another time of
    /// creation.
    async fn load(
        &self,
        key: &Key,
        known: Option<Version>,
        limit: u64,
    ) -> Result<Loaded, StoreError>;

    /// Events strictly after `after`, in order; empty and closed for an unknown task. A page of big
    /// events may end before `limit`: only `closed` says that nothing follows.
    async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<Page, StoreError>;

    /// Events strictly after `after`, in order, with their times and causes; empty for an unknown task.
    /// A page of big events may end before `limit`: only an empty one is the end.
    async fn read_log(
        &self,
        key: &Key,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError>;

    /// Events of all tasks in the scope, in the order in which they were committed, without those of
    /// hidden logs. One step looks at a bounded number of events, whosever they are.
    ///
    /// The feed of one owner passes over the events of others at no cost. That of a tenant reads past
    /// them.
    async fn feed(&self, query: &FeedQuery) -> Result<FeedPage, StoreError>;

    /// One page of the tasks in the scope. The cost grows with the number of owners in the scope, never
    /// with the number of tasks.
    async fn list(&self, query: ListQuery) -> Result<Listing, StoreError>;

    /// The newest idle tasks of a conversation, in the order in which they were accepted, without
    /// hidden logs.
    async fn conversation_history(
        &self,
        query: HistoryQuery,
    ) -> Result<Vec<(TaskId, Stored)>, StoreError>;

    /// The agents that have tasks with something to do and that no living member serves.
    async fn agents_unserved(&self) -> Result<Vec<AgentName>, StoreError>;

    /// Tasks of an agent with something to do that no living member holds, oldest first.
    async fn due(&self, agent: &AgentName, limit: usize) -> Result<Vec<Due>, StoreError>;

    /// Makes an agent serial: from now on the store keeps its waiting tasks in the order of their
    /// messages, for [`Store::next_serial`], and every claim locks its conversation. A claim is refused
    /// with [`StoreError::Locked`] while the conversation is locked, also by the same member.
    async fn enable_serial(&self, agent: &AgentName) -> Result<(), StoreError>;

    /// As [`Store::due`], but in the order in which the waiting messages were accepted, and without
    /// locked conversations. Call [`Store::enable_serial`] for the agent first. The cost depends
    /// neither on the number of waiting tasks nor on the number of conversations.
    async fn next_serial(&self, agent: &AgentName, limit: usize) -> Result<Vec<Due>, StoreError>;

    /// Frees a conversation once the agent of its turn has stopped. Nothing happens unless `me` has
    /// locked it.
    async fn unlock_conversation(
        &self,
        agent: &AgentName,
        conversation: &Conversation,
        me: MemberId,
    ) -> Result<(), StoreError>;

    /// The result of an earlier send with this idempotency key.
    async fn original(&self, key: &[u8; 32]) -> Result<Option<Original>, StoreError>;

    /// Tasks that have been paused since before `before`, oldest first, each with the time of its status,
    /// so that its end can be made conditional on that.
    async fn paused(
        &self,
        agent: &AgentName,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<(Key, Timestamp)>, StoreError>;

    /// Removes up to `limit` finished tasks that retention no longer keeps, the oldest first, with
    /// their events, keys, times and causes. Returns how many it removed.
    async fn sweep(&self, retention: Retention, limit: usize) -> Result<usize, StoreError>;

    /// Joins the members under a fresh id. Only members can write.
    async fn join(&self, id: MemberId, kind: MemberKind, name: &str) -> Result<(), StoreError>;

    /// Says which agents a member serves, in place of what it said before.
    /// [`StoreError::NotMember`] if it is dead.
    async fn serve(&self, me: MemberId, agents: &[AgentName]) -> Result<(), StoreError>;

    /// Counts a heartbeat of a member and returns every living member. [`StoreError::NotMember`] if it
    /// is dead. It costs no write to a disk.
    async fn heartbeat(&self, me: MemberId) -> Result<Membership, StoreError>;

    /// Declares a member dead if its heartbeat is still `seen`, and makes everything due that it held.
    /// Its conversations are free. Returns false if it lives on, or was dead before.
    async fn mark_dead(&self, member: MemberId, seen: u64) -> Result<bool, StoreError>;

    /// Leaves: everything that the member held is due at once, and its conversations are free.
    async fn leave(&self, me: MemberId) -> Result<(), StoreError>;

    /// Checks that a write would succeed now.
    async fn probe(&self) -> Result<(), StoreError>;

    /// True from the moment at which a second node joined, for as long as the store is open: what is
    /// in memory may then be older than the store.
    fn is_shared(&self) -> bool;

    /// Subscribes to what members other than `me` change from now on. A change may be told twice, or
    /// late, but is not told before it can be read.
    fn changes(&self, me: MemberId) -> Changes;

    /// Its metrics, if it has any.
    fn metrics(&self) -> Option<&StoreMetrics> {
        None
    }

    /// True if the data survives the end of this process.
    fn is_durable(&self) -> bool {
        true
    }

    /// A secret that lives as long as the store, for signing page tokens.
    fn secret(&self) -> [u8; 32];
}

impl StoreError {
    /// The same, with the task that cannot be read.
    pub(crate) fn of(self, task: &TaskId) -> Self {
        match self {
            Self::Corrupt(cause) => Self::Corrupt(format!("task {task}: {cause}")),
            Self::Unavailable(_)
            | Self::Conflict
            | Self::Fenced
            | Self::NotMember
            | Self::Locked
            | Self::Duplicate(_)
            | Self::TooLarge(_) => self,
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
        }
    }
}

impl std::error::Error for StoreError {}

impl Snapshot {
    /// Its bytes.
    pub fn size(&self) -> usize {
        self.status.len() + self.history.len() + self.metadata.len() + self.artifacts.len()
    }
}

impl Stored {
    /// Its bytes, the header aside.
    pub fn size(&self) -> usize {
        let since: usize = self.since.iter().map(|entry| entry.body.len()).sum();
        since + self.snapshot.as_ref().map_or(0, Snapshot::size)
    }
}
