//! Acceptance of messages: finds or creates the task, detects repeated sends, and begins the turn.

use std::{borrow::Cow, sync::Arc};

use herald_protocol::{
    AgentName, Content, ContextId, Error, ErrorKind, Message, Operation, Part, Seq, Task, TaskId,
    TaskState, request::SendMessage,
};

use crate::{
    agent::Profile,
    agent_runtime::AgentRuntime,
    budget::Reservation,
    cache::CachedTask,
    caller::{AgentRoute, Caller},
    engine::{Engine, no_push, refuse, taken},
    idempotency,
    rules::{Command, Record},
    store::{Actor, ListQuery, Original, Scope},
    trace,
    write::{Refusal, Write},
};

/// Memory that a turn takes for each byte of its task: the task, its message, and the events and
/// snapshots that it writes.
const BYTES_PER_TASK_BYTE: u64 = 4;

/// A message that is in the log.
pub(crate) struct Accepted {
    pub(crate) cached: Arc<CachedTask>,
    /// Its sequence number.
    pub(crate) seq: Seq,
    /// The task right after it, if it is small.
    pub(crate) first: Option<Arc<Task>>,
    /// Bytes of the task's log.
    pub(crate) bytes: u64,
    /// True if it was sent before.
    pub(crate) repeated: bool,
    /// True if it will be answered directly.
    pub(crate) hidden: bool,
}

