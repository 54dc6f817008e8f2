//! Coding agents: those of the file, and the one of `--adapter` and its variables.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, bail};
use herald_agents::{
    BackgroundPolicy, Coding, PermissionRule, PermissionRules, Preset, ToolDetail,
    git::{AfterTurn, WorktreeError, Worktrees},
    process::{Processes, Program},
};
use herald_engine::{Agent, Profile};
use serde_json::{Map, Value};

use crate::{
    args::Serve,
    serve::config::{
        AgentSection, BackgroundKey, CodingSection, IsolationKey, KeyError, KindSection,
        ProgramSection, TimeSpan, ToolDetailKey, WorktreeAfterKey,
    },
};

use super::{codex, environment, program, recovery, span};

/// The directory of work trees in the data directory.
pub(crate) const WORKTREES: &str = "worktrees";

/// The port of coding-agent-a2a, which `--adapter` replaces.
pub(super) const PORT: u16 = 41242;

/// The program of a kind without a command.
struct DefaultProgram {
    kind: &'static str,
    program: &'static str,
    /// The variable that replaces the program.
    variable: Option<&'static str>,
    /// The command that installs it.
    install: &'static str,
}

const DEFAULT_PROGRAMS: [DefaultProgram; 5] = [
    DefaultProgram {
        kind: "claude-code",
        program: "claude",
        variable: Some("CLAUDE_CODE_PATH"),
        install: "npm install -g @anthropic-ai/claude-code",
    },
    DefaultProgram {
        kind: "codex",
        program: "codex",
        variable: Some("CODEX_BINARY_PATH"),
        install: "npm install -g @openai/codex",
    },
    DefaultProgram {
        kind: "cursor",
        program: "cursor-agent",
        variable: Some("CURSOR_AGENT_PATH"),
        install: "curl https://cursor.com/install -fsS | bash",
    },
    DefaultProgram {
        kind: "gemini",
        program: "gemini",
        variable: None,
        install: "npm install -g @google/gemini-cli",
    },
    DefaultProgram {
        kind: "opencode",
        program: "opencode",
        variable: Some("OPENCODE_BINARY_PATH"),
        install: "npm install -g opencode-ai",
    },
];

/// The coding agents whose usual program is installed, with that program.
pub(super) fn installed() -> Vec<(Preset, String)> {
    let found = DEFAULT_PROGRAMS.iter().filter_map(|usual| {
        let program = usual.variable.and_then(environment);
        let program = program.unwrap_or_else(|| usual.program.to_owned());
        let path = Program::find(&program, None).ok()?;
        let preset = Preset::ALL.into_iter().find(|preset| preset.name() == usual.kind)?;
        Some((preset, path.display().to_string()))
    });
    found.collect()
}

/// The approval modes of Gemini CLI, by their names over ACP.
const GEMINI_MODES: [&str; 4] = ["default", "autoEdit", "yolo", "plan"];

/// The agent of `--adapter`, if it is given. The variables of coding-agent-a2a apply where a flag is missing.
pub(super) fn of_flags(args: &Serve) -> anyhow::Result<Option<AgentSection>> {
    let Some(preset) = args.adapter else { return Ok(None) };
    let workdir = || environment("AGENT_REPO_PATH").map(Into::into);
    let roots = environment("AGENT_ALLOWED_REPO_ROOTS").unwrap_or_default();
    let roots = roots.split(',').map(str::trim).filter(|root| !root.is_empty());
    let program = ProgramSection {
        workdir: args.workdir.clone().or_else(workdir),
        allowed_roots: roots.map(Into::into).collect(),
        ..ProgramSection::default()
    };
    let coding = CodingSection {
        model: args.model.clone().or_else(|| environment("AGENT_MODEL")),
        force: Some(args.force || yes_or_no("AGENT_FORCE")?.unwrap_or(false)),
        ..CodingSection::default()
    };
    let mut section =
        AgentSection::new(preset.name(), KindSection::Coding(preset, program, coding.into()));
    section.common.timeout = milliseconds("AGENT_TIMEOUT_MS")?;
    section.common.idle_timeout = milliseconds("AGENT_IDLE_EXIT_MS")?;
    // The card of coding-agent-a2a declares that it has none.
    section.common.push = Some(false);
    Ok(Some(section))
}

