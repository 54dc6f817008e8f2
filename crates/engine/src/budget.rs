//! Memory budget: one pool of bytes, a quota per payer, reservations that are returned on drop.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::model::key::Owner;

/// Bytes up to which a request, a turn or an answer is small.
pub const SMALL: usize = 8 << 10;

/// Memory that a request takes for each of its bytes: as received, decoded, and as it is stored.
pub const BYTES_PER_REQUEST_BYTE: usize = 4;

/// A pool of bytes. With a small pool, small reservations have an eighth of the bytes to themselves and
/// no quotas, so that they never wait for large ones.
#[derive(Debug)]
pub struct MemoryBudget {
    large: Pool,
    small: Pool,
    /// Bytes up to which a reservation is served from the small pool.
    small_up_to: usize,
    /// Bytes of the large pool that one payer may reserve.
    per_payer: usize,
    quotas: Mutex<HashMap<Payer, Weak<Quota>>>,
}

#[derive(Debug)]
struct Pool {
    bytes: usize,
    free: Arc<Semaphore>,
}

/// The party whose quota a reservation counts against.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Payer {
    /// A caller with credentials.
    Owner(Owner),
    /// The callers without credentials at one address.
    Address(IpAddr),
    /// This process.
    Process,
}

/// The part of the large pool that one payer may reserve. A single reservation that is larger takes
/// the whole quota.
#[derive(Debug)]
pub struct Quota {
    payer: Payer,
    own: Pool,
    budget: Arc<MemoryBudget>,
}

/// Reserved bytes. Dropping the reservation returns them.
#[derive(Debug)]
pub struct Reservation {
    _pool: OwnedSemaphorePermit,
    /// Last: the next reservation of the same payer counts against the same quota.
    _quota: Option<(OwnedSemaphorePermit, Arc<Quota>)>,
}

impl MemoryBudget {
    /// A budget of `bytes`, which `payers` would exhaust together. All reservations count against
    /// quotas.
    pub fn new(bytes: usize, payers: usize) -> Arc<Self> {
        Self::split(bytes, 0, payers, 0)
    }

    /// The same with a pool for reservations of requests and tasks of at most [`SMALL`] bytes.
    pub fn with_small_pool(bytes: usize, payers: usize) -> Arc<Self> {
        let small = bytes / 8;
        Self::split(bytes - small, small, payers, SMALL * BYTES_PER_REQUEST_BYTE)
    }

    /// The same for responses: [`MemoryBudget::try_reserve_small`] has an eighth of the bytes, and all
    /// other reservations count against quotas, small ones too.
    pub fn for_responses(bytes: usize, payers: usize) -> Arc<Self> {
        let small = bytes / 8;
        Self::split(bytes - small, small, payers, 0)
    }

    fn split(large: usize, small: usize, payers: usize, small_up_to: usize) -> Arc<Self> {
        let (large, small) = (Pool::new(large), Pool::new(small));
        let per_payer = large.bytes / payers.max(1);
        Arc::new(Self { large, small, small_up_to, per_payer, quotas: Mutex::default() })
    }

    /// The quota of this payer.
    pub fn quota(self: &Arc<Self>, payer: Payer) -> Arc<Quota> {
        let mut quotas = self.lock();
        if let Some(quota) = quotas.get(&payer).and_then(Weak::upgrade) {
            return quota;
        }
        let own = Pool::new(self.per_payer);
        let quota = Arc::new(Quota { payer: payer.clone(), own, budget: Arc::clone(self) });
        quotas.insert(payer, Arc::downgrade(&quota));
        quota
    }

    /// Reserves bytes from the small pool, as soon as they are free.
    pub async fn reserve_small(&self, bytes: usize) -> Reservation {
        Reservation { _pool: self.small.take(bytes).await, _quota: None }
    }

    /// Reserves bytes from the small pool, if they are free.
    pub fn try_reserve_small(&self, bytes: usize) -> Option<Reservation> {
        Some(Reservation { _pool: self.small.try_take(bytes)?, _quota: None })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Payer, Weak<Quota>>> {
        self.quotas.lock().expect("nothing panics while it holds the quotas")
    }
}

impl Pool {
    fn new(bytes: usize) -> Self {
        // A permit is counted in 32 bits.
        let bytes = bytes.min(Semaphore::MAX_PERMITS).clamp(1, u32::MAX as usize);
        Self { bytes, free: Arc::new(Semaphore::new(bytes)) }
    }

