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
    needs::{Need, TARGET},
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
    target: String,
    name: String,
    executable: PathBuf,
    /// Tests run in the directory of their package, as under `cargo test`.
    directory: PathBuf,
}

/// A test and the installation that it needs.
#[derive(Clone)]
pub(crate) struct Test {
    pub(crate) name: String,
    pub(crate) need: Option<Need>,
}

/// The tests to run.
pub(crate) struct Chosen {
    pub(crate) tests: Vec<(Suite, Vec<Test>)>,
}

impl Suite {
    /// Builds the tests of the whole workspace, whatever is chosen: a build of one package has other features, and cargo would keep
    /// both builds. Those that need an installation are built unless `is_quick`.
    pub(crate) fn build(steps: &Steps, is_quick: bool) -> anyhow::Result<Vec<Self>> {
        let artifacts = steps.run("Rust tests", Measure::count("crates"), |step| {
            let build = |target: &[&str]| {
                let mut command = Command::new(env!("CARGO"));
                command.args(["test", "--workspace", "--locked", "--no-run"]).args(target);
                cargo::run(command.current_dir(root()), &|artifact| step.count(artifact))
            };
            let mut artifacts = build(&[])?;
            if !is_quick {
                artifacts.extend(build(&["--test", TARGET])?);
            }
            Ok(artifacts)
        })?;
        let tests = artifacts.into_iter().filter(|artifact| artifact.is_test);
        let mut suites: Vec<_> = tests
            .map(|artifact| {
                let package = package(&artifact.directory)?;
                let kind = artifact.target.kind.first().map_or("", String::as_str);
                let target = artifact.target.name;
                let name = format!("{package} {kind} {target}");
                let (executable, directory) = (artifact.executable, artifact.directory);
                Ok(Self { package, target, name, executable, directory })
            })
            .collect::<anyhow::Result<_>>()?;
        // From fast to slow; installed programs take longest.
        suites.sort_by_key(|suite| (suite.target == TARGET, suite.is_slow(), suite.name.clone()));
        Ok(suites)
    }

    /// True if it starts the real binary in most of its tests, which takes longer than all other suites together.
    pub(crate) fn is_slow(&self) -> bool {
        self.package == "herald" && ["it", TARGET].contains(&self.target.as_str())
    }

    pub(crate) fn list(&self) -> anyhow::Result<Vec<Test>> {
        let output = self.command().args(["--list", "--format", "terse"]).output();
        let output = output.with_context(|| format!("cannot run {}", self.name))?;
        ensure!(output.status.success(), "{} cannot list its tests: {output:?}", self.name);
        let listed = String::from_utf8_lossy(&output.stdout);
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        let test = |name: &str| {
            let need = Need::of(&self.target, name)?;
            Ok(Test { name: name.to_owned(), need })
        };
        names.map(test).collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.directory).env("CARGO_MANIFEST_DIR", &self.directory);
        command.env("CARGO_PKG_NAME", &self.package).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, tests: &[Test], outcome: &mut Outcome) -> anyhow::Result<()> {
        let mut command = self.command();
        if tests.len() < self.list()?.len() {
            command.arg("--exact").args(tests.iter().map(|test| &test.name));
        }
        command.env("HERALD_TEST_CLIENTS", prepare::sdks());
        command.env("HERALD_TEST_SERVERS", prepare::sdks());
        command.env("HERALD_TEST_CODING", prepare::coding());
        command.env("HERALD_TEST_INSTALL", prepare::wheels());
        say(format!("{}: {} tests", self.name, tests.len()));
        watch(&mut command, &self.name, &format!("-p {}", self.package), outcome)
    }
}

impl Chosen {
    pub(crate) fn from(suites: Vec<Suite>, options: &Options) -> anyhow::Result<Self> {
        let mut tests = Vec::new();
        for suite in suites {
            let mut wanted = suite.list()?;
            wanted.retain(|test| options.names(&suite.package, &test.name));
            if !wanted.is_empty() {
                tests.push((suite, wanted));
            }
        }
        ensure!(!tests.is_empty() || options.wants_doc_tests(), "no test has such a name");
        Ok(Self { tests })
    }

    pub(crate) fn needs(&self) -> BTreeSet<Need> {
        let tests = self.tests.iter().flat_map(|(_, tests)| tests);
        tests.filter_map(|test| test.need).collect()
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
    command.arg("--workspace").env("CARGO_TERM_COLOR", "never");
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
                    // A closed standard output must not stop the tests.
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
