//! Changes by other members: they invalidate caches and wake readers and dispatchers.

#[cfg(feature = "test-util")]
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use herald_protocol::AgentName;
use tokio::sync::broadcast;

use super::{Key, MemberId};

/// Changes that a slow subscriber may be behind before it is told to look at everything.
const CAPACITY: usize = 1024;

/// Something that another member changed. A hint only: its receiver reads the store again.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Change {
    /// This task.
    Task(Key),
    /// A task of this agent may be free to claim.
    Work(AgentName),
    /// Anything: look at everything.
    All,
}

/// The changes by members other than its subscriber.
#[derive(Debug)]
pub struct Changes {
    me: MemberId,
    receiver: broadcast::Receiver<(MemberId, Change)>,
    bus: Arc<ChangeBus>,
}

/// The way of changes from the writer of a store to its subscribers.
#[derive(Debug)]
pub(crate) struct ChangeBus {
    sender: broadcast::Sender<(MemberId, Change)>,
    subscribers: Mutex<Vec<MemberId>>,
    #[cfg(feature = "test-util")]
    loses: AtomicBool,
}

impl Changes {
    /// The next change. Pending for as long as nobody else writes.
    ///
    /// Cancel safe: a dropped call loses no change.
    pub async fn next(&mut self) -> Change {
        loop {
            match self.receiver.recv().await {
                Ok((writer, _)) if writer == self.me => {}
                Ok((_, change)) => return change,
                Err(broadcast::error::RecvError::Lagged(_)) => return Change::All,
                // The store is gone, and nobody writes to it.
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
    /// Subscribes to what members other than `me` change from now on.
    pub(crate) fn subscribe(self: &Arc<Self>, me: MemberId) -> Changes {
        let mut subscribers = self.subscribers();
        subscribers.push(me);
        Changes { me, receiver: self.sender.subscribe(), bus: Arc::clone(self) }
    }

    /// True if a member other than the writer has subscribed. Nearly always false on a store of one
    /// node, where nothing is then put together.
    pub(crate) fn has_listener(&self, writer: MemberId) -> bool {
        self.subscribers().iter().any(|member| *member != writer)
    }

    /// Tells the subscribers what a member has changed.
    pub(crate) fn publish(&self, writer: MemberId, change: Change) {
        #[cfg(feature = "test-util")]
        if self.loses.load(Ordering::Relaxed) {
            return;
        }
        // Nobody may be subscribed any more.
        let _ = self.sender.send((writer, change));
    }

    /// Whether changes are lost from now on.
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
