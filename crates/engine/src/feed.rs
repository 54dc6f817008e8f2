//! Readers of all tasks of a caller: one log made of all their logs, in the order of the commits.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use bytes::Bytes;
use herald_protocol::{ArtifactId, Error, Operation, TaskId};
use tokio::sync::watch;

use crate::{
    budget::{Quota, Reservation, SMALL},
    caller::{Caller, Via},
    engine::{Engine, Inner, refuse},
    log,
    store::{FeedEntry, FeedPage, FeedQuery, Key, Kind, Owner, Position},
    subscription::Until,
};

/// Events taken from the store at once.
const PAGE: usize = 16;

/// How often a reader for whom nothing happens moves past what happened to others, so that it is
/// not far behind when something does.
const CATCH_UP: Duration = Duration::from_secs(10);

/// How many events it may be behind without looking back: a follower that was away for a moment does
/// not stand in line.
const FAR: Position = 1024;

/// One event of a caller's tasks.
#[derive(Debug)]
pub struct FeedItem {
    /// Its place among all events.
    pub position: Position,
    /// The task it belongs to.
    pub task: TaskId,
    /// The 1.0 JSON of the item.
    pub body: Bytes,
    /// Whether its task ends or waits for the caller with it.
    pub closing: bool,
    /// Its place, if it is not small and there is a room for such items: to be kept for as long as
    /// it waits to be read.
    pub place: Option<Reservation>,
}

/// A reader of all tasks of a caller.
#[derive(Debug)]
pub struct Feed {
    engine: Engine,
    query: FeedQuery,
    cursor: Position,
    /// Where the end was when it began. Until there it looks back.
    end: Position,
    ready: VecDeque<FeedEntry>,
    /// Where items that are not small have their place.
    share: Option<Arc<Quota>>,
    ear: Ear,
}

/// Wakes those who follow the tasks of an owner. It carries no events: those are in the store.
#[derive(Debug, Default)]
pub(crate) struct Bells {
    owners: Mutex<HashMap<Owner, watch::Sender<()>>>,
}

/// Hears the bell of one owner.
#[derive(Debug)]
struct Ear {
    bells: Arc<Bells>,
    owner: Owner,
    bell: watch::Receiver<()>,
}

impl Engine {
    /// Follows every task of the caller behind this door, or only `tasks`: from now on, or with
    /// what came after a position that an earlier feed has shown.
    ///
    /// Tasks that retention has removed meanwhile are not shown; nothing else is left out.
    pub async fn follow(
        &self,
        caller: &Caller,
        via: &Via,
        tasks: Vec<TaskId>,
        after: Option<Position>,
    ) -> Result<Feed, Error> {
        caller.authorise(Operation::SubscribeToTask)?;
        self.check_extensions(via)?;
        if let Some(agent) = &via.agent {
            self.check_streaming(agent)?;
        }
        for task in &tasks {
            self.find(caller, via, task.clone()).await?;
        }
        let (owner, agent) = (caller.owner().clone(), via.agent.clone());
        let ear = self.inner.bells.listen(owner.clone());
        let mut query = FeedQuery { owner, agent, tasks, after: None, limit: PAGE };
        let head = self.inner.store.feed(&query).await.map_err(refuse)?.reached;
        if after.is_some_and(|after| after > head) {
            let text = "names an event that has not happened yet";
            return Err(Error::field("Last-Event-ID", text));
        }
        let cursor = after.unwrap_or(head);
        query.after = Some(cursor);
        let (ready, share) = (VecDeque::new(), None);
        Ok(Feed { engine: self.clone(), query, cursor, end: head, ready, share, ear })
    }
}

impl Feed {
    /// Gives items that are not small a place in this share, and waits for it where there is none.
    /// While it waits, nothing of them is held.
    #[must_use]
    pub fn within(mut self, share: Arc<Quota>) -> Self {
        self.share = Some(share);
        self
    }

    /// Everything up to here has been seen.
    pub fn position(&self) -> Position {
        self.cursor
    }

    /// The artifacts that one of the tasks has by now, in their order, which never changes. A task
    /// that is gone has none.
    pub async fn artifacts(&self, task: &TaskId) -> Result<Vec<ArtifactId>, Error> {
        let key = Key { owner: self.query.owner.clone(), task: task.clone() };
        let found = self.engine.look(&key).await?;
        let artifacts = found.iter().flat_map(|record| record.task.artifacts.iter().flatten());
        Ok(artifacts.map(|artifact| artifact.artifact_id.clone()).collect())
    }

