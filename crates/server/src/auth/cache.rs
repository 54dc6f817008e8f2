//! Bounded cache of recent credentials, by their hash.

use std::{collections::HashMap, sync::RwLock};

use herald_protocol::locks;

/// The hash of a credential.
pub(crate) type CredentialHash = [u8; 32];

/// A cache of recently used entries in two generations. When the newer one is full, it becomes the
/// older one and the older one is dropped, so that a flood of new entries costs bounded memory and no
/// search for the oldest.
#[derive(Debug)]
pub(crate) struct RecentCache<V> {
    generations: RwLock<Generations<V>>,
    /// The entries of one generation.
    limit: usize,
}

#[derive(Debug)]
struct Generations<V> {
    newer: HashMap<CredentialHash, V>,
    older: HashMap<CredentialHash, V>,
}

impl<V: Clone> RecentCache<V> {
    /// An empty cache of at most twice so many entries.
    pub(crate) fn new(limit: usize) -> Self {
        let generations = Generations { newer: HashMap::new(), older: HashMap::new() };
        Self { generations: RwLock::new(generations), limit }
    }

    /// The entry of a credential.
    pub(crate) fn get(&self, hash: &CredentialHash) -> Option<V> {
        {
            let generations = locks::read(&self.generations);
            if let Some(found) = generations.newer.get(hash) {
                return Some(found.clone());
            }
            if !generations.older.contains_key(hash) {
                return None;
            }
        }
        let found = locks::write(&self.generations).older.remove(hash)?;
        self.insert(*hash, found.clone());
        Some(found)
    }

    /// Adds or replaces an entry.
    pub(crate) fn insert(&self, hash: CredentialHash, value: V) {
        locks::write(&self.generations).insert(hash, value, self.limit);
    }

    /// The entry of a credential; `value`, if there is none yet.
    pub(crate) fn get_or_insert(&self, hash: CredentialHash, value: V) -> V {
        let mut generations = locks::write(&self.generations);
        let found = generations.newer.get(&hash).or_else(|| generations.older.get(&hash)).cloned();
        let value = found.unwrap_or(value);
        generations.insert(hash, value.clone(), self.limit);
        value
    }

    /// Removes all entries.
    pub(crate) fn clear(&self) {
        let mut generations = locks::write(&self.generations);
        generations.newer.clear();
        generations.older.clear();
    }

    /// Removes an entry.
    pub(crate) fn remove(&self, hash: &CredentialHash) {
        let mut generations = locks::write(&self.generations);
        generations.newer.remove(hash);
        generations.older.remove(hash);
    }
}

impl<V> Generations<V> {
    fn insert(&mut self, hash: CredentialHash, value: V, limit: usize) {
        self.older.remove(&hash);
        if self.newer.len() >= limit && !self.newer.contains_key(&hash) {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(hash, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(number: u8) -> CredentialHash {
        [number; 32]
    }

    #[test]
    fn used_entries_stay_and_the_size_is_bounded() {
        let cache = RecentCache::new(4);
        cache.insert(hash(255), 255);
        for number in 0..100 {
            cache.insert(hash(number), number);
            assert_eq!(cache.get(&hash(255)), Some(255), "used all the time, after {number}");
            let generations = locks::read(&cache.generations);
            assert!(generations.newer.len() + generations.older.len() <= 8);
        }
        assert_eq!(cache.get(&hash(0)), None);
        cache.remove(&hash(255));
        assert_eq!(cache.get(&hash(255)), None);
    }

    #[test]
    fn the_first_of_two_entries_stays() {
        let cache = RecentCache::new(1);
        assert_eq!(cache.get_or_insert(hash(1), "first"), "first");
        assert_eq!(cache.get_or_insert(hash(1), "second"), "first");
        cache.insert(hash(2), "another");
        assert_eq!(cache.get_or_insert(hash(1), "third"), "first", "in the older generation");
        assert_eq!(cache.get(&hash(1)), Some("first"));
    }
}
