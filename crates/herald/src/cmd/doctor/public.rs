//! Whether callers reach the server at the address that its card gives them, and get streams as
//! they happen.

use std::time::{Duration, Instant};

use herald_engine::Clock;
use herald_protocol::{AgentCard, Timestamp, version::VERSION_HEADER};
use herald_server::{Token, tls::valid_until};
use http::header;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::{Client, Response, StatusCode, redirect::Policy, tls::TlsInfo};

use crate::client::fault::sentence;

use super::{Finding, Verdict, clock::Date, config::Subject, tls::lasting};

const CARD: &str = "card";
const STREAM: &str = "stream";
const CERTIFICATE: &str = "certificate";

/// More than any card has.
const LARGEST: usize = 1 << 20;

/// What an address answered.
pub(super) struct Answer {
    pub(super) card: Result<AgentCard, Fault>,
    date: Option<Date>,
    /// When the certificate ends that was shown.
    until: Option<Timestamp>,
}

/// Whose certificates are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Those that clients believe.
    Signed,
    /// Whatever is shown on this machine, by a server whose certificate is for another name.
    Anybody,
}

/// Why there is no card.
#[derive(Debug)]
pub(super) struct Fault {
    seen: String,
    /// Whether it was the certificate.
    tls: bool,
}

/// Looks at the address that cards give, if a server is there to be asked. Returns what that says
/// the time is.
pub(super) async fn check(
    subject: &Subject,
    serving: bool,
    patience: Duration,
) -> (Vec<Finding>, Option<Date>) {
    let settings = &subject.settings;
    let (base, trust) = match &settings.server.public_url {
        Some(url) => (url.clone(), Trust::Signed),
        None if serving => (subject.local_url(), Trust::Anybody),
        // There is no address but the one that nobody listens on.
        None => return (Vec::new(), None),
    };
    let (answer, date, until) = match fetch(&base, trust, patience).await {
        Ok(answer) => (answer.card, answer.date, answer.until),
        Err(fault) => (Err(fault), None, None),
    };
    let mut findings = Vec::new();
    let card = match answer {
        Ok(card) => card,
        Err(fault) if fault.tls => {
            let remedy = "have the certificate signed by an authority that clients trust, for the \
                          name in public_url, and send the whole chain";
            findings.push(Finding::fail(CERTIFICATE, format!("{base}: {}", fault.seen), remedy));
            return (findings, date);
        }
        Err(fault) => {
            let seen = format!("{base} does not show a card: {}", fault.seen);
            findings.push(match serving || settings.address.port() == 0 {
                true => {
                    let remedy = "lead that address to the server, paths below /.well-known \
                                  included, or correct public_url";
                    Finding::fail(CARD, seen, remedy)
                }
                false => Finding::warn(CARD, seen, "no server runs here: start it and look again"),
            });
            return (findings, date);
        }
    };
    if trust == Trust::Signed && base.starts_with("https://") {
        let seen = format!("that of {base} is trusted here");
        let after = "whoever shows it there has to take it up";
        findings.push(lasting(CERTIFICATE, seen, until, after));
    }
    let compared = compare(&base, &card, &subject.card(&base));
    // A stranger must not get a token.
    let ours = compared.verdict == Verdict::Ok;
    findings.push(compared);
    if ours || settings.server.tokens.is_empty() {
        findings.push(probe(&base, trust, &settings.server.tokens, patience).await);
    }
    (findings, date)
}

/// Asks an address for its card.
pub(super) async fn fetch(base: &str, trust: Trust, patience: Duration) -> Result<Answer, Fault> {
    let url = format!("{base}/.well-known/agent-card.json");
    let request =
        client(trust, patience)?.get(&url).header(VERSION_HEADER, "1.0").timeout(patience);
    let response = request.send().await?;
    let heard = Clock::system().now();
    let said = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    let said = said.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
    let said = said.map(|date| Timestamp::from_millis(date.as_millisecond()));
    let date = said.map(|said| Date { said, heard });
    let shown = response.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
    let until = shown.and_then(valid_until);
    Ok(Answer { card: read(response).await, date, until })
}

async fn read(mut response: Response) -> Result<AgentCard, Fault> {
    let status = response.status();
    if status.is_redirection() {
        let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
        let to = to.unwrap_or("nowhere");
        return Err(Fault::new(format!(
            "it answers {status}, to {to}, which clients do not follow"
        )));
    }
    if status != StatusCode::OK {
        return Err(Fault::new(format!("it answers {status}")));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > LARGEST {
            return Err(Fault::new("it answers with more than a card can be".to_owned()));
        }
    }
    serde_json::from_slice(&body)
        .map_err(|fault| Fault::new(format!("it answers no card: {fault}")))
}

