//! Test binaries: build them, list their tests, choose among these and run them.

use std::{
    collections::BTreeSet,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Instant,
};

use anyhow::{Context, ensure};

use super::{
    Options,
    needs::{self, Need},
    outcome::{Outcome, Reader},
};
use crate::{
    cargo, prepare,
    progress::{INTERVAL, Measure, Steps, say, time},
    root,
};

/// One test binary.
pub(crate) struct Suite {
    package: String,
    name: String,
    executable: PathBuf,
    /// Tests run in the directory of their package, as under `cargo test`.
    directory: PathBuf,
}

/// The tests to run.
pub(crate) struct Chosen {
    pub(crate) tests: Vec<(Suite, Vec<String>)>,
    /// How many tests `--quick` leaves out.
    pub(crate) left_out: usize,
}

impl Suite {
    /// Builds the tests of the whole workspace, whatever is chosen: a build of one package has other features, and cargo would keep
    /// both builds.
    pub(crate) fn build(steps: &Steps) -> anyhow::Result<Vec<Self>> {
        let mut command = Command::new(env!("CARGO"));
        command.args(["test", "--workspace", "--locked", "--no-run"]).current_dir(root());
        let artifacts = steps.run("Rust tests", Measure::count("crates"), |step| {
            cargo::run(&mut command, &|artifact| step.count(artifact))
        })?;
        let tests = artifacts.into_iter().filter(|artifact| artifact.is_test);
        let mut suites: Vec<_> = tests
            .map(|artifact| {
                let package = package(&artifact.directory)?;
                let kind = artifact.target.kind.first().map_or("", String::as_str);
                let name = format!("{package} {kind} {}", artifact.target.name);
                let (executable, directory) = (artifact.executable, artifact.directory);
                Ok(Self { package, name, executable, directory })
            })
            .collect::<anyhow::Result<_>>()?;
        // The tests of the binary take longer than all others together.
        suites.sort_by_key(|suite| (suite.package == "herald", suite.name.clone()));
        Ok(suites)
    }

    /// The names of its tests.
    fn list(&self) -> anyhow::Result<Vec<String>> {
        let output = self.command().args(["--list", "--format", "terse"]).output();
        let output = output.with_context(|| format!("cannot run {}", self.name))?;
        ensure!(output.status.success(), "{} cannot list its tests: {output:?}", self.name);
        let listed = String::from_utf8_lossy(&output.stdout);
        Ok(listed
            .lines()
            .filter_map(|line| line.strip_suffix(": test"))
            .map(str::to_owned)
            .collect())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command.env("CARGO_PKG_NAME", &self.package).stdin(Stdio::null());
        command
    }

    /// True if a test needs something that could not be installed.
    pub(crate) fn lacks(&self, test: &str, unmet: &BTreeSet<Need>) -> bool {
        !needs::of(&self.package, test).is_disjoint(unmet)
    }

    pub(crate) fn run(&self, tests: &[String], outcome: &mut Outcome) -> anyhow::Result<()> {
        let mut command = self.command();
        if tests.len() < self.list()?.len() {
            command.arg("--exact").args(tests);
        }
        command.env("HERALD_TEST_CLIENTS", prepare::sdks());
        command.env("HERALD_TEST_SERVERS", prepare::sdks());
        command.env("HERALD_TEST_CODING", prepare::coding());
        say(format!("{}: {} tests", self.name, tests.len()));
        watch(&mut command, &self.name, &format!("-p {}", self.package), outcome)
    }
}

impl Chosen {
    pub(crate) fn from(suites: Vec<Suite>, options: &Options) -> anyhow::Result<Self> {
        let (mut tests, mut left_out) = (Vec::new(), 0);
        for suite in suites {
            let mut wanted = suite.list()?;
            wanted.retain(|test| options.names(&suite.package, test));
            let named = wanted.len();
            wanted.retain(|test| options.may_run(&suite.package, test));
            left_out += named - wanted.len();
            if !wanted.is_empty() {
                tests.push((suite, wanted));
            }
        }
        ensure!(
            !tests.is_empty() || options.wants_doc_tests(),
            "no test that may run has such a name"
        );
        Ok(Self { tests, left_out })
    }

