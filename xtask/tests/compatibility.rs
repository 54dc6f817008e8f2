//! docs/compatibility.md holds a row for every promise that is due, and every test a row names
//! exists.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The promises that are due, as first and last number, by document. Later ones are added with
/// what they promise.
const DUE: &[(&str, &[(u32, u32)])] = &[
    ("S0", &[(1, 60)]),
    ("S1", &[(1, 3), (5, 5), (21, 44), (56, 56), (58, 59), (64, 68)]),
    ("S2", &[(1, 61)]),
    ("S3", &[(1, 13), (25, 25), (27, 33)]),
    ("S4", &[(16, 17), (20, 35), (37, 52), (55, 56)]),
];

/// How a row says that there is nothing to prove.
const EXCUSES: [&str; 2] = ["does not apply", "overridden by C"];

#[test]
fn every_promise_that_is_due_has_a_row_and_every_named_test_exists() {
    let text = fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
    let tests = tests();
    let mut rows = BTreeSet::new();
    let mut faults = Vec::new();
    for line in text.lines().filter(|line| line.starts_with("| S")) {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [promise, _asked, _behaviour, proof] = cells[..] else {
            faults.push(format!("not four cells: {line}"));
            continue;
        };
        if !rows.insert(promise.to_owned()) {
            faults.push(format!("{promise} has two rows"));
        }
        let named: Vec<_> = proof.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && !EXCUSES.iter().any(|excuse| proof.starts_with(excuse)) {
            faults.push(format!("{promise} names no test and gives no reason: {proof}"));
        }
        for name in named {
            let (file, test) = name.split_once("::").unwrap_or((name, ""));
            if !tests.get(file).is_some_and(|tests| tests.contains(test)) {
                faults.push(format!("{promise} names {name}, which does not exist"));
            }
        }
    }
    for (document, ranges) in DUE {
        for number in ranges.iter().flat_map(|(first, last)| *first..=*last) {
            let promise = format!("{document}-{number}");
            if !rows.contains(&promise) {
                faults.push(format!("{promise} has no row"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// The names of all tests, by the file they are in, without its extension.
fn tests() -> BTreeMap<String, BTreeSet<String>> {
    let mut tests = BTreeMap::new();
    collect(&root().join("crates"), &mut tests);
    collect(&root().join("xtask/tests"), &mut tests);
    tests
}

fn collect(directory: &Path, tests: &mut BTreeMap<String, BTreeSet<String>>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, tests);
            continue;
        }
        if path.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let mut lines = text.lines().map(str::trim_start);
        let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
        while let Some(line) = lines.next() {
            if !line.starts_with("#[test]") && !line.starts_with("#[tokio::test") {
                continue;
            }
            // Other attributes may stand between.
            let signature = lines.by_ref().find(|line| !line.starts_with("#["));
            let name = signature.and_then(|line| line.split("fn ").nth(1)?.split('(').next());
            tests.entry(stem.clone()).or_default().extend(name.map(str::to_owned));
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
