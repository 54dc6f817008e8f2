//! Directory: the workers and remote agents that are registered, in memory, by name and by role.
//!
//! The store has a copy, which is read at the start. A sign of life changes the memory only; the janitor
//! stores them all together. A worker that was not seen for the age limit is treated as absent from then
//! on: the next reader removes it from all indexes, and so does the janitor.

pub(crate) mod declaration;
mod index;
pub(crate) mod name;
mod role_index;

use std::{
    collections::{HashMap, HashSet},
    mem,
    sync::{Arc, Mutex, RwLock, RwLockReadGuard},
};

use herald_protocol::{
    AgentName, Timestamp,
    locks::{lock, read, write},
};

use crate::{
    agents::profile::Profile,
    metrics::Counter,
    store::{Declaration, Owner, Registration, RegistrationName, Store, StoreError},
};

pub(crate) use index::{DirectoryUse, RoleSummary};

use index::DirectoryIndex;

/// Registrations that one read of the store returns.
const PAGE: usize = 500;

/// The registrations of this store, and the roles that workers serve here.
#[derive(Debug, Default)]
pub(crate) struct Directory {
    index: RwLock<DirectoryIndex>,
    /// Signs of life since they were last stored.
    seen: Mutex<HashMap<RegistrationName, Timestamp>>,
    /// The roles of this process.
    roles: RwLock<HashMap<AgentName, Arc<RoleBase>>>,
    /// The remote agents that this process serves.
    remotes: RwLock<HashSet<AgentName>>,
    /// Held during a change, so that its checks and its write are one step.
    pub(crate) changing: tokio::sync::Mutex<()>,
    /// Cards of remote agents that were found changed.
    pub(crate) changed_cards: Counter,
}

/// A registration that is listed, with its last sign of life.
#[derive(Debug, Clone)]
pub struct Listed {
    /// The registration. Its own `last_seen` is that of its beginning.
    pub registration: Arc<Registration>,
    /// The last sign of life.
    pub last_seen: Timestamp,
}

/// A role: an agent whose turns run on workers.
#[derive(Debug)]
pub(crate) struct RoleBase {
    /// The profile without its workers.
    pub(crate) base: Profile,
    /// True if the configuration declares it, so that it stays without workers.
    pub(crate) is_declared: bool,
}

impl Directory {
    /// Adds a registration, in place of one with the same name.
    pub(crate) fn add(&self, registration: Registration) {
        let last_seen = registration.last_seen;
        write(&self.index).add(Listed { registration: Arc::new(registration), last_seen });
    }

    /// Removes a registration.
    pub(crate) fn take(&self, name: &str) -> Option<Arc<Registration>> {
        lock(&self.seen).remove(name);
        write(&self.index).take(name)
    }

    /// The registration of this name, if it is alive.
    pub(crate) fn find(&self, name: &str, alive_since: Timestamp) -> Option<Listed> {
        self.alive(alive_since).get(name).cloned()
    }

    /// The living registrations of a role, the earliest first.
    pub(crate) fn of_role(&self, role: &AgentName, alive_since: Timestamp) -> Vec<Listed> {
        self.alive(alive_since).of_role(role).cloned().collect()
    }

    /// All living registrations, by name.
    pub(crate) fn all(&self, alive_since: Timestamp) -> Vec<Listed> {
        self.alive(alive_since).all().cloned().collect()
    }

    /// The parts of a role's profile that its living workers declare.
    pub(crate) fn summary(&self, role: &AgentName, alive_since: Timestamp) -> RoleSummary {
        self.alive(alive_since).summary(role)
    }

    /// The number of skills, or of media types of one direction if that is higher, that a role has with a
    /// further worker.
    pub(crate) fn words_with(&self, role: &AgentName, further: &Declaration) -> usize {
        read(&self.index).role(role).map_or(0, |role| role.words_with(further))
    }

    /// The use of all living registrations, without the one of this name.
    pub(crate) fn total_without(&self, name: &str, alive_since: Timestamp) -> DirectoryUse {
        self.alive(alive_since).total_without(name)
    }

    /// The same of the owners that count.
    pub(crate) fn use_without(
        &self,
        name: &str,
        alive_since: Timestamp,
        counts: impl Fn(&Owner) -> bool,
    ) -> DirectoryUse {
        self.alive(alive_since).use_without(name, counts)
    }

    /// Notes a sign of life. Returns false if there is no living registration of this name.
    pub(crate) fn see(&self, name: &str, now: Timestamp, alive_since: Timestamp) -> bool {
        drop(self.alive(alive_since));
        let Some((name, last_seen)) = write(&self.index).see(name, now) else { return false };
        lock(&self.seen).insert(name, last_seen);
        true
    }

    /// Notes that a remote agent has another card now than the pinned one, or has that again.
    pub(crate) fn change_card(&self, name: &str, changed_to: Option<String>) {
        write(&self.index).replace(name, |registration| {
            if let Some(card) = &mut registration.card {
                card.changed_to = changed_to;
            }
        });
    }

    /// Stores the signs of life. After an error they are kept for the next attempt.
    pub(crate) async fn flush(&self, store: &dyn Store) -> Result<(), StoreError> {
        let seen = mem::take(&mut *lock(&self.seen));
        if seen.is_empty() {
            return Ok(());
        }
        let stored = store.record_seen(seen.clone().into_iter().collect()).await;
        if stored.is_err() {
            let mut newer = lock(&self.seen);
            for (name, at) in seen {
                newer.entry(name).or_insert(at);
            }
        }
        stored
    }

