//! Installations that tests need, by the beginning of their names.

use std::collections::BTreeSet;

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
    Curl,
}

/// Package, beginning of the test's name, need. A test below checks this table against the sources.
const TABLE: [(&str, &str, Need); 15] = [
    ("herald-protocol", "clients_", Need::Clients),
    ("herald-client", "official::", Need::Servers),
    ("herald-client", "signatures::cards_that_the_official_sdks_signed", Need::Servers),
    ("herald", "clients::", Need::Clients),
    ("herald", "upstream::official::", Need::Servers),
    ("herald", "conformance::it_finds_", Need::Servers),
    ("herald", "conformance::the_kit_of_the_a2a_project", Need::Python),
    ("herald", "coding_", Need::Coding),
    ("herald", "a2a_server::what_this_version_lacks", Need::Python),
    ("herald", "exec::files_have_a_path_and_data_is_json", Need::Python),
    ("herald", "handler::", Need::Python),
    ("herald", "python::", Need::Python),
    ("herald", "pages::", Need::Curl),
    ("herald", "seeds::", Need::Curl),
    ("herald", "tls::", Need::Curl),
];

impl Need {
    pub(crate) const ALL: [Self; 5] =
        [Self::Clients, Self::Servers, Self::Coding, Self::Python, Self::Curl];

    /// Whether `--quick` runs tests with this need.
    pub(crate) fn is_quick(self) -> bool {
        match self {
            Self::Curl => true,
            Self::Clients | Self::Servers | Self::Coding | Self::Python => false,
        }
    }
}

/// The needs of a test.
pub(crate) fn of(package: &str, test: &str) -> BTreeSet<Need> {
    let matching =
        TABLE.iter().filter(|(of, beginning, _)| *of == package && test.starts_with(beginning));
    matching.map(|(_, _, need)| *need).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::root;

    /// Words in the source of a test module, and the need that each of them shows.
    const WORDS: [(&str, Need); 4] = [
        ("HERALD_TEST_CLIENTS", Need::Clients),
        ("HERALD_TEST_SERVERS", Need::Servers),
        ("HERALD_TEST_CODING", Need::Coding),
        ("\"python3", Need::Python),
    ];

    /// Modules that only help others: their own tests need nothing.
    const HELPERS: [&str; 1] = ["coding"];

    #[test]
    fn every_module_that_uses_an_installation_is_in_the_table() {
        let mut checked = 0;
        for package in fs::read_dir(root().join("crates")).unwrap() {
            let package = package.unwrap();
            let name = match package.file_name().to_str().unwrap() {
                "herald" => "herald".to_owned(),
                other => format!("herald-{other}"),
            };
            visit(&package.path().join("tests"), &mut Vec::new(), &mut |module, source| {
                for (word, need) in WORDS {
                    if source.contains(word) && !HELPERS.contains(&module) {
                        checked += 1;
                        assert!(
                            is_listed(&name, module, need),
                            "{name}: {module} needs {need:?}: add it to TABLE"
                        );
                    }
                }
            });
        }
        assert!(checked >= 6, "only {checked} modules were found");
    }

    fn is_listed(package: &str, module: &str, need: Need) -> bool {
        let module = format!("{module}::");
        TABLE.iter().any(|(of, beginning, listed)| {
            let same = beginning.starts_with(&module) || module.starts_with(beginning);
            *of == package && *listed == need && same
        })
    }

    /// Calls `check` with the path and the source of each module of each test binary.
    fn visit(directory: &Path, above: &mut Vec<String>, check: &mut dyn FnMut(&str, &str)) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        for path in entries.map(|entry| entry.unwrap().path()) {
            above.push(path.file_stem().unwrap().to_str().unwrap().to_owned());
            if path.is_dir() {
                visit(&path, above, check);
            } else if path.extension().is_some_and(|kind| kind == "rs") {
                // The first name is that of the binary, which the names of its tests leave out.
                let module = above.get(1..).unwrap_or_default().join("::");
                check(&module, &fs::read_to_string(&path).unwrap());
            }
            above.pop();
        }
    }
}
