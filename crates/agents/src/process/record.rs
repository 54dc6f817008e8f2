//! Records of running programs on disk, so that a server that was killed finds them at its next start.
//!
//! The marks in their environment are not enough: some programs overwrite it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::process_tree::{ProcessIdentity, boot_id};

/// One run of the server: the name of a directory with an empty file for each of its programs.
#[derive(Debug, Clone)]
pub(crate) struct ServerRun {
    /// Prefix of the marks of its programs.
    pub(crate) id: String,
    /// The server's own process.
    server: ProcessIdentity,
    /// Id of the machine's boot; no process survives another boot.
    boot: String,
}

impl ServerRun {
    /// This run. `None` where the system does not identify processes and boots.
    pub(crate) fn own(id: &str) -> Option<Self> {
        Some(Self { id: id.to_owned(), server: ProcessIdentity::own()?, boot: boot_id()? })
    }

    /// Earlier runs with records here that have ended, and their directories.
    pub(crate) fn earlier(records: &Path) -> io::Result<Vec<(Self, PathBuf)>> {
        let found = match fs::read_dir(records) {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let mut runs = Vec::new();
        for entry in found {
            let entry = entry?;
            let run = entry.file_name().to_str().and_then(Self::parse);
            // A copied directory may name a server that still runs on the original.
            if let Some(run) = run.filter(|run| !run.is_alive()) {
                runs.push((run, entry.path()));
            }
        }
        Ok(runs)
    }

    /// Recorded programs of this run that are still alive.
    pub(crate) fn survivors(&self, path: &Path) -> Vec<ProcessIdentity> {
        if boot_id().as_ref() != Some(&self.boot) {
            return Vec::new();
        }
        let found = fs::read_dir(path).into_iter().flatten().flatten();
        let programs = found.filter_map(|entry| identity(entry.file_name().to_str()?));
        programs.filter(|program| program.is_alive()).collect()
    }

    /// The directory of its records.
    pub(crate) fn path(&self, records: &Path) -> PathBuf {
        records.join(format!("{}.{}.{}", self.id, name(self.server), self.boot))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (id, server, boot) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { id: id.to_owned(), server: identity(server)?, boot: boot.to_owned() })
    }

    fn is_alive(&self) -> bool {
        boot_id().as_ref() == Some(&self.boot) && self.server.is_alive()
    }
}

/// The file name of a program's record.
pub(crate) fn name(identity: ProcessIdentity) -> String {
    format!("{}-{}", identity.pid, identity.start)
}

fn identity(text: &str) -> Option<ProcessIdentity> {
    let (pid, start) = text.split_once('-')?;
    Some(ProcessIdentity { pid: pid.parse().ok()?, start: start.parse().ok()? })
}
