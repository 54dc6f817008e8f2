//! Snapshots of a work tree, and the changes since one.
//!
//! A snapshot is a tree object in a git directory of its own. The repository lends its objects, its index
//! and its list of ignored files, but nothing is written to it, and neither its configuration nor its
//! hooks apply: filters, file system monitors and diff programs cannot run.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::OsStr,
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use serde::Serialize;
use tempfile::TempDir;
use tokio::time::timeout;

use super::{Git, GitError, Repository};
use crate::process::Processes;

/// Bytes for each file in the lists that git prints.
const PATH: usize = 1 << 10;

/// Limits of snapshots and changes.
#[derive(Debug, Clone, Copy)]
pub struct SnapshotLimits {
    /// Time of one snapshot, and of the comparison of two.
    pub time: Duration,
    /// Files of a work tree.
    pub files: usize,
    /// Bytes of a file whose content is compared. Larger files are compared by size and time.
    pub file: u64,
    /// Bytes of a diff.
    pub diff: usize,
    /// Files that are listed as changed.
    pub listed: usize,
}

/// The state of a work tree at one time.
#[derive(Debug)]
pub struct WorkTreeSnapshot {
    store: SnapshotStore,
    tree: String,
    large: LargeFiles,
}

/// Size and time of the files that are too large to compare, by their paths from the root.
type LargeFiles = HashMap<Vec<u8>, (u64, i64, i64)>;

/// A git directory of our own for the work tree.
#[derive(Debug)]
struct SnapshotStore {
    repository: Repository,
    directory: PathBuf,
    limits: SnapshotLimits,
    git: Git,
    /// Holds the git directory, which is removed with this.
    home: TempDir,
}

/// The changes of a work tree since a snapshot.
#[derive(Debug)]
pub struct WorkTreeChanges {
    /// The changed files, by path.
    pub files: Vec<ChangedFile>,
    /// The changes as a unified diff.
    pub diff: String,
    /// True if the diff or the list of files is incomplete.
    pub is_cut: bool,
    store: SnapshotStore,
}

/// A changed file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedFile {
    /// The path from the root of the work tree.
    pub path: String,
    /// The kind of change.
    pub status: FileStatus,
    /// Lines added; `None` for binary files.
    pub added: Option<u64>,
    /// Lines removed; `None` for binary files.
    pub removed: Option<u64>,
    /// The object with the new content, for regular files.
    #[serde(skip)]
    object: Option<String>,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileStatus {
    /// The file is new.
    Added,
    /// Its content, its mode or its type changed.
    Modified,
    /// The file is gone.
    Deleted,
}

impl Default for SnapshotLimits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(15),
            files: 200_000,
            file: 16 << 20,
            diff: 256 << 10,
            listed: 1000,
        }
    }
}

impl WorkTreeSnapshot {
    /// Takes a snapshot of the part of the work tree that is below `directory`. Files below `excluded` are
    /// left out.
    pub async fn take(
        repository: &Repository,
        directory: &Path,
        excluded: Option<&Path>,
        limits: SnapshotLimits,
        processes: &Processes,
    ) -> Result<Self, GitError> {
        let store = SnapshotStore::create(repository, directory, excluded, limits, processes)?;
        let (tree, large) = within(limits.time, store.snapshot(true)).await?;
        Ok(Self { store, tree, large })
    }

    /// The changes since the snapshot; `None` if there are none.
    pub async fn changes(self) -> Result<Option<WorkTreeChanges>, GitError> {
        let (time, tree, before) = (self.store.limits.time, &self.tree, &self.large);
        let found = within(time, async {
            let (now, large) = self.store.snapshot(false).await?;
            if now == *tree && large == *before {
                return Ok(None);
            }
            self.store.compare(tree, &now, before, &large).await.map(Some)
        });
        let Some((files, diff, is_cut)) = found.await? else { return Ok(None) };
        if files.is_empty() {
            return Ok(None);
        }
        Ok(Some(WorkTreeChanges { files, diff, is_cut, store: self.store }))
    }
}

impl ChangedFile {
    /// True if there is still a file.
    pub fn exists(&self) -> bool {
        match self.status {
            FileStatus::Added | FileStatus::Modified => true,
            FileStatus::Deleted => false,
        }
    }
}

impl WorkTreeChanges {
    /// The new content of a changed file. `None` if the file is gone, is not a regular file or has more than
    /// `limit` bytes.
    pub async fn content(
        &self,
        file: &ChangedFile,
        limit: usize,
    ) -> Result<Option<Vec<u8>>, GitError> {
        let Some(object) = &file.object else { return Ok(None) };
        let arguments = ["cat-file", "blob", object];
        let read = self.store.git.run(&arguments, Vec::new(), limit);
        let output = within(self.store.limits.time, read).await?;
        Ok((!output.is_cut).then_some(output.bytes))
    }
}

