//! What a turn that runs here says and hears: the log is its only way to speak.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use herald_protocol::{Error, ErrorKind, Message, TaskState};
use tokio::{sync::Notify, time::Instant};

use crate::{
    agent::AgentError,
    agent_runtime::PausablePermit,
    engine::Engine,
    live::Live,
    rules::Command,
    runner::{AGENT_FAILED, AGENT_UNAVAILABLE, BROKE_PROTOCOL, failure, is_passing, until},
    store::Epoch,
    turn::{Say, Sink, Stop},
    write::Refusal,
};

/// What the turn that runs now may still say.
#[derive(Debug)]
pub(crate) struct Voice {
    engine: Engine,
    pub(crate) live: Arc<Live>,
    pub(crate) epoch: Epoch,
    /// Whether the agent answers directly where a task was asked for, which then ends with the
    /// answer.
    closes: bool,
    /// Milliseconds since `begun` of the last word.
    spoke: AtomicU64,
    pub(crate) begun: Instant,
    permit: Arc<PausablePermit>,
    broke: AtomicBool,
    /// Whether the agent waits for its caller, and how long it has done so until now.
    pause: Mutex<Pause>,
    /// Rings when a pause begins or ends.
    paused: Notify,
    /// How long a pause may last.
    patience: Option<Duration>,
    /// The last question. What was said before it is no answer to it.
    asked: AtomicU64,
}

/// Time that is not the agent's.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pause {
    pub(crate) since: Option<Instant>,
    pub(crate) total: Duration,
}

/// Ends a pause, however the wait ended.
struct Paused<'a>(&'a Voice);

#[async_trait]
impl Sink for Voice {
    async fn say(&self, words: Vec<Say>) -> Result<(), Stop> {
        let commands = words
            .into_iter()
            .map(|word| match word {
                Say::Status(state, message, metadata) => Command::Report(state, message, metadata),
                Say::Question(state, message, metadata) => Command::Ask(state, message, metadata),
                Say::Artifact(chunk) => Command::Write(chunk),
                Say::Reply(message) if self.closes => {
                    Command::Report(TaskState::Completed, Some(message), None)
                }
                Say::Reply(message) => Command::Reply(message),
                Say::Failed(error) => self.failed(&error),
            })
            .collect();
        let written = self.engine.persist(&self.live, self.epoch, commands).await;
        self.heard();
        let record = written.map_err(|refusal| self.refused(refusal))?.record;
        if record.state().is_interrupted() {
            self.asked.store(record.head, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn answered(&self) -> bool {
        let _pause = self.pause();
        let asked = self.asked.load(Ordering::Relaxed);
        let mut bell = self.live.listen();
        let answered = async {
            while !self.live.is_answered(asked) && !self.live.is_closed() {
                if bell.changed().await.is_err() {
                    break;
                }
            }
            self.live.is_answered(asked) && !self.live.is_closed()
        };
        tokio::select! {
            answered = answered => answered,
            () = self.engine.draining() => false,
            () = until(self.patience.map(|limit| Instant::now() + limit)) => false,
        }
    }

    async fn take_answer(&self) -> Result<Arc<Message>, Stop> {
        let take = vec![Command::Take(self.asked.load(Ordering::Relaxed))];
        let taken = self.engine.persist(&self.live, self.epoch, take).await;
        let seq = taken.map_err(|refusal| self.refused(refusal))?.record.run.turn;
        let read = || self.engine.message_at(&self.live.key, seq);
        let received = self.engine.patiently(read, is_passing).await;
        received.map(|received| received.message).map_err(|error| self.stop(error))
    }

    async fn leaving(&self) {
        match self.engine.inner.store.is_lasting() {
            true => self.engine.draining().await,
            false => std::future::pending().await,
        }
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.permit.resume();
        self.0.heard();
        self.0.pace(|pause| {
            pause.total += pause.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        });
    }
}

impl Voice {
    /// Nothing said yet. `closes` is whether a direct answer ends the task, `patience` how long a
    /// question may wait.
    pub(crate) fn new(
        engine: Engine,
        live: Arc<Live>,
        epoch: Epoch,
        permit: Arc<PausablePermit>,
        closes: bool,
        patience: Option<Duration>,
    ) -> Self {
        Self {
            engine,
            live,
            epoch,
            closes,
            spoke: AtomicU64::new(0),
            begun: Instant::now(),
            permit,
            broke: AtomicBool::new(false),
            pause: Mutex::default(),
            paused: Notify::new(),
            patience,
            asked: AtomicU64::new(0),
        }
    }

    /// How long the agent has waited for its caller, and whether it does now.
    pub(crate) fn pauses(&self) -> Pause {
        *self.pause.lock().expect("nothing panics while it holds this lock")
    }

    /// Returns when a pause begins or ends.
    pub(crate) async fn paused(&self) {
        self.paused.notified().await;
    }

    /// Since when the agent has said nothing.
    pub(crate) fn silent_since(&self) -> Instant {
        self.begun + Duration::from_millis(self.spoke.load(Ordering::Relaxed))
    }

    /// What ends the task of an agent that failed so.
    pub(crate) fn failed(&self, error: &AgentError) -> Command {
        let (reason, text) = match error {
            // What it said made no sense, and it was told so.
            AgentError::Failed(text) if self.broke.load(Ordering::Relaxed) => {
                (BROKE_PROTOCOL, text.as_str())
            }
            AgentError::Failed(text) => (AGENT_FAILED, text.as_str()),
            AgentError::Broke(text) => (BROKE_PROTOCOL, text.as_str()),
            AgentError::Unavailable(text) => (AGENT_UNAVAILABLE, text.as_str()),
            AgentError::Stopped | AgentError::Left => (AGENT_FAILED, "the agent gave up"),
        };
        Command::Report(TaskState::Failed, Some(failure(reason, text)), None)
    }

    fn pause(&self) -> Paused<'_> {
        self.permit.pause();
        self.pace(|pause| pause.since = Some(Instant::now()));
        Paused(self)
    }

    fn pace(&self, change: impl FnOnce(&mut Pause)) {
        change(&mut self.pause.lock().expect("nothing panics while it holds this lock"));
        self.paused.notify_one();
    }

    /// The agent's silence starts anew.
    fn heard(&self) {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.spoke.store(elapsed, Ordering::Relaxed);
    }

    fn refused(&self, refusal: Refusal) -> Stop {
        match refusal {
            Refusal::Fenced | Refusal::Duplicate(_) => Stop::Over,
            Refusal::Error(error) => self.stop(error),
        }
    }

    fn stop(&self, error: Error) -> Stop {
        if error.kind == ErrorKind::InvalidAgentResponse {
            self.broke.store(true, Ordering::Relaxed);
        }
        let over = matches!(error.kind, ErrorKind::UnsupportedOperation | ErrorKind::TaskNotFound);
        if over { Stop::Over } else { Stop::Refused(error.message) }
    }
}
