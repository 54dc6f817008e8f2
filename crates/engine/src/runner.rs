//! Runs turns: under a claim, within their deadlines, and again after a crash.

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
    agent_runtime::{AgentRuntime, TurnPermit},
    compat_log,
    engine::{Engine, refuse},
    idempotency::TurnId,
    janitor,
    live::{Live, Stopper},
    local_sink::LocalSink,
    log,
    rules::{Command, Event, Received, Record},
    store::{Conversation, Epoch, Key, StoreError},
    turn::{Assignment, Sink, Turn},
    write::{Refusal, Write, Written},
};

/// Why a task failed, for programs: `status.message.metadata.reason`.
pub(crate) const AGENT_FAILED: &str = "AGENT_FAILED";
pub(crate) const AGENT_CRASHED: &str = "AGENT_CRASHED";
pub(crate) const AGENT_UNAVAILABLE: &str = "AGENT_UNAVAILABLE";
pub(crate) const BROKE_PROTOCOL: &str = "INVALID_AGENT_RESPONSE";
pub(crate) const INTERRUPTED: &str = "INTERRUPTED";
pub(crate) const TIMED_OUT: &str = "TIMED_OUT";
pub(crate) const IDLE: &str = "IDLE";
pub(crate) const UNANSWERED: &str = "UNANSWERED";
pub(crate) const AGENT_GONE: &str = "AGENT_GONE";

/// How many tasks of an agent that is gone are ended at a time.
const ORPHANS: usize = 100;

/// How a turn ended.
enum Outcome {
    /// The agent returned.
    Returned(Result<(), AgentError>),
    /// The agent panicked; the text is for the log.
    Panicked(String),
    /// It was told to stop and did not.
    Abandoned,
}

impl Engine {
    /// Takes up what an earlier life left behind, and keeps watch from now on.
    pub async fn start_work(&self) -> Result<(), Error> {
        for runtime in self.inner.agents.values() {
            let (engine, runtime) = (self.clone(), Arc::clone(runtime));
            runtime.wake();
            self.inner.work.spawn(async move { engine.dispatch(&runtime).await });
        }
        self.inner.work.spawn(janitor::run(self.clone()));
        self.fail_orphans().await
    }

    /// Stops taking work, ends every stream so that it can be resumed, and lets running turns go on
    /// for at most `grace`. What is then unfinished is taken up by the next start.
    pub async fn drain(&self, grace: Duration) {
        self.inner.draining.cancel();
        self.inner.lives.ring_all();
        self.inner.bells.ring_all();
        self.inner.work.close();
        if tokio::time::timeout(grace, self.inner.work.wait()).await.is_err() {
            tracing::warn!("some turns did not finish in time; the next start takes them up");
        }
    }

    /// The agents that have turns under way, by name, and how many.
    pub fn at_work(&self) -> Vec<(AgentName, usize)> {
        let agents = self.inner.agents.values();
        let mut running: Vec<_> = agents
            .map(|runtime| (runtime.profile.name.clone(), runtime.turns()))
            .filter(|(_, turns)| *turns > 0)
            .collect();
        running.sort_unstable();
        running
    }

