//! Somebody who looks on.

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
    transport::http::{Body, Exchange},
};

/// Sees everything that goes over the wire, repeats and credentials included: whoever shows it to
/// others has to leave those out. Of what is said to authorization servers only the address and the
/// status are seen.
pub trait Watch: Send + Sync + 'static {
    /// A request goes out.
    fn request(&self, request: &Request<Bytes>);

    /// An answer begins, so long after its request.
    fn response(&self, head: &Parts, after: Duration);

    /// Whole lines of an answer are there, or its end: what a reader looks for is not cut in two. Only
    /// of a line beyond 1 MiB the beginning comes first.
    fn data(&self, bytes: &[u8]);

    /// There is no answer.
    fn failed(&self, error: &(dyn std::error::Error + 'static));
}

/// Marks a request that is made of secrets, and so is its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Private;

/// The same exchange under the eyes of `watch`.
pub(crate) fn watched(exchange: Exchange, watch: Arc<dyn Watch>) -> Exchange {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
        let (exchange, watch) = (exchange.clone(), Arc::clone(&watch));
        async move {
            let private = request.extensions().get::<Private>().is_some();
            match private {
                true => watch.request(&outline(&request)),
                false => watch.request(&request),
            }
            let begun = Instant::now();
            match exchange.oneshot(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let body = if private {
                        let mut outline = Response::new(()).into_parts().0;
                        outline.status = head.status;
                        watch.response(&outline, begun.elapsed());
                        body
                    } else {
                        watch.response(&head, begun.elapsed());
                        shown(body, watch)
                    };
                    Ok::<_, BoxError>(Response::from_parts(head, body))
                }
                Err(error) => {
                    watch.failed(&*error);
                    Err(error)
                }
            }
        }
    }))
}

/// Where a request goes, and nothing else of it.
fn outline(request: &Request<Bytes>) -> Request<Bytes> {
    let mut outline = Request::new(Bytes::new());
    outline.method_mut().clone_from(request.method());
    outline.uri_mut().clone_from(request.uri());
    outline
}

/// A body that is shown in whole lines while it is read.
struct Shown {
    body: Body,
    watch: Arc<dyn Watch>,
    held: Vec<u8>,
}

/// So much of a line is held back at most, and so much of a longer one stays held.
const LONGEST_LINE: usize = 1 << 20;
const TAIL: usize = 16 << 10;

fn shown(body: Body, watch: Arc<dyn Watch>) -> Body {
    Shown { body, watch, held: Vec::new() }.boxed_unsync()
}

impl Shown {
    fn take(&mut self, data: &[u8]) {
        // What was held has no line end in it.
        let line_end = data.iter().rposition(|byte| *byte == b'\n');
        let mut ready = line_end.map_or(0, |at| self.held.len() + at + 1);
        self.held.extend_from_slice(data);
        if self.held.len() - ready > LONGEST_LINE {
            ready = self.held.len() - TAIL;
        }
        if ready > 0 {
            let rest = self.held.split_off(ready);
            self.watch.data(&std::mem::replace(&mut self.held, rest));
        }
    }
}

impl http_body::Body for Shown {
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
            self.take(data);
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

impl Drop for Shown {
    fn drop(&mut self) {
        if !self.held.is_empty() {
            self.watch.data(&self.held);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use http_body_util::Empty;

    use super::*;

    #[derive(Default)]
    struct Seen(Mutex<Vec<Vec<u8>>>);

    impl Watch for Seen {
        fn request(&self, _request: &Request<Bytes>) {}
        fn response(&self, _head: &Parts, _after: Duration) {}
        fn failed(&self, _error: &(dyn std::error::Error + 'static)) {}

        fn data(&self, bytes: &[u8]) {
            self.0.lock().unwrap().push(bytes.to_vec());
        }
    }

    /// What is shown of a body that comes in these pieces.
    fn seen(pieces: &[&[u8]]) -> Vec<Vec<u8>> {
        let seen = Arc::new(Seen::default());
        let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
        let watch: Arc<dyn Watch> = Arc::clone(&seen) as _;
        let mut shown = Shown { body, watch, held: Vec::new() };
        pieces.iter().for_each(|piece| shown.take(piece));
        drop(shown);
        Arc::into_inner(seen).unwrap().0.into_inner().unwrap()
    }

    #[test]
    fn a_word_that_comes_in_pieces_is_shown_as_one() {
        let lines = seen(&[b"one\ntwo\nsec", b"ret", b"\nlast sec", b"ret"]);
        assert_eq!(lines, [&b"one\ntwo\n"[..], b"secret\n", b"last secret"]);
        let long = vec![b'x'; LONGEST_LINE];
        let pieces = seen(&[&long, b"secret"]);
        assert!(pieces[1].ends_with(b"xsecret"), "its end is held back");
        assert_eq!(pieces.concat().len(), LONGEST_LINE + 6);
    }
}
