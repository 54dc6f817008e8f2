//! Dispatcher of one agent: claims its due tasks as permits become free.

use std::{collections::HashMap, sync::Arc, time::Duration};

use herald_protocol::{Error, ErrorKind, TenantId};
use tokio::time::sleep;

use crate::{
    agents::runtime::{AgentRuntime, TurnPermit},
    core::Core,
    fault::refuse,
    store::{Due, DueQuery, Owner, StoreError},
    turns::claim::{ClaimOutcome, claim},
    workers::pool::WorkerPool,
};

/// The pause of a dispatcher after an error of the store.
const RETRY: Duration = Duration::from_secs(1);

/// The tenants whose last owner is remembered. Forgetting them begins with the first owner again.
const MAX_TENANTS: usize = 1024;

/// The dispatcher of one agent.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    core: Arc<Core>,
    runtime: Arc<AgentRuntime>,
}

/// The owner of the last claimed task, so that the owners take turns: for the workers of each tenant apart, and for
/// all that take tasks of every tenant.
type LastOwners = HashMap<Option<TenantId>, Owner>;

impl Dispatcher {
    /// Starts a dispatcher. It also claims the turns that an earlier process left unfinished.
    pub(crate) fn spawn(core: &Arc<Core>, runtime: Arc<AgentRuntime>) {
        if !runtime.start_dispatching() {
            return;
        }
        runtime.wake();
        let dispatcher = Self { core: Arc::clone(core), runtime };
        core.work.spawn(async move {
            tokio::select! {
                () = dispatcher.run() => {}
                () = dispatcher.core.draining.cancelled() => {}
                () = dispatcher.runtime.retired() => {}
            }
        });
    }

    /// Claims due tasks for ever. It may be dropped at any time: a claim is committed in a task of its
    /// own.
    async fn run(&self) {
        let name = &self.runtime.profile.name;
        if self.runtime.profile.serial {
            let enable = || self.core.store.enable_serial(name);
            // The store has logged its error. Without the serial queue no turn can begin.
            if self.core.retry_while_unavailable(enable, |_| true).await.is_err() {
                return;
            }
        }
        let mut last = LastOwners::new();
        loop {
            self.runtime.woken().await;
            let claimed = match self.runtime.pool() {
                Some(pool) => self.claim_for_workers(pool, &mut last).await,
                None => self.claim_here(&mut last).await,
            };
            if claimed.is_err() {
                // The store has logged its error: try again later.
                sleep(RETRY).await;
                self.runtime.wake();
            }
        }
    }

    /// Claims tasks for this process until none is due.
    async fn claim_here(&self, last: &mut LastOwners) -> Result<(), Error> {
        loop {
            let permit = self.runtime.acquire().await;
            if !self.claim_next(permit, last).await? {
                return Ok(());
            }
        }
    }

    /// Claims tasks for the workers that poll now, until none is due for any of them or they have no free
    /// place. A poll with a free place wakes the dispatcher again.
    async fn claim_for_workers(
        &self,
        pool: &Arc<WorkerPool>,
        last: &mut LastOwners,
    ) -> Result<(), Error> {
        loop {
            let (wakes, classes) = pool.ready();
            if classes.is_empty() {
                return Ok(());
            }
            for class in classes {
                let Some(place) = pool.take(&class) else { continue };
                if !self.claim_next(place.into(), last).await? {
                    pool.exhaust(&class, wakes);
                }
            }
        }
    }

    /// Claims the next due task, of the owner after the last one. Returns false if there is none.
    async fn claim_next(&self, permit: TurnPermit, last: &mut LastOwners) -> Result<bool, Error> {
        let runtime = &self.runtime;
        // Several nodes that all take the first one would be in each other's way. Where turns have an
        // order, the first one is the only choice.
        let choices = if runtime.profile.serial { 1 } else { self.core.membership.nodes() };
        let except = runtime.quarantined();
        let any = DueQuery::new(&runtime.profile.name, choices);
        let class = permit.worker().map(|place| place.class.clone());
        let labels = class.as_ref().map(|class| &*class.labels);
        let tenant = class.as_ref().and_then(|class| class.tenant.clone());
        let after = last.get(&tenant);
        let query = DueQuery { after, tenant: tenant.as_ref(), except: &except, labels, ..any };
        let mut due = self.due(query).await.map_err(refuse)?;
        let Some(most) = due.len().checked_sub(1) else { return Ok(false) };
        let due = due.swap_remove(if most == 0 { 0 } else { random_below(most + 1) });
        if last.len() >= MAX_TENANTS {
            last.clear();
        }
        last.insert(tenant, due.key.owner.clone());
        let key = due.key.clone();
        match claim(&self.core, due, runtime, permit).await {
            Err(error) if error.kind != ErrorKind::Unavailable => {
                let (task, agent) = (&key.task, &runtime.profile.name);
                tracing::error!(%task, %agent, %error, "a task cannot be read and is skipped until the next start");
                runtime.quarantine(key);
                Ok(true)
            }
            Err(error) => Err(error),
            Ok(ClaimOutcome::Taken | ClaimOutcome::Lost) => Ok(true),
        }
    }

    /// The tasks that can be claimed now, in order.
    async fn due(&self, query: DueQuery<'_>) -> Result<Vec<Due>, StoreError> {
        if self.runtime.profile.serial {
            return self.core.store.next_serial(query).await;
        }
        self.core.store.due(query).await
    }
}

/// A random number from 0 to `count - 1`.
fn random_below(count: usize) -> usize {
    let random = uuid::Uuid::new_v4().as_u128() % count as u128;
    usize::try_from(random).unwrap_or_default()
}
