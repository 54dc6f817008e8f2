//! Append of one task inside the writer's transaction. All checks come before the first change of
//! the task, so that a refused append changes nothing and needs no savepoint.

use std::{
    collections::{HashMap, HashSet},
    sync::atomic::AtomicBool,
};

use bytes::Bytes;
use herald_protocol::{AgentName, Seq, TaskId};
use rusqlite::{Connection, Row, Statement, ToSql, params};

use crate::{
    clock::Clock,
    store::{
        Actor, Append, Cause, Change, Header, Key, MemberId, MemberKind, Run, Snapshot, StoreError,
        TaskVersion, change::ChangeBus,
    },
};

use super::{
    audit::AuditTail,
    job::Work,
    locks::is_locked,
    names::{BLOCK, Group, NameCache, Totals},
    prepared::Prepared,
    rows::{Fault, Phase, attempt, count, holder, int, original, read_run, size, uint, unread},
    statements as sql,
    sweep::Swept,
};

/// The maximum number of cached tasks. A full cache is cleared.
const REMEMBERED: usize = 4096;

/// The size from which a bound parameter is cleared right after the statement, instead of at its
/// next use.
const LARGE: usize = 64 << 10;

/// The next unused row and position. They are never used twice, even after their task is removed.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextNumbers {
    pub(super) row: i64,
    pub(super) position: i64,
}

/// The writer's cache. It is valid because no other thread writes; it must be cleared after a
/// rollback.
#[derive(Debug, Default)]
pub(super) struct WriterCache {
    pub(super) names: NameCache,
    /// Active tasks, by owner and id.
    active: HashMap<(i64, TaskId), KnownTask>,
    /// The living members, once they are read.
    pub(super) members: Option<HashMap<MemberId, MemberKind>>,
    /// Serial agents. A rollback does not clear them: a queue for an agent that is not serial does
    /// no harm.
    pub(super) serial_agents: HashSet<AgentName>,
    /// The end of the audit log, once it is read.
    pub(super) audit: Option<AuditTail>,
}

/// An open transaction, with the data that is written or published at its end.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) conn: &'a Connection,
    pub(super) prepared: Prepared<'a>,
    pub(super) memory: &'a mut WriterCache,
    pub(super) next: &'a mut NextNumbers,
    pub(super) totals: Totals,
    /// The owners whose tasks were removed.
    pub(super) swept: Swept,
    /// True if the previous transaction failed.
    pub(super) failing: bool,
    /// The heartbeat counters, if a job compares them. They are locked until the commit.
    pub(super) heartbeats: Option<&'a HashMap<MemberId, u64>>,
    /// The position of the first event in this transaction.
    pub(super) first_event: Option<i64>,
    pub(super) clock: &'a Clock,
    pub(super) bus: &'a ChangeBus,
    pub(super) is_shared: &'a AtomicBool,
    /// The changes to publish after the commit.
    pub(super) changes: Vec<(MemberId, Change)>,
    /// The members that died.
    pub(super) died: Vec<MemberId>,
    /// True if webhooks became ready.
    pub(super) has_ready_webhooks: bool,
}

/// The work that remains after the commit.
#[derive(Debug)]
pub(super) struct AfterCommit {
    /// The owners whose tasks were removed.
    pub(super) swept: Swept,
    /// The changes to publish.
    pub(super) changes: Vec<(MemberId, Change)>,
    /// The members that died, or that hold a task although they are dead.
    pub(super) died: Vec<MemberId>,
}

/// The columns of a stored task that the checks and counters need.
#[derive(Debug, Clone)]
struct KnownTask {
    row: i64,
    head: Seq,
    counted: i64,
    /// True if the task has a snapshot.
    snapshot: bool,
    /// True if the task has webhooks.
    webhooks: bool,
    indexed: IndexedColumns,
    run: Run,
}

/// The rows of a task and of its owner.
#[derive(Debug, Clone, Copy)]
struct PlacedTask {
    row: i64,
    owner: i64,
    /// True if the task has webhooks.
    webhooks: bool,
}

/// The indexed columns that can change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct IndexedColumns {
    group: Group,
    changed: i64,
    created: i64,
    phase: Phase,
}

