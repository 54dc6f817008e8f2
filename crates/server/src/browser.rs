//! Protection of browsers: headers of pages, of `/api` and of downloads, and the check of the calling site.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::{body::Body, refusal::Refusal};

static RESOURCE_POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
static OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The policy of a reply that is not a page.
const DATA_POLICY: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// Media types that a browser shows without running anything in them. All others are bytes.
const PASSIVE: &[&str] = &[
    "application/json",
    "audio/mpeg",
    "audio/ogg",
    "audio/wav",
    "audio/webm",
    "image/avif",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "video/mp4",
    "video/ogg",
    "video/webm",
];

/// The longest file name of a download, in bytes.
const MAX_NAME: usize = 128;

/// Refuses a call that the page of another site made its browser send. `is_named` is true if the origin of the
/// page is allowed by name.
pub(crate) fn check_site(headers: &HeaderMap, is_named: bool) -> Result<(), Refusal> {
    let Some(site) = headers.get(&FETCH_SITE) else { return Ok(()) };
    if is_named || site == "same-origin" || site == "none" {
        return Ok(());
    }
    let text = "web pages of other sites are not allowed: add their origin to [server] allowed_origins in \
                herald.toml";
    Err(Refusal::new(StatusCode::FORBIDDEN, text))
}

/// Protects a page with its content policy.
pub(crate) fn protect_page(headers: &mut HeaderMap, policy: HeaderValue) {
    protect(headers, policy);
    headers.insert(&OPENER_POLICY, HeaderValue::from_static("same-origin"));
}

/// Protects a reply of the API.
pub(crate) fn protect_api(headers: &mut HeaderMap) {
    // A download has a policy of its own, and a stream its own rule for caches.
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        protect(headers, HeaderValue::from_static(DATA_POLICY));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(const { HeaderValue::from_static("no-store") });
}

fn protect(headers: &mut HeaderMap, policy: HeaderValue) {
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(&RESOURCE_POLICY, HeaderValue::from_static("same-origin"));
}

/// A response with a file that an agent or a caller made, such as a part of an artifact. It is inert: browsers
/// save it, and if one showed it, nothing in it could run, load or send anything.
pub fn download(bytes: impl Into<Bytes>, media_type: &str, name: &str) -> Response<Body> {
    let mut response = Response::new(Body::whole(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, content_type(media_type));
    headers.insert(header::CONTENT_DISPOSITION, disposition(name));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    protect(headers, HeaderValue::from_static(DATA_POLICY));
    response
}

/// The media type of a download: the given one if it is passive, plain text for other texts, else bytes.
fn content_type(given: &str) -> HeaderValue {
    let essence = given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if let Some(passive) = PASSIVE.iter().find(|passive| **passive == essence) {
        return HeaderValue::from_static(passive);
    }
    HeaderValue::from_static(match essence.starts_with("text/") {
        true => "text/plain; charset=utf-8",
        false => "application/octet-stream",
    })
}

/// The header that makes browsers save a file, with its name in both encodings of RFC 6266.
fn disposition(name: &str) -> HeaderValue {
    // The last segment of a path, for the systems of every reader.
    let name = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let name: String = name.chars().filter(|letter| !is_unsafe(*letter)).collect();
    let name = name.trim_matches(['.', ' ']);
    let name = &name[..name.floor_char_boundary(MAX_NAME)];
    let name = if name.is_empty() { "download" } else { name };
    let plain: String = name.chars().map(|one| if one.is_ascii() { one } else { '_' }).collect();
    let text = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", encoded(name));
    HeaderValue::try_from(text).expect("the name is printable ASCII")
}

/// True for letters that end a quoted text, are invisible, or reverse the direction of a name.
fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '"' | '%' | ';' | ':' | '*' | '?' | '<' | '>' | '|')
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A text with every byte escaped but letters, digits and a few signs (RFC 8187).
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(media_type: &str, name: &str) -> (String, String) {
        let response = download("bytes", media_type, name);
        let header = |name| response.headers()[name].to_str().unwrap().to_owned();
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("cache-control"), "no-store");
        assert_eq!(header("x-frame-options"), "DENY");
        assert_eq!(header("referrer-policy"), "no-referrer");
        assert_eq!(header("cross-origin-resource-policy"), "same-origin");
        let policy = header("content-security-policy");
        assert!(policy.contains("sandbox") && policy.contains("default-src 'none'"), "{policy}");
        (header("content-type"), header("content-disposition"))
    }

    #[test]
    fn no_download_has_a_type_that_a_browser_runs() {
        for (given, expected) in [
            ("image/png", "image/png"),
            ("application/json; charset=utf-8", "application/json"),
            ("text/html", "text/plain; charset=utf-8"),
            ("TEXT/HTML; charset=utf-7", "text/plain; charset=utf-8"),
            ("text/javascript", "text/plain; charset=utf-8"),
            ("image/svg+xml", "application/octet-stream"),
            ("application/xhtml+xml", "application/octet-stream"),
            ("application/javascript", "application/octet-stream"),
            ("application/pdf", "application/octet-stream"),
            ("multipart/x-mixed-replace", "application/octet-stream"),
            ("image/png\r\nX: y", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(saved(given, "a").0, expected, "{given}");
        }
    }

    #[test]
    fn the_name_of_a_download_is_one_harmless_segment() {
        for (given, plain, encoded) in [
            ("report.txt", "report.txt", "report.txt"),
            ("../../etc/passwd", "passwd", "passwd"),
            ("C:\\temp\\a.exe", "a.exe", "a.exe"),
            ("a\"; filename=\"b.html", "a filename=b.html", "a%20filename%3Db.html"),
            ("a\r\nSet-Cookie: x", "aSet-Cookie x", "aSet-Cookie%20x"),
            (".htaccess", "htaccess", "htaccess"),
            ("naïve ☃.txt", "na_ve _.txt", "na%C3%AFve%20%E2%98%83.txt"),
            ("gpj\u{202e}exe.scr", "gpjexe.scr", "gpjexe.scr"),
            ("..", "download", "download"),
            ("", "download", "download"),
        ] {
            let expected = format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{encoded}");
            assert_eq!(saved("text/plain", given).1, expected, "{given:?}");
        }
        assert!(saved("text/plain", &"ä".repeat(1000)).1.len() < 1000);
    }

    #[test]
    fn fuzz_every_name_and_type_gives_an_inert_download() {
        bolero::check!().with_type::<(String, String)>().for_each(|(media_type, name)| {
            let (_, disposition) = saved(media_type, name);
            assert!(disposition.starts_with("attachment; "));
        });
    }

    #[test]
    fn only_pages_of_this_site_and_of_allowed_origins_pass() {
        let check = |site: Option<&'static str>, is_named| {
            let site = site.map(|site| (FETCH_SITE.clone(), HeaderValue::from_static(site)));
            check_site(&site.into_iter().collect(), is_named).is_ok()
        };
        for site in [None, Some("same-origin"), Some("none")] {
            assert!(check(site, false), "{site:?}");
        }
        for site in ["cross-site", "same-site", "", "SAME-ORIGIN"] {
            assert!(!check(Some(site), false), "{site}");
            assert!(check(Some(site), true), "{site}");
        }
    }
}
