//! Wire tap: sees every request and response (for --debug).

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, response::Parts};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::time::Instant;
use tower::{ServiceExt, util::BoxCloneSyncService};

use crate::{
    error::BoxError,
    transport::http::{HttpBody, HttpService},
};

/// Receives every request and response, retries and credentials included: an implementation that prints
/// them has to redact the credentials. Of an exchange with an authorization server it gets the method,
/// the URL and the status only.
pub trait WireTap: Send + Sync + 'static {
    /// Called before a request is sent.
    fn request(&self, request: &Request<Bytes>);

    /// Called when the head of a response has arrived, `after` its request was sent.
    fn response(&self, head: &Parts, after: Duration);

    /// Called with whole lines of a response body, and with its rest at the end, so that no secret is
    /// split over two calls. A line longer than 1 MiB comes in several calls.
    fn data(&self, bytes: &[u8]);

    /// Called when a request fails without a response.
    fn failed(&self, error: &(dyn std::error::Error + 'static));
}

/// Request extension: the request and its response consist of secrets and are not shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Private;

/// An exchange that reports to `tap`.
pub(crate) fn tapped(exchange: HttpService, tap: Arc<dyn WireTap>) -> HttpService {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
        let (exchange, tap) = (exchange.clone(), Arc::clone(&tap));
        async move {
            let private = request.extensions().get::<Private>().is_some();
            if private {
                tap.request(&outline(&request));
            } else {
                tap.request(&request);
            }
            let begun = Instant::now();
            match exchange.oneshot(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let body = if private {
                        let mut outline = Response::new(()).into_parts().0;
                        outline.status = head.status;
                        tap.response(&outline, begun.elapsed());
                        body
                    } else {
                        tap.response(&head, begun.elapsed());
                        tapped_body(body, tap)
                    };
                    Ok::<_, BoxError>(Response::from_parts(head, body))
                }
                Err(error) => {
                    tap.failed(&*error);
                    Err(error)
                }
            }
        }
    }))
}

/// A copy of a request with its method and URL only.
fn outline(request: &Request<Bytes>) -> Request<Bytes> {
    let mut outline = Request::new(Bytes::new());
    outline.method_mut().clone_from(request.method());
    outline.uri_mut().clone_from(request.uri());
    outline
}

/// A body that passes whole lines to the tap while it is read.
struct TappedBody {
    body: HttpBody,
    tap: Arc<dyn WireTap>,
    held: Vec<u8>,
}

/// Bytes of an unfinished line that are held back at most, and bytes that stay held of a longer one.
const MAX_HELD: usize = 1 << 20;
const TAIL: usize = 16 << 10;

fn tapped_body(body: HttpBody, tap: Arc<dyn WireTap>) -> HttpBody {
    TappedBody { body, tap, held: Vec::new() }.boxed_unsync()
}

impl TappedBody {
    fn push(&mut self, data: &[u8]) {
        // The held bytes contain no line end, so only the new ones are searched.
        let line_end = data.iter().rposition(|byte| *byte == b'\n');
        let mut ready = line_end.map_or(0, |at| self.held.len() + at + 1);
        self.held.extend_from_slice(data);
        if self.held.len() - ready > MAX_HELD {
            ready = self.held.len() - TAIL;
        }
        if ready > 0 {
            let rest = self.held.split_off(ready);
            self.tap.data(&std::mem::replace(&mut self.held, rest));
        }
    }
}

impl http_body::Body for TappedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.push(data);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TappedBody {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            self.tap.data(&self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http_body_util::Empty;

    use super::*;

    #[derive(Default)]
    struct RecordingTap(Mutex<Vec<Vec<u8>>>);

    impl WireTap for RecordingTap {
        fn request(&self, _request: &Request<Bytes>) {}
        fn response(&self, _head: &Parts, _after: Duration) {}
        fn failed(&self, _error: &(dyn std::error::Error + 'static)) {}

        fn data(&self, bytes: &[u8]) {
            self.0.lock().unwrap().push(bytes.to_vec());
        }
    }

    /// The calls that a body in these pieces makes.
    fn seen(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let seen = Arc::new(RecordingTap::default());
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let tap: Arc<dyn WireTap> = Arc::clone(&seen) as _;
        let mut tapped = TappedBody { body, tap, held: Vec::new() };
        pieces.iter().for_each(|piece| tapped.push(piece));
        drop(tapped);
        Arc::into_inner(seen).unwrap().0.into_inner().unwrap()
    }

    #[test]
    fn a_secret_split_over_chunks_reaches_the_tap_whole() {
        let lines = seen(&[b"one\ntwo\nsec", b"ret", b"\nlast sec", b"ret"]);
        assert_eq!(lines, [&b"one\ntwo\n"[..], b"secret\n", b"last secret"]);
        let long = vec![b'x'; MAX_HELD];
        let pieces = seen(&[&long, b"secret"]);
        assert!(pieces[1].ends_with(b"xsecret"), "its end is held back");
        assert_eq!(pieces.concat().len(), MAX_HELD + 6);
    }
}
