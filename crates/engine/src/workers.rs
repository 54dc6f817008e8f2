//! Workers: processes elsewhere that run the turns of a role. They join, poll for turns, write to them, end
//! them and leave.
//!
//! A role is an agent whose permits are the free places of polling workers. A claim names the worker as its
//! holder, so that a turn outlives this process; a proxy runs under the supervisor in its stead, so that
//! timeouts, pauses, cancels and ends are those of every turn.

mod attach;
pub(crate) mod demands;
mod poll;
pub(crate) mod pool;
pub(crate) mod proxy;
pub(crate) mod role;
mod writes;

use std::sync::Arc;

use herald_protocol::{AgentName, Error, ErrorKind};

use crate::{
    agents::{
        profile::Profile,
        registry::RegistryError,
        runtime::{AgentRuntime, Runner},
    },
    caller::{Caller, Scopes},
    core::Core,
    fault::{refuse, shutting_down},
    heartbeat,
    store::{MemberId, StoreError, WorkerMember},
    turns::{
        dispatcher::Dispatcher,
        recovery::{self, QueuedTasks},
    },
};

pub use poll::Poll;
pub use pool::{EndedNotice, GivenTurn, PollReply, SessionView, StoppedTurn};
pub use proxy::TurnOutcome;
pub use role::RoleSettings;
pub use writes::{TurnRef, WorkerCommand, WorkerWrite};

use pool::WorkerPool;

/// The most living workers of one role.
const MAX_SESSIONS: usize = 10_000;

/// The most turns that a worker runs at once.
const MAX_CONCURRENCY: usize = 1024;

/// The longest instance id, in bytes.
const MAX_INSTANCE_BYTES: usize = 190;

/// The roles and their workers.
#[derive(Debug, Clone, Copy)]
pub struct Workers<'a> {
    pub(crate) core: &'a Arc<Core>,
}

/// A worker that joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewWorker {
    /// The agent whose turns it runs.
    pub role: AgentName,
    /// The instance: `host:id`. Its name is `role:host:id`.
    pub instance: String,
    /// The number of its turns that run at once, at least 1.
    pub concurrency: usize,
    /// The labels that tasks may require.
    pub labels: Vec<String>,
}

/// The session of a worker, as its requests name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRef {
    /// The name of the worker.
    pub name: String,
    /// The session.
    pub session: MemberId,
}

impl SessionRef {
    /// The session of a name, from its id as [`SessionRef::id`] writes it.
    pub fn parse(name: impl Into<String>, session: &str) -> Result<Self, Error> {
        let session = uuid::Uuid::try_parse(session);
        let session = session.map_err(|_| Error::field("session", "must be a UUID"))?;
        Ok(Self { name: name.into(), session: MemberId(session.as_u128()) })
    }

    /// The id of the session, a UUID.
    pub fn id(&self) -> String {
        uuid::Uuid::from_u128(self.session.0).to_string()
    }
}

