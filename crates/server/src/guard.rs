//! Request guard: checks of Host, Origin and Content-Type against DNS rebinding and cross-site requests.
//!
//! A web page can make the browser of its visitor call a server on loopback: by a name that resolves to
//! it (seen in the Host header), from another origin (seen in the Origin header), or with a form (whose
//! body is never JSON).

use std::net::IpAddr;

use herald_engine::budget::Payer;
use http::{HeaderMap, HeaderValue, StatusCode, Version, header, request::Parts, uri::Authority};

use crate::{
    config::Config,
    limits::{AdmissionLimit, network},
    proxy::{ForwardedUrl, TrustedProxies, is_authority, is_forwarded},
    refusal::Refusal,
};

/// Ingress of a request: this process or a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ingress {
    /// A call by the host application, which has its own checks.
    InProcess,
    /// A connection of our listener.
    Socket {
        /// The address that the listener is bound to.
        bound: IpAddr,
        /// The address of the client: the peer, or the address that a trusted proxy names.
        client: IpAddr,
        /// True if the peer is a trusted proxy.
        is_proxy: bool,
        /// The limit that the connection or the request is beyond: it can only probe the health of the server.
        beyond: Option<AdmissionLimit>,
    },
}

impl Ingress {
    /// True if other machines can reach it.
    pub(crate) fn is_public(self) -> bool {
        match self {
            Self::InProcess => false,
            Self::Socket { bound, .. } => !bound.to_canonical().is_loopback(),
        }
    }

    /// The same ingress, with the client that a trusted proxy names in the headers of a request.
    pub(crate) fn resolved(self, proxies: &TrustedProxies, headers: &HeaderMap) -> Self {
        match self {
            Self::Socket { bound, client: peer, is_proxy: true, beyond } => {
                let client = proxies.client(headers, peer);
                Self::Socket { bound, client, is_proxy: true, beyond }
            }
            Self::Socket { is_proxy: false, .. } | Self::InProcess => self,
        }
    }

    /// The address of the client; `None` in process.
    pub(crate) const fn client(self) -> Option<IpAddr> {
        match self {
            Self::InProcess => None,
            Self::Socket { client, .. } => Some(client),
        }
    }

    /// True if the request with these headers comes from this machine, and not through a proxy.
    pub(crate) fn is_local(self, headers: &HeaderMap) -> bool {
        match self {
            Self::InProcess => true,
            Self::Socket { client, is_proxy, .. } => {
                client.to_canonical().is_loopback() && !is_proxy && !is_forwarded(headers)
            }
        }
    }

    /// True if the forwarding headers of the request were set by a trusted proxy.
    pub(crate) const fn is_proxy(self) -> bool {
        match self {
            Self::InProcess => false,
            Self::Socket { is_proxy, .. } => is_proxy,
        }
    }

    /// The limit that the request is beyond.
    pub(crate) const fn beyond(self) -> Option<AdmissionLimit> {
        match self {
            Self::InProcess => None,
            Self::Socket { beyond, .. } => beyond,
        }
    }

    /// The same ingress, beyond this limit.
    pub(crate) const fn with_beyond(self, limit: AdmissionLimit) -> Self {
        match self {
            Self::InProcess => self,
            Self::Socket { bound, client, is_proxy, .. } => {
                Self::Socket { bound, client, is_proxy, beyond: Some(limit) }
            }
        }
    }

    /// The payer of reservations of callers without credentials.
    pub(crate) fn payer(self) -> Payer {
        match self {
            Self::InProcess => Payer::Process,
            Self::Socket { client, .. } => Payer::Address(network(client)),
        }
    }
}

/// Hosts and origins that are allowed.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Host names in lower case, without ports.
    hosts: Vec<String>,
    any_host: bool,
    /// True if hosts are checked on every listener, because the configuration names some.
    named: bool,
    /// Origins in lower case.
    origins: Vec<String>,
}

impl Guard {
    /// `public` is the authority of the public URL, and `origin` its origin.
    pub(crate) fn new(config: &Config, public: Option<&Authority>, origin: Option<String>) -> Self {
        let hosts = public.map(Authority::as_str).into_iter();
        let hosts = hosts.chain(config.allowed_hosts.iter().map(String::as_str));
        let origins = config.allowed_origins.iter().cloned().chain(origin);
        Self {
            hosts: hosts.map(|host| bare(host).to_ascii_lowercase()).collect(),
            any_host: config.allowed_hosts.iter().any(|host| host == "*"),
            named: !config.allowed_hosts.is_empty(),
            origins: origins.map(|origin| origin.to_ascii_lowercase()).collect(),
        }
    }

