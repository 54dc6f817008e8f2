//! Supervisor of turns: runs the agent of a claimed turn within its deadlines and writes the end.

use std::{pin::pin, sync::Arc, time::Duration};

use herald_protocol::{Error, ErrorKind, Task, TaskState};
use tokio::time::Instant;
use tracing::Instrument;

use crate::{
    agents::{
        error::AgentError,
        profile::{Agent, Recovery},
        runtime::{AgentRuntime, TurnPermit},
    },
    cache::{CachedTask, Stopper},
    commit::Write,
    core::Core,
    fault::is_transient,
    idempotency::{TurnId, conversation_id},
    observer::TaskStep,
    rules::{Command, Received, Record},
    store::{Actor, TurnClaim},
    turns::{
        admission::{self, AdmissionOutcome, claim_command},
        caught::{Panic, caught, text_of},
        conversation_lock::ConversationLock,
        failure::{self, AGENT_FAILED, IDLE, PROTOCOL_VIOLATION, TIMED_OUT},
        history,
        last_pause::last_pause,
        sink::{LocalSink, until},
        state::TurnState,
        turn::{Assignment, Sink, StopReason, Turn},
    },
    workers::proxy::{AttachedTurn, NumberedWrite, WorkerTurn},
};

/// The result of running an agent for one turn.
enum Outcome {
    /// The agent returned.
    Returned(Result<(), AgentError>),
    /// The agent panicked; the text is for the log.
    Panicked(String),
    /// The agent did not stop within its grace period.
    Abandoned,
    /// The worker gave the turn back.
    HandedBack,
}

/// The supervisor of the turns of one engine.
#[derive(Debug, Clone)]
pub(crate) struct Supervisor {
    core: Arc<Core>,
}

