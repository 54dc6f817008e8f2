//! Tests of coding agents with a work tree for each conversation.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    coding_changes::{artifacts, claude, git, make_repository},
    http::Call,
    support::{Herald, Options, herald, uuid},
    tasks::ended,
    wire::{Draft, Wire, id, state},
};

/// A server whose coding agent runs these shell commands in a work tree for each conversation.
fn isolated(root: &Path, commands: &str, settings: &str) -> Options {
    let script = claude(commands);
    Options::config(format!(
        "[[agents]]\nname = \"coder\"\nkind = \"claude-code\"\nworkdir = {root:?}\n\
         isolation = \"worktree\"\ncommand = [\"sh\", \"-c\", '''{script}''']\n{settings}\n"
    ))
}

/// The task after a message in this conversation.
async fn within(herald: &Herald, context: &str) -> Value {
    let draft = Draft::new(uuid(), "Work").within(context);
    Wire::Rest.sent(&herald.call(&Wire::Rest.send("", &draft, false)).await).unwrap()
}

fn artifact<'a>(task: &'a Value, name: &str) -> &'a Value {
    let all = artifacts(task);
    let found = all.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no {name}: {task}")).1
}

fn diff(task: &Value) -> &str {
    artifact(task, "changes")["parts"][0]["text"].as_str().unwrap()
}

fn branch(task: &Value) -> String {
    artifact(task, "worktree")["parts"][0]["data"]["branch"].as_str().unwrap().to_owned()
}

async fn listed(data: &Path, arguments: &[&str]) -> Vec<Value> {
    let data = data.to_str().unwrap();
    let words = [&["worktree"], arguments, &["--data", data, "-o", "json"]].concat();
    let ended = herald(&words).await;
    assert!(ended.status.success(), "{ended:?}");
    let value: Value = serde_json::from_str(&ended.stdout).unwrap();
    value["worktrees"].as_array().unwrap().clone()
}

#[tokio::test]
async fn four_conversations_at_once_have_four_clean_diffs() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("repo");
    make_repository(&root);
    let begun = home.path().join("begun");
    fs::create_dir(&begun).unwrap();
    // Each changes the same file, and goes on when all four have changed it.
    let works = format!(
        "echo $HERALD_CONTEXT_ID >> a.txt; touch {0}/$HERALD_CONTEXT_ID\n\
         until [ $(ls {0} | wc -l) -ge 4 ]; do sleep 0.05; done",
        begun.display()
    );
    let herald = Herald::start(isolated(&root, &works, "")).await;
    let contexts = ["c-one", "c-two", "c-three", "c-four"];
    let mut tasks = Vec::new();
    for context in contexts {
        let draft = Draft::new(uuid(), "Work").within(context);
        let answer = herald.call(&Wire::Rest.send("", &draft, true)).await;
        tasks.push(id(&Wire::Rest.sent(&answer).unwrap()).to_owned());
    }
    for (task, context) in tasks.iter().zip(contexts) {
        let task = ended(&herald, task).await;
        assert_eq!(state(&task), "completed", "{task}");
        let diff = diff(&task);
        assert!(diff.contains(&format!(" one\n+{context}\n")), "{diff}");
        for other in contexts.iter().filter(|other| **other != context) {
            assert!(!diff.contains(other), "{diff}");
        }
    }
    assert_eq!(git(&root, &["status", "--porcelain"]), "", "the user's work tree is as it was");

    // The next message continues in the same work tree.
    let next = within(&herald, "c-two").await;
    assert!(diff(&next).contains(" c-two\n+c-two\n"), "{next}");

    let data = herald.home().join("data");
    let all = listed(&data, &["list"]).await;
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(all.iter().all(|one| one["state"] == "uncommitted"), "{all:?}");
    let kept = listed(&data, &["clean"]).await;
    assert!(kept.iter().all(|one| one["removed"] == false), "{kept:?}");
    // Merged work trees are removed, and the others stay.
    let two = all.iter().find(|one| one["context"] == "c-two").unwrap();
    let path = Path::new(two["path"].as_str().unwrap());
    git(path, &["checkout", "-q", "--", "a.txt"]);
    assert!(
        listed(&data, &["clean", "--unused", "1d"]).await.iter().all(|one| one["removed"] == false)
    );
    let cleaned = listed(&data, &["clean"]).await;
    let removed: Vec<_> = cleaned.iter().filter(|one| one["removed"] == true).collect();
    assert!(matches!(removed[..], [one] if one["context"] == "c-two"), "{cleaned:?}");
    assert!(!path.exists());
    assert_eq!(listed(&data, &["clean", "--force"]).await.len(), 3);
    assert_eq!(listed(&data, &["list"]).await, [Value::Null; 0]);
    assert_eq!(git(&root, &["branch", "--list", "herald/*"]), "");
    // A conversation whose work tree is gone begins with a new one.
    fs::write(begun.join("again"), "").unwrap();
    let again = within(&herald, "c-one").await;
    assert!(diff(&again).contains(" one\n+c-one\n"), "{again}");
}

#[tokio::test]
async fn owners_with_the_same_context_id_have_different_work_trees() {
    let home = tempfile::tempdir().unwrap();
    make_repository(home.path());
    let herald = Herald::start(isolated(home.path(), "echo x >> a.txt", "")).await;
    let mut branches = Vec::new();
    for tenant in ["a", "b", "a"] {
        let message = json!({
            "messageId": uuid(), "contextId": "same", "role": "ROLE_USER", "parts": [{ "text": "Work" }],
        });
        let params = json!({ "tenant": tenant, "message": message });
        let body = json!({ "jsonrpc": "2.0", "id": 7, "method": "SendMessage", "params": params });
        let call = Call::post("/a2a/jsonrpc", &body).header("a2a-version", "1.0");
        let task = Wire::Rpc.sent(&herald.call(&call).await).unwrap();
        assert_eq!(state(&task), "completed", "{task}");
        branches.push(branch(&task));
    }
    assert_ne!(branches[0], branches[1]);
    assert_eq!(branches[0], branches[2]);
}

