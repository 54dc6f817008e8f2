//! The binary under test: options, start, stop and calls.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::{Instant, sleep, timeout},
};

use crate::{
    canary,
    http::{Answer, Call, Client},
};

/// The timeout of a condition. It is long enough for a busy machine.
pub(crate) const SOON: Duration = Duration::from_secs(300);

/// The timeout of the last look at the metrics. A server that a test has paused does not answer.
const SCRAPE: Duration = Duration::from_secs(2);

/// The agents of most tests: `echo` at the root, and the scripted `conformance` agent.
pub(crate) const AGENTS: &str = r#"
[[agents]]
name = "echo"
kind = "echo"
default = true

[[agents]]
name = "conformance"
kind = "conformance"
"#;

/// The path of the `conformance` agent.
pub(crate) const CONFORMANCE: &str = "/agents/conformance";

/// Options for the start of the binary.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    config: Option<String>,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    data: Option<PathBuf>,
    no_data: bool,
    no_port: bool,
    shell: Option<String>,
    a2a_server: Option<PathBuf>,
}

/// A running server with a directory of its own. It is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Herald {
    /// First, so that the process ends before its files are removed.
    child: Child,
    /// Held open, so that the server can print.
    _stdout: BufReader<ChildStdout>,
    pub(crate) address: SocketAddr,
    /// Its output at the start.
    pub(crate) greeting: String,
    options: Options,
    home: TempDir,
}

