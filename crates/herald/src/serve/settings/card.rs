//! Card fields: those of an agent, and the checks that a card file shares with them.

use std::{borrow::Cow, mem, path::Path, sync::Arc};

use herald_engine::{Audience, ExtendedCard, Profile, Scopes, Skill};
use herald_protocol::{
    TenantId,
    card::{AgentInterface, AgentProvider},
};
use herald_server::SigningKey;
use reqwest::Url;

use crate::{
    serve::config::{
        AgentKind, AudienceSection, CommonSection, ConfigError, ConfigText, ExtendedCardSection,
        InterfaceSection, KeyError, ProviderSection, SkillSection,
    },
    spelling::near,
};

/// The key of an extended card.
const KEY: &str = "extended_card";

/// The registered top-level media types.
const MEDIA_KINDS: [&str; 10] = [
    "application",
    "audio",
    "font",
    "haptics",
    "image",
    "message",
    "model",
    "multipart",
    "text",
    "video",
];

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

/// Card fields of an agent, of the server or of a card file, as they were written.
#[derive(Debug, Default)]
pub(super) struct CardFields {
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) version: Option<String>,
    pub(super) skills: Vec<SkillSection>,
    pub(super) input_modes: Vec<String>,
    pub(super) output_modes: Vec<String>,
    pub(super) icon_url: Option<String>,
    pub(super) documentation_url: Option<String>,
    pub(super) provider: Option<ProviderSection>,
}

impl CardFields {
    /// The fields of an agent.
    pub(super) fn of_agent(common: &CommonSection) -> Self {
        Self {
            title: common.title.clone(),
            description: common.description.clone(),
            version: common.version.clone(),
            skills: common.skills.clone(),
            input_modes: common.input_modes.clone(),
            output_modes: common.output_modes.clone(),
            icon_url: common.icon_url.clone(),
            documentation_url: common.documentation_url.clone(),
            provider: common.provider.clone(),
        }
    }

    /// The names of the fields that are set, as keys.
    pub(super) fn names(&self) -> Vec<&'static str> {
        let all = [
            ("title", self.title.is_some()),
            ("description", self.description.is_some()),
            ("version", self.version.is_some()),
            ("skills", !self.skills.is_empty()),
            ("input_modes", !self.input_modes.is_empty()),
            ("output_modes", !self.output_modes.is_empty()),
            ("icon_url", self.icon_url.is_some()),
            ("documentation_url", self.documentation_url.is_some()),
            ("provider", self.provider.is_some()),
        ];
        all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
    }

    /// Copies the fields into the profile of an agent of this kind.
    pub(super) fn describe(self, profile: &mut Profile, kind: AgentKind) -> Result<(), KeyError> {
        profile.title = text("title", self.title)?.unwrap_or(mem::take(&mut profile.title));
        if let Some(description) = text("description", self.description)? {
            profile.skills[0].description.clone_from(&description);
            profile.description = description;
        }
        if !self.skills.is_empty() {
            if self.skills.iter().any(|skill| skill.only_for.is_some()) {
                let said = "only_for belongs to the skills of extended_card; those here are public";
                return Err(KeyError::of("skills", said));
            }
            let skills = skills("skills", self.skills)?;
            profile.skills = skills.into_iter().map(|(skill, _)| skill).collect();
        }
        check_modes("input_modes", &self.input_modes)?;
        check_modes("output_modes", &self.output_modes)?;
        if !self.input_modes.is_empty() {
            // The media types of a role are those of its workers, which are not known yet.
            if kind != AgentKind::Worker {
                check_taken(profile, &self.input_modes)?;
            }
            // The card does not change which messages are accepted.
            let taken = mem::replace(&mut profile.input_modes, self.input_modes);
            profile.further_input_modes.extend(taken);
        }
        if !self.output_modes.is_empty() {
            profile.output_modes = self.output_modes;
        }
        profile.version = text("version", self.version)?.or(profile.version.take());
        profile.icon_url = address("icon_url", self.icon_url)?.or(profile.icon_url.take());
        let documentation = address("documentation_url", self.documentation_url)?;
        profile.documentation_url = documentation.or(profile.documentation_url.take());
        profile.provider = provider(self.provider)?.or(profile.provider.take());
        Ok(())
    }
}

/// Copies the card fields of an agent into its profile.
pub(super) fn describe(
    profile: &mut Profile,
    common: &mut CommonSection,
    kind: AgentKind,
) -> Result<(), KeyError> {
    CardFields::of_agent(common).describe(profile, kind)?;
    profile.extended_card = common.extended_card.take().map(extended).transpose()?;
    Ok(())
}

