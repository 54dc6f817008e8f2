//! Installations that tests need.
//!
//! Tests of the target `foreign` name their need in the first word of their name: `coding_codex::…` needs the coding agents. All
//! other targets are those of plain `cargo test`, which needs a Rust toolchain and curl.

use anyhow::Context;

/// The test target whose tests need an installation. Plain `cargo test` leaves it out.
pub(crate) const TARGET: &str = "foreign";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// The official client SDKs.
    Clients,
    /// Agents on the official server SDKs.
    Servers,
    /// The coding agents that npm has.
    Coding,
    /// Python without any package.
    Python,
    /// The packages that pip needs to install this repository.
    Install,
}

impl Need {
    pub(crate) const ALL: [Self; 5] =
        [Self::Clients, Self::Servers, Self::Coding, Self::Python, Self::Install];

    /// The need of a test of a target.
    pub(crate) fn of(target: &str, test: &str) -> anyhow::Result<Option<Self>> {
        if target != TARGET {
            return Ok(None);
        }
        let word = test.split(['_', ':']).next().unwrap_or_default();
        let found = Self::ALL.into_iter().find(|need| need.word() == word);
        let found = found.with_context(|| {
            let words = Self::ALL.map(Self::word).join(", ");
            format!("the name of the test {test} must begin with one of these: {words}")
        })?;
        Ok(Some(found))
    }

    fn word(self) -> &'static str {
        match self {
            Self::Clients => "clients",
            Self::Servers => "servers",
            Self::Coding => "coding",
            Self::Python => "python",
            Self::Install => "install",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::root;

    #[test]
    fn the_first_word_of_a_foreign_test_is_its_need() {
        let of = |test| Need::of(TARGET, test).unwrap();
        assert_eq!(of("coding_codex::an_approved_action_is_performed"), Some(Need::Coding));
        assert_eq!(of("clients::python_1_x"), Some(Need::Clients));
        let error = Need::of(TARGET, "codex::works").unwrap_err().to_string();
        assert!(error.contains("codex::works") && error.contains("coding"), "{error}");
        assert_eq!(Need::of("it", "codex::works").unwrap(), None);
    }

    /// Words that show that a test needs an installation.
    const SIGNS: [&str; 6] = [
        "HERALD_TEST_CLIENTS",
        "HERALD_TEST_SERVERS",
        "HERALD_TEST_CODING",
        "HERALD_TEST_INSTALL",
        "\"python3",
        "\"node\"",
    ];

    #[test]
    fn no_other_target_uses_an_installation() {
        let mut foreign = 0;
        for package in fs::read_dir(root().join("crates")).unwrap() {
            visit(&package.unwrap().path().join("tests"), &mut |path| {
                let source = fs::read_to_string(path).unwrap();
                if SIGNS.iter().any(|sign| source.contains(sign)) {
                    let is_foreign = path.components().any(|part| part.as_os_str() == TARGET);
                    assert!(is_foreign, "{}: move its tests to tests/{TARGET}", path.display());
                    foreign += 1;
                }
            });
        }
        assert!(foreign >= 6, "only {foreign} files were found");
    }

    fn visit(directory: &Path, check: &mut dyn FnMut(&Path)) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                visit(&path, check);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                check(&path);
            }
        }
    }
}
