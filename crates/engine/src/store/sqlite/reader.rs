//! Reads of one task and of its log. Each read has its own connection, so that reads
//! wait neither for the writer nor for each other.

use std::{
    borrow::Cow,
    collections::HashSet,
    num::NonZero,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use herald_protocol::{AgentName, Seq, TaskId, TenantId, Timestamp};
use rusqlite::{Connection, Row, params, types::ValueRef};

use crate::store::{
    Actor, Cause, Key, Kind, Loaded, LogEntry, LogPage, MemberId, Owner, StoreError, Stored,
    TaskVersion,
};

use super::{
    members,
    open::{self, DirectoryLock},
    rows::{
        Fault, Phase, entries, entry, first, int, readable, size, state, stored, stored_within,
        text, uint,
    },
    statements as sql,
};

/// The number of idle connections that are kept. More may be open during concurrent reads.
const IDLE: usize = 8;

/// The page cache of all readers together, in KiB. There are as many readers as threads to read on.
const CACHE: usize = 16 << 10;

/// The size at which a page of several events ends, so that a slow reader takes little memory.
pub(super) const PAGE_BYTES: usize = 64 << 10;

/// Connections for reading.
#[derive(Debug)]
pub(super) enum Readers {
    /// A file: any number of connections beside the writer's.
    Pool {
        path: PathBuf,
        idle: Mutex<Vec<Connection>>,
        /// True if the last read failed, so that an outage is logged once and not for every
        /// attempt.
        failing: AtomicBool,
        /// The directory lock, held as long as reads are possible. Dropped after the connections.
        _lock: DirectoryLock,
    },
    /// A database in memory: the connection of the writer, between two transactions.
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

    /// The path of the database; `None` in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Pool { path, .. } => Some(path),
            Self::Shared(_) => None,
        }
    }

    /// Closes the idle connections, so that the writer is the last to close and can remove the
    /// write-ahead log.
    pub(super) fn close(&self) {
        match self {
            Self::Pool { idle, .. } => idle.lock().unwrap_or_else(PoisonError::into_inner).clear(),
            Self::Shared(_) => {}
        }
    }
}

/// Reads through an exclusive connection.
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

/// A task, or its changes since a known version, unless they have more than `limit` bytes.
pub(super) fn load(
    conn: &Connection,
    key: &Key,
    known: Option<TaskVersion>,
    limit: u64,
) -> Result<Loaded, Fault> {
    if let Some(known) = known.filter(|known| known.head > 0)
        && let Some(loaded) = load_since(conn, key, known, limit)?
    {
        return Ok(loaded);
    }
    Ok(load_whole(conn, key, limit)?.map_or(Loaded::Gone, Loaded::Whole))
}

/// `None` if the log never had the known version, so that its events cannot be added to it.
fn load_since(
    conn: &Connection,
    key: &Key,
    known: TaskVersion,
    limit: u64,
) -> Result<Option<Loaded>, Fault> {
    // In one transaction, so that version, header and events are from the same state.
    let conn = conn.unchecked_transaction()?;
    let found = first(&conn, sql::FIND_VERSION, names(key), |row| {
        Ok((row.get::<_, i64>(0)?, TaskVersion::new(uint(row.get(1)?), uint(row.get(2)?))))
    })?;
    let Some((task, version)) = found else { return Ok(Some(Loaded::Gone)) };
    if version == known {
        return Ok(Some(Loaded::Same));
    }
    if known.head > version.head {
        return Ok(None);
    }
    let events = params![task, int(known.head)];
    let bytes = first(&conn, sql::SUM_EVENTS, events, |row| row.get(0))?.unwrap_or(0);
    if uint(bytes) > limit {
        return Err(Fault(StoreError::TooLarge(uint(bytes))));
    }
    let mut find = conn.prepare_cached(sql::LOAD_HEADER)?;
    let mut rows = find.query([task])?;
    let row = rows.next()?.ok_or_else(|| Fault::unreadable("a task without a header"))?;
    let (_, Stored { mut header, .. }) = stored(row)?;
    header.bytes = uint(bytes);
    let mut read = conn.prepare_cached(sql::READ_EVENTS)?;
    let since = params![task, int(known.head), int(version.head), -1];
    let since = entries(&mut read, since, usize::MAX)?;
    if since.len() as u64 != version.head - known.head {
        return Err(Fault::unreadable("a log has gaps"));
    }
    Ok(Some(Loaded::More { header, head: version.head, since }))
}

