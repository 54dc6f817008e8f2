//! Work trees of conversations: each has its own directory and branch of one repository.
//!
//! Unlike snapshots, work trees are checked out, committed and merged with the configuration of the
//! repository and of the server's user, so that filters such as Git LFS work. Hooks do not run.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read, Seek, Write},
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::timeout};

use super::{Git, GitError, GitOutput, Repository};
use crate::process::Processes;

/// Time of one operation, such as a checkout or a merge.
const OPERATION: Duration = Duration::from_secs(120);

/// Bytes that are read of lists of paths.
const LIST: usize = 1 << 20;

/// Attempts at a merge while the branch moves.
const MERGES: usize = 5;

/// Files with a conflict that are reported.
const CONFLICTS: usize = 100;

/// The end of the name of a record.
const RECORD: &str = "json";

/// Treatment of a work tree after a completed turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterTurn {
    /// It stays as it is.
    #[default]
    Keep,
    /// Its changes are committed and merged into the base branch.
    Merge,
    /// It is removed with its branch.
    Delete,
}

/// The work trees of one agent.
#[derive(Debug, Clone)]
pub struct Worktrees {
    repository: Repository,
    /// The path of the working directory below the root of a work tree.
    below: PathBuf,
    /// The directory of the agent's work trees and their records.
    directory: PathBuf,
    base: Option<String>,
    after: AfterTurn,
    processes: Processes,
    /// Held by each change of the repository, which would find the locks of another one.
    changing: Arc<Mutex<()>>,
}

/// The record of a work tree, in a file beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorktreeRecord {
    /// The agent.
    pub agent: String,
    /// The id of the conversation, as its caller chose it.
    pub context: String,
    /// The branch.
    pub branch: String,
    /// The branch or commit that it began with; `None` for `HEAD`.
    pub base: Option<String>,
    /// The root of the repository's first work tree.
    pub repository: PathBuf,
}

/// A work tree in use. No other process uses it until this is dropped.
#[derive(Debug)]
pub struct Worktree {
    /// The root of the work tree.
    pub path: PathBuf,
    /// The working directory in it.
    pub directory: PathBuf,
    /// Its record.
    pub record: WorktreeRecord,
    lock: File,
}

/// A work tree that was found on disk.
#[derive(Debug)]
pub struct FoundWorktree {
    /// The root of the work tree.
    pub path: PathBuf,
    /// Its record.
    pub record: WorktreeRecord,
    /// The time of its last use.
    pub used: Option<std::time::SystemTime>,
    /// Its content.
    pub state: WorktreeState,
}

/// The content of a work tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorktreeState {
    /// A turn uses it.
    InUse,
    /// It has changes that are not committed.
    Uncommitted,
    /// It has commits that the base does not have.
    Unmerged,
    /// Everything in it is in its base.
    Merged,
    /// Its repository or its directory is missing.
    Broken,
}

/// Outcome of a merge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Merge {
    /// There was nothing to merge.
    Unchanged {
        /// The branch.
        into: String,
    },
    /// The changes are in the branch.
    Merged {
        /// The branch.
        into: String,
        /// Its new commit.
        commit: String,
    },
    /// The changes conflict with those of the branch, which is as it was.
    Conflict {
        /// The branch.
        into: String,
        /// The files with conflicts.
        files: Vec<String>,
    },
    /// The changes are committed, but the branch could not be changed.
    Failed {
        /// The branch.
        into: String,
        /// The reason.
        reason: String,
    },
}

