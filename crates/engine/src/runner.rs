//! Dispatcher and supervisor of turns: claims due tasks, runs their agents within deadlines, and
//! repeats or fails turns after a crash.

use std::{
    any::Any,
    collections::HashSet,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind},
    pin::pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use herald_protocol::{AgentName, Error, ErrorKind, Message, Metadata, Task, TaskState};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::Instrument;

use crate::{
    agent::{AgentError, Recovery},
    agent_runtime::{AgentRuntime, ConversationLock, TurnPermit},
    cache::{CachedTask, Stopper},
    codec, compat_log,
    engine::{Engine, refuse},
    idempotency::TurnId,
    janitor,
    local_sink::LocalSink,
    rules::{Command, Event, Received, Record},
    store::{Actor, Conversation, Due, Epoch, Key, StoreError},
    turn::{Assignment, Sink, Turn},
    write::{Refusal, Write, Written},
};

/// Machine-readable reasons of failed tasks: `status.message.metadata.reason`.
pub(crate) const AGENT_FAILED: &str = "AGENT_FAILED";
pub(crate) const AGENT_CRASHED: &str = "AGENT_CRASHED";
pub(crate) const AGENT_UNAVAILABLE: &str = "AGENT_UNAVAILABLE";
pub(crate) const PROTOCOL_VIOLATION: &str = "INVALID_AGENT_RESPONSE";
pub(crate) const INTERRUPTED: &str = "INTERRUPTED";
pub(crate) const TIMED_OUT: &str = "TIMED_OUT";
pub(crate) const IDLE: &str = "IDLE";
pub(crate) const UNANSWERED: &str = "UNANSWERED";
pub(crate) const AGENT_GONE: &str = "AGENT_GONE";

/// Tasks of a removed agent that are failed in one batch.
const ORPHANS: usize = 100;

/// The result of running an agent for one turn.
enum Outcome {
    /// The agent returned.
    Returned(Result<(), AgentError>),
    /// The agent panicked; the text is for the log.
    Panicked(String),
    /// The agent did not stop within its grace period.
    Abandoned,
}

impl Engine {
    /// Starts the dispatchers and the janitor. The dispatchers also claim the turns that an earlier
    /// process left unfinished.
    pub async fn start_work(&self) -> Result<(), Error> {
        // Before anything is claimed. The store has logged its error, and the first write tries again.
        let _ = self.join().await;
        for runtime in self.inner.agents.values() {
            let (engine, runtime) = (self.clone(), Arc::clone(runtime));
            runtime.wake();
            self.inner.work.spawn(async move { engine.dispatch(&runtime).await });
        }
        self.inner.work.spawn(janitor::run(self.clone()));
        self.fail_orphans().await
    }

    /// Stops claiming tasks, ends every stream so that it can be resumed, and waits at most `grace` for
    /// running turns. The next start claims the turns that are unfinished then.
    pub async fn drain(&self, grace: Duration) {
        self.inner.draining.cancel();
        self.inner.cache.wake_all();
        self.inner.wakers.wake_all();
        self.inner.work.close();
        if tokio::time::timeout(grace, self.inner.work.wait()).await.is_err() {
            tracing::warn!("some turns did not finish in time; the next start takes them up");
        }
        if self.inner.joined.initialized()
            && let Err(error) = self.inner.store.leave(self.inner.holder).await
        {
            tracing::debug!(%error, "the members of the store could not be left");
        }
    }

    /// The agents with running turns, by name, each with the number of its turns.
    pub fn at_work(&self) -> Vec<(AgentName, usize)> {
        let agents = self.inner.agents.values();
        let mut running: Vec<_> = agents
            .map(|runtime| (runtime.profile.name.clone(), runtime.turns()))
            .filter(|(_, turns)| *turns > 0)
            .collect();
        running.sort_unstable();
        running
    }

    /// True once the engine shuts down.
    pub fn is_draining(&self) -> bool {
        self.inner.draining.is_cancelled()
    }

    /// Waits until the engine is shutting down.
    pub async fn draining(&self) {
        self.inner.draining.cancelled().await;
    }