/// The result of a job: an answer, a refusal of this job alone, or a fault that rolls back the whole batch.
pub(super) type JobResult<T> = Result<Result<T, StoreError>, Fault>;

/// Turns unreadable data of one task into a refusal of its append, so that the other writes of the
/// transaction succeed.
fn refuse_unreadable<T>(found: Result<T, Fault>) -> JobResult<T> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(Fault(unreadable @ StoreError::Corrupt(_))) => Ok(Err(unreadable)),
        Err(fault) => Err(fault),
    }
}

impl WriterCache {
    pub(super) fn forget(&mut self) {
        self.names.forget();
        self.active.clear();
        self.members = None;
        self.audit = None;
    }

    fn keep(&mut self, owner: i64, task: &TaskId, known: KnownTask) {
        let key = (owner, task.clone());
        if known.indexed.phase != Phase::Active {
            self.active.remove(&key);
            return;
        }
        if self.active.len() >= REMEMBERED {
            self.active.clear();
        }
        self.active.insert(key, known);
    }
}

/// Answers with the new head. Boxed, because jobs move through a queue.
impl Work for Box<Append> {
    type Answer = Seq;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Seq> {
        batch.append(self)
    }

    fn weight(&self) -> usize {
        let events: usize = self.events.iter().map(|(_, body)| body.len()).sum();
        events + self.snapshot.as_ref().map_or(0, Snapshot::size)
    }
}

