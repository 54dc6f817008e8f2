//! HTML start page of the server.

use std::fmt::Write;

use herald_engine::Profile;
use http::{HeaderValue, Response, StatusCode};

use crate::{
    body::{Body, respond},
    browser,
    shared::Shared,
};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:46rem;margin:3rem auto;\
padding:0 1rem;color:#1b1b1b;background:#fff}pre{background:#f4f4f4;padding:1rem;overflow:auto}\
@media(prefers-color-scheme:dark){body{color:#e6e6e6;background:#161616}pre{background:#242424}\
a{color:#8ab4f8}}";

/// The page about `profile`, whose endpoints are below `base`, and about `others` beside it.
pub(crate) fn answer(
    shared: &Shared,
    profile: &Profile,
    base: &str,
    others: &[(&Profile, String)],
) -> Response<Body> {
    let (name, about) = (escape(&profile.title), escape(&profile.description));
    let card = escape(&format!("{base}/.well-known/agent-card.json"));
    let curl = escape(&shared.curl(base));
    let mut html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{name}</title>\
         <style>{STYLE}</style><h1>{name}</h1><p>{about}</p>\
         <p>This is an A2A agent. Its card: <a href=\"{card}\">{card}</a></p>\
         <p>Send it a message:</p><pre>{curl}</pre>"
    );
    if !others.is_empty() {
        html.push_str("<h2>Agents</h2><ul>");
        for (profile, base) in others {
            let (name, about) = (escape(&profile.title), escape(&profile.description));
            let base = escape(base);
            // Writing to a string cannot fail.
            let _ = write!(html, "<li><a href=\"{base}/\">{name}</a>: {about}");
        }
        html.push_str("</ul>");
    }
    html.push_str("</html>\n");
    let mut response =
        respond(StatusCode::OK, HeaderValue::from_static("text/html; charset=utf-8"), html);
    let policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; \
                  base-uri 'none'; form-action 'none'";
    browser::protect_page(response.headers_mut(), HeaderValue::from_static(policy));
    response
}

fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ => escaped.push(letter),
        }
    }
    escaped
}
