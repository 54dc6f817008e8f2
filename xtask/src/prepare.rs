//! Installation of SDKs, coding agents and programs for tests and checks.
//!
//! A directory of `tests/clients` or `tests/servers` is one SDK: Python with `requirements.txt`, JavaScript with
//! `package.json`, Rust with `Cargo.toml`. Directories of the same name share one installation in `target/sdk`.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::{
    cargo, execute,
    progress::{Measure, Steps, bytes, say, size},
    root, target,
    test::Need,
};

const DENY: &str = "cargo-deny@0.20.2";

/// npm packages of `tests/coding` whose install script puts the program in its place. The scripts of all others stay off.
const WITH_SCRIPT: [&str; 2] = ["@anthropic-ai/claude-code", "opencode-ai"];

/// One installation.
#[derive(Debug)]
pub(crate) struct Piece {
    kind: Kind,
    /// The directories of its manifests and scripts: two if clients and servers share it.
    sources: Vec<PathBuf>,
    installed: PathBuf,
    /// Tests with one of these needs cannot run without it.
    needs: BTreeSet<Need>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Python,
    JavaScript,
    Rust,
    Coding,
}

/// A program of the system, and the Debian packages that have it.
struct Program {
    name: &'static str,
    packages: &'static [&'static str],
    needs: &'static [Need],
}

const PROGRAMS: [Program; 3] = [
    Program {
        name: "python3",
        packages: &["python3", "python3-venv"],
        needs: &[Need::Python, Need::Clients, Need::Servers],
    },
    Program {
        name: "node",
        packages: &["nodejs", "npm"],
        needs: &[Need::Clients, Need::Servers, Need::Coding],
    },
    Program {
        name: "npm",
        packages: &["nodejs", "npm"],
        needs: &[Need::Clients, Need::Servers, Need::Coding],
    },
];

/// Where tests find the SDKs.
pub(crate) fn sdks() -> PathBuf {
    target().join("sdk")
}

/// Where tests find the coding agents.
pub(crate) fn coding() -> PathBuf {
    target().join("coding")
}

/// Everything to install for these needs.
pub(crate) fn pieces(needs: &BTreeSet<Need>) -> anyhow::Result<Vec<Piece>> {
    let tests = root().join("tests");
    let mut pieces = Vec::new();
    for name in names(&tests, needs)? {
        let places = [("clients", Need::Clients), ("servers", Need::Servers)];
        let places = places.map(|(place, need)| (tests.join(place).join(&name), need));
        let (sources, needs): (Vec<_>, BTreeSet<_>) =
            places.into_iter().filter(|(source, _)| source.is_dir()).unzip();
        let kind = kind(&sources)?;
        pieces.push(Piece { kind, installed: sdks().join(name), sources, needs });
    }
    if needs.contains(&Need::Coding) {
        pieces.push(Piece {
            kind: Kind::Coding,
            sources: vec![tests.join("coding")],
            installed: coding(),
            needs: [Need::Coding].into(),
        });
    }
    Ok(pieces)
}

/// The names of the SDK directories, in alphabetical order.
fn names(tests: &Path, needs: &BTreeSet<Need>) -> anyhow::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for (place, need) in [("clients", Need::Clients), ("servers", Need::Servers)] {
        if needs.contains(&need) {
            for entry in fs::read_dir(tests.join(place))? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    names.insert(entry.file_name().to_string_lossy().into_owned());
                }
            }
        }
    }
    Ok(names)
}

fn kind(sources: &[PathBuf]) -> anyhow::Result<Kind> {
    let has = |file: &str| sources.iter().filter(|source| source.join(file).exists()).count();
    match (has("requirements.txt"), has("package.json"), has("Cargo.toml")) {
        (1.., 0, 0) => Ok(Kind::Python),
        (0, 1, 0) => Ok(Kind::JavaScript),
        (0, 0, 1..) => Ok(Kind::Rust),
        found => bail!(
            "{sources:?} must have requirements.txt, one package.json for all of them, or Cargo.toml, and only one \
             kind of these; found {found:?}"
        ),
    }
}

