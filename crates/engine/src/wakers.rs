//! Wakers of feeds, by scope. They carry no events: feeds read those from the store.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard},
};

use herald_protocol::TenantId;
use tokio::sync::watch;

use crate::model::key::{Owner, Scope};

/// Wakers of all feeds.
#[derive(Debug, Default)]
pub(crate) struct FeedWakers(Mutex<WakersByScope>);

#[derive(Debug, Default)]
struct WakersByScope {
    owners: HashMap<Owner, watch::Sender<()>>,
    tenants: HashMap<TenantId, watch::Sender<()>>,
    all: HashMap<(), watch::Sender<()>>,
}

/// The waker of one feed.
#[derive(Debug)]
pub(crate) struct FeedWaker {
    wakers: Arc<FeedWakers>,
    scope: Scope,
    pub(crate) changes: watch::Receiver<()>,
}

impl FeedWakers {
    pub(crate) fn subscribe(self: &Arc<Self>, scope: Scope) -> FeedWaker {
        let mut wakers = self.lock();
        let changes = match &scope {
            Scope::Own(owner) => subscribe(&mut wakers.owners, owner),
            Scope::Tenant(tenant) => subscribe(&mut wakers.tenants, tenant),
            Scope::All => subscribe(&mut wakers.all, &()),
        };
        FeedWaker { wakers: Arc::clone(self), scope, changes }
    }

    /// Wakes the feeds that cover this owner, because one of the owner's tasks changed.
    pub(crate) fn wake(&self, owner: &Owner) {
        let wakers = self.lock();
        let own = wakers.owners.get(owner);
        let wider = [wakers.tenants.get(&owner.tenant), wakers.all.get(&())];
        for changed in own.into_iter().chain(wider.into_iter().flatten()) {
            changed.send_replace(());
        }
    }

    /// Wakes every feed.
    pub(crate) fn wake_all(&self) {
        let WakersByScope { owners, tenants, all } = &*self.lock();
        for changed in owners.values().chain(tenants.values()).chain(all.values()) {
            changed.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, WakersByScope> {
        self.0.lock().expect("nothing panics while it holds the wakers")
    }
}

fn subscribe<K: Clone + Eq + Hash>(
    wakers: &mut HashMap<K, watch::Sender<()>>,
    key: &K,
) -> watch::Receiver<()> {
    wakers.entry(key.clone()).or_insert_with(|| watch::Sender::new(())).subscribe()
}

/// Removes a waker whose last receiver is being dropped and is still counted.
fn unsubscribe<K: Eq + Hash>(wakers: &mut HashMap<K, watch::Sender<()>>, key: &K) {
    if wakers.get(key).is_some_and(|changed| changed.receiver_count() <= 1) {
        wakers.remove(key);
    }
}

impl Drop for FeedWaker {
    fn drop(&mut self) {
        let mut wakers = self.wakers.lock();
        match &self.scope {
            Scope::Own(owner) => unsubscribe(&mut wakers.owners, owner),
            Scope::Tenant(tenant) => unsubscribe(&mut wakers.tenants, tenant),
            Scope::All => unsubscribe(&mut wakers.all, &()),
        }
    }
}
