//! What the tests of all coding agents need: where they are installed, what their model says, what
//! runs of them and what a task holds of theirs.

use std::{env, fs, path::PathBuf};

use serde_json::Value;

use crate::{exec::runs, model::Step};

/// Where the coding agents are that the tests run.
pub(crate) fn installed(name: &str) -> PathBuf {
    let directory = env::var_os("HERALD_TEST_CODING");
    let directory = directory.expect("`cargo xtask test` installs them and says where");
    PathBuf::from(directory).join("node_modules/.bin").join(name)
}

/// What the model says, and has finished.
pub(crate) fn text(text: &str) -> Step {
    Step::Text(text.to_owned())
}

/// The processes that run with this variable: those of one agent and nobody else's, if its value is.
pub(crate) fn running_with(variable: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    };
    pids.filter(|pid| runs(*pid) && has_it(pid)).collect()
}

/// The one artifact with this name, as the text of its parts or as its data.
pub(crate) fn artifact(task: &Value, name: &str) -> Value {
    let artifacts = task["artifacts"].as_array().map(Vec::as_slice).unwrap_or_default();
    let found: Vec<_> = artifacts.iter().filter(|artifact| artifact["name"] == name).collect();
    let [artifact] = found[..] else { panic!("{} artifacts {name}: {task}", found.len()) };
    let parts = artifact["parts"].as_array().unwrap();
    match parts[0].get("data") {
        Some(data) => data.clone(),
        None => parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<String>().into(),
    }
}
