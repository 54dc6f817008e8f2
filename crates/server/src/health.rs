//! Whether the process lives, and whether it would serve a call.

use http::{HeaderValue, Response, StatusCode, header};

use crate::{bind::respond, body::Body, refusal::Refusal, server::Shared};

/// Alive, whatever else.
pub(crate) fn live() -> Response<Body> {
    fresh(respond(StatusCode::OK, "text/plain; charset=utf-8", "ok\n"))
}

/// Able to serve: the store takes writes and no shutdown is under way.
pub(crate) async fn ready(shared: &Shared) -> Response<Body> {
    fresh(match shared.engine.ready().await {
        Ok(()) => respond(StatusCode::OK, "text/plain; charset=utf-8", "ready\n"),
        Err(error) => Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.message).into_response(),
    })
}

fn fresh(mut response: Response<Body>) -> Response<Body> {
    let never = HeaderValue::from_static("no-store");
    response.headers_mut().insert(header::CACHE_CONTROL, never);
    response
}
