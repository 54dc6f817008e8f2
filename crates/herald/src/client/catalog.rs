//! Catalogs of agents, and references of the form `CATALOG#NAME`.
//!
//! A catalog is a JSON list of entries, or an object with such a list under `agents` or `entries`, or
//! an object from names to references. An entry has a `name` (or `id`, `identifier`) and the reference of its
//! card under `card`, `agentCard`, `agentCardUrl` or `url`.

use std::path::Path;

use herald_client::Source;
use serde_json::Value;

use crate::{
    client::{
        error::{CliError, CliErrorKind},
        reference::{self, looks_like_one},
    },
    spelling::near,
};

const NAMES: [&str; 4] = ["name", "id", "identifier", "displayName"];
const REFERENCES: [&str; 4] = ["card", "agentCard", "agentCardUrl", "url"];
const LISTS: [&str; 2] = ["agents", "entries"];

/// Splits a reference into its catalog and the name of an entry.
pub(crate) fn split(reference: &str) -> Option<(&str, &str)> {
    reference.rsplit_once('#').filter(|(catalog, name)| !catalog.is_empty() && !name.is_empty())
}

/// The reference of the entry with this name.
pub(crate) fn find(document: &[u8], name: &str) -> Result<String, CliError> {
    let catalog: Value = serde_json::from_slice(document).map_err(|fault| {
        CliError::new(CliErrorKind::CardNotFound, format!("the catalog is not JSON: {fault}"))
    })?;
    let found = match list(&catalog) {
        Value::Array(entries) => entries.iter().find(|entry| names(entry).any(|one| one == name)),
        Value::Object(entries) => entries.get(name),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    };
    let missing = |text: String| CliError::new(CliErrorKind::CardNotFound, text);
    let found = found.ok_or_else(|| {
        let fault = missing(format!("the catalog has no entry {name:?}"));
        let known = known(&catalog);
        match near(name, known.iter().map(String::as_str)) {
            Some(near) => {
                fault.hint(format!("did you mean {near:?}? Its entries are: {}", listed(&known)))
            }
            None if known.is_empty() => fault.hint("the catalog has no entries"),
            None => fault.hint(format!("its entries are: {}", listed(&known))),
        }
    })?;
    let reference = reference_of(found).ok_or_else(|| {
        missing(format!("the entry {name:?} has no reference to its card"))
            .hint("it needs a \"card\" or a \"url\"")
    })?;
    Ok(reference.to_owned())
}

