//! Reads. Readers never wait for the writer, nor for each other: each has a connection to itself.

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use herald_protocol::{AgentName, Seq, TaskId, TenantId, Timestamp};
use rusqlite::{Connection, Rows, params};

use crate::store::{Due, Key, Kind, MemberId, Owner, Page, StoreError, Stored};

use super::{
    open::{self, Lock},
    rows::{
        Fault, Phase, entries, first, int, log_bytes, readable, size, state, stored, text, uint,
    },
    statements as sql,
};

/// Idle connections kept for the next reader. More may be open while more are reading.
const IDLE: usize = 8;

/// KiB of pages that readers keep at hand, all of them together. There are as many of them as there
/// are threads to read on.
const CACHE: usize = 16 << 10;

/// Bytes in a page of events that has more than one, so that a slow reader costs little.
pub(super) const PAGE_BYTES: usize = 64 << 10;

/// Connections to read through.
#[derive(Debug)]
pub(super) enum Readers {
    /// A file: any number of connections, beside the writer's.
    Pool {
        path: PathBuf,
        idle: Mutex<Vec<Connection>>,
        /// Whether the last read failed, so that it is reported once and not with every attempt.
        failing: AtomicBool,
        /// Held as long as anybody can still read. After the connections, which go first.
        _lock: Lock,
    },
    /// Memory: the writer's connection, between two of its transactions.
    Shared(Arc<Mutex<Connection>>),
}

impl Readers {
    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Fault>,
    ) -> Result<T, StoreError> {
        match self {
            Self::Shared(conn) => {
                let conn = conn.lock().unwrap_or_else(PoisonError::into_inner);
                Ok(read(&conn)?)
            }
            Self::Pool { path, idle, failing, .. } => {
                let result = pooled(path, idle, read).map_err(StoreError::from);
                let failed = matches!(result, Err(StoreError::Unavailable(_)));
                if failing.load(Ordering::Relaxed) != failed {
                    failing.store(failed, Ordering::Relaxed);
                    match &result {
                        Err(error) if failed => tracing::error!(%error, "the store cannot be read"),
                        Ok(_) | Err(_) => tracing::info!("the store can be read again"),
                    }
                }
                result
            }
        }
    }

    /// Closes what is idle, so that the writer is the last to close and can tidy up.
    pub(super) fn close(&self) {
        match self {
            Self::Pool { idle, .. } => idle.lock().unwrap_or_else(PoisonError::into_inner).clear(),
            Self::Shared(_) => {}
        }
    }
}

/// Reads through a connection that nobody else uses meanwhile.
fn pooled<T>(
    path: &Path,
    idle: &Mutex<Vec<Connection>>,
    read: impl FnOnce(&Connection) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let rested = idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let conn = match rested {
        Some(conn) => conn,
        None => open::reader(path, size(CACHE / parallelism()))?,
    };
    let result = read(&conn);
    let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
    if idle.len() < IDLE {
        idle.push(conn);
    }
    result
}

fn parallelism() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get).min(IDLE)
}

/// Everything stored of one task. One whose log has more than `limit` bytes is not read.
pub(super) fn load(conn: &Connection, key: &Key, limit: u64) -> Result<Option<Stored>, Fault> {
    let Some((_, task)) = find(conn, key, limit)? else { return Ok(None) };
    let active = task.header.run.is_active();
    if !active && task.snapshot.as_ref().is_some_and(|snapshot| snapshot.seq == task.head) {
        return Ok(Some(task));
    }
    // A transaction, so that all statements read the same state.
    let conn = conn.unchecked_transaction()?;
    let Some((row, mut task)) = find(&conn, key, limit)? else { return Ok(None) };
    read_since(&conn, row, &mut task)?;
    Ok(Some(task))
}

fn find(conn: &Connection, key: &Key, limit: u64) -> Result<Option<(i64, Stored)>, Fault> {
    let mut find = conn.prepare_cached(sql::LOAD)?;
    let mut rows = find.query(names(key))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let bytes = log_bytes(row)?;
    if bytes > limit {
        return Err(Fault(StoreError::TooLarge(bytes)));
    }
    stored(row).map(Some)
}

