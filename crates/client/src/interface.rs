//! Which of a card's interfaces to call.

use herald_protocol::{AgentCard, Dialect, Version, card::AgentInterface};
use reqwest::Url;

use crate::error::Error;

/// How an interface is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Binding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// HTTP and JSON.
    Rest,
}

/// An interface that this client can call.
#[derive(Debug, Clone)]
pub(crate) struct Usable {
    pub(crate) interface: AgentInterface,
    pub(crate) binding: Binding,
    pub(crate) dialect: Dialect,
    pub(crate) url: Url,
}

impl Binding {
    /// The binding of a card's name for it.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "JSONRPC" => Some(Self::JsonRpc),
            "HTTP+JSON" => Some(Self::Rest),
            _ => None,
        }
    }

    fn dialect(self, version: Version) -> Option<Dialect> {
        match (self, version) {
            (_, Version { major: 1, .. }) => Some(Dialect::V1),
            (Self::JsonRpc, Version { major: 0, minor: 2 | 3 }) => Some(Dialect::V03),
            (Self::Rest, Version { major: 0, minor: 3 }) => Some(Dialect::V03Rest),
            _ => None,
        }
    }
}

/// The interfaces to try, the first one first: in the card's order, but preferred bindings before
/// the others, and only those of `pinned` where a version is pinned. What this client does not speak
/// is skipped. A card from a URL may name addresses relative to it.
pub(crate) fn choose(
    card: &AgentCard,
    from: Option<&Url>,
    preferred: &[Binding],
    pinned: Option<Version>,
) -> Result<Vec<Usable>, Error> {
    let usable = |interface: &AgentInterface| {
        let binding = Binding::from_name(&interface.protocol_binding)?;
        // 1.0 requires a version, so that only a careless card of 1.0 has none.
        let version = match interface.protocol_version.as_str() {
            "" => Version::V1_0,
            text => text.parse().ok()?,
        };
        let dialect = binding.dialect(version)?;
        if pinned.is_some_and(|pinned| pinned != dialect.version()) {
            return None;
        }
        let url = match from {
            Some(base) => base.join(&interface.url).ok()?,
            None => Url::parse(&interface.url).ok()?,
        };
        matches!(url.scheme(), "http" | "https").then_some(())?;
        Some(Usable { interface: interface.clone(), binding, dialect, url })
    };
    let mut found: Vec<Usable> = card.supported_interfaces.iter().filter_map(usable).collect();
    let rank = |binding| preferred.iter().position(|one| *one == binding);
    found.sort_by_key(|usable| rank(usable.binding).unwrap_or(preferred.len()));
    if found.is_empty() {
        return Err(Error::setup(format!(
            "the card of {:?} names no interface that this client can call: {}",
            card.name,
            offers(card)
        )));
    }
    Ok(found)
}

fn offers(card: &AgentCard) -> String {
    let offer = |interface: &AgentInterface| {
        format!("{} {}", interface.protocol_binding, interface.protocol_version)
    };
    match card.supported_interfaces.is_empty() {
        true => "there is none in it".to_owned(),
        false => card.supported_interfaces.iter().map(offer).collect::<Vec<_>>().join(", "),
    }
}
