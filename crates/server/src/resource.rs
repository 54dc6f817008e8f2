//! Metadata of the protected resource (RFC 9728), by which OAuth 2 clients find the authorization servers.

use herald_engine::{Profile, Scopes};
use http::{HeaderValue, Response, StatusCode, header};
use serde::Serialize;

use crate::{
    bind::Exchange,
    body::{Body, JSON, respond},
};

#[derive(Serialize)]
struct ResourceDocument<'a> {
    resource: &'a str,
    authorization_servers: &'a [String],
    scopes_supported: Vec<&'static str>,
    bearer_methods_supported: [&'static str; 1],
    resource_name: &'a str,
}

/// The metadata of the called endpoints; `None` if the server has no authorization servers.
pub(crate) fn answer(exchange: &Exchange<'_>, profile: &Profile) -> Option<Response<Body>> {
    let shared = exchange.shared;
    let authorization_servers = shared.auth.authorization_servers();
    if authorization_servers.is_empty() {
        return None;
    }
    let metadata = ResourceDocument {
        resource: &exchange.endpoints_url(),
        authorization_servers,
        scopes_supported: Scopes::ALL.names().collect(),
        bearer_methods_supported: ["header"],
        resource_name: &profile.title,
    };
    let body = serde_json::to_vec(&metadata).expect("texts can be written as JSON");
    let mut response = respond(StatusCode::OK, JSON, body);
    let age = shared.config.card_max_age.as_secs();
    let cache = HeaderValue::try_from(format!("public, max-age={age}"));
    let cache = cache.expect("a number can stand in a header");
    response.headers_mut().insert(header::CACHE_CONTROL, cache);
    Some(response)
}
