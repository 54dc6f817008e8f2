//! Indexes of the directory: the registrations by name, by role, and by their last sign of life.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use herald_protocol::{AgentName, Timestamp};

use crate::store::{Declaration, DeclaredSkill, Owner, PinnedCard, Registration, RegistrationName};

use super::{
    Listed,
    role_index::{RoleIndex, WorkerAge},
};

/// Memory that a registration takes beside its texts: its entries in all indexes, and the session of a worker.
const BYTES_PER_REGISTRATION: usize = 1 << 10;

/// Copies of the texts of a registration: its own, and that in the card of its role.
const COPIES: usize = 2;

/// All indexes. A registration is in each of them or in none.
#[derive(Debug, Default)]
pub(super) struct DirectoryIndex {
    by_name: BTreeMap<RegistrationName, Listed>,
    by_role: HashMap<AgentName, RoleIndex>,
    /// The workers, the one that was unseen for the longest time first. A remote agent sends no signs of life.
    by_last_seen: BTreeSet<(Timestamp, RegistrationName)>,
    by_owner: HashMap<Owner, DirectoryUse>,
    total: DirectoryUse,
    /// The registrations that were read, for a test of the cost.
    #[cfg(test)]
    pub(super) reads: std::sync::atomic::AtomicUsize,
}

/// A number of registrations and the memory that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DirectoryUse {
    pub(crate) registrations: usize,
    pub(crate) bytes: usize,
}

/// The parts of a role's profile that its living workers declare.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct RoleSummary {
    /// The number of workers.
    pub(crate) workers: usize,
    /// The turns that all of them run at once.
    pub(crate) concurrency: usize,
    /// The description of the earliest worker that has one.
    pub(crate) description: Option<String>,
    /// The version of the earliest worker that has one.
    pub(crate) version: Option<String>,
    /// The skills of all, each as the earliest worker declares it.
    pub(crate) skills: Vec<DeclaredSkill>,
    /// The media types that any of them takes.
    pub(crate) input_modes: Vec<String>,
    /// The media types that any of them produces.
    pub(crate) output_modes: Vec<String>,
    /// True if the tasks of any of them can be streamed.
    pub(crate) streaming: bool,
    /// True if the tasks of any of them can be followed by push notifications.
    pub(crate) push: bool,
}

impl DirectoryIndex {
    pub(super) fn add(&mut self, listed: Listed) {
        let registration = &*listed.registration;
        let name = RegistrationName::clone(&registration.name);
        self.take(&name);
        if registration.card.is_none() {
            self.by_last_seen.insert((listed.last_seen, RegistrationName::clone(&name)));
        }
        self.by_role.entry(registration.role.clone()).or_default().add(registration);
        let one = DirectoryUse::of_registration(registration);
        self.total.add(one);
        self.by_owner.entry(registration.owner.clone()).or_default().add(one);
        self.by_name.insert(name, listed);
    }

    pub(super) fn take(&mut self, name: &str) -> Option<Arc<Registration>> {
        let Listed { registration, last_seen } = self.by_name.remove(name)?;
        self.by_last_seen.remove(&(last_seen, RegistrationName::clone(&registration.name)));
        if let Some(role) = self.by_role.get_mut(&registration.role) {
            role.take(&registration);
            if role.is_empty() {
                self.by_role.remove(&registration.role);
            }
        }
        let one = DirectoryUse::of_registration(&registration);
        self.total.subtract(one);
        if let Some(owner) = self.by_owner.get_mut(&registration.owner) {
            owner.subtract(one);
            if owner.registrations == 0 {
                self.by_owner.remove(&registration.owner);
            }
        }
        Some(registration)
    }

    /// True if a worker was not seen since then.
    pub(super) fn has_stale(&self, alive_since: Timestamp) -> bool {
        self.by_last_seen.first().is_some_and(|(last_seen, _)| *last_seen < alive_since)
    }

    /// Removes the workers that were not seen since then, and returns their names.
    pub(super) fn take_stale(&mut self, alive_since: Timestamp) -> Vec<RegistrationName> {
        let mut taken = Vec::new();
        while let Some((last_seen, name)) = self.by_last_seen.first()
            && *last_seen < alive_since
        {
            let name = RegistrationName::clone(name);
            self.take(&name);
            taken.push(name);
        }
        taken
    }

