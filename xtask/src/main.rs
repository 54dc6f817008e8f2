//! Commands for developers. `cargo xtask` alone lists them.

mod bench;
mod cargo;
mod changelog;
mod check;
mod prepare;
mod progress;
mod promises;
mod requirements;
mod test;

use std::{
    env,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, bail};

use self::test::Verdict;

const USAGE: &str = "usage: cargo xtask <command>
  check              format, lints and fast tests: what to run before a commit
  lint               clippy over all targets, those of `cargo xtask test` included
  test [filter…]     set up what the chosen tests need and run them; see --help
  bench [options]    measure Herald beside the floor and the official SDKs; see --help
  generate           make the code of the protobuf messages from their files, and docs/api.md
  requirements       list the protocol requirements that tests prove, and those none does
  changelog          move the entries of changes/ into CHANGELOG.md at a release
  tools              install cargo-deny, if it is missing";

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (command, rest) =
        arguments.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let done = |()| Verdict::Green;
    let result = match command {
        "check" => check::run(rest),
        "test" => test::run(rest),
        "lint" => check::lint().map(done),
        "bench" => bench::run(rest).map(done),
        "changelog" => changelog::run(rest).map(done),
        "generate" => generate().map(done),
        "requirements" => requirements::run(rest).map(done),
        "tools" => prepare::tools().map(done),
        _ => Err(anyhow::anyhow!("{USAGE}")),
    };
    match result {
        Ok(Verdict::Green) => ExitCode::SUCCESS,
        // The failures are listed already, and the totals stay the last line.
        Ok(Verdict::Red) => ExitCode::FAILURE,
        Err(error) => {
            // A closed standard error cannot be reported.
            let _ = writeln!(std::io::stderr(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the generator, which nothing else here needs to build.
fn generate() -> anyhow::Result<()> {
    execute(Command::new(env!("CARGO")).args(["run", "--quiet", "--package", "generate"]))
}

/// The root of the workspace.
fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask is a directory of the workspace").to_owned()
}

/// The target directory, for everything that is built or installed.
fn target() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// Runs a command, and fails if it does.
fn execute(command: &mut Command) -> anyhow::Result<()> {
    let status = command
        .status()
        .with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
