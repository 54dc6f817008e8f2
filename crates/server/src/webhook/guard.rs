//! URL guard: the check of every URL that a caller can make the server connect to.
//!
//! A caller names the URL, so without a check it could make the server send requests into its own network. The
//! guard checks the URL as it is written, and each address that a name resolves to at the time of the
//! connection: the address that is dialled is the address that was checked.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    str::FromStr,
    sync::Arc,
    time::Duration,
};

use http_acl::HttpAcl;
use ipnet::IpNet;
use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use super::WebhookSettingError;
use crate::causes::causes;

/// The longest URL, in bytes.
const MAX_URL: usize = 2048;
/// Addresses of one name that are used.
const MAX_ADDRESSES: usize = 64;
/// The time for the lookup of a name at registration.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);
/// Lookups at once. Each takes a thread until the system answers, also after its caller gave up.
const MAX_LOOKUPS: usize = 128;

/// Address ranges that are refused beside those of `http-acl`, which leaves out multicast and counts some special
/// IPv6 ranges as public. Of IPv6, only `2000::/3` is assigned to public hosts.
const REFUSED_RANGES: [&str; 10] = [
    "224.0.0.0/4",
    // Relays from IPv4 to 6to4.
    "192.88.99.0/24",
    // The metadata service of Azure, at an address that looks public.
    "168.63.129.16/32",
    "::/3",
    "4000::/2",
    "8000::/1",
    // Teredo, ORCHID and other assignments to protocols.
    "2001::/23",
    // Documentation.
    "2001:db8::/32",
    // 6to4.
    "2002::/16",
    // Documentation.
    "3fff::/20",
];

/// Names that belong to a local network: these, and all below them.
const LOCAL_NAMES: [&str; 10] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "home.arpa",
];

/// Names that have no address, and that must not be looked up (RFC 6761, RFC 7686).
const UNRESOLVED_NAMES: [&str; 2] = ["invalid", "onion"];

/// Ports from 1024 on of services that are often reachable without credentials inside a network. They matter for networks
/// that the operator allows.
const REFUSED_PORTS: [RangeInclusive<u16>; 22] = [
    1433..=1434,   // SQL Server
    1521..=1521,   // Oracle
    2049..=2049,   // NFS
    2181..=2181,   // ZooKeeper
    2375..=2377,   // Docker
    2379..=2380,   // etcd
    3306..=3306,   // MySQL
    3389..=3389,   // Remote Desktop
    4369..=4369,   // Erlang
    5432..=5432,   // PostgreSQL
    5672..=5672,   // RabbitMQ
    5900..=5910,   // VNC
    5984..=5986,   // CouchDB, Windows Remote Management
    6000..=6063,   // X11
    6379..=6380,   // Redis
    6443..=6443,   // Kubernetes
    9042..=9042,   // Cassandra
    9092..=9092,   // Kafka
    9200..=9300,   // Elasticsearch
    10250..=10255, // Kubernetes
    11211..=11211, // memcached
    27017..=27019, // MongoDB
];

/// The check of URLs.
#[derive(Debug)]
pub(crate) struct UrlGuard {
    addresses: HttpAcl,
    hosts: Vec<HostRule>,
    networks: Vec<IpNet>,
    /// The only ports, if the settings name some.
    ports: Option<Vec<RangeInclusive<u16>>>,
    https_only: bool,
}

/// A host that is allowed whatever it resolves to.
#[derive(Debug, PartialEq, Eq)]
struct HostRule {
    /// The host as [`Url::host_str`] has it.
    host: String,
    /// True if the rule is for the names below `host`.
    is_suffix: bool,
    /// The only port, if the rule names one.
    port: Option<u16>,
}

/// A URL that may be requested.
#[derive(Debug)]
pub(crate) struct CheckedUrl {
    pub(crate) url: Url,
    /// True if the settings allow the host, whatever it resolves to. All other names are checked again
    /// when they are resolved.
    pub(crate) is_allowed_host: bool,
    /// True if the settings allow further ports or addresses of a network that is not public: the duration of
    /// a failed attempt would tell a caller which of them are open.
    pub(crate) hides_duration: bool,
}

