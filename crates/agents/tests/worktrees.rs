//! Work trees of conversations, with real repositories.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use herald_agents::{
    git::{AfterTurn, FoundWorktree, Merge, WorktreeError, WorktreeState, Worktrees},
    process::Processes,
};
use tempfile::TempDir;

/// Two conversations of the same context id and different callers.
const ONE: &str = "11111111111111111111111111111111";
const TWO: &str = "22222222222222222222222222222222";

fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(["-c", "user.name=A", "-c", "user.email=a@example.com"]);
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A directory with a repository `repo` in it, which has a committed file `sub/a.txt`.
fn repository() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("repo");
    fs::create_dir_all(root.join("sub")).unwrap();
    git(&root, &["init", "-q", "-b", "main"]);
    fs::write(root.join("sub/a.txt"), "one\n").unwrap();
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "first"]);
    home
}

fn worktrees(home: &Path, base: Option<&str>, after: AfterTurn) -> Worktrees {
    let (root, trees) = (home.join("repo/sub"), home.join("trees"));
    let base = base.map(str::to_owned);
    Worktrees::new("coder", &root, &trees, base, after, &Processes::new(None)).unwrap()
}

async fn states(home: &Path) -> Vec<WorktreeState> {
    let found = FoundWorktree::all(&home.join("trees"), &Processes::new(None)).await.unwrap();
    found.iter().map(|worktree| worktree.state).collect()
}