impl Batch<'_> {
    /// Writes the time of the commit and the counters.
    pub(super) fn finish(mut self) -> Result<AfterCommit, Fault> {
        self.announce_webhooks();
        if let Some(position) = self.first_event {
            let now = self.clock.now().as_millis();
            self.prepared.run(sql::ADD_COMMIT, params![position, now])?;
        }
        self.totals.flush(self.conn)?;
        self.swept.remove_empty_owners(self.conn, *self.next)?;
        Ok(AfterCommit { swept: self.swept, changes: self.changes, died: self.died })
    }

    /// Publishes a change to the other members after the commit. The change is built only if
    /// another member has subscribed.
    pub(super) fn announce(&mut self, writer: MemberId, change: impl FnOnce() -> Change) {
        if self.bus.has_other_subscriber(writer) {
            self.changes.push((writer, change()));
        }
    }

    /// Writes the append or returns the refusal.
    fn append(&mut self, append: &mut Append) -> JobResult<Seq> {
        if !self.is_member(append.writer)? {
            return Ok(Err(StoreError::NotMember));
        }
        // The key refers to the first event. An append without events registers no key.
        let dedup = append.dedup.clone().filter(|_| !append.events.is_empty());
        // Before all other checks, so that a repeated send finds the original even if the task has
        // changed or ended since.
        if let Some(dedup) = &dedup {
            let key = params![dedup.key, self.next.position];
            if self.prepared.run(sql::CLAIM_KEY, key)? == 0 {
                let found = original(self.conn, &dedup.key).and_then(|found| {
                    found.ok_or_else(|| Fault::unreadable("idempotency key without an event"))
                });
                return Ok(
                    refuse_unreadable(found)?.and_then(|found| Err(StoreError::Duplicate(found)))
                );
            }
        }
        let placed = match self.check_new_webhook(append)? {
            Ok(()) => self.put_header(append)?,
            Err(refusal) => Err(refusal),
        };
        let PlacedTask { row, owner, webhooks } = match placed {
            Ok(placed) => placed,
            Err(refusal) => {
                if let Some(dedup) = &dedup {
                    self.prepared.run(sql::RELEASE_KEY, [dedup.key])?;
                }
                return Ok(Err(refusal));
            }
        };
        let mut head = append.expect.head;
        if !append.events.is_empty() {
            let add = self.prepared.get(sql::ADD_EVENT)?;
            let mut first = dedup.map(|dedup| (dedup.key, dedup.content));
            let start = self.next.position;
            for (kind, body) in append.events.drain(..) {
                head += 1;
                let (key, content) = first.take().unzip();
                let (position, kind) = (self.next.position, kind.code());
                let small = params![position, row, int(head), kind, key, content];
                execute_with_bytes(add, small, [body])?;
                self.next.position += 1;
            }
            self.first_event.get_or_insert(start);
            self.add_cause(start, &append.cause)?;
            for block in start / BLOCK..=(self.next.position - 1) / BLOCK {
                self.memory.names.present(&mut self.prepared, owner, block)?;
            }
        }
        if let Some(new) = &append.webhook {
            self.put_webhook((row, owner), &append.key, new, append.expect.head + 1)?;
            self.has_ready_webhooks = true;
        }
        if webhooks && head > append.expect.head {
            self.wake_webhooks_of(row)?;
        }
        let Header { agent, run, .. } = &append.header;
        if let Some(holder) = run.holder
            && !self.is_member(holder)?
        {
            self.died.push(holder);
        }
        self.update_serial(agent, row, run)?;
        let origin = append.node.unwrap_or(append.writer);
        self.announce(origin, || Change::Task(append.key.clone()));
        if run.holder.is_none() && run.is_active() {
            self.announce(origin, || Change::Work(agent.clone()));
        }
        Ok(Ok(head))
    }

    /// Stores the cause of the event at this position, unless it follows from the kind of the
    /// event.
    fn add_cause(&mut self, position: i64, cause: &Cause) -> Result<(), Fault> {
        let Cause { actor, request, binding } = cause;
        let (principal, worker) = match actor {
            Actor::Caller => (None, None),
            Actor::Principal(principal) => (Some(&**principal), None),
            Actor::Worker { session, number } => (None, Some((session.blob(), int(*number)))),
            Actor::Agent | Actor::Engine => return Ok(()),
        };
        let (session, number) = worker.unzip();
        let (request, binding) = (request.as_deref(), binding.as_deref());
        let cause = params![position, principal, request, binding, session, number];
        self.prepared.run(sql::ADD_CAUSE, cause)?;
        Ok(())
    }

    /// Refuses an append with a webhook that would be one too many.
    fn check_new_webhook(&mut self, append: &Append) -> JobResult<()> {
        let (Some(new), Key { owner, task }) = (&append.webhook, &append.key) else {
            return Ok(Ok(()));
        };
        let found = match self.memory.names.owner(self.conn, owner)? {
            Some(owner) => refuse_unreadable(self.find(owner, task))?,
            None => Ok(None),
        };
        match found {
            // A task without a row has no webhooks.
            Ok(found) => {
                self.check_webhook_limits(found.map_or(0, |known| known.row), &owner.tenant, new)
            }
            Err(unreadable) => Ok(Err(unreadable)),
        }
    }

    /// Remembers whether a task has webhooks.
    pub(super) fn set_has_webhooks(
        &mut self,
        row: i64,
        owner: i64,
        task: &TaskId,
        has: bool,
    ) -> Result<(), Fault> {
        self.prepared.run(sql::MARK_WEBHOOKS, params![row, has])?;
        if let Some(known) = self.memory.active.get_mut(&(owner, task.clone())) {
            known.webhooks = has;
        }
        Ok(())
    }

    /// Checks the append against the stored task, and writes the header and the snapshot.
    fn put_header(&mut self, append: &mut Append) -> JobResult<PlacedTask> {
        let head = append.expect.head + append.events.len() as u64;
        if append.expect.head == 0 {
            return self.create(append, head);
        }
        let Append { key, fence, header, snapshot, .. } = append;
        let owner = self.memory.names.owner(self.conn, &key.owner)?;
        let Some(owner) = owner else { return Ok(Err(StoreError::Conflict)) };
        let before = match refuse_unreadable(self.find(owner, &key.task))? {
            Ok(Some(before)) => before,
            Ok(None) => return Ok(Err(StoreError::Conflict)),
            Err(unreadable) => return Ok(Err(unreadable)),
        };
        // The claim is checked before the head: a writer that lost its claim must stop instead of
        // deciding again.
        if fence.is_some_and(|epoch| epoch != before.run.epoch) {
            return Ok(Err(StoreError::Fenced));
        }
        if TaskVersion::new(before.head, before.run.epoch) != append.expect {
            return Ok(Err(StoreError::Conflict));
        }
        if let Some(member) = self.new_holder(before.run.holder, header)
            && !self.lock_conversation(before.row, member)?
        {
            return Ok(Err(StoreError::Locked));
        }
        let group = group(owner, before.indexed.group.agent, header);
        let mut after = KnownTask {
            head,
            indexed: IndexedColumns::of(group, header),
            run: header.run.clone(),
            ..before.clone()
        };
        // While only events are added to an active task, its row does not change.
        let quiet = after.indexed == before.indexed && after.run == before.run;
        if !quiet || after.indexed.phase != Phase::Active || snapshot.is_some() {
            after.counted = int(header.bytes);
            after.snapshot |= snapshot.is_some();
            self.update(&before, &after, header, snapshot.take())?;
        }
        self.memory.keep(owner, &key.task, after);
        Ok(Ok(PlacedTask { row: before.row, owner, webhooks: before.webhooks }))
    }

    fn find(&mut self, owner: i64, task: &TaskId) -> Result<Option<KnownTask>, Fault> {
        if let Some(known) = self.memory.active.get(&(owner, task.clone())) {
            return Ok(Some(known.clone()));
        }
        let mut rows = self.prepared.get(sql::FIND_TASK)?.query(params![owner, task.as_str()])?;
        rows.next()?.map(|row| KnownTask::read(row, owner)).transpose()
    }

    fn create(&mut self, append: &mut Append, head: Seq) -> JobResult<PlacedTask> {
        let snapshot = append.snapshot.take();
        let Append { key, header, .. } = &*append;
        let Header { context, state, changed, created, hidden, bytes, run: turns, .. } = header;
        let agent = self.memory.names.agent(self.conn, &header.agent)?;
        let owner = self.memory.names.owner_or_new(self.conn, &key.owner)?;
        let new_holder = self.new_holder(None, header);
        if new_holder.is_some() && is_locked(self.conn, owner, agent, context.as_str())? {
            let exists = refuse_unreadable(self.find(owner, &key.task))?;
            return Ok(Err(match exists {
                Ok(Some(_)) => StoreError::Conflict,
                Ok(None) => StoreError::Locked,
                Err(unreadable) => unreadable,
            }));
        }
        let (requires, rank) = match append.demands.as_deref() {
            Some(demands) => match self.label_set(owner, &demands.labels)? {
                Ok(requires) => (requires, -i64::from(demands.priority)),
                Err(refusal) => return Ok(Err(refusal)),
            },
            None => (0, 0),
        };
        let row = self.next.row;
        let added = self.prepared.run(
            sql::ADD_TASK,
            params![
                row,
                owner,
                key.task.as_str(),
                agent,
                context.as_str(),
                state.number(),
                changed.as_millis(),
                created.as_millis(),
                hidden,
                Phase::of(header) as i64,
                int(head),
                int(*bytes),
                int(turns.turn),
                attempt(turns),
                int(turns.epoch),
                unread(turns),
                holder(turns),
                size(turns.kept),
                requires,
                rank,
                key.owner.tenant.as_str(),
            ],
        )?;
        if added == 0 {
            return Ok(Err(StoreError::Conflict));
        }
        self.next.row += 1;
        if let Some(member) = new_holder {
            self.lock_conversation(row, member)?;
        }
        let group = group(owner, agent, header);
        self.totals.add(group, 1, int(*bytes));
        let has_snapshot = snapshot.is_some();
        if let Some(snapshot) = snapshot {
            self.put_separate_snapshot(row, snapshot)?;
        }
        let known = KnownTask {
            row,
            head,
            counted: int(*bytes),
            snapshot: has_snapshot,
            webhooks: false,
            indexed: IndexedColumns::of(group, header),
            run: turns.clone(),
        };
        self.memory.keep(owner, &key.task, known);
        Ok(Ok(PlacedTask { row, owner, webhooks: false }))
    }

    fn update(
        &mut self,
        before: &KnownTask,
        after: &KnownTask,
        header: &Header,
        mut snapshot: Option<Snapshot>,
    ) -> Result<(), Fault> {
        let KnownTask { row, head, counted: bytes, indexed, .. } = after;
        let turns = &header.run;
        let (turn, attempt, epoch) = (int(turns.turn), attempt(turns), int(turns.epoch));
        let (unread, holder, kept) = (unread(turns), holder(turns), size(turns.kept));
        let IndexedColumns { group, changed, created, phase, .. } = indexed;
        let (state, phase) = (group.state, *phase as i64);
        // The row of an ended task contains its snapshot.
        let ends = |last: &Snapshot| indexed.phase == Phase::Ended && last.seq == *head;
        let is_last = snapshot.as_ref().is_some_and(ends);
        let head = int(*head);
        let header = params![
            row, head, bytes, turn, attempt, epoch, unread, state, changed, created, phase, holder,
            kept
        ];
        if let Some(last) = snapshot.take_if(|_| is_last) {
            execute_with_bytes(self.prepared.get(sql::END_TASK)?, header, pieces(last))?;
            if before.snapshot {
                self.prepared.run(sql::DROP_SNAPSHOT, [row])?;
            }
        } else {
            self.prepared.run(sql::UPDATE_TASK, header)?;
            if let Some(snapshot) = snapshot {
                self.put_separate_snapshot(*row, snapshot)?;
            }
        }
        if group.hidden != before.indexed.group.hidden {
            self.prepared.run(sql::SHOW_TASK, params![row, group.hidden])?;
        }
        self.totals.add(before.indexed.group, -1, -before.counted);
        self.totals.add(*group, 1, *bytes);
        Ok(())
    }

    /// Writes the snapshot of a task that has not ended.
    fn put_separate_snapshot(&mut self, row: i64, snapshot: Snapshot) -> Result<(), Fault> {
        let seq = int(snapshot.seq);
        let put = self.prepared.get(sql::PUT_SNAPSHOT)?;
        execute_with_bytes(put, params![row], pieces(snapshot))?;
        self.prepared.run(sql::SNAPSHOT_BESIDE, params![row, seq])?;
        Ok(())
    }
}

