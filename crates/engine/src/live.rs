//! Tasks that something is happening to: their record, the end of their log, and a bell.
//!
//! A task is live while a turn runs on it, a reader follows it or a call touches it, and costs
//! memory only then. The bell carries no events: readers take those from the log, so a slow reader
//! can neither lose one nor hold one up, and a missed ring costs one read.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use herald_protocol::{Metadata, Seq};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    rules::Record,
    store::{Entry, Key, Page, Snapshot},
};

/// Entries kept in memory for readers that keep up; others read the store.
const TAIL_ENTRIES: usize = 64;
const TAIL_BYTES: usize = 64 << 10;

/// Paused tasks that stay in memory after their turn, while the budget allows.
const RECENT: usize = 1024;

/// Every live task, by name.
#[derive(Debug)]
pub(crate) struct Lives {
    tasks: Mutex<HashMap<Key, Weak<Live>>>,
    /// Bytes of log whose tasks are held in memory, and how many there may be.
    held: AtomicU64,
    budget: u64,
    /// Paused tasks, longest ago first. A long conversation would otherwise be read from the store
    /// with each of its messages.
    recent: Mutex<VecDeque<Arc<Live>>>,
}

/// One live task.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) key: Key,
    /// The writer's view. Held across an append, so writers of one task take turns; empty when it
    /// must be read from the store again.
    pub(crate) record: tokio::sync::Mutex<Option<Record>>,
    /// How to stop the turn that runs now.
    stop: Mutex<Option<Stopper>>,
    tail: Mutex<Tail>,
    waker: watch::Sender<()>,
    /// Its part of [`Lives::held`].
    held: AtomicU64,
    /// True if it is among [`Lives::recent`].
    is_recent: AtomicBool,
    lives: Weak<Lives>,
}

/// Stops a turn, and says why.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stopper {
    pub(crate) token: CancellationToken,
    pub(crate) metadata: Arc<Mutex<Option<Metadata>>>,
}

