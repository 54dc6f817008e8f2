//! Runtime of one agent: its profile, its concurrency permits, and the waker of its dispatcher.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use herald_protocol::locks::{read, write};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::profile::{Agent, Profile},
    budget::Reservation,
    metrics::AgentMetrics,
    store::Key,
};

/// One agent and the limits that it runs under.
#[derive(Debug)]
pub(crate) struct AgentRuntime {
    pub(crate) profile: Arc<Profile>,
    /// The profile for cards and for the checks of messages. That of a role follows its workers.
    described: RwLock<Arc<Profile>>,
    pub(crate) agent: Arc<dyn Agent>,
    /// Permits of turns that work.
    running: Arc<Semaphore>,
    /// Permits of turns that wait for their caller, in addition to those that work.
    paused: Arc<Semaphore>,
    /// Wakes the dispatcher.
    waker: Notify,
    /// True once its dispatcher runs.
    is_dispatched: AtomicBool,
    /// Cancelled once the agent is removed from the registry.
    retired: CancellationToken,
    pub(crate) metrics: AgentMetrics,
    /// Tasks whose stored data cannot be read. The dispatcher skips them.
    quarantined: Mutex<HashSet<Key>>,
}

/// Permission to run one turn, with the resources that the turn holds. Dropping it returns them.
#[derive(Debug)]
pub(crate) struct TurnPermit {
    permit: Arc<PausablePermit>,
    /// The memory of the turn, once it is reserved.
    _memory: Option<Reservation>,
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
    /// The concurrency permit, which the turn pauses and resumes.
    pub(crate) fn pausable(&self) -> Arc<PausablePermit> {
        Arc::clone(&self.permit)
    }

    /// Adds reserved memory.
    pub(crate) fn with_memory(self, memory: Reservation) -> Self {
        Self { _memory: Some(memory), ..self }
    }
}

impl AgentRuntime {
    pub(crate) fn new(profile: Profile, agent: Arc<dyn Agent>) -> Self {
        let running = profile.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let paused = profile.max_waiting.min(Semaphore::MAX_PERMITS);
        let profile = Arc::new(profile);
        Self {
            described: RwLock::new(Arc::clone(&profile)),
            profile,
            agent,
            running: Arc::new(Semaphore::new(running)),
            paused: Arc::new(Semaphore::new(paused)),
            waker: Notify::new(),
            is_dispatched: AtomicBool::new(false),
            retired: CancellationToken::new(),
            metrics: AgentMetrics::default(),
            quarantined: Mutex::default(),
        }
    }

    /// The profile for cards and for the checks of messages.
    pub(crate) fn described(&self) -> Arc<Profile> {
        Arc::clone(&read(&self.described))
    }

    /// Replaces the profile for cards and for the checks of messages.
    pub(crate) fn describe(&self, profile: Profile) {
        *write(&self.described) = Arc::new(profile);
    }

    /// Takes a permit for a turn, if one is free.
    pub(crate) fn try_acquire(&self) -> Option<TurnPermit> {
        Some(self.permit(Arc::clone(&self.running).try_acquire_owned().ok()?))
    }

    /// Takes a permit for a turn, as soon as one is free.
    pub(crate) async fn acquire(&self) -> TurnPermit {
        let held = Arc::clone(&self.running).acquire_owned().await;
        self.permit(held.expect("the semaphore is never closed"))
    }

    fn permit(&self, held: OwnedSemaphorePermit) -> TurnPermit {
        let (running, paused) = (Arc::clone(&self.running), Arc::clone(&self.paused));
        let permit = Arc::new(PausablePermit { running, paused, held: Mutex::new(held) });
        TurnPermit { permit, _memory: None }
    }

    /// The number of turns in memory: those that work and those that wait for their caller.
    pub(crate) fn turns(&self) -> usize {
        let running = self.profile.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let paused = self.profile.max_waiting.min(Semaphore::MAX_PERMITS);
        let working = running.saturating_sub(self.running.available_permits());
        working + paused.saturating_sub(self.paused.available_permits())
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

    /// Wakes the dispatcher, because the store may have a due task.
    pub(crate) fn wake(&self) {
        self.waker.notify_one();
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
