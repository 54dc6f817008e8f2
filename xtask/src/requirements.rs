//! `cargo xtask requirements`: protocol requirements with and without a test that names them, and the number of promises
//! with a test.
//!
//! A test names what it proves in a line `// proves: SEND-001, GET-002` right above it. The list of
//! requirements is a tab-separated file whose first column is the id and whose second and third are
//! the versions and bindings it is about.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::Write,
    path::{Path, PathBuf},
};

use anyhow::Context;

use crate::{promises, root};

const MARK: &str = "// proves: ";

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<()> {
    let list = match arguments.first() {
        Some(path) => PathBuf::from(path),
        None => env::var_os("HERALD_REQUIREMENTS")
            .map_or_else(|| root().join("docs/requirements.tsv"), PathBuf::from),
    };
    let text = fs::read_to_string(&list)
        .with_context(|| format!("cannot read the list of requirements {}", list.display()))?;
    let known: BTreeMap<&str, &str> =
        text.lines().skip(1).filter_map(|line| line.split_once('\t')).collect();
    let mut proved: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for directory in ["crates", "tests"] {
        collect(&root().join(directory), &mut proved)?;
    }
    let mut out = std::io::stdout().lock();
    let (covered, open): (Vec<_>, Vec<_>) =
        known.iter().partition(|(id, _)| proved.contains_key(**id));
    writeln!(out, "covered ({}):", covered.len())?;
    for (id, _) in &covered {
        let files: Vec<_> = proved[**id].iter().map(String::as_str).collect();
        writeln!(out, "  {id:<10} {}", files.join(" "))?;
    }
    writeln!(out, "uncovered ({}):", open.len())?;
    for (id, rest) in &open {
        let mut columns = rest.split('\t');
        let (versions, bindings) = (columns.next().unwrap_or(""), columns.next().unwrap_or(""));
        let text = columns.nth(1).unwrap_or("");
        writeln!(out, "  {id:<10} {versions:<12} {bindings:<18} {text}")?;
    }
    write_promises(&mut out)?;
    let unknown: Vec<_> = proved.keys().filter(|id| !known.contains_key(id.as_str())).collect();
    anyhow::ensure!(unknown.is_empty(), "tests name requirements that do not exist: {unknown:?}");
    Ok(())
}

/// Writes how many promises of docs/compatibility.md have a test, and how many of those tests were seen to fail.
fn write_promises(out: &mut impl Write) -> anyhow::Result<()> {
    let read = |file: &str| {
        let path = root().join(file);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let (page, table) = (read("docs/compatibility.md")?, read("docs/promises.tsv")?);
    let promises = promises::promises(&page).map_err(anyhow::Error::msg)?;
    let seen = promises::seen_faults(&table).map_err(anyhow::Error::msg)?;
    let faults: BTreeSet<_> = seen.iter().map(|fault| fault.fault).collect();
    let tests: BTreeSet<_> = seen.iter().map(|fault| fault.test).collect();
    let seen: BTreeSet<_> = seen.iter().map(|fault| fault.promise).collect();
    let kept: Vec<_> = promises.iter().filter(|promise| !promise.tests.is_empty()).collect();
    let excused = promises.iter().filter(|promise| promise.is_excused && promise.tests.is_empty());
    let unseen: Vec<_> =
        kept.iter().map(|promise| &*promise.id).filter(|id| !seen.contains(id)).collect();
    writeln!(
        out,
        "promises ({}): {} kept with a test, {} of them seen to fail ({} faults, {} tests); {} excused",
        promises.len(),
        kept.len(),
        kept.len() - unseen.len(),
        faults.len(),
        tests.len(),
        excused.count(),
    )?;
    if !unseen.is_empty() {
        writeln!(out, "  not seen to fail: {}", unseen.join(" "))?;
    }
    Ok(())
}

fn collect(
    directory: &Path,
    proved: &mut BTreeMap<String, BTreeSet<String>>,
) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            if !path.ends_with("node_modules") && !path.ends_with("target") {
                collect(&path, proved)?;
            }
            continue;
        }
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let shown = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        for line in text.lines() {
            let Some(ids) = line.trim_start().strip_prefix(MARK) else { continue };
            for id in ids.split(',') {
                proved.entry(id.trim().to_owned()).or_default().insert(shown.clone());
            }
        }
    }
    Ok(())
}
