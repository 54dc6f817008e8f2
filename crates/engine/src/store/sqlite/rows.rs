//! Conversions between database rows and values.

use bytes::Bytes;
use herald_protocol::{AgentName, ContextId, Seq, TaskId, TaskState, TenantId, Timestamp};
use rusqlite::{
    CachedStatement, Connection, ErrorCode, OptionalExtension, Params, Row, types::ValueRef,
};

use crate::store::{
    Entry, Header, Key, Kind, MemberId, Original, Owner, Run, Snapshot, StoreError, Stored,
};

use super::statements as sql;

/// An error of the store itself, as opposed to a refused write.
#[derive(Debug)]
pub(super) struct Fault(pub(super) StoreError);

impl Fault {
    pub(super) fn unreadable(what: &str) -> Self {
        Self(StoreError::Corrupt(what.to_owned()))
    }
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        // With the extended error code of SQLite, which is more precise than its message.
        let text = match error.sqlite_error() {
            Some(known) => format!("{error} (SQLite {})", known.extended_code),
            None => error.to_string(),
        };
        let damaged = match error.sqlite_error_code() {
            Some(code) => matches!(code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase),
            // The row does not contain what this program writes.
            None => true,
        };
        Self(if damaged { StoreError::Corrupt(text) } else { StoreError::Unavailable(text) })
    }
}

impl From<Fault> for StoreError {
    fn from(fault: Fault) -> Self {
        fault.0
    }
}

/// The phase of a task: active, ended, or waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Waiting = 0,
    Active = 1,
    Ended = 2,
}

impl Phase {
    pub(super) fn of(header: &Header) -> Self {
        if header.run.is_active() {
            Self::Active
        } else if header.state.is_terminal() {
            Self::Ended
        } else {
            Self::Waiting
        }
    }

    pub(super) fn from_code(code: i64) -> Result<Self, Fault> {
        match code {
            0 => Ok(Self::Waiting),
            1 => Ok(Self::Active),
            2 => Ok(Self::Ended),
            _ => Err(Fault::unreadable("phase")),
        }
    }
}

/// Skips unreadable data and logs it, so that one damaged task does not hide the others.
pub(super) fn readable<T>(row: i64, read: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(Fault(StoreError::Corrupt(cause))) => {
            tracing::error!(row, cause, "a stored row cannot be read and is skipped");
            Ok(None)
        }
        Err(fault) => Err(fault),
    }
}

