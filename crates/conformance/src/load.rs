//! Loader of suites: built-in ones and files, with limits and checks.

use std::{
    fmt,
    io::Read,
    path::{Component, Path, PathBuf},
};

use serde_json::Value;

use super::suite::{Action, SuiteFile};

/// The suites in this binary, by file name.
const BUILT_IN: &[(&str, &str)] = &[
    ("card-1.0.acts.yaml", include_str!("suites/card-1.0.acts.yaml")),
    ("core-1.0.acts.yaml", include_str!("suites/core-1.0.acts.yaml")),
    ("streaming-1.0.acts.yaml", include_str!("suites/streaming-1.0.acts.yaml")),
    ("push-1.0.acts.yaml", include_str!("suites/push-1.0.acts.yaml")),
    ("auth-1.0.acts.yaml", include_str!("suites/auth-1.0.acts.yaml")),
    ("versions-1.0.acts.yaml", include_str!("suites/versions-1.0.acts.yaml")),
    ("jsonrpc-1.0.acts.yaml", include_str!("suites/jsonrpc-1.0.acts.yaml")),
    ("rest-1.0.acts.yaml", include_str!("suites/rest-1.0.acts.yaml")),
    ("core-0.3.acts.yaml", include_str!("suites/core-0.3.acts.yaml")),
    ("rest-0.3.acts.yaml", include_str!("suites/rest-0.3.acts.yaml")),
];

/// The most bytes of a file.
const MAX_BYTES: u64 = 1024 * 1024;
/// The most files of a suite.
const MAX_FILES: usize = 64;
/// The most tests of a file, and steps of a test.
const MAX_TESTS: usize = 2000;
const MAX_STEPS: usize = 100;
/// The most patterns of a file, since each takes time and memory.
const MAX_PATTERNS: usize = 1000;

/// A file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadError {
    file: String,
    why: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.why)
    }
}

impl std::error::Error for LoadError {}

/// The suites in this binary.
pub(super) fn built_in() -> Result<Vec<SuiteFile>, LoadError> {
    BUILT_IN.iter().map(|(name, text)| read(name, text)).collect()
}

/// A suite and the files that it includes, each once.
pub(super) fn file(path: &Path) -> Result<Vec<SuiteFile>, LoadError> {
    let mut seen = Vec::new();
    let mut documents = Vec::new();
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        if seen.contains(&path) {
            continue;
        }
        let fault = |why: String| LoadError { file: path.display().to_string(), why };
        if seen.len() == MAX_FILES {
            return Err(fault(format!("a suite has at most {MAX_FILES} files")));
        }
        let document = read(&path.display().to_string(), &text(&path).map_err(fault)?)?;
        let folder = path.parent().unwrap_or(Path::new(""));
        let included = document.include.iter().map(|name| below(folder, name).map_err(fault));
        let included: Vec<_> = included.collect::<Result<_, _>>()?;
        // The last element is read next, so the files keep their order.
        waiting.extend(included.into_iter().rev());
        seen.push(path);
        documents.push(document);
    }
    Ok(documents)
}

/// The path of an included file, which must be beside or below the file that includes it.
fn below(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let relative = Path::new(name);
    if relative.components().all(|part| matches!(part, Component::Normal(_))) {
        Ok(folder.join(relative))
    } else {
        Err(format!("it includes {name:?}, which is not beside or below it"))
    }
}

fn text(path: &Path) -> Result<String, String> {
    let fault = |fault: std::io::Error| format!("cannot be read: {fault}");
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(fault)?;
    file.take(MAX_BYTES + 1).read_to_string(&mut text).map_err(fault)?;
    if text.len() as u64 > MAX_BYTES {
        Err(format!("is larger than {MAX_BYTES} bytes, the limit for a file of a suite"))
    } else {
        Ok(text)
    }
}

