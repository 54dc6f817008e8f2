//! `cargo xtask check`: the checks before a commit. Format, lints and fast tests, in under two minutes once everything is built.

use std::{process::Command, time::Instant};

use anyhow::ensure;

use crate::{
    execute,
    progress::{say, time},
    root,
    test::{self, Verdict},
};

/// All targets of the workspace, and the one that `--all-targets` leaves out because plain `cargo test` does.
const LINTED: [&[&str]; 2] = [&["--all-targets"], &["--test", "foreign"]];

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Verdict> {
    ensure!(arguments.is_empty(), "usage: cargo xtask check");
    let begun = Instant::now();
    cargo(&["fmt", "--all", "--check"])?;
    lint()?;
    say(format!("format and lints took {}", time(begun.elapsed())));
    test::fast()
}

/// Runs clippy over everything that the workspace builds.
pub(crate) fn lint() -> anyhow::Result<()> {
    for targets in LINTED {
        let clippy = ["clippy", "--workspace", "--locked", "--quiet"];
        cargo(&[&clippy, targets, &["--", "-D", "warnings"]].concat())?;
    }
    Ok(())
}

fn cargo(arguments: &[&str]) -> anyhow::Result<()> {
    say(format!("cargo {}", arguments.join(" ")));
    execute(Command::new(env!("CARGO")).args(arguments).current_dir(root()))
}