/// The pieces of a snapshot, in the order of the columns.
fn pieces(snapshot: Snapshot) -> [Bytes; 4] {
    let Snapshot { seq: _, status, history, metadata, artifacts } = snapshot;
    [status, history, metadata, artifacts]
}

/// Executes a statement whose last parameters are bytes. SQLite copies bytes when they are bound,
/// and again into the row. To keep few copies in memory, ours are dropped before the row is
/// written, and those of SQLite right after.
fn execute_with_bytes<const N: usize>(
    statement: &mut Statement<'_>,
    first: &[&dyn ToSql],
    last: [Bytes; N],
) -> rusqlite::Result<()> {
    for (index, value) in first.iter().enumerate() {
        statement.raw_bind_parameter(index + 1, value)?;
    }
    let mut is_large = false;
    for (index, bytes) in last.into_iter().enumerate() {
        is_large |= bytes.len() > LARGE;
        statement.raw_bind_parameter(first.len() + index + 1, &bytes[..])?;
    }
    statement.raw_execute()?;
    if is_large {
        statement.clear_bindings();
    }
    Ok(())
}

impl KnownTask {
    fn read(row: &Row<'_>, owner: i64) -> Result<Self, Fault> {
        Ok(Self {
            row: row.get(0)?,
            head: uint(row.get(1)?),
            counted: row.get(2)?,
            snapshot: row.get::<_, Option<i64>>(3)?.is_some(),
            webhooks: row.get(16)?,
            indexed: IndexedColumns {
                group: Group { owner, hidden: row.get(6)?, agent: row.get(4)?, state: row.get(5)? },
                changed: row.get(7)?,
                created: row.get(8)?,
                phase: Phase::from_code(row.get(9)?)?,
            },
            run: Run { kept: count(row.get(15)?), ..read_run(row, 10)? },
        })
    }
}

impl IndexedColumns {
    fn of(group: Group, header: &Header) -> Self {
        Self {
            group,
            changed: header.changed.as_millis(),
            created: header.created.as_millis(),
            phase: Phase::of(header),
        }
    }
}

fn group(owner: i64, agent: i64, header: &Header) -> Group {
    Group { owner, hidden: header.hidden, agent, state: i64::from(header.state.number()) }
}
