//! The engine: everything a caller can do to a task.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use bytes::Bytes;
use herald_protocol::{
    AgentName, Content, ContextId, Error, ErrorKind, Message, Operation, Part, Request, SendResult,
    Seq, Task, TaskId, TaskPage, TaskState, Timestamp,
    request::{CancelTask, GetTask, ListTasks, SendMessage, SubscribeToTask},
};
use serde_json::Value;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    agent::Profile,
    builder::Settings,
    caller::{Caller, Via},
    clock::Clock,
    feed::Bells,
    idempotency,
    live::{Live, Lives},
    log,
    post::Post,
    room::{Place, Room, SMALL, Share},
    rules::{self, Command, Record},
    store::{Holder, Key, ListQuery, Original, Page, Snapshot, Store, StoreError},
    subscription::{Subscription, Until},
    token, trace,
    write::{Refusal, Write},
};

/// Bytes of a stored task from which on it is decoded on a thread of its own.
const LARGE: usize = 256 << 10;

/// How much memory a request takes for each of its bytes, as it came, decoded, and as it is stored.
pub const WEIGHT: usize = 4;

/// How much memory a turn takes for each byte of its task: the task, its message, and what is
/// written.
const TURN_WEIGHT: u64 = 4;

/// What a call returns.
#[derive(Debug)]
pub enum Reply {
    /// The answer to a send.
    Sent(Sent),
    /// A task.
    Task(TaskJson),
    /// A page of tasks.
    Tasks(TaskPage),
    /// A stream.
    Stream(Subscription),
}

/// What a send is answered with.
#[derive(Debug)]
pub enum Sent {
    /// The task that the message led to.
    Task(TaskJson),
    /// A direct answer.
    Message(Message),
}

impl Sent {
    /// The 1.0 JSON of the answer.
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Task(task) => log::sent(&task.into_bytes()),
            Self::Message(message) => log::encode_message(&message),
        }
    }

    /// The answer itself.
    pub fn decode(self) -> Result<SendResult, Error> {
        match self {
            Self::Task(task) => task.decode().map(SendResult::Task),
            Self::Message(message) => Ok(SendResult::Message(message)),
        }
    }
}

/// A task on its way to its reader. Most want its 1.0 JSON, and often that is already there.
#[derive(Debug)]
pub struct TaskJson(Form);

#[derive(Debug)]
enum Form {
    Json(Bytes),
    /// The snapshot, if there is one, holds the same in pieces of JSON.
    Task(Arc<Task>, Option<Snapshot>),
}

impl TaskJson {
    /// A live task, as its caller asked for it.
    fn of(record: Record, live: &Live, history_length: Option<i32>) -> Self {
        match history_length {
            Some(_) => shown(record.task, history_length).into(),
            None => Self(Form::Task(record.task, live.snapshot(record.head))),
        }
    }

    /// The names of the task and its context, where they are known without a look at the JSON.
    pub fn names(&self) -> Option<(&TaskId, &ContextId)> {
        match &self.0 {
            Form::Json(_) => None,
            Form::Task(task, _) => Some((&task.id, &task.context_id)),
        }
    }

    /// The JSON.
    pub fn into_bytes(self) -> Bytes {
        match self.0 {
            Form::Json(json) => json,
            Form::Task(task, Some(snapshot)) => log::whole(&task.id, &task.context_id, &snapshot),
            Form::Task(task, None) => log::encode_whole(&shown(task, None)),
        }
    }

    /// The task itself.
    pub fn decode(self) -> Result<Task, Error> {
        match self.0 {
            Form::Json(json) => serde_json::from_slice(&json)
                .map_err(|fault| refuse(StoreError::Corrupt(fault.to_string()))),
            Form::Task(task, _) => Ok(shown(task, None)),
        }
    }
}

impl From<Task> for TaskJson {
    fn from(task: Task) -> Self {
        Self(Form::Task(Arc::new(task), None))
    }
}

