//! Changes: what other members write reaches the cached tasks, the dispatchers and the feeds here.
//!
//! Notifications and wakers carry no events; those are read from the store. A lost notification delays
//! an event by one heartbeat and loses nothing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::watch;

use crate::{
    cache::CachedTask,
    core::Core,
    membership::Beat,
    store::{Change, Owner},
};

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

/// Sends heartbeats until the engine has left the members of the store, also while it shuts down: others
/// must not take over the turns that it finishes.
pub(crate) async fn keep_alive(core: Arc<Core>) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(core.settings.heartbeat_every) => {}
            () = core.left.cancelled() => return,
        }
        // The store has logged its error.
        if let Ok(Beat::Rejoined) = core.heartbeat().await {
            core.wake_dispatchers();
        }
        if core.store.is_shared() {
            // A fallback for lost notifications.
            look_at_all(&core).await;
        }
    }
}

/// Follows the changes that other members make, until the engine shuts down.
pub(crate) async fn follow_others(core: Arc<Core>) {
    while !core.left.is_cancelled() {
        // The store has logged its error.
        let Ok(me) = core.member().await else {
            tokio::time::sleep(core.settings.heartbeat_every).await;
            continue;
        };
        let mut changes = core.store.changes(me);
        // After a death this engine is another member.
        while core.membership.id() == Some(me) {
            let change = tokio::select! {
                change = changes.next() => change,
                () = core.left.cancelled() => return,
            };
            match change {
                Change::Task(key) => {
                    if let Some(cached) = core.cache.peek(&key) {
                        refresh(&core, &cached).await;
                    }
                    core.wakers.wake(&key.owner);
                }
                Change::Work(agent) => {
                    if let Some(runtime) = core.registry.get(&agent) {
                        runtime.wake();
                    }
                }
                Change::All => {
                    look_at_all(&core).await;
                    core.wake_dispatchers();
                }
            }
        }
    }
}

async fn look_at_all(core: &Core) {
    for cached in core.cache.all() {
        if !cached.is_closed() {
            refresh(core, &cached).await;
        }
    }
    core.wakers.wake_all();
}

async fn refresh(core: &Core, cached: &Arc<CachedTask>) {
    if let Err(error) = core.refresh(cached).await {
        let task = &cached.key.task;
        tracing::debug!(%task, %error, "a cached task could not be brought up to date");
    }
}
