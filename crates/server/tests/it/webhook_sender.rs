//! Deliveries of webhooks over real connections on loopback.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use herald_engine::webhooks::sender::{
    AttemptOutcome, AttemptResult, Delivery, SealedSecrets, WebhookSender,
};
use herald_protocol::{
    TenantId, TraceContext,
    push::{PushAuthentication, PushConfig},
};
use herald_server::{
    Config, HttpSender, ReceiverProbe, SecretsKey, SigningKey, WebhookConfig, webhook::LOOP_HEADER,
};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::time::timeout;

use crate::{
    client::Call,
    hub::Hub,
    receiver::{Receiver, ReceiverAnswer},
};

const TOKEN: &str = "canary-7c5e-webhook-token";
const CREDENTIALS: &str = "canary-7c5e-webhook-credentials";
const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A sender that may connect to everything on loopback.
fn sender() -> HttpSender {
    HttpSender::new(&config()).unwrap()
}

fn config() -> WebhookConfig {
    WebhookConfig {
        allowed_cidrs: vec!["127.0.0.0/8".to_owned()],
        timeout: Duration::from_secs(1),
        ..WebhookConfig::default()
    }
}

fn webhook(url: String) -> PushConfig {
    PushConfig { url, ..PushConfig::default() }
}

fn delivery(url: String, secrets: SealedSecrets) -> Delivery {
    Delivery {
        id: "delivery-1".to_owned(),
        tenant: TenantId::from("tenant"),
        url,
        secrets,
        body: Bytes::from_static(br#"{"statusUpdate":{}}"#),
        content_type: "application/a2a+json",
        trace: TraceContext::read(PARENT, Some("vendor=1")),
    }
}

/// Registers a webhook and makes one attempt.
async fn deliver(sender: &HttpSender, webhook: &PushConfig) -> AttemptResult {
    let secrets = sender.admit(webhook).await.unwrap();
    sender.send(delivery(webhook.url.clone(), secrets)).await
}

fn ok(_: &str) -> ReceiverAnswer {
    ReceiverAnswer::status(200, "")
}

// proves: PUSH-010, PUSH-014, PUSH-015
#[tokio::test]
async fn a_delivery_carries_both_token_headers_authorization_signatures_and_the_trace() {
    let receiver = Receiver::start(ok).await;
    let directory = tempfile::tempdir().unwrap();
    let key = SigningKey::read_or_create_ed25519(&directory.path().join("push.pem")).unwrap();
    let sender = HttpSender::new(&WebhookConfig {
        signing_secrets: vec![format!("whsec_{}", STANDARD.encode([7; 32]))],
        signing_keys: vec![Arc::new(key)],
        ..config()
    })
    .unwrap();
    let authentication = |scheme: &str| {
        let (scheme, credentials) = (scheme.to_owned(), Some(CREDENTIALS.to_owned()));
        Some(PushAuthentication { scheme, credentials })
    };
    let url = receiver.url("/hook?x=1");
    let token = Some(TOKEN.to_owned());
    for (webhook, expected) in [
        (webhook(url.clone()), None),
        (
            PushConfig { token: token.clone(), ..webhook(url.clone()) },
            Some(format!("Bearer {TOKEN}")),
        ),
        (
            PushConfig { authentication: authentication("Bearer"), ..webhook(url.clone()) },
            Some(format!("Bearer {CREDENTIALS}")),
        ),
        (
            PushConfig { authentication: authentication("Basic"), ..webhook(url.clone()) },
            Some(format!("Basic {CREDENTIALS}")),
        ),
        (
            PushConfig {
                token: token.clone(),
                authentication: authentication("Bearer"),
                ..webhook(url.clone())
            },
            Some(format!("Bearer {TOKEN}")),
        ),
        (
            PushConfig { token, authentication: authentication("Basic"), ..webhook(url) },
            Some(format!("Basic {CREDENTIALS}")),
        ),
    ] {
        let result = deliver(&sender, &webhook).await;
        assert_eq!((result.outcome, result.status), (AttemptOutcome::Delivered, Some(200)));
        let request = receiver.received().pop().unwrap();
        assert_eq!(request.path, "/hook?x=1");
        assert_eq!(request.body, br#"{"statusUpdate":{}}"#);
        assert_eq!(request.header("authorization"), expected.as_deref());
        for name in ["x-a2a-notification-token", "a2a-notification-token"] {
            assert_eq!(request.header(name), webhook.token.as_deref());
        }
        assert_eq!(request.header("content-type"), Some("application/a2a+json"));
        let agent = concat!("herald/", env!("CARGO_PKG_VERSION"));
        assert_eq!(request.header("user-agent"), Some(agent));
        assert_eq!(request.header("webhook-id"), Some("delivery-1"));
        assert!(
            request.header("webhook-timestamp").unwrap().parse::<u64>().unwrap() > 1_700_000_000
        );
        let signatures: Vec<_> = request.header("webhook-signature").unwrap().split(' ').collect();
        assert!(
            matches!(signatures[..], [hmac, ed25519] if hmac.starts_with("v1,") && ed25519.starts_with("v1a,"))
        );
        assert_eq!(request.header("traceparent"), Some(PARENT));
        assert_eq!(request.header("tracestate"), Some("vendor=1"));
        assert_eq!(request.header("cookie"), None);
        assert_eq!(request.header("referer"), None);
    }
    assert_eq!(receiver.connections(), 1, "the connection is used again");
}

fn script(path: &str) -> ReceiverAnswer {
    let length = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n";
    match path {
        "/silence" => ReceiverAnswer::Silence,
        "/dripping-head" => ReceiverAnswer::Drip("HTTP/1.1 200 OK\r\nX-Slow: ".to_owned()),
        "/dripping-body" => ReceiverAnswer::Drip(length.to_owned()),
        "/huge-body" => ReceiverAnswer::Flood(length.to_owned()),
        "/huge-head" => ReceiverAnswer::Flood("HTTP/1.1 200 OK\r\nX-Large: ".to_owned()),
        "/garbage" => ReceiverAnswer::Text("SSH-2.0-OpenSSH_9.6\r\n\r\n".to_owned()),
        "/seconds" => ReceiverAnswer::status(429, "Retry-After: 120\r\n"),
        "/days" => ReceiverAnswer::status(503, "Retry-After: 9999999\r\n"),
        "/date" => ReceiverAnswer::status(429, "Retry-After: Sun, 06 Nov 2095 08:49:37 GMT\r\n"),
        "/unreadable" => ReceiverAnswer::status(503, "Retry-After: soon\r\n"),
        "/ok-with-pause" => ReceiverAnswer::status(200, "Retry-After: 120\r\n"),
        status => {
            let status = status[1..].parse().unwrap();
            ReceiverAnswer::status(status, "Location: http://127.0.0.1:1/elsewhere\r\n")
        }
    }
}

// proves: PUSH-012
#[tokio::test]
async fn a_status_decides_and_a_slow_or_huge_response_does_no_harm() {
    let receiver = Receiver::start(script).await;
    let sender = sender();
    let day = Duration::from_secs(24 * 3600);
    let (delivered, gone, failed) =
        (AttemptOutcome::Delivered, AttemptOutcome::Gone, AttemptOutcome::Failed);
    let mut table: Vec<(String, AttemptOutcome, Option<u16>, Option<Duration>)> = vec![
        ("/silence".into(), failed, None, None),
        ("/dripping-head".into(), failed, None, None),
        ("/huge-head".into(), failed, None, None),
        ("/garbage".into(), failed, None, None),
        ("/dripping-body".into(), delivered, Some(200), None),
        ("/huge-body".into(), delivered, Some(200), None),
        ("/seconds".into(), failed, Some(429), Some(Duration::from_secs(120))),
        ("/days".into(), failed, Some(503), Some(day)),
        ("/date".into(), failed, Some(429), Some(day)),
        ("/unreadable".into(), failed, Some(503), None),
        ("/ok-with-pause".into(), delivered, Some(200), None),
    ];
    for status in [200, 201, 202, 204, 299] {
        table.push((format!("/{status}"), delivered, Some(status), None));
    }
    for status in [300, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 408, 500, 502, 503, 504] {
        table.push((format!("/{status}"), failed, Some(status), None));
    }
    table.push(("/410".into(), gone, Some(410), None));
    for (path, outcome, status, pause) in table {
        let webhook = webhook(receiver.url(&path));
        let attempt = deliver(&sender, &webhook);
        let result = timeout(Duration::from_secs(20), attempt).await.expect("an attempt ends");
        let found = (result.outcome, result.status, result.retry_after);
        assert_eq!(found, (outcome, status, pause), "{path}: {}", result.detail);
        assert_eq!(result.detail.is_empty(), outcome == delivered, "{path}");
    }
    let closed = Receiver::start(ok).await.address;
    let result = deliver(&sender, &webhook(format!("http://{closed}/"))).await;
    assert_eq!((result.outcome, result.status), (failed, None));
}

#[tokio::test]
async fn secrets_without_their_key_fail_the_attempt_and_say_so() {
    let receiver = Receiver::start(ok).await;
    let [old, new] = [(); 2].map(|()| SecretsKey::generate().unwrap());
    let keys = |keys: &[&SecretsKey]| WebhookConfig {
        secrets_keys: keys.iter().map(|key| (*key).clone()).collect(),
        ..config()
    };
    let sender = HttpSender::new(&keys(&[&old])).unwrap();
    let webhook = PushConfig { token: Some(TOKEN.to_owned()), ..webhook(receiver.url("/")) };
    let secrets = sender.admit(&webhook).await.unwrap();
    let attempt = || sender.send(delivery(webhook.url.clone(), secrets.clone()));
    sender.replace(&keys(&[&new, &old])).unwrap();
    assert_eq!(attempt().await.outcome, AttemptOutcome::Delivered);
    sender.replace(&keys(&[&new])).unwrap();
    let lost = attempt().await;
    assert_eq!(lost.outcome, AttemptOutcome::Failed);
    assert!(lost.detail.contains("secrets_key"), "{}", lost.detail);
    assert_eq!(receiver.received().len(), 1);
    let elsewhere =
        Delivery { url: receiver.url("/other"), ..delivery(webhook.url.clone(), secrets) };
    sender.replace(&keys(&[&old])).unwrap();
    assert_eq!(sender.send(elsewhere).await.outcome, AttemptOutcome::Failed);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    for (broken, word) in [
        (WebhookConfig { allowed_hosts: vec!["a b".into()], ..config() }, "allowed_hosts"),
        (WebhookConfig { allowed_cidrs: vec!["10/8".into()], ..config() }, "allowed_cidrs"),
        (WebhookConfig { timeout: Duration::from_secs(31), ..config() }, "timeout"),
        (WebhookConfig { timeout: Duration::ZERO, ..config() }, "timeout"),
        (WebhookConfig { signing_secrets: vec!["secret".into()], ..config() }, "signing_secrets"),
    ] {
        let error = HttpSender::new(&broken).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % below as u64).unwrap()
    }

    /// A text of header characters and of those that would begin another header.
    fn text(&mut self) -> String {
        const PIECES: [&str; 16] = [
            "a",
            "Bearer",
            "x=",
            "7",
            "~",
            "!",
            "Basic",
            "token",
            "\r\nX-Injected: 1",
            "\n",
            "\r",
            "\0",
            "\u{7f}",
            "ä",
            " ",
            "\t",
        ];
        // Half of the texts have only harmless pieces, so that many are accepted.
        let pieces = if self.next(2) == 0 { 8 } else { PIECES.len() };
        (0..self.next(6)).map(|_| PIECES[self.next(pieces)]).collect()
    }
}

#[tokio::test]
async fn fuzz_no_token_scheme_credentials_or_url_adds_a_header() {
    const TRIES: usize = 100_000;
    const EXPECTED: [&str; 12] = [
        "accept",
        "authorization",
        "content-length",
        "content-type",
        "herald-webhook",
        "host",
        "user-agent",
        "webhook-id",
        "webhook-timestamp",
        "traceparent",
        "tracestate",
        "x-a2a-notification-token",
    ];
    let receiver = Receiver::start(ok).await;
    let (sender, mut numbers) = (sender(), Numbers(0x9e37_79b9_7f4a_7c15));
    let (mut refused, mut sent) = (0, 0);
    for number in 0..TRIES {
        let path = numbers.text();
        let webhook = PushConfig {
            token: Some(numbers.text()),
            authentication: Some(PushAuthentication {
                scheme: numbers.text(),
                credentials: Some(numbers.text()),
            }),
            ..webhook(receiver.url(&format!("/{path}")))
        };
        let Ok(secrets) = sender.admit(&webhook).await else {
            refused += 1;
            continue;
        };
        let texts = [webhook.token.as_deref(), Some(webhook.url.as_str())];
        let clean = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        assert!(texts.iter().flatten().all(clean), "{webhook:?}");
        if number % 8 == 0 {
            let result = sender.send(delivery(webhook.url.clone(), secrets)).await;
            assert_eq!(result.outcome, AttemptOutcome::Delivered, "{}", result.detail);
            sent += 1;
        }
    }
    let requests = receiver.received();
    assert_eq!(requests.len(), sent);
    for request in requests {
        let mut names: Vec<_> = request.headers.iter().map(|(name, _)| name.as_str()).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "{request:?}");
        let known = |name: &&str| EXPECTED.contains(name) || *name == "a2a-notification-token";
        assert!(names.iter().all(known), "{request:?}");
    }
    println!(
        "{TRIES} webhooks: {refused} refused, {sent} of the others delivered, 0 headers injected"
    );
    assert!(refused > TRIES / 4 && sent > 100);
}