/// A cheap handle; clones share one engine.
#[derive(Debug, Clone)]
pub struct Engine {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) posts: HashMap<AgentName, Arc<Post>>,
    pub(crate) default: AgentName,
    pub(crate) lives: Arc<Lives>,
    pub(crate) bells: Arc<Bells>,
    /// Where requests that are not small have their place until they are in the log.
    pub(crate) requests: Arc<Room>,
    /// Where turns over tasks that are not small have theirs.
    pub(crate) turns: Arc<Share>,
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    /// This life of this process.
    pub(crate) holder: Holder,
    pub(crate) work: TaskTracker,
    pub(crate) draining: CancellationToken,
    /// Signs page tokens.
    pub(crate) secret: [u8; 32],
}

/// A message that is in the log.
struct Accepted {
    live: Arc<Live>,
    /// Its place.
    seq: Seq,
    /// The task right after it, if it is small.
    first: Option<Arc<Task>>,
    /// Bytes of the task's log.
    bytes: u64,
    /// Whether it was there before.
    repeated: bool,
    /// Whether it will be answered directly.
    hidden: bool,
}

impl Engine {
    /// The agents, by name.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.inner.posts.values().map(|post| &post.profile)
    }

    /// One agent's profile; `None` names the default agent.
    pub fn profile(&self, name: Option<&AgentName>) -> Option<&Profile> {
        let name = name.unwrap_or(&self.inner.default);
        self.inner.posts.get(name).map(|post| &post.profile)
    }

    /// Proves that a call would be served now.
    pub async fn ready(&self) -> Result<(), Error> {
        if self.is_draining() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down"));
        }
        self.inner.store.probe().await.map_err(refuse)
    }

    /// Where a request that is not small has its place while it is read, decoded and stored: about
    /// [`WEIGHT`] times its size.
    pub fn requests(&self) -> &Arc<Room> {
        &self.inner.requests
    }

    /// Answers one call. Every binding ends here.
    pub async fn call(&self, caller: &Caller, via: &Via, request: Request) -> Result<Reply, Error> {
        self.call_placed(caller, via, request, None).await
    }

    /// Answers one call whose request has a place. It is given up as soon as the log has what the
    /// request carries, however long the answer takes.
    pub async fn call_placed(
        &self,
        caller: &Caller,
        via: &Via,
        request: Request,
        place: Option<Place>,
    ) -> Result<Reply, Error> {
        let operation = request.operation();
        caller.authorise(operation)?;
        self.check_extensions(via)?;
        match request {
            Request::SendMessage(send) => {
                self.send(caller, via, send, place).await.map(Reply::Sent)
            }
            Request::SendStreamingMessage(send) => {
                self.stream(caller, via, send).await.map(Reply::Stream)
            }
            Request::GetTask(get) => self.get(caller, via, get).await.map(Reply::Task),
            Request::ListTasks(list) => self.list(caller, via, list).await.map(Reply::Tasks),
            Request::CancelTask(cancel) => self.cancel(caller, via, cancel).await.map(Reply::Task),
            Request::SubscribeToTask(subscribe) => {
                self.subscribe(caller, via, subscribe).await.map(Reply::Stream)
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
        via: &Via,
        send: Box<SendMessage>,
        place: Option<Place>,
    ) -> Result<Sent, Error> {
        let history = send.configuration.history_length;
        let immediately = send.configuration.return_immediately;
        let accepted = self.accept(caller, via, send, Operation::SendMessage).await?;
        drop(place);
        // A direct answer cannot be returned before it is given.
        if !immediately || accepted.hidden {
            let wait = self.inner.settings.send_wait;
            let live = Arc::clone(&accepted.live);
            let mut events = Subscription::new(self.clone(), live, accepted.seq, Until::Settled);
            // Running out of time is an answer too: the task as it stands.
            tokio::time::timeout(wait, events.finish()).await.unwrap_or(Ok(()))?;
        }
        let record = self.record(&accepted.live).await?.ok_or_else(Error::task_not_found)?;
        if let Some(reply) = record.reply {
            return Ok(Sent::Message(reply));
        }
        if broke_protocol(&record.task) {
            let text = record.task.error().unwrap_or_default();
            return Err(Error::new(ErrorKind::InvalidAgentResponse, text)
                .with("taskId", record.task.id.as_str()));
        }
        Ok(Sent::Task(TaskJson::of(record, &accepted.live, history)))
    }

    async fn stream(
        &self,
        caller: &Caller,
        via: &Via,
        send: Box<SendMessage>,
    ) -> Result<Subscription, Error> {
        let history = send.configuration.history_length;
        let after = send.after.clone();
        let accepted = self.accept(caller, via, send, Operation::SendStreamingMessage).await?;
        let Accepted { live, seq, first, bytes, repeated, hidden } = accepted;
        // Only a send that was made before has a stream to go on with.
        if let Some(after) = after.filter(|after| repeated && after.seq >= seq) {
            if after.task.is_some_and(|task| task != live.key.task) {
                return Err(Error::field("Last-Event-ID", "belongs to another task"));
            }
            let record = self.record(&live).await?.ok_or_else(Error::task_not_found)?;
            check_cursor(&record, after.seq)?;
            return Ok(Subscription::new(self.clone(), live, after.seq, Until::TurnEnds));
        }
        let events = Subscription::new(self.clone(), Arc::clone(&live), seq, Until::TurnEnds);
        if hidden {
            return Ok(events.answered_directly());
        }
        Ok(match first {
            Some(first) => events.starting_with(&shown(first, history)),
            None => events.starting_later(bytes, history),
        })
    }

    async fn get(&self, caller: &Caller, via: &Via, get: GetTask) -> Result<TaskJson, Error> {
        let key = caller.key(get.id);
        if let Some(live) = self.inner.lives.peek(&key) {
            let record = self.record(&live).await?.filter(|record| record.is_shown(via));
            let record = record.ok_or_else(Error::task_not_found)?;
            return Ok(TaskJson::of(record, &live, get.history_length));
        }
        let stored = self.inner.store.load(&key).await.map_err(refuse)?;
        let stored =
            stored.filter(|stored| !stored.header.hidden && via.leads_to(&stored.header.agent));
        let stored = stored.ok_or_else(Error::task_not_found)?;
        if get.history_length.is_none()
            && let Some(snapshot) = stored.snapshot.as_ref().filter(|last| last.seq == stored.head)
        {
            let json = log::whole(&key.task, &stored.header.context, snapshot);
            return Ok(TaskJson(Form::Json(json)));
        }
        let record = log::restore(key.task, stored).map_err(refuse)?;
        Ok(shown(record.task, get.history_length).into())
    }

    async fn list(&self, caller: &Caller, via: &Via, list: ListTasks) -> Result<TaskPage, Error> {
        let page_size = u32::try_from(list.page_size.unwrap_or(50)).unwrap_or(50);
        let artifacts = list.include_artifacts.unwrap_or(false);
        let mut query = ListQuery {
            owner: caller.owner().clone(),
            agent: via.agent.clone(),
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
        for (id, stored) in listing.tasks {
            let record = log::restore(id, stored).map_err(refuse)?;
            let mut task = shown(record.task, list.history_length);
            task.artifacts = artifacts.then(|| task.artifacts.unwrap_or_default());
            tasks.push(task);
        }
        let next = listing.next.map(|place| token::encode(&self.inner.secret, &query, place));
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
        via: &Via,
        cancel: CancelTask,
    ) -> Result<TaskJson, Error> {
        let id = self.find(caller, via, cancel.id).await?.task.id.clone();
        let live = self.inner.lives.get(&caller.key(id.clone()));
        let metadata = cancel.metadata.clone();
        let commands = vec![Command::Cancel { metadata: cancel.metadata }];
        let write = Write { commands, ..Write::default() };
        let stopped = Arc::clone(&live);
        let written = self.shielded(live, write, move |_, _| stopped.stop(metadata)).await;
        let task = match written.map_err(Error::from) {
            Ok(written) => written.record.task,
            Err(error) if error.kind == ErrorKind::TaskNotCancelable => {
                let ended = self.find(caller, via, id).await?;
                let repeated = ended.state() == TaskState::Canceled;
                match cancel.return_ended || (repeated && self.inner.settings.repeat_cancel) {
                    true => ended.task,
                    false => return Err(error),
                }
            }
            Err(error) => return Err(error),
        };
        Ok(shown(task, None).into())
    }

    async fn subscribe(
        &self,
        caller: &Caller,
        via: &Via,
        subscribe: SubscribeToTask,
    ) -> Result<Subscription, Error> {
        let key = caller.key(subscribe.id.clone());
        // Live before the look, so that nothing falls between the snapshot and what follows it.
        let live = self.inner.lives.get(&key);
        let record = self.find(caller, via, subscribe.id).await?;
        self.check_streaming(&record.agent)?;
        if let Some(after) = subscribe.after {
            check_cursor(&record, after)?;
            return Ok(Subscription::new(self.clone(), live, after, Until::TaskEnds));
        }
        if !record.is_closed() {
            let events = Subscription::new(self.clone(), live, record.head, Until::TaskEnds);
            return Ok(match record.bytes <= SMALL as u64 {
                true => events.starting_with(&shown(record.task, None)),
                false => events.starting_later(record.bytes, None),
            });
        }
        if !subscribe.replay_finished {
            let text = "the task has ended; get it, or send Last-Event-ID to replay its events";
            let state = record.state().proto_name();
            return Err(Error::new(ErrorKind::UnsupportedOperation, text).with("state", state));
        }
        let events = Subscription::new(self.clone(), live, 1, Until::TaskEnds);
        Ok(events.starting_later(record.bytes, None))
    }

    /// Puts a message into the log and sees to it that somebody works on it.
    async fn accept(
        &self,
        caller: &Caller,
        via: &Via,
        send: Box<SendMessage>,
        operation: Operation,
    ) -> Result<Accepted, Error> {
        if self.is_draining() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down"));
        }
        let via = &*self.chosen(via, &send)?;
        let existing = self.continued(caller, via, &send).await?;
        let agent = match &existing {
            Some(record) => &record.agent,
            None => via.agent.as_ref().unwrap_or(&self.inner.default),
        };
        let post = self.post(agent)?;
        check_message(&post.profile, &send)?;
        if operation.is_streaming() {
            self.check_streaming(agent)?;
        }
        let dedup = idempotency::of(caller.owner(), agent, &send);
        if let (Some(_), Some(dedup)) = (&existing, &dedup) {
            // A continued task may have ended since, and its rules would refuse the retry.
            let original = self.inner.store.original(&dedup.key).await.map_err(refuse)?;
            if let Some(original) = original {
                return self.repeated(caller, original, &dedup.content, send.own_task).await;
            }
        }
        if let (Some(record), Some(context)) = (&existing, &send.message.context_id)
            && record.task.context_id != *context
        {
            let field = if send.task_only { "sessionId" } else { "message.contextId" };
            return Err(Error::field(field, "is not the context of the task"));
        }
        let content = dedup.as_ref().map(|dedup| dedup.content);
        let fresh = existing.is_none().then(|| self.fresh(&post, &send));
        let id = existing.as_ref().or(fresh.as_ref()).map(|record| record.task.id.clone());
        let live = self.inner.lives.get(&caller.key(id.unwrap_or_default()));
        let hidden = fresh.as_ref().is_some_and(|record| record.hidden);
        let before = existing.as_ref().map_or(0, |record| record.bytes);
        let bytes = before.saturating_add(size(&send.message) as u64);
        let mut commands = vec![Command::Receive {
            message: send.message,
            accepted_output_modes: send.configuration.accepted_output_modes,
            metadata: send.metadata,
            trace: send.trace,
        }];
        // A task with a turn under way is taken up again by that turn's own end.
        let idle = existing.as_ref().is_none_or(|record| !record.run.is_active());
        let slot = if idle { post.try_take() } else { None };
        // Without room it waits in the store, where it costs no memory.
        let slot = slot.and_then(|slot| Some(slot.with(self.try_place_turn(bytes)?)));
        if slot.is_some() {
            commands.push(Command::Begin(self.inner.holder));
        }
        let keep_first = operation.is_streaming();
        let write = Write { fence: None, commands, dedup, fresh, keep_first };
        let engine = self.clone();
        let started = Arc::clone(&live);
        let written = self
            .shielded(Arc::clone(&live), write, move |written, received| match slot {
                Some(slot) if written.claimed => {
                    engine.start(started, &post, slot, written.record.clone(), received);
                }
                Some(_) | None => post.wake(),
            })
            .await;
        match written {
            Ok(written) => {
                trace::found(&written.record.task, written.before + 1, existing.is_none());
                let (seq, bytes) = (written.before + 1, written.record.bytes);
                Ok(Accepted { live, seq, first: written.first, bytes, repeated: false, hidden })
            }
            Err(Refusal::Duplicate(original)) => {
                let content = content.unwrap_or_default();
                self.repeated(caller, original, &content, send.own_task).await
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// A place for a turn over a task of so many bytes, if it needs one; `None` if there is none.
    fn try_place_turn(&self, bytes: u64) -> Option<Option<Place>> {
        match turn_size(bytes) {
            0 => Some(None),
            size => self.inner.turns.try_take(size).map(Some),
        }
    }

    /// The same, once there is one.
    pub(crate) async fn place_turn(&self, bytes: u64) -> Option<Place> {
        match turn_size(bytes) {
            0 => None,
            size => Some(self.inner.turns.take(size).await),
        }
    }

    /// The door of the agent that a send names, if it names one.
    fn chosen<'a>(&self, via: &'a Via, send: &SendMessage) -> Result<Cow<'a, Via>, Error> {
        let Some(agent) = &send.agent else { return Ok(Cow::Borrowed(via)) };
        if !via.leads_to(agent) || !self.inner.posts.contains_key(agent) {
            let mut known: Vec<_> =
                self.inner.posts.keys().filter(|name| via.leads_to(name)).collect();
            known.sort_unstable();
            let known: Vec<_> = known.into_iter().map(AgentName::as_str).collect();
            return Err(Error::field("handler", format!("must be one of: {}", known.join(", "))));
        }
        let chosen = Via { agent: Some(agent.clone()), ..via.clone() };
        self.check_extensions(&chosen)?;
        Ok(Cow::Owned(chosen))
    }

    /// The task a message continues: the one it names or, where its dialect infers it, the only one
    /// of its context that waits for input.
    async fn continued(
        &self,
        caller: &Caller,
        via: &Via,
        send: &SendMessage,
    ) -> Result<Option<Record>, Error> {
        if let Some(task) = &send.message.task_id {
            return self.find(caller, via, task.clone()).await.map(Some);
        }
        if let Some(task) = &send.own_task {
            let found = self.look(&caller.key(task.clone())).await?;
            return match found {
                Some(record) if !record.is_shown(via) => Err(taken()),
                Some(_) | None => Ok(found),
            };
        }
        let Some(context) = send.message.context_id.clone().filter(|_| send.infer_task) else {
            return Ok(None);
        };
        let query = ListQuery {
            owner: caller.owner().clone(),
            agent: via.agent.clone(),
            context: Some(context),
            state: Some(TaskState::InputRequired),
            since: None,
            after: None,
            limit: 2,
            artifacts: false,
        };
        let mut waiting = self.inner.store.list(query).await.map_err(refuse)?.tasks;
        let only = if waiting.len() == 1 { waiting.pop() } else { None };
        match only {
            Some((id, _)) => self.find(caller, via, id).await.map(Some),
            None => Ok(None),
        }
    }

    /// A send that was made before: its task, from its message on.
    async fn repeated(
        &self,
        caller: &Caller,
        original: Original,
        content: &[u8; 32],
        own: Option<TaskId>,
    ) -> Result<Accepted, Error> {
        if original.content != *content || own.is_some_and(|own| own != original.task) {
            let text = "this idempotency key or message id was used for other content";
            return Err(Error::new(ErrorKind::IdempotencyConflict, text));
        }
        let key = caller.key(original.task);
        let live = self.inner.lives.get(&key);
        let record = self.record(&live).await?.ok_or_else(Error::task_not_found)?;
        let hidden = record.hidden;
        trace::found(&record.task, original.seq, true);
        let (seq, bytes) = (original.seq, record.bytes);
        Ok(Accepted { live, seq, first: None, bytes, repeated: true, hidden })
    }

    fn fresh(&self, post: &Post, send: &SendMessage) -> Record {
        let id = send.own_task.clone();
        let id = id.unwrap_or_else(|| TaskId::new(uuid::Uuid::now_v7().to_string()));
        let context = send.message.context_id.clone();
        let context = context.unwrap_or_else(|| ContextId::new(uuid::Uuid::now_v7().to_string()));
        let hidden = !send.task_only && post.agent.answers_directly(&send.message);
        Record::new(id, context, post.profile.name.clone(), hidden, self.now())
    }

    /// One of the caller's tasks. A foreign one, a hidden one and one of another agent's endpoint
    /// are all not there.
    pub(crate) async fn find(
        &self,
        caller: &Caller,
        via: &Via,
        id: TaskId,
    ) -> Result<Record, Error> {
        let found = self.look(&caller.key(id)).await?;
        found.filter(|record| record.is_shown(via)).ok_or_else(Error::task_not_found)
    }

    /// A task by its full name, seen or not.
    pub(crate) async fn look(&self, key: &Key) -> Result<Option<Record>, Error> {
        match self.inner.lives.peek(key) {
            Some(live) => self.record(&live).await,
            None => self.stored(key).await,
        }
    }

    /// The record as it is now, from memory where it is there.
    pub(crate) async fn record(&self, live: &Live) -> Result<Option<Record>, Error> {
        let mut slot = live.record.lock().await;
        if let Some(record) = &*slot {
            return Ok(Some(record.clone()));
        }
        let stored = self.stored(&live.key).await?;
        if let Some(record) = &stored {
            live.keep(&mut slot, record.clone());
        }
        Ok(stored)
    }

    pub(crate) async fn stored(&self, key: &Key) -> Result<Option<Record>, Error> {
        let stored = self.inner.store.load(key).await.map_err(refuse)?;
        let Some(stored) = stored else { return Ok(None) };
        let id = key.task.clone();
        // To read much JSON takes long: the threads that serve callers have other things to do.
        let restored = if stored.size() < LARGE {
            log::restore(id, stored)
        } else {
            let work = tokio::task::spawn_blocking(move || log::restore(id, stored));
            work.await.map_err(|_| internal("a read was cut off"))?
        };
        restored.map(Some).map_err(refuse)
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
        let stored = self.inner.store.load(key).await.map_err(refuse)?;
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
                rules::apply(&mut record, log::decode(entry).map_err(refuse)?, 0);
            }
            // A long log takes a while, and others have something to do too.
            tokio::task::yield_now().await;
        }
        Ok(record.task)
    }

    pub(crate) async fn read(&self, key: &Key, after: Seq, limit: usize) -> Result<Page, Error> {
        self.inner.store.read(key, after, limit).await.map_err(refuse)
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    pub(crate) fn post(&self, name: &AgentName) -> Result<Arc<Post>, Error> {
        self.inner.posts.get(name).cloned().ok_or_else(|| {
            let text = "the agent of this task is no longer here";
            Error::new(ErrorKind::AgentUnavailable, text)
        })
    }

    pub(crate) fn check_streaming(&self, agent: &AgentName) -> Result<(), Error> {
        if self.inner.posts.get(agent).is_none_or(|post| post.profile.streaming) {
            return Ok(());
        }
        let text = "streaming is not supported by this agent";
        Err(Error::new(ErrorKind::StreamingNotSupported, text))
    }

    pub(crate) fn check_extensions(&self, via: &Via) -> Result<(), Error> {
        let Some(profile) = self.profile(via.agent.as_ref()) else { return Ok(()) };
        let missing = profile
            .extensions
            .iter()
            .find(|extension| extension.required && !via.extensions.contains(&extension.uri));
        let Some(extension) = missing else { return Ok(()) };
        let text = format!("this agent requires the extension {}", extension.uri);
        Err(Error::new(ErrorKind::ExtensionSupportRequired, text).with("uri", &extension.uri))
    }
}

impl Record {
    /// Whether the task can be seen through this door.
    fn is_shown(&self, via: &Via) -> bool {
        !self.hidden && via.leads_to(&self.agent)
    }
}

/// The task as a caller sees it: empty lists are left out, and the history is cut to length.
fn shown(task: Arc<Task>, history_length: Option<i32>) -> Task {
    let mut task = Arc::unwrap_or_clone(task);
    task.limit_history(history_length);
    task.history = task.history.filter(|history| !history.is_empty());
    task.artifacts = task.artifacts.filter(|artifacts| !artifacts.is_empty());
    task
}

/// A cursor must name an event that exists; one from the future would hide what comes before it.
fn check_cursor(record: &Record, after: Seq) -> Result<(), Error> {
    if after <= record.head {
        return Ok(());
    }
    Err(Error::field("Last-Event-ID", "names an event this task does not have"))
}

/// What the agent takes of a message's parts.
fn check_message(profile: &Profile, send: &SendMessage) -> Result<(), Error> {
    if send.configuration.task_push_notification_config.is_some() {
        return Err(no_push());
    }
    if let Some(key) = &send.idempotency_key
        && (key.is_empty() || key.len() > idempotency::MAX_KEY_BYTES)
    {
        let text = format!("must be 1 to {} bytes", idempotency::MAX_KEY_BYTES);
        return Err(Error::field("Idempotency-Key", text));
    }
    for part in &send.message.parts {
        let media_type = media_type(part);
        if !profile.takes(media_type) {
            let text = format!("content type {media_type:?} is not supported by this agent");
            let takes = profile.input_modes.join(", ");
            return Err(
                Error::new(ErrorKind::ContentTypeNotSupported, text).with("inputModes", takes)
            );
        }
    }
    Ok(())
}

/// About how many bytes a message takes.
fn size(message: &Message) -> usize {
    let parts = message.parts.iter().map(|part| match &part.content {
        Content::Text(text) | Content::Url(text) => text.len(),
        Content::Raw(bytes) => bytes.len(),
        Content::Data(value) => data_size(value),
    });
    parts.sum()
}

fn data_size(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 8,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(data_size).sum(),
        Value::Object(members) => {
            members.iter().map(|(name, value)| name.len() + data_size(value)).sum()
        }
    }
}

