//! Agent cards at their well-known paths.

use herald_engine::{CallerProfile, Profile, agent};
use herald_protocol::{
    AgentCard, AgentName, TenantId, Timestamp, Version,
    card::{self, AgentCapabilities, AgentExtension, AgentInterface, AgentSkill},
    security::{ScopeList, SecurityRequirement},
};
use http::{HeaderValue, Response, StatusCode, Uri, header, request::Parts};

use crate::{
    auth::Scheme,
    bind::Exchange,
    binding::AGENTS,
    body::{Body, JSON, respond},
    config::CardInterface,
    shared::Shared,
    signing::key_set,
};

/// Names our WebSocket binding, which docs/websocket.md describes. A change that breaks clients needs
/// another name.
const WEBSOCKET: &str = "https://github.com/herald-a2a/herald/bindings/websocket/v1";

/// The URL of the endpoints of an agent on a server, or of those at the root.
pub(crate) fn base(server: &str, agent: Option<&AgentName>) -> String {
    match agent {
        Some(agent) => format!("{server}/agents/{agent}"),
        None => server.to_owned(),
    }
}

/// The card of one agent of a server at the URL `server`. `agent` is its name if the endpoints are those
/// under `/agents/NAME`, and `None` at the root.
pub(crate) fn build(
    shared: &Shared,
    profile: &Profile,
    agent: Option<&AgentName>,
    server: &str,
) -> AgentCard {
    let schemes = shared.auth.schemes();
    let requirements = schemes.iter().map(|scheme| requirement(scheme, ScopeList::default()));
    AgentCard {
        name: profile.title.clone(),
        description: profile.description.clone(),
        supported_interfaces: interfaces(shared, profile, agent, server),
        provider: profile.provider.clone().or_else(|| shared.config.provider.clone()),
        version: profile.version.as_ref().unwrap_or(&shared.config.agent_version).clone(),
        documentation_url: profile
            .documentation_url
            .clone()
            .or_else(|| shared.config.documentation_url.clone()),
        icon_url: profile.icon_url.clone().or_else(|| shared.config.icon_url.clone()),
        capabilities: AgentCapabilities {
            streaming: Some(profile.streaming),
            push_notifications: Some(shared.engine.has_push(profile)),
            // Only authenticated callers can get one.
            extended_agent_card: Some(profile.extended_card.is_some() && !shared.auth.is_open()),
            extensions: profile.extensions.iter().map(extension).collect(),
            // The log has every transition, and a subscriber gets them all.
            state_transition_history: Some(true),
        },
        security_requirements: requirements.collect(),
        security_schemes: schemes
            .iter()
            .map(|scheme| (scheme.name.to_string(), scheme.scheme.clone()))
            .collect(),
        default_input_modes: profile.input_modes.clone(),
        default_output_modes: profile.output_modes.clone(),
        skills: profile.skills.iter().map(|one| skill(one, &schemes)).collect(),
        ..AgentCard::default()
    }
}

/// Interfaces that the card of `profile` lists: the chosen ones in their order, newest version first. A
/// client of REST adds `/message:send` to the URL, and one of 0.3 `/v1/message:send`, so both have
/// the same.
fn interfaces(
    shared: &Shared,
    profile: &Profile,
    agent: Option<&AgentName>,
    server: &str,
) -> Vec<AgentInterface> {
    let base = base(server, agent);
    let versions = shared.config.versions(&profile.name);
    let versions = versions.into_iter().filter(|version| *version >= Version::V0_3);
    let listed = shared.config.interfaces(&profile.name);
    versions
        .flat_map(|version| listed.iter().map(move |interface| (version, *interface)))
        .filter_map(|(version, interface)| {
            let (url, binding) = match interface {
                CardInterface::JsonRpc => (format!("{base}/a2a/jsonrpc"), "JSONRPC"),
                CardInterface::Rest => (base.clone(), "HTTP+JSON"),
                // 0.3 has no tenant, and so no way to name an agent.
                CardInterface::Grpc if agent.is_some() && version == Version::V0_3 => return None,
                CardInterface::Grpc => (grpc_address(server)?, "GRPC"),
                // Custom bindings exist since 1.0.
                CardInterface::WebSocket if version == Version::V0_3 => return None,
                // A base is an http or https URL, and the same with ws or wss is a WebSocket's.
                CardInterface::WebSocket => {
                    (format!("{}/ws", base.replacen("http", "ws", 1)), WEBSOCKET)
                }
            };
            let named = agent.filter(|_| interface == CardInterface::Grpc);
            Some(AgentInterface {
                url,
                protocol_binding: binding.to_owned(),
                tenant: named.map(|agent| TenantId::from(format!("{AGENTS}{agent}"))),
                protocol_version: version.to_string(),
            })
        })
        .collect()
}

/// The address of the server for gRPC clients: a host and a port. A URL with a path has none, because gRPC
/// clients cannot call below a path.
fn grpc_address(server: &str) -> Option<String> {
    let url: Uri = server.parse().ok()?;
    if url.path() != "/" {
        return None;
    }
    let authority = url.authority()?;
    Some(match authority.port() {
        Some(_) => authority.to_string(),
        None => {
            let port = if url.scheme_str() == Some("https") { 443 } else { 80 };
            format!("{authority}:{port}")
        }
    })
}

fn extension(extension: &agent::Extension) -> AgentExtension {
    let description = Some(extension.description.clone()).filter(|text| !text.is_empty());
    AgentExtension {
        uri: extension.uri.clone(),
        description,
        required: extension.required,
        params: None,
    }
}