/// Installs the pieces: npm and pip beside `first`, which builds Rust, and the Rust pieces after it. Returns the result of `first` and
/// the needs that are not met; the reasons are printed.
pub(crate) fn install<T>(
    steps: &Steps,
    needs: &BTreeSet<Need>,
    pieces: &[Piece],
    first: impl FnOnce() -> T,
) -> (T, BTreeSet<Need>) {
    steps.expect(pieces.len());
    let mut unmet = BTreeSet::new();
    // Many tests call it, and fail without it.
    if let Err(error) = need("curl", &["curl"]) {
        say(format!("{error:#}"));
    }
    for program in
        PROGRAMS.iter().filter(|program| program.needs.iter().any(|need| needs.contains(need)))
    {
        if let Err(error) = need(program.name, program.packages) {
            say(format!("{error:#}"));
            unmet.extend(program.needs.iter().copied().filter(|need| needs.contains(need)));
        }
    }
    let of = |lane: &[Kind]| -> BTreeSet<Need> {
        let mut failed = BTreeSet::new();
        for piece in pieces.iter().filter(|piece| lane.contains(&piece.kind)) {
            if piece.install(steps).is_err() {
                failed.extend(piece.needs.iter().copied());
            }
        }
        failed
    };
    let result = thread::scope(|scope| {
        let lanes = [&[Kind::Python][..], &[Kind::JavaScript, Kind::Coding]];
        let lanes = lanes.map(|lane| scope.spawn(|| of(lane)));
        let result = first();
        unmet.extend(of(&[Kind::Rust]));
        for lane in lanes {
            unmet.extend(lane.join().expect("a lane returns its failures"));
        }
        result
    });
    (result, unmet)
}

/// cargo-deny, which `.ci/run` calls.
pub(crate) fn tools() -> anyhow::Result<()> {
    if succeeds("cargo-deny", &["--version"]) {
        return Ok(());
    }
    say("building cargo-deny, which takes a few minutes once");
    // Unoptimised: it runs for a second and would take three times as long to build.
    execute(Command::new(env!("CARGO")).args(["install", "--locked", "--debug", "--quiet", DENY]))
}

impl Piece {
    fn install(&self, steps: &Steps) -> anyhow::Result<()> {
        let place = self.installed.strip_prefix(root()).unwrap_or(&self.installed).display();
        if self.kind == Kind::Rust {
            let measure = Measure::count("crates");
            return steps.run(format!("official Rust SDK into {place}"), measure, |step| {
                rust(&self.installed, &|artifact| step.count(artifact))
            });
        }
        let with = match self.kind {
            Kind::Python => "pip",
            Kind::JavaScript | Kind::Coding => "npm",
            Kind::Rust => "cargo",
        };
        let measure = Measure::Directory(self.installed.clone());
        steps.run(format!("{with} into {place}"), measure, |_| {
            let wanted = self.wanted()?;
            let stamp = self.installed.join("installed.txt");
            if !fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
                self.fill()?;
                fs::write(stamp, wanted)?;
            }
            self.copy_scripts()
        })
    }

    /// The content of all manifests: a change of any installs again.
    fn wanted(&self) -> anyhow::Result<String> {
        let mut wanted = String::new();
        for source in &self.sources {
            for name in ["requirements.txt", "package.json", "package-lock.json"] {
                let manifest = source.join(name);
                if manifest.exists() {
                    wanted += &fs::read_to_string(manifest)?;
                }
            }
        }
        Ok(wanted)
    }

    fn fill(&self) -> anyhow::Result<()> {
        match self.kind {
            Kind::Python => self.python(),
            Kind::JavaScript => self.javascript(),
            Kind::Coding => {
                self.javascript()?;
                self.run_scripts()
            }
            Kind::Rust => bail!("cargo keeps its own records"),
        }
    }

    fn python(&self) -> anyhow::Result<()> {
        quietly(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&self.installed))?;
        let mut pip = Command::new(self.installed.join("bin/pip"));
        // Without a cache nothing is left outside of the target directory.
        pip.args(["install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]);
        for requirements in self.sources.iter().map(|source| source.join("requirements.txt")) {
            if requirements.exists() {
                pip.arg("-r").arg(requirements);
            }
        }
        quietly(&mut pip)
    }

    fn javascript(&self) -> anyhow::Result<()> {
        let mut sources = self.sources.iter();
        let source = sources.find(|source| source.join("package.json").exists());
        let source = source.context("no package.json")?;
        fs::create_dir_all(&self.installed)?;
        for name in ["package.json", "package-lock.json"] {
            fs::copy(source.join(name), self.installed.join(name))
                .with_context(|| format!("cannot copy {name} of {}", source.display()))?;
        }
        let cache = self.installed.join("cache");
        let mut npm = self.npm();
        npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts", "--cache"]).arg(&cache);
        let result = quietly(&mut npm);
        if cache.exists() {
            fs::remove_dir_all(cache)?;
        }
        result
    }

    /// Runs the install scripts of those packages that need it, under whatever names the manifest has them.
    fn run_scripts(&self) -> anyhow::Result<()> {
        let manifest: Value =
            serde_json::from_slice(&fs::read(self.installed.join("package.json"))?)?;
        let packages = manifest["dependencies"].as_object().context("no dependencies")?;
        let names: Vec<_> = packages
            .iter()
            .filter(|(name, version)| {
                let version = version.as_str().unwrap_or_default();
                let is = |package: &&str| {
                    name == package || version.starts_with(&format!("npm:{package}@"))
                };
                WITH_SCRIPT.iter().any(is)
            })
            .map(|(name, _)| name)
            .collect();
        ensure!(!names.is_empty(), "package.json has none of {WITH_SCRIPT:?}");
        quietly(self.npm().arg("rebuild").args(names))
    }

    fn npm(&self) -> Command {
        let mut npm = Command::new("npm");
        npm.args(["--loglevel=error", "--no-update-notifier"]).current_dir(&self.installed);
        npm
    }

    /// Node looks for packages beside a script, so scripts come along, always the newest, with those that the
    /// scripts of several directories share.
    fn copy_scripts(&self) -> anyhow::Result<()> {
        if self.kind != Kind::JavaScript {
            return Ok(());
        }
        let shared = self.sources.iter().filter_map(|source| source.parent());
        for source in self.sources.iter().map(PathBuf::as_path).chain(shared) {
            for entry in fs::read_dir(source)? {
                let script = entry?.path();
                if let (Some("mjs"), Some(name)) =
                    (script.extension().and_then(OsStr::to_str), script.file_name())
                {
                    fs::copy(&script, self.installed.join(name))?;
                }
            }
        }
        Ok(())
    }
}

