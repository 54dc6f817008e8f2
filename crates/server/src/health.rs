//! Health endpoints: liveness and readiness.

use std::{sync::Arc, time::Duration};

use herald_engine::Engine;
use herald_protocol::Error;
use http::{HeaderValue, Response, StatusCode, header};

use tokio::{sync::Mutex, time::Instant};

use crate::{
    body::{Body, respond},
    refusal::Refusal,
    routes::{self, RouteTarget},
};

const PLAIN_TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The liveness answer, which is always `ok`.
pub(crate) fn live() -> Response<Body> {
    fresh(respond(StatusCode::OK, PLAIN_TEXT, "ok\n"))
}

/// True if this path probes the health of the server, over HTTP or gRPC.
pub(crate) fn is_probe(path: &str) -> bool {
    let found = routes::find(path).map(|matched| matched.target);
    matches!(found, Some(RouteTarget::Live | RouteTarget::Ready))
        || path == "/grpc.health.v1.Health/Check"
}

/// The time for which a readiness answer is cached. The endpoint is public, and each probe is a write.
const CACHED_FOR: Duration = Duration::from_secs(1);

/// The result of the last readiness probe.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadinessCache(Arc<Mutex<Option<ProbeResult>>>);

/// The time and the result of a probe.
type ProbeResult = (Instant, Result<(), Error>);

impl ReadinessCache {
    /// Probes the engine, unless a result is cached. Concurrent callers share one probe.
    pub(crate) async fn check(&self, engine: &Engine) -> Result<(), Error> {
        let mut last = self.0.lock().await;
        match &*last {
            Some((when, result)) if when.elapsed() < CACHED_FOR && !engine.is_draining() => {
                result.clone()
            }
            Some(_) | None => {
                let result = engine.ready().await;
                *last = Some((Instant::now(), result.clone()));
                result
            }
        }
    }
}

/// The readiness answer: the store takes writes, and the server does not shut down.
pub(crate) async fn ready(cache: &ReadinessCache, engine: &Engine) -> Response<Body> {
    fresh(match cache.check(engine).await {
        Ok(()) => respond(StatusCode::OK, PLAIN_TEXT, "ready\n"),
        Err(error) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.message).into_response(),
    })
}

/// The same response with `cache-control: no-store`.
pub(crate) fn fresh(mut response: Response<Body>) -> Response<Body> {
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    response
}
