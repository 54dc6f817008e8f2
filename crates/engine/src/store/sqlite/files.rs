//! Identity of the database files. It detects that an open file was removed or replaced: SQLite
//! would continue to write to a file that no later start can find.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::store::StoreError;

use super::{open::sibling, rows::Fault};

/// The files that contain tasks, each with its device and inode.
#[derive(Debug)]
pub(super) struct Files(Vec<(PathBuf, (u64, u64))>);

impl Files {
    /// The files of a database that is open for writing, and therefore has a write-ahead log.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let files = [path.to_owned(), sibling(path, "-wal")];
        let known = files.map(|file| identity(&file).map(|identity| (file, identity)));
        Ok(Self(known.into_iter().collect::<io::Result<_>>()?))
    }

    /// Fails if a path no longer leads to the open file.
    pub(super) fn check(&self) -> Result<(), Fault> {
        for (path, known) in &self.0 {
            if identity(path).ok() != Some(*known) {
                return Err(Fault(StoreError::Unavailable(format!(
                    "{} was removed or replaced while herald runs, so that what is written now \
                     would be lost; put the same files back, or restore a backup and restart herald",
                    path.display()
                ))));
            }
        }
        Ok(())
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}
