//! Server-sent event stream of one call.

use std::{collections::VecDeque, fmt};

use async_trait::async_trait;
use bytes::Bytes;
use herald_protocol::{
    Dialect, failure,
    jsonrpc::{NoResult, result_of},
    sse,
};
use http_body_util::BodyExt;
use tokio::time::timeout;

use super::{
    Frame, Frames,
    http::{Http, HttpBody},
};
use crate::error::Error;

/// The events of one response.
pub(crate) struct Sse {
    /// `None` once the response has ended.
    body: Option<HttpBody>,
    parser: sse::Parser,
    ready: VecDeque<sse::SseEvent>,
    http: Http,
    format: StreamFormat,
}

/// Format of the events.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamFormat {
    /// Answers to the JSON-RPC call with this id.
    Rpc(Dialect, u64),
    /// Plain items.
    Rest(Dialect),
}

impl Sse {
    pub(crate) fn new(body: HttpBody, http: Http, format: StreamFormat) -> Self {
        let parser = sse::Parser::new(http.limits.event);
        Self { body: Some(body), parser, ready: VecDeque::new(), http, format }
    }

    /// The next bytes. Keep-alive comments count, so that a quiet task does not time out.
    async fn bytes(&mut self) -> Result<Option<Bytes>, Error> {
        let idle = self.http.timeouts.idle;
        loop {
            let Some(body) = &mut self.body else { return Ok(None) };
            let frame = timeout(idle, body.frame()).await;
            let frame = frame.map_err(|_| Error::timeout("the stream sent nothing", idle))?;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(fault)) => {
                    return Err(Error::broken(
                        "the connection was lost in the middle of the stream",
                        fault,
                    ));
                }
                None => self.body = None,
            }
        }
    }
}

#[async_trait]
impl Frames for Sse {
    async fn next(&mut self) -> Result<Option<Frame>, Error> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if !event.data.trim().is_empty() {
                    return self.format.read(&event).map(Some);
                }
            }
            // An endless series of ignored events must not keep deadlines from being checked.
            tokio::task::coop::consume_budget().await;
            let Some(bytes) = self.bytes().await? else { return Ok(None) };
            let mut events = Vec::new();
            self.parser
                .push(&bytes, &mut events)
                .map_err(|_| Error::too_large("an event", self.http.limits.event))?;
            self.ready.extend(events);
        }
    }
}

impl fmt::Debug for Sse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sse").field("open", &self.body.is_some()).finish_non_exhaustive()
    }
}

impl StreamFormat {
    fn read(self, event: &sse::SseEvent) -> Result<Frame, Error> {
        let data = event.data.as_bytes();
        let (dialect, item) = match self {
            Self::Rpc(dialect, id) => match result_of(dialect, id, data) {
                Ok(item) => (dialect, item),
                Err(NoResult::Refused(error)) => return Err(Error::refused(error)),
                Err(NoResult::Malformed(error)) => return Err(Error::unreadable(&error)),
            },
            Self::Rest(dialect) => {
                if event.event.as_deref() == Some("error") || failure::is_error(data) {
                    let error = failure::rest(dialect, 500, data);
                    return Err(error.map_or_else(
                        || Error::invalid("the stream ended with an error that cannot be read"),
                        Error::refused,
                    ));
                }
                (dialect, data)
            }
        };
        let item = dialect.decode_event(item).map_err(|error| Error::unreadable(&error))?;
        Ok(Frame { cursor: event.id.as_deref().map(str::to_owned), event: item })
    }
}

/// The data of the first event in a whole body, for errors that come as a stream.
pub(crate) fn first_event(body: &[u8]) -> Option<String> {
    let mut events = Vec::new();
    sse::Parser::new(body.len() + 1).push(body, &mut events).ok()?;
    events.into_iter().next().map(|event| event.data)
}