/// The names of the agents in a document; empty if it is not a catalog. An object is a catalog only if all its
/// members are references.
pub(crate) fn entries(document: &[u8]) -> Vec<String> {
    let Ok(catalog) = serde_json::from_slice::<Value>(document) else { return Vec::new() };
    let leads = |entry: &Value| reference_of(entry).is_some_and(looks_like_one);
    match list(&catalog) {
        Value::Object(entries) if !entries.values().all(leads) => Vec::new(),
        Value::Object(_) | Value::Array(_) => known(&catalog),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// Up to 20 names, separated by commas.
pub(crate) fn listed(names: &[String]) -> String {
    let mut shown = names.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
    if names.len() > 20 {
        shown.push_str(&format!(" and {} more", names.len() - 20));
    }
    shown
}

fn list(catalog: &Value) -> &Value {
    LISTS.iter().find_map(|list| catalog.get(list)).unwrap_or(catalog)
}

/// The names of the entries with a reference.
fn known(catalog: &Value) -> Vec<String> {
    let named = |name: Option<&str>, entry| reference_of(entry).and(name).map(str::to_owned);
    match list(catalog) {
        Value::Array(entries) => {
            entries.iter().filter_map(|entry| named(names(entry).next(), entry)).collect()
        }
        Value::Object(entries) => {
            entries.iter().filter_map(|(name, entry)| named(Some(name), entry)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// The reference of an entry's card.
fn reference_of(entry: &Value) -> Option<&str> {
    match entry {
        Value::String(reference) => Some(reference.as_str()),
        Value::Object(_) => REFERENCES.iter().find_map(|name| entry.get(name)?.as_str()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

fn names(entry: &Value) -> impl Iterator<Item = &str> {
    NAMES.iter().filter_map(|name| entry.get(name)?.as_str())
}

/// Resolves the reference of an entry, which may be relative to its catalog. A catalog cannot start a program. One from
/// the network may refer neither to files of this machine nor, if it was fetched over https, to plain http.
pub(crate) fn resolve(catalog: &Source, place: &str) -> Result<Vec<Source>, CliError> {
    let places = match catalog {
        Source::At(url) | Source::Below(url) => {
            let joined = url.join(place).ok();
            let joined = joined.filter(|found| {
                found.scheme() == url.scheme()
                    || (url.scheme(), found.scheme()) == ("http", "https")
            });
            reference::places(joined.ok_or_else(elsewhere)?.as_str())?
        }
        Source::File(path) => {
            let directory = path.parent().unwrap_or(Path::new(""));
            let beside = |source| match source {
                Source::File(path) => Source::File(directory.join(path)),
                Source::At(_) | Source::Below(_) | Source::Program(_) => source,
            };
            reference::places(place)?.into_iter().map(beside).collect()
        }
        Source::Program(_) => return Err(elsewhere()),
    };
    if places.iter().any(|place| matches!(place, Source::Program(_))) {
        Err(elsewhere())
    } else {
        Ok(places)
    }
}

fn elsewhere() -> CliError {
    let text = "the catalog's reference is not allowed: it is a program, a file in a catalog from \
                the network, or plain http in a catalog from https";
    CliError::new(CliErrorKind::CardNotFound, text)
        .hint("if you trust the reference, give it with -a")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_found_in_every_shape() {
        for document in [
            r#"[{"name":"a","url":"http://x"}]"#,
            r#"{"agents":[{"id":"a","card":"http://x"}]}"#,
            r#"{"entries":[{"identifier":"b"},{"displayName":"a","agentCardUrl":"http://x"}]}"#,
            r#"{"a":"http://x"}"#,
        ] {
            assert_eq!(find(document.as_bytes(), "a").unwrap(), "http://x", "{document}");
        }
        for document in ["", "1", "[]", r#"{"a":1}"#, r#"[{"name":"a"}]"#] {
            assert_eq!(
                find(document.as_bytes(), "a").unwrap_err().kind(),
                CliErrorKind::CardNotFound
            );
        }
        let near = find(br#"{"reviewer":"x","writer":"y"}"#, "reviwer").unwrap_err();
        let expected = "did you mean \"reviewer\"? Its entries are: reviewer, writer";
        assert_eq!(near.advice(), Some(expected));
        let far = find(br#"{"reviewer":"x","writer":"y"}"#, "zzz").unwrap_err();
        assert_eq!(far.advice(), Some("its entries are: reviewer, writer"));
    }

    #[test]
    fn a_reference_is_relative_to_its_catalog() {
        let first = |catalog: &Source, place| resolve(catalog, place).unwrap().swap_remove(0);
        let exact = |url| Source::exact(url).unwrap();
        let catalog = exact("https://a.b/c/catalog.json");
        assert_eq!(first(&catalog, "x/card.json"), exact("https://a.b/c/x/card.json"));
        assert_eq!(first(&catalog, "https://x.y/card.json"), exact("https://x.y/card.json"));
        let catalog = Source::File("/etc/agents/catalog.json".into());
        let file = Source::File("/etc/agents/x.json".into());
        assert_eq!(first(&catalog, "x.json"), file);
        assert_eq!(first(&catalog, "localhost:1"), Source::parse("http://localhost:1").unwrap());
    }

    #[test]
    fn a_catalog_cannot_start_a_program_and_one_from_the_network_cannot_name_files() {
        let file = Source::File("/etc/agents/catalog.json".into());
        let plain = Source::exact("http://a.b/catalog.json").unwrap();
        let secure = Source::exact("https://a.b/catalog.json").unwrap();
        for place in [
            "stdio:touch x",
            "STDIO:touch x",
            "stdio:touch x http://a.b/",
            "stdio://touch/x",
            "\tstdio:touch x",
            "std\nio:touch x",
        ] {
            for catalog in [&file, &plain, &secure] {
                assert!(resolve(catalog, place).is_err(), "{place:?} of {catalog:?}");
            }
        }
        for place in ["file:///etc/card.json", "FILE:/etc/card.json", "ftp://a.b/", "localhost:1"] {
            for catalog in [&plain, &secure] {
                assert!(resolve(catalog, place).is_err(), "{place:?} of {catalog:?}");
            }
        }
        assert!(resolve(&secure, "http://a.b/card.json").is_err());
        assert!(resolve(&plain, "http://u:p@a.b/card.json").is_err());
        assert!(resolve(&plain, "https://x.y/card.json").is_ok());
    }
}
