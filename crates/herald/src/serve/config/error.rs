//! Errors in a configuration file: line, message in the terms of TOML, and a correction.
//!
//! The TOML parser reports a mistake as text only, with the expected keys or values in it, so corrections are found in
//! its text.

use std::{
    fmt::{self, Display},
    ops::Range,
    path::PathBuf,
    sync::Arc,
};

use toml::{Spanned, de::DeTable};

use super::schema::home;
use crate::spelling::near;

/// The path and the text of a configuration file; empty if there is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigText {
    path: PathBuf,
    text: Arc<str>,
}

/// A table of a configuration file; empty if there is no file.
#[derive(Debug, Clone, Default)]
pub(crate) struct ConfigTable {
    pub(super) source: ConfigText,
    /// The prefix of its keys, such as `agents.0.`.
    prefix: String,
}

/// An error in a configuration file.
#[derive(Debug)]
pub(crate) struct ConfigError(String);

impl ConfigTable {
    /// The table whose keys begin with this prefix, such as `agents.0.`.
    pub(crate) fn new(source: &ConfigText, prefix: impl Into<String>) -> Self {
        Self { source: source.clone(), prefix: prefix.into() }
    }

    /// An error in one of its keys. If the key is missing, the error is shown at the table that should have it.
    pub(crate) fn fault(&self, key: &str, said: impl Display) -> ConfigError {
        let mut tried = parents(key).chain(["kind"]);
        match tried.find_map(|key| self.source.find(&[&self.prefix, key].concat())) {
            Some(place) => self.source.show(&place, said, None),
            None => self.source.fault(said),
        }
    }
}

impl ConfigText {
    pub(crate) fn new(path: impl Into<PathBuf>, text: String) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// The text as tables and values with their positions.
    pub(super) fn document(&self) -> Result<Spanned<DeTable<'_>>, ConfigError> {
        DeTable::parse(&self.text).map_err(|fault| self.refused(&fault))
    }

    /// An error of the parser.
    pub(super) fn refused(&self, fault: &toml::de::Error) -> ConfigError {
        self.refused_at(fault.message(), fault.span())
    }

    /// An error with the text of the parser.
    pub(super) fn refused_at(&self, said: &str, place: Option<Range<usize>>) -> ConfigError {
        let at = place.clone().and_then(|place| self.text.get(place)).unwrap_or_default();
        let before = place.as_ref().and_then(|place| self.text.get(..place.start));
        let hint = hint(said, at, key_before(before.unwrap_or_default()));
        let said = plain(said, hint.is_some());
        match (place, hint) {
            (Some(place), hint) => self.show(&place, said, hint),
            (None, Some(hint)) => self.fault(format!("{said}\n{hint}")),
            (None, None) => self.fault(said),
        }
    }

    /// An error in the value of a key, with its table: `server.host`.
    pub(crate) fn fault_at(&self, key: &str, said: impl Display) -> ConfigError {
        match self.find(key) {
            Some(place) => self.show(&place, said, None),
            None => self.fault(said),
        }
    }

    /// An error in the first of these keys that the file has.
    pub(crate) fn fault_at_first<'a>(
        &self,
        mut keys: impl Iterator<Item = &'a String>,
        said: impl Display,
    ) -> ConfigError {
        match keys.find_map(|key| self.find(key)) {
            Some(place) => self.show(&place, said, None),
            None => self.fault(said),
        }
    }

    /// The position of a value.
    fn find(&self, key: &str) -> Option<Range<usize>> {
        let document = DeTable::parse(&self.text).ok()?;
        let mut steps = key.split('.');
        let mut value = document.get_ref().get(steps.next()?)?;
        for step in steps {
            value = match step.parse::<usize>() {
                Ok(index) => value.get_ref().get(index)?,
                Err(_) => value.get_ref().get(step)?,
            };
        }
        Some(value.span())
    }

    /// An error without a position.
    pub(crate) fn fault(&self, said: impl Display) -> ConfigError {
        if self.text.is_empty() {
            ConfigError(said.to_string())
        } else {
            ConfigError(format!("in {}: {said}", self.path.display()))
        }
    }

    /// The message with its line, in which the value is marked.
    pub(crate) fn show(
        &self,
        place: &Range<usize>,
        said: impl Display,
        hint: Option<String>,
    ) -> ConfigError {
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
        ConfigError(text)
    }
}

impl Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// A key and the tables that it is in, from the inside out: `skills.0.name`, `skills.0`, `skills`.
fn parents(key: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(key), |key| key.rsplit_once('.').map(|(parent, _)| parent))
}