/// A port that is closed, one of another protocol, and one that is silent.
async fn failing() -> (Receiver, Receiver, Vec<String>) {
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let other = Receiver::start(|_| ReceiverAnswer::Text("220 ready\r\n".to_owned())).await;
    let silent = Receiver::start(|_| ReceiverAnswer::Silence).await;
    let urls = vec![format!("http://{closed}/"), other.url("/"), silent.url("/")];
    (other, silent, urls)
}

/// Resolver that finds this machine under every name.
struct OnLoopback;

impl Resolve for OnLoopback {
    fn resolve(&self, _: Name) -> Resolving {
        let found: Addrs = Box::new(std::iter::once(([127, 0, 0, 1], 0).into()));
        Box::pin(std::future::ready(Ok(found)))
    }
}

#[tokio::test]
async fn the_duration_of_a_failure_does_not_tell_open_ports_of_an_allowed_network_from_closed_ones()
{
    let (_other, _silent, urls) = failing().await;
    let whole_host = WebhookConfig {
        allowed_hosts: vec!["127.0.0.1".to_owned()],
        allowed_cidrs: Vec::new(),
        ..config()
    };
    for config in [config(), whole_host] {
        let sender = HttpSender::new(&config).unwrap();
        for url in &urls {
            let begun = std::time::Instant::now();
            let result = deliver(&sender, &webhook(url.clone())).await;
            assert_eq!((result.outcome, result.status), (AttemptOutcome::Failed, None), "{url}");
            assert!(begun.elapsed() >= config.timeout, "{url}: {:?}", begun.elapsed());
        }
    }
}