/// Reads one document and checks what its types cannot.
fn read(name: &str, text: &str) -> Result<SuiteFile, LoadError> {
    let fault = |why: String| LoadError { file: name.to_owned(), why };
    // Patterns are compiled while the file is read, so they are counted first. Errors in the file are reported
    // below.
    if serde_saphyr::from_str(text).is_ok_and(|value| patterns(&value) > MAX_PATTERNS) {
        return Err(fault(format!("a file has at most {MAX_PATTERNS} patterns")));
    }
    let mut place = String::new();
    let parsed = serde_saphyr::with_deserializer_from_str(text, |deserializer| {
        serde_path_to_error::deserialize::<_, SuiteFile>(deserializer).map_err(|error| {
            place = error.path().to_string();
            error.into_inner()
        })
    });
    let document = parsed.map_err(|error| {
        let error = error.to_string();
        match place.as_str() {
            "" | "." => fault(error),
            place => fault(format!("{place}: {error}")),
        }
    })?;
    check(&document).map_err(fault)?;
    Ok(document)
}

/// The number of patterns in a value.
fn patterns(value: &Value) -> usize {
    match value {
        Value::Array(list) => list.iter().map(patterns).sum(),
        Value::Object(map) => {
            usize::from(map.contains_key("matches")) + map.values().map(patterns).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn check(document: &SuiteFile) -> Result<(), String> {
    let major = document.acts_version.split('.').next().unwrap_or_default();
    if !matches!(major, "0" | "1") {
        let version = &document.acts_version;
        return Err(format!("acts_version: versions 0 and 1 are supported, not {version:?}"));
    }
    if document.suites.is_empty() && document.include.is_empty() {
        return Err("it has neither suites nor include".to_owned());
    }
    let tests = document.suites.iter().flat_map(|suite| &suite.tests);
    if tests.clone().count() > MAX_TESTS {
        return Err(format!("a file has at most {MAX_TESTS} tests"));
    }
    for (index, test) in tests.clone().enumerate() {
        if tests.clone().take(index).any(|other| other.id == test.id) {
            return Err(format!("test {}: the id is used twice", test.id));
        }
        if test.steps.is_empty() || test.steps.len() > MAX_STEPS {
            return Err(format!("test {}: it must have 1 to {MAX_STEPS} steps", test.id));
        }
        for (index, step) in test.steps.iter().enumerate() {
            if test.steps.iter().take(index).any(|other| other.id == step.id) {
                return Err(format!("test {}: the step {:?} exists twice", test.id, step.id));
            }
            if let Action::Raw(raw) = &step.action
                && !raw.path.starts_with('/')
            {
                return Err(format!("test {}: path {:?} must begin with /", test.id, raw.path));
            }
        }
        let raw = test.steps.iter().all(|step| matches!(step.action, Action::Raw(_)));
        if raw && test.transport.is_empty() && !test.is_about_the_card() {
            return Err(format!(
                "test {}: its steps are raw, so it must name a `transport`",
                test.id
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::suite::Level;

    const LEAST: &str = r#"
acts_version: "1.0"
spec_version: "1.0"
suites:
  - id: one
    name: One
    tests:
      - {id: A-1, name: A, level: must, steps: [{id: s, operation: get_agent_card, params: {}}]}
"#;

    fn refused(text: &str) -> String {
        read("it.yaml", text).unwrap_err().to_string()
    }

    #[test]
    fn built_in_suites_are_valid_and_no_stricter_than_the_requirements_they_name() {
        let table = include_str!("../../../docs/requirements.tsv");
        let rows = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
        let known: HashMap<_, _> = rows.map(|row| (row[0], (row[1], row[3]))).collect();
        for document in built_in().unwrap() {
            for test in document.suites.iter().flat_map(|suite| &suite.tests) {
                for id in test.requirements() {
                    let (versions, level) = known[id.as_str()];
                    let level = match level {
                        "MUST" => Level::Must,
                        "MAY" | "MAY(derived)" => Level::May,
                        // A requirement that only follows from the text is a SHOULD.
                        _ => Level::Should,
                    };
                    assert!(test.level >= level, "{} is stricter than {id}", test.id);
                    let version = &document.spec_version;
                    let fits = versions == "all" || versions.split(',').any(|one| one == version);
                    assert!(fits, "{} checks {id}, which {version} does not have", test.id);
                }
            }
        }
    }

    #[test]
    fn an_error_names_the_file_and_the_path() {
        assert!(read("it.yaml", LEAST).is_ok());
        for (from, to, place) in [
            ("level: must", "level: strict", "it.yaml: suites[0].tests[0].level: "),
            (
                "operation: get_agent_card",
                "operation: get_card",
                "it.yaml: suites[0].tests[0].steps[0]",
            ),
            ("name: A,", "name: A, levle: must,", "it.yaml: suites[0].tests[0]"),
            ("acts_version: \"1.0\"", "acts_version: \"2.0\"", "it.yaml: acts_version: "),
            ("params: {}", "expect: {body: {a: {type: text}}}", "steps[0].expect: "),
            ("params: {}", "capture: {a: \"b[\"}", "steps[0].capture.a: "),
            ("id: s, operation: get_agent_card", "id: s", "must have one of operation"),
            ("suites:", "suits:", "it.yaml: "),
        ] {
            let said = refused(&LEAST.replace(from, to));
            assert!(said.contains(place), "{place} is not in {said}");
        }
    }

    #[test]
    fn the_number_and_the_size_of_patterns_are_limited() {
        let many = vec!["{matches: x}"; MAX_PATTERNS + 1].join(", ");
        let expect = |rules: &str| format!("params: {{}}, expect: {{body: {{any_of: [{rules}]}}}}");
        assert!(refused(&LEAST.replace("params: {}", &expect(&many))).contains("1000 patterns"));
        let huge = r#"{matches: "\\w{60}\\pL{49}"}"#;
        assert!(
            refused(&LEAST.replace("params: {}", &expect(huge))).contains("not a valid pattern")
        );
        assert!(read("it.yaml", &LEAST.replace("params: {}", &expect("{matches: x}"))).is_ok());
    }

    #[test]
    fn rules_beyond_the_types_are_checked() {
        let test = "      - {name: A, level: must, ";
        for (line, why) in [
            ("id: A-1, steps: [{id: s, operation: get_agent_card, params: {}}]}", "used twice"),
            ("id: A-2, steps: []}", "1 to 100 steps"),
        ] {
            let said = refused(&format!("{LEAST}{test}{line}\n"));
            assert!(said.contains(why), "{why} is not in {said}");
        }
        let raw =
            LEAST.replace("operation: get_agent_card, params: {}", "raw: {method: GET, path: /x}");
        assert!(refused(&raw).contains("must name a `transport`"));
        assert!(refused(&raw.replace("path: /x", "path: x")).contains("must begin with /"));
        assert!(refused("acts_version: \"1.0\"\nspec_version: \"1.0\"\n").contains("neither"));
    }

    #[test]
    fn a_file_with_exponential_aliases_is_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let below = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{below}]\n"));
        }
        let unfolded = format!("{text}{LEAST}variables: {{all: *a9}}\n");
        assert!(read("it.yaml", &unfolded).is_err());
        let deep = format!("{LEAST}metadata: {}1{}\n", "[".repeat(100_000), "]".repeat(100_000));
        assert!(read("it.yaml", &deep).is_err());
    }

    #[test]
    fn files_include_others_once_and_only_beside_or_below_them() {
        let folder = tempfile::tempdir().unwrap();
        let write =
            |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let master =
            "acts_version: \"1.0\"\nspec_version: \"1.0\"\ninclude: [a.yaml, a.yaml, all.yaml]\n";
        write("all.yaml", master);
        write("a.yaml", LEAST);
        let documents = file(&folder.path().join("all.yaml")).unwrap();
        assert_eq!(documents.len(), 2, "each once");
        for name in ["../a.yaml", "/etc/passwd"] {
            write("out.yaml", &master.replace("[a.yaml, a.yaml, all.yaml]", &format!("[{name}]")));
            let said = file(&folder.path().join("out.yaml")).unwrap_err().to_string();
            assert!(said.contains("not beside or below"), "{said}");
        }
        write("huge.yaml", &" ".repeat(MAX_BYTES as usize + 1));
        let said = file(&folder.path().join("huge.yaml")).unwrap_err().to_string();
        assert!(said.contains("the limit for a file of a suite"), "{said}");
        let said = file(&folder.path().join("none.yaml")).unwrap_err().to_string();
        assert!(said.contains("none.yaml: cannot be read"), "{said}");
    }
}