/// The extended card of an agent.
fn extended(section: ExtendedCardSection) -> Result<ExtendedCard, KeyError> {
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
    let table = if key == KEY { "extended_card.skills" } else { key };
    for (index, section) in sections.into_iter().enumerate() {
        let at = |member: &str| format!("{table}.{index}.{member}");
        let id = section.id;
        if id.trim().is_empty() {
            let said = "the id of a skill is empty; write one such as id = \"count\"";
            return Err(KeyError::of(at("id"), said));
        }
        if skills.iter().any(|(earlier, _)| earlier.id == id) {
            return Err(KeyError::of(at("id"), format!("the id {id:?} is used twice")));
        }
        if section.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            let said = format!(
                "the name of the skill {id:?} is empty; write one such as name = \"Count words\", or remove the key"
            );
            return Err(KeyError::of(at("name"), said));
        }
        if section.description.trim().is_empty() {
            let said = format!(
                "the description of the skill {id:?} is empty; write one such as description = \"Counts words\""
            );
            return Err(KeyError::of(at("description"), said));
        }
        check_modes(at("input_modes"), &section.input_modes)?;
        check_modes(at("output_modes"), &section.output_modes)?;
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

/// An error if the text is blank.
pub(super) fn text(key: &'static str, given: Option<String>) -> Result<Option<String>, KeyError> {
    match given {
        Some(text) if text.trim().is_empty() => {
            Err(KeyError::new(key, format!("{key} is empty; remove the key")))
        }
        given => Ok(given),
    }
}

pub(super) fn provider(given: Option<ProviderSection>) -> Result<Option<AgentProvider>, KeyError> {
    let Some(ProviderSection { organization, url }) = given else { return Ok(None) };
    check_address(&url).map_err(|said| KeyError::of("provider.url", said))?;
    Ok(Some(AgentProvider { organization, url }))
}

/// An error unless the value is an http or https URL.
pub(super) fn address(
    key: &'static str,
    given: Option<String>,
) -> Result<Option<String>, KeyError> {
    if let Some(url) = &given {
        check_address(url).map_err(|said| KeyError::of(key, said))?;
    }
    Ok(given)
}

/// An error unless the text is an absolute http or https URL.
pub(super) fn check_address(text: &str) -> Result<(), String> {
    let scheme = Url::parse(text).map(|url| url.scheme().to_owned());
    if scheme.is_ok_and(|scheme| matches!(scheme.as_str(), "http" | "https")) {
        return Ok(());
    }
    Err(format!(
        "{text:?} is not a URL; it must begin with https:// or http://, such as \
         \"https://example.com/about\""
    ))
}

fn check_modes(key: impl Into<Cow<'static, str>>, modes: &[String]) -> Result<(), KeyError> {
    let checked = modes.iter().try_for_each(|mode| check_mode(mode));
    checked.map_err(|said| KeyError::of(key, said))
}

/// An error unless the text is a media type, or a pattern of some such as `image/*`.
pub(super) fn check_mode(mode: &str) -> Result<(), String> {
    let essence = mode.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_token = |text: &str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        text == "*" || (!text.is_empty() && text.bytes().all(allowed))
    };
    let known = |kind: &str| kind == "*" || kind.starts_with("x-") || MEDIA_KINDS.contains(&kind);
    let meant = match essence.split_once('/') {
        Some((kind, subtype)) if is_token(subtype) && known(kind) => return Ok(()),
        Some((kind, subtype)) if is_token(subtype) => {
            near(kind, MEDIA_KINDS.into_iter()).map(|meant| format!("{meant}/{subtype}"))
        }
        Some(_) | None => None,
    };
    Err(match meant {
        Some(meant) => format!("{mode:?} is not a media type; did you mean {meant:?}?"),
        None => format!("{mode:?} is not a media type; write one such as \"text/plain\""),
    })
}

/// An error if the agent does not take one of these media types: its card would invite messages that it refuses.
fn check_taken(profile: &Profile, modes: &[String]) -> Result<(), KeyError> {
    let Some(mode) = modes.iter().find(|mode| !profile.takes(mode)) else { return Ok(()) };
    let takes = profile.input_modes.iter().map(|mode| format!("{mode:?}"));
    let takes: Vec<_> = takes.collect();
    let said = format!("this kind of agent does not take {mode:?}; it takes {}", takes.join(", "));
    Err(KeyError::of("input_modes", said))
}
