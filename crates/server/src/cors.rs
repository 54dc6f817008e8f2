//! CORS: preflight requests and the allowed origin. Cookies are never used, so that no response allows
//! credentials; a page sends its token in a header, which a preflight has to allow.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};

use crate::{body::Body, refusal::Refusal};

/// Methods of the server's endpoints.
const METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
/// Headers of requests that mean something here.
const REQUEST_HEADERS: &str = "A2A-Version, A2A-Extensions, X-A2A-Extensions, Authorization, X-API-Key, \
                               Content-Type, Idempotency-Key, Last-Event-ID, If-None-Match, Traceparent, \
                               Tracestate, MCP-Protocol-Version, Mcp-Method, Mcp-Name";
/// Headers of responses that a page may read.
const RESPONSE_HEADERS: &str = "A2A-Extensions, X-A2A-Extensions, X-Request-Id, Retry-After, \
                                WWW-Authenticate, ETag, Content-Disposition";
/// Headers that every page may send (those of the Fetch standard).
const SAFE_HEADERS: &str = "Accept, Accept-Language, Content-Language, Range";

/// The response to a request with the method OPTIONS. The origin was checked before. A preflight for an
/// unknown method or header is refused.
pub(crate) fn preflight(request: &HeaderMap) -> Result<Response<Body>, Refusal> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ALLOW, HeaderValue::from_static(METHODS));
    let Some(method) = request.get(header::ACCESS_CONTROL_REQUEST_METHOD) else {
        return Ok(response);
    };
    let refused = |what: &str, name: &str| {
        let text = format!("the {what} {name:?} is not available to web pages of other origins");
        Refusal::new(StatusCode::FORBIDDEN, text)
    };
    let method = method.to_str().unwrap_or_default();
    if !words(METHODS).any(|known| known == method) {
        return Err(refused("method", method));
    }
    for value in request.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        let mut wanted = words(value.to_str().unwrap_or("?")).filter(|name| !name.is_empty());
        if let Some(unknown) = wanted.find(|name| !is_known(name)) {
            return Err(refused("header", unknown));
        }
    }
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_METHODS, METHODS),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, REQUEST_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, "600"),
        (header::VARY, "Access-Control-Request-Method, Access-Control-Request-Headers"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

fn words(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim)
}

fn is_known(name: &str) -> bool {
    words(REQUEST_HEADERS).chain(words(SAFE_HEADERS)).any(|known| known.eq_ignore_ascii_case(name))
}

/// Adds the headers that let a page of an allowed origin read the response.
pub(crate) fn allow_origin(response: &mut Response<Body>, origin: &str) {
    let headers = response.headers_mut();
    if let Ok(origin) = HeaderValue::try_from(origin) {
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    let names = HeaderValue::from_static(RESPONSE_HEADERS);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, names);
}
