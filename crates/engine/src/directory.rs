//! Directory: the workers and remote agents that are registered, in memory, by name and by role.
//!
//! The store has a copy, which is read at the start. A sign of life changes the memory only; the janitor
//! stores them all together. A worker that was not seen for the age limit is treated as absent from then
//! on: whoever finds it removes it from both indexes, and the janitor removes the rest.

pub(crate) mod declaration;
pub(crate) mod name;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    mem,
    sync::{Arc, Mutex, RwLock},
};

use herald_protocol::{
    AgentName, Timestamp,
    locks::{lock, read, write},
};

use crate::{
    agents::profile::Profile,
    metrics::Counter,
    store::{Registration, RegistrationName, Store, StoreError},
};

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

/// Both indexes. A registration is in both or in neither.
#[derive(Debug, Default)]
struct DirectoryIndex {
    by_name: BTreeMap<RegistrationName, Listed>,
    by_role: HashMap<AgentName, BTreeSet<RegistrationName>>,
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

impl Listed {
    /// True if the registration is listed at a time when workers must have been seen since `alive_since`. A
    /// remote agent sends no signs of life.
    fn is_alive(&self, alive_since: Timestamp) -> bool {
        self.registration.card.is_some() || self.last_seen >= alive_since
    }
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
        let found = read(&self.index).by_name.get(name).cloned()?;
        if found.is_alive(alive_since) {
            return Some(found);
        }
        self.take(name);
        None
    }

    /// The living registrations of a role, the earliest first.
    pub(crate) fn of_role(&self, role: &AgentName, alive_since: Timestamp) -> Vec<Listed> {
        let mut found = {
            let index = read(&self.index);
            let names = index.by_role.get(role).into_iter().flatten();
            names.filter_map(|name| index.by_name.get(name).cloned()).collect::<Vec<_>>()
        };
        self.retain_alive(&mut found, alive_since);
        found.sort_by_key(|one| one.registration.created);
        found
    }

    /// All living registrations, by name.
    pub(crate) fn all(&self, alive_since: Timestamp) -> Vec<Listed> {
        let mut found: Vec<_> = read(&self.index).by_name.values().cloned().collect();
        self.retain_alive(&mut found, alive_since);
        found
    }

    /// The number of registrations, including those that nobody has found to be stale yet.
    pub(crate) fn len(&self) -> usize {
        read(&self.index).by_name.len()
    }

    /// Notes a sign of life. Returns false if there is no living registration of this name.
    pub(crate) fn see(&self, name: &str, now: Timestamp, alive_since: Timestamp) -> bool {
        if self.find(name, alive_since).is_none() {
            return false;
        }
        let mut index = write(&self.index);
        let Some((name, listed)) = index.by_name.get_key_value(name) else { return false };
        let (name, last_seen) = (RegistrationName::clone(name), listed.last_seen.max(now));
        if let Some(listed) = index.by_name.get_mut(&name) {
            listed.last_seen = last_seen;
        }
        drop(index);
        lock(&self.seen).insert(name, last_seen);
        true
    }

    /// Notes that a remote agent has another card now than the pinned one, or has that again.
    pub(crate) fn change_card(&self, name: &str, changed_to: Option<String>) {
        let mut index = write(&self.index);
        let Some(listed) = index.by_name.get_mut(name) else { return };
        let mut changed = Registration::clone(&listed.registration);
        if let Some(card) = &mut changed.card {
            card.changed_to = changed_to;
        }
        listed.registration = Arc::new(changed);
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
        for (name, listed) in &mut next.by_name {
            if let Some(known) = index.by_name.get(name) {
                listed.last_seen = listed.last_seen.max(known.last_seen);
            }
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
        let all = self.all(alive_since).into_iter();
        let workers = all.filter(|one| one.registration.card.is_none());
        workers.map(|one| one.registration.role.clone()).collect()
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
        remotes.extract_if(|name| !index.by_name.contains_key(name.as_str())).collect()
    }

    /// Removes the stale ones of `found`, also from both indexes.
    fn retain_alive(&self, found: &mut Vec<Listed>, alive_since: Timestamp) {
        found.retain(|one| {
            let is_alive = one.is_alive(alive_since);
            if !is_alive {
                self.take(&one.registration.name);
            }
            is_alive
        });
    }
}

impl DirectoryIndex {
    fn add(&mut self, listed: Listed) {
        let (name, role) =
            (RegistrationName::clone(&listed.registration.name), listed.registration.role.clone());
        self.take(&name);
        self.by_role.entry(role).or_default().insert(RegistrationName::clone(&name));
        self.by_name.insert(name, listed);
    }

    fn take(&mut self, name: &str) -> Option<Arc<Registration>> {
        let registration = self.by_name.remove(name)?.registration;
        if let Some(names) = self.by_role.get_mut(&registration.role) {
            names.remove(name);
            if names.is_empty() {
                self.by_role.remove(&registration.role);
            }
        }
        Some(registration)
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
    fn a_worker_that_was_not_seen_leaves_both_indexes() {
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
        // Whoever finds a stale one removes it, from both indexes.
        assert_eq!(directory.len(), 2);
        assert!(!directory.see("a:h:1", at(60), at(0)), "a removed worker has to register again");
        assert!(directory.of_role(&"a".into(), at(51)).is_empty());
        assert_eq!(names(directory.all(at(55))), ["b:h:1"]);
        assert!(directory.find("a:h:2", at(0)).is_none());
        assert!(read(&directory.index).by_role.keys().eq([&AgentName::from("b")]));
    }

    #[test]
    fn a_sign_of_life_does_not_turn_the_time_back() {
        let directory = Directory::default();
        directory.add(worker("a:h:1", 10));
        assert!(directory.see("a:h:1", at(5), at(0)));
        assert_eq!(directory.find("a:h:1", at(0)).unwrap().last_seen, at(10));
    }
}
