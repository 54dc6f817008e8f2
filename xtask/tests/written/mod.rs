//! List of all tests in this workspace, for pages that name them.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The names of all tests, by the file they are in, without its extension.
pub(crate) fn tests() -> BTreeMap<String, BTreeSet<String>> {
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
            // Functions that a macro makes tests of, for example one for each version of a program.
            if line == "with_both! {" {
                let names = lines.by_ref().map_while(|line| line.strip_suffix(','));
                tests.entry(stem.clone()).or_default().extend(names.map(str::to_owned));
                continue;
            }
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

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