impl Workers<'_> {
    /// Adds a role at run time. Its endpoints answer from now on. Before the start of the engine,
    /// [`EngineBuilder::role`](crate::EngineBuilder::role) does the same.
    pub fn declare_role(
        &self,
        profile: Profile,
        settings: RoleSettings,
    ) -> Result<(), RegistryError> {
        let runtime = self.core.registry.register(profile, Runner::Workers(settings))?;
        Dispatcher::spawn(self.core, runtime);
        heartbeat::announce(self.core);
        Ok(())
    }

    /// Replaces the profile of a role, for example because its workers have other skills now. Its
    /// workers and turns continue.
    pub fn update_role(&self, profile: Profile) -> Result<(), RegistryError> {
        let name = profile.name.clone();
        let Ok((runtime, _)) = self.role(&name) else { return Err(RegistryError::Unknown(name)) };
        if *runtime.profile != profile {
            let next = self.core.registry.update(profile)?;
            Dispatcher::spawn(self.core, next);
        }
        Ok(())
    }

    /// Removes a role: its workers' sessions end, and its queued tasks are treated as `queued` says.
    pub async fn remove_role(
        &self,
        role: &AgentName,
        queued: QueuedTasks,
    ) -> Result<(), RegistryError> {
        let (_, pool) = self.role(role).map_err(|_| RegistryError::Unknown(role.clone()))?;
        self.core.registry.remove(role)?;
        heartbeat::announce(self.core);
        for session in pool.ids() {
            // The store has logged its error, and the lease of the worker ends without polls.
            let _ = self.core.store.leave(session).await;
            pool.remove(session);
        }
        recovery::treat_queued(self.core, role, queued).await;
        Ok(())
    }

    /// True if the agent is a role.
    pub fn is_role(&self, role: &AgentName) -> bool {
        self.role(role).is_ok()
    }

    /// True if a living worker serves the role.
    pub fn is_served(&self, role: &AgentName) -> bool {
        let has_session = self.role(role).is_ok_and(|(_, pool)| pool.len() > 0);
        has_session || self.core.membership.has_worker(role)
    }

    /// The living sessions of a role, or of every role, by name. After a restart of the server a session
    /// is here from its first request on.
    pub fn sessions(&self, role: Option<&AgentName>) -> Vec<SessionView> {
        let agents = self.core.registry.snapshot();
        let runtimes =
            agents.iter().filter(|runtime| role.is_none_or(|role| runtime.profile.name == *role));
        let pools = runtimes.filter_map(|runtime| runtime.pool());
        let mut sessions: Vec<_> = pools.flat_map(|pool| pool.views()).collect();
        sessions.sort_unstable_by(|one, other| one.worker.name.cmp(&other.worker.name));
        sessions
    }

    /// Adds a worker and returns its session. A former life of the same name, registered by the same
    /// principal, is dead at once, and its turns are due again.
    pub async fn join(&self, caller: &Caller, new: NewWorker) -> Result<SessionRef, Error> {
        let NewWorker { role, instance, concurrency, labels } = new;
        caller.require_agent(&role)?;
        let (_, pool) = self.role(&role)?;
        if self.core.is_draining() {
            return Err(shutting_down());
        }
        check_instance(&instance)?;
        if !(1..=MAX_CONCURRENCY).contains(&concurrency) {
            let text = format!("must be 1 to {MAX_CONCURRENCY}");
            return Err(Error::field("concurrency", text));
        }
        let labels = demands::sorted_labels("labels", labels)?;
        if pool.len() >= MAX_SESSIONS {
            let text = format!("the role {role} has {MAX_SESSIONS} workers, which is the limit");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let name = format!("{role}:{instance}");
        let owner = caller.identity().owner.clone();
        let worker = WorkerMember { name: name.clone(), role, owner, labels, concurrency };
        let session = MemberId(uuid::Uuid::new_v4().as_u128());
        match self.core.store.join_worker(session, &worker).await {
            Ok(former) => {
                pool.add(session, worker, 0);
                for former in former {
                    pool.remove(former);
                }
                Ok(SessionRef { name, session })
            }
            Err(StoreError::Conflict) => {
                let text = format!(
                    "a living worker of another principal has the name {name}; choose another instance id"
                );
                Err(Error::new(ErrorKind::WorkerNameTaken, text))
            }
            Err(error) => Err(refuse(error)),
        }
    }

    /// Ends a session. The turns that it held are due again.
    pub async fn leave(&self, caller: &Caller, at: &SessionRef) -> Result<(), Error> {
        let (_, pool) = self.find(caller, at).await?;
        self.core.store.leave(at.session).await.map_err(refuse)?;
        pool.remove(at.session);
        Ok(())
    }

    /// The runtime and the workers of a role.
    fn role(&self, role: &AgentName) -> Result<(Arc<AgentRuntime>, Arc<WorkerPool>), Error> {
        let runtime = self.core.registry.get(role);
        let found = runtime.and_then(|runtime| {
            let pool = Arc::clone(runtime.pool()?);
            Some((runtime, pool))
        });
        found.ok_or_else(|| {
            let text = format!("there is no role {role}; register it first");
            Error::new(ErrorKind::WorkerUnknown, text)
        })
    }

    /// The role and the pool of a session that the caller may use.
    async fn find(
        &self,
        caller: &Caller,
        at: &SessionRef,
    ) -> Result<(Arc<AgentRuntime>, Arc<WorkerPool>), Error> {
        caller.require(Scopes::WORK, "work as a worker")?;
        let role = at.name.split(':').next().unwrap_or_default();
        let role = AgentName::from(role);
        caller.require_agent(&role)?;
        let (runtime, pool) = self.role(&role)?;
        if pool.worker(at.session).is_none() {
            self.restore(&runtime, &pool, at.session).await?;
        }
        let worker = self.attached(&pool, at.session).await?;
        if worker.owner != caller.identity().owner {
            let text = "permission denied: another principal registered this worker";
            return Err(Error::new(ErrorKind::Forbidden, text));
        }
        if worker.name != at.name {
            return Err(expired());
        }
        Ok((runtime, pool))
    }
}

fn check_instance(instance: &str) -> Result<(), Error> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b":._-".contains(&byte);
    if (1..=MAX_INSTANCE_BYTES).contains(&instance.len()) && instance.bytes().all(is_valid) {
        return Ok(());
    }
    let text =
        format!("must be 1 to {MAX_INSTANCE_BYTES} letters, digits and characters of : . _ -");
    Err(Error::field("instance_id", text))
}

/// The error of a worker whose session is over.
fn expired() -> Error {
    let text = "the session of this worker is over: stop its turns and register again";
    Error::new(ErrorKind::WorkerExpired, text)
}
