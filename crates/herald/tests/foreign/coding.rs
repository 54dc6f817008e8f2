//! Helpers for the tests of real coding agents: their installation, their model's answers and their processes.

use std::{env, fs, path::PathBuf, time::Duration};

use crate::{model::Step, processes::runs};

/// The timeout of a condition. Coding agents start slowly on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);

/// The same in the format of settings.
pub(crate) const LONG_TIMEOUT: &str = "start_timeout = \"10m\"";

/// The directory of the installed coding agents.
pub(crate) fn installed(name: &str) -> PathBuf {
    package(".bin").join(name)
}

/// The directory of a package that is installed in several versions.
pub(crate) fn package(name: &str) -> PathBuf {
    let directory = env::var_os("HERALD_TEST_CODING");
    let directory = directory.expect("`cargo xtask test` installs them and says where");
    PathBuf::from(directory).join("node_modules").join(name)
}

/// A complete answer of the model.
pub(crate) fn text(text: &str) -> Step {
    Step::Text(text.to_owned())
}

/// The processes with this variable in their environment.
pub(crate) fn running_with(variable: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let has_it = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    };
    pids.filter(|pid| runs(*pid) && has_it(pid)).collect()
}
