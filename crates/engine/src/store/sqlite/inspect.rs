//! Read-only inspection of a database that another process may have open.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::Path,
    sync::mpsc,
    time::Duration,
};

use herald_protocol::Timestamp;
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension, config::DbConfig};

use super::{
    error::{OpenError, damaged, refuse, unwritable},
    open::{self, sibling},
};

/// The number of faults that are reported.
const MAX_FAULTS: u8 = 5;

/// The longest check for the cause of a failed start.
const CAUSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The result of an inspection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The size of the database and its write-ahead log.
    pub bytes: u64,
    /// True if a process has it open.
    pub in_use: bool,
    /// True if its last process did not close it. The next start recovers it.
    pub unclosed: bool,
    /// The version of its schema.
    pub schema: SchemaStatus,
    /// The number of tasks.
    pub tasks: u64,
    /// The time of the last status change of the newest task.
    pub newest: Option<Timestamp>,
    /// The integrity of its pages.
    pub health: Health,
}

/// The schema of a database compared with that of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaStatus {
    /// The schema of this version.
    Current,
    /// The schema of an earlier version, which the next start migrates.
    Older,
}

/// The integrity of the pages of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// All pages are intact.
    Intact,
    /// The pages that were read within the timeout are intact.
    IntactSoFar,
    /// Some pages are damaged: the first faults.
    Damaged(Vec<String>),
}

/// The way to read a file without changing it.
enum OpenMode {
    /// Another process has it open and maintains the shared memory that readers need.
    Shared,
    /// No process has it open, and the file is complete.
    Immutable,
    /// No process has it open, and its write-ahead log has content.
    WithLog,
}

/// Inspects a database for at most `timeout`. `None` if the file does not exist.
pub(super) fn inspect(path: &Path, timeout: Duration) -> Result<Option<Inspection>, OpenError> {
    open::inspect(path)?;
    let file = size(path);
    if file == 0 {
        return Ok(None);
    }
    let log = size(sibling(path, "-wal"));
    let in_use = is_locked(path)?;
    let mode = match (in_use, log) {
        (true, _) => OpenMode::Shared,
        (false, 0) => OpenMode::Immutable,
        (false, _) => OpenMode::WithLog,
    };
    let failed = |error| refuse(path, &error);
    let conn = connect(path, &mode).map_err(failed)?;
    open::check_owner(&conn, path)?;
    let schema = if open::is_current(&conn, path)? {
        open::check_whole(&conn, path)?;
        SchemaStatus::Current
    } else {
        SchemaStatus::Older
    };
    let tasks = "SELECT coalesce(sum(tasks), 0) FROM counters";
    let tasks: i64 = conn.query_row(tasks, [], |row| row.get(0)).map_err(failed)?;
    let newest = "SELECT changed FROM tasks ORDER BY row DESC LIMIT 1";
    let newest: Option<i64> =
        conn.query_row(newest, [], |row| row.get(0)).optional().map_err(failed)?;
    Ok(Some(Inspection {
        bytes: file + log,
        in_use,
        unclosed: matches!(mode, OpenMode::WithLog),
        schema,
        tasks: u64::try_from(tasks).unwrap_or(0),
        newest: newest.map(Timestamp::from_millis),
        health: check(&conn, timeout).map_err(failed)?,
    }))
}

/// The damage that a short check finds, if any.
pub(super) fn damage(path: &Path) -> Option<OpenError> {
    match inspect(path, CAUSE_TIMEOUT) {
        Ok(Some(Inspection { health: Health::Damaged(faults), .. })) => {
            Some(damaged(path, &faults.join(", ")))
        }
        Ok(_) => None,
        Err(error @ OpenError::Damaged { .. }) => Some(explain(path, error)),
        Err(error @ OpenError::Corrupt { .. }) => Some(error),
        Err(_) => None,
    }
}

