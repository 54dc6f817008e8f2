//! Processes that an agent started, read from `/proc`.

use std::{fs, path::Path};

use crate::support::{Herald, SOON, eventually};

/// Waits for a script that writes process ids to a file, one per line, to have written so many.
pub(crate) async fn pids(home: &Path, count: usize) -> Vec<u32> {
    let read = || -> Vec<u32> {
        let text = fs::read_to_string(home.join("pids")).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(|line| line.trim().parse().unwrap()).collect()
    };
    eventually(SOON, "the program has started", async || read().len() >= count).await;
    read()
}

/// True if a process runs. A zombie does not.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

pub(crate) async fn none_runs(pids: &[u32]) {
    eventually(SOON, "no process is left", async || !pids.iter().any(|pid| runs(*pid))).await;
}

/// Children of the server, zombies included.
pub(crate) fn children(herald: &Herald) -> Vec<String> {
    let own = herald.id().to_string();
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let parent = |stat: &String| {
        stat.rsplit(')').next().unwrap().split_whitespace().nth(1).map(str::to_owned)
    };
    stats.filter(|stat| parent(stat).as_ref() == Some(&own)).collect()
}
