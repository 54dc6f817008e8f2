//! Streams as server-sent events. The reader is pulled by the connection: there is no task and no
//! channel between the log and the socket, so a slow peer slows only its own reader.

use std::time::Duration;

use herald_engine::{Item, Subscription, store::Owner};
use herald_protocol::{Dialect, Error, TaskId, jsonrpc::RequestId, sse};
use http::{HeaderValue, Response, StatusCode, header};
use uuid::Uuid;

use crate::{
    bind::{
        cursor, respond,
        stream::{Events, Out},
        translate::Translator,
    },
    body::Body,
    limits::KeyedPermit,
};

/// How an event looks on its binding.
#[derive(Debug)]
pub(crate) struct Framing {
    pub(crate) dialect: Dialect,
    /// The call each event answers; `None` on REST.
    pub(crate) call: Option<RequestId>,
    /// Names the request to its caller if something goes wrong.
    pub(crate) id: Uuid,
}

/// The response that carries the stream of one task.
pub(crate) fn response(
    events: Subscription,
    framing: Framing,
    every: Duration,
    permit: Option<KeyedPermit<Owner>>,
) -> Response<Body> {
    carry(|out| follow(events, framing, out), every, permit)
}

/// The response that carries what `read` writes until it ends.
pub(crate) fn carry<F>(
    read: impl FnOnce(Out) -> F,
    every: Duration,
    permit: Option<KeyedPermit<Owner>>,
) -> Response<Body>
where
    F: Future<Output = ()> + Send + 'static,
{
    let read = |out| {
        let written = read(out);
        async {
            written.await;
            None
        }
    };
    let stream = Events::new(read, permit);
    let mut response = Response::new(Body::events(stream.beating(sse::KEEP_ALIVE, every)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// A stream that holds nothing but an error.
pub(crate) fn refusal(status: StatusCode, body: &[u8]) -> Response<Body> {
    let mut out = Vec::new();
    sse::frame(&mut out, None, None, body);
    let mut response = respond(status, "text/event-stream", out);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Writes events until there are no more.
async fn follow(mut events: Subscription, framing: Framing, out: Out) {
    let prefix = cursor::prefix(events.task_id());
    let mut translator = match Translator::new(framing.dialect, &events).await {
        Ok(translator) => translator,
        Err(error) => return framing.failure(&mut out.lock(), events.task_id(), error),
    };
    loop {
        let framed = match events.next().await {
            Ok(Some(item)) => {
                let framed = framing.item(&mut out.lock(), &mut translator, &prefix, &item);
                framed.map(|()| item.reservation)
            }
            Ok(None) => return,
            Err(error) => Err(error),
        };
        match framed {
            Ok(reservation) => out.ready(reservation).await,
            Err(error) => {
                framing.failure(&mut out.lock(), events.task_id(), error);
                return;
            }
        }
    }
}

impl Framing {
    fn item(
        &self,
        out: &mut Vec<u8>,
        translator: &mut Translator,
        prefix: &str,
        item: &Item,
    ) -> Result<(), Error> {
        let id = format!("{prefix}{}", item.seq);
        let items = translator.items(item)?;
        // Who has seen the id has seen the whole event.
        let last = items.len().saturating_sub(1);
        for (index, (name, body)) in items.iter().enumerate() {
            let id = Some(id.as_str()).filter(|_| index == last);
            self.frame(out, id, *name, body);
        }
        Ok(())
    }

    fn frame(&self, out: &mut Vec<u8>, id: Option<&str>, name: Option<&str>, body: &[u8]) {
        match &self.call {
            Some(call) => sse::frame(out, id, name, &herald_protocol::jsonrpc::result(call, body)),
            None => sse::frame(out, id, name, body),
        }
    }

    /// The last event of a stream that broke. It has no id, so that a client resumes after the last
    /// real one.
    fn failure(&self, out: &mut Vec<u8>, task: &TaskId, error: Error) {
        tracing::warn!(%task, %error, "a stream broke off");
        let error = error.with("requestId", self.id);
        let body = match &self.call {
            Some(call) => self.dialect.encode_error(call, &error),
            None => self.dialect.encode_status(&error),
        };
        sse::frame(out, None, Some("error"), &body);
    }
}
