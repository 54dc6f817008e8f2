//! Client builder: all settings of a client, with their defaults.

use std::{ffi::OsString, fmt, sync::Arc};

use bytes::Bytes;
use herald_protocol::{AgentCard, TenantId, TraceContext, Version, card::signature::Verdict};
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
    limits::{Limits, Retry, Timeouts},
    network::network,
    settings::ClientSettings,
    signature::CardKeys,
    transport::{
        StdioProgram,
        http::{Http, HttpService, in_process},
    },
    wire_tap::{WireTap, tapped},
};

/// Collects what a client is made of.
#[derive(Clone, Default)]
#[must_use]
pub struct ClientBuilder {
    settings: ClientSettings,
    exchange: Option<HttpService>,
    wire_tap: Option<Arc<dyn WireTap>>,
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

    /// Limits of what the client reads from a server.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// The time limits.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.settings.timeouts = timeouts;
        self
    }

    /// The policy for temporary failures.
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
        let program = StdioProgram { name: program.into(), arguments };
        let (settings, http) = self.parts()?;
        let verdict = settings.admit(Verdict::Unsigned, None)?;
        let found = FoundCard::given(unnamed(&program), verdict);
        Client::new(settings, http, Some(Source::Program(program)), found)
    }

    fn parts(self) -> Result<(ClientSettings, Http), Error> {
        let Self { settings, exchange, wire_tap } = self;
        let mut exchange = match exchange {
            Some(exchange) => exchange,
            None => network(&settings.tls, &settings.credentials, &settings.timeouts)?,
        };
        if let Some(tap) = wire_tap {
            exchange = tapped(exchange, tap);
        }
        let http = Http::new(exchange, settings.limits.clone(), settings.timeouts.clone());
        Ok((settings, http))
    }
}

impl fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientBuilder").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Client {
    /// Finds the agent at `url`: its base URL, the URL of its card (which ends in `.json`), a `file://`
    /// URL of a card, or `stdio:` and a command that is started.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::builder().connect(url).await
    }

    /// A builder with the default settings.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Calls an agent in this process, without a socket: Herald's `Server`, or anything else that
    /// answers HTTP requests.
    pub async fn in_process<S, B>(service: S) -> Result<Self, Error>
    where
        S: Service<http::Request<Full<Bytes>>, Response = Response<B>>,
        S: Clone + Send + Sync + 'static,
        S::Error: Into<BoxError>,
        S::Future: Send,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::builder().service(service).connect("http://localhost").await
    }
}