impl Worktrees {
    /// Work trees of the repository around `workdir`, in a directory below `directory`. Fails if there is no such
    /// repository, no such base or no branch to merge into.
    pub fn new(
        agent: &str,
        workdir: &Path,
        directory: &Path,
        base: Option<String>,
        after: AfterTurn,
        processes: &Processes,
    ) -> Result<Self, WorktreeError> {
        let workdir = workdir.canonicalize()?;
        let Some(repository) = Repository::around(&workdir) else {
            return Err(WorktreeError::NoRepository(workdir));
        };
        let below = workdir.strip_prefix(&repository.root).unwrap_or(Path::new("")).to_owned();
        let directory = std::path::absolute(directory)?.join(agent);
        let start = base.as_deref().unwrap_or("HEAD");
        let is_there = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.arg("--git-dir").arg(&repository.git_dir).args(arguments);
            command.output().map(|output| output.status.success())
        };
        let commit = format!("{start}^{{commit}}");
        if !is_there(&["rev-parse", "--verify", "--quiet", "--end-of-options", &commit])? {
            return Err(WorktreeError::NoCommit(start.to_owned()));
        }
        let is_branch = match &base {
            Some(base) => is_there(&["show-ref", "--verify", "-q", &format!("refs/heads/{base}")]),
            None => is_there(&["symbolic-ref", "-q", "HEAD"]),
        };
        if after == AfterTurn::Merge && !is_branch? {
            return Err(WorktreeError::NoBranch(start.to_owned()));
        }
        let (processes, changing) = (processes.clone(), Arc::default());
        Ok(Self { repository, below, directory, base, after, processes, changing })
    }

    /// The work tree of a conversation. It is created for the first message.
    pub async fn enter(
        &self,
        agent: &str,
        conversation: &str,
        context: &str,
    ) -> Result<Worktree, GitError> {
        let path = self.directory.join(conversation);
        let record = WorktreeRecord {
            agent: agent.to_owned(),
            context: context.to_owned(),
            branch: format!("herald/{agent}/{}", &conversation[..conversation.len().min(16)]),
            base: self.base.clone(),
            repository: self.repository.root.clone(),
        };
        fs::create_dir_all(&self.directory)?;
        let mut lock = lock(&path.with_extension(RECORD))?
            .ok_or_else(|| GitError::new("another turn uses the work tree of this conversation"))?;
        let mut known = String::new();
        lock.read_to_string(&mut known)?;
        // The record is written last: without one the work tree may be incomplete.
        let known: Option<WorktreeRecord> = serde_json::from_str(&known).ok();
        let is_whole = known.is_some() && self.repository.worktree_at(&path).is_ok();
        if !is_whole {
            self.create(&path, &record).await?;
        }
        // Written for every turn, so that its time is that of the last use.
        let text = serde_json::to_vec(&record).map_err(io::Error::from)?;
        lock.rewind()?;
        lock.set_len(0)?;
        lock.write_all(&text)?;
        let directory = path.join(&self.below);
        if !directory.is_dir() {
            let below = self.below.display();
            return Err(GitError::new(format!("the work tree has no directory {below}")));
        }
        Ok(Worktree { path, directory, record, lock })
    }

    async fn create(&self, path: &Path, record: &WorktreeRecord) -> Result<(), GitError> {
        let _changing = self.changing.lock().await;
        let git = Git::with_own_config(&self.repository, &self.processes)?;
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
        run(&git, &["worktree", "prune"]).await?;
        let path = path
            .to_str()
            .ok_or_else(|| GitError::because("a path is not UTF-8", path.display()))?;
        let branch = &record.branch;
        let start = record.base.as_deref().unwrap_or("HEAD");
        // `-f -f`: a creation that was interrupted leaves a locked entry. A work tree that was removed by hand may have left its branch.
        let has_branch = has_branch(&git, branch).await?;
        let create = if has_branch {
            vec!["worktree", "add", "--quiet", "-f", "-f", path, branch]
        } else {
            vec!["worktree", "add", "--quiet", "-f", "-f", "--no-track", "-b", branch, path, start]
        };
        run(&git, &create).await.map(drop)
    }

    /// Merges the changes of a completed turn, if the policy says so.
    pub async fn merge_after_turn(
        &self,
        worktree: &Worktree,
        task: &str,
    ) -> Result<Option<Merge>, GitError> {
        match self.after {
            AfterTurn::Merge => self.merge(worktree, task).await.map(Some),
            AfterTurn::Keep | AfterTurn::Delete => Ok(None),
        }
    }

    /// Removes the work tree of a completed turn, if the policy says so.
    pub async fn delete_after_turn(&self, worktree: Worktree) -> Result<(), GitError> {
        match self.after {
            AfterTurn::Keep | AfterTurn::Merge => Ok(()),
            AfterTurn::Delete => {
                let _changing = self.changing.lock().await;
                remove(worktree, &self.processes).await
            }
        }
    }

    /// True if work trees stay after a turn.
    pub(crate) fn are_kept(&self) -> bool {
        match self.after {
            AfterTurn::Keep | AfterTurn::Merge => true,
            AfterTurn::Delete => false,
        }
    }

    async fn merge(&self, worktree: &Worktree, task: &str) -> Result<Merge, GitError> {
        let _changing = self.changing.lock().await;
        let inner = self.repository.worktree_at(&worktree.path)?;
        let git = Git::with_own_config(&inner, &self.processes)?;
        if !is_clean(&git).await? {
            run(&git, &["add", "-A"]).await?;
            let message = format!("Changes of task {task}");
            run(&git, &["commit", "--quiet", "--no-verify", "-m", &message]).await?;
        }
        let head = git.line(&["rev-parse", "HEAD"]).await?;
        let outer = Git::with_own_config(&self.repository, &self.processes)?;
        let into = match &self.base {
            Some(base) => base.clone(),
            None => outer.line(&["symbolic-ref", "--short", "HEAD"]).await?,
        };
        let mut reason = String::new();
        for _ in 0..MERGES {
            let done = self.merge_once(&outer, &head, &into, &worktree.record.branch).await;
            match done {
                Ok(done) => {
                    if let Merge::Merged { commit, .. } = &done {
                        // The next turn begins with the merged files.
                        let _ = run(&git, &["merge", "--quiet", "--ff-only", commit]).await;
                    }
                    return Ok(done);
                }
                Err(error) => reason = error.said.unwrap_or(error.kind),
            }
        }
        tracing::warn!(branch = worktree.record.branch, into, reason, "cannot merge a branch");
        let reason = "the branch could not be changed, for example because its work tree has \
                      uncommitted changes of the same files"
            .to_owned();
        Ok(Merge::Failed { into, reason })
    }

    /// One attempt at a merge. An error means that the branch moved, or that its work tree has other changes.
    async fn merge_once(
        &self,
        git: &Git,
        head: &str,
        into: &str,
        branch: &str,
    ) -> Result<Merge, GitError> {
        let name = format!("refs/heads/{into}");
        let old = git.line(&["rev-parse", &name]).await?;
        let into = into.to_owned();
        if is_ancestor(git, head, &old).await? {
            return Ok(Merge::Unchanged { into });
        }
        let commit = if is_ancestor(git, &old, head).await? {
            head.to_owned()
        } else {
            let merge = ["merge-tree", "--write-tree", "-z", "--name-only", "--no-messages"];
            let (merged, is_clean) =
                run_or_no(git, &[&merge[..], &[old.as_str(), head]].concat()).await?;
            let text = String::from_utf8_lossy(&merged.bytes).into_owned();
            let mut lines = text.split('\0').filter(|line| !line.is_empty());
            let tree = lines.next().unwrap_or_default();
            if !is_clean {
                let mut files: Vec<_> = lines.map(str::to_owned).collect();
                files.dedup();
                files.truncate(CONFLICTS);
                return Ok(Merge::Conflict { into, files });
            }
            let message = format!("Merge branch '{branch}'");
            git.line(&["commit-tree", tree, "-p", &old, "-p", head, "-m", &message]).await?
        };
        let at = git.line(&["for-each-ref", "--format=%(worktreepath)", &name]).await?;
        // A work tree that was deleted would be found in the directory above it.
        let checkout = Repository::around(Path::new(&at));
        match checkout.filter(|found| !at.is_empty() && found.root == Path::new(&at)) {
            // Changes the files as well, and refuses if that would overwrite other changes.
            Some(checkout) => {
                let git = Git::with_own_config(&checkout, &self.processes)?;
                run(&git, &["merge", "--quiet", "--ff-only", &commit]).await?;
            }
            None => drop(run(git, &["update-ref", &name, &commit, &old]).await?),
        }
        Ok(Merge::Merged { into, commit })
    }
}