/// Adds the affected tables to an error about damage.
pub(super) fn explain(path: &Path, error: OpenError) -> OpenError {
    let OpenError::Damaged { found, .. } = &error else { return error };
    let faults = connect(path, &OpenMode::Shared).and_then(|conn| check(&conn, CAUSE_TIMEOUT));
    match faults {
        Ok(Health::Damaged(faults)) => damaged(path, &format!("{found}, {}", faults.join(", "))),
        Ok(Health::Intact | Health::IntactSoFar) | Err(_) => error,
    }
}

fn connect(path: &Path, mode: &OpenMode) -> rusqlite::Result<Connection> {
    // These three characters are special in a URI.
    let name = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let how = match mode {
        OpenMode::Shared => "mode=ro",
        OpenMode::Immutable => "mode=ro&immutable=1",
        // Without locks SQLite creates no files for them. No other process has the database open.
        OpenMode::WithLog => "mode=ro&vfs=unix-none",
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("file:{name}?{how}"), flags)?;
    conn.busy_timeout(open::BUSY_TIMEOUT)?;
    if let OpenMode::WithLog = mode {
        // Leaves the write-ahead log of a crashed process in place, instead of moving it into the
        // database.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    Ok(conn)
}

/// Checks all pages, for at most `timeout`.
fn check(conn: &Connection, timeout: Duration) -> rusqlite::Result<Health> {
    let interrupt = conn.get_interrupt_handle();
    let (done, wait) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        // Repeated, because an interrupt has no effect before the statement runs.
        let mut pause = timeout;
        while wait.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
            interrupt.interrupt();
            pause = Duration::from_millis(1);
        }
    });
    let mut faults = Vec::new();
    let read = read_faults(conn, &mut faults);
    drop(done);
    watch.join().expect("the timer thread does not panic");
    let is = |code| read.as_ref().is_err_and(|error| error.sqlite_error_code() == Some(code));
    if is(ErrorCode::DatabaseCorrupt) && faults.is_empty() {
        faults.extend(read.as_ref().err().map(ToString::to_string));
    }
    let faults: Vec<_> = faults.iter().flat_map(|fault| fault.lines()).collect();
    let faults = faults.into_iter().filter(|fault| !fault.starts_with("***") && *fault != "ok");
    let faults: Vec<_> = faults.map(|fault| named(conn, fault)).collect();
    match read {
        _ if !faults.is_empty() => Ok(Health::Damaged(faults)),
        Ok(()) => Ok(Health::Intact),
        Err(_) if is(ErrorCode::OperationInterrupted) => Ok(Health::IntactSoFar),
        Err(error) => Err(error),
    }
}

/// Reads the faults, up to the first error.
fn read_faults(conn: &Connection, faults: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut check = conn.prepare(&format!("PRAGMA quick_check({MAX_FAULTS})"))?;
    let mut rows = check.query([])?;
    while let Some(row) = rows.next()? {
        faults.push(row.get(0)?);
    }
    Ok(())
}

/// A fault with the name of its table or index. SQLite reports only the root page: `Tree 7 page …`.
fn named(conn: &Connection, fault: &str) -> String {
    let Some((number, rest)) = fault.strip_prefix("Tree ").and_then(|rest| rest.split_once(' '))
    else {
        return fault.to_owned();
    };
    let name = "SELECT type || ' ' || name FROM sqlite_schema WHERE rootpage = ?1";
    match conn.query_row(name, [number], |row| row.get::<_, String>(0)) {
        Ok(name) => format!("{name}: {rest}"),
        Err(_) => fault.to_owned(),
    }
}

/// True if a process has the database open. The lock is released at once, because a server that
/// starts now would otherwise fail.
fn is_locked(path: &Path) -> Result<bool, OpenError> {
    let file = match File::open(sibling(path, ".lock")) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(unwritable(path, &error.to_string())),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(unwritable(path, &error.to_string())),
    }
}

fn size(path: impl AsRef<Path>) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}
