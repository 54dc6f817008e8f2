//! Who belongs to a program: its group, its descendants, and whoever inherited its mark.
//!
//! A process that calls `setsid` leaves the group, and one whose parent dies leaves the tree, but
//! both keep the environment they were started with. The kernel tells all three in `/proc`.

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

/// How often those who do not go are looked at, at first and at last.
const LOOKS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// One process of all that ever were: ids are used again, but not with the same start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// In ticks since the machine started.
    pub(crate) start: u64,
}

/// All processes of one program, or of all programs of one life of the server.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    /// How the variable of its members begins, with its name.
    mark: String,
    /// Members by name, whatever has become of their environment.
    known: HashSet<Identity>,
    /// Nobody who started before then is a member by mark alone.
    since: u64,
}

/// What the kernel says of a process.
#[derive(Debug, Clone, Copy)]
struct Entry {
    identity: Identity,
    parent: i32,
    group: i32,
    is_dead: bool,
}

impl Identity {
    /// The process that has this id now.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Entry::read(pid).map(|entry| entry.identity)
    }

    /// This process.
    pub(crate) fn own() -> Option<Self> {
        Self::of(getpid().as_raw_pid())
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(self) -> bool {
        Entry::read(self.pid).is_some_and(|entry| entry.identity == self && !entry.is_dead)
    }

    /// Sends it a signal. Nobody else gets it, even if it is gone and its id is used again.
    fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // The handle is of whoever has the id now, and stays his.
        if Self::of(self.pid) == Some(self) {
            // Who is gone needs no signal, and who may not be sent one is not ours.
            let _ = pidfd_send_signal(handle, signal);
        }
    }
}

impl Entry {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The name stands in parentheses and may contain anything, parentheses included.
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

impl Family {
    /// Everybody with this mark, and the program that they all come from.
    pub(crate) fn of_program(mark: &str, leader: Option<Identity>) -> Self {
        let since = leader.map_or(0, |leader| leader.start);
        Self { mark: format!("{MARK}={mark}"), known: leader.into_iter().collect(), since }
    }

    /// Everybody whose mark begins so, and these, who may be the youngest of them.
    pub(crate) fn of_life(mark: &str, known: impl IntoIterator<Item = Identity>) -> Self {
        Self { mark: format!("{MARK}={mark}"), known: known.into_iter().collect(), since: 0 }
    }

    /// Those who are alive. Who was once a member remains one.
    pub(crate) fn look(&mut self) -> Vec<Identity> {
        let entries = Entry::all();
        let parents: HashMap<i32, i32> =
            entries.iter().map(|entry| (entry.identity.pid, entry.parent)).collect();
        let own = lineage(&parents);
        let groups = self.groups(&entries);
        let belongs = |entry: &Entry| {
            self.known.contains(&entry.identity)
                || groups.contains(&entry.group)
                || (entry.identity.start >= self.since && entry.is_marked(&self.mark))
        };
        let (mut members, mut others): (Vec<Entry>, Vec<Entry>) = entries
            .into_iter()
            .filter(|entry| !own.contains(&entry.identity.pid))
            .partition(belongs);
        let mut seen = 0;
        while seen < members.len() {
            let parents: HashSet<i32> =
                members[seen..].iter().map(|member| member.identity.pid).collect();
            seen = members.len();
            let (children, rest): (Vec<Entry>, Vec<Entry>) =
                others.into_iter().partition(|entry| parents.contains(&entry.parent));
            members.extend(children);
            others = rest;
        }
        self.known.extend(members.iter().map(|member| member.identity));
        let alive = members.into_iter().filter(|member| !member.is_dead);
        alive.map(|member| member.identity).collect()
    }

    /// The groups of known members. A group has the id of its first process, and nobody else gets
    /// that id while the group lasts: an id that somebody else has now is no group of ours.
    fn groups(&self, entries: &[Entry]) -> HashSet<i32> {
        let others = entries.iter().filter(|entry| !self.known.contains(&entry.identity));
        let taken: HashSet<i32> = others.map(|entry| entry.identity.pid).collect();
        self.known.iter().map(|known| known.pid).filter(|pid| !taken.contains(pid)).collect()
    }

    /// Asks everybody to go, waits, then makes them. Says whether nobody is left.
    pub(crate) async fn end(&mut self, grace: Duration) -> bool {
        let mut asked = HashSet::new();
        let begun = Instant::now();
        let mut pause = LOOKS.0;
        loop {
            let left = self.look_aside().await;
            let waited = begun.elapsed();
            if left.is_empty() || waited >= grace + STUCK {
                return left.is_empty();
            }
            for member in left {
                if waited >= grace {
                    member.signal(Signal::KILL);
                } else if asked.insert(member) {
                    member.signal(Signal::TERM);
                }
            }
            let rest = grace.saturating_sub(waited);
            sleep(if rest.is_zero() { LOOKS.0 } else { pause.min(rest) }).await;
            pause = (pause * 2).min(LOOKS.1);
        }
    }

    /// Looks on a thread that may wait: reading `/proc` takes a while where much runs.
    async fn look_aside(&mut self) -> Vec<Identity> {
        let mut family = self.clone();
        let looked = tokio::task::spawn_blocking(move || (family.look(), family.known)).await;
        let Ok((left, known)) = looked else { return Vec::new() };
        self.known = known;
        left
    }

    /// Kills everybody at once, without waiting for it to be so.
    pub(crate) fn kill(&mut self) {
        // Who was being started while the first was killed is found by the second.
        for _ in 0..3 {
            for member in self.look() {
                member.signal(Signal::KILL);
            }
        }
    }
}

/// Takes leave of dead children that are not `ours` but were left to us. The first process of a
/// container, or whoever asked the kernel for it, gets all orphans, and nobody else can.
pub(crate) fn reap(ours: &HashSet<i32>) {
    let own = getpid();
    if own != Pid::INIT && !matches!(child_subreaper(), Ok(Some(_))) {
        return;
    }
    let orphans = Entry::all().into_iter().filter(|entry| {
        entry.is_dead && entry.parent == own.as_raw_pid() && !ours.contains(&entry.identity.pid)
    });
    for orphan in orphans {
        // If it is not there any more somebody else was faster.
        let _ = waitpid(Pid::from_raw(orphan.identity.pid), WaitOptions::NOHANG);
    }
}

/// This process and those it comes from, who are nobody's to end: a server may have been started
/// by a program of an earlier one.
fn lineage(parents: &HashMap<i32, i32>) -> HashSet<i32> {
    let mut lineage = HashSet::new();
    let mut next = Some(getpid().as_raw_pid());
    while let Some(pid) = next.filter(|pid| lineage.insert(*pid)) {
        next = parents.get(&pid).copied();
    }
    lineage
}
