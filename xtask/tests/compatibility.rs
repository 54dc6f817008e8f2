//! Test of the appendix of docs/compatibility.md: every due promise has a row, and every named test exists.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

mod written;

use std::{collections::BTreeSet, fs};

use written::{root, tests};

/// The promises that are due, as first and last number, by document. Later ones are added with
/// what they promise.
const DUE: &[(&str, &[(u32, u32)])] = &[
    ("S0", &[(1, 75)]),
    ("S1", &[(1, 68)]),
    ("S2", &[(1, 61)]),
    ("S3", &[(1, 36)]),
    ("S4", &[(1, 56)]),
];

/// Words of a row without a test.
const EXCUSES: [&str; 2] = ["does not apply", "overridden: "];

#[test]
fn every_promise_that_is_due_has_a_row_and_every_named_test_exists() {
    let text = fs::read_to_string(root().join("docs/compatibility.md")).unwrap();
    let (_, appendix) = text.split_once("\n## Appendix: ").expect("the rows are in the appendix");
    let tests = tests();
    let mut rows = BTreeSet::new();
    let mut faults = Vec::new();
    for line in appendix.lines().filter(|line| line.starts_with("| S")) {
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
