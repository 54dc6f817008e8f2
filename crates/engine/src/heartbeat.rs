//! Heartbeats: this engine joins the members of its store, shows that it lives, declares others dead
//! whose lease has expired, and leaves.

use std::{sync::Arc, time::Duration};

use herald_protocol::AgentName;
use tokio::time::Instant;

use crate::{
    changes::refresh_all,
    core::Core,
    store::{Member, MemberId, MemberKind, StoreError},
};

/// The result of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// This engine is a member.
    Alive,
    /// Other members declared this engine dead. It has joined again under a new id.
    Rejoined,
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
            refresh_all(&core).await;
        }
    }
}

/// Tells the store in the background which agents are served here.
pub(crate) fn announce(core: &Arc<Core>) {
    let served = Arc::clone(core);
    core.work.spawn(async move {
        let is_unavailable = |error: &_| matches!(error, StoreError::Unavailable(_));
        // A member that died joins again, and tells the store then.
        let _ = served.retry_while_unavailable(|| served.update_served(), is_unavailable).await;
    });
}

impl Core {
    /// The id under which this engine writes. Joins the members of the store first, if need be.
    pub(crate) async fn member(&self) -> Result<MemberId, StoreError> {
        if let Some(me) = self.membership.id() {
            return Ok(me);
        }
        let _joining = self.membership.joining.lock().await;
        if let Some(me) = self.membership.id() {
            return Ok(me);
        }
        let me = MemberId(uuid::Uuid::new_v4().as_u128());
        self.store.join(me, MemberKind::Node, &self.settings.node).await?;
        self.store.serve(me, &self.served()).await?;
        let members = self.store.heartbeat(me).await?.members;
        self.membership.observe(me, &members, self.uptime(), |member| self.lease_of(member));
        self.membership.joined(me);
        Ok(me)
    }

    /// Tells the store which agents this engine serves now.
    pub(crate) async fn update_served(&self) -> Result<(), StoreError> {
        let me = self.member().await?;
        self.store.serve(me, &self.served()).await
    }

    /// Sends a heartbeat, and declares members dead whose lease has expired.
    pub(crate) async fn heartbeat(&self) -> Result<Beat, StoreError> {
        let me = self.member().await?;
        let sent = Instant::now();
        let answer = match self.store.heartbeat(me).await {
            Ok(answer) => answer,
            Err(StoreError::NotMember) => {
                tracing::warn!(
                    "other members got no heartbeat of this server and declared it dead: its turns stop, \
                     and it joins again"
                );
                self.membership.forget();
                self.cache.stop_all_of(me);
                self.member().await?;
                return Ok(Beat::Rejoined);
            }
            Err(error) => return Err(error),
        };
        if let Some(now) = answer.now {
            self.clock.synchronise(now, sent.elapsed());
        }
        let lease_of = |member: &Member| self.lease_of(member);
        let expired = self.membership.observe(me, &answer.members, self.uptime(), lease_of);
        for (member, seen) in expired {
            if self.store.mark_dead(member, seen).await? {
                let known = answer.members.iter().find(|known| known.id == member);
                let name = known.map_or("", |known| &known.name);
                let member = format_args!("{:032x}", member.0);
                tracing::warn!(%member, name, "a member sent no heartbeat for its lease and is declared dead");
                self.wake_dispatchers();
            }
        }
        self.end_dead_sessions().await?;
        Ok(Beat::Alive)
    }

    /// Ends the sessions of workers that are dead, whoever declared them so.
    async fn end_dead_sessions(&self) -> Result<(), StoreError> {
        let agents = self.registry.snapshot();
        for pool in agents.iter().filter_map(|runtime| runtime.pool()) {
            for session in pool.ids() {
                // A worker that joined since the heartbeat is not known to be alive.
                let is_known = self.membership.is_known_alive(session);
                if !is_known && !self.store.is_member(session).await? {
                    pool.remove(session);
                }
            }
        }
        Ok(())
    }

    /// The time without a heartbeat after which a member is dead.
    fn lease_of(&self, member: &Member) -> Duration {
        let role = member.agents.first().filter(|_| member.kind == MemberKind::Worker);
        role.map_or(self.settings.lease, |role| self.lease_of_role(role))
    }

    /// The lease of the workers of a role.
    pub(crate) fn lease_of_role(&self, role: &AgentName) -> Duration {
        let runtime = self.registry.get(role);
        let lease = runtime.and_then(|runtime| runtime.pool()?.settings.lease);
        lease.unwrap_or(self.settings.lease)
    }

    /// True if no living member has this id. Asks the store about an unknown member, which may have
    /// joined since the last heartbeat.
    pub(crate) async fn is_dead(&self, member: MemberId) -> Result<bool, StoreError> {
        if self.membership.is_known_alive(member) {
            return Ok(false);
        }
        Ok(!self.store.is_member(member).await?)
    }

    /// Leaves the members of the store: what this engine holds is due at once.
    pub(crate) async fn leave(&self) {
        let Some(me) = self.membership.id() else { return };
        if let Err(error) = self.store.leave(me).await {
            tracing::debug!(%error, "the members of the store could not be left");
        }
        self.membership.forget();
    }

    /// Wakes the dispatcher of every agent, because the store may have due tasks.
    pub(crate) fn wake_dispatchers(&self) {
        for runtime in self.registry.snapshot().iter() {
            runtime.wake();
        }
    }

    fn served(&self) -> Vec<AgentName> {
        let agents = self.registry.snapshot();
        agents.iter().map(|runtime| runtime.profile.name.clone()).collect()
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.clock.uptime(self.started)
    }
}
