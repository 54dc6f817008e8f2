//! Shared core of the engine: store, registry, task cache, budgets and settings, and the access to
//! the records of tasks.

use std::{future::Future, sync::Arc, time::Duration};

use herald_protocol::{AgentName, Error, ErrorKind, Seq, TaskId, TaskState, Timestamp};
use tokio::{
    sync::{Semaphore, watch},
    time::{Instant, sleep},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agents::{registry::Registry, runtime::AgentRuntime},
    audit::ActBuffer,
    budget::{MemoryBudget, Quota, Reservation},
    cache::{CachedTask, TaskCache},
    caller::{AgentRoute, Caller},
    clock::Clock,
    codec,
    directory::Directory,
    fault::{ambiguous, internal, refuse},
    keys::KeyUses,
    membership::Membership,
    observer::{Observer, TaskStep},
    rules::{self, Event, Received, Record},
    settings::Settings,
    store::{Key, Loaded, LogPage, Scope, Store, StoreError, Stored},
    wakers::FeedWakers,
    webhooks::shared::Webhooks,
};

/// Bytes of a stored task from which on it is decoded on a thread of its own.
const LARGE: usize = 256 << 10;

/// Memory that reading a stored task takes for each of its bytes: as stored, decoded, and as an answer.
pub const BYTES_PER_READ_BYTE: u64 = 3;

/// The number of owners that the error for an ambiguous id names.
pub(crate) const NAMED_OWNERS: usize = 8;

/// State that all parts of the engine share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) registry: Registry,
    pub(crate) cache: Arc<TaskCache>,
    pub(crate) wakers: Arc<FeedWakers>,
    /// Permit of feeds that catch up from far back: one page at a time.
    pub(crate) catch_up: Semaphore,
    /// Memory of requests until they are in the log.
    pub(crate) requests: Arc<MemoryBudget>,
    /// Memory of the tasks that turns work on.
    pub(crate) turns: Arc<Quota>,
    /// Memory of the earlier tasks that turns are given. A budget of its own, because a turn that
    /// holds a reservation of the other one waits for it.
    pub(crate) histories: Arc<Quota>,
    /// Memory of large stored tasks while they are read and decoded.
    pub(crate) reads: Arc<Quota>,
    /// Memory of large deliveries to webhooks.
    pub(crate) deliveries: DeliveryMemory,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// The membership of this engine in its store.
    pub(crate) membership: Membership,
    /// The start of the engine, for the age of leases.
    pub(crate) started: Instant,
    pub(crate) work: TaskTracker,
    /// Cancelled when the engine begins to shut down.
    pub(crate) draining: CancellationToken,
    /// Cancelled when it has left the members of the store.
    pub(crate) left: CancellationToken,
    /// Refusals and reads of administrators that wait for the audit log.
    pub(crate) acts: ActBuffer,
    /// Uses of API keys that wait to be stored.
    pub(crate) key_uses: KeyUses,
    /// Webhooks of the tasks.
    pub(crate) webhooks: Webhooks,
    /// Workers and remote agents.
    pub(crate) directory: Directory,
    /// Notified when an API key may have changed.
    pub(crate) key_changes: watch::Sender<()>,
    /// Signs page tokens.
    pub(crate) secret: [u8; 32],
}

/// Memory of large deliveries to webhooks, in two pools: receivers that hang do not hold that of those
/// that answer.
#[derive(Debug)]
pub(crate) struct DeliveryMemory {
    /// For receivers that are known to answer.
    pub(crate) proven: Arc<Quota>,
    /// For all others.
    pub(crate) unproven: Arc<Quota>,
}

