//! Runs of the load generator, with the server's CPU time.

use std::{
    fmt,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};

use super::{
    install::Bench,
    probe::Cpu,
    server::{Running, Subject},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Send,
    Get,
    List,
    Stream,
    /// A stream of 200 chunks, one each 50 ms.
    Live,
    /// A send to a program.
    Program,
    /// A send over a WebSocket.
    Socket,
    /// A send over gRPC.
    GrpcSend,
    /// A get over gRPC.
    GrpcGet,
    /// A get over gRPC on a connection of its own.
    GrpcGetApart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Case {
    pub(crate) kind: Kind,
    pub(crate) concurrency: u64,
    /// Bytes of a data part that goes along with each message.
    #[serde(skip)]
    data: usize,
    /// The pause after each request of a connection, in milliseconds.
    #[serde(skip)]
    pause_ms: u64,
    /// The bearer token of its requests.
    #[serde(skip)]
    token: Option<&'static str>,
}

/// The output of the load generator.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) struct Outcome {
    pub(crate) requests: u64,
    pub(crate) errors: u64,
    pub(crate) error: Option<String>,
    pub(crate) elapsed_s: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) first_p50_us: Option<f64>,
    pub(crate) first_p99_us: Option<f64>,
}

/// One run of one case: the client's view, and the server's CPU time for each request.
pub(crate) struct Reading {
    pub(crate) outcome: Outcome,
    pub(crate) cpu: Cpu,
}

/// Streams that are held open. Dropping it closes them.
pub(crate) struct Held {
    child: Child,
    stdin: Option<ChildStdin>,
    pub(crate) opened: Opened,
}

#[derive(Deserialize)]
pub(crate) struct Opened {
    pub(crate) open: u64,
    pub(crate) errors: u64,
    pub(crate) error: Option<String>,
}

#[derive(Deserialize)]
struct Alive {
    alive: u64,
}

impl Case {
    pub(crate) const fn new(kind: Kind, concurrency: u64) -> Self {
        Self { kind, concurrency, data: 0, pause_ms: 0, token: None }
    }

    pub(crate) const fn with_data(self, data: usize) -> Self {
        Self { data, ..self }
    }

    /// With a pause after each request of a connection.
    pub(crate) const fn with_pause(self, pause_ms: u64) -> Self {
        Self { pause_ms, ..self }
    }

    /// With this bearer token.
    pub(crate) const fn with_token(self, token: Option<&'static str>) -> Self {
        Self { token, ..self }
    }

    /// Runs the load with webhooks to these URLs, which take turns.
    pub(crate) fn with_webhooks(
        self,
        bench: &Bench,
        server: &Running,
        requests: u64,
        urls: &str,
    ) -> anyhow::Result<Outcome> {
        let mut command = self.command(bench, server, requests, Path::new(""));
        json(command.env("LOAD_WEBHOOK", urls))
    }

    /// Runs the load alone. Sends append the tasks that they made to `ids`.
    pub(crate) fn answers(
        self,
        bench: &Bench,
        server: &Running,
        requests: u64,
        ids: &Path,
    ) -> anyhow::Result<Outcome> {
        let mut command = self.command(bench, server, requests, ids);
        if self.kind == Kind::Send {
            command.arg("--ids").arg(ids);
        }
        json(&mut command)
    }

    /// `ids` is where gets find the tasks they read.
    pub(crate) fn run(
        self,
        bench: &Bench,
        server: &Running,
        requests: u64,
        ids: &Path,
    ) -> anyhow::Result<Reading> {
        let before = Cpu::of(server.pid())?;
        let outcome = json(&mut self.command(bench, server, requests, ids))?;
        let after = Cpu::of(server.pid()).context("the server died under the load")?;
        Ok(Reading { cpu: after.per_request(&before, requests), outcome })
    }

