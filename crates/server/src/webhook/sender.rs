//! HTTP client that delivers events to webhooks.

use std::{
    fmt,
    sync::{Arc, OnceLock, RwLock},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use herald_engine::{
    Clock,
    webhooks::sender::{AttemptOutcome, AttemptResult, Delivery, SealedSecrets, WebhookSender},
};
use herald_protocol::{
    Error, ErrorKind, Timestamp,
    locks::{read, write},
    push::{PushAuthentication, PushConfig},
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use reqwest::{Client, RequestBuilder, Response, dns::Resolve, redirect, retry};
use tokio::time::{Instant, sleep_until, timeout};

use super::{
    WebhookConfig, WebhookSettingError,
    guard::{CheckedResolver, CheckedUrl, SystemResolver, UrlGuard},
    sealing::{SecretSealer, SecretsKey, WebhookSecrets},
    signature::DeliverySigner,
};
use crate::{causes::causes, signing::SigningKey};

/// The header that marks a delivery. A Herald server refuses a call with it, so that webhooks cannot make servers
/// call each other in a circle.
pub const LOOP_HEADER: HeaderName = HeaderName::from_static("herald-webhook");

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
/// The headers of the token: those that receivers of different SDKs read.
const TOKEN_HEADERS: [HeaderName; 2] = [
    HeaderName::from_static("x-a2a-notification-token"),
    HeaderName::from_static("a2a-notification-token"),
];
const BEARER: &str = "Bearer";

/// The longest token and the longest credentials, in bytes. A token is sent in three headers, and common receivers
/// accept 16 KiB of headers.
const MAX_SECRET: usize = 4096;
const MAX_SCHEME: usize = 64;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const SHORTEST_TIMEOUT: Duration = Duration::from_secs(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Bytes of a response that are read, and the time for them. They are dropped: a response that is read to its end
/// leaves a connection for the next delivery.
const MAX_RESPONSE: usize = 64 << 10;
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections to one host that are kept, and the time for it. It is short, because callers choose the hosts.
const IDLE_CONNECTIONS: usize = 2;
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause that a receiver can ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(24 * 3600);

/// HTTP client that delivers events to webhooks.
pub struct HttpSender {
    pub(super) resolver: Arc<dyn Resolve>,
    /// Seals secrets if the settings have no key.
    own_key: Arc<OnceLock<SecretsKey>>,
    state: RwLock<Arc<SenderState>>,
}

/// The settings in use, and the clients that follow them.
pub(super) struct SenderState {
    pub(super) guard: Arc<UrlGuard>,
    signer: DeliverySigner,
    resolver: Arc<dyn Resolve>,
    secrets_keys: Vec<SecretsKey>,
    own_key: Arc<OnceLock<SecretsKey>>,
    // Made with their first use: they read the certificates and the random numbers of the system, which takes longer
    // than the rest of a start.
    sealer: OnceLock<SecretSealer>,
    /// Connects to checked addresses only.
    checked: OnceLock<Client>,
    /// Connects to whatever an allowed host resolves to.
    allowed: OnceLock<Client>,
    timeout: Duration,
}

impl fmt::Debug for HttpSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSender").finish_non_exhaustive()
    }
}

impl HttpSender {
    /// A sender that resolves names as the operating system does.
    pub fn new(config: &WebhookConfig) -> Result<Self, WebhookSettingError> {
        Self::with_resolver(config, Arc::new(SystemResolver::default()))
    }

    /// A sender that resolves names by `resolver`. Every address that it returns is checked.
    pub fn with_resolver(
        config: &WebhookConfig,
        resolver: Arc<dyn Resolve>,
    ) -> Result<Self, WebhookSettingError> {
        let own_key = Arc::default();
        let state = SenderState::new(config, &resolver, &own_key)?;
        Ok(Self { resolver, own_key, state: RwLock::new(Arc::new(state)) })
    }

    /// Replaces the settings. Attempts that have begun end with the earlier ones.
    pub fn replace(&self, config: &WebhookConfig) -> Result<(), WebhookSettingError> {
        let state = SenderState::new(config, &self.resolver, &self.own_key)?;
        *write(&self.state) = Arc::new(state);
        Ok(())
    }

    /// The keys that sign deliveries, for the published key set.
    pub fn signing_keys(&self) -> Vec<Arc<SigningKey>> {
        self.state().signer.keys().to_vec()
    }

    /// Checks a URL as it is written. The reason continues a sentence that begins with the URL.
    pub(crate) fn check(&self, url: &str) -> Result<(), String> {
        self.state().guard.check(url).map(|_| ()).map_err(|refusal| refusal.to_string())
    }

    /// Fetches a document of at most `most` bytes; `None` if there is none. The error continues a sentence that
    /// begins with the URL.
    pub(crate) async fn fetch(&self, url: &str, most: usize) -> Result<Option<Vec<u8>>, String> {
        let state = self.state();
        let checked = state.guard.check(url).map_err(|refusal| refusal.to_string())?;
        let lookup = state.guard.check_lookup(&checked, &*self.resolver).await;
        lookup.map_err(|refusal| refusal.to_string())?;
        let request =
            state.client(&checked)?.get(checked.url).header(header::ACCEPT, "application/json");
        let fetched = timeout(state.timeout, async {
            let mut response =
                request.send().await.map_err(|error| causes(&error.without_url()))?;
            match response.status() {
                status if status.is_success() => {}
                StatusCode::NOT_FOUND | StatusCode::GONE | StatusCode::METHOD_NOT_ALLOWED => {
                    return Ok(None);
                }
                status if status.is_redirection() => {
                    return Err(format!("{status}; redirects are not followed"));
                }
                status => return Err(status.to_string()),
            }
            let mut document = Vec::new();
            let failed = |error: reqwest::Error| causes(&error.without_url());
            while let Some(chunk) = response.chunk().await.map_err(failed)? {
                if document.len() + chunk.len() > most {
                    return Err(format!("a document of more than {most} bytes"));
                }
                document.extend_from_slice(&chunk);
            }
            Ok(Some(document))
        });
        let fetched = fetched.await;
        let fetched = fetched
            .unwrap_or_else(|_| Err(format!("no response within {} s", state.timeout.as_secs())));
        fetched.map_err(|cause| format!("cannot be fetched: {cause}"))
    }

    /// Sends a request to a checked address, for a client of a remote agent. Its response may be a stream, so it has
    /// no time limit here.
    pub async fn request(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<http::Response<reqwest::Body>, Box<dyn std::error::Error + Send + Sync>> {
        let state = self.state();
        let checked = state.guard.check(&request.uri().to_string())?;
        let client = state.client(&checked)?;
        let (parts, body) = request.into_parts();
        let request = client.request(parts.method, checked.url).headers(parts.headers).body(body);
        let response = request.send().await.map_err(reqwest::Error::without_url)?;
        Ok(response.into())
    }

    pub(super) fn state(&self) -> Arc<SenderState> {
        Arc::clone(&read(&self.state))
    }
}

#[async_trait]
impl WebhookSender for HttpSender {
    async fn admit(&self, config: &PushConfig) -> Result<SealedSecrets, Error> {
        let state = self.state();
        let url = |refusal| Error::field("url", format!("{refusal}"));
        let checked = state.guard.check(&config.url).map_err(url)?;
        let secrets = secrets(config)?;
        state.guard.check_lookup(&checked, &*self.resolver).await.map_err(url)?;
        let sealed = state.sealer().and_then(|sealer| {
            sealer.seal(&secrets, &config.url).ok_or_else(|| "the cipher failed".to_owned())
        });
        sealed.map_err(|cause| {
            tracing::error!(cause, "cannot encrypt the token or the credentials of a webhook");
            Error::new(ErrorKind::Internal, "Internal error")
        })
    }

    async fn send(&self, delivery: Delivery) -> AttemptResult {
        self.state().attempt(delivery).await.unwrap_or_else(|detail| AttemptResult {
            outcome: AttemptOutcome::Failed,
            status: None,
            retry_after: None,
            detail,
        })
    }
}

impl SenderState {
    fn new(
        config: &WebhookConfig,
        resolver: &Arc<dyn Resolve>,
        own_key: &Arc<OnceLock<SecretsKey>>,
    ) -> Result<Self, WebhookSettingError> {
        if !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&config.timeout) {
            return Err(WebhookSettingError::Timeout);
        }
        let guard = Arc::new(UrlGuard::new(
            &config.allowed_hosts,
            &config.allowed_cidrs,
            config.allowed_ports.clone(),
            config.https_only,
        )?);
        Ok(Self {
            guard,
            signer: DeliverySigner::new(&config.signing_secrets, &config.signing_keys)?,
            resolver: Arc::clone(resolver),
            secrets_keys: config.secrets_keys.clone(),
            own_key: Arc::clone(own_key),
            sealer: OnceLock::new(),
            checked: OnceLock::new(),
            allowed: OnceLock::new(),
            timeout: config.timeout,
        })
    }

    /// Makes one attempt. The error is the cause of a failure without a response.
    async fn attempt(&self, delivery: Delivery) -> Result<AttemptResult, String> {
        let checked = self.guard.check(&delivery.url);
        let checked = checked.map_err(|refusal| format!("the URL {refusal}"))?;
        let secrets = self.sealer()?.open(&delivery.secrets, &delivery.url)?;
        let headers = self.headers(&delivery, &secrets)?;
        let request = self.client(&checked)?.post(checked.url).headers(headers).body(delivery.body);
        let end = Instant::now() + self.timeout;
        let response = match self.response(request).await {
            Ok(response) => response,
            Err(cause) => {
                if checked.hides_duration {
                    sleep_until(end).await;
                }
                return Err(cause);
            }
        };
        let result = judge(&response);
        // An error means that the receiver sends its response slowly, which does not change the result.
        let _ = timeout(RESPONSE_TIMEOUT, read_response(response)).await;
        Ok(result)
    }

    /// The client for a checked URL.
    pub(super) fn client(&self, checked: &CheckedUrl) -> Result<&Client, String> {
        if checked.is_allowed_host {
            return get_or_make(&self.allowed, || client(Arc::clone(&self.resolver)));
        }
        get_or_make(&self.checked, || {
            let (guard, resolver) = (Arc::clone(&self.guard), Arc::clone(&self.resolver));
            client(Arc::new(CheckedResolver { guard, resolver }))
        })
    }

    /// The cipher of stored secrets.
    fn sealer(&self) -> Result<&SecretSealer, String> {
        get_or_make(&self.sealer, || {
            if !self.secrets_keys.is_empty() {
                return Ok(SecretSealer::new(&self.secrets_keys));
            }
            let key = get_or_make(&self.own_key, || {
                SecretsKey::generate().map_err(|error| error.to_string())
            })?;
            Ok(SecretSealer::new(std::slice::from_ref(key)))
        })
    }

    /// Sends a request. The error is the cause of a failure without a response.
    pub(super) async fn response(&self, request: RequestBuilder) -> Result<Response, String> {
        match timeout(self.timeout, request.send()).await {
            Ok(Ok(response)) => Ok(response),
            // Without the URL, whose path or query may contain a secret.
            Ok(Err(error)) => Err(causes(&error.without_url())),
            Err(_) => Err(format!("no response within {} s", self.timeout.as_secs())),
        }
    }

    fn headers(&self, delivery: &Delivery, secrets: &WebhookSecrets) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, value: &str, is_secret: bool| {
            let mut header = HeaderValue::from_str(value)
                .map_err(|_| format!("the value of the header {name} is not allowed in HTTP"))?;
            header.set_sensitive(is_secret);
            headers.insert(name, header);
            Ok::<_, String>(())
        };
        let timestamp = Clock::system().now().as_millis().div_euclid(1000);
        add(header::CONTENT_TYPE, delivery.content_type, false)?;
        add(LOOP_HEADER, "1", false)?;
        add(WEBHOOK_ID, &delivery.id, false)?;
        add(WEBHOOK_TIMESTAMP, &timestamp.to_string(), false)?;
        if let Some(signature) = self.signer.sign(&delivery.id, timestamp, &delivery.body) {
            add(WEBHOOK_SIGNATURE, &signature, false)?;
        }
        if let Some(value) = authorization(secrets) {
            add(header::AUTHORIZATION, &value, true)?;
        }
        if let Some(token) = &secrets.token {
            for name in TOKEN_HEADERS {
                add(name, token, true)?;
            }
        }
        for (name, value) in delivery.trace.iter().flat_map(|trace| trace.headers()) {
            add(HeaderName::from_static(name), &value, false)?;
        }
        Ok(headers)
    }
}

