//! Queries of the audit log, and the verification of its chain.

use herald_protocol::{TenantId, Timestamp};

use super::{AuditRecord, ChainFault, ChainLink, ChainVerifier, Store, StoreError};

/// The number of records that a verification reads at once.
const PAGE: usize = 512;

/// The number of times that a verification begins anew because retention removed records meanwhile.
const RESTARTS: usize = 8;

/// Query of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditQuery {
    /// Only records of actors of this tenant.
    pub tenant: Option<TenantId>,
    /// Only records of this principal.
    pub principal: Option<String>,
    /// Only records whose action has this prefix.
    pub action: Option<String>,
    /// Only records that were stored at this time or later.
    pub since: Option<Timestamp>,
    /// Only records after this number, in the order of the query.
    pub after: Option<u64>,
    /// True for the order of the numbers; otherwise the newest record is first.
    pub oldest_first: bool,
    /// The maximum number of records.
    pub limit: usize,
}

/// A page of the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditPage {
    /// The matching records.
    pub records: Vec<AuditRecord>,
    /// The number after which the next page begins; `None` at the end.
    pub next: Option<u64>,
}

/// Retention limits of the audit log. Each limit applies.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditRetention {
    /// Records that were stored before this time are removed.
    pub before: Option<Timestamp>,
    /// The maximum number of records.
    pub records: Option<u64>,
}

impl AuditQuery {
    /// True if the record matches the filters, except for its time and number.
    pub(crate) fn matches(&self, record: &AuditRecord) -> bool {
        let actor = &record.entry.actor;
        self.tenant.as_ref().is_none_or(|tenant| *tenant == actor.tenant)
            && self.principal.as_ref().is_none_or(|principal| **principal == *actor.principal)
            && self.action.as_ref().is_none_or(|prefix| record.entry.action.starts_with(&**prefix))
    }
}

/// Verifies the chain of the audit log. Returns its head, or the first fault. `kept` is a head that
/// was kept outside of the store: it must be in the chain. `progress` gets the number of the last
/// verified record and that of the head.
pub async fn verify_audit(
    store: &dyn Store,
    kept: Option<ChainLink>,
    mut progress: impl FnMut(u64, u64),
) -> Result<Result<ChainLink, ChainFault>, StoreError> {
    let mut outcome = Ok(ChainLink::default());
    for _ in 0..RESTARTS {
        let ends = store.audit_ends().await?;
        outcome = pass(store, ChainVerifier::new(ends, kept), &mut progress).await?;
        // Retention may have removed records that this pass was about to read.
        if outcome.is_ok() || store.audit_ends().await?.checkpoint == ends.checkpoint {
            break;
        }
    }
    Ok(outcome)
}

async fn pass(
    store: &dyn Store,
    mut verifier: ChainVerifier,
    progress: &mut impl FnMut(u64, u64),
) -> Result<Result<ChainLink, ChainFault>, StoreError> {
    let head = verifier.head();
    let mut after = Some(verifier.last().number);
    while after.is_some_and(|after| after < head) {
        let query = AuditQuery { after, oldest_first: true, limit: PAGE, ..AuditQuery::default() };
        let page = store.read_audit(query).await?;
        // Later records were added after the head was read.
        for record in page.records.iter().filter(|record| record.number <= head) {
            if let Err(fault) = verifier.check(record) {
                return Ok(Err(fault));
            }
        }
        progress(verifier.last().number, head);
        after = page.next;
    }
    Ok(verifier.finish())
}
