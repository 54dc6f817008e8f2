//! CORS headers: the preflight response and the allowed origin.

use http::{HeaderValue, Response, StatusCode, header};

use crate::body::Body;

/// The response to a preflight request. The origin was checked before.
pub(crate) fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    let methods = HeaderValue::from_static("GET, HEAD, POST, DELETE, OPTIONS");
    headers.insert(header::ALLOW, methods.clone());
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    let names = "A2A-Version, A2A-Extensions, X-A2A-Extensions, Authorization, Content-Type, \
                 Idempotency-Key, Last-Event-ID";
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    response
}

/// Adds the headers that let a page of an allowed origin read the response.
pub(crate) fn allow_origin(response: &mut Response<Body>, origin: &str) {
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::try_from(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let names = "A2A-Extensions, X-A2A-Extensions, X-Request-Id, Retry-After, WWW-Authenticate";
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(names));
}
