//! JSON-RPC over HTTP transport.

use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use herald_protocol::{
    Error as Refusal, ErrorKind,
    jsonrpc::{self, NoResult},
};
use http::Method;

use super::{
    Answered, Transport,
    http::{HttpEndpoint, is_stream, read, retry_after},
    sse::{Sse, StreamFormat, first_event},
};
use crate::{call::Outgoing, error::Error};

/// JSON-RPC interface of an agent.
#[derive(Debug)]
pub(crate) struct JsonRpc {
    endpoint: HttpEndpoint,
    calls: AtomicU64,
}

impl JsonRpc {
    pub(crate) fn new(endpoint: HttpEndpoint) -> Self {
        Self { endpoint, calls: AtomicU64::new(0) }
    }
}

#[async_trait]
impl Transport for JsonRpc {
    async fn call(&self, call: &Outgoing) -> Result<Answered, Error> {
        let HttpEndpoint { url, dialect, http, .. } = &self.endpoint;
        let operation = call.request.operation();
        let method = dialect.method(operation).ok_or_else(|| absent(dialect.version()))?;
        let id = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let params = dialect.encode_request(&self.endpoint.request(call));
        let body = jsonrpc::call(id, method, &params);
        let response = self.endpoint.send(call, Method::POST, url.clone(), Some(body)).await?;
        let (parts, body) = response.into_parts();
        let (good, streams) = (parts.status.is_success(), is_stream(&parts.headers));
        if good && streams && operation.is_streaming() {
            let frames = Sse::new(body, http.clone(), StreamFormat::Rpc(*dialect, id));
            return Ok(Answered::Frames(Box::new(frames)));
        }
        let bytes = read(body, http.limits.response, "the answer").await?;
        let event = if streams { first_event(&bytes) } else { None };
        let bytes = event.as_deref().map_or(&*bytes, str::as_bytes);
        let failed = || {
            Error::bad_status(parts.status.as_u16(), &String::from_utf8_lossy(bytes))
                .waiting(retry_after(&parts.headers))
        };
        match jsonrpc::result_of(*dialect, id, bytes) {
            Ok(result) if good => {
                let reply = dialect.decode_reply(operation, result);
                reply.map(Box::new).map(Answered::Reply).map_err(|error| Error::unreadable(&error))
            }
            Ok(_) => Err(failed()),
            Err(NoResult::Refused(error)) => {
                Err(Error::refused_with(parts.status, error).waiting(retry_after(&parts.headers)))
            }
            Err(NoResult::Malformed(error)) if good => Err(Error::unreadable(&error)),
            Err(NoResult::Malformed(_)) => Err(failed()),
        }
    }
}

/// The error for an operation that the version does not have.
pub(super) fn absent(version: herald_protocol::Version) -> Error {
    let text = format!("the agent has A2A {version}, which does not have this operation");
    Error::refused(Refusal::new(ErrorKind::UnsupportedOperation, text))
}
