//! Server handle: dispatch of a request to its endpoint.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use herald_engine::Profile;
use herald_protocol::{AgentCard, AgentName, Error, dialect::EntryPoint};
use http::{
    HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header, request::Parts,
};
use tokio::time::Instant;
use tracing::Span;
use uuid::Uuid;

use crate::{
    api,
    bind::{Exchange, events, grpc, jsonrpc, rest, ws},
    binding::Binding,
    body::Body,
    browser, card, catalog, cors,
    guard::{self, Ingress, has_transfer_coding},
    health, mcp,
    metrics::scrape,
    page,
    refusal::Refusal,
    resource,
    routes::{self, Mount, RouteTarget},
    shared::Shared,
    trace,
    webhook::LOOP_HEADER,
};

/// Parsed header name: text would be validated with every response.
static REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A2A over HTTP, for one engine. A cheap handle: clones share one server.
///
/// It is a tower service, so that a host application can mount it and tests can call it without a
/// socket. [`Server::serve`] runs it on a listener.
#[derive(Debug, Clone)]
pub struct Server {
    pub(crate) shared: Arc<Shared>,
}

impl Server {
    /// A curl command that calls the default agent of a server at `base`, such as
    /// `http://127.0.0.1:8000`. It reads whether the store has API keys.
    pub async fn curl(&self, base: &str) -> Result<String, Error> {
        self.shared.auth.start().await?;
        Ok(self.shared.curl(base))
    }

    /// The card of the default agent, as a server at `url` shows it, without signatures.
    pub fn card(&self, url: &str) -> AgentCard {
        let profile = self.shared.engine.profile(None).expect("an engine has its default agent");
        card::build(&self.shared, &profile, None, url)
    }

    /// Handles one request. Its two parts are separate, because a future that takes it apart keeps space for
    /// the whole.
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    pub(crate) fn handle<B>(
        self,
        parts: Parts,
        body: B,
        ingress: Ingress,
    ) -> impl Future<Output = Response<Body>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
    {
        async move {
            let started = Instant::now();
            let ingress = ingress.resolved(&self.shared.proxies, &parts.headers);
            let id = Uuid::new_v4();
            let mut name = Uuid::encode_buffer();
            let name = &*id.hyphenated().encode_lower(&mut name);
            let span = self.shared.span(&parts, name);
            let dispatched = pin!(self.shared.dispatch(id, &parts, body, ingress));
            let answer = within(&span, dispatched).await;
            let mut response = answer.unwrap_or_else(Refusal::into_response);
            if ingress.beyond().is_some() {
                let close = HeaderValue::from_static("close");
                response.headers_mut().insert(header::CONNECTION, close);
            }
            add_headers(&mut response, &parts, name);
            if routes::is_api(parts.uri.path()) {
                browser::protect_api(response.headers_mut());
            }
            if self.shared.tls.is_some() && ingress.is_public() {
                let pinned = HeaderValue::from_static("max-age=31536000");
                response.headers_mut().insert(header::STRICT_TRANSPORT_SECURITY, pinned);
            }
            self.shared.metrics.responded(response.status());
            let (status, elapsed) = (response.status().as_u16(), started.elapsed());
            span.record("status", status);
            if response.status().is_server_error() {
                tracing::warn!(parent: &span, status, ?elapsed, "request failed");
            } else {
                let client = ingress.client();
                tracing::debug!(parent: &span, status, ?elapsed, ?client, "request answered");
            }
            response
        }
    }
}

/// Polls a future inside a span. Unlike `Instrument`, it does not move the future: futures of requests
/// are large, and a move copies all of one.
pub(crate) async fn within<F: Future>(span: &Span, mut future: Pin<&mut F>) -> F::Output {
    poll_fn(|cx| span.in_scope(|| future.as_mut().poll(cx))).await
}

/// Adds the headers of every response.
fn add_headers(response: &mut Response<Body>, parts: &Parts, id: &str) {
    let headers = response.headers_mut();
    let nosniff = const { HeaderValue::from_static("nosniff") };
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    let mut id = HeaderValue::from_str(id).expect("hex digits can stand in a header");
    // It is not a secret, but it never repeats: HTTP/2 must not keep it in its header table.
    id.set_sensitive(true);
    headers.insert(&REQUEST_ID, id);
    if parts.version == Version::HTTP_2 {
        // The header belongs to HTTP/1; a connection of HTTP/2 has other requests.
        headers.remove(header::CONNECTION);
    }
    if parts.method == Method::HEAD {
        use http_body::Body as _;
        if let Some(length) = response.body().size_hint().exact() {
            response.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(length));
        }
        *response.body_mut() = Body::empty();
    }
}