    /// Reads all registrations of the store. A sign of life in memory that is newer than the stored one stays.
    /// A time in the future, from a clock that was set back, counts as now.
    pub(crate) async fn load(&self, store: &dyn Store, now: Timestamp) -> Result<(), StoreError> {
        let (mut next, mut after) = (DirectoryIndex::default(), None::<RegistrationName>);
        loop {
            let page = store.registrations(after.as_deref(), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(RegistrationName::clone(&last.name));
            for registration in page {
                let last_seen = registration.last_seen.min(now);
                next.add(Listed { registration: Arc::new(registration), last_seen });
            }
        }
        let mut index = write(&self.index);
        for known in index.all() {
            next.see(&known.registration.name, known.last_seen);
        }
        *index = next;
        Ok(())
    }

    /// Declares a role of this process.
    pub(crate) fn add_role(&self, name: AgentName, role: RoleBase) {
        write(&self.roles).insert(name, Arc::new(role));
    }

    /// Removes a role of this process.
    pub(crate) fn take_role(&self, name: &AgentName) {
        write(&self.roles).remove(name);
    }

    /// A role of this process.
    pub(crate) fn role(&self, name: &AgentName) -> Option<Arc<RoleBase>> {
        read(&self.roles).get(name).cloned()
    }

    /// The roles of this process.
    pub(crate) fn roles(&self) -> Vec<(AgentName, Arc<RoleBase>)> {
        read(&self.roles).iter().map(|(name, role)| (name.clone(), Arc::clone(role))).collect()
    }

    /// The roles of living workers.
    pub(crate) fn served_roles(&self, alive_since: Timestamp) -> HashSet<AgentName> {
        self.alive(alive_since).served_roles().cloned().collect()
    }

    /// True if a living worker serves the role.
    pub(crate) fn is_served(&self, role: &AgentName, alive_since: Timestamp) -> bool {
        self.alive(alive_since).workers(role) > 0
    }

    /// Notes that this process serves a remote agent.
    pub(crate) fn add_remote(&self, name: AgentName) {
        write(&self.remotes).insert(name);
    }

    /// True if this process serves a remote agent of this name.
    pub(crate) fn is_remote(&self, name: &AgentName) -> bool {
        read(&self.remotes).contains(name)
    }

    /// Takes the remote agents that are served here and not registered any more.
    pub(crate) fn removed_remotes(&self) -> Vec<AgentName> {
        let index = read(&self.index);
        let mut remotes = write(&self.remotes);
        remotes.extract_if(|name| !index.contains(name.as_str())).collect()
    }

    /// The indexes without the workers that were not seen since then, which are removed.
    fn alive(&self, alive_since: Timestamp) -> RwLockReadGuard<'_, DirectoryIndex> {
        loop {
            let index = read(&self.index);
            if !index.has_stale(alive_since) {
                return index;
            }
            drop(index);
            let stale = write(&self.index).take_stale(alive_since);
            let mut seen = lock(&self.seen);
            for name in stale {
                seen.remove(&name);
            }
        }
    }

    /// The number of living registrations.
    pub(crate) fn len(&self, alive_since: Timestamp) -> usize {
        self.alive(alive_since).len()
    }

    /// The registrations that were read so far.
    #[cfg(test)]
    pub(crate) fn reads(&self) -> usize {
        read(&self.index).reads.load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Declaration, Owner};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + 1000 * seconds)
    }

    fn worker(name: &str, seen: i64) -> Registration {
        let (role, instance) = name.split_once(':').unwrap();
        Registration {
            name: name.into(),
            role: role.into(),
            instance: instance.to_owned(),
            owner: Owner { tenant: "acme".into(), principal: "ann".into() },
            declaration: Declaration::default(),
            session: None,
            card: None,
            created: at(seen),
            last_seen: at(seen),
        }
    }

    #[test]
    fn a_worker_that_was_not_seen_leaves_all_indexes() {
        let directory = Directory::default();
        directory.add(worker("a:h:1", 0));
        directory.add(worker("a:h:2", 50));
        directory.add(worker("b:h:1", 0));
        let names = |found: Vec<Listed>| -> Vec<String> {
            found.iter().map(|one| one.registration.name.to_string()).collect()
        };
        assert_eq!(names(directory.of_role(&"a".into(), at(0))), ["a:h:1", "a:h:2"]);
        assert!(directory.see("b:h:1", at(60), at(0)));
        assert_eq!(names(directory.of_role(&"a".into(), at(40))), ["a:h:2"]);
        assert_eq!(directory.len(at(0)), 2, "a read removes a stale one from all indexes");
        assert!(!directory.see("a:h:1", at(60), at(0)), "a removed worker has to register again");
        assert!(directory.of_role(&"a".into(), at(51)).is_empty());
        assert_eq!(names(directory.all(at(55))), ["b:h:1"]);
        assert!(directory.find("a:h:2", at(0)).is_none());
        assert_eq!(directory.served_roles(at(0)), HashSet::from(["b".into()]));
        assert!(!directory.is_served(&"a".into(), at(0)));
        assert_eq!(directory.summary(&"a".into(), at(0)), RoleSummary::default());
    }

    #[test]
    fn a_sign_of_life_does_not_turn_the_time_back() {
        let directory = Directory::default();
        directory.add(worker("a:h:1", 10));
        assert!(directory.see("a:h:1", at(5), at(0)));
        assert_eq!(directory.find("a:h:1", at(0)).unwrap().last_seen, at(10));
    }
}
