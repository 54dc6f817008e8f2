//! HTTP for the transports: requests with headers and credentials, responses within limits.

use std::{fmt, time::Duration};

use bytes::{Bytes, BytesMut};
use herald_protocol::{
    ContextId, Dialect, Request, TaskId, TenantId,
    version::{EXTENSIONS_HEADER, LEGACY_EXTENSIONS_HEADER, VERSION_HEADER},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use reqwest::Url;
use tower::{
    Service, ServiceExt,
    util::{BoxCloneSyncService, MapErrLayer},
};

use crate::{
    call::Outgoing,
    error::{BoxError, Error},
    limits::{Limits, Timeouts},
    proof::{Proof, Secret},
};

/// The body of a response.
pub(crate) type HttpBody = UnsyncBoxBody<Bytes, BoxError>;

/// Service that answers HTTP requests: a pool of connections, or a service in this process.
pub(crate) type HttpService =
    BoxCloneSyncService<http::Request<Bytes>, Response<HttpBody>, BoxError>;

/// HTTP service with limits and timeouts.
#[derive(Clone)]
pub(crate) struct Http {
    exchange: HttpService,
    pub(crate) limits: Limits,
    pub(crate) timeouts: Timeouts,
}

/// Address of an agent's interface, with the common parts of every request to it.
#[derive(Debug, Clone)]
pub(crate) struct HttpEndpoint {
    pub(crate) http: Http,
    pub(crate) url: Url,
    pub(crate) dialect: Dialect,
    pub(crate) tenant: Option<TenantId>,
    headers: HeaderMap,
    proof: Proof,
}

/// A service in this process.
pub(crate) fn in_process<S, B>(service: S) -> HttpService
where
    S: Service<http::Request<Full<Bytes>>, Response = Response<B>>,
    S: Clone + Send + Sync + 'static,
    S::Error: Into<BoxError>,
    S::Future: Send,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let service =
        service.map_request(|request: http::Request<Bytes>| request.map(Full::new)).map_response(
            |response: Response<B>| response.map(|body| body.map_err(Into::into).boxed_unsync()),
        );
    BoxCloneSyncService::new(tower::Layer::layer(&MapErrLayer::new(Into::into), service))
}

impl Http {
    pub(crate) fn new(exchange: HttpService, limits: Limits, timeouts: Timeouts) -> Self {
        Self { exchange, limits, timeouts }
    }

