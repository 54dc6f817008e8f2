//! Agents that nobody configured, because they are found.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use herald_protocol::AgentName;

use crate::serve::config::{AgentSection, KindSection, ProgramSection};

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
    found.retain(|(section, _)| names.insert(section.common.name.clone()));
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
    let usable = candidates().into_iter().filter_map(|(path, name)| {
        let handler = ProgramSection {
            command: Some(vec![path.to_string_lossy().into_owned()]),
            ..ProgramSection::default()
        };
        let section = AgentSection::new(&name.ok()?, KindSection::Handler(handler));
        Some((section, Provenance::Found(path)))
    });
    usable.collect()
}

/// What is called like a handler on the search path and cannot be one, in whole sentences.
pub(crate) fn passed_over() -> Vec<String> {
    let refused = candidates().into_iter().filter_map(|(path, name)| {
        let why = name.err()?;
        Some(format!("{} is passed over: {why}", path.display()))
    });
    refused.collect()
}

/// All files on the search path that are called like a handler: the agent's name, or why not.
fn candidates() -> Vec<(PathBuf, Result<String, String>)> {
    let search = env::var_os("PATH").unwrap_or_default();
    let mut found = Vec::new();
    for directory in env::split_paths(&search).filter(|directory| directory.is_absolute()) {
        let entries = fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut programs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        programs.sort();
        for path in programs {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if let Some(name) = file.strip_prefix(PREFIX) {
                let checked = check(&path, name);
                found.push((path, checked));
            }
        }
    }
    found
}

fn check(path: &Path, name: &str) -> Result<String, String> {
    let Ok(file) = path.metadata() else { return Err("it leads nowhere".to_owned()) };
    if !file.is_file() {
        return Err("it is no file".to_owned());
    }
    if file.permissions().mode() & 0o111 == 0 {
        return Err("it is not executable (`chmod +x`)".to_owned());
    }
    match AgentName::new(name).is_segment() {
        true => Ok(name.to_owned()),
        false => Err(format!(
            "{name:?} is no name for an agent; behind {PREFIX} write 1 to 63 characters of a-z, \
             0-9 and -"
        )),
    }
}
