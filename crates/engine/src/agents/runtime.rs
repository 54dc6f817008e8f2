//! Runtime of one agent: its profile, its concurrency permits, and the waker of its dispatcher.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use herald_protocol::TenantId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::profile::{Agent, Profile},
    budget::Reservation,
    metrics::AgentMetrics,
    store::Key,
    workers::{
        pool::{WorkerPlace, WorkerPool},
        role::{RoleAgent, RoleSettings},
    },
};

/// One agent and the limits that it runs under.
#[derive(Debug)]
pub(crate) struct AgentRuntime {
    pub(crate) profile: Arc<Profile>,
    pub(crate) agent: Arc<dyn Agent>,
    places: TurnPlaces,
    /// Wakes the dispatcher.
    waker: Arc<Notify>,
    /// True once its dispatcher runs.
    is_dispatched: AtomicBool,
    /// Cancelled once the agent is removed from the registry.
    retired: CancellationToken,
    pub(crate) metrics: Arc<AgentMetrics>,
    /// Tasks whose stored data cannot be read. The dispatcher skips them.
    quarantined: Arc<Mutex<HashSet<Key>>>,
}

/// The places in which the turns of an agent run.
#[derive(Debug, Clone)]
enum TurnPlaces {
    /// This process.
    Here {
        /// Permits of turns that work.
        running: Arc<Semaphore>,
        /// Permits of turns that wait for their caller, in addition to those that work.
        paused: Arc<Semaphore>,
    },
    /// Workers elsewhere.
    Workers(Arc<WorkerPool>),
}

/// The runner of an agent's turns.
#[derive(Debug)]
pub(crate) enum Runner {
    /// An agent in this process.
    Agent(Arc<dyn Agent>),
    /// Workers elsewhere.
    Workers(RoleSettings),
}

/// Permission to run one turn, with the resources that the turn holds. Dropping it returns them.
#[derive(Debug)]
pub(crate) struct TurnPermit {
    place: TurnPlace,
    /// The memory of the turn, once it is reserved.
    _memory: Option<Reservation>,
}

/// The place of one turn.
#[derive(Debug)]
enum TurnPlace {
    Here(Arc<PausablePermit>),
    Worker(WorkerPlace),
}

/// A concurrency permit that a turn exchanges for a cheaper one while it waits for its caller. Both
/// kinds are limited, so that the number of turns in memory is limited by their sum.
#[derive(Debug)]
pub(crate) struct PausablePermit {
    running: Arc<Semaphore>,
    paused: Arc<Semaphore>,
    held: Mutex<OwnedSemaphorePermit>,
}

impl PausablePermit {
    /// Returns the running permit while the turn waits for its caller. Without a free paused permit
    /// the turn keeps the running one.
    pub(crate) fn pause(&self) {
        self.exchange(&self.paused);
    }

    /// Takes a running permit again. Without a free one the turn continues on its paused permit: its
    /// caller has just answered and waits, and the other turns may run for long.
    pub(crate) fn resume(&self) {
        self.exchange(&self.running);
    }

    fn exchange(&self, wanted: &Arc<Semaphore>) {
        if let Ok(permit) = Arc::clone(wanted).try_acquire_owned() {
            *self.held.lock().expect("nothing panics while it holds this lock") = permit;
        }
    }
}

impl TurnPermit {
    /// The concurrency permit, which the turn pauses and resumes; `None` for a turn of a worker.
    pub(crate) fn pausable(&self) -> Option<Arc<PausablePermit>> {
        match &self.place {
            TurnPlace::Here(permit) => Some(Arc::clone(permit)),
            TurnPlace::Worker(_) => None,
        }
    }

    /// The place of the worker that runs the turn; `None` if it runs here.
    pub(crate) fn worker(&self) -> Option<&WorkerPlace> {
        match &self.place {
            TurnPlace::Here(_) => None,
            TurnPlace::Worker(place) => Some(place),
        }
    }

    /// Adds reserved memory.
    pub(crate) fn with_memory(self, memory: Reservation) -> Self {
        Self { _memory: Some(memory), ..self }
    }
}

impl From<WorkerPlace> for TurnPermit {
    fn from(place: WorkerPlace) -> Self {
        Self { place: TurnPlace::Worker(place), _memory: None }
    }
}

impl AgentRuntime {
    pub(crate) fn new(profile: Profile, runner: Runner) -> Self {
        let (agent, places, waker): (Arc<dyn Agent>, _, _) = match runner {
            Runner::Agent(agent) => {
                let running = Arc::new(Semaphore::new(running_permits(&profile)));
                let paused = Arc::new(Semaphore::new(paused_permits(&profile)));
                (agent, TurnPlaces::Here { running, paused }, Arc::default())
            }
            Runner::Workers(settings) => {
                let pool = Arc::new(WorkerPool::new(settings));
                let waker = Arc::clone(pool.dispatcher());
                (Arc::new(RoleAgent), TurnPlaces::Workers(pool), waker)
            }
        };
        Self {
            profile: Arc::new(profile),
            agent,
            places,
            waker,
            is_dispatched: AtomicBool::new(false),
            retired: CancellationToken::new(),
            metrics: Arc::default(),
            quarantined: Arc::default(),
        }
    }

