//! Tests of the appendix of docs/compatibility.md and of docs/promises.tsv: every due promise has a row, every named test
//! exists, and every promise that is kept has a test that was seen to fail.

#![expect(clippy::unwrap_used, reason = "a file that cannot be read fails the test")]

#[path = "../src/promises.rs"]
mod promises;
mod written;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use promises::{Promise, seen_faults};
use written::{root, tests};

/// The promises that are due, by document: the number of its last one. `U` stands for those without a number.
const DUE: [(&str, u32); 6] =
    [("S0", 80), ("S1", 68), ("S2", 61), ("S3", 36), ("S4", 56), ("U", 18)];

/// Promises whose test was not seen to fail yet: it installs the whole repository, which takes long.
const UNSEEN: [&str; 1] = ["S2-59"];

fn promises() -> Vec<Promise> {
    promises::promises(&fs::read_to_string(root().join("docs/compatibility.md")).unwrap()).unwrap()
}

#[test]
fn every_promise_that_is_due_has_a_row_and_every_named_test_exists() {
    let tests = tests();
    let (mut rows, mut faults) = (BTreeSet::new(), Vec::new());
    for promise in promises() {
        if promise.tests.is_empty() && !promise.is_excused {
            faults.push(format!("{} names no test and gives no reason", promise.id));
        }
        for name in &promise.tests {
            let (file, test) = name.split_once("::").unwrap_or((name, ""));
            if !tests.get(file).is_some_and(|tests| tests.contains(test)) {
                faults.push(format!("{} names {name}, which does not exist", promise.id));
            }
        }
        if !rows.insert(promise.id.clone()) {
            faults.push(format!("{} has two rows", promise.id));
        }
    }
    for (document, last) in DUE {
        for number in 1..=last {
            let promise = format!("{document}-{number}");
            if !rows.remove(&promise) {
                faults.push(format!("{promise} has no row"));
            }
        }
    }
    faults.extend(rows.iter().map(|row| format!("{row} is not due")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn every_promise_that_is_kept_has_a_test_that_was_seen_to_fail() {
    let table = fs::read_to_string(root().join("docs/promises.tsv")).unwrap();
    let promises = promises();
    let named: BTreeMap<_, _> = promises.iter().map(|one| (one.id.as_str(), &one.tests)).collect();
    let (mut seen, mut faults) = (BTreeSet::new(), Vec::new());
    for fault in seen_faults(&table).unwrap() {
        let is_named = named
            .get(fault.promise)
            .is_some_and(|tests| tests.iter().any(|test| test == fault.test));
        if !is_named {
            faults.push(format!("the row of {} does not name {}", fault.promise, fault.test));
        }
        if !seen.insert((fault.promise, fault.test, fault.fault)) {
            faults.push(format!("{} {} is there twice", fault.promise, fault.test));
        }
    }
    for promise in promises.iter().filter(|promise| !promise.tests.is_empty()) {
        let is_seen = seen.iter().any(|(id, _, _)| *id == promise.id);
        if is_seen == UNSEEN.contains(&promise.id.as_str()) {
            let text = if is_seen {
                "was seen to fail: remove it from the list"
            } else {
                "has no test that was seen to fail"
            };
            faults.push(format!("{} {text}", promise.id));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