/// SQLite's integers are signed. No value here comes near the limit.
pub(super) fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// As [`int`], for `usize`.
pub(super) fn size(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

pub(super) fn count(value: i64) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// The first row of a cached statement.
pub(super) fn first<T>(
    conn: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    conn.prepare_cached(sql)?.query_row(params, read).optional()
}

/// Runs a cached statement and returns the number of changed rows.
pub(super) fn run(conn: &Connection, sql: &str, params: impl Params) -> rusqlite::Result<usize> {
    conn.prepare_cached(sql)?.execute(params)
}

pub(super) fn unread(run: &Run) -> String {
    run.unread.iter().map(Seq::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn holder(run: &Run) -> Option<[u8; 16]> {
    run.holder.map(MemberId::blob)
}

/// Marks the attempt of a turn that was returned. The number itself is far below it.
const RETURNED: i64 = 1 << 30;

/// The attempt as a database value, with the mark of a returned turn.
pub(super) fn attempt(run: &Run) -> i64 {
    i64::from(run.attempt) + if run.returned { RETURNED } else { 0 }
}

/// The row number and the task, from the columns of the `header` macro in [`super::statements`],
/// the artifacts and `kept`. The events after the snapshot are not included. The second column is
/// the id of the task.
pub(super) fn stored(row: &Row<'_>) -> Result<(i64, Stored), Fault> {
    stored_within(row, u64::MAX)
}

/// The same for a task whose log has at most `limit` bytes. The snapshot of a larger one is not read.
pub(super) fn stored_within(row: &Row<'_>, limit: u64) -> Result<(i64, Stored), Fault> {
    let bytes_of_log = uint(row.get(8)?);
    if bytes_of_log > limit {
        return Err(Fault(StoreError::TooLarge(bytes_of_log)));
    }
    let header = Header {
        agent: AgentName::from(text(row, 2)?),
        context: ContextId::from(text(row, 3)?),
        state: state(row.get(4)?)?,
        changed: Timestamp::from_millis(row.get(5)?),
        created: Timestamp::from_millis(row.get(6)?),
        hidden: row.get(7)?,
        bytes: bytes_of_log,
        run: Run { kept: count(row.get(20)?), ..read_run(row, 10)? },
    };
    let snapshot = match row.get::<_, Option<i64>>(15)? {
        Some(seq) => Some(Snapshot {
            seq: uint(seq),
            status: bytes(row, 16)?,
            history: bytes(row, 17)?,
            metadata: bytes(row, 18)?,
            artifacts: bytes(row, 19)?,
        }),
        None => None,
    };
    let stored = Stored { header, head: uint(row.get(9)?), snapshot, since: Vec::new() };
    Ok((row.get(0)?, stored))
}

/// The run state from five consecutive columns, without `kept`, which is in another column.
pub(super) fn read_run(row: &Row<'_>, first: usize) -> Result<Run, Fault> {
    let holder: Option<[u8; 16]> = row.get(first + 4)?;
    let stored: i64 = row.get(first + 1)?;
    let returned = stored >= RETURNED;
    let attempt = if returned { stored - RETURNED } else { stored };
    Ok(Run {
        turn: uint(row.get(first)?),
        attempt: u32::try_from(attempt).map_err(|_| Fault::unreadable("attempt"))?,
        returned,
        epoch: uint(row.get(first + 2)?),
        unread: read_unread(text(row, first + 3)?)?,
        holder: holder.map(u128::from_be_bytes).map(MemberId),
        kept: 0,
    })
}

/// An entry from its number, kind and body, in this column and the next two.
pub(super) fn entry(row: &Row<'_>, column: usize) -> Result<Entry, Fault> {
    let kind = Kind::from_code(row.get(column + 1)?);
    let kind = kind.ok_or_else(|| Fault::unreadable("event kind"))?;
    Ok(Entry { seq: uint(row.get(column)?), kind, body: bytes(row, column + 2)? })
}

/// Reads entries of at most `weight` bytes in total, but at least one.
pub(super) fn entries(
    statement: &mut CachedStatement<'_>,
    params: impl Params,
    weight: usize,
) -> Result<Vec<Entry>, Fault> {
    let mut rows = statement.query(params)?;
    let (mut entries, mut weighed) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        weighed += row.get_ref(2)?.as_blob().map_or(0, <[u8]>::len);
        if weighed > weight && !entries.is_empty() {
            break;
        }
        entries.push(entry(row, 0)?);
    }
    Ok(entries)
}

/// The event that an idempotency key refers to.
pub(super) fn original(conn: &Connection, key: &[u8; 32]) -> Result<Option<Original>, Fault> {
    let found = first(conn, sql::FIND_KEY, [key.as_slice()], |row| {
        let text = |column| -> rusqlite::Result<&str> { Ok(row.get_ref(column)?.as_str()?) };
        let owner = Owner { tenant: TenantId::from(text(3)?), principal: text(4)?.into() };
        let key = Key { owner, task: TaskId::from(text(0)?) };
        Ok(Original { key, seq: uint(row.get(1)?), content: row.get(2)? })
    })?;
    Ok(found)
}

pub(super) fn text<'row>(row: &'row Row<'_>, column: usize) -> Result<&'row str, Fault> {
    row.get_ref(column)?.as_str().map_err(|_| Fault::unreadable("text"))
}

pub(super) fn state(number: i64) -> Result<TaskState, Fault> {
    TaskState::from_number(uint(number)).ok_or_else(|| Fault::unreadable("task state"))
}

fn bytes(row: &Row<'_>, column: usize) -> Result<Bytes, Fault> {
    match row.get_ref(column)? {
        ValueRef::Blob(bytes) => Ok(Bytes::copy_from_slice(bytes)),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Text(_) => {
            Err(Fault::unreadable("bytes"))
        }
    }
}

fn read_unread(list: &str) -> Result<Vec<Seq>, Fault> {
    if list.is_empty() {
        return Ok(Vec::new());
    }
    let numbers: Result<Vec<Seq>, _> = list.split(',').map(str::parse).collect();
    numbers.map_err(|_| Fault::unreadable("unread messages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_unavailable_and_an_unknown_row_is_corrupt() {
        let full = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(13), None);
        let full = Fault::from(full).0;
        assert!(matches!(&full, StoreError::Unavailable(text) if text.contains("SQLite 13")));
        let malformed = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(11), None);
        assert!(matches!(Fault::from(malformed).0, StoreError::Corrupt(_)));
        let foreign = rusqlite::Error::InvalidColumnIndex(3);
        assert!(matches!(Fault::from(foreign).0, StoreError::Corrupt(_)));
    }

    #[test]
    fn unread_messages_are_decoded_as_encoded() {
        for unread_now in [vec![], vec![7], vec![1, 22, 333]] {
            let run = Run { unread: unread_now.clone(), ..Run::default() };
            assert_eq!(read_unread(&unread(&run)).unwrap(), unread_now);
        }
        assert!(read_unread("1,x").is_err());
    }
}
