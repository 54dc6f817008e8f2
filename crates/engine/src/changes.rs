//! Changes of other members, forwarded to the cached tasks, the dispatchers and the feeds of this
//! engine.
//!
//! A notification carries no events; those are read from the store. A lost notification delays an
//! event by one heartbeat at most.

use std::sync::Arc;

use crate::{cache::CachedTask, core::Core, store::Change};

/// Follows the changes that other members make, until the engine shuts down.
pub(crate) async fn follow_others(core: Arc<Core>) {
    while !core.left.is_cancelled() {
        // The store has logged its error.
        let Ok(me) = core.member().await else {
            tokio::time::sleep(core.settings.heartbeat_every).await;
            continue;
        };
        let mut changes = core.store.changes(me);
        // An engine that was declared dead has joined again as another member.
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
                Change::Keys => core.key_changes.send_replace(()),
                Change::Webhooks => core.webhooks.ready.notify_one(),
                Change::Registrations => refresh_directory(&core).await,
                Change::All => {
                    refresh_directory(&core).await;
                    core.key_changes.send_replace(());
                    core.webhooks.ready.notify_one();
                    refresh_all(&core).await;
                    core.wake_dispatchers();
                }
            }
        }
    }
}

/// Reads the registrations again, if another member may have changed them.
pub(crate) async fn refresh_directory(core: &Core) {
    if !core.store.is_shared() {
        return;
    }
    if let Err(error) = core.directory.load(&*core.store, core.now()).await {
        tracing::debug!(%error, "the registrations could not be read again");
    }
}

/// Brings every cached task up to date and wakes every feed.
pub(crate) async fn refresh_all(core: &Core) {
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
