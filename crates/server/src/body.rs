//! Response body: bytes or a stream of events, with or without trailers.

use std::{
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body::{Body as _, Frame, SizeHint};

use crate::{
    activity::Busy, bind::stream::EventBody, caller_limits::StreamPermit, h2_stall::StallTimer,
    limits::Pieces,
};

/// The body of a response.
#[derive(Debug)]
pub struct Body {
    content: BodyContent,
    /// Marks the connection as busy until the response is dropped.
    busy: Option<Busy>,
    /// The stall timer of its request, on HTTP/2.
    stall_timer: Option<StallTimer>,
}

#[derive(Debug)]
enum BodyContent {
    /// Bytes, and the trailers after them.
    Whole(Pieces, Option<Box<HeaderMap>>),
    Events(Box<EventBody>),
    /// A body that another library produces, and its permit.
    Foreign {
        body: tonic::body::Body,
        _permit: StreamPermit,
    },
}

impl Body {
    pub(crate) fn empty() -> Self {
        Self::whole(Bytes::new())
    }

    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self {
            content: BodyContent::Whole(Pieces::new(bytes.into()), None),
            busy: None,
            stall_timer: None,
        }
    }

    /// Bytes with trailers after them.
    pub(crate) fn trailed(bytes: Bytes, trailers: HeaderMap) -> Self {
        Self {
            content: BodyContent::Whole(Pieces::new(bytes), Some(Box::new(trailers))),
            busy: None,
            stall_timer: None,
        }
    }

    /// A body of another library.
    pub(crate) fn foreign(body: tonic::body::Body, permit: StreamPermit) -> Self {
        Self {
            content: BodyContent::Foreign { body, _permit: permit },
            busy: None,
            stall_timer: None,
        }
    }

    pub(crate) fn events(events: EventBody) -> Self {
        Self { content: BodyContent::Events(Box::new(events)), busy: None, stall_timer: None }
    }

    pub(crate) fn with_connection(
        mut self,
        busy: Option<Busy>,
        stall_timer: Option<StallTimer>,
    ) -> Self {
        (self.busy, self.stall_timer) = (busy, stall_timer);
        self
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame<Bytes>>> {
        Poll::Ready(match &mut self.content {
            BodyContent::Whole(pieces, trailers) => match pieces.next() {
                Some(piece) => Some(Frame::data(piece)),
                None => trailers.take().map(|trailers| Frame::trailers(*trailers)),
            },
            BodyContent::Events(events) => ready!(events.poll_frame(cx)),
            // Its errors are in its trailers.
            BodyContent::Foreign { body, .. } => {
                ready!(Pin::new(body).poll_frame(cx)).and_then(Result::ok)
            }
        })
    }
}

/// The media type of JSON.
pub(crate) const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// A response with a body of this type.
pub(crate) fn respond(
    status: StatusCode,
    content_type: HeaderValue,
    body: impl Into<Bytes>,
) -> Response<Body> {
    let mut response = Response::new(Body::whole(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, content_type);
    response
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.poll_next(cx);
        if let Some(stall_timer) = &self.stall_timer {
            match next {
                Poll::Ready(_) => stall_timer.offered(),
                Poll::Pending => stall_timer.idle(),
            }
        }
        next.map(|frame| frame.map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            BodyContent::Whole(pieces, trailers) => pieces.len() == 0 && trailers.is_none(),
            BodyContent::Events(events) => events.is_over(),
            BodyContent::Foreign { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            BodyContent::Whole(pieces, None) => SizeHint::with_exact(pieces.len() as u64),
            BodyContent::Whole(_, Some(_))
            | BodyContent::Events(_)
            | BodyContent::Foreign { .. } => SizeHint::default(),
        }
    }
}
