//! What happens by the clock: tasks that wait too long, and tasks that are kept too long.

use std::time::Duration;

use herald_protocol::{Error, Timestamp};

use crate::{
    engine::{Engine, refuse},
    runner::UNANSWERED,
    store::Retention,
};

/// Tasks handled at once, so that upkeep never holds up the writer for long.
const BATCH: usize = 64;

impl Engine {
    /// Looks for what has expired until the engine shuts down.
    pub(crate) async fn keep_house(&self) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.inner.settings.sweep_every) => {}
                () = self.inner.draining.cancelled() => return,
            }
            // A net under every other way to learn of waiting work.
            for runtime in self.inner.agents.values() {
                runtime.wake();
            }
            if let Err(error) = self.sweep().await {
                tracing::warn!(%error, "upkeep was put off");
            }
        }
    }

    /// Fails tasks whose caller never answered and removes what retention no longer keeps.
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
            for key in waiting {
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
