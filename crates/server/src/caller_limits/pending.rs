//! Messages that are not stored yet, counted against the limits of stored tasks.
//!
//! The store knows a task once its message is committed. Messages that arrive at once would all see the
//! usage before any of them, so each one reserves its part until it is stored.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use herald_engine::store::{Owner, Usage};
use herald_protocol::{Error, TenantId, locks::lock};
use tokio::{
    sync::{Mutex as AsyncMutex, Notify},
    time::timeout,
};

use super::stored::Most;

/// The longest wait for messages before this one, longer than a write takes.
const WAIT: Duration = Duration::from_secs(10);

/// The messages of every caller and every tenant with limits that are not stored yet.
#[derive(Debug, Default)]
pub(super) struct PendingMessages(Gates);

type Gates = Arc<Mutex<HashMap<LimitedKey, Arc<Gate>>>>;

/// The holder of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LimitedKey {
    Caller(Owner),
    Tenant(TenantId),
}

#[derive(Debug, Default)]
struct Gate {
    /// Held during a decision: two decisions at once would not see each other.
    deciding: AsyncMutex<()>,
    pending: Mutex<MessageSize>,
    /// Notified when a message is stored or refused.
    released: Notify,
}

/// The part of the limits that messages take.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct MessageSize {
    /// New tasks.
    pub(crate) tasks: u64,
    /// Bytes, at least as many as are stored.
    pub(crate) bytes: u64,
}

/// A gate in use. The last user removes it from the map.
#[derive(Debug)]
struct GateHandle {
    key: LimitedKey,
    gate: Arc<Gate>,
    gates: Gates,
}

/// The part of the limits that one message takes, until it is stored.
#[derive(Debug)]
pub(crate) struct MessageReservation {
    handle: GateHandle,
    size: MessageSize,
}

impl PendingMessages {
    /// Reserves the part of a message, or refuses the message because of what is stored. If only messages
    /// that are not stored yet leave no room, it waits for them. `used` reads the usage of the key.
    pub(super) async fn reserve<F>(
        &self,
        key: LimitedKey,
        most: Most,
        size: MessageSize,
        used: impl Fn() -> F,
    ) -> Result<MessageReservation, Error>
    where
        F: Future<Output = Result<Usage, Error>>,
    {
        let handle = self.handle(key);
        let deciding = handle.gate.deciding.lock().await;
        loop {
            // Before the usage: a message that is stored in between is then counted twice, not never.
            let pending = *lock(&handle.gate.pending);
            let mut used = used().await?;
            most.check(&used, size.tasks > 0)?;
            used.active += pending.tasks;
            used.queued += pending.tasks;
            used.bytes += pending.bytes;
            let Err(full) = most.check(&used, size.tasks > 0) else { break };
            if timeout(WAIT, handle.gate.released.notified()).await.is_err() {
                return Err(full);
            }
        }
        let mut pending = lock(&handle.gate.pending);
        pending.tasks += size.tasks;
        pending.bytes += size.bytes;
        drop((pending, deciding));
        Ok(MessageReservation { handle, size })
    }

    fn handle(&self, key: LimitedKey) -> GateHandle {
        let gate = Arc::clone(lock(&self.0).entry(key.clone()).or_default());
        GateHandle { key, gate, gates: Arc::clone(&self.0) }
    }
}

impl Drop for MessageReservation {
    fn drop(&mut self) {
        let gate = &self.handle.gate;
        let mut pending = lock(&gate.pending);
        pending.tasks -= self.size.tasks;
        pending.bytes -= self.size.bytes;
        drop(pending);
        gate.released.notify_one();
    }
}

impl Drop for GateHandle {
    fn drop(&mut self) {
        let mut gates = lock(&self.gates);
        // The map and this handle. Handles are made under the lock only.
        if Arc::strong_count(&self.gate) == 2 {
            gates.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        caller_limits::stored::StoredLimitsByTenant,
        config::{Limits, UsageLimits},
    };

    fn most(active_tasks: u64) -> Most {
        let caller = UsageLimits { active_tasks: Some(active_tasks), ..UsageLimits::default() };
        let limits = Limits { caller, ..Limits::default() };
        StoredLimitsByTenant::new(&limits).of(&TenantId::default()).unwrap().caller.unwrap()
    }

    #[tokio::test]
    async fn a_message_waits_for_those_before_it_and_the_gate_is_removed() {
        let pending = PendingMessages::default();
        let key = || LimitedKey::Tenant(TenantId::from("acme"));
        let size = MessageSize { tasks: 1, bytes: 0 };
        let active = Mutex::new(0);
        let used = || async { Ok(Usage { active: *lock(&active), ..Usage::default() }) };
        let first = pending.reserve(key(), most(2), size, used).await.unwrap();
        let second = pending.reserve(key(), most(2), size, used).await.unwrap();
        let third = async {
            let third = pending.reserve(key(), most(2), size, used).await.unwrap();
            *lock(&active) = 2;
            drop(third);
        };
        let fourth = pending.reserve(key(), most(2), size, used);
        let others = async {
            // The first is stored, the second is refused for another reason.
            *lock(&active) = 1;
            drop((first, second));
        };
        let ((), fourth, ()) = tokio::join!(third, fourth, others);
        let refused = fourth.map(drop).unwrap_err();
        assert!(refused.message.contains("too many active tasks: at most 2"), "{refused}");
        assert!(lock(&pending.0).is_empty());
    }
}
