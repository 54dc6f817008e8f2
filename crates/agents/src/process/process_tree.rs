//! Process tree of a program: its process group, its descendants, and every process with its mark.
//!
//! A process that calls `setsid` leaves the group, and one whose parent dies leaves the tree, but
//! both keep the environment they were started with. `/proc` shows all three.

use std::{
    collections::{HashMap, HashSet},
    fs,
    time::Duration,
};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, child_subreaper, getpid, pidfd_open, pidfd_send_signal,
    waitpid,
};
use tokio::time::{Instant, sleep};

use super::STUCK;

/// The variable that marks a program and all that it starts.
pub(crate) const MARK: &str = "HERALD_RUN";

/// First and longest interval between two looks at processes that have not exited yet.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// Identity of a process: the kernel reuses process ids, but not with the same start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// In ticks since the machine started.
    pub(crate) start: u64,
}

/// All processes of one program, or of all programs of one run of the server.
#[derive(Debug, Clone)]
pub(crate) struct ProcessTree {
    /// Prefix of the environment entry that marks a member, with the variable's name.
    mark: String,
    /// Processes that were once found to be members: they stay members when they change group,
    /// parent or environment.
    known: HashSet<Identity>,
    /// A process that started earlier is not a member by its mark alone.
    since: u64,
}

/// The fields of `/proc/<pid>/stat` that are used here.
#[derive(Debug, Clone, Copy)]
struct ProcStat {
    identity: Identity,
    parent: i32,
    group: i32,
    is_dead: bool,
}

impl Identity {
    /// The process that has this id now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        ProcStat::read(pid).map(|entry| entry.identity)
    }

    /// This process.
    pub(crate) fn own() -> Option<Self> {
        Self::of(getpid().as_raw_pid())
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(self) -> bool {
        ProcStat::read(self.pid).is_some_and(|entry| entry.identity == self && !entry.is_dead)
    }

    /// Sends a signal to this very process, never to another one that got its id meanwhile.
    fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // The handle refers to the process that has the id now; only if that is this one may it be
        // signalled.
        if Self::of(self.pid) == Some(self) {
            // A process that has exited needs no signal, and one that we may not signal is not ours.
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

impl ProcStat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The second field, the name in parentheses, may itself contain parentheses and spaces.
        let after = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&stat[after + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            identity: Identity { pid, start: fields.get(19)?.parse().ok()? },
            parent: fields.get(1)?.parse().ok()?,
            group: fields.get(2)?.parse().ok()?,
            is_dead: matches!(*fields.first()?, "Z" | "X"),
        })
    }

    fn all() -> Vec<Self> {
        let Ok(found) = fs::read_dir("/proc") else { return Vec::new() };
        let names = found.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_str()?.parse().ok()).filter_map(Self::read).collect()
    }

    fn is_marked(&self, mark: &str) -> bool {
        let environment = fs::read(format!("/proc/{}/environ", self.identity.pid));
        let mut variables = environment.iter().flat_map(|bytes| bytes.split(|byte| *byte == 0));
        variables.any(|variable| variable.starts_with(mark.as_bytes()))
    }
}

impl ProcessTree {
    /// The tree of one program: `leader`, its descendants and all processes with this mark.
    pub(crate) fn of_program(mark: &str, leader: Option<Identity>) -> Self {
        let since = leader.map_or(0, |leader| leader.start);
        Self { mark: format!("{MARK}={mark}"), known: leader.into_iter().collect(), since }
    }

    /// All trees of one server run: processes whose mark begins with `mark`, and the `known` ones.
    pub(crate) fn of_run(mark: &str, known: impl IntoIterator<Item = Identity>) -> Self {
        Self { mark: format!("{MARK}={mark}"), known: known.into_iter().collect(), since: 0 }
    }

