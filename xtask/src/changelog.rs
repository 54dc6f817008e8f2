//! `cargo xtask changelog`: moves the change fragments of `changes/` into CHANGELOG.md at a release.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail, ensure};

use crate::{progress::say, root};

const USAGE: &str = "usage: cargo xtask changelog VERSION DATE
  for example: cargo xtask changelog 0.2.0 2026-12-01";

/// Kinds of changes, in the order in which a release lists them, and their headings.
const KINDS: [(&str, &str); 4] =
    [("added", "Added"), ("changed", "Changed"), ("fixed", "Fixed"), ("removed", "Removed")];

/// One entry of a fragment.
#[derive(Debug, PartialEq)]
struct Change {
    kind: &'static str,
    text: String,
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let [version, date] = arguments else { bail!("{USAGE}") };
    let is_date = date.len() == 10 && date.chars().all(|char| char.is_ascii_digit() || char == '-');
    ensure!(is_date, "{date} is not a date\n{USAGE}");
    let fragments = fragments(&root().join("changes"))?;
    let mut changes = Vec::new();
    for path in &fragments {
        let text = fs::read_to_string(path)?;
        changes.extend(parse(&text).with_context(|| path.display().to_string())?);
    }
    let path = root().join("CHANGELOG.md");
    let changelog = fs::read_to_string(&path)?;
    fs::write(&path, fold(&changelog, &changes, version, date)?)?;
    for path in &fragments {
        fs::remove_file(path)?;
    }
    say(format!("CHANGELOG.md has {} new entries under {version}", changes.len()));
    Ok(())
}

/// The files with entries, in alphabetical order.
fn fragments(directory: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|kind| kind == "md") && !path.ends_with("README.md") {
            found.push(path);
        }
    }
    found.sort_unstable();
    Ok(found)
}

fn parse(text: &str) -> anyhow::Result<Vec<Change>> {
    let mut changes: Vec<Change> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if let (Some(more), Some(last)) = (line.strip_prefix("  "), changes.last_mut()) {
            last.text.push_str("\n  ");
            last.text.push_str(more.trim());
            continue;
        }
        let known = |(kind, _): &(&'static str, &str)| {
            let text = line.strip_prefix(kind)?.strip_prefix(": ")?;
            Some(Change { kind, text: text.trim().to_owned() })
        };
        let change = KINDS.iter().find_map(known);
        let kinds = KINDS.map(|(kind, _)| kind).join(", ");
        changes.push(change.with_context(|| {
            format!("`{line}` must begin with one of {kinds} and a colon, or with two spaces")
        })?);
    }
    ensure!(!changes.is_empty(), "no entry");
    Ok(changes)
}

/// Adds a release above the others. Entries under "Unreleased", which are older than the fragments, become part of it.
fn fold(changelog: &str, changes: &[Change], version: &str, date: &str) -> anyhow::Result<String> {
    ensure!(!changelog.contains(&format!("\n## {version} ")), "CHANGELOG.md already has {version}");
    let (title, rest) = changelog.split_once("\n## ").unwrap_or((changelog.trim_end(), ""));
    let mut folded = format!("{}\n\n## {version} ({date})\n", title.trim_end());
    for (kind, heading) in KINDS {
        let of_kind: Vec<_> = changes.iter().filter(|change| change.kind == kind).collect();
        if !of_kind.is_empty() {
            folded += &format!("\n### {heading}\n\n");
        }
        for change in of_kind {
            folded += &format!("- {}\n", change.text);
        }
    }
    if let Some(entries) = rest.strip_prefix("Unreleased\n") {
        let (entries, older) = entries.split_once("\n## ").unwrap_or((entries, ""));
        folded += &format!("\n### Earlier entries\n\n{}\n", entries.trim());
        if !older.is_empty() {
            folded += &format!("\n## {older}");
        }
    } else if !rest.is_empty() {
        folded += &format!("\n## {rest}");
    }
    Ok(folded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_become_a_release_above_the_others() {
        let changes = parse("fixed: One.\nadded: Two,\n  and more.\n").unwrap();
        let first = fold(
            "# Changelog\n\nAbout it.\n\n## Unreleased\n\n- Old.\n",
            &changes,
            "0.1.0",
            "2026-12-01",
        );
        let first = first.unwrap();
        assert_eq!(
            first,
            "# Changelog\n\nAbout it.\n\n## 0.1.0 (2026-12-01)\n\n### Added\n\n- Two,\n  and more.\n\n### Fixed\n\n- One.\n\n\
             ### Earlier entries\n\n- Old.\n"
        );
        let second = fold(&first, &parse("removed: It.").unwrap(), "0.2.0", "2027-01-01").unwrap();
        let (new, old) = second.split_once("\n## 0.1.0").unwrap();
        assert!(new.ends_with("## 0.2.0 (2027-01-01)\n\n### Removed\n\n- It.\n"), "{second}");
        assert!(old.ends_with("- Old.\n"), "{second}");
        assert!(fold(&second, &changes, "0.1.0", "2027-01-01").is_err());
    }

    #[test]
    fn every_fragment_can_be_read() {
        for path in fragments(&root().join("changes")).unwrap() {
            let text = fs::read_to_string(&path).unwrap();
            parse(&text).unwrap_or_else(|error| panic!("{}: {error:#}", path.display()));
        }
        let error = parse("Fixed it.").unwrap_err().to_string();
        assert!(error.contains("added, changed, fixed, removed"), "{error}");
    }
}
