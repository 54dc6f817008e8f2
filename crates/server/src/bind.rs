//! Protocol bindings and the exchange that they share. Each binding decodes a request, passes it to
//! [`Exchange::call`] and encodes the reply.

mod call;
pub(crate) mod cursor;
pub(crate) mod events;
mod frames;
pub(crate) mod grpc;
pub(crate) mod jsonrpc;
pub(crate) mod rest;
pub(crate) mod session;
pub(crate) mod sse;
mod stdio;
pub(crate) mod stream;
mod telemetry;
pub(crate) mod ws;

use std::{borrow::Cow, sync::Arc, time::Duration};

use bytes::Bytes;
use herald_engine::{
    Act, Caller, Profile,
    budget::{Payer, Quota, Reservation},
    store::AuditActor,
};
use herald_protocol::{
    AgentName, Dialect, Error, ErrorKind, Operation, TraceContext, Version,
    version::{EXTENSIONS_HEADER, LEGACY_EXTENSIONS_HEADER, VERSION_HEADER, extensions},
};
use http::{HeaderMap, HeaderName, HeaderValue, header, request::Parts};
use tokio::time::Instant;
use tracing::Span;
use uuid::Uuid;

use crate::{
    binding::Binding,
    caller_limits::StreamPermit,
    guard::Ingress,
    limits::{self, UnreadBody},
    proxy::ForwardedUrl,
    routes::RESOURCE_METADATA,
    shared::Shared,
};

/// Parsed header names: a lookup by text would validate the text each time.
static VERSION: HeaderName = HeaderName::from_static(VERSION_HEADER);
static EXTENSIONS: HeaderName = HeaderName::from_static(EXTENSIONS_HEADER);
static LEGACY_EXTENSIONS: HeaderName = HeaderName::from_static(LEGACY_EXTENSIONS_HEADER);
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One request of a binding.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) parts: &'a Parts,
    /// The agent whose endpoint was called.
    pub(crate) agent: Option<AgentName>,
    /// The profile of that agent or of the default one; `None` if the agent was removed.
    pub(crate) profile: Option<Arc<Profile>>,
    /// The binding of the request.
    pub(crate) binding: Binding,
    /// The id of the request, in the log and in the response.
    pub(crate) id: Uuid,
    /// The ingress of the request.
    pub(crate) ingress: Ingress,
    started: Instant,
    /// True if the headers have the span of the sender.
    has_parent: bool,
    /// The span of the request.
    span: Option<TraceContext>,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        parts: &'a Parts,
        agent: Option<AgentName>,
        binding: Binding,
        id: Uuid,
        ingress: Ingress,
    ) -> Self {
        let started = Instant::now();
        let profile = shared.engine.profile(agent.as_ref());
        let (has_parent, span) = (false, None);
        Self { shared, parts, agent, profile, binding, id, ingress, started, has_parent, span }
    }
}

