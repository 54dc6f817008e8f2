//! Tests of the commands in the documents, which are run in a shell.

use std::{fs, path::Path};

use tokio::process::Command;

use crate::support::{Ended, Herald, Options, ended};

/// The blocks of a page in this language.
pub(crate) fn blocks(page: &str, language: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(page);
    let text = fs::read_to_string(path).unwrap();
    let begin = format!("```{language}\n");
    let blocks = text.split(&begin).skip(1);
    blocks.map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// The blocks of a page that are written for a shell, for a server at this address.
fn lines(page: &str, address: &str) -> String {
    let blocks = blocks(page, "sh").concat();
    blocks.replace("127.0.0.1:8000", address).replace("localhost:8000", address)
}

/// Runs them where `herald` is the binary under test and no call lasts longer than a person who
/// has seen enough of it.
pub(crate) async fn paste(home: &Path, lines: &str) -> Ended {
    let mut command = Command::new("sh");
    let lines = format!("curl() {{ command curl -sS --max-time 8 \"$@\"; echo; }}\n{lines}");
    let program = Path::new(env!("CARGO_BIN_EXE_herald")).parent().unwrap();
    let search = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    command.args(["-c", &lines]).current_dir(home).env("PATH", search);
    ended(command).await
}

#[tokio::test]
async fn every_call_of_the_http_page_works() {
    let herald = Herald::start(Options::agents()).await;
    let lines = lines("docs/http.md", &herald.address.to_string());
    let pasted = paste(herald.home(), &lines).await;
    // Only streams without an end time out.
    let faults = pasted.stderr.lines().filter(|line| !line.contains("timed out"));
    assert_eq!(faults.count(), 0, "{pasted:?}");
    assert!(!pasted.stdout.contains("\"error\""), "{}", pasted.stdout);
    for shown in [
        "Echo: Hello",
        "TASK_STATE_CANCELED",
        "TASK_STATE_INPUT_REQUIRED",
        "\"lastChunk\":true",
        "\"role\":\"ROLE_USER\",\"content\":[{\"text\":\"Hello\"}]",
        "my-task",
        "tasks/event",
    ] {
        assert!(pasted.stdout.contains(shown), "no {shown} in {}", pasted.stdout);
    }
}

#[tokio::test]
async fn every_command_of_the_readme_and_the_stdio_page_works() {
    let home = tempfile::tempdir().unwrap();
    let pasted = paste(home.path(), &lines("docs/stdio.md", "")).await;
    assert!(pasted.status.success() && pasted.stdout.contains("Echo: Hello"), "{pasted:?}");
    let herald = Herald::start(Options::default()).await;
    let lines = lines("README.md", &herald.address.to_string());
    let mut lines = lines.lines();
    // The first two commands install and start the server.
    let start = [lines.next(), lines.next()].map(Option::unwrap_or_default);
    assert_eq!(start, ["cargo install --locked --path crates/herald", "herald serve"]);
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert!(package.ends_with("crates/herald"), "{}", package.display());
    let calls: Vec<_> = lines.filter(|line| !line.starts_with("cargo ")).collect();
    let pasted = paste(herald.home(), &calls.join("\n")).await;
    assert_eq!(pasted.stderr, "");
    let echoed = pasted.stdout.matches("Echo: Hello").count();
    assert!(echoed >= 2, "{}", pasted.stdout);
}

/// The handlers that a server with this file would serve.
async fn listed(home: &Path, entries: &str) -> String {
    fs::write(home.join("herald.toml"), entries).unwrap();
    // Any program will do, since none is run.
    let program = "CLAUDE_CODE_PATH=/bin/true herald serve --list-handlers --no-discovery";
    let pasted = paste(home, program).await;
    assert!(pasted.status.success(), "{pasted:?}");
    pasted.stdout
}

#[tokio::test]
async fn every_entry_of_the_agents_pages_is_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let home = tempfile::tempdir().unwrap();
    for directory in ["texts", "repo"] {
        fs::create_dir(home.path().join(directory)).unwrap();
    }
    let commit = "cd repo && git init --quiet --initial-branch=main && git -c user.name=a \
                  -c user.email=a@b commit --quiet --allow-empty --message=first";
    assert!(paste(home.path(), commit).await.status.success());
    fs::copy(root.join("crates/agents/examples/handler.sh"), home.path().join("handler.sh"))
        .unwrap();
    let is_listed = |name: &str, listed: &str| {
        listed.lines().any(|line| line.starts_with(name) && line.contains("configured"))
    };
    let entries = blocks("docs/agents.md", "toml").concat();
    let shown = listed(home.path(), &entries).await;
    for name in ["wc", "count", "poet", "researcher"] {
        assert!(is_listed(name, &shown), "{name}: {shown}");
    }
    let coding = blocks("docs/coding-agents.md", "toml");
    assert!(coding.len() >= 3, "{coding:?}");
    for entry in coding {
        assert!(is_listed("coder", &listed(home.path(), &entry).await), "{entry}");
    }
}
