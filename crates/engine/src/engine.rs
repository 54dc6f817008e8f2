//! Engine handle: the operations of callers on tasks.

use std::{collections::HashMap, sync::Arc};

use herald_protocol::{
    AgentName, Error, ErrorKind, Operation, Request, Seq, Task, TaskId, TaskPage, TaskState,
    Timestamp,
    request::{CancelTask, GetTask, ListTasks, SendMessage, SubscribeToTask},
};
use tokio::sync::{OnceCell, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    accept::Accepted,
    agent::Profile,
    agent_runtime::AgentRuntime,
    answer::{Form, Reply, Sent, TaskJson, shown},
    budget::{MemoryBudget, Quota, Reservation, SMALL},
    builder::Settings,
    cache::{CachedTask, TaskCache},
    caller::{AgentRoute, Caller},
    clock::Clock,
    codec,
    feed::OwnerWakers,
    rules::{self, Command, Record},
    store::{Actor, Key, ListQuery, MemberId, MemberKind, Page, Scope, Store, StoreError, Stored},
    subscription::{Subscription, Until},
    token,
    write::{Write, Written},
};

/// Bytes of a stored task from which on it is decoded on a thread of its own.
const LARGE: usize = 256 << 10;

/// Memory that reading a stored task takes for each of its bytes: as stored, decoded, and as an answer.
pub const BYTES_PER_READ_BYTE: u64 = 3;

/// A cheap handle; clones share one engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) agents: HashMap<AgentName, Arc<AgentRuntime>>,
    /// The agent of requests that name none.
    pub(crate) default: Arc<AgentRuntime>,
    pub(crate) cache: Arc<TaskCache>,
    pub(crate) wakers: Arc<OwnerWakers>,
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
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// The id of this process, new at every start.
    pub(crate) holder: MemberId,
    /// Set once this process has joined the members of the store.
    pub(crate) joined: OnceCell<()>,
    pub(crate) work: TaskTracker,
    pub(crate) draining: CancellationToken,
    /// Signs page tokens.
    pub(crate) secret: [u8; 32],
}

