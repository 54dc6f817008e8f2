//! REST transport (HTTP+JSON).

use async_trait::async_trait;
use bytes::Bytes;
use herald_protocol::{Operation, failure, rest};
use http::{Method, Response, StatusCode, response::Parts};

use super::{
    Answered, Transport,
    http::{HttpBody, HttpEndpoint, is_stream, read, retry_after},
    jsonrpc::absent,
    sse::{Sse, StreamFormat, first_event},
};
use crate::{call::Outgoing, error::Error};

/// REST interface of an agent.
#[derive(Debug)]
pub(crate) struct Rest {
    endpoint: HttpEndpoint,
}

impl Rest {
    pub(crate) fn new(endpoint: HttpEndpoint) -> Self {
        Self { endpoint }
    }

    async fn send(
        &self,
        call: &Outgoing,
        sent: &rest::RestCall,
    ) -> Result<Response<HttpBody>, Error> {
        let mut url = self.endpoint.url.clone();
        let (path, query) = match sent.path.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (sent.path.as_str(), None),
        };
        let path = format!("{}{path}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        url.set_query(query);
        let method = match sent.method {
            "GET" => Method::GET,
            "DELETE" => Method::DELETE,
            _ => Method::POST,
        };
        self.endpoint.send(call, method, url, sent.body.clone()).await
    }

    /// The error in an answer that is not a success, if it is the agent's.
    fn refusal(&self, parts: &Parts, bytes: &[u8]) -> Option<Error> {
        let event = if is_stream(&parts.headers) { first_event(bytes) } else { None };
        let bytes = event.as_deref().map_or(bytes, str::as_bytes);
        let error = failure::rest(self.endpoint.dialect, parts.status.as_u16(), bytes)?;
        Some(Error::refused_with(parts.status, error).waiting(retry_after(&parts.headers)))
    }
}

#[async_trait]
impl Transport for Rest {
    async fn call(&self, call: &Outgoing) -> Result<Answered, Error> {
        let HttpEndpoint { dialect, http, .. } = &self.endpoint;
        let operation = call.request.operation();
        let mut sent = rest::call(*dialect, self.endpoint.request(call))
            .ok_or_else(|| absent(dialect.version()))?;
        loop {
            let response = self.send(call, &sent).await?;
            let (parts, body) = response.into_parts();
            let good = parts.status.is_success();
            if good && operation.is_streaming() && is_stream(&parts.headers) {
                let frames = Sse::new(body, http.clone(), StreamFormat::Rest(*dialect));
                return Ok(Answered::Frames(Box::new(frames)));
            }
            let bytes = read(body, http.limits.response, "the answer").await?;
            if good {
                return reply(*dialect, operation, &bytes);
            }
            if let Some(error) = self.refusal(&parts, &bytes) {
                return Err(error);
            }
            // The specification's text has POST and its protobuf has GET; some servers have only one.
            let unknown = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED];
            let other = operation == Operation::SubscribeToTask && sent.method == "POST";
            if !other || !unknown.contains(&parts.status) {
                let text = String::from_utf8_lossy(&bytes);
                return Err(Error::bad_status(parts.status.as_u16(), &text)
                    .waiting(retry_after(&parts.headers)));
            }
            sent = rest::RestCall { method: "GET", body: None, ..sent };
        }
    }
}

fn reply(
    dialect: herald_protocol::Dialect,
    operation: Operation,
    bytes: &Bytes,
) -> Result<Answered, Error> {
    if failure::is_error(bytes)
        && let Some(error) = failure::rest(dialect, 500, bytes)
    {
        return Err(Error::refused(error));
    }
    let reply = dialect.decode_reply(operation, bytes);
    reply.map(Box::new).map(Answered::Reply).map_err(|error| Error::unreadable(&error))
}