    async fn take(&self, bytes: usize) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.free).acquire_many_owned(self.permits(bytes)).await;
        permit.expect("the semaphore is never closed")
    }

    fn try_take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_many_owned(self.permits(bytes)).ok()
    }

    /// At most the whole pool, so that every reservation can be served.
    fn permits(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.bytes)).expect("a pool has at most u32::MAX bytes")
    }
}

impl Quota {
    /// Reserves `bytes`, if they are free.
    pub fn try_reserve(self: &Arc<Self>, bytes: usize) -> Option<Reservation> {
        if bytes <= self.budget.small_up_to {
            return self.budget.try_reserve_small(bytes);
        }
        let own = self.own.try_take(bytes)?;
        let pool = self.budget.large.try_take(bytes)?;
        Some(Reservation { _pool: pool, _quota: Some((own, Arc::clone(self))) })
    }

    /// Reserves `bytes` as soon as they are free. Waiting reservations are served in order.
    pub async fn reserve(self: &Arc<Self>, bytes: usize) -> Reservation {
        if bytes <= self.budget.small_up_to {
            return self.budget.reserve_small(bytes).await;
        }
        let own = self.own.take(bytes).await;
        let pool = self.budget.large.take(bytes).await;
        Reservation { _pool: pool, _quota: Some((own, Arc::clone(self))) }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        let mut quotas = self.budget.lock();
        // The payer may have a new quota already.
        if quotas.get(&self.payer).is_some_and(|quota| quota.strong_count() == 0) {
            quotas.remove(&self.payer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A budget whose large pool has 400 units of this size.
    const UNIT: usize = 1 << 20;

    fn budget() -> Arc<MemoryBudget> {
        let bytes = 400 * UNIT;
        MemoryBudget::with_small_pool(bytes + bytes / 7 + 1, 4)
    }

    #[tokio::test]
    async fn a_payer_reserves_no_more_than_a_quota_and_all_together_no_more_than_the_pool() {
        let budget = budget();
        let quota = |payer| budget.quota(Payer::Address([127, 0, 0, payer].into()));
        let (first, second) = (quota(1), quota(2));
        let reservation = first.try_reserve(60 * UNIT).unwrap();
        assert!(first.try_reserve(60 * UNIT).is_none());
        assert!(quota(1).try_reserve(60 * UNIT).is_none(), "one payer has one quota");
        assert!(second.try_reserve(60 * UNIT).is_some());
        drop(reservation);
        let whole = first.try_reserve(130 * UNIT).expect("more than a quota takes all of it");
        assert!(first.try_reserve(UNIT).is_none());
        let others: Vec<_> =
            (2..5).map(|payer| quota(payer).try_reserve(90 * UNIT).unwrap()).collect();
        assert!(quota(5).try_reserve(UNIT).is_none(), "the pool is exhausted");
        assert!(
            quota(5).try_reserve(SMALL).is_some(),
            "small reservations have a pool of their own"
        );
        drop(whole);
        assert!(quota(5).try_reserve(UNIT).is_some());
        drop(others);
        drop((first, second));
        assert!(budget.lock().is_empty(), "a payer without reservations is forgotten");
    }

    #[tokio::test]
    async fn a_waiting_reservation_gets_what_is_returned() {
        let budget = budget();
        let quota = budget.quota(Payer::Process);
        let reservation = quota.reserve(80 * UNIT).await;
        let mut waiting = std::pin::pin!(quota.reserve(40 * UNIT));
        tokio::select! {
            biased;
            _ = waiting.as_mut() => panic!("the quota is exhausted"),
            () = std::future::ready(()) => {}
        }
        drop(reservation);
        drop(waiting.await);
        assert!(quota.try_reserve(100 * UNIT).is_some());
    }

    #[tokio::test]
    async fn small_reservations_are_counted() {
        let budget = MemoryBudget::with_small_pool(8 * SMALL, 1);
        let quota = budget.quota(Payer::Process);
        let half = budget.reserve_small(SMALL / 2).await;
        assert!(quota.try_reserve(SMALL).is_none(), "half of the small pool is taken");
        drop(half);
        assert!(quota.try_reserve(SMALL).is_some());
    }
}
