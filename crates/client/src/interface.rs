//! Interface of a card that this client can call: binding, dialect and URL.

use std::net::IpAddr;

use herald_protocol::{AgentCard, Dialect, Version, card::AgentInterface};
use reqwest::Url;

/// Binding of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Binding {
    /// JSON-RPC 2.0 over HTTP.
    JsonRpc,
    /// HTTP and JSON.
    Rest,
    /// gRPC.
    Grpc,
    /// JSON-RPC over a WebSocket, a binding of Herald's own.
    WebSocket,
    /// JSON-RPC over the standard input and output of a program, a binding of Herald's own. It does not appear
    /// in cards: see [`ClientBuilder::command`](crate::ClientBuilder::command).
    Stdio,
}

/// The names of our own bindings in cards.
const WEBSOCKET: &str = "https://github.com/herald-a2a/herald/bindings/websocket/v1";
const STDIO: &str = "https://github.com/herald-a2a/herald/bindings/stdio/v1";

/// An interface that this client can call.
#[derive(Debug, Clone)]
pub(crate) struct Usable {
    pub(crate) interface: AgentInterface,
    pub(crate) binding: Binding,
    pub(crate) dialect: Dialect,
    pub(crate) url: Url,
}

impl Usable {
    /// The interface of a program on its standard input and output.
    pub(crate) fn stdio() -> Self {
        let interface = AgentInterface {
            url: "stdio:".to_owned(),
            protocol_binding: STDIO.to_owned(),
            tenant: None,
            protocol_version: Version::V1_0.to_string(),
        };
        let url = Url::parse(&interface.url).expect("it is a URL");
        Self { interface, binding: Binding::Stdio, dialect: Dialect::V1, url }
    }

    /// The same interface at another URL.
    pub(crate) fn at(&self, url: Url) -> Self {
        let interface = AgentInterface { url: url.to_string(), ..self.interface.clone() };
        Self { interface, url, ..self.clone() }
    }

    /// The same interface in another version.
    pub(crate) fn in_version(&self, dialect: Dialect) -> Self {
        let protocol_version = dialect.version().to_string();
        let interface = AgentInterface { protocol_version, ..self.interface.clone() };
        Self { interface, dialect, ..self.clone() }
    }
}

impl Binding {
    /// The binding with this name in a card.
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "JSONRPC" => Some(Self::JsonRpc),
            "HTTP+JSON" => Some(Self::Rest),
            "GRPC" => Some(Self::Grpc),
            _ if name == WEBSOCKET => Some(Self::WebSocket),
            _ if name == STDIO => Some(Self::Stdio),
            _ => None,
        }
    }

    /// The possible dialects of an interface of this version, the likeliest first. Cards of 0.1 and early 0.2
    /// have no version and look alike.
    pub(crate) fn dialects(self, version: Version) -> &'static [Dialect] {
        match (self, version) {
            (Self::Stdio, _) => &[],
            (_, Version { major: 1, .. }) => &[Dialect::V1],
            (Self::JsonRpc, Version::V0_3) => &[Dialect::V03],
            (Self::JsonRpc, Version::V0_2) => &[Dialect::V03, Dialect::V01],
            (Self::JsonRpc, Version::V0_1) => &[Dialect::V01, Dialect::V03],
            (Self::Rest | Self::Grpc, Version::V0_3 | Version::V0_2) => &[Dialect::V03Rest],
            _ => &[],
        }
    }
}

pub(crate) fn address(text: &str, from: Option<&Url>) -> Option<Url> {
    let url = match from {
        Some(_) if text.is_empty() => return None,
        Some(base) => base.join(text).ok()?,
        None => Url::parse(text).ok()?,
    };
    matches!(url.scheme(), "http" | "https").then_some(url)
}