impl Shared {
    #[expect(clippy::manual_async_fn, reason = "an async fn holds its arguments twice")]
    fn dispatch<B>(
        self: &Arc<Self>,
        id: Uuid,
        parts: &Parts,
        body: B,
        ingress: Ingress,
    ) -> impl Future<Output = Result<Response<Body>, Refusal>>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
    {
        async move {
            if has_transfer_coding(&parts.headers) {
                let text = "unsupported Transfer-Encoding: send the body plain or chunked";
                return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, text));
            }
            // A webhook of this or another server was registered with one of our URLs. 410 ends it.
            if parts.headers.contains_key(LOOP_HEADER) && parts.method == Method::POST {
                let text = "this is an A2A server, which accepts no deliveries of webhooks";
                return Err(Refusal::new(StatusCode::GONE, text));
            }
            if let Some(limit) = ingress.beyond()
                && !health::is_probe(parts.uri.path())
            {
                return Err(Refusal::beyond(limit));
            }
            if grpc::is_call(&parts.headers) {
                return Box::pin(grpc::answer(self, id, parts, body, ingress)).await;
            }
            if routes::is_api(parts.uri.path()) {
                let host = self.guard.host(parts, ingress)?;
                let origin = self.guard.origin(&parts.headers, host)?;
                browser::check_site(&parts.headers, origin.is_some())?;
            }
            let matched = routes::find(parts.uri.path()).ok_or_else(Refusal::not_found)?;
            // Before the check of the host: probes use any name.
            match matched.target {
                RouteTarget::Live => return check_read(&parts.method).map(|()| health::live()),
                RouteTarget::Ready => {
                    check_read(&parts.method)?;
                    return Ok(Box::pin(health::ready(&self.readiness, &self.engine)).await);
                }
                RouteTarget::Root
                | RouteTarget::JsonRpc(_)
                | RouteTarget::Socket
                | RouteTarget::Events
                | RouteTarget::Rest(..)
                | RouteTarget::Mcp
                | RouteTarget::Api
                | RouteTarget::Card
                | RouteTarget::KeySet
                | RouteTarget::ExtendedCard
                | RouteTarget::ResourceMetadata
                | RouteTarget::ApiCatalog
                | RouteTarget::AiCatalog
                | RouteTarget::Metrics => {}
            }
            let host = self.guard.host(parts, ingress)?;
            if matched.target == RouteTarget::Metrics {
                check_read(&parts.method)?;
                return Ok(Box::pin(scrape::answer(self, parts, ingress)).await);
            }
            let agent = matched.agent.map(AgentName::from);
            let binding = match matched.target {
                RouteTarget::Rest(..)
                | RouteTarget::Events
                | RouteTarget::ExtendedCard
                | RouteTarget::Api => Binding::Rest,
                RouteTarget::Socket => Binding::WebSocket,
                RouteTarget::Mcp => Binding::Mcp,
                RouteTarget::Root
                | RouteTarget::JsonRpc(_)
                | RouteTarget::Card
                | RouteTarget::KeySet
                | RouteTarget::ResourceMetadata
                | RouteTarget::ApiCatalog
                | RouteTarget::AiCatalog
                | RouteTarget::Live
                | RouteTarget::Ready
                | RouteTarget::Metrics => Binding::JsonRpc,
            };
            let mut exchange = Exchange::new(self, parts, agent, binding, id, ingress);
            let Some(profile) = exchange.profile.clone() else {
                return Err(matched.agent.map_or_else(Refusal::not_found, Refusal::no_agent));
            };
            if matched.target == RouteTarget::Card {
                return public_document(parts, || Some(card::answer(&exchange, &profile)));
            }
            if matched.target == RouteTarget::ResourceMetadata {
                return public_document(parts, || resource::answer(&exchange, &profile));
            }
            if matched.target == RouteTarget::KeySet {
                return public_document(parts, || card::keys(self));
            }
            if matched.target == RouteTarget::ApiCatalog {
                return public_document(parts, || Some(catalog::links(&exchange)));
            }
            if matched.target == RouteTarget::AiCatalog {
                return public_document(parts, || Some(catalog::entries(&exchange)));
            }
            let origin = self.guard.origin(&parts.headers, host)?;
            // A page cannot send this header to another site without asking first.
            if changes_state(matched.target, &parts.method)
                && !parts.headers.contains_key(header::AUTHORIZATION)
            {
                browser::check_site(&parts.headers, origin.is_some())?;
            }
            exchange.join_trace(trace::of(&parts.headers).as_ref());
            let mut response = match (matched.target, &parts.method) {
                (_, &Method::OPTIONS) => {
                    cors::preflight(&parts.headers).unwrap_or_else(Refusal::into_response)
                }
                (RouteTarget::Root, &Method::GET | &Method::HEAD) => self.page(&exchange, &profile),
                // Boxed, so that neither part is too large for the cache of the allocator.
                (RouteTarget::Root, &Method::POST) => {
                    Box::pin(jsonrpc::answer(&exchange, EntryPoint::Main, body)).await
                }
                (RouteTarget::JsonRpc(entry), &Method::POST) => {
                    Box::pin(jsonrpc::answer(&exchange, entry, body)).await
                }
                (RouteTarget::Root, _) => {
                    Refusal::method("GET, HEAD, POST, OPTIONS").into_response()
                }
                (RouteTarget::JsonRpc(_), _) => Refusal::method("POST, OPTIONS").into_response(),
                (RouteTarget::Socket, &Method::GET) => Box::pin(ws::answer(&exchange)).await,
                (RouteTarget::Events, &Method::GET) => Box::pin(events::answer(&exchange)).await,
                (RouteTarget::Socket | RouteTarget::Events, _) => {
                    Refusal::method("GET, OPTIONS").into_response()
                }
                (RouteTarget::ExtendedCard, _) if profile.extended_card.is_none() => {
                    Refusal::not_found().into_response()
                }
                (RouteTarget::ExtendedCard, method) if check_read(method).is_err() => {
                    Refusal::method("GET, HEAD, OPTIONS").into_response()
                }
                (RouteTarget::ExtendedCard, _) => {
                    let path = "/v1/card";
                    Box::pin(rest::answer(&exchange, &Method::GET, Mount::Root, path, body)).await
                }
                (RouteTarget::Mcp, _) if !self.config.mcp.enabled => {
                    Refusal::not_found().into_response()
                }
                (RouteTarget::Mcp, &Method::POST) => {
                    let is_local = guard::is_local(parts, host, ingress);
                    Box::pin(mcp::answer(self, &exchange, is_local, body)).await
                }
                (RouteTarget::Mcp, _) => Refusal::method("POST, OPTIONS").into_response(),
                (RouteTarget::Api, _) => {
                    let is_local = guard::is_local(parts, host, ingress);
                    Box::pin(api::answer(&exchange, is_local, body)).await
                }
                (RouteTarget::Rest(mount, path), method) => {
                    let method = if *method == Method::HEAD { &Method::GET } else { method };
                    Box::pin(rest::answer(&exchange, method, mount, path, body)).await
                }
                (
                    RouteTarget::Card
                    | RouteTarget::KeySet
                    | RouteTarget::ResourceMetadata
                    | RouteTarget::ApiCatalog
                    | RouteTarget::AiCatalog
                    | RouteTarget::Live
                    | RouteTarget::Ready
                    | RouteTarget::Metrics,
                    _,
                ) => {
                    return Err(Refusal::not_found());
                }
            };
            exchange.add_extensions(response.headers_mut());
            if self.guard.names_origins() {
                let vary = const { HeaderValue::from_static("Origin") };
                response.headers_mut().append(header::VARY, vary);
            }
            if let Some(origin) = origin {
                cors::allow_origin(&mut response, origin);
            }
            // The replies to callers are for them alone.
            let never = const { HeaderValue::from_static("no-store") };
            response.headers_mut().entry(header::CACHE_CONTROL).or_insert(never);
            Ok(response)
        }
    }

    fn page(&self, exchange: &Exchange<'_>, profile: &Profile) -> Response<Body> {
        let server = exchange.server_url();
        let others = match exchange.agent {
            Some(_) => Vec::new(),
            None => self.engine.profiles(),
        };
        let others = others.iter().map(|one| (&**one, card::base(&server, Some(&one.name))));
        let base = card::base(&server, exchange.agent.as_ref());
        page::answer(self, profile, &base, &others.collect::<Vec<_>>())
    }
}

/// True if a request can change something: all but reads, and a WebSocket, which begins with a GET.
fn changes_state(target: RouteTarget<'_>, method: &Method) -> bool {
    let reads = [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    !reads || (target == RouteTarget::Socket && *method == Method::GET)
}

fn check_read(method: &Method) -> Result<(), Refusal> {
    match *method {
        Method::GET | Method::HEAD => Ok(()),
        _ => Err(Refusal::method("GET, HEAD")),
    }
}

/// The response with a document that needs no credentials, such as a card. Web pages of any origin may
/// read it.
fn public_document(
    parts: &Parts,
    document: impl FnOnce() -> Option<Response<Body>>,
) -> Result<Response<Body>, Refusal> {
    let mut response = match parts.method {
        Method::OPTIONS => cors::preflight(&parts.headers)?,
        _ => {
            check_read(&parts.method)?;
            document().ok_or_else(Refusal::not_found)?
        }
    };
    let any = HeaderValue::from_static("*");
    response.headers_mut().insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, any);
    Ok(response)
}

impl<B> tower::Service<Request<B>> for Server
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (parts, body) = request.into_parts();
        let response = self.clone().handle(parts, body, Ingress::InProcess);
        Box::pin(async move { Ok(response.await) })
    }
}
