//! Opening of a database: directory lock, integrity checks and migrations.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use refinery::{Migration, error::Kind};
use rusqlite::{Connection, OpenFlags, OptionalExtension, config::DbConfig};

use crate::store::MemberId;

use super::{
    append::NextNumbers,
    error::{OpenError, corrupt, damaged, refuse, unwritable},
    files::Files,
    members,
    rows::Fault,
};

refinery::embed_migrations!("src/store/sqlite/migrations");

/// The application id "HRLD", which the first migration sets.
const APPLICATION_ID: i64 = 0x4852_4c44;

/// The SQLite busy timeout: a read-only program may block us this long before a call fails.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest wait for the directory lock. After a server was killed, its child may still hold the
/// lock between clone and exec.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// The pause between two attempts to lock.
const LOCK_RETRY: Duration = Duration::from_millis(20);

/// The required tables.
const TABLES: [&str; 22] = [
    "agents",
    "api_keys",
    "audit",
    "causes",
    "commits",
    "conversation_locks",
    "counters",
    "dedup",
    "events",
    "label_sets",
    "members",
    "meta",
    "owners",
    "presence",
    "registrations",
    "serial_heads",
    "serial_queue",
    "snapshots",
    "tasks",
    "webhook_attempts",
    "webhook_counts",
    "webhooks",
];

/// The directory lock, which excludes other processes. The system releases it when the process
/// ends.
#[derive(Debug)]
pub(super) struct DirectoryLock(#[expect(dead_code, reason = "held, never read")] File);

/// A locked and migrated database.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) conn: Connection,
    pub(super) next: NextNumbers,
    pub(super) secret: [u8; 32],
    /// The members that outlive a process: workers.
    pub(super) members: Vec<MemberId>,
    /// `None` in memory.
    pub(super) files: Option<Files>,
}

/// Takes the directory lock, and creates the directory if necessary. Blocks for at most
/// [`LOCK_WAIT`].
pub(super) fn lock(path: &Path) -> Result<DirectoryLock, OpenError> {
    let unwritable = |error: io::Error| unwritable(path, &error.to_string());
    if let Some(directory) = path.parent() {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(directory).map_err(unwritable)?;
    }
    let file = private_file().open(sibling(path, ".lock")).map_err(unwritable)?;
    wait_for_lock(path, || file.try_lock())?;
    Ok(DirectoryLock(file))
}

/// Fails if another process holds the directory lock. Creates no file and keeps no lock.
pub(super) fn check_unused(path: &Path) -> Result<(), OpenError> {
    match File::open(sibling(path, ".lock")) {
        Ok(file) => wait_for_lock(path, || file.try_lock_shared()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(unwritable(path, &error.to_string())),
    }
}

#[expect(clippy::disallowed_methods, reason = "a file lock cannot be awaited with a timeout")]
fn wait_for_lock(
    path: &Path,
    attempt: impl Fn() -> Result<(), TryLockError>,
) -> Result<(), OpenError> {
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(LOCK_RETRY);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse { path: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(unwritable(path, &error.to_string())),
        }
    }
}

/// Options for files that are created here, because SQLite would create them readable for all
/// users.
fn private_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    options
}

/// Makes the files of a database readable for their owner only. SQLite creates further files with
/// the mode of the database.
fn protect(path: &Path) -> Result<(), OpenError> {
    let unwritable = |error: io::Error| unwritable(path, &error.to_string());
    private_file().open(path).map_err(unwritable)?;
    for file in ["", "-wal", "-shm", ".lock"].map(|ending| sibling(path, ending)) {
        let mode = match fs::metadata(&file) {
            Ok(found) => found.permissions().mode() & 0o777,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(unwritable(error)),
        };
        if mode & 0o077 == 0 {
            continue;
        }
        // A file of another user cannot be changed here; that user must protect it.
        if let Err(error) = fs::set_permissions(&file, Permissions::from_mode(mode & 0o700)) {
            let file = file.display();
            tracing::warn!(%file, %error, "other users may read this file; run chmod 600 on it");
        }
    }
    Ok(())
}

pub(super) fn sibling(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.to_owned().into_os_string();
    name.push(ending);
    name.into()
}

