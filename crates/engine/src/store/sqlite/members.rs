//! Members: joins, leaves and deaths are stored; heartbeats are counted in memory, without a write.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

use herald_protocol::{AgentName, TenantId};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::store::{Change, Member, MemberId, MemberKind, Owner, StoreError, WorkerMember};

use super::{
    append::{Batch, JobResult, WriterCache},
    job::Work,
    rows::{Fault, first, readable, text},
    statements as sql,
};

/// The writer of changes that no member makes. All members are notified of them.
pub(super) const NO_MEMBER: MemberId = MemberId(0);

/// The heartbeat counters of all members since this process opened the database.
#[derive(Debug, Default)]
pub(super) struct Heartbeats(Mutex<HashMap<MemberId, u64>>);

impl Heartbeats {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<MemberId, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a counter at zero, unless it exists.
    pub(super) fn start(&self, member: MemberId) {
        self.lock().entry(member).or_default();
    }

    /// Counts a heartbeat. Returns false if the member is unknown. The job that marks a member dead
    /// holds the lock until its commit, so that no heartbeat is answered in between.
    pub(super) fn count(&self, member: MemberId) -> bool {
        match self.lock().get_mut(&member) {
            Some(counter) => {
                *counter += 1;
                true
            }
            None => false,
        }
    }

    pub(super) fn stop(&self, member: MemberId) {
        self.lock().remove(&member);
    }
}

/// Adds a member. For an existing id it changes the kind and the name.
#[derive(Debug)]
pub(super) struct Join {
    pub(super) id: MemberId,
    pub(super) kind: MemberKind,
    pub(super) name: String,
}

/// Adds a worker, whose former lives die.
#[derive(Debug)]
pub(super) struct JoinWorker {
    pub(super) id: MemberId,
    pub(super) worker: WorkerMember,
}

/// The stored description of a worker, beside its name and its role.
#[derive(Debug, Serialize, Deserialize)]
struct StoredWorker {
    tenant: String,
    principal: String,
    labels: Vec<String>,
    concurrency: usize,
}

/// Replaces the agents that a member serves.
#[derive(Debug)]
pub(super) struct SetServedAgents {
    pub(super) me: MemberId,
    pub(super) agents: Vec<AgentName>,
}

/// Declares a member dead, if its heartbeat counter is still `seen`.
#[derive(Debug)]
pub(super) struct MarkDead {
    pub(super) member: MemberId,
    pub(super) seen: u64,
}

/// Removes a member.
#[derive(Debug)]
pub(super) struct Leave(pub(super) MemberId);

impl Work for Join {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        let Self { id, kind, name } = self;
        batch.prepared.run(sql::ADD_MEMBER, params![id.blob(), code(*kind), &*name])?;
        let members = batch.memory.members(batch.conn)?;
        members.insert(*id, *kind);
        let nodes = members.values().filter(|kind| **kind == MemberKind::Node).count();
        if nodes > 1 {
            // Before the commit, so that no member sees another one while the store does not count
            // as shared.
            batch.is_shared.store(true, Ordering::Relaxed);
        }
        Ok(Ok(()))
    }
}

/// Answers with the former lives.
impl Work for JoinWorker {
    type Answer = Vec<MemberId>;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Vec<MemberId>> {
        let Self { id, worker } = self;
        let former = match former_lives(batch.conn, worker)? {
            Ok(former) => former,
            Err(refusal) => return Ok(Err(refusal)),
        };
        for member in &former {
            batch.remove_member(*member)?;
        }
        let stored = StoredWorker {
            tenant: worker.owner.tenant.to_string(),
            principal: worker.owner.principal.to_string(),
            labels: worker.labels.clone(),
            concurrency: worker.concurrency,
        };
        let stored = serde_json::to_string(&stored).expect("a struct of strings is valid JSON");
        let agents = serde_json::to_string(&[worker.role.as_str()]);
        let agents = agents.expect("a list of strings is valid JSON");
        batch.prepared.run(sql::ADD_WORKER, params![id.blob(), worker.name, agents, stored])?;
        batch.memory.members(batch.conn)?.insert(*id, MemberKind::Worker);
        Ok(Ok(former))
    }
}

impl Work for SetServedAgents {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        let names: Vec<&str> = self.agents.iter().map(AgentName::as_str).collect();
        let names = serde_json::to_string(&names).expect("a list of strings is valid JSON");
        let served = batch.prepared.run(sql::SERVE_AGENTS, params![self.me.blob(), names])?;
        Ok(if served == 0 { Err(StoreError::NotMember) } else { Ok(()) })
    }
}

impl Work for MarkDead {
    type Answer = bool;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<bool> {
        let heartbeat = batch.heartbeats.and_then(|counters| counters.get(&self.member));
        if heartbeat != Some(&self.seen) {
            return Ok(Ok(false));
        }
        batch.remove_member(self.member).map(Ok)
    }

    fn compares_heartbeats(&self) -> bool {
        true
    }
}