    /// Whether the engine is shutting down.
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
            let (name, holder) = (&runtime.profile.name, self.inner.holder);
            let enable = || self.inner.store.enable_serial(name, holder);
            // The store has logged its error. Without the serial queue no turn can begin.
            if self.patiently(enable, |_| true).await.is_err() {
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
                match self.take_up_next(runtime, permit).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(_) => {
                        // The store is in trouble, which is already logged: come back later.
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

    async fn take_up_next(
        &self,
        runtime: &Arc<AgentRuntime>,
        permit: TurnPermit,
    ) -> Result<bool, Error> {
        let due = self.due(runtime, runtime.quarantined() + 1).await.map_err(refuse)?;
        let mut due = due.into_iter();
        let Some(key) = due.find(|key| !runtime.is_quarantined(key)) else { return Ok(false) };
        match self.take_up(key.clone(), runtime, permit).await {
            Err(error) if error.kind != ErrorKind::Unavailable => {
                let (task, agent) = (&key.task, &runtime.profile.name);
                tracing::error!(%task, %agent, %error, "a task cannot be read and is set aside");
                runtime.quarantine(key);
                Ok(true)
            }
            taken => taken.map(|()| true),
        }
    }

    /// The tasks that an agent could take up now, in the order in which it should.
    async fn due(&self, runtime: &AgentRuntime, limit: usize) -> Result<Vec<Key>, StoreError> {
        let (name, holder) = (&runtime.profile.name, self.inner.holder);
        if runtime.profile.serial {
            return self
                .inner
                .store
                .next_serial(name, &runtime.locked_conversations(), limit)
                .await;
        }
        self.inner.store.due(name, holder, limit).await
    }

    /// Begins the next turn of a waiting task, or deals with the one its dead holder left.
    async fn take_up(
        &self,
        key: Key,
        runtime: &Arc<AgentRuntime>,
        permit: TurnPermit,
    ) -> Result<(), Error> {
        let live = self.inner.lives.get(&key);
        let Some(record) = self.record(&live).await? else { return Ok(()) };
        let again = record.run.holder.is_some();
        let command = match runtime.profile.recovery {
            _ if !again => Command::Begin(self.inner.holder),
            _ if record.has_settled() => Command::Release,
            Recovery::Resume(attempts) | Recovery::Rerun(attempts)
                if record.run.attempt < attempts =>
            {
                Command::Retry(self.inner.holder)
            }
            Recovery::Resume(_) | Recovery::Rerun(_) | Recovery::Fail => {
                let text = "the server stopped while the agent was at work";
                Command::Report(TaskState::Failed, Some(failure(INTERRUPTED, text)), None)
            }
        };
        let (task, agent) = (&live.key.task, &runtime.profile.name);
        if let Command::Report(..) = &command {
            let cut_off = "a turn was cut off too often or may not be repeated: it fails";
            tracing::warn!(%task, %agent, "{cut_off}");
        } else if again {
            tracing::info!(%task, %agent, "takes up a turn that was cut off");
        }
        let runs = matches!(command, Command::Begin(_) | Command::Retry(_));
        let ends = matches!(command, Command::Report(..));
        let permit = match runs {
            true => tokio::select! {
                memory = self.reserve_turn(record.bytes) => permit.with_memory(memory),
                () = self.inner.draining.cancelled() => return Ok(()),
            },
            false => permit,
        };
        let conversation = (runs && runtime.profile.serial).then(|| {
            let context = record.task.context_id.clone();
            runtime.lock_conversation(Conversation { owner: live.key.owner.clone(), context })
        });
        let permit = permit.with_conversation(conversation);
        // A message that came meanwhile may have begun the next turn: what was decided here is then
        // about a turn that is over.
        let fence = Some(record.run.epoch);
        drop(record);
        let write = Write { fence, commands: vec![command], ..Write::default() };
        let (engine, its_runtime, started) = (self.clone(), Arc::clone(runtime), Arc::clone(&live));
        let written = self
            .shielded(live, write, move |written| {
                if runs && written.claimed {
                    engine.start(started, &its_runtime, permit, written.record.clone(), None);
                } else if ends {
                    // Whom it had given work to may be at it still.
                    engine.dismiss(&written.record, None);
                }
            })
            .await;
        match written {
            Ok(written) if runs && !written.claimed => {
                Err(Error::new(ErrorKind::Unavailable, "the task is not to be had right now"))
            }
            Ok(_) => Ok(()),
            // Somebody cancelled it meanwhile, or another life has it: not ours any more.
            Err(Refusal::Error(error)) if error.kind == ErrorKind::UnsupportedOperation => Ok(()),
            Err(Refusal::Fenced | Refusal::Duplicate(_)) => Ok(()),
            Err(Refusal::Error(error)) => Err(error),
        }
    }

    /// Fails the tasks of agents that are no longer configured, so that none is left hanging.
    async fn fail_orphans(&self) -> Result<(), Error> {
        let mut agents = self.inner.store.agents_at_work().await.map_err(refuse)?;
        agents.retain(|agent| !self.inner.agents.contains_key(agent));
        for agent in agents {
            // Those that could not be failed, because what is stored of them cannot be read, are
            // found again with every round.
            let mut left = HashSet::new();
            loop {
                let limit = left.len() + ORPHANS;
                let due = self.inner.store.due(&agent, self.inner.holder, limit).await;
                let mut orphans = due.map_err(refuse)?;
                orphans.retain(|key| !left.contains(key));
                if orphans.is_empty() {
                    break;
                }
                for key in orphans {
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

    /// Ends a task that nobody works on. Returns whether it could.
    pub(crate) async fn fail(&self, key: Key, reason: &str, text: &str) -> bool {
        let live = self.inner.lives.get(&key);
        let report = Command::Report(TaskState::Failed, Some(failure(reason, text)), None);
        let write = Write { commands: vec![report], ..Write::default() };
        let engine = self.clone();
        let told = move |written: &mut Written| engine.dismiss(&written.record, None);
        let failed = self.shielded(live, write, told).await;
        if let Err(refusal) = &failed {
            tracing::debug!(task = %key.task, ?refusal, "the task could not be failed");
        }
        failed.is_ok()
    }

    /// Tells the agent of a task that has ended while nobody was at it.
    pub(crate) fn dismiss(&self, record: &Record, metadata: Option<Metadata>) {
        let Some(runtime) = self.inner.agents.get(&record.agent).cloned() else { return };
        let task = Arc::clone(&record.task);
        self.inner.work.spawn(async move {
            let told = caught(runtime.agent.dismissed(&task, metadata));
            if !matches!(tokio::time::timeout(runtime.profile.grace, told).await, Ok(Ok(()))) {
                let (task, agent) = (&task.id, &runtime.profile.name);
                tracing::warn!(%task, %agent, "the agent could not be told of the end of a task");
            }
        });
    }

    /// Runs a claimed turn, and the turns that come up meanwhile, under one permit.
    pub(crate) fn start(
        &self,
        live: Arc<Live>,
        runtime: &Arc<AgentRuntime>,
        permit: TurnPermit,
        record: Record,
        received: Option<Received>,
    ) {
        let (engine, runtime) = (self.clone(), Arc::clone(runtime));
        let stopper = Stopper::default();
        live.started(stopper.clone());
        // A turn is large, and on its way to a thread it would be moved several times.
        self.inner.work.spawn(Box::pin(async move {
            let mut next = Some((record, received));
            while let Some((record, received)) = next.take() {
                next = engine.turn(&live, &runtime, &permit, &stopper, record, received).await;
            }
            live.finished(&stopper);
            drop(permit);
        }));
    }

    /// Runs one turn to its end. Returns the next one, if a message came in meanwhile.
    async fn turn(
        &self,
        live: &Arc<Live>,
        runtime: &Arc<AgentRuntime>,
        permit: &TurnPermit,
        stopper: &Stopper,
        record: Record,
        received: Option<Received>,
    ) -> Option<(Record, Option<Received>)> {
        live.started(stopper.clone());
        let prepared = async {
            let (earlier, place) = self.recall(&live.key, runtime, &record, &stopper.token).await?;
            let assigned = self.assignment(live, runtime, &record, received, earlier).await?;
            Ok::<_, Error>((assigned, place, self.readable(live).await?))
        };
        let ((mut assignment, spent), _place, now) = match prepared.await {
            Ok(prepared) => prepared,
            // The claim dies with this process, and the next start takes the turn up.
            Err(error) if error.kind == ErrorKind::Unavailable => return None,
            Err(error) => {
                let (task, agent) = (&live.key.task, &record.agent);
                tracing::error!(%task, %agent, %error, "a turn could not be prepared");
                let failed = failure(AGENT_FAILED, "the turn could not be prepared");
                self.settle(
                    live,
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
            Arc::clone(live),
            epoch,
            permit,
            closes_task,
            pause_timeout,
        );
        let sink = Arc::new(sink);
        // A cancel that came before the stopper was in place has already closed the task.
        if now.is_none_or(|record| record.is_closed()) {
            stopper.token.cancel();
        }
        let shared: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
        let parent = assignment.trace.take();
        assignment.trace = self.span_below(parent.as_ref());
        let span = self.turn_span(&live.key, &record, parent.as_ref(), assignment.trace.as_ref());
        let turn =
            Turn::new(assignment, shared, stopper.token.clone(), Arc::clone(&stopper.metadata));
        self.log_turn_begun(&live.key.task, turn.message());
        let last = async {
            let outcome = self.supervise(runtime, &sink, spent, stopper, &turn).await;
            // From here on there is nobody to be stopped.
            live.finished(stopper);
            self.conclude(live, runtime, &sink, outcome).await
        };
        let last = last.instrument(span.clone()).await;
        runtime.metrics.turns.took(sink.begun.elapsed());
        compat_log::turn_finished(&live.key.task);
        if !span.is_disabled()
            && let Ok(Some(record)) = self.record(live).await
        {
            span.record("state", record.state().proto_name());
        }
        drop(span);
        let last = last?;
        if last.run.holder.is_some() || last.run.unread.is_empty() || last.is_closed() {
            return None;
        }
        // Somebody else of the conversation may have been there first.
        if runtime.profile.serial {
            return None;
        }
        let begin = Write { commands: vec![Command::Begin(self.inner.holder)], ..Write::default() };
        match self.shielded(Arc::clone(live), begin, |_| {}).await {
            Ok(written) if written.claimed => Some((written.record, None)),
            // The message is in the log and nobody is at it: the dispatcher finds it there.
            Ok(_) | Err(_) => {
                runtime.wake();
                None
            }
        }
    }

    /// Waits for the agent, but not for ever.
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
            let (agent, task) = (&runtime.profile.name, &sink.live.key.task);
            tracing::warn!(%agent, %task, reason, "a turn took too long: its task fails");
            // The task ends at once; the agent keeps its permit until it has stopped.
            let failed = Command::Report(TaskState::Failed, Some(failure(reason, text)), None);
            self.settle(&sink.live, sink.epoch, failed).await;
            stopper.token.cancel();
            break;
        }
        match tokio::time::timeout(runtime.profile.grace, run).await {
            Ok(outcome) => returned(outcome),
            Err(_) => Outcome::Abandoned,
        }
    }

    /// Writes how the turn ended, unless the agent already did.
    async fn conclude(
        &self,
        live: &Arc<Live>,
        runtime: &AgentRuntime,
        sink: &LocalSink,
        outcome: Outcome,
    ) -> Option<Record> {
        let failed = |reason, text: &str| {
            Command::Report(TaskState::Failed, Some(failure(reason, text)), None)
        };
        let command = match outcome {
            Outcome::Returned(Ok(())) => {
                let record = self.readable(live).await.ok().flatten()?;
                if record.is_closed() || record.run.epoch != sink.epoch {
                    return None;
                }
                // Submitted again: it asked, and the answer is there.
                let is_answered = record.state() == TaskState::Submitted;
                if record.state().is_interrupted() || is_answered {
                    Command::Release
                } else if record.hidden {
                    failed(BROKE_PROTOCOL, "the agent gave no answer")
                } else {
                    Command::Report(TaskState::Completed, None, None)
                }
            }
            // The claim dies with this process, and the next start takes the turn up.
            Outcome::Returned(Err(AgentError::Left)) if self.is_draining() => return None,
            Outcome::Returned(Err(error)) => sink.failed(&error),
            Outcome::Panicked(cause) => {
                let (task, agent) = (&live.key.task, &runtime.profile.name);
                tracing::error!(%task, %agent, cause, "the agent panicked");
                failed(AGENT_CRASHED, "the agent crashed")
            }
            Outcome::Abandoned => sink.failed(&AgentError::Stopped),
        };
        let record = self.settle(live, sink.epoch, command).await?;
        if record.run.holder.is_none() {
            return Some(record);
        }
        // Completed with a message unread: the turn is over, the task is not.
        self.settle(live, sink.epoch, Command::Release).await
    }

    /// The record, as soon as it can be read.
    async fn readable(&self, live: &Arc<Live>) -> Result<Option<Record>, Error> {
        self.patiently(|| self.record(live), is_passing).await
    }

    /// Tries again while the store is in trouble, until it works or the engine shuts down: a full
    /// disk is no reason to lose the work of an agent.
    pub(crate) async fn patiently<T, E, F: Future<Output = Result<T, E>>>(
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

    /// Writes the end of a turn: no task may be left at work that nobody works on.
    async fn settle(&self, live: &Arc<Live>, epoch: Epoch, command: Command) -> Option<Record> {
        let written = self.persist(live, epoch, vec![command]).await;
        written.ok().map(|written| written.record)
    }

    /// Writes what a turn says, as soon as it can be written.
    pub(crate) async fn persist(
        &self,
        live: &Arc<Live>,
        epoch: Epoch,
        commands: Vec<Command>,
    ) -> Result<Written, Refusal> {
        let attempt = || {
            let fence = Some(epoch);
            let write = Write { fence, commands: commands.clone(), ..Write::default() };
            self.shielded(Arc::clone(live), write, |_| {})
        };
        let passes = |refusal: &Refusal| match refusal {
            Refusal::Error(error) => is_passing(error),
            Refusal::Fenced | Refusal::Duplicate(_) => false,
        };
        self.patiently(attempt, passes).await
    }

    /// What the turn is about, and how much of its time earlier attempts took.
    async fn assignment(
        &self,
        live: &Live,
        runtime: &AgentRuntime,
        record: &Record,
        received: Option<Received>,
        earlier: Vec<Arc<Task>>,
    ) -> Result<(Assignment, Duration), Error> {
        let run = &record.run;
        let received = match received {
            Some(received) => received,
            None => self.patiently(|| self.message_at(&live.key, run.turn), is_passing).await?,
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
            id: TurnId::new(self.inner.secret, live.key.clone(), run.turn),
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
        match log::decode(entry).map_err(refuse)? {
            Event::Received(received) => Ok(received),
            Event::Status(..) | Event::Artifact(_) | Event::Reply(_) => {
                Err(refuse(StoreError::Corrupt(format!("event {seq} is no message"))))
            }
        }
    }
}

/// Whether it may work the next time.
pub(crate) fn is_passing(error: &Error) -> bool {
    error.kind == ErrorKind::Unavailable
}

/// What a failed task says, to people and to programs.
pub(crate) fn failure(reason: &str, text: &str) -> Arc<Message> {
    let mut message = Message::agent(uuid::Uuid::now_v7().to_string(), text);
    let reason = ("reason".to_owned(), Value::String(reason.to_owned()));
    message.metadata = Some(Metadata::from_iter([reason]));
    message.into()
}

/// Why a task failed, as [`failure`] wrote it.
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

/// Runs a future so that its panic fails one task and not the server.
async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|context| {
        // The future is never polled again after a panic, so no broken state can be seen.
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}