    pub(crate) fn command(
        self,
        bench: &Bench,
        server: &Running,
        requests: u64,
        ids: &Path,
    ) -> Command {
        let mut load = bench.load();
        load.args([self.kind.mode(), "--url", &self.url(server)])
            .args(["--requests", &requests.to_string()])
            .args(["--concurrency", &self.concurrency.to_string()]);
        if self.kind.mode() == "get" {
            load.arg("--ids").arg(ids);
        }
        if let Some(token) = self.token {
            load.env("LOAD_TOKEN", token);
        }
        if self.data > 0 {
            load.args(["--data", &self.data.to_string()]);
        }
        if self.pause_ms > 0 {
            load.args(["--pause", &self.pause_ms.to_string()]);
        }
        load
    }

    fn url(self, server: &Running) -> String {
        match self.kind {
            Kind::Send | Kind::Get | Kind::List => server.url(),
            Kind::Stream | Kind::Live => server.stream_url(),
            Kind::Program => server.program_url(),
            Kind::Socket => server.socket_url("/"),
            Kind::GrpcSend | Kind::GrpcGet => server.grpc_url("grpc"),
            Kind::GrpcGetApart => server.grpc_url("grpc-each"),
        }
    }
}

impl Kind {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Get => "get",
            Self::List => "list",
            Self::Stream => "stream",
            Self::Live => "live stream",
            Self::Program => "program",
            Self::Socket => "WebSocket send",
            Self::GrpcSend => "gRPC send",
            Self::GrpcGet => "gRPC get",
            Self::GrpcGetApart => "gRPC get, a connection each",
        }
    }

    /// What the load generator calls it.
    const fn mode(self) -> &'static str {
        match self {
            Self::Send | Self::Program | Self::Socket | Self::GrpcSend => "send",
            Self::Get | Self::GrpcGet | Self::GrpcGetApart => "get",
            Self::List => "list",
            Self::Stream => "stream",
            Self::Live => "live",
        }
    }

    /// Whether a server has it at all.
    pub(crate) fn is_served_by(self, subject: Subject) -> bool {
        match self {
            Self::Socket | Self::GrpcSend | Self::GrpcGet | Self::GrpcGetApart => {
                subject.has_every_binding()
            }
            Self::Program => subject == Subject::Herald,
            Self::Send | Self::Get | Self::List | Self::Stream | Self::Live => true,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.kind.name(), self.concurrency)
    }
}

/// Makes tasks, as fast as the server takes them, and notes their ids.
pub(crate) fn fill(
    bench: &Bench,
    server: &Running,
    tasks: u64,
    ids: &Path,
) -> anyhow::Result<Outcome> {
    let mut load = bench.load();
    load.args(["fill", "--url", &server.url(), "--concurrency", "64"])
        .args(["--requests", &tasks.to_string()])
        .arg("--ids")
        .arg(ids);
    let outcome: Outcome = json(&mut load)?;
    ensure!(
        outcome.errors == 0,
        "{} of {tasks} tasks were not made: {}",
        outcome.errors,
        outcome.error.unwrap_or_default()
    );
    Ok(outcome)
}

pub(crate) fn json<T: for<'a> Deserialize<'a>>(command: &mut Command) -> anyhow::Result<T> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the load generator failed: {}", output.status);
    serde_json::from_slice(&output.stdout).context("the load generator printed no result")
}

impl Held {
    /// Returns when every stream has had its first frame.
    pub(crate) fn open(bench: &Bench, url: &str, streams: u64) -> anyhow::Result<Self> {
        let mut load = bench.load();
        load.args(["open", "--url", url, "--requests", &streams.to_string()]);
        let mut child = load.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let stdin = child.stdin.take();
        let mut held = Self { child, stdin, opened: Opened { open: 0, errors: 0, error: None } };
        held.opened = serde_json::from_str(&held.line()?)?;
        Ok(held)
    }

    /// Closes the streams and returns how many of them were still open.
    pub(crate) fn close(mut self) -> anyhow::Result<u64> {
        drop(self.stdin.take());
        let Alive { alive } = serde_json::from_str(&self.line()?)?;
        Ok(alive)
    }

    /// The next line that the load generator prints. It prints few and flushes each, so nothing is
    /// lost in a buffer that is thrown away.
    fn line(&mut self) -> anyhow::Result<String> {
        let stdout = self.child.stdout.as_mut().context("its output is piped")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
