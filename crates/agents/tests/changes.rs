//! Snapshots of git work trees, with real repositories.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
    process::Command,
    time::Duration,
};

use herald_agents::{
    git::{FileStatus, Repository, SnapshotLimits, WorkTreeChanges, WorkTreeSnapshot},
    process::Processes,
};
use tempfile::TempDir;

/// Runs git as a user does, and returns its output.
fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(["-c", "user.name=A", "-c", "user.email=a@example.com"]);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn write(root: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A repository with two committed files, a change that is not committed and an ignored file.
fn repository() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let root = home.path();
    git(root, &["init", "-q", "-b", "main"]);
    write(root, "a.txt", "one\ntwo\nthree\n");
    write(root, "src/b.txt", "b\n");
    write(root, ".gitignore", "*.log\n");
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "-m", "first"]);
    write(root, "a.txt", "one\nTWO\nthree\n");
    write(root, "notes.md", "mine\n");
    write(root, "x.log", "ignored\n");
    home
}

/// All files below a directory with their content, for comparison. Pack files and loose objects may
/// get a new time, but no new content.
fn listed(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            files.extend(listed(&path));
        } else {
            files.insert(path.display().to_string(), fs::read(&path).unwrap_or_default());
        }
    }
    files
}

async fn snapshot(directory: &Path, limits: SnapshotLimits) -> Result<WorkTreeSnapshot, String> {
    let directory = directory.canonicalize().unwrap();
    let repository = Repository::around(&directory).unwrap();
    let taken =
        WorkTreeSnapshot::take(&repository, &directory, None, limits, &Processes::new(None)).await;
    taken.map_err(|error| error.to_string())
}

/// The changes that `work` makes.
async fn changes_of(directory: &Path, work: impl FnOnce()) -> Option<WorkTreeChanges> {
    let before = snapshot(directory, SnapshotLimits::default()).await.unwrap();
    work();
    before.changes().await.unwrap()
}

fn summary(changes: &WorkTreeChanges) -> Vec<(&str, FileStatus, Option<u64>, Option<u64>)> {
    let files = changes.files.iter();
    files.map(|file| (file.path.as_str(), file.status, file.added, file.removed)).collect()
}

#[tokio::test]
async fn only_the_changes_since_the_snapshot_are_reported() {
    let home = repository();
    let root = home.path();
    assert!(changes_of(root, || {}).await.is_none());
    let git_before = listed(&root.join(".git"));
    let changes = changes_of(root, || {
        write(root, "a.txt", "one\nTWO\nTHREE\nfour\n");
        write(root, "new/c.txt", "c\n");
        write(root, "y.log", "ignored\n");
        fs::remove_file(root.join("src/b.txt")).unwrap();
    });
    let changes = changes.await.unwrap();
    assert_eq!(
        summary(&changes),
        [
            ("a.txt", FileStatus::Modified, Some(2), Some(1)),
            ("new/c.txt", FileStatus::Added, Some(1), Some(0)),
            ("src/b.txt", FileStatus::Deleted, Some(0), Some(1)),
        ]
    );
    assert!(!changes.is_cut);
    assert!(changes.diff.contains("-three\n+THREE\n+four\n"), "{}", changes.diff);
    // Neither a change that was there before nor an ignored file is a change of the turn.
    assert!(!changes.diff.contains("-two"), "{}", changes.diff);
    assert!(!changes.diff.contains("notes.md") && !changes.diff.contains("log"));
    assert_eq!(listed(&root.join(".git")), git_before, "the repository is as it was");
    let content = changes.content(&changes.files[0], 100).await.unwrap().unwrap();
    assert_eq!(content, b"one\nTWO\nTHREE\nfour\n");
    assert!(changes.content(&changes.files[0], 3).await.unwrap().is_none());
    assert!(changes.content(&changes.files[2], 100).await.unwrap().is_none());
}

#[tokio::test]
async fn a_diff_can_be_applied_and_commits_of_the_turn_do_not_hide_changes() {
    let home = repository();
    let root = home.path();
    let copy = tempfile::tempdir().unwrap();
    for name in ["a.txt", "notes.md", "src/b.txt"] {
        write(copy.path(), name, fs::read(root.join(name)).unwrap());
    }
    let changes = changes_of(root, || {
        write(root, "a.txt", "0\n");
        write(root, "ü ö.txt", "u\n");
        git(root, &["add", "-A"]);
        git(root, &["commit", "-q", "-m", "second"]);
        git(root, &["mv", "src/b.txt", "src/c.txt"]);
    });
    let changes = changes.await.unwrap();
    let patch = copy.path().join("patch");
    fs::write(&patch, &changes.diff).unwrap();
    git(copy.path(), &["apply", "patch"]);
    for name in ["a.txt", "ü ö.txt", "src/c.txt"] {
        let (ours, theirs) = (copy.path().join(name), root.join(name));
        assert_eq!(fs::read(ours).unwrap(), fs::read(theirs).unwrap(), "{name}");
    }
    assert!(!copy.path().join("src/b.txt").exists());
}