/// The HTTP URL of the request that opens a WebSocket.
pub(crate) fn socket_address(text: &str, from: Option<&Url>) -> Option<Url> {
    let http = match text.split_once("://") {
        Some(("ws", rest)) => format!("http://{rest}"),
        Some(("wss", rest)) => format!("https://{rest}"),
        _ => text.to_owned(),
    };
    address(&http, from)
}

/// The URL of a gRPC interface: a URL in some cards, `host:port` in most. The latter does not say whether TLS
/// is used.
pub(crate) fn grpc_address(text: &str, from: Option<&Url>, card: &AgentCard) -> Option<Url> {
    let text = text.strip_prefix("dns:").map_or(text, |name| name.trim_start_matches('/'));
    let (scheme, rest) = match text.split_once("://") {
        Some(("http" | "grpc", rest)) => ("http", rest),
        Some(("https" | "grpcs", rest)) => ("https", rest),
        Some(_) => return None,
        // Not the path of a socket.
        None if text.contains('/') => return None,
        None if is_plain(text, from, card) => ("http", text),
        None => ("https", text),
    };
    Url::parse(&format!("{scheme}://{rest}")).ok().filter(Url::has_host)
}

/// True if `host:port` is meant without TLS: if the card was fetched without TLS or, for a given card, if its
/// other addresses have none. Without any hint TLS is assumed, except on this machine.
fn is_plain(authority: &str, from: Option<&Url>, card: &AgentCard) -> bool {
    if let Some(from) = from {
        return from.scheme() == "http";
    }
    let named = |prefix| card.supported_interfaces.iter().any(|one| one.url.starts_with(prefix));
    match (named("https://"), named("http://")) {
        (true, _) => false,
        (false, true) => true,
        (false, false) => {
            let url = Url::parse(&format!("http://{authority}")).ok();
            url.as_ref().and_then(Url::host_str).is_some_and(|host| {
                let host = host.trim_matches(['[', ']']);
                host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(urls: &[&str]) -> AgentCard {
        let interface = |url: &&str| AgentInterface {
            url: (*url).to_owned(),
            protocol_binding: "GRPC".to_owned(),
            tenant: None,
            protocol_version: "1.0".to_owned(),
        };
        let supported_interfaces = urls.iter().map(interface).collect();
        AgentCard { supported_interfaces, ..AgentCard::default() }
    }

    #[test]
    fn a_grpc_address_without_a_scheme_uses_tls_if_its_card_does() {
        let [plain, secure] = ["http://a.example/", "https://a.example/"].map(Url::parse);
        let (plain, secure) = (plain.unwrap(), secure.unwrap());
        for (text, from, beside, expected) in [
            ("a.example:50051", Some(&plain), None, Some("http://a.example:50051/")),
            ("a.example:50051", Some(&secure), None, Some("https://a.example:50051/")),
            ("dns:///a.example:50051", Some(&secure), None, Some("https://a.example:50051/")),
            ("grpc://a.example:50051", Some(&secure), None, Some("http://a.example:50051/")),
            ("grpcs://a.example", Some(&plain), None, Some("https://a.example/")),
            ("http://a.example:50051", Some(&secure), None, Some("http://a.example:50051/")),
            ("a.example:1", None, Some("http://b.example/"), Some("http://a.example:1/")),
            ("a.example:1", None, Some("https://b.example/"), Some("https://a.example:1/")),
            ("a.example:1", None, None, Some("https://a.example:1/")),
            ("127.0.0.1:1", None, None, Some("http://127.0.0.1:1/")),
            ("[::1]:1", None, None, Some("http://[::1]:1/")),
            ("localhost:1", None, None, Some("http://localhost:1/")),
            ("unix:/run/agent.sock", Some(&plain), None, None),
            ("ftp://a.example", Some(&plain), None, None),
            ("", Some(&plain), None, None),
        ] {
            let card = card(&beside.into_iter().collect::<Vec<_>>());
            let found = grpc_address(text, from, &card);
            assert_eq!(found.as_ref().map(Url::as_str), expected, "{text}");
        }
    }
}
