//! The body of a response: whole, or a stream of events, with or without trailers.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use herald_engine::store::Owner;
use http::HeaderMap;
use http_body::{Frame, SizeHint};

use crate::{bind::stream::Events, limits::Slot, socket::Busy};

/// The body of a response.
#[derive(Debug)]
pub struct Body {
    content: Content,
    /// Tells the connection that a response is under way, for as long as it is.
    busy: Option<Busy>,
}

#[derive(Debug)]
enum Content {
    /// Bytes, and the trailers after them.
    Whole(Bytes, Option<Box<HeaderMap>>),
    Events(Box<Events>),
    /// What is made elsewhere, and its place among the caller's streams.
    Foreign {
        body: tonic::body::Body,
        _slot: Slot<Owner>,
    },
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(bytes.into(), None), busy: None }
    }

    /// Bytes with trailers after them.
    pub(crate) fn trailed(bytes: Bytes, trailers: HeaderMap) -> Self {
        Self { content: Content::Whole(bytes, Some(Box::new(trailers))), busy: None }
    }

    /// A stream that is made elsewhere.
    pub(crate) fn foreign(body: tonic::body::Body, slot: Slot<Owner>) -> Self {
        Self { content: Content::Foreign { body, _slot: slot }, busy: None }
    }

    pub(crate) fn events(events: Events) -> Self {
        Self { content: Content::Events(Box::new(events)), busy: None }
    }

    pub(crate) fn keeping(mut self, busy: Busy) -> Self {
        self.busy = Some(busy);
        self
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let frame = match &mut self.content {
            Content::Whole(bytes, trailers) if bytes.is_empty() => {
                trailers.take().map(|trailers| Frame::trailers(*trailers))
            }
            Content::Whole(bytes, _) => Some(Frame::data(std::mem::take(bytes))),
            Content::Events(events) => ready!(events.poll_frame(cx)),
            // What goes wrong there is told in its trailers.
            Content::Foreign { body, .. } => {
                ready!(Pin::new(body).poll_frame(cx)).and_then(Result::ok)
            }
        };
        Poll::Ready(frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes, trailers) => bytes.is_empty() && trailers.is_none(),
            Content::Events(events) => events.is_over(),
            Content::Foreign { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes, None) => SizeHint::with_exact(bytes.len() as u64),
            Content::Whole(_, Some(_)) | Content::Events(_) | Content::Foreign { .. } => {
                SizeHint::default()
            }
        }
    }
}