/// The whole task. It is not read if its log has more than `limit` bytes.
fn load_whole(conn: &Connection, key: &Key, limit: u64) -> Result<Option<Stored>, Fault> {
    let Some((_, task)) = find(conn, key, limit)? else { return Ok(None) };
    let active = task.header.run.is_active();
    if !active && task.snapshot.as_ref().is_some_and(|snapshot| snapshot.seq == task.head) {
        return Ok(Some(task));
    }
    // In one transaction, so that all statements read the same state.
    let conn = conn.unchecked_transaction()?;
    let Some((row, mut task)) = find(&conn, key, limit)? else { return Ok(None) };
    read_since(&conn, row, &mut task)?;
    Ok(Some(task))
}

fn find(conn: &Connection, key: &Key, limit: u64) -> Result<Option<(i64, Stored)>, Fault> {
    let mut find = conn.prepare_cached(sql::LOAD)?;
    let mut rows = find.query(names(key))?;
    let Some(row) = rows.next()? else { return Ok(None) };
    stored_within(row, limit).map(Some)
}

/// Reads the events after the snapshot, in the same transaction as the task itself.
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

/// The events after `after`.
pub(super) fn read(
    conn: &Connection,
    key: &Key,
    after: Seq,
    limit: usize,
) -> Result<LogPage, Fault> {
    let found = first(conn, sql::FIND_HEAD, names(key), |row| {
        Ok((row.get::<_, i64>(0)?, uint(row.get(1)?), row.get(2)?, row.get(3)?, row.get(4)?))
    })?;
    let Some((row, head, phase, number, hidden)) = found else {
        return Ok(LogPage { entries: Vec::new(), closed: true });
    };
    let active = Phase::from_code(phase)? == Phase::Active;
    let entries = if limit > 0 && (active || after < head) {
        let mut read = conn.prepare_cached(sql::READ_EVENTS)?;
        // A page of an idle task must not go past the head that was read with the state, or it
        // could be marked as closed although events follow.
        let until = if active { i64::MAX } else { int(head) };
        entries(&mut read, params![row, int(after), until, size(limit)], PAGE_BYTES)?
    } else {
        Vec::new()
    };
    let reached = entries.last().map_or(after, |last| last.seq);
    let closed = reached >= head
        && (state(number)?.is_terminal() || (hidden && ends_with_reply(conn, row, head)?));
    Ok(LogPage { entries, closed })
}

/// The events after `after`, with their times and causes.
pub(super) fn read_log(
    conn: &Connection,
    key: &Key,
    after: Seq,
    limit: usize,
) -> Result<Vec<LogEntry>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let task = first(&conn, sql::FIND_HEAD, names(key), |row| row.get::<_, i64>(0))?;
    let Some(task) = task else { return Ok(Vec::new()) };
    let mut read = conn.prepare_cached(sql::READ_LOG)?;
    let mut rows = read.query(params![task, int(after), size(limit)])?;
    let (mut log, mut weight) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        let entry = entry(row, 0)?;
        weight += entry.body.len();
        if weight > PAGE_BYTES && !log.is_empty() {
            break;
        }
        let at = row.get::<_, Option<i64>>(4)?.map(Timestamp::from_millis);
        let cause = match row.get::<_, Option<i64>>(5)? {
            Some(_) => Some(cause(row)?),
            None => at.map(|_| implied(entry.kind).into()),
        };
        log.push(LogEntry { entry, position: uint(row.get(3)?), at, cause });
    }
    Ok(log)
}

/// The stored cause of an event, from the columns of [`sql::READ_LOG`].
fn cause(row: &Row<'_>) -> Result<Cause, Fault> {
    let optional = |column| -> Result<Option<Arc<str>>, Fault> {
        let is_null = row.get_ref(column)? == ValueRef::Null;
        if is_null { Ok(None) } else { Ok(Some(text(row, column)?.into())) }
    };
    let actor = match (row.get::<_, Option<[u8; 16]>>(9)?, optional(6)?) {
        (Some(session), _) => {
            let session = MemberId(u128::from_be_bytes(session));
            Actor::Worker { session, number: uint(row.get(10)?) }
        }
        (None, Some(principal)) => Actor::Principal(principal),
        (None, None) => Actor::Caller,
    };
    let binding = optional(8)?.map(|name| Cow::Owned(name.as_ref().to_owned()));
    Ok(Cause { actor, request: optional(7)?, binding })
}

