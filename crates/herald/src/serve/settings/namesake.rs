//! Agents and handlers with the same name, and the error about them.

use anyhow::anyhow;

use super::Provenance;
use crate::serve::config::AgentSection;

/// The agent that has one of the names of another one.
pub(super) fn namesake<'a>(
    sections: &'a [(AgentSection, Provenance)],
    section: &AgentSection,
) -> Option<&'a (AgentSection, Provenance)> {
    let names = |section: &AgentSection| {
        [Some(section.common.name.clone()), section.handler.clone()].into_iter().flatten()
    };
    sections
        .iter()
        .find(|(known, _)| names(known).any(|name| names(section).any(|other| other == name)))
}

/// The error for a handler with the name of an earlier agent, with both places.
pub(super) fn twice(
    (known, provenance): &(AgentSection, Provenance),
    section: &AgentSection,
    place: &str,
) -> anyhow::Error {
    let name = section.handler.as_ref().unwrap_or(&section.common.name);
    let remedy = "change the property `name` of one of them";
    let first = match provenance {
        Provenance::Configured => {
            let said = format!(
                "the agent has the name of the handler {name:?}: {place}; rename one of them"
            );
            return known.place.fault("name", said).into();
        }
        Provenance::BuiltIn => "it is built in".to_owned(),
        Provenance::CommandLine => "--exec or --adapter".to_owned(),
        Provenance::Found(path) => path.display().to_string(),
        Provenance::Package(known) => known.clone(),
        Provenance::Installed(known) => {
            return anyhow!(
                "two installed handlers are called {name:?}: {known}, and {place}; {remedy}, uninstall one, or \
                 start with --no-discovery"
            );
        }
    };
    anyhow!("the handler name {name:?} is given twice: {first}, and {place}; {remedy}")
}
