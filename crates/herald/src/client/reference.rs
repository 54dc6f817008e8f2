//! References to agents: a host, a URL, a file or a program.

use std::{net::IpAddr, path::Path};

use herald_client::Source;

use crate::client::error::{CliError, CliErrorKind};

/// The possible sources of the card, the likeliest first.
pub(crate) fn places(reference: &str) -> Result<Vec<Source>, CliError> {
    if reference.starts_with("file://") || reference.starts_with(PROGRAM) {
        return Ok(vec![Source::parse(reference).map_err(|error| unresolved(&error))?]);
    }
    let url = match reference.split_once("://") {
        Some(("http" | "https", _)) => reference.to_owned(),
        Some(_) => {
            let text = format!("{reference:?} is not an agent's URL: use http, https or file");
            return Err(CliError::new(CliErrorKind::CardNotFound, text).hint(FORMS));
        }
        None if is_path(reference) => return Ok(vec![Source::File(path(reference))]),
        None if is_loopback(reference) => format!("http://{reference}"),
        None => format!("https://{reference}"),
    };
    let exact = Source::exact(&url).map_err(|error| unresolved(&error))?;
    let below = Source::parse(&url).map_err(|error| unresolved(&error))?;
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let bare = rest.trim_end_matches('/').find(['/', '?']).is_none();
    if bare {
        Ok(vec![below])
    } else if exact == below {
        Ok(vec![exact])
    } else {
        // It may be a card under any name, or an agent below a path.
        Ok(vec![exact, below])
    }
}

/// A host or a URL as a URL. A bare host of this machine means http.
pub(crate) fn with_scheme(text: &str) -> Result<String, &'static str> {
    match text.split_once("://") {
        Some(("http" | "https", _)) => Ok(text.to_owned()),
        Some(_) => Err("use http or https"),
        None if text.is_empty() => Err("it is empty"),
        None if is_loopback(text) => Ok(format!("http://{text}")),
        None => Ok(format!("https://{text}")),
    }
}

/// The prefix of a program that is an agent.
pub(crate) const PROGRAM: &str = "stdio:";

const FORMS: &str = "give a host (localhost:8000), the URL of a card, or a file (./card.json)";

/// True if an argument looks like a reference. If an agent or a text may come, anything else is a text.
pub(crate) fn looks_like_one(word: &str) -> bool {
    let spaced = word.contains(char::is_whitespace);
    if word.starts_with(PROGRAM) {
        return true;
    }
    let known = word.contains("://") || is_path(word) || is_loopback(word);
    !spaced && (known || word.contains(['.', ':', '#']) && !word.ends_with(['.', ':']))
}

fn unresolved(error: &herald_client::Error) -> CliError {
    CliError::new(CliErrorKind::CardNotFound, error.to_string()).hint(FORMS)
}

fn is_path(reference: &str) -> bool {
    ["/", "./", "../", "~/"].iter().any(|start| reference.starts_with(start))
        || reference.ends_with(".json") && !reference.contains(':')
        || Path::new(reference).is_file()
}

fn path(reference: &str) -> std::path::PathBuf {
    match (reference.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => Path::new(&home).join(rest),
        (Some(_) | None, _) => reference.into(),
    }
}

/// True if a reference is a loopback address, for which plain HTTP is the default.
fn is_loopback(reference: &str) -> bool {
    let authority = reference.split(['/', '?']).next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    host.eq_ignore_ascii_case("localhost")
        || host.to_ascii_lowercase().ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(reference: &str) -> Vec<String> {
        let place = |source| match source {
            Source::Below(url) => format!("below {url}"),
            Source::At(url) => format!("at {url}"),
            Source::File(path) => format!("file {}", path.display()),
            Source::Program(program) => format!("program {program:?}"),
        };
        places(reference).unwrap().into_iter().map(place).collect()
    }

    #[test]
    fn a_host_uses_https_and_loopback_uses_http() {
        assert_eq!(shown("example.com"), ["below https://example.com/"]);
        assert_eq!(shown("example.com:8443"), ["below https://example.com:8443/"]);
        assert_eq!(shown("localhost:8000"), ["below http://localhost:8000/"]);
        assert_eq!(shown("127.0.0.1"), ["below http://127.0.0.1/"]);
        assert_eq!(shown("[::1]:80"), ["below http://[::1]/"]);
        assert_eq!(shown("http://example.com/"), ["below http://example.com/"]);
    }

    #[test]
    fn a_url_with_a_path_is_tried_as_a_card_first() {
        assert_eq!(shown("https://a.b/c.json"), ["at https://a.b/c.json"]);
        assert_eq!(shown("https://a.b/card"), ["at https://a.b/card", "below https://a.b/card/"]);
        assert_eq!(shown("localhost/x"), ["at http://localhost/x", "below http://localhost/x/"]);
    }

    #[test]
    fn a_path_is_a_file() {
        assert_eq!(shown("./card"), ["file ./card"]);
        assert_eq!(shown("card.json"), ["file card.json"]);
        assert_eq!(shown("file:///tmp/card.json"), ["file /tmp/card.json"]);
        assert!(places("ftp://a.b").is_err());
    }

    #[test]
    fn a_text_does_not_look_like_an_agent() {
        for word in ["localhost:8000", "a.b", "./c", "https://a.b", "cards.json#x"] {
            assert!(looks_like_one(word), "{word}");
        }
        for word in ["Hello", "Hello.", "Hello, world", "see a.b please", "Note:"] {
            assert!(!looks_like_one(word), "{word}");
        }
    }
}
