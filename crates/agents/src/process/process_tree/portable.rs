//! Members of a process tree on Unix systems without `/proc` and `pidfd`: the process groups of the programs.
//!
//! A process that leaves its group is not found, and programs of a server that crashed are not either:
//! without a start time a process id does not identify a process across restarts.

use std::collections::HashSet;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use super::ProcessIdentity;

/// The leaders of the process groups that are members.
#[derive(Debug, Clone)]
pub(super) struct GroupMembers {
    leaders: HashSet<ProcessIdentity>,
}

impl GroupMembers {
    pub(super) fn of_program(_mark: &str, leader: Option<ProcessIdentity>) -> Self {
        Self { leaders: leader.into_iter().collect() }
    }

    pub(super) fn of_run(_mark: &str, known: impl IntoIterator<Item = ProcessIdentity>) -> Self {
        Self { leaders: known.into_iter().collect() }
    }

    /// The leaders whose groups are not empty. An empty group is forgotten, since the system may give
    /// its id to another one from then on.
    pub(super) fn find_alive(&mut self) -> Vec<ProcessIdentity> {
        self.leaders.retain(|leader| is_alive(*leader));
        self.leaders.iter().copied().collect()
    }
}

/// The group that this process leads.
pub(super) fn identify(pid: i32) -> Option<ProcessIdentity> {
    Some(ProcessIdentity { pid, start: 0 })
}

/// True while the group has a process. One that may not be signalled counts as empty: nothing can be
/// done about it, and macOS reports groups of zombies so.
pub(super) fn is_alive(leader: ProcessIdentity) -> bool {
    Pid::from_raw(leader.pid).is_some_and(|group| test_kill_process_group(group).is_ok())
}

/// Sends a signal to the whole group.
pub(super) fn signal(leader: ProcessIdentity, signal: Signal) {
    if let Some(group) = Pid::from_raw(leader.pid) {
        // An error means that the group is empty or not ours.
        let _ = kill_process_group(group, signal);
    }
}

/// Does nothing: only Linux makes another process than the first one of the system reap orphans.
pub(super) fn reap(_ours: impl Fn(i32) -> bool) {}

/// `None`: without it no records are kept.
pub(super) fn boot_id() -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        os::unix::process::{CommandExt, ExitStatusExt},
        process::{Command, Stdio},
    };

    use super::*;

    #[test]
    fn a_group_is_alive_until_its_last_process_has_been_killed() {
        let script = "sleep 600 & echo $!; exec sleep 600";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .process_group(0)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut String::new()).unwrap();
        let leader = identify(child.id().cast_signed());
        let mut members = GroupMembers::of_program("mark", leader);
        assert_eq!(members.find_alive(), [leader.unwrap()]);
        assert_eq!(GroupMembers::of_run("mark", leader).find_alive(), [leader.unwrap()]);
        signal(leader.unwrap(), Signal::KILL);
        assert_eq!(child.wait().unwrap().signal(), Some(Signal::KILL.as_raw()));
        // Standard output ends once the second process has ended, too.
        while output.read_line(&mut String::new()).unwrap() > 0 {}
        while is_alive(leader.unwrap()) {
            std::thread::yield_now();
        }
        assert_eq!(members.find_alive(), []);
    }

    #[test]
    fn without_a_boot_id_no_records_are_kept_and_orphans_are_left_to_the_system() {
        assert_eq!(boot_id(), None);
        reap(|_| false);
    }
}
