//! Card of the server: `[card]`, its file and its flags, as the card of the default agent and the defaults of all cards.

use std::mem;

use anyhow::bail;
use herald_protocol::AgentName;
use herald_server::Config;

use crate::{
    args::CardArgs,
    serve::config::{CardSection, ConfigTable, ConfigText, KeyError},
};

use super::{
    AgentSettings,
    card::{CardFields, address, provider, text},
    card_file::CardFile,
};

/// The settings that the card of the server is made of.
pub(super) struct ServerCard<'a> {
    pub(super) flags: &'a CardArgs,
    pub(super) section: CardSection,
    /// The text of the configuration file.
    pub(super) source: &'a ConfigText,
    /// The card fields that each agent has in its own section, in the order of the agents.
    pub(super) own: Vec<Vec<&'static str>>,
}

impl ServerCard<'_> {
    /// Describes the default agent, whose card is that of the root, and fills in the defaults of all cards.
    pub(super) fn apply(
        mut self,
        agents: &mut [AgentSettings],
        default: &AgentName,
        server: &mut Config,
    ) -> anyhow::Result<()> {
        server.snake_case_members = self.section.legacy_snake_case;
        let index = agents.iter().position(|agent| agent.profile.name == *default);
        let index = index.expect("the default agent is one of the agents");
        let (keys, file) = (self.keys(), self.section.file.take());
        if let Some(path) = file {
            self.check_file_alone(&keys)?;
            let text = CardFile::load(&path).map_err(|fault| self.at("file", fault))?;
            let file = CardFile::parse(&path, text)?;
            let own = &self.own[index];
            if let Some(key) = own.first() {
                let said = format!(
                    "the file has the whole card of the default agent {default:?}, which also has a {key} of its \
                     own; remove one of the two"
                );
                return Err(self.at("file", said));
            }
            file.describe(&mut agents[index])?;
            server.root_card = Some(file.text());
            return Ok(());
        }
        self.set_defaults(&keys, agents, server)?;
        self.describe(keys, &mut agents[index], index)?;
        self.apply_flags(&mut agents[index])
    }

    /// The keys of `[card]` that are those of an agent too.
    fn keys(&mut self) -> CardFields {
        let section = &mut self.section;
        CardFields {
            title: section.title.take(),
            description: section.description.take(),
            version: section.version.take(),
            skills: mem::take(&mut section.skills),
            input_modes: mem::take(&mut section.input_modes),
            output_modes: mem::take(&mut section.output_modes),
            icon_url: section.icon_url.take(),
            documentation_url: section.documentation_url.take(),
            provider: section.provider.take(),
        }
    }

    /// An error if the card is described by a file and in another way too.
    fn check_file_alone(&self, keys: &CardFields) -> anyhow::Result<()> {
        if let Some(key) = keys.names().first() {
            let said =
                format!("{key}: the file of `file` has the whole card; remove one of the two");
            return Err(self.at(key, said));
        }
        if let Some((flag, _)) = self.flags.given().next() {
            bail!("{flag} cannot change the card of [card] file; change the file");
        }
        Ok(())
    }

    /// The fields that every card has unless its agent has its own.
    fn set_defaults(
        &self,
        keys: &CardFields,
        agents: &mut [AgentSettings],
        server: &mut Config,
    ) -> anyhow::Result<()> {
        let refused = |error: KeyError| self.refused(&error);
        if let Some(version) = text("version", keys.version.clone()).map_err(refused)? {
            // Also in place of the version that a kind of agent has.
            for (agent, own) in agents.iter_mut().zip(&self.own) {
                agent.profile.version.take_if(|_| !own.contains(&"version"));
            }
            server.agent_version = version;
        }
        server.icon_url = address("icon_url", keys.icon_url.clone()).map_err(refused)?;
        let documentation = address("documentation_url", keys.documentation_url.clone());
        server.documentation_url = documentation.map_err(refused)?;
        server.provider = provider(keys.provider.clone()).map_err(refused)?;
        Ok(())
    }

    /// Copies the fields of the card at the root into the default agent.
    fn describe(
        &self,
        keys: CardFields,
        agent: &mut AgentSettings,
        index: usize,
    ) -> anyhow::Result<()> {
        let root = CardFields {
            version: None,
            icon_url: None,
            documentation_url: None,
            provider: None,
            ..keys
        };
        let own = &self.own[index];
        if let Some(key) = root.names().into_iter().find(|key| own.contains(key)) {
            let name = &agent.profile.name;
            let said = format!(
                "{key}: the default agent {name:?} has its own, and its card is that of the root; remove one of \
                 the two"
            );
            return Err(self.at(key, said));
        }
        // A description does not replace that of a skill which the agent has of its own.
        let skills = own.contains(&"skills").then(|| agent.profile.skills.clone());
        let described = root.describe(&mut agent.profile, agent.kind);
        described.map_err(|error| self.refused(&error))?;
        agent.profile.skills = skills.unwrap_or(mem::take(&mut agent.profile.skills));
        Ok(())
    }

    /// Flags win over the file, and over the keys of the default agent.
    fn apply_flags(&self, agent: &mut AgentSettings) -> anyhow::Result<()> {
        if let Some((flag, _)) = self.flags.given().find(|(_, text)| text.trim().is_empty()) {
            bail!("{flag} is empty; leave it out");
        }
        let CardArgs { card_title, card_description, card_version } = self.flags.clone();
        let profile = &mut agent.profile;
        profile.title = card_title.unwrap_or(mem::take(&mut profile.title));
        profile.description = card_description.unwrap_or(mem::take(&mut profile.description));
        profile.version = card_version.or(profile.version.take());
        Ok(())
    }

    fn refused(&self, error: &KeyError) -> anyhow::Error {
        self.at(&error.key, &error.message)
    }

    /// An error in a key of `[card]`.
    fn at(&self, key: &str, said: impl std::fmt::Display) -> anyhow::Error {
        ConfigTable::new(self.source, "card.").fault(key, said).into()
    }
}