/// Opens a file under its directory lock. A write-ahead log that grew past `cap` is truncated to
/// it.
pub(super) fn file(path: &Path, cap: u64) -> Result<Opened, OpenError> {
    inspect(path)?;
    protect(path)?;
    let failed = |error| refuse(path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags).map_err(failed)?;
    conn.busy_timeout(BUSY_TIMEOUT).map_err(failed)?;
    if conn.is_readonly("main").map_err(failed)? {
        return Err(unwritable(path, "it is read-only"));
    }
    // Before any change: the file may belong to another program.
    check_owner(&conn, path)?;
    let mode = "PRAGMA journal_mode = WAL";
    let mode: String = conn.query_row(mode, [], |row| row.get(0)).map_err(failed)?;
    if mode != "wal" {
        return Err(unwritable(path, "its file system has no shared memory"));
    }
    // FULL: a commit returns once the data is on the disk. Checkpoints run in `checkpoint.rs`.
    // `fullfsync` is required for the same guarantee on macOS.
    conn.execute_batch(
        "PRAGMA synchronous = FULL;
         PRAGMA fullfsync = ON;
         PRAGMA wal_autocheckpoint = 0;",
    )
    .map_err(failed)?;
    let cap = i64::try_from(cap).unwrap_or(i64::MAX);
    conn.pragma_update_and_check(None, "journal_size_limit", cap, |_| Ok(())).map_err(failed)?;
    let opened = prepare(conn, path)?;
    // After the first read, which creates the write-ahead log.
    let files = Files::of(path).map_err(|error| unwritable(path, &error.to_string()))?;
    Ok(Opened { files: Some(files), ..opened })
}

/// A database in memory, which is lost when its connection is closed.
pub(super) fn memory() -> Result<Opened, OpenError> {
    let path = Path::new("memory");
    let failed = |error| refuse(path, &error);
    let conn = Connection::open_in_memory().map_err(failed)?;
    conn.execute_batch("PRAGMA synchronous = OFF").map_err(failed)?;
    prepare(conn, path)
}

/// A read-only connection to the open file, with a cache of this many KiB.
pub(super) fn reader(path: &Path, cache: i64) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(path, flags)?;
    conn.busy_timeout(BUSY_TIMEOUT)?;
    configure(&conn, cache)?;
    Ok(conn)
}

/// A connection to the open file for checkpoints. Its busy timeout is short, because the writer
/// waits for it.
pub(super) fn checkpointer(path: &Path) -> Result<Connection, OpenError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let conn = Connection::open_with_flags(path, flags)?;
        conn.busy_timeout(Duration::from_millis(250))?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "fullfsync", true)?;
        conn.pragma_update(None, "checkpoint_fullfsync", true)?;
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        configure(&conn, 256)?;
        Ok(conn)
    };
    open().map_err(|error| refuse(path, &error))
}

fn prepare(mut conn: Connection, path: &Path) -> Result<Opened, OpenError> {
    let failed = |error| refuse(path, &error);
    configure(&conn, 4096).map_err(failed)?;
    migrate(&mut conn, path)?;
    check_whole(&conn, path)?;
    end_last_process(&mut conn).map_err(failed)?;
    let members =
        members::living(&conn).map_err(|Fault(error)| damaged(path, &error.to_string()))?;
    let members = members.into_iter().map(|member| member.id).collect();
    let secret = secret(&conn).map_err(failed)?;
    let next = NextNumbers {
        row: next(&conn, "row", "SELECT max(row) FROM tasks").map_err(failed)?,
        position: next(&conn, "position", "SELECT max(position) FROM events").map_err(failed)?,
    };
    Ok(Opened { conn, next, secret, members, files: None })
}

/// Settings of every connection. The cache size is in KiB.
fn configure(conn: &Connection, cache: i64) -> rusqlite::Result<()> {
    conn.set_prepared_statement_cache_capacity(64);
    // Without this setting SQLite plans by parameter values and compiles a statement again whenever
    // they change, which costs several times as much as running it.
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    conn.pragma_update(None, "cache_size", -cache)?;
    conn.execute_batch("PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF")
}

