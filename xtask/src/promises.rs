//! Promises of the appendix of docs/compatibility.md, and the faults with which their tests were seen to fail.

/// Words of a row without a test.
const EXCUSES: [&str; 2] = ["does not apply", "overridden: "];

/// A row of the appendix.
#[derive(Debug)]
pub(crate) struct Promise {
    /// Its document and number, such as `S0-1`; `U` stands for the promises that have no number there.
    pub(crate) id: String,
    /// The tests that prove it, as file and name.
    pub(crate) tests: Vec<String>,
    /// True if the row says why the promise does not apply or is overridden.
    pub(crate) is_excused: bool,
}

/// A fault that was put into the program, and a test that failed with it: a line of docs/promises.tsv.
#[derive(Debug)]
pub(crate) struct SeenFault<'a> {
    pub(crate) promise: &'a str,
    pub(crate) test: &'a str,
    /// The behaviour with the fault, in a few words.
    pub(crate) fault: &'a str,
}

/// The rows of the appendix. The error is a line that is not a row.
pub(crate) fn promises(page: &str) -> Result<Vec<Promise>, String> {
    let (_, appendix) = page.split_once("\n## Appendix: ").ok_or("the page has no appendix")?;
    let is_row = |line: &&str| line.starts_with("| S") || line.starts_with("| U");
    let row = |line: &str| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [id, _asked, _behaviour, proof] = cells[..] else {
            return Err(format!("not four cells: {line}"));
        };
        let (tests, reason) = proof.rsplit_once("; overridden: ").unwrap_or((proof, ""));
        let excuses = EXCUSES.iter().any(|excuse| proof.starts_with(excuse)) || !reason.is_empty();
        Ok(Promise {
            id: id.to_owned(),
            tests: tests.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
            is_excused: excuses,
        })
    };
    appendix.lines().filter(is_row).map(row).collect()
}

/// The lines of docs/promises.tsv below its heading. The error is a line without three columns.
pub(crate) fn seen_faults(table: &str) -> Result<Vec<SeenFault<'_>>, String> {
    let line = |line| {
        let mut columns = str::split(line, '\t').map(str::trim);
        match (columns.next(), columns.next(), columns.next(), columns.next()) {
            (Some(promise), Some(test), Some(fault), None) if !fault.is_empty() => {
                Ok(SeenFault { promise, test, fault })
            }
            (_, _, _, _) => Err(format!("not three columns: {line}")),
        }
    };
    table.lines().skip(1).map(line).collect()
}