/// The reason why a URL is refused. It continues a sentence that begins with the URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UrlRefusal {
    reason: String,
    /// The key under `[push]` that can allow the URL.
    pub(crate) setting: Option<&'static str>,
}

impl fmt::Display for UrlRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for UrlRefusal {}

/// Refuses a URL that no setting allows.
fn refused<T>(reason: impl Into<String>) -> Result<T, UrlRefusal> {
    Err(UrlRefusal { reason: reason.into(), setting: None })
}

/// Refuses a URL that the operator can allow by a setting.
fn refused_unless<T>(setting: &'static str, reason: impl Into<String>) -> Result<T, UrlRefusal> {
    Err(UrlRefusal { reason: reason.into(), setting: Some(setting) })
}

impl UrlGuard {
    pub(crate) fn new(
        hosts: &[String],
        networks: &[String],
        ports: Option<Vec<RangeInclusive<u16>>>,
        https_only: bool,
    ) -> Result<Self, WebhookSettingError> {
        let host = |text: &String| {
            HostRule::parse(text).ok_or_else(|| WebhookSettingError::AllowedHost(text.clone()))
        };
        let network = |text: &String| {
            let address = || text.parse::<IpAddr>().map(IpNet::from);
            let network = text.parse::<IpNet>().or_else(|_| address());
            network.map_err(|_| WebhookSettingError::AllowedNetwork(text.clone()))
        };
        let ranges = REFUSED_RANGES.map(|range| range.parse::<IpNet>().expect("a valid network"));
        let addresses = HttpAcl::builder()
            .ip_acl_default(true)
            .denied_ip_ranges(ranges.to_vec())
            .expect("the ranges do not overlap")
            .build();
        Ok(Self {
            addresses,
            hosts: hosts.iter().map(host).collect::<Result<_, _>>()?,
            networks: networks.iter().map(network).collect::<Result<_, _>>()?,
            ports,
            https_only,
        })
    }

    /// Checks a URL as it is written. Its name is not resolved.
    pub(crate) fn check(&self, text: &str) -> Result<CheckedUrl, UrlRefusal> {
        if text.len() > MAX_URL {
            return refused(format!("is longer than {MAX_URL} bytes"));
        }
        // `Url` removes tabs and line ends, reads `\` as `/`, and maps other characters to ASCII: different
        // programs would read different hosts from such a text.
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('\\') {
            return refused(
                "must consist of visible ASCII characters without `\\`: percent-encode others, and write \
                 an international host name as xn--…",
            );
        }
        let (scheme, rest) = text.split_once("://").unwrap_or_default();
        let is_https = scheme.eq_ignore_ascii_case("https");
        if !is_https && !scheme.eq_ignore_ascii_case("http") {
            return refused("must begin with https:// or http://");
        }
        if self.https_only && !is_https {
            let reason = "must begin with https://: the server has `[push] https_only = true`";
            return refused_unless("https_only", reason);
        }
        if text.contains('#') {
            return refused("must not have a fragment (#), which is never sent");
        }
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        if authority.contains('@') {
            return refused(
                "must not contain a user name or a password: use `authentication` or `token`",
            );
        }
        let Some((host, _)) = split_authority(authority) else {
            return refused("has no valid host and port");
        };
        let Ok(url) = Url::parse(text) else {
            return refused("has no valid host and port");
        };
        let (Some(canonical), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return refused("has no valid host and port");
        };
        let literal = literal(canonical);
        let is_usual = match literal {
            Some(IpAddr::V6(_)) => true,
            // Without the decimal, octal, hexadecimal and short forms of IPv4 addresses.
            Some(IpAddr::V4(_)) | None => host.eq_ignore_ascii_case(canonical),
        };
        if !is_usual {
            return refused("writes its IPv4 address in an unusual form: use four decimal numbers");
        }
        let is_allowed_host = self.hosts.iter().any(|rule| rule.matches(canonical, port));
        let has_own_port = |rule: &HostRule| rule.port.is_some() && rule.matches(canonical, port);
        if !self.hosts.iter().any(has_own_port) && !self.is_allowed_port(port) {
            let reason = format!(
                "has port {port}, which this server does not connect to; its operator can allow it with \
                 `[push] allowed_ports`"
            );
            return refused_unless("allowed_ports", reason);
        }
        match literal {
            _ if is_allowed_host => {}
            Some(address) => {
                if !self.is_allowed_address(address) {
                    return refused_unless(
                        "allowed_hosts",
                        "points to an address that is not public (loopback, private, link-local or \
                         reserved); the operator of this server can allow it with `[push] \
                         allowed_hosts` or `allowed_cidrs`",
                    );
                }
            }
            None => check_name(canonical)?,
        }
        let whole_host = |rule: &HostRule| rule.port.is_none() && rule.matches(canonical, port);
        let in_network = match literal {
            Some(address) => self.networks.iter().any(|network| network.contains(&address)),
            // A name may resolve to an address there.
            None => !is_allowed_host && !self.networks.is_empty(),
        };
        let hides_duration = in_network || self.hosts.iter().any(whole_host);
        Ok(CheckedUrl { url, is_allowed_host, hides_duration })
    }

