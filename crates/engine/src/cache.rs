//! Task cache: the records of tasks in use, the ends of their logs, and the wakers of their readers.
//!
//! A task is in the cache while a turn runs on it, a reader follows it or a call uses it; a paused one
//! may stay longer. The waker carries no events: readers take those from the log, so a slow reader
//! neither loses an event nor delays a writer, and a superfluous wake-up costs one read.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use bytes::Bytes;
use herald_protocol::{Metadata, Seq};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{
    rules::Record,
    store::{Entry, Header, Key, Kind, LogPage, MemberId, Snapshot, TaskVersion, TurnClaim},
    turns::turn::StopReason,
};

/// Entries kept in memory for readers that keep up; others read the store.
const TAIL_ENTRIES: usize = 16;
const TAIL_BYTES: usize = 64 << 10;

/// Paused tasks that stay in memory after their turn, while the budget allows.
const RECENT: usize = 1024;

/// The cached tasks, by key.
#[derive(Debug)]
pub(crate) struct TaskCache {
    tasks: Mutex<HashMap<Key, Weak<CachedTask>>>,
    /// Log bytes of the tasks whose records are in memory, and their limit.
    held: AtomicU64,
    budget: u64,
    /// Paused tasks, the least recent first. They stay in memory because otherwise every message of a
    /// long conversation would read the task from the store.
    recent: Mutex<VecDeque<Arc<CachedTask>>>,
}

/// One cached task.
#[derive(Debug)]
pub(crate) struct CachedTask {
    pub(crate) key: Key,
    /// The record after the last append. Its lock is held across an append, which makes the writers of
    /// one task exclusive. `None` if the record must be read from the store.
    pub(crate) record: tokio::sync::Mutex<Option<Record>>,
    /// The turn that runs here.
    running: Mutex<Option<RunningTurn>>,
    tail: Mutex<Tail>,
    waker: watch::Sender<()>,
    /// Its bytes in [`TaskCache::held`].
    held: AtomicU64,
    /// True if [`TaskCache::recent`] contains it.
    is_recent: AtomicBool,
    cache: Weak<TaskCache>,
}

/// Stops a turn and hands over the metadata of the cancel.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stopper {
    pub(crate) token: CancellationToken,
    pub(crate) metadata: Arc<Mutex<Option<Metadata>>>,
    /// The first reason; `None` means a cancel.
    pub(crate) reason: Arc<OnceLock<StopReason>>,
}

/// A turn that runs here, and its claim.
#[derive(Debug)]
struct RunningTurn {
    stopper: Stopper,
    claim: TurnClaim,
}

/// The end of a log. Its entries have no gaps.
#[derive(Debug, Default)]
struct Tail {
    /// The version of the task, once known.
    version: Option<TaskVersion>,
    closed: bool,
    /// The newest message that no turn has read, or 0.
    unread: Seq,
    /// The whole task after some event, if it is small.
    snapshot: Option<Snapshot>,
    /// As [`tail_entries`] makes them.
    entries: VecDeque<Entry>,
    bytes: usize,
}

/// New entries as the tail keeps them: a large one without its body, which only the store has.
pub(crate) fn tail_entries(before: Seq, events: &[(Kind, Bytes)]) -> Vec<Entry> {
    let entry = |(seq, (kind, body)): (Seq, &(Kind, Bytes))| {
        let body = if body.len() > TAIL_BYTES { Bytes::new() } else { body.clone() };
        Entry { seq, kind: *kind, body }
    };
    (before + 1..).zip(events).map(entry).collect()
}

/// True if the tail keeps the snapshot.
pub(crate) fn is_tail_snapshot(snapshot: &Snapshot) -> bool {
    snapshot.size() <= TAIL_BYTES
}

impl TaskCache {
    /// A cache for tasks of about `budget` log bytes.
    pub(crate) fn new(budget: u64) -> Self {
        Self { tasks: Mutex::default(), held: AtomicU64::new(0), budget, recent: Mutex::default() }
    }

    /// The cached task of this key, added if it is absent.
    pub(crate) fn get(self: &Arc<Self>, key: &Key) -> Arc<CachedTask> {
        let mut tasks = self.lock();
        if let Some(cached) = tasks.get(key).and_then(Weak::upgrade) {
            return cached;
        }
        let cached = Arc::new(CachedTask {
            key: key.clone(),
            record: tokio::sync::Mutex::default(),
            running: Mutex::default(),
            tail: Mutex::default(),
            waker: watch::Sender::new(()),
            held: AtomicU64::new(0),
            is_recent: AtomicBool::new(false),
            cache: Arc::downgrade(self),
        });
        tasks.insert(key.clone(), Arc::downgrade(&cached));
        cached
    }

    /// The cached task of this key, if it is present.
    pub(crate) fn peek(&self, key: &Key) -> Option<Arc<CachedTask>> {
        self.lock().get(key).and_then(Weak::upgrade)
    }

    /// Wakes the readers of every task.
    pub(crate) fn wake_all(&self) {
        for cached in self.all() {
            cached.waker.send_replace(());
        }
    }

