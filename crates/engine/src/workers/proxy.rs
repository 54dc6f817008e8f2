//! Proxy of a turn that a worker runs: an agent that waits for the worker's writes and its end.

use std::{
    collections::HashSet,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock},
};

use async_trait::async_trait;
use herald_protocol::{ArtifactId, Error, ErrorKind, Message, Metadata, Seq};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::{error::AgentError, profile::Agent},
    rules::{Command, Record},
    store::{Actor, Cause, TurnClaim},
    turns::turn::{Assignment, StopReason, Turn},
};

/// The sink of a turn whose writes have numbers. An error is that of the worker's request.
#[async_trait]
pub(crate) trait NumberedSink: fmt::Debug + Send + Sync {
    /// Makes the results of these commands durable, all or none.
    async fn write_numbered(
        &self,
        commands: Vec<Command>,
        cause: Cause,
    ) -> Result<NumberedWrite, Error>;

    /// True if the caller has answered the last question.
    fn has_answer(&self) -> bool;

    /// Takes the caller's answer.
    async fn take_numbered(&self, cause: Cause) -> Result<(Arc<Message>, Seq), Error>;

    /// The message that the turn answers now, and the end of the log.
    async fn current_message(&self) -> Result<(Arc<Message>, Seq), Error>;

    /// The highest number among the writes of the claim's holder after this event, or 0.
    async fn last_number(&self, after: Seq) -> Result<u64, Error>;
}

/// The result of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NumberedWrite {
    /// The end of the log.
    pub(crate) head: Seq,
    /// True if the turn has given its result or asked its question.
    pub(crate) has_settled: bool,
}

impl NumberedWrite {
    pub(crate) fn of(record: &Record) -> Self {
        Self { head: record.head, has_settled: record.is_closed() || record.has_settled() }
    }
}

/// The end of a turn, as the worker reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOutcome {
    /// The worker has finished: as `Ok` of [`Agent::run`].
    Done,
    /// The worker failed.
    Failed(AgentError),
    /// The worker stops before the end of the turn, which goes back to the queue.
    Returned,
}

/// A turn that a worker runs, under one claim.
#[derive(Debug)]
pub(crate) struct WorkerTurn {
    pub(crate) id: String,
    pub(crate) claim: TurnClaim,
    pub(crate) assignment: Assignment,
    sink: Arc<dyn NumberedSink>,
    cancel_metadata: Arc<Mutex<Option<Metadata>>>,
    stop_reason: Arc<OnceLock<StopReason>>,
    state: Mutex<ProxyState>,
    /// Wakes the proxy.
    changed: Notify,
    /// Wakes the poll of the session, once the session has the turn.
    poll: OnceLock<Arc<watch::Sender<()>>>,
    /// The number of the last write; `None` if it is not known after a restart. The lock makes the
    /// writes of the worker exclusive.
    last_number: tokio::sync::Mutex<Option<u64>>,
    /// Cancelled once the end of the turn is stored.
    pub(crate) finished: CancellationToken,
}

#[derive(Debug, Default)]
struct ProxyState {
    /// The end of the log after the last write.
    head: Seq,
    /// The end of the log when the turn was given last. A write that was decided before belongs to an earlier run
    /// of the turn.
    given_at: Seq,
    /// The last poll that listed the turn.
    listed_by: Option<u64>,
    /// True once a reply contained the assignment.
    is_delivered: bool,
    has_settled: bool,
    /// Artifacts whose next piece can be appended.
    pieces: HashSet<ArtifactId>,
    /// True while the worker waits for an answer.
    asks: bool,
    is_answered: bool,
    answer_told: bool,
    stop: Option<StopReason>,
    stop_told: bool,
    outcome: Option<TurnOutcome>,
    /// True if the worker no longer has the turn: its session is over, or it has stopped.
    is_gone: bool,
}

/// A turn that a worker holds since before a restart.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AttachedTurn {
    /// True if the worker waits for an answer.
    pub(crate) asks: bool,
}