impl SnapshotStore {
    fn create(
        repository: &Repository,
        directory: &Path,
        excluded: Option<&Path>,
        limits: SnapshotLimits,
        processes: &Processes,
    ) -> Result<Self, GitError> {
        let private = fs::Permissions::from_mode(0o700);
        let prefix = processes.file_prefix();
        let home = tempfile::Builder::new().prefix(&prefix).permissions(private).tempdir()?;
        let own = home.path();
        for name in ["objects/info", "refs", "info"] {
            fs::create_dir_all(own.join(name))?;
        }
        fs::write(own.join("HEAD"), "ref: refs/heads/none\n")?;
        let (version, extension) = if repository.is_sha256() {
            (1, "[extensions]\n\tobjectFormat = sha256\n")
        } else {
            (0, "")
        };
        let config =
            format!("[core]\n\trepositoryFormatVersion = {version}\n\tbare = false\n{extension}");
        fs::write(own.join("config"), config)?;
        // The patterns of the repository come first: later ones override earlier ones.
        let mut ignored = fs::read(repository.common_dir.join("info/exclude")).unwrap_or_default();
        let excluded = excluded.and_then(|path| path.canonicalize().ok());
        if let Some(path) =
            excluded.as_deref().and_then(|path| path.strip_prefix(&repository.root).ok())
            && !path.as_os_str().is_empty()
        {
            ignored.extend(b"\n/");
            ignored.extend(pattern(path));
            ignored.extend(b"/\n");
        }
        fs::write(own.join("info/exclude"), ignored)?;
        // Without an index, the first snapshot reads every file.
        let _ = copy_index(&repository.git_dir.join("index"), &own.join("index"));
        let mut lent = repository.common_dir.join("objects").into_os_string().into_vec();
        lent.push(b'\n');
        fs::write(own.join("objects/info/alternates"), lent)?;
        let variables: [(&str, &Path); 4] = [
            ("GIT_DIR", own),
            ("GIT_WORK_TREE", &repository.root),
            ("GIT_INDEX_FILE", &own.join("index")),
            ("GIT_OBJECT_DIRECTORY", &own.join("objects")),
        ];
        let git = Git::new(directory, &variables, processes)?;
        let (repository, directory) = (repository.clone(), directory.to_owned());
        Ok(Self { repository, directory, limits, git, home })
    }

    /// Stores the state of the work tree as a tree. `is_first` if the index is that of the repository.
    async fn snapshot(&self, is_first: bool) -> Result<(String, LargeFiles), GitError> {
        let stored = self.store_tree().await;
        if stored.is_ok() || !is_first {
            return stored;
        }
        // The index may depend on further files of its repository, as a split index does.
        let _ = fs::remove_file(self.home.path().join("index"));
        self.store_tree().await
    }

    async fn store_tree(&self) -> Result<(String, LargeFiles), GitError> {
        let listed = self.limits.files.saturating_mul(PATH);
        let list =
            ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate"];
        let paths = self.git.run(&list, Vec::new(), listed).await?;
        let number = paths.bytes.iter().filter(|byte| **byte == 0).count();
        if paths.is_cut || number > self.limits.files {
            let most = self.limits.files;
            return Err(GitError::new(format!("the work tree has more than {most} files")));
        }
        let (directory, root, limit) =
            (self.directory.clone(), self.repository.root.clone(), self.limits.file);
        let sorted = tokio::task::spawn_blocking(move || {
            sort_by_size(&paths.bytes, &directory, &root, limit)
        });
        let (small, large) =
            sorted.await.map_err(|error| GitError::because("git failed", error))?;
        // Unlike `git add`, this does not run `git` in submodules, whose configuration would apply there.
        let update = [
            "-c",
            "core.hooksPath=/dev/null",
            "update-index",
            "--add",
            "--remove",
            "--replace",
            "--ignore-skip-worktree-entries",
            "-z",
            "--stdin",
        ];
        self.git.run(&update, small, PATH).await?;
        let tree = self.git.line(&["write-tree", "--missing-ok"]).await?;
        Ok((tree, large))
    }

    /// The changed files, the diff, and whether one of them is incomplete.
    async fn compare(
        &self,
        before: &str,
        now: &str,
        large_before: &LargeFiles,
        large_now: &LargeFiles,
    ) -> Result<(Vec<ChangedFile>, String, bool), GitError> {
        let list = ["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", before, now];
        // Two records for each file.
        let limit = self.limits.files.saturating_mul(PATH * 2);
        let listed = self.git.run(&list, Vec::new(), limit).await?;
        let mut files = changed_files(&listed.bytes);
        for (path, state) in large_now {
            let status = match large_before.get(path) {
                Some(before) if before == state => continue,
                Some(_) => FileStatus::Modified,
                None => FileStatus::Added,
            };
            note_large(&mut files, path, status);
        }
        for path in large_before.keys().filter(|path| !large_now.contains_key(*path)) {
            let is_there = self.repository.root.join(OsStr::from_bytes(path));
            if is_there.symlink_metadata().is_err() {
                note_large(&mut files, path, FileStatus::Deleted);
            }
        }
        let mut files: Vec<_> = files.into_values().collect();
        let mut is_cut = listed.is_cut || files.len() > self.limits.listed;
        files.truncate(self.limits.listed);
        let patch = [
            "-c",
            "core.quotePath=false",
            "diff-tree",
            "-r",
            "-p",
            "--no-renames",
            "--no-ext-diff",
            "--no-textconv",
            before,
            now,
        ];
        let mut patch = self.git.run(&patch, Vec::new(), self.limits.diff).await?;
        if patch.is_cut {
            is_cut = true;
            let end = patch.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
            patch.bytes.truncate(end);
        }
        Ok((files, String::from_utf8_lossy(&patch.bytes).into_owned(), is_cut))
    }
}

