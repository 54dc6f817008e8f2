//! Poll of a worker: its heartbeat, its whole state, and the wait for something to do.

use std::time::Duration;

use herald_protocol::{AgentName, Error};
use tokio::time::{Instant, sleep_until};

use crate::{
    caller::Caller,
    fault::refuse,
    store::{Epoch, StoreError},
    workers::{
        SessionRef, Workers, expired,
        pool::{PollReply, PollState},
    },
};

/// The longest wait of a poll.
const MAX_POLL_WAIT: Duration = Duration::from_secs(5);

/// The most turns that a poll lists, and the longest id of one. Unknown ones are kept to answer the next poll.
const MAX_LISTED: usize = 4096;
const MAX_TURN_ID: usize = 64;

/// A poll of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Poll {
    /// The number of further turns that the worker can run now.
    pub free: usize,
    /// True if the worker stops and takes no further turn, whatever `free` says.
    pub is_draining: bool,
    /// Every turn that the worker has, with its epoch.
    pub turns: Vec<(String, Epoch)>,
    /// The longest wait, at most [`Workers::longest_poll`].
    pub wait: Duration,
    /// True if the worker takes notices of tasks that ended without a turn.
    pub takes_ended: bool,
}

impl Workers<'_> {
    /// The time without a poll after which a worker of this role is dead.
    pub fn lease(&self, role: &AgentName) -> Duration {
        self.core.lease_of_role(role)
    }

    /// The longest wait of a poll for this role: a third of the lease, so that a lost poll does no harm.
    pub fn longest_poll(&self, role: &AgentName) -> Duration {
        MAX_POLL_WAIT.min(self.lease(role) / 3)
    }

    /// Counts a heartbeat of a worker and waits for something to do: a turn, a stop, an answer. A newer
    /// poll of the session ends the wait, and so do the shutdown of the server and the end of the
    /// caller's credential.
    pub async fn poll(
        &self,
        caller: &Caller,
        at: &SessionRef,
        poll: Poll,
    ) -> Result<PollReply, Error> {
        caller.identity().validity.within(self.wait(caller, at, poll)).await
    }

    async fn wait(&self, caller: &Caller, at: &SessionRef, poll: Poll) -> Result<PollReply, Error> {
        if poll.turns.len() > MAX_LISTED {
            return Err(Error::field("turns", format!("must be at most {MAX_LISTED}")));
        }
        if poll.turns.iter().any(|(id, _)| id.len() > MAX_TURN_ID) {
            let text = format!("the id of a turn has at most {MAX_TURN_ID} characters");
            return Err(Error::field("turns", text));
        }
        let leaving = PollReply { leaving: true, ..PollReply::default() };
        if self.core.is_draining() {
            return Ok(leaving);
        }
        let (runtime, pool) = self.find(caller, at).await?;
        match self.core.store.count_heartbeat(at.session).await {
            Ok(()) => {}
            Err(StoreError::NotMember) => {
                pool.remove(at.session);
                return Err(expired());
            }
            Err(error) => return Err(refuse(error)),
        }
        self.core.directory.see(&at.name, self.core.now(), self.core.alive_since());
        let deadline = Instant::now() + poll.wait.min(self.longest_poll(&runtime.profile.name));
        let Poll { turns, takes_ended, .. } = poll;
        let free = (!poll.is_draining).then_some(poll.free);
        let tenant = caller.work_tenant().cloned();
        let state = PollState { free, tenant, turns, takes_ended };
        let waiting = pool.begin_poll(at.session, state);
        let Some(mut waiting) = waiting else { return Err(expired()) };
        let mut is_over = false;
        loop {
            waiting.changes.mark_unchanged();
            let Some((reply, is_new)) = waiting.collect() else {
                // A newer poll of the session has begun, or the session has ended.
                return if waiting.is_alive() { Ok(PollReply::default()) } else { Err(expired()) };
            };
            if is_new || is_over {
                return Ok(reply);
            }
            tokio::select! {
                changed = waiting.changes.changed() => if changed.is_err() { return Err(expired()) },
                () = sleep_until(deadline) => is_over = true,
                () = self.core.draining.cancelled() => return Ok(leaving),
            }
        }
    }
}
