//! Client builder: all settings of a client, with their defaults.

use std::{ffi::OsString, fmt, sync::Arc, time::Duration};

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use bytes::Bytes;
use herald_protocol::{
    AgentCard, Operation, TenantId, TraceContext, Version, card::signature::Verdict,
};
use http::{HeaderMap, Response};
use http_body_util::Full;
use reqwest::Url;
use tokio::time::timeout;
use tower::Service;

use crate::{
    call::Interceptor,
    client::{Client, Discovered},
    credential::Credential,
    discover::{FoundCard, Source, unnamed},
    error::{BoxError, Error},
    interface::Binding,
    oauth::Tokens,
    signature::CardKeys,
    tls::Tls,
    transport::{
        Program,
        http::{Exchange, Http, in_process, network},
    },
    wire_tap::{WireTap, tapped},
};

/// Collects what a client is made of.
#[derive(Clone, Default)]
#[must_use]
pub struct ClientBuilder {
    settings: Settings,
    exchange: Option<Exchange>,
    wire_tap: Option<Arc<dyn WireTap>>,
}

/// How much a client takes from a server, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// A card.
    pub card: usize,
    /// An answer.
    pub response: usize,
    /// One event of a stream.
    pub event: usize,
}

/// How long a client waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For an answer, repeats included, and for a stream to begin.
    pub call: Duration,
    /// For the answer to a send, which comes when the task is done.
    pub send: Duration,
    /// For the next sign of life on a stream, keep-alive comments included. The stream is then taken
    /// up again.
    pub idle: Duration,
    /// First pause between two polls of a task that cannot be followed; further pauses grow to five times
    /// this.
    pub poll: Duration,
}

/// How failures that may pass are met.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// How often a call is repeated, and a stream taken up again, before it counts as failed.
    pub repeats: usize,
    /// The first pause; each is about twice the one before, and a little random.
    pub first: Duration,
    /// The longest pause, also where a server asks for a longer one.
    pub longest: Duration,
    /// Whether sends are repeated although the agent may have got them. Safe where the agent knows a
    /// message by its id, which stays the same: Herald does, most servers do not.
    pub sends: bool,
}

type Trace = Arc<dyn Fn() -> Option<TraceContext> + Send + Sync>;

/// All that is set.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
    pub(crate) retry: Retry,
    pub(crate) preferred: Vec<Binding>,
    pub(crate) version: Option<Version>,
    pub(crate) credentials: Vec<Credential>,
    pub(crate) trusted: Vec<String>,
    /// Whether calls hold secrets even without credentials.
    pub(crate) confined: bool,
    pub(crate) tls: Tls,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) card_keys: CardKeys,
    pub(crate) require_signature: bool,
    pub(crate) extensions: Vec<String>,
    pub(crate) tenant: Option<TenantId>,
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) trace: Option<Trace>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { card: 1 << 20, response: 64 << 20, event: 16 << 20 }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            call: Duration::from_secs(60),
            send: Duration::from_secs(600),
            idle: Duration::from_secs(60),
            poll: Duration::from_secs(1),
        }
    }
}

impl Timeouts {
    /// For the answer to an operation, or for its stream to begin.
    pub(crate) fn of(&self, operation: Operation) -> Duration {
        if operation == Operation::SendMessage { self.send } else { self.call }
    }

    /// The pauses between polls, without end.
    pub(crate) fn poll_pauses(&self) -> impl Iterator<Item = Duration> + Send + use<> {
        let (first, longest) = (self.poll, self.poll * 5);
        std::iter::successors(Some(first), move |pause| Some((*pause * 3 / 2).min(longest)))
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            repeats: 4,
            first: Duration::from_millis(200),
            longest: Duration::from_secs(10),
            sends: false,
        }
    }
}

impl Retry {
    /// The pauses between the repeats.
    pub(crate) fn pauses(&self) -> ExponentialBackoff {
        ExponentialBuilder::new()
            .with_min_delay(self.first)
            .with_max_delay(self.longest)
            .with_max_times(self.repeats)
            .with_jitter()
            .build()
    }
}