/// Rejects a file that is not a database, or only part of one. Reads only its header.
pub(super) fn inspect(path: &Path) -> Result<(), OpenError> {
    let unwritable = |error: io::Error| unwritable(path, &error.to_string());
    let length = match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            return Err(super::error::unwritable(path, "it is a directory"));
        }
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(unwritable(error)),
    };
    let logged = fs::metadata(sibling(path, "-wal")).map_or(0, |log| log.len());
    if length == 0 {
        // An empty file is new, unless it has a write-ahead log.
        let problem = "its file is empty but its write-ahead log is not";
        return if logged == 0 { Ok(()) } else { Err(corrupt(path, problem)) };
    }
    let mut header = [0; 100];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
    match read {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(corrupt(path, "it is not an SQLite database"));
        }
        Err(error) => return Err(unwritable(error)),
    }
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(corrupt(path, "it is not an SQLite database"));
    }
    let number = |at: usize| header[at..].iter().take(4).fold(0, |n, b| (n << 8) | u64::from(*b));
    let page = match number(16) >> 16 {
        1 => 65536,
        size => size,
    };
    // While there is a write-ahead log, the last pages may be in the log only.
    if logged == 0 && length < page * number(28) {
        return Err(corrupt(path, "its end is missing"));
    }
    Ok(())
}

pub(super) fn check_owner(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let failed = |error| refuse(path, &error);
    let owner = "PRAGMA application_id";
    let owner: i64 = conn.query_row(owner, [], |row| row.get(0)).map_err(failed)?;
    // An interrupted first start may have created the empty table of migrations.
    let foreign = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' \
                   AND name <> 'refinery_schema_history'";
    let foreign: i64 = conn.query_row(foreign, [], |row| row.get(0)).map_err(failed)?;
    if owner == APPLICATION_ID || (owner == 0 && foreign == 0) {
        return Ok(());
    }
    Err(corrupt(path, "it is the database of another program"))
}

/// Migrates the schema, unless it is newer than this version.
fn migrate(conn: &mut Connection, path: &Path) -> Result<(), OpenError> {
    if is_current(conn, path)? {
        return Ok(());
    }
    // Grouped: a migration and its entry in the history are one transaction.
    let run = migrations::runner().set_grouped(true).run(conn);
    run.map_err(|error| unmigrated(conn, path, &error))?;
    put_meta(conn, "version", env!("CARGO_PKG_VERSION")).map_err(|error| refuse(path, &error))
}

/// The error for a failed migration: of the disk, or of the content of the database.
fn unmigrated(conn: &Connection, path: &Path, error: &refinery::Error) -> OpenError {
    let Kind::Connection(_, cause) = error.kind() else {
        return diverged(conn, path, &error.to_string());
    };
    match cause.downcast_ref::<rusqlite::Error>() {
        // For example a table that already exists.
        Some(rusqlite::Error::SqlInputError { msg, .. }) => {
            let applied = applied(conn).unwrap_or_default();
            let runner = migrations::runner();
            let missing = |known: &&Migration| !applied.contains_key(&i64::from(known.version()));
            let next = runner.get_migrations().iter().filter(missing).min_by_key(|m| m.version());
            let next = next.map(title).unwrap_or_default();
            diverged(conn, path, &format!("the migration {next} cannot be made: {msg}"))
        }
        Some(error) => refuse(path, error),
        None => unwritable(path, &error.to_string()),
    }
}

/// The version of the schema that this program creates.
pub(super) fn schema_version() -> u32 {
    let newest = migrations::runner().get_migrations().iter().map(Migration::version).max();
    newest.and_then(|version| u32::try_from(version).ok()).unwrap_or(0)
}

/// The applied migrations, by number, with their checksums.
fn applied(conn: &Connection) -> rusqlite::Result<BTreeMap<i64, String>> {
    let started = "SELECT count(*) FROM sqlite_schema WHERE name = 'refinery_schema_history'";
    if conn.query_row(started, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(BTreeMap::new());
    }
    let mut read = conn.prepare("SELECT version, checksum FROM refinery_schema_history")?;
    let found = read.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    found.collect()
}

/// The name of a migration for people: `V2 (presence)`.
fn title(migration: &Migration) -> String {
    format!("V{} ({})", migration.version(), migration.name())
}

/// The error for a schema that no version of this program creates.
fn diverged(conn: &Connection, path: &Path, problem: &str) -> OpenError {
    OpenError::Diverged {
        path: path.to_owned(),
        problem: problem.to_owned(),
        made_by: made_by(conn).unwrap_or("an unknown herald".into()),
    }
}

