//! Card fields of an agent.

use std::{mem, path::Path, sync::Arc};

use herald_engine::{Audience, ExtendedCard, Profile, Scopes, Skill};
use herald_protocol::{
    TenantId,
    card::{AgentInterface, AgentProvider},
};
use herald_server::SigningKey;
use reqwest::Url;

use crate::serve::config::{
    AudienceSection, CommonSection, ConfigError, ConfigText, ExtendedCardSection, InterfaceSection,
    KeyError, SkillSection,
};

/// Reads the keys of card signatures.
pub(super) fn signing_keys(
    files: &[String],
    source: &ConfigText,
) -> Result<Vec<Arc<SigningKey>>, ConfigError> {
    let read = |(index, file): (usize, &String)| {
        let refused = |said: &str| source.fault_at(&format!("card.signing_keys.{index}"), said);
        let Some(path) = file.strip_prefix("file:") else {
            return Err(refused("a signing key is a file: write \"file:PATH\""));
        };
        let key = SigningKey::read(Path::new(path));
        key.map(Arc::new).map_err(|fault| refused(&format!("the signing key {path}: {fault}")))
    };
    files.iter().enumerate().map(read).collect()
}

/// Copies the card fields into the profile.
pub(super) fn describe(profile: &mut Profile, common: &mut CommonSection) -> Result<(), KeyError> {
    if let Some(description) = common.description.take() {
        profile.skills[0].description.clone_from(&description);
        profile.description = description;
    }
    if !common.skills.is_empty() {
        if common.skills.iter().any(|skill| skill.only_for.is_some()) {
            let said = "only_for belongs to the skills of extended_card; those here are public";
            return Err(KeyError::of("skills", said));
        }
        let skills = skills("skills", mem::take(&mut common.skills))?;
        profile.skills = skills.into_iter().map(|(skill, _)| skill).collect();
    }
    profile.extended_card = common.extended_card.take().map(extended).transpose()?;
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

/// The extended card of an agent.
fn extended(section: ExtendedCardSection) -> Result<ExtendedCard, KeyError> {
    const KEY: &str = "extended_card";
    let interface = |one: InterfaceSection| {
        if one.url.trim().is_empty() || one.binding.trim().is_empty() {
            return Err(KeyError::of(KEY, "the url or the binding of an interface is empty"));
        }
        let interface = AgentInterface {
            url: one.url,
            protocol_binding: one.binding,
            tenant: None,
            protocol_version: one.version.0.to_string(),
        };
        Ok((interface, audience(one.only_for)))
    };
    let interfaces = section.interfaces.into_iter().map(interface);
    let extended = ExtendedCard {
        description: section.description,
        skills: skills(KEY, section.skills)?,
        interfaces: interfaces.collect::<Result<_, _>>()?,
    };
    if extended == ExtendedCard::default() {
        return Err(KeyError::of(KEY, "it adds nothing to the public card; remove it"));
    }
    Ok(extended)
}

fn audience(section: Option<AudienceSection>) -> Audience {
    let Some(section) = section else { return Audience::EVERYBODY };
    let tenants = section.tenants.map(|all| all.into_iter().map(TenantId::from).collect());
    let scopes = section.scopes.into_iter().map(Scopes::from).collect();
    Audience { scopes, tenants, principals: section.principals }
}

fn skills(
    key: &'static str,
    sections: Vec<SkillSection>,
) -> Result<Vec<(Skill, Audience)>, KeyError> {
    let mut skills: Vec<(Skill, Audience)> = Vec::new();
    for section in sections {
        let id = section.id;
        if id.trim().is_empty() {
            return Err(KeyError::of(key, "the id of a skill is empty"));
        }
        if skills.iter().any(|(earlier, _)| earlier.id == id) {
            return Err(KeyError::of(key, format!("the id {id:?} is used twice")));
        }
        let mut modes = section.input_modes.iter().chain(&section.output_modes);
        if let Some(mode) = modes.find(|mode| !mode.contains('/')) {
            let said = format!("{mode:?} is not a media type; write one such as \"text/plain\"");
            return Err(KeyError::of(key, said));
        }
        let skill = Skill {
            name: section.name.unwrap_or_else(|| id.clone()),
            id,
            description: section.description,
            tags: section.tags,
            examples: section.examples,
            input_modes: section.input_modes,
            output_modes: section.output_modes,
            scopes: section.scopes.map(|all| all.into_iter().map(Scopes::from).collect()),
        };
        skills.push((skill, audience(section.only_for)));
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
