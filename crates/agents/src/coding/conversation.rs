//! Conversation with a running coding agent: its process, its pipes and the dialect in between.

use std::{collections::VecDeque, convert::Infallible, io, process::ExitStatus, time::Duration};

use herald_protocol::lines::BoundedLine;
use tokio::{
    io::AsyncWriteExt,
    process::{ChildStderr, ChildStdin, ChildStdout},
    time::{Instant, Interval, MissedTickBehavior, interval, sleep_until, timeout},
};

use super::{
    dialect::{AgentEvent, Approval, ApprovalAnswer, CliDialect, CodingResult, DialectOutput},
    message::CodingPrompt,
    prompt::{PROMPT_CHECK, PromptWatch},
};
use crate::{
    exec::input::PreparedInput,
    failure::{Failure, STDERR_TAIL},
    process::{Process, Processes, Program, STUCK},
    text::{LineReader, StreamTail, replace_unpaired_surrogates},
};

/// Longest line of a coding agent: lines may contain whole files.
const LINE: usize = 8 << 20;

/// Time that an agent has to answer a cancel in its own protocol. Without an answer it is ended: callers
/// expect SIGTERM at once.
const CANCEL_ANSWER: Duration = Duration::from_millis(150);

/// Time that an agent has to exit after it has answered a cancel.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Silence after which an agent that seems to be done counts as done. It starts further work within
/// milliseconds, on a busy machine within seconds.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A running coding agent. Dropping it kills it.
#[derive(Debug)]
pub(super) struct CliConversation {
    dialect: Box<dyn CliDialect>,
    process: Process,
    stdin: Option<ChildStdin>,
    /// Bytes for the agent's input that are not written yet.
    outbox: Vec<u8>,
    is_closing: bool,
    lines: LineReader<ChildStdout>,
    stderr: StreamTail<ChildStderr>,
    /// Events that have not been returned yet.
    events: VecDeque<AgentEvent>,
    /// Bytes that it may still write.
    output_left: u64,
    prompts: PromptWatch,
    prompt_check: Interval,
    /// The time since which the agent seems to be done.
    idle_since: Option<Instant>,
    /// The input files, which are removed with this.
    inputs: Vec<PreparedInput>,
}

impl CliConversation {
    /// Starts a coding agent.
    pub(super) async fn open(
        mut dialect: Box<dyn CliDialect>,
        program: &Program,
        environment: &[(&str, String)],
        processes: &Processes,
        input: PreparedInput,
        max_output: u64,
    ) -> io::Result<Self> {
        let program = program.with(dialect.arguments(), dialect.variables());
        let (process, pipes) = processes.spawn(&program, environment).await?;
        let mut out = DialectOutput::default();
        dialect.open(&mut out);
        let mut prompt_check = interval(PROMPT_CHECK);
        // Two checks in a row would not show that the agent waits.
        prompt_check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut conversation = Self {
            dialect,
            process,
            stdin: pipes.stdin,
            outbox: Vec::new(),
            is_closing: false,
            lines: LineReader::new(pipes.stdout, LINE),
            stderr: StreamTail::new(pipes.stderr, STDERR_TAIL),
            events: VecDeque::new(),
            output_left: max_output,
            prompts: PromptWatch::default(),
            prompt_check,
            idle_since: None,
            inputs: vec![input],
        };
        conversation.take(out);
        Ok(conversation)
    }

