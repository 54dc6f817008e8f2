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

/// What a program may write in one turn.
const MAX_OUTPUT: u64 = 16 << 20;

/// One piece of the growing artifact.
const PIECE: usize = 64 << 10;

/// After the first byte of a piece, so long may the rest of it take. Most programs that answer at
/// once are then one event, and one that drips is twenty a second instead of thousands.
const GATHER: Duration = Duration::from_millis(50);

/// Runs a program for each turn.
#[derive(Debug, Clone)]
pub struct Exec {
    /// Whom failures are blamed on.
    pub name: AgentName,
    /// What to run.
    pub program: Program,
    /// How it reads a message.
    pub input: Input,
    /// How many bytes it may write in one turn.
    pub max_output: u64,
    /// How much callers hear of its failures.
    pub error_detail: ErrorDetail,
    /// What runs it.
    pub processes: Processes,
}

/// Why the conversation with a program was cut off.
enum ExecError {
    /// The turn is over, or what was said does not fit into its task.
    Turn(AgentError),
    /// The program may not go on.
    Failed(Failure),
}

/// How a program ended by itself, and what it complained about.
struct Exit {
    status: ExitStatus,
    stderr: Vec<u8>,
}

impl Exec {
    /// A program that reads text, within the usual limits.
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

    /// What it declares about itself.
    pub fn profile(&self) -> Profile {
        let description = "Gives each message to a program and returns what it prints";
        let mut profile = Profile::new(self.name.clone(), description);
        profile.skills[0].tags = vec!["exec".to_owned()];
        // Whatever comes, the program can be given it: data is written out, files have a path.
        profile.input_modes = vec!["text/plain".to_owned(), "*/*".to_owned()];
        // Nobody but its author knows whether a program may run twice.
        profile.recovery = Recovery::Fail;
        profile.concurrency = 32;
        profile.timeout = Some(Duration::from_secs(600));
        // Until then the program ends its own, so that none is left when the turn is dropped.
        profile.grace = self.program.grace * 2 + STUCK * 2;
        profile
    }

    /// Gives the program the message and the caller what it prints, until it has ended.
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
        // What it started may still have something to say, but not for ever.
        if stderr.is_none() {
            stderr = finished(timeout(self.program.grace, &mut output_and_errors).await)?;
        }
        process.end().await;
        if stderr.is_none() {
            stderr = finished(timeout(self.program.grace, &mut output_and_errors).await)?;
        }
        Ok(Exit { status, stderr: stderr.unwrap_or_default() })
    }

    /// Turns what the program prints into one growing artifact.
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

/// Nothing where it is not finished yet.
fn finished<T>(result: Result<Result<T, ExecError>, Elapsed>) -> Result<Option<T>, ExecError> {
    result.ok().transpose()
}

/// Gives a program its input and then its end. One that does not want it may say so by not reading.
async fn feed(input: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut input) = input {
        let _ = input.write_all(bytes).await;
    }
}

/// Reads the next piece, and says whether it is the last.
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