#[tokio::test]
async fn a_probe_says_what_a_delivery_would_meet() {
    let receiver = Receiver::start(|path| {
        ReceiverAnswer::status(if path == "/moved" { 302 } else { 405 }, "")
    })
    .await;
    let (_other, _silent, failing) = failing().await;
    let refused = |url: &'static str| async move {
        let strict = HttpSender::new(&WebhookConfig::default()).unwrap();
        let found = strict.probe(url).await;
        let ReceiverProbe::Refused { setting, .. } = found else { panic!("{url}: {found:?}") };
        setting
    };
    assert_eq!(refused("http://127.0.0.1:9100/").await, Some("allowed_hosts"));
    assert_eq!(refused("http://localhost/").await, Some("allowed_hosts"));
    assert_eq!(refused("https://example.com:22/").await, Some("allowed_ports"));
    assert_eq!(refused("ftp://example.com/").await, None);
    let named = |name: &str| format!("http://{name}:{}/", receiver.address.port());
    let strict =
        HttpSender::with_resolver(&WebhookConfig::default(), Arc::new(OnLoopback)).unwrap();
    let loopback = receiver.address.ip();
    let found = strict.probe(&named("hook.example.com")).await;
    assert_eq!(found, ReceiverProbe::ForbiddenAddress(loopback));
    let found = sender().probe("https://receiver.invalid/").await;
    assert!(matches!(found, ReceiverProbe::NoAddress(_)), "{found:?}");
    assert_eq!(receiver.connections(), 0);
    assert_eq!(sender().probe(&receiver.url("/moved")).await, ReceiverProbe::Answered(302));
    assert_eq!(sender().probe(&receiver.url("/")).await, ReceiverProbe::Answered(405));
    for url in failing {
        let found = sender().probe(&url).await;
        assert!(matches!(found, ReceiverProbe::NoResponse(_)), "{url}: {found:?}");
    }
}

