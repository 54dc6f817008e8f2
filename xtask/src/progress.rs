//! Progress output: numbered steps with elapsed time, and a line every few seconds.

use std::{
    collections::HashSet,
    fmt::Display,
    fs,
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

/// The longest time without a line on the terminal.
pub(crate) const INTERVAL: Duration = Duration::from_secs(10);

/// The steps of one command. Their total grows when further steps become known.
#[derive(Default)]
pub(crate) struct Steps {
    begun: AtomicUsize,
    total: AtomicUsize,
}

/// A running step.
pub(crate) struct Step<'a> {
    steps: &'a Steps,
    number: usize,
    name: String,
    begun: Instant,
    measure: Measure,
}

/// The figure that shows how far a step is.
pub(crate) enum Measure {
    /// Bytes in a directory that fills up.
    Directory(PathBuf),
    /// Finished items, and the newest of them.
    Count { of: &'static str, done: AtomicUsize, newest: Mutex<String> },
}

impl Steps {
    pub(crate) fn expect(&self, more: usize) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    /// Runs one step and prints its beginning, its progress and its end.
    pub(crate) fn run<T>(
        &self,
        name: impl Into<String>,
        measure: Measure,
        work: impl FnOnce(&Step<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
        let step = Step { steps: self, number, name: name.into(), begun: Instant::now(), measure };
        step.say("…");
        let result = thread::scope(|scope| {
            let (end, ended) = mpsc::sync_channel::<()>(0);
            let step = &step;
            scope.spawn(move || {
                while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    step.say(format!(": {}, {}", time(step.begun.elapsed()), step.measure.text()));
                }
            });
            let result = work(step);
            drop(end);
            result
        });
        let took = time(step.begun.elapsed());
        match &result {
            Ok(_) => step.say(format!(": done in {took}, {}", step.measure.text())),
            Err(error) => step.say(format!(": FAILED after {took}: {error:#}")),
        }
        result
    }
}

impl Step<'_> {
    pub(crate) fn say(&self, text: impl Display) {
        let total = self.steps.total.load(Ordering::Relaxed).max(self.number);
        say(format!("[{}/{total}] {}{text}", self.number, self.name));
    }

    /// One more item is finished.
    pub(crate) fn count(&self, item: &str) {
        if let Measure::Count { done, newest, .. } = &self.measure {
            done.fetch_add(1, Ordering::Relaxed);
            item.clone_into(&mut newest.lock().expect("nobody panics with it"));
        }
    }
}

impl Measure {
    pub(crate) fn count(of: &'static str) -> Self {
        Self::Count { of, done: AtomicUsize::new(0), newest: Mutex::default() }
    }

    fn text(&self) -> String {
        match self {
            Self::Directory(path) => size(bytes(path)),
            Self::Count { of, done, newest } => {
                let newest = newest.lock().expect("nobody panics with it");
                let last = if newest.is_empty() { "" } else { ", the last: " };
                format!("{} {of}{last}{newest}", done.load(Ordering::Relaxed))
            }
        }
    }
}

/// One line on standard error: the results of the tests are on standard output.
pub(crate) fn say(text: impl Display) {
    // A closed standard error must not stop the work.
    drop(writeln!(io::stderr(), "xtask: {text}"));
}

/// Bytes on disk below a path, each hard link counted once. Entries that are removed meanwhile are not counted.
pub(crate) fn bytes(path: &Path) -> u64 {
    fn below(path: &Path, seen: &mut HashSet<(u64, u64)>) -> u64 {
        let Ok(about) = fs::symlink_metadata(path) else { return 0 };
        if about.is_dir() {
            let Ok(entries) = fs::read_dir(path) else { return 0 };
            return entries.flatten().map(|entry| below(&entry.path(), seen)).sum();
        }
        let is_counted = about.nlink() > 1 && !seen.insert((about.dev(), about.ino()));
        // The kernel counts blocks of 512 bytes, whatever the file system's own are.
        if is_counted { 0 } else { about.blocks() * 512 }
    }
    below(path, &mut HashSet::new())
}

/// A number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    let megabytes = bytes as f64 / 1e6;
    if megabytes < 1000.0 {
        format!("{megabytes:.0} MB")
    } else {
        format!("{:.1} GB", megabytes / 1e3)
    }
}

/// A duration for people.
pub(crate) fn time(duration: Duration) -> String {
    let seconds = duration.as_secs();
    if seconds < 60 {
        format!("{seconds} s")
    } else {
        format!("{} min {} s", seconds / 60, seconds % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_for_people() {
        assert_eq!(
            (size(1_234_567), size(5_900_000_000)),
            ("1 MB".to_owned(), "5.9 GB".to_owned())
        );
        assert_eq!(time(Duration::from_secs(59)), "59 s");
        assert_eq!(time(Duration::from_secs(125)), "2 min 5 s");
    }

    #[test]
    fn a_hard_link_is_counted_once() {
        let place = std::env::temp_dir().join(format!("xtask-bytes-{}", std::process::id()));
        fs::create_dir_all(place.join("inner")).unwrap();
        fs::write(place.join("one"), vec![b'x'; 100_000]).unwrap();
        let before = bytes(&place);
        fs::hard_link(place.join("one"), place.join("inner/two")).unwrap();
        let after = bytes(&place);
        fs::remove_dir_all(&place).unwrap();
        assert!(before >= 100_000 && before == after, "{before} and {after}");
    }
}
