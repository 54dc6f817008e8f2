//! Exec agent: runs a program per turn; text in, text out, the exit code decides.

pub(crate) mod input;

use std::{io, pin::pin, process::ExitStatus, time::Duration};

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Profile, Recovery, Stop, Turn};
use herald_protocol::{AgentName, Artifact, Part};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout},
    time::{Instant, error::Elapsed, timeout, timeout_at},
};

use crate::{
    ErrorDetail,
    failure::{Failure, STDERR_TAIL},
    process::{Pipes, Process, Processes, Program, STUCK, environment},
    text::{self, Decoder},
};

pub use input::Input;

/// Default limit of a program's output in one turn, in bytes.
const MAX_OUTPUT: u64 = 16 << 20;

/// Bytes of one chunk of the artifact.
const PIECE: usize = 64 << 10;

/// Time to wait for the rest of a chunk after its first byte. Most programs that answer at once then make
/// one event, and one that prints slowly makes twenty a second instead of thousands.
const GATHER: Duration = Duration::from_millis(50);

/// Agent that runs a program for each turn.
#[derive(Debug, Clone)]
pub struct Exec {
    /// The agent's name, for messages about its failures.
    pub name: AgentName,
    /// The program to run.
    pub program: Program,
    /// The form in which the program gets a message.
    pub input: Input,
    /// Bytes that the program may write in one turn.
    pub max_output: u64,
    /// The part of a failure that callers see.
    pub error_detail: ErrorDetail,
    /// The server's processes, which this one joins.
    pub processes: Processes,
}

/// Reason why a turn ended before its program did.
enum ExecError {
    /// The engine stopped the turn, or refused a write.
    Turn(AgentError),
    /// The program exceeded a limit, or could not be waited for.
    Failed(Failure),
}

/// Exit of a program, with the tail of its standard error.
struct Exit {
    status: ExitStatus,
    stderr: Vec<u8>,
}

impl Exec {
    /// A program that reads text, with the default limits.
    pub fn new(name: &str, program: Program, processes: Processes) -> Self {
        Self {
            name: AgentName::new(name),
            program,
            input: Input::default(),
            max_output: MAX_OUTPUT,
            error_detail: ErrorDetail::default(),
            processes,
        }
    }

    /// The agent's profile: card fields, limits and recovery.
    pub fn profile(&self) -> Profile {
        let description = "Gives each message to a program and returns what it prints";
        let mut profile = Profile::new(self.name.clone(), description);
        profile.skills[0].tags = vec!["exec".to_owned()];
        // Every part can be passed to a program: data as JSON, a file as a path.
        profile.input_modes = vec!["text/plain".to_owned(), "*/*".to_owned()];
        // Only the author of a program knows whether it may run twice.
        profile.recovery = Recovery::Fail;
        profile.concurrency = 32;
        profile.timeout = Some(Duration::from_secs(600));
        // Time to end the program and its children, so that none is left when the turn is dropped.
        profile.grace = self.program.grace * 2 + STUCK * 2;
        profile
    }

    /// Writes the message to the program and its output to the task, until the program has exited.
    async fn converse(
        &self,
        turn: &Turn,
        process: &mut Process,
        pipes: &mut Pipes,
        stdin: &[u8],
    ) -> Result<Exit, ExecError> {
        let input = feed(pipes.stdin.take(), stdin);
        let stderr = text::tail(&mut pipes.stderr, STDERR_TAIL);
        let rest = async {
            let ((), stderr) = tokio::join!(input, stderr);
            Ok(stderr)
        };
        let output = self.publish(turn, &mut pipes.stdout);
        let mut output_and_errors =
            pin!(async { tokio::try_join!(output, rest).map(|((), stderr)| stderr) });
        let mut stderr = None;
        let status = loop {
            tokio::select! {
                status = process.wait() => break status,
                done = &mut output_and_errors, if stderr.is_none() => stderr = Some(done?),
            }
        };
        let status = status.map_err(|fault| {
            ExecError::Failed(Failure::new(format!("cannot be waited for: {fault}")))
        })?;
        // Its children may still write to the pipes; they get the grace period, no more.
        if stderr.is_none() {
            stderr = finished(timeout(self.program.grace, &mut output_and_errors).await)?;
        }
        process.end().await;
        if stderr.is_none() {
            stderr = finished(timeout(self.program.grace, &mut output_and_errors).await)?;
        }
        Ok(Exit { status, stderr: stderr.unwrap_or_default() })
    }

