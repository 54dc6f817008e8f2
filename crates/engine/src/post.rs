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
    store::{Conversation, Key},
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
    /// Conversations in which a turn speaks, if turns do so one after the other.
    busy: Mutex<HashSet<Conversation>>,
}

/// Room for one turn, until dropped.
#[derive(Debug)]
pub(crate) struct Slot {
    _slot: OwnedSemaphorePermit,
    /// The place of what the turn holds in memory, if that is not small.
    memory: Option<Place>,
    /// The conversation that the turn has to itself.
    floor: Option<Floor>,
}

/// A conversation in which one turn speaks at a time, until dropped. Then the next one may.
#[derive(Debug)]
pub(crate) struct Floor {
    post: Arc<Post>,
    conversation: Conversation,
}

impl Slot {
    /// The same with a place in memory.
    pub(crate) fn with(self, memory: Option<Place>) -> Self {
        Self { memory: memory.or(self.memory), ..self }
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
        Self {
            profile,
            agent,
            slots: Arc::new(Semaphore::new(slots)),
            waiting: Notify::new(),
            metrics: PostMetrics::default(),
            unreadable: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    /// Room for a turn, if there is some now.
    pub(crate) fn try_take(&self) -> Option<Slot> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        Some(Slot { _slot: slot, memory: None, floor: None })
    }

    /// Room for a turn, when there is some.
    pub(crate) async fn take(&self) -> Slot {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        Slot { _slot: slot.expect("the slots are never closed"), memory: None, floor: None }
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
