//! CPU time and memory of a process, from `/proc`.

use std::{collections::BTreeMap, fs, process::Command, sync::LazyLock};

use anyhow::{Context, bail};

/// Nearly everywhere 100, which makes ten milliseconds the resolution of a CPU reading: a
/// measurement must be long enough for that not to matter.
static TICKS_PER_SECOND: LazyLock<f64> = LazyLock::new(|| {
    let getconf = Command::new("getconf").arg("CLK_TCK").output().ok();
    let said = getconf.and_then(|output| String::from_utf8(output.stdout).ok());
    said.and_then(|said| said.trim().parse().ok()).unwrap_or(100.0)
});

/// CPU time so far, in microseconds.
#[derive(Clone, Default)]
pub(crate) struct Cpu {
    pub(crate) user: f64,
    pub(crate) system: f64,
    /// The same time by thread name; threads that have ended are missing here, not above.
    pub(crate) threads: BTreeMap<String, f64>,
}

impl Cpu {
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let (user, system) = times(&fs::read_to_string(format!("/proc/{pid}/stat"))?)?;
        let mut threads = BTreeMap::new();
        for entry in fs::read_dir(format!("/proc/{pid}/task"))? {
            // A thread may end while we look.
            let Ok(stat) = fs::read_to_string(entry?.path().join("stat")) else { continue };
            let (user, system) = times(&stat)?;
            *threads.entry(thread_name(&stat)).or_default() += user + system;
        }
        Ok(Self { user, system, threads })
    }

    pub(crate) fn total(&self) -> f64 {
        self.user + self.system
    }

    /// What was used since `earlier`, for each of `requests`.
    pub(crate) fn per_request(&self, earlier: &Self, requests: u64) -> Self {
        let share = |now: f64, then: f64| (now - then) / requests.max(1) as f64;
        let then = |name| earlier.threads.get(name).copied().unwrap_or_default();
        Self {
            user: share(self.user, earlier.user),
            system: share(self.system, earlier.system),
            threads: (self.threads.iter())
                .map(|(name, now)| (name.clone(), share(*now, then(name))))
                .collect(),
        }
    }
}

/// Resident memory in kilobytes of 1,024 bytes.
pub(crate) fn resident(pid: u32) -> anyhow::Result<f64> {
    memory(pid, "VmRSS:")
}

/// The most that was ever resident, in the same unit.
pub(crate) fn peak(pid: u32) -> anyhow::Result<f64> {
    memory(pid, "VmHWM:")
}

fn memory(pid: u32, name: &str) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let Some(kilobytes) = line.and_then(|line| line.split_whitespace().next()) else {
        bail!("process {pid} has no memory: it has ended");
    };
    Ok(kilobytes.parse()?)
}

/// How busy the machine is: the mean number of runnable processes over the last minute.
pub(crate) fn load_average() -> Option<f64> {
    fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

/// User and system time of a `stat` line. The name before them may hold anything, spaces and
/// brackets too, so fields are counted from its last bracket.
fn times(stat: &str) -> anyhow::Result<(f64, f64)> {
    let (_, fields) = stat.rsplit_once(") ").context("an unknown form of /proc/PID/stat")?;
    let mut fields = fields.split(' ').skip(11);
    let mut microseconds = || -> anyhow::Result<f64> {
        let ticks: f64 = fields.next().context("a short /proc/PID/stat")?.parse()?;
        Ok(ticks / *TICKS_PER_SECOND * 1e6)
    };
    Ok((microseconds()?, microseconds()?))
}

/// Without its number, so that the workers of a pool add up.
fn thread_name(stat: &str) -> String {
    let name = stat.split_once('(').and_then(|(_, rest)| rest.rsplit_once(')'));
    let name = name.map_or("?", |(name, _)| name);
    name.trim_end_matches(|end: char| end.is_ascii_digit() || end == '-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a) b (c-12) S 1 7 7 0 -1 4194560 1 0 0 0 250 50 0 0 20 0 3 0 9 1 2";

    #[test]
    fn a_name_with_brackets_hides_no_field() {
        let (user, system) = times(STAT).unwrap();
        assert!((user / system - 5.0).abs() < 1e-9);
    }

    #[test]
    fn workers_of_one_pool_share_a_name() {
        assert_eq!(thread_name("7 (worker-12) S 1"), "worker");
        assert_eq!(thread_name("7 (worker-3) S 1"), "worker");
    }

    #[test]
    fn this_process_has_used_memory_and_time() {
        let own = std::process::id();
        assert!(resident(own).unwrap() > 0.0);
        assert!(Cpu::of(own).unwrap().total() >= 0.0);
    }
}
