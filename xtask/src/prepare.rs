//! Installs what tests and checks need and this machine lacks.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

use crate::{execute, root, target};

const DENY: &str = "cargo-deny@0.20.2";

/// The official clients, ready to run, under `target/clients`.
pub(crate) fn clients() -> anyhow::Result<PathBuf> {
    let sources = root().join("tests/clients");
    let installed = target().join("clients");
    // The documents are written for it.
    need("curl", &["curl"])?;
    for name in ["python1", "python03"] {
        need("python3", &["python3", "python3-venv"])?;
        python(&sources.join(name), &installed.join(name))?;
    }
    for name in ["js1", "js03"] {
        need("node", &["nodejs", "npm"])?;
        need("npm", &["nodejs", "npm"])?;
        javascript(&sources.join(name), &installed.join(name))?;
    }
    say("building the official Rust client")?;
    rust(&sources.join("rust"))?;
    Ok(installed)
}

/// Agents on the official server SDKs, ready to run, under `target/servers`.
pub(crate) fn servers() -> anyhow::Result<PathBuf> {
    let (sources, installed) = (root().join("tests/servers"), target().join("servers"));
    for name in ["python1", "python03"] {
        need("python3", &["python3", "python3-venv"])?;
        python(&sources.join(name), &installed.join(name))?;
    }
    need("npm", &["nodejs", "npm"])?;
    for name in ["js1", "js03"] {
        javascript(&sources.join(name), &installed.join(name))?;
    }
    say("building an agent on the official Rust SDK")?;
    let built = rust(&sources.join("rust"))?;
    fs::create_dir_all(installed.join("rust"))?;
    let program = "official-rust-server";
    fs::copy(built.join("debug").join(program), installed.join("rust").join(program))?;
    Ok(installed)
}

/// The coding agents that come as npm packages, ready to run, under `target/coding`.
pub(crate) fn coding() -> anyhow::Result<PathBuf> {
    let (source, installed) = (root().join("tests/coding"), target().join("coding"));
    need("npm", &["nodejs", "npm"])?;
    javascript(&source, &installed)?;
    // These put their program in its place with a script of their own. Claude Code is there twice.
    let claude = ["@anthropic-ai/claude-code", "claude-code-newest"];
    let program = |name: &str| installed.join("node_modules").join(name).join("bin/claude.exe");
    if !claude.iter().all(|name| succeeds(program(name), &["--version"])) {
        execute(
            Command::new("npm")
                .args(["rebuild", "--silent"])
                .args(claude)
                .arg("opencode-ai")
                .current_dir(&installed),
        )?;
    }
    Ok(installed)
}

/// cargo-deny, which `.ci/run` calls.
pub(crate) fn tools() -> anyhow::Result<()> {
    if succeeds("cargo-deny", &["--version"]) {
        return Ok(());
    }
    say("building cargo-deny, which takes a few minutes once")?;
    // Unoptimised: it runs for a second and would take three times as long to build.
    execute(Command::new(env!("CARGO")).args(["install", "--locked", "--debug", "--quiet", DENY]))
}

/// Builds what uses the official Rust SDK. The client and the server share all that they can.
fn rust(source: &Path) -> anyhow::Result<PathBuf> {
    let built = target().join("clients/rust");
    execute(
        Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--manifest-path"])
            .arg(source.join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&built),
    )?;
    Ok(built)
}

fn python(source: &Path, installed: &Path) -> anyhow::Result<()> {
    let wanted = fs::read_to_string(source.join("requirements.txt"))?;
    fresh(installed, &wanted, || {
        execute(Command::new("python3").args(["-m", "venv", "--clear"]).arg(installed))?;
        execute(
            Command::new(installed.join("bin/pip"))
                .args(["install", "--quiet", "--disable-pip-version-check", "-r"])
                .arg(source.join("requirements.txt")),
        )
    })
}

fn javascript(source: &Path, installed: &Path) -> anyhow::Result<()> {
    let wanted = fs::read_to_string(source.join("package.json"))?;
    fresh(installed, &wanted, || {
        fs::create_dir_all(installed)?;
        fs::copy(source.join("package.json"), installed.join("package.json"))?;
        let lock = source.join("package-lock.json");
        if lock.exists() {
            fs::copy(&lock, installed.join("package-lock.json"))?;
        }
        let verb = if lock.exists() { "ci" } else { "install" };
        execute(
            Command::new("npm")
                .args([verb, "--silent", "--no-audit", "--no-fund", "--ignore-scripts"])
                .current_dir(installed),
        )
    })?;
    // Node looks for packages beside a script, so scripts come along, always the newest.
    for entry in fs::read_dir(source)? {
        let script = entry?.path();
        if let (Some("mjs"), Some(name)) =
            (script.extension().and_then(|kind| kind.to_str()), script.file_name())
        {
            fs::copy(&script, installed.join(name))?;
        }
    }
    Ok(())
}

/// Installs again only when what is wanted has changed.
fn fresh(
    installed: &Path,
    wanted: &str,
    install: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let stamp = installed.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(());
    }
    say(&format!("installing {}", installed.display()))?;
    install()?;
    fs::write(stamp, wanted)?;
    Ok(())
}

/// Makes sure that a program is there, from Debian's packages where we may install them.
fn need(program: &str, packages: &[&str]) -> anyhow::Result<()> {
    if succeeds(program, &["--version"]) {
        return Ok(());
    }
    let line = format!("apt-get install -y {}", packages.join(" "));
    if !succeeds("apt-get", &["--version"]) || !is_root()? {
        bail!("{program} is missing; install it, for example with: sudo {line}");
    }
    say(&format!("{program} is missing: {line}"))?;
    execute(Command::new("apt-get").args(["update", "-qq"]))?;
    execute(Command::new("apt-get").args(["install", "-y", "-qq"]).args(packages))
}

fn is_root() -> anyhow::Result<bool> {
    let out = Command::new("id").arg("-u").output().context("cannot run id")?;
    Ok(out.stdout.trim_ascii() == b"0")
}

fn succeeds(program: impl AsRef<OsStr>, arguments: &[&str]) -> bool {
    let quiet = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    quiet.is_ok_and(|status| status.success())
}

fn say(text: &str) -> anyhow::Result<()> {
    writeln!(std::io::stderr(), "xtask: {text}")?;
    Ok(())
}
