//! Cargo builds whose progress is counted and whose programs are known afterwards.

use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::progress::say;

/// A program that cargo built.
pub(crate) struct Artifact {
    pub(crate) executable: PathBuf,
    /// The directory of its package.
    pub(crate) directory: PathBuf,
    /// True if it is a test binary.
    pub(crate) is_test: bool,
    pub(crate) target: Target,
}

#[derive(Clone, Deserialize)]
pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) kind: Vec<String>,
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Cargo's own lines about its progress; all other lines are warnings and errors.
const STATUS: [&str; 9] = [
    "Blocking",
    "Compiling",
    "Downloaded",
    "Downloading",
    "Finished",
    "Fresh",
    "Locking",
    "Updating",
    "Executable",
];

/// Runs a build and names each finished crate to `built`. Warnings and errors are passed on.
pub(crate) fn run(command: &mut Command, built: &dyn Fn(&str)) -> anyhow::Result<Vec<Artifact>> {
    command.arg("--message-format=json-render-diagnostics").env("CARGO_TERM_COLOR", "never");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().context("cannot run cargo")?;
    let messages = BufReader::new(child.stdout.take().context("its output is piped")?);
    let lines = BufReader::new(child.stderr.take().context("its errors are piped")?);
    let artifacts = thread::scope(|scope| {
        scope.spawn(|| {
            for line in lines.lines().map_while(Result::ok) {
                let word = line.split_whitespace().next().unwrap_or_default();
                if word == "Blocking" || !STATUS.contains(&word) {
                    say(format!("cargo: {line}"));
                }
            }
        });
        let mut artifacts = Vec::new();
        for line in messages.lines() {
            let message: Message = serde_json::from_str(&line?).context("a message of cargo")?;
            artifacts.extend(message.take(built));
        }
        anyhow::Ok(artifacts)
    })?;
    let status = child.wait()?;
    ensure!(status.success(), "the build failed: {status}");
    Ok(artifacts)
}

impl Message {
    fn take(self, built: &dyn Fn(&str)) -> Option<Artifact> {
        let (target, manifest) = (self.target?, self.manifest_path?);
        if self.reason == "compiler-artifact" {
            built(&target.name);
        }
        let directory = manifest.parent()?.to_owned();
        let is_test = self.profile?.test;
        Some(Artifact { executable: self.executable?, directory, is_test, target })
    }
}
