//! An agent at its post: its profile, its slots, and a bell for work that waits.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::{
    agent::{Agent, Profile},
    budget::Reservation,
    metrics::PostMetrics,
    store::{Conversation, Key},
};

/// One agent and the room it has to work in.
#[derive(Debug)]
pub(crate) struct Post {
    pub(crate) profile: Profile,
    pub(crate) agent: Arc<dyn Agent>,
    slots: Arc<Semaphore>,
    /// Permits of turns that wait for their caller, beside those that work.
    pauses: Arc<Semaphore>,
    waiting: Notify,
    pub(crate) metrics: PostMetrics,
    /// Tasks that cannot be taken up, because what is stored of them cannot be read.
    unreadable: Mutex<HashSet<Key>>,
    /// Conversations in which a turn speaks, if turns do so one after the other.
    busy: Mutex<HashSet<Conversation>>,
}

/// Room for one turn, until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    permit: Arc<Permit>,
    /// The memory of the turn, once it is reserved.
    _memory: Option<Reservation>,
    /// The conversation that the turn has to itself.
    floor: Option<Floor>,
}

/// A turn's permit: to work or, while it waits for its caller, only to wait. Both are bounded, so
/// that the turns under way, and what they hold, are bounded by their sum.
#[derive(Debug)]
pub(crate) struct Permit {
    slots: Arc<Semaphore>,
    pauses: Arc<Semaphore>,
    held: Mutex<OwnedSemaphorePermit>,
}

/// A conversation in which one turn speaks at a time, until dropped. Then the next one may.
#[derive(Debug)]
pub(crate) struct Floor {
    post: Arc<Post>,
    conversation: Conversation,
}

impl Permit {
    /// Gives the slot to another turn while this one waits, if one more may wait.
    pub(crate) fn pause(&self) {
        self.exchange(&self.pauses);
    }

    /// Takes a slot again. If none is free the turn goes on without: its caller has answered and
    /// is there, and others may hold their slots for long.
    pub(crate) fn resume(&self) {
        self.exchange(&self.slots);
    }

    fn exchange(&self, wanted: &Arc<Semaphore>) {
        if let Ok(permit) = Arc::clone(wanted).try_acquire_owned() {
            *self.held.lock().expect("nothing panics while it holds this lock") = permit;
        }
    }
}

impl Slot {
    /// The permit, for the turn itself.
    pub(crate) fn permit(&self) -> Arc<Permit> {
        Arc::clone(&self.permit)
    }

    /// The same with reserved memory.
    pub(crate) fn with(self, memory: Reservation) -> Self {
        Self { _memory: Some(memory), ..self }
    }

    /// The same with a conversation to itself.
    pub(crate) fn with_floor(self, floor: Option<Floor>) -> Self {
        Self { floor: floor.or(self.floor), ..self }
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        self.post.busy_conversations().remove(&self.conversation);
        self.post.wake();
    }
}

impl Post {
    pub(crate) fn new(profile: Profile, agent: Arc<dyn Agent>) -> Self {
        let slots = profile.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let pauses = profile.max_waiting.min(Semaphore::MAX_PERMITS);
        Self {
            profile,
            agent,
            slots: Arc::new(Semaphore::new(slots)),
            pauses: Arc::new(Semaphore::new(pauses)),
            waiting: Notify::new(),
            metrics: PostMetrics::default(),
            unreadable: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    /// Room for a turn, if there is some now.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        Some(self.slot(Arc::clone(&self.slots).try_acquire_owned().ok()?))
    }

    /// Room for a turn, when there is some.
    pub(crate) async fn take(&self) -> Slot {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        self.slot(slot.expect("the slots are never closed"))
    }

    fn slot(&self, held: OwnedSemaphorePermit) -> Slot {
        let (slots, pauses) = (Arc::clone(&self.slots), Arc::clone(&self.pauses));
        let permit = Arc::new(Permit { slots, pauses, held: Mutex::new(held) });
        Slot { permit, _memory: None, floor: None }
    }

    /// How many turns are under way now.
    pub(crate) fn running(&self) -> usize {
        let slots = self.profile.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        let pauses = self.profile.max_waiting.min(Semaphore::MAX_PERMITS);
        let working = slots.saturating_sub(self.slots.available_permits());
        working + pauses.saturating_sub(self.pauses.available_permits())
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

    /// Gives a conversation to one turn. Only the dispatcher does, for one that it found not busy.
    pub(crate) fn give_floor(self: &Arc<Self>, conversation: Conversation) -> Floor {
        self.busy_conversations().insert(conversation.clone());
        Floor { post: Arc::clone(self), conversation }
    }

    /// The conversations in which a turn speaks.
    pub(crate) fn busy(&self) -> Vec<Conversation> {
        self.busy_conversations().iter().cloned().collect()
    }

    fn busy_conversations(&self) -> MutexGuard<'_, HashSet<Conversation>> {
        self.busy.lock().expect("nothing panics while it holds this lock")
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
