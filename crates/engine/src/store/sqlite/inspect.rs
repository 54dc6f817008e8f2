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
    open::{self, beside},
};

/// Faults that are worth reading.
const FAULTS: u8 = 5;

/// How long a start that has failed looks for the cause.
const EXPLANATION: Duration = Duration::from_secs(5);

/// What a database looks like from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Bytes of the database and its write-ahead log.
    pub bytes: u64,
    /// Whether a process has it open.
    pub in_use: bool,
    /// Whether its last user left without closing it. The next one puts it in order.
    pub unclosed: bool,
    /// Its form compared with that of this version.
    pub form: Form,
    /// How many tasks it holds.
    pub tasks: u64,
    /// When the task that was begun last was last changed.
    pub newest: Option<Timestamp>,
    /// Whether its pages fit together.
    pub health: Health,
}

/// The form of a database compared with that of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// This version's own.
    Current,
    /// That of an earlier version, which the next start brings up to date.
    Older,
}

/// Whether the pages of a database fit together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// All of them do.
    Whole,
    /// Those that could be looked at in the time do.
    SoFar,
    /// Some do not: the first faults.
    Damaged(Vec<String>),
}

/// How the file can be read without touching it.
enum Manner {
    /// Its owner keeps it in order for readers, too.
    Shared,
    /// Nobody has it, and everything is in the one file.
    Alone,
    /// Nobody has it, and a part is in the write-ahead log.
    WithLog,
}

/// Looks at a database for at most `patience`. `None` if there is none yet.
pub(super) fn inspect(path: &Path, patience: Duration) -> Result<Option<Inspection>, OpenError> {
    open::inspect(path)?;
    let file = size(path);
    if file == 0 {
        return Ok(None);
    }
    let log = size(beside(path, "-wal"));
    let in_use = is_locked(path)?;
    let manner = match (in_use, log) {
        (true, _) => Manner::Shared,
        (false, 0) => Manner::Alone,
        (false, _) => Manner::WithLog,
    };
    let failed = |error| refuse(path, &error);
    let conn = connect(path, &manner).map_err(failed)?;
    open::check_owner(&conn, path)?;
    let form = if open::is_current(&conn, path)? {
        open::check_whole(&conn, path)?;
        Form::Current
    } else {
        Form::Older
    };
    let tasks = "SELECT coalesce(sum(tasks), 0) FROM counters";
    let tasks: i64 = conn.query_row(tasks, [], |row| row.get(0)).map_err(failed)?;
    let newest = "SELECT changed FROM tasks ORDER BY row DESC LIMIT 1";
    let newest: Option<i64> =
        conn.query_row(newest, [], |row| row.get(0)).optional().map_err(failed)?;
    Ok(Some(Inspection {
        bytes: file + log,
        in_use,
        unclosed: matches!(manner, Manner::WithLog),
        form,
        tasks: u64::try_from(tasks).unwrap_or(0),
        newest: newest.map(Timestamp::from_millis),
        health: check(&conn, patience).map_err(failed)?,
    }))
}

/// The damage that a short check finds, if any.
pub(super) fn damage(path: &Path) -> Option<OpenError> {
    match inspect(path, EXPLANATION) {
        Ok(Some(Inspection { health: Health::Damaged(faults), .. })) => {
            Some(damaged(path, &faults.join(", ")))
        }
        Ok(_) => None,
        Err(error @ OpenError::Damaged { .. }) => Some(explain(path, error)),
        Err(error @ OpenError::Corrupt { .. }) => Some(error),
        Err(_) => None,
    }
}

/// Adds to an error about damage which tables it is in.
pub(super) fn explain(path: &Path, error: OpenError) -> OpenError {
    let OpenError::Damaged { found, .. } = &error else { return error };
    let faults = connect(path, &Manner::Shared).and_then(|conn| check(&conn, EXPLANATION));
    match faults {
        Ok(Health::Damaged(faults)) => damaged(path, &format!("{found}, {}", faults.join(", "))),
        Ok(Health::Whole | Health::SoFar) | Err(_) => error,
    }
}

fn connect(path: &Path, manner: &Manner) -> rusqlite::Result<Connection> {
    // In a URI these three have a meaning of their own.
    let name = path.to_string_lossy().replace('%', "%25").replace('?', "%3f").replace('#', "%23");
    let how = match manner {
        Manner::Shared => "mode=ro",
        Manner::Alone => "mode=ro&immutable=1",
        // Without locks there is no file for them, and nobody is there to be locked out.
        Manner::WithLog => "mode=ro&vfs=unix-none",
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(format!("file:{name}?{how}"), flags)?;
    conn.busy_timeout(open::PATIENCE)?;
    if let Manner::WithLog = manner {
        // The log is somebody's last words: it is to be read, not to be worked into the file.
        conn.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        conn.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    }
    Ok(conn)
}

/// Reads all there is, for as long as there is time.
fn check(conn: &Connection, patience: Duration) -> rusqlite::Result<Health> {
    let interrupt = conn.get_interrupt_handle();
    let (done, wait) = mpsc::channel::<()>();
    let watch = std::thread::spawn(move || {
        // Over and over: what has not begun yet does not hear it.
        let mut pause = patience;
        while wait.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
            interrupt.interrupt();
            pause = Duration::from_millis(1);
        }
    });
    let mut faults = Vec::new();
    let read = read_faults(conn, &mut faults);
    drop(done);
    watch.join().expect("the watch does nothing that could panic");
    let is = |code| read.as_ref().is_err_and(|error| error.sqlite_error_code() == Some(code));
    if is(ErrorCode::DatabaseCorrupt) && faults.is_empty() {
        faults.extend(read.as_ref().err().map(ToString::to_string));
    }
    let faults: Vec<_> = faults.iter().flat_map(|fault| fault.lines()).collect();
    let faults = faults.into_iter().filter(|fault| !fault.starts_with("***") && *fault != "ok");
    let faults: Vec<_> = faults.map(|fault| named(conn, fault)).collect();
    match read {
        _ if !faults.is_empty() => Ok(Health::Damaged(faults)),
        Ok(()) => Ok(Health::Whole),
        Err(_) if is(ErrorCode::OperationInterrupted) => Ok(Health::SoFar),
        Err(error) => Err(error),
    }
}

/// Reads as many faults as there are, up to an error.
fn read_faults(conn: &Connection, faults: &mut Vec<String>) -> rusqlite::Result<()> {
    let mut check = conn.prepare(&format!("PRAGMA quick_check({FAULTS})"))?;
    let mut rows = check.query([])?;
    while let Some(row) = rows.next()? {
        faults.push(row.get(0)?);
    }
    Ok(())
}

/// A fault with the name of its table or index, of which SQLite says only the number: `Tree 7 page …`.
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

/// Whether a process has the database. The lock is let go at once, or a server that starts now
/// would be refused.
fn is_locked(path: &Path) -> Result<bool, OpenError> {
    let file = match File::open(beside(path, ".lock")) {
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
