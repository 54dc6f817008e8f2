//! Changes by other members: notifications that invalidate caches and wake readers and dispatchers.

#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use herald_protocol::AgentName;
use tokio::sync::broadcast;

use super::{Key, MemberId};

/// The number of changes that a slow subscriber may lag behind. After that it gets [`Change::All`].
const CAPACITY: usize = 1024;

/// A change by another member. It carries no data: the receiver reads the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// This task changed.
    Task(Key),
    /// A task of this agent may be due.
    Work(AgentName),
    /// An API key was created or revoked.
    Keys,
    /// Webhooks are ready.
    Webhooks,
    /// A worker or a remote agent was registered or removed.
    Registrations,
    /// Anything may have changed.
    All,
}

/// A subscription to the changes by other members.
#[derive(Debug)]
pub struct Changes {
    me: MemberId,
    receiver: broadcast::Receiver<(MemberId, Change)>,
    bus: Arc<ChangeBus>,
}

/// The channel from the writer of a store to the subscribers.
#[derive(Debug)]
pub(crate) struct ChangeBus {
    sender: broadcast::Sender<(MemberId, Change)>,
    subscribers: Mutex<Vec<MemberId>>,
    #[cfg(feature = "test-util")]
    loses: AtomicBool,
}

impl Changes {
    /// The next change. Pending until another member writes.
    ///
    /// Cancel safe: a dropped call loses no change.
    pub async fn next(&mut self) -> Change {
        loop {
            match self.receiver.recv().await {
                Ok((writer, _)) if writer == self.me => {}
                Ok((_, change)) => return change,
                Err(broadcast::error::RecvError::Lagged(_)) => return Change::All,
                // The store is closed, so no change can follow.
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        let mut subscribers = self.bus.subscribers();
        if let Some(at) = subscribers.iter().position(|member| *member == self.me) {
            subscribers.swap_remove(at);
        }
    }
}

impl ChangeBus {
    /// Subscribes to the changes that members other than `me` make from now on.
    pub(crate) fn subscribe(self: &Arc<Self>, me: MemberId) -> Changes {
        let mut subscribers = self.subscribers();
        subscribers.push(me);
        Changes { me, receiver: self.sender.subscribe(), bus: Arc::clone(self) }
    }

    /// True if a member other than the writer has subscribed. Nearly always false on a store with
    /// one node, which then skips building the changes.
    pub(crate) fn has_other_subscriber(&self, writer: MemberId) -> bool {
        self.subscribers().iter().any(|member| *member != writer)
    }

    /// Sends a change by `writer` to the subscribers.
    pub(crate) fn publish(&self, writer: MemberId, change: Change) {
        #[cfg(feature = "test-util")]
        if self.loses.load(Ordering::Relaxed) {
            return;
        }
        // The last subscriber may be gone.
        let _ = self.sender.send((writer, change));
    }

    /// Drops all further changes if `loses` is true.
    #[cfg(feature = "test-util")]
    pub(crate) fn lose(&self, loses: bool) {
        self.loses.store(loses, Ordering::Relaxed);
    }

    fn subscribers(&self) -> MutexGuard<'_, Vec<MemberId>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for ChangeBus {
    fn default() -> Self {
        Self {
            sender: broadcast::Sender::new(CAPACITY),
            subscribers: Mutex::default(),
            #[cfg(feature = "test-util")]
            loses: AtomicBool::new(false),
        }
    }
}
