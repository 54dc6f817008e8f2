//! Results of all suites, read from what the test binaries print.

use std::{
    io::{self, Write},
    process::ExitStatus,
};

/// True if everything passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Green,
    Red,
}

/// The sum of all suites.
#[derive(Default)]
pub(crate) struct Outcome {
    passed: usize,
    failed: usize,
    /// Failed tests, each with the line that runs it again.
    failures: Vec<(String, String)>,
}

/// Reads the output of one run of one or more suites.
#[derive(Default)]
pub(crate) struct Reader {
    passed: usize,
    failed: usize,
    done: usize,
    names: Vec<String>,
    /// Names of the list that is being read. It counts once a result follows: before it, libtest prints the output of the
    /// failed tests under the same heading.
    listed: Vec<String>,
}

impl Reader {
    pub(crate) fn take(&mut self, line: &str) {
        let line = line.trim_end();
        if line == "failures:" {
            self.listed.clear();
        } else if let Some(result) = line.strip_prefix("test result: ") {
            self.passed += number(result, " passed");
            let failed = number(result, " failed");
            self.failed += failed;
            // Output of passed suites may have indented lines, too.
            if failed > 0 {
                self.names.append(&mut self.listed);
            }
            self.listed.clear();
        } else if let Some(name) = line.strip_prefix("    ") {
            self.listed.push(name.to_owned());
        } else if line.starts_with("test ") {
            self.done += 1;
        }
    }

    pub(crate) fn done(&self) -> usize {
        self.done
    }
}

/// The number before a word: `3` of `ok. 3 passed; 0 failed`.
fn number(text: &str, word: &str) -> usize {
    let before = text.split_once(word).map_or("", |(before, _)| before);
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

impl Outcome {
    /// Adds a run. One that ends badly without a failed test counts as one failure, which `again` runs again.
    pub(crate) fn add(&mut self, reader: &Reader, name: &str, again: &str, status: ExitStatus) {
        self.passed += reader.passed;
        self.failed += reader.failed;
        let line = |name: &String| (name.clone(), format!("cargo xtask test {}", quoted(name)));
        self.failures.extend(reader.names.iter().map(line));
        if !status.success() && reader.failed == 0 {
            self.failed += 1;
            self.failures.push((format!("{name}: {status}"), format!("cargo xtask test {again}")));
        }
    }

    /// Tests whose installation failed. The reason was printed by the installation.
    pub(crate) fn did_not_run(&mut self, tests: impl IntoIterator<Item = String>) {
        for test in tests {
            let line = format!("cargo xtask test {}", quoted(&test));
            self.failed += 1;
            self.failures.push((format!("{test}: not run, because its installation failed"), line));
        }
    }

    /// Lists the failures and ends with the totals alone on a line.
    pub(crate) fn finish(self, out: &mut dyn Write) -> io::Result<Verdict> {
        if !self.failures.is_empty() {
            writeln!(out, "\nFailed, each with the line that runs it again:")?;
        }
        for (name, line) in &self.failures {
            writeln!(out, "  {name}\n    {line}")?;
        }
        writeln!(out, "\n{} passed, {} failed", self.passed, self.failed)?;
        let is_green = self.failures.is_empty() && self.failed == 0;
        Ok(if is_green { Verdict::Green } else { Verdict::Red })
    }
}

/// A name for a shell: those of doc tests have spaces and brackets.
fn quoted(name: &str) -> String {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "_:".contains(char);
    if name.chars().all(is_plain) { name.to_owned() } else { format!("'{name}'") }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    const OUTPUT: &str = "
running 3 tests
test lists::a_page_is_bounded ... ok
test rules::a_task_ends_once ... FAILED
test serial::one_after_the_other ... FAILED

failures:

---- rules::a_task_ends_once stdout ----
    an indented line of its own
failures:
test result: it says

failures:
    rules::a_task_ends_once
    serial::one_after_the_other

test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.02s
";

    fn read(output: &str) -> Reader {
        let mut reader = Reader::default();
        output.lines().for_each(|line| reader.take(line));
        reader
    }

    fn shown(outcome: Outcome) -> (String, bool) {
        let mut text = Vec::new();
        let ended = outcome.finish(&mut text).unwrap() == Verdict::Green;
        (String::from_utf8(text).unwrap(), ended)
    }

    #[test]
    fn the_end_lists_failures_with_the_line_to_run_each_again() {
        let mut outcome = Outcome::default();
        outcome.add(
            &read("test result: ok. 40 passed; 0 failed; 1 ignored"),
            "a",
            "-p a",
            ExitStatus::from_raw(0),
        );
        outcome.add(&read(OUTPUT), "b", "-p b", ExitStatus::from_raw(101 << 8));
        let (text, is_green) = shown(outcome);
        assert!(!is_green);
        assert!(
            text.contains(
                "  rules::a_task_ends_once\n    cargo xtask test rules::a_task_ends_once\n"
            ),
            "{text}"
        );
        assert!(text.contains("    cargo xtask test serial::one_after_the_other\n"), "{text}");
        assert!(text.ends_with("\n41 passed, 2 failed\n"), "{text}");
    }

    #[test]
    fn a_suite_that_dies_without_a_result_is_a_failure() {
        let mut outcome = Outcome::default();
        outcome.add(&read("test a ... ok"), "herald it", "-p herald", ExitStatus::from_raw(9));
        let (text, is_green) = shown(outcome);
        assert!(!is_green && text.contains("cargo xtask test -p herald\n"), "{text}");
        assert!(text.ends_with("\n0 passed, 1 failed\n"), "{text}");
    }

    #[test]
    fn a_doc_test_is_named_in_quotes() {
        let name = "crates/engine/src/lib.rs - Engine (line 7)";
        let output =
            format!("failures:\n    {name}\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored");
        let mut outcome = Outcome::default();
        outcome.add(&read(&output), "doc tests", "crates/", ExitStatus::from_raw(101 << 8));
        let (text, _) = shown(outcome);
        assert!(text.contains(&format!("cargo xtask test '{name}'\n")), "{text}");
    }

    #[test]
    fn a_missing_installation_fails_the_tests_that_need_it() {
        let mut outcome = Outcome::default();
        outcome.did_not_run(["clients::python_1_x".to_owned()]);
        let (text, is_green) = shown(outcome);
        assert!(!is_green && text.ends_with("\n0 passed, 1 failed\n"), "{text}");
    }
}
