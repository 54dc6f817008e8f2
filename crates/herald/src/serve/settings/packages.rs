//! Handlers in Python packages, as the helper in `python/` lists them.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, bail};
use herald_protocol::AgentName;
use serde::Deserialize;
use tokio::{process::Command, time::timeout};

use crate::{
    args::Basics,
    serve::config::{AgentSection, KindSection, ProgramSection},
};

/// What runs a handler, and lists them.
const HELPER: [&str; 3] = ["python3", "-m", "herald"];

/// How long packages may take to be loaded.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct Listed {
    name: String,
    description: String,
}

/// The agents of `--handler-package`. Loading a package runs its code, which is why nobody is loaded
/// who was not named.
pub(crate) async fn packages(basics: &Basics) -> anyhow::Result<Vec<AgentSection>> {
    if basics.handler_package.is_empty() {
        return Ok(Vec::new());
    }
    let listed = list(basics).await;
    let listed = listed.with_context(|| {
        format!(
            "cannot look for handlers in --handler-package {}",
            basics.handler_package.join(" ")
        )
    })?;
    listed.into_iter().map(|listed| section(basics, listed)).collect()
}

async fn list(basics: &Basics) -> anyhow::Result<Vec<Listed>> {
    let mut command = Command::new(HELPER[0]);
    command.args(&HELPER[1..]).args(sources(basics)).arg("--list");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(PATIENCE, command.output()).await;
    let output = output.context("the packages take too long to load")?;
    let output = output.context("python3 cannot be run; is it installed?")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().next_back().unwrap_or("it says nothing");
        if last.contains("No module named herald") {
            bail!("{last}; install the helper with `pip install ./python` in Herald's sources");
        }
        bail!("{last}");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn section(basics: &Basics, listed: Listed) -> anyhow::Result<AgentSection> {
    let name = listed.name.to_lowercase().replace('_', "-");
    if !AgentName::new(name.as_str()).is_segment() {
        bail!(
            "the name of the handler {:?} is no name for an agent; let its property `name` return 1 \
             to 63 characters of a-z, 0-9, - and _",
            listed.name
        );
    }
    let helper = HELPER.map(str::to_owned).into_iter();
    let command: Vec<_> = helper.chain(sources(basics)).chain([listed.name]).collect();
    let handler = ProgramSection { command: Some(command), ..ProgramSection::default() };
    let mut section = AgentSection::new(&name, KindSection::Handler(handler));
    section.common.description = Some(listed.description).filter(|text| !text.is_empty());
    Ok(section)
}

fn sources(basics: &Basics) -> impl Iterator<Item = String> {
    let named = basics.handler_package.iter();
    named.flat_map(|package| ["--package".to_owned(), package.clone()])
}
