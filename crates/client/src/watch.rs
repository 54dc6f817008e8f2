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
/// others has to leave those out.
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

/// The same exchange under the eyes of `watch`.
pub(crate) fn watched(exchange: Exchange, watch: Arc<dyn Watch>) -> Exchange {
    BoxCloneSyncService::new(tower::service_fn(move |request: Request<Bytes>| {
        let (exchange, watch) = (exchange.clone(), Arc::clone(&watch));
        async move {
            watch.request(&request);
            let begun = Instant::now();
            match exchange.oneshot(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    watch.response(&head, begun.elapsed());
                    Ok::<_, BoxError>(Response::from_parts(head, shown(body, watch)))
                }
                Err(error) => {
                    watch.failed(&*error);
                    Err(error)
                }
            }
        }
    }))
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
