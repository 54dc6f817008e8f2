//! Hash chain of audit records: the hash of a record, and the verification of a chain.

use std::fmt;

use herald_protocol::Timestamp;

use super::audit::{AuditEnds, AuditEntry, AuditRecord, AuditSubject, ChainLink};

/// The first bytes of every hashed record. Another form of records needs another one.
const FORM: &[u8] = b"herald audit record 1\n";

/// How far from its number a moved record is searched for, when its hash does not match.
const SEARCHED: u64 = 4096;

impl AuditRecord {
    /// The record of an act, as the successor of `last`.
    pub fn after(last: ChainLink, at: Timestamp, entry: AuditEntry) -> Self {
        let (number, previous) = (last.number + 1, last.hash);
        let hash = hash(number, at, &entry, &previous);
        Self { number, at, entry, previous, hash }
    }

    /// The place of this record in its chain.
    pub fn link(&self) -> ChainLink {
        ChainLink { number: self.number, hash: self.hash }
    }

    /// True if the hash is that of a record with this number and the content of this one.
    fn matches(&self, number: u64) -> bool {
        hash(number, self.at, &self.entry, &self.previous) == self.hash
    }
}

/// The hash of a record. Each field is preceded by its length, and an absent one differs from an
/// empty one, so that no two records have the same bytes.
fn hash(number: u64, at: Timestamp, entry: &AuditEntry, previous: &[u8; 32]) -> [u8; 32] {
    let AuditEntry { actor, address, action, subject, refused, detail, request } = entry;
    let mut hasher = blake3::Hasher::new();
    hasher.update(FORM).update(previous);
    hasher.update(&number.to_be_bytes()).update(&at.as_millis().to_be_bytes());
    let mut add = |field: Option<&str>| {
        hasher.update(&[u8::from(field.is_some())]);
        if let Some(field) = field {
            hasher.update(&(field.len() as u64).to_be_bytes()).update(field.as_bytes());
        }
    };
    add(Some(actor.tenant.as_str()));
    add(Some(&actor.principal));
    add(Some(&actor.credential));
    add(actor.credential_id.as_deref());
    add(address.as_deref());
    add(Some(action));
    let (kind, id, owner) = match subject {
        Some(AuditSubject { kind, id, owner }) => (Some(&**kind), Some(&**id), owner.as_ref()),
        None => (None, None, None),
    };
    add(kind);
    add(id);
    add(owner.map(|owner| owner.tenant.as_str()));
    add(owner.map(|owner| &*owner.principal));
    add(refused.as_deref());
    add(Some(detail));
    add(request.as_deref());
    *hasher.finalize().as_bytes()
}

/// The first fault of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainFault {
    /// The number of the record at which the fault was found.
    pub number: u64,
    /// The kind.
    pub kind: ChainFaultKind,
}

/// The kinds of faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChainFaultKind {
    /// The record is missing or cannot be read.
    Removed,
    /// The content does not match the hash of the record.
    Changed,
    /// The record was written with this other number.
    Reordered(u64),
    /// The record does not continue the one before it, which was replaced.
    Unlinked,
    /// This record and all later ones are missing.
    Truncated,
    /// The record has another hash than the one that was kept elsewhere.
    Replaced,
}

/// Verification of a chain, record by record.
#[derive(Debug)]
pub struct ChainVerifier {
    last: ChainLink,
    last_at: Timestamp,
    head: ChainLink,
    kept: Option<ChainLink>,
}

impl ChainVerifier {
    /// Begins after the checkpoint. `kept` is a head that was kept outside of the store.
    pub fn new(ends: AuditEnds, kept: Option<ChainLink>) -> Self {
        let last_at = Timestamp::from_millis(i64::MIN);
        Self { last: ends.checkpoint, last_at, head: ends.head, kept }
    }

    /// The last record that was verified.
    pub fn last(&self) -> ChainLink {
        self.last
    }

    /// The number of the last record of the chain.
    pub fn head(&self) -> u64 {
        self.head.number
    }

    /// Verifies the next record.
    pub fn check(&mut self, record: &AuditRecord) -> Result<(), ChainFault> {
        let expected = self.last.number + 1;
        let fault = |number, kind| Err(ChainFault { number, kind });
        if record.number != expected {
            return fault(expected, ChainFaultKind::Removed);
        }
        if !record.matches(expected) {
            let near = expected.saturating_sub(SEARCHED)..=expected + SEARCHED;
            let moved = near.into_iter().find(|number| record.matches(*number));
            let kind = moved.map_or(ChainFaultKind::Changed, ChainFaultKind::Reordered);
            return fault(expected, kind);
        }
        if record.previous != self.last.hash {
            return fault(expected, ChainFaultKind::Unlinked);
        }
        if record.at < self.last_at {
            return fault(expected, ChainFaultKind::Changed);
        }
        if self.kept.is_some_and(|kept| kept.number == expected && kept.hash != record.hash) {
            return fault(expected, ChainFaultKind::Replaced);
        }
        (self.last, self.last_at) = (record.link(), record.at);
        Ok(())
    }

    /// Verifies that the chain ends with its head. Returns the head.
    pub fn finish(self) -> Result<ChainLink, ChainFault> {
        let Self { last, head, kept, .. } = self;
        let end = kept.map_or(head.number, |kept| kept.number.max(head.number));
        if last.number < end {
            let kind = ChainFaultKind::Truncated;
            return Err(ChainFault { number: last.number + 1, kind });
        }
        if last.number == head.number && last.hash != head.hash {
            return Err(ChainFault { number: last.number, kind: ChainFaultKind::Replaced });
        }
        Ok(last)
    }
}

