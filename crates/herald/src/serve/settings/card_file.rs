//! Card file: the card at the root as its owner wrote it, in JSON, checked at the start.

use std::{
    collections::{BTreeMap, HashSet},
    fmt::Display,
    io,
    ops::Range,
    path::Path,
    sync::Arc,
};

use herald_protocol::{
    AgentCard,
    card::{self, AgentInterface, AgentSkill},
};
use reqwest::Url;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::value::RawValue;

use crate::serve::config::{ConfigError, ConfigText, KeyError, ProviderSection, SkillSection};

use super::{
    AgentSettings,
    card::{CardFields, check_address, check_mode},
};

/// The most bytes of a card file.
const MAX_BYTES: u64 = 1 << 20;

/// A card file.
pub(super) struct CardFile {
    text: Arc<str>,
    source: ConfigText,
    card: AgentCard,
}

/// A mistake in the file: the path of the member, such as `skills[0].name`, and the text about it.
struct Mistake {
    path: String,
    said: String,
}

impl CardFile {
    /// The text of a file of bounded size.
    pub(super) fn load(path: &Path) -> Result<String, String> {
        let shown = path.display();
        let unreadable = |fault: io::Error| format!("cannot read the card file {shown}: {fault}");
        let size = std::fs::metadata(path).map_err(unreadable)?.len();
        if size > MAX_BYTES {
            return Err(format!("the card file {shown} has more than {MAX_BYTES} bytes"));
        }
        std::fs::read_to_string(path).map_err(unreadable)
    }

    /// Checks the text of a file. An error names the line.
    pub(super) fn parse(path: &Path, text: String) -> Result<Self, ConfigError> {
        let source = ConfigText::new(path, text.clone());
        if let Err(fault) = serde_json::from_str::<&RawValue>(&text) {
            let place = offset(&text, fault.line(), fault.column());
            let said = format!("the card is not JSON: {fault}");
            return Err(source.show(&(place..place), said, None));
        }
        let card = card::read(text.as_bytes()).map_err(|error| {
            let violation = error.detail.as_ref().and_then(|detail| detail.violations.first());
            mistake(violation.map_or("", |it| &it.field), &error.message)
        });
        let card = card.and_then(|card| check(&card, &text).map(|()| card));
        let card = card.map_err(|mistake| located(&source, &text, &mistake))?;
        Ok(Self { text: text.into(), source, card })
    }

    /// The text, which is served as it is.
    pub(super) fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// Describes the agent as the file does, so that its other cards, its page and the choice by skill agree.
    pub(super) fn describe(&self, agent: &mut AgentSettings) -> Result<(), ConfigError> {
        let card = &self.card;
        let capabilities = &card.capabilities;
        for (member, promised, kept) in [
            ("streaming", capabilities.streaming, agent.profile.streaming),
            ("pushNotifications", capabilities.push_notifications, agent.profile.push),
        ] {
            if promised == Some(true) && !kept {
                let name = &agent.profile.name;
                let said = format!(
                    "the card promises capabilities.{member}, which the agent {name:?} has switched off; \
                     write false"
                );
                let path = format!("capabilities.{member}");
                return Err(located(&self.source, &self.text, &mistake(&path, said)));
            }
        }
        let provider = card.provider.clone();
        let keys = CardFields {
            title: Some(card.name.clone()),
            description: Some(card.description.clone()),
            version: Some(card.version.clone()),
            skills: card.skills.iter().cloned().map(section).collect(),
            input_modes: card.default_input_modes.clone(),
            output_modes: card.default_output_modes.clone(),
            icon_url: card.icon_url.clone(),
            documentation_url: card.documentation_url.clone(),
            provider: provider
                .map(|it| ProviderSection { organization: it.organization, url: it.url }),
        };
        keys.describe(&mut agent.profile, agent.kind).map_err(|KeyError { key, message }| {
            let path = if key == "input_modes" { "defaultInputModes" } else { "" };
            located(&self.source, &self.text, &mistake(path, message))
        })
    }
}

fn section(skill: AgentSkill) -> SkillSection {
    SkillSection {
        id: skill.id,
        name: Some(skill.name),
        description: skill.description,
        tags: skill.tags,
        examples: skill.examples,
        input_modes: skill.input_modes,
        output_modes: skill.output_modes,
        scopes: None,
        only_for: None,
    }
}

fn mistake(path: &str, said: impl Display) -> Mistake {
    Mistake { path: path.to_owned(), said: said.to_string() }
}

