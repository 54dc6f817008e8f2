//! Report of a run: table, budgets and result file.

mod budgets;
mod save;

use std::{fmt, fs, path::Path};

use self::{budgets::Verdict, save::Saved};
use super::{
    Options,
    install::Bench,
    load::{Case, Kind},
    probe::load_average,
    rounds::{Readings, Results, Scale, cases},
    server::Subject,
};

pub(crate) struct Report<'a> {
    bench: &'a Bench,
    options: &'a Options,
    results: &'a Results,
    verdicts: Vec<Verdict>,
}

/// Lines of cells under columns that are as wide as their widest cell.
pub(crate) struct Table {
    /// The column after which everything is words, and words go to the left.
    words_from: usize,
    rows: Vec<Line>,
}

enum Line {
    Heading(String),
    Cells(Vec<String>),
}

/// The word for a budget.
pub(crate) const fn word(is_met: bool) -> &'static str {
    if is_met { "met" } else { "MISSED" }
}

impl<'a> Report<'a> {
    pub(crate) fn new(bench: &'a Bench, options: &'a Options, results: &'a Results) -> Self {
        Self { bench, options, results, verdicts: budgets::judge(results, &Scale::of(options)) }
    }

    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        let saved = Saved::new(self.results, &self.verdicts, &self.bench.missing, self.options);
        Ok(fs::write(path, serde_json::to_vec_pretty(&saved)?)?)
    }

    /// The cases whose CPU budget is missed.
    pub(crate) fn missed(&self) -> Vec<Case> {
        budgets::missed(&self.verdicts)
    }

    /// One column for each server that was measured; the last sets Herald beside the best peer.
    fn table(&self) -> Table {
        let mut table = Table::new();
        table.cells(
            "",
            self.columns().map(|(subject, _)| subject.name().to_owned()),
            "/ best peer",
        );
        self.cpu(&mut table);
        table.heading("Requests per second");
        for case in cases() {
            let rate = |r: &Readings| r.figure(case, |reading| Some(reading.outcome.per_second));
            table.cells(case, self.each(|r| rate(r).map(|rate| format!("{rate:.0}"))), "");
        }
        table.heading("Latency p50 / p99, ms");
        for case in cases() {
            let latency = |readings: &Readings| {
                let p50 = readings.figure(case, |reading| reading.outcome.p50_us)?;
                let p99 = readings.figure(case, |reading| reading.outcome.p99_us)?;
                Some(format!("{:.2} / {:.2}", p50 / 1e3, p99 / 1e3))
            };
            table.cells(case, self.each(latency), "");
        }
        table.heading("First frame p50, ms");
        for case in cases().filter(|case| case.kind == Kind::Stream) {
            let first = |r: &Readings| r.figure(case, |reading| reading.outcome.first_p50_us);
            table.cells(case, self.each(|r| Some(format!("{:.2}", first(r)? / 1e3))), "");
        }
        self.memory(&mut table);
        table
    }

    fn cpu(&self, table: &mut Table) {
        table.heading("CPU per request, µs (× the floor)");
        for case in cases() {
            let floor = self.results.of(Subject::Floor).and_then(|floor| floor.cpu(case));
            let cell = |readings: &Readings| {
                let cpu = readings.cpu(case)?;
                let ratio = floor.map(|floor| format!(" ({:.2}×)", cpu / floor));
                Some(format!("{cpu:.0}{}", ratio.unwrap_or_default()))
            };
            let beside = self.beside_best_peer(|readings| readings.cpu(case));
            table.cells(case, self.each(cell), &beside);
        }
    }

    fn memory(&self, table: &mut Table) {
        table.heading("Memory");
        self.line(table, "idle, MB", |r| Some(super::median(r.idle_kb.iter().copied())? / 1024.0));
        for size in self.sizes() {
            let after = |r: &Readings| {
                let mut after = r.memory.as_ref()?.after.iter();
                Some(after.find(|(tasks, _)| *tasks == size)?.1 / 1024.0)
            };
            self.line(table, &format!("after {size} tasks, MB"), after);
        }
        let label = format!("each of {} streams, KB", self.streams());
        self.line(table, &label, |r| Some(r.memory.as_ref()?.per_stream_kb));
        let label = format!("each of {} WebSockets, KB", self.streams());
        self.line(table, &label, |r| r.memory.as_ref()?.per_socket_kb);
        table.heading("Start to first card");
        self.line(table, "empty store, ms", |r| super::median(r.startup_ms.iter().copied()));
    }

    /// One figure of which less is better.
    fn line(&self, table: &mut Table, label: &str, figure: impl Fn(&Readings) -> Option<f64>) {
        let cells = self.each(|readings| figure(readings).map(|value| format!("{value:.1}")));
        table.cells(label, cells, &self.beside_best_peer(&figure));
    }

    fn beside_best_peer(&self, figure: impl Fn(&Readings) -> Option<f64>) -> String {
        let of = |subject| self.results.of(subject).and_then(&figure);
        let best = Subject::peers().filter_map(of).min_by(f64::total_cmp);
        let ratio = of(Subject::Herald).zip(best).map(|(herald, best)| herald / best);
        ratio.map(|ratio| format!("{ratio:.2}×")).unwrap_or_default()
    }

    fn columns(&self) -> impl Iterator<Item = (Subject, &Readings)> {
        self.results.servers.iter().map(|(subject, readings)| (*subject, readings))
    }

    fn each(&self, cell: impl Fn(&Readings) -> Option<String>) -> impl Iterator<Item = String> {
        self.columns().map(move |(_, readings)| cell(readings).unwrap_or_else(|| "–".to_owned()))
    }

    fn sizes(&self) -> Vec<u64> {
        let memory = self.columns().find_map(|(_, readings)| readings.memory.as_ref());
        memory
            .map(|memory| memory.after.iter().map(|(tasks, _)| *tasks).collect())
            .unwrap_or_default()
    }

    fn streams(&self) -> u64 {
        let memory = self.columns().filter_map(|(_, readings)| readings.memory.as_ref());
        memory.map(|memory| memory.streams).max().unwrap_or_default()
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.options.rounds;
        writeln!(f, "\nMedians of {rounds} round(s), {}.", pinning(self.bench.pinned))?;
        if self.options.quick {
            writeln!(f, "--quick: one round, too few for a reliable result.")?;
        }
        if let Some(busy) = load_average().filter(|load| *load > 1.5) {
            writeln!(f, "The machine is busy (load {busy}): only CPU per request is reliable.")?;
        }
        writeln!(f, "\n{}", self.table())?;
        for missing in &self.bench.missing {
            writeln!(f, "{} IS NOT IN THIS TABLE, {}", missing.subject.name(), missing.remedy)?;
        }
        write!(f, "\n{}", budgets::table(&self.verdicts))
    }
}