impl fmt::Display for ChainFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind } = self;
        match kind {
            ChainFaultKind::Removed => write!(f, "record {number} is missing or cannot be read"),
            ChainFaultKind::Changed => {
                write!(f, "record {number} was changed: its content does not match its hash")
            }
            ChainFaultKind::Reordered(written) => {
                write!(f, "record {number} was moved: it was written as record {written}")
            }
            ChainFaultKind::Unlinked => write!(
                f,
                "record {number} does not continue the record before it, which was replaced"
            ),
            ChainFaultKind::Truncated => {
                write!(f, "the log ends too early: record {number} and all later ones are missing")
            }
            ChainFaultKind::Replaced => {
                write!(f, "record {number} was replaced: it has another hash than the known one")
            }
        }
    }
}

impl std::error::Error for ChainFault {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::audit::AuditActor;

    fn chain(records: u64) -> Vec<AuditRecord> {
        let mut chain: Vec<AuditRecord> = Vec::new();
        for number in 0..records {
            let last = chain.last().map(AuditRecord::link).unwrap_or_default();
            let entry = AuditEntry::new(AuditActor::default(), format!("test.act{number}"));
            chain.push(AuditRecord::after(last, Timestamp::from_millis(number as i64), entry));
        }
        chain
    }

    fn verify(chain: &[AuditRecord], head: ChainLink) -> Result<ChainLink, ChainFault> {
        let checkpoint = ChainLink::default();
        let mut verifier = ChainVerifier::new(AuditEnds { checkpoint, head }, None);
        for record in chain {
            verifier.check(record)?;
        }
        verifier.finish()
    }

    fn fault(number: u64, kind: ChainFaultKind) -> Result<ChainLink, ChainFault> {
        Err(ChainFault { number, kind })
    }

    #[test]
    fn a_chain_is_verified_and_the_first_fault_is_named() {
        let whole = chain(20);
        let head = whole[19].link();
        assert_eq!(verify(&whole, head), Ok(head));
        assert_eq!(verify(&[], ChainLink::default()), Ok(ChainLink::default()));

        let mut changed = whole.clone();
        changed[6].entry.actor.principal = "mallory".into();
        assert_eq!(verify(&changed, head), fault(7, ChainFaultKind::Changed));

        let mut removed = whole.clone();
        removed.remove(6);
        assert_eq!(verify(&removed, head), fault(7, ChainFaultKind::Removed));

        let mut swapped = whole.clone();
        swapped.swap(6, 9);
        (swapped[6].number, swapped[9].number) = (7, 10);
        assert_eq!(verify(&swapped, head), fault(7, ChainFaultKind::Reordered(10)));

        assert_eq!(verify(&whole[..15], head), fault(16, ChainFaultKind::Truncated));

        // A replaced record with a new hash breaks the link of the next one.
        let mut replaced = whole.clone();
        let entry = AuditEntry::new(AuditActor::default(), "test.other");
        replaced[6] = AuditRecord::after(whole[5].link(), whole[6].at, entry.clone());
        assert_eq!(verify(&replaced, head), fault(8, ChainFaultKind::Unlinked));
        let mut replaced = whole.clone();
        replaced[19] = AuditRecord::after(whole[18].link(), whole[19].at, entry);
        assert_eq!(verify(&replaced, head), fault(20, ChainFaultKind::Replaced));
    }

    #[test]
    fn a_head_that_was_kept_elsewhere_finds_a_chain_that_was_written_anew() {
        let kept = chain(20)[14].link();
        let ends = |chain: &[AuditRecord]| AuditEnds {
            checkpoint: ChainLink::default(),
            head: chain.last().map(AuditRecord::link).unwrap_or_default(),
        };
        let verify = |chain: &[AuditRecord]| {
            let mut verifier = ChainVerifier::new(ends(chain), Some(kept));
            chain.iter().try_for_each(|record| verifier.check(record))?;
            verifier.finish()
        };
        let whole = chain(20);
        assert_eq!(verify(&whole), Ok(whole[19].link()));
        assert_eq!(verify(&whole[..10]), fault(11, ChainFaultKind::Truncated));
        let mut anew = chain(3);
        while anew.len() < 20 {
            let entry = AuditEntry::new(AuditActor::default(), "test.forged");
            let last = anew[anew.len() - 1].clone();
            anew.push(AuditRecord::after(last.link(), last.at, entry));
        }
        assert_eq!(verify(&anew), fault(15, ChainFaultKind::Replaced));
    }

    #[test]
    fn fields_cannot_be_moved_into_their_neighbours() {
        let entry = |principal: &str, refused: Option<&str>| AuditEntry {
            refused: refused.map(Into::into),
            ..AuditEntry::new(
                AuditActor { principal: principal.into(), ..AuditActor::default() },
                "test.act",
            )
        };
        let now = Timestamp::from_millis(1);
        let entries = [
            entry("", None),
            entry("", Some("")),
            entry("a", None),
            entry("", Some("a")),
            AuditEntry { detail: "a".into(), ..entry("", None) },
            AuditEntry { request: Some("a".into()), ..entry("", None) },
            AuditEntry { address: Some("a".into()), ..entry("", None) },
            entry("", None).on("a", "", None),
            entry("", None).on("", "a", None),
        ];
        let hashes: std::collections::HashSet<_> = entries
            .into_iter()
            .map(|entry| AuditRecord::after(ChainLink::default(), now, entry).hash)
            .collect();
        assert_eq!(hashes.len(), 9);
    }
}