fn skill(skill: &agent::Skill, schemes: &[Scheme]) -> AgentSkill {
    let needed = skill.scopes.map(|scopes| scopes.names().map(str::to_owned).collect::<Vec<_>>());
    let requirements = needed.iter().flat_map(|list| {
        schemes.iter().map(|scheme| requirement(scheme, ScopeList { list: list.clone() }))
    });
    AgentSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        // Readers insist on at least one.
        tags: if skill.tags.is_empty() { vec![skill.id.clone()] } else { skill.tags.clone() },
        examples: skill.examples.clone(),
        input_modes: skill.input_modes.clone(),
        output_modes: skill.output_modes.clone(),
        security_requirements: requirements.collect(),
    }
}

/// The requirement of one scheme, with these scopes.
fn requirement(scheme: &Scheme, scopes: ScopeList) -> SecurityRequirement {
    SecurityRequirement { schemes: [(scheme.name.to_string(), scopes)].into() }
}

/// The extended card for a caller.
pub(crate) fn extended(exchange: &Exchange<'_>, described: CallerProfile) -> AgentCard {
    let (shared, agent) = (exchange.shared, exchange.agent.as_ref());
    let mut card = build(shared, &described.profile, agent, &exchange.server_url());
    card.supported_interfaces.extend(described.interfaces);
    sign(shared, &mut card);
    card
}

fn sign(shared: &Shared, card: &mut AgentCard) {
    if let Some(signer) = &shared.signer {
        signer.sign(card);
    }
}

/// Answers a request for a card: the 1.0 document for those who ask for it, and for everybody else one that every
/// generation can read, or at the root that of the owner.
pub(crate) fn answer(exchange: &Exchange<'_>, profile: &Profile) -> Response<Body> {
    let server = exchange.server_url();
    let mut card = build(exchange.shared, profile, exchange.agent.as_ref(), &server);
    sign(exchange.shared, &mut card);
    let pure = exchange.version().is_some_and(|text| text.trim().parse() == Ok(Version::V1_0));
    let config = &exchange.shared.config;
    let written = config.root_card.as_deref().filter(|_| exchange.agent.is_none());
    let body = match written {
        _ if pure => herald_protocol::Dialect::V1.encode_card(&card),
        Some(written) => written.as_bytes().to_vec(),
        None if config.snake_case_members => card::hybrid_with_snake_case(&card),
        None => card::hybrid(&card),
    };
    let tag = format!("\"{}\"", &blake3::hash(&body).to_hex()[..32]);
    let mut response = if is_current(exchange.parts, &tag, &exchange.shared.started) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        respond(StatusCode::OK, JSON, body)
    };
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, max_age(exchange.shared));
    let tag = HeaderValue::try_from(tag);
    headers.insert(header::ETAG, tag.expect("hex digits can stand in a header"));
    headers.insert(header::LAST_MODIFIED, exchange.shared.started.clone());
    let vary = match exchange.ingress.is_proxy() {
        true => "A2A-Version, Forwarded, X-Forwarded-Host, X-Forwarded-Proto, X-Forwarded-Prefix",
        false => "A2A-Version",
    };
    headers.insert(header::VARY, HeaderValue::from_static(vary));
    response
}

/// The public keys of the signatures of cards and webhooks, if there are any.
pub(crate) fn keys(shared: &Shared) -> Option<Response<Body>> {
    let mut keys = shared.config.signing_keys.clone();
    keys.extend(shared.webhooks.iter().flat_map(|sender| sender.signing_keys()));
    let mut response = respond(StatusCode::OK, JSON, key_set(&keys)?);
    response.headers_mut().insert(header::CACHE_CONTROL, max_age(shared));
    Some(response)
}

fn max_age(shared: &Shared) -> HeaderValue {
    let age = shared.config.card_max_age.as_secs();
    let cache = HeaderValue::try_from(format!("public, max-age={age}"));
    cache.expect("a number can stand in a header")
}

/// True if the caller has this card already. HTTP prefers the tag over the date.
fn is_current(parts: &Parts, tag: &str, date: &HeaderValue) -> bool {
    let tags = parts.headers.get_all(header::IF_NONE_MATCH);
    let mut tags = tags.iter().filter_map(|value| value.to_str().ok()).peekable();
    if tags.peek().is_none() {
        return parts.headers.get(header::IF_MODIFIED_SINCE) == Some(date);
    }
    tags.flat_map(|value| value.split(','))
        .map(|known| known.trim())
        .any(|known| known == "*" || known.strip_prefix("W/").unwrap_or(known) == tag)
}

/// A time in the format of HTTP, such as `Sun, 15 Nov 2026 20:22:00 GMT`.
pub(crate) fn http_date(moment: Timestamp) -> HeaderValue {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let day = moment.as_millis().div_euclid(24 * 60 * 60 * 1000).rem_euclid(7);
    let day = DAYS[usize::try_from(day).unwrap_or_default()];
    let text = moment.to_string();
    let month = text.get(5..7).and_then(|month| month.parse::<usize>().ok()).unwrap_or(1);
    let month = MONTHS[(month - 1) % 12];
    let piece = |range| text.get(range).unwrap_or_default();
    let date = format!("{day}, {} {month} {} {} GMT", piece(8..10), piece(0..4), piece(11..19));
    HeaderValue::try_from(date).expect("digits and letters can stand in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_look_as_http_wants_them() {
        for (text, expected) in [
            ("1970-01-01T00:00:00.000Z", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("1994-11-06T08:49:37.999Z", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("2024-02-29T23:59:59.000Z", "Thu, 29 Feb 2024 23:59:59 GMT"),
        ] {
            assert_eq!(http_date(text.parse().unwrap()), expected);
        }
    }
}