pub(crate) const fn pinning(pinned: bool) -> &'static str {
    if pinned { "server on core 0, load on core 1" } else { "nothing pinned: noisy" }
}

impl Table {
    /// Labels, then figures.
    pub(crate) const fn new() -> Self {
        Self::with_words_from(usize::MAX)
    }

    /// Labels, then figures, and words from the given column on.
    pub(crate) const fn with_words_from(column: usize) -> Self {
        Self { words_from: column, rows: Vec::new() }
    }

    pub(crate) fn heading(&mut self, text: &str) {
        self.rows.push(Line::Heading(text.to_owned()));
    }

    pub(crate) fn cells(
        &mut self,
        label: impl fmt::Display,
        cells: impl IntoIterator<Item = String>,
        last: &str,
    ) {
        let cells = cells.into_iter().chain([last.to_owned()]);
        self.rows.push(Line::Cells([label.to_string()].into_iter().chain(cells).collect()));
    }

    /// One figure, with words.
    pub(crate) fn row(&mut self, label: &str, figure: String, words: &str) {
        self.cells(label, [figure], words);
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| match row {
            Line::Heading(_) => None,
            Line::Cells(cells) => cells.get(column),
        });
        cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.rows {
            let mut line = String::new();
            match row {
                Line::Heading(text) => line.push_str(text),
                Line::Cells(cells) => {
                    for (column, cell) in cells.iter().enumerate() {
                        let width = self.width(column);
                        line += &if column == 0 || column >= self.words_from {
                            format!("  {cell:<width$}")
                        } else {
                            format!("  {cell:>width$}")
                        };
                    }
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new();
        table.heading("A heading may be longer than everything");
        table.cells("a", ["1".to_owned()], "");
        table.cells("bcd", ["4567".to_owned()], "");
        let text = table.to_string();
        assert!(text.ends_with("  a       1\n  bcd  4567\n"), "{text}");
    }
}
