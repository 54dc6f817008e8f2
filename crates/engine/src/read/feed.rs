//! Feed: a reader of the events of all tasks that one caller sees, in the order of the commits.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use herald_protocol::{ArtifactId, Error, Operation, TaskId};

use crate::{
    budget::{Quota, Reservation, SMALL},
    caller::{AgentRoute, Caller, Validity},
    codec,
    core::Core,
    fault::refuse,
    read::subscription::Until,
    store::{FeedEntry, FeedPage, FeedQuery, Key, Kind, Position},
    wakers::FeedWaker,
};

/// Events taken from the store at once.
const PAGE: usize = 16;

/// The longest wait of a feed before it reads the store again. The cursor of an idle feed thus passes
/// the events of other callers, and a lost wake-up delays an event but does not lose it.
const CATCH_UP: Duration = Duration::from_secs(10);

/// The number of events up to which a feed catches up without the catch-up permit, so that a short
/// disconnect does not wait behind long catch-ups.
const FAR: Position = 1024;

/// One event of a caller's tasks.
#[derive(Debug)]
pub struct FeedItem {
    /// Its position among the events of all tasks.
    pub position: Position,
    /// The task it belongs to.
    pub task: TaskId,
    /// The 1.0 JSON of the item.
    pub body: Bytes,
    /// True if its task ends or waits for the caller with it.
    pub closing: bool,
    /// The reservation of its memory, if it is large and the reader has a quota. Keep it until the item
    /// is sent.
    pub reservation: Option<Reservation>,
}

/// A reader of all tasks of a caller.
#[derive(Debug)]
pub struct Feed {
    core: Arc<Core>,
    query: FeedQuery,
    cursor: Position,
    /// The last position when the feed began. Until then it catches up.
    end: Position,
    ready: VecDeque<FeedEntry>,
    /// The task of the last event.
    last: Option<Key>,
    /// The quota that large items count against.
    quota: Option<Arc<Quota>>,
    /// The validity of the reader's credential.
    validity: Validity,
    waker: FeedWaker,
}

impl Feed {
    /// Follows every task of the caller on this route, or only `tasks`: from now on, or from the event
    /// after a position that an earlier feed returned.
    pub(crate) async fn open(
        core: &Arc<Core>,
        caller: &Caller,
        route: &AgentRoute,
        tasks: Vec<TaskId>,
        after: Option<Position>,
    ) -> Result<Self, Error> {
        caller.authorise(Operation::SubscribeToTask, route)?;
        core.check_extensions(route)?;
        if let Some(agent) = &route.agent {
            core.check_streaming(agent)?;
        }
        for task in &tasks {
            let key = core.locate(caller, task.clone()).await?;
            core.find(caller, route, &key).await?;
        }
        let (scope, agent) = (caller.scope(), caller.listed_agent(route)?);
        let waker = core.wakers.subscribe(scope.clone());
        let mut query = FeedQuery { scope, agent, tasks, after: None, limit: PAGE };
        let head = core.store.feed(&query).await.map_err(refuse)?.reached;
        if after.is_some_and(|after| after > head) {
            let text = "names an event that has not happened yet";
            return Err(Error::field("Last-Event-ID", text));
        }
        let cursor = after.unwrap_or(head);
        query.after = Some(cursor);
        let (ready, quota) = (VecDeque::new(), None);
        let (core, validity) = (Arc::clone(core), caller.identity().validity.clone());
        let last = None;
        Ok(Self { core, query, cursor, end: head, ready, last, quota, validity, waker })
    }

    /// Counts large items against this quota. The reader waits while it is exhausted, and holds no item
    /// meanwhile.
    #[must_use]
    pub fn within(mut self, quota: Arc<Quota>) -> Self {
        self.quota = Some(quota);
        self
    }

    /// The position of the last event that was returned or skipped.
    pub fn position(&self) -> Position {
        self.cursor
    }

