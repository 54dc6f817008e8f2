//! Corpus of URL spellings for the guard, made from tables.

mod spellings;

use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, SocketAddr},
    sync::Mutex,
};

use super::*;
use spellings::{REFUSED_IPV4, REFUSED_IPV6, spellings};

const PUBLIC: [&str; 8] = [
    "https://receiver.example.com/hook",
    "http://receiver.example.com/hook",
    "HTTPS://Receiver.Example.COM/Hook?a=b&c=%20",
    "https://receiver.example.com:8443/",
    "https://xn--bcher-kva.example.com",
    "https://8.8.8.8/hook",
    "https://[2606:4700:4700::1111]:8443/hook",
    "https://[2606:4700:4700:0:0:0:0:1111]/hook",
];

fn guard(hosts: &[&str], networks: &[&str]) -> UrlGuard {
    let owned = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    UrlGuard::new(&owned(hosts), &owned(networks), None, false).unwrap()
}

/// Hosts and URLs that must be refused, each once.
fn corpus() -> BTreeSet<String> {
    let mut hosts: Vec<String> = REFUSED_IPV4.into_iter().flat_map(spellings).collect();
    for address in REFUSED_IPV6 {
        hosts.push(format!("[{address}]"));
        hosts.push(format!("[{}]", address.to_uppercase()));
        hosts.push(format!("[{address}%25eth0]"));
        hosts.push(format!("[{address}%lo]"));
    }
    for name in LOCAL_NAMES {
        hosts.extend([
            name.to_owned(),
            name.to_uppercase(),
            format!("{name}."),
            format!("a.{name}"),
            format!("a.B.{name}"),
            format!("a.{name}."),
        ]);
    }
    let names = ["internal-db", "db", "ip6-localhost", "metadata", "metadata.google.internal"];
    hosts.extend(names.map(str::to_owned));
    hosts.extend(
        ["a..b", ".a.b", "a b.c", "a.b!", "*.a.b", "a.b%2e", "1.2.3.4.5", "a.1", "[a.b]"]
            .map(str::to_owned),
    );
    let mut urls: BTreeSet<String> = BTreeSet::new();
    for host in hosts {
        for (before, after) in [("http://", "/"), ("https://", ""), ("hTTp://", ":8080/hook?x=1")] {
            urls.insert(format!("{before}{host}{after}"));
        }
    }
    let public = "receiver.example.com";
    for scheme in
        ["ftp", "file", "gopher", "unix", "ws", "wss", "data", "javascript", "http+unix", ""]
    {
        urls.insert(format!("{scheme}://{public}/"));
    }
    let odd = [
        "",
        "/",
        "//receiver.example.com/",
        "receiver.example.com",
        "http:",
        "http:/",
        "http://",
        "http:///receiver.example.com",
        "http:receiver.example.com",
        "http:/receiver.example.com",
        "http:\\\\receiver.example.com",
        "http://?",
        "http://#",
        "http://:80",
        "http://@/",
        " https://receiver.example.com",
        "https://receiver.example.com ",
        "\thttps://receiver.example.com",
        "ht\ntps://receiver.example.com",
        "https://receiver.example.com/\r\nHost: a",
        "https://receiver.example.com/\0",
        "https://receiver.example.com/\u{7f}",
        "https://receiver.example.com/ä",
        "https://127.0.0.1\\@receiver.example.com/",
        "https://receiver.example.com\\.localhost/",
        "https://receiver.example.com:/",
        "https://receiver.example.com:0/",
        "https://receiver.example.com:65536/",
        "https://receiver.example.com:99999999999/",
        "https://receiver.example.com:-1/",
        "https://receiver.example.com:80:80/",
        "https://receiver.example.com:8o/",
        "https://user@receiver.example.com/",
        "https://user:password@receiver.example.com/",
        "https://@receiver.example.com/",
        "https://:@receiver.example.com/",
        "https://receiver.example.com@127.0.0.1/",
        "https://127.0.0.1#@receiver.example.com/",
        "https://receiver.example.com#@127.0.0.1/",
        "https://receiver.example.com/#fragment",
        "https://%72eceiver.example.com/",
        "https://[::1/",
        "https://::1/",
        "https://[]/",
        "https://receiver\u{ad}.example.com/",
        "https://ⓔxample.com/",
        "https://receiver.example.com\u{ff0f}/",
    ];
    urls.extend(odd.map(str::to_owned));
    for port in
        [1, 7, 21, 22, 23, 25, 53, 110, 111, 135, 143, 389, 445, 465, 587, 636, 873, 993, 1023]
    {
        urls.insert(format!("http://{public}:{port}/"));
    }
    for range in REFUSED_PORTS {
        urls.insert(format!("http://{public}:{}/", range.start()));
        urls.insert(format!("http://{public}:{}/", range.end()));
    }
    urls.insert(format!("http://{public}/{}", "x".repeat(MAX_URL)));
    urls
}