impl Supervisor {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core) }
    }

    /// Runs a claimed turn, and the further turns that messages of the same task begin, under one
    /// permit.
    pub(crate) fn start(
        &self,
        cached: Arc<CachedTask>,
        runtime: &Arc<AgentRuntime>,
        (permit, lock): (TurnPermit, Option<ConversationLock>),
        record: Record,
        received: Option<Received>,
    ) {
        let (supervisor, runtime) = (self.clone(), Arc::clone(runtime));
        let stopper = Stopper::default();
        cached.started(stopper.clone(), claim_of(&record));
        // Boxed, because the future of a turn is large and spawning moves it several times.
        self.core.work.spawn(Box::pin(async move {
            let mut next = Some((record, received));
            while let Some((record, received)) = next.take() {
                next =
                    supervisor.turn(&cached, &runtime, &permit, &stopper, record, received).await;
            }
            cached.finished(&stopper);
            drop(permit);
            drop(lock);
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
        let core = &self.core;
        let claim = claim_of(&record);
        let is_attached = permit.worker().is_some_and(|place| place.is_attached);
        cached.started(stopper.clone(), claim);
        let (record, received, is_deferred) = if record.is_in_admission() {
            let held = (&record, claim);
            match admission::decide(core, cached, runtime, stopper, held, received).await {
                AdmissionOutcome::Begun(record, received) => (record, Some(received), false),
                AdmissionOutcome::Deferred(received) => (record, Some(received), true),
                AdmissionOutcome::Declined => return None,
            }
        } else {
            (record, received, false)
        };
        let prepared = async {
            let earlier = history::earlier(core, &cached.key, runtime, &record, &stopper.token);
            let (earlier, memory) = earlier.await?;
            let begun = record.run.attempt > 1 || record.run.returned || is_attached;
            let assigned = self.assignment(cached, runtime, &record, received, earlier, begun);
            let assigned = assigned.await?;
            let pause = if is_attached && record.has_settled() {
                last_pause(core, &cached.key, record.run.turn).await?
            } else {
                None
            };
            let now = self.core.record_with_retries(cached).await?;
            Ok::<_, Error>((assigned, memory, now, pause))
        };
        let ((mut assignment, spent), _memory, now, pause) = match prepared.await {
            Ok(prepared) => prepared,
            // The claim ends with this process, and the next start claims the turn again.
            Err(error) if error.kind == ErrorKind::Unavailable => return None,
            Err(error) => {
                let (task, agent) = (&cached.key.task, &record.agent);
                tracing::error!(%task, %agent, %error, "a turn could not be prepared");
                let failed = failure::fail(AGENT_FAILED, "the turn could not be prepared");
                self.settle(cached, claim, failed).await;
                return None;
            }
        };
        let closes_task = !record.hidden && runtime.agent.answers_directly(&assignment.message);
        let state = TurnState::new(claim, closes_task, runtime.profile.error_detail);
        if let Some(pause) = pause {
            state.restore_pause(pause);
        }
        let sink = LocalSink::new(
            Arc::clone(core),
            Arc::clone(cached),
            state,
            permit.pausable(),
            runtime.profile.paused_timeout,
        );
        let sink = if is_deferred { sink.deciding() } else { sink };
        let sink = Arc::new(sink);
        // A cancel that came before the stopper was registered has already closed the task.
        let written = now.as_ref().filter(|now| !now.is_closed()).map(NumberedWrite::of);
        if written.is_none() {
            stopper.token.cancel();
        }
        let shared: Arc<dyn Sink> = Arc::clone(&sink) as Arc<dyn Sink>;
        let parent = assignment.trace.take();
        assignment.trace = core.span_below(parent.as_ref());
        let span = core.turn_span(&cached.key, &record, parent.as_ref(), assignment.trace.as_ref());
        let proxy = permit.worker().map(|place| {
            let proxy = WorkerTurn::new(
                assignment.clone(),
                claim,
                Arc::<LocalSink>::clone(&sink),
                (Arc::clone(&stopper.metadata), Arc::clone(&stopper.reason)),
                written.unwrap_or(NumberedWrite::of(&record)),
                is_attached.then(|| AttachedTurn { asks: pause.is_some_and(|it| !it.is_interim) }),
            );
            let proxy = Arc::new(proxy);
            place.offer(&proxy);
            proxy
        });
        let turn =
            Turn::new(assignment, shared, stopper.token.clone(), Arc::clone(&stopper.metadata));
        core.observe(&cached.key, TaskStep::TurnBegun(turn.message()));
        let last = async {
            let agent = proxy.as_deref().map_or(&*runtime.agent, |proxy| proxy as &dyn Agent);
            let outcome = tokio::select! {
                outcome = self.supervise((runtime, agent), &sink, spent, stopper, &turn) => outcome,
                never = sink.accept_after(runtime.profile.admission_timeout) => match never {},
            };
            let is_returned = proxy.as_ref().is_some_and(|proxy| proxy.is_returned());
            let outcome = if is_returned { Outcome::HandedBack } else { outcome };
            // The agent has returned: a cancel must not wait for it any more.
            cached.finished(stopper);
            self.conclude(cached, runtime, &sink, outcome).await
        };
        let last = last.instrument(span.clone()).await;
        runtime.metrics.turns.took(sink.state.begun.elapsed());
        core.observe(&cached.key, TaskStep::TurnEnded);
        if !span.is_disabled()
            && let Ok(Some(record)) = core.record(cached).await
        {
            span.record("state", record.state().proto_name());
        }
        drop(span);
        let Some(last) = last else {
            // If the turn declined its message, another one may wait.
            if is_deferred {
                runtime.wake_for(&cached.key.owner.tenant);
            }
            return None;
        };
        if last.run.holder.is_some() || last.run.unread.is_empty() || last.is_closed() {
            return None;
        }
        // Another task of the conversation may have an earlier message: the dispatcher decides.
        if runtime.profile.serial {
            return None;
        }
        // The next turn is a new assignment, to this worker or another.
        if permit.worker().is_some() {
            runtime.wake_for(&cached.key.owner.tenant);
            return None;
        }
        let Ok(me) = core.member().await else {
            runtime.wake_for(&cached.key.owner.tenant);
            return None;
        };
        let begin = claim_command(runtime, last.hidden, me);
        let begin = Write { commands: vec![begin], ..Write::default() };
        match core.commit_detached(Arc::clone(cached), begin, None, |_| {}).await {
            Ok(written) if written.claimed => Some((written.record, None)),
            // The message is in the log, unclaimed: the dispatcher finds it there.
            Ok(_) | Err(_) => {
                runtime.wake_for(&cached.key.owner.tenant);
                None
            }
        }
    }

    /// Runs the agent until it returns, is stopped or exceeds a timeout.
    async fn supervise(
        &self,
        (runtime, agent): (&AgentRuntime, &dyn Agent),
        sink: &LocalSink,
        spent: Duration,
        stopper: &Stopper,
        turn: &Turn,
    ) -> Outcome {
        let mut run = pin!(caught(agent.run(turn)));
        loop {
            let pause = sink.state.pauses();
            let whole = runtime
                .profile
                .timeout
                .map(|limit| sink.state.begun + pause.total + limit.saturating_sub(spent));
            let idle = runtime.profile.idle_timeout.map(|limit| sink.state.silent_since() + limit);
            let next = match pause.since {
                Some(_) => None,
                None => whole.into_iter().chain(idle).min(),
            };
            tokio::select! {
                biased;
                outcome = &mut run => return returned(outcome),
                () = stopper.token.cancelled() => break,
                () = sink.state.paused() => continue,
                () = until(next) => {}
            }
            let now = Instant::now();
            let silent =
                runtime.profile.idle_timeout.map(|limit| sink.state.silent_since() + limit);
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
            self.settle(&sink.cached, sink.state.claim, failure::fail(reason, text)).await;
            stopper.stop(None, StopReason::TimedOut);
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
        let command = match outcome {
            Outcome::Returned(Ok(())) => {
                // A turn without a write has accepted its message.
                sink.accept().await;
                let record = self.core.record_with_retries(cached).await.ok().flatten()?;
                if record.is_closed() || record.run.epoch != sink.state.claim.epoch {
                    return None;
                }
                // Submitted again: the agent asked a question, and the answer has arrived.
                let is_answered = record.state() == TaskState::Submitted;
                if record.state().is_interrupted() && sink.state.is_interim() {
                    // No turn goes on, so that readers must not wait for one.
                    Command::Report(record.state(), record.task.status.message.clone(), None)
                } else if record.state().is_interrupted() || is_answered {
                    Command::Release
                } else if record.hidden {
                    failure::fail(PROTOCOL_VIOLATION, "the agent gave no answer")
                } else {
                    Command::Report(TaskState::Completed, None, None)
                }
            }
            // The claim ends with this process, and the next start claims the turn again.
            Outcome::Returned(Err(AgentError::Suspended)) if self.core.is_draining() => {
                return None;
            }
            Outcome::Returned(Err(error)) => {
                if let AgentError::Raised { kind, detail } = &error {
                    let (task, agent) = (&cached.key.task, &runtime.profile.name);
                    tracing::warn!(%task, %agent, kind, detail, "the agent failed");
                }
                sink.state.failed(&error)
            }
            Outcome::Panicked(cause) => {
                let (task, agent) = (&cached.key.task, &runtime.profile.name);
                tracing::error!(%task, %agent, cause, "the agent panicked");
                failure::of_panic()
            }
            Outcome::Abandoned => sink.state.failed(&AgentError::Stopped),
            Outcome::HandedBack => Command::Return,
        };
        let record = self.settle(cached, sink.state.claim, command).await?;
        if record.run.holder.is_none() {
            return Some(record);
        }
        // Completed with an unread message: the turn ends, the task continues.
        self.settle(cached, sink.state.claim, Command::Release).await
    }

    /// Writes the end of a turn, so that no task stays at work without a turn.
    async fn settle(
        &self,
        cached: &Arc<CachedTask>,
        claim: TurnClaim,
        command: Command,
    ) -> Option<Record> {
        let cause = Actor::Agent.into();
        let written = self.core.persist(cached, claim, vec![command], cause).await;
        written.ok().map(|written| written.record)
    }

    /// The assignment of a turn, and the time that it took so far, if it has begun before.
    async fn assignment(
        &self,
        cached: &CachedTask,
        runtime: &AgentRuntime,
        record: &Record,
        received: Option<Received>,
        earlier: Vec<Arc<Task>>,
        has_begun: bool,
    ) -> Result<(Assignment, Duration), Error> {
        let run = &record.run;
        let received = match received {
            Some(received) => received,
            None => {
                self.core
                    .retry_while_unavailable(
                        || self.core.message_at(&cached.key, run.turn),
                        is_transient,
                    )
                    .await?
            }
        };
        let spent = if has_begun {
            self.core.now().as_millis().saturating_sub(received.at.as_millis())
        } else {
            0
        };
        let spent = Duration::from_millis(u64::try_from(spent).unwrap_or(0));
        let is_repeated = run.attempt > 1 || run.returned;
        let resumed = is_repeated && matches!(runtime.profile.recovery, Recovery::Resume(_));
        let kept = if resumed { usize::MAX } else { run.kept };
        let artifacts = record.task.artifacts.iter().flatten().take(kept);
        let continued = artifacts.map(|artifact| artifact.artifact_id.clone()).collect();
        let assignment = Assignment {
            id: TurnId::new(self.core.secret, cached.key.clone(), run.turn),
            conversation: conversation_id(
                &self.core.secret,
                &cached.key.owner,
                &record.task.context_id,
            ),
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
}

/// The claim that a record names.
fn claim_of(record: &Record) -> TurnClaim {
    let holder = record.run.holder.expect("a turn runs under a claim");
    TurnClaim { holder, epoch: record.run.epoch }
}

fn returned(outcome: Result<Result<(), AgentError>, Panic>) -> Outcome {
    match outcome {
        Ok(result) => Outcome::Returned(result),
        Err(panic) => Outcome::Panicked(text_of(&panic).to_owned()),
    }
}
