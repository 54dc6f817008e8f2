//! Trusted proxies, and the forwarding headers that they set: `X-Forwarded-*` and `Forwarded` (RFC 7239).
//!
//! Anybody can send these headers, so they count only on connections from a trusted proxy, and of a list of
//! addresses only the part that trusted proxies have added.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, header, uri::Authority};
use ipnet::IpNet;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
static FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static FORWARDED_PREFIX: HeaderName = HeaderName::from_static("x-forwarded-prefix");

/// Headers besides `X-Forwarded-*` and `CF-*` with which proxies name their client or themselves.
const FORWARDING: [&str; 17] = [
    "ali-cdn-real-ip",
    "cdn-loop",
    "client-ip",
    "fastly-client-ip",
    "fly-client-ip",
    "forwarded",
    "forwarded-for",
    "true-client-ip",
    "via",
    "x-azure-clientip",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-original-host",
    "x-proxyuser-ip",
    "x-real-ip",
];

/// The longest path that a proxy can have removed from the target of a request.
const MAX_PREFIX: usize = 256;

/// The networks of trusted proxies.
#[derive(Debug, Default)]
pub(crate) struct TrustedProxies(Vec<IpNet>);

/// The URL of the server as clients of a proxy see it, as far as the proxy tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ForwardedUrl<'a> {
    /// `http` or `https`.
    pub(crate) scheme: Option<&'a str>,
    /// The authority.
    pub(crate) host: Option<&'a str>,
    /// The path before that of the request, without a slash at its end.
    pub(crate) prefix: Option<&'a str>,
}

impl TrustedProxies {
    /// Reads addresses such as `10.0.0.7` and networks such as `10.0.0.0/8`. The error is the text that is
    /// neither.
    pub(crate) fn parse(networks: &[String]) -> Result<Self, String> {
        let network = |text: &String| {
            let address = || text.parse::<IpAddr>().map(|one| one.to_canonical().into());
            text.parse().or_else(|_| address()).map_err(|_| text.clone())
        };
        networks.iter().map(network).collect::<Result<_, _>>().map(Self)
    }

    /// True if the peer is a trusted proxy.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&peer))
    }

    /// The client of a request that came from a trusted proxy at `peer`: the last address in the list that
    /// is not a trusted proxy. If `Forwarded` and `X-Forwarded-For` name different clients, one of them was
    /// not set by the proxy, and the client is the proxy itself.
    pub(crate) fn client(&self, headers: &HeaderMap, peer: IpAddr) -> IpAddr {
        let listed = values(headers, &FORWARDED_FOR).flat_map(|value| value.split(','));
        let listed = self.last_untrusted(listed.map(address));
        let standard = elements(headers).map(|element| parameter(element, "for").and_then(address));
        let standard = self.last_untrusted(standard);
        match (listed, standard) {
            (Some(listed), Some(standard)) if listed != standard => peer,
            (Some(client), _) | (None, Some(client)) => client,
            (None, None) => peer,
        }
    }

    /// The last address that is not trusted, or the first of all if all are. A hop without a valid address
    /// ends the search: the addresses before it cannot be attributed.
    fn last_untrusted(&self, hops: impl Iterator<Item = Option<IpAddr>>) -> Option<IpAddr> {
        let hops: Vec<_> = hops.collect();
        let mut client = None;
        for hop in hops.into_iter().rev() {
            client = Some(hop?);
            if hop.is_some_and(|hop| !self.trusts(hop)) {
                break;
            }
        }
        client
    }
}

impl<'a> ForwardedUrl<'a> {
    /// Reads the headers of a trusted proxy. `X-Forwarded-*` come first, because a proxy that sets them may
    /// let a client's `Forwarded` pass. A header with a list or with a malformed value is ignored.
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        let named = Self {
            scheme: single(headers, &FORWARDED_PROTO).and_then(scheme),
            host: single(headers, &FORWARDED_HOST).filter(|host| is_authority(host)),
            prefix: single(headers, &FORWARDED_PREFIX).and_then(prefix),
        };
        let has_any = [&FORWARDED_FOR, &FORWARDED_HOST, &FORWARDED_PROTO];
        if has_any.iter().any(|name| headers.contains_key(*name)) {
            return named;
        }
        let mut hops = elements(headers);
        let Some(hop) = hops.next().filter(|_| hops.next().is_none()) else { return named };
        let host = parameter(hop, "host").filter(|host| is_authority(host));
        Self { scheme: parameter(hop, "proto").and_then(scheme), host, ..named }
    }
}

/// True if a proxy, trusted or not, has passed the request on.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    headers.keys().map(HeaderName::as_str).any(|name| {
        name.starts_with("x-forwarded") || name.starts_with("cf-") || FORWARDING.contains(&name)
    })
}

/// True for a host with or without a port, and without user information.
pub(crate) fn is_authority(text: &str) -> bool {
    // Nearly all are a plain name or an IPv4 address. To parse those as an Authority would copy them.
    let (name, port) = text.split_once(':').unwrap_or((text, "0"));
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
    let digits = (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit());
    let plain = !name.is_empty() && name.bytes().all(plain) && digits;
    plain || (!text.contains('@') && text.parse::<Authority>().is_ok())
}

/// The texts of all headers of this name.
fn values<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap_or_default())
}

/// The value of a header that occurs once and has no list.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut all = values(headers, name);
    let only = all.next().filter(|_| all.next().is_none())?.trim();
    (!only.contains(',')).then_some(only)
}

/// The elements of `Forwarded`, one per hop. Quoted commas occur in no value that is used here.
fn elements(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    values(headers, &header::FORWARDED).flat_map(|value| value.split(','))
}