/// The metadata of a cancel and the reason of a stop, once the turn must stop.
type StopCause = (Arc<Mutex<Option<Metadata>>>, Arc<OnceLock<StopReason>>);

/// The state of a turn for the reply to a poll.
#[derive(Debug)]
pub(crate) enum PolledTurn {
    /// The worker needs nothing.
    Quiet,
    /// The worker does not have the turn yet. The number is the end of the log.
    Assign(Seq),
    /// The worker must stop. True if it was not told before.
    Stop(StopReason, Option<Metadata>, bool),
    /// The answer has arrived. True if the worker was not told before.
    Answered(bool),
}

impl WorkerTurn {
    /// A turn that no worker has yet, or one that a worker may have from before a restart, whose writes are not
    /// known here.
    pub(crate) fn new(
        assignment: Assignment,
        claim: TurnClaim,
        sink: Arc<dyn NumberedSink>,
        (cancel_metadata, stop_reason): StopCause,
        written: NumberedWrite,
        attached: Option<AttachedTurn>,
    ) -> Self {
        let NumberedWrite { head, has_settled } = written;
        let is_attached = attached.is_some();
        let state = ProxyState {
            head,
            has_settled,
            asks: attached.is_some_and(|turn| turn.asks) && has_settled,
            is_delivered: is_attached,
            pieces: if is_attached {
                written_pieces(&assignment)
            } else {
                first_pieces(&assignment)
            },
            ..ProxyState::default()
        };
        Self {
            id: assignment.id.to_string(),
            claim,
            assignment,
            sink,
            cancel_metadata,
            stop_reason,
            state: Mutex::new(state),
            changed: Notify::new(),
            poll: OnceLock::new(),
            last_number: tokio::sync::Mutex::new((!is_attached).then_some(0)),
            finished: CancellationToken::new(),
        }
    }

    /// Notes the session's waker.
    pub(crate) fn belongs_to(&self, poll: Arc<watch::Sender<()>>) {
        let _ = self.poll.set(poll);
    }

    /// Notes that a poll began, which lists the turn or not.
    pub(crate) fn polled(&self, number: u64, is_listed: bool) {
        let mut state = self.state();
        if is_listed {
            state.listed_by = Some(number);
            state.is_delivered = true;
            return;
        }
        if state.stop.is_some() {
            state.is_gone = true;
        } else if state.is_delivered && state.has_settled {
            // The worker gave its result or asked its question and forgot the turn.
            state.outcome.get_or_insert(TurnOutcome::Done);
        }
        drop(state);
        self.changed.notify_one();
    }

    /// True if the worker takes a place for the turn that its poll of this number does not count.
    pub(crate) fn is_unlisted(&self, number: u64) -> bool {
        let state = self.state();
        state.listed_by != Some(number) && !state.is_over()
    }

    /// True if the turn takes a place of the worker. One that waits for its caller takes none.
    pub(crate) fn takes_place(&self) -> bool {
        let state = self.state();
        let waits = state.asks && !state.is_answered;
        !state.is_gone && state.outcome.is_none() && !waits
    }

    /// True if the worker has ended the turn.
    pub(crate) fn has_outcome(&self) -> bool {
        self.state().outcome.is_some()
    }

    /// True if the worker returned the turn.
    pub(crate) fn is_returned(&self) -> bool {
        self.state().outcome == Some(TurnOutcome::Returned)
    }

    /// True if the worker's session is over, or the worker has stopped the turn.
    pub(crate) fn is_gone(&self) -> bool {
        self.state().is_gone
    }

    /// The content of the reply to a poll of this number, for this turn. A reply is sent at once if it has
    /// something that the worker was not told before.
    pub(crate) fn for_poll(&self, number: u64) -> PolledTurn {
        let state = self.state();
        if state.is_gone || state.outcome.is_some() {
            return PolledTurn::Quiet;
        }
        let is_listed = state.listed_by == Some(number);
        match state.stop {
            Some(reason) if is_listed => {
                PolledTurn::Stop(reason, self.metadata(), !state.stop_told)
            }
            Some(_) => PolledTurn::Quiet,
            None if !is_listed => PolledTurn::Assign(state.head),
            None if state.is_answered => PolledTurn::Answered(!state.answer_told),
            None => PolledTurn::Quiet,
        }
    }

