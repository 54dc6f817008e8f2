//! Card fields of an agent.

use std::mem;

use herald_engine::{Profile, agent::Skill};
use herald_protocol::card::AgentProvider;
use reqwest::Url;

use crate::serve::config::{CommonSection, KeyError, SkillSection};

/// Copies the card fields into the profile.
pub(super) fn describe(profile: &mut Profile, common: &mut CommonSection) -> Result<(), KeyError> {
    if let Some(description) = common.description.take() {
        profile.skills[0].description.clone_from(&description);
        profile.description = description;
    }
    if !common.skills.is_empty() {
        profile.skills = skills(mem::take(&mut common.skills))?;
    }
    if let Some(version) = common.version.take() {
        if version.trim().is_empty() {
            return Err(KeyError::new("version", "version is empty; remove the key"));
        }
        profile.version = Some(version);
    }
    profile.icon_url = address("icon_url", common.icon_url.take())?;
    profile.documentation_url = address("documentation_url", common.documentation_url.take())?;
    if let Some(provider) = common.provider.take() {
        address("provider", Some(provider.url.clone()))?;
        let (organization, url) = (provider.organization, provider.url);
        profile.provider = Some(AgentProvider { organization, url });
    }
    Ok(())
}

fn skills(sections: Vec<SkillSection>) -> Result<Vec<Skill>, KeyError> {
    let mut skills: Vec<Skill> = Vec::new();
    for section in sections {
        let id = section.id;
        if id.trim().is_empty() {
            return Err(KeyError::of("skills", "the id of a skill is empty"));
        }
        if skills.iter().any(|earlier| earlier.id == id) {
            return Err(KeyError::of("skills", format!("the id {id:?} is used twice")));
        }
        let mut modes = section.input_modes.iter().chain(&section.output_modes);
        if let Some(mode) = modes.find(|mode| !mode.contains('/')) {
            let said = format!("{mode:?} is not a media type; write one such as \"text/plain\"");
            return Err(KeyError::of("skills", said));
        }
        skills.push(Skill {
            name: section.name.unwrap_or_else(|| id.clone()),
            id,
            description: section.description,
            tags: section.tags,
            examples: section.examples,
            input_modes: section.input_modes,
            output_modes: section.output_modes,
        });
    }
    Ok(skills)
}

/// An error unless the value is an http or https URL.
fn address(key: &'static str, given: Option<String>) -> Result<Option<String>, KeyError> {
    let Some(text) = given else { return Ok(None) };
    let scheme = Url::parse(&text).map(|url| url.scheme().to_owned());
    if scheme.is_ok_and(|scheme| matches!(scheme.as_str(), "http" | "https")) {
        Ok(Some(text))
    } else {
        let said = format!("{text:?} is not a URL; it must begin with https:// or http://");
        Err(KeyError::of(key, said))
    }
}