#[tokio::test]
async fn changes_are_merged_and_a_conflict_is_reported_and_loses_nothing() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("repo");
    make_repository(&root);
    fs::write(root.join("mine.txt"), "not committed\n").unwrap();
    let (first, second) = (home.path().join("first"), home.path().join("second"));
    // The second begins before the first has ended, and ends after it.
    let works = format!(
        "echo $HERALD_CONTEXT_ID > a.txt; echo $HERALD_CONTEXT_ID > $HERALD_CONTEXT_ID.txt\n\
         if [ $HERALD_CONTEXT_ID = second ]; then touch {second:?}; until [ -e {first:?} ]; do sleep 0.05; done; fi"
    );
    let settings = "base = \"main\"\nworktree_after = \"merge\"";
    let herald = Herald::start(isolated(&root, &works, settings)).await;
    let draft = Draft::new(uuid(), "Work").within("second");
    let answer = herald.call(&Wire::Rest.send("", &draft, true)).await;
    let late = id(&Wire::Rest.sent(&answer).unwrap()).to_owned();
    crate::support::eventually(crate::support::SOON, "the second works", async || second.exists())
        .await;
    let done = within(&herald, "first").await;
    let merge = &artifact(&done, "worktree")["parts"][0]["data"]["merge"];
    assert_eq!((&merge["state"], &merge["into"]), (&json!("merged"), &json!("main")), "{done}");
    // The work tree of the branch follows, and keeps its other files.
    assert_eq!(fs::read_to_string(root.join("a.txt")).unwrap(), "first\n");
    assert_eq!(git(&root, &["status", "--porcelain"]), "?? mine.txt");
    assert_eq!(git(&root, &["rev-parse", "HEAD"]), merge["commit"].as_str().unwrap());

    fs::write(&first, "").unwrap();
    let late = ended(&herald, &late).await;
    assert_eq!(state(&late), "completed", "{late}");
    let data = &artifact(&late, "worktree")["parts"][0]["data"];
    assert_eq!(data["merge"], json!({ "state": "conflict", "into": "main", "files": ["a.txt"] }));
    let told = late.to_string();
    assert!(told.contains("Not merged into main: conflicts in a.txt"), "{told}");
    let branch = branch(&late);
    assert!(told.contains(&format!("merge the branch {branch} by hand")), "{told}");
    assert_eq!(git(&root, &["show", &format!("{branch}:a.txt")]), "second");
    assert_eq!(git(&root, &["show", "main:a.txt"]), "first");

    // A file of the user is in the way: the branch stays, and says so.
    fs::write(root.join("third.txt"), "of the user\n").unwrap();
    git(&root, &["checkout", "-q", "--", "."]);
    let third = within(&herald, "third").await;
    let merge = &artifact(&third, "worktree")["parts"][0]["data"]["merge"];
    assert_eq!(merge["state"], "failed", "{third}");
    assert_eq!(fs::read_to_string(root.join("third.txt")).unwrap(), "of the user\n");
    assert_eq!(fs::read_to_string(root.join("a.txt")).unwrap(), "first\n");
}

#[tokio::test]
async fn a_deleted_work_tree_leaves_its_diff_and_nothing_else() {
    let home = tempfile::tempdir().unwrap();
    make_repository(home.path());
    let settings = "worktree_after = \"delete\"";
    let herald = Herald::start(isolated(home.path(), "echo x >> a.txt", settings)).await;
    for _ in 0..2 {
        let task = within(&herald, "c").await;
        assert!(diff(&task).contains(" one\n+x\n"), "{task}");
        assert!(artifacts(&task).iter().all(|(name, _)| *name != "worktree"), "{task}");
    }
    // The turn ends after the task.
    crate::support::eventually(crate::support::SOON, "the work tree is removed", async || {
        listed(&herald.home().join("data"), &["list"]).await.is_empty()
    })
    .await;
    assert_eq!(git(home.path(), &["branch", "--list", "herald/*"]), "");
    assert_eq!(git(home.path(), &["worktree", "list"]).lines().count(), 1);
}

#[tokio::test]
async fn impossible_work_trees_are_refused_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let (root, plain) = (home.path().join("repo"), home.path().join("plain"));
    make_repository(&root);
    fs::create_dir(&plain).unwrap();
    git(&root, &["tag", "v1"]);
    for (directory, settings, said) in [
        (&plain, "", "run `git init` there and commit, or remove `isolation`"),
        (&root, "base = \"none\"", "base: the repository has no commit \"none\""),
        (&root, "base = \"v1\"\nworktree_after = \"merge\"", "\"v1\" is not a local branch"),
        (&root, "changes = false\nworktree_after = \"delete\"", "would be lost"),
        (&root, "worktree_after = \"burn\"", "expected one of"),
    ] {
        let refused = isolated(directory, ":", settings).refused().await;
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
    }
    let config = format!(
        "[[agents]]\nname = \"c\"\nkind = \"acp\"\ncommand = [\"cat\"]\nworkdir = {root:?}\n"
    );
    let refused = Options::config(format!("{config}base = \"main\"\n")).refused().await;
    assert!(refused.stderr.contains("base: it has no effect"), "{}", refused.stderr);
    let memory = isolated(&root, ":", "").no_data().arguments(["--ephemeral"]).refused().await;
    assert!(memory.stderr.contains("worktree_dir"), "{}", memory.stderr);
}
