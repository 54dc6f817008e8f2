//! Subscription: a reader of the log of one task. Blocking send, streaming, resume and replay differ
//! only in their first and last event.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use herald_protocol::{ArtifactId, Error, Seq, Task, TaskState};
use tokio::sync::watch;

use crate::{
    budget::{Quota, Reservation, SMALL},
    cache::CachedTask,
    caller::{Caller, Validity},
    codec,
    core::Core,
    fault::refuse,
    store::{Entry, Kind},
};

/// Entries taken from the log at once: enough to amortise a read, little enough to hold for a
/// reader that stalls.
const PAGE: usize = 16;

/// The event at which a reader stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// The turn has an outcome: the task ended or waits for its caller.
    Settled,
    /// The caller has to act: the task ended or needs input. A task that needs credentials does not
    /// stop the reader, because credentials arrive outside of the task.
    TurnEnds,
    /// The task ended.
    TaskEnds,
}

/// One item of a stream.
#[derive(Debug)]
pub struct Item {
    /// The sequence number of the event; for a leading snapshot, of the last event that it contains.
    pub seq: Seq,
    /// The 1.0 JSON of the item.
    pub body: Bytes,
    /// True if the stream ends with this item.
    pub closing: bool,
    /// The reservation of its memory, if it is large and the reader has a quota. Keep it until the item
    /// is sent.
    pub reservation: Option<Reservation>,
}

/// A reader of the log of one task.
#[derive(Debug)]
pub struct Subscription {
    core: Arc<Core>,
    cached: Arc<CachedTask>,
    waker: watch::Receiver<()>,
    cursor: Seq,
    until: Until,
    first: Option<First>,
    /// True if the agent declared a direct answer, so that the stream has not shown a task yet.
    direct: bool,
    ready: VecDeque<Entry>,
    /// The quota that large items count against.
    quota: Option<Arc<Quota>>,
    /// The validity of the reader's credential, if that can end.
    validity: Option<Validity>,
    /// True if the bodies of the entries are not needed.
    discards: bool,
    done: bool,
}

/// The snapshot at the cursor, which is sent before the first event.
#[derive(Debug)]
enum First {
    /// A small task, already encoded.
    Task(Bytes),
    /// A task of about this many bytes, which is read once they are reserved.
    Later { bytes: usize, history: Option<i32> },
}

impl Until {
    pub(crate) fn stops_at(self, state: TaskState) -> bool {
        match self {
            Self::Settled => state.is_terminal() || state.is_interrupted(),
            Self::TurnEnds => state.is_terminal() || state == TaskState::InputRequired,
            Self::TaskEnds => state.is_terminal(),
        }
    }
}

impl Subscription {
    /// Reads the events after `after`.
    pub(crate) fn new(core: Arc<Core>, cached: Arc<CachedTask>, after: Seq, until: Until) -> Self {
        let waker = cached.subscribe();
        let ready = VecDeque::new();
        Self {
            core,
            cached,
            waker,
            cursor: after,
            until,
            first: None,
            direct: false,
            ready,
            quota: None,
            validity: None,
            discards: false,
            done: false,
        }
    }

    /// Ends the stream with an error when the caller's credential ends.
    pub(crate) fn valid_for(mut self, caller: &Caller) -> Self {
        let validity = &caller.identity().validity;
        self.validity = validity.is_limited().then(|| validity.clone());
        self
    }

    /// Counts large items against this quota. The reader waits while it is exhausted, and holds no item
    /// meanwhile.
    #[must_use]
    pub fn within(mut self, quota: Arc<Quota>) -> Self {
        self.quota = Some(quota);
        self
    }

    /// Expects a direct answer instead of a task.
    pub(crate) fn answered_directly(mut self) -> Self {
        self.direct = true;
        self
    }

    /// Starts the stream with a snapshot of the task at the cursor.
    pub(crate) fn starting_with(mut self, task: &Task) -> Self {
        self.first = Some(First::Task(codec::encode_task(task)));
        self
    }

    /// As [`Subscription::starting_with`], for a task of about this many bytes, which is read when
    /// the first item is requested.
    pub(crate) fn starting_later(mut self, bytes: u64, history: Option<i32>) -> Self {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.first = Some(First::Later { bytes, history });
        self
    }

    /// The task that is followed.
    pub fn task_id(&self) -> &herald_protocol::TaskId {
        &self.cached.key.task
    }

    /// True if no event can follow. A stream that ends because the engine shuts down is not over: it can
    /// be resumed.
    pub fn is_over(&self) -> bool {
        self.done
    }