/// A coding agent.
pub(super) fn agent(
    section: &AgentSection,
    preset: Preset,
    keys: &ProgramSection,
    own: &CodingSection,
    processes: &Processes,
) -> Result<(Profile, Arc<dyn Agent>), KeyError> {
    let program = match keys.command {
        Some(_) => keys.program(section)?,
        None => default_program(section, keys)?,
    };
    let mut coding = Coding::new(&section.common.name, preset, program, processes.clone());
    coding.model.clone_from(&own.model);
    coding.force = own.force.unwrap_or(coding.force);
    if let Some(name) = &own.profile {
        let settings = profile(name, &coding, keys);
        coding.settings =
            settings.map_err(|fault| KeyError::new("profile", format!("{fault:#}")))?;
        coding.profile_name = Some(name.clone());
    }
    coding.start_timeout = match span(own.start_timeout) {
        Some(given) => Some(given).filter(|given| !given.is_zero()),
        None => coding.start_timeout,
    };
    coding.approval_timeout = span(own.approval_timeout).unwrap_or(coding.approval_timeout);
    coding.rules = rules(own)?;
    coding.tool_detail = match own.tool_detail {
        Some(ToolDetailKey::Name) => ToolDetail::Name,
        Some(ToolDetailKey::Short) => ToolDetail::Short,
        Some(ToolDetailKey::Full) => ToolDetail::Full,
        None => coding.tool_detail,
    };
    coding.thinking = own.thinking.unwrap_or(coding.thinking);
    coding.background = match own.background {
        Some(BackgroundKey::Wait) => BackgroundPolicy::Wait,
        Some(BackgroundKey::End) => BackgroundPolicy::End,
        None => coding.background,
    };
    coding.worktrees = worktrees(section, &coding, own, processes)?;
    coding.changes = own.changes.unwrap_or(coding.changes);
    coding.max_output = keys.max_output.map_or(coding.max_output, |size| size.0);
    coding.error_detail = program::error_detail(keys.error_detail, coding.error_detail);
    let mut profile = coding.profile();
    profile.max_waiting = own.max_waiting.unwrap_or(profile.max_waiting);
    profile.memory = own.memory.unwrap_or(profile.memory);
    profile.recovery = recovery(keys.attempts, profile.recovery);
    Ok((profile, Arc::new(coding)))
}

/// The rules of an agent.
fn rules(own: &CodingSection) -> Result<PermissionRules, KeyError> {
    let parse = |key: &'static str, texts: &[String]| {
        let rules = texts.iter().map(|text| text.parse::<PermissionRule>());
        rules.collect::<Result<Vec<_>, _>>().map_err(|fault| KeyError::new(key, fault.to_string()))
    };
    Ok(PermissionRules {
        allow: parse("allow", &own.allow)?,
        ask: parse("ask", &own.ask)?,
        deny: parse("deny", &own.deny)?,
    })
}

