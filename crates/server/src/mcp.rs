//! MCP binding (Model Context Protocol): agents and tasks as tools, over streamable HTTP.
//!
//! The SDK reads the messages and negotiates the version of the protocol. It gets a request only after the checks that
//! all bindings share: Host, Origin, credentials, limits. There are no sessions: each request has its own handler, and
//! its reply is one JSON document.

mod agents;
mod arguments;
mod call;
mod catalog;
mod coding;
mod handler;
mod registry;
mod reply;
mod skills;
mod tasks;
mod untrusted;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use herald_protocol::{Dialect, Error, ErrorKind, jsonrpc::RequestId};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use tokio::time::timeout;
use tracing::Span;

use self::{call::McpCall, handler::ToolHandler};
use crate::{
    bind::{Exchange, jsonrpc},
    body::{Body, JSON, respond},
    guard,
    limits::UnreadBody,
    shared::Shared,
};

/// The most values in a message, and their greatest depth. The SDK reads a message into a tree, in which a value takes
/// many times its bytes.
const MAX_VALUES: usize = 10_000;
const MAX_DEPTH: usize = 64;

/// The longest time for the SDK to reply. Tools wait less.
const REPLY: Duration = Duration::from_secs(60);

/// The most characters of a refusal of the SDK.
const MAX_REFUSAL: usize = 500;

/// The beginning of the header names that the SDK reads.
const MCP_HEADERS: &str = "mcp-";

/// Answers a POST to `/mcp`. `is_local` is true if only the local user can have sent it.
pub(crate) async fn answer<B>(
    shared: &Arc<Shared>,
    exchange: &Exchange<'_>,
    is_local: bool,
    body: B,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes>,
{
    let caller = match exchange.caller().await {
        Ok(caller) => caller,
        Err(error) => return refuse(exchange, error),
    };
    if let Some(text) = guard::refuse_content(&exchange.parts.headers) {
        let error = Error::new(ErrorKind::ContentTypeNotSupported, text);
        let mut response = refuse(exchange, error);
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    let (body, reservation) = match exchange.read_body(&caller, body, 0).await {
        Ok(read) => read,
        Err(UnreadBody::TooSlow) => return jsonrpc::too_slow(),
        Err(unread) => return refuse(exchange, unread.into()),
    };
    if let Err(error) = check_shape(&body) {
        return refuse(exchange, error);
    }
    let call = Arc::new(McpCall {
        shared: Arc::clone(shared),
        parts: exchange.parts.clone(),
        id: exchange.id,
        ingress: exchange.ingress,
        caller: caller.clone(),
        is_local,
        reservation: Mutex::new(reservation),
    });
    let span = Span::current();
    let service = StreamableHttpService::new(
        move || Ok(ToolHandler { call: Arc::clone(&call), span: span.clone() }),
        Arc::new(NeverSessionManager::default()),
        // The host and the origin are checked already, and the body is within its limit.
        StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .disable_allowed_hosts()
            .with_max_request_body_bytes(usize::MAX),
    );
    let Ok(replied) = timeout(REPLY, service.handle(inner(exchange, body))).await else {
        return refuse(exchange, Error::new(ErrorKind::Internal, "the tool did not reply in time"));
    };
    let (head, body) = replied.into_parts();
    let body = body.collect().await.unwrap_or_default().to_bytes();
    let kind = head.headers.get(header::CONTENT_TYPE);
    if head.status.is_client_error() && kind.is_none_or(|kind| *kind != JSON) {
        return invalid(exchange, head.status, &body);
    }
    let body = match exchange.hold(body.into(), &caller) {
        Ok(body) => body,
        Err(error) => return refuse(exchange, error),
    };
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = head.status;
    if let Some(kind) = kind {
        response.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
    }
    response
}

/// The request for the SDK: without credentials, which it could log.
fn inner(exchange: &Exchange<'_>, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    let headers = request.headers_mut();
    let named = |name: &HeaderName| name.as_str().starts_with(MCP_HEADERS);
    for (name, value) in exchange.parts.headers.iter().filter(|(name, _)| named(name)) {
        headers.append(name, value.clone());
    }
    headers.insert(header::HOST, HeaderValue::from_static("localhost"));
    headers.insert(header::CONTENT_TYPE, JSON);
    // Every reply is JSON, whatever the client prefers, and the SDK refuses a request that does not accept both.
    let both = HeaderValue::from_static("application/json, text/event-stream");
    headers.insert(header::ACCEPT, both);
    request
}

/// Refuses a message that is not JSON, or whose tree would take too much memory.
fn check_shape(body: &[u8]) -> Result<(), Error> {
    let (mut values, mut depth, mut deepest) = (1, 0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in body {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                values += 1;
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => values += 1,
            _ => {}
        }
    }
    if values > MAX_VALUES || deepest > MAX_DEPTH {
        let text = format!(
            "a message may have at most {MAX_VALUES} values, nested at most {MAX_DEPTH} deep"
        );
        return Err(Error::new(ErrorKind::TooLarge, text));
    }
    serde_json::from_slice::<serde::de::IgnoredAny>(body).map(|_| ()).map_err(|fault| {
        let (line, column) = (fault.line(), fault.column());
        let text = format!("the message is not JSON (line {line}, column {column})");
        Error::new(ErrorKind::Parse, text)
    })
}

/// The refusal of the SDK, which it gives as plain text, as an error of JSON-RPC.
fn invalid(exchange: &Exchange<'_>, status: StatusCode, text: &[u8]) -> Response<Body> {
    let text = untrusted::line(&String::from_utf8_lossy(text), MAX_REFUSAL);
    let error = Error::new(ErrorKind::InvalidRequest, text);
    let mut response = refuse(exchange, error);
    // JSON that is not a message of the protocol has the right media type.
    if status != StatusCode::UNSUPPORTED_MEDIA_TYPE {
        *response.status_mut() = status;
    }
    response
}

/// An error before a tool is called, under its own HTTP status.
fn refuse(exchange: &Exchange<'_>, error: Error) -> Response<Body> {
    let error = exchange.explain(error);
    let status = StatusCode::from_u16(error.kind.codes().http);
    let status = status.expect("the error table has statuses of HTTP");
    let body = Dialect::V1.encode_error(&RequestId::null(), &error);
    let mut response = respond(status, JSON, body);
    exchange.mark(response.headers_mut(), error.kind, error.retry_delay());
    if error.kind == ErrorKind::TooLarge {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_of_a_message_is_limited() {
        let kind = |text: &str| check_shape(text.as_bytes()).map_err(|error| error.kind);
        let text = format!(r#"{{"a": "{}"}}"#, r#"[{,\"\\"#.repeat(20_000));
        assert_eq!(kind(&text), Ok(()));
        assert_eq!(kind(&format!("[{}0]", "0,".repeat(9_990))), Ok(()));
        assert_eq!(kind(&format!("[{}0]", "0,".repeat(10_000))), Err(ErrorKind::TooLarge));
        assert_eq!(kind(&"[".repeat(65)), Err(ErrorKind::TooLarge));
        assert_eq!(kind(&format!("{}{}", "[".repeat(64), "]".repeat(64))), Ok(()));
        for text in ["", "{", "nothing", "{} {}", "\u{1}"] {
            assert_eq!(kind(text), Err(ErrorKind::Parse), "{text:?}");
        }
    }
}