impl Work for Leave {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        batch.remove_member(self.0)?;
        Ok(Ok(()))
    }
}

impl Batch<'_> {
    /// True if this member may write.
    pub(super) fn is_member(&mut self, member: MemberId) -> Result<bool, Fault> {
        Ok(self.memory.members(self.conn)?.contains_key(&member))
    }

    /// Makes everything that a member held due. Returns false if it was not a member.
    fn remove_member(&mut self, member: MemberId) -> Result<bool, Fault> {
        if self.memory.members(self.conn)?.remove(&member).is_none() {
            return Ok(false);
        }
        self.prepared.run(sql::DROP_MEMBER, [member.blob()])?;
        self.prepared.run(sql::DROP_LOCKS, [member.blob()])?;
        self.requeue_tasks_of(member)?;
        self.release_webhooks_of(member)?;
        self.announce(member, || Change::All);
        self.died.push(member);
        Ok(true)
    }
}

impl WriterCache {
    /// The living members.
    fn members(&mut self, conn: &Connection) -> Result<&mut HashMap<MemberId, MemberKind>, Fault> {
        if self.members.is_none() {
            let members = living(conn)?;
            self.members = Some(members.into_iter().map(|one| (one.id, one.kind)).collect());
        }
        Ok(self.members.get_or_insert_default())
    }
}

/// The living workers with the name of this one, unless one of them has another owner.
fn former_lives(conn: &Connection, worker: &WorkerMember) -> JobResult<Vec<MemberId>> {
    let mut former = Vec::new();
    let mut find = conn.prepare_cached(sql::WORKERS_OF_NAME)?;
    let mut rows = find.query([&worker.name])?;
    while let Some(row) = rows.next()? {
        // A worker without a readable description belongs to nobody.
        let stored = text(row, 1).and_then(stored_worker);
        let is_same = stored.is_ok_and(|stored| {
            let Owner { tenant, principal } = &worker.owner;
            stored.tenant == tenant.as_str() && stored.principal == **principal
        });
        if !is_same && text(row, 1).is_ok() {
            return Ok(Err(StoreError::Conflict));
        }
        former.push(MemberId(u128::from_be_bytes(row.get(0)?)));
    }
    Ok(Ok(former))
}

/// The living members, by id. Their heartbeats are not stored.
pub(super) fn living(conn: &Connection) -> Result<Vec<Member>, Fault> {
    let mut members = Vec::new();
    let mut all = conn.prepare_cached(sql::ALL_MEMBERS)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        let read = || {
            Ok(Member {
                id: MemberId(u128::from_be_bytes(row.get(0)?)),
                kind: kind(row.get(1)?)?,
                name: text(row, 2)?.to_owned(),
                agents: agents(text(row, 3)?)?,
                heartbeat: 0,
            })
        };
        members.extend(readable(0, read())?);
    }
    Ok(members)
}

/// The living worker with this id.
pub(super) fn find_worker(conn: &Connection, id: MemberId) -> Result<Option<WorkerMember>, Fault> {
    let mut find = conn.prepare_cached(sql::FIND_WORKER)?;
    let mut rows = find.query([id.blob()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    // A worker that only joined has no description.
    let Ok(stored) = text(row, 2) else { return Ok(None) };
    let StoredWorker { tenant, principal, labels, concurrency } = stored_worker(stored)?;
    let role = agents(text(row, 1)?)?.into_iter().next();
    Ok(Some(WorkerMember {
        name: text(row, 0)?.to_owned(),
        role: role.ok_or_else(|| Fault::unreadable("role of a worker"))?,
        owner: Owner { tenant: TenantId::from(tenant.as_str()), principal: principal.into() },
        labels,
        concurrency,
    }))
}

fn agents(json: &str) -> Result<Vec<AgentName>, Fault> {
    let names: Result<Vec<String>, _> = serde_json::from_str(json);
    let names = names.map_err(|_| Fault::unreadable("agents of a member"))?;
    Ok(names.iter().map(|name| AgentName::from(name.as_str())).collect())
}

fn stored_worker(json: &str) -> Result<StoredWorker, Fault> {
    serde_json::from_str(json).map_err(|_| Fault::unreadable("description of a worker"))
}

/// True if this member is alive, in the same transaction as the tasks that it may hold.
pub(super) fn is_living(conn: &Connection, member: &[u8]) -> Result<bool, Fault> {
    Ok(first(conn, sql::FIND_MEMBER, [member], |_| Ok(()))?.is_some())
}

impl MemberId {
    /// The id as a database value.
    pub(super) fn blob(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

fn code(kind: MemberKind) -> i64 {
    match kind {
        MemberKind::Node => 0,
        MemberKind::Worker => 1,
    }
}

fn kind(code: i64) -> Result<MemberKind, Fault> {
    match code {
        0 => Ok(MemberKind::Node),
        1 => Ok(MemberKind::Worker),
        _ => Err(Fault::unreadable("kind of a member")),
    }
}