    /// The authority of the request, if it is allowed. A trusted proxy may name the one that its client used;
    /// then both have to be allowed, because a page on the machine of the proxy could name it too.
    pub(crate) fn host<'a>(
        &self,
        parts: &'a Parts,
        ingress: Ingress,
    ) -> Result<Option<&'a str>, Refusal> {
        let authority = authority(parts)?;
        let Ingress::Socket { bound, is_proxy, .. } = ingress else { return Ok(authority) };
        let forwarded = match is_proxy {
            true => ForwardedUrl::of(&parts.headers).host,
            false => None,
        };
        if authority.is_none() && parts.version >= Version::HTTP_11 {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "the Host header is missing"));
        }
        let checked = (bound.to_canonical().is_loopback() || self.named) && !self.any_host;
        let mut hosts = authority.into_iter().chain(forwarded).map(host_of);
        match hosts.find(|host| checked && !self.allows(host, bound)) {
            Some(host) => {
                let text = format!(
                    "the host {host:?} is not allowed: add it to [server] allowed_hosts in herald.toml"
                );
                Err(Refusal::new(StatusCode::MISDIRECTED_REQUEST, text))
            }
            None => Ok(forwarded.or(authority)),
        }
    }

    fn allows(&self, host: &str, bound: IpAddr) -> bool {
        let host = without_brackets(host);
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            return address.is_loopback() || address == bound.to_canonical();
        }
        let host = host.to_ascii_lowercase();
        is_loopback_name(&host) || self.hosts.contains(&host)
    }

    /// True if pages of some other origins may call.
    pub(crate) fn names_origins(&self) -> bool {
        !self.origins.is_empty()
    }

    /// Refuses a web page of another origin. `Some` is an origin that is allowed by name, for which CORS
    /// headers are needed.
    pub(crate) fn origin<'a>(
        &self,
        headers: &'a HeaderMap,
        host: Option<&str>,
    ) -> Result<Option<&'a str>, Refusal> {
        let mut origins = headers.get_all(header::ORIGIN).iter();
        let Some(origin) = origins.next() else { return Ok(None) };
        let refused = || {
            let text = "web pages of another origin are not allowed: add theirs to [server] allowed_origins in \
                        herald.toml";
            Refusal::new(StatusCode::FORBIDDEN, text)
        };
        let origin = origin.to_str().ok().filter(|_| origins.next().is_none());
        let origin = origin.ok_or_else(refused)?;
        let lower = origin.to_ascii_lowercase();
        if self.origins.contains(&lower) {
            return Ok(Some(origin));
        }
        let own = host.is_some_and(|host| is_origin_of(&lower, host));
        if own { Ok(None) } else { Err(refused()) }
    }
}

/// True if only the local user can have sent a request: it arrived on loopback, under a name of loopback,
/// and not through a proxy.
pub(crate) fn is_local(parts: &Parts, host: Option<&str>, ingress: Ingress) -> bool {
    let Ingress::Socket { bound, .. } = ingress else { return true };
    let host = host.map(|host| without_brackets(host_of(host)).to_ascii_lowercase());
    bound.to_canonical().is_loopback()
        && host.is_some_and(|host| is_loopback_name(&host))
        && ingress.is_local(&parts.headers)
}

/// True for a name or an address of loopback, in lower case.
fn is_loopback_name(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// True if `origin`, in lower case, is the origin of pages under `authority`.
fn is_origin_of(origin: &str, authority: &str) -> bool {
    let (authority, default) = match origin.split_once("://") {
        Some(("http", rest)) => ((rest, authority), ":80"),
        Some(("https", rest)) => ((rest, authority), ":443"),
        _ => return false,
    };
    let plain = |text: &str| text.strip_suffix(default).unwrap_or(text).to_ascii_lowercase();
    plain(authority.0) == plain(authority.1)
}

/// The authority of a request. HTTP prefers an absolute target over the Host header, and a proxy in front
/// may have used either, so the two must be equal.
fn authority(parts: &Parts) -> Result<Option<&str>, Refusal> {
    let bad = |text: &str| Refusal::new(StatusCode::BAD_REQUEST, text);
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Err(bad("there is more than one Host header"));
    }
    let host = match host {
        None => None,
        Some(host) => {
            let host = host.to_str().ok().filter(|host| is_authority(host));
            Some(host.ok_or_else(|| bad("the Host header is malformed"))?)
        }
    };
    match (parts.uri.authority(), host) {
        (Some(target), Some(host)) if *target != *host => {
            Err(bad("the Host header and the request's target differ"))
        }
        (Some(target), _) if target.as_str().contains('@') => {
            Err(bad("the request's target is malformed"))
        }
        (Some(target), _) => Ok(Some(target.as_str())),
        (None, host) => Ok(host),
    }
}

