//! Discovery of agents: manifests beside the configuration file, and handlers on `PATH`.

use std::{
    collections::BTreeSet,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Context;
use herald_protocol::AgentName;

use crate::serve::config::{AgentSection, HandlerSection, KindSection, ProgramSection};

/// The directory of manifests, beside the configuration file.
const DIRECTORY: &str = "handlers";

/// The prefix of handlers on `PATH`.
const PREFIX: &str = "herald-handler-";

/// The source of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Provenance {
    BuiltIn,
    /// The command line.
    CommandLine,
    /// The configuration file.
    Configured,
    /// A package that the command line names: the class and file of the handler.
    Package(String),
    /// An installed package: the class and file of the handler.
    Installed(String),
    /// A manifest, or a program on `PATH`.
    Found(PathBuf),
}

impl Provenance {
    /// One word, for programs.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::BuiltIn => "built-in",
            Self::CommandLine => "flag",
            Self::Configured => "configured",
            Self::Package(_) => "package",
            Self::Installed(_) => "installed",
            Self::Found(_) => "found",
        }
    }

    /// The file of a found agent.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::BuiltIn
            | Self::CommandLine
            | Self::Configured
            | Self::Package(_)
            | Self::Installed(_) => None,
            Self::Found(path) => Some(path),
        }
    }
}

/// All found agents, each name once: manifests override `PATH`, and earlier directories of `PATH` later ones.
pub(super) fn discover(config: Option<&Path>) -> anyhow::Result<Vec<(AgentSection, Provenance)>> {
    let mut found = manifests(config)?;
    found.extend(on_search_path());
    let mut names = BTreeSet::new();
    found.retain(|(section, _)| names.insert(section.common.name.clone()));
    Ok(found)
}

/// The agents of manifests. The current directory is never searched, since its files may be somebody else's.
fn manifests(config: Option<&Path>) -> anyhow::Result<Vec<(AgentSection, Provenance)>> {
    let Some(config) = config else { return Ok(Vec::new()) };
    let directory = std::path::absolute(config)?.with_file_name(DIRECTORY);
    if !directory.is_dir() {
        return Ok(Vec::new());
    }
    let cannot = || format!("cannot search {} for handlers", directory.display());
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

/// The handlers on `PATH`.
fn on_search_path() -> Vec<(AgentSection, Provenance)> {
    let usable = candidates().into_iter().filter_map(|(path, name)| {
        let handler = ProgramSection {
            command: Some(vec![path.to_string_lossy().into_owned()]),
            ..ProgramSection::default()
        };
        let section = AgentSection::new(
            &name.ok()?,
            KindSection::Handler(handler, HandlerSection::default()),
        );
        Some((section, Provenance::Found(path)))
    });
    usable.collect()
}

/// Messages about files on `PATH` with the name of a handler that cannot be used.
pub(crate) fn skipped() -> Vec<String> {
    let refused = candidates().into_iter().filter_map(|(path, name)| {
        let why = name.err()?;
        Some(format!("{} is skipped: {why}", path.display()))
    });
    refused.collect()
}

/// All files on `PATH` with the name of a handler: the agent's name, or the reason why it cannot be used.
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
    let Ok(file) = path.metadata() else { return Err("it is a broken link".to_owned()) };
    if !file.is_file() {
        return Err("it is not a file".to_owned());
    }
    if file.permissions().mode() & 0o111 == 0 {
        return Err("it is not executable (`chmod +x`)".to_owned());
    }
    if AgentName::new(name).is_segment() {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "{name:?} is not a valid agent name; after {PREFIX} write 1 to 63 characters of a-z, 0-9 \
             and -"
        ))
    }
}