// proves: PUSH-017
#[test]
fn every_spelling_of_a_forbidden_url_is_refused() {
    let guard = guard(&[], &[]);
    let corpus = corpus();
    assert!(corpus.len() >= 250, "{}", corpus.len());
    for url in &corpus {
        assert!(guard.check(url).is_err(), "{url:?}");
    }
    println!("{} URLs refused", corpus.len());
}

#[test]
fn public_urls_are_allowed() {
    for url in PUBLIC {
        let checked = guard(&[], &[]).check(url).unwrap();
        assert!(!checked.is_allowed_host, "{url}");
    }
}

// proves: PUSH-018
#[test]
fn the_refusal_names_the_setting_that_allows_the_url() {
    let guard = guard(&[], &[]);
    for (url, setting) in [
        ("http://127.0.0.1/", "allowed_cidrs"),
        ("http://localhost:9100/", "allowed_hosts"),
        ("http://internal-db:8080/", "allowed_hosts"),
        ("http://receiver.example.com:22/", "allowed_ports"),
    ] {
        let refusal = guard.check(url).unwrap_err().to_string();
        assert!(refusal.contains(setting), "{url}: {refusal}");
    }
    let https = UrlGuard::new(&[], &[], None, true).unwrap();
    let refusal = https.check("http://receiver.example.com/").unwrap_err().to_string();
    assert!(refusal.contains("https_only"), "{refusal}");
    assert!(https.check("https://receiver.example.com/").is_ok());
}

#[test]
fn allowed_hosts_are_exact_names_ports_and_suffixes() {
    let rules =
        ["localhost", "127.0.0.1:9100", "[::1]:9100", "::2", "*.Trusted.internal", "db:5432"];
    let guard = guard(&rules, &[]);
    for url in [
        "http://localhost/",
        "http://LOCALHOST:9100/hook",
        "http://127.0.0.1:9100/",
        "http://[::1]:9100/",
        "http://[::2]:9100/",
        "http://a.trusted.internal/",
        "http://a.b.trusted.internal/",
        "http://db:5432/",
    ] {
        assert!(guard.check(url).unwrap().is_allowed_host, "{url}");
    }
    for url in [
        "http://localhost.localdomain/",
        "http://a.localhost/",
        "http://localhost:22/",
        "http://127.0.0.1/",
        "http://127.0.0.1:9101/",
        "http://2130706433:9100/",
        "http://127.0.0.2:9100/",
        "http://[::ffff:127.0.0.1]:9100/",
        "http://trusted.internal/",
        "http://untrusted.internal/",
        "http://db:5433/",
        "http://db:6379/",
    ] {
        assert!(guard.check(url).is_err(), "{url}");
    }
    for rule in [
        "",
        "*",
        "*.",
        "*.*",
        "*.1.2.3.4",
        "a b",
        "a:b",
        "a:0",
        "http://a",
        "a/b",
        "a@b",
        "a:80:80",
        "2130706433",
        "a%20b",
    ] {
        assert_eq!(HostRule::parse(rule), None, "{rule}");
    }
}

#[test]
fn an_allowed_network_admits_its_addresses_and_no_others() {
    let guard = guard(&[], &["10.1.0.0/16", "127.0.0.1", "fd00::/8"]);
    for url in ["http://10.1.2.3:8080/", "http://127.0.0.1:9100/", "http://[fd00::1]/"] {
        assert!(!guard.check(url).unwrap().is_allowed_host, "{url}");
    }
    for url in
        ["http://10.2.0.1/", "http://127.0.0.2/", "http://[fe80::1]/", "http://10.1.2.3:6379/"]
    {
        assert!(guard.check(url).is_err(), "{url}");
    }
    assert!(UrlGuard::new(&[], &["10.1.0.0/33".to_owned()], None, false).is_err());
}