/// A client that follows no redirect, uses no proxy of the environment and sends each request once.
fn client(resolver: Arc<dyn Resolve>) -> Result<Client, String> {
    let builder = Client::builder()
        .dns_resolver(resolver)
        .redirect(redirect::Policy::none())
        .retry(retry::never())
        .no_proxy()
        .referer(false)
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_max_idle_per_host(IDLE_CONNECTIONS)
        .pool_idle_timeout(IDLE_TIMEOUT)
        .user_agent(concat!("herald/", env!("CARGO_PKG_VERSION")));
    builder.build().map_err(|error| format!("there is no HTTP client: {}", causes(&error)))
}

/// The value, made first if there is none.
fn get_or_make<T>(
    cell: &OnceLock<T>,
    make: impl FnOnce() -> Result<T, String>,
) -> Result<&T, String> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let value = make()?;
    Ok(cell.get_or_init(|| value))
}

/// Checks the secrets of a new webhook. Empty ones count as absent.
fn secrets(config: &PushConfig) -> Result<WebhookSecrets, Error> {
    let secret = |field: &str, value: Option<&String>| {
        let Some(value) = value.filter(|value| !value.is_empty()) else { return Ok(None) };
        if value.len() > MAX_SECRET {
            return Err(Error::field(field, format!("is longer than {MAX_SECRET} bytes")));
        }
        let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if !plain || value.trim() != value {
            let text = "must consist of visible ASCII characters, with spaces only between them, because \
                        it is sent in a header";
            return Err(Error::field(field, text));
        }
        Ok(Some(value.clone()))
    };
    let none = PushAuthentication::default();
    let authentication = config.authentication.as_ref().unwrap_or(&none);
    let scheme = Some(&authentication.scheme).filter(|scheme| !scheme.is_empty());
    if let Some(scheme) = scheme
        && !(scheme.len() <= MAX_SCHEME && scheme.bytes().all(is_token_byte))
    {
        let text = "must be the name of an HTTP authentication scheme, such as Bearer";
        return Err(Error::field("authentication.scheme", text));
    }
    let credentials = secret("authentication.credentials", authentication.credentials.as_ref())?;
    let token = secret("token", config.token.as_ref())?;
    // A scheme without credentials is nothing to keep.
    let scheme = scheme.filter(|_| credentials.is_some()).cloned();
    Ok(WebhookSecrets { token, scheme, credentials })
}

