//! Agents that run programs.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use anyhow::bail;
use herald_agents::{
    ErrorDetail, Exec, Handler, Input,
    process::{Processes, Program, Workdir},
};
use herald_engine::{Agent, Profile};

use crate::{
    args::Serve,
    serve::config::{
        AgentSection, ErrorDetailKey, ExecSection, InputKey, KindSection, Mistake, ProgramSection,
    },
};

use super::{recovery, span};

const KILL_GRACE: Duration = Duration::from_secs(5);

/// The agent of the flags, if they ask for one.
pub(super) fn of_flags(args: &Serve) -> anyhow::Result<Option<AgentSection>> {
    let Some(text) = &args.exec else { return Ok(None) };
    let workdir = args.workdir.clone();
    check_shell(text, workdir.as_deref().unwrap_or(Path::new("")))?;
    // As the shell would run it where it was typed.
    let command = ["sh", "-c", text].map(str::to_owned);
    let program =
        ProgramSection { command: Some(command.into()), workdir, ..ProgramSection::default() };
    let kind = KindSection::Exec(program, ExecSection::default());
    Ok(Some(AgentSection::new("exec", kind)))
}

/// Refuses a line that begins with a program that is not there. Where the shell would first make
/// something else of the word, only the shell can know.
fn check_shell(text: &str, workdir: &Path) -> anyhow::Result<()> {
    let Some(word) =
        text.trim().split([' ', '\t', '\n', ';', '|', '&']).find(|word| !word.is_empty())
    else {
        bail!("--exec needs a command, such as --exec 'wc -w'");
    };
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "_-+./".contains(letter);
    if !word.chars().all(is_plain) {
        return Ok(());
    }
    let path = match word.contains('/') {
        true => Path::new(".").join(workdir).join(word).to_string_lossy().into_owned(),
        false => word.to_owned(),
    };
    let Err(fault) = Program::find(&path, None) else { return Ok(()) };
    // Its own words, such as `cd` and `for`, are nowhere on the search path.
    let known = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "command -v \"$1\"", "sh", word]);
        let asked = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    };
    if !word.contains('/') && known() {
        return Ok(());
    }
    bail!("--exec: {fault}")
}

/// An agent that runs a program for each turn.
pub(super) fn exec(
    section: &AgentSection,
    keys: &ProgramSection,
    own: &ExecSection,
    processes: &Processes,
) -> Result<(Profile, Arc<dyn Agent>), Mistake> {
    let mut exec = Exec::new(&section.common.name, keys.program(section)?, processes.clone());
    exec.input = match own.input {
        None | Some(InputKey::Text) => Input::Text,
        Some(InputKey::Json) => Input::Json,
    };
    exec.max_output = keys.max_output.map_or(exec.max_output, |size| size.0);
    exec.error_detail = error_detail(keys.error_detail, exec.error_detail);
    let mut profile = exec.profile();
    profile.recovery = recovery(keys.attempts, profile.recovery);
    Ok((profile, Arc::new(exec)))
}

/// An agent that gives its turns to one process.
pub(super) fn handler(
    section: &AgentSection,
    keys: &ProgramSection,
    processes: &Processes,
) -> Result<(Profile, Arc<dyn Agent>), Mistake> {
    let program = keys.program(section)?;
    let mut handler = Handler::new(&section.common.name, program, processes.clone());
    handler.max_output = keys.max_output.map_or(handler.max_output, |size| size.0);
    handler.error_detail = error_detail(keys.error_detail, handler.error_detail);
    handler.attempts = keys.attempts.unwrap_or(handler.attempts);
    let mut profile = handler.profile();
    profile.recovery = recovery(keys.attempts, profile.recovery);
    Ok((profile, Arc::new(handler)))
}

impl ProgramSection {
    /// The program of an agent.
    pub(super) fn program(&self, section: &AgentSection) -> Result<Program, Mistake> {
        self.program_of(self.command.clone().unwrap_or_default(), section)
    }

    /// The same with another command.
    pub(super) fn program_of(
        &self,
        mut command: Vec<String>,
        section: &AgentSection,
    ) -> Result<Program, Mistake> {
        let Some(path) = command.first_mut().filter(|path| !path.is_empty()) else {
            let kind = section.kind.kind().name();
            let example = match kind {
                "acp" => "[\"opencode\", \"acp\"]",
                "handler" => "[\"./handler.sh\"]",
                _ => "[\"wc\", \"-w\"]",
            };
            let said = format!("kind = {kind:?} needs a command, such as command = {example}");
            return Err(Mistake::new("command", said));
        };
        if path.contains('/') {
            *path = section.base.join(&path).to_string_lossy().into_owned();
        }
        // Nothing is what a path is relative to that starts where the server does.
        let place = |path: &Path| match section.base.join(path) {
            path if path.as_os_str().is_empty() => PathBuf::from("."),
            path => path,
        };
        let workdir = place(self.workdir.as_deref().unwrap_or(Path::new("")));
        let roots: Vec<_> = self.allowed_roots.iter().map(|root| place(root)).collect();
        for root in &roots {
            Workdir::new(root, &[]).map_err(|fault| Mistake::of("allowed_roots", fault))?;
        }
        let workdir =
            Workdir::new(&workdir, &roots).map_err(|fault| Mistake::of("workdir", fault))?;
        let environment =
            self.env.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
        let grace = span(section.common.kill_grace).unwrap_or(KILL_GRACE);
        let program = Program::new(&command, workdir, environment, grace);
        program.map_err(|fault| {
            let cure = cure(&section.base, &command[0]).unwrap_or_default();
            Mistake::of("command", format!("{fault}{cure}"))
        })
    }
}

/// Advice for the name of a program that was not found.
fn cure(base: &Path, name: &str) -> Option<String> {
    if name.contains('/') {
        return None;
    }
    if base.join(name).is_file() {
        return Some(format!(" The file of that name beside it is \"./{name}\""));
    }
    let words: Vec<_> = name.split_whitespace().collect();
    (words.len() > 1).then(|| format!(" Each word stands by itself: {words:?}"))
}

/// How much callers hear of its failures.
pub(super) fn error_detail(given: Option<ErrorDetailKey>, otherwise: ErrorDetail) -> ErrorDetail {
    match given {
        None => otherwise,
        Some(ErrorDetailKey::Kind) => ErrorDetail::Kind,
        Some(ErrorDetailKey::Message) => ErrorDetail::Message,
        Some(ErrorDetailKey::Full) => ErrorDetail::Full,
    }
}
