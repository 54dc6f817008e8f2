//! What is wrong with a configuration file: where, in which words, and what to write instead.

use std::{
    fmt::{self, Display},
    ops::{Deref, Range},
    path::PathBuf,
};

use serde::{Deserialize, Deserializer};

use super::Config;
use crate::spelling::near;

/// A value and the place in the file where it stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placed<T> {
    pub(crate) place: Range<usize>,
    value: T,
}

/// Where a configuration was read from: nowhere, if there is no file.
#[derive(Debug, Default)]
pub(crate) struct Source {
    path: PathBuf,
    text: String,
}

/// A mistake in a file.
#[derive(Debug)]
pub(crate) struct Fault(String);

impl<T> Deref for Placed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// A value that stands in no file.
impl<T> From<T> for Placed<T> {
    fn from(value: T) -> Self {
        Self { place: 0..0, value }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Placed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = toml::Spanned::deserialize(deserializer)?;
        Ok(Self { place: spanned.span(), value: spanned.into_inner() })
    }
}

impl Source {
    pub(crate) fn new(path: impl Into<PathBuf>, text: String) -> Self {
        Self { path: path.into(), text }
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// A mistake that the parser found.
    pub(super) fn refused(&self, fault: &toml::de::Error) -> Fault {
        let place = fault.span();
        let at = place.clone().and_then(|place| self.text.get(place)).unwrap_or_default();
        let hint = hint(fault.message(), at);
        let said = plain(fault.message());
        match (place, hint) {
            (Some(place), hint) => self.show(&place, said, hint),
            (None, Some(hint)) => self.fault(format!("{said}\n{hint}")),
            (None, None) => self.fault(said),
        }
    }

    /// A mistake in what stands at a place.
    pub(crate) fn fault_at(&self, place: &Range<usize>, said: impl Display) -> Fault {
        if place.is_empty() {
            return self.fault(said);
        }
        self.show(place, said, None)
    }

    /// A mistake that has no one place.
    pub(crate) fn fault(&self, said: impl Display) -> Fault {
        match self.text.is_empty() {
            true => Fault(said.to_string()),
            false => Fault(format!("in {}: {said}", self.path.display())),
        }
    }

    /// The sentence with the line it is about, marked.
    fn show(&self, place: &Range<usize>, said: impl Display, hint: Option<String>) -> Fault {
        let (before, after) = self.text.split_at(self.text.floor_char_boundary(place.start));
        let number = before.matches('\n').count() + 1;
        let indent = before.rsplit('\n').next().unwrap_or_default();
        let line = [indent, after.lines().next().unwrap_or_default()].concat();
        let (column, left) = (indent.chars().count(), line.chars().count());
        let width = self.text.get(place.clone()).map_or(1, |text| text.chars().count());
        let marks = "^".repeat(width.min(left.saturating_sub(column)).max(1));
        let gutter = " ".repeat(number.to_string().len());
        let file = self.path.display();
        let shown = if may_hold_a_secret(&line) { masked(&line) } else { line };
        let mut text = format!(
            "in {file}, line {number}: {said}\n{gutter} |\n{number} | {shown}\n{gutter} | {:column$}{marks}",
            ""
        );
        if let Some(hint) = hint {
            text.push('\n');
            text.push_str(&hint);
        }
        Fault(text)
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// The parser's sentence in the words of the file's format, without the text of a value: what is
/// said about a fault ends up in logs.
fn plain(said: &str) -> String {
    let said = match said.strip_prefix("invalid type: string \"") {
        Some(rest) => {
            let (_, expected) = rest.rsplit_once("\", expected").unwrap_or_default();
            format!("invalid type: string, expected{expected}")
        }
        None => said.to_owned(),
    };
    said.replace("invalid type: map", "invalid type: table")
        .replace("expected a sequence", "expected a list")
        .replace("expected a map", "expected a table")
        .replace("expected a nonzero usize", "expected a number from 1 on")
}

/// What to write instead. `at` is the text at fault.
fn hint(said: &str, at: &str) -> Option<String> {
    let header = at.trim_start_matches('[').split(']').next().unwrap_or_default();
    if let Some(unknown) = said.strip_prefix("unknown ") {
        if let Some(meant) = likely(unknown) {
            return Some(format!("did you mean `{meant}`?"));
        }
        let key = unknown.split('`').nth(1)?;
        let section = home(key)?;
        return Some(format!("`{key}` belongs under {section}"));
    }
    if !said.starts_with("invalid type") {
        return None;
    }
    if at.starts_with("[[") {
        return Some(format!("there is one such table: write [{header}]"));
    }
    if at.starts_with('[') && said.ends_with("expected a sequence") {
        return Some(format!("there can be several such tables: write [[{header}]] above each"));
    }
    None
}

/// The name that was probably meant, from a fault such as ``field `prot`, expected one of `host`,
/// `port` ``.
fn likely(unknown: &str) -> Option<&str> {
    let mut names = unknown.split('`').skip(1).step_by(2);
    let given = names.next()?;
    near(given, names)
}

/// The table that a key belongs to, found by asking the parser about each.
fn home(key: &str) -> Option<String> {
    let refusal = |header: &str| {
        let text = format!("{header}\n{key:?} = 0\n");
        toml::from_str::<Config>(&text).err().map(|fault| fault.message().to_owned())
    };
    let known = |header: &String| {
        let strange = ["unknown ", "invalid type: map", "invalid type: sequence"];
        refusal(header).is_none_or(|said| !strange.iter().any(|start| said.starts_with(start)))
    };
    let sections = refusal("[\"\"]")?;
    let sections = sections.split('`').skip(1).step_by(2).filter(|name| !name.is_empty());
    sections.flat_map(|name| [format!("[{name}]"), format!("[[{name}]]")]).find(known)
}

fn may_hold_a_secret(line: &str) -> bool {
    ["tok", "secret", "pass", "key", "auth", "header"].iter().any(|hint| line.contains(hint))
}

/// A line with a star for every character in quotes, so that what points at it still fits.
fn masked(line: &str) -> String {
    let mut quote = None;
    let mask = |char| {
        match (char, quote) {
            ('"' | '\'', None) => quote = Some(char),
            (_, Some(open)) if open == char => quote = None,
            (_, Some(_)) => return '*',
            (_, None) => {}
        }
        char
    };
    line.chars().map(mask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_recognised() {
        let field = |given: &str| format!("field `{given}`, expected one of `host`, `port`");
        assert_eq!(likely(&field("prot")), Some("port"));
        assert_eq!(likely(&field("hosts")), Some("host"));
        assert_eq!(likely(&field("colour")), None);
        assert_eq!(likely("variant `sent`, expected `send`"), Some("send"));
    }

    #[test]
    fn a_key_is_known_by_the_table_it_belongs_to() {
        for (key, section) in [
            ("port", Some("[server]")),
            ("url", Some("[store]")),
            ("tokens", Some("[auth]")),
            ("kind", Some("[[agents]]")),
            ("0.3", Some("[dialects]")),
            ("colour", None),
            ("a\"b", None),
            ("", None),
        ] {
            assert_eq!(home(key).as_deref(), section, "{key}");
        }
    }
}
