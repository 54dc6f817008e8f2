//! An agent at its post: its profile, its slots, and a bell for work that waits.

use std::sync::Arc;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::agent::{Agent, Profile};

/// One agent and the room it has to work in.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) profile: Profile,
    pub(crate) agent: Arc<dyn Agent>,
    slots: Arc<Semaphore>,
    waiting: Notify,
}

/// Room for one turn, until dropped.
pub(crate) type Slot = OwnedSemaphorePermit;

impl Post {
    pub(crate) fn new(profile: Profile, agent: Arc<dyn Agent>) -> Self {
        let slots = profile.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self { profile, agent, slots: Arc::new(Semaphore::new(slots)), waiting: Notify::new() }
    }

    /// Room for a turn, if there is some now.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        Arc::clone(&self.slots).try_acquire_owned().ok()
    }

    /// Room for a turn, when there is some.
    pub(crate) async fn take(&self) -> Slot {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        slot.expect("the slots are never closed")
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