    /// Notes a sign of life, and returns the name and the time that counts from now on.
    pub(super) fn see(
        &mut self,
        name: &str,
        now: Timestamp,
    ) -> Option<(RegistrationName, Timestamp)> {
        let listed = self.by_name.get_mut(name)?;
        let name = RegistrationName::clone(&listed.registration.name);
        let (former, last_seen) = (listed.last_seen, listed.last_seen.max(now));
        listed.last_seen = last_seen;
        if self.by_last_seen.remove(&(former, RegistrationName::clone(&name))) {
            self.by_last_seen.insert((last_seen, RegistrationName::clone(&name)));
        }
        Some((name, last_seen))
    }

    /// Replaces a registration by one of the same name, role and declaration.
    pub(super) fn replace(&mut self, name: &str, change: impl FnOnce(&mut Registration)) {
        let Some(listed) = self.by_name.get_mut(name) else { return };
        change(Arc::make_mut(&mut listed.registration));
    }

    pub(super) fn get(&self, name: &str) -> Option<&Listed> {
        self.count_read();
        self.by_name.get(name)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The use of all registrations but this one.
    pub(super) fn total_without(&self, name: &str) -> DirectoryUse {
        let mut total = self.total;
        if let Some(one) = self.by_name.get(name) {
            total.subtract(DirectoryUse::of_registration(&one.registration));
        }
        total
    }

    /// The use of the registrations of these owners but this one.
    pub(super) fn use_without(&self, name: &str, counts: impl Fn(&Owner) -> bool) -> DirectoryUse {
        let mut used = DirectoryUse::default();
        for (_, owner) in self.by_owner.iter().filter(|(owner, _)| counts(owner)) {
            used.add(*owner);
        }
        if let Some(one) = self.by_name.get(name).filter(|one| counts(&one.registration.owner)) {
            used.subtract(DirectoryUse::of_registration(&one.registration));
        }
        used
    }

    /// All registrations, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Listed> {
        self.by_name.values().inspect(|_| self.count_read())
    }

    /// The registrations of a role, the earliest first.
    pub(super) fn of_role(&self, role: &AgentName) -> impl Iterator<Item = &Listed> {
        let ages = self.by_role.get(role).into_iter().flat_map(RoleIndex::ages);
        ages.filter_map(|(_, name)| self.get(name))
    }

    /// The roles that have workers.
    pub(super) fn served_roles(&self) -> impl Iterator<Item = &AgentName> {
        self.by_role.iter().filter(|(_, role)| role.workers() > 0).map(|(name, _)| name)
    }

    /// The number of workers of a role.
    pub(super) fn workers(&self, role: &AgentName) -> usize {
        self.by_role.get(role).map_or(0, RoleIndex::workers)
    }

    /// The index of a role.
    pub(super) fn role(&self, role: &AgentName) -> Option<&RoleIndex> {
        self.by_role.get(role)
    }

    /// The parts of a role's profile that its workers declare. The cost depends on the skills and media types
    /// of the role, and not on the number of its workers.
    pub(super) fn summary(&self, role: &AgentName) -> RoleSummary {
        let Some(index) = self.by_role.get(role) else { return RoleSummary::default() };
        let declaration = |(_, name): &WorkerAge| Some(&self.get(name)?.registration.declaration);
        let description = index.first_described().and_then(declaration);
        let version = index.first_versioned().and_then(declaration);
        let skills = index.skills.in_order().into_iter();
        RoleSummary {
            workers: index.workers(),
            concurrency: index.concurrency,
            description: description.map(|it| it.description.clone()),
            version: version.map(|it| it.version.clone()),
            skills: skills
                .filter_map(|(worker, position, _)| declaration(worker)?.skills.get(position))
                .cloned()
                .collect(),
            input_modes: index.input_modes.words(),
            output_modes: index.output_modes.words(),
            streaming: index.streaming > 0,
            push: index.push > 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    #[cfg(test)]
    fn count_read(&self) {
        self.reads.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    #[cfg(not(test))]
    const fn count_read(&self) {}
}

impl DirectoryUse {
    /// The use of one registration.
    pub(crate) fn of(declared: &Declaration, card: Option<&PinnedCard>) -> Self {
        let texts = declared.text_bytes() + card.map_or(0, |card| card.document.len());
        Self { registrations: 1, bytes: BYTES_PER_REGISTRATION + COPIES * texts }
    }

    fn of_registration(registration: &Registration) -> Self {
        Self::of(&registration.declaration, registration.card.as_ref())
    }

    fn add(&mut self, other: Self) {
        self.registrations += other.registrations;
        self.bytes += other.bytes;
    }

    fn subtract(&mut self, other: Self) {
        self.registrations -= other.registrations;
        self.bytes -= other.bytes;
    }
}