    pub(crate) fn needs(&self) -> BTreeSet<Need> {
        let of = |(suite, tests): &(Suite, Vec<String>)| -> BTreeSet<Need> {
            tests.iter().flat_map(|test| needs::of(&suite.package, test)).collect()
        };
        self.tests.iter().flat_map(of).collect()
    }
}

/// Runs the doc tests of the chosen packages.
pub(crate) fn doc_tests(
    packages: &[String],
    filters: &[String],
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["test", "--doc", "--locked", "--no-fail-fast"]).current_dir(root());
    // The same as the build of the tests, or the libraries would be built once more.
    command.arg("--workspace").env("CARGO_INCREMENTAL", "0").env("CARGO_TERM_COLOR", "never");
    if !packages.is_empty() {
        let (wanted, others): (Vec<_>, Vec<_>) =
            crates()?.into_iter().partition(|(name, _)| packages.contains(name));
        // Cargo refuses to run the doc tests of programs alone.
        if !wanted.iter().any(|(_, directory)| directory.join("src/lib.rs").exists()) {
            return Ok(());
        }
        command.args(others.into_iter().flat_map(|(name, _)| ["--exclude".to_owned(), name]));
    }
    command.arg("--").args(filters).stdin(Stdio::null());
    say("doc tests");
    watch(&mut command, "doc tests", "crates/", outcome)
}

/// The packages of the workspace and their directories.
fn crates() -> anyhow::Result<Vec<(String, PathBuf)>> {
    let directories = std::fs::read_dir(root().join("crates"))?;
    let directories = directories.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    let others = ["xtask", "xtask/generate"].map(|path| root().join(path));
    let named = |directory: PathBuf| Ok((package(&directory)?, directory));
    directories.into_iter().chain(others).map(named).collect()
}

fn package(directory: &Path) -> anyhow::Result<String> {
    let manifest = std::fs::read_to_string(directory.join("Cargo.toml"))
        .with_context(|| format!("no package in {}", directory.display()))?;
    let name = manifest.lines().find_map(|line| line.strip_prefix("name = \""));
    let name = name.and_then(|rest| rest.strip_suffix('"'));
    Ok(name.with_context(|| format!("{} has no name", directory.display()))?.to_owned())
}

/// Runs a command, passes its output on, reads the results from it, and says every few seconds that it is still at work when it
/// prints nothing. `again` chooses the whole suite, if it ends without naming a test.
fn watch(
    command: &mut Command,
    name: &str,
    again: &str,
    outcome: &mut Outcome,
) -> anyhow::Result<()> {
    // One pipe for both, so that the lines of a failure stay together.
    let (output, input) = io::pipe()?;
    command.stdout(input.try_clone()?).stderr(input);
    let begun = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {name}"))?;
    // The command holds the writing end, without which the reader would never see the end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut reader = Reader::default();
    thread::scope(|scope| {
        let (sender, lines) = mpsc::sync_channel::<Vec<u8>>(1000);
        scope.spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                if sender.send(std::mem::take(&mut line)).is_err() {
                    break;
                }
            }
        });
        loop {
            match lines.recv_timeout(INTERVAL) {
                Ok(line) => {
                    // A standard output that is closed is no reason to stop.
                    drop(io::stdout().write_all(&line));
                    reader.take(&String::from_utf8_lossy(&line));
                }
                Err(RecvTimeoutError::Timeout) => {
                    say(format!("{name}: {} tests done, {}", reader.done(), time(begun.elapsed())));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    let status = child.wait()?;
    outcome.add(&reader, name, again, status);
    Ok(())
}