/// What a turn over a task of so many bytes takes up, or nothing if the task is small.
fn turn_size(bytes: u64) -> usize {
    match bytes <= SMALL as u64 {
        true => 0,
        false => usize::try_from(bytes.saturating_mul(TURN_WEIGHT)).unwrap_or(usize::MAX),
    }
}

fn media_type(part: &Part) -> &str {
    part.media_type.as_deref().unwrap_or(match part.content {
        Content::Text(_) => "text/plain",
        Content::Data(_) => "application/json",
        Content::Raw(_) | Content::Url(_) => "application/octet-stream",
    })
}

/// What a caller hears who names a new task like one that it has elsewhere.
pub(crate) fn taken() -> Error {
    Error::field("id", "is taken by a task that is not to be found here; choose another")
}

fn broke_protocol(task: &Task) -> bool {
    task.status.state == TaskState::Failed
        && crate::runner::failure_reason(task) == Some(crate::runner::BROKE_PROTOCOL)
}

fn no_push() -> Error {
    let text = "push notifications are not supported by this agent";
    Error::new(ErrorKind::PushNotificationNotSupported, text)
}

pub(crate) fn internal(cause: &str) -> Error {
    tracing::error!(cause, "internal error");
    Error::new(ErrorKind::Internal, "Internal error")
}

/// What a caller hears of the store's troubles; the cause goes to the log.
pub(crate) fn refuse(error: StoreError) -> Error {
    match error {
        StoreError::Unavailable(cause) => {
            // Whoever wrote or read has reported it, once.
            tracing::debug!(cause, "the store is unavailable");
            Error::new(
                ErrorKind::Unavailable,
                "tasks cannot be stored or read now; try again later",
            )
        }
        StoreError::Moved | StoreError::Fenced | StoreError::Duplicate(_) => {
            internal(&error.to_string())
        }
        StoreError::Corrupt(cause) => internal(&cause),
    }
}
