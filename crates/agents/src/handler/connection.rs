//! Connection to one process of a handler: its start, its liveness and the routing of its lines to turns.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
    time::Duration,
};

use herald_protocol::{AgentName, Artifact, Part, TaskState, lines::BoundedLine};
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStderr, ChildStdin},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::task::TaskTracker;

use super::line::{self, Failed, Hello, Pong, ToHandler, TurnOnly};
use crate::{
    failure::Failure,
    process::{Processes, Program, describe},
    text::{LineReader, replace_unpaired_surrogates},
};

/// Bytes in one line of a handler.
const LINE: usize = 8 << 20;

/// Bytes of lines of all turns together that were read and are not in the log yet. Beyond that the
/// reader stops, and the handler's pipe exerts backpressure.
const MAX_BUFFERED: usize = 2 * LINE;

/// Capacity of the queue of lines to one turn, and of that to the handler.
const QUEUE: usize = 64;

/// Time that a handler has for its hello after its start.
const HELLO_TIMEOUT: Duration = Duration::from_secs(20);

/// Longest interval between pings; longer ones that a handler asks for are reduced to this.
const MAX_PING_INTERVAL: Duration = Duration::from_secs(24 * 3600);

/// A process that ran this long, or ended a turn, counts as stable: its failure starts a new series of
/// restart delays.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// First and longest delay before a handler is restarted; it doubles with each consecutive failure.
const RESTART_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

/// Bytes of a line on standard error that are logged.
const STDERR_LINE: usize = 8 << 10;
/// Characters of an invalid line that are logged.
const SHOWN: usize = 200;

/// A handler's process, running or about to be started.
#[derive(Debug)]
pub(super) struct HandlerConnection {
    agent: AgentName,
    outgoing: mpsc::Sender<Vec<u8>>,
    turns: Mutex<Turns>,
    buffer: Arc<Semaphore>,
    closed: OnceLock<Closed>,
    /// The last line on standard error: the message of a failure.
    last_stderr_line: Mutex<String>,
}

#[derive(Debug, Default)]
struct Turns {
    /// Number of turns opened so far; it is the name of the last one.
    begun: u64,
    open: HashMap<u64, PendingTurn>,
    /// True once the handler has ended a turn, so that a later exit is not a failed start.
    finished_a_turn: bool,
    is_closed: bool,
}

/// A turn that the handler has not ended yet.
#[derive(Debug)]
struct PendingTurn {
    inbound: mpsc::Sender<Inbound>,
    /// True once the turn has failed for an invalid line; further ones are not reported to it.
    is_broken: bool,
}

/// The end of a process.
#[derive(Debug)]
struct Closed {
    failure: Failure,
    /// Processes in a row that failed before they were stable, this one included.
    consecutive_failures: u32,
    at: Instant,
}

/// One line of a handler for a turn. It holds a permit for its bytes in the buffer until it is dropped.
#[derive(Debug)]
pub(super) struct Inbound {
    pub(super) event: TurnEvent,
    pub(super) bytes: usize,
    _permit: Option<OwnedSemaphorePermit>,
}

/// The content of a line about a turn.
#[derive(Debug)]
pub(super) enum TurnEvent {
    Status(TaskState, Vec<Part>),
    /// A state in which the task waits, while the turn goes on by itself.
    Interim(TaskState, Vec<Part>),
    /// An artifact, with `append` and `last_chunk`.
    Artifact(Artifact, bool, bool),
    /// The answer, which completes the task.
    Answer(Vec<Part>),
    Failed(Failure),
    /// The line violates the protocol.
    ProtocolViolation(Failure),
}

/// Handle of a turn at a handler; dropping it closes the turn there.
#[derive(Debug)]
pub(super) struct TurnHandle {
    /// True once the handler has ended the turn, or has itself exited.
    pub(super) is_over: bool,
    number: u64,
    inbound: mpsc::Receiver<Inbound>,
    connection: Arc<HandlerConnection>,
}

/// Liveness of a process: its hello and its pings.
struct Liveness {
    started: Instant,
    greeted: bool,
    ping: Option<Duration>,
    /// The last ping: its number, when it was sent, and whether it was answered.
    last_ping: (u64, Instant, bool),
}

