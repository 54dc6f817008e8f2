//! Members of a process tree on Linux: the process group, all descendants, and every process with the mark.
//!
//! A process that calls `setsid` leaves the group, and one whose parent dies leaves the tree, but
//! both keep the environment they were started with. `/proc` shows all three.

use std::{
    collections::{HashMap, HashSet},
    fs,
};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, child_subreaper, getpid, pidfd_open, pidfd_send_signal,
    waitpid,
};

use super::{MARK, ProcessIdentity};

/// The members of a tree that are known so far, and how further ones are recognised.
#[derive(Debug, Clone)]
pub(super) struct ProcMembers {
    /// Prefix of the environment entry that marks a member, with the variable's name.
    mark: String,
    /// Processes that were once found to be members: they stay members when they change group,
    /// parent or environment.
    known: HashSet<ProcessIdentity>,
    /// A process that started earlier is not a member by its mark alone.
    since: u64,
}

/// The fields of `/proc/<pid>/stat` that are used here.
#[derive(Debug, Clone, Copy)]
struct ProcStat {
    identity: ProcessIdentity,
    parent: i32,
    group: i32,
    is_dead: bool,
}

impl ProcStat {
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        // The second field, the name in parentheses, may itself contain parentheses and spaces.
        let after = stat.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&stat[after + 1..]).ok()?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            identity: ProcessIdentity { pid, start: fields.get(19)?.parse().ok()? },
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

impl ProcMembers {
    pub(super) fn of_program(mark: &str, leader: Option<ProcessIdentity>) -> Self {
        let since = leader.map_or(0, |leader| leader.start);
        Self { mark: format!("{MARK}={mark}"), known: leader.into_iter().collect(), since }
    }

    pub(super) fn of_run(mark: &str, known: impl IntoIterator<Item = ProcessIdentity>) -> Self {
        Self { mark: format!("{MARK}={mark}"), known: known.into_iter().collect(), since: 0 }
    }

    /// The members that are alive now; new ones are remembered.
    pub(super) fn find_alive(&mut self) -> Vec<ProcessIdentity> {
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
}

/// The process that has this id now.
pub(super) fn identify(pid: i32) -> Option<ProcessIdentity> {
    ProcStat::read(pid).map(|entry| entry.identity)
}

pub(super) fn is_alive(process: ProcessIdentity) -> bool {
    ProcStat::read(process.pid).is_some_and(|entry| entry.identity == process && !entry.is_dead)
}

/// Sends a signal to this very process, never to another one that got its id meanwhile.
pub(super) fn signal(process: ProcessIdentity, signal: Signal) {
    let Some(pid) = Pid::from_raw(process.pid) else { return };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
    // The handle refers to the process that has the id now; only if that is this one may it be
    // signalled.
    if identify(process.pid) == Some(process) {
        // A process that has exited needs no signal, and one that we may not signal is not ours.
        let _ = pidfd_send_signal(handle, signal);
    }
}

/// Reaps orphans: dead children that are not `ours` but were reparented to this process. Only the
/// first process of a container, or a subreaper, gets orphans, and only it can reap them.
pub(super) fn reap(ours: impl Fn(i32) -> bool) {
    let own = getpid();
    if own != Pid::INIT && !matches!(child_subreaper(), Ok(Some(_))) {
        return;
    }
    let orphans = ProcStat::all().into_iter().filter(|entry| {
        entry.is_dead && entry.parent == own.as_raw_pid() && !ours(entry.identity.pid)
    });
    for orphan in orphans {
        // An error means that the orphan has been reaped meanwhile.
        let _ = waitpid(Pid::from_raw(orphan.identity.pid), WaitOptions::NOHANG);
    }
}

/// Id of the machine's current boot.
pub(super) fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned())
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