    /// Stops every turn that this member holds.
    pub(crate) fn stop_all_of(&self, member: MemberId) {
        for cached in self.all() {
            if let Some(turn) = &*cached.running()
                && turn.claim.holder == member
            {
                turn.stopper.stop(None, StopReason::Lost);
            }
        }
    }

    /// Every cached task.
    pub(crate) fn all(&self) -> Vec<Arc<CachedTask>> {
        self.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Keeps a paused task in memory until the budget or [`RECENT`] newer ones displace it.
    fn keep_recent(&self, cached: Arc<CachedTask>) {
        let mut recent = self.recent();
        if cached.is_recent.swap(true, Ordering::Relaxed) {
            recent.retain(|known| !Arc::ptr_eq(known, &cached));
        }
        recent.push_back(cached);
        let surplus = recent.len() > RECENT;
        drop(recent);
        if surplus {
            self.forget_oldest();
        }
    }

    fn forget(&self, cached: &Arc<CachedTask>) {
        // Most tasks end without a pause, and the flag tells that without the lock. Under the lock the
        // flag and the list change together.
        if cached.is_recent.load(Ordering::Relaxed) {
            let mut recent = self.recent();
            cached.is_recent.store(false, Ordering::Relaxed);
            recent.retain(|known| !Arc::ptr_eq(known, cached));
        }
    }

    fn forget_oldest(&self) -> bool {
        let mut recent = self.recent();
        let oldest = recent.pop_front();
        if let Some(oldest) = &oldest {
            oldest.is_recent.store(false, Ordering::Relaxed);
        }
        // Before the task, whose end takes the other lock.
        drop(recent);
        oldest.is_some()
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<Arc<CachedTask>>> {
        self.recent.lock().expect("nothing panics while it holds the recent tasks")
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Weak<CachedTask>>> {
        self.tasks.lock().expect("nothing panics while it holds the cached tasks")
    }
}

impl Drop for CachedTask {
    fn drop(&mut self) {
        let Some(cache) = self.cache.upgrade() else { return };
        cache.held.fetch_sub(*self.held.get_mut(), Ordering::Relaxed);
        let mut tasks = cache.lock();
        // A newer entry may already have this key.
        if tasks.get(&self.key).is_some_and(|cached| cached.strong_count() == 0) {
            tasks.remove(&self.key);
        }
        if tasks.capacity() > 1024 && tasks.len() < tasks.capacity() / 8 {
            tasks.shrink_to_fit();
        }
    }
}

impl Stopper {
    /// Stops the turn. The first reason counts.
    pub(crate) fn stop(&self, metadata: Option<Metadata>, reason: StopReason) {
        let _ = self.reason.set(reason);
        *self.metadata.lock().expect("nothing panics while it holds this lock") = metadata;
        self.token.cancel();
    }
}

impl Tail {
    /// Drops the entries. Readers then read the store.
    fn forget_entries(&mut self) {
        self.entries.clear();
        self.bytes = 0;
        self.snapshot = None;
    }
}

impl CachedTask {
    /// Keeps the record for the next writer, if the budget allows it. Otherwise the next writer and the
    /// readers read the store, which is slower but equally correct. A paused task stays in the cache
    /// after its last use.
    pub(crate) fn keep(self: &Arc<Self>, current: &mut Option<Record>, record: Record) {
        let Some(cache) = self.cache.upgrade() else { return };
        let is_paused = record.state().is_interrupted() && record.run.holder.is_none();
        let kept = self.hold(&cache, record.bytes + self.tail().bytes as u64);
        if !kept {
            self.tail().forget_entries();
        }
        *current = kept.then_some(record);
        if kept && is_paused {
            cache.keep_recent(Arc::clone(self));
        } else if self.is_closed() {
            cache.forget(self);
        }
    }

    /// Replaces the bytes that the task accounts for. Returns true if the budget has them.
    fn hold(&self, cache: &TaskCache, bytes: u64) -> bool {
        let before = self.held.swap(0, Ordering::Relaxed);
        cache.held.fetch_sub(before, Ordering::Relaxed);
        while cache.held.load(Ordering::Relaxed) + bytes > cache.budget {
            if bytes > cache.budget || !cache.forget_oldest() {
                return false;
            }
        }
        self.held.store(bytes, Ordering::Relaxed);
        cache.held.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Adds committed entries of [`tail_entries`] and wakes the readers.
    pub(crate) fn publish(&self, entries: Vec<Entry>, record: &Record, snapshot: Option<Snapshot>) {
        let unread = record.run.unread.last().copied().unwrap_or_default();
        self.extend(entries, record.version(), record.is_closed(), unread, snapshot);
    }

    /// Adds entries that another member wrote and wakes the readers.
    pub(crate) fn publish_foreign(&self, entries: Vec<Entry>, header: &Header, head: Seq) {
        let version = TaskVersion { head, epoch: header.run.epoch };
        let unread = header.run.unread.last().copied().unwrap_or_default();
        let without_large_bodies = |entry: Entry| match entry.body.len() {
            ..=TAIL_BYTES => entry,
            _ => Entry { body: Bytes::new(), ..entry },
        };
        let entries = entries.into_iter().map(without_large_bodies).collect();
        self.extend(entries, version, header.state.is_terminal(), unread, None);
    }

    fn extend(
        &self,
        entries: Vec<Entry>,
        version: TaskVersion,
        closed: bool,
        unread: Seq,
        snapshot: Option<Snapshot>,
    ) {
        let mut tail = self.tail();
        let known = tail.version.map(|known| known.head);
        let follows = known.is_some_and(|known| known + entries.len() as Seq == version.head)
            || entries.first().is_some_and(|first| first.seq == 1);
        if !follows {
            // An append did not pass through this tail, so its entries are no longer the end.
            tail.forget_entries();
        }
        tail.snapshot = snapshot;
        for entry in entries {
            tail.bytes += entry.body.len();
            tail.entries.push_back(entry);
        }
        while tail.entries.len() > TAIL_ENTRIES || tail.bytes > TAIL_BYTES {
            let Some(oldest) = tail.entries.pop_front() else { break };
            tail.bytes -= oldest.body.len();
        }
        tail.version = Some(version);
        tail.closed = closed;
        tail.unread = unread;
        drop(tail);
        self.waker.send_replace(());
    }

    /// Forgets the version, so that readers read the store, and wakes them.
    pub(crate) fn invalidate(&self) {
        let mut tail = self.tail();
        tail.forget_entries();
        tail.version = None;
        drop(tail);
        self.waker.send_replace(());
    }

    /// The version of the task, as far as it is known here.
    pub(crate) fn version(&self) -> Option<TaskVersion> {
        self.tail().version
    }

    /// The events after `after`, if all of them are in memory.
    pub(crate) fn recent(&self, after: Seq, limit: usize) -> Option<LogPage> {
        let page = self.recent_kinds(after, limit)?;
        let is_whole = page.entries.iter().all(|entry| !entry.body.is_empty());
        is_whole.then_some(page)
    }

    /// The same for readers that need no bodies: those of large events are left out.
    pub(crate) fn recent_kinds(&self, after: Seq, limit: usize) -> Option<LogPage> {
        let tail = self.tail();
        let head = tail.version?.head;
        if after >= head {
            return Some(LogPage { entries: Vec::new(), closed: tail.closed });
        }
        let first = tail.entries.front()?.seq;
        if after + 1 < first {
            return None;
        }
        let skip = usize::try_from(after + 1 - first).ok()?;
        let entries: Vec<Entry> = tail.entries.iter().skip(skip).take(limit).cloned().collect();
        let reached = entries.last().is_some_and(|last| last.seq == head);
        Some(LogPage { entries, closed: tail.closed && reached })
    }

    /// True if the caller has sent a message after this event that no turn has read.
    pub(crate) fn is_answered(&self, after: Seq) -> bool {
        self.tail().unread > after
    }

    /// True if the task has ended, as far as this process knows.
    pub(crate) fn is_closed(&self) -> bool {
        self.tail().closed
    }

    /// The snapshot of the task after this event, if it is in memory.
    pub(crate) fn snapshot(&self, head: Seq) -> Option<Snapshot> {
        self.tail().snapshot.clone().filter(|snapshot| snapshot.seq == head)
    }

    /// A receiver that is woken by every publish from now on.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.waker.subscribe()
    }

    /// Registers the running turn.
    pub(crate) fn started(&self, stopper: Stopper, claim: TurnClaim) {
        *self.running() = Some(RunningTurn { stopper, claim });
    }

    /// Removes the turn that ended, unless the next one is already registered.
    pub(crate) fn finished(&self, ended: &Stopper) {
        let mut running = self.running();
        let known = running.as_ref().map(|turn| &turn.stopper.metadata);
        if known.is_some_and(|known| Arc::ptr_eq(known, &ended.metadata)) {
            *running = None;
        }
    }

    /// Stops the running turn. Returns false if there is none.
    pub(crate) fn stop(&self, metadata: Option<Metadata>) -> bool {
        let running = self.running();
        if let Some(turn) = &*running {
            turn.stopper.stop(metadata, StopReason::Cancelled);
        }
        running.is_some()
    }

    /// Stops the running turn if another member ended the task or took over its claim.
    pub(crate) fn stop_unless_current(&self, metadata: Option<Metadata>) {
        let (closed, version) = {
            let tail = self.tail();
            (tail.closed, tail.version)
        };
        if let Some(turn) = &*self.running()
            && (closed || version.is_some_and(|version| version.epoch != turn.claim.epoch))
        {
            let reason = if closed { StopReason::Cancelled } else { StopReason::Lost };
            turn.stopper.stop(metadata, reason);
        }
    }

    fn running(&self) -> MutexGuard<'_, Option<RunningTurn>> {
        self.running.lock().expect("nothing panics while it holds this lock")
    }

    fn tail(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().expect("nothing panics while it holds a tail")
    }
}
