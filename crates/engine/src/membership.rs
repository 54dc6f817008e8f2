//! Membership of this engine in its store: join, heartbeats, and the death of other members.
//!
//! A member is dead if its heartbeat counter did not move for the lease, measured by the observer's own
//! clock while the observer's own heartbeats went through. No two clocks are compared, and an outage of
//! the store, or a pause of the observer, kills nobody.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use herald_protocol::AgentName;
use tokio::time::Instant;

use crate::{
    core::Core,
    store::{Member, MemberId, MemberKind, StoreError},
};

/// The longest gap between two own heartbeats after which the observation of others continues.
const MAX_GAP: Duration = Duration::from_secs(3);

/// The state of the membership.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    state: Mutex<State>,
    /// Held while the engine joins, so that it joins once.
    joining: tokio::sync::Mutex<()>,
    /// True if this node does the maintenance of the store.
    is_leader: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// The id of this engine while it is a member.
    me: Option<MemberId>,
    /// The living members, as of the last heartbeat.
    living: HashSet<MemberId>,
    /// The number of nodes among them.
    nodes: usize,
    /// The heartbeat of each other member, and when it last moved.
    observed: HashMap<MemberId, (u64, Duration)>,
    /// The time of the last own heartbeat that the store answered.
    answered: Option<Duration>,
}

/// The result of a heartbeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    /// This engine is a member.
    Alive,
    /// Other members declared this engine dead. It has joined again under a new id.
    Rejoined,
}

impl Membership {
    /// The id of this engine, once it has joined.
    pub(crate) fn id(&self) -> Option<MemberId> {
        self.lock().me
    }

    /// True if this node does the maintenance of the store: retention, expiry, unserved agents. It is
    /// the living node with the lowest id. Two leaders for a moment do no harm, because each of their
    /// writes is conditional.
    pub(crate) fn is_leader(&self) -> bool {
        self.is_leader.load(Ordering::Relaxed)
    }

    /// True if the member was alive at the last heartbeat.
    pub(crate) fn is_known_alive(&self, member: MemberId) -> bool {
        self.lock().living.contains(&member)
    }

    /// The number of living nodes, at least one.
    pub(crate) fn nodes(&self) -> usize {
        self.lock().nodes.max(1)
    }

    /// Ends the membership in memory.
    fn forget(&self) {
        *self.lock() = State::default();
    }

    /// Takes over the living members. Returns those whose lease has expired, each with the heartbeat that
    /// was seen last.
    fn observe(
        &self,
        me: MemberId,
        members: &[Member],
        now: Duration,
        lease: Duration,
    ) -> Vec<(MemberId, u64)> {
        let mut state = self.lock();
        let gap = state.answered.replace(now).map_or(Duration::ZERO, |last| now - last.min(now));
        if gap > MAX_GAP {
            state.observed.clear();
        }
        state.living = members.iter().map(|member| member.id).collect();
        let nodes = members.iter().filter(|member| member.kind == MemberKind::Node);
        state.nodes = nodes.clone().count();
        let leader = nodes.map(|member| member.id.0).min();
        self.is_leader.store(leader == Some(me.0), Ordering::Relaxed);
        let mut observed = HashMap::new();
        let mut expired = Vec::new();
        for member in members.iter().filter(|member| member.id != me) {
            let seen = match state.observed.get(&member.id) {
                Some((heartbeat, since)) if *heartbeat == member.heartbeat => *since,
                Some(_) | None => now,
            };
            observed.insert(member.id, (member.heartbeat, seen));
            if now.saturating_sub(seen) >= lease {
                expired.push((member.id, member.heartbeat));
            }
        }
        state.observed = observed;
        expired
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
        self.membership.observe(me, &members, self.uptime(), self.settings.lease);
        self.membership.lock().me = Some(me);
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
                    "other members declared this server dead: its turns stop, and it joins again"
                );
                self.membership.forget();
                self.cache.stop_all();
                self.member().await?;
                return Ok(Beat::Rejoined);
            }
            Err(error) => return Err(error),
        };
        if let Some(now) = answer.now {
            self.clock.synchronise(now, sent.elapsed());
        }
        let lease = self.settings.lease;
        for (member, seen) in self.membership.observe(me, &answer.members, self.uptime(), lease) {
            if self.store.mark_dead(member, seen).await? {
                let member = format_args!("{:032x}", member.0);
                tracing::warn!(%member, ?lease, "a member sent no heartbeat for its lease and is declared dead");
                self.wake_dispatchers();
            }
        }
        Ok(Beat::Alive)
    }

    /// True if no living member has this id. Asks the store about an unknown member, which may have
    /// joined since the last heartbeat.
    pub(crate) async fn is_dead(&self, member: MemberId) -> Result<bool, StoreError> {
        if self.membership.is_known_alive(member) {
            return Ok(false);
        }
        if self.store.is_shared() {
            let me = self.member().await?;
            let members = self.store.heartbeat(me).await?.members;
            return Ok(members.iter().all(|known| known.id != member));
        }
        self.member().await?;
        Ok(!self.membership.is_known_alive(member))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn member(id: u128, heartbeat: u64) -> Member {
        let agents = Vec::new();
        Member { id: MemberId(id), kind: MemberKind::Node, name: String::new(), agents, heartbeat }
    }

    /// Observes the same two members at these seconds; the second one's heartbeat is given.
    fn observed(at: &[(u64, u64)]) -> Vec<Vec<(MemberId, u64)>> {
        let membership = Membership::default();
        let lease = Duration::from_secs(15);
        let observe = |(seconds, heartbeat): &(u64, u64)| {
            let members = [member(1, *seconds), member(2, *heartbeat)];
            membership.observe(MemberId(1), &members, Duration::from_secs(*seconds), lease)
        };
        at.iter().map(observe).collect()
    }

    #[test]
    fn a_member_whose_heartbeat_does_not_move_for_its_lease_expires() {
        let seconds: Vec<_> = (0..=20).map(|second| (second, second.min(3))).collect();
        let expired: Vec<_> = observed(&seconds).iter().map(|found| !found.is_empty()).collect();
        assert_eq!(expired.iter().position(|expired| *expired), Some(18), "3 + 15 seconds");
    }

    #[test]
    fn nobody_expires_while_the_observer_is_paused() {
        // The observer sleeps for an hour after the second heartbeat.
        let found = observed(&[(0, 0), (1, 1), (3601, 1), (3602, 1), (3603, 2)]);
        assert!(found.iter().all(Vec::is_empty), "{found:?}");
    }
}
