//! `herald key`: API keys of a server, and keys that sign cards.

use std::{io::ErrorKind, path::PathBuf};

use herald_api::{
    ApiRoute,
    agents::{AgentList, AgentView, AgentsQuery},
    keys::{CreateKey, KeyPage, KeysQuery},
    routes::{Nothing, calls},
};
use herald_server::{SigningKey, SigningKeyError};
use serde::Serialize;

use super::agent;
use crate::{
    api::{self, MOST_PAGES, PAGE},
    args::{KeyCommand, KeyCreate, KeyCreateSigning, KeyList},
    client::error::CliError,
    output::{Output, Show, TextPage, note, warn},
    spelling::near,
};

/// Runs a `key` verb.
pub(crate) async fn run(command: &KeyCommand) -> Result<(), CliError> {
    match command {
        KeyCommand::Create(args) => create(args).await,
        KeyCommand::List(args) => list(args).await,
        KeyCommand::Show(args) => {
            api::run(&args.server, ApiRoute::GetKey, async |api| {
                let key = api.call::<calls::GetKey>(&[&args.id], &Nothing {}, &Nothing {}).await?;
                api.out.show(&key)
            })
            .await
        }
        KeyCommand::CreateSigning(args) => create_signing(args),
        KeyCommand::Revoke(args) => {
            api::run(&args.server, ApiRoute::RevokeKey, async |api| {
                let id = [args.id.as_str()];
                let key = api.call::<calls::RevokeKey>(&id, &Nothing {}, &Nothing {}).await?;
                api.out.show(&key)
            })
            .await
        }
    }
}

async fn create(args: &KeyCreate) -> Result<(), CliError> {
    let some = |names: &Vec<String>| Some(names.clone()).filter(|names| !names.is_empty());
    let wanted = CreateKey {
        tenant: args.tenant.clone().unwrap_or_default(),
        principal: args.principal.clone(),
        scopes: some(&args.scopes),
        agents: some(&args.agents),
        skills: some(&args.skills),
        visibility: args.visibility.map(|visibility| visibility.name().to_owned()),
        expires: args.expires,
        label: args.label.clone(),
    };
    api::run(&args.server, ApiRoute::CreateKey, async |api| {
        let created = api.call::<calls::CreateKey>(&[], &Nothing {}, &wanted).await?;
        api.out.show(&created)?;
        if !(args.agents.is_empty() && args.skills.is_empty()) && api.is_running() {
            let known = agent::all(&api, AgentsQuery::default()).await?;
            unknown_names(args, &known).iter().for_each(UnknownName::print);
        }
        note("Note", "the key is shown only now; keep it where only its user can read it");
        note("Note", "a server with API keys refuses calls without credentials");
        Ok(())
    })
    .await
}

/// An agent or a skill of a new key that the server does not have now.
#[derive(Debug, PartialEq, Eq)]
struct UnknownName {
    sentence: String,
    /// True if it is probably a misspelt one.
    is_misspelt: bool,
}

impl UnknownName {
    fn print(&self) {
        if self.is_misspelt { warn(&self.sentence) } else { note("Note", &self.sentence) }
    }
}

/// The agents and skills of a new key that the server does not have now. They can come later, so that the key is not
/// refused, and the key of a worker is made before its role exists.
fn unknown_names(args: &KeyCreate, known: &AgentList) -> Vec<UnknownName> {
    let agents = || known.agents.iter().map(|agent| agent.role.as_str());
    let allowed = |agent: &&AgentView| args.agents.is_empty() || args.agents.contains(&agent.role);
    let allowed = || known.agents.iter().filter(allowed);
    let skills = || allowed().flat_map(|agent| &agent.skills).map(String::as_str);
    let unknown = |what: &str, name: &String, meant: Option<&str>, later: &str| {
        let sentence = match meant {
            Some(meant) => format!("the server has no {what} {name:?} now; did you mean {meant}?"),
            None => format!("the server has no {what} {name:?} yet; {later}"),
        };
        UnknownName { sentence, is_misspelt: meant.is_some() }
    };
    let unknown_agents = args.agents.iter().filter(|name| !agents().any(|known| known == *name));
    let unknown_agents = unknown_agents.map(|name| {
        let later = "the key allows it as soon as it is configured or a worker registers it";
        unknown("agent", name, near(name, agents()), later)
    });
    let is_for_worker = args.scopes.iter().any(|scope| scope == "work");
    let unknown_agents = unknown_agents.filter(|one| one.is_misspelt || !is_for_worker);
    let unknown_skills = args.skills.iter().filter(|name| !skills().any(|known| known == *name));
    let unknown_skills = unknown_skills.map(|name| {
        let later = "the key allows it as soon as one of its agents has it";
        unknown("skill", name, near(name, skills()), later)
    });
    unknown_agents.chain(unknown_skills).collect()
}

async fn list(args: &KeyList) -> Result<(), CliError> {
    api::run(&args.server, ApiRoute::ListKeys, async |api| {
        let mut all = KeyPage { keys: Vec::new(), next_page_token: None };
        for _ in 0..MOST_PAGES {
            let page_token = all.next_page_token.take();
            let tenant = args.tenant.clone();
            let query = KeysQuery { tenant, page_size: Some(PAGE), page_token };
            let mut page = api.call::<calls::ListKeys>(&[], &query, &Nothing {}).await?;
            all.keys.append(&mut page.keys);
            all.next_page_token = page.next_page_token;
            if all.next_page_token.is_none() {
                break;
            }
        }
        api.out.show(&all)
    })
    .await
}

fn create_signing(args: &KeyCreateSigning) -> Result<(), CliError> {
    let (id, directory) = (&args.id, args.dir.display());
    let file = SigningKey::create(&args.dir, id).map_err(|fault| match &fault {
        SigningKeyError::File(error) if error.kind() == ErrorKind::AlreadyExists => {
            CliError::usage(format!("{directory}/{id}.pem exists already and was not changed"))
                .hint("give the new key another id; signatures name keys by their ids")
        }
        SigningKeyError::File(error) => {
            CliError::usage(format!("the key cannot be written into {directory}: {error}"))
                .hint("name a directory that exists and that you can write to with --dir")
        }
        SigningKeyError::Id | SigningKeyError::Content | SigningKeyError::Generate => {
            CliError::usage(fault.to_string())
        }
    })?;
    let setting = format!("[card] signing_keys = [\"file:{}\"]", file.display());
    Output::new(&args.output).show(&CreatedSigningKey { id: id.clone(), file, setting })
}

/// A key that signs cards.
#[derive(Debug, Serialize)]
struct CreatedSigningKey {
    id: String,
    file: PathBuf,
    /// The line of herald.toml that uses it.
    setting: String,
}

impl Show for CreatedSigningKey {
    fn show(&self, page: &mut TextPage) {
        page.field("ID", &self.id);
        page.field("File", self.file.display());
        page.field("Setting", &self.setting);
    }
}