impl HandlerConnection {
    /// Starts a process in the background, after a delay if the `last` one failed.
    pub(super) fn open(
        agent: &AgentName,
        program: &Program,
        processes: &Processes,
        tasks: &TaskTracker,
        last: Option<&Self>,
    ) -> Arc<Self> {
        let (outgoing, lines) = mpsc::channel(QUEUE);
        let connection = Arc::new(Self {
            agent: agent.clone(),
            outgoing,
            turns: Mutex::default(),
            buffer: Arc::new(Semaphore::new(MAX_BUFFERED)),
            closed: OnceLock::new(),
            last_stderr_line: Mutex::default(),
        });
        let closed = last.and_then(|last| last.closed.get());
        let consecutive_failures = closed.map_or(0, |closed| closed.consecutive_failures);
        let pause = match consecutive_failures {
            0 => Duration::ZERO,
            more => (RESTART_DELAYS.0 * 2_u32.saturating_pow(more - 1)).min(RESTART_DELAYS.1),
        };
        let pause = pause.saturating_sub(closed.map_or(pause, |closed| closed.at.elapsed()));
        let (own, program) = (Arc::clone(&connection), program.clone());
        let (processes, helpers) = (processes.clone(), tasks.clone());
        tasks.spawn(async move {
            sleep(pause).await;
            let started = Instant::now();
            let failure = own.run_process(&program, &processes, &helpers, lines).await;
            processes.unless_closing().await;
            tracing::warn!(agent = %own.agent, kind = failure.kind, "the handler's process ended");
            let mut turns = own.turns();
            let lasted = turns.finished_a_turn || started.elapsed() >= STABLE_AFTER;
            let consecutive_failures = if lasted { 1 } else { consecutive_failures + 1 };
            let closed = Closed { failure, consecutive_failures, at: Instant::now() };
            own.closed.set(closed).expect("it closes once");
            turns.is_closed = true;
            turns.open.clear();
        });
        connection
    }

    /// True while the process can take turns.
    pub(super) fn is_open(&self) -> bool {
        self.closed.get().is_none()
    }

    /// The reason why the process ended.
    fn failure(&self) -> Failure {
        let closed = self.closed.get().map(|closed| closed.failure.clone());
        closed.unwrap_or_else(|| Failure::new("ended"))
    }

    /// Opens one more turn, or returns `None` if the process has ended.
    pub(super) fn open_turn(self: &Arc<Self>) -> Option<TurnHandle> {
        let mut turns = self.turns();
        if turns.is_closed {
            return None;
        }
        turns.begun += 1;
        let (number, (sender, inbound)) = (turns.begun, mpsc::channel(QUEUE));
        turns.open.insert(number, PendingTurn { inbound: sender, is_broken: false });
        Some(TurnHandle { is_over: false, number, inbound, connection: Arc::clone(self) })
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().expect("nothing panics while it holds this lock")
    }

    /// Runs the process to its end, and returns the reason for it.
    async fn run_process(
        &self,
        program: &Program,
        processes: &Processes,
        helpers: &TaskTracker,
        lines: mpsc::Receiver<Vec<u8>>,
    ) -> Failure {
        let (mut process, pipes) = match processes.spawn(program, &[]).await {
            Ok(started) => started,
            Err(fault) => return Failure::unstarted(&fault),
        };
        let hello =
            ToHandler::Hello { protocol: line::VERSION, agent: self.agent.as_str() }.encode();
        let mut writer = helpers.spawn(write(pipes.stdin, hello, lines));
        let stderr = self.log_stderr(pipes.stderr);
        let mut output = LineReader::new(pipes.stdout, LINE);
        let mut liveness = Liveness::new();
        let mut stderr = std::pin::pin!(stderr);
        let mut silent = false;
        let mut closed = "closed its output";
        let failure = loop {
            tokio::select! {
                line = output.next() => match line {
                    None => break None,
                    Some(line) => {
                        if let Err(failure) = self.handle_line(line, &mut liveness).await {
                            break Some(failure);
                        }
                    }
                },
                () = &mut stderr, if !silent => silent = true,
                // Its children may hold its output open, so end of file alone would not show the exit.
                _ = process.wait() => break None,
                // A handler that closed its input can get no more turns.
                _ = &mut writer => {
                    closed = "closed its input";
                    break None;
                }
                () = liveness.due() => {
                    if let Err(failure) = liveness.check(&self.outgoing) {
                        break Some(failure);
                    }
                }
            }
        };
        let failure = match failure {
            Some(failure) => failure,
            None => {
                // The pipe may still hold lines that it wrote before it ended.
                let rest = async {
                    while let Some(line) = output.next().await {
                        if self.handle_line(line, &mut liveness).await.is_err() {
                            break;
                        }
                    }
                };
                let _ = timeout(program.grace, rest).await;
                match timeout(program.grace, process.wait()).await {
                    Ok(Ok(status)) => {
                        Failure::new(format!("{} in the middle of a turn", describe(status)))
                    }
                    Ok(Err(_)) | Err(_) => Failure::new(closed),
                }
            }
        };
        process.end().await;
        if !silent {
            let _ = timeout(program.grace, stderr).await;
        }
        let last_line =
            self.last_stderr_line.lock().expect("nothing panics while it holds this lock");
        let message = Some(last_line.clone()).filter(|message| !message.is_empty());
        Failure { message, ..failure }
    }

