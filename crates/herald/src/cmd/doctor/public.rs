//! Checks of the public address: certificate, card, and streams without buffering.

use std::time::{Duration, Instant};

use herald_client::ConnectFailure;
use herald_engine::{Clock, Scopes};
use herald_protocol::{AgentCard, Timestamp, json, version::VERSION_HEADER};
use herald_server::{Token, tls::valid_until};
use http::header;
use jiff::fmt::rfc2822::DateTimeParser;
use reqwest::{Client, Response, StatusCode, redirect::Policy, tls::TlsInfo};

use crate::client::error::sentence;

use super::{CheckVerdict, Finding, clock::ServerDate, config::Subject, tls::expiry};

const CARD: &str = "card";
const STREAM: &str = "stream";
const CERTIFICATE: &str = "certificate";

/// The most bytes of a card.
const LARGEST: usize = 1 << 20;

/// The response to a request for the card.
pub(super) struct CardProbe {
    pub(super) card: Result<AgentCard, ProbeError>,
    date: Option<ServerDate>,
    /// The expiry of the server's certificate.
    until: Option<Timestamp>,
}

/// The certificates that are accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CertificatePolicy {
    /// Those that clients trust.
    Trusted,
    /// Any, for this machine's own server, whose certificate is for another name.
    Any,
}

/// A failed request.
#[derive(Debug)]
pub(super) struct ProbeError {
    seen: String,
    /// True if TLS failed.
    tls: bool,
}

/// Checks the public address, or the running server's, if there is one. The second value is the time there.
pub(super) async fn check(
    subject: &Subject,
    serving: bool,
    limit: Duration,
) -> (Vec<Finding>, Option<ServerDate>) {
    let settings = &subject.settings;
    let (base, trust) = match &settings.server.public_url {
        Some(url) => (url.clone(), CertificatePolicy::Trusted),
        None if serving => (subject.local_url(), CertificatePolicy::Any),
        // Without a public URL and a running server there is no address to call.
        None => return (Vec::new(), None),
    };
    let (answer, date, until) = match fetch(&base, trust, limit).await {
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
            let seen = format!("there is no card at {base}: {}", fault.seen);
            findings.push(if serving || settings.address.port() == 0 {
                let remedy = "route that address to the server, with the paths below /.well-known, or \
                              correct public_url";
                Finding::fail(CARD, seen, remedy)
            } else {
                Finding::warn(CARD, seen, "no server is running: start it and check again")
            });
            return (findings, date);
        }
    };
    if trust == CertificatePolicy::Trusted && base.starts_with("https://") {
        let seen = format!("the certificate of {base} is trusted on this machine");
        let after = "then load it into the server or proxy at that address";
        findings.push(expiry(CERTIFICATE, seen, until, after));
    }
    let compared = compare(&base, &card, &subject.card(&base));
    // A token is sent to this server only.
    let ours = compared.verdict == CheckVerdict::Ok;
    findings.push(compared);
    if ours || settings.server.tokens.is_empty() {
        findings.push(probe(&base, trust, &settings.server.tokens, limit).await);
    }
    (findings, date)
}

/// Requests the card at an address.
pub(super) async fn fetch(
    base: &str,
    trust: CertificatePolicy,
    limit: Duration,
) -> Result<CardProbe, ProbeError> {
    let url = format!("{base}/.well-known/agent-card.json");
    let request = client(trust, limit)?.get(&url).header(VERSION_HEADER, "1.0").timeout(limit);
    let response = request.send().await?;
    let heard = Clock::system().now();
    let said = response.headers().get(header::DATE).and_then(|date| date.to_str().ok());
    let said = said.and_then(|date| DateTimeParser::new().parse_timestamp(date).ok());
    let said = said.map(|date| Timestamp::from_millis(date.as_millisecond()));
    let date = said.map(|said| ServerDate { said, heard });
    let shown = response.extensions().get::<TlsInfo>().and_then(TlsInfo::peer_certificate);
    let until = shown.and_then(valid_until);
    Ok(CardProbe { card: read(response).await, date, until })
}

async fn read(mut response: Response) -> Result<AgentCard, ProbeError> {
    let status = response.status();
    if status.is_redirection() {
        let to = response.headers().get(header::LOCATION).and_then(|to| to.to_str().ok());
        let to = to.unwrap_or("nowhere");
        return Err(ProbeError::new(format!(
            "the response is {status} to {to}, and clients do not follow redirects"
        )));
    }
    if status != StatusCode::OK {
        return Err(ProbeError::new(format!("the response is {status}")));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > LARGEST {
            return Err(ProbeError::new("the response is larger than 1 MiB".to_owned()));
        }
    }
    let card: AgentCard = serde_json::from_slice(&body).map_err(|fault| {
        ProbeError::new(format!("the response is not a card: it {}", json::reason(&fault)))
    })?;
    // A signature is different with every start of a server.
    Ok(AgentCard { signatures: Vec::new(), ..card })
}

