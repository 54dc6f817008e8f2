//! Vocabulary: type names that are defined more than once, and words that were retired.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// The number of type names that may be defined more than once. Lower it with the count.
const REPEATED: usize = 11;

/// Where a retired word must not occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// In names, comments and documents.
    Everywhere,
    /// In names of code. In comments and documents the word is ordinary English.
    Names,
}

use Scope::{Everywhere, Names};

/// Retired words and the words that replaced them. They are matched as whole words, with their case. Other
/// retired names (heard, spoke, broke, asked, aside, line, SMALL) are too common as ordinary words to test.
const RETIRED: &[(&str, Scope, &str)] = &[
    ("Room", Everywhere, "MemoryBudget, memory limit"),
    ("Share", Names, "Quota"),
    (
        "Place",
        Names,
        "Reservation, ListCursor, RouteMatch, UpstreamRef, TurnHandle, SourceSpan, TestLocation",
    ),
    ("Party", Names, "Payer"),
    ("WEIGHT", Everywhere, "BYTES_PER_REQUEST_BYTE"),
    ("Post", Names, "AgentRuntime"),
    ("Slot", Names, "Permit"),
    ("Floor", Names, "ConversationLock"),
    ("give_floor", Everywhere, "lock_conversation"),
    ("Voice", Everywhere, "LocalSink"),
    ("patience", Names, "pause_timeout, stop_timeout"),
    ("Patience", Names, "a type named after its timeouts"),
    ("upkeep", Everywhere, "janitor"),
    ("keep_house", Everywhere, "run"),
    ("narration", Everywhere, "compat_log"),
    ("line_up", Everywhere, "enable_serial"),
    ("due_in_line", Everywhere, "next_serial"),
    ("take_up", Everywhere, "claim"),
    ("take_up_next", Everywhere, "claim_next"),
    ("dismiss", Everywhere, "notify_ended"),
    ("patiently", Everywhere, "retry_while_unavailable"),
    ("shielded", Everywhere, "commit_detached"),
    ("is_lasting", Everywhere, "is_durable"),
    ("call_placed", Everywhere, "call_with_reservation"),
    ("Moved", Names, "Conflict"),
    ("Left", Names, "Suspended"),
    ("Broke", Everywhere, "ProtocolViolation"),
    ("Bells", Everywhere, "FeedWakers"),
    ("Ear", Everywhere, "FeedWaker"),
    ("Pace", Everywhere, "StallTimer"),
    ("CARRIED", Everywhere, "CURRENT"),
    ("Pulse", Everywhere, "ConnectionState, ReadinessCache"),
    ("Door", Everywhere, "Ingress, Route, Interface, Channel"),
    ("Via", Names, "AgentRoute"),
    ("Seat", Everywhere, "PendingTurn"),
    ("Mail", Names, "Inbound"),
    ("Attention", Names, "Liveness"),
    ("misfortunes", Everywhere, "consecutive_failures"),
    ("Misfortunes", Everywhere, "consecutive_failures"),
    ("Growing", Names, "ArtifactWriter"),
    ("Complaint", Everywhere, "ErrorBody"),
    ("Family", Names, "ProcessTree"),
    ("Passage", Everywhere, "LoopGuard"),
    ("Passages", Everywhere, "LoopGuard"),
    ("Told", Names, "a type named after its content"),
    ("Said", Names, "a type named after its content"),
    ("Cut", Names, "Ended"),
    ("Talk", Names, "SessionState"),
];

/// Messages that were replaced, in any case.
const RETIRED_MESSAGES: &[&str] = &[
    "is not to be had right now",
    "is not to be found here; choose another",
    "there is nothing here",
];

/// Uses that stay or are not renamed yet: the word, the start of the path, and the reason.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("Post", "crates/conformance/src/", "the HTTP method"),
    ("Floor", "xtask/src/bench", "the cheapest server that a benchmark can be compared with"),
    ("Cut", "crates/client/", "to be renamed"),
    ("Cut", "crates/herald/", "to be renamed"),
    ("Door", "CONTRIBUTING.md", "to be renamed"),
    ("Door", "crates/herald/", "to be renamed"),
    ("Patience", "crates/", "to be renamed"),
    ("Place", "crates/", "to be renamed"),
    ("Room", "crates/", "to be renamed"),
    ("Said", "crates/client/", "to be renamed"),
    ("Told", "crates/herald/", "to be renamed"),
    ("dismiss", "crates/agents/", "to be renamed"),
    ("patience", "crates/", "to be renamed"),
    ("patiently", "crates/client/", "to be renamed"),
    ("shielded", "crates/client/", "to be renamed"),
    ("take_up", "crates/client/", "to be renamed"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The files below a directory whose names end in one of these, without build output, installed packages,
/// generated code and this file.
fn files(start: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    if start.is_file() {
        found.push(start.to_owned());
        return;
    }
    let mut entries: Vec<_> =
        fs::read_dir(start).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !matches!(&*name, "target" | "node_modules" | "generated" | ".venv" | "__pycache__")
            {
                files(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending))
            && path != root().join(file!())
        {
            found.push(path);
        }
    }
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()
}

