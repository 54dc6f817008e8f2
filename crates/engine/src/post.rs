//! An agent at its post: its profile, its slots, and a bell for work that waits.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    agent::{Agent, Profile},
    metrics::PostMetrics,
    room::Place,
    store::Key,
};

/// One agent and the room it has to work in.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) profile: Profile,
    pub(crate) agent: Arc<dyn Agent>,
    slots: Arc<Semaphore>,
    waiting: Notify,
    pub(crate) metrics: PostMetrics,
    /// Tasks that cannot be taken up, because what is stored of them cannot be read.
    unreadable: Mutex<HashSet<Key>>,
}

/// Room for one turn, until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _slot: OwnedSemaphorePermit,
    /// The place of what the turn holds in memory, if that is not small.
    memory: Option<Place>,
}

impl Slot {
    /// The same with a place in memory.
    pub(crate) fn with(self, memory: Option<Place>) -> Self {
        Self { memory: memory.or(self.memory), ..self }
    }
}

impl Post {
    pub(crate) fn new(profile: Profile, agent: Arc<dyn Agent>) -> Self {
        let slots = profile.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            profile,
            agent,
            slots: Arc::new(Semaphore::new(slots)),
            waiting: Notify::new(),
            metrics: PostMetrics::default(),
            unreadable: Mutex::default(),
        }
    }

    /// Room for a turn, if there is some now.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(Slot { _slot: slot, memory: None })
    }

    /// Room for a turn, when there is some.
    pub(crate) async fn take(&self) -> Slot {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        Slot { _slot: slot.expect("the slots are never closed"), memory: None }
    }

    /// How many turns run now.
    pub(crate) fn running(&self) -> usize {
        let slots = self.profile.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        slots.saturating_sub(self.slots.available_permits())
    }

    /// Leaves a task alone from now on, so that it does not stand in the way of the others.
    pub(crate) fn set_aside(&self, key: Key) {
        self.unreadable().insert(key);
    }

    /// How many tasks were set aside.
    pub(crate) fn aside(&self) -> usize {
        self.unreadable().len()
    }

    /// Whether this one was.
    pub(crate) fn is_aside(&self, key: &Key) -> bool {
        self.unreadable().contains(key)
    }

    fn unreadable(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.unreadable.lock().expect("nothing panics while it holds this lock")
    }

    /// Says that work waits in the store.
    pub(crate) fn wake(&self) {
        self.waiting.notify_one();
    }

    /// Waits until work waits in the store.
    pub(crate) async fn woken(&self) {
        self.waiting.notified().await;
    }
}
