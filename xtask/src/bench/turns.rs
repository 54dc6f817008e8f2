//! Bytes written and time per turn of one long conversation.

use anyhow::{Context, bail};
use serde::Deserialize;
use std::fs;

use super::{
    install::Bench,
    load::json,
    print,
    server::{Data, Running, Subject},
};

const TURNS: u64 = 216;
const BYTES: usize = 100_000;

/// Bytes written may be this multiple of the bytes sent, write-ahead log and checkpoints counted.
const LIMIT: f64 = 6.0;

/// The last quarter of the turns may take this multiple of the first.
const FLAT: f64 = 1.5;

/// The output of the load generator.
#[derive(Deserialize)]
struct Turns {
    sent_bytes: f64,
    first_quarter_us: f64,
    last_quarter_us: f64,
}

pub(crate) fn run(bench: &Bench) -> anyhow::Result<()> {
    let data = Data::create(bench)?;
    let server = Running::start(bench, Subject::Herald, &data)?;
    let before = Written::of(server.pid())?;
    let mut load = bench.load();
    load.args(["turns", "--url", &server.stream_url(), "--requests", &TURNS.to_string()])
        .args(["--bytes", &BYTES.to_string()]);
    let turns: Turns = json(&mut load)?;
    let after = Written::of(server.pid())?;
    let calls = (after.calls - before.calls) / turns.sent_bytes;
    let disk = (after.disk - before.disk) / turns.sent_bytes;
    let ratio = turns.last_quarter_us / turns.first_quarter_us;
    let word = |is_met| if is_met { "met" } else { "MISSED" };
    print(format!(
        "\n{TURNS} turns of {} KB in one task, {:.1} MB sent\n  \
         bytes written per byte sent: {calls:.2} in calls, {disk:.2} to the disk; limit {LIMIT}: {}\n  \
         time per turn (median): {:.1} ms in the first quarter, {:.1} ms in the last, {ratio:.2} ×; limit {FLAT}: {}",
        BYTES / 1000,
        turns.sent_bytes / 1e6,
        word(calls.max(disk) <= LIMIT),
        turns.first_quarter_us / 1e3,
        turns.last_quarter_us / 1e3,
        word(ratio <= FLAT),
    ))
}

/// Bytes that a process has written so far.
struct Written {
    /// In calls such as `write`, to sockets too.
    calls: f64,
    /// In pages that go to a disk.
    disk: f64,
}

impl Written {
    fn of(pid: u32) -> anyhow::Result<Self> {
        Self::read(&fs::read_to_string(format!("/proc/{pid}/io")).context("the server has ended")?)
    }

    fn read(io: &str) -> anyhow::Result<Self> {
        let figure = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            let Some(line) = line else { bail!("no {name} in /proc/PID/io") };
            Ok(line.parse()?)
        };
        Ok(Self { calls: figure("wchar")?, disk: figure("write_bytes")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_whole_names() {
        let io = "rchar: 1\nwchar: 2\nread_bytes: 3\nwrite_bytes: 4\ncancelled_write_bytes: 5\n";
        let written = Written::read(io).unwrap();
        assert!(
            (written.calls - 2.0).abs() < f64::EPSILON && (written.disk - 4.0).abs() < f64::EPSILON
        );
    }
}