    /// Logs the handler's standard error, and keeps the last line.
    async fn log_stderr(&self, stderr: ChildStderr) {
        let mut lines = LineReader::new(stderr, STDERR_LINE);
        while let Some(BoundedLine::Whole(line) | BoundedLine::Truncated(line)) = lines.next().await
        {
            let text = String::from_utf8_lossy(&line);
            tracing::info!(agent = %self.agent, "{text}");
            let mut last =
                self.last_stderr_line.lock().expect("nothing panics while it holds this lock");
            *last = text.into_owned();
        }
    }

    /// Dispatches one line of the handler. An error means that the process has to be ended.
    async fn handle_line(&self, line: BoundedLine, liveness: &mut Liveness) -> Result<(), Failure> {
        let line = match line {
            BoundedLine::Whole(line) => line,
            BoundedLine::Truncated(line) => {
                self.report_invalid_line(&line, &format!("longer than {LINE} bytes"));
                return Ok(());
            }
        };
        let json = replace_unpaired_surrogates(&line);
        let read = match line::FromHandler::read(&json) {
            Ok(read) => read,
            Err(why) => {
                match serde_json::from_slice::<TurnOnly>(&json) {
                    Ok(only) => {
                        let event =
                            TurnEvent::violation("wrote a line with invalid values", why.message);
                        self.deliver(&only.turn, event, &line).await;
                    }
                    Err(_) => self.report_invalid_line(&line, &why.message),
                }
                return Ok(());
            }
        };
        let (turn, event) = match read {
            line::FromHandler::Hello(Hello { protocol, ping }) => {
                return liveness.greet(protocol, ping);
            }
            line::FromHandler::Pong(Pong { id }) => {
                liveness.last_ping.2 |= liveness.last_ping.0 == id;
                return Ok(());
            }
            line::FromHandler::Status(mut status) => {
                let (turn, state) = (std::mem::take(&mut status.turn), status.state);
                let event = if status.is_interim() {
                    TurnEvent::Interim(state, status.into_parts())
                } else {
                    TurnEvent::Status(state, status.into_parts())
                };
                (turn, event)
            }
            line::FromHandler::Artifact(mut piece) => {
                let turn = std::mem::take(&mut piece.turn);
                let (append, last_chunk) = (piece.append, piece.last_chunk);
                (turn, TurnEvent::Artifact(piece.into_artifact(), append, last_chunk))
            }
            line::FromHandler::Answer(mut answer) => {
                let turn = std::mem::take(&mut answer.turn);
                (turn, TurnEvent::Answer(answer.into_parts()))
            }
            line::FromHandler::Error(Failed { turn, kind, message, detail }) => {
                let kind: String = kind.chars().filter(|c| !c.is_control()).take(SHOWN).collect();
                let kind = format!("failed ({kind})");
                // `full` is shown instead of `message`, so it has to contain both.
                let full = match (&message, detail) {
                    (Some(message), Some(detail)) => Some(format!("{message}\n{detail}")),
                    (None, detail) => detail,
                    (Some(_), None) => None,
                };
                (turn, TurnEvent::Failed(Failure { message, full, ..Failure::new(kind) }))
            }
        };
        if !liveness.greeted {
            return Err(Failure::new("did not send hello first"));
        }
        self.deliver(&turn, event, &line).await;
        Ok(())
    }

    /// Queues a line for its turn, as soon as the buffer has room for it.
    async fn deliver(&self, turn: &str, event: TurnEvent, line: &[u8]) {
        let number: Option<u64> = turn.parse().ok();
        let (inbound, was_open) = {
            let mut turns = self.turns();
            let pending = number.and_then(|number| turns.open.get_mut(&number));
            let inbound = pending.map(|pending| {
                pending.is_broken |= matches!(event, TurnEvent::ProtocolViolation(_));
                pending.inbound.clone()
            });
            (inbound, number.is_some_and(|number| (1..=turns.begun).contains(&number)))
        };
        match inbound {
            Some(inbound) => {
                let bytes = u32::try_from(line.len().min(MAX_BUFFERED)).unwrap_or(u32::MAX);
                let permit = Arc::clone(&self.buffer).acquire_many_owned(bytes).await.ok();
                // An error means that the turn has been closed meanwhile.
                let _ = inbound.send(Inbound { event, bytes: line.len(), _permit: permit }).await;
            }
            // The handler wrote this before it read that the turn is over.
            None if was_open => {}
            None => self.report_invalid_line(line, "there is no such turn"),
        }
    }

