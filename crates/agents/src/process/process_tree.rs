//! Process tree of a program: finding, signalling and ending all of its processes.

#[cfg(target_os = "linux")]
mod linux;
// Compiled for tests on Linux as well, so that they cover it.
#[cfg(any(test, not(target_os = "linux")))]
mod portable;

use std::{collections::HashSet, time::Duration};

use rustix::process::{Signal, getpid};
use tokio::time::{Instant, sleep};

#[cfg(target_os = "linux")]
use self::linux::{self as platform, ProcMembers as Members};
#[cfg(not(target_os = "linux"))]
use self::portable::{self as platform, GroupMembers as Members};

use super::STUCK;

/// The variable that marks a program and all that it starts.
pub(crate) const MARK: &str = "HERALD_RUN";

/// First and longest interval between two looks at processes that have not exited yet.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Identity of a process: the kernel reuses process ids, but not with the same start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: i32,
    /// In ticks since the machine started; 0 if the system does not have it.
    pub(crate) start: u64,
}

/// All processes of one program, or of all programs of one run of the server.
#[derive(Debug, Clone)]
pub(crate) struct ProcessTree {
    members: Members,
}

impl ProcessIdentity {
    /// The process that has this id now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        platform::identify(pid)
    }

    /// This process.
    pub(crate) fn own() -> Option<Self> {
        Self::of(getpid().as_raw_pid())
    }

    /// True while it runs.
    pub(crate) fn is_alive(self) -> bool {
        platform::is_alive(self)
    }
}

impl ProcessTree {
    /// The tree of one program: `leader`, its descendants and all processes with this mark.
    pub(crate) fn of_program(mark: &str, leader: Option<ProcessIdentity>) -> Self {
        Self { members: Members::of_program(mark, leader) }
    }

    /// All trees of one server run: processes whose mark begins with `mark`, and the `known` ones.
    pub(crate) fn of_run(mark: &str, known: impl IntoIterator<Item = ProcessIdentity>) -> Self {
        Self { members: Members::of_run(mark, known) }
    }

    /// The members that are alive now; new ones are remembered.
    pub(crate) fn find_alive(&mut self) -> Vec<ProcessIdentity> {
        self.members.find_alive()
    }

    /// Sends SIGTERM to all members, and SIGKILL after `grace`. Returns whether all have exited.
    pub(crate) async fn end(&mut self, grace: Duration) -> bool {
        let mut terminated = HashSet::new();
        let begun = Instant::now();
        let mut pause = POLL_INTERVALS.0;
        loop {
            let left = self.find_off_thread().await;
            let waited = begun.elapsed();
            if left.is_empty() || waited >= grace + STUCK {
                return left.is_empty();
            }
            for member in left {
                if waited >= grace {
                    platform::signal(member, Signal::KILL);
                } else if terminated.insert(member) {
                    platform::signal(member, Signal::TERM);
                }
            }
            let rest = grace.saturating_sub(waited);
            sleep(if rest.is_zero() { POLL_INTERVALS.0 } else { pause.min(rest) }).await;
            pause = (pause * 2).min(POLL_INTERVALS.1);
        }
    }

    /// Scans on a blocking thread: reading `/proc` takes long on a machine with many processes.
    async fn find_off_thread(&mut self) -> Vec<ProcessIdentity> {
        let mut tree = self.clone();
        let found = tokio::task::spawn_blocking(move || (tree.find_alive(), tree)).await;
        let Ok((left, tree)) = found else { return Vec::new() };
        *self = tree;
        left
    }

    /// Sends SIGKILL to all members and does not wait for their exit.
    pub(crate) fn kill_all(&mut self) {
        // A process that was being started during one pass is found by the next.
        for _ in 0..3 {
            for member in self.find_alive() {
                platform::signal(member, Signal::KILL);
            }
        }
    }
}

/// Reaps orphans that were reparented to this process; those that are `ours` have another waiter.
pub(crate) fn reap(ours: impl Fn(i32) -> bool) {
    platform::reap(ours);
}

/// Id of the machine's current boot; `None` if the system has none.
pub(crate) fn boot_id() -> Option<String> {
    platform::boot_id()
}
