//! `cargo xtask test`: installs what the chosen tests need, runs every suite whatever fails, and lists the failures.

mod needs;
mod outcome;
mod suites;

use std::{collections::BTreeSet, io::Write, time::Instant};

use anyhow::{bail, ensure};

pub(crate) use self::{needs::Need, outcome::Verdict};
use self::{
    outcome::Outcome,
    suites::{Chosen, Suite, Test},
};
use crate::{
    prepare,
    progress::{Steps, say, time},
};

const USAGE: &str = "usage: cargo xtask test [options] [filter…]
  filter         runs only the tests whose names contain one of these, and prepares only what they need;
                 a doc test is named by the path of its file
  -p PACKAGE     only the tests of a package, such as herald-engine
  --quick        only the tests of plain `cargo test`, which need no SDK, no coding agent, no Python and no Node";

#[derive(Debug, Default, PartialEq)]
struct Options {
    filters: Vec<String>,
    packages: Vec<String>,
    is_quick: bool,
}

pub(crate) fn run(arguments: &[String]) -> anyhow::Result<Verdict> {
    let Some(options) = Options::parse(arguments)? else {
        writeln!(std::io::stdout(), "{USAGE}")?;
        return Ok(Verdict::Green);
    };
    let begun = Instant::now();
    let steps = Steps::default();
    let (chosen, unmet) = options.prepare(&steps)?;
    say(format!("ready after {}", time(begun.elapsed())));
    let mut outcome = Outcome::default();
    for (suite, tests) in &chosen.tests {
        let lacks = |test: &&Test| test.need.is_some_and(|need| unmet.contains(&need));
        let (missing, tests): (Vec<_>, Vec<_>) = tests.iter().partition(lacks);
        outcome.did_not_run(missing.into_iter().map(|test| test.name.clone()));
        let tests: Vec<_> = tests.into_iter().cloned().collect();
        if !tests.is_empty() {
            suite.run(&tests, &mut outcome)?;
        }
    }
    if options.wants_doc_tests() {
        suites::doc_tests(&options.packages, &options.filters, &mut outcome)?;
    }
    prepare::report_sizes();
    if options.is_quick {
        say(
            "left out: the tests that need an SDK, a coding agent, Python or Node; `cargo xtask test` runs them",
        );
    }
    say(format!("took {}", time(begun.elapsed())));
    Ok(outcome.finish(&mut std::io::stdout())?)
}

/// Runs the tests of plain `cargo test` except the slow ones: those of the real binary, and the doc tests.
pub(crate) fn fast() -> anyhow::Result<Verdict> {
    let steps = Steps::default();
    steps.expect(1);
    let suites = Suite::build(&steps, true)?;
    let begun = Instant::now();
    let mut outcome = Outcome::default();
    for suite in suites.iter().filter(|suite| !suite.is_slow()) {
        suite.run(&suite.list()?, &mut outcome)?;
    }
    say("left out: the tests of the real binary and the doc tests; `cargo test` runs them");
    say(format!("took {}", time(begun.elapsed())));
    Ok(outcome.finish(&mut std::io::stdout())?)
}

impl Options {
    /// `None` when the user asked for help.
    fn parse(arguments: &[String]) -> anyhow::Result<Option<Self>> {
        let mut options = Self::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-h" | "--help" => return Ok(None),
                "--quick" => options.is_quick = true,
                "-p" | "--package" => match words.next() {
                    Some(package) => options.packages.push(package.clone()),
                    None => bail!("{word} needs a package\n{USAGE}"),
                },
                _ => {
                    ensure!(!word.starts_with('-'), "unknown option {word}\n{USAGE}");
                    options.filters.push(word.clone());
                }
            }
        }
        Ok(Some(options))
    }

    /// Builds the tests and installs what the chosen ones need. Returns them and the needs that could not be met.
    fn prepare(&self, steps: &Steps) -> anyhow::Result<(Chosen, BTreeSet<Need>)> {
        steps.expect(1);
        let build = || Suite::build(steps, self.is_quick);
        let runs_all = self.filters.is_empty() && self.packages.is_empty() && !self.is_quick;
        if runs_all {
            // All needs are known before the tests are built, so installations run beside the build.
            let needs = Need::ALL.into();
            let pieces = prepare::pieces(&needs)?;
            let (built, unmet) = prepare::install(steps, &needs, &pieces, build);
            return Ok((Chosen::from(built?, self)?, unmet));
        }
        let chosen = Chosen::from(build()?, self)?;
        let needs = chosen.needs();
        let pieces = prepare::pieces(&needs)?;
        let ((), unmet) = prepare::install(steps, &needs, &pieces, || ());
        Ok((chosen, unmet))
    }

    /// True if doc tests are among the chosen: to find them takes as long as to compile every crate.
    fn wants_doc_tests(&self) -> bool {
        self.filters.is_empty() || self.filters.iter().any(|filter| filter.contains('/'))
    }

    /// True if the filters name this test.
    fn names(&self, package: &str, test: &str) -> bool {
        let is_named = |filter: &String| test.contains(filter.as_str());
        (self.packages.is_empty() || self.packages.iter().any(|wanted| wanted == package))
            && (self.filters.is_empty() || self.filters.iter().any(is_named))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> anyhow::Result<Option<Options>> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn filters_choose_by_name_and_options_are_checked() {
        let options = parse("-p herald crash drain").unwrap().unwrap();
        assert!(options.names("herald", "crash::a_kill_loses_nothing"));
        assert!(!options.names("herald", "exec::a_program_is_an_agent"));
        assert!(!options.names("herald-engine", "crash::a_kill_loses_nothing"));
        assert!(parse("--fast").is_err() && parse("-p").is_err());
        assert_eq!(parse("--help").unwrap(), None);
    }
}