impl ClientBuilder {
    /// Proves who is calling. The card's security schemes say where it goes; several credentials may
    /// be given.
    ///
    /// Credentials go to the origin of the URL that is connected to and to no other, unless
    /// [`trust_origin`](Self::trust_origin) names it. A card is fetched without them, and with a token
    /// or a password only where the server answers 401 or 403.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.settings.credentials.push(credential);
        self
    }

    /// Sends credentials to this origin too, such as `https://api.example.com`: a card may name
    /// interfaces at another origin than its own.
    pub fn trust_origin(mut self, origin: &str) -> Self {
        let serialized = Url::parse(origin).map(|url| url.origin().ascii_serialization());
        self.settings.trusted.push(serialized.unwrap_or_else(|_| origin.to_owned()));
        self
    }

    /// Treats all calls as those with credentials are: they go to the origin that was named and to
    /// trusted ones, whatever the card says. For interceptors that add secrets of their own.
    pub fn confine(mut self) -> Self {
        self.settings.confined = true;
        self
    }

    /// Believes servers that this authority vouches for (one certificate or several, in PEM), beside
    /// those the system trusts.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.roots.push(pem.into());
        self
    }

    /// Believes any server, whoever it is. What is sent can be read and changed on its way,
    /// credentials included: for development only.
    pub fn danger_accept_any_certificate(mut self) -> Self {
        tracing::warn!("certificates are not checked: anybody can pretend to be the agent");
        self.settings.tls.anyone = true;
        self
    }

    /// Checks the signatures of cards with these keys; [`Client::verdict`] says what they are worth.
    pub fn card_keys(mut self, keys: CardKeys) -> Self {
        self.settings.card_keys = keys;
        self
    }

    /// Refuses a card that none of the [`card_keys`](Self::card_keys) has signed.
    pub fn require_signature(mut self) -> Self {
        self.settings.require_signature = true;
        self
    }

    /// Takes interfaces of these bindings before all others, the first one first. Without it the
    /// card's order counts.
    pub fn prefer(mut self, bindings: impl IntoIterator<Item = Binding>) -> Self {
        self.settings.preferred = bindings.into_iter().collect();
        self
    }

    /// Speaks this version and no other, so that nobody can talk the client into an older one.
    pub fn version(mut self, version: Version) -> Self {
        self.settings.version = Some(version);
        self
    }

    /// Names a protocol extension in every call.
    pub fn extension(mut self, uri: impl Into<String>) -> Self {
        self.settings.extensions.push(uri.into());
        self
    }

    /// The namespace of every call that names none, where the chosen interface has none of its own.
    pub fn tenant(mut self, tenant: impl Into<TenantId>) -> Self {
        self.settings.tenant = Some(tenant.into());
        self
    }

    /// Lets `interceptor` see every call, after those that were added before it.
    pub fn intercept(mut self, interceptor: impl Interceptor) -> Self {
        self.settings.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Asks `current` for the trace that each call belongs to.
    pub fn trace_context(
        mut self,
        current: impl Fn() -> Option<TraceContext> + Send + Sync + 'static,
    ) -> Self {
        self.settings.trace = Some(Arc::new(current));
        self
    }

    /// Passes every request and response to `tap`, credentials included.
    pub fn wire_tap(mut self, tap: impl WireTap) -> Self {
        self.wire_tap = Some(Arc::new(tap));
        self
    }

    /// How much is taken from a server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// How long is waited.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.settings.timeouts = timeouts;
        self
    }

    /// How failures that may pass are met.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.settings.retry = retry;
        self
    }

    /// Calls `service` instead of the network. Herald's `Server` is such a service; a client of one's
    /// own with other roots or proxies can be made into one.
    pub fn service<S, B>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Full<Bytes>>, Response = Response<B>>,
        S: Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        self.exchange = Some(in_process(service));
        self
    }

    /// Finds the agent at `url`: its base URL, the URL of its card (which ends in `.json`), a `file://`
    /// URL of a card, or `stdio:` and a command, as [`command`](Self::command) takes it in words.
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        self.discover(Source::parse(url)?).await?.client()
    }

    /// Fetches a card and leaves the choice of an interface for later, so that also a card can be
    /// looked at that names none this client can call.
    pub async fn discover(self, source: Source) -> Result<Discovered, Error> {
        let (settings, http) = self.parts()?;
        Discovered::find(settings, http, source).await
    }

    /// Fetches a document that leads to cards, such as a catalog, as a card would be fetched but
    /// without credentials.
    pub async fn fetch(self, source: &Source) -> Result<Bytes, Error> {
        let (settings, http) = self.parts()?;
        let headers = HeaderMap::new();
        let load = source.load(&http, &headers, None);
        let patience = settings.timeouts.call;
        let loaded = timeout(patience, load).await;
        let loaded = loaded.map_err(|_| Error::timeout("there was no document", patience))??;
        loaded.map(|loaded| loaded.bytes).ok_or_else(|| Error::invalid("there is no document"))
    }

    /// Calls the agent of a card at hand. Its interfaces are trusted as the card is; its signatures
    /// are checked with the keys at hand, and none is fetched.
    pub fn card(self, card: AgentCard) -> Result<Client, Error> {
        let (settings, http) = self.parts()?;
        let verdict = settings.admit(settings.card_keys.verdict(&card), None)?;
        Client::new(settings, http, None, FoundCard::given(card, verdict))
    }

    /// Calls an agent that is a program, one JSON object per line over its standard input and output,
    /// such as `herald serve --stdio`. It is started by the first call, started again when it has
    /// ended, and ends with the client: its input is closed, and if it does not go it is killed.
    pub fn command(
        self,
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = impl Into<OsString>>,
    ) -> Result<Client, Error> {
        let arguments = arguments.into_iter().map(Into::into).collect();
        let program = Program { name: program.into(), arguments };
        let (settings, http) = self.parts()?;
        let verdict = settings.admit(Verdict::Unsigned, None)?;
        let found = FoundCard::given(unnamed(&program), verdict);
        Client::new(settings, http, Some(Source::Program(program)), found)
    }

    fn parts(self) -> Result<(Settings, Http), Error> {
        let Self { settings, exchange, wire_tap } = self;
        let mut exchange = match exchange {
            Some(exchange) => exchange,
            None => network(&settings)?,
        };
        if let Some(tap) = wire_tap {
            exchange = tapped(exchange, tap);
        }
        let http = Http::new(exchange, settings.limits.clone(), settings.timeouts.clone());
        Ok((settings, http))
    }
}

impl Settings {
    /// Passes a verdict that is good enough.
    pub(crate) fn admit(&self, verdict: Verdict, fault: Option<Error>) -> Result<Verdict, Error> {
        if self.require_signature && !verdict.is_verified() {
            Err(Error::untrusted(&verdict, fault))
        } else {
            Ok(verdict)
        }
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("limits", &self.limits)
            .field("timeouts", &self.timeouts)
            .field("retry", &self.retry)
            .field("preferred", &self.preferred)
            .field("version", &self.version)
            .field("credentials", &self.credentials)
            .field("trusted", &self.trusted)
            .field("confined", &self.confined)
            .field("tls", &self.tls)
            .field("card_keys", &self.card_keys)
            .field("require_signature", &self.require_signature)
            .field("extensions", &self.extensions)
            .field("tenant", &self.tenant)
            .finish_non_exhaustive()
    }
}
