//! Server under test: its card, and the interfaces that the card declares.
//!
//! The card is read leniently, because the checks report its faults.

use std::{collections::BTreeMap, fmt};

use herald_protocol::{
    Version,
    version::{EXTENSIONS_HEADER, LEGACY_EXTENSIONS_HEADER, VERSION_HEADER},
};
use http::Method;
use reqwest::Url;
use serde_json::Value;

use super::{
    CheckError,
    raw_http::{RawBody, RawHttp, RawRequest, ReadLimit},
    suite::CheckedBinding,
};

/// The well-known paths of a card: that of 0.3 and later, and the one before it.
pub const WELL_KNOWN: [&str; 2] = [".well-known/agent-card.json", ".well-known/agent.json"];

/// A server and its card.
#[derive(Debug, Clone)]
pub(super) struct ServerUnderTest {
    /// The URL that the well-known paths are relative to.
    pub(super) base: Url,
    pub(super) card_url: Url,
    pub(super) card: Value,
    pub(super) interfaces: Vec<Interface>,
}

/// One declared interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) binding: CheckedBinding,
    pub(super) version: Version,
    pub(super) url: Url,
    pub(super) tenant: Option<String>,
    /// The extensions that the card requires, which every call has to name.
    pub(super) extensions: String,
}

impl ServerUnderTest {
    /// Fetches the card from the first of these URLs that has one.
    pub(super) async fn find(http: &RawHttp, places: &[Url]) -> Result<Self, CheckError> {
        let (mut missing, mut wrong) = (Vec::new(), None);
        for card_url in places {
            let received = http.exchange(get(card_url), ReadLimit::default()).await;
            let received =
                received.map_err(|error| CheckError::Unreachable(host_of(card_url), error))?;
            if received.status != 200 {
                missing.push(format!("{card_url} answers with {}", received.status));
                continue;
            }
            let card = match received.body {
                RawBody::Whole(bytes) => serde_json::from_slice::<Value>(&bytes).ok(),
                RawBody::Pieces { .. } => None,
            };
            let Some(card) = card.filter(Value::is_object) else {
                wrong.get_or_insert_with(|| format!("{card_url} is not a JSON object"));
                continue;
            };
            return Ok(Self {
                base: base_of(card_url),
                card_url: card_url.clone(),
                interfaces: interfaces(&card, card_url),
                card,
            });
        }
        Err(match wrong {
            Some(wrong) => CheckError::InvalidCard(wrong),
            None => CheckError::NoCard(missing.join("; ")),
        })
    }

    /// The interfaces of a version.
    pub(super) fn speaking(&self, version: Version) -> impl Iterator<Item = &Interface> {
        self.interfaces.iter().filter(move |interface| interface.version == version)
    }

    /// The value of a capability on the card; `false` if it is absent.
    pub(super) fn capability(&self, name: &str) -> Value {
        let older = match name {
            "extendedAgentCard" => self.card.get("supportsAuthenticatedExtendedCard"),
            // Suites name it so; cards list the accepted schemes. If one of the alternatives needs no
            // scheme, the server needs no credentials.
            "authentication" => {
                let lists = [self.card.get("securityRequirements"), self.card.get("security")];
                let ways = lists.into_iter().flatten().filter_map(Value::as_array).flatten();
                let ways: Vec<_> = ways.map(|way| way.get("schemes").unwrap_or(way)).collect();
                let open = |way: &&Value| way.as_object().is_some_and(|way| way.is_empty());
                return Value::Bool(!ways.is_empty() && !ways.iter().any(open));
            }
            _ => None,
        };
        let said = self.card.get("capabilities").and_then(|all| all.get(name));
        said.or(older).cloned().unwrap_or(Value::Bool(false))
    }
}

impl Interface {
    /// The headers of every call, with those that a step changes.
    pub(super) fn headers(&self, own: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut headers = self.extension_header();
        if self.version == Version::V1_0 {
            headers.insert(VERSION_HEADER.to_owned(), self.version.to_string());
        }
        headers.extend(own.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone())));
        headers
    }

    /// The header with the extensions that the card requires, if it does.
    pub(super) fn extension_header(&self) -> BTreeMap<String, String> {
        let name = match self.version {
            Version::V1_0 => EXTENSIONS_HEADER,
            _ => LEGACY_EXTENSIONS_HEADER,
        };
        let header = (name.to_owned(), self.extensions.clone());
        Some(header).filter(|(_, uris)| !uris.is_empty()).into_iter().collect()
    }
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.binding.name(), self.version)
    }
}

/// The host and the port of a URL.
fn host_of(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or_default())
}

/// A request for a public document.
pub(super) fn get(url: &Url) -> RawRequest {
    let headers = BTreeMap::from([("accept".to_owned(), "application/json".to_owned())]);
    RawRequest { method: Method::GET, url: url.clone(), headers, body: Vec::new(), http2: false }
}

