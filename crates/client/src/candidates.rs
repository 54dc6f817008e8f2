//! Candidates for calls: the interfaces of a card in the order of choice, then guesses.

use std::cmp::Reverse;

use herald_protocol::{AgentCard, Dialect, Version, card::AgentInterface};
use reqwest::Url;

use crate::{
    discover::WELL_KNOWN,
    error::Error,
    interface::{Binding, Usable, address, grpc_address, socket_address},
};

/// The paths of JSON-RPC below the base of a card that has no usable URL.
const WITHOUT_URL: [&str; 2] = ["a2a", ""];
/// Further paths of JSON-RPC for a card before 1.0 whose URL is a bare origin.
const BELOW_ORIGIN: [&str; 2] = ["a2a/jsonrpc", "a2a"];

/// The interfaces to try, in order: those of the card, then guesses, for agents whose card is wrong or says too little.
/// Those of the card: preferred bindings first, then the newest version, then the card's order, and only those of the
/// `pinned` version if there is one. Unsupported interfaces are skipped. A card from a URL may have addresses relative
/// to it, or none.
pub(crate) fn choose(
    card: &AgentCard,
    from: Option<&Url>,
    preferred: &[Binding],
    pinned: Option<Version>,
) -> Result<Vec<Usable>, Error> {
    let listed = || card.supported_interfaces.iter();
    let mut found: Vec<(Version, Usable)> =
        listed().flat_map(|interface| in_dialects(card, interface, from, pinned)).collect();
    if found.is_empty() {
        found = listed().flat_map(|interface| at_own_origin(interface, from, pinned)).collect();
    }
    let rank = |binding| preferred.iter().position(|one| *one == binding);
    found.sort_by_key(|(version, usable)| {
        (rank(usable.binding).unwrap_or(preferred.len()), Reverse(*version))
    });
    if found.is_empty() {
        return Err(Error::setup(format!(
            "the card of {:?} names no interface that this client can call: {}",
            card.name,
            offers(card)
        )));
    }
    let mut usable: Vec<Usable> = found.into_iter().map(|(_, usable)| usable).collect();
    usable.extend(guesses(&usable, pinned));
    Ok(usable)
}

/// An interface of the card with its version, in each dialect that it may have.
fn in_dialects(
    card: &AgentCard,
    interface: &AgentInterface,
    from: Option<&Url>,
    pinned: Option<Version>,
) -> Vec<(Version, Usable)> {
    let Some((binding, version)) = kind_of(interface) else { return Vec::new() };
    let url = match binding {
        Binding::JsonRpc | Binding::Rest => address(&interface.url, from),
        Binding::Grpc => grpc_address(&interface.url, from, card),
        Binding::WebSocket => socket_address(&interface.url, from),
        // Nobody's card may start a program.
        Binding::Stdio => None,
    };
    let Some(url) = url else { return Vec::new() };
    let dialects = binding.dialects(version).iter().copied();
    dialects
        .filter(|dialect| pinned.is_none_or(|pinned| pinned == dialect.version()))
        .map(|dialect| {
            (version, Usable { interface: interface.clone(), binding, dialect, url: url.clone() })
        })
        .collect()
}

/// The interface of a card without a usable URL: the agent is where its card is.
fn at_own_origin(
    interface: &AgentInterface,
    from: Option<&Url>,
    pinned: Option<Version>,
) -> Vec<(Version, Usable)> {
    let (Some((Binding::JsonRpc, version)), Some(from)) = (kind_of(interface), from) else {
        return Vec::new();
    };
    let base = base_of(from);
    let urls = WITHOUT_URL.iter().filter_map(|path| base.join(path).ok());
    let found = urls.flat_map(|url| {
        let interface = AgentInterface { url: url.to_string(), ..interface.clone() };
        let dialects = Binding::JsonRpc.dialects(version).iter();
        dialects.map(move |dialect| Usable {
            interface: interface.clone(),
            binding: Binding::JsonRpc,
            dialect: *dialect,
            url: url.clone(),
        })
    });
    found
        .filter(|usable| pinned.is_none_or(|pinned| pinned == usable.dialect.version()))
        .map(|usable| (version, usable))
        .collect()
}

/// Interfaces of JSON-RPC that the card does not list: other versions at the same URLs unless one is pinned, and other
/// paths at the origin of an old card.
fn guesses(listed: &[Usable], pinned: Option<Version>) -> Vec<Usable> {
    let mut guesses = Vec::new();
    let mut add = |usable: Usable| {
        let is_same = |known: &Usable| {
            known.binding == usable.binding
                && known.dialect == usable.dialect
                && known.url == usable.url
        };
        if !listed.iter().chain(&guesses).any(is_same) {
            guesses.push(usable);
        }
    };
    let over_rpc = || listed.iter().filter(|usable| usable.binding == Binding::JsonRpc);
    for usable in over_rpc().filter(|_| pinned.is_none()) {
        for dialect in [Dialect::V03, Dialect::V01, Dialect::V1] {
            add(usable.in_version(dialect));
        }
    }
    for usable in over_rpc() {
        let is_origin = usable.url.path() == "/" && usable.url.query().is_none();
        if is_origin && usable.dialect != Dialect::V1 {
            let urls = BELOW_ORIGIN.iter().filter_map(|path| usable.url.join(path).ok());
            urls.for_each(|url| add(usable.at(url)));
        }
    }
    guesses
}

/// Binding and version of an interface of a card.
fn kind_of(interface: &AgentInterface) -> Option<(Binding, Version)> {
    let binding = Binding::from_name(&interface.protocol_binding)?;
    // 1.0 requires a version, so that only a careless card of 1.0 has none.
    let version = match interface.protocol_version.as_str() {
        "" => Version::V1_0,
        text => text.parse().ok()?,
    };
    Some((binding, version))
}

/// The URL below which a card was found.
fn base_of(card: &Url) -> Url {
    let mut base = card.clone();
    base.set_query(None);
    base.set_fragment(None);
    let path = WELL_KNOWN.iter().find_map(|path| card.path().strip_suffix(path));
    base.set_path(path.unwrap_or("/"));
    base
}

fn offers(card: &AgentCard) -> String {
    let offer = |interface: &AgentInterface| {
        let without = if interface.url.is_empty() { " without a URL" } else { "" };
        format!("{} {}{without}", interface.protocol_binding, interface.protocol_version)
    };
    if card.supported_interfaces.is_empty() {
        "it has none".to_owned()
    } else {
        card.supported_interfaces.iter().map(offer).collect::<Vec<_>>().join(", ")
    }
}