/// The end of a log. Every append of this process passes here, so what it holds has no gaps.
#[derive(Debug, Default)]
struct Tail {
    /// The last event, once known.
    head: Option<Seq>,
    closed: bool,
    /// The newest message that waits for a turn, or 0.
    unread: Seq,
    /// The whole task after some event, if it is small.
    snapshot: Option<Snapshot>,
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl Lives {
    /// Holds tasks of up to about `budget` bytes of log in memory.
    pub(crate) fn new(budget: u64) -> Self {
        Self { tasks: Mutex::default(), held: AtomicU64::new(0), budget, recent: Mutex::default() }
    }

    /// The live task of this name.
    pub(crate) fn get(self: &Arc<Self>, key: &Key) -> Arc<Live> {
        let mut tasks = self.lock();
        if let Some(live) = tasks.get(key).and_then(Weak::upgrade) {
            return live;
        }
        let live = Arc::new(Live {
            key: key.clone(),
            record: tokio::sync::Mutex::default(),
            stop: Mutex::default(),
            tail: Mutex::default(),
            waker: watch::Sender::new(()),
            held: AtomicU64::new(0),
            is_recent: AtomicBool::new(false),
            lives: Arc::downgrade(self),
        });
        tasks.insert(key.clone(), Arc::downgrade(&live));
        live
    }

    /// The live task of this name, if it is live.
    pub(crate) fn peek(&self, key: &Key) -> Option<Arc<Live>> {
        self.lock().get(key).and_then(Weak::upgrade)
    }

    /// Wakes every reader of every task, to look again.
    pub(crate) fn wake_all(&self) {
        let lives: Vec<_> = self.lock().values().filter_map(Weak::upgrade).collect();
        for live in lives {
            live.waker.send_replace(());
        }
    }

    /// Keeps a paused task in memory until the budget or [`RECENT`] newer ones displace it.
    fn keep_recent(&self, live: Arc<Live>) {
        let mut recent = self.recent();
        if live.is_recent.swap(true, Ordering::Relaxed) {
            recent.retain(|known| !Arc::ptr_eq(known, &live));
        }
        recent.push_back(live);
        drop(recent);
        if self.recent().len() > RECENT {
            self.forget_oldest();
        }
    }

    fn forget(&self, live: &Arc<Live>) {
        if live.is_recent.swap(false, Ordering::Relaxed) {
            self.recent().retain(|known| !Arc::ptr_eq(known, live));
        }
    }

    fn forget_oldest(&self) -> bool {
        let oldest = self.recent().pop_front();
        if let Some(oldest) = &oldest {
            oldest.is_recent.store(false, Ordering::Relaxed);
        }
        oldest.is_some()
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<Arc<Live>>> {
        self.recent.lock().expect("nothing panics while it holds the recent tasks")
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Weak<Live>>> {
        self.tasks.lock().expect("nothing panics while it holds the live tasks")
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let Some(lives) = self.lives.upgrade() else { return };
        lives.held.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
        let mut tasks = lives.lock();
        // A successor may already stand under this name.
        if tasks.get(&self.key).is_some_and(|live| live.strong_count() == 0) {
            tasks.remove(&self.key);
        }
        if tasks.capacity() > 1024 && tasks.len() < tasks.capacity() / 8 {
            tasks.shrink_to_fit();
        }
    }
}

impl Tail {
    /// Leaves the entries to the store.
    fn forget_entries(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.snapshot = None;
    }
}

impl Live {
    /// Puts the record back for the next writer, unless memory is short: then that one and the
    /// readers go to the store again, which is slower and just as right. A paused task stays after
    /// its last user.
    pub(crate) fn keep(self: &Arc<Self>, slot: &mut Option<Record>, record: Record) {
        let Some(lives) = self.lives.upgrade() else { return };
        let is_paused = record.state().is_interrupted() && record.run.holder.is_none();
        let kept = self.hold(&lives, record.bytes + self.tail().bytes as u64);
        if !kept {
            self.tail().forget_entries();
        }
        *slot = kept.then_some(record);
        if kept && is_paused {
            lives.keep_recent(Arc::clone(self));
        } else if self.is_closed() {
            lives.forget(self);
        }
    }

    /// Accounts for so many bytes. Returns true if the budget has them.
    fn hold(&self, lives: &Lives, bytes: u64) -> bool {
        let before = self.held.swap(0, Ordering::Relaxed);
        lives.held.fetch_sub(before, Ordering::Relaxed);
        while lives.held.load(Ordering::Relaxed) + bytes > lives.budget {
            if bytes > lives.budget || !lives.forget_oldest() {
                return false;
            }
        }
        self.held.store(bytes, Ordering::Relaxed);
        lives.held.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Adds what was committed and wakes the readers.
    pub(crate) fn publish(&self, entries: Vec<Entry>, record: &Record, snapshot: Option<Snapshot>) {
        let head = record.head;
        let mut tail = self.tail();
        tail.snapshot = snapshot.filter(|snapshot| snapshot.size() <= TAIL_BYTES);
        let follows = tail.head.is_some_and(|known| known + entries.len() as Seq == head)
            || entries.first().is_some_and(|first| first.seq == 1);
        if !follows {
            // Something was committed past this tail; what it holds is no longer the end.
            tail.forget_entries();
        }
        for entry in entries {
            tail.bytes += entry.body.len();
            tail.entries.push_back(entry);
        }
        while tail.entries.len() > TAIL_ENTRIES || tail.bytes > TAIL_BYTES {
            let Some(oldest) = tail.entries.pop_front() else { break };
            tail.bytes -= oldest.body.len();
        }
        tail.head = Some(head);
        tail.closed = record.is_closed();
        tail.unread = record.run.unread.last().copied().unwrap_or_default();
        drop(tail);
        self.waker.send_replace(());
    }

    /// Events after `after`, if memory holds them all.
    pub(crate) fn recent(&self, after: Seq, limit: usize) -> Option<Page> {
        let tail = self.tail();
        let head = tail.head?;
        if after >= head {
            return Some(Page { entries: Vec::new(), closed: tail.closed });
        }
        let first = tail.entries.front()?.seq;
        if after + 1 < first {
            return None;
        }
        let skip = usize::try_from(after + 1 - first).ok()?;
        let entries: Vec<Entry> = tail.entries.iter().skip(skip).take(limit).cloned().collect();
        let reached = entries.last().is_some_and(|last| last.seq == head);
        Some(Page { entries, closed: tail.closed && reached })
    }

    /// Whether the caller has said something after this event that no turn has taken up yet.
    pub(crate) fn is_answered(&self, after: Seq) -> bool {
        self.tail().unread > after
    }

    /// Whether the task has ended, as far as this process knows.
    pub(crate) fn is_closed(&self) -> bool {
        self.tail().closed
    }

    /// The task as it stands after this event, in pieces, if memory holds it.
    pub(crate) fn snapshot(&self, head: Seq) -> Option<Snapshot> {
        self.tail().snapshot.clone().filter(|snapshot| snapshot.seq == head)
    }

    /// Hears the bell from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.waker.subscribe()
    }

    /// Registers the turn that runs now.
    pub(crate) fn started(&self, stopper: Stopper) {
        *self.stopper() = Some(stopper);
    }

    /// Forgets the turn that ran, unless the next one has already begun.
    pub(crate) fn finished(&self, ended: &Stopper) {
        let mut running = self.stopper();
        if running.as_ref().is_some_and(|known| Arc::ptr_eq(&known.metadata, &ended.metadata)) {
            *running = None;
        }
    }

    /// Stops the turn that runs now. Returns whether there is one.
    pub(crate) fn stop(&self, metadata: Option<Metadata>) -> bool {
        let running = self.stopper();
        if let Some(stopper) = &*running {
            *stopper.metadata.lock().expect("nothing panics while it holds this lock") = metadata;
            stopper.token.cancel();
        }
        running.is_some()
    }

    fn stopper(&self) -> MutexGuard<'_, Option<Stopper>> {
        self.stop.lock().expect("nothing panics while it holds this lock")
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().expect("nothing panics while it holds a tail")
    }
}