/// True for the characters of a token of HTTP (RFC 9110, 5.6.2).
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// The value of `Authorization`. The token of the webhook wins over bearer credentials; another scheme keeps its
/// credentials, beside the token in its own headers.
fn authorization(secrets: &WebhookSecrets) -> Option<String> {
    let scheme = secrets.scheme.as_deref().filter(|scheme| !scheme.eq_ignore_ascii_case(BEARER));
    match (scheme, &secrets.credentials, &secrets.token) {
        (Some(scheme), Some(credentials), _) => Some(format!("{scheme} {credentials}")),
        (_, _, Some(token)) => Some(format!("{BEARER} {token}")),
        (None, Some(credentials), None) => Some(format!("{BEARER} {credentials}")),
        (_, None, None) => None,
    }
}

/// The result of an attempt, by the status of its response.
fn judge(response: &Response) -> AttemptResult {
    let status = response.status();
    let outcome = if status.is_success() {
        AttemptOutcome::Delivered
    } else if status == StatusCode::GONE {
        AttemptOutcome::Gone
    } else {
        AttemptOutcome::Failed
    };
    let detail = if status.is_success() {
        String::new()
    } else if status.is_redirection() {
        format!("the receiver answered {status}; redirects are not followed")
    } else {
        format!("the receiver answered {status}")
    };
    let failed = outcome == AttemptOutcome::Failed;
    let retry_after = response.headers().get(header::RETRY_AFTER).filter(|_| failed);
    let retry_after = retry_after.and_then(|value| pause(value.to_str().ok()?));
    AttemptResult { outcome, status: Some(status.as_u16()), retry_after, detail }
}

