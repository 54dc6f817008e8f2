//! Protocol bindings, and the exchange that they share. Each binding decodes a request, performs it and
//! encodes the answer.

pub(crate) mod cursor;
pub(crate) mod events;
pub(crate) mod grpc;
pub(crate) mod jsonrpc;
pub(crate) mod rest;
pub(crate) mod session;
pub(crate) mod sse;
mod stdio;
pub(crate) mod stream;
mod telemetry;
pub(crate) mod translate;
pub(crate) mod ws;

use std::{borrow::Cow, sync::Arc};

use bytes::Bytes;
use herald_engine::{
    AgentRoute, Caller, Reply, Subscription,
    budget::{MemoryBudget, Payer, Quota, Reservation},
    store::Owner,
};
use herald_protocol::{
    AgentName, Dialect, Error, ErrorKind, MessageId, Operation, Request, TenantId, TraceContext,
    Version,
    request::SendMessage,
    version::{EXTENSIONS_HEADER, LEGACY_EXTENSIONS_HEADER, VERSION_HEADER, extensions},
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header, request::Parts};
use tokio::time::Instant;
use tracing::Span;
use uuid::Uuid;

use crate::{
    body::Body,
    guard::Ingress,
    limits::{self, KeyedPermit},
    server::Shared,
};

/// Names as the map of headers has them: as text they would be checked at every look.
static VERSION: HeaderName = HeaderName::from_static(VERSION_HEADER);
static EXTENSIONS: HeaderName = HeaderName::from_static(EXTENSIONS_HEADER);
static LEGACY_EXTENSIONS: HeaderName = HeaderName::from_static(LEGACY_EXTENSIONS_HEADER);
static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

/// One request on its way through a binding.
#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) parts: &'a Parts,
    /// The agent whose endpoint was called.
    pub(crate) agent: Option<AgentName>,
    /// How it speaks.
    pub(crate) binding: Binding,
    /// Names the request in the log and to its caller.
    pub(crate) id: Uuid,
    /// Its ingress.
    pub(crate) ingress: Ingress,
    begun: Instant,
    /// The span the request was sent from, by its headers.
    parent: Option<TraceContext>,
    /// The span of the request itself.
    span: Option<TraceContext>,
}

/// How a call reaches the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    JsonRpc,
    Rest,
    Grpc,
    WebSocket,
    Stdio,
}

impl Binding {
    pub(crate) const ALL: [Self; 5] =
        [Self::JsonRpc, Self::Rest, Self::Grpc, Self::WebSocket, Self::Stdio];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "jsonrpc",
            Self::Rest => "rest",
            Self::Grpc => "grpc",
            Self::WebSocket => "websocket",
            Self::Stdio => "stdio",
        }
    }
}

/// What a request led to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// An encoded result.
    Result(Bytes),
    /// A stream and its permit.
    Stream(Subscription, Option<KeyedPermit<Owner>>),
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
        let begun = Instant::now();
        Self { shared, parts, agent, binding, id, ingress, begun, parent: None, span: None }
    }
}

