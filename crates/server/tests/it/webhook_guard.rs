//! Attempts to reach forbidden addresses through the real sender of webhooks. Listeners count connections.
//!
//! The test runs itself in a network namespace whose loopback interface has every address: a connection to any
//! address, private or public, would arrive at a listener of the test, and no packet can leave. Where no namespace
//! can be made, it tries loopback addresses only.

use std::{
    collections::HashMap,
    env,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use herald_engine::webhooks::sender::{AttemptOutcome, Delivery, SealedSecrets, WebhookSender};
use herald_protocol::{TenantId, push::PushConfig};
use herald_server::{HttpSender, WebhookConfig};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::{
    receiver::{Receiver, ReceiverAnswer},
    spellings::{REFUSED_IPV4, REFUSED_IPV6, spellings},
};

const ATTEMPTS: usize = 10_000;
/// Set in the process that runs inside the namespace.
const INSIDE: &str = "HERALD_TEST_NAMESPACE";
const NAME: &str = "webhook_guard::no_attempt_at_a_forbidden_address_makes_a_connection";
/// Gives the loopback interface every address.
const ENTER: &str = "ip link set lo up && ip route add local 0.0.0.0/0 dev lo && \
                     ip -6 route add local ::/0 dev lo && exec \"$0\" \"$@\"";
const PUBLIC: IpAddr = IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8));

/// Resolver whose answers are scripted by name. Each lookup gets the next answer, and after the last one the first.
#[derive(Default)]
struct ScriptedNames(HashMap<String, (Vec<Vec<IpAddr>>, AtomicUsize)>);

impl ScriptedNames {
    fn add(&mut self, name: &str, answers: Vec<Vec<IpAddr>>) {
        self.0.insert(name.to_owned(), (answers, AtomicUsize::new(0)));
    }
}

impl Resolve for ScriptedNames {
    fn resolve(&self, name: Name) -> Resolving {
        let answer = self.0.get(name.as_str()).map(|(answers, asked)| {
            let turn = asked.fetch_add(1, Ordering::Relaxed) % answers.len();
            answers[turn].clone()
        });
        Box::pin(async move {
            let found = answer.ok_or("no such name")?;
            let found = found.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(found) as Addrs)
        })
    }
}

fn ok(_: &str) -> ReceiverAnswer {
    ReceiverAnswer::status(200, "")
}

/// Redirects to the URL in the path, which begins with the status.
fn redirect(path: &str) -> ReceiverAnswer {
    let (status, target) = path[1..].split_once('/').unwrap();
    ReceiverAnswer::status(status.parse().unwrap(), &format!("Location: {target}\r\n"))
}

fn delivery(url: String, secrets: SealedSecrets) -> Delivery {
    Delivery {
        id: "delivery".to_owned(),
        tenant: TenantId::from("tenant"),
        url,
        secrets,
        body: Bytes::from_static(b"{}"),
        content_type: "application/json",
        trace: None,
    }
}

// proves: PUSH-017
#[tokio::test]
async fn no_attempt_at_a_forbidden_address_makes_a_connection() {
    if env::var_os(INSIDE).is_some() {
        println!("{}", attack(true).await);
        return;
    }
    let namespace = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", ENTER]);
        command
    };
    if !namespace().arg("true").status().is_ok_and(|status| status.success()) {
        println!(
            "no network namespace can be made (it needs unshare, ip and user namespaces): only loopback \
             addresses are tried"
        );
        println!("{}", attack(false).await);
        return;
    }
    // The proxy of the environment is a forbidden address too.
    let proxy = "http://10.0.0.1:8080";
    let inside = namespace()
        .arg(env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(INSIDE, "1")
        .envs(["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"].map(|name| (name, proxy)))
        .output()
        .unwrap();
    let (out, errors) = (inside.stdout, inside.stderr);
    let text = format!("{}{}", String::from_utf8_lossy(&out), String::from_utf8_lossy(&errors));
    assert!(inside.status.success() && text.contains("1 passed"), "{text}");
    print!("{text}");
}

