//! Sink of a turn that runs in this process: its writes, its pauses and the answers that it reads.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use herald_protocol::{Error, ErrorKind, Message, Seq};
use tokio::time::{Instant, sleep_until};

use crate::{
    agents::{error::AgentError, runtime::PausablePermit},
    cache::CachedTask,
    commit::{CommitError, Written},
    core::Core,
    fault::{is_transient, refuse},
    rules::{Command, Record},
    store::{Actor, Cause},
    turns::{
        admission::deciding,
        state::TurnState,
        turn::{Sink, Stop},
    },
    workers::proxy::{NumberedSink, NumberedWrite, turn_over},
};

/// The events that are read at once in the search for a worker's last write.
const LOG_PAGE: usize = 100;

/// The engine's side of one turn in this process. Every write passes through it, under the turn's
/// epoch.
#[derive(Debug)]
pub(crate) struct LocalSink {
    core: Arc<Core>,
    pub(crate) cached: Arc<CachedTask>,
    pub(crate) state: TurnState,
    /// The permit that a pause exchanges, if the turn runs in this process.
    permit: Option<Arc<PausablePermit>>,
    /// The longest pause for one question.
    pause_timeout: Option<Duration>,
    /// True until the first write, if that decides about the admission of the message.
    decides: AtomicBool,
}

/// Ends the pause on drop, because the wait can also end by cancellation.
struct Paused<'a>(&'a LocalSink);

#[async_trait]
impl Sink for LocalSink {
    async fn write(&self, commands: Vec<Command>) -> Result<(), Stop> {
        let written = self.commit(commands, Actor::Agent.into()).await;
        written.map(|_| ()).map_err(|error| self.refused(error))
    }

    async fn fail(&self, error: &AgentError) -> Result<(), Stop> {
        self.write(vec![self.state.failed(error)]).await
    }

    async fn answered(&self) -> bool {
        let _pause = self.pause();
        let last_question = self.state.last_question();
        let mut waker = self.cached.subscribe();
        let answered = async {
            while !self.cached.is_answered(last_question) && !self.cached.is_closed() {
                if waker.changed().await.is_err() {
                    break;
                }
            }
            self.cached.is_answered(last_question) && !self.cached.is_closed()
        };
        tokio::select! {
            answered = answered => answered,
            () = self.core.draining.cancelled() => false,
            () = until(self.pause_timeout.map(|limit| Instant::now() + limit)) => false,
        }
    }

