//! Lifecycle of a worker: sessions one after the other, heartbeats beside them, and the drain at the end.

use std::{sync::Arc, time::Duration};

use herald_api::{agents::AgentHeartbeat, routes::calls::HeartbeatAgent};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    Worker, WorkerError,
    backoff::RetryDelays,
    connection::{ANSWER, RequestError},
    poll::{self, SessionEnd},
    session::WorkerSession,
};

/// The time that the ends of turns have to reach the server once they were handed back.
const FAREWELL: Duration = Duration::from_secs(10);
/// The pause between two heartbeats after one without an answer.
const HEARTBEAT_RETRY: Duration = Duration::from_secs(5);

/// A session that ends within this time is one of a series: something replaces it again and again.
const SHORT_LIFE: Duration = Duration::from_secs(60);

/// Registers and works until the worker has drained, again and again if its session expires.
pub(super) async fn run(
    worker: Arc<Worker>,
    draining: CancellationToken,
) -> Result<(), WorkerError> {
    let mut backoff = RetryDelays::new();
    loop {
        let Some(registration) = worker.register(&draining).await? else { return Ok(()) };
        let (server, concurrency) = (worker.connection.url(), worker.settings.concurrency);
        tracing::info!(
            name = registration.name,
            url = registration.url,
            server,
            concurrency,
            "registered"
        );
        let begun = Instant::now();
        let session =
            Arc::new(WorkerSession::new(Arc::clone(&worker), registration, draining.clone()));
        let ended = tokio::select! {
            ended = poll::run(&session) => ended,
            ended = heartbeat(&session) => ended,
            () = drained(&session) => SessionEnd::Drained,
        };
        match ended {
            SessionEnd::Drained => {
                worker.leave(&session.registration).await;
                return Ok(());
            }
            SessionEnd::Expired => {
                tracing::warn!(
                    name = session.registration.name,
                    "the server does not know this session any more; stopping its turns and registering again. If \
                     this repeats, another worker runs under the same name: give each its own --instance"
                );
                stop(&session).await;
                if begun.elapsed() < SHORT_LIFE {
                    backoff.wait(None).await;
                } else {
                    backoff = RetryDelays::new();
                }
            }
            SessionEnd::Refused(error) => {
                stop(&session).await;
                return Err(error);
            }
        }
    }
}

/// Stops all turns of a session that is over, and waits for their agents.
async fn stop(session: &WorkerSession) {
    session.abandon();
    session.tasks.close();
    let limit = session.worker.profile.grace + FAREWELL;
    if timeout(limit, session.tasks.wait()).await.is_err() {
        tracing::warn!("agents of the former session have not stopped in time");
    }
}

/// Keeps the registration in the discovery of agents.
async fn heartbeat(session: &WorkerSession) -> SessionEnd {
    let registration = &session.registration;
    let request = AgentHeartbeat { session: Some(registration.session.clone()) };
    let period = registration.heartbeat;
    let mut pause = period;
    loop {
        sleep(pause).await;
        let connection = &session.worker.connection;
        let name = [&*registration.name];
        pause = match connection.call::<HeartbeatAgent>(&name, &request, ANSWER).await {
            Ok(_) => period,
            Err(RequestError::Failed(_)) => HEARTBEAT_RETRY.min(period),
            Err(RequestError::Refused(refusal)) if refusal.is_expired() => {
                return SessionEnd::Expired;
            }
            Err(RequestError::Refused(refusal)) => return SessionEnd::Refused(refusal.into()),
        };
    }
}

/// Returns when a worker that drains must leave, although turns may be left whose end the server could
/// not be told.
async fn drained(session: &WorkerSession) {
    session.draining.cancelled().await;
    let (turns, limit) = (session.claims().len(), session.worker.settings.drain_timeout);
    tracing::info!(turns, ?limit, "taking no more work; waiting for the running turns");
    sleep(limit).await;
    let turns = session.claims().len();
    tracing::warn!(turns, "handing back the turns that have not ended");
    session.hand_back();
    sleep(session.worker.profile.grace + FAREWELL).await;
}