/// Compares the card at the address with the card of these settings.
fn compare(base: &str, theirs: &AgentCard, ours: &AgentCard) -> Finding {
    if theirs == ours {
        return Finding::ok(CARD, format!("{base} has the card of {:?}", ours.name));
    }
    let urls = |card: &AgentCard| {
        let urls = card.supported_interfaces.iter().map(|interface| interface.url.clone());
        urls.collect::<Vec<_>>()
    };
    let foreign: Vec<_> =
        urls(theirs).into_iter().filter(|url| !urls(ours).contains(url)).collect();
    if !foreign.is_empty() {
        let seen = format!("the card at {base} has foreign addresses: {}", foreign.join(", "));
        let remedy = "set public_url to the address that callers use, and do not let proxies rewrite \
                      cards";
        return Finding::fail(CARD, seen, remedy);
    }
    let seen = format!("the card at {base} differs from that of these settings: {:?}", theirs.name);
    let remedy = "restart the server if the settings were changed; otherwise the address belongs to \
                  another server, or a proxy caches an old card";
    Finding::warn(CARD, seen, remedy)
}

/// Opens a stream that does not end and waits for its first event, which the server sends at once. If it does not
/// arrive, a proxy buffers streams.
async fn probe(base: &str, trust: CertificatePolicy, tokens: &[Token], limit: Duration) -> Finding {
    let token = tokens.iter().find(|token| token.scopes.contains(Scopes::READ));
    let loopback = ["http://127.", "http://localhost", "http://[::1]"];
    let open = base.starts_with("http://") && !loopback.iter().any(|start| base.starts_with(start));
    if open && token.is_some() {
        let seen = format!("not checked: the token would be sent to {base} without TLS");
        return Finding::warn(STREAM, seen, "use https for public_url");
    }
    if token.is_none() && !tokens.is_empty() {
        let seen = "not checked: no token has the scope read".to_owned();
        return Finding::warn(STREAM, seen, "give one of the [auth] tokens the scope read");
    }
    let begun = Instant::now();
    let connect = client(trust, limit);
    let first = async { first_bytes(&connect?, base, token).await };
    match tokio::time::timeout(limit, first).await {
        Ok(Ok(())) => {
            let time = begun.elapsed().as_millis();
            Finding::ok(STREAM, format!("the first event at {base} arrived within {time} ms"))
        }
        Ok(Err(fault)) => {
            let seen = format!("there is no stream at {base}/events: {}", fault.seen);
            Finding::fail(STREAM, seen, "route every path below the address to the server")
        }
        Err(_) => {
            let waited = humantime::format_duration(limit);
            let seen = format!("no event arrived from {base}/events within {waited}");
            let remedy = "a proxy buffers streams: switch off buffering, compression and caching of \
                          text/event-stream there (nginx: proxy_buffering off; Apache: flushpackets=on)";
            Finding::fail(STREAM, seen, remedy)
        }
    }
}

async fn first_bytes(client: &Client, base: &str, token: Option<&Token>) -> Result<(), ProbeError> {
    let request = client.get(format!("{base}/events")).header(VERSION_HEADER, "1.0");
    let request = match token {
        Some(token) => request.bearer_auth(&token.secret),
        None => request,
    };
    let mut response = request.send().await?;
    let status = response.status();
    if status != StatusCode::OK {
        return Err(ProbeError::new(format!("the response is {status}")));
    }
    match response.chunk().await? {
        Some(_) => Ok(()),
        None => Err(ProbeError::new("the stream ends at once".to_owned())),
    }
}

/// An HTTP client with the rules of `herald-client`: no redirects, and no proxies from the environment.
fn client(trust: CertificatePolicy, limit: Duration) -> Result<Client, ProbeError> {
    let builder = Client::builder().redirect(Policy::none()).no_proxy().connect_timeout(limit);
    let builder = builder.tls_info(true);
    Ok(builder.tls_danger_accept_invalid_certs(trust == CertificatePolicy::Any).build()?)
}

impl ProbeError {
    fn new(seen: String) -> Self {
        Self { seen, tls: false }
    }
}

impl From<reqwest::Error> for ProbeError {
    fn from(error: reqwest::Error) -> Self {
        let error = error.without_url();
        let tls = matches!(
            ConnectFailure::of(&error),
            Some(ConnectFailure::Certificate | ConnectFailure::Handshake | ConnectFailure::NotTls)
        );
        let seen = sentence(&error);
        let seen = seen.strip_prefix("error sending request: ").unwrap_or(&seen).to_owned();
        Self { seen, tls }
    }
}
