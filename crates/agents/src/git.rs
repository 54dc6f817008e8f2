//! Git: repositories around a working directory, and runs of `git` with a bounded output.

mod snapshot;
mod worktree;

use std::{
    collections::BTreeMap,
    fmt, fs, io,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{
    process::{Pipes, Processes, Program, Workdir},
    text::tail,
};

pub use self::{
    snapshot::{ChangedFile, FileStatus, SnapshotLimits, WorkTreeChanges, WorkTreeSnapshot},
    worktree::{
        AfterTurn, FoundWorktree, Merge, Worktree, WorktreeError, WorktreeRecord, WorktreeState,
        Worktrees,
    },
};

/// Bytes that are kept of git's error output.
const STDERR: usize = 4 << 10;

/// Time between SIGTERM and SIGKILL for a `git` that is not needed any more.
const GRACE: Duration = Duration::from_secs(1);

/// Variables of a run with the configuration of the repository and of the server's user.
const OWN_CONFIG: [(&str, &str); 7] = [
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_EDITOR", "true"),
    ("LC_ALL", "C"),
    ("GIT_AUTHOR_NAME", "Herald"),
    ("GIT_AUTHOR_EMAIL", "herald@localhost"),
    ("GIT_COMMITTER_NAME", "Herald"),
    ("GIT_COMMITTER_EMAIL", "herald@localhost"),
];

/// Settings of such a run: no hooks, no monitors, no signatures that ask for a passphrase.
const OWN_CONFIG_SETTINGS: [&str; 6] =
    ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false"];

/// Variables of a run without configuration: no configuration of the system or the user, no prompts, no download of
/// missing objects, messages in English.
const VARIABLES: [(&str, &str); 11] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_CONFIG_COUNT", "0"),
    ("GIT_CONFIG_PARAMETERS", ""),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_LAZY_FETCH", "1"),
    ("GIT_EXTERNAL_DIFF", ""),
    ("LC_ALL", "C"),
];

/// A repository with a work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repository {
    /// The root of the work tree.
    pub root: PathBuf,
    /// The git directory of the work tree, with its `HEAD` and its index.
    pub(crate) git_dir: PathBuf,
    /// The git directory that all work trees share, with the objects and the configuration.
    pub(crate) common_dir: PathBuf,
}

/// A failed use of `git`.
#[derive(Debug)]
pub struct GitError {
    /// The failure, in our own words: safe to show to any caller.
    pub(crate) kind: String,
    /// The output of `git`, which may contain paths of this machine.
    pub(crate) said: Option<String>,
}

/// Runs of `git` in one directory.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    program: Program,
    processes: Processes,
}

/// The output of a run.
#[derive(Debug)]
pub(crate) struct GitOutput {
    pub(crate) bytes: Vec<u8>,
    /// True if the output was longer than its limit; the rest is missing.
    pub(crate) is_cut: bool,
}

impl Repository {
    /// The repository whose work tree contains this directory. It is found without `git`, which would
    /// read the repository's configuration.
    pub fn around(directory: &Path) -> Option<Self> {
        let found = directory.ancestors().find_map(|root| {
            let git_dir = git_dir(&root.join(".git"))?;
            Some((root.to_owned(), git_dir))
        });
        let (root, git_dir) = found?;
        let common_dir = match fs::read_to_string(git_dir.join("commondir")) {
            Ok(path) => git_dir.join(path.trim_end()).canonicalize().ok()?,
            Err(_) => git_dir.clone(),
        };
        Some(Self { root, git_dir, common_dir })
    }

    /// The work tree of this repository at a path. The agent can edit the `.git` of its work tree, so that only
    /// one that leads back to this repository is accepted: another would bring its own configuration.
    pub(crate) fn worktree_at(&self, path: &Path) -> Result<Self, GitError> {
        let found = Self::around(path).filter(|found| {
            found.root == path
                && found.common_dir == self.common_dir
                && found.git_dir.starts_with(self.common_dir.join("worktrees"))
        });
        found.ok_or_else(|| GitError::new("the work tree of this conversation is gone or damaged"))
    }

    /// True if the names of its objects are SHA-256.
    fn is_sha256(&self) -> bool {
        let config = fs::read_to_string(self.common_dir.join("config")).unwrap_or_default();
        config.lines().any(|line| {
            let line: String = line.split_whitespace().collect();
            line.eq_ignore_ascii_case("objectformat=sha256")
        })
    }
}

/// The git directory that `.git` is or names.
fn git_dir(path: &Path) -> Option<PathBuf> {
    let found = if path.is_dir() {
        path.to_owned()
    } else {
        let text = fs::read_to_string(path).ok()?;
        path.parent()?.join(text.strip_prefix("gitdir:")?.trim())
    };
    found.join("HEAD").exists().then_some(())?;
    found.canonicalize().ok()
}

