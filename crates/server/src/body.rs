//! The body of a response: whole, or a stream of events.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{bind::sse::Events, socket::Busy};

/// The body of a response.
#[derive(Debug)]
pub struct Body {
    content: Content,
    /// Tells the connection that a response is under way, for as long as it is.
    busy: Option<Busy>,
}

#[derive(Debug)]
enum Content {
    Whole(Bytes),
    Events(Box<Events>),
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { content: Content::Whole(bytes.into()), busy: None }
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
        let bytes = match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => None,
            Content::Whole(bytes) => Some(std::mem::take(bytes)),
            Content::Events(events) => match events.poll_bytes(cx) {
                Poll::Ready(bytes) => bytes,
                Poll::Pending => return Poll::Pending,
            },
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::Events(events) => events.is_over(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::Events(_) => SizeHint::default(),
        }
    }
}
