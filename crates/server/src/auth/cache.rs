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
        let mut generations = locks::write(&self.generations);
        generations.older.remove(&hash);
        if generations.newer.len() >= self.limit && !generations.newer.contains_key(&hash) {
            generations.older = std::mem::take(&mut generations.newer);
        }
        generations.newer.insert(hash, value);
    }

    /// All entries.
    pub(crate) fn values(&self) -> Vec<V> {
        let generations = locks::read(&self.generations);
        generations.newer.values().chain(generations.older.values()).cloned().collect()
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
}
