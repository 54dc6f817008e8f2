//! Somebody who looks on.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response, response::Parts};
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

    /// A piece of an answer is there.
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

fn shown(body: Body, watch: Arc<dyn Watch>) -> Body {
    body.map_frame(move |frame| {
        if let Some(data) = frame.data_ref() {
            watch.data(data);
        }
        frame
    })
    .boxed_unsync()
}