impl Git {
    /// Runs in `directory` without any configuration but that of the git directory in `variables`.
    pub(crate) fn new(
        directory: &Path,
        variables: &[(&str, &Path)],
        processes: &Processes,
    ) -> Result<Self, GitError> {
        Self::with(directory, &["git"], &VARIABLES, variables, processes)
    }

    /// Runs at the root of a work tree, with the configuration of its repository and of the server's
    /// user.
    pub(crate) fn with_own_config(
        repository: &Repository,
        processes: &Processes,
    ) -> Result<Self, GitError> {
        let variables: [(&str, &Path); 2] =
            [("GIT_DIR", &repository.git_dir), ("GIT_WORK_TREE", &repository.root)];
        let command = [&["git"], &OWN_CONFIG_SETTINGS[..]].concat();
        Self::with(&repository.root, &command, &OWN_CONFIG, &variables, processes)
    }

    fn with(
        directory: &Path,
        command: &[&str],
        fixed: &[(&str, &str)],
        variables: &[(&str, &Path)],
        processes: &Processes,
    ) -> Result<Self, GitError> {
        let mut environment = BTreeMap::new();
        for (name, value) in fixed {
            environment.insert((*name).to_owned(), (*value).to_owned());
        }
        for (name, path) in variables {
            let text = path
                .to_str()
                .ok_or_else(|| GitError::because("a path is not UTF-8", path.display()))?;
            environment.insert((*name).to_owned(), text.to_owned());
        }
        let directory = Workdir::new(directory, &[])?;
        let command: Vec<_> = command.iter().map(|word| (*word).to_owned()).collect();
        let program = Program::new(&command, directory, environment, GRACE)?;
        Ok(Self { program, processes: processes.clone() })
    }

    /// Runs git with this input, and reads at most `limit` bytes of its output. Dropping this future
    /// ends the run.
    pub(crate) async fn run(
        &self,
        arguments: &[&str],
        input: Vec<u8>,
        limit: usize,
    ) -> Result<GitOutput, GitError> {
        let (output, status, said) = self.spawn(arguments, input, limit).await?;
        if output.is_cut || status.success() { Ok(output) } else { Err(failed(arguments, &said)) }
    }

    /// As [`Git::run`], for a run whose exit code is an answer: true for 0, false for 1.
    pub(crate) async fn run_or_no(
        &self,
        arguments: &[&str],
        input: Vec<u8>,
        limit: usize,
    ) -> Result<(GitOutput, bool), GitError> {
        let (output, status, said) = self.spawn(arguments, input, limit).await?;
        match status.code() {
            Some(0) => Ok((output, true)),
            Some(1) => Ok((output, false)),
            Some(_) | None => Err(failed(arguments, &said)),
        }
    }

    async fn spawn(
        &self,
        arguments: &[&str],
        input: Vec<u8>,
        limit: usize,
    ) -> Result<(GitOutput, ExitStatus, Vec<u8>), GitError> {
        let words = arguments.iter().map(|word| (*word).to_owned()).collect();
        let program = self.program.with(words, &[]);
        let (mut process, Pipes { stdin, stdout, stderr }) =
            self.processes.spawn(&program, &[]).await?;
        let write = async move {
            if let Some(mut stdin) = stdin {
                // A run that does not read its input says why in its error output.
                let _ = stdin.write_all(&input).await;
            }
        };
        let read = async move {
            let mut bytes = Vec::new();
            // Closes the pipe at the limit, which ends the run.
            let read = stdout.take(limit as u64 + 1).read_to_end(&mut bytes).await;
            read.map(|_| bytes)
        };
        let ((), bytes, said) = tokio::join!(write, read, tail(stderr, STDERR));
        let status = process.wait().await;
        process.end().await;
        let mut bytes = bytes?;
        let is_cut = bytes.len() > limit;
        bytes.truncate(limit);
        Ok((GitOutput { bytes, is_cut }, status?, said))
    }

    /// The first line of a run's output.
    pub(crate) async fn line(&self, arguments: &[&str]) -> Result<String, GitError> {
        let output = self.run(arguments, Vec::new(), STDERR).await?;
        let text = String::from_utf8_lossy(&output.bytes).into_owned();
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

fn failed(arguments: &[&str], said: &[u8]) -> GitError {
    let said = String::from_utf8_lossy(said);
    GitError::because("git failed", format!("git {}: {}", arguments.join(" "), said.trim()))
}

impl GitError {
    pub(crate) fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), said: None }
    }

    pub(crate) fn because(kind: impl Into<String>, said: impl fmt::Display) -> Self {
        Self { kind: kind.into(), said: Some(said.to_string()) }
    }
}

impl fmt::Display for GitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.said {
            Some(said) => write!(f, "{}: {said}", self.kind),
            None => f.write_str(&self.kind),
        }
    }
}

impl std::error::Error for GitError {}

impl From<io::Error> for GitError {
    fn from(error: io::Error) -> Self {
        Self::because("git could not be run", error)
    }
}
