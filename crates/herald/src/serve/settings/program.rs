//! Programs as agents: `exec`, `handler` and `--exec`.

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
        AgentSection, ErrorDetailKey, ExecSection, HandlerSection, InputKey, KeyError, KindSection,
        ProgramSection,
    },
};

use super::{recovery, span};

const KILL_GRACE: Duration = Duration::from_secs(5);

/// The agent of `--exec`, if it is given.
pub(super) fn of_flags(args: &Serve) -> anyhow::Result<Option<AgentSection>> {
    let Some(text) = &args.exec else { return Ok(None) };
    let workdir = args.workdir.clone();
    check_shell(text, workdir.as_deref().unwrap_or(Path::new("")))?;
    // The text of the flag is shell syntax.
    let command = ["sh", "-c", text].map(str::to_owned);
    let program =
        ProgramSection { command: Some(command.into()), workdir, ..ProgramSection::default() };
    let kind = KindSection::Exec(program, ExecSection::default());
    Ok(Some(AgentSection::new("exec", kind)))
}

/// An error if the line begins with a missing program. A first word with shell syntax is not checked.
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
    let path = if word.contains('/') {
        // The components leave out repeated dots, as in `././run.sh`.
        let path: PathBuf = Path::new(".").join(workdir).join(word).components().collect();
        path.to_string_lossy().into_owned()
    } else {
        word.to_owned()
    };
    let Err(fault) = Program::find(&path, None) else { return Ok(()) };
    // Built-ins of the shell, such as `cd` and `for`, are not on `PATH`.
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

/// Builds an agent that runs a program for each turn.
pub(super) fn exec(
    section: &AgentSection,
    keys: &ProgramSection,
    own: &ExecSection,
    processes: &Processes,
) -> Result<(Profile, Arc<dyn Agent>), KeyError> {
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

/// Builds an agent with one process for all turns.
pub(super) fn handler(
    section: &AgentSection,
    keys: &ProgramSection,
    own: &HandlerSection,
    processes: &Processes,
) -> Result<(Profile, Arc<dyn Agent>), KeyError> {
    let program = keys.program(section)?;
    let mut handler = Handler::new(&section.common.name, program, processes.clone());
    handler.max_output = keys.max_output.map_or(handler.max_output, |size| size.0);
    handler.error_detail = error_detail(keys.error_detail, handler.error_detail);
    handler.attempts = keys.attempts.unwrap_or(handler.attempts);
    handler.admission = own.admission;
    let mut profile = handler.profile();
    profile.recovery = recovery(keys.attempts, profile.recovery);
    Ok((profile, Arc::new(handler)))
}

impl ProgramSection {
    /// The program of an agent.
    pub(super) fn program(&self, section: &AgentSection) -> Result<Program, KeyError> {
        self.program_of(self.command.clone().unwrap_or_default(), section)
    }

    /// The program of an agent with another command.
    pub(super) fn program_of(
        &self,
        mut command: Vec<String>,
        section: &AgentSection,
    ) -> Result<Program, KeyError> {
        let Some(path) = command.first_mut().filter(|path| !path.is_empty()) else {
            let kind = section.kind.kind().name();
            let example = match kind {
                "acp" => "[\"opencode\", \"acp\"]",
                "handler" => "[\"./handler.sh\"]",
                _ => "[\"wc\", \"-w\"]",
            };
            let said = format!("kind = {kind:?} needs a command, such as command = {example}");
            return Err(KeyError::new("command", said));
        };
        if path.contains('/') {
            *path = section.base.join(&path).to_string_lossy().into_owned();
        }
        // The base is empty for paths that are relative to the server's directory.
        let place = |path: &Path| match section.base.join(path) {
            path if path.as_os_str().is_empty() => PathBuf::from("."),
            path => path,
        };
        let workdir = place(self.workdir.as_deref().unwrap_or(Path::new("")));
        let roots: Vec<_> = self.allowed_roots.iter().map(|root| place(root)).collect();
        for root in &roots {
            Workdir::new(root, &[]).map_err(|fault| KeyError::of("allowed_roots", fault))?;
        }
        let workdir =
            Workdir::new(&workdir, &roots).map_err(|fault| KeyError::of("workdir", fault))?;
        let environment =
            self.env.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
        let grace = span(section.common.kill_grace).unwrap_or(KILL_GRACE);
        let program = Program::new(&command, workdir, environment, grace);
        program.map_err(|fault| {
            let advice = advice(&section.base, &command[0]).unwrap_or_default();
            KeyError::of("command", format!("{fault}{advice}"))
        })
    }
}

/// Advice for a program that was not found.
fn advice(base: &Path, name: &str) -> Option<String> {
    if name.contains('/') {
        return None;
    }
    if base.join(name).is_file() {
        return Some(format!(" For the file in this directory, write \"./{name}\""));
    }
    let words: Vec<_> = name.split_whitespace().collect();
    (words.len() > 1).then(|| format!(" Write each word as an element of its own: {words:?}"))
}

/// The details of failures that callers see.
pub(super) fn error_detail(given: Option<ErrorDetailKey>, otherwise: ErrorDetail) -> ErrorDetail {
    match given {
        None => otherwise,
        Some(ErrorDetailKey::Kind) => ErrorDetail::Kind,
        Some(ErrorDetailKey::Message) => ErrorDetail::Message,
        Some(ErrorDetailKey::Full) => ErrorDetail::Full,
    }
}
