//! Check of the settings: a server can be built from them.

use std::sync::Arc;

use herald_engine::store::sqlite::Sqlite;
use herald_protocol::AgentCard;
use herald_server::Server;

use crate::{
    args::Serve,
    cmd::serve,
    serve::settings::{PythonHandlers, ServerSettings},
};

use super::Finding;

const CHECK: &str = "config";

/// The settings, and the server that is built from them.
pub(super) struct Subject {
    pub(super) settings: ServerSettings,
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

/// Builds the server as a start does, on a store in memory.
async fn build(args: &Serve) -> anyhow::Result<Subject> {
    let python = PythonHandlers::load(args).await?;
    let settings = ServerSettings::merge(args, python)?;
    let webhooks = serve::unstored_webhooks(&settings)?;
    let engine = serve::build_engine(&settings, Arc::new(Sqlite::memory()?), webhooks)?;
    let server = serve::build(&settings, engine, None, serve::Access::default(), None)?;
    Ok(Subject { settings, server })
}

fn describe(settings: &ServerSettings) -> String {
    let names: Vec<_> = settings.agents.iter().map(|agent| agent.profile.name.as_str()).collect();
    let file = match &settings.source {
        Some(path) => path.display().to_string(),
        None => "no herald.toml in this directory, so the defaults apply".to_owned(),
    };
    format!("{file}: serves {}", names.join(", "))
}

impl Subject {
    /// The card at the root of a server that is called at `base`.
    pub(super) fn card(&self, base: &str) -> AgentCard {
        let card = self.server.card(self.settings.server.public_url.as_deref().unwrap_or(base));
        // In the form of 1.0, without the members for older clients.
        let written = serde_json::to_vec(&card).expect("a card is JSON");
        serde_json::from_slice(&written).expect("a card that was written can be read")
    }

    /// The server's URL on this machine.
    pub(super) fn local_url(&self) -> String {
        serve::local_url(self.settings.address, self.settings.tls.is_some())
    }
}