impl WorktreeState {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::InUse => "in-use",
            Self::Uncommitted => "uncommitted",
            Self::Unmerged => "unmerged",
            Self::Merged => "merged",
            Self::Broken => "broken",
        }
    }
}

impl FoundWorktree {
    /// The work trees below a directory, by agent and path.
    pub async fn all(directory: &Path, processes: &Processes) -> Result<Vec<Self>, GitError> {
        let mut found = Vec::new();
        for agent in entries(directory)? {
            for record in entries(&agent)? {
                if record.extension().is_none_or(|end| end != RECORD) {
                    continue;
                }
                let read = fs::read(&record).ok();
                let Some(known) = read.and_then(|text| serde_json::from_slice(&text).ok()) else {
                    continue;
                };
                let used = record.metadata().and_then(|found| found.modified()).ok();
                let path = record.with_extension("");
                let state = state(&record, &path, &known, processes).await;
                found.push(Self { path, record: known, used, state });
            }
        }
        Ok(found)
    }

    /// Removes the work tree and its branch. Returns false if a turn uses it.
    pub async fn remove(self, processes: &Processes) -> Result<bool, GitError> {
        let Some(lock) = lock(&self.path.with_extension(RECORD))? else { return Ok(false) };
        let Self { path, record, state, .. } = self;
        // A turn may have changed it since it was found.
        if locked_state(&path, &record, processes).await != state {
            return Ok(false);
        }
        let worktree = Worktree { directory: path.clone(), path, record, lock };
        remove(worktree, processes).await.map(|()| true)
    }
}

