//! Membership of this engine in its store: its id, the living members, and the leases of the
//! others.
//!
//! A member is dead if its heartbeat counter did not change for the lease, measured by the
//! observer's own clock while the observer's own heartbeats succeeded. No two clocks are compared.
//! Neither an outage of the store nor a pause of the observer makes a lease expire.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use herald_protocol::AgentName;

use crate::store::{Member, MemberId, MemberKind};

/// The longest gap between two own heartbeats that does not restart the observation of others.
const MAX_GAP: Duration = Duration::from_secs(3);

/// The state of the membership.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    state: Mutex<State>,
    /// Held while the engine joins, so that it joins once.
    pub(crate) joining: tokio::sync::Mutex<()>,
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
    /// The agents that workers serve.
    roles: HashSet<AgentName>,
    /// The heartbeat of each other member, and when it last moved.
    observed: HashMap<MemberId, (u64, Duration)>,
    /// The time of the last own heartbeat that the store answered.
    answered: Option<Duration>,
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

    /// True if a living worker served the role at the last heartbeat.
    pub(crate) fn has_worker(&self, role: &AgentName) -> bool {
        self.lock().roles.contains(role)
    }

    /// Ends the membership in memory.
    pub(crate) fn forget(&self) {
        *self.lock() = State::default();
    }

    /// Sets the id of this engine after it has joined.
    pub(crate) fn joined(&self, me: MemberId) {
        self.lock().me = Some(me);
    }

    /// Takes over the living members. Returns those whose lease has expired, each with the heartbeat that
    /// was seen last.
    pub(crate) fn observe(
        &self,
        me: MemberId,
        members: &[Member],
        now: Duration,
        lease_of: impl Fn(&Member) -> Duration,
    ) -> Vec<(MemberId, u64)> {
        let mut state = self.lock();
        let gap = state.answered.replace(now).map_or(Duration::ZERO, |last| now - last.min(now));
        if gap > MAX_GAP {
            state.observed.clear();
        }
        state.living = members.iter().map(|member| member.id).collect();
        let nodes = members.iter().filter(|member| member.kind == MemberKind::Node);
        state.nodes = nodes.clone().count();
        let workers = members.iter().filter(|member| member.kind == MemberKind::Worker);
        state.roles = workers.flat_map(|member| member.agents.iter().cloned()).collect();
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
            if now.saturating_sub(seen) >= lease_of(member) {
                expired.push((member.id, member.heartbeat));
                state.living.remove(&member.id);
            }
        }
        state.observed = observed;
        expired
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
            membership.observe(MemberId(1), &members, Duration::from_secs(*seconds), |_| lease)
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
