//! Status of the store: sizes, free disk, totals.

use std::{fs, path::Path};

use herald_protocol::Timestamp;
use rusqlite::Connection;

use crate::store::{Scope, StoreStatus};

use super::{
    audit,
    open::{schema_version, sibling},
    owners,
    rows::{Fault, first},
    statements as sql,
};

/// The status of a database. A path is `None` in memory.
pub(super) fn status(conn: &Connection, path: Option<&Path>) -> Result<StoreStatus, Fault> {
    let oldest = first(conn, sql::OLDEST_COMMIT, [], |row| row.get(0))?;
    let length = |path: &Path| fs::metadata(path).map_or(0, |file| file.len());
    Ok(StoreStatus {
        bytes: path.map_or(0, length),
        log_bytes: path.map_or(0, |path| length(&sibling(path, "-wal"))),
        free_bytes: path.and_then(free_bytes),
        schema: schema_version(),
        usage: owners::usage(conn, &Scope::All)?,
        oldest: oldest.map(Timestamp::from_millis),
        audit: audit::ends(conn)?,
    })
}

/// The free bytes of the disk that this user may fill.
fn free_bytes(path: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}