/// The members that a reader of any version needs.
fn check(card: &AgentCard, text: &str) -> Result<(), Mistake> {
    required("name", &card.name, "Word Counter")?;
    required("description", &card.description, "Counts the words of a text")?;
    required("version", &card.version, "1.0.0")?;
    check_addresses(card, text)?;
    modes("defaultInputModes", &card.default_input_modes)?;
    modes("defaultOutputModes", &card.default_output_modes)?;
    let mut ids = HashSet::new();
    for (index, skill) in card.skills.iter().enumerate() {
        let at = |member: &str| format!("skills[{index}].{member}");
        required(&at("id"), &skill.id, "count")?;
        required(&at("name"), &skill.name, "Count words")?;
        required(&at("description"), &skill.description, "Counts the words of a text")?;
        if !ids.insert(&skill.id) {
            let said = format!("skills[{index}].id: the id {:?} is used twice", skill.id);
            return Err(mistake(&at("id"), said));
        }
        modes(&at("inputModes"), &skill.input_modes)?;
        modes(&at("outputModes"), &skill.output_modes)?;
    }
    Ok(())
}

/// Every address of the card is absolute. An empty `url` stands for the origin that the card comes from, as in the cards of
/// some servers of 0.2.
fn check_addresses(card: &AgentCard, text: &str) -> Result<(), Mistake> {
    #[derive(Deserialize)]
    struct MainAddress {
        url: Option<String>,
        #[serde(rename = "supportedInterfaces", alias = "supported_interfaces")]
        interfaces: Option<IgnoredAny>,
    }
    let members: Option<MainAddress> = serde_json::from_str(text).ok();
    let (main, interfaces) = members.map_or((None, None), |card| (card.url, card.interfaces));
    let list = if interfaces.is_some() { "supportedInterfaces" } else { "additionalInterfaces" };
    // A card without an address is read as one with an interface at its own place.
    let has_address = card.supported_interfaces.iter().any(|one| !one.url.is_empty());
    if main.is_none() && !has_address {
        let said = "the card has no address: write \"url\": \"https://agents.example.com\", or \"supportedInterfaces\"";
        return Err(mistake("", said));
    }
    let main = main.as_ref().filter(|url| !url.is_empty()).map(|url| ("url", url));
    let documentation = card.documentation_url.as_ref().map(|url| ("documentationUrl", url));
    let icon = card.icon_url.as_ref().map(|url| ("iconUrl", url));
    let provider = card.provider.as_ref().map(|provider| ("provider.url", &provider.url));
    for (path, url) in main.into_iter().chain(documentation).chain(icon).chain(provider) {
        check_address(url).map_err(|said| mistake(path, format!("{path}: {said}")))?;
    }
    // gRPC has a host and a port in place of a URL.
    let is_wrong = |one: &&AgentInterface| {
        let is_url = one.url.is_empty() || Url::parse(&one.url).is_ok();
        one.protocol_binding != "GRPC" && !is_url
    };
    match card.supported_interfaces.iter().find(is_wrong) {
        None => Ok(()),
        Some(AgentInterface { url, .. }) => {
            let said = format!(
                "{list}: {url:?} is not a URL; write one such as \"https://agents.example.com/a2a/jsonrpc\""
            );
            Err(mistake(list, said))
        }
    }
}

fn required(path: &str, value: &str, example: &str) -> Result<(), Mistake> {
    if value.trim().is_empty() {
        let member = path.rsplit('.').next().unwrap_or(path);
        let said = format!("{path} is missing; write it like \"{member}\": {example:?}");
        return Err(mistake(path, said));
    }
    Ok(())
}

fn modes(path: &str, modes: &[String]) -> Result<(), Mistake> {
    let checked = modes.iter().try_for_each(|mode| check_mode(mode));
    checked.map_err(|said| mistake(path, format!("{path}: {said}")))
}

/// The error of a mistake, at the member or at the object that should have it.
fn located(source: &ConfigText, text: &str, mistake: &Mistake) -> ConfigError {
    let mut place = whole(text);
    for step in mistake.path.split(['.', '[']).filter(|step| !step.is_empty()) {
        match below(text, &place, step.trim_end_matches(']')) {
            Some(found) => place = found,
            None => break,
        }
    }
    source.show(&place, &mistake.said, None)
}

fn whole(text: &str) -> Range<usize> {
    let start = text.len() - text.trim_start().len();
    start..text.trim_end().len().max(start)
}

/// The place of one member or element of the value at `place`.
fn below(text: &str, place: &Range<usize>, step: &str) -> Option<Range<usize>> {
    let value = text.get(place.clone())?;
    let found = match step.parse::<usize>() {
        Ok(index) => serde_json::from_str::<Vec<&RawValue>>(value).ok()?.get(index)?.get(),
        Err(_) => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(value).ok()?;
            members.get(step)?.get()
        }
    };
    // A raw value is a part of the text that it was read from.
    let start = found.as_ptr().addr().checked_sub(text.as_ptr().addr())?;
    Some(start..start + found.len())
}

/// The offset of a line and a column, both from 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (before + column.saturating_sub(1)).min(text.len())
}