/// Builds the official client and the agent on the official server SDK, which are one workspace.
fn rust(installed: &Path, built: &dyn Fn(&str)) -> anyhow::Result<()> {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--locked", "--manifest-path"]).arg(root().join("tests/Cargo.toml"));
    command.arg("--target-dir").arg(installed.join("build"));
    for artifact in cargo::run(&mut command, built)? {
        let name = artifact.executable.file_name().context("a program has a name")?;
        fs::copy(&artifact.executable, installed.join(name))?;
    }
    Ok(())
}

/// Installs a program from Debian's packages if it is missing and the user is root.
pub(crate) fn need(program: &str, packages: &[&str]) -> anyhow::Result<()> {
    if succeeds(program, &["--version"]) {
        return Ok(());
    }
    let line = format!("apt-get install -y {}", packages.join(" "));
    if !succeeds("apt-get", &["--version"]) || !is_root()? {
        bail!("{program} is missing; install it, for example with: sudo {line}");
    }
    say(format!("{program} is missing: {line}"));
    execute(Command::new("apt-get").args(["update", "-qq"]))?;
    execute(Command::new("apt-get").args(["install", "-y", "-qq"]).args(packages))
}

/// Runs a command and fails with its output if it fails.
fn quietly(command: &mut Command) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
    ensure!(output.status.success(), "{command:?}: {}\n{}{}", output.status, said[0], said[1]);
    Ok(())
}

fn is_root() -> anyhow::Result<bool> {
    let out = Command::new("id").arg("-u").output().context("cannot run id")?;
    Ok(out.stdout.trim_ascii() == b"0")
}

fn succeeds(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

/// Prints the size of the target directory and of its largest parts.
pub(crate) fn report_sizes() {
    let target = target();
    let parts = fs::read_dir(&target).into_iter().flatten().flatten();
    let mut parts: Vec<_> = parts
        .map(|part| (bytes(&part.path()), part.file_name().to_string_lossy().into_owned()))
        .filter(|(bytes, _)| *bytes >= 10_000_000)
        .collect();
    parts.sort_unstable_by(|one, other| other.cmp(one));
    let total = size(parts.iter().map(|(bytes, _)| bytes).sum());
    let parts: Vec<_> =
        parts.iter().map(|(bytes, name)| format!("{name} {}", size(*bytes))).collect();
    say(format!("{} holds {total}: {}", target.display(), parts.join(", ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_directory_of_clients_and_servers_is_something_to_install() {
        let needs = [Need::Clients, Need::Servers, Need::Coding].into();
        let pieces = pieces(&needs).unwrap();
        let of = |kind| pieces.iter().filter(|piece| piece.kind == kind).count();
        assert!(of(Kind::Python) >= 2 && of(Kind::JavaScript) >= 2, "{pieces:?}");
        assert_eq!((of(Kind::Rust), of(Kind::Coding)), (1, 1));
    }

    #[test]
    fn clients_and_servers_of_one_sdk_share_an_installation() {
        let pieces = pieces(&[Need::Servers].into()).unwrap();
        for name in ["python1", "python03", "js1", "js03", "rust"] {
            let found: Vec<_> =
                pieces.iter().filter(|piece| piece.installed.ends_with(name)).collect();
            assert_eq!(found.len(), 1, "{name}: {pieces:?}");
            assert_eq!(found[0].sources.len(), 2);
        }
    }

    #[test]
    fn a_run_without_needs_installs_nothing() {
        assert!(pieces(&BTreeSet::new()).unwrap().is_empty());
    }
}