    /// The next event; `None` at the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<AgentEvent>, Failure> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let idle_until = self.idle_until();
            tokio::select! {
                line = self.lines.next() => match line {
                    Some(line) => self.handle_line(&line)?,
                    None => return Ok(None),
                },
                () = write(&mut self.stdin, &mut self.outbox), if !self.outbox.is_empty() => {}
                () = self.stderr.read() => {}
                _ = self.prompt_check.tick() => {
                    if let Some(prompt) = self.prompts.check(self.lines.unfinished()) {
                        // The answer goes to the end of this line; the next one begins anew.
                        self.lines.discard_unfinished();
                        self.events.push_back(AgentEvent::Approval(Approval::of_prompt(&prompt)));
                    }
                }
                () = sleep_until(idle_until.unwrap_or_else(Instant::now)), if idle_until.is_some() => {
                    self.idle_since = None;
                    let mut out = DialectOutput::default();
                    self.dialect.finish_idle(&mut out);
                    self.take(out);
                }
            }
            self.close_if_requested();
        }
    }

    /// The time at which an agent that seems to be done counts as done; each of its lines defers it.
    fn idle_until(&mut self) -> Option<Instant> {
        if !self.dialect.is_idle() {
            self.idle_since = None;
            return None;
        }
        Some(*self.idle_since.get_or_insert_with(Instant::now) + IDLE_TIMEOUT)
    }

    /// Passes the caller's choice to the agent.
    pub(super) fn answer(&mut self, approval: &Approval, decision: &ApprovalAnswer) {
        let mut out = DialectOutput::default();
        if approval.is_prompt() {
            out.line(&decision.choice.id);
        } else {
            self.dialect.answer(approval, decision, &mut out);
        }
        self.take(out);
    }

    /// True if a message can be passed to the agent in the middle of its work.
    pub(super) fn can_steer(&self) -> bool {
        self.stdin.is_some() && !self.is_closing && self.dialect.can_steer()
    }

    /// Passes a message to the agent in the middle of its work.
    pub(super) fn steer(&mut self, prompt: CodingPrompt) {
        let mut out = DialectOutput::default();
        self.dialect.steer(&prompt.text, &prompt.images, &mut out);
        self.inputs.push(prompt.input);
        self.take(out);
    }

    /// Ends the turn with the answer, although background work goes on.
    pub(super) fn end_background(&mut self) {
        let mut out = DialectOutput::default();
        self.dialect.end_background(&mut out);
        self.take(out);
    }

    /// The result that the agent had before it exited.
    pub(super) fn result_so_far(&mut self) -> Option<CodingResult> {
        self.dialect.result_so_far()
    }

    /// Puts events back at the front of the queue.
    pub(super) fn put_back(&mut self, events: VecDeque<AgentEvent>) {
        for event in events.into_iter().rev() {
            self.events.push_front(event);
        }
    }

    /// Waits for the agent to exit, and ends it after the grace. Its work is done, so its exit code
    /// does not matter.
    pub(super) async fn finish(mut self, grace: Duration) {
        self.stdin = None;
        tokio::select! {
            _ = timeout(grace, self.process.wait()) => {}
            never = discard_output(&mut self.lines, &mut self.stderr) => match never {},
        }
        self.process.end().await;
    }

    /// The failure of an agent that exited in the middle of its work.
    pub(super) async fn exit_failure(mut self, grace: Duration) -> Failure {
        let status = tokio::select! {
            status = timeout(grace, self.process.wait()) => status,
            never = discard_output(&mut self.lines, &mut self.stderr) => match never {},
        };
        let failure = match status {
            Ok(Ok(status)) => self.failure(status).await,
            Ok(Err(_)) | Err(_) => Failure::new("closed its output in the middle of its work"),
        };
        self.process.end().await;
        failure
    }

    /// Ends the agent, after a cancel in its own protocol.
    pub(super) async fn end(mut self) {
        let mut out = DialectOutput::default();
        self.dialect.cancel(&mut out);
        if !out.lines.is_empty() {
            self.take(out);
            if timeout(CANCEL_ANSWER, self.read_cancelled()).await.is_ok() {
                let _ = timeout(CANCEL_TIMEOUT, self.flush_and_discard()).await;
            }
        }
        tokio::select! {
            () = self.process.end() => {}
            never = discard_output(&mut self.lines, &mut self.stderr) => match never {},
        }
    }

    /// Waits until the agent has answered a cancel, or has closed its output. Its other output is discarded.
    async fn read_cancelled(&mut self) {
        while !self.dialect.has_cancelled() {
            tokio::select! {
                line = self.lines.next() => match line {
                    // The turn is over, so that a fault of the line is of no interest.
                    Some(line) => drop(self.handle_line(&line)),
                    None => return,
                },
                () = write(&mut self.stdin, &mut self.outbox), if !self.outbox.is_empty() => {}
                () = self.stderr.read() => {}
            }
        }
    }

    /// Writes the rest of the input, and discards all output.
    async fn flush_and_discard(&mut self) {
        loop {
            tokio::select! {
                line = self.lines.next() => if line.is_none() { return },
                () = write(&mut self.stdin, &mut self.outbox), if !self.outbox.is_empty() => {}
                () = self.stderr.read() => {}
            }
        }
    }

    async fn failure(&mut self, status: ExitStatus) -> Failure {
        // Its children may hold the pipe open, and some may have escaped the process tree.
        self.process.end().await;
        let _ = timeout(STUCK, self.stderr.read_all()).await;
        // Messages for callers come in the agent's own protocol; this text is for the operator.
        Failure { message: None, ..Failure::ended(status, self.stderr.kept()) }
    }

    fn handle_line(&mut self, line: &BoundedLine) -> Result<(), Failure> {
        self.prompts.note(line);
        self.idle_since = None;
        let line = match line {
            BoundedLine::Whole(line) => line,
            BoundedLine::Truncated(_) => {
                return Err(Failure::new(format!("wrote a line of more than {LINE} bytes")));
            }
        };
        self.output_left = self.output_left.saturating_sub(line.len() as u64 + 1);
        if self.output_left == 0 {
            return Err(Failure::new("wrote more than max_output allows"));
        }
        let mut out = DialectOutput::default();
        let line = replace_unpaired_surrogates(line);
        self.dialect.handle_line(&String::from_utf8_lossy(&line), &mut out)?;
        self.take(out);
        Ok(())
    }

    fn take(&mut self, out: DialectOutput) {
        self.events.extend(out.events);
        self.outbox.extend(out.lines);
        self.is_closing |= out.is_closed;
        self.close_if_requested();
    }

    fn close_if_requested(&mut self) {
        if self.is_closing && self.outbox.is_empty() {
            self.stdin = None;
        }
    }
}

/// Writes part of the buffer. A write error discards the rest: the agent has closed its input.
async fn write(stdin: &mut Option<ChildStdin>, outbox: &mut Vec<u8>) {
    let written = match stdin {
        Some(stdin) => stdin.write(outbox).await.ok(),
        None => None,
    };
    match written {
        Some(written) => drop(outbox.drain(..written)),
        None => {
            outbox.clear();
            *stdin = None;
        }
    }
}

/// Reads and discards output for ever, so that an agent that is shutting down does not block on a full
/// pipe.
async fn discard_output(
    lines: &mut LineReader<ChildStdout>,
    stderr: &mut StreamTail<ChildStderr>,
) -> Infallible {
    loop {
        tokio::select! {
            Some(_) = lines.next() => {}
            () = stderr.read() => {}
        }
    }
}