impl Core {
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The time since which a worker must have been seen to be listed.
    pub(crate) fn alive_since(&self) -> Timestamp {
        let age = i64::try_from(self.settings.discovery.max_age.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_millis(self.now().as_millis().saturating_sub(age))
    }

    /// The memory of registrations, in bytes.
    pub(crate) fn registration_memory(&self) -> usize {
        usize::try_from(self.settings.memory / 16).unwrap_or(usize::MAX)
    }

    /// Tells the observer of a step, if there is one.
    pub(crate) fn observe(&self, key: &Key, step: TaskStep<'_>) {
        if let Some(observer) = &self.observer {
            observer.observe(key, step);
        }
    }

    /// True once the engine shuts down.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// The key of a task that the caller names. It is the caller's own, unless the caller sees its
    /// whole tenant and another principal of the tenant has the task.
    pub(crate) async fn locate(&self, caller: &Caller, task: TaskId) -> Result<Key, Error> {
        let own = caller.key(task);
        let scope = caller.scope();
        match &scope {
            Scope::Own(_) => return Ok(own),
            Scope::Tenant(_) | Scope::All => {}
        }
        let first = Scope::Own(own.owner.clone());
        if !self.store.owners_of(&first, &own.task, 1).await.map_err(refuse)?.is_empty() {
            return Ok(own);
        }
        // Only callers of older versions choose ids, so that two principals can have the same.
        let mut owners =
            self.store.owners_of(&scope, &own.task, NAMED_OWNERS).await.map_err(refuse)?;
        match (owners.pop(), owners.is_empty()) {
            (None, _) => Ok(own),
            (Some(owner), true) => Ok(Key { owner, ..own }),
            (Some(last), false) => {
                owners.push(last);
                Err(ambiguous(&owners))
            }
        }
    }

    /// A task that the caller sees. Hidden tasks and tasks of other agents' endpoints are not found.
    pub(crate) async fn find(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        key: &Key,
    ) -> Result<Record, Error> {
        let found = self.find_any(key).await?;
        found.filter(|record| record.is_shown(caller, route)).ok_or_else(Error::task_not_found)
    }

    /// A task by its key, including a hidden one.
    pub(crate) async fn find_any(&self, key: &Key) -> Result<Option<Record>, Error> {
        match self.cache.peek(key) {
            Some(cached) => self.record(&cached).await,
            None => self.stored(key).await,
        }
    }

    /// The current record, from the cache if it is there.
    pub(crate) async fn record(&self, cached: &Arc<CachedTask>) -> Result<Option<Record>, Error> {
        let mut held = cached.record.lock().await;
        if self.store.is_shared() && !cached.is_closed() {
            self.refresh_held(cached, &mut held).await?;
        }
        if let Some(record) = &*held {
            return Ok(Some(record.clone()));
        }
        let stored = self.stored(&cached.key).await?;
        if let Some(record) = &stored {
            cached.keep(&mut held, record.clone());
        }
        Ok(stored)
    }

    /// Brings a cached task up to date with the writes of other members, and stops its turn here if
    /// one of them ended the task or took over the claim.
    pub(crate) async fn refresh(&self, cached: &Arc<CachedTask>) -> Result<(), Error> {
        let mut held = cached.record.lock().await;
        self.refresh_held(cached, &mut held).await
    }

    async fn refresh_held(
        &self,
        cached: &Arc<CachedTask>,
        held: &mut Option<Record>,
    ) -> Result<(), Error> {
        let known = held.as_ref().map(Record::version).or_else(|| cached.version());
        let Some(known) = known else {
            // The record is not cached; the readers read the store.
            cached.invalidate();
            return Ok(());
        };
        let (header, head, since) =
            match self.store.load(&cached.key, Some(known), LARGE as u64).await {
                Ok(Loaded::Same) => return Ok(()),
                Ok(Loaded::More { header, head, since }) => (header, head, since),
                // Removed, replaced, or far ahead: the next use reads the store.
                Ok(Loaded::Whole(_) | Loaded::Gone) | Err(StoreError::TooLarge(_)) => {
                    *held = None;
                    cached.invalidate();
                    return Ok(());
                }
                Err(error) => return Err(refuse(error)),
            };
        let mut cancel_metadata = None;
        let mut record = held.take().filter(|record| record.created == header.created);
        for entry in &since {
            let event = codec::decode(entry).map_err(refuse)?;
            if let Event::Status(status, metadata) = &event
                && status.state == TaskState::Canceled
            {
                cancel_metadata.clone_from(metadata);
            }
            if let Some(record) = &mut record {
                rules::apply(record, event, entry.body.len());
            }
        }
        cached.publish_foreign(since, &header, head);
        if let Some(mut record) = record {
            record.run = header.run;
            record.hidden = header.hidden;
            cached.keep(held, record);
        }
        cached.stop_unless_current(cancel_metadata);
        Ok(())
    }

    /// The record, with retries while the store is unavailable.
    pub(crate) async fn record_with_retries(
        &self,
        cached: &Arc<CachedTask>,
    ) -> Result<Option<Record>, Error> {
        self.retry_while_unavailable(|| self.record(cached), crate::fault::is_transient).await
    }

    pub(crate) async fn stored(&self, key: &Key) -> Result<Option<Record>, Error> {
        let (stored, _reservation) = self.load(key).await?;
        match stored {
            Some(stored) => self.restored(key.task.clone(), stored).await.map(Some),
            None => Ok(None),
        }
    }

    /// Reads a task from the store. A large one is read once its memory is reserved, and refused if it
    /// needs more than the whole budget: one task must not exhaust the memory of the server.
    pub(crate) async fn load(
        &self,
        key: &Key,
    ) -> Result<(Option<Stored>, Option<Reservation>), Error> {
        match self.store.load(key, None, LARGE as u64).await {
            // On the heap, because every read would otherwise be as large as this one.
            Err(StoreError::TooLarge(bytes)) => Box::pin(self.load_large(key, bytes)).await,
            read => Ok((read.map_err(refuse)?.whole(), None)),
        }
    }

    async fn load_large(
        &self,
        key: &Key,
        bytes: u64,
    ) -> Result<(Option<Stored>, Option<Reservation>), Error> {
        let needed = bytes.saturating_mul(BYTES_PER_READ_BYTE);
        if needed > self.settings.memory {
            let text = format!(
                "the task has {bytes} bytes, and reading it takes more memory than the server may \
                 use: raise [limits] memory above {needed} bytes"
            );
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        let reservation = self.reads.reserve(needed).await;
        let loaded = self.store.load(key, None, u64::MAX).await.map_err(refuse)?;
        Ok((loaded.whole(), Some(reservation)))
    }

    pub(crate) async fn restored(&self, id: TaskId, stored: Stored) -> Result<Record, Error> {
        // A long parse would block a runtime thread.
        let restored = if stored.size() < LARGE {
            codec::restore(id, stored)
        } else {
            let work = tokio::task::spawn_blocking(move || codec::restore(id, stored));
            work.await.map_err(|_| internal("a read was aborted"))?
        };
        restored.map_err(refuse)
    }

    pub(crate) async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<LogPage, Error> {
        self.store.read(key, after, limit).await.map_err(refuse)
    }

    /// The message that an event of the log holds.
    pub(crate) async fn message_at(&self, key: &Key, seq: Seq) -> Result<Received, Error> {
        let page = self.read(key, seq.saturating_sub(1), 1).await?;
        let entry = page.entries.first().ok_or_else(Error::task_not_found)?;
        match codec::decode(entry).map_err(refuse)? {
            Event::Received(received) => Ok(received),
            Event::Status(..) | Event::Interim(..) | Event::Artifact(_) | Event::Reply(_) => {
                Err(refuse(StoreError::Corrupt(format!("event {seq} is not a message"))))
            }
        }
    }

    pub(crate) fn runtime(&self, name: &AgentName) -> Result<Arc<AgentRuntime>, Error> {
        self.registry.get(name).ok_or_else(|| {
            let text = "the agent of this task is no longer here";
            Error::new(ErrorKind::AgentUnavailable, text)
        })
    }

    /// Refuses a stream of an agent that does not support it.
    pub(crate) fn check_streaming(&self, agent: &AgentName) -> Result<(), Error> {
        if self.registry.get(agent).is_none_or(|runtime| runtime.profile.streaming) {
            return Ok(());
        }
        let text = "streaming is not supported by this agent";
        Err(Error::new(ErrorKind::StreamingNotSupported, text))
    }

    /// Refuses a call that does not name an extension that the agent requires.
    pub(crate) fn check_extensions(&self, route: &AgentRoute) -> Result<(), Error> {
        let runtime = match &route.agent {
            Some(name) => self.registry.get(name),
            None => Some(self.registry.default_agent()),
        };
        let Some(runtime) = runtime else { return Ok(()) };
        let missing = runtime
            .profile
            .extensions
            .iter()
            .find(|extension| extension.required && !route.extensions.contains(&extension.uri));
        let Some(extension) = missing else { return Ok(()) };
        let text = format!("this agent requires the extension {}", extension.uri);
        Err(Error::new(ErrorKind::ExtensionSupportRequired, text).with("uri", &extension.uri))
    }

    /// Repeats an attempt with backoff while its error is transient, until the engine shuts down: a
    /// full disk must not lose the work of an agent.
    pub(crate) async fn retry_while_unavailable<T, E, F: Future<Output = Result<T, E>>>(
        &self,
        mut attempt: impl FnMut() -> F,
        is_transient: impl Fn(&E) -> bool,
    ) -> Result<T, E> {
        let mut wait = Duration::from_millis(50);
        loop {
            let error = match attempt().await {
                Err(error) if is_transient(&error) => error,
                done => return done,
            };
            tokio::select! {
                () = sleep(wait) => {}
                () = self.draining.cancelled() => return Err(error),
            }
            wait = (wait * 2).min(Duration::from_secs(5));
        }
    }
}

impl Record {
    /// True if the caller sees the task on this route.
    pub(crate) fn is_shown(&self, caller: &Caller, route: &AgentRoute) -> bool {
        !self.hidden && route.includes(&self.agent) && caller.may_use(&self.agent)
    }
}
