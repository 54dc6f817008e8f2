//! Stdio transport: a child process, one message per line on its standard input and output.

use std::{ffi::OsString, fmt, process::Stdio};

use async_trait::async_trait;
use bytes::Bytes;
use herald_protocol::lines::{BoundedLine, LineSplitter};
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::session::{CLOSE_TIMEOUT, Dial, MessageReader, MessageWriter};
use crate::error::Error;

/// A program and its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct StdioProgram {
    /// The executable.
    pub name: OsString,
    /// The arguments.
    pub arguments: Vec<OsString>,
}

/// Starts a program and reads its lines.
#[derive(Debug)]
pub(crate) struct Pipe {
    pub(crate) program: StdioProgram,
    /// Longest line in bytes.
    pub(crate) limit: usize,
}

struct StdioReader {
    output: BufReader<ChildStdout>,
    lines: LineSplitter,
    limit: usize,
    group: ProcessGroup,
}

/// Process group of a program. Dropping it kills all processes of the group.
struct ProcessGroup {
    process: Child,
    /// The id of the group.
    id: Option<u32>,
}

struct StdioWriter {
    /// `None` once it is closed.
    input: Option<ChildStdin>,
}

#[async_trait]
impl Dial for Pipe {
    async fn dial(&self) -> Result<(Box<dyn MessageReader>, Box<dyn MessageWriter>), Error> {
        let StdioProgram { name, arguments } = &self.program;
        let mut command = Command::new(name);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut process = command.spawn().map_err(|fault| {
            Error::setup(format!("cannot start {:?}: {fault}", name.to_string_lossy()))
        })?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(Error::setup("the program has no standard input and output"));
        };
        let (limit, lines) = (self.limit, LineSplitter::new(self.limit));
        let group = ProcessGroup { id: process.id(), process };
        let reader = StdioReader { output: BufReader::new(output), lines, limit, group };
        Ok((Box::new(reader), Box::new(StdioWriter { input: Some(input) })))
    }
}

#[async_trait]
impl MessageReader for StdioReader {
    async fn next(&mut self) -> Result<Bytes, Error> {
        loop {
            let read = self.output.fill_buf().await;
            let buffer =
                read.map_err(|fault| Error::broken("the program's output cannot be read", fault))?;
            if buffer.is_empty() {
                return Err(self.ended().await);
            }
            let (taken, line) = self.lines.push(buffer);
            self.output.consume(taken);
            match line {
                Some(BoundedLine::Whole(line)) => return Ok(line.into()),
                Some(BoundedLine::Truncated(_)) => break,
                // The end of a line over the limit may never come.
                None if self.lines.is_too_long() => break,
                None => {}
            }
        }
        Err(Error::too_large("a line", self.limit))
    }
}

impl StdioReader {
    /// The error for a program that closed its output.
    async fn ended(&mut self) -> Error {
        match timeout(CLOSE_TIMEOUT, self.group.process.wait()).await {
            Ok(Ok(status)) => Error::broken("the program has ended", status.to_string()),
            Ok(Err(fault)) => Error::broken("the program has ended", fault),
            Err(_) => Error::broken("the program has ended", "it closed its output"),
        }
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.id.and_then(|id| Pid::from_raw(id.cast_signed())) {
            // An error means that the group is empty.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

#[async_trait]
impl MessageWriter for StdioWriter {
    async fn send(&mut self, message: Bytes) -> Result<(), Error> {
        let Some(input) = &mut self.input else {
            return Err(Error::broken(
                "the program's input cannot be written",
                "its input is closed",
            ));
        };
        let written = async {
            input.write_all(&message).await?;
            input.write_all(b"\n").await?;
            input.flush().await
        };
        written.await.map_err(|fault| Error::broken("the program's input cannot be written", fault))
    }

    async fn close(&mut self) {
        self.input = None;
    }
}

impl fmt::Debug for StdioProgram {
    /// Leaves out the arguments, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdioProgram").field("name", &self.name).finish_non_exhaustive()
    }
}
