//! Janitor: fails tasks whose caller did not answer in time and removes tasks by the retention rules.

use std::time::Duration;

use herald_protocol::{Error, Timestamp};

use crate::{
    engine::{Engine, refuse},
    runner::UNANSWERED,
    store::Retention,
};

/// Tasks in one batch. A small batch keeps the store's writer free for callers.
const BATCH: usize = 64;

/// Sweeps periodically until the engine shuts down.
pub(crate) async fn run(engine: Engine) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(engine.inner.settings.sweep_every) => {}
            () = engine.inner.draining.cancelled() => return,
        }
        // A fallback for a lost wake-up: every dispatcher reads the store again.
        for runtime in engine.inner.agents.values() {
            runtime.wake();
        }
        if let Err(error) = engine.sweep().await {
            tracing::warn!(%error, "the sweep for expired tasks failed; the next one tries again");
        }
    }
}

impl Engine {
    /// Fails tasks whose caller did not answer in time and removes tasks by the retention rules.
    pub async fn sweep(&self) -> Result<(), Error> {
        self.fail_unanswered().await?;
        let settings = &self.inner.settings;
        let retention = Retention {
            ended_before: settings.keep_for.map(|age| self.ago(age)),
            tasks: settings.keep_tasks,
            bytes: settings.keep_bytes,
        };
        while self.inner.store.sweep(retention.clone(), BATCH).await.map_err(refuse)? == BATCH {
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    async fn fail_unanswered(&self) -> Result<(), Error> {
        for runtime in self.inner.agents.values() {
            let Some(limit) = runtime.profile.paused_timeout else { continue };
            let before = self.ago(limit);
            let name = &runtime.profile.name;
            let waiting = self.inner.store.paused(name, before, BATCH).await.map_err(refuse)?;
            for (key, _) in waiting {
                self.fail(key, UNANSWERED, "nobody answered in time").await;
            }
        }
        Ok(())
    }

    fn ago(&self, age: Duration) -> Timestamp {
        let age = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.now().as_millis().saturating_sub(age))
    }
}
