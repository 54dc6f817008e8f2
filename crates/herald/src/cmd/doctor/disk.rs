//! Whether there is room, and whether what is written is kept.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytesize::ByteSize;
use rustix::fs::statvfs;

use crate::serve::settings::{Settings, StoreKind};

use super::Finding;

const CHECK: &str = "disk";

/// Room below which the server will soon refuse to write, and room below which to look after it.
const TOO_LITTLE: u64 = 64 << 20;
const LITTLE: u64 = 1 << 30;
/// Every acknowledgement waits for the disk so long.
const SLOW: Duration = Duration::from_millis(250);

/// File systems on which locks or commits do not hold what they promise, by the system's number.
#[cfg(target_os = "linux")]
const STRANGE: [(i64, &str); 6] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];

/// Looks at the disk that the store is on, or will be.
pub(super) async fn check(settings: &Settings) -> Option<Finding> {
    let StoreKind::Sqlite(path) = &settings.store else { return None };
    let wanted = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let wanted = wanted.map_or_else(|| PathBuf::from("."), Path::to_owned);
    let looked = tokio::task::spawn_blocking(move || look(&wanted)).await;
    Some(looked.expect("looking does not panic"))
}

fn look(wanted: &Path) -> Finding {
    // Directories that are not there yet are made at the start.
    let place = std::path::absolute(wanted).unwrap_or_else(|_| wanted.to_owned());
    let directory = place.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let shown = directory.display();
    let took = match write(directory) {
        Ok(took) => took,
        Err(fault) => {
            let remedy = "make it writable for the user that runs the server, make room, or choose \
                          another place with --data";
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
        return Finding::fail(CHECK, seen, "make room: without it, nothing can be accepted");
    }
    if let Some(kind) = strange(directory) {
        let seen = format!("{seen}; it is on {kind}");
        let remedy = match kind {
            "tmpfs" | "ramfs" => "it is lost when the machine stops: put the data on a disk",
            _ => "locks and commits cannot be relied on there: put the data on a local disk",
        };
        return Finding::warn(CHECK, seen, remedy);
    }
    if free < LITTLE {
        let remedy = "make room soon, or lower [store] retention.bytes";
        return Finding::warn(CHECK, seen, remedy);
    }
    if took > SLOW {
        return Finding::warn(CHECK, seen, "every answer waits for it: use a faster disk");
    }
    Finding::ok(CHECK, seen)
}

/// Puts a file of our own on the disk as the store would, and takes it away again.
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

/// The name of a file system that the store cannot rely on.
#[cfg(target_os = "linux")]
fn strange(directory: &Path) -> Option<&'static str> {
    let number = rustix::fs::statfs(directory).ok()?.f_type;
    STRANGE.iter().find(|(strange, _)| *strange == number).map(|(_, name)| *name)
}

#[cfg(not(target_os = "linux"))]
fn strange(_: &Path) -> Option<&'static str> {
    None
}
