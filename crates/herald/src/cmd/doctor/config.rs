//! Whether the settings make a server.

use std::sync::Arc;

use herald_engine::store::sqlite::Sqlite;
use herald_protocol::AgentCard;
use herald_server::Server;

use crate::{
    args::Serve,
    cmd::serve,
    serve::settings::{Settings, packages},
};

use super::Finding;

const CHECK: &str = "config";

/// What is examined: the settings, and the server they make.
pub(super) struct Subject {
    pub(super) settings: Settings,
    server: Server,
}

pub(super) async fn check(args: &Serve) -> (Finding, Option<Subject>) {
    match build(args).await {
        Ok(subject) => (Finding::ok(CHECK, describe(&subject.settings)), Some(subject)),
        Err(fault) => {
            let remedy = "correct it; docs/configuration.md lists every setting";
            (Finding::fail(CHECK, format!("{fault:#}"), remedy), None)
        }
    }
}

/// Everything that a start does with the settings, on a store that nobody keeps.
async fn build(args: &Serve) -> anyhow::Result<Subject> {
    let packaged = packages(&args.basics).await?;
    let settings = Settings::merge(args, packaged)?;
    let engine = serve::build_engine(&settings, Arc::new(Sqlite::memory()?))?;
    let server = serve::build(&settings, engine, None)?;
    Ok(Subject { settings, server })
}

fn describe(settings: &Settings) -> String {
    let names: Vec<_> = settings.agents.iter().map(|agent| agent.profile.name.as_str()).collect();
    let file = match &settings.source {
        Some(path) => path.display().to_string(),
        None => "no herald.toml here, the defaults hold".to_owned(),
    };
    format!("{file}: serves {}", names.join(", "))
}

impl Subject {
    /// The card that the server shows at its root when it is called at `base`.
    pub(super) fn card(&self, base: &str) -> AgentCard {
        let card = self.server.card(self.settings.server.public_url.as_deref().unwrap_or(base));
        // As callers of 1.0 get it: what only older ones are told is not in there.
        let written = serde_json::to_vec(&card).expect("a card is JSON");
        serde_json::from_slice(&written).expect("what is written as a card is one")
    }

    /// Where the server is reached from this machine.
    pub(super) fn local_url(&self) -> String {
        serve::local_url(self.settings.address, self.settings.tls.is_some())
    }
}
