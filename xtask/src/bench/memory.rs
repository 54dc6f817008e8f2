//! Resident memory of large messages of every shape over every binding, as multiples of their bytes.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context;
use serde::Deserialize;

use super::{
    Options,
    install::Bench,
    load::json,
    pause, print,
    probe::{peak, resident},
    report::Table,
    say,
    server::{Data, Running, Subject},
};

/// The largest request that the default settings take.
const BYTES: usize = 4 << 20;

/// Memory over idle may be this multiple of a request's bytes.
const LIMIT: f64 = 12.0;

const AT_ONCE: u64 = 24;

/// `[limits] memory` of the default settings and 64 MiB, over idle.
const AT_ONCE_LIMIT: f64 = ((256 + 64) << 20) as f64;

const CGROUP_BYTES: u64 = 1 << 30;

/// The time that a server has to return memory and become idle.
const SETTLE: Duration = Duration::from_secs(1);

/// As the load generator calls them.
const SHAPES: [&str; 7] =
    ["objects", "arrays", "numbers", "strings", "nested", "metadata", "parts"];

#[derive(Clone, Copy)]
enum Binding {
    JsonRpc,
    Rest,
    WebSocket,
    Grpc,
}

/// The output of the load generator.
#[derive(Deserialize)]
struct Sent {
    bytes: usize,
    served: usize,
    refused: usize,
    error: Option<String>,
}

/// Bytes that a server held.
struct Held {
    sent: Sent,
    idle: f64,
    peak: f64,
    after: f64,
}

impl Binding {
    const ALL: [Self; 4] = [Self::JsonRpc, Self::Rest, Self::WebSocket, Self::Grpc];

    const fn name(self) -> &'static str {
        match self {
            Self::JsonRpc => "JSON-RPC",
            Self::Rest => "REST",
            Self::WebSocket => "WebSocket",
            Self::Grpc => "gRPC",
        }
    }

    fn url(self, server: &Running) -> String {
        match self {
            Self::JsonRpc => server.url(),
            Self::Rest => format!("{}message:send", server.url()),
            Self::WebSocket => server.socket_url("/"),
            Self::Grpc => server.grpc_url("grpc"),
        }
    }
}

pub(crate) fn run(bench: &Bench, options: &Options) -> anyhow::Result<()> {
    // The first shape costs most.
    let shapes = if options.quick { &SHAPES[..1] } else { &SHAPES };
    let mut table = Table::with_words_from(7);
    table.heading(&format!(
        "\nOne message of {} MiB: MiB at rest before and after and at the peak, and multiples of its bytes over idle (limit {LIMIT} ×)",
        BYTES >> 20
    ));
    let titles = ["idle", "peak", "after", "peak ×", "after ×", "MiB sent"].map(str::to_owned);
    table.cells("", titles, "");
    for shape in shapes {
        for binding in Binding::ALL {
            say(format!("{shape} over {}", binding.name()));
            let held = measure(bench, shape, binding, 1)?;
            let times = |value: f64| (value - held.idle) / held.sent.bytes as f64;
            let (peak, after) = (times(held.peak), times(held.after));
            let cells = held.megabytes().into_iter().chain([
                format!("{peak:.1}"),
                format!("{after:.1}"),
                format!("{:.2}", held.sent.bytes as f64 / MIB),
            ]);
            let verdict = held.sent.verdict(peak.max(after) <= LIMIT);
            table.cells(format!("{shape}, {}", binding.name()), cells, &verdict);
        }
    }
    print(table)?;
    print(at_once(bench, shapes)?)?;
    print(in_cgroup(bench)?)
}

const MIB: f64 = (1 << 20) as f64;