/// The host of an authority, without the port.
fn host_of(authority: &str) -> &str {
    let end = if authority.starts_with('[') {
        authority.find(']').map(|end| end + 1)
    } else {
        authority.find(':')
    };
    end.map_or(authority, |end| &authority[..end])
}

/// A host without its port, its brackets and its final dot.
fn bare(host: &str) -> &str {
    match host.split_once(':') {
        Some((name, port)) if !host.starts_with('[') && !port.contains(':') => {
            without_brackets(name)
        }
        Some(_) | None => without_brackets(host),
    }
}

/// A host that has no port, without its brackets and its final dot.
fn without_brackets(host: &str) -> &str {
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host,
    };
    host.strip_suffix('.').unwrap_or(host)
}

/// The reason why the body of a request cannot be JSON, by its headers.
pub(crate) fn refuse_content(headers: &HeaderMap) -> Option<&'static str> {
    let mut encodings = headers.get_all(header::CONTENT_ENCODING).iter();
    if encodings.any(|encoding| !is_identity(encoding)) {
        return Some("compressed bodies are not supported; send plain JSON");
    }
    let mut types = headers.get_all(header::CONTENT_TYPE).iter();
    let first = types.next().and_then(|kind| kind.to_str().ok());
    match first {
        Some(kind) if types.next().is_none() && is_json(kind) => None,
        _ => Some("the body must be JSON: send Content-Type: application/json"),
    }
}

/// True if the body has a transfer coding that is not supported. HTTP wants it refused with 501, and hyper
/// checks only that `chunked` comes last.
pub(crate) fn has_transfer_coding(headers: &HeaderMap) -> bool {
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => false,
        (Some(only), None) => !only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        (Some(_), Some(_)) => true,
    }
}

/// True if all content codings of a header are `identity`.
fn is_identity(encodings: &HeaderValue) -> bool {
    let mut each = encodings.as_bytes().split(|byte| *byte == b',');
    each.all(|coding| coding.trim_ascii().eq_ignore_ascii_case(b"identity"))
}