    /// Notes that a reply with this was sent.
    pub(crate) fn told(&self, polled: &PolledTurn) {
        match polled {
            PolledTurn::Quiet => {}
            PolledTurn::Assign(_) => {
                let mut state = self.state();
                state.is_delivered = true;
                // A worker that gets the turn again starts over and counts its writes from 1 again.
                state.pieces = first_pieces(&self.assignment);
                state.given_at = state.head;
                drop(state);
                if let Ok(mut last) = self.last_number.try_lock()
                    && last.is_some()
                {
                    *last = Some(0);
                }
            }
            PolledTurn::Stop(..) => self.state().stop_told = true,
            PolledTurn::Answered(_) => self.state().answer_told = true,
        }
    }

    /// Ends the proxy, because the session is over.
    pub(crate) fn lose(&self) {
        self.state().is_gone = true;
        self.changed.notify_one();
    }

    /// Notes the end of the turn. A second one has no effect.
    pub(crate) fn end(&self, outcome: TurnOutcome) {
        self.state().outcome.get_or_insert(outcome);
        self.changed.notify_one();
    }

    /// Writes commands of the worker. A repeated number is not written again. Returns the end of the log.
    pub(crate) async fn write(
        &self,
        number: u64,
        after: Seq,
        commands: Vec<Command>,
    ) -> Result<Seq, Error> {
        let mut last = self.last_number.lock().await;
        if self.is_known(&mut last, number, after).await? {
            return Ok(self.state().head);
        }
        let asks = matches!(commands.last(), Some(Command::Ask(..)));
        let mut pieces = self.state().pieces.clone();
        let replacing = |command| replaces_first(&mut pieces, command);
        let commands = commands.into_iter().map(replacing).collect();
        let written = self.sink.write_numbered(commands, self.cause(number)).await?;
        *last = Some(number);
        let mut state = self.state();
        state.head = written.head;
        state.has_settled = written.has_settled;
        state.pieces = pieces;
        (state.asks, state.is_answered, state.answer_told) = (asks, false, false);
        drop(state);
        self.changed.notify_one();
        Ok(written.head)
    }

    /// Takes the caller's answer. A repeated number gets the same answer again.
    pub(crate) async fn take_answer(
        &self,
        number: u64,
        after: Seq,
    ) -> Result<(Arc<Message>, Seq), Error> {
        let mut last = self.last_number.lock().await;
        if self.is_known(&mut last, number, after).await? {
            return self.sink.current_message().await;
        }
        if !self.sink.has_answer() {
            let text = "the caller has not answered; the reply to a poll says when it has";
            return Err(Error::new(ErrorKind::WriteRefused, text));
        }
        let (message, head) = self.sink.take_numbered(self.cause(number)).await?;
        *last = Some(number);
        let mut state = self.state();
        state.head = head;
        state.has_settled = false;
        (state.asks, state.is_answered, state.answer_told) = (false, false, false);
        drop(state);
        self.changed.notify_one();
        Ok((message, head))
    }

    /// True if the write of this number is in the log already. Refuses a number beyond the next one: the write
    /// before it may still be on its way, and would be taken for a repetition.
    async fn is_known(
        &self,
        last: &mut Option<u64>,
        number: u64,
        after: Seq,
    ) -> Result<bool, Error> {
        {
            let state = self.state();
            // Without `after` the worker does not say which run of the turn the write belongs to.
            if state.is_over() || (1..state.given_at).contains(&after) {
                return Err(turn_over());
            }
        }
        let known = match *last {
            Some(known) => known,
            // After a restart the log is searched once. The worker knows of every write up to `after`: if none
            // follows, this one is the next. Earlier turns of the task have numbers of their own.
            None => {
                let found = self.sink.last_number(after.max(self.assignment.seq)).await?;
                *last.insert(if found == 0 { number - 1 } else { found })
            }
        };
        let next = known.saturating_add(1);
        if number > next {
            let text = format!(
                "write {number} is out of order: the next number is {next}; repeat the writes before it, \
                 and number refused ones again"
            );
            return Err(Error::new(ErrorKind::WriteRefused, text).with("next", next));
        }
        Ok(number <= known)
    }