    /// Looks up the name of a checked URL once and refuses one that resolves to a forbidden address. A name that does
    /// not resolve now is accepted: it is checked again at each connection.
    pub(crate) async fn check_lookup(
        &self,
        checked: &CheckedUrl,
        resolver: &dyn Resolve,
    ) -> Result<(), UrlRefusal> {
        if checked.is_allowed_host {
            return Ok(());
        }
        let Ok(found) = lookup(checked, resolver).await else { return Ok(()) };
        // The address stays out of the answer: callers must not learn about the network of the server.
        if found.iter().all(|address| self.is_allowed_address(*address)) {
            Ok(())
        } else {
            refused_unless(
                "allowed_hosts",
                "has a host that resolves to an address that is not public; the operator of this server can \
                 allow it with `[push] allowed_hosts` or `allowed_cidrs`",
            )
        }
    }

    pub(crate) fn is_allowed_address(&self, address: IpAddr) -> bool {
        self.networks.iter().any(|network| network.contains(&address))
            || self.addresses.is_ip_allowed(&address).is_allowed()
    }

    fn is_allowed_port(&self, port: u16) -> bool {
        match &self.ports {
            Some(ports) => ports.iter().any(|range| range.contains(&port)),
            None => {
                matches!(port, 80 | 443 | 1024..)
                    && !REFUSED_PORTS.iter().any(|range| range.contains(&port))
            }
        }
    }
}

/// The addresses of a checked URL. The error is for the operator.
pub(crate) async fn lookup(
    checked: &CheckedUrl,
    resolver: &dyn Resolve,
) -> Result<Vec<IpAddr>, String> {
    let host = checked.url.host_str().unwrap_or_default();
    if let Some(address) = literal(host) {
        return Ok(vec![address]);
    }
    let name = Name::from_str(host).map_err(|error| error.to_string())?;
    match timeout(LOOKUP_TIMEOUT, resolver.resolve(name)).await {
        Ok(Ok(found)) => Ok(found.take(MAX_ADDRESSES).map(|address| address.ip()).collect()),
        Ok(Err(error)) => Err(causes(&*error)),
        Err(_) => Err(format!("no answer within {} s", LOOKUP_TIMEOUT.as_secs())),
    }
}

/// Refuses names that cannot be public. An operator may still allow one.
fn check_name(host: &str) -> Result<(), UrlRefusal> {
    let valid = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    if host.len() > 253 || !host.split('.').all(valid) {
        return refused("has no valid host name");
    }
    if !host.contains('.') || LOCAL_NAMES.iter().any(|name| is_below(host, name)) {
        return refused_unless(
            "allowed_hosts",
            "names a host of a local network; the operator of this server can allow it with `[push] \
             allowed_hosts`",
        );
    }
    Ok(())
}

