//! A process that gets all orphans, as the first one of a container does.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::{collections::BTreeMap, fs, path::Path, time::Duration};

use herald_agents::process::{Processes, Program, Workdir};
use rustix::process::{getpid, set_child_subreaper};

/// The children of this process: their ids and whether each is a zombie.
fn children() -> Vec<(i32, bool)> {
    let own = getpid().as_raw_pid().to_string();
    let stats = fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    let child = |stat: String| {
        let pid = stat.split(' ').next()?.parse().ok()?;
        let mut fields = stat.rsplit(')').next()?.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?);
        (parent == own).then_some((pid, state == "Z"))
    };
    stats.filter_map(child).collect()
}

#[tokio::test]
async fn orphans_that_are_left_to_us_become_no_zombies() {
    set_child_subreaper(Some(getpid())).unwrap();
    let processes = Processes::new(None);
    let here = Workdir::new(Path::new("."), &[]).unwrap();
    let grace = Duration::from_secs(5);
    let program = |script: &str| {
        let command = ["sh", "-c", script].map(str::to_owned);
        Program::new(&command, here.clone(), BTreeMap::new(), grace).unwrap()
    };
    // One goes on, so that its process must not be taken for an orphan.
    let (mut lasting, _pipes) = processes.spawn(&program("sleep 600"), &[]).await.unwrap();
    // The first orphan ends by itself and has left the group; the second has to be ended.
    let script = "(setsid sh -c : &); (setsid sleep 600 &); exit 3";
    let (mut process, mut pipes) = processes.spawn(&program(script), &[]).await.unwrap();
    assert_eq!(process.wait().await.unwrap().code(), Some(3));
    tokio::select! {
        () = process.end() => {}
        () = pipes.drain() => {}
    }
    let left = children();
    assert!(matches!(left[..], [(_, false)]), "only the other program: {left:?}");
    lasting.end().await;
    assert_eq!(children(), []);
}