#[test]
fn the_ports_of_the_settings_replace_the_default() {
    let guard = UrlGuard::new(&[], &[], Some(vec![443..=443, 6379..=6400]), false).unwrap();
    assert!(guard.check("https://receiver.example.com/").is_ok());
    assert!(guard.check("http://receiver.example.com:6380/").is_ok());
    assert!(guard.check("http://receiver.example.com/").is_err());
    assert!(guard.check("http://receiver.example.com:8080/").is_err());
}

/// Resolver that gives each lookup the next of its answers, and the last one again.
struct Scripted(Mutex<Vec<Vec<&'static str>>>);

impl Resolve for Scripted {
    fn resolve(&self, _: Name) -> Resolving {
        let mut answers = self.0.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        let addresses = answer.into_iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0));
        let addresses: Vec<_> = addresses.collect();
        Box::pin(async move {
            if addresses.is_empty() {
                return Err("no such name".into());
            }
            Ok(Box::new(addresses.into_iter()) as Addrs)
        })
    }
}

#[tokio::test]
async fn a_name_is_looked_up_at_registration_and_may_be_unknown() {
    let guard = guard(&["allowed.example.com"], &["10.1.0.0/16"]);
    for (answer, allowed) in [
        (vec!["8.8.8.8"], true),
        (vec![], true),
        (vec!["10.1.0.1"], true),
        (vec!["127.0.0.1"], false),
        (vec!["8.8.8.8", "169.254.169.254"], false),
        (vec!["::ffff:10.1.0.1"], false),
    ] {
        let resolver = Scripted(Mutex::new(vec![answer.clone()]));
        let checked = guard.check("https://receiver.example.com/").unwrap();
        let found = guard.check_lookup(&checked, &resolver).await;
        assert_eq!(found.is_ok(), allowed, "{answer:?}");
        if let Err(refusal) = found {
            let text = refusal.to_string();
            assert!(answer.iter().all(|address| !text.contains(address)), "{text}");
        }
    }
    let resolver = Scripted(Mutex::new(vec![vec!["127.0.0.1"]]));
    let checked = guard.check("https://allowed.example.com/").unwrap();
    assert_eq!(guard.check_lookup(&checked, &resolver).await, Ok(()));
}

#[tokio::test]
async fn a_resolved_set_with_one_forbidden_address_is_refused_as_a_whole() {
    let guard = Arc::new(guard(&[], &[]));
    let answers = vec![vec!["8.8.8.8"], vec!["8.8.8.8", "10.0.0.1"], vec!["127.0.0.1"]];
    let resolver = Arc::new(Scripted(Mutex::new(answers)));
    let checked = CheckedResolver { guard, resolver };
    let lookup = || checked.resolve(Name::from_str("receiver.example.com").unwrap());
    let first: Vec<_> = lookup().await.unwrap().map(|address| address.ip()).collect();
    assert_eq!(first, [IpAddr::from(Ipv4Addr::new(8, 8, 8, 8))]);
    assert!(lookup().await.is_err());
    assert!(lookup().await.is_err());
}

#[tokio::test]
async fn reserved_names_are_not_looked_up() {
    for name in ["hook.invalid", "invalid", "a.onion"] {
        let found = SystemResolver::default().resolve(Name::from_str(name).unwrap()).await;
        let error = found.err().unwrap().to_string();
        assert!(error.contains("reserved"), "{error}");
    }
}

#[test]
fn fuzz_a_url_that_is_allowed_has_a_public_host() {
    let guard = std::panic::AssertUnwindSafe(guard(&[], &[]));
    bolero::check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        for url in [text.to_string(), format!("http://{text}"), format!("https://{text}/hook")] {
            if let Ok(checked) = guard.check(&url) {
                let host = checked.url.host_str().unwrap();
                assert!(literal(host).is_none_or(|address| guard.is_allowed_address(address)));
                assert!(host.contains('.') || host.contains(':'), "{url:?}");
                assert_eq!(checked.url.username(), "");
            }
        }
    });
}