#[tokio::test]
async fn a_server_refuses_a_delivery_so_that_webhooks_cannot_run_in_a_circle() {
    let hub = Hub::start().await;
    for path in ["/", "/a2a/jsonrpc", "/message:send", "/agents/script/message:send"] {
        let result = deliver(&sender(), &webhook(hub.url(path))).await;
        assert_eq!((result.outcome, result.status), (AttemptOutcome::Gone, Some(410)), "{path}");
    }
    let listed = hub.call(Call::get("/tasks").v1()).await.json();
    assert_eq!(listed["totalSize"], 0, "{listed}");
    let card = Call::get("/.well-known/agent-card.json").header(LOOP_HEADER.as_str(), "1");
    assert_eq!(hub.call(card).await.status(), 200);
}

#[tokio::test]
async fn the_keys_of_webhooks_are_published_beside_those_of_cards() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("push.pem");
    let key = Arc::new(SigningKey::read_or_create_ed25519(&path).unwrap());
    let again = SigningKey::read_or_create_ed25519(&path).unwrap();
    assert_eq!(again.id(), key.id());
    let keys = WebhookConfig { signing_keys: vec![Arc::clone(&key)], ..config() };
    let sender = Arc::new(HttpSender::new(&keys).unwrap());
    let card_key = SigningKey::create(directory.path(), "cards").unwrap();
    let card_key = Arc::new(SigningKey::read(&card_key).unwrap());
    let cards = Config { signing_keys: vec![card_key], ..Config::default() };
    let published = Arc::clone(&sender);
    let hub = Hub::built(|builder| builder.config(cards).webhooks(published)).await;
    let ids = async || {
        let set = hub.call(Call::get("/.well-known/jwks.json")).await.json();
        let keys = set["keys"].as_array().unwrap().iter();
        keys.map(|key| key["kid"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids().await, ["cards", key.id()]);
    sender.replace(&config()).unwrap();
    assert_eq!(ids().await, ["cards"]);
}