    /// The same agent with another profile. Its limits in this process stay as they are.
    pub(crate) fn with_profile(&self, profile: Profile) -> Self {
        Self {
            profile: Arc::new(profile),
            agent: Arc::clone(&self.agent),
            places: self.places.clone(),
            waker: Arc::clone(&self.waker),
            is_dispatched: AtomicBool::new(false),
            retired: CancellationToken::new(),
            metrics: Arc::clone(&self.metrics),
            quarantined: Arc::clone(&self.quarantined),
        }
    }

    /// The workers of a role; `None` for an agent in this process.
    pub(crate) fn pool(&self) -> Option<&Arc<WorkerPool>> {
        match &self.places {
            TurnPlaces::Here { .. } => None,
            TurnPlaces::Workers(pool) => Some(pool),
        }
    }

    /// Takes a permit for a turn of a task of this tenant, if one is free: of a worker with these labels, or in this
    /// process.
    pub(crate) fn try_acquire(&self, tenant: &TenantId, labels: &[String]) -> Option<TurnPermit> {
        match &self.places {
            TurnPlaces::Here { running, paused } => {
                Some(permit(running, paused, Arc::clone(running).try_acquire_owned().ok()?))
            }
            TurnPlaces::Workers(pool) => pool.try_take(tenant, labels).map(TurnPermit::from),
        }
    }

    /// Takes a permit for a turn in this process, as soon as one is free. Pending for ever for a role.
    pub(crate) async fn acquire(&self) -> TurnPermit {
        match &self.places {
            TurnPlaces::Here { running, paused } => {
                let held = Arc::clone(running).acquire_owned().await;
                permit(running, paused, held.expect("the semaphore is never closed"))
            }
            TurnPlaces::Workers(_) => std::future::pending().await,
        }
    }

    /// The number of turns in memory: those that work and those that wait for their caller.
    pub(crate) fn turns(&self) -> usize {
        match &self.places {
            TurnPlaces::Here { running, paused } => {
                let all = running_permits(&self.profile) + paused_permits(&self.profile);
                all.saturating_sub(running.available_permits() + paused.available_permits())
            }
            TurnPlaces::Workers(pool) => pool.turns(),
        }
    }

    /// Makes the dispatcher skip a task until the next start, so that one unreadable task does not
    /// block the tasks behind it.
    pub(crate) fn quarantine(&self, key: Key) {
        self.quarantined_tasks().insert(key);
    }

    /// The quarantined tasks, which are few.
    pub(crate) fn quarantined(&self) -> HashSet<Key> {
        self.quarantined_tasks().clone()
    }

    fn quarantined_tasks(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.quarantined.lock().expect("nothing panics while it holds this lock")
    }

    /// Wakes the dispatcher, because the store may have a due task of any tenant.
    pub(crate) fn wake(&self) {
        self.wake_tenant(None);
    }

    /// Wakes the dispatcher, because the store may have a due task of this tenant.
    pub(crate) fn wake_for(&self, tenant: &TenantId) {
        self.wake_tenant(Some(tenant));
    }

    fn wake_tenant(&self, tenant: Option<&TenantId>) {
        match &self.places {
            TurnPlaces::Here { .. } => self.waker.notify_one(),
            TurnPlaces::Workers(pool) => pool.wake(tenant),
        }
    }

    /// True for the first caller, who starts the dispatcher.
    pub(crate) fn start_dispatching(&self) -> bool {
        !self.is_dispatched.swap(true, Ordering::Relaxed)
    }

    /// Ends the dispatcher, because the agent was removed.
    pub(crate) fn retire(&self) {
        self.retired.cancel();
    }

    /// Waits until the agent is removed.
    pub(crate) async fn retired(&self) {
        self.retired.cancelled().await;
    }

    /// Waits for [`AgentRuntime::wake`].
    pub(crate) async fn woken(&self) {
        self.waker.notified().await;
    }
}

fn permit(
    running: &Arc<Semaphore>,
    paused: &Arc<Semaphore>,
    held: OwnedSemaphorePermit,
) -> TurnPermit {
    let (running, paused) = (Arc::clone(running), Arc::clone(paused));
    let permit = Arc::new(PausablePermit { running, paused, held: Mutex::new(held) });
    TurnPermit { place: TurnPlace::Here(permit), _memory: None }
}

fn running_permits(profile: &Profile) -> usize {
    profile.concurrency.clamp(1, Semaphore::MAX_PERMITS)
}

fn paused_permits(profile: &Profile) -> usize {
    profile.max_waiting.min(Semaphore::MAX_PERMITS)
}