/// The work trees of the agent's conversations, if they are isolated.
fn worktrees(
    section: &AgentSection,
    coding: &Coding,
    own: &CodingSection,
    processes: &Processes,
) -> Result<Option<Worktrees>, KeyError> {
    if own.isolation != Some(IsolationKey::Worktree) {
        let given = [
            ("base", own.base.is_some()),
            ("worktree_after", own.worktree_after.is_some()),
            ("worktree_dir", own.worktree_dir.is_some()),
        ];
        return match given.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                let said = "it has no effect without work trees; write isolation = \"worktree\" \
                            beside it, or remove it";
                Err(KeyError::of(*key, said))
            }
            None => Ok(None),
        };
    }
    let after = match own.worktree_after {
        None | Some(WorktreeAfterKey::Keep) => AfterTurn::Keep,
        Some(WorktreeAfterKey::Merge) => AfterTurn::Merge,
        Some(WorktreeAfterKey::Delete) => AfterTurn::Delete,
    };
    if after == AfterTurn::Delete && own.changes == Some(false) {
        let said = "with changes = false the work of every turn would be lost; remove one of the \
                    two keys";
        return Err(KeyError::of("worktree_after", said));
    }
    let directory = match &own.worktree_dir {
        Some(directory) => section.base.join(directory),
        None => match processes.data_directory() {
            Some(data) => data.join(WORKTREES),
            None => {
                let said = "there is no data directory for the work trees; name a directory";
                return Err(KeyError::of("worktree_dir", said));
            }
        },
    };
    let workdir = coding.program.directory().map_err(|fault| KeyError::of("workdir", fault))?;
    let (name, base) = (&section.common.name, own.base.clone());
    let worktrees = Worktrees::new(name, &workdir, &directory, base, after, processes);
    worktrees.map(Some).map_err(|error| match error {
        WorktreeError::NoRepository(path) => {
            let said = format!(
                "{} is not in a git work tree, and isolation = \"worktree\" needs one; run `git init` \
                 there and commit, or remove `isolation`",
                path.display()
            );
            KeyError::of("workdir", said)
        }
        WorktreeError::NoCommit(base) => {
            let said = format!(
                "the repository has no commit {base:?}; name a branch that exists, or commit first"
            );
            KeyError::of("base", said)
        }
        WorktreeError::NoBranch(base) => {
            let said = format!(
                "{base:?} is not a local branch, and worktree_after = \"merge\" needs one to merge \
                 into; name a branch, such as base = \"main\""
            );
            KeyError::of("base", said)
        }
        WorktreeError::Io(error) => {
            let said = format!("cannot run git: {error}; is it installed?");
            KeyError::of("isolation", said)
        }
    })
}

/// Checks a profile, as far as that is possible before the agent runs, and returns the settings in it.
fn profile(
    name: &str,
    coding: &Coding,
    keys: &ProgramSection,
) -> anyhow::Result<Map<String, Value>> {
    match coding.preset {
        Preset::Codex => return codex::profile(name, &keys.env),
        Preset::Gemini if !GEMINI_MODES.contains(&name) => {
            let modes = GEMINI_MODES.join("`, `");
            bail!(
                "profile {name:?}: a profile of Gemini CLI is its approval mode, one of `{modes}`"
            );
        }
        Preset::Cursor if coding.force => {
            bail!("profile {name:?}: with `force` Cursor has no modes; remove one of the two keys");
        }
        // Only the program knows its profiles; it checks the name when it starts.
        Preset::ClaudeCode | Preset::Cursor | Preset::Gemini | Preset::Opencode | Preset::Acp => {}
    }
    Ok(Map::new())
}

/// The default program of the kind.
fn default_program(section: &AgentSection, keys: &ProgramSection) -> Result<Program, KeyError> {
    let kind = section.kind.kind().name();
    let Some(usual) = DEFAULT_PROGRAMS.iter().find(|usual| usual.kind == kind) else {
        // Without a default program the command is required.
        return keys.program(section);
    };
    let command = usual.variable.and_then(environment);
    let command = command.unwrap_or_else(|| usual.program.to_owned());
    keys.program_of(vec![command], section).map_err(|error| match &*error.key {
        "command" => {
            let variable = usual.variable.map(|name| format!("{name} or ")).unwrap_or_default();
            let (message, install) = (error.message, usual.install);
            let message = format!(
                "{message} Install it with `{install}`, or give its path with {variable}`command` in \
                 herald.toml"
            );
            KeyError { message, ..error }
        }
        _ => error,
    })
}

fn yes_or_no(name: &str) -> anyhow::Result<Option<bool>> {
    let Some(text) = environment(name) else { return Ok(None) };
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Ok(Some(true)),
        "false" | "0" | "no" | "off" => Ok(Some(false)),
        _ => bail!("{name}={text:?} is not a boolean; use `true` or `false`"),
    }
}

fn milliseconds(name: &str) -> anyhow::Result<Option<TimeSpan>> {
    let Some(text) = environment(name) else { return Ok(None) };
    let length = text.trim().parse().map(Duration::from_millis);
    let length =
        length.with_context(|| format!("{name}={text:?} is not a number of milliseconds"))?;
    Ok(Some(TimeSpan(length)))
}