impl Exchange<'_> {
    /// Refuses a dialect that is switched off. The error says what to use instead.
    pub(crate) fn serves(&self, dialect: Dialect, operation: Operation) -> Result<(), Error> {
        let version = dialect.version();
        // The fast path: nearly every server has all versions switched on.
        if self.shared.config.switched_off.is_empty() || self.versions().contains(&version) {
            return Ok(());
        }
        let hint = match self.binding {
            Binding::JsonRpc | Binding::WebSocket | Binding::Stdio | Binding::Mcp => {
                format!("call {} with A2A-Version: 1.0", operation.name())
            }
            Binding::Rest => "use the paths of 1.0 with A2A-Version: 1.0".to_owned(),
            Binding::Grpc => "call lf.a2a.v1.A2AService".to_owned(),
        };
        let text = format!("A2A {version} is switched off here; {hint}");
        let error = Error::new(ErrorKind::VersionNotSupported, text);
        Err(error.with("requestedVersion", version).with("hint", hint))
    }

    /// The versions of the called agent.
    fn versions(&self) -> Vec<Version> {
        let profile = self.profile.as_ref();
        profile.map(|profile| self.shared.config.versions(&profile.name)).unwrap_or_default()
    }

    /// The version in the header of the request or in its query.
    pub(crate) fn version(&self) -> Option<Cow<'_, str>> {
        match self.parts.headers.get(&VERSION) {
            Some(value) => Some(String::from_utf8_lossy(value.as_bytes())),
            None => query(self.parts, VERSION_HEADER).map(Cow::Borrowed),
        }
    }

    /// Authenticates the caller by the headers alone.
    pub(crate) async fn caller(&self) -> Result<Caller, Error> {
        let caller = self.shared.auth.caller(self.parts, self.ingress).await;
        let caller = caller.inspect_err(|error| self.record_refusal(None, error));
        let limits = &self.shared.caller_limits;
        let caller = caller.map_err(|error| limits.refused(error, self.ingress.client()))?;
        limits.request(&caller, || self.payer(&caller))?;
        Ok(caller.with_request(self.id, self.binding.name(), self.ingress.client()))
    }

    /// The URL of the server as the caller sees it, without a slash at its end.
    pub(crate) fn server_url(&self) -> String {
        if let Some(url) = &self.shared.public_url {
            return url.clone();
        }
        let url = match self.ingress.is_proxy() {
            true => ForwardedUrl::of(&self.parts.headers),
            false => ForwardedUrl::default(),
        };
        let usual = if self.shared.tls.is_some() { "https" } else { "http" };
        let scheme = url.scheme.or(self.parts.uri.scheme_str()).unwrap_or(usual);
        let host = self.shared.guard.host(self.parts, self.ingress).ok().flatten();
        let (host, prefix) = (host.unwrap_or("localhost"), url.prefix.unwrap_or_default());
        format!("{scheme}://{host}{prefix}")
    }

    /// The URL of the called endpoints as the caller sees it, without a slash at its end.
    pub(crate) fn endpoints_url(&self) -> String {
        match &self.agent {
            Some(agent) => format!("{}/agents/{agent}", self.server_url()),
            None => self.server_url(),
        }
    }

    /// Records refused credentials, and missing permissions of a known caller, in the audit log.
    pub(crate) fn record_refusal(&self, caller: Option<&Caller>, error: &Error) {
        let act = match (error.kind, caller) {
            (ErrorKind::Unauthenticated, _) => {
                let credential = self.shared.auth.presented_kind(self.parts).into();
                Act::new(AuditActor { credential, ..AuditActor::default() }, "auth.refused")
            }
            (ErrorKind::Forbidden, Some(caller)) => Act::new(caller.actor(), "auth.denied"),
            (_, _) => return,
        };
        self.shared.engine.record_refusal(Act {
            address: self.ingress.client(),
            request: Some(self.id.to_string().into()),
            ..act.refused(error.message.as_str())
        });
    }

    /// The permits of a stream of the caller.
    pub(crate) fn stream_permit(&self, caller: &Caller) -> Result<StreamPermit, Error> {
        self.shared.caller_limits.stream(caller, self.payer(caller))
    }

    /// The caller's quota of the memory for responses.
    pub(crate) fn response_quota(&self, caller: &Caller) -> Arc<Quota> {
        self.shared.responses.quota(self.payer(caller))
    }

    /// A response body that counts against the memory for responses until it is sent.
    pub(crate) fn hold(&self, body: Vec<u8>, caller: &Caller) -> Result<Bytes, Error> {
        limits::hold(body, &self.shared.responses, || self.response_quota(caller))
    }

    /// Reads the body of the request within the limits. `framing` is the number of bytes that the
    /// binding adds to a message.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    pub(crate) fn read_body<B>(
        &self,
        caller: &Caller,
        body: B,
        framing: usize,
    ) -> impl Future<Output = Result<(Bytes, Option<Reservation>), UnreadBody>>
    where
        B: http_body::Body<Data = Bytes>,
    {
        async move {
            let (limit, wait) = (self.shared.config.limits.body, self.shared.config.timeouts.body);
            let most = limit.saturating_add(framing);
            let (budget, payer) = (self.shared.engine.requests(), || self.payer(caller));
            let read = limits::read_body(body, most, wait, budget, payer).await;
            read.map_err(|unread| match unread {
                UnreadBody::TooLarge { .. } => UnreadBody::TooLarge { limit },
                UnreadBody::TooSlow | UnreadBody::Broken | UnreadBody::NoMemory => unread,
            })
        }
    }

    /// The payer of the caller's reservations. Callers without credentials pay per address.
    pub(crate) fn payer(&self, caller: &Caller) -> Payer {
        if caller.is_anonymous() {
            self.ingress.payer()
        } else {
            Payer::Owner(caller.owner().clone())
        }
    }

    /// The extensions in the headers of the request. Without extensions of the agent nothing depends on
    /// them, and the headers are not searched.
    fn extensions(&self) -> Vec<String> {
        if self.profile.as_ref().is_none_or(|profile| profile.extensions.is_empty()) {
            return Vec::new();
        }
        let headers = &self.parts.headers;
        let values = headers.get_all(&EXTENSIONS).iter();
        let values = values.chain(headers.get_all(&LEGACY_EXTENSIONS));
        extensions(values.filter_map(|value| value.to_str().ok()))
    }

    /// Adds the header with the active extensions, under the name that the caller used.
    pub(crate) fn add_extensions(&self, headers: &mut HeaderMap) {
        let Some(profile) = &self.profile else { return };
        if profile.extensions.is_empty() {
            return;
        }
        let named = self.extensions();
        let known = profile.extensions.iter().map(|extension| extension.uri.as_str());
        let active: Vec<_> = known.filter(|uri| named.iter().any(|one| one == uri)).collect();
        if active.is_empty() {
            return;
        }
        let modern = self.parts.headers.contains_key(&EXTENSIONS);
        let name = if modern { &EXTENSIONS } else { &LEGACY_EXTENSIONS };
        if let Ok(value) = HeaderValue::try_from(active.join(", ")) {
            headers.insert(name, value);
        }
    }

    /// The error with what helps its caller: the id of the request, to find the cause in the log, or the
    /// versions that are supported.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let codes = error.kind.codes();
        Span::current().record("error", codes.reason).record("failed", codes.http >= 500);
        if error.kind == ErrorKind::Internal || error.kind == ErrorKind::Unavailable {
            return error.with("requestId", self.id);
        }
        if error.kind == ErrorKind::VersionNotSupported {
            // Only these can be requested by name.
            let spoken = self.versions();
            let spoken = spoken.iter().filter(|version| Version::SUPPORTED.contains(version));
            let spoken: Vec<_> = spoken.map(Version::to_string).collect();
            return error.with("supportedVersions", spoken.join(", "));
        }
        error
    }

    /// A challenge with the URL by which OAuth 2 clients find the authorization server (RFC 9728).
    fn challenge(&self, challenge: &HeaderValue) -> HeaderValue {
        if self.shared.auth.authorization_servers().is_empty() {
            return challenge.clone();
        }
        let (text, url) = (challenge.to_str().unwrap_or_default(), self.endpoints_url());
        let named = format!("{text}, resource_metadata=\"{url}{RESOURCE_METADATA}\"");
        HeaderValue::try_from(named).unwrap_or_else(|_| challenge.clone())
    }

    /// Adds the headers of an error: the challenge and the retry delay.
    pub(crate) fn mark(&self, headers: &mut HeaderMap, kind: ErrorKind, delay: Option<Duration>) {
        if kind == ErrorKind::Unauthenticated {
            for challenge in self.shared.auth.challenges() {
                headers.append(header::WWW_AUTHENTICATE, self.challenge(&challenge));
            }
        }
        if kind.is_temporary() {
            let usual = if kind == ErrorKind::LimitExceeded { 1 } else { 5 };
            // Whole seconds, and not too early.
            let seconds = delay.map_or(usual, |delay| delay.as_secs_f64().ceil().max(1.0) as u64);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
    }
}

/// The value of a query parameter, not decoded.
pub(crate) fn query<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let pairs = parts.uri.query()?.split('&');
    let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}
