//! Live streams as language models make them: CPU time per frame and memory per task at work.

use std::path::{Path, PathBuf};

use anyhow::ensure;

use super::{
    Options,
    install::{Bench, raise_open_files},
    load::{Case, Kind},
    median, pause, print,
    probe::{peak, resident},
    report::Table,
    rounds::{SETTLE, warm_up},
    say,
    server::{Data, Running, Subject},
};

const STREAMS: u64 = 1000;

/// Chunks of each stream, as the load generator asks for them. Each is one frame and one write.
const CHUNKS: u64 = 200;

/// Costs of one frame and of one live task.
struct Cost {
    cpu_us: f64,
    memory_kb: f64,
    /// From the first request to the end of the last stream; ten seconds if nothing waits.
    elapsed_s: f64,
}

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    let limit = raise_open_files()?;
    ensure!(limit > STREAMS + 100, "only {limit} files may be open: raise ulimit -n");
    let mut binaries: Vec<(&str, PathBuf)> =
        options.baseline.iter().map(|path| ("before", path.clone())).collect();
    binaries.push(("now", bench.herald()));
    let mut costs: Vec<Vec<Cost>> = binaries.iter().map(|_| Vec::new()).collect();
    for round in 1..=options.rounds {
        say(format!("round {round} of {}", options.rounds));
        for ((_, binary), costs) in binaries.iter().zip(&mut costs) {
            costs.push(measure(bench, binary)?);
        }
    }
    let mut table = Table::with_words_from(1 + binaries.len());
    table.heading(&format!(
        "\n{STREAMS} streams of {CHUNKS} chunks, one each 50 ms (medians of {} rounds)",
        options.rounds
    ));
    table.cells("", binaries.iter().map(|(name, _)| (*name).to_owned()), "");
    let mut line = |name: &str, figure: fn(&Cost) -> f64| {
        let cells = costs.iter().map(|rounds| median(rounds.iter().map(figure)));
        let cells = cells.map(|cell| cell.map_or_else(String::new, |cell| format!("{cell:.1}")));
        table.cells(name, cells, "");
    };
    line("CPU per frame, µs", |cost| cost.cpu_us);
    line("memory per live task with its stream, at the peak, KB", |cost| cost.memory_kb);
    line("time until all have ended, s", |cost| cost.elapsed_s);
    print(table)
}

fn measure(bench: &Bench, binary: &Path) -> anyhow::Result<Cost> {
    let data = Data::create(bench)?;
    let server = Running::launch(bench.wrapped(&[], binary), Subject::Herald, &data)?;
    let ids = data.file("ids");
    warm_up(bench, &server, Subject::Herald, &ids)?;
    pause(SETTLE);
    let before = resident(server.pid())?;
    let reading = Case::new(Kind::Live, STREAMS).run(bench, &server, STREAMS, &ids)?;
    let (errors, error) = (reading.outcome.errors, reading.outcome.error.unwrap_or_default());
    ensure!(errors == 0, "{errors} streams failed, the first: {error}");
    Ok(Cost {
        cpu_us: reading.cpu.total() / CHUNKS as f64,
        memory_kb: (peak(server.pid())? - before) / STREAMS as f64,
        elapsed_s: reading.outcome.elapsed_s,
    })
}
