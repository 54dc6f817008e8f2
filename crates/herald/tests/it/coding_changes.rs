//! Tests of the changes that coding agents report, with shell scripts that change files.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use crate::{
    http::Call,
    support::{Herald, Options, uuid},
    tasks::{artifact, told},
    wire::{Wire, state},
};

/// A turn of Claude Code that runs these shell commands.
pub(crate) fn claude(commands: &str) -> String {
    format!(
        r#"echo "{{\"type\":\"system\",\"subtype\":\"init\",\"session_id\":\"s\",\"model\":\"m\"}}"
{commands}
echo "{{\"type\":\"result\",\"is_error\":false,\"result\":\"done\"}}"
cat > /dev/null"#
    )
}

/// A server whose coding agent runs these shell commands in this directory.
fn coder(directory: &Path, commands: &str, settings: &str) -> Options {
    let script = claude(commands);
    Options::config(format!(
        "[[agents]]\nname = \"coder\"\nkind = \"claude-code\"\nworkdir = {directory:?}\n\
         command = [\"sh\", \"-c\", '''{script}''']\n{settings}\n"
    ))
}

pub(crate) fn git(directory: &Path, arguments: &[&str]) -> String {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory).args(["-c", "user.name=A", "-c", "user.email=a@example.com"]);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let output = command.args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Makes a repository with one committed file `a.txt`.
pub(crate) fn make_repository(root: &Path) {
    fs::create_dir_all(root).unwrap();
    git(root, &["init", "-q", "-b", "main"]);
    fs::write(root.join("a.txt"), "one\n").unwrap();
    git(root, &["add", "-A"]);
    git(root, &["commit", "-q", "-m", "first"]);
}

/// The artifacts with their names, in order.
pub(crate) fn artifacts(task: &Value) -> Vec<(&str, &Value)> {
    let all = task["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|artifact| (artifact["name"].as_str().unwrap(), artifact)).collect()
}

fn names(task: &Value) -> Vec<&str> {
    artifacts(task).into_iter().map(|(name, _)| name).collect()
}

#[tokio::test]
async fn the_changes_of_a_turn_are_an_artifact_before_its_result() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("repo");
    make_repository(&root);
    fs::write(root.join("a.txt"), "one\nof the user\n").unwrap();
    let works = "echo two >> a.txt; echo new > new.txt; ln -s /etc/passwd link";
    // The data directory is within the work tree, as it is by default.
    let options = coder(&root, works, "").data(root.join("herald-data"));
    let herald = Herald::start(options).await;
    let task = told(&herald, "Work").await;
    assert_eq!(state(&task), "completed", "{task}");
    assert_eq!(names(&task), ["agent-metadata", "changes", "result"], "{task}");
    let parts = &artifacts(&task)[1].1["parts"];
    assert_eq!(parts[0]["mediaType"], "text/x-diff", "{parts}");
    let diff = parts[0]["text"].as_str().unwrap();
    assert!(diff.contains(" of the user\n+two\n"), "{diff}");
    assert_eq!(
        parts[1]["data"],
        json!({
            "files": [
                { "path": "a.txt", "status": "modified", "added": 1, "removed": 0 },
                { "path": "link", "status": "added", "added": 1, "removed": 0 },
                { "path": "new.txt", "status": "added", "added": 1, "removed": 0 },
            ],
            "cut": false,
        })
    );

    let message = json!({
        "messageId": uuid(),
        "role": "ROLE_USER",
        "parts": [{ "text": "Again" }],
        "metadata": { "herald/return-files": true },
    });
    let call = Call::post("/message:send", &json!({ "message": message }));
    let task = Wire::Rest.sent(&herald.call(&call.header("a2a-version", "1.0")).await).unwrap();
    // Only the first of the three commands changes something again.
    assert_eq!(names(&task), ["agent-metadata", "changes", "files", "result"], "{task}");
    let files = artifacts(&task)[2].1["parts"].as_array().unwrap();
    assert_eq!(files.len(), 2, "{files:?}");
    assert_eq!(files[0]["filename"], "a.txt");
    assert_eq!(files[0]["raw"], "b25lCm9mIHRoZSB1c2VyCnR3bwp0d28K");
    assert_eq!(files[1]["data"], json!({ "leftOut": [] }));
}

#[tokio::test]
async fn without_changes_without_git_and_with_changes_false_there_is_no_such_artifact() {
    let home = tempfile::tempdir().unwrap();
    let (root, plain) = (home.path().join("repo"), home.path().join("plain"));
    make_repository(&root);
    fs::create_dir(&plain).unwrap();
    let changes = "echo two >> a.txt";
    for (directory, commands, settings) in
        [(&root, ":", ""), (&plain, changes, ""), (&root, changes, "changes = false")]
    {
        let herald = Herald::start(coder(directory, commands, settings)).await;
        let task = told(&herald, "Work").await;
        assert_eq!(names(&task), ["agent-metadata", "result"], "{settings} {task}");
    }
}

#[tokio::test]
async fn changes_that_cannot_be_known_are_reported_with_the_reason() {
    let home = tempfile::tempdir().unwrap();
    let (root, temporary) = (home.path().join("repo"), home.path().join("temporary"));
    make_repository(&root);
    fs::create_dir(&temporary).unwrap();
    // The agent removes the snapshot.
    let options = coder(&root, "echo x > b.txt; rm -rf $TMPDIR/herald-*", "");
    let herald = Herald::start(options.environment("TMPDIR", temporary.to_str().unwrap())).await;
    let task = told(&herald, "Work").await;
    assert_eq!(state(&task), "completed", "{task}");
    let reason = "The changes are not known: git failed";
    let data = json!({ "files": [], "cut": true, "reason": reason });
    assert_eq!(artifact(&task, "changes"), data, "{task}");
    // The operator reads the rest.
    assert!(!task.to_string().contains("temporary"), "{task}");
    assert!(herald.log().contains("the changes of a turn are not known"));
}
