//! Agents that run programs.

use std::{
    fmt,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, bail};
use herald_agents::{
    ErrorDetail, Exec, Handler, Input,
    process::{Processes, Program, Workdir},
};
use herald_engine::{Agent, Profile};

use crate::{
    args::Serve,
    config::{AgentSection, ErrorDetailKey, InputKey},
};

use super::{coding, span};

const KILL_GRACE: Duration = Duration::from_secs(5);

/// A mistake in what the section says, but not in its kind.
#[derive(Debug)]
pub(super) struct Misplaced {
    pub(super) place: Range<usize>,
    said: String,
}

impl fmt::Display for Misplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

impl std::error::Error for Misplaced {}

/// The agent of the flags, if they ask for one.
pub(super) fn of_flags(args: &Serve) -> Option<AgentSection> {
    // As the shell would run it where it was typed.
    let command = ["sh".to_owned(), "-c".to_owned(), args.exec.clone()?];
    Some(AgentSection {
        command: Some(Vec::from(command).into()),
        workdir: args.workdir.clone(),
        ..AgentSection::new("exec", "exec")
    })
}

/// Whether agents of this kind run a program.
pub(super) fn runs_programs(kind: &str) -> bool {
    matches!(kind, "exec" | "handler") || coding::preset(kind).is_some()
}

/// An agent that runs a program for each turn.
pub(super) fn exec(
    section: &AgentSection,
    processes: &Processes,
) -> anyhow::Result<(Profile, Arc<dyn Agent>)> {
    let mut exec = Exec::new(&section.name, given(section)?, processes.clone());
    exec.input = match section.input {
        None | Some(InputKey::Text) => Input::Text,
        Some(InputKey::Json) => Input::Json,
    };
    exec.max_output = section.max_output.map_or(exec.max_output, |size| size.0);
    exec.error_detail = error_detail(section, exec.error_detail);
    Ok((exec.profile(), Arc::new(exec)))
}

/// An agent that gives its turns to one process.
pub(super) fn handler(
    section: &AgentSection,
    processes: &Processes,
) -> anyhow::Result<(Profile, Arc<dyn Agent>)> {
    let mut handler = Handler::new(&section.name, given(section)?, processes.clone());
    handler.max_output = section.max_output.map_or(handler.max_output, |size| size.0);
    handler.error_detail = error_detail(section, handler.error_detail);
    handler.attempts = section.attempts.unwrap_or(handler.attempts);
    Ok((handler.profile(), Arc::new(handler)))
}

/// The program that the section names.
fn given(section: &AgentSection) -> anyhow::Result<Program> {
    let command = section.command.as_ref().map(|command| command.to_vec());
    program(section, command.unwrap_or_default())
}

/// A program that runs as the section says.
pub(super) fn program(section: &AgentSection, mut command: Vec<String>) -> anyhow::Result<Program> {
    let agent = || format!("agent {:?}", *section.name);
    let Some(path) = command.first_mut().filter(|path| !path.is_empty()) else {
        let kind = &*section.kind;
        bail!("{}: kind = {kind:?} needs a command, such as [\"wc\", \"-w\"]", agent());
    };
    if path.contains('/') {
        *path = section.base.join(&path).to_string_lossy().into_owned();
    }
    // Nothing is what a path is relative to that starts where the server does.
    let place = |path: &Path| match section.base.join(path) {
        path if path.as_os_str().is_empty() => PathBuf::from("."),
        path => path,
    };
    let workdir = place(section.workdir.as_deref().unwrap_or(Path::new("")));
    let roots: Vec<_> = section.allowed_roots.iter().map(|root| place(root)).collect();
    let workdir = Workdir::new(&workdir, &roots);
    let workdir = workdir.with_context(|| format!("{}: workdir", agent()))?;
    let environment =
        section.env.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
    let grace = span(section.kill_grace).unwrap_or(KILL_GRACE);
    let program = Program::new(&command, workdir, environment, grace);
    program.map_err(|fault| {
        let place = section.command.as_ref().map_or(&section.kind.place, |command| &command.place);
        let said = format!("{}: command: {fault}", agent());
        Misplaced { place: place.clone(), said }.into()
    })
}

/// How much callers hear of its failures.
pub(super) fn error_detail(section: &AgentSection, otherwise: ErrorDetail) -> ErrorDetail {
    match section.error_detail {
        None => otherwise,
        Some(ErrorDetailKey::Kind) => ErrorDetail::Kind,
        Some(ErrorDetailKey::Message) => ErrorDetail::Message,
        Some(ErrorDetailKey::Full) => ErrorDetail::Full,
    }
}