/// True if a host is this name or one below it.
fn is_below(host: &str, name: &str) -> bool {
    host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

/// The address in a host of a [`Url`].
fn literal(host: &str) -> Option<IpAddr> {
    let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}

/// The host and the port of an authority without credentials. Percent signs are refused: they would be an
/// encoded host or the zone of an IPv6 address.
fn split_authority(authority: &str) -> Option<(&str, Option<u16>)> {
    let end = if authority.starts_with('[') { authority.find(']')? + 1 } else { 0 };
    let (host, port) = match authority[end..].find(':') {
        Some(colon) => (&authority[..end + colon], Some(&authority[end + colon + 1..])),
        None => (authority, None),
    };
    let port = match port {
        Some(digits) => {
            let plain = (1..=5).contains(&digits.len());
            let plain = plain && digits.bytes().all(|byte| byte.is_ascii_digit());
            Some(digits.parse().ok().filter(|port| plain && *port > 0)?)
        }
        None => None,
    };
    (!host.is_empty() && !host.contains('%')).then_some((host, port))
}

impl HostRule {
    /// A name, an address or `*.` and a name; all with a port, if the rule is for that port alone.
    fn parse(text: &str) -> Option<Self> {
        let (is_suffix, rest) = match text.strip_prefix("*.") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let bracketed = rest.parse::<Ipv6Addr>().map(|address| format!("[{address}]"));
        let rest = bracketed.unwrap_or_else(|_| rest.to_owned());
        let (host, port) = split_authority(&rest)?;
        let url = Url::parse(&format!("http://{host}/")).ok()?;
        let canonical = url.host_str()?;
        let is_literal = literal(canonical).is_some();
        let plain = url.as_str() == format!("http://{canonical}/") && !canonical.contains('*');
        let usual = host.eq_ignore_ascii_case(canonical) || canonical.starts_with('[');
        let host = canonical.to_owned();
        (plain && usual && !(is_suffix && is_literal)).then_some(Self { host, is_suffix, port })
    }

    fn matches(&self, host: &str, port: u16) -> bool {
        let named = if self.is_suffix {
            host != self.host && is_below(host, &self.host)
        } else {
            host == self.host
        };
        named && self.port.is_none_or(|own| own == port)
    }
}

/// Resolver that returns only addresses that the guard allows. A name with any other address is refused as a
/// whole, so that a repeated lookup cannot lead to another address.
#[derive(Debug)]
pub(crate) struct CheckedResolver<R: ?Sized> {
    pub(crate) guard: Arc<UrlGuard>,
    pub(crate) resolver: Arc<R>,
}

impl<R: Resolve + ?Sized + 'static> Resolve for CheckedResolver<R> {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, resolver) = (Arc::clone(&self.guard), Arc::clone(&self.resolver));
        Box::pin(async move {
            let host = name.as_str().to_owned();
            let found = resolver.resolve(name).await?.take(MAX_ADDRESSES);
            let found: Vec<SocketAddr> = found.collect();
            let forbidden = found.iter().find(|address| !guard.is_allowed_address(address.ip()));
            if let Some(address) = forbidden {
                let text = format!(
                    "{host} resolves to {}, which is not public; `[push] allowed_hosts` or \
                     `allowed_cidrs` can allow it",
                    address.ip()
                );
                return Err(UrlRefusal { reason: text, setting: Some("allowed_hosts") }.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The resolver of the operating system.
#[derive(Debug)]
pub(crate) struct SystemResolver(Arc<Semaphore>);

impl Default for SystemResolver {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_LOOKUPS)))
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let permits = Arc::clone(&self.0);
        Box::pin(async move {
            if UNRESOLVED_NAMES.iter().any(|reserved| is_below(name.as_str(), reserved)) {
                return Err(
                    format!("{} is a reserved name without an address", name.as_str()).into()
                );
            }
            let permit = permits.acquire_owned().await?;
            let found = spawn_blocking(move || {
                use std::net::ToSocketAddrs;
                let _permit = permit;
                (name.as_str(), 0).to_socket_addrs()
            });
            Ok(Box::new(found.await??) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests;
