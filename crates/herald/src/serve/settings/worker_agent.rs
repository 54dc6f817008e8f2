//! The agent of `herald worker`: that of the flags, of a package or of a file, or the installed coding agent.

use std::sync::Arc;

use anyhow::{anyhow, bail};
use herald_agents::process::Processes;
use herald_engine::{Agent, Profile};

use crate::{
    args::Serve,
    serve::config::{AgentKind, AgentSection, FileConfig},
};

use super::{AgentRunner, AgentSettings, Provenance, PythonHandler, agent, coding, program};

/// An agent that runs in this process.
#[derive(Debug)]
pub(crate) struct WorkerAgent {
    pub(crate) kind: AgentKind,
    pub(crate) profile: Profile,
    pub(crate) agent: Arc<dyn Agent>,
}

/// The agent of a worker for this role.
pub(crate) fn worker_agent(
    args: &Serve,
    packaged: Vec<PythonHandler>,
    role: &str,
    description: Option<&str>,
    processes: &Processes,
) -> anyhow::Result<WorkerAgent> {
    let (mut section, provenance) = section(args, packaged, role)?;
    role.clone_into(&mut section.common.name);
    if let Some(description) = description {
        section.common.description = Some(description.to_owned());
    }
    let AgentSettings { kind, profile, runner, .. } = agent(section, provenance, processes)?;
    match runner {
        AgentRunner::Here(agent) => Ok(WorkerAgent { kind, profile, agent }),
        AgentRunner::Workers(_) => bail!(
            "the [[agents]] entry {role:?} has kind = \"worker\": it declares the role at a server and has no \
             agent of its own; choose an agent for the worker with --exec, --adapter or another entry"
        ),
    }
}

fn section(
    args: &Serve,
    packaged: Vec<PythonHandler>,
    role: &str,
) -> anyhow::Result<(AgentSection, Provenance)> {
    if let Some(section) = program::of_flags(args)? {
        return Ok((section, Provenance::CommandLine));
    }
    if args.adapter.is_some() {
        return coding_agent(args);
    }
    if !packaged.is_empty() {
        let sections = packaged.into_iter().map(|handler| handler.section).collect();
        let section = chosen(sections, role, "the handler package")?;
        return Ok((section, Provenance::CommandLine));
    }
    if let Some(path) = &args.config {
        let agents = FileConfig::read(path)?.agents;
        let section = chosen(agents, role, &path.display().to_string())?;
        return Ok((section, Provenance::Configured));
    }
    match &coding::installed()[..] {
        [(preset, path)] => {
            tracing::info!(
                adapter = preset.name(),
                program = path,
                "working with the coding agent of this machine"
            );
            let args = Serve { adapter: Some(*preset), ..Serve::default() };
            coding_agent(&args)
        }
        found => Err(none_chosen(found.iter().map(|(preset, _)| preset.name()))),
    }
}

fn coding_agent(args: &Serve) -> anyhow::Result<(AgentSection, Provenance)> {
    let Some(mut section) = coding::of_flags(args)? else { bail!("--adapter is missing") };
    // The role has webhooks: the server sends them.
    section.common.push = None;
    Ok((section, Provenance::CommandLine))
}

/// The entry with the name of the role, or the only one.
fn chosen(
    mut sections: Vec<AgentSection>,
    role: &str,
    source: &str,
) -> anyhow::Result<AgentSection> {
    if let Some(index) = sections.iter().position(|section| section.common.name == role) {
        return Ok(sections.swap_remove(index));
    }
    if sections.len() > 1 {
        let names: Vec<_> = sections.iter().map(|section| section.common.name.as_str()).collect();
        bail!(
            "{source} has several agents, and none has the name of the role {role:?}: {}; rename one, or \
             choose one of these with --agent-name",
            names.join(", ")
        );
    }
    sections.pop().ok_or_else(|| anyhow!("{source} has no agent; add an [[agents]] entry"))
}

/// The error for a machine without a coding agent, or with several.
fn none_chosen<'a>(found: impl Iterator<Item = &'a str>) -> anyhow::Error {
    let found: Vec<_> = found.collect();
    let flags = "--adapter NAME, --exec COMMAND, --handler-package PACKAGE or --config herald.toml";
    if found.is_empty() {
        return anyhow!(
            "no agent is given, and none of claude, codex, cursor-agent, gemini and opencode is on PATH; \
             choose the agent with {flags}"
        );
    }
    anyhow!(
        "no agent is given, and several coding agents are installed ({}); choose one with --adapter, or \
         another agent with {flags}",
        found.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::config::KindSection;

    fn sections(names: &[&str]) -> Vec<AgentSection> {
        names.iter().map(|name| AgentSection::new(name, KindSection::Echo)).collect()
    }

    #[test]
    fn the_entry_of_the_role_is_chosen_or_the_only_one() {
        let name = |found: AgentSection| found.common.name;
        assert_eq!(name(chosen(sections(&["a", "b"]), "b", "f").unwrap()), "b");
        assert_eq!(name(chosen(sections(&["a"]), "b", "f").unwrap()), "a");
        let several = chosen(sections(&["a", "c"]), "b", "f").unwrap_err().to_string();
        assert!(several.contains("a, c"), "{several}");
        assert!(chosen(Vec::new(), "b", "f").unwrap_err().to_string().contains("[[agents]]"));
    }

    #[test]
    fn a_machine_without_one_coding_agent_names_the_flags() {
        let none = none_chosen([].into_iter()).to_string();
        assert!(none.contains("opencode is on PATH") && none.contains("--exec"), "{none}");
        let several = none_chosen(["codex", "gemini"].into_iter()).to_string();
        assert!(several.contains("codex, gemini") && several.contains("--adapter"), "{several}");
    }
}