    /// Dispatcher of one agent: begins waiting tasks as permits become free.
    async fn dispatch(&self, runtime: &Arc<AgentRuntime>) {
        let draining = &self.inner.draining;
        if runtime.profile.serial {
            let enable = || self.inner.store.enable_serial(&runtime.profile.name);
            // The store has logged its error. Without the serial queue no turn can begin.
            if self.retry_while_unavailable(enable, |_| true).await.is_err() {
                return;
            }
        }
        loop {
            tokio::select! {
                () = runtime.woken() => {}
                () = draining.cancelled() => return,
            }
            loop {
                let permit = tokio::select! {
                    permit = runtime.acquire() => permit,
                    () = draining.cancelled() => return,
                };
                match self.claim_next(runtime, permit).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) => {
                        // The store has logged its error: try again later.
                        tokio::select! {
                            () = sleep(Duration::from_secs(1)) => runtime.wake(),
                            () = draining.cancelled() => return,
                        }
                        break;
                    }
                }
            }
        }
    }

    async fn claim_next(
        &self,
        runtime: &Arc<AgentRuntime>,
        permit: TurnPermit,
    ) -> Result<bool, Error> {
        let due = self.due(runtime, runtime.quarantined() + 1).await.map_err(refuse)?;
        let mut due = due.into_iter();
        let Some(due) = due.find(|due| !runtime.is_quarantined(&due.key)) else {
            return Ok(false);
        };
        let key = due.key.clone();
        match self.claim(due, runtime, permit).await {
            Err(error) if error.kind != ErrorKind::Unavailable => {
                let (task, agent) = (&key.task, &runtime.profile.name);
                tracing::error!(%task, %agent, %error, "a task cannot be read and is skipped until the next start");
                runtime.quarantine(key);
                Ok(true)
            }
            taken => taken.map(|()| true),
        }
    }

    /// The tasks of an agent that can be claimed now, in order.
    async fn due(&self, runtime: &AgentRuntime, limit: usize) -> Result<Vec<Due>, StoreError> {
        let name = &runtime.profile.name;
        if runtime.profile.serial {
            return self.inner.store.next_serial(name, limit).await;
        }
        self.inner.store.due(name, limit).await
    }

    /// Claims a due task and starts its next turn. A turn that a dead member held is repeated or
    /// failed, as the agent's recovery says. Nothing happens if another writer was faster.
    async fn claim(
        &self,
        due: Due,
        runtime: &Arc<AgentRuntime>,
        permit: TurnPermit,
    ) -> Result<(), Error> {
        let cached = self.inner.cache.get(&due.key);
        let Some(record) = self.record(&cached).await? else { return Ok(()) };
        if record.run.epoch != due.epoch {
            return Ok(());
        }
        let me = self.inner.holder;
        let command = match (due.holder, runtime.profile.recovery) {
            (None, _) => Command::Begin(me),
            (Some(_), _) if record.has_settled() => Command::Release,
            (Some(from), Recovery::Resume(attempts) | Recovery::Rerun(attempts))
                if record.run.attempt < attempts =>
            {
                Command::Retry { me, from }
            }
            (Some(_), Recovery::Resume(_) | Recovery::Rerun(_) | Recovery::Fail) => {
                let text = "the server stopped while the agent was at work";
                Command::Report(TaskState::Failed, Some(failure(INTERRUPTED, text)), None)
            }
        };
        let (task, agent) = (&cached.key.task, &runtime.profile.name);
        if let Command::Report(..) = &command {
            let unfinished = "a turn was left unfinished by a stopped server and may not be repeated: its task fails";
            tracing::warn!(%task, %agent, "{unfinished}");
        } else if due.holder.is_some() {
            tracing::info!(%task, %agent, "repeats a turn that a stopped server left unfinished");
        }
        let runs = matches!(command, Command::Begin(_) | Command::Retry { .. });
        let ends = matches!(command, Command::Report(..));
        let permit = if runs {
            tokio::select! {
                memory = self.reserve_turn(record.bytes) => permit.with_memory(memory),
                () = self.inner.draining.cancelled() => return Ok(()),
            }
        } else {
            permit
        };
        let conversation = runtime.profile.serial.then(|| {
            let context = record.task.context_id.clone();
            Conversation { owner: cached.key.owner.clone(), context }
        });
        // A message that arrived since the read may have begun another turn. The fence then refuses
        // this write, which was decided for the turn before.
        let fence = Some(due.epoch);
        drop(record);
        let write = Write { fence, commands: vec![command], ..Write::default() };
        let (engine, turn_runtime, started) =
            (self.clone(), Arc::clone(runtime), Arc::clone(&cached));
        let written = self
            .commit_detached(cached, write, move |written| {
                if runs && written.claimed {
                    let permit = match conversation {
                        Some(conversation) => permit.with_conversation(ConversationLock::new(
                            engine.clone(),
                            Arc::clone(&turn_runtime),
                            conversation,
                        )),
                        None => permit,
                    };
                    engine.start(started, &turn_runtime, permit, written.record.clone(), None);
                } else if ends {
                    // The agent may have delegated the task; it can now cancel that work.
                    engine.notify_ended(&written.record, None);
                }
            })
            .await;
        match written {
            Ok(written) if runs && !written.claimed => {
                Err(Error::new(ErrorKind::Unavailable, "another writer claimed the task first"))
            }
            Ok(_) => Ok(()),
            // The task was cancelled, or another process claimed it.
            Err(Refusal::Error(error)) if error.kind == ErrorKind::UnsupportedOperation => Ok(()),
            Err(Refusal::Fenced | Refusal::Locked | Refusal::Duplicate(_)) => Ok(()),
            Err(refusal @ Refusal::NotMember) => Err(refusal.into()),
            Err(Refusal::Error(error)) => Err(error),
        }
    }

    /// Fails the tasks of agents that are no longer configured: no dispatcher would ever claim them.
    async fn fail_orphans(&self) -> Result<(), Error> {
        let mut agents = self.inner.store.agents_unserved().await.map_err(refuse)?;
        // Also if this process could not join yet.
        agents.retain(|agent| !self.inner.agents.contains_key(agent));
        for agent in agents {
            // Tasks that cannot be failed, because their stored data cannot be read. Every batch finds
            // them again.
            let mut left = HashSet::new();
            loop {
                let limit = left.len() + ORPHANS;
                let due = self.inner.store.due(&agent, limit).await;
                let mut orphans = due.map_err(refuse)?;
                orphans.retain(|due| !left.contains(&due.key));
                if orphans.is_empty() {
                    break;
                }
                for Due { key, .. } in orphans {
                    tracing::warn!(task = %key.task, %agent, "the agent of this task is gone: it fails");
                    let text = "the agent of this task is no longer here";
                    if !self.fail(key.clone(), AGENT_GONE, text).await {
                        left.insert(key);
                    }
                }
            }
        }
        Ok(())
    }

    /// Fails a task without a running turn. Returns true if it succeeded.
    pub(crate) async fn fail(&self, key: Key, reason: &str, text: &str) -> bool {
        let cached = self.inner.cache.get(&key);
        let report = Command::Report(TaskState::Failed, Some(failure(reason, text)), None);
        let write = Write { commands: vec![report], ..Write::default() };
        let engine = self.clone();
        let notify = move |written: &mut Written| engine.notify_ended(&written.record, None);
        let failed = self.commit_detached(cached, write, notify).await;
        if let Err(refusal) = &failed {
            tracing::debug!(task = %key.task, ?refusal, "the task could not be failed");
        }
        failed.is_ok()
    }

    /// Notifies the agent that one of its tasks ended without a running turn.
    pub(crate) fn notify_ended(&self, record: &Record, metadata: Option<Metadata>) {
        let Some(runtime) = self.inner.agents.get(&record.agent).cloned() else { return };
        let task = Arc::clone(&record.task);
        self.inner.work.spawn(async move {
            let notified = caught(runtime.agent.task_ended(&task, metadata));
            if !matches!(tokio::time::timeout(runtime.profile.grace, notified).await, Ok(Ok(()))) {
                let (task, agent) = (&task.id, &runtime.profile.name);
                tracing::warn!(%task, %agent, "the agent was not notified of the end of a task: it failed or took too long");
            }
        });
    }

    /// Runs a claimed turn, and the further turns that messages of the same task begin, under one
    /// permit.
    pub(crate) fn start(
        &self,
        cached: Arc<CachedTask>,
        runtime: &Arc<AgentRuntime>,
        permit: TurnPermit,
        record: Record,
        received: Option<Received>,
    ) {
        let (engine, runtime) = (self.clone(), Arc::clone(runtime));
        let stopper = Stopper::default();
        cached.started(stopper.clone());
        // Boxed, because the future of a turn is large and spawning moves it several times.
        self.inner.work.spawn(Box::pin(async move {
            let mut next = Some((record, received));
            while let Some((record, received)) = next.take() {
                next = engine.turn(&cached, &runtime, &permit, &stopper, record, received).await;
            }
            cached.finished(&stopper);
            drop(permit);
        }));
    }

    /// Runs one turn to its end. Returns the next turn, if a message arrived in between.
    async fn turn(
        &self,
        cached: &Arc<CachedTask>,
        runtime: &Arc<AgentRuntime>,
        permit: &TurnPermit,
        stopper: &Stopper,
        record: Record,
        received: Option<Received>,
    ) -> Option<(Record, Option<Received>)> {
        cached.started(stopper.clone());
        let prepared = async {
            let (earlier, memory) =
                self.conversation_history(&cached.key, runtime, &record, &stopper.token).await?;
            let assigned = self.assignment(cached, runtime, &record, received, earlier).await?;
            Ok::<_, Error>((assigned, memory, self.readable(cached).await?))
        };
        let ((mut assignment, spent), _memory, now) = match prepared.await {
            Ok(prepared) => prepared,
            // The claim ends with this process, and the next start claims the turn again.
            Err(error) if error.kind == ErrorKind::Unavailable => return None,
            Err(error) => {
                let (task, agent) = (&cached.key.task, &record.agent);
                tracing::error!(%task, %agent, %error, "a turn could not be prepared");
                let failed = failure(AGENT_FAILED, "the turn could not be prepared");
                self.settle(
                    cached,
                    record.run.epoch,
                    Command::Report(TaskState::Failed, Some(failed), None),
                )
                .await;
                return None;
            }
        };
        let closes_task = !record.hidden && runtime.agent.answers_directly(&assignment.message);
        let (epoch, permit) = (record.run.epoch, permit.pausable());
        let pause_timeout = runtime.profile.paused_timeout;
        let sink = LocalSink::new(
            self.clone(),
            Arc::clone(cached),
            epoch,
            permit,
            closes_task,
            pause_timeout,
        );
        let sink = Arc::new(sink);
        // A cancel that came before the stopper was registered has already closed the task.
        if now.is_none_or(|record| record.is_closed()) {
            stopper.token.cancel();
        }
        let shared: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
        let parent = assignment.trace.take();
        assignment.trace = self.span_below(parent.as_ref());
        let span = self.turn_span(&cached.key, &record, parent.as_ref(), assignment.trace.as_ref());
        let turn =
            Turn::new(assignment, shared, stopper.token.clone(), Arc::clone(&stopper.metadata));
        self.log_turn_begun(&cached.key.task, turn.message());
        let last = async {
            let outcome = self.supervise(runtime, &sink, spent, stopper, &turn).await;
            // The agent has returned: a cancel must not wait for it any more.
            cached.finished(stopper);
            self.conclude(cached, runtime, &sink, outcome).await
        };
        let last = last.instrument(span.clone()).await;
        runtime.metrics.turns.took(sink.begun.elapsed());
        compat_log::turn_finished(&cached.key.task);
        if !span.is_disabled()
            && let Ok(Some(record)) = self.record(cached).await
        {
            span.record("state", record.state().proto_name());
        }
        drop(span);
        let last = last?;
        if last.run.holder.is_some() || last.run.unread.is_empty() || last.is_closed() {
            return None;
        }
        // Another task of the conversation may have an earlier message: the dispatcher decides.
        if runtime.profile.serial {
            return None;
        }
        let begin = Write { commands: vec![Command::Begin(self.inner.holder)], ..Write::default() };
        match self.commit_detached(Arc::clone(cached), begin, |_| {}).await {
            Ok(written) if written.claimed => Some((written.record, None)),
            // The message is in the log, unclaimed: the dispatcher finds it there.
            Ok(_) | Err(_) => {
                runtime.wake();
                None
            }
        }
    }

    /// Runs the agent until it returns, is stopped or exceeds a timeout.
    async fn supervise(
        &self,
        runtime: &AgentRuntime,
        sink: &LocalSink,
        spent: Duration,
        stopper: &Stopper,
        turn: &Turn,
    ) -> Outcome {
        let mut run = pin!(caught(runtime.agent.run(turn)));
        loop {
            let pause = sink.pauses();
            let whole = runtime
                .profile
                .timeout
                .map(|limit| sink.begun + pause.total + limit.saturating_sub(spent));
            let idle = runtime.profile.idle_timeout.map(|limit| sink.silent_since() + limit);
            let next = match pause.since {
                Some(_) => None,
                None => whole.into_iter().chain(idle).min(),
            };
            tokio::select! {
                biased;
                outcome = &mut run => return returned(outcome),
                () = stopper.token.cancelled() => break,
                () = sink.paused() => continue,
                () = until(next) => {}
            }
            let now = Instant::now();
            let silent = runtime.profile.idle_timeout.map(|limit| sink.silent_since() + limit);
            let (reason, text) = if whole.is_some_and(|whole| whole <= now) {
                (TIMED_OUT, "the agent ran out of time")
            } else if silent.is_some_and(|silent| silent <= now) {
                (IDLE, "the agent was silent for too long")
            } else {
                continue;
            };
            let (agent, task) = (&runtime.profile.name, &sink.cached.key.task);
            tracing::warn!(%agent, %task, reason, "a turn took too long: its task fails");
            // The task ends at once; the agent keeps its permit until it has stopped.
            let failed = Command::Report(TaskState::Failed, Some(failure(reason, text)), None);
            self.settle(&sink.cached, sink.epoch, failed).await;
            stopper.token.cancel();
            break;
        }
        match tokio::time::timeout(runtime.profile.grace, run).await {
            Ok(outcome) => returned(outcome),
            Err(_) => Outcome::Abandoned,
        }
    }

    /// Writes the end of the turn, unless the agent already did.
    async fn conclude(
        &self,
        cached: &Arc<CachedTask>,
        runtime: &AgentRuntime,
        sink: &LocalSink,
        outcome: Outcome,
    ) -> Option<Record> {
        let failed = |reason, text: &str| {
            Command::Report(TaskState::Failed, Some(failure(reason, text)), None)
        };
        let command = match outcome {
            Outcome::Returned(Ok(())) => {
                let record = self.readable(cached).await.ok().flatten()?;
                if record.is_closed() || record.run.epoch != sink.epoch {
                    return None;
                }
                // Submitted again: the agent asked a question, and the answer has arrived.
                let is_answered = record.state() == TaskState::Submitted;
                if record.state().is_interrupted() || is_answered {
                    Command::Release
                } else if record.hidden {
                    failed(PROTOCOL_VIOLATION, "the agent gave no answer")
                } else {
                    Command::Report(TaskState::Completed, None, None)
                }
            }
            // The claim ends with this process, and the next start claims the turn again.
            Outcome::Returned(Err(AgentError::Suspended)) if self.is_draining() => return None,
            Outcome::Returned(Err(error)) => sink.failed(&error),
            Outcome::Panicked(cause) => {
                let (task, agent) = (&cached.key.task, &runtime.profile.name);
                tracing::error!(%task, %agent, cause, "the agent panicked");
                failed(AGENT_CRASHED, "the agent crashed")
            }
            Outcome::Abandoned => sink.failed(&AgentError::Stopped),
        };
        let record = self.settle(cached, sink.epoch, command).await?;
        if record.run.holder.is_none() {
            return Some(record);
        }
        // Completed with an unread message: the turn ends, the task continues.
        self.settle(cached, sink.epoch, Command::Release).await
    }

    /// Reads the record, with retries while the store is unavailable.
    async fn readable(&self, cached: &Arc<CachedTask>) -> Result<Option<Record>, Error> {
        self.retry_while_unavailable(|| self.record(cached), is_transient).await
    }

    /// Repeats an attempt with backoff while its error is transient, until the engine shuts down: a
    /// full disk must not lose the work of an agent.
    pub(crate) async fn retry_while_unavailable<T, E, F: Future<Output = Result<T, E>>>(
        &self,
        mut attempt: impl FnMut() -> F,
        passes: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut wait = Duration::from_millis(50);
        loop {
            let error = match attempt().await {
                Err(error) if passes(&error) => error,
                done => return done,
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.inner.draining.cancelled() => return Err(error),
            }
            wait = (wait * 2).min(Duration::from_secs(5));
        }
    }

    /// Writes the end of a turn, so that no task stays at work without a turn.
    async fn settle(
        &self,
        cached: &Arc<CachedTask>,
        epoch: Epoch,
        command: Command,
    ) -> Option<Record> {
        let written = self.persist(cached, epoch, vec![command]).await;
        written.ok().map(|written| written.record)
    }

    /// Commits the commands of a turn, with retries while the store is unavailable.
    pub(crate) async fn persist(
        &self,
        cached: &Arc<CachedTask>,
        epoch: Epoch,
        commands: Vec<Command>,
    ) -> Result<Written, Refusal> {
        let attempt = || {
            let fence = Some(epoch);
            let (commands, cause) = (commands.clone(), Actor::Agent.into());
            let write = Write { fence, commands, cause, ..Write::default() };
            self.commit_detached(Arc::clone(cached), write, |_| {})
        };
        let passes = |refusal: &Refusal| match refusal {
            Refusal::Error(error) => is_transient(error),
            Refusal::Fenced | Refusal::NotMember | Refusal::Locked | Refusal::Duplicate(_) => false,
        };
        self.retry_while_unavailable(attempt, passes).await
    }

    /// The assignment of a turn, and the time that its earlier attempts took.
    async fn assignment(
        &self,
        cached: &CachedTask,
        runtime: &AgentRuntime,
        record: &Record,
        received: Option<Received>,
        earlier: Vec<Arc<Task>>,
    ) -> Result<(Assignment, Duration), Error> {
        let run = &record.run;
        let received = match received {
            Some(received) => received,
            None => {
                self.retry_while_unavailable(
                    || self.message_at(&cached.key, run.turn),
                    is_transient,
                )
                .await?
            }
        };
        let spent = match run.attempt {
            0 | 1 => 0,
            _ => self.now().as_millis().saturating_sub(received.at.as_millis()),
        };
        let spent = Duration::from_millis(u64::try_from(spent).unwrap_or(0));
        let resumed = run.attempt > 1 && matches!(runtime.profile.recovery, Recovery::Resume(_));
        let kept = if run.attempt > 1 && !resumed { run.kept } else { usize::MAX };
        let artifacts = record.task.artifacts.iter().flatten().take(kept);
        let continued = artifacts.map(|artifact| artifact.artifact_id.clone()).collect();
        let assignment = Assignment {
            id: TurnId::new(self.inner.secret, cached.key.clone(), run.turn),
            task: Arc::clone(&record.task),
            earlier,
            message: received.message,
            seq: run.turn,
            accepted_output_modes: received.accepted_output_modes,
            metadata: received.metadata,
            trace: received.trace,
            attempt: run.attempt,
            resumed,
            continued,
        };
        Ok((assignment, spent))
    }

    pub(crate) async fn message_at(&self, key: &Key, seq: u64) -> Result<Received, Error> {
        let page = self.read(key, seq.saturating_sub(1), 1).await?;
        let entry = page.entries.first().ok_or_else(Error::task_not_found)?;
        match codec::decode(entry).map_err(refuse)? {
            Event::Received(received) => Ok(received),
            Event::Status(..) | Event::Artifact(_) | Event::Reply(_) => {
                Err(refuse(StoreError::Corrupt(format!("event {seq} is not a message"))))
            }
        }
    }
}

/// True if a retry may succeed.
pub(crate) fn is_transient(error: &Error) -> bool {
    error.kind == ErrorKind::Unavailable
}

/// The message of a failed task, with the machine-readable reason in its metadata.
pub(crate) fn failure(reason: &str, text: &str) -> Arc<Message> {
    let mut message = Message::agent(uuid::Uuid::now_v7().to_string(), text);
    let reason = ("reason".to_owned(), Value::String(reason.to_owned()));
    message.metadata = Some(Metadata::from_iter([reason]));
    message.into()
}

/// The reason that [`failure`] wrote into a task.
pub(crate) fn failure_reason(task: &Task) -> Option<String> {
    task.status.message.as_ref()?.metadata.as_ref()?.get("reason")
}

pub(crate) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

fn returned(outcome: Result<Result<(), AgentError>, Box<dyn Any + Send>>) -> Outcome {
    match outcome {
        Ok(result) => Outcome::Returned(result),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Outcome::Panicked(text.unwrap_or("no message").to_owned())
        }
    }
}

/// Runs a future and catches its panic, which then fails one task and not the server.
async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| {
        // The future is never polled again after a panic, so its broken state cannot be observed.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
