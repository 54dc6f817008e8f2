//! Run of one turn on a worker: the agent, its panics, and the end that the server is told.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use herald_api::workers::TurnEnd;
use herald_engine::{
    AgentError, Profile, Recovery, Turn,
    caught::{caught, text_of},
    panic_failure,
    turn::{Assignment, Sink},
};
use tokio::time::timeout;

use super::{
    session::{Assigned, AssignedRun, WorkerSession},
    sink::WorkerSink,
    wire,
};

/// The outcome of a turn that the server learns of from the end of the session.
const LEFT_BEHIND: &str = "left behind";

/// The result of running an agent for one turn.
enum AgentEnd {
    Returned(Result<(), AgentError>),
    /// The text of the panic is for the log.
    Panicked(String),
    /// It did not stop within its grace period.
    Abandoned,
}

/// Runs an assigned turn in a task of its own.
pub(super) fn start(session: &Arc<WorkerSession>, assigned: Assigned) {
    let Some((turn, earlier)) = session.add(&assigned) else { return };
    let (attempt, task) = (assigned.assignment.attempt, &turn.task);
    tracing::info!(%task, turn = turn.id(), epoch = turn.epoch(), attempt, "took a turn");
    let session = Arc::clone(session);
    let tasks = session.tasks.clone();
    tasks.spawn(async move {
        // Two runs of one turn would share a working directory.
        for earlier in earlier {
            earlier.ended.cancelled().await;
        }
        let begun = Instant::now();
        let sink = WorkerSink::new(Arc::clone(&session), Arc::clone(&turn), assigned.head);
        let outcome = run(&session, &turn, Arc::new(sink), assigned.assignment).await;
        let (task, seconds) = (&turn.task, begun.elapsed().as_secs_f64());
        tracing::info!(%task, turn = turn.id(), outcome, seconds, "a turn has ended");
        if outcome == LEFT_BEHIND {
            session.leave_behind(&turn);
        } else {
            session.remove(&turn);
        }
    });
}

/// Runs the agent and tells the server the end. Returns the outcome for the log.
async fn run(
    session: &WorkerSession,
    turn: &AssignedRun,
    sink: Arc<WorkerSink>,
    assignment: Assignment,
) -> &'static str {
    let shared = Arc::clone(&sink) as Arc<dyn Sink>;
    let metadata = Arc::clone(&turn.cancel_metadata);
    let context = Turn::new(assignment, shared, turn.cancelled.clone(), metadata);
    let end = supervise(session, turn, &context).await;
    if turn.over.is_cancelled() {
        return "lost";
    }
    let is_returned = turn.is_returned.load(Ordering::Relaxed);
    let outcome = match end {
        AgentEnd::Returned(Ok(())) => TurnEnd::Done,
        // A turn that may not run twice is left behind: the server fails its task, as after a crash.
        AgentEnd::Returned(Err(_)) | AgentEnd::Panicked(_) | AgentEnd::Abandoned
            if is_returned && session.worker.profile.recovery == Recovery::Fail =>
        {
            return LEFT_BEHIND;
        }
        AgentEnd::Returned(Err(_)) | AgentEnd::Panicked(_) | AgentEnd::Abandoned if is_returned => {
            TurnEnd::Returned
        }
        // Another worker continues the turn.
        AgentEnd::Returned(Err(AgentError::Suspended)) if session.draining.is_cancelled() => {
            TurnEnd::Returned
        }
        AgentEnd::Returned(Err(error)) => {
            let Profile { name, error_detail, .. } = &session.worker.profile;
            if let AgentError::Raised { kind, detail } = &error {
                tracing::warn!(task = %turn.task, agent = %name, kind, detail, "the agent failed");
            }
            wire::failed(sink.explain(error.shown(*error_detail)))
        }
        AgentEnd::Panicked(cause) => {
            let (task, agent) = (&turn.task, &session.worker.profile.name);
            tracing::error!(%task, %agent, cause, "the agent panicked");
            // The task has its reason from this write. If it fails, the end says that the agent failed.
            match sink.write(vec![panic_failure()]).await {
                Ok(()) => TurnEnd::Done,
                Err(_) => wire::failed(AgentError::Failed("the agent crashed".to_owned())),
            }
        }
        AgentEnd::Abandoned => wire::failed(AgentError::Stopped),
    };
    let is_stopped = turn.cancelled.is_cancelled() && !is_returned;
    let name = match &outcome {
        TurnEnd::Done | TurnEnd::Failed { .. } | TurnEnd::Returned if is_stopped => "stopped",
        TurnEnd::Done => "done",
        TurnEnd::Failed { .. } => "failed",
        TurnEnd::Returned => "returned",
    };
    sink.end(outcome).await;
    name
}

/// Runs the agent until it returns or must stop. Its deadlines are the server's.
async fn supervise(session: &WorkerSession, turn: &AssignedRun, context: &Turn) -> AgentEnd {
    let mut running = pin!(caught(session.worker.agent.run(context)));
    let ended = tokio::select! {
        biased;
        ended = &mut running => ended,
        () = turn.cancelled.cancelled() => {
            match timeout(session.worker.profile.grace, running).await {
                Ok(ended) => ended,
                Err(_) => return AgentEnd::Abandoned,
            }
        }
    };
    match ended {
        Ok(result) => AgentEnd::Returned(result),
        Err(panic) => AgentEnd::Panicked(text_of(&panic).to_owned()),
    }
}