/// Reads the events after the snapshot, in the same view as the task itself.
pub(super) fn read_since(conn: &Connection, row: i64, task: &mut Stored) -> Result<(), Fault> {
    let after = task.snapshot.as_ref().map_or(0, |snapshot| snapshot.seq);
    let active = task.header.run.is_active();
    if active || after < task.head {
        let mut read = conn.prepare_cached(sql::READ_EVENTS)?;
        let until = if active { i64::MAX } else { int(task.head) };
        task.since = entries(&mut read, params![row, int(after), until, -1], usize::MAX)?;
    }
    for entry in task.since.iter().filter(|entry| entry.seq > task.head) {
        task.header.bytes += entry.body.len() as u64;
    }
    task.head = task.since.last().map_or(0, |last| last.seq).max(task.head);
    if task.since.len() as u64 != task.head.saturating_sub(after) {
        return Err(Fault::unreadable("a log has gaps"));
    }
    Ok(())
}

/// Events strictly after `after`.
pub(super) fn read(conn: &Connection, key: &Key, after: Seq, limit: usize) -> Result<Page, Fault> {
    let found = first(conn, sql::FIND_HEAD, names(key), |row| {
        Ok((row.get::<_, i64>(0)?, uint(row.get(1)?), row.get(2)?, row.get(3)?, row.get(4)?))
    })?;
    let Some((row, head, phase, number, hidden)) = found else {
        return Ok(Page { entries: Vec::new(), closed: true });
    };
    let active = Phase::from_code(phase)? == Phase::Active;
    let entries = if limit > 0 && (active || after < head) {
        let mut read = conn.prepare_cached(sql::READ_EVENTS)?;
        // Once nothing is to be done, not past the head that was found with the state: a page
        // could claim to be the last and not be.
        let until = if active { i64::MAX } else { int(head) };
        entries(&mut read, params![row, int(after), until, size(limit)], PAGE_BYTES)?
    } else {
        Vec::new()
    };
    let reached = entries.last().map_or(after, |last| last.seq);
    let closed = reached >= head
        && (state(number)?.is_terminal() || (hidden && ends_with_reply(conn, row, head)?));
    Ok(Page { entries, closed })
}

fn ends_with_reply(conn: &Connection, row: i64, head: Seq) -> Result<bool, Fault> {
    let code = first(conn, sql::FIND_KIND, params![row, int(head)], |row| row.get::<_, u8>(0))?;
    Ok(code.and_then(Kind::from_code) == Some(Kind::Reply))
}

/// The agents whose tasks have something to do.
pub(super) fn agents_at_work(conn: &Connection) -> Result<Vec<AgentName>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let (mut names, mut last) = (Vec::new(), 0_i64);
    let mut next = conn.prepare_cached(sql::NEXT_ACTIVE_AGENT)?;
    loop {
        let mut rows = next.query([last])?;
        let Some(row) = rows.next()? else { return Ok(names) };
        last = row.get(0)?;
        names.extend(readable(last, text(row, 1).map(AgentName::from))?);
    }
}

/// Tasks with something to do that no living process holds: those that nobody holds, and those of
/// each dead process.
pub(super) fn due(
    conn: &Connection,
    agent: &AgentName,
    living: MemberId,
    limit: usize,
) -> Result<Vec<Due>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(agent) = find_agent(&conn, agent)? else { return Ok(Vec::new()) };
    let mut found: Vec<(i64, i64, Due)> = Vec::new();
    let mut take = |mut rows: Rows<'_>| -> Result<(), Fault> {
        let mut left = limit;
        while let Some(at) = rows.next()?.filter(|_| left > 0) {
            let (created, row) = (at.get(0)?, at.get(1)?);
            if let Some(due) = due_at(&conn, row)? {
                found.push((created, row, due));
                left -= 1;
            }
        }
        Ok(())
    };
    take(conn.prepare_cached(sql::FREE_TASKS)?.query([agent])?)?;
    for holder in dead_holders(&conn, agent, living)? {
        take(conn.prepare_cached(sql::HELD_TASKS)?.query(params![agent, holder])?)?;
    }
    found.sort_unstable_by_key(|(created, row, _)| (*created, *row));
    found.truncate(limit);
    Ok(found.into_iter().map(|(_, _, due)| due).collect())
}

