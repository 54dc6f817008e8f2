//! Memory of the ids of received webhooks, bounded in number.

use std::collections::{BTreeMap, HashMap};

use aws_lc_rs::digest::{SHA256, digest};

/// A hash of an id, so that every id takes the same memory.
type IdHash = [u8; 32];

/// The newest ids.
#[derive(Debug)]
pub(super) struct SeenIds {
    limit: usize,
    next: u64,
    /// By the order of their arrival.
    arrivals: BTreeMap<u64, Arrival>,
    numbers: HashMap<IdHash, u64>,
}

#[derive(Debug)]
struct Arrival {
    id: IdHash,
    /// The time after which a copy of the webhook is too old to be accepted, in seconds since 1970.
    acceptable_until: u64,
}

/// Result of the search for an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sighting {
    First,
    Repeated,
    /// The memory has no space for another id.
    Full,
}

impl SeenIds {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, next: 0, arrivals: BTreeMap::new(), numbers: HashMap::new() }
    }

    /// Looks for an id and remembers it. An id makes space for another one only when its webhook would be too old.
    pub(super) fn note(&mut self, id: &str, acceptable_until: u64, now: u64) -> Sighting {
        let id = hash(id);
        if self.numbers.contains_key(&id) {
            return Sighting::Repeated;
        }
        if self.arrivals.len() >= self.limit && !self.drop_oldest(now) {
            return Sighting::Full;
        }
        self.numbers.insert(id, self.next);
        self.arrivals.insert(self.next, Arrival { id, acceptable_until });
        self.next += 1;
        Sighting::First
    }

    pub(super) fn forget(&mut self, id: &str) {
        if let Some(number) = self.numbers.remove(&hash(id)) {
            self.arrivals.remove(&number);
        }
    }

    fn drop_oldest(&mut self, now: u64) -> bool {
        let Some(oldest) = self.arrivals.first_entry() else { return false };
        if oldest.get().acceptable_until >= now {
            return false;
        }
        let id = oldest.remove().id;
        self.numbers.remove(&id);
        true
    }
}

fn hash(id: &str) -> IdHash {
    let mut hash = IdHash::default();
    hash.copy_from_slice(digest(&SHA256, id.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_remembered_while_a_copy_of_its_webhook_would_be_accepted() {
        let mut seen = SeenIds::new(2);
        assert_eq!(seen.note("a", 300, 0), Sighting::First);
        assert_eq!(seen.note("b", 310, 10), Sighting::First);
        assert_eq!(seen.note("c", 320, 20), Sighting::Full);
        assert_eq!(seen.note("a", 320, 20), Sighting::Repeated);
        assert_eq!(seen.note("c", 600, 300), Sighting::Full);
        // Without another id the old ones stay.
        assert_eq!(seen.note("a", 9_300, 9_000), Sighting::Repeated);
        assert_eq!(seen.note("c", 601, 301), Sighting::First);
        assert_eq!(seen.note("b", 601, 301), Sighting::Repeated);
        assert_eq!(seen.note("a", 611, 311), Sighting::First, "b made space for it");
    }

    #[test]
    fn a_forgotten_id_is_new_and_leaves_its_space() {
        let mut seen = SeenIds::new(2);
        for round in 0..10 {
            assert_eq!(seen.note("a", 300, round), Sighting::First);
            assert_eq!(seen.note("a", 300, round), Sighting::Repeated);
            seen.forget("a");
            seen.forget("a");
        }
        assert_eq!(seen.note("b", 300, 0), Sighting::First);
        assert_eq!((seen.arrivals.len(), seen.numbers.len()), (1, 1));
    }
}
