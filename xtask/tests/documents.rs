//! Tests of the documents: links, index of pages, decisions, and the map of the code.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The Markdown files of a directory, without those below it.
fn pages(directory: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(directory)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|kind| kind == "md")).collect()
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Targets of the links in a page. Code has brackets of its own, so fenced blocks are left out.
fn links(page: &str) -> Vec<String> {
    let prose: String = page.split("```").step_by(2).collect();
    let targets = prose.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
    targets.map(str::to_owned).collect()
}

/// The anchors that a page's headings make.
fn anchors(page: &str) -> BTreeSet<String> {
    let prose: String = page.split("```").step_by(2).collect();
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|char| char.is_alphanumeric() || " -_".contains(*char));
        kept.map(|char| if char == ' ' { '-' } else { char }).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    let mut faults = Vec::new();
    let mut seen = 0;
    for page in ["", "docs", "docs/adr", "changes", "bench", "python"].into_iter().flat_map(pages) {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).iter().filter(|link| !link.contains("://")) {
            seen += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
            if !target.exists() {
                faults.push(format!("{}: {link} leads to no file", page.display()));
            } else if !anchor.is_empty() && target.is_file() {
                let known = anchors(&fs::read_to_string(&target).unwrap());
                if !known.contains(anchor) {
                    faults.push(format!("{}: {link} leads to no heading", page.display()));
                }
            }
        }
    }
    assert!(seen > 100, "only {seen} links were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_page_is_in_the_index() {
    let index = links(&fs::read_to_string(root().join("docs/README.md")).unwrap());
    for page in pages("docs").iter().map(|page| name(page)).filter(|name| name != "README.md") {
        assert!(index.contains(&page), "docs/README.md does not list {page}");
    }
    assert!(fs::read_to_string(root().join("README.md")).unwrap().contains("(docs/README.md)"));
}

#[test]
fn every_decision_has_its_parts_and_its_row() {
    let index = fs::read_to_string(root().join("docs/adr/README.md")).unwrap();
    let files: BTreeSet<_> = pages("docs/adr")
        .iter()
        .map(|path| name(path))
        .filter(|name| name != "README.md")
        .collect();
    for (at, file) in files.iter().enumerate() {
        let number = format!("{:04}", at + 1);
        assert!(file.starts_with(&format!("{number}-")), "{file} does not follow its predecessor");
        let text = fs::read_to_string(root().join("docs/adr").join(file)).unwrap();
        let (title, rest) = text.split_once("\n\n").unwrap();
        let title = title.strip_prefix(&format!("# {number}. ")).unwrap();
        assert!(rest.starts_with("Date: 20"), "{file} has no date");
        for part in [" Status: ", "\n## Context\n", "\n## Decision\n", "\n## Consequences\n"] {
            assert!(rest.contains(part), "{file} lacks{part}");
        }
        let row = format!("| {number} | [{title}]({file}) | 20");
        assert!(index.contains(&row), "docs/adr/README.md lacks a row that begins with {row}");
    }
    assert_eq!(index.matches("\n| 0").count(), files.len(), "one row for each file");
}

/// The texts in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// True for the path of a source file or of a directory.
fn is_path(text: &str) -> bool {
    let plain = text.chars().all(|char| char.is_alphanumeric() || "/._-".contains(char));
    plain && !text.starts_with('/') && (text.ends_with(".rs") || text.ends_with('/'))
}

/// The source files below a directory, relative to it.
fn sources(directory: &Path, start: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, start, found);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            found.push(path.strip_prefix(start).unwrap().to_string_lossy().into_owned());
        }
    }
}

#[test]
fn the_map_of_the_code_names_every_source_file() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut faults = Vec::new();
    let mut crates = 0;
    for section in page.split("\n### ").skip(1) {
        let section = section.split("\n## ").next().unwrap();
        let (directory, table) = section.split_once('\n').unwrap();
        let start = root().join(directory);
        let mut named = Vec::new();
        for row in table.lines().filter(|line| line.starts_with("| `")) {
            let cells: Vec<_> = row.split(" | ").collect();
            let first: Vec<_> = quoted(cells[0]).collect();
            for path in &first {
                if !start.join(path).exists() {
                    faults.push(format!("{directory} has no {path}"));
                }
            }
            // Files that the second cell names are in one of the directories of the first.
            for path in quoted(cells[1]).filter(|text| is_path(text)) {
                let near = first.iter().map(|one| start.join(one).join(path));
                if !near
                    .chain([start.join(path), start.join("..").join(path)])
                    .any(|one| one.exists())
                {
                    faults.push(format!("{directory}: {} has no {path}", first.join(", ")));
                }
            }
            named.extend(first.into_iter().map(str::to_owned));
        }
        let mut files = Vec::new();
        sources(&start, &start, &mut files);
        for file in files.iter().filter(|file| *file != "lib.rs") {
            let is_named =
                |one: &String| one == file || one.ends_with('/') && file.starts_with(one);
            if !named.iter().any(is_named) {
                faults.push(format!("the map of {directory} lacks {file}"));
            }
        }
        crates += 1;
    }
    let all = fs::read_dir(root().join("crates")).unwrap().count();
    assert_eq!(crates, all, "one table for each crate");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_change_begins_in_a_file_that_exists() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, rest) = page.split_once("\n## Where a change begins\n").unwrap();
    let (table, _) = rest.split_once("\n## ").unwrap();
    let (mut faults, mut seen) = (Vec::new(), 0);
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let mut source = PathBuf::new();
        for path in quoted(row).filter(|text| is_path(text) || text.ends_with(".md")) {
            seen += 1;
            let named = root().join("crates").join(path);
            if let (true, Some((name, _))) = (named.exists(), path.split_once('/')) {
                source = root().join("crates").join(name).join("src");
            } else if !source.join(path).exists() && !root().join(path).exists() {
                faults.push(format!("{path} in {row}"));
            }
        }
    }
    assert!(seen > 80, "only {seen} files were found");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn the_glossary_is_short_and_in_order() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let (_, glossary) = page.split_once("\n## Glossary\n").unwrap();
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| ")).skip(1);
    let words: Vec<_> = rows.map(|row| row.split(" | ").next().unwrap()).collect();
    assert!(words.len() <= 40, "the glossary has {} words", words.len());
    assert!(words.is_sorted(), "{words:?}");
}
