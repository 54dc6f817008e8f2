//! Tests of the installation from source with pip, in a new virtual environment and without the network.
//!
//! The build has the profile of the tests, so that no second release is built, and a target directory of its own: it would
//! replace the binaries of the other tests while they run.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tempfile::TempDir;
use tokio::process::Command;

use crate::{
    python_server::DOCUMENTED,
    support::{Ended, ended, ended_within},
};

/// The setup.py of the third document behind docs/compatibility.md, with the lines that it leaves out.
const SETUP: &str = r#"from setuptools import setup

setup(
    name="my-a2a-handlers",
    packages=["my_module"],
    entry_points={
        "a2a.task_handlers": [
            "my_handler = my_module.handlers:MyCustomHandler",
        ],
    },
)
"#;

/// The time limit of an installation, which may build everything.
const BUILD: Duration = Duration::from_secs(3600);

fn root() -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).canonicalize().unwrap()
}

/// A virtual environment.
struct Environment {
    directory: TempDir,
    wheels: PathBuf,
}

impl Environment {
    async fn new() -> Self {
        let wheels = env::var_os("HERALD_TEST_INSTALL").map(PathBuf::from);
        let wheels =
            wheels.expect("run `cargo xtask test install`, which downloads what pip needs");
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("python3");
        command.args(["-m", "venv"]).arg(directory.path());
        let made = ended(command).await;
        assert!(made.status.success(), "{made:?}");
        Self { directory, wheels }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.directory.path().join("bin").join(name)
    }

    /// Runs a line of the document in a shell, as in the activated environment.
    async fn shell(&self, line: &str, directory: &Path) -> Ended {
        let mut command = Command::new("sh");
        let search = env::var_os("PATH").unwrap_or_default();
        let own = self.directory.path().join("bin");
        let search = env::join_paths([own].into_iter().chain(env::split_paths(&search))).unwrap();
        command.args(["-c", line]).current_dir(directory).stdin(Stdio::null());
        command.env("PATH", search).env("VIRTUAL_ENV", self.directory.path());
        command.env("PIP_NO_INDEX", "1").env("PIP_FIND_LINKS", &self.wheels);
        command.env("PIP_DISABLE_PIP_VERSION_CHECK", "1").env("PYTHONDONTWRITEBYTECODE", "1");
        command.env("CARGO_TARGET_DIR", self.wheels.join("build"));
        command.env_remove("PYTHONPATH");
        let ended = ended_within(command, BUILD).await;
        assert!(ended.status.success(), "{line}: {ended:?}");
        ended
    }
}

/// The files among the sources that git does not know.
async fn untracked() -> String {
    let mut command = Command::new("git");
    command.args(["ls-files", "--others", "--exclude-standard"]).current_dir(root());
    ended(command).await.stdout
}

#[tokio::test]
async fn pip_installs_the_programs_the_helper_and_the_tests_from_the_root() {
    let before = untracked().await;
    let environment = Environment::new().await;
    environment.shell("pip install -e .", &root()).await;
    for name in ["herald", "a2a-server"] {
        let printed = environment.shell(&format!("{name} --version"), &root()).await;
        assert_eq!(printed.stdout, format!("{name} {}\n", env!("CARGO_PKG_VERSION")));
    }
    let imported = "python -c 'import agent_worker, herald; print(herald.__file__)'";
    let imported = environment.shell(imported, environment.directory.path()).await;
    assert!(imported.stdout.contains("python/src/herald"), "editable: {imported:?}");

    // A package of handlers with the setup.py of the document is found, also where the environment is not activated.
    let package = tempfile::tempdir().unwrap();
    let module = package.path().join("my_module");
    fs::create_dir(&module).unwrap();
    fs::write(package.path().join("setup.py"), SETUP).unwrap();
    fs::write(module.join("__init__.py"), "").unwrap();
    fs::write(module.join("handlers.py"), DOCUMENTED).unwrap();
    environment.shell("pip install -e .", package.path()).await;
    let mut command = Command::new(environment.program("a2a-server"));
    command.arg("--list-handlers").current_dir(environment.directory.path());
    let listed = ended(command).await;
    let names: Vec<_> = listed.stdout.lines().filter_map(|row| row.split(' ').next()).collect();
    assert_eq!(names, ["HANDLER", "echo", "my_handler"], "{listed:?}");

    environment.shell("pip install -e \".[dev]\"", &root()).await;
    let tested = environment.shell("pytest", &root()).await;
    assert!(tested.stdout.contains(" passed") && !tested.stdout.contains("failed"), "{tested:?}");
    assert!(tested.stdout.contains("python/tests/test_handlers.py"), "{tested:?}");
    assert_eq!(untracked().await, before, "an installation leaves no files among the sources");
}
