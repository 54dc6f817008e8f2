//! Catalogs of the agents at well-known paths: links (RFC 9727) and an AI catalog.

use herald_engine::Profile;
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    bind::Exchange,
    body::{Body, respond},
    card,
    routes::{AI_CATALOG, API_CATALOG},
};

const LINKSET: HeaderValue = HeaderValue::from_static(
    r#"application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727""#,
);
const CATALOG: HeaderValue = HeaderValue::from_static("application/ai-catalog+json");
const JSON: &str = "application/json";
/// The media type of cards in an AI catalog.
const CARD: &str = "application/a2a-agent-card+json";
/// The version of the AI catalog specification.
const SPEC_VERSION: &str = "1.0";

/// A set of links (RFC 9264).
#[derive(Debug, Serialize)]
struct Linkset {
    linkset: Vec<LinkContext>,
}

/// The links of one resource, by their relation.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
struct LinkContext {
    anchor: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    item: Vec<Link>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    service_desc: Vec<Link>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    service_doc: Vec<Link>,
}

#[derive(Debug, Serialize)]
struct Link {
    href: String,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    media_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<String>,
}

/// An AI catalog.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct AiCatalog {
    spec_version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<CatalogHost>,
    entries: Vec<CatalogEntry>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CatalogHost {
    display_name: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CatalogEntry {
    identifier: String,
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name of `type` in earlier drafts of the specification.
    media_type: &'static str,
    url: String,
    display_name: String,
    tags: Vec<String>,
}

/// The agents as links: each with its card, and the server's own interface with its description.
pub(crate) fn links(exchange: &Exchange<'_>) -> Response<Body> {
    let server = exchange.server_url();
    let profiles = exchange.shared.engine.profiles();
    let link = |href: String, media_type, title: Option<String>| Link { href, media_type, title };
    let agents = profiles.iter().map(|profile| {
        let base = card::base(&server, Some(&profile.name));
        LinkContext {
            service_desc: vec![link(card_url(&base), Some(JSON), Some(profile.title.clone()))],
            service_doc: profile
                .documentation_url
                .iter()
                .map(|url| link(url.clone(), None, None))
                .collect(),
            anchor: base,
            ..LinkContext::default()
        }
    });
    let item = |profile: &std::sync::Arc<Profile>| {
        link(card::base(&server, Some(&profile.name)), None, Some(profile.title.clone()))
    };
    let all = LinkContext {
        anchor: format!("{server}{API_CATALOG}"),
        item: profiles
            .iter()
            .map(item)
            .chain([link(format!("{server}/api"), None, None)])
            .collect(),
        ..LinkContext::default()
    };
    let api = LinkContext {
        anchor: format!("{server}/api"),
        service_desc: vec![link(format!("{server}/api/openapi.json"), Some(JSON), None)],
        ..LinkContext::default()
    };
    let linkset = [all].into_iter().chain(agents).chain([api]).collect();
    let mut response = document(exchange, LINKSET, &Linkset { linkset });
    let link = format!("<{server}{API_CATALOG}>; rel=\"api-catalog\"");
    if let Ok(link) = HeaderValue::try_from(link) {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

/// The agents as an AI catalog: each with the URL of its card.
pub(crate) fn entries(exchange: &Exchange<'_>) -> Response<Body> {
    let server = exchange.server_url();
    let host = server.split("://").nth(1).unwrap_or_default();
    let host = host.split(['/', ':']).next().unwrap_or_default();
    let entry = |profile: &std::sync::Arc<Profile>| {
        let mut tags: Vec<String> = Vec::new();
        for tag in profile.skills.iter().flat_map(|skill| &skill.tags) {
            if !tags.contains(tag) {
                tags.push(tag.clone());
            }
        }
        CatalogEntry {
            identifier: format!("urn:air:{host}:a2a:{}", profile.name),
            kind: CARD,
            media_type: CARD,
            url: card_url(&card::base(&server, Some(&profile.name))),
            display_name: profile.title.clone(),
            tags,
        }
    };
    let provider = exchange.shared.config.provider.as_ref();
    let catalog = AiCatalog {
        spec_version: SPEC_VERSION,
        host: provider.map(|provider| CatalogHost { display_name: provider.organization.clone() }),
        entries: exchange.shared.engine.profiles().iter().map(entry).collect(),
    };
    let mut response = document(exchange, CATALOG, &catalog);
    let link = format!("<{server}{AI_CATALOG}>; rel=\"ai-catalog\"");
    if let Ok(link) = HeaderValue::try_from(link) {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

fn card_url(base: &str) -> String {
    format!("{base}/.well-known/agent-card.json")
}

/// A response with a document that may be kept as long as a card.
fn document(
    exchange: &Exchange<'_>,
    media_type: HeaderValue,
    document: &impl Serialize,
) -> Response<Body> {
    let body = serde_json::to_vec(document).expect("a catalog has string keys");
    let mut response = respond(StatusCode::OK, media_type, body);
    // Workers come and go, so a catalog is valid for a shorter time than a card.
    let age = exchange.shared.config.card_max_age.as_secs().min(60);
    let cache = HeaderValue::try_from(format!("public, max-age={age}"));
    let cache = cache.expect("a number can stand in a header");
    response.headers_mut().insert(header::CACHE_CONTROL, cache);
    response
}
