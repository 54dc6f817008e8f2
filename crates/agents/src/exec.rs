//! Exec agent: runs a program per turn; text in, text out, the exit code decides.

pub(crate) mod input;

use std::{io, pin::pin, process::ExitStatus, time::Duration};

use async_trait::async_trait;
use herald_engine::{Agent, AgentError, Profile, Recovery, Turn};
use herald_protocol::AgentName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{ChildStdin, ChildStdout},
    time::{error::Elapsed, timeout},
};

use crate::{
    ErrorDetail,
    artifact_writer::ArtifactWriter,
    ended::Ended,
    failure::{Failure, STDERR_TAIL},
    process::{Pipes, Process, Processes, Program, STUCK, environment},
    text::{self, Utf8Decoder},
};

pub use input::Input;

/// Default limit of a program's output in one turn, in bytes.
const MAX_OUTPUT: u64 = 16 << 20;

/// Bytes of one read of the output: what a pipe holds.
const PIECE: usize = 64 << 10;

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
        let description = "Runs a program for each message and returns its output";
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
    ) -> Result<Exit, Ended> {
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
            Ended::Failed(Failure::new(format!("cannot be waited for: {fault}")))
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
    async fn publish(&self, turn: &Turn, output: &mut ChildStdout) -> Result<(), Ended> {
        let mut artifact = ArtifactWriter::new(turn, "output", "output");
        let (mut decoder, mut piece) = (Utf8Decoder::default(), Vec::with_capacity(PIECE));
        let mut printed = 0;
        loop {
            let read = output.read_buf(&mut piece);
            let Some(read) = artifact.next_or_flush(read).await? else { continue };
            // A read error counts as the end of the output.
            let is_last = matches!(read, Ok(0) | Err(_));
            printed += piece.len() as u64;
            if printed > self.max_output {
                artifact.flush().await?;
                let kind = format!("printed more than {} bytes", self.max_output);
                return Err(Ended::Failed(Failure::new(kind)));
            }
            let text = decoder.push(&piece, is_last);
            piece.clear();
            if !text.is_empty() {
                artifact.push(&text).await?;
            }
            if is_last {
                return Ok(artifact.finish(None).await?);
            }
        }
    }
}

#[async_trait]
impl Agent for Exec {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        let report = |ended: Ended| ended.report(turn, &self.name, self.error_detail);
        let unstarted = |fault: io::Error| report(Failure::unstarted(&fault).into());
        let environment = environment(turn);
        let started = async {
            let given = self.input.prepare(turn.message(), &self.processes).await?;
            Ok((given, self.processes.spawn(&self.program, &environment).await?))
        };
        let started = tokio::select! {
            started = started => started,
            () = turn.cancelled().cancelled() => return Err(AgentError::Stopped),
        };
        let (given, (mut process, mut pipes)) = started.map_err(unstarted)?;
        let ended = tokio::select! {
            ended = self.converse(turn, &mut process, &mut pipes, &given.stdin) => ended,
            () = turn.cancelled().cancelled() => Err(Ended::Turn(AgentError::Stopped)),
        };
        let result = match ended {
            Ok(exit) if exit.status.success() => Ok(()),
            Ok(exit) => Err(report(Failure::ended(exit.status, &exit.stderr).into())),
            Err(ended) => Err(report(ended)),
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

/// The result, or `None` if the time was over first.
fn finished<T>(result: Result<Result<T, Ended>, Elapsed>) -> Result<Option<T>, Ended> {
    result.ok().transpose()
}

/// Writes the input and closes it. A write error is ignored: a program need not read its input.
async fn feed(input: Option<ChildStdin>, bytes: &[u8]) {
    if let Some(mut input) = input {
        let _ = input.write_all(bytes).await;
    }
}
