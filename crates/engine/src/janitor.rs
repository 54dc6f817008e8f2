//! Janitor: fails tasks whose caller did not answer or whose turn did not begin in time, removes tasks and
//! audit records by the retention rules and workers that were not seen, and stores the last uses of API keys.

use std::{collections::HashMap, sync::Arc, time::Duration};

use herald_protocol::{AgentName, Error, Timestamp};

use crate::{
    changes::refresh_directory,
    core::Core,
    fault::refuse,
    heartbeat, roles,
    store::{AuditRetention, Retention},
    turns::{ending::end, failure, recovery},
};

/// Tasks in one batch. A small batch keeps the store's writer free for callers.
const BATCH: usize = 64;

/// The janitor of one engine. That of the leading node also removes tasks and fails those that nobody
/// serves.
#[derive(Debug)]
pub(crate) struct Janitor {
    core: Arc<Core>,
    /// When each agent was first found unserved.
    unserved: HashMap<AgentName, Duration>,
}

impl Janitor {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self { core: Arc::clone(core), unserved: HashMap::new() }
    }

    /// Sweeps periodically until the engine shuts down.
    pub(crate) async fn run(mut self) {
        loop {
            if self.core.membership.is_leader()
                && let Err(error) = recovery::fail_unserved(&self.core, &mut self.unserved).await
            {
                tracing::warn!(%error, "the search for agents that nobody serves failed; the next one tries again");
            }
            tokio::select! {
                () = tokio::time::sleep(self.core.settings.sweep_every) => {}
                () = self.core.draining.cancelled() => return,
            }
            // The store has logged its error, and the next round tries again.
            let _ = self.core.key_uses.flush(&*self.core.store).await;
            let _ = self.core.directory.flush(&*self.core.store).await;
            // A fallback for a lost wake-up: every dispatcher reads the store again.
            self.core.wake_dispatchers();
            let swept = if self.core.membership.is_leader() {
                self.sweep().await
            } else {
                self.remove_unseen().await;
                // The leader may not serve the same agents.
                self.fail_unanswered().await
            };
            if let Err(error) = swept {
                tracing::warn!(%error, "the sweep for expired tasks failed; the next one tries again");
            }
        }
    }

    /// Fails tasks whose caller did not answer in time and removes tasks by the retention rules.
    pub(crate) async fn sweep(&self) -> Result<(), Error> {
        self.remove_unseen().await;
        self.fail_queued().await?;
        self.fail_unanswered().await?;
        let settings = &self.core.settings;
        let retention = Retention {
            ended_before: settings.keep_for.map(|age| self.ago(age)),
            tasks: settings.keep_tasks,
            bytes: settings.keep_bytes,
        };
        while self.core.store.sweep(retention.clone(), BATCH).await.map_err(refuse)? == BATCH {
            tokio::task::yield_now().await;
        }
        let retention = AuditRetention {
            before: settings.keep_audit_for.map(|age| self.ago(age)),
            records: settings.keep_audit_records,
        };
        while self.core.store.sweep_audit(retention.clone(), BATCH).await.map_err(refuse)? == BATCH
        {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Removes workers that were not seen for too long, and roles that have none left.
    async fn remove_unseen(&self) {
        let core = &self.core;
        refresh_directory(core).await;
        let alive_since = core.alive_since();
        // Also removes the stale ones from memory.
        core.directory.len(alive_since);
        while let Ok(removed) = core.store.remove_unseen(alive_since, BATCH).await
            && removed.len() == BATCH
        {
            tokio::task::yield_now().await;
        }
        if roles::reconcile(core) {
            heartbeat::announce(core);
        }
    }

    /// Fails tasks whose turn did not begin within the deadline of their agent.
    async fn fail_queued(&self) -> Result<(), Error> {
        for runtime in self.core.registry.snapshot().iter() {
            let Some(limit) = runtime.profile.queue_timeout else { continue };
            let (name, before) = (&runtime.profile.name, self.ago(limit));
            let queued = self.core.store.queued(name, before, BATCH).await.map_err(refuse)?;
            for (key, since) in queued {
                tracing::warn!(task = %key.task, agent = %name, ?limit, "no turn of this task began in time: the task fails");
                end(&self.core, key, failure::expire_queued(since)).await;
            }
        }
        Ok(())
    }

    async fn fail_unanswered(&self) -> Result<(), Error> {
        for runtime in self.core.registry.snapshot().iter() {
            let Some(limit) = runtime.profile.paused_timeout else { continue };
            let before = self.ago(limit);
            let name = &runtime.profile.name;
            let waiting = self.core.store.paused(name, before, BATCH).await.map_err(refuse)?;
            for (key, since) in waiting {
                end(&self.core, key, failure::expire(since)).await;
            }
        }
        Ok(())
    }

    fn ago(&self, age: Duration) -> Timestamp {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.core.now().as_millis().saturating_sub(age))
    }
}