    /// The members that are alive now; new ones are remembered.
    pub(crate) fn find_alive(&mut self) -> Vec<Identity> {
        let entries = ProcStat::all();
        let parents: HashMap<i32, i32> =
            entries.iter().map(|entry| (entry.identity.pid, entry.parent)).collect();
        let own = ancestors(&parents);
        let groups = self.groups(&entries);
        let belongs = |entry: &ProcStat| {
            self.known.contains(&entry.identity)
                || groups.contains(&entry.group)
                || (entry.identity.start >= self.since && entry.is_marked(&self.mark))
        };
        let (mut members, mut others): (Vec<ProcStat>, Vec<ProcStat>) = entries
            .into_iter()
            .filter(|entry| !own.contains(&entry.identity.pid))
            .partition(belongs);
        let mut seen = 0;
        while seen < members.len() {
            let parents: HashSet<i32> =
                members[seen..].iter().map(|member| member.identity.pid).collect();
            seen = members.len();
            let (children, rest): (Vec<ProcStat>, Vec<ProcStat>) =
                others.into_iter().partition(|entry| parents.contains(&entry.parent));
            members.extend(children);
            others = rest;
        }
        self.known.extend(members.iter().map(|member| member.identity));
        let alive = members.into_iter().filter(|member| !member.is_dead);
        alive.map(|member| member.identity).collect()
    }

    /// The process groups of known members. A group has the id of its first process, and the kernel
    /// gives that id to no other process while the group exists: an id that another process has
    /// now is therefore not a group of ours.
    fn groups(&self, entries: &[ProcStat]) -> HashSet<i32> {
        let others = entries.iter().filter(|entry| !self.known.contains(&entry.identity));
        let taken: HashSet<i32> = others.map(|entry| entry.identity.pid).collect();
        self.known.iter().map(|known| known.pid).filter(|pid| !taken.contains(pid)).collect()
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
                    member.signal(Signal::KILL);
                } else if terminated.insert(member) {
                    member.signal(Signal::TERM);
                }
            }
            let rest = grace.saturating_sub(waited);
            sleep(if rest.is_zero() { POLL_INTERVALS.0 } else { pause.min(rest) }).await;
            pause = (pause * 2).min(POLL_INTERVALS.1);
        }
    }

    /// Scans on a blocking thread: reading `/proc` takes long on a machine with many processes.
    async fn find_off_thread(&mut self) -> Vec<Identity> {
        let mut tree = self.clone();
        let found = tokio::task::spawn_blocking(move || (tree.find_alive(), tree.known)).await;
        let Ok((left, known)) = found else { return Vec::new() };
        self.known = known;
        left
    }

    /// Sends SIGKILL to all members and does not wait for their exit.
    pub(crate) fn kill_all(&mut self) {
        // A process that was being started during one pass is found by the next.
        for _ in 0..3 {
            for member in self.find_alive() {
                member.signal(Signal::KILL);
            }
        }
    }
}

/// Reaps orphans: dead children that are not `ours` but were reparented to this process. Only the
/// first process of a container, or a subreaper, gets orphans, and only it can reap them.
pub(crate) fn reap(ours: &HashSet<i32>) {
    let own = getpid();
    if own != Pid::INIT && !matches!(child_subreaper(), Ok(Some(_))) {
        return;
    }
    let orphans = ProcStat::all().into_iter().filter(|entry| {
        entry.is_dead && entry.parent == own.as_raw_pid() && !ours.contains(&entry.identity.pid)
    });
    for orphan in orphans {
        // An error means that the orphan has been reaped meanwhile.
        let _ = waitpid(Pid::from_raw(orphan.identity.pid), WaitOptions::NOHANG);
    }
}

/// This process and its ancestors, which are never ended: a program of an earlier server run may
/// have started this server.
fn ancestors(parents: &HashMap<i32, i32>) -> HashSet<i32> {
    let mut ancestors = HashSet::new();
    let mut next = Some(getpid().as_raw_pid());
    while let Some(pid) = next.filter(|pid| ancestors.insert(*pid)) {
        next = parents.get(&pid).copied();
    }
    ancestors
}
