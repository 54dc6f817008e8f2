//! Room for what waits: bytes that somebody has asked for and not taken yet, of which everybody has a
//! share and nobody more than that.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::Owner;

/// Bytes that are not worth counting.
pub const SMALL: usize = 8 << 10;

/// Room for so many bytes.
#[derive(Debug)]
pub struct Room {
    all: Arc<Semaphore>,
    bytes: usize,
    /// What one party may take up of it.
    share: usize,
    shares: Mutex<HashMap<Party, Weak<Share>>>,
}

/// Who has a share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Party {
    /// A caller with credentials.
    Owner(Owner),
    /// One connection of callers without.
    Connection(u64),
}

/// What one party may take up. Something larger may be there by itself.
#[derive(Debug)]
pub struct Share {
    party: Party,
    own: Arc<Semaphore>,
    room: Arc<Room>,
}

/// Some bytes' place. Dropping it makes room.
#[derive(Debug)]
pub struct Place {
    _own: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
    /// Last: the next place of the same party is in the same share.
    _share: Arc<Share>,
}

impl Room {
    /// Room for so many bytes, which so many parties would fill.
    pub fn new(bytes: usize, parties: usize) -> Arc<Self> {
        // A permit is counted in 32 bits.
        let bytes = bytes.min(Semaphore::MAX_PERMITS).clamp(1, u32::MAX as usize);
        let all = Arc::new(Semaphore::new(bytes));
        Arc::new(Self {
            all,
            bytes,
            share: (bytes / parties.max(1)).max(1),
            shares: Mutex::default(),
        })
    }

    /// The share of this party.
    pub fn share(self: &Arc<Self>, party: Party) -> Arc<Share> {
        let mut shares = self.lock();
        if let Some(share) = shares.get(&party).and_then(Weak::upgrade) {
            return share;
        }
        let own = Arc::new(Semaphore::new(self.share));
        let share = Arc::new(Share { party: party.clone(), own, room: Arc::clone(self) });
        shares.insert(party, Arc::downgrade(&share));
        share
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Party, Weak<Share>>> {
        self.shares.lock().expect("nothing panics while it holds the shares")
    }
}

impl Share {
    /// A place for so many bytes, if there is one.
    pub fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Place> {
        let (own, all) = self.sizes(bytes);
        let own = Arc::clone(&self.own).try_acquire_many_owned(own).ok()?;
        let all = Arc::clone(&self.room.all).try_acquire_many_owned(all).ok()?;
        Some(Place { _own: own, _all: all, _share: Arc::clone(self) })
    }

    /// A place for so many bytes, once there is one. Everybody gets theirs in turn.
    pub async fn take(self: &Arc<Self>, bytes: usize) -> Place {
        let (own, all) = self.sizes(bytes);
        let own = Arc::clone(&self.own).acquire_many_owned(own).await;
        let own = own.expect("no share is ever closed");
        let all = Arc::clone(&self.room.all).acquire_many_owned(all).await;
        let all = all.expect("no room is ever closed");
        Place { _own: own, _all: all, _share: Arc::clone(self) }
    }

    /// What so many bytes take up of the share, and of the room.
    fn sizes(&self, bytes: usize) -> (u32, u32) {
        let size = |size| u32::try_from(size).expect("no room is larger than 32 bits can say");
        (size(bytes.min(self.room.share)), size(bytes.min(self.room.bytes)))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shares = self.room.lock();
        // A successor may already stand under this name.
        if shares.get(&self.party).is_some_and(|share| share.strong_count() == 0) {
            shares.remove(&self.party);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_takes_more_than_a_share_and_all_together_no_more_than_there_is() {
        let room = Room::new(400, 4);
        let share = |party| room.share(Party::Connection(party));
        let (first, second) = (share(1), share(2));
        let place = first.try_take(60).unwrap();
        assert!(first.try_take(60).is_none());
        assert!(share(1).try_take(60).is_none(), "it is the same share under the same name");
        assert!(second.try_take(60).is_some());
        drop(place);
        let whole = first.try_take(130).expect("what is too large for a share has it to itself");
        assert!(first.try_take(1).is_none());
        let others: Vec<_> = (2..5).map(|party| share(party).try_take(90).unwrap()).collect();
        assert!(share(5).try_take(1).is_none(), "the room is full");
        drop(whole);
        assert!(share(5).try_take(1).is_some());
        drop(others);
        drop((first, second));
        assert!(room.lock().is_empty(), "who has nothing there is forgotten");
    }

    #[tokio::test]
    async fn whoever_waits_gets_the_place_that_is_left() {
        let room = Room::new(400, 4);
        let share = room.share(Party::Connection(1));
        let place = share.take(80).await;
        let mut waiting = std::pin::pin!(share.take(40));
        tokio::select! {
            biased;
            _ = waiting.as_mut() => panic!("the share is taken up"),
            () = std::future::ready(()) => {}
        }
        drop(place);
        drop(waiting.await);
        assert!(share.try_take(100).is_some());
    }
}
