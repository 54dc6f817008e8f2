//! Wakers of feeds, by owner. They carry no events: feeds read those from the store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::watch;

use crate::model::key::Owner;

/// Wakers of all feeds.
#[derive(Debug, Default)]
pub(crate) struct OwnerWakers {
    owners: Mutex<HashMap<Owner, watch::Sender<()>>>,
}

/// The waker of one feed.
#[derive(Debug)]
pub(crate) struct OwnerWaker {
    wakers: Arc<OwnerWakers>,
    pub(crate) owner: Owner,
    pub(crate) changes: watch::Receiver<()>,
}

impl OwnerWakers {
    pub(crate) fn subscribe(self: &Arc<Self>, owner: Owner) -> OwnerWaker {
        let changes =
            self.lock().entry(owner.clone()).or_insert_with(|| watch::Sender::new(())).subscribe();
        OwnerWaker { wakers: Arc::clone(self), owner, changes }
    }

    /// Wakes the feeds of this owner, because one of the owner's tasks changed.
    pub(crate) fn wake(&self, owner: &Owner) {
        if let Some(changed) = self.lock().get(owner) {
            changed.send_replace(());
        }
    }

    /// Wakes every feed.
    pub(crate) fn wake_all(&self) {
        for changed in self.lock().values() {
            changed.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, watch::Sender<()>>> {
        self.owners.lock().expect("nothing panics while it holds the wakers")
    }
}

impl Drop for OwnerWaker {
    fn drop(&mut self) {
        let mut owners = self.wakers.lock();
        // The receiver of this waker is dropped after this function and is still counted.
        if owners.get(&self.owner).is_some_and(|changed| changed.receiver_count() <= 1) {
            owners.remove(&self.owner);
        }
    }
}
