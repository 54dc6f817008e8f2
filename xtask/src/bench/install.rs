//! Builds of our own servers, installation of the SDKs, and pinning of processes.

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail, ensure};

use super::{say, server::Subject};

/// What makes `setpriv` kill a process when its parent ends.
const TIE: [&str; 2] = ["--pdeathsig", "KILL"];

/// Everything that is ready to be measured.
pub(crate) struct Bench {
    root: PathBuf,
    pub(crate) ready: Vec<Subject>,
    pub(crate) missing: Vec<Missing>,
    /// Servers on core 0, the load on core 1.
    pub(crate) pinned: bool,
    /// Whether `setpriv` can end child processes with this one. A guard ends them in all ordinary cases;
    /// this is for a kill of this process.
    tied: bool,
}

/// An SDK server that cannot be measured here, and the remedy.
pub(crate) struct Missing {
    pub(crate) subject: Subject,
    pub(crate) remedy: String,
}

#[derive(Clone, Copy)]
enum Core {
    Server,
    Load,
}

impl Bench {
    pub(crate) fn prepare(root: &Path, subjects: &[Subject]) -> anyhow::Result<Self> {
        let mut bench = Self {
            root: root.to_owned(),
            ready: vec![],
            missing: vec![],
            pinned: can_pin(),
            tied: succeeds(Command::new("setpriv").args(TIE).arg("true"))?,
        };
        if !bench.pinned {
            say("taskset or a second core is missing: nothing is pinned, figures will be noisy");
        }
        fs::create_dir_all(bench.file(""))?;
        bench.remove_leftovers()?;
        bench.build(subjects)?;
        for &subject in subjects {
            match bench.install(subject)? {
                None => bench.ready.push(subject),
                Some(remedy) => {
                    say(format!("{} IS NOT MEASURED: {remedy}", subject.name()));
                    bench.missing.push(Missing { subject, remedy });
                }
            }
        }
        Ok(bench)
    }

