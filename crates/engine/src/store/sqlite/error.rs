//! Errors of opening a database, each with its remedy.

use std::{
    io,
    path::{Path, PathBuf},
};

use rusqlite::ErrorCode;

/// The reason why a database cannot be opened. Each text states the problem and a remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it open.
    #[error(
        "{} is in use by another herald; stop that one, or give this one its own directory with \
         --data", path.display()
    )]
    InUse {
        /// The database.
        path: PathBuf,
    },
    /// A newer version has migrated it.
    #[error(
        "{} has version {found} of the database schema, written by {made_by}, and this herald ({}) \
         is too old for it: it reads versions up to {known}; install a newer herald, restore a copy \
         from before the upgrade, or choose another directory with --data",
        path.display(), env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// The database.
        path: PathBuf,
        /// The version of its schema.
        found: i64,
        /// The newest version of the schema that this program reads.
        known: i64,
        /// The version that wrote it last.
        made_by: String,
    },
    /// Its migrations differ from those of this version.
    #[error(
        "{} cannot be used: {problem} (last written by {made_by}, this is herald {}); restore it \
         from a backup, start it with the build that wrote it, or point --data elsewhere",
        path.display(), env!("CARGO_PKG_VERSION")
    )]
    Diverged {
        /// The database.
        path: PathBuf,
        /// The migration that is missing or different.
        problem: String,
        /// The version that wrote it last.
        made_by: String,
    },
    /// Some of its pages are damaged.
    #[error(
        "{} cannot be read, it is damaged: {found}; restore it from a backup (`herald \
         doctor` checks a file, `sqlite3 {} .recover` prints what can be saved as SQL), or move \
         it away to start with an empty one",
        path.display(), path.display()
    )]
    Damaged {
        /// The database.
        path: PathBuf,
        /// SQLite's message, and the affected tables.
        found: String,
    },
    /// The file is incomplete or not a database.
    #[error(
        "{} cannot be read: {problem}; restore it from a backup, or move it away to start with an \
         empty one", path.display()
    )]
    Corrupt {
        /// The database.
        path: PathBuf,
        /// The problem.
        problem: String,
    },
    /// The file cannot be written.
    #[error(
        "{} cannot be written: {problem}; make it writable and make sure that there is room, or \
         point --data elsewhere", path.display()
    )]
    Unwritable {
        /// The database or its directory.
        path: PathBuf,
        /// The error of the system.
        problem: String,
    },
    /// The system refused to start a thread.
    #[error("no thread could be started for the database: {0}; raise the limit on threads")]
    Thread(io::Error),
}

/// The error for a failed SQLite call while a database is opened.
pub(super) fn refuse(path: &Path, error: &rusqlite::Error) -> OpenError {
    match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => corrupt(path, "it is not an SQLite database"),
        Some(ErrorCode::DatabaseCorrupt) | None => damaged(path, &error.to_string()),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            unwritable(path, "another program is writing to it")
        }
        Some(ErrorCode::DiskFull) => unwritable(path, "the disk is full"),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            unwritable(path, "it is read-only")
        }
        Some(_) => unwritable(path, &error.to_string()),
    }
}

pub(super) fn corrupt(path: &Path, problem: &str) -> OpenError {
    OpenError::Corrupt { path: path.to_owned(), problem: problem.to_owned() }
}

pub(super) fn damaged(path: &Path, found: &str) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), found: found.to_owned() }
}

pub(super) fn unwritable(path: &Path, problem: &str) -> OpenError {
    OpenError::Unwritable { path: path.to_owned(), problem: problem.to_owned() }
}