/// The version that wrote the database last.
fn made_by(conn: &Connection) -> Option<String> {
    let version: Option<String> = meta(conn, "version").unwrap_or_default();
    version.map(|number| format!("herald {number}"))
}

/// True if the schema is that of this version, false if it is older. A newer schema is refused, and
/// so is one with different migrations.
pub(super) fn is_current(conn: &Connection, path: &Path) -> Result<bool, OpenError> {
    let failed = |error| refuse(path, &error);
    let runner = migrations::runner();
    let ours = runner.get_migrations();
    let newest = ours.iter().map(|migration| i64::from(migration.version())).max();
    let applied = applied(conn).map_err(failed)?;
    let last = applied.keys().next_back().copied();
    if let (Some(found), Some(known)) = (last, newest)
        && found > known
    {
        let (path, made_by) = (path.to_owned(), made_by(conn).unwrap_or("a newer herald".into()));
        return Err(OpenError::Newer { path, found, known, made_by });
    }
    for known in ours.iter().filter(|known| Some(i64::from(known.version())) <= last) {
        let problem = match applied.get(&i64::from(known.version())) {
            None => format!("it lacks the migration {} and has a later one", title(known)),
            Some(checksum) if *checksum != known.checksum().to_string() => {
                format!("it was made with another {} than this version has", title(known))
            }
            Some(_) => continue,
        };
        return Err(diverged(conn, path, &problem));
    }
    Ok(last == newest)
}

pub(super) fn check_whole(conn: &Connection, path: &Path) -> Result<(), OpenError> {
    let mut find = conn
        .prepare("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1")
        .map_err(|error| refuse(path, &error))?;
    for table in TABLES {
        if !find.exists([table]).map_err(|error| refuse(path, &error))? {
            return Err(corrupt(path, "parts of it are missing"));
        }
    }
    Ok(())
}

/// Removes the state of the last process, which has ended, as the directory lock proves: its nodes,
/// the conversation locks of members that no longer exist, the claims of webhooks, and the serial
/// queues, which are built again for the agents that are serial now. Writes nothing if there is nothing to remove, so that
/// a database on a full disk can be opened.
fn end_last_process(conn: &mut Connection) -> rusqlite::Result<()> {
    let any = "SELECT EXISTS (SELECT 1 FROM members WHERE kind <> 1)
               OR EXISTS (SELECT 1 FROM conversation_locks)
               OR EXISTS (SELECT 1 FROM serial_queue)
               OR EXISTS (SELECT 1 FROM webhooks WHERE holder IS NOT NULL)";
    if conn.query_row(any, [], |row| row.get(0))? {
        let transaction = conn.transaction()?;
        transaction.execute_batch(
            "DELETE FROM members WHERE kind <> 1;
             DELETE FROM conversation_locks WHERE member NOT IN (SELECT id FROM members);
             DELETE FROM serial_queue;
             DELETE FROM serial_heads;
             UPDATE webhooks SET holder = NULL WHERE holder IS NOT NULL;",
        )?;
        transaction.commit()?;
    }
    Ok(())
}

fn secret(conn: &Connection) -> rusqlite::Result<[u8; 32]> {
    if let Some(secret) = meta(conn, "secret")? {
        return Ok(secret);
    }
    let mut random = blake3::Hasher::new();
    for _ in 0..4 {
        random.update(uuid::Uuid::new_v4().as_bytes());
    }
    let secret = *random.finalize().as_bytes();
    put_meta(conn, "secret", secret)?;
    Ok(secret)
}

/// The first number that was never used.
fn next(conn: &Connection, key: &str, last: &str) -> rusqlite::Result<i64> {
    let last: Option<i64> = conn.query_row(last, [], |row| row.get(0))?;
    let mark: Option<i64> = meta(conn, key)?;
    // A damaged number must not stop the start.
    Ok(mark.unwrap_or(1).max(last.unwrap_or(0).saturating_add(1)))
}

fn meta<T: rusqlite::types::FromSql>(conn: &Connection, key: &str) -> rusqlite::Result<Option<T>> {
    conn.query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0)).optional()
}

fn put_meta(conn: &Connection, key: &str, value: impl rusqlite::ToSql) -> rusqlite::Result<()> {
    conn.execute(super::statements::PUT_META, (key, value)).map(|_| ())
}
