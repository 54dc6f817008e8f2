//! Servers of the comparison: start, readiness and stop.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use serde::Serialize;

use super::{install::Bench, pause};

/// How long a server may take to serve its first card.
const TIMEOUT: Duration = Duration::from_secs(60);

/// `echo` answers sends, and so does `cat`, a program; `conformance` streams in chunks and can be held open. Growth stores more
/// than the default retention keeps, so nothing may be swept away under the measurement.
const HERALD_CONFIG: &str = r#"
[store]
retention = { age = "30d", tasks = 100_000_000, bytes = "1000GiB" }

[[agents]]
name = "echo"
kind = "echo"
default = true

[[agents]]
name = "conformance"
kind = "conformance"

[[agents]]
name = "cat"
kind = "exec"
command = ["cat"]
"#;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Subject {
    Floor,
    Herald,
    OfficialRust,
    Js,
    Python,
}

/// A directory that is removed when it is dropped.
pub(crate) struct Data(PathBuf);

/// A started server. It is killed when this is dropped, on errors too.
pub(crate) struct Running {
    child: Child,
    port: u16,
    subject: Subject,
    pub(crate) startup: Duration,
}

impl Subject {
    pub(crate) const ALL: [Self; 5] =
        [Self::Floor, Self::Herald, Self::OfficialRust, Self::Js, Self::Python];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Herald => "herald",
            Self::OfficialRust => "official-rust",
            Self::Js => "js",
            Self::Python => "python",
        }
    }

    /// Slow servers get fewer requests, to limit the time of a round.
    pub(crate) const fn handicap(self) -> u64 {
        match self {
            Self::Floor | Self::Herald | Self::OfficialRust => 1,
            Self::Js => 4,
            Self::Python => 20,
        }
    }

    const fn is_peer(self) -> bool {
        match self {
            Self::OfficialRust | Self::Js | Self::Python => true,
            Self::Floor | Self::Herald => false,
        }
    }

    pub(crate) fn peers() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|subject| subject.is_peer())
    }

    pub(crate) const fn has_every_binding(self) -> bool {
        match self {
            Self::Herald => true,
            Self::Floor | Self::OfficialRust | Self::Js | Self::Python => false,
        }
    }

    /// Where streams go: the one thing that Herald's default agent does not do.
    const fn stream_path(self) -> &'static str {
        match self {
            Self::Herald => "/agents/conformance/",
            Self::Floor | Self::OfficialRust | Self::Js | Self::Python => "/",
        }
    }
}

impl Data {
    pub(crate) fn create(bench: &Bench) -> anyhow::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = bench.file(&format!("data-{}-{number}", std::process::id()));
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes the configuration of Herald: these lines and the usual ones.
    pub(crate) fn configure(&self, lines: &str) -> anyhow::Result<()> {
        Ok(fs::write(self.file("herald.toml"), format!("{lines}{HERALD_CONFIG}"))?)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next run.
        drop(fs::remove_dir_all(&self.0));
    }
}

impl Running {
    /// Returns when the server has served its card.
    pub(crate) fn start(bench: &Bench, subject: Subject, data: &Data) -> anyhow::Result<Self> {
        Self::launch(bench.program(subject), subject, data)
    }

    /// The same with a command of one's own, up to the server's options.
    pub(crate) fn launch(
        mut command: Command,
        subject: Subject,
        data: &Data,
    ) -> anyhow::Result<Self> {
        let port = free_port()?;
        let log = data.file("server.log");
        configure(&mut command, subject, port, data)?;
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let start = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {}", subject.name()))?;
        let mut running = Self { child, port, subject, startup: Duration::ZERO };
        running.wait_for_card(start).with_context(|| last_words(subject, &log))?;
        running.startup = start.elapsed();
        Ok(running)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks the server to stop and waits until it has.
    pub(crate) fn stop(mut self) -> anyhow::Result<()> {
        let asked = Command::new("kill").args(["-TERM", &self.pid().to_string()]).status()?;
        ensure!(asked.success(), "the server has ended before it was asked to");
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the server ended with {status}");
                return Ok(());
            }
            ensure!(begun.elapsed() < TIMEOUT, "the server did not stop within {TIMEOUT:?}");
            pause(Duration::from_millis(10));
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn stream_url(&self) -> String {
        format!("http://127.0.0.1:{}{}", self.port, self.subject.stream_path())
    }

    /// Where a program is the agent.
    pub(crate) fn program_url(&self) -> String {
        format!("{}agents/cat/", self.url())
    }

    pub(crate) fn socket_url(&self, path: &str) -> String {
        format!("ws://127.0.0.1:{}{path}ws", self.port)
    }

    pub(crate) fn grpc_url(&self, scheme: &str) -> String {
        format!("{scheme}://127.0.0.1:{}", self.port)
    }

    pub(crate) fn stream_socket_url(&self) -> String {
        self.socket_url(self.subject.stream_path())
    }

    fn wait_for_card(&mut self, start: Instant) -> anyhow::Result<()> {
        while !serves_card(self.port) {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended: {status}");
            }
            if start.elapsed() > TIMEOUT {
                bail!("no card within {TIMEOUT:?}");
            }
            pause(Duration::from_millis(1));
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only if it has ended already. Killed rather than asked: the data is thrown away,
        // and where it is not, the next start proves that nothing needed a clean end.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn configure(
    command: &mut Command,
    subject: Subject,
    port: u16,
    data: &Data,
) -> anyhow::Result<()> {
    let port = port.to_string();
    match subject {
        Subject::Herald => {
            let config = data.file("herald.toml");
            if !config.exists() {
                data.configure("")?;
            }
            command.args(["serve", "--host", "127.0.0.1", "--port", &port]);
            command.arg("--data").arg(data.file("store")).arg("--config").arg(config);
        }
        Subject::Floor => {
            command.args(["--port", &port, "--data"]).arg(data.file("store"));
        }
        Subject::OfficialRust | Subject::Js | Subject::Python => {
            command.args(["--port", &port]);
        }
    }
    Ok(())
}

/// A port that was free a moment ago.
fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn serves_card(port: u16) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        let request = format!(
            "GET /.well-known/agent-card.json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
        );
        socket.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer)?;
        Ok(answer.starts_with(b"HTTP/1.1 200"))
    };
    ask().unwrap_or(false)
}

fn last_words(subject: Subject, log: &Path) -> String {
    let log = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = log.lines().rev().take(10).collect();
    let said: Vec<&str> = lines.into_iter().rev().collect();
    format!("{} did not start; it said:\n{}", subject.name(), said.join("\n"))
}