impl Engine {
    /// Stores a message and begins its turn, or leaves it to the dispatcher.
    pub(crate) async fn accept(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        send: Box<SendMessage>,
        operation: Operation,
    ) -> Result<Accepted, Error> {
        if self.is_draining() {
            return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down"));
        }
        let route = &*self.chosen_route(route, &send)?;
        // CachedTask before the look, so that the write need not read the task a second time.
        let named = send.message.task_id.as_ref().or(send.own_task.as_ref());
        let _named = named.map(|id| self.inner.cache.get(&caller.key(id.clone())));
        let existing = self.continued(caller, route, &send).await?;
        let agent = match &existing {
            Some(record) => &record.agent,
            None => route.agent.as_ref().unwrap_or(&self.inner.default.profile.name),
        };
        let runtime = self.runtime(agent)?;
        let is_answer = existing.as_ref().is_some_and(|record| record.state().is_interrupted());
        check_message(&runtime.profile, &send, is_answer)?;
        if operation.is_streaming() {
            self.check_streaming(agent)?;
        }
        let dedup = idempotency::of(caller.owner(), agent, &send);
        if let (Some(_), Some(dedup)) = (&existing, &dedup) {
            // Checked before the rules, which would refuse the retry if the task has ended since.
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
        let is_new = existing.is_none();
        let record = existing.unwrap_or_else(|| self.fresh(&runtime, &send));
        let cached = self.inner.cache.get(&caller.key(record.task.id.clone()));
        let hidden = is_new && record.hidden;
        let bytes = record.bytes.saturating_add(size(&send.message) as u64);
        // The ids are set here, so that the rules need not copy the message.
        let mut message = send.message;
        message.task_id = Some(record.task.id.clone());
        message.context_id = Some(record.task.context_id.clone());
        let mut commands = vec![Command::Receive {
            message: message.into(),
            accepted_output_modes: send.configuration.accepted_output_modes,
            metadata: send.metadata,
            trace: send.trace,
            living: self.inner.holder,
        }];
        // A task with a turn under way is taken up again by that turn's own end, and where turns have
        // an order only the dispatcher knows whose turn it is.
        let idle = is_new || record.is_free(self.inner.holder);
        let permit = if idle && !runtime.profile.serial { runtime.try_acquire() } else { None };
        // Without free memory it waits in the store.
        let permit = permit.and_then(|permit| {
            let reservation = self.inner.turns.try_reserve(turn_size(bytes))?;
            Some(permit.with_memory(reservation))
        });
        if permit.is_some() {
            commands.push(Command::Begin(self.inner.holder));
        }
        let keep_first = operation.is_streaming();
        // Moved into the write, because a second handle would force a copy of the task.
        let fresh = is_new.then_some(record);
        let cause = Actor::Caller.into();
        let write = Write { fence: None, commands, dedup, cause, fresh, keep_first };
        let engine = self.clone();
        let started = Arc::clone(&cached);
        let written = self
            .commit_detached(Arc::clone(&cached), write, move |written| match permit {
                Some(permit) if written.claimed => {
                    let (record, received) = (written.record.clone(), written.received.take());
                    engine.start(started, &runtime, permit, record, received);
                }
                Some(_) | None => runtime.wake(),
            })
            .await;
        match written {
            Ok(written) => {
                trace::found(&written.record.task, written.before + 1, is_new);
                let (seq, bytes) = (written.before + 1, written.record.bytes);
                Ok(Accepted { cached, seq, first: written.first, bytes, repeated: false, hidden })
            }
            Err(Refusal::Duplicate(original)) => {
                let content = content.unwrap_or_default();
                self.repeated(caller, original, &content, send.own_task).await
            }
            Err(refusal) => Err(refusal.into()),
        }
    }

    /// Reserves the memory of a turn over a task of so many bytes.
    pub(crate) async fn reserve_turn(&self, bytes: u64) -> Reservation {
        self.inner.turns.reserve(turn_size(bytes)).await
    }

    /// The route of the agent that a send names; without one, the route of the call.
    fn chosen_route<'a>(
        &self,
        route: &'a AgentRoute,
        send: &SendMessage,
    ) -> Result<Cow<'a, AgentRoute>, Error> {
        let Some(agent) = &send.agent else { return Ok(Cow::Borrowed(route)) };
        if !route.includes(agent) || !self.inner.agents.contains_key(agent) {
            let mut known: Vec<_> =
                self.inner.agents.keys().filter(|name| route.includes(name)).collect();
            known.sort_unstable();
            let known: Vec<_> = known.into_iter().map(AgentName::as_str).collect();
            return Err(Error::field("handler", format!("must be one of: {}", known.join(", "))));
        }
        let chosen = AgentRoute { agent: Some(agent.clone()), ..route.clone() };
        self.check_extensions(&chosen)?;
        Ok(Cow::Owned(chosen))
    }

    /// The task a message continues: the one it names or, where its dialect infers it, the only one
    /// of its context that waits for input.
    async fn continued(
        &self,
        caller: &Caller,
        route: &AgentRoute,
        send: &SendMessage,
    ) -> Result<Option<Record>, Error> {
        if let Some(task) = &send.message.task_id {
            return self.find(caller, route, task.clone()).await.map(Some);
        }
        if let Some(task) = &send.own_task {
            let found = self.look(&caller.key(task.clone())).await?;
            return match found {
                Some(record) if !record.is_shown(route) => Err(taken()),
                Some(_) | None => Ok(found),
            };
        }
        let Some(context) = send.message.context_id.clone().filter(|_| send.infer_task) else {
            return Ok(None);
        };
        let query = ListQuery {
            scope: Scope::Own(caller.owner().clone()),
            agent: route.agent.clone(),
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
            Some((key, _)) => self.find(caller, route, key.task).await.map(Some),
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
        let cached = self.inner.cache.get(&key);
        let record = self.record(&cached).await?.ok_or_else(Error::task_not_found)?;
        let hidden = record.hidden;
        trace::found(&record.task, original.seq, true);
        let (seq, bytes) = (original.seq, record.bytes);
        Ok(Accepted { cached, seq, first: None, bytes, repeated: true, hidden })
    }

    fn fresh(&self, runtime: &AgentRuntime, send: &SendMessage) -> Record {
        let id = send.own_task.clone();
        let id = id.unwrap_or_else(|| TaskId::new(uuid::Uuid::now_v7().to_string()));
        let context = send.message.context_id.clone();
        let context = context.unwrap_or_else(|| ContextId::new(uuid::Uuid::now_v7().to_string()));
        let hidden = !send.task_only && runtime.agent.answers_directly(&send.message);
        Record::new(id, context, runtime.profile.name.clone(), hidden, self.now())
    }
}

/// Checks a message against the agent's profile.
fn check_message(profile: &Profile, send: &SendMessage, is_answer: bool) -> Result<(), Error> {
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
        // An answer follows its question, not the profile: choices are answered with data.
        if is_answer && matches!(part.content, Content::Text(_) | Content::Data(_)) {
            continue;
        }
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

/// The approximate size of a message in bytes.
fn size(message: &Message) -> usize {
    let parts = message.parts.iter().map(|part| match &part.content {
        Content::Text(text) | Content::Url(text) => text.len(),
        Content::Raw(bytes) => bytes.len(),
        Content::Data(value) => value.as_str().len(),
    });
    parts.sum()
}

/// The memory of a turn over a task of so many bytes.
fn turn_size(bytes: u64) -> usize {
    usize::try_from(bytes.saturating_mul(BYTES_PER_TASK_BYTE)).unwrap_or(usize::MAX)
}

fn media_type(part: &Part) -> &str {
    part.media_type.as_deref().unwrap_or(match part.content {
        Content::Text(_) => "text/plain",
        Content::Data(_) => "application/json",
        Content::Raw(_) | Content::Url(_) => "application/octet-stream",
    })
}
