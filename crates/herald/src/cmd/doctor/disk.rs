//! Check of the disk: free space, writes, commit time and file system.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytesize::ByteSize;
use rustix::fs::statvfs;

use crate::serve::settings::{ServerSettings, StoreKind};

use super::Finding;

const CHECK: &str = "disk";

/// Free bytes below which the check fails, and below which it warns.
const TOO_LITTLE: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;
/// The commit time above which the check warns, since every acknowledgement waits for a commit.
const SLOW: Duration = Duration::from_millis(250);

/// File systems with unreliable locks or commits, by their magic number.
#[cfg(target_os = "linux")]
const UNRELIABLE: [(i64, &str); 6] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];

/// Checks the disk of the store, which may not exist yet.
pub(super) async fn check(settings: &ServerSettings) -> Option<Finding> {
    let StoreKind::Sqlite(path) = &settings.store else { return None };
    let wanted = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let wanted = wanted.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let checked = tokio::task::spawn_blocking(move || check_directory(&wanted)).await;
    Some(checked.expect("the check does not panic"))
}

fn check_directory(wanted: &Path) -> Finding {
    // The start creates missing directories.
    let place = std::path::absolute(wanted).unwrap_or_else(|_| wanted.to_owned());
    let directory = place.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let shown = directory.display();
    let took = match write(directory) {
        Ok(took) => took,
        Err(fault) => {
            let remedy = "make it writable for the user that runs the server, free disk space, or choose \
                          another directory with --data";
            return Finding::fail(CHECK, format!("{shown} cannot be written: {fault}"), remedy);
        }
    };
    let Ok(free) = statvfs(directory).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize))
    else {
        return Finding::ok(CHECK, format!("{shown} can be written"));
    };
    let time = humantime::format_duration(Duration::from_millis(millis(took)));
    let seen = format!("{shown} can be written, {} free, a commit takes {time}", ByteSize(free));
    if free < TOO_LITTLE {
        return Finding::fail(CHECK, seen, "free disk space: without it, no task can be accepted");
    }
    if let Some(kind) = unreliable(directory) {
        let seen = format!("{seen}; it is on {kind}");
        let remedy = match kind {
            "tmpfs" | "ramfs" => "the data is lost when the machine stops: use a disk",
            _ => "locks and commits are unreliable there: use a local disk",
        };
        return Finding::warn(CHECK, seen, remedy);
    }
    if free < LITTLE {
        let remedy = "free disk space soon, or lower [store] retention.bytes";
        return Finding::warn(CHECK, seen, remedy);
    }
    if took > SLOW {
        return Finding::warn(CHECK, seen, "every response waits for a commit: use a faster disk");
    }
    Finding::ok(CHECK, seen)
}

/// Writes, commits and removes a test file, and returns the time of the commit.
fn write(directory: &Path) -> io::Result<Duration> {
    let path = directory.join(format!(".herald-doctor-{}", std::process::id()));
    let begun = Instant::now();
    let written = File::create_new(&path).and_then(|mut file| {
        file.write_all(&[0x5a; 4096])?;
        file.sync_all()?;
        File::open(directory)?.sync_all()
    });
    let took = begun.elapsed();
    let removed = fs::remove_file(&path);
    written.and(removed).map(|()| took)
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX).max(1)
}

/// The name of the file system, if its locks or commits are unreliable.
#[cfg(target_os = "linux")]
fn unreliable(directory: &Path) -> Option<&'static str> {
    let number = rustix::fs::statfs(directory).ok()?.f_type;
    UNRELIABLE.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
fn unreliable(_: &Path) -> Option<&'static str> {
    None
}
