//! Handlers of Python packages, listed by the helper in `python/`.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, bail};
use herald_protocol::AgentName;
use serde::Deserialize;
use tokio::{process::Command, time::timeout};

use crate::{
    args::CommonServeArgs,
    serve::config::{AgentSection, HandlerSection, KindSection, ProgramSection},
};

/// The command that lists and runs handlers.
const HELPER: [&str; 3] = ["python3", "-m", "herald"];

/// The time limit for loading packages.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
struct PackageHandler {
    name: String,
    description: String,
    #[serde(default)]
    admission: bool,
}

/// The agents of `--handler-package`. Loading a package runs its code, so only named packages are loaded.
pub(crate) async fn packages(basics: &CommonServeArgs) -> anyhow::Result<Vec<AgentSection>> {
    if basics.handler_package.is_empty() {
        return Ok(Vec::new());
    }
    let listed = list(basics).await;
    let listed = listed.with_context(|| {
        format!(
            "cannot load the handlers of --handler-package {}",
            basics.handler_package.join(" ")
        )
    })?;
    listed.into_iter().map(|listed| section(basics, listed)).collect()
}

async fn list(basics: &CommonServeArgs) -> anyhow::Result<Vec<PackageHandler>> {
    let mut command = Command::new(HELPER[0]);
    command.args(&HELPER[1..]).args(sources(basics)).arg("--list");
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = timeout(LOAD_TIMEOUT, command.output()).await;
    let output = output.context("the packages were not loaded within 60 s")?;
    let output = output.context("python3 cannot be run; is it installed?")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.trim().lines().next_back().unwrap_or("python3 printed no error");
        // Python's exit status is the same for every exception, so its text has to tell.
        if last.contains("No module named herald") {
            bail!("{last}; install the helper with `pip install ./python` in Herald's sources");
        }
        bail!("{last}");
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn section(basics: &CommonServeArgs, listed: PackageHandler) -> anyhow::Result<AgentSection> {
    let name = listed.name.to_lowercase().replace('_', "-");
    if !AgentName::new(name.as_str()).is_segment() {
        bail!(
            "the name of the handler {:?} is not a valid agent name; its property `name` must have 1 to \
             63 characters of a-z, 0-9, - and _",
            listed.name
        );
    }
    let helper = HELPER.map(str::to_owned).into_iter();
    let command: Vec<_> = helper.chain(sources(basics)).chain([listed.name]).collect();
    let handler = ProgramSection { command: Some(command), ..ProgramSection::default() };
    let own = HandlerSection { admission: listed.admission };
    let mut section = AgentSection::new(&name, KindSection::Handler(handler, own));
    section.common.description = Some(listed.description).filter(|text| !text.is_empty());
    Ok(section)
}

fn sources(basics: &CommonServeArgs) -> impl Iterator<Item = String> {
    let named = basics.handler_package.iter();
    named.flat_map(|package| ["--package".to_owned(), package.clone()])
}