    /// Sends a request and waits for the head of its response.
    pub(crate) async fn send(
        &self,
        request: http::Request<Bytes>,
    ) -> Result<Response<HttpBody>, Error> {
        let (name, port) = (request.uri().host(), request.uri().port());
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let host = format!("{}{port}", name.unwrap_or("the agent"));
        let sent = self.exchange.clone().oneshot(request).await;
        sent.map_err(|fault| match fault.downcast::<reqwest::Error>() {
            Ok(fault) if fault.is_connect() => Error::connect(*fault).at(&host),
            Ok(fault) => Error::broken("the connection was lost during the request", *fault),
            Err(fault) => Error::broken("the connection was lost during the request", fault),
        })
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl HttpEndpoint {
    pub(crate) fn new(
        http: Http,
        url: Url,
        dialect: Dialect,
        tenant: Option<TenantId>,
        proof: Proof,
        extensions: &[String],
    ) -> Result<Self, Error> {
        let mut headers = HeaderMap::new();
        let extensions_header = match dialect {
            Dialect::V1 => {
                headers.insert(VERSION_HEADER, HeaderValue::from_static("1.0"));
                EXTENSIONS_HEADER
            }
            Dialect::V03 | Dialect::V03Rest | Dialect::V01 => LEGACY_EXTENSIONS_HEADER,
        };
        if !extensions.is_empty() {
            let value = HeaderValue::try_from(extensions.join(", ")).map_err(|_| {
                Error::setup(
                    "the URI of an extension contains characters that a header cannot have",
                )
            })?;
            headers.insert(HeaderName::from_static(extensions_header), value);
        }
        Ok(Self { http, url, dialect, tenant, headers, proof })
    }

    /// The request of a call with the tenant of the interface. Versions before 1.0 have no tenants.
    pub(crate) fn request(&self, call: &Outgoing) -> Request {
        let mut request = call.request.clone();
        match (self.dialect, &self.tenant) {
            (Dialect::V1, Some(tenant)) if request.tenant().is_none() => {
                request.set_tenant(tenant.clone());
            }
            (Dialect::V1, _) => {}
            (Dialect::V03 | Dialect::V03Rest | Dialect::V01, _) => drop(request.take_tenant()),
        }
        if let (Dialect::V01, Request::SendMessage(send) | Request::SendStreamingMessage(send)) =
            (self.dialect, &mut request)
            && send.message.task_id.is_none()
        {
            // In 0.1 the client chooses the id of the task, and some servers require a session. A retried
            // message has the same id and therefore the same task.
            let id = send.message.message_id.as_str();
            send.own_task.get_or_insert_with(|| TaskId::from(id));
            send.message.context_id.get_or_insert_with(|| ContextId::from(id));
        }
        request
    }

    /// The current headers with credentials.
    pub(crate) fn proof(&self) -> HeaderMap {
        self.proof.headers()
    }

    /// All other headers of a call: those of the caller and of the protocol.
    pub(crate) fn headers(&self, call: &Outgoing) -> Result<HeaderMap, Error> {
        let mut headers = call.headers.clone();
        headers.extend(self.headers.clone());
        if let Some(cursor) = call.cursor.as_deref().and_then(|id| HeaderValue::try_from(id).ok()) {
            headers.insert("last-event-id", cursor);
        }
        if let Request::SendMessage(send) | Request::SendStreamingMessage(send) = &call.request
            && let Some(key) = &send.idempotency_key
        {
            let key = HeaderValue::try_from(key).map_err(|_| {
                Error::setup("the idempotency key contains characters that a header cannot have")
            })?;
            headers.insert("idempotency-key", key);
        }
        Ok(headers)
    }

    /// Credentials for the query.
    pub(crate) fn secrets(&self) -> &[(String, Secret)] {
        &self.proof.query
    }

    /// Sends a request to `url`, which is that of this endpoint or below it.
    pub(crate) async fn send(
        &self,
        call: &Outgoing,
        method: Method,
        mut url: Url,
        body: Option<Vec<u8>>,
    ) -> Result<Response<HttpBody>, Error> {
        for (name, secret) in self.secrets() {
            url.query_pairs_mut().append_pair(name, secret.expose());
        }
        let mut headers = self.headers(call)?;
        headers.extend(self.proof());
        let accept = if call.request.operation().is_streaming() {
            "text/event-stream, application/json;q=0.5"
        } else {
            "application/json, application/a2a+json"
        };
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        if body.is_some() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let body = body.unwrap_or_default().into();
        let response = self.http.send(request(method, &url, headers, body)?).await?;
        refuse_redirect(&response)?;
        Ok(response)
    }
}

/// One request.
pub(crate) fn request(
    method: Method,
    url: &Url,
    headers: HeaderMap,
    body: Bytes,
) -> Result<http::Request<Bytes>, Error> {
    let mut request = http::Request::new(body);
    *request.method_mut() = method;
    *request.headers_mut() = headers;
    *request.uri_mut() =
        url.as_str().parse().map_err(|_| Error::setup("the agent's URL cannot be called"))?;
    Ok(request)
}

/// Refuses redirects: they could lead credentials to another server.
pub(crate) fn refuse_redirect(response: &Response<HttpBody>) -> Result<(), Error> {
    let status = response.status();
    if !status.is_redirection() || status == StatusCode::NOT_MODIFIED {
        return Ok(());
    }
    let target = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    // The query may contain a secret.
    let target = target.unwrap_or_default().split(['?', '#']).next().unwrap_or_default();
    Err(Error::redirect(&target.chars().take(500).collect::<String>()))
}

/// Reads a whole body of at most `limit` bytes.
pub(crate) async fn read(mut body: HttpBody, limit: usize, what: &str) -> Result<Bytes, Error> {
    use http_body::Body as _;
    if body.size_hint().lower() > limit as u64 {
        return Err(Error::too_large(what, limit));
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|fault| {
            Error::broken("the connection was lost in the middle of the answer", fault)
        })?;
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > limit {
            return Err(Error::too_large(what, limit));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// The value of `Retry-After`, if it is in seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// True for a stream of server-sent events.
pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let content = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = content.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("text/event-stream")
}