/// A parameter of an element of `Forwarded`, without its quotes.
fn parameter<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, value) = pairs.find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    Some(unquoted.unwrap_or(value))
}

/// An address with or without a port, an IPv6 address with or without brackets.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare.parse::<IpAddr>().ok();
    let address = address.or_else(|| text.parse::<SocketAddr>().ok().map(|socket| socket.ip()));
    address.map(|address| address.to_canonical())
}

fn scheme(text: &str) -> Option<&str> {
    ["https", "http"].into_iter().find(|known| text.eq_ignore_ascii_case(known))
}

/// A path of plain segments, without the slash at its end.
fn prefix(text: &str) -> Option<&str> {
    let text = text.strip_suffix('/').unwrap_or(text);
    let plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    let segment =
        |one: &str| !one.is_empty() && one != "." && one != ".." && one.bytes().all(plain);
    let mut segments = text.strip_prefix('/')?.split('/');
    (text.len() <= MAX_PREFIX && segments.all(segment)).then_some(text)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let mut headers = HeaderMap::new();
        for (name, value) in all.iter().map(header) {
            headers.append(name, value);
        }
        headers
    }

    fn proxies() -> TrustedProxies {
        TrustedProxies::parse(&["10.0.0.0/8".into(), "192.0.2.7".into(), "fd00::/8".into()])
            .unwrap()
    }

    #[test]
    fn networks_and_addresses_are_read_and_others_named() {
        let proxies = proxies();
        for trusted in ["10.255.0.1", "192.0.2.7", "fd00::1"] {
            assert!(proxies.trusts(trusted.parse().unwrap()), "{trusted}");
        }
        for other in ["11.0.0.1", "192.0.2.8", "fe80::1", "::1"] {
            assert!(!proxies.trusts(other.parse().unwrap()), "{other}");
        }
        for wrong in ["10.0.0.0/33", "example.com", "", "*"] {
            assert_eq!(TrustedProxies::parse(&[wrong.to_owned()]).unwrap_err(), wrong);
        }
    }

    #[test]
    fn the_client_is_the_last_address_that_no_trusted_proxy_has() {
        const PEER: &str = "10.0.0.1";
        for (forwarding, expected) in [
            (&[][..], PEER),
            (&[("x-forwarded-for", "203.0.113.9")], "203.0.113.9"),
            (&[("x-forwarded-for", "1.2.3.4, 203.0.113.9, 10.0.0.2")], "203.0.113.9"),
            (&[("x-forwarded-for", "1.2.3.4"), ("x-forwarded-for", "203.0.113.9")], "203.0.113.9"),
            (&[("x-forwarded-for", "10.0.0.3, 10.0.0.2")], "10.0.0.3"),
            (&[("x-forwarded-for", "203.0.113.9:4711")], "203.0.113.9"),
            (&[("x-forwarded-for", "::ffff:203.0.113.9")], "203.0.113.9"),
            (&[("x-forwarded-for", "1.2.3.4, unknown")], PEER),
            (&[("x-forwarded-for", "garbage")], PEER),
            (&[("x-forwarded-for", "")], PEER),
            (&[("forwarded", "for=203.0.113.9;proto=https")], "203.0.113.9"),
            (&[("forwarded", "for=1.2.3.4, For=\"[2001:db8::7]:99\"")], "2001:db8::7"),
            (&[("forwarded", "for=_hidden")], PEER),
            (&[("forwarded", "for=1.2.3.4"), ("x-forwarded-for", "203.0.113.9")], PEER),
            (&[("forwarded", "for=1.2.3.4"), ("x-forwarded-for", "1.2.3.4")], "1.2.3.4"),
        ] {
            let client = proxies().client(&headers(forwarding), PEER.parse().unwrap());
            assert_eq!(client, expected.parse::<IpAddr>().unwrap(), "{forwarding:?}");
        }
    }

    #[test]
    fn the_url_consists_of_well_formed_single_values() {
        let url = |scheme, host, prefix| ForwardedUrl { scheme, host, prefix };
        for (forwarding, expected) in [
            (&[][..], url(None, None, None)),
            (
                &[
                    ("x-forwarded-proto", "HTTPS"),
                    ("x-forwarded-host", "a.example:8443"),
                    ("x-forwarded-prefix", "/herald/"),
                ],
                url(Some("https"), Some("a.example:8443"), Some("/herald")),
            ),
            (
                &[("forwarded", "for=1.2.3.4;host=\"a.example:8443\";proto=https")],
                url(Some("https"), Some("a.example:8443"), None),
            ),
            // A client's own header passes a proxy that sets the others.
            (
                &[("forwarded", "host=evil.example"), ("x-forwarded-for", "1.2.3.4")],
                url(None, None, None),
            ),
            (&[("forwarded", "host=a.example, host=b.example")], url(None, None, None)),
            (&[("x-forwarded-host", "a.example, b.example")], url(None, None, None)),
            (
                &[("x-forwarded-host", "a.example"), ("x-forwarded-host", "b.example")],
                url(None, None, None),
            ),
            (
                &[("x-forwarded-host", "user@a.example"), ("x-forwarded-proto", "javascript")],
                url(None, None, None),
            ),
        ] {
            assert_eq!(ForwardedUrl::of(&headers(forwarding)), expected, "{forwarding:?}");
        }
        for wrong in ["herald", "//evil.example", "/a/../b", "/a?b", "/a\"b", "/<a>", "/a//b", "/"]
        {
            let headers = headers(&[("x-forwarded-prefix", wrong)]);
            assert_eq!(ForwardedUrl::of(&headers).prefix, None, "{wrong}");
        }
    }
}