#[tokio::test]
async fn a_conversation_continues_in_its_work_tree_and_others_do_not_see_it() {
    let home = repository();
    let all = worktrees(home.path(), None, AfterTurn::Keep);
    let one = all.enter("coder", ONE, "same").await.unwrap();
    let two = all.enter("coder", TWO, "same").await.unwrap();
    assert!(one.directory.ends_with("sub") && one.directory.join("a.txt").exists());
    assert_ne!((&one.path, &one.record.branch), (&two.path, &two.record.branch));
    fs::write(one.directory.join("a.txt"), "changed\n").unwrap();
    assert_eq!(fs::read_to_string(two.directory.join("a.txt")).unwrap(), "one\n");
    assert_eq!(states(home.path()).await, [WorktreeState::InUse, WorktreeState::InUse]);
    let refused = all.enter("coder", ONE, "same").await.unwrap_err();
    assert!(refused.to_string().contains("another turn uses"), "{refused}");
    drop((one, two));
    assert_eq!(states(home.path()).await, [WorktreeState::Uncommitted, WorktreeState::Merged]);
    let one = all.enter("coder", ONE, "same").await.unwrap();
    assert_eq!(fs::read_to_string(one.directory.join("a.txt")).unwrap(), "changed\n");
    git(&one.path, &["commit", "-qam", "second"]);
    let (path, branch) = (one.path.clone(), one.record.branch.clone());
    drop(one);
    assert_eq!(states(home.path()).await[0], WorktreeState::Unmerged);
    // Someone removes the directory: the commits on the branch are still there.
    fs::remove_dir_all(&path).unwrap();
    assert_eq!(states(home.path()).await[0], WorktreeState::Broken);
    let one = all.enter("coder", ONE, "same").await.unwrap();
    assert_eq!(fs::read_to_string(one.directory.join("a.txt")).unwrap(), "changed\n");
    drop(one);
    let processes = Processes::new(None);
    for found in FoundWorktree::all(&home.path().join("trees"), &processes).await.unwrap() {
        assert!(found.remove(&processes).await.unwrap());
    }
    let root = home.path().join("repo");
    assert!(!path.exists() && states(home.path()).await.is_empty());
    assert_eq!(git(&root, &["branch", "--list", &branch]), "");
    assert_eq!(git(&root, &["worktree", "list"]).lines().count(), 1);
    assert_eq!(git(&root, &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn an_incomplete_work_tree_is_made_anew() {
    let home = repository();
    let all = worktrees(home.path(), None, AfterTurn::Keep);
    let path = home.path().join("trees/coder").join(ONE);
    // As after a crash in the middle of the checkout: files, but no record.
    fs::create_dir_all(&path).unwrap();
    fs::write(path.join("half"), "").unwrap();
    let one = all.enter("coder", ONE, "c").await.unwrap();
    assert!(one.directory.join("a.txt").exists() && !path.join("half").exists());
}

#[tokio::test]
async fn merges_move_the_branch_and_its_work_tree_or_leave_both_as_they_were() {
    let home = repository();
    let root = home.path().join("repo");
    let hook = root.join(".git/hooks/pre-commit");
    fs::write(&hook, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
    for base in [None, Some("main")] {
        let all = worktrees(home.path(), base, AfterTurn::Merge);
        let id = |of: &str| format!("{of}{}", base.map_or(0, str::len));
        let (first, second, third, fourth) = (id("1"), id("2"), id("3"), id("4"));
        let one = all.enter("coder", &first, "one").await.unwrap();
        let two = all.enter("coder", &second, "two").await.unwrap();
        let three = all.enter("coder", &third, "three").await.unwrap();
        let nothing = all.merge_after_turn(&one, "t").await.unwrap().unwrap();
        assert_eq!(nothing, Merge::Unchanged { into: "main".to_owned() });
        fs::write(one.directory.join("a.txt"), format!("{first}\n")).unwrap();
        fs::write(two.directory.join(format!("{second}.txt")), "two\n").unwrap();
        fs::write(three.directory.join("a.txt"), format!("{third}\n")).unwrap();
        let main = || git(&root, &["rev-parse", "main"]);
        for (tree, text) in [(&one, &first), (&two, &second)] {
            let Some(Merge::Merged { into, commit }) =
                all.merge_after_turn(tree, "t").await.unwrap()
            else {
                panic!("{text} is merged");
            };
            assert_eq!((into.as_str(), commit), ("main", main()));
            assert_eq!(git(&root, &["status", "--porcelain"]), "");
        }
        assert_eq!(fs::read_to_string(root.join("sub/a.txt")).unwrap(), format!("{first}\n"));
        assert!(root.join(format!("sub/{second}.txt")).exists());
        let before = main();
        let merge = all.merge_after_turn(&three, "t").await.unwrap().unwrap();
        let files = vec!["sub/a.txt".to_owned()];
        assert_eq!(merge, Merge::Conflict { into: "main".to_owned(), files });
        assert_eq!(
            (main(), git(&root, &["status", "--porcelain"])),
            (before.clone(), String::new())
        );
        let kept = git(&root, &["show", &format!("{}:sub/a.txt", three.record.branch)]);
        assert_eq!(kept, third);

        // An uncommitted change of the same file in the user's work tree.
        let four = all.enter("coder", &fourth, "four").await.unwrap();
        fs::write(four.directory.join("a.txt"), "four\n").unwrap();
        fs::write(root.join("sub/a.txt"), "of the user\n").unwrap();
        let merge = all.merge_after_turn(&four, "t").await.unwrap().unwrap();
        assert!(matches!(merge, Merge::Failed { .. }), "{merge:?}");
        assert_eq!(main(), before);
        assert_eq!(fs::read_to_string(root.join("sub/a.txt")).unwrap(), "of the user\n");
        git(&root, &["checkout", "-q", "--", "."]);
        // Where no work tree has the branch checked out, the branch alone moves.
        git(&root, &["checkout", "-q", "--detach"]);
        if base.is_some() {
            let merge = all.merge_after_turn(&four, "t").await.unwrap().unwrap();
            assert!(matches!(merge, Merge::Merged { .. }), "{merge:?}");
            assert_eq!(git(&root, &["show", "main:sub/a.txt"]), "four");
        }
        git(&root, &["checkout", "-q", "main"]);
    }
}

#[tokio::test]
async fn a_deleted_work_tree_leaves_nothing() {
    let home = repository();
    let all = worktrees(home.path(), None, AfterTurn::Delete);
    let one = all.enter("coder", ONE, "c").await.unwrap();
    fs::write(one.directory.join("b.txt"), "b\n").unwrap();
    let (path, branch) = (one.path.clone(), one.record.branch.clone());
    all.delete_after_turn(one).await.unwrap();
    assert!(!path.exists() && states(home.path()).await.is_empty());
    assert_eq!(git(&home.path().join("repo"), &["branch", "--list", &branch]), "");
    let again = all.enter("coder", ONE, "c").await.unwrap();
    assert!(!again.directory.join("b.txt").exists());
}

#[tokio::test]
async fn impossible_settings_are_refused() {
    let home = repository();
    let root = home.path().join("repo");
    let new = |directory: &Path, base: &str, after| {
        let base = Some(base.to_owned());
        Worktrees::new("c", directory, home.path(), base, after, &Processes::new(None)).unwrap_err()
    };
    let missing = new(&root, "none", AfterTurn::Keep);
    assert!(matches!(missing, WorktreeError::NoCommit(_)), "{missing:?}");
    let option = new(&root, "--all", AfterTurn::Keep);
    assert!(matches!(option, WorktreeError::NoCommit(_)), "{option:?}");
    git(&root, &["tag", "v1"]);
    let tag = new(&root, "v1", AfterTurn::Merge);
    assert!(matches!(tag, WorktreeError::NoBranch(_)), "{tag:?}");
    let plain = new(home.path(), "main", AfterTurn::Keep);
    assert!(matches!(plain, WorktreeError::NoRepository(_)), "{plain:?}");
}