    async fn messaged(&self) {
        let mut waker = self.cached.subscribe();
        while !self.cached.is_answered(self.state.last_question()) {
            if waker.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn take_answer(&self) -> Result<Arc<Message>, Stop> {
        let taken = self.take(Actor::Agent.into()).await.map_err(|error| self.refused(error))?;
        self.message_of(&taken).await.map_err(|error| self.stop(error))
    }

    async fn leaving(&self) {
        // A turn on a store that ends with the process cannot continue later.
        if self.core.store.is_durable() {
            self.core.draining.cancelled().await;
        } else {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl NumberedSink for LocalSink {
    async fn write_numbered(
        &self,
        commands: Vec<Command>,
        cause: Cause,
    ) -> Result<NumberedWrite, Error> {
        let written = self.commit(commands, cause).await;
        let record = written.map_err(|error| self.worker_error(error))?.record;
        Ok(NumberedWrite::of(&record))
    }

    fn has_answer(&self) -> bool {
        self.cached.is_answered(self.state.last_question())
    }

    async fn take_numbered(&self, cause: Cause) -> Result<(Arc<Message>, Seq), Error> {
        let taken = self.take(cause).await.map_err(|error| self.worker_error(error))?;
        Ok((self.message_of(&taken).await?, taken.head))
    }

    async fn current_message(&self) -> Result<(Arc<Message>, Seq), Error> {
        let record = self.core.record_with_retries(&self.cached).await?;
        let record = record.ok_or_else(Error::task_not_found)?;
        Ok((self.message_of(&record).await?, record.head))
    }

    async fn last_number(&self, mut after: Seq) -> Result<u64, Error> {
        let mut last = 0;
        loop {
            let page = self.core.store.read_log(&self.cached.key, after, LOG_PAGE).await;
            let page = page.map_err(refuse)?;
            let Some(end) = page.last() else { return Ok(last) };
            after = end.entry.seq;
            for cause in page.into_iter().filter_map(|entry| entry.cause) {
                if let Actor::Worker { session, number } = cause.actor
                    && session == self.state.claim.holder
                {
                    last = last.max(number);
                }
            }
        }
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if let Some(permit) = &self.0.permit {
            permit.resume();
        }
        self.0.state.resume();
    }
}

impl LocalSink {
    /// A sink without writes.
    pub(crate) fn new(
        core: Arc<Core>,
        cached: Arc<CachedTask>,
        state: TurnState,
        permit: Option<Arc<PausablePermit>>,
        pause_timeout: Option<Duration>,
    ) -> Self {
        let decides = AtomicBool::new(false);
        Self { core, cached, state, permit, pause_timeout, decides }
    }

    /// The sink of a turn whose first write decides about the admission of its message.
    pub(crate) fn deciding(mut self) -> Self {
        *self.decides.get_mut() = true;
        self
    }

    /// Accepts the message, if nothing was written yet.
    pub(crate) async fn accept(&self) {
        if self.decides.load(Ordering::Acquire) {
            let admitted = vec![Command::Admitted];
            let claim = self.state.claim;
            let written = self.core.persist(&self.cached, claim, admitted, Actor::Agent.into());
            if written.await.is_ok() {
                self.decides.store(false, Ordering::Release);
            }
        }
    }

    /// Accepts the message after this time, if nothing was written until then.
    pub(crate) async fn accept_after(&self, limit: Duration) -> Infallible {
        if self.decides.load(Ordering::Acquire) {
            tokio::time::sleep(limit).await;
            self.accept().await;
        }
        std::future::pending().await
    }

    fn pause(&self) -> Paused<'_> {
        if let Some(permit) = &self.permit {
            permit.pause();
        }
        self.state.pause();
        Paused(self)
    }

    /// Commits commands of the agent.
    async fn commit(&self, commands: Vec<Command>, cause: Cause) -> Result<Written, CommitError> {
        let Some(commands) = self.state.permitted(commands) else {
            let text = "an agent cannot give this command";
            return Err(Error::new(ErrorKind::InvalidAgentResponse, text).into());
        };
        let interim = TurnState::reports_interim(&commands);
        let claim = self.state.claim;
        let decides = self.decides.load(Ordering::Acquire);
        let commands = if decides { deciding(commands) } else { commands };
        let written = self.core.persist(&self.cached, claim, commands, cause).await;
        self.state.touch();
        let written = written?;
        if decides {
            self.decides.store(false, Ordering::Release);
        }
        self.state.wrote(&written.record, interim);
        Ok(written)
    }

    /// Continues the turn with the caller's answer.
    async fn take(&self, cause: Cause) -> Result<Record, CommitError> {
        let take = vec![Command::Take(self.state.last_question())];
        let taken = self.core.persist(&self.cached, self.state.claim, take, cause).await;
        taken.map(|taken| taken.record)
    }

    /// The message that the turn answers.
    async fn message_of(&self, record: &Record) -> Result<Arc<Message>, Error> {
        let read = || self.core.message_at(&self.cached.key, record.run.turn);
        let received = self.core.retry_while_unavailable(read, is_transient).await;
        received.map(|received| received.message)
    }

    /// The error of a worker whose write was not made.
    fn worker_error(&self, error: CommitError) -> Error {
        let error = match error {
            CommitError::Fenced
            | CommitError::NotMember
            | CommitError::Locked
            | CommitError::Duplicate(_) => return turn_over(),
            CommitError::Error(error) => error,
        };
        if matches!(error.kind, ErrorKind::UnsupportedOperation | ErrorKind::TaskNotFound) {
            return turn_over();
        }
        if error.kind == ErrorKind::InvalidAgentResponse {
            self.state.violated_protocol();
        }
        if matches!(error.kind, ErrorKind::InvalidAgentResponse | ErrorKind::LimitExceeded) {
            return Error { kind: ErrorKind::WriteRefused, ..error };
        }
        error
    }

    fn refused(&self, error: CommitError) -> Stop {
        match error {
            CommitError::Fenced
            | CommitError::NotMember
            | CommitError::Locked
            | CommitError::Duplicate(_) => Stop::Over,
            CommitError::Error(error) => self.stop(error),
        }
    }

    fn stop(&self, error: Error) -> Stop {
        if error.kind == ErrorKind::InvalidAgentResponse {
            self.state.violated_protocol();
        }
        let over = matches!(error.kind, ErrorKind::UnsupportedOperation | ErrorKind::TaskNotFound);
        if over { Stop::Over } else { Stop::Refused(error.message) }
    }
}

/// Waits for a moment, or for ever without one.
pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
