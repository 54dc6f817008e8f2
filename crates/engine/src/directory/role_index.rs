//! Index of one role: its registrations by age, and what its workers declare, each with those that declare it.
//!
//! A registration changes its own entries only, so that it costs the same with one worker and with thousands.

use std::collections::{BTreeMap, BTreeSet};

use herald_protocol::Timestamp;

use crate::store::{Declaration, Registration, RegistrationName};

/// The age of a registration. The earliest comes first.
pub(super) type WorkerAge = (Timestamp, RegistrationName);

/// The registrations of one role.
#[derive(Debug, Default)]
pub(super) struct RoleIndex {
    /// The workers, or the one remote agent.
    ages: BTreeSet<WorkerAge>,
    workers: usize,
    described: BTreeSet<WorkerAge>,
    versioned: BTreeSet<WorkerAge>,
    /// The ids of the skills.
    pub(super) skills: DeclaredWords,
    pub(super) input_modes: DeclaredWords,
    pub(super) output_modes: DeclaredWords,
    /// The number of workers whose tasks can be streamed.
    pub(super) streaming: usize,
    /// The number of workers whose tasks can be followed by push notifications.
    pub(super) push: usize,
    /// The turns that all workers run at once.
    pub(super) concurrency: usize,
}

/// Words, each with the workers that declare it and the position in their declarations.
#[derive(Debug, Default)]
pub(super) struct DeclaredWords(BTreeMap<String, BTreeSet<(WorkerAge, usize)>>);

impl RoleIndex {
    pub(super) fn add(&mut self, registration: &Registration) {
        let age = age_of(registration);
        self.ages.insert(age.clone());
        if registration.card.is_some() {
            return;
        }
        let it = &registration.declaration;
        self.workers += 1;
        self.streaming += usize::from(it.streaming);
        self.push += usize::from(it.push);
        self.concurrency += it.concurrency as usize;
        if !it.description.is_empty() {
            self.described.insert(age.clone());
        }
        if !it.version.is_empty() {
            self.versioned.insert(age.clone());
        }
        self.each_word(it, |words, word, position| words.add(word, &age, position));
    }

    /// Removes a registration that was added.
    pub(super) fn take(&mut self, registration: &Registration) {
        let age = age_of(registration);
        self.ages.remove(&age);
        if registration.card.is_some() {
            return;
        }
        let it = &registration.declaration;
        self.workers -= 1;
        self.streaming -= usize::from(it.streaming);
        self.push -= usize::from(it.push);
        self.concurrency -= it.concurrency as usize;
        self.described.remove(&age);
        self.versioned.remove(&age);
        self.each_word(it, |words, word, position| words.take(word, &age, position));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ages.is_empty()
    }

    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// The registrations, the earliest first.
    pub(super) fn ages(&self) -> impl Iterator<Item = &WorkerAge> {
        self.ages.iter()
    }

    /// The earliest worker with a description.
    pub(super) fn first_described(&self) -> Option<&WorkerAge> {
        self.described.first()
    }

    /// The earliest worker with a version.
    pub(super) fn first_versioned(&self) -> Option<&WorkerAge> {
        self.versioned.first()
    }

    /// The number of skills, or of media types of one direction if that is higher, with a further worker.
    pub(super) fn words_with(&self, further: &Declaration) -> usize {
        let Declaration { skills, input_modes, output_modes, .. } = further;
        let skills = self.skills.len_with(skills.iter().map(|skill| &skill.id));
        let input_modes = self.input_modes.len_with(input_modes);
        let output_modes = self.output_modes.len_with(output_modes);
        skills.max(input_modes).max(output_modes)
    }

    fn each_word(
        &mut self,
        declaration: &Declaration,
        mut change: impl FnMut(&mut DeclaredWords, &str, usize),
    ) {
        for (position, skill) in declaration.skills.iter().enumerate() {
            change(&mut self.skills, &skill.id, position);
        }
        for (words, modes) in [
            (&mut self.input_modes, &declaration.input_modes),
            (&mut self.output_modes, &declaration.output_modes),
        ] {
            for (position, mode) in modes.iter().enumerate() {
                change(words, mode, position);
            }
        }
    }
}

impl DeclaredWords {
    /// The number of different words, with further ones.
    fn len_with<'a>(&self, further: impl IntoIterator<Item = &'a String>) -> usize {
        let further = further.into_iter().filter(|word| !self.0.contains_key(*word));
        self.0.len() + further.collect::<BTreeSet<_>>().len()
    }

    /// The words in the order in which they were declared first, each with that worker and its position.
    pub(super) fn in_order(&self) -> Vec<(&WorkerAge, usize, &String)> {
        let first = self.0.iter().filter_map(|(word, workers)| {
            let (age, position) = workers.first()?;
            Some((age, *position, word))
        });
        let mut found: Vec<_> = first.collect();
        found.sort_unstable();
        found
    }

    /// The words in the order in which they were declared first.
    pub(super) fn words(&self) -> Vec<String> {
        self.in_order().into_iter().map(|(_, _, word)| word.clone()).collect()
    }

    fn add(&mut self, word: &str, age: &WorkerAge, position: usize) {
        self.0.entry(word.to_owned()).or_default().insert((age.clone(), position));
    }

    fn take(&mut self, word: &str, age: &WorkerAge, position: usize) {
        if let Some(workers) = self.0.get_mut(word) {
            workers.remove(&(age.clone(), position));
            if workers.is_empty() {
                self.0.remove(word);
            }
        }
    }
}

fn age_of(registration: &Registration) -> WorkerAge {
    (registration.created, RegistrationName::clone(&registration.name))
}
