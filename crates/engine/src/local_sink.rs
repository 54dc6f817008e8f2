//! Sink of a turn that runs in this process: its writes, its pauses and the answers that it reads.

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
    cache::CachedTask,
    engine::Engine,
    rules::Command,
    runner::{AGENT_FAILED, AGENT_UNAVAILABLE, PROTOCOL_VIOLATION, failure, is_transient, until},
    store::Epoch,
    turn::{Say, Sink, Stop},
    write::Refusal,
};

/// The engine's side of one running turn. Every write passes through it, under the turn's epoch.
#[derive(Debug)]
pub(crate) struct LocalSink {
    engine: Engine,
    pub(crate) cached: Arc<CachedTask>,
    pub(crate) epoch: Epoch,
    /// True if a direct answer completes the task, because the caller asked for a task.
    closes_task: bool,
    /// Milliseconds from `begun` to the last write, for the idle timeout.
    last_write: AtomicU64,
    pub(crate) begun: Instant,
    permit: Arc<PausablePermit>,
    /// True after a write that the rules refused as invalid: a later failure is then reported as a
    /// protocol violation.
    protocol_violation: AtomicBool,
    pause: Mutex<Pause>,
    /// Wakes the supervisor when a pause begins or ends.
    paused: Notify,
    /// The longest pause for one question.
    pause_timeout: Option<Duration>,
    /// The sequence number of the last question. Earlier messages do not answer it.
    last_question: AtomicU64,
}

/// Time that the agent spent waiting for its caller. Its timeouts do not count it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pause {
    pub(crate) since: Option<Instant>,
    pub(crate) total: Duration,
}

/// Ends the pause on drop, because the wait can also end by cancellation.
struct Paused<'a>(&'a LocalSink);

#[async_trait]
impl Sink for LocalSink {
    async fn say(&self, said: Vec<Say>) -> Result<(), Stop> {
        let commands = said
            .into_iter()
            .map(|say| match say {
                Say::Status(state, message, metadata) => Command::Report(state, message, metadata),
                Say::Question(state, message, metadata) => Command::Ask(state, message, metadata),
                Say::Artifact(chunk) => Command::Write(chunk),
                Say::Reply(message) if self.closes_task => {
                    Command::Report(TaskState::Completed, Some(message), None)
                }
                Say::Reply(message) => Command::Reply(message),
                Say::Failed(error) => self.failed(&error),
            })
            .collect();
        let written = self.engine.persist(&self.cached, self.epoch, commands).await;
        self.touch();
        let record = written.map_err(|refusal| self.refused(refusal))?.record;
        if record.state().is_interrupted() {
            self.last_question.store(record.head, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn answered(&self) -> bool {
        let _pause = self.pause();
        let last_question = self.last_question.load(Ordering::Relaxed);
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
            () = self.engine.draining() => false,
            () = until(self.pause_timeout.map(|limit| Instant::now() + limit)) => false,
        }
    }

    async fn take_answer(&self) -> Result<Arc<Message>, Stop> {
        let take = vec![Command::Take(self.last_question.load(Ordering::Relaxed))];
        let taken = self.engine.persist(&self.cached, self.epoch, take).await;
        let seq = taken.map_err(|refusal| self.refused(refusal))?.record.run.turn;
        let read = || self.engine.message_at(&self.cached.key, seq);
        let received = self.engine.retry_while_unavailable(read, is_transient).await;
        received.map(|received| received.message).map_err(|error| self.stop(error))
    }

    async fn leaving(&self) {
        // A turn on a store that ends with the process cannot continue later.
        if self.engine.inner.store.is_durable() {
            self.engine.draining().await;
        } else {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        self.0.permit.resume();
        self.0.touch();
        self.0.update_pause(|pause| {
            pause.total += pause.since.take().map_or(Duration::ZERO, |since| since.elapsed());
        });
    }
}

impl LocalSink {
    /// A sink without writes.
    pub(crate) fn new(
        engine: Engine,
        cached: Arc<CachedTask>,
        epoch: Epoch,
        permit: Arc<PausablePermit>,
        closes_task: bool,
        pause_timeout: Option<Duration>,
    ) -> Self {
        Self {
            engine,
            cached,
            epoch,
            closes_task,
            last_write: AtomicU64::new(0),
            begun: Instant::now(),
            permit,
            protocol_violation: AtomicBool::new(false),
            pause: Mutex::default(),
            paused: Notify::new(),
            pause_timeout,
            last_question: AtomicU64::new(0),
        }
    }

    /// The pauses so far, with the current one if the agent waits now.
    pub(crate) fn pauses(&self) -> Pause {
        *self.pause.lock().expect("nothing panics while it holds this lock")
    }

    /// Returns when a pause begins or ends.
    pub(crate) async fn paused(&self) {
        self.paused.notified().await;
    }

    /// The time of the last write.
    pub(crate) fn silent_since(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_write.load(Ordering::Relaxed))
    }

    /// The command that ends the task after this failure of its agent.
    pub(crate) fn failed(&self, error: &AgentError) -> Command {
        let (reason, text) = match error {
            // The agent fails because one of its writes was refused as invalid.
            AgentError::Failed(text) if self.protocol_violation.load(Ordering::Relaxed) => {
                (PROTOCOL_VIOLATION, text.as_str())
            }
            AgentError::Failed(text) => (AGENT_FAILED, text.as_str()),
            AgentError::ProtocolViolation(text) => (PROTOCOL_VIOLATION, text.as_str()),
            AgentError::Unavailable(text) => (AGENT_UNAVAILABLE, text.as_str()),
            AgentError::Stopped | AgentError::Suspended => (AGENT_FAILED, "the agent gave up"),
        };
        Command::Report(TaskState::Failed, Some(failure(reason, text)), None)
    }

    fn pause(&self) -> Paused<'_> {
        self.permit.pause();
        self.update_pause(|pause| pause.since = Some(Instant::now()));
        Paused(self)
    }

    fn update_pause(&self, change: impl FnOnce(&mut Pause)) {
        change(&mut self.pause.lock().expect("nothing panics while it holds this lock"));
        self.paused.notify_one();
    }

    /// Restarts the idle timeout.
    fn touch(&self) {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_write.store(elapsed, Ordering::Relaxed);
    }

    fn refused(&self, refusal: Refusal) -> Stop {
        match refusal {
            Refusal::Fenced | Refusal::NotMember | Refusal::Locked | Refusal::Duplicate(_) => {
                Stop::Over
            }
            Refusal::Error(error) => self.stop(error),
        }
    }

    fn stop(&self, error: Error) -> Stop {
        if error.kind == ErrorKind::InvalidAgentResponse {
            self.protocol_violation.store(true, Ordering::Relaxed);
        }
        let over = matches!(error.kind, ErrorKind::UnsupportedOperation | ErrorKind::TaskNotFound);
        if over { Stop::Over } else { Stop::Refused(error.message) }
    }
}