impl Exchange<'_> {
    /// Refuses a dialect that is switched off, in a sentence that says what to use instead.
    pub(crate) fn serves(&self, dialect: Dialect, operation: Operation) -> Result<(), Error> {
        let version = dialect.version();
        // Nearly every server speaks them all.
        if self.shared.config.switched_off.is_empty() || self.versions().contains(&version) {
            return Ok(());
        }
        let hint = match self.binding {
            Binding::JsonRpc | Binding::WebSocket | Binding::Stdio => {
                format!("call {} with A2A-Version: 1.0", operation.name())
            }
            Binding::Rest => "use the paths of 1.0 with A2A-Version: 1.0".to_owned(),
            Binding::Grpc => "call lf.a2a.v1.A2AService".to_owned(),
        };
        let text = format!("A2A {version} is switched off here; {hint}");
        let error = Error::new(ErrorKind::VersionNotSupported, text);
        Err(error.with("requestedVersion", version).with("hint", hint))
    }

    /// The versions that the called agent speaks.
    fn versions(&self) -> Vec<Version> {
        let profile = self.shared.engine.profile(self.agent.as_ref());
        profile.map(|profile| self.shared.config.versions(&profile.name)).unwrap_or_default()
    }

    /// The version the request names, in its header or in its query.
    pub(crate) fn version(&self) -> Option<Cow<'_, str>> {
        match self.parts.headers.get(&VERSION) {
            Some(value) => Some(String::from_utf8_lossy(value.as_bytes())),
            None => query(self.parts, VERSION_HEADER).map(Cow::Borrowed),
        }
    }

    /// Who is calling, by the headers alone.
    pub(crate) async fn caller(&self, tenant: Option<&TenantId>) -> Result<Caller, Error> {
        self.shared.auth.caller(self.parts, tenant).await
    }

    /// The caller's quota of the memory for responses.
    pub(crate) fn response_quota(&self, caller: &Caller) -> Arc<Quota> {
        self.shared.responses.quota(self.payer(caller))
    }

    /// A body that counts against the memory for responses until it is read.
    pub(crate) fn hold(&self, body: Bytes, caller: &Caller) -> Result<Bytes, Error> {
        limits::hold(body, &self.shared.responses, || self.response_quota(caller))
    }

    /// The memory budget of requests until they are stored.
    pub(crate) fn uploads(&self) -> &Arc<MemoryBudget> {
        self.shared.engine.requests()
    }

    /// The payer of the caller's reservations. Callers without credentials pay per connection.
    pub(crate) fn payer(&self, caller: &Caller) -> Payer {
        if caller.is_anonymous() {
            Payer::Connection(self.ingress.connection())
        } else {
            Payer::Owner(caller.owner().clone())
        }
    }

    /// Performs a request and writes its answer as JSON; for JSON-RPC, as the result of `call`.
    pub(crate) async fn perform(
        &self,
        caller: &Caller,
        dialect: Dialect,
        request: Request,
        reservation: Option<Reservation>,
        call: Option<&herald_protocol::jsonrpc::RequestId>,
    ) -> Result<Outcome, Error> {
        let (reply, permit) = self.call(caller, dialect, request, reservation).await?;
        // Most answers fit into it; a larger one grows it once.
        let mut out = Vec::with_capacity(1024);
        if let Some(call) = call {
            herald_protocol::jsonrpc::begin_result(&mut out, call);
        }
        match (reply, dialect) {
            (Reply::Stream(events), _) => return Ok(Outcome::Stream(events, permit)),
            (Reply::Sent(sent), Dialect::V1) => sent.write(&mut out),
            (Reply::Task(task), Dialect::V1) => task.write(&mut out),
            (Reply::Sent(sent), _) => out.extend(dialect.encode_send_result(&sent.decode()?)),
            (Reply::Task(task), _) => out.extend(dialect.encode_task(&task.decode()?)),
            (Reply::Tasks(page), _) => out.extend(dialect.encode_page(&page)),
        }
        if call.is_some() {
            out.push(b'}');
        }
        Ok(Outcome::Result(out.into()))
    }

    /// Performs a request and counts it. A stream comes with its permit.
    pub(crate) async fn call(
        &self,
        caller: &Caller,
        dialect: Dialect,
        request: Request,
        reservation: Option<Reservation>,
    ) -> Result<(Reply, Option<KeyedPermit<Owner>>), Error> {
        let operation = request.operation();
        let called = self.called(caller, dialect, request, reservation).await;
        self.count(dialect, operation, called.as_ref().err());
        called
    }

    async fn called(
        &self,
        caller: &Caller,
        dialect: Dialect,
        mut request: Request,
        reservation: Option<Reservation>,
    ) -> Result<(Reply, Option<KeyedPermit<Owner>>), Error> {
        let named;
        let caller = match request.tenant().filter(|tenant| !tenant.is_empty()) {
            Some(tenant) => {
                named = self.caller(Some(tenant)).await?;
                &named
            }
            None => caller,
        };
        self.complete(dialect, &mut request)?;
        self.record_request(dialect, caller, &request);
        let operation = request.operation();
        let permit = if operation.is_streaming() {
            Some(self.shared.streams.try_acquire(caller.owner().clone()).ok_or_else(too_many)?)
        } else {
            None
        };
        let route = AgentRoute { agent: self.agent.clone(), extensions: self.extensions() };
        // On the heap: it is the largest part of a request, and everything above would be moved
        // with it.
        let reply = Box::pin(self.shared.engine.call_with_reservation(
            caller,
            &route,
            request,
            reservation,
        ))
        .await;
        let reply = reply.map_err(|error| in_its_terms(dialect, operation, error))?;
        let reply = match reply {
            Reply::Stream(events) => Reply::Stream(events.within(self.response_quota(caller))),
            whole @ (Reply::Sent(_) | Reply::Task(_) | Reply::Tasks(_)) => whole,
        };
        Ok((reply, permit))
    }

    /// Adds what a request carries outside its parameters.
    fn complete(&self, dialect: Dialect, request: &mut Request) -> Result<(), Error> {
        let span = self.joined(request);
        if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = request {
            send.trace = span;
        }
        match request {
            Request::SendMessage(send) => self.complete_send(dialect, send),
            Request::SendStreamingMessage(send) => {
                self.complete_send(dialect, send)?;
                send.after = cursor::of(self.parts)?;
                match &send.message.task_id {
                    Some(task) => cursor::check(send.after.as_ref(), task),
                    None => Ok(()),
                }
            }
            Request::SubscribeToTask(subscribe) => {
                let cursor = cursor::of(self.parts)?;
                cursor::check(cursor.as_ref(), &subscribe.id)?;
                subscribe.after = cursor.map(|cursor| cursor.seq);
                Ok(())
            }
            Request::GetTask(_)
            | Request::ListTasks(_)
            | Request::CancelTask(_)
            | Request::CreateTaskPushNotificationConfig(_)
            | Request::GetTaskPushNotificationConfig(_)
            | Request::ListTaskPushNotificationConfigs(_)
            | Request::DeleteTaskPushNotificationConfig(_)
            | Request::GetExtendedAgentCard(_) => Ok(()),
        }
    }

    fn complete_send(&self, dialect: Dialect, send: &mut SendMessage) -> Result<(), Error> {
        if let Some(key) = self.parts.headers.get(&IDEMPOTENCY_KEY) {
            let key = key.to_str();
            let key = key.map_err(|_| Error::field("Idempotency-Key", "must be plain text"))?;
            send.idempotency_key = Some(key.to_owned());
        }
        if send.message.message_id.is_empty() && dialect.mints_message_id() {
            // The repeat of a message has to be the same message.
            let key = send.idempotency_key.clone();
            send.message.message_id = MessageId::new(key.unwrap_or_else(|| self.id.to_string()));
        }
        Ok(())
    }

    /// The extensions the caller names.
    fn extensions(&self) -> Vec<String> {
        let headers = &self.parts.headers;
        let values = headers.get_all(&EXTENSIONS).iter();
        let values = values.chain(headers.get_all(&LEGACY_EXTENSIONS));
        extensions(values.filter_map(|value| value.to_str().ok()))
    }

    /// Names the extensions that are in use, under the header the caller used.
    pub(crate) fn answer_extensions(&self, headers: &mut HeaderMap) {
        let Some(profile) = self.shared.engine.profile(self.agent.as_ref()) else { return };
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

    /// An error as its caller sees it: what is our fault is named, so that it can be found in the
    /// log.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let codes = error.kind.codes();
        Span::current().record("error", codes.reason).record("failed", codes.http >= 500);
        if error.kind == ErrorKind::Internal || error.kind == ErrorKind::Unavailable {
            return error.with("requestId", self.id);
        }
        if error.kind == ErrorKind::VersionNotSupported {
            // Others cannot be asked for by name.
            let spoken = self.versions();
            let spoken = spoken.iter().filter(|version| Version::SUPPORTED.contains(version));
            let spoken: Vec<_> = spoken.map(Version::to_string).collect();
            return error.with("supportedVersions", spoken.join(", "));
        }
        error
    }

    /// Adds the headers that go with an error.
    pub(crate) fn mark(&self, headers: &mut HeaderMap, kind: ErrorKind) {
        if kind == ErrorKind::Unauthenticated {
            for scheme in self.shared.auth.schemes() {
                let challenge = HeaderValue::from_static(scheme.challenge);
                headers.append(header::WWW_AUTHENTICATE, challenge);
            }
        }
        if kind.is_temporary() {
            let seconds = if kind == ErrorKind::LimitExceeded { "1" } else { "5" };
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static(seconds));
        }
    }
}

/// The value of a query parameter, as it stands.
pub(crate) fn query<'a>(parts: &'a Parts, name: &str) -> Option<&'a str> {
    let pairs = parts.uri.query()?.split('&');
    let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// A response with a body of this type.
pub(crate) fn respond(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = status;
    let content_type = HeaderValue::from_static(content_type);
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

/// 0.3 has no capability to lack: an agent without an extended card has none configured.
fn in_its_terms(dialect: Dialect, operation: Operation, mut error: Error) -> Error {
    let card = operation == Operation::GetExtendedAgentCard;
    if dialect != Dialect::V1 && card && error.kind == ErrorKind::UnsupportedOperation {
        error.kind = ErrorKind::ExtendedAgentCardNotConfigured;
    }
    error
}

pub(crate) fn too_many() -> Error {
    Error::new(ErrorKind::LimitExceeded, "too many open streams; close one and try again")
}