/// A source file of Rust without comments and the content of strings.
fn names_of_rust(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(end) = raw_string(rest) {
            end
        } else if rest.starts_with('"') {
            string(rest)
        } else if rest.starts_with("'\"'") {
            3
        } else {
            let character = rest.chars().next().unwrap();
            code.push(character);
            at += character.len_utf8();
            continue;
        };
        code.push(' ');
        // Line numbers stay the same.
        code.extend(rest[..skipped].matches('\n').map(|_| '\n'));
        at += skipped;
    }
    code
}

/// The length of the raw string that a text begins with.
fn raw_string(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix('r')?;
    let count = hashes.len() - hashes.trim_start_matches('#').len();
    let content = hashes[count..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(count));
    Some(text.len() - content.len() + content.find(&end)? + end.len())
}

/// The length of the string that a text begins with.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            b'"' if !escaped => return at + 1,
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|character: char| !character.is_alphanumeric() && character != '_')
}

/// The name of the type that a line defines. Associated types are none: their traits name them.
fn defined(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace().skip_while(|word| word.starts_with("pub"));
    let keyword = words.next()?;
    let indented = line.starts_with(' ');
    let defines =
        matches!(keyword, "struct" | "enum" | "trait" | "union") || keyword == "type" && !indented;
    let name = words.next().filter(|_| defines)?;
    let name = name.split(|character: char| !character.is_alphanumeric()).next()?;
    Some(name).filter(|name| name.starts_with(char::is_uppercase))
}

#[test]
fn few_type_names_are_defined_more_than_once() {
    let mut sources = Vec::new();
    files(&root().join("crates"), &[".rs"], &mut sources);
    let mut definitions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in sources.iter().map(|path| relative(path)).filter(|path| path.contains("/src/")) {
        let code = names_of_rust(&fs::read_to_string(root().join(&path)).unwrap());
        for (number, line) in (1..).zip(code.lines()) {
            if let Some(name) = defined(line) {
                definitions.entry(name.to_owned()).or_default().push(format!("{path}:{number}"));
            }
        }
    }
    assert!(definitions.len() > 500, "the definitions are found: {}", definitions.len());
    let repeated: Vec<_> = definitions
        .iter()
        .filter(|(_, places)| places.len() > 1)
        .map(|(name, places)| format!("{name}: {}", places.join(" ")))
        .collect();
    let count = repeated.len();
    assert!(
        count <= REPEATED,
        "{count} names are defined more than once:\n{}",
        repeated.join("\n")
    );
}

#[test]
fn retired_words_do_not_come_back() {
    let (mut found, mut checked) = (Vec::new(), 0);
    let endings = [".rs", ".md", ".py", ".toml", ".sql", ".ts", ".js", ".mjs", ".yaml"];
    let mut all = Vec::new();
    for start in ["crates", "docs", "xtask", "bench", "python"] {
        files(&root().join(start), &endings, &mut all);
    }
    for page in ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"] {
        all.push(root().join(page));
    }
    for path in all {
        let name = relative(&path);
        let text = fs::read_to_string(&path).unwrap();
        let code = if name.ends_with(".rs") { names_of_rust(&text) } else { String::new() };
        let allowed = |word: &str| {
            ALLOWED.iter().any(|(one, start, _)| *one == word && name.starts_with(start))
        };
        for (scope, text) in [(Everywhere, &text), (Names, &code)] {
            for (number, line) in (1..).zip(text.lines()) {
                for word in words(line) {
                    let retired = RETIRED.iter().find(|(one, of, _)| *one == word && *of == scope);
                    if let Some((_, _, instead)) = retired.filter(|_| !allowed(word)) {
                        found.push(format!("{name}:{number}: {word} (now: {instead})"));
                    }
                }
            }
        }
        let lower = text.to_lowercase();
        for message in RETIRED_MESSAGES.iter().filter(|message| lower.contains(**message)) {
            found.push(format!("{name}: {message:?}"));
        }
        checked += 1;
    }
    assert!(checked > 300, "the files are found: {checked}");
    assert!(found.is_empty(), "retired words are in use:\n{}", found.join("\n"));
}

#[test]
fn comments_and_strings_are_no_names() {
    let text =
        "let a = Room; // Room\nlet b = \"Room \\\" Room\"; r#\"Room \"Room\"# 'x' '\"' Voice";
    let code = names_of_rust(text);
    assert_eq!(words(&code).filter(|word| *word == "Room").count(), 1, "{code}");
    assert!(words(&code).any(|word| word == "Voice"), "{code}");
    assert_eq!(code.lines().count(), 2);
}

#[test]
fn definitions_are_recognised() {
    for (line, name) in [
        ("pub struct Task {", Some("Task")),
        ("    pub(crate) enum Kind<T> {", Some("Kind")),
        ("struct Unit;", Some("Unit")),
        ("type Result<T> = ();", Some("Result")),
        ("    type Value = ();", None),
        ("impl Task {", None),
        ("let structure = 1;", None),
    ] {
        assert_eq!(defined(line), name, "{line}");
    }
}
