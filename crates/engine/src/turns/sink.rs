//! Sink of a turn that runs in this process: its writes, its pauses and the answers that it reads.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use herald_protocol::{Error, ErrorKind, Message};
use tokio::time::{Instant, sleep_until};

use crate::{
    agents::{error::AgentError, runtime::PausablePermit},
    cache::CachedTask,
    commit::CommitError,
    core::Core,
    fault::is_transient,
    rules::Command,
    turns::{
        state::TurnState,
        turn::{Sink, Stop},
    },
};

/// The engine's side of one turn in this process. Every write passes through it, under the turn's
/// epoch.
#[derive(Debug)]
pub(crate) struct LocalSink {
    core: Arc<Core>,
    pub(crate) cached: Arc<CachedTask>,
    pub(crate) state: TurnState,
    permit: Arc<PausablePermit>,
    /// The longest pause for one question.
    pause_timeout: Option<Duration>,
}

/// Ends the pause on drop, because the wait can also end by cancellation.
struct Paused<'a>(&'a LocalSink);

#[async_trait]
impl Sink for LocalSink {
    async fn write(&self, commands: Vec<Command>) -> Result<(), Stop> {
        let Some(commands) = self.state.admit(commands) else {
            return Err(Stop::Refused("an agent cannot give this command".to_owned()));
        };
        let written = self.core.persist(&self.cached, self.state.claim, commands).await;
        self.state.touch();
        let written = written.map_err(|error| self.refused(error))?;
        self.state.wrote(&written.record);
        Ok(())
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

    async fn take_answer(&self) -> Result<Arc<Message>, Stop> {
        let take = vec![Command::Take(self.state.last_question())];
        let taken = self.core.persist(&self.cached, self.state.claim, take).await;
        let seq = taken.map_err(|error| self.refused(error))?.record.run.turn;
        let read = || self.core.message_at(&self.cached.key, seq);
        let received = self.core.retry_while_unavailable(read, is_transient).await;
        received.map(|received| received.message).map_err(|error| self.stop(error))
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

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.permit.resume();
        self.0.state.resume();
    }
}

impl LocalSink {
    /// A sink without writes.
    pub(crate) fn new(
        core: Arc<Core>,
        cached: Arc<CachedTask>,
        state: TurnState,
        permit: Arc<PausablePermit>,
        pause_timeout: Option<Duration>,
    ) -> Self {
        Self { core, cached, state, permit, pause_timeout }
    }

    fn pause(&self) -> Paused<'_> {
        self.permit.pause();
        self.state.pause();
        Paused(self)
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
