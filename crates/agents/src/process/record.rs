//! Records of running programs on disk, so that a server that was killed finds them at its next start.
//!
//! The marks in their environment would do if programs left that alone; some write over it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::process_tree::Identity;

/// One life of the server, as the name of a directory with an empty file for each of its programs.
#[derive(Debug, Clone)]
pub(crate) struct ServerRun {
    /// How the marks of its programs begin.
    pub(crate) id: String,
    /// The server's own process.
    server: Identity,
    /// Which start of the machine it is of; nothing survives another one.
    boot: String,
}

impl ServerRun {
    /// This one. `None` where the kernel does not tell.
    pub(crate) fn own(id: &str) -> Option<Self> {
        Some(Self { id: id.to_owned(), server: Identity::own()?, boot: boot()? })
    }

    /// Those that were written down here, and cannot be going on.
    pub(crate) fn earlier(records: &Path) -> io::Result<Vec<(Self, PathBuf)>> {
        let found = match fs::read_dir(records) {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            found => found?,
        };
        let mut lives = Vec::new();
        for entry in found {
            let entry = entry?;
            let life = entry.file_name().to_str().and_then(Self::parse);
            // A directory that was copied may speak of a server that runs elsewhere.
            if let Some(life) = life.filter(|life| !life.goes_on()) {
                lives.push((life, entry.path()));
            }
        }
        Ok(lives)
    }

    /// Its programs that still run, as far as they were written down.
    pub(crate) fn left(&self, path: &Path) -> Vec<Identity> {
        if boot().as_ref() != Some(&self.boot) {
            return Vec::new();
        }
        let found = fs::read_dir(path).into_iter().flatten().flatten();
        let programs = found.filter_map(|entry| identity(entry.file_name().to_str()?));
        programs.filter(|program| program.is_alive()).collect()
    }

    /// Where its programs are written down.
    pub(crate) fn path(&self, records: &Path) -> PathBuf {
        records.join(format!("{}.{}.{}", self.id, name(self.server), self.boot))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '.');
        let (id, server, boot) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Self { id: id.to_owned(), server: identity(server)?, boot: boot.to_owned() })
    }

    fn goes_on(&self) -> bool {
        boot().as_ref() == Some(&self.boot) && self.server.is_alive()
    }
}

/// The name of a program's file.
pub(crate) fn name(identity: Identity) -> String {
    format!("{}-{}", identity.pid, identity.start)
}

fn identity(text: &str) -> Option<Identity> {
    let (pid, start) = text.split_once('-')?;
    Some(Identity { pid: pid.parse().ok()?, start: start.parse().ok()? })
}

fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
}
