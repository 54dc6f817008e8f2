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

/// Builder of a client.
#[derive(Clone, Default)]
#[must_use]
pub struct ClientBuilder {
    settings: ClientSettings,
    exchange: Option<HttpService>,
    wire_tap: Option<Arc<dyn WireTap>>,
}

impl ClientBuilder {
    /// Adds a credential. The card's security schemes decide where it goes in a request.
    ///
    /// Credentials are sent to the origin of the connected URL and to those of
    /// [`trust_origin`](Self::trust_origin) only. A card is fetched without them, and with a token or a
    /// password only if the server answers 401 or 403.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.settings.credentials.push(credential);
        self
    }

    /// Sends credentials to this origin as well, such as `https://api.example.com`: a card may have
    /// interfaces at other origins than its own.
    pub fn trust_origin(mut self, origin: &str) -> Self {
        let serialized = Url::parse(origin).map(|url| url.origin().ascii_serialization());
        self.settings.trusted.push(serialized.unwrap_or_else(|_| origin.to_owned()));
        self
    }

    /// Restricts all calls to the connected and the trusted origins, as if there were credentials. For
    /// interceptors that add secrets.
    pub fn confine(mut self) -> Self {
        self.settings.confined = true;
        self
    }

    /// Trusts these root certificates (PEM) in addition to those of the system.
    pub fn root_certificate(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.settings.tls.roots.push(pem.into());
        self
    }

    /// Accepts any certificate, for development only: anybody on the network path can read and change the
    /// traffic, credentials included.
    pub fn danger_accept_any_certificate(mut self) -> Self {
        tracing::warn!("certificates are not verified: anybody can impersonate the agent");
        self.settings.tls.accept_any = true;
        self
    }

    /// Verifies the signatures of cards with these keys; [`Client::verdict`] has the result.
    pub fn card_keys(mut self, keys: CardKeys) -> Self {
        self.settings.card_keys = keys;
        self
    }

    /// Refuses a card without a signature by one of the [`card_keys`](Self::card_keys).
    pub fn require_signature(mut self) -> Self {
        self.settings.require_signature = true;
        self
    }

    /// Prefers interfaces of these bindings, in this order. Otherwise the card's order counts.
    pub fn prefer(mut self, bindings: impl IntoIterator<Item = Binding>) -> Self {
        self.settings.preferred = bindings.into_iter().collect();
        self
    }

    /// Uses this protocol version only, so that no server can downgrade the client.
    pub fn version(mut self, version: Version) -> Self {
        self.settings.version = Some(version);
        self
    }

    /// Requests a protocol extension with every call.
    pub fn extension(mut self, uri: impl Into<String>) -> Self {
        self.settings.extensions.push(uri.into());
        self
    }

    /// The tenant of calls without one, unless the chosen interface has its own.
    pub fn tenant(mut self, tenant: impl Into<TenantId>) -> Self {
        self.settings.tenant = Some(tenant.into());
        self
    }

    /// Adds an interceptor; it runs after those that were added before.
    pub fn intercept(mut self, interceptor: impl Interceptor) -> Self {
        self.settings.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Sends trace headers: `current` returns the trace context of each call.
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

    /// Sets the size limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Sets the timeouts.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.settings.timeouts = timeouts;
        self
    }

    /// Sets the retries.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.settings.retry = retry;
        self
    }

    /// Calls `service` instead of the network: Herald's `Server`, or an HTTP client with other roots or proxies.
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
    /// URL of a card, or `stdio:` and a command, as in [`command`](Self::command).
    pub async fn connect(self, url: &str) -> Result<Client, Error> {
        self.discover(Source::parse(url)?).await?.client()
    }

    /// Fetches a card without choosing an interface. It works for a card without an interface that this client
    /// can call.
    pub async fn discover(self, source: Source) -> Result<Discovered, Error> {
        let (settings, http) = self.parts()?;
        Discovered::find(settings, http, source).await
    }

    /// Fetches a document such as a catalog of cards, in the same way as a card but without credentials.
    pub async fn fetch(self, source: &Source) -> Result<Bytes, Error> {
        let (settings, http) = self.parts()?;
        let headers = HeaderMap::new();
        let load = source.load(&http, &headers, None);
        let limit = settings.timeouts.call;
        let loaded = timeout(limit, load).await;
        let loaded = loaded.map_err(|_| Error::timeout("there was no document", limit))??;
        loaded.map(|loaded| loaded.bytes).ok_or_else(|| Error::invalid("there is no document"))
    }

    /// A client for the agent of this card. Its interfaces are trusted as the card is; its signatures are
    /// verified with the given keys, and no keys are fetched.
    pub fn card(self, card: AgentCard) -> Result<Client, Error> {
        let (settings, http) = self.parts()?;
        let verdict = settings.admit(settings.card_keys.verdict(&card), None)?;
        Client::new(settings, http, None, FoundCard::given(card, verdict))
    }

    /// A client for a program that serves A2A on its standard input and output, one JSON object per line, such
    /// as `herald serve --stdio`. The first call starts it, and a call after its exit starts it again. When the
    /// client is dropped, its input is closed, and after a moment it is killed.
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