/// Compares what callers see with what they should see.
fn compare(base: &str, theirs: &AgentCard, ours: &AgentCard) -> Finding {
    if theirs == ours {
        return Finding::ok(CARD, format!("{base} shows the card of {:?}", ours.name));
    }
    let urls = |card: &AgentCard| {
        let urls = card.supported_interfaces.iter().map(|interface| interface.url.clone());
        urls.collect::<Vec<_>>()
    };
    let strange: Vec<_> =
        urls(theirs).into_iter().filter(|url| !urls(ours).contains(url)).collect();
    if !strange.is_empty() {
        let seen = format!("{base} shows a card that sends callers to {}", strange.join(", "));
        let remedy = "set public_url to the address that callers use, and keep proxies from \
                      rewriting cards";
        return Finding::fail(CARD, seen, remedy);
    }
    let seen = format!("{base} shows another card than these settings make: {:?}", theirs.name);
    let remedy = "restart the server if the settings were changed; else the address leads to \
                  another one, or something in between keeps an old card";
    Finding::warn(CARD, seen, remedy)
}

/// Opens a stream that does not end and waits for its beginning, which the server sends at once:
/// whoever gets to see it only later has somebody in between who collects before he passes on.
async fn probe(base: &str, trust: Trust, tokens: &[Token], patience: Duration) -> Finding {
    let token = tokens.iter().find(|token| token.scopes.read);
    let loopback = ["http://127.", "http://localhost", "http://[::1]"];
    let open = base.starts_with("http://") && !loopback.iter().any(|start| base.starts_with(start));
    if open && token.is_some() {
        let seen = format!("not tried: a token would go to {base} for all to read");
        return Finding::warn(STREAM, seen, "serve it over https");
    }
    if token.is_none() && !tokens.is_empty() {
        let seen = "not tried: no token has the scope read".to_owned();
        return Finding::warn(STREAM, seen, "give one of [auth] tokens the scope read");
    }
    let begun = Instant::now();
    let connect = client(trust, patience);
    let first = async { first_bytes(&connect?, base, token).await };
    match tokio::time::timeout(patience, first).await {
        Ok(Ok(())) => {
            let time = begun.elapsed().as_millis();
            Finding::ok(STREAM, format!("the first event came through {base} within {time} ms"))
        }
        Ok(Err(fault)) => {
            let seen = format!("{base}/events gives no stream: {}", fault.seen);
            Finding::fail(STREAM, seen, "let every path below the address through to the server")
        }
        Err(_) => {
            let waited = humantime::format_duration(patience);
            let seen = format!("nothing came through {base}/events for {waited}");
            let remedy = "a proxy collects streams before it passes them on: switch off buffering, \
                          compression and caching of text/event-stream there (nginx: proxy_buffering \
                          off; Apache: flushpackets=on)";
            Finding::fail(STREAM, seen, remedy)
        }
    }
}

async fn first_bytes(client: &Client, base: &str, token: Option<&Token>) -> Result<(), Fault> {
    let request = client.get(format!("{base}/events")).header(VERSION_HEADER, "1.0");
    let request = match token {
        Some(token) => request.bearer_auth(&token.secret),
        None => request,
    };
    let mut response = request.send().await?;
    let status = response.status();
    if status != StatusCode::OK {
        return Err(Fault::new(format!("it answers {status}")));
    }
    match response.chunk().await? {
        Some(_) => Ok(()),
        None => Err(Fault::new("it ends at once".to_owned())),
    }
}

/// As clients do it: without redirects and without proxies of the environment.
fn client(trust: Trust, patience: Duration) -> Result<Client, Fault> {
    let builder = Client::builder().redirect(Policy::none()).no_proxy().connect_timeout(patience);
    let builder = builder.tls_info(true);
    Ok(builder.tls_danger_accept_invalid_certs(trust == Trust::Anybody).build()?)
}

impl Fault {
    fn new(seen: String) -> Self {
        Self { seen, tls: false }
    }
}

impl From<reqwest::Error> for Fault {
    fn from(error: reqwest::Error) -> Self {
        let seen = sentence(&error.without_url());
        let seen = seen.strip_prefix("error sending request: ").unwrap_or(&seen).to_owned();
        let words = seen.to_ascii_lowercase();
        let tls = ["certificate", "tls", "handshake"].iter().any(|sign| words.contains(sign));
        Self { seen, tls }
    }
}
