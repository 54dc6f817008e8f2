//! Catalogs: documents that name agents. `CATALOG#NAME` is an agent's reference wherever one is taken.
//!
//! A catalog is a JSON list of entries, or an object with such a list under `agents` or `entries`, or
//! an object from names to references. An entry has a `name` (or `id`, `identifier`) and says under
//! `card`, `agentCard`, `agentCardUrl` or `url` where the card is.

use herald_client::Source;
use serde_json::Value;

use crate::fault::{Fault, Kind};

const NAMES: [&str; 4] = ["name", "id", "identifier", "displayName"];
const PLACES: [&str; 4] = ["card", "agentCard", "agentCardUrl", "url"];
const LISTS: [&str; 2] = ["agents", "entries"];

/// Takes a reference apart into its catalog and the name in it.
pub(crate) fn split(reference: &str) -> Option<(&str, &str)> {
    reference.rsplit_once('#').filter(|(catalog, name)| !catalog.is_empty() && !name.is_empty())
}

/// The reference of the entry with this name.
pub(crate) fn find(document: &[u8], name: &str) -> Result<String, Fault> {
    let catalog: Value = serde_json::from_slice(document).map_err(|fault| {
        Fault::new(Kind::CardNotFound, format!("the catalog is no JSON: {fault}"))
    })?;
    let listed = LISTS.iter().find_map(|list| catalog.get(list)).unwrap_or(&catalog);
    let (found, known) = match listed {
        Value::Array(entries) => {
            let found = entries.iter().find(|entry| names(entry).any(|one| one == name));
            (found, entries.iter().filter_map(|entry| names(entry).next()).collect())
        }
        Value::Object(entries) => {
            (entries.get(name), entries.keys().map(String::as_str).collect::<Vec<_>>())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => (None, Vec::new()),
    };
    let missing = |text: String| Fault::new(Kind::CardNotFound, text);
    let found = found.ok_or_else(|| {
        let fault = missing(format!("the catalog has no entry {name:?}"));
        let near = known
            .iter()
            .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
        match near {
            Some(near) => fault.hint(format!("did you mean {near:?}?")),
            None => fault.hint("it names no agents at all"),
        }
    })?;
    let place = match found {
        Value::String(place) => Some(place.as_str()),
        Value::Object(_) => PLACES.iter().find_map(|place| found.get(place)?.as_str()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    };
    let place = place.ok_or_else(|| {
        missing(format!("the entry {name:?} does not say where its card is"))
            .hint("it needs a \"card\" or a \"url\"")
    })?;
    Ok(place.to_owned())
}

fn names(entry: &Value) -> impl Iterator<Item = &str> {
    NAMES.iter().filter_map(|name| entry.get(name)?.as_str())
}

/// A reference in a catalog, which may be relative to it.
pub(crate) fn resolve(catalog: &Source, place: &str) -> String {
    let relative = !place.contains("://") && !place.starts_with("file:");
    match catalog {
        Source::At(url) | Source::Below(url) if relative => {
            url.join(place).map_or_else(|_| place.to_owned(), |joined| joined.to_string())
        }
        Source::File(path) if place.starts_with("./") || place.starts_with("../") => {
            let directory = path.parent().map(|parent| parent.join(place));
            directory.map_or_else(|| place.to_owned(), |path| path.display().to_string())
        }
        Source::At(_) | Source::Below(_) | Source::File(_) | Source::Program(_) => place.to_owned(),
    }
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
            assert_eq!(find(document.as_bytes(), "a").unwrap_err().kind(), Kind::CardNotFound);
        }
        let near = find(br#"{"reviewer":"x","writer":"y"}"#, "reviwer").unwrap_err();
        assert_eq!(near.advice(), Some("did you mean \"reviewer\"?"));
    }

    #[test]
    fn a_reference_is_relative_to_its_catalog() {
        let catalog = Source::exact("https://a.b/c/catalog.json").unwrap();
        assert_eq!(resolve(&catalog, "x/card.json"), "https://a.b/c/x/card.json");
        assert_eq!(resolve(&catalog, "https://x.y"), "https://x.y");
        let catalog = Source::File("/etc/agents/catalog.json".into());
        assert_eq!(resolve(&catalog, "./x.json"), "/etc/agents/./x.json");
        assert_eq!(resolve(&catalog, "localhost:1"), "localhost:1");
    }
}