/// Types as the parser names them, their names in TOML, and examples.
const EXPECTED: [(&str, &str, &str); 10] = [
    ("a sequence", "a list", r#"["one", "two"]"#),
    ("a map", "a table", r#"{ one = "two" }"#),
    ("a string", "a string", r#""in quotes""#),
    ("path string", "a string", r#""./in/quotes""#),
    ("a boolean", "a boolean", "true"),
    ("f64", "a number", "0.5"),
    ("u16", "a whole number up to 65535", "8000"),
    ("u32", "a whole number", "3"),
    ("u64", "a whole number", "1000"),
    ("usize", "a whole number", "3"),
];

/// Examples for common keys.
const EXAMPLES: [(&str, &str); 21] = [
    ("a2a_version", r#""1.0""#),
    ("allowed_roots", r#"["./repo"]"#),
    ("auth", r#"{ token = "env:NAME" }"#),
    ("command", r#"["wc", "-w"]"#),
    ("description", r#""Counts the words of a text""#),
    ("env", r#"{ LANG = "C.UTF-8" }"#),
    ("extensions", r#"[{ uri = "https://example.com/extension" }]"#),
    ("file", r#""card.json""#),
    ("host", r#""127.0.0.1""#),
    ("input_modes", r#"["text/plain"]"#),
    ("interfaces", r#"["jsonrpc", "http+json"]"#),
    ("output_modes", r#"["text/plain"]"#),
    ("parameters", "{ top_p = 0.9 }"),
    ("provider", r#"{ organization = "Example", url = "https://example.com" }"#),
    ("retention", r#"{ age = "30d" }"#),
    ("scopes", r#"["send", "read"]"#),
    ("skills", r#"[{ id = "count", description = "Counts words" }]"#),
    ("title", r#""Word Counter""#),
    ("tls", r#"{ certificate = "cert.pem", key = "key.pem" }"#),
    ("tokens", r#"[{ token = "env:HERALD_TOKEN", tenant = "acme", principal = "ci" }]"#),
    ("version", r#""1.2.0""#),
];

/// The parser's message in the terms of TOML, without values, since they may be secrets and messages are logged. If
/// there is a hint, it has the list of known names.
fn plain(said: &str, hinted: bool) -> String {
    if let Some(unknown) = said.strip_prefix("unknown field ") {
        let names = if hinted { unknown.split(',').next() } else { None };
        return format!("unknown key {}", names.unwrap_or(unknown));
    }
    let (given, expected) = said.rsplit_once(", expected ").unwrap_or((said, ""));
    let given = match given.strip_prefix("invalid type: string \"") {
        Some(_) => "invalid type: string".to_owned(),
        None => given.replace("invalid type: map", "invalid type: table"),
    };
    let given = given.replace("missing field", "missing key").replace("sequence", "list");
    let given =
        given.replace("floating point", "float").replace("unknown variant", "unknown value");
    let expected = match expected {
        // An invalid number: the parser expects the end of the line.
        "" | "nothing" => return given,
        "a nonzero usize" => "a number from 1 on",
        name if name.starts_with("struct ") => "a table",
        name => {
            EXPECTED.iter().find(|(known, _, _)| *known == name).map_or(name, |(_, ours, _)| ours)
        }
    };
    format!("{given}, expected {expected}")
}

/// A correction. `at` is the marked text, and `key` the key whose value it is.
fn hint(said: &str, at: &str, key: Option<&str>) -> Option<String> {
    let header = at.trim_start_matches('[').split(']').next().unwrap_or_default();
    if let Some(unknown) = said.strip_prefix("unknown ") {
        if let Some(meant) = likely(unknown) {
            return Some(format!("did you mean `{meant}`?"));
        }
        let key = unknown.split('`').nth(1)?;
        let section = home(key)?;
        return Some(format!("`{key}` belongs under {section}"));
    }
    if ["invalid float", "invalid integer", "invalid date"].iter().any(|one| said.starts_with(one))
    {
        let key = key?;
        let example = EXAMPLES.iter().find(|(known, _)| *known == key).map(|(_, example)| *example);
        return Some(example.map_or_else(
            || "a text needs quotes".to_owned(),
            |example| format!("write it like {key} = {example}"),
        ));
    }
    let unquoted = said.starts_with("string values must be quoted");
    if !unquoted && !said.starts_with("invalid type") {
        return None;
    }
    if at.starts_with("[[") {
        return Some(format!("there is one such table: write [{header}]"));
    }
    let expected = if unquoted { "a string" } else { said.rsplit_once(", expected ")?.1 };
    if at.starts_with('[') && key.is_none() && expected == "a sequence" {
        return Some(format!("there can be several such tables: write [[{header}]] above each"));
    }
    let key = key?;
    let better = EXAMPLES.iter().find(|(known, _)| *known == key).map(|(_, example)| *example);
    let usual = || EXPECTED.iter().find(|(name, _, _)| *name == expected);
    match better.or_else(|| usual().map(|(_, _, example)| *example)) {
        Some(example) => Some(format!("write it like {key} = {example}")),
        None if expected.starts_with("struct ") => {
            Some(format!("write [{key}] on a line of its own, and its keys below"))
        }
        None => None,
    }
}

/// The key at the end of this text, if it is on the last line.
fn key_before(text: &str) -> Option<&str> {
    let line = text.rsplit('\n').next()?;
    let (key, _) = line.rsplit(['{', ',']).next()?.split_once('=')?;
    let key = key.trim();
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    (!key.is_empty() && key.chars().all(is_plain)).then_some(key)
}

/// The name that was probably meant, from a message such as ``field `prot`, expected one of `host`,
/// `port` ``.
fn likely(unknown: &str) -> Option<&str> {
    let mut names = unknown.split('`').skip(1).step_by(2);
    let given = names.next()?;
    near(given, names)
}

/// The message for an unknown key in the parser's format, which [`hint`] reads.
pub(super) fn unknown_key<'a>(key: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<_> = known.map(|name| format!("`{name}`")).collect();
    format!("unknown field `{key}`, expected one of {}", known.join(", "))
}

fn may_hold_a_secret(line: &str) -> bool {
    // A URL may have a password before its `@`.
    ["tok", "secret", "pass", "key", "auth", "header", "@"].iter().any(|hint| line.contains(hint))
}

/// A line with a star for every character in quotes, so that the marks below it still fit. References to variables and
/// files, and paths, are not secrets and help to find the mistake.
fn masked(line: &str) -> String {
    let mut shown = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(start) = rest.find(['"', '\'']) {
        let (before, quoted) = rest.split_at(start);
        let (mark, quoted) = quoted.split_at(1);
        let (text, after) = quoted.split_at(quoted.find(mark).unwrap_or(quoted.len()));
        shown.extend([before, mark]);
        let is_shown = is_reference(text) || is_path(text);
        shown.extend(text.chars().map(|letter| if is_shown { letter } else { '*' }));
        let end = after.len().min(mark.len());
        shown.push_str(&after[..end]);
        rest = &after[end..];
    }
    shown + rest
}

/// True for the name of a variable or a file that has a secret.
fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

/// True for a path. Random secrets have capital letters, and no ending of a file.
fn is_path(text: &str) -> bool {
    const ENDINGS: [&str; 8] = [".pem", ".key", ".crt", ".cer", ".crl", ".der", ".json", ".toml"];
    let is_plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-/".contains(&byte);
    let is_rooted = ["/", "./", "../"].iter().any(|root| text.starts_with(root));
    (is_rooted && text.bytes().all(is_plain)) || ENDINGS.iter().any(|ending| text.ends_with(ending))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_recognised() {
        let field = |given: &str| format!("field `{given}`, expected one of `host`, `port`");
        assert_eq!(likely(&field("prot")), Some("port"));
        assert_eq!(likely(&field("hosts")), Some("host"));
        assert_eq!(likely(&field("colour")), None);
        assert_eq!(likely("variant `sent`, expected `send`"), Some("send"));
    }

    #[test]
    fn secrets_are_masked_and_paths_are_not() {
        for (line, shown) in [
            (r#"token = "hunter2""#, r#"token = "*******""#),
            (r#"key = "/etc/herald/key""#, r#"key = "/etc/herald/key""#),
            (r#"key = 'My Keys/Cards.pem'"#, r#"key = 'My Keys/Cards.pem'"#),
            (r#"token = "env:HERALD_TOKEN""#, r#"token = "env:HERALD_TOKEN""#),
            (r#"api_key = "file:/run/secrets/key""#, r#"api_key = "file:/run/secrets/key""#),
            (r#"token = "/kS9+aQ4x""#, r#"token = "*********""#),
            (r#"{ token = "aé", key = "c.key" }"#, r#"{ token = "**", key = "c.key" }"#),
            (r#"token = "open"#, r#"token = "****"#),
            (r#"token = ""#, r#"token = ""#),
        ] {
            assert_eq!(masked(line), shown, "{line}");
        }
    }

    #[test]
    fn the_table_of_a_key_is_found() {
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