    /// Logs a line that names no known turn. If exactly one turn is open, the line is taken for its own
    /// and fails it; with several open turns it could fail the wrong one.
    fn report_invalid_line(&self, line: &[u8], why: &str) {
        let text: String = String::from_utf8_lossy(line).chars().take(SHOWN).collect();
        tracing::warn!(agent = %self.agent, line = text, why, "the handler violated the line protocol");
        let mut turns = self.turns();
        let mut open = turns.open.values_mut();
        if let (Some(only), None) = (open.next(), open.next())
            && !only.is_broken
        {
            let event = TurnEvent::violation("wrote an invalid line", why);
            // If the queue is full the turn is making progress; the line is in the log anyway.
            let sent = only.inbound.try_send(Inbound { event, bytes: 0, _permit: None });
            only.is_broken = sent.is_ok();
        }
    }
}

impl TurnEvent {
    fn violation(kind: &str, why: impl fmt::Display) -> Self {
        Self::ProtocolViolation(Failure { message: Some(why.to_string()), ..Failure::new(kind) })
    }
}

impl Liveness {
    fn new() -> Self {
        let now = Instant::now();
        Self { started: now, greeted: false, ping: None, last_ping: (0, now, true) }
    }

    fn greet(&mut self, protocol: u32, ping: Option<u64>) -> Result<(), Failure> {
        if protocol != line::VERSION {
            let own = line::VERSION;
            let kind = format!("has version {protocol} of the line protocol, and {own} is needed");
            return Err(Failure::new(kind));
        }
        if std::mem::replace(&mut self.greeted, true) {
            return Err(Failure::new("sent hello twice"));
        }
        let ping = ping.filter(|seconds| *seconds > 0).map(Duration::from_secs);
        self.ping = ping.map(|pause| pause.min(MAX_PING_INTERVAL));
        self.last_ping.1 = Instant::now();
        Ok(())
    }

    /// Waits until the hello or the next ping is due.
    async fn due(&self) {
        match (self.greeted, self.ping) {
            (false, _) => sleep_until(self.started + HELLO_TIMEOUT).await,
            (true, Some(pause)) => sleep_until(self.last_ping.1 + pause).await,
            (true, None) => std::future::pending().await,
        }
    }

    /// Sends the next ping, or fails if the hello is missing or the last ping was not answered.
    fn check(&mut self, outgoing: &mpsc::Sender<Vec<u8>>) -> Result<(), Failure> {
        let (id, _, is_answered) = self.last_ping;
        if !self.greeted {
            return Err(Failure::new("did not send hello in time"));
        }
        let ping = ToHandler::Ping { id: id + 1 }.encode();
        if !is_answered || outgoing.try_send(ping).is_err() {
            return Err(Failure::new("did not answer a ping in time"));
        }
        self.last_ping = (id + 1, Instant::now(), false);
        Ok(())
    }
}

impl TurnHandle {
    /// The name of the turn in the line protocol.
    pub(super) fn name(&self) -> String {
        self.number.to_string()
    }

    /// Sends a line to the handler, as soon as its queue has room.
    pub(super) async fn send(&self, line: Vec<u8>) {
        // An error means that the process has ended; then `next` returns `None` as well.
        let _ = self.connection.outgoing.send(line).await;
    }

    /// The reason why the handler's process ended.
    pub(super) fn failure(&self) -> Failure {
        self.connection.failure()
    }

    /// The next line about this turn; `None` once the process has ended.
    pub(super) async fn next(&mut self) -> Option<Inbound> {
        let inbound = self.inbound.recv().await;
        let is_end = inbound.as_ref().is_some_and(|inbound| match &inbound.event {
            TurnEvent::Status(state, _) => state.is_terminal() || state.is_interrupted(),
            TurnEvent::Answer(_) | TurnEvent::Failed(_) => true,
            TurnEvent::Interim(..) | TurnEvent::Artifact(..) | TurnEvent::ProtocolViolation(_) => {
                false
            }
        });
        self.is_over |= is_end || inbound.is_none();
        self.connection.turns().finished_a_turn |= is_end;
        inbound
    }
}

impl Drop for TurnHandle {
    fn drop(&mut self) {
        self.connection.turns().open.remove(&self.number);
    }
}

/// Writes lines to the handler until it closes its input.
async fn write(stdin: Option<ChildStdin>, hello: Vec<u8>, mut lines: mpsc::Receiver<Vec<u8>>) {
    let Some(mut stdin) = stdin else { return };
    let mut next = Some(hello);
    while let Some(line) = next {
        if stdin.write_all(&line).await.is_err() {
            return;
        }
        next = lines.recv().await;
    }
}
