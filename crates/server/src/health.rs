//! Whether the process lives, and whether it would serve a call.

use std::{sync::Arc, time::Duration};

use herald_engine::Engine;
use herald_protocol::Error;
use http::{HeaderValue, Response, StatusCode, header};

use tokio::{sync::Mutex, time::Instant};

use crate::{bind::respond, body::Body, refusal::Refusal, server::Shared};

/// Alive, whatever else.
pub(crate) fn live() -> Response<Body> {
    fresh(respond(StatusCode::OK, "text/plain; charset=utf-8", "ok\n"))
}

/// How long an answer about readiness holds. Anybody may ask, and each look is a write.
const HOLDS: Duration = Duration::from_secs(1);

/// The last look at whether the server could serve.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pulse(Arc<Mutex<Option<Look>>>);

/// When somebody looked, and what they found.
type Look = (Instant, Result<(), Error>);

impl Pulse {
    /// Looks, unless somebody just did. Those who ask meanwhile get the same answer.
    pub(crate) async fn take(&self, engine: &Engine) -> Result<(), Error> {
        let mut last = self.0.lock().await;
        match &*last {
            Some((when, found)) if when.elapsed() < HOLDS && !engine.is_draining() => found.clone(),
            Some(_) | None => {
                let found = engine.ready().await;
                *last = Some((Instant::now(), found.clone()));
                found
            }
        }
    }
}

/// Able to serve: the store takes writes and no shutdown is under way.
pub(crate) async fn ready(shared: &Shared) -> Response<Body> {
    fresh(match shared.pulse.take(&shared.engine).await {
        Ok(()) => respond(StatusCode::OK, "text/plain; charset=utf-8", "ready\n"),
        Err(error) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.message).into_response(),
    })
}

/// The same, never to be had from a cache.
pub(crate) fn fresh(mut response: Response<Body>) -> Response<Body> {
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    response
}