impl Engine {
    /// The agents, by name.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.inner.agents.values().map(|runtime| &runtime.profile)
    }

    /// One agent's profile; `None` names the default agent.
    pub fn profile(&self, name: Option<&AgentName>) -> Option<&Profile> {
        match name {
            Some(name) => self.inner.agents.get(name).map(|runtime| &runtime.profile),
            None => Some(&self.inner.default.profile),
        }
    }

    /// Checks that a call would be served now.
    pub async fn ready(&self) -> Result<(), Error> {
        if self.is_draining() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down"));
        }
        self.inner.store.probe().await.map_err(refuse)
    }

    /// The memory budget of requests while they are read, decoded and stored: each reserves
    /// [`budget::BYTES_PER_REQUEST_BYTE`](crate::budget::BYTES_PER_REQUEST_BYTE) times its size.
    pub fn requests(&self) -> &Arc<MemoryBudget> {
        &self.inner.requests
    }

    /// Answers one call. Every binding ends here.
    pub async fn call(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        request: Request,
    ) -> Result<Reply, Error> {
        self.call_with_reservation(caller, route, request, None).await
    }

    /// Answers one call whose request has a reservation. The reservation is returned as soon as the
    /// request is stored, however long the answer takes.
    pub async fn call_with_reservation(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        request: Request,
        reservation: Option<Reservation>,
    ) -> Result<Reply, Error> {
        let operation = request.operation();
        caller.authorise(operation)?;
        self.check_extensions(route)?;
        match request {
            Request::SendMessage(send) => {
                self.send(caller, route, send, reservation).await.map(Reply::Sent)
            }
            Request::SendStreamingMessage(send) => {
                self.stream(caller, route, send).await.map(Reply::Stream)
            }
            Request::GetTask(get) => self.get(caller, route, get).await.map(Reply::Task),
            Request::ListTasks(list) => self.list(caller, route, list).await.map(Reply::Tasks),
            Request::CancelTask(cancel) => {
                self.cancel(caller, route, cancel).await.map(Reply::Task)
            }
            Request::SubscribeToTask(subscribe) => {
                self.subscribe(caller, route, subscribe).await.map(Reply::Stream)
            }
            Request::CreateTaskPushNotificationConfig(_)
            | Request::GetTaskPushNotificationConfig(_)
            | Request::ListTaskPushNotificationConfigs(_)
            | Request::DeleteTaskPushNotificationConfig(_) => Err(no_push()),
            Request::GetExtendedAgentCard(_) => {
                Err(Error::new(ErrorKind::UnsupportedOperation, "this agent has no extended card"))
            }
        }
    }

    async fn send(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        send: Box<SendMessage>,
        reservation: Option<Reservation>,
    ) -> Result<Sent, Error> {
        let history = send.configuration.history_length;
        let immediately = send.configuration.return_immediately;
        let accepted = Box::pin(self.accept(caller, route, send, Operation::SendMessage)).await?;
        drop(reservation);
        // Without a task there is nothing to return before the direct answer.
        if !immediately || accepted.hidden {
            let wait = self.inner.settings.send_wait;
            let cached = Arc::clone(&accepted.cached);
            let mut events = Subscription::new(self.clone(), cached, accepted.seq, Until::Settled);
            // After the timeout the caller gets the task as it is.
            tokio::time::timeout(wait, events.finish()).await.unwrap_or(Ok(()))?;
        }
        let record = self.record(&accepted.cached).await?.ok_or_else(Error::task_not_found)?;
        if let Some(reply) = record.reply {
            return Ok(Sent::Message(reply));
        }
        if violates_protocol(&record.task) {
            let text = record.task.error().unwrap_or_default();
            return Err(Error::new(ErrorKind::InvalidAgentResponse, text)
                .with("taskId", record.task.id.as_str()));
        }
        Ok(Sent::Task(TaskJson::of(record, &accepted.cached, history)))
    }

    /// True if the task's agent waits for answers within its turn.
    async fn waits(&self, cached: &Arc<CachedTask>) -> Result<bool, Error> {
        let record = self.record(cached).await?.ok_or_else(Error::task_not_found)?;
        Ok(self.runtime(&record.agent)?.profile.waits)
    }

    async fn stream(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        send: Box<SendMessage>,
    ) -> Result<Subscription, Error> {
        let history = send.configuration.history_length;
        let after = send.after.clone();
        let is_old = send.infer_task;
        let operation = Operation::SendStreamingMessage;
        let accepted = Box::pin(self.accept(caller, route, send, operation)).await?;
        let Accepted { cached, seq, first, bytes, repeated, hidden } = accepted;
        let until =
            if is_old && self.waits(&cached).await? { Until::TaskEnds } else { Until::TurnEnds };
        // Only a repeated send has a stream to resume.
        if let Some(after) = after.filter(|after| repeated && after.seq >= seq) {
            if after.task.is_some_and(|task| task != cached.key.task) {
                return Err(Error::field("Last-Event-ID", "belongs to another task"));
            }
            let record = self.record(&cached).await?.ok_or_else(Error::task_not_found)?;
            check_cursor(&record, after.seq)?;
            return Ok(Subscription::new(self.clone(), cached, after.seq, until));
        }
        let events = Subscription::new(self.clone(), Arc::clone(&cached), seq, until);
        if hidden {
            return Ok(events.answered_directly());
        }
        Ok(match first {
            Some(first) => events.starting_with(&shown(first, history)),
            None => events.starting_later(bytes, history),
        })
    }

    async fn get(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        get: GetTask,
    ) -> Result<TaskJson, Error> {
        let key = caller.key(get.id);
        if let Some(cached) = self.inner.cache.peek(&key) {
            let record = self.record(&cached).await?.filter(|record| record.is_shown(route));
            let record = record.ok_or_else(Error::task_not_found)?;
            return Ok(TaskJson::of(record, &cached, get.history_length));
        }
        let (stored, _reservation) = self.load(&key).await?;
        let stored =
            stored.filter(|stored| !stored.header.hidden && route.includes(&stored.header.agent));
        let mut stored = stored.ok_or_else(Error::task_not_found)?;
        let whole =
            stored.snapshot.take_if(|last| get.history_length.is_none() && last.seq == stored.head);
        if let Some(snapshot) = whole {
            codec::check(&snapshot).map_err(|error| refuse(error.of(&key.task)))?;
            return Ok(TaskJson(Form::Stored(key.task, stored.header.context, snapshot)));
        }
        let record = codec::restore(key.task, stored).map_err(refuse)?;
        Ok(shown(record.task, get.history_length).into())
    }

    async fn list(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        list: ListTasks,
    ) -> Result<TaskPage, Error> {
        let page_size = u32::try_from(list.page_size.unwrap_or(50)).unwrap_or(50);
        let artifacts = list.include_artifacts.unwrap_or(false);
        let mut query = ListQuery {
            scope: Scope::Own(caller.owner().clone()),
            agent: route.agent.clone(),
            context: list.context_id.filter(|context| !context.is_empty()),
            state: (list.status != TaskState::Unspecified).then_some(list.status),
            since: list.status_timestamp_after,
            after: None,
            limit: page_size as usize,
            artifacts,
        };
        if let Some(token) = list.page_token.filter(|token| !token.is_empty()) {
            query.after = Some(token::decode(&self.inner.secret, &query, &token)?);
        }
        let listing = self.inner.store.list(query.clone()).await.map_err(refuse)?;
        let mut tasks = Vec::with_capacity(listing.tasks.len());
        for (Key { task: id, .. }, stored) in listing.tasks {
            let record = match codec::restore(id.clone(), stored) {
                Ok(record) => record,
                // An unreadable task must not hide the others. A get of it returns the error.
                Err(error) => {
                    tracing::error!(task = %id, %error, "a task cannot be read and is not listed");
                    continue;
                }
            };
            let mut task = shown(record.task, list.history_length);
            task.artifacts = artifacts.then(|| task.artifacts.unwrap_or_default());
            tasks.push(task);
        }
        let next = listing.next.map(|cursor| token::encode(&self.inner.secret, &query, cursor));
        Ok(TaskPage {
            tasks,
            next_page_token: next.unwrap_or_default(),
            page_size,
            total_size: listing.total,
        })
    }

    async fn cancel(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        cancel: CancelTask,
    ) -> Result<TaskJson, Error> {
        let id = self.find(caller, route, cancel.id).await?.task.id.clone();
        let cached = self.inner.cache.get(&caller.key(id.clone()));
        let metadata = cancel.metadata.clone();
        let commands = vec![Command::Cancel { metadata: cancel.metadata }];
        let write = Write { commands, cause: Actor::Caller.into(), ..Write::default() };
        let (engine, stopped) = (self.clone(), Arc::clone(&cached));
        let notify = move |written: &mut Written| {
            if !stopped.stop(metadata.clone()) {
                engine.notify_ended(&written.record, metadata);
            }
        };
        let written = self.commit_detached(cached, write, notify).await;
        let task = match written.map_err(Error::from) {
            Ok(written) => written.record.task,
            Err(error) if error.kind == ErrorKind::TaskNotCancelable => {
                let ended = self.find(caller, route, id).await?;
                let repeated = ended.state() == TaskState::Canceled;
                if cancel.return_ended || (repeated && self.inner.settings.repeat_cancel) {
                    ended.task
                } else {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        };
        Ok(shown(task, None).into())
    }

    async fn subscribe(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        subscribe: SubscribeToTask,
    ) -> Result<Subscription, Error> {
        let key = caller.key(subscribe.id.clone());
        // CachedTask before the look, so that nothing falls between the snapshot and what follows it.
        let cached = self.inner.cache.get(&key);
        let record = self.find(caller, route, subscribe.id).await?;
        self.check_streaming(&record.agent)?;
        if let Some(after) = subscribe.after {
            check_cursor(&record, after)?;
            return Ok(Subscription::new(self.clone(), cached, after, Until::TaskEnds));
        }
        if !record.is_closed() {
            let events = Subscription::new(self.clone(), cached, record.head, Until::TaskEnds);
            return Ok(if record.bytes <= SMALL as u64 {
                events.starting_with(&shown(record.task, None))
            } else {
                events.starting_later(record.bytes, None)
            });
        }
        if !subscribe.replay_finished {
            let text = "the task has ended; get it, or send Last-Event-ID to replay its events";
            let state = record.state().proto_name();
            return Err(Error::new(ErrorKind::UnsupportedOperation, text).with("state", state));
        }
        let events = Subscription::new(self.clone(), cached, 1, Until::TaskEnds);
        Ok(events.starting_later(record.bytes, None))
    }

    /// One of the caller's tasks. Tasks of others, hidden ones and those of other agents' endpoints are
    /// not found.
    pub(crate) async fn find(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        id: TaskId,
    ) -> Result<Record, Error> {
        let found = self.look(&caller.key(id)).await?;
        found.filter(|record| record.is_shown(route)).ok_or_else(Error::task_not_found)
    }

    /// A task by its key, also a hidden one.
    pub(crate) async fn look(&self, key: &Key) -> Result<Option<Record>, Error> {
        match self.inner.cache.peek(key) {
            Some(cached) => self.record(&cached).await,
            None => self.stored(key).await,
        }
    }

    /// The current record, from the cache if it is there.
    pub(crate) async fn record(&self, cached: &Arc<CachedTask>) -> Result<Option<Record>, Error> {
        let mut held = cached.record.lock().await;
        if let Some(record) = &*held {
            return Ok(Some(record.clone()));
        }
        let stored = self.stored(&cached.key).await?;
        if let Some(record) = &stored {
            cached.keep(&mut held, record.clone());
        }
        Ok(stored)
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
    async fn load(&self, key: &Key) -> Result<(Option<Stored>, Option<Reservation>), Error> {
        let bytes = match self.inner.store.load(key, None, LARGE as u64).await {
            Err(StoreError::TooLarge(bytes)) => bytes,
            read => return Ok((read.map_err(refuse)?.whole(), None)),
        };
        let needed = bytes.saturating_mul(BYTES_PER_READ_BYTE);
        let memory = self.inner.settings.memory;
        if needed > memory {
            let text = format!(
                "the task has {bytes} bytes, and reading it takes more memory than the server may \
                 use: raise [limits] memory above {needed} bytes"
            );
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let needed = usize::try_from(needed).unwrap_or(usize::MAX);
        let reservation = self.inner.reads.reserve(needed).await;
        let loaded = self.inner.store.load(key, None, u64::MAX).await.map_err(refuse)?;
        Ok((loaded.whole(), Some(reservation)))
    }

    pub(crate) async fn restored(&self, id: TaskId, stored: Stored) -> Result<Record, Error> {
        // A long parse would block a runtime thread.
        let restored = if stored.size() < LARGE {
            codec::restore(id, stored)
        } else {
            let work = tokio::task::spawn_blocking(move || codec::restore(id, stored));
            work.await.map_err(|_| internal("a read was cut off"))?
        };
        restored.map_err(refuse)
    }

    /// The task as its caller saw it after one of its events.
    pub(crate) async fn task_after(
        &self,
        key: &Key,
        seq: Seq,
        history_length: Option<i32>,
    ) -> Result<Task, Error> {
        let now = self.look(key).await?.filter(|record| record.head == seq);
        let task = match now {
            Some(record) => record.task,
            None => self.task_at(key, seq).await?,
        };
        Ok(shown(task, history_length))
    }

    /// The task as it stood after one of its events, rebuilt from its log.
    async fn task_at(&self, key: &Key, seq: Seq) -> Result<Arc<Task>, Error> {
        let (stored, _reservation) = self.load(key).await?;
        let header = stored.ok_or_else(Error::task_not_found)?.header;
        let id = key.task.clone();
        let mut record =
            Record::new(id, header.context, header.agent, header.hidden, header.created);
        while record.head < seq {
            let page = self.read(key, record.head, 256).await?;
            if page.entries.is_empty() {
                break;
            }
            for entry in page.entries.iter().filter(|entry| entry.seq <= seq) {
                rules::apply(&mut record, codec::decode(entry).map_err(refuse)?, 0);
            }
            // A long log must not block the runtime thread.
            tokio::task::yield_now().await;
        }
        Ok(record.task)
    }

    pub(crate) async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<Page, Error> {
        self.inner.store.read(key, after, limit).await.map_err(refuse)
    }

    /// Joins the members of the store, before the first write.
    pub(crate) async fn join(&self) -> Result<(), StoreError> {
        let Inner { store, agents, holder, joined, .. } = &*self.inner;
        let join = || async {
            store.join(*holder, MemberKind::Node, "herald").await?;
            let agents: Vec<AgentName> = agents.keys().cloned().collect();
            store.serve(*holder, &agents).await
        };
        joined.get_or_try_init(join).await.copied()
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    pub(crate) fn runtime(&self, name: &AgentName) -> Result<Arc<AgentRuntime>, Error> {
        self.inner.agents.get(name).cloned().ok_or_else(|| {
            let text = "the agent of this task is no longer here";
            Error::new(ErrorKind::AgentUnavailable, text)
        })
    }

    pub(crate) fn check_streaming(&self, agent: &AgentName) -> Result<(), Error> {
        if self.inner.agents.get(agent).is_none_or(|runtime| runtime.profile.streaming) {
            return Ok(());
        }
        let text = "streaming is not supported by this agent";
        Err(Error::new(ErrorKind::StreamingNotSupported, text))
    }

    pub(crate) fn check_extensions(&self, route: &AgentRoute) -> Result<(), Error> {
        let Some(profile) = self.profile(route.agent.as_ref()) else { return Ok(()) };
        let missing = profile
            .extensions
            .iter()
            .find(|extension| extension.required && !route.extensions.contains(&extension.uri));
        let Some(extension) = missing else { return Ok(()) };
        let text = format!("this agent requires the extension {}", extension.uri);
        Err(Error::new(ErrorKind::ExtensionSupportRequired, text).with("uri", &extension.uri))
    }
}

impl Record {
    /// True if the task is visible on this route.
    pub(crate) fn is_shown(&self, route: &AgentRoute) -> bool {
        !self.hidden && route.includes(&self.agent)
    }
}

/// Checks that a cursor names an existing event. A later one would hide the events before it.
fn check_cursor(record: &Record, after: Seq) -> Result<(), Error> {
    if after <= record.head {
        return Ok(());
    }
    Err(Error::field("Last-Event-ID", "names an event this task does not have"))
}

/// The error for a new task whose id already names a task of another agent.
pub(crate) fn taken() -> Error {
    Error::field("id", "already names a task of another agent; choose another id")
}

fn violates_protocol(task: &Task) -> bool {
    task.status.state == TaskState::Failed
        && crate::runner::failure_reason(task).as_deref() == Some(crate::runner::PROTOCOL_VIOLATION)
}

pub(crate) fn no_push() -> Error {
    let text = "push notifications are not supported by this agent";
    Error::new(ErrorKind::PushNotificationNotSupported, text)
}

pub(crate) fn internal(cause: &str) -> Error {
    tracing::error!(cause, "internal error");
    Error::new(ErrorKind::Internal, "Internal error")
}

/// The caller's error for a store error. The cause goes to the log only.
pub(crate) fn refuse(error: StoreError) -> Error {
    match error {
        StoreError::Unavailable(cause) => {
            // The store has logged the first error of an outage.
            tracing::debug!(cause, "the store is unavailable");
            Error::new(
                ErrorKind::Unavailable,
                "tasks cannot be stored or read now; try again later",
            )
        }
        StoreError::NotMember => {
            tracing::warn!("this server is no longer a member of its store");
            Error::new(ErrorKind::Unavailable, "this server has left its store; try again later")
        }
        StoreError::Conflict
        | StoreError::Fenced
        | StoreError::Locked
        | StoreError::Duplicate(_) => internal(&error.to_string()),
        StoreError::Corrupt(cause) => internal(&cause),
        StoreError::TooLarge(_) => internal(&error.to_string()),
    }
}
