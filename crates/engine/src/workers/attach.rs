//! Sessions of before a restart: a worker that is still a member gets its session and its turns back.

use std::{sync::Arc, time::Duration};

use herald_protocol::{Error, ErrorKind};

use crate::{
    agents::runtime::{AgentRuntime, TurnPermit},
    core::Core,
    fault::refuse,
    store::{Conversation, Due, MemberId, WorkerMember},
    turns::{claim::turn_size, conversation_lock::ConversationLock, supervisor::Supervisor},
    workers::{Workers, expired, pool::WorkerPool},
};

/// The most turns of one session that are attached.
const MAX_ATTACHED: usize = 4096;

/// The longest time that a request waits until the turns are attached.
const ATTACH_WAIT: Duration = Duration::from_secs(5);

impl Workers<'_> {
    /// Restores a session that this process does not know. Its turns run again under the claims that
    /// the store has, without a new claim.
    pub(super) async fn restore(
        &self,
        runtime: &Arc<AgentRuntime>,
        pool: &Arc<WorkerPool>,
        session: MemberId,
    ) -> Result<(), Error> {
        let _restoring = pool.restoring.lock().await;
        if pool.worker(session).is_none() {
            let store = &self.core.store;
            let found = store.find_worker(session).await.map_err(refuse)?;
            let worker = found.filter(|worker| worker.role == runtime.profile.name);
            let worker = worker.ok_or_else(expired)?;
            let held = store.held(&worker.role, session, MAX_ATTACHED).await.map_err(refuse)?;
            pool.add(session, worker, held.len());
            for due in held {
                let permit = TurnPermit::from(pool.attached_place(session));
                let (core, runtime) = (Arc::clone(self.core), Arc::clone(runtime));
                self.core.work.spawn(attach(core, runtime, permit, due));
            }
        }
        Ok(())
    }

    /// The worker of a session, once the turns of before a restart are attached.
    pub(super) async fn attached(
        &self,
        pool: &WorkerPool,
        session: MemberId,
    ) -> Result<Arc<WorkerMember>, Error> {
        let attached = tokio::time::timeout(ATTACH_WAIT, pool.attached(session)).await;
        match attached {
            Ok(true) => pool.worker(session).ok_or_else(expired),
            Ok(false) => Err(expired()),
            Err(_) => {
                let text = "the turns of this worker are being attached; try again later";
                Err(Error::new(ErrorKind::Unavailable, text))
            }
        }
    }
}

/// Runs the proxy of a turn that a worker holds already. Dropping the permit ends the attachment.
async fn attach(core: Arc<Core>, runtime: Arc<AgentRuntime>, permit: TurnPermit, due: Due) {
    let cached = core.cache.get(&due.key);
    let record = match core.record_with_retries(&cached).await {
        Ok(Some(record)) => record,
        Ok(None) => return,
        Err(error) => {
            let task = &due.key.task;
            tracing::error!(%task, %error, "a turn of a worker cannot be attached after a restart");
            return;
        }
    };
    if record.run.epoch != due.epoch || record.run.holder != due.holder || record.is_closed() {
        return;
    }
    let Some(holder) = due.holder else { return };
    let permit = permit.with_memory(core.turns.reserve(turn_size(record.bytes)).await);
    // Readers of the cached task learn of the messages that wait.
    cached.publish(Vec::new(), &record, None);
    let lock = runtime.profile.serial.then(|| {
        let context = record.task.context_id.clone();
        let conversation = Conversation { owner: due.key.owner.clone(), context };
        ConversationLock::new(&core, &runtime, conversation, holder)
    });
    let (task, agent) = (&due.key.task, &runtime.profile.name);
    tracing::info!(%task, %agent, "attaches a turn that a worker holds since before the start");
    Supervisor::new(&core).start(Arc::clone(&cached), &runtime, (permit, lock), record, None);
}