/// The actor of an event without a stored cause, by its kind.
fn implied(kind: Kind) -> Actor {
    match kind {
        Kind::Received(_) => Actor::Caller,
        Kind::Status(_) | Kind::Interim(_) | Kind::Artifact | Kind::Reply => Actor::Agent,
    }
}

fn ends_with_reply(conn: &Connection, row: i64, head: Seq) -> Result<bool, Fault> {
    let code = first(conn, sql::FIND_KIND, params![row, int(head)], |row| row.get::<_, u8>(0))?;
    Ok(code.and_then(Kind::from_code) == Some(Kind::Reply))
}

/// The agents with active tasks that no living member serves.
pub(super) fn agents_unserved(conn: &Connection) -> Result<Vec<AgentName>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let living = members::living(&conn)?;
    let served: HashSet<&AgentName> = living.iter().flat_map(|member| &member.agents).collect();
    let (mut names, mut last) = (Vec::new(), 0_i64);
    let mut next = conn.prepare_cached(sql::NEXT_ACTIVE_AGENT)?;
    loop {
        let mut rows = next.query([last])?;
        let Some(row) = rows.next()? else { return Ok(names) };
        last = row.get(0)?;
        let name = readable(last, text(row, 1).map(AgentName::from))?;
        names.extend(name.filter(|name| !served.contains(name)));
    }
}

/// The tasks that have waited for their caller since before `before`.
pub(super) fn paused(
    conn: &Connection,
    agent: &AgentName,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<(Key, Timestamp)>, Fault> {
    unchanged(conn, sql::PAUSED_TASKS, agent, before, limit)
}

/// The tasks that have waited for their turn since before `before`.
pub(super) fn queued(
    conn: &Connection,
    agent: &AgentName,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<(Key, Timestamp)>, Fault> {
    unchanged(conn, sql::QUEUED_TASKS, agent, before, limit)
}

/// The tasks that a statement finds for an agent, whose status did not change since before `before`.
fn unchanged(
    conn: &Connection,
    statement: &str,
    agent: &AgentName,
    before: Timestamp,
    limit: usize,
) -> Result<Vec<(Key, Timestamp)>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(agent) = find_agent(&conn, agent)? else { return Ok(Vec::new()) };
    let mut find = conn.prepare_cached(statement)?;
    let mut rows = find.query(params![agent, before.as_millis(), size(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let changed = Timestamp::from_millis(row.get(1)?);
        found.extend(named(&conn, row.get(0)?)?.map(|key| (key, changed)));
    }
    Ok(found)
}

pub(super) fn find_agent(conn: &Connection, name: &AgentName) -> Result<Option<i64>, Fault> {
    Ok(first(conn, sql::FIND_AGENT, [name.as_str()], |row| row.get(0))?)
}

/// The key of a task, unless its stored data cannot be read.
pub(super) fn named(conn: &Connection, row: i64) -> Result<Option<Key>, Fault> {
    readable(row, name(conn, row))
}

pub(super) fn name(conn: &Connection, row: i64) -> Result<Key, Fault> {
    let mut find = conn.prepare_cached(sql::NAME_TASK)?;
    let mut rows = find.query([row])?;
    let row = rows.next()?.ok_or_else(|| Fault::unreadable("a task without an owner"))?;
    let owner = Owner { tenant: TenantId::from(text(row, 0)?), principal: text(row, 1)?.into() };
    Ok(Key { owner, task: TaskId::from(text(row, 2)?) })
}

fn names(key: &Key) -> [&str; 3] {
    [key.owner.tenant.as_str(), &key.owner.principal, key.task.as_str()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_reads_is_noted_until_a_read_succeeds() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("herald.db");
        let lock = open::lock(&path).unwrap();
        let (idle, failing) = (Mutex::default(), AtomicBool::new(false));
        let readers = Readers::Pool { path: path.clone(), idle, failing, _lock: lock };
        let Readers::Pool { failing, .. } = &readers else {
            unreachable!("it was created as a pool")
        };
        let read = || readers.with(|conn| find_agent(conn, &AgentName::from("echo")));
        assert!(matches!(read(), Err(StoreError::Unavailable(_))), "there is no file");
        assert!(failing.load(Ordering::Relaxed));
        let _opened = open::file(&path, 1 << 20).unwrap();
        assert_eq!(read(), Ok(None));
        assert!(!failing.load(Ordering::Relaxed));
    }
}