fn dead_holders(conn: &Connection, agent: i64, living: MemberId) -> Result<Vec<Vec<u8>>, Fault> {
    let mut holders = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while let Some(holder) =
        first(conn, sql::NEXT_HOLDER, params![agent, last], |row| row.get::<_, Vec<u8>>(0))?
    {
        last.clone_from(&holder);
        holders.push(holder);
    }
    holders.retain(|holder| *holder != living.0.to_be_bytes());
    Ok(holders)
}

/// Tasks that wait for their caller since before `before`.
pub(super) fn paused(
    conn: &Connection,
    agent: &AgentName,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<Key>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(agent) = find_agent(&conn, agent)? else { return Ok(Vec::new()) };
    let mut find = conn.prepare_cached(sql::PAUSED_TASKS)?;
    let mut rows = find.query(params![agent, before.as_millis(), size(limit)])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.extend(named(&conn, row.get(0)?)?);
    }
    Ok(keys)
}

pub(super) fn find_agent(conn: &Connection, name: &AgentName) -> Result<Option<i64>, Fault> {
    Ok(first(conn, sql::FIND_AGENT, [name.as_str()], |row| row.get(0))?)
}

/// The name of a task, unless what is stored of it cannot be read.
pub(super) fn named(conn: &Connection, row: i64) -> Result<Option<Key>, Fault> {
    readable(row, name(conn, row))
}

fn name(conn: &Connection, row: i64) -> Result<Key, Fault> {
    let mut find = conn.prepare_cached(sql::NAME_TASK)?;
    let mut rows = find.query([row])?;
    let row = rows.next()?.ok_or_else(|| Fault::unreadable("a task without an owner"))?;
    let owner = Owner { tenant: TenantId::from(text(row, 0)?), principal: text(row, 1)?.into() };
    Ok(Key { owner, task: TaskId::from(text(row, 2)?) })
}

/// What a claim of a task needs to know, unless what is stored of it cannot be read.
pub(super) fn due_at(conn: &Connection, row: i64) -> Result<Option<Due>, Fault> {
    let read = || {
        let key = name(conn, row)?;
        let (epoch, holder) = first(conn, sql::FIND_CLAIM, [row], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<[u8; 16]>>(1)?))
        })?
        .ok_or_else(|| Fault::unreadable("a task without a run"))?;
        let holder = holder.map(u128::from_be_bytes).map(MemberId);
        Ok(Due { key, epoch: uint(epoch), holder })
    };
    readable(row, read())
}

fn names(key: &Key) -> [&str; 3] {
    [key.owner.tenant.as_str(), &key.owner.principal, key.task.as_str()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_cannot_be_read_is_noted_until_it_can() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("herald.db");
        let lock = open::lock(&path).unwrap();
        let (idle, failing) = (Mutex::default(), AtomicBool::new(false));
        let readers = Readers::Pool { path: path.clone(), idle, failing, _lock: lock };
        let Readers::Pool { failing, .. } = &readers else { unreachable!("it was made as one") };
        let read = || readers.with(|conn| find_agent(conn, &AgentName::from("echo")));
        assert!(matches!(read(), Err(StoreError::Unavailable(_))), "there is no file");
        assert!(failing.load(Ordering::Relaxed));
        let _opened = open::file(&path, 1 << 20).unwrap();
        assert_eq!(read(), Ok(None));
        assert!(!failing.load(Ordering::Relaxed));
    }
}