    fn cause(&self, number: u64) -> Cause {
        Actor::Worker { session: self.claim.holder, number }.into()
    }

    fn metadata(&self) -> Option<Metadata> {
        self.cancel_metadata.lock().expect("nothing panics while it holds this lock").clone()
    }

    fn wake_poll(&self) {
        if let Some(poll) = self.poll.get() {
            poll.send_replace(());
        }
    }

    /// Notes that the engine stops the turn. The worker is told with the reply to its poll, and the turn
    /// ends once the worker no longer lists it.
    fn stop(&self) {
        let mut state = self.state();
        state.stop = Some(self.stop_reason.get().copied().unwrap_or(StopReason::Cancelled));
        state.is_gone |= !state.is_delivered;
        drop(state);
        self.wake_poll();
    }

    fn answered(&self) {
        self.state().is_answered = true;
        self.wake_poll();
    }

    /// The result of the turn, once it is over.
    fn result(&self) -> Option<Result<(), AgentError>> {
        let state = self.state();
        match &state.outcome {
            Some(TurnOutcome::Done | TurnOutcome::Returned) => Some(Ok(())),
            Some(TurnOutcome::Failed(error)) => Some(Err(error.clone())),
            None => state.is_gone.then_some(Err(AgentError::Stopped)),
        }
    }

    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().expect("nothing panics while it holds this lock")
    }
}

impl ProxyState {
    /// True if the worker has no more to do for the turn.
    fn is_over(&self) -> bool {
        self.is_gone || self.outcome.is_some() || self.stop.is_some()
    }
}

#[async_trait]
impl Agent for WorkerTurn {
    async fn run(&self, turn: &Turn) -> Result<(), AgentError> {
        loop {
            if let Some(result) = self.result() {
                return result;
            }
            let (is_stopping, asks) = {
                let state = self.state();
                (state.stop.is_some(), state.asks && !state.is_answered)
            };
            tokio::select! {
                biased;
                () = self.changed.notified() => {}
                // The claim stays the worker's, and the next start of the server attaches the turn again.
                () = turn.leaving() => return Err(AgentError::Suspended),
                () = turn.cancelled().cancelled(), if !is_stopping => self.stop(),
                answered = turn.answered(), if asks && !is_stopping => {
                    if !answered {
                        // The caller took too long: a later answer begins the next turn.
                        return Ok(());
                    }
                    self.answered();
                }
            }
        }
    }
}

/// The artifacts that the turn continues.
fn first_pieces(assignment: &Assignment) -> HashSet<ArtifactId> {
    assignment.continued.clone()
}

/// The artifacts of a turn that began before a restart, as it may have written each of them.
fn written_pieces(assignment: &Assignment) -> HashSet<ArtifactId> {
    let artifacts = assignment.task.artifacts.iter().flatten();
    artifacts.map(|artifact| artifact.artifact_id.clone()).collect()
}

/// A command whose artifact replaces that of an earlier attempt, if it is the first piece of this one.
fn replaces_first(pieces: &mut HashSet<ArtifactId>, mut command: Command) -> Command {
    if let Command::Write(chunk) = &mut command {
        let is_first = pieces.insert(chunk.artifact.artifact_id.clone());
        chunk.append &= !is_first;
    }
    command
}

/// The error of a worker that does not hold the turn.
pub(crate) fn turn_over() -> Error {
    let text = "the turn is not held under this session and epoch, or it is over: stop it";
    Error::new(ErrorKind::TurnOver, text)
}