fn is_json(content_type: &str) -> bool {
    // The value of nearly all clients.
    if content_type == "application/json" {
        return true;
    }
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let Some(("application", subtype)) = essence.split_once('/') else { return false };
    subtype == "json" || subtype.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    const LOOPBACK: Ingress = at(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST));

    const fn at(bound: IpAddr) -> Ingress {
        Ingress::Socket { bound, client: bound, is_proxy: false, beyond: None }
    }

    fn guard(config: &Config) -> Guard {
        let public = Authority::from_static("agents.example.com");
        Guard::new(config, Some(&public), Some("https://agents.example.com".to_owned()))
    }

    fn parts(host: &str) -> Parts {
        Request::builder().uri("/").header(header::HOST, host).body(()).unwrap().into_parts().0
    }

    fn status(guard: &Guard, host: &str, ingress: Ingress) -> Option<u16> {
        guard.host(&parts(host), ingress).err().map(|refusal| refusal.status.as_u16())
    }

    #[test]
    fn a_loopback_server_answers_to_loopback_and_to_its_own_names_only() {
        let guard =
            guard(&Config { allowed_hosts: vec!["a.example:80".into()], ..Config::default() });
        for host in [
            "localhost",
            "localhost:8000",
            "LOCALHOST.",
            "x.localhost",
            "127.0.0.1:1",
            "127.9.9.9",
            "[::1]:8000",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "agents.example.com",
            "A.example:443",
        ] {
            assert_eq!(status(&guard, host, LOOPBACK), None, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "2130706433",
            "notlocalhost",
            "[::2]",
        ] {
            assert_eq!(status(&guard, host, LOOPBACK), Some(421), "{host}");
        }
        for host in ["user@localhost", "local host", ""] {
            assert_eq!(status(&guard, host, LOOPBACK), Some(400), "{host}");
        }
    }

    #[test]
    fn beyond_loopback_hosts_are_checked_once_some_are_named() {
        let open = at("0.0.0.0".parse().unwrap());
        assert_eq!(status(&guard(&Config::default()), "anything.example", open), None);
        let named = Config { allowed_hosts: vec!["a.example".into()], ..Config::default() };
        assert_eq!(status(&guard(&named), "anything.example", open), Some(421));
        let any = Config { allowed_hosts: vec!["*".into()], ..Config::default() };
        assert_eq!(status(&guard(&any), "anything.example", LOOPBACK), None);
        assert_eq!(
            status(&guard(&Config::default()), "anything.example", Ingress::InProcess),
            None
        );
    }

    #[test]
    fn a_missing_double_or_contradicting_host_is_refused() {
        let guard = guard(&Config::default());
        let none = Request::builder().uri("/").body(()).unwrap().into_parts().0;
        assert_eq!(guard.host(&none, LOOPBACK).unwrap_err().status, 400);
        assert!(guard.host(&none, Ingress::InProcess).unwrap().is_none());
        let mut two = parts("localhost");
        two.headers.append(header::HOST, HeaderValue::from_static("localhost"));
        assert_eq!(guard.host(&two, LOOPBACK).unwrap_err().status, 400);
        let mut other = parts("localhost");
        other.uri = "http://127.0.0.1/".parse().unwrap();
        assert_eq!(guard.host(&other, LOOPBACK).unwrap_err().status, 400);
    }

    #[test]
    fn only_pages_of_the_same_or_an_allowed_origin_may_call() {
        let config =
            Config { allowed_origins: vec!["https://c.example".into()], ..Config::default() };
        let guard = guard(&config);
        let check = |origin: &'static str, host: &'static str| {
            let headers =
                HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static(origin))]);
            guard.origin(&headers, Some(host)).map(|named| named.is_some()).ok()
        };
        assert_eq!(check("http://localhost:8000", "localhost:8000"), Some(false));
        assert_eq!(check("https://h.example", "h.example:443"), Some(false));
        assert_eq!(check("https://c.example", "localhost:8000"), Some(true));
        assert_eq!(check("https://agents.example.com", "localhost:8000"), Some(true));
        assert_eq!(check("http://localhost:9000", "localhost:8000"), None);
        assert_eq!(check("http://localhost", "localhost:8000"), None);
        assert_eq!(check("null", "localhost:8000"), None);
        assert_eq!(check("file://", "localhost:8000"), None);
        assert_eq!(check("https://evil.example", "localhost:8000"), None);
    }

    #[test]
    fn only_loopback_without_a_proxy_is_local() {
        let local = |parts: &Parts, ingress| {
            let host = parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
            is_local(parts, host, ingress)
        };
        for host in ["localhost:8000", "127.0.0.1", "[::1]:1", "a.localhost"] {
            assert!(local(&parts(host), LOOPBACK), "{host}");
        }
        assert!(!local(&parts("agents.example.com"), LOOPBACK));
        assert!(!local(&parts("localhost"), at("0.0.0.0".parse().unwrap())));
        for name in [
            "x-forwarded-for",
            "x-forwarded-proto",
            "x-forwarded-port",
            "cf-connecting-ip",
            "cf-ray",
            "true-client-ip",
            "x-real-ip",
            "forwarded",
            "via",
        ] {
            let mut proxied = parts("localhost");
            proxied.headers.insert(name, HeaderValue::from_static("10.0.0.1"));
            assert!(!local(&proxied, LOOPBACK), "{name}");
        }
        assert!(local(&parts("anything.example"), Ingress::InProcess));
    }

    #[test]
    fn bodies_must_say_that_they_are_json() {
        let check = |content_type: &'static str| {
            let value = HeaderValue::from_static(content_type);
            refuse_content(&HeaderMap::from_iter([(header::CONTENT_TYPE, value)])).is_none()
        };
        for kind in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/a2a+json",
            "application/vnd.x+json ; q=1",
        ] {
            assert!(check(kind), "{kind}");
        }
        for kind in [
            "text/plain",
            "text/plain; application/json",
            "application/x-www-form-urlencoded",
            "multipart/form-data",
            "text/json",
            "application/jsonp",
            "",
            "json",
        ] {
            assert!(!check(kind), "{kind}");
        }
        assert!(refuse_content(&HeaderMap::new()).is_some());
    }
}