#[tokio::test]
async fn a_change_right_after_a_commit_with_the_same_size_is_found() {
    let home = repository();
    let root = home.path();
    for round in 0..20 {
        write(root, "same.txt", format!("{round:02}\n"));
        git(root, &["add", "same.txt"]);
        let changes = changes_of(root, || write(root, "same.txt", "zz\n")).await.unwrap();
        assert_eq!(changes.files.len(), 1, "round {round}");
        assert!(changes.diff.contains("+zz"), "{}", changes.diff);
    }
}

#[tokio::test]
async fn nothing_in_the_repository_can_run_code() {
    let home = repository();
    let root = home.path();
    let (marker, bait) = (root.join("ran.log"), root.join(".git/bait"));
    fs::write(&bait, format!("#!/bin/sh\necho \"$0 $*\" >> {}\ncat\n", marker.display())).unwrap();
    fs::set_permissions(&bait, PermissionsExt::from_mode(0o755)).unwrap();
    let program = bait.to_str().unwrap();
    write(root, ".gitattributes", "* filter=bait diff=bait merge=bait\n");
    write(root, ".git/info/attributes", "* filter=bait diff=bait\n");
    // A submodule with the same configuration.
    let inner = root.join("inner");
    fs::create_dir(&inner).unwrap();
    git(&inner, &["init", "-q"]);
    write(&inner, "i.txt", "i\n");
    git(&inner, &["add", "-A"]);
    git(&inner, &["commit", "-q", "-m", "inner"]);
    git(root, &["update-index", "--add", "--cacheinfo", &gitlink(&inner)]);
    write(
        root,
        ".gitmodules",
        "[submodule \"inner\"]\npath = inner\nurl = ./inner\nignore = none\n",
    );
    for repository in [root, &inner] {
        for (key, value) in [
            ("filter.bait.clean", program),
            ("filter.bait.smudge", program),
            ("filter.bait.process", program),
            ("filter.bait.required", "true"),
            ("diff.bait.textconv", program),
            ("diff.bait.command", program),
            ("diff.external", program),
            ("core.fsmonitor", program),
            ("core.pager", program),
            ("core.editor", program),
            ("core.sshCommand", program),
            ("core.alternateRefsCommand", program),
            ("alias.ls-files", &format!("!{program}")),
            ("alias.write-tree", &format!("!{program}")),
        ] {
            git(repository, &["config", key, value]);
        }
        for hook in ["post-index-change", "post-checkout", "pre-commit", "fsmonitor-watchman"] {
            let hook = repository.join(".git/hooks").join(hook);
            fs::copy(&bait, hook).unwrap();
        }
    }
    write(&inner, "i.txt", "dirty\n");
    let changes = changes_of(root, || {
        write(root, "a.txt", "changed\n");
        write(&inner, "i.txt", "more\n");
    });
    let changes = changes.await.unwrap();
    assert!(changes.diff.contains("+changed"), "{}", changes.diff);
    assert!(!marker.exists(), "{}", fs::read_to_string(&marker).unwrap());
    // The bait works: the same repository runs it for a user.
    git(root, &["-c", "filter.bait.process=", "-c", "filter.bait.required=false", "status"]);
    assert!(marker.exists());
}

/// The entry of a submodule in the index.
fn gitlink(inner: &Path) -> String {
    format!("160000,{},inner", git(inner, &["rev-parse", "HEAD"]).trim())
}

#[tokio::test]
async fn links_are_not_followed() {
    let home = repository();
    let root = home.path();
    let outside = tempfile::tempdir().unwrap();
    write(outside.path(), "secret", "secret words\n");
    write(outside.path(), "b.txt", "other b\n");
    let changes = changes_of(root, || {
        symlink(outside.path().join("secret"), root.join("to-file")).unwrap();
        symlink(outside.path(), root.join("to-directory")).unwrap();
        // A directory of the repository becomes a link.
        fs::remove_dir_all(root.join("src")).unwrap();
        symlink(outside.path(), root.join("src")).unwrap();
    });
    let changes = changes.await.unwrap();
    assert!(!changes.diff.contains("secret words"), "{}", changes.diff);
    assert!(!changes.diff.contains("other b"), "{}", changes.diff);
    let paths: Vec<_> =
        changes.files.iter().map(|file| (file.path.as_str(), file.status)).collect();
    assert_eq!(
        paths,
        [
            ("src", FileStatus::Added),
            ("src/b.txt", FileStatus::Deleted),
            ("to-directory", FileStatus::Added),
            ("to-file", FileStatus::Added),
        ]
    );
    for file in &changes.files {
        assert!(changes.content(file, 1000).await.unwrap().is_none(), "{}", file.path);
    }
}

