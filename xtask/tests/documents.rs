//! Tests of the documents: links, index of pages, and decisions.

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