    /// The ids of the artifacts of the last event's task, in their order, which never changes. Empty
    /// for a removed task.
    pub async fn artifacts(&self) -> Result<Vec<ArtifactId>, Error> {
        let Some(key) = &self.last else { return Ok(Vec::new()) };
        let found = self.core.find_any(key).await?;
        let artifacts = found.iter().flat_map(|record| record.task.artifacts.iter().flatten());
        Ok(artifacts.map(|artifact| artifact.artifact_id.clone()).collect())
    }

    /// The next event, or `None` once the engine shuts down.
    ///
    /// Cancel safe: the next call continues where a dropped one was.
    pub async fn next(&mut self) -> Result<Option<FeedItem>, Error> {
        self.validity.clone().within(self.read_next()).await
    }

    async fn read_next(&mut self) -> Result<Option<FeedItem>, Error> {
        let mut reservation = None;
        loop {
            let size = self.ready.front().map_or(0, |entry| entry.entry.body.len());
            if size > SMALL
                && reservation.is_none()
                && let Some(quota) = &self.quota
            {
                reservation = quota.try_reserve(size);
                if reservation.is_none() {
                    // The entries are dropped during the wait and read again after it.
                    self.ready.clear();
                    self.query.after = Some(self.cursor);
                    reservation = Some(quota.reserve(size).await);
                }
            }
            if let Some(entry) = self.ready.pop_front() {
                self.cursor = entry.position;
                let (position, task) = (entry.position, entry.key.task.clone());
                self.last = Some(entry.key.clone());
                match self.item(entry) {
                    Ok(Some(item)) => return Ok(Some(FeedItem { reservation, ..item })),
                    Ok(None) => continue,
                    // Skipped, because otherwise no feed could ever get past it.
                    Err(error) => {
                        tracing::error!(position, %task, %error, "an event cannot be read and is skipped");
                        continue;
                    }
                }
            }
            // Before the read, never after: a wake-up between the two must not be lost.
            self.waker.changes.borrow_and_update();
            let before = self.query.after;
            let page = self.step().await?;
            self.query.after = Some(page.reached);
            if !page.entries.is_empty() {
                self.ready = page.entries.into();
                continue;
            }
            self.cursor = page.reached;
            if before != self.query.after {
                // The step passed events of other callers, and more of them may follow.
                tokio::task::yield_now().await;
                continue;
            }
            if self.core.is_draining() {
                return Ok(None);
            }
            // The sender lives as long as the engine, and this feed holds the engine.
            let _ = tokio::time::timeout(CATCH_UP, self.waker.changes.changed()).await;
        }
    }

    /// Reads the next page. Feeds that are far behind do so one at a time, because a catch-up is long
    /// and must leave most of the store's reader threads to other calls.
    async fn step(&self) -> Result<FeedPage, Error> {
        let Core { store, catch_up, .. } = &*self.core;
        let behind = self.end.saturating_sub(self.query.after.unwrap_or(self.end));
        let _permit = if behind > FAR {
            Some(catch_up.acquire().await.expect("the semaphore is never closed"))
        } else {
            None
        };
        store.feed(&self.query).await.map_err(refuse)
    }

    /// The item of an event; `None` if its agent does not support streaming.
    fn item(&self, found: FeedEntry) -> Result<Option<FeedItem>, Error> {
        let FeedEntry { position, key: Key { task, .. }, agent, entry } = found;
        if self.core.check_streaming(&agent).is_err() {
            return Ok(None);
        }
        let closing = match entry.kind {
            Kind::Status(state) => Until::TurnEnds.stops_at(state),
            Kind::Received(_) | Kind::Interim(_) | Kind::Artifact | Kind::Reply => false,
        };
        let body = match entry.kind {
            Kind::Received(_) => codec::received_as_status(&task, &entry).map_err(refuse)?,
            Kind::Status(_) | Kind::Interim(_) | Kind::Artifact => entry.body,
            // Only the hidden log of a direct answer has this kind.
            Kind::Reply => return Ok(None),
        };
        Ok(Some(FeedItem { position, task, body, closing, reservation: None }))
    }
}