/// Reads a response up to a limit, so that its connection can be used again.
async fn read_response(mut response: Response) {
    let mut size = 0;
    while let Ok(Some(chunk)) = response.chunk().await {
        size += chunk.len();
        if size > MAX_RESPONSE {
            return;
        }
    }
}

/// The value of `Retry-After`: seconds, or a date.
fn pause(value: &str) -> Option<Duration> {
    let value = value.trim();
    let seconds = match value.bytes().all(|byte| byte.is_ascii_digit()) && !value.is_empty() {
        // A number that does not fit is longer than any limit.
        true => value.parse().unwrap_or(u64::MAX),
        false => {
            let left = http_date(value)?.as_millis() - Clock::system().now().as_millis();
            u64::try_from(left.max(0)).unwrap_or_default().div_ceil(1000)
        }
    };
    Some(Duration::from_secs(seconds).min(LONGEST_PAUSE))
}

/// Reads a date in the format of HTTP, such as `Sun, 15 Nov 2026 20:22:00 GMT`. The two formats that were obsolete
/// in 1999 are not read.
fn http_date(text: &str) -> Option<Timestamp> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, date) = text.split_once(", ")?;
    let mut pieces = date.split(' ');
    let (day, month, year) = (pieces.next()?, pieces.next()?, pieces.next()?);
    let (time, zone) = (pieces.next()?, pieces.next()?);
    let month = MONTHS.iter().position(|name| *name == month)? + 1;
    if zone != "GMT" || pieces.next().is_some() {
        return None;
    }
    format!("{year}-{month:02}-{day}T{time}Z").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(token: Option<&str>, authentication: Option<(&str, Option<&str>)>) -> PushConfig {
        PushConfig {
            url: "https://receiver.example.com/".to_owned(),
            token: token.map(str::to_owned),
            authentication: authentication.map(|(scheme, credentials)| PushAuthentication {
                scheme: scheme.to_owned(),
                credentials: credentials.map(str::to_owned),
            }),
            ..PushConfig::default()
        }
    }

    #[test]
    fn the_token_wins_over_bearer_credentials_and_not_over_other_schemes() {
        for (token, authentication, expected) in [
            (None, None, None),
            (Some("t"), None, Some("Bearer t")),
            (Some(""), None, None),
            (None, Some(("Bearer", Some("c"))), Some("Bearer c")),
            (None, Some(("bearer", Some("c"))), Some("Bearer c")),
            (None, Some(("", Some("c"))), Some("Bearer c")),
            (None, Some(("Basic", Some("dTpw"))), Some("Basic dTpw")),
            (None, Some(("Bearer", None)), None),
            (None, Some(("Bearer", Some(""))), None),
            (Some("t"), Some(("Bearer", Some("c"))), Some("Bearer t")),
            (Some("t"), Some(("BEARER", Some("c"))), Some("Bearer t")),
            (Some("t"), Some(("", Some("c"))), Some("Bearer t")),
            (Some("t"), Some(("Basic", Some("dTpw"))), Some("Basic dTpw")),
            (Some("t"), Some(("Basic", None)), Some("Bearer t")),
            (Some(""), Some(("Bearer", Some("c"))), Some("Bearer c")),
        ] {
            let secrets = secrets(&config(token, authentication)).unwrap();
            let value = authorization(&secrets);
            assert_eq!(value.as_deref(), expected, "{token:?} {authentication:?}");
        }
    }

    #[test]
    fn secrets_that_cannot_stand_in_a_header_are_refused() {
        let long = "x".repeat(MAX_SECRET + 1);
        for text in ["a\r\nX: 1", "a\nb", "a\0b", "a\tb", "\u{7f}", "ä", " a", "a ", &long] {
            let token = secrets(&config(Some(text), None)).unwrap_err();
            assert!(token.message.starts_with("token: "), "{token}");
            let credentials = secrets(&config(None, Some(("Bearer", Some(text))))).unwrap_err();
            assert!(credentials.message.starts_with("authentication.credentials: "));
            let scheme = secrets(&config(None, Some((text, Some("c"))))).unwrap_err();
            assert!(scheme.message.starts_with("authentication.scheme: "), "{scheme}");
        }
        for scheme in ["Bearer x", "Bea:rer", "Bearer,"] {
            assert!(secrets(&config(None, Some((scheme, Some("c"))))).is_err(), "{scheme}");
        }
    }

    #[test]
    fn a_pause_is_read_as_seconds_and_as_a_date_and_is_at_most_a_day() {
        let now = Clock::system().now().as_millis();
        let in_an_hour = crate::card::http_date(Timestamp::from_millis(now + 3_600_000));
        let found = pause(in_an_hour.to_str().unwrap()).unwrap().as_secs();
        assert!((3590..=3600).contains(&found), "{found}");
        for (text, seconds) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("86401", Some(86400)),
            ("99999999999999999999999999", Some(86400)),
            ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
            ("Sun, 06 Nov 9994 08:49:37 GMT", Some(86400)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:49:37 CET", None),
            ("Sun, 31 Feb 1994 08:49:37 GMT", None),
        ] {
            assert_eq!(pause(text).map(|pause| pause.as_secs()), seconds, "{text}");
        }
    }
}