async fn state(
    file: &Path,
    path: &Path,
    record: &WorktreeRecord,
    processes: &Processes,
) -> WorktreeState {
    let Ok(Some(_lock)) = lock(file) else { return WorktreeState::InUse };
    locked_state(path, record, processes).await
}

/// The state of a work tree whose lock the caller holds.
async fn locked_state(
    path: &Path,
    record: &WorktreeRecord,
    processes: &Processes,
) -> WorktreeState {
    let content = async {
        let outer = Repository::around(&record.repository)
            .ok_or_else(|| GitError::new("there is no repository"))?;
        let git = Git::with_own_config(&outer.worktree_at(path)?, processes)?;
        if !is_clean(&git).await? {
            return Ok(WorktreeState::Uncommitted);
        }
        let base = match &record.base {
            Some(base) => base.clone(),
            None => Git::with_own_config(&outer, processes)?.line(&["rev-parse", "HEAD"]).await?,
        };
        let is_merged = is_ancestor(&git, "HEAD", &base).await?;
        // The agent may have left its branch.
        let is_merged = is_merged && is_ancestor(&git, &record.branch, &base).await?;
        let state = if is_merged { WorktreeState::Merged } else { WorktreeState::Unmerged };
        Ok::<_, GitError>(state)
    };
    content.await.unwrap_or(WorktreeState::Broken)
}

/// Removes a work tree, its branch and its record.
async fn remove(worktree: Worktree, processes: &Processes) -> Result<(), GitError> {
    let Worktree { path, record, lock, .. } = worktree;
    if path.exists() {
        fs::remove_dir_all(&path)?;
    }
    if let Some(outer) = Repository::around(&record.repository) {
        let git = Git::with_own_config(&outer, processes)?;
        run(&git, &["worktree", "prune"]).await?;
        if has_branch(&git, &record.branch).await? {
            run(&git, &["branch", "--quiet", "-D", &record.branch]).await?;
        }
    }
    fs::remove_file(path.with_extension(RECORD))?;
    drop(lock);
    Ok(())
}

/// The file at this path, locked until it is closed; `None` if another holds the lock.
fn lock(path: &Path) -> Result<Option<File>, GitError> {
    loop {
        let file =
            File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            // The last holder may have removed the file before it was locked here.
            Ok(()) if path.exists() => return Ok(Some(file)),
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>, GitError> {
    let found = match fs::read_dir(directory) {
        Ok(found) => found,
        Err(error)
            if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Ok(Vec::new());
        }
        Err(error) => return Err(error.into()),
    };
    let mut paths: Vec<_> = found.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

/// True if nothing is to be committed.
async fn is_clean(git: &Git) -> Result<bool, GitError> {
    let changed = run(git, &["status", "--porcelain", "--ignore-submodules=all"]).await?;
    Ok(changed.bytes.is_empty())
}

async fn has_branch(git: &Git, branch: &str) -> Result<bool, GitError> {
    let name = format!("refs/heads/{branch}");
    Ok(run_or_no(git, &["show-ref", "--verify", "--quiet", &name]).await?.1)
}

async fn is_ancestor(git: &Git, old: &str, new: &str) -> Result<bool, GitError> {
    Ok(run_or_no(git, &["merge-base", "--is-ancestor", old, new]).await?.1)
}

async fn run(git: &Git, arguments: &[&str]) -> Result<GitOutput, GitError> {
    in_time(git.run(arguments, Vec::new(), LIST)).await
}

/// A run that answers a question with its exit code: 0 is yes, 1 is no.
async fn run_or_no(git: &Git, arguments: &[&str]) -> Result<(GitOutput, bool), GitError> {
    in_time(git.run_or_no(arguments, Vec::new(), LIST)).await
}

async fn in_time<T>(work: impl Future<Output = Result<T, GitError>>) -> Result<T, GitError> {
    let late = |_| GitError::new(format!("git took longer than {OPERATION:?}"));
    timeout(OPERATION, work).await.map_err(late)?
}

/// A reason why an agent cannot have work trees.
#[derive(Debug)]
pub enum WorktreeError {
    /// The directory is not in a git work tree.
    NoRepository(PathBuf),
    /// The base does not exist.
    NoCommit(String),
    /// The base is not a branch, so nothing can be merged into it.
    NoBranch(String),
    /// The file system or git failed.
    Io(io::Error),
}

impl From<io::Error> for WorktreeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