/// A process that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Options {
    /// With this `herald.toml`.
    pub(crate) fn config(text: impl Into<String>) -> Self {
        Self { config: Some(text.into()), ..Self::default() }
    }

    /// With `echo` and `conformance`.
    pub(crate) fn agents() -> Self {
        Self::config(AGENTS)
    }

    /// With more flags.
    pub(crate) fn arguments<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    pub(crate) fn environment(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With the data somewhere else than in the server's home.
    pub(crate) fn data(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data = Some(directory.into());
        self
    }

    /// Without `--data`.
    pub(crate) fn no_data(mut self) -> Self {
        self.no_data = true;
        self
    }

    /// Without `--port 0`.
    pub(crate) fn no_port(mut self) -> Self {
        self.no_port = true;
        self
    }

    /// Under its other name, as this program. The data and the settings are then in its home, as
    /// there are no flags for them.
    pub(crate) fn a2a_server(program: impl Into<PathBuf>) -> Self {
        Self { a2a_server: Some(program.into()), no_data: true, ..Self::default() }
    }

    /// After these shell commands, in the same process.
    pub(crate) fn shell(mut self, commands: &str) -> Self {
        self.shell = Some(commands.to_owned());
        self
    }

    fn command(&self, home: &Path) -> Command {
        let binary = Path::new(env!("CARGO_BIN_EXE_herald"));
        let binary = self.a2a_server.as_deref().unwrap_or(binary);
        let mut command = match &self.shell {
            Some(commands) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(format!("{commands}; exec \"$0\" \"$@\"")).arg(binary);
                command
            }
            None => Command::new(binary),
        };
        // Variables of the test's own environment must not reach the server.
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("HERALD_")
                || name.starts_with("AGENT_")
                || name.starts_with("OTEL_")
                || name == "PORT"
                || name == "A2A_PORT"
            {
                command.env_remove(&*name);
            }
        }
        command.current_dir(home);
        if self.a2a_server.is_none() {
            command.arg("serve");
        }
        if !self.no_port {
            command.args(["--port", "0"]);
        }
        if !self.no_data {
            let data = self.data.clone().unwrap_or_else(|| home.join("data"));
            command.arg("--data").arg(data);
        }
        let mut level = None;
        if let Some(text) = &self.config {
            let path = home.join("herald.toml");
            let mut text = text.clone();
            if self.has_secrets() && !text.contains("[metrics]") {
                text.push_str("\n[metrics]\nopen = true\n");
            }
            if self.has_secrets() && !text.contains("[log]") && self.a2a_server.is_none() {
                level = Some(("HERALD_LOG_LEVEL", "trace"));
            }
            fs::write(&path, text).unwrap();
            command.arg("--config").arg(path);
        }
        command.envs(level).args(&self.arguments).envs(self.environment.iter().cloned());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }

    /// True if there are secrets that it could leak. It then logs everything, and its metrics are open, so that
    /// both can be scanned.
    fn has_secrets(&self) -> bool {
        let variables = self.environment.iter().map(|(_, value)| value);
        self.config.iter().chain(variables).any(|text| text.contains(canary::MARK))
    }

    /// Starts it in this directory with all three standard streams as pipes.
    pub(crate) fn spawn_stdio(&self, home: &Path) -> Child {
        let mut command = self.command(home);
        command.arg("--stdio").stdin(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// Starts it and waits for it to end by itself, as it must when it refuses to serve.
    pub(crate) async fn refused(&self) -> Ended {
        let home = tempfile::tempdir().unwrap();
        let ended = ended(self.command(home.path())).await;
        assert!(!ended.status.success(), "it started: {ended:?}");
        assert!(!ended.stderr.contains("panicked"), "{ended:?}");
        ended
    }
}

/// Runs a command to its end.
pub(crate) async fn ended(command: Command) -> Ended {
    ended_within(command, SOON).await
}

/// Runs a slow command to its end.
pub(crate) async fn ended_within(mut command: Command, limit: Duration) -> Ended {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = timeout(limit, command.kill_on_drop(true).output()).await;
    let output = output.expect("it ends in time").unwrap();
    canary::scan("the output of a command", &output.stdout);
    canary::scan("the errors of a command", &output.stderr);
    Ended {
        status: output.status,
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Runs the binary with these arguments to its end.
pub(crate) async fn herald(arguments: &[&str]) -> Ended {
    let mut command = Command::new(env!("CARGO_BIN_EXE_herald"));
    command.args(arguments).env("COLUMNS", "100");
    ended(command).await
}

impl Herald {
    /// Starts a server in a new directory and waits for its address.
    pub(crate) async fn start(options: Options) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (child, stdout, address, greeting) = spawn(&options, home.path()).await;
        Self { child, _stdout: stdout, address, greeting, options, home }
    }

    /// Starts it again with the same settings and the same data, after it has ended.
    pub(crate) async fn restart(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_some(), "it still runs");
        let (child, stdout, address, greeting) = spawn(&self.options, self.home.path()).await;
        (self.child, self._stdout) = (child, stdout);
        (self.address, self.greeting) = (address, greeting);
    }

    /// Changes the settings of the next start.
    pub(crate) fn options(&mut self) -> &mut Options {
        &mut self.options
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill9(&mut self) {
        self.child.kill().await.unwrap();
    }

    /// Asks it to end. `wait` for it to do so.
    pub(crate) async fn terminate(&self) {
        self.signal("TERM").await;
    }

    pub(crate) async fn signal(&self, name: &str) {
        let id = self.child.id().expect("it runs").to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status().await.unwrap();
        assert!(sent.success());
    }

    /// Waits until it has ended by itself, and says how.
    pub(crate) async fn wait(&mut self, limit: Duration) -> ExitStatus {
        let ended = timeout(limit, self.child.wait()).await;
        ended.unwrap_or_else(|_| panic!("it still runs after {limit:?}")).unwrap()
    }

    /// Stops it cleanly and starts it again.
    pub(crate) async fn restart_cleanly(&mut self) {
        self.terminate().await;
        let status = self.wait(SOON).await;
        assert!(status.success(), "{status}\n{}", self.log());
        self.restart().await;
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its database.
    pub(crate) fn database(&self) -> PathBuf {
        let data = self.options.data.clone().unwrap_or_else(|| self.home().join("data"));
        data.join("herald.db")
    }

    /// The log of all its runs.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.home().join("log")).unwrap_or_default()
    }

    /// Its metrics, unless it has stopped, refuses them or serves TLS only.
    fn metrics(&self) -> io::Result<Vec<u8>> {
        let mut socket = TcpStream::connect_timeout(&self.address, SCRAPE)?;
        socket.set_read_timeout(Some(SCRAPE))?;
        socket
            .write_all(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")?;
        let mut text = Vec::new();
        socket.read_to_end(&mut text)?;
        Ok(text)
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await.unwrap()
    }

    /// One call on a connection of its own.
    pub(crate) async fn call(&self, call: &Call) -> Answer {
        self.client().await.call(call).await.unwrap()
    }

    /// Waits until it is ready to serve.
    pub(crate) async fn ready(&self) {
        eventually(SOON, "it is ready", async || {
            self.call(&Call::get("/readyz")).await.status == 200
        })
        .await;
    }
}

impl Drop for Herald {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(4000);
            let from = (from..=log.len()).find(|at| log.is_char_boundary(*at)).unwrap_or(0);
            eprintln!("the server's log ends with:\n{}", &log[from..]);
            return;
        }
        canary::scan("the metrics of the server", self.metrics().unwrap_or_default());
        canary::scan("the log of the server", self.log());
        canary::scan("the greeting of the server", &self.greeting);
    }
}

async fn spawn(
    options: &Options,
    home: &Path,
) -> (Child, BufReader<ChildStdout>, SocketAddr, String) {
    let path = home.join("log");
    let mut log = File::options().create(true).append(true).read(true).open(&path).unwrap();
    let before = log.seek(SeekFrom::End(0)).unwrap();
    let mut child = options.command(home).stderr(log.try_clone().unwrap()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut greeting = String::new();
    // The last line of the greeting is the one that says how to try it.
    while !greeting.contains("\n  try ") || !greeting.ends_with('\n') {
        let read = timeout(SOON, stdout.read_line(&mut greeting)).await;
        if read.expect("it starts in time").unwrap() == 0 {
            let mut said = String::new();
            log.seek(SeekFrom::Start(before)).unwrap();
            log.read_to_string(&mut said).unwrap();
            panic!("it did not start: {greeting}\n{said}");
        }
    }
    let listen = greeting.lines().find_map(|line| line.trim().strip_prefix("listen ")).unwrap();
    let mut address: SocketAddr = listen.trim().parse().unwrap();
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    (child, stdout, address, greeting)
}

/// Polls a condition until it is true, and panics with `what` after the timeout.
pub(crate) async fn eventually(limit: Duration, what: &str, mut look: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !look().await {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

/// A number from the environment, for the long version of a test.
pub(crate) fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// A message id that no other message has.
pub(crate) fn uuid() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Numbers that look random and come out the same for the same seed.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// From the environment, or new.
    pub(crate) fn seeded(name: &str) -> Self {
        Self(number(name, uuid::Uuid::new_v4().as_u64_pair().0 >> 32))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `low` up to but not including `high`.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low)
    }

    pub(crate) fn uuid(&mut self) -> String {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.next().to_be_bytes());
        bytes[8..].copy_from_slice(&self.next().to_be_bytes());
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// Another generator, for a concurrent task.
    pub(crate) fn branch(&mut self) -> Self {
        Self(self.next())
    }
}