    /// The next event, or `None` once the engine shuts down.
    ///
    /// Dropping the future loses nothing: the next call goes on where this one was.
    pub async fn next(&mut self) -> Result<Option<FeedItem>, Error> {
        let mut place = None;
        loop {
            let size = self.ready.front().map_or(0, |entry| entry.entry.body.len());
            if size > SMALL
                && place.is_none()
                && let Some(share) = &self.share
            {
                place = share.try_reserve(size);
                if place.is_none() {
                    // It is in the store, and is not held while it has no place.
                    self.ready.clear();
                    self.query.after = Some(self.cursor);
                    place = Some(share.reserve(size).await);
                }
            }
            if let Some(entry) = self.ready.pop_front() {
                self.cursor = entry.position;
                let (position, task) = (entry.position, entry.task.clone());
                match self.item(entry) {
                    Ok(Some(item)) => return Ok(Some(FeedItem { place, ..item })),
                    Ok(None) => continue,
                    // Nobody could ever pass it otherwise.
                    Err(error) => {
                        tracing::error!(position, %task, %error, "an event cannot be read and is left out");
                        continue;
                    }
                }
            }
            // Before the read, never after: a ring between the two must not be missed.
            self.ear.bell.borrow_and_update();
            let before = self.query.after;
            let page = self.step().await?;
            self.query.after = Some(page.reached);
            if !page.entries.is_empty() {
                self.ready = page.entries.into();
                continue;
            }
            self.cursor = page.reached;
            if before != self.query.after {
                // Others have had events, and there may be more of them to pass over.
                tokio::task::yield_now().await;
                continue;
            }
            if self.engine.is_draining() {
                return Ok(None);
            }
            // Only one who drops the engine could end the bell, and this is a handle to it.
            let _ = tokio::time::timeout(CATCH_UP, self.ear.bell.changed()).await;
        }
    }

    /// Looks on from where it is. Those who look back do so one at a time: it takes a while, and
    /// however many they are, most threads have to be left to everybody else.
    async fn step(&self) -> Result<FeedPage, Error> {
        let Inner { store, looking_back, .. } = &*self.engine.inner;
        let behind = self.end.saturating_sub(self.query.after.unwrap_or(self.end));
        let _turn = match behind > FAR {
            true => Some(looking_back.acquire().await.expect("the semaphore is never closed")),
            false => None,
        };
        store.feed(&self.query).await.map_err(refuse)
    }

    /// What a follower sees of an event; nothing, if its agent's tasks cannot be followed.
    fn item(&self, found: FeedEntry) -> Result<Option<FeedItem>, Error> {
        let FeedEntry { position, task, agent, entry } = found;
        if self.engine.check_streaming(&agent).is_err() {
            return Ok(None);
        }
        let closing = match entry.kind {
            Kind::Status(state) => Until::TurnEnds.stops_at(state),
            Kind::Received(_) | Kind::Artifact | Kind::Reply => false,
        };
        let body = match entry.kind {
            Kind::Received(_) => log::received_as_status(&task, &entry).map_err(refuse)?,
            Kind::Status(_) | Kind::Artifact => entry.body,
            // Only the hidden log of a direct answer has one.
            Kind::Reply => return Ok(None),
        };
        Ok(Some(FeedItem { position, task, body, closing, place: None }))
    }
}

impl Bells {
    fn listen(self: &Arc<Self>, owner: Owner) -> Ear {
        let bell =
            self.lock().entry(owner.clone()).or_insert_with(|| watch::Sender::new(())).subscribe();
        Ear { bells: Arc::clone(self), owner, bell }
    }

    /// Something happened to a task of this owner.
    pub(crate) fn ring(&self, owner: &Owner) {
        if let Some(bell) = self.lock().get(owner) {
            bell.send_replace(());
        }
    }

    /// Everybody is to look again.
    pub(crate) fn ring_all(&self) {
        for bell in self.lock().values() {
            bell.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Owner, watch::Sender<()>>> {
        self.owners.lock().expect("nothing panics while it holds the bells")
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        let mut owners = self.bells.lock();
        // This one is still counted.
        if owners.get(&self.owner).is_some_and(|bell| bell.receiver_count() <= 1) {
            owners.remove(&self.owner);
        }
    }
}
