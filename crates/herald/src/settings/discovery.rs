//! Agents that nobody configured, because they are found.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use herald_protocol::AgentName;

use crate::config::AgentSection;

/// The directory of manifests, beside the configuration file.
const DIRECTORY: &str = "handlers";

/// How handlers on the search path are called.
const PREFIX: &str = "herald-handler-";

/// Where an agent comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Provenance {
    /// It is part of the program.
    BuiltIn,
    /// The command line.
    CommandLine,
    /// The configuration file.
    Configured,
    /// A package that the command line names.
    Package,
    /// A manifest or a program of its own.
    Found(PathBuf),
}

impl Provenance {
    /// In a word, for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::CommandLine => "flag",
            Self::Configured => "configured",
            Self::Package => "package",
            Self::Found(_) => "found",
        }
    }

    /// The file it was found in, if it was.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn | Self::CommandLine | Self::Configured | Self::Package => None,
            Self::Found(path) => Some(path),
        }
    }
}

/// All that can be found, each name once: a manifest wins over the search path, and what is earlier
/// on that over what is later.
pub(super) fn discover(config: Option<&Path>) -> anyhow::Result<Vec<(AgentSection, Provenance)>> {
    let mut found = manifests(config)?;
    found.extend(on_search_path());
    let mut names = BTreeSet::new();
    found.retain(|(section, _)| names.insert((*section.name).clone()));
    Ok(found)
}

/// Never looks in the current directory: what happens to lie there was not put there for us.
fn manifests(config: Option<&Path>) -> anyhow::Result<Vec<(AgentSection, Provenance)>> {
    let Some(config) = config else { return Ok(Vec::new()) };
    let directory = std::path::absolute(config)?.with_file_name(DIRECTORY);
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let cannot = || format!("cannot look for handlers in {}", directory.display());
    let mut paths = Vec::new();
    for entry in fs::read_dir(&directory).with_context(cannot)? {
        let path = entry.with_context(cannot)?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort();
    let read = |path: PathBuf| Ok((AgentSection::read(&path)?, Provenance::Found(path)));
    paths.into_iter().map(read).collect()
}

/// Programs whose name says that they are handlers, and which.
fn on_search_path() -> Vec<(AgentSection, Provenance)> {
    let search = env::var_os("PATH").unwrap_or_default();
    let mut found = Vec::new();
    for directory in env::split_paths(&search).filter(|directory| directory.is_absolute()) {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut programs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        programs.sort();
        for path in programs {
            let name = path.file_name().and_then(|name| name.to_str());
            let Some(name) = name.and_then(|name| name.strip_prefix(PREFIX)) else { continue };
            let usable = path
                .metadata()
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0);
            if usable && AgentName::new(name).is_segment() {
                let section = AgentSection {
                    command: Some(vec![path.to_string_lossy().into_owned()].into()),
                    ..AgentSection::new(name, "handler")
                };
                found.push((section, Provenance::Found(path)));
            }
        }
    }
    found
}