fn at_once(bench: &Bench, shapes: &[&'static str]) -> anyhow::Result<Table> {
    let mut table = Table::with_words_from(6);
    table.heading(&format!(
        "\n{AT_ONCE} such messages at once, in MiB (limit: {} over idle)",
        AT_ONCE_LIMIT / MIB
    ));
    let titles = ["idle", "peak", "after", "served", "not served"].map(str::to_owned);
    table.cells("", titles, "");
    let every_shape = shapes.iter().map(|shape| (*shape, Binding::JsonRpc));
    let every_binding = Binding::ALL.map(|binding| ("objects", binding));
    for (shape, binding) in every_shape.chain(every_binding.into_iter().skip(1)) {
        say(format!("{AT_ONCE} times {shape} over {}", binding.name()));
        let held = measure(bench, shape, binding, AT_ONCE)?;
        let counts = [held.sent.served.to_string(), held.sent.refused.to_string()];
        let cells = held.megabytes().into_iter().chain(counts);
        let verdict = if held.peak - held.idle <= AT_ONCE_LIMIT { "met" } else { "MISSED" };
        table.cells(format!("{shape}, {}", binding.name()), cells, verdict);
    }
    Ok(table)
}

/// Sends messages to a new server and reads its memory.
fn measure(bench: &Bench, shape: &str, binding: Binding, requests: u64) -> anyhow::Result<Held> {
    let data = Data::create(bench)?;
    let server = Running::start(bench, Subject::Herald, &data)?;
    pause(SETTLE);
    let idle = resident(server.pid())? * 1024.0;
    let sent = send(bench, &server, shape, binding, requests)?;
    let peak = peak(server.pid()).context("the server died of it")? * 1024.0;
    pause(SETTLE);
    let after = resident(server.pid())? * 1024.0;
    Ok(Held { sent, idle, peak, after })
}

fn send(
    bench: &Bench,
    server: &Running,
    shape: &str,
    binding: Binding,
    requests: u64,
) -> anyhow::Result<Sent> {
    let mut load = bench.load();
    load.args(["large", "--url", &binding.url(server), "--shape", shape]).args([
        "--requests",
        &requests.to_string(),
        "--bytes",
        &BYTES.to_string(),
    ]);
    json(&mut load)
}

impl Held {
    fn megabytes(&self) -> [String; 3] {
        [self.idle, self.peak, self.after].map(|bytes| format!("{:.1}", bytes / MIB))
    }
}

impl Sent {
    fn verdict(&self, is_met: bool) -> String {
        let word = if is_met { "met" } else { "MISSED" };
        match &self.error {
            None => word.to_owned(),
            Some(error) => format!("{word} (not served: {error})"),
        }
    }
}

/// The same in a cgroup of 1 GiB: the server must survive, and start again on the stored tasks.
fn in_cgroup(bench: &Bench) -> anyhow::Result<String> {
    let heading = format!("\n{AT_ONCE} messages of objects at once in a cgroup of 1 GiB: ");
    let group = match Cgroup::create() {
        Ok(group) => group,
        Err(error) => {
            return Ok(format!(
                "{heading}not measured, because no cgroup can be made here: {error:#}"
            ));
        }
    };
    say("in a cgroup of 1 GiB");
    let data = Data::create(bench)?;
    let mut lines = heading;
    for start in ["first start", "second start, on the stored tasks"] {
        let server =
            Running::launch(bench.wrapped(&group.enter(), &bench.herald()), Subject::Herald, &data);
        let Ok(server) = server else {
            lines += &format!("\n  {start}: the server does not start. MISSED");
            continue;
        };
        let sent = send(bench, &server, "objects", Binding::JsonRpc, AT_ONCE)?;
        pause(SETTLE);
        let lives = if resident(server.pid()).is_ok_and(|held| held > 0.0) {
            "met"
        } else {
            "it was killed: MISSED"
        };
        let peak =
            group.peak().map_or_else(String::new, |peak| format!(", peak {:.0} MiB", peak / MIB));
        lines += &format!(
            "\n  {start}: {} served, {} not served{peak}; {lives}",
            sent.served, sent.refused
        );
    }
    Ok(lines)
}

/// A control group with a limit, which goes with its owner.
struct Cgroup {
    path: PathBuf,
    peak: &'static str,
}

/// Where control groups are made, and the names of their files: version 2, and version 1.
const HIERARCHIES: [[&str; 3]; 2] = [
    ["/sys/fs/cgroup", "memory.max", "memory.peak"],
    ["/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"],
];

impl Cgroup {
    fn create() -> anyhow::Result<Self> {
        let mut reason = anyhow::anyhow!("nothing at /sys/fs/cgroup");
        for [root, limit, peak] in HIERARCHIES {
            let path = Path::new(root).join(format!("herald-bench-{}", std::process::id()));
            if let Err(error) = fs::create_dir(&path) {
                reason =
                    anyhow::Error::new(error).context(format!("cannot create {}", path.display()));
                continue;
            }
            let group = Self { path, peak };
            // Where version 1 is mounted below, the root itself takes directories without any limit in them.
            let limit = group.path.join(limit);
            if limit.exists() {
                fs::write(&limit, CGROUP_BYTES.to_string())
                    .with_context(|| format!("cannot write {}", limit.display()))?;
                // Only a kernel with swap has it, and without it there is nothing to turn off.
                drop(fs::write(group.path.join("memory.swap.max"), "0"));
                return Ok(group);
            }
            reason = anyhow::anyhow!("no {}", limit.display());
        }
        Err(reason)
    }

    /// Words before a command that run it in the group.
    fn enter(&self) -> Vec<OsString> {
        let script = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;
        vec!["sh".into(), "-c".into(), script.into(), self.path.clone().into()]
    }

    fn peak(&self) -> Option<f64> {
        fs::read_to_string(self.path.join(self.peak)).ok()?.trim().parse().ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // It fails while a process is left in it, which the server's guard has ended.
        drop(fs::remove_dir(&self.path));
    }
}