    /// Appends the program's output to one artifact.
    async fn publish(&self, turn: &Turn, output: &mut ChildStdout) -> Result<(), ExecError> {
        let (mut decoder, mut piece) = (Decoder::default(), Vec::new());
        let (mut printed, mut is_begun) = (0, false);
        loop {
            // A pipe that cannot be read has come to its end.
            let is_last = gather(output, &mut piece).await.unwrap_or(true);
            printed += piece.len() as u64;
            if printed > self.max_output {
                let kind = format!("printed more than {} bytes", self.max_output);
                return Err(ExecError::Failed(Failure::new(kind)));
            }
            let text = decoder.push(&piece, is_last);
            if !text.is_empty() || (is_last && is_begun) {
                is_begun = true;
                turn.append(artifact(text), is_last).await?;
            }
            if is_last {
                return Ok(());
            }
        }
    }
}

#[async_trait]
impl Agent for Exec {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let report = |failure: Failure| failure.report(turn, &self.name, self.error_detail);
        let unstarted = |fault: io::Error| report(Failure::unstarted(&fault));
        let environment = environment(turn);
        let started = async {
            let given = self.input.give(turn.message(), &self.processes).await?;
            Ok((given, self.processes.spawn(&self.program, &environment).await?))
        };
        let started = tokio::select! {
            started = started => started,
            () = turn.cancelled().cancelled() => return Err(AgentError::Stopped),
        };
        let (given, (mut process, mut pipes)) = started.map_err(unstarted)?;
        let ended = tokio::select! {
            ended = self.converse(turn, &mut process, &mut pipes, &given.stdin) => ended,
            () = turn.cancelled().cancelled() => Err(ExecError::Turn(AgentError::Stopped)),
        };
        let result = match ended {
            Ok(ended) if ended.status.success() => Ok(()),
            Ok(ended) => Err(report(Failure::ended(ended.status, &ended.stderr))),
            Err(ExecError::Failed(failure)) => Err(report(failure)),
            Err(ExecError::Turn(error)) => Err(error),
        };
        let cleanup = async {
            tokio::select! {
                () = process.end() => {}
                () = pipes.drain() => {}
            }
        };
        match &result {
            Ok(()) => cleanup.await,
            Err(error) => turn.fail_while(error, cleanup).await,
        }
        result
    }
}

impl From<Stop> for ExecError {
    fn from(stop: Stop) -> Self {
        Self::Turn(stop.into())
    }
}

/// The result, or `None` if the time was over first.
fn finished<T>(result: Result<Result<T, ExecError>, Elapsed>) -> Result<Option<T>, ExecError> {
    result.ok().transpose()
}

/// Writes the input and closes it. A write error is ignored: a program need not read its input.
async fn feed(input: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut input) = input {
        let _ = input.write_all(bytes).await;
    }
}

/// Reads the next chunk, and returns whether it is the last.
async fn gather(output: &mut ChildStdout, piece: &mut Vec<u8>) -> io::Result<bool> {
    piece.clear();
    let mut until = None;
    while piece.len() < PIECE {
        let mut rest = output.take((PIECE - piece.len()) as u64);
        let read = match until {
            None => rest.read_buf(piece).await?,
            Some(until) => match timeout_at(until, rest.read_buf(piece)).await {
                Ok(read) => read?,
                Err(_) => return Ok(false),
            },
        };
        if read == 0 {
            return Ok(true);
        }
        until.get_or_insert_with(|| Instant::now() + GATHER);
    }
    Ok(false)
}

fn artifact(text: String) -> Artifact {
    Artifact {
        artifact_id: "output".into(),
        name: Some("output".to_owned()),
        parts: vec![Part::text(text)],
        ..Artifact::default()
    }
}