/// Makes the attempts, and counts them in words. With `everywhere`, the listeners have every address.
async fn attack(everywhere: bool) -> String {
    let mut listeners = Vec::new();
    let (ipv4, ipv6): (IpAddr, IpAddr) = if everywhere {
        (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into())
    } else {
        (Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into())
    };
    let ports: &[u16] = if everywhere { &[80, 443, 8080, 6379, 0] } else { &[0] };
    for port in ports {
        let listener = Receiver::on(ipv4, *port, ok).await.unwrap();
        // Without IPv6 on this machine, nothing can arrive there either.
        let beside = Receiver::on(ipv6, listener.address.port(), ok).await;
        listeners.push(listener);
        listeners.extend(beside);
    }
    let port = listeners.iter().map(|listener| listener.address.port()).max().unwrap();
    let trusted = Receiver::start(redirect).await;

    let is_loopback = |address: &IpAddr| address.to_canonical().is_loopback();
    let ipv4 = REFUSED_IPV4
        .into_iter()
        .filter(|octets| everywhere || octets[0] == 127 || *octets == [0; 4]);
    let ipv6 = REFUSED_IPV6.into_iter().map(|text| text.parse::<Ipv6Addr>().unwrap());
    let ipv6 = ipv6.filter(|address| everywhere || is_loopback(&IpAddr::from(*address)));
    let addresses: Vec<IpAddr> =
        ipv4.clone().map(IpAddr::from).chain(ipv6.map(IpAddr::from)).collect();

    let mut urls: Vec<String> = Vec::new();
    for octets in ipv4 {
        let hosts = spellings(octets);
        urls.extend(hosts.iter().map(|host| format!("http://{host}:{port}/")));
        urls.extend(hosts.iter().map(|host| format!("https://{host}/")).filter(|_| everywhere));
    }
    let mut names = ScriptedNames::default();
    for (index, address) in addresses.iter().enumerate() {
        urls.push(format!("http://{}/", SocketAddr::new(*address, port)));
        // The registration sees a public address, every delivery a forbidden one.
        let rebound: Vec<_> =
            [vec![PUBLIC]].into_iter().chain((0..ATTEMPTS).map(|_| vec![*address])).collect();
        names.add(&format!("rebound-{index}.example.com"), rebound);
        names.add(&format!("mixed-{index}.example.com"), vec![vec![PUBLIC, *address]]);
        names.add(&format!("first-{index}.example.com"), vec![vec![*address, PUBLIC]]);
        names.add(&format!("private-{index}.example.com"), vec![vec![*address]]);
        for kind in ["mixed", "first", "private"] {
            urls.push(format!("http://{kind}-{index}.example.com:{port}/"));
        }
    }
    let names_of_loopback =
        ["localhost", "a.localhost", "internal-db", "metadata.google.internal", "printer.local"];
    for name in names_of_loopback {
        names.add(name, vec![vec![Ipv4Addr::LOCALHOST.into()]]);
        urls.push(format!("http://{name}:{port}/"));
    }
    names.add("public.example.com", vec![vec![PUBLIC]]);

    let sender = HttpSender::with_resolver(
        &WebhookConfig {
            allowed_hosts: vec![trusted.address.to_string()],
            timeout: Duration::from_secs(5),
            ..WebhookConfig::default()
        },
        Arc::new(names),
    )
    .unwrap();

    let mut attempts = 0;
    for url in &urls {
        let config = PushConfig { url: url.clone(), ..PushConfig::default() };
        assert!(sender.admit(&config).await.is_err(), "{url}");
        attempts += 1;
    }
    let mut rebound = Vec::new();
    for index in 0..addresses.len() {
        let url = format!("http://rebound-{index}.example.com:{port}/");
        let config = PushConfig { url: url.clone(), ..PushConfig::default() };
        rebound.push((url, sender.admit(&config).await.expect("the first address is public")));
    }
    let redirects = [301, 302, 303, 307, 308].map(|status| {
        let target = format!("http://127.0.0.1:{port}/");
        (trusted.url(&format!("/{status}/{target}")), SealedSecrets::default())
    });
    let direct = urls.iter().map(|url| (url.clone(), SealedSecrets::default()));
    let all: Vec<_> = direct.chain(rebound).chain(redirects).collect();
    for (url, secrets) in all.iter().cycle().take(ATTEMPTS - attempts.min(ATTEMPTS)) {
        let result = sender.send(delivery(url.clone(), secrets.clone())).await;
        assert_eq!(result.outcome, AttemptOutcome::Failed, "{url}: {}", result.detail);
        attempts += 1;
    }
    let reached: usize = listeners.iter().map(Receiver::connections).sum();
    assert_eq!(reached, 0);
    assert!(trusted.connections() > 0, "redirects were received");

    // The listeners count what arrives, so the zero above means something.
    if everywhere {
        for url in
            [format!("http://public.example.com:{port}/"), format!("http://{PUBLIC}:{port}/")]
        {
            let result = sender.send(delivery(url.clone(), SealedSecrets::default())).await;
            assert_eq!(result.outcome, AttemptOutcome::Delivered, "{url}: {}", result.detail);
        }
        assert_eq!(listeners.iter().map(Receiver::connections).sum::<usize>(), 2);
    }
    format!("{attempts} attempts with {} URLs: {reached} connections", all.len())
}