    /// The ids of the task's artifacts, in their order, which never changes.
    pub async fn artifacts(&self) -> Result<Vec<ArtifactId>, Error> {
        let record = self.core.record(&self.cached).await?.ok_or_else(Error::task_not_found)?;
        let artifacts = record.task.artifacts.iter().flatten();
        Ok(artifacts.map(|artifact| artifact.artifact_id.clone()).collect())
    }

    /// The sequence number of the next item. The numbers of further items follow without a gap.
    pub fn next_seq(&self) -> Seq {
        if self.first.is_some() { self.cursor } else { self.cursor + 1 }
    }

    /// The next item, or `None` once the stream is over.
    ///
    /// Cancel safe: the next call continues where a dropped one was.
    pub async fn next(&mut self) -> Result<Option<Item>, Error> {
        match self.validity.clone() {
            Some(validity) => validity.within(self.read_next()).await,
            None => self.read_next().await,
        }
    }

    async fn read_next(&mut self) -> Result<Option<Item>, Error> {
        if let Some(first) = &self.first {
            let (body, reservation) = match first {
                First::Task(body) => (body.clone(), None),
                First::Later { bytes, history } => {
                    let reservation = match self.quota_for(*bytes) {
                        Some(quota) => Some(quota.reserve(*bytes).await),
                        None => None,
                    };
                    let task = self.core.task_after(&self.cached.key, self.cursor, *history);
                    (codec::encode_task(&task.await?), reservation)
                }
            };
            self.first = None;
            return Ok(Some(Item { seq: self.cursor, body, closing: false, reservation }));
        }
        let reservation = self.admit().await?;
        let Some(entry) = self.next_entry().await? else { return Ok(None) };
        let body = match entry.kind {
            Kind::Received(_) => {
                codec::received_as_status(&self.cached.key.task, &entry).map_err(refuse)?
            }
            // The direct answer failed and became a task, which is the first item.
            Kind::Status(_) if std::mem::take(&mut self.direct) => {
                let record = self.core.record(&self.cached).await?;
                codec::encode_task(&record.ok_or_else(Error::task_not_found)?.task)
            }
            Kind::Status(_) | Kind::Interim(_) | Kind::Artifact | Kind::Reply => entry.body,
        };
        Ok(Some(Item { seq: entry.seq, body, closing: self.done, reservation }))
    }

    /// Waits for the next entry and for the reservation that it needs.
    async fn admit(&mut self) -> Result<Option<Reservation>, Error> {
        self.fill().await?;
        let size = self.ready.front().map_or(0, |entry| entry.body.len());
        let Some(quota) = self.quota_for(size) else { return Ok(None) };
        if let Some(reservation) = quota.try_reserve(size) {
            return Ok(Some(reservation));
        }
        // The entries are dropped during the wait and read again after it.
        self.ready.clear();
        Ok(Some(quota.reserve(size).await))
    }

    /// The quota for an item of this many bytes; `None` if it is small or there is no quota.
    fn quota_for(&self, bytes: usize) -> Option<Arc<Quota>> {
        if bytes > SMALL { self.quota.clone() } else { None }
    }

    /// Waits for the end and discards the events.
    pub(crate) async fn finish(&mut self) -> Result<(), Error> {
        self.first = None;
        self.discards = true;
        while self.next_entry().await?.is_some() {}
        Ok(())
    }

    async fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        self.fill().await?;
        let Some(entry) = self.ready.pop_front() else { return Ok(None) };
        self.cursor = entry.seq;
        self.done = match entry.kind {
            Kind::Status(state) => self.until.stops_at(state),
            Kind::Reply => true,
            Kind::Received(_) | Kind::Interim(_) | Kind::Artifact => false,
        };
        if self.done {
            self.ready.clear();
        }
        Ok(Some(entry))
    }

    /// Waits for the next entry. Returns false at the end.
    async fn fill(&mut self) -> Result<bool, Error> {
        loop {
            if self.done {
                return Ok(false);
            }
            if !self.ready.is_empty() {
                return Ok(true);
            }
            // Before the read, never after: a wake-up between the two must not be lost.
            self.waker.borrow_and_update();
            let recent = if self.discards {
                self.cached.recent_kinds(self.cursor, PAGE)
            } else {
                self.cached.recent(self.cursor, PAGE)
            };
            let page = match recent {
                Some(page) => page,
                None => self.core.read(&self.cached.key, self.cursor, PAGE).await?,
            };
            if page.entries.is_empty() {
                if page.closed {
                    self.done = true;
                    return Ok(false);
                }
                if self.core.is_draining() {
                    return Ok(false);
                }
                // The sender lives as long as this reader, so the wait cannot fail.
                let _ = self.waker.changed().await;
                continue;
            }
            self.ready = page.entries.into();
        }
    }
}