    /// A path under `target/bench`, where everything this makes goes.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.root.join("target/bench").join(name)
    }

    /// A command on one core, where that is possible, that does not outlive us. Both helpers become
    /// the program, so its process id is the child's.
    fn pinned(&self, core: Core, program: impl AsRef<OsStr>) -> Command {
        let mut words: Vec<&OsStr> = Vec::new();
        if self.tied {
            words.push("setpriv".as_ref());
            words.extend(TIE.map(OsStr::new));
        }
        if self.pinned {
            words.extend(["taskset", "-c", core.number()].map(OsStr::new));
        }
        words.push(program.as_ref());
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    }

    /// The release build.
    pub(crate) fn herald(&self) -> PathBuf {
        self.root.join("target/release/herald")
    }

    /// A build of herald under another program, such as a profiler that becomes it.
    pub(crate) fn wrapped(&self, wrapper: &[OsString], herald: &Path) -> Command {
        let words: Vec<_> =
            wrapper.iter().map(OsString::as_os_str).chain([herald.as_os_str()]).collect();
        let mut command = self.pinned(Core::Server, words[0]);
        command.args(&words[1..]);
        command
    }

    /// How to run a server, up to its own options.
    pub(crate) fn program(&self, subject: Subject) -> Command {
        match subject {
            Subject::Herald => self.pinned(Core::Server, self.herald()),
            Subject::Floor | Subject::OfficialRust => {
                self.pinned(Core::Server, self.file("release").join(subject.name()))
            }
            Subject::Python => {
                let mut command = self.pinned(Core::Server, self.file("python/bin/python"));
                command.arg(self.root.join("bench/python/server.py"));
                command
            }
            Subject::Js => {
                let mut command = self.pinned(Core::Server, "node");
                command.arg(self.file("js/server.mjs"));
                command
            }
        }
    }

    pub(crate) fn load(&self) -> Command {
        self.pinned(Core::Load, self.file("release/load"))
    }

    fn build(&self, subjects: &[Subject]) -> anyhow::Result<()> {
        if subjects.contains(&Subject::Herald) {
            self.cargo(&["-p", "herald", "--target-dir", "target"])?;
        }
        let mut args = vec![
            "--manifest-path",
            "bench/Cargo.toml",
            "--target-dir",
            "target/bench",
            "-p",
            "load",
        ];
        for subject in [Subject::Floor, Subject::OfficialRust] {
            if subjects.contains(&subject) {
                args.extend(["-p", subject.name()]);
            }
        }
        self.cargo(&args)
    }

    fn cargo(&self, args: &[&str]) -> anyhow::Result<()> {
        say(format!("cargo build --release {}", args.join(" ")));
        let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        let status =
            cargo.args(["build", "--release"]).args(args).current_dir(&self.root).status()?;
        ensure!(status.success(), "the build failed: {status}");
        Ok(())
    }

    /// What is missing, if something is.
    fn install(&self, subject: Subject) -> anyhow::Result<Option<String>> {
        match subject {
            Subject::Herald | Subject::Floor | Subject::OfficialRust => Ok(None),
            Subject::Python => self.install_python(),
            Subject::Js => self.install_js(),
        }
    }

    fn install_python(&self) -> anyhow::Result<Option<String>> {
        let requirements = self.root.join("bench/python/requirements.txt");
        let stamp = self.file("python/installed.txt");
        if same_content(&requirements, &stamp) {
            return Ok(None);
        }
        say("installing the Python SDK");
        let venv = self.file("python");
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&venv);
        if !succeeds(&mut make)? {
            return Ok(Some("not installed: apt-get install python3 python3-venv".to_owned()));
        }
        let mut pip = Command::new(venv.join("bin/pip"));
        pip.args(["install", "--quiet", "--requirement"]).arg(&requirements);
        if !succeeds(&mut pip)? {
            let line = "target/bench/python/bin/pip install -r bench/python/requirements.txt";
            return Ok(Some(format!("not installed: {line}")));
        }
        fs::copy(&requirements, &stamp)?;
        Ok(None)
    }

    fn install_js(&self) -> anyhow::Result<Option<String>> {
        let home = self.file("js");
        fs::create_dir_all(&home)?;
        // A module finds its dependencies from where it lies, so it must lie beside them.
        fs::copy(self.root.join("bench/js/server.mjs"), home.join("server.mjs"))?;
        let package = self.root.join("bench/js/package.json");
        let stamp = home.join("installed.json");
        if !succeeds(Command::new("node").arg("--version"))? {
            return Ok(Some("not installed: apt-get install nodejs npm".to_owned()));
        }
        if same_content(&package, &stamp) {
            return Ok(None);
        }
        say("installing the JavaScript SDK");
        fs::copy(&package, home.join("package.json"))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-package-lock", "--no-audit", "--no-fund"]).current_dir(&home);
        if !succeeds(&mut npm)? {
            return Ok(Some("not installed: npm install --prefix target/bench/js".to_owned()));
        }
        fs::copy(&package, &stamp)?;
        Ok(None)
    }

    /// Removes the data of killed runs. Running ones keep theirs.
    fn remove_leftovers(&self) -> anyhow::Result<()> {
        for entry in fs::read_dir(self.file(""))? {
            let entry = entry?;
            let name = entry.file_name();
            let owner =
                name.to_str().and_then(|name| name.strip_prefix("data-")?.split('-').next());
            if owner.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }
}

impl Core {
    const fn number(self) -> &'static str {
        match self {
            Self::Server => "0",
            Self::Load => "1",
        }
    }
}

/// A thousand streams need more files than most shells allow. Returns how many a process may open,
/// after asking for all that the system grants; servers and load inherit it.
pub(crate) fn raise_open_files() -> anyhow::Result<u64> {
    let (soft, hard) = open_files()?;
    if soft == hard {
        return Ok(soft);
    }
    let own = std::process::id().to_string();
    succeeds(Command::new("prlimit").args(["--pid", &own, &format!("--nofile={hard}:{hard}")]))?;
    Ok(open_files()?.0)
}

fn open_files() -> anyhow::Result<(u64, u64)> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let mut numbers = line.context("no limit of open files")?.split_whitespace();
    let mut next = || match numbers.next() {
        Some("unlimited") => Ok(u64::MAX),
        Some(number) => number.parse().context("a limit that is no number"),
        None => bail!("half a limit of open files"),
    };
    Ok((next()?, next()?))
}

fn can_pin() -> bool {
    let mut both = Command::new("taskset");
    both.args(["-c", Core::Server.number(), "taskset", "-c", Core::Load.number(), "true"]);
    succeeds(&mut both).unwrap_or(false)
}

/// Whether the command ran and succeeded; a program that is not there has not.
fn succeeds(command: &mut Command) -> anyhow::Result<bool> {
    match command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status() {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot run {command:?}")),
    }
}

fn same_content(one: &Path, other: &Path) -> bool {
    fs::read(one).is_ok_and(|one| fs::read(other).is_ok_and(|other| one == other))
}
