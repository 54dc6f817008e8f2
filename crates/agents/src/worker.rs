//! Worker: runs an agent for a server on another machine, over the worker protocol of `/api`.
//!
//! A worker registers as an instance of a role and gets a session. It polls for turns, runs each of them
//! with its agent, and sends their writes to the server, which keeps the tasks. A server that restarts
//! finds its turns at work under the same session; a worker that dies loses its claims, and another
//! worker runs its turns.

mod backoff;
mod connection;
mod lifecycle;
mod poll;
mod registration;
mod session;
mod sink;
mod turn_run;
mod wire;

use std::{fmt, sync::Arc, time::Duration};

use herald_engine::{Agent, Profile};
use tokio_util::sync::CancellationToken;

pub use connection::WorkerConnection;

/// Settings of a worker beside its agent.
#[derive(Debug, Clone)]
pub struct WorkerSettings {
    /// The instance, as `host:id`. With the role before it, it is the name of the registration.
    pub instance_id: String,
    /// Labels that tasks can require.
    pub labels: Vec<String>,
    /// The number of turns that run at once.
    pub concurrency: usize,
    /// The time that running turns have to end once the worker drains. Others are handed back then.
    pub drain_timeout: Duration,
}

/// An agent that works for a server elsewhere. The name of its profile is the role.
#[derive(Debug)]
pub struct Worker {
    profile: Profile,
    agent: Arc<dyn Agent>,
    settings: WorkerSettings,
    connection: Arc<WorkerConnection>,
}

/// The reason why a worker ended without being asked to: the server refused it for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerError {
    /// The HTTP status of the refusal.
    pub status: u16,
    /// The cause of the failure, for people.
    pub message: String,
}

impl Worker {
    /// A worker that has not registered yet.
    pub fn new(
        profile: Profile,
        agent: Arc<dyn Agent>,
        settings: WorkerSettings,
        connection: WorkerConnection,
    ) -> Self {
        Self { profile, agent, settings, connection: Arc::new(connection) }
    }

    /// Registers and works until `draining` fires and the running turns have ended or were handed back.
    /// A lost connection is no end: the worker reconnects for as long as it takes.
    pub async fn run(self, draining: CancellationToken) -> Result<(), WorkerError> {
        lifecycle::run(Arc::new(self), draining).await
    }
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for WorkerError {}
