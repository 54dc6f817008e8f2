//! Poll loop of a session: asks for turns, and tells the server which ones are at work.

use std::{sync::Arc, time::Duration};

use herald_api::{
    routes::calls::PollWorker,
    workers::{EndedTask, PollRequest, PollResponse},
};
use herald_protocol::Task;
use tokio::time::{sleep, timeout};

use super::{
    WorkerError,
    backoff::RetryDelays,
    connection::RequestError,
    session::{Assigned, WorkerSession},
    sink, turn_run,
};

/// The time that an answer may take beside the wait that the poll asks for.
const ANSWER: Duration = Duration::from_secs(10);
/// The pause before the next poll of a server that shuts down.
const LEAVING: Duration = Duration::from_millis(500);

/// The end of a session.
#[derive(Debug)]
pub(super) enum SessionEnd {
    /// The worker drains, and no turn is left.
    Drained,
    /// The server does not know the session any more.
    Expired,
    /// The server refused the worker for good.
    Refused(WorkerError),
}

/// Polls until the session ends.
pub(super) async fn run(session: &Arc<WorkerSession>) -> SessionEnd {
    let mut backoff = RetryDelays::new();
    let connection = &session.worker.connection;
    loop {
        let draining = session.draining.is_cancelled();
        if draining && session.is_idle() {
            return SessionEnd::Drained;
        }
        let number = session.begin_poll();
        let (free, wait_seconds) = (session.free(), session.registration.poll_seconds);
        let request = PollRequest {
            session: session.registration.session.clone(),
            free: u32::try_from(free).unwrap_or(u32::MAX),
            turns: session.claims(),
            wait_seconds,
            draining,
            takes_ended: true,
        };
        let limit = Duration::from_secs(wait_seconds.into()) + ANSWER;
        let name = [&*session.registration.name];
        let poll = connection.call::<PollWorker>(&name, &request, limit);
        let answer = tokio::select! {
            answer = poll => answer,
            // The server gives a turn again whose assignment is lost with this request.
            () = outdated(session, free, draining) => continue,
            () = session.lost.cancelled() => return SessionEnd::Expired,
        };
        match answer {
            Ok(reply) => {
                connection.answered();
                backoff = RetryDelays::new();
                apply(session, reply, number).await;
            }
            Err(RequestError::Refused(refusal)) if refusal.is_expired() => {
                return SessionEnd::Expired;
            }
            Err(RequestError::Refused(refusal)) => return SessionEnd::Refused(refusal.into()),
            Err(RequestError::Failed(fault)) => {
                connection.lost(&fault.text);
                tokio::select! {
                    () = backoff.wait(fault.retry_after) => {}
                    () = session.lost.cancelled() => return SessionEnd::Expired,
                }
            }
        }
    }
}

/// Returns when the server must know more than a poll in flight says: places that it does not know of, or
/// that the worker drains.
async fn outdated(session: &WorkerSession, free: usize, draining: bool) {
    loop {
        tokio::select! {
            () = session.changed() => {}
            () = session.draining.cancelled(), if !draining => return,
        }
        if free == 0 && session.has_untold_places() || draining && session.is_idle() {
            return;
        }
    }
}

async fn apply(session: &Arc<WorkerSession>, reply: PollResponse, number: u64) {
    session.note_answers(&reply.answered, number);
    for stopped in reply.stop {
        session.stop(stopped);
    }
    for ended in reply.ended {
        tell_ended(session, ended);
    }
    for assigned in reply.assignments {
        match Assigned::read(&assigned) {
            Ok(assigned) => turn_run::start(session, assigned),
            // Otherwise the server would give it again and again.
            Err(error) => {
                tracing::error!(%error, "an assignment cannot be read; is the server of another version?");
                sink::refuse(session, assigned.id, assigned.epoch).await;
            }
        }
    }
    if reply.leaving {
        sleep(LEAVING).await;
    }
}

/// Notifies the agent that a task ended without a turn, beside the polls.
fn tell_ended(session: &Arc<WorkerSession>, ended: EndedTask) {
    let task: Task = match serde_json::from_str(ended.task.get()) {
        Ok(task) => task,
        Err(error) => {
            tracing::warn!(%error, "an ended task cannot be read; is the server of another version?");
            return;
        }
    };
    let worker = Arc::clone(&session.worker);
    session.tasks.spawn(async move {
        let told = worker.agent.task_ended(&task, ended.metadata);
        if timeout(worker.profile.grace, told).await.is_err() {
            tracing::warn!(task = %task.id, "the agent took too long to note the end of a task");
        }
    });
}