#[tokio::test]
async fn limits_cut_the_diff_and_say_why_there_is_none() {
    let home = repository();
    let root = home.path();
    let small = SnapshotLimits { diff: 200, listed: 1, ..SnapshotLimits::default() };
    let before = snapshot(root, small).await.unwrap();
    write(root, "long.txt", "0123456789\n".repeat(1000));
    write(root, "zlast.txt", "z\n");
    let changes = before.changes().await.unwrap().unwrap();
    assert!(changes.is_cut);
    assert!(changes.diff.len() <= 200 && changes.diff.ends_with("+0123456789\n"));
    assert_eq!(changes.files.len(), 1);

    let few = SnapshotLimits { files: 2, ..SnapshotLimits::default() };
    let refused = snapshot(root, few).await.unwrap_err();
    assert_eq!(refused, "the work tree has more than 2 files");
    let short = SnapshotLimits { time: Duration::ZERO, ..SnapshotLimits::default() };
    assert_eq!(snapshot(root, short).await.unwrap_err(), "git took longer than 0ns");
}

#[tokio::test]
async fn a_large_file_is_compared_by_size_and_time() {
    let home = repository();
    let root = home.path();
    write(root, "same.bin", [0; 100]);
    write(root, "grows.bin", [0; 10]);
    write(root, "touched.bin", [0; 100]);
    write(root, "gone.bin", [0; 100]);
    let limits = SnapshotLimits { file: 50, ..SnapshotLimits::default() };
    let before = snapshot(root, limits).await.unwrap();
    write(root, "grows.bin", [0; 100]);
    write(root, "new.bin", [0; 100]);
    fs::remove_file(root.join("gone.bin")).unwrap();
    let touched = fs::File::options().write(true).open(root.join("touched.bin")).unwrap();
    let modified = touched.metadata().unwrap().modified().unwrap();
    touched.set_modified(modified + Duration::from_secs(5)).unwrap();
    let changes = before.changes().await.unwrap().unwrap();
    let paths: Vec<_> =
        changes.files.iter().map(|file| (file.path.as_str(), file.status)).collect();
    assert_eq!(
        paths,
        [
            ("gone.bin", FileStatus::Deleted),
            ("grows.bin", FileStatus::Added),
            ("new.bin", FileStatus::Added),
            ("touched.bin", FileStatus::Modified),
        ]
    );
    assert_eq!(changes.diff, "");
}

#[tokio::test]
async fn work_trees_of_every_form_have_snapshots() {
    // A repository without a commit.
    let empty = tempfile::tempdir().unwrap();
    git(empty.path(), &["init", "-q"]);
    let changes = changes_of(empty.path(), || write(empty.path(), "n.txt", "n\n")).await.unwrap();
    assert_eq!(summary(&changes), [("n.txt", FileStatus::Added, Some(1), Some(0))]);

    // Names of objects that are SHA-256.
    let long = tempfile::tempdir().unwrap();
    git(long.path(), &["init", "-q", "--object-format=sha256"]);
    write(long.path(), "n.txt", "n\n");
    git(long.path(), &["add", "-A"]);
    git(long.path(), &["commit", "-q", "-m", "first"]);
    let changes = changes_of(long.path(), || write(long.path(), "n.txt", "m\n")).await.unwrap();
    assert_eq!(summary(&changes), [("n.txt", FileStatus::Modified, Some(1), Some(1))]);

    // A second work tree, a directory in the middle, and an index in two files.
    let home = repository();
    let root = home.path();
    let second = root.join("y.log");
    git(root, &["worktree", "add", "-q", second.to_str().unwrap()]);
    let changes = changes_of(&second, || write(&second, "n.txt", "n\n")).await.unwrap();
    assert_eq!(summary(&changes), [("n.txt", FileStatus::Added, Some(1), Some(0))]);
    let inner = root.join("src");
    let changes = changes_of(&inner, || {
        write(root, "src/n.txt", "n\n");
        write(root, "elsewhere.txt", "n\n");
    });
    let changes = changes.await.unwrap();
    assert_eq!(summary(&changes), [("src/n.txt", FileStatus::Added, Some(1), Some(0))]);
    git(root, &["update-index", "--split-index"]);
    let changes = changes_of(root, || write(root, "a.txt", "a\n")).await.unwrap();
    assert_eq!(summary(&changes), [("a.txt", FileStatus::Modified, Some(1), Some(3))]);

    let outside = tempfile::tempdir().unwrap();
    assert_eq!(Repository::around(&outside.path().canonicalize().unwrap()), None);
}