/// The URL that the well-known paths of a server are relative to.
fn base_of(card_url: &Url) -> Url {
    let known = WELL_KNOWN.iter().find_map(|path| card_url.path().strip_suffix(path));
    let mut base = card_url.clone();
    base.set_path(known.unwrap_or("/"));
    base
}

/// The interfaces of a card of 1.0, of 0.3, or of both; the first for each binding and version.
fn interfaces(card: &Value, card_url: &Url) -> Vec<Interface> {
    let mut found: Vec<Interface> = Vec::new();
    let mut add = |one: &Value, binding: &str, version: &str| {
        let Some(interface) = interface(card, one, binding, version, card_url) else { return };
        let same = |known: &Interface| {
            (known.binding, known.version) == (interface.binding, interface.version)
        };
        if !found.iter().any(same) {
            found.push(interface);
        }
    };
    for one in card.get("supportedInterfaces").and_then(Value::as_array).into_iter().flatten() {
        // A card without the version is invalid; its shape is that of 1.0.
        let version = one.get("protocolVersion").and_then(Value::as_str).unwrap_or("1.0");
        add(one, one.get("protocolBinding").and_then(Value::as_str).unwrap_or_default(), version);
    }
    if card.get("url").is_some() {
        let version = card.get("protocolVersion").and_then(Value::as_str).unwrap_or("0.3");
        let preferred = card.get("preferredTransport").and_then(Value::as_str);
        add(card, preferred.unwrap_or("JSONRPC"), version);
        for one in card.get("additionalInterfaces").and_then(Value::as_array).into_iter().flatten()
        {
            let transport = one.get("transport").and_then(Value::as_str).unwrap_or_default();
            add(one, transport, version);
        }
    }
    found
}

fn interface(
    card: &Value,
    one: &Value,
    binding: &str,
    version: &str,
    card_url: &Url,
) -> Option<Interface> {
    let binding = match binding.to_ascii_uppercase().as_str() {
        "JSONRPC" => CheckedBinding::JsonRpc,
        "HTTP+JSON" => CheckedBinding::Rest,
        "GRPC" => CheckedBinding::Grpc,
        _ => return None,
    };
    let version: Version = version.parse().ok()?;
    let text = one.get("url")?.as_str()?;
    // A gRPC address may be host:port, in which a URL parser sees a scheme.
    let url = match (binding, text.contains("://")) {
        (CheckedBinding::Grpc, false) => {
            Url::parse(&format!("{}://{text}", card_url.scheme())).ok()?
        }
        _ => card_url.join(text).ok()?,
    };
    let tenant = one.get("tenant").and_then(Value::as_str).filter(|tenant| !tenant.is_empty());
    matches!(url.scheme(), "http" | "https").then_some(())?;
    let (tenant, extensions) = (tenant.map(str::to_owned), required_extensions(card));
    Some(Interface { binding, version, url, tenant, extensions })
}

fn required_extensions(card: &Value) -> String {
    let all = card.get("capabilities").and_then(|all| all.get("extensions")?.as_array());
    let required =
        all.into_iter().flatten().filter(|one| one.get("required") == Some(&true.into()));
    let uris = required.filter_map(|one| one.get("uri").and_then(Value::as_str));
    uris.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "json! is how tests write values")]
mod tests {
    use serde_json::json;

    use super::*;

    fn declared(card: &Value) -> Vec<String> {
        let card_url = Url::parse("http://host:1/.well-known/agent-card.json").unwrap();
        let found = interfaces(card, &card_url).into_iter();
        found.map(|one| format!("{} {} {}", one.binding.name(), one.version, one.url)).collect()
    }

    #[test]
    fn cards_of_1_0_and_of_0_3_declare_interfaces() {
        let new = json!({"supportedInterfaces": [
            {"url": "http://host:1/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "host:2", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "http://host:1/v2", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "http://host:1/x", "protocolBinding": "urn:own", "protocolVersion": "1.0"},
        ]});
        assert_eq!(declared(&new), ["jsonrpc 1.0 http://host:1/rpc", "grpc 1.0 http://host:2/"]);
        let old = json!({
            "url": "http://host:1/",
            "protocolVersion": "0.3.0",
            "additionalInterfaces": [
                {"url": "http://host:1/", "transport": "JSONRPC"},
                {"url": "http://host:1/rest", "transport": "HTTP+JSON"},
            ],
        });
        assert_eq!(declared(&old), ["jsonrpc 0.3 http://host:1/", "rest 0.3 http://host:1/rest"]);
        assert!(declared(&json!({"supportedInterfaces": 3, "url": []})).is_empty());
    }
}