/// Divides paths that end in NUL: those whose files are small, in the same form, and the large files.
/// Nested repositories, whose paths end in a slash, are left out.
fn sort_by_size(paths: &[u8], directory: &Path, root: &Path, limit: u64) -> (Vec<u8>, LargeFiles) {
    let (mut small, mut large) = (Vec::with_capacity(paths.len()), LargeFiles::new());
    // The parent of the last path, and whether a link leads there. Paths are sorted.
    let mut last = (PathBuf::new(), false);
    for path in paths.split(|byte| *byte == 0) {
        if path.is_empty() || path.ends_with(b"/") {
            continue;
        }
        let path_below = Path::new(OsStr::from_bytes(path));
        let parent = path_below.parent().unwrap_or(Path::new(""));
        if parent != last.0 {
            last = (parent.to_owned(), is_behind_link(directory, parent));
        }
        // The link is listed as well, and replaces all files that were there.
        if last.1 {
            continue;
        }
        let full = directory.join(path_below);
        match full.symlink_metadata() {
            Ok(found) if found.is_file() && found.len() > limit => {
                let full = full.strip_prefix(root).unwrap_or(&full).as_os_str().to_owned();
                let state = (found.len(), found.mtime(), found.mtime_nsec());
                large.insert(full.into_vec(), state);
            }
            // Sockets and pipes have no content.
            Ok(found) if !found.is_file() && !found.is_symlink() && !found.is_dir() => {}
            Ok(_) | Err(_) => {
                small.extend(path);
                small.push(0);
            }
        }
    }
    (small, large)
}

/// True if a directory on the way from `directory` to `below` is a link.
fn is_behind_link(directory: &Path, below: &Path) -> bool {
    below.ancestors().any(|part| !part.as_os_str().is_empty() && directory.join(part).is_symlink())
}

/// Copies an index with its time: git reads a file again if it is not older than the index.
fn copy_index(from: &Path, to: &Path) -> io::Result<()> {
    let modified = fs::metadata(from)?.modified()?;
    fs::copy(from, to)?;
    fs::File::options().write(true).open(to)?.set_modified(modified)
}

/// The files in the output of `git diff-tree -z --raw --numstat`, by path.
fn changed_files(listed: &[u8]) -> BTreeMap<String, ChangedFile> {
    let mut files = BTreeMap::new();
    let mut tokens = listed.split(|byte| *byte == 0).filter(|token| !token.is_empty());
    while let Some(token) = tokens.next() {
        let text = String::from_utf8_lossy(token);
        if let Some(raw) = text.strip_prefix(':') {
            let Some(path) = tokens.next() else { break };
            let path = String::from_utf8_lossy(path).into_owned();
            let fields: Vec<_> = raw.split(' ').collect();
            let [_, mode, _, object, letter] = fields[..] else { continue };
            let status = match letter {
                "A" => FileStatus::Added,
                "D" => FileStatus::Deleted,
                _ => FileStatus::Modified,
            };
            let object = mode.starts_with("100").then(|| object.to_owned());
            let file =
                ChangedFile { path: path.clone(), status, added: None, removed: None, object };
            files.insert(path, file);
        } else {
            let mut fields = text.splitn(3, '\t');
            let (added, removed, path) = (fields.next(), fields.next(), fields.next());
            if let Some(file) = path.and_then(|path| files.get_mut(path)) {
                file.added = added.and_then(|number| number.parse().ok());
                file.removed = removed.and_then(|number| number.parse().ok());
            }
        }
    }
    files
}

/// Notes a change of a large file.
fn note_large(files: &mut BTreeMap<String, ChangedFile>, path: &[u8], status: FileStatus) {
    let path = String::from_utf8_lossy(path).into_owned();
    let file = ChangedFile { path: path.clone(), status, added: None, removed: None, object: None };
    files.insert(path, file);
}

/// A path as a pattern of ignored files that matches nothing else.
fn pattern(path: &Path) -> Vec<u8> {
    let mut pattern = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'*' | b'?' | b'[' | b'\\' | b' ' | b'!' | b'#') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, GitError>>,
) -> Result<T, GitError> {
    match timeout(limit, work).await {
        Ok(done) => done,
        Err(_) => Err(GitError::new(format!("git took longer than {limit:?}"))),
    }
}
