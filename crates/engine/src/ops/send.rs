//! SendMessage and SendStreamingMessage: find or create the task, detect repeated sends, begin the turn.

use std::sync::Arc;

use herald_protocol::{
    Content, ContextId, Error, ErrorKind, Message, Operation, Part, Seq, Task, TaskId, TaskState,
    request::{Cursor, SendMessage},
};

use crate::{
    agents::profile::Profile,
    agents::runtime::AgentRuntime,
    cache::CachedTask,
    caller::{AgentRoute, Caller, Scopes},
    commit::{CommitError, Write},
    core::Core,
    fault::{refuse, shutting_down, taken},
    idempotency,
    ops::{
        push,
        reply::{Sent, TaskJson},
        routing::{check_available, chosen_route},
        subscribe::check_cursor,
    },
    read::{
        subscription::{Subscription, Until},
        view::shown,
    },
    rules::{Command, Record, named_question},
    store::{Demands, Key, ListQuery, Original, Owner, Scope},
    trace,
    turns::{admission::claim_command, claim::turn_size, failure, supervisor::Supervisor},
    workers::{demands, pool::WorkerPlace},
};

/// A value that is dropped once a message is stored or refused.
pub type StoreGuard = Box<dyn Send + Sync>;

/// A message that is in the log.
pub(crate) struct Accepted {
    cached: Arc<CachedTask>,
    /// Its sequence number.
    seq: Seq,
    /// The task right after the message, if the task is small.
    first: Option<Arc<Task>>,
    /// The bytes of the task's log.
    bytes: u64,
    /// True if an earlier send had the same idempotency key.
    repeated: bool,
    /// True if the agent will answer directly.
    hidden: bool,
}

/// The form in which the caller wants the answer to a send.
#[derive(Debug)]
pub(crate) struct Wish {
    history_length: Option<i32>,
    /// True to return before the outcome of the turn.
    immediately: bool,
    /// The cursor of a stream that is resumed.
    after: Option<Cursor>,
    /// True for protocol versions before 1.0.
    is_old: bool,
}

impl Wish {
    pub(crate) fn of(send: &SendMessage) -> Self {
        Self {
            history_length: send.configuration.history_length,
            immediately: send.configuration.return_immediately,
            after: send.after.clone(),
            is_old: send.infer_task,
        }
    }
}

impl Accepted {
    /// Waits for the outcome of the turn, unless the caller asked not to.
    pub(crate) async fn outcome(self, core: &Arc<Core>, wish: Wish) -> Result<Sent, Error> {
        let Self { cached, seq, hidden, .. } = self;
        // Without a task there is nothing to return before the direct answer.
        if !wish.immediately || hidden {
            let wait = core.settings.send_wait;
            let (core, cached) = (Arc::clone(core), Arc::clone(&cached));
            let mut events = Subscription::new(core, cached, seq, Until::Settled);
            // After the timeout the caller gets the task as it is.
            tokio::time::timeout(wait, events.finish()).await.unwrap_or(Ok(()))?;
        }
        let record = core.record(&cached).await?.ok_or_else(Error::task_not_found)?;
        if let Some(reply) = record.reply {
            return Ok(Sent::Message(reply));
        }
        match refusal(&record, seq, !wish.immediately) {
            Some(error) => Err(error),
            None => Ok(Sent::Task(TaskJson::of(record, &cached, wish.history_length))),
        }
    }

    /// The stream of the events that follow.
    pub(crate) async fn stream(self, core: &Arc<Core>, wish: Wish) -> Result<Subscription, Error> {
        let Self { cached, seq, first, bytes, repeated, hidden } = self;
        let until = if wish.is_old && waits(core, &cached).await? {
            Until::TaskEnds
        } else {
            Until::TurnEnds
        };
        // Only a repeated send has a stream to resume.
        if let Some(after) = wish.after.filter(|after| repeated && after.seq >= seq) {
            if after.task.is_some_and(|task| task != cached.key.task) {
                return Err(Error::field("Last-Event-ID", "belongs to another task"));
            }
            let record = core.record(&cached).await?.ok_or_else(Error::task_not_found)?;
            check_cursor(&record, after.seq)?;
            return Ok(Subscription::new(Arc::clone(core), cached, after.seq, until));
        }
        let events = Subscription::new(Arc::clone(core), cached, seq, until);
        if hidden {
            return Ok(events.answered_directly());
        }
        Ok(match first {
            Some(first) => events.starting_with(&shown(first, wish.history_length)),
            None => events.starting_later(bytes, wish.history_length),
        })
    }
}

/// True if the task's agent waits for answers within its turn.
async fn waits(core: &Core, cached: &Arc<CachedTask>) -> Result<bool, Error> {
    let record = core.record(cached).await?.ok_or_else(Error::task_not_found)?;
    Ok(core.runtime(&record.agent)?.profile.waits)
}

/// Stores a message and begins its turn, or leaves it to the dispatcher.
pub(crate) async fn accept(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    mut send: Box<SendMessage>,
    guard: Option<StoreGuard>,
    operation: Operation,
) -> Result<Accepted, Error> {
    if core.is_draining() {
        return Err(shutting_down());
    }
    let route = &*chosen_route(core, caller, route, &send)?;
    let named = match send.message.task_id.as_ref().or(send.own_task.as_ref()) {
        Some(id) => Some(core.locate(caller, id.clone()).await?),
        None => None,
    };
    // The cached task is looked up first, so that the write need not read the task a second time.
    let _named = named.as_ref().map(|key| core.cache.get(key));
    let (owner, existing) = continued(core, caller, route, &send, named).await?.unzip();
    let default = core.registry.default_agent();
    let agent = match &existing {
        Some(record) => &record.agent,
        None => route.agent.as_ref().unwrap_or(&default.profile.name),
    };
    caller.require_agent(agent)?;
    let runtime = core.runtime(agent)?;
    caller.require_skill(runtime.profile.restricted_skills(), send.message.metadata.as_ref())?;
    let is_answer = existing.as_ref().is_some_and(|record| record.state().is_interrupted());
    check_message(&runtime.profile, &send, is_answer)?;
    if operation.is_streaming() {
        core.check_streaming(agent)?;
    }
    // The key belongs to the sender, whoever owns the task.
    let dedup = idempotency::of(&caller.identity().owner, agent, &send);
    if let (Some(_), Some(dedup)) = (&existing, &dedup) {
        // Checked before the rules, which would refuse a repeated send to a task that has ended
        // since.
        let original = core.store.original(&dedup.key).await.map_err(refuse)?;
        if let Some(original) = original {
            return repeated(core, caller, original, &dedup.content, send.own_task).await;
        }
    }
    if let (Some(record), Some(context)) = (&existing, &send.message.context_id)
        && record.task.context_id != *context
    {
        let field = if send.task_only { "sessionId" } else { "message.contextId" };
        return Err(Error::field(field, "is not the context of the task"));
    }
    let webhook = match send.configuration.task_push_notification_config.take() {
        Some(config) => {
            caller.require(Scopes::PUSH, "a push notification config in a message")?;
            Some(push::inline(core, &runtime, route, config).await?)
        }
        None => None,
    };
    check_available(core, &runtime)?;
    let content = dedup.as_ref().map(|dedup| dedup.content);
    let is_new = existing.is_none();
    let record = existing.unwrap_or_else(|| fresh(core, &runtime, &send));
    let owner = owner.unwrap_or_else(|| caller.owner().clone());
    let cause = caller.cause(&owner);
    let cached = core.cache.get(&Key { owner, task: record.task.id.clone() });
    let hidden = is_new && record.hidden;
    let bytes = record.bytes.saturating_add(size(&send.message) as u64);
    // The ids are set here, so that the rules need not copy the message.
    let mut message = send.message;
    message.task_id = Some(record.task.id.clone());
    message.context_id = Some(record.task.context_id.clone());
    let me = core.member().await.map_err(refuse)?;
    let dead = match record.run.holder {
        Some(holder) if core.is_dead(holder).await.map_err(refuse)? => Some(holder),
        Some(_) | None => None,
    };
    let demands = if is_new {
        demands::of(&runtime, &message, send.metadata.as_ref())?
    } else {
        Demands::default()
    };
    let question = if is_new { None } else { named_question(&message) };
    let mut commands = vec![Command::Receive {
        message: message.into(),
        question,
        accepted_output_modes: send.configuration.accepted_output_modes,
        metadata: send.metadata,
        trace: send.trace,
        dead,
    }];
    // The end of a running turn begins the next turn of its task. The turns of a serial agent begin
    // in the order of the dispatcher.
    let idle = is_new || record.is_free(dead);
    let starts = idle && !runtime.profile.serial;
    let permit =
        if starts { runtime.try_acquire(&cached.key.owner.tenant, &demands.labels) } else { None };
    // If there is no free memory, the message waits in the store.
    let permit = permit.and_then(|permit| {
        let reservation = core.turns.try_reserve(turn_size(bytes))?;
        Some(permit.with_memory(reservation))
    });
    if let Some(permit) = &permit {
        let holder = permit.worker().map_or(me, WorkerPlace::member);
        commands.push(claim_command(&runtime, record.hidden, holder));
    }
    let keep_first = operation.is_streaming();
    // Moved into the write, because a second handle would force a copy of the task.
    let fresh = is_new.then_some(record);
    let demands = (demands != Demands::default()).then(|| Box::new(demands));
    let write =
        Write { commands, dedup, webhook, cause, demands, fresh, keep_first, ..Write::default() };
    let supervisor = Supervisor::new(core);
    let (started, wait) = (Arc::clone(&cached), core.settings.commit_wait);
    let written = core
        .commit_detached(Arc::clone(&cached), write, Some(wait), move |written| {
            drop(guard);
            match permit {
                Some(permit) if written.claimed => {
                    let (record, received) = (written.record.clone(), written.received.take());
                    supervisor.start(started, &runtime, (permit, None), record, received);
                }
                Some(_) | None => runtime.wake_for(&started.key.owner.tenant),
            }
        })
        .await;
    match written {
        Ok(written) => {
            trace::record_task(&written.record.task, written.before + 1, is_new);
            let (seq, bytes) = (written.before + 1, written.record.bytes);
            Ok(Accepted { cached, seq, first: written.first, bytes, repeated: false, hidden })
        }
        Err(CommitError::Duplicate(original)) => {
            let content = content.unwrap_or_default();
            repeated(core, caller, original, &content, send.own_task).await
        }
        Err(error) => Err(error.into()),
    }
}

/// The task that a message continues, with its owner: the one that it names or, if its dialect infers
/// it, the only task of its context that waits for input.
async fn continued(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    send: &SendMessage,
    named: Option<Key>,
) -> Result<Option<(Owner, Record)>, Error> {
    if let Some(key) = named {
        if send.message.task_id.is_some() {
            let record = core.find(caller, route, &key).await?;
            return Ok(Some((key.owner, record)));
        }
        let found = core.find_any(&key).await?;
        return match found {
            Some(record) if !record.is_shown(caller, route) => Err(taken()),
            Some(record) => Ok(Some((key.owner, record))),
            None => Ok(None),
        };
    }
    let Some(context) = send.message.context_id.clone().filter(|_| send.infer_task) else {
        return Ok(None);
    };
    let query = ListQuery {
        scope: caller.scope(),
        agent: route.agent.clone(),
        context: Some(context),
        state: Some(TaskState::InputRequired),
        since: None,
        after: None,
        limit: 2,
        artifacts: false,
    };
    let mut waiting = core.store.list(query).await.map_err(refuse)?.tasks;
    let only = if waiting.len() == 1 { waiting.pop() } else { None };
    match only {
        Some((key, _)) => {
            let record = core.find(caller, route, &key).await?;
            Ok(Some((key.owner, record)))
        }
        None => Ok(None),
    }
}

/// The result of a repeated send: the task of the first send, from its message on.
async fn repeated(
    core: &Arc<Core>,
    caller: &Caller,
    original: Original,
    content: &[u8; 32],
    own: Option<TaskId>,
) -> Result<Accepted, Error> {
    if original.content != *content || own.is_some_and(|own| own != original.key.task) {
        let text = "this idempotency key or message id was used for other content";
        return Err(Error::new(ErrorKind::IdempotencyConflict, text));
    }
    // The caller may see less than at the time of the first send.
    if !caller.scope().covers(&Scope::Own(original.key.owner.clone())) {
        return Err(Error::task_not_found());
    }
    let cached = core.cache.get(&original.key);
    let record = core.record(&cached).await?.ok_or_else(Error::task_not_found)?;
    let hidden = record.hidden;
    trace::record_task(&record.task, original.seq, true);
    let (seq, bytes) = (original.seq, record.bytes);
    Ok(Accepted { cached, seq, first: None, bytes, repeated: true, hidden })
}

fn fresh(core: &Core, runtime: &AgentRuntime, send: &SendMessage) -> Record {
    let id = send.own_task.clone();
    let id = id.unwrap_or_else(|| TaskId::new(uuid::Uuid::now_v7().to_string()));
    let context = send.message.context_id.clone();
    let context = context.unwrap_or_else(|| ContextId::new(uuid::Uuid::now_v7().to_string()));
    let hidden = !send.task_only && runtime.agent.answers_directly(&send.message);
    Record::new(id, context, runtime.profile.name.clone(), hidden, core.now())
}

/// Checks a message against the agent's profile.
fn check_message(profile: &Profile, send: &SendMessage, is_answer: bool) -> Result<(), Error> {
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

fn media_type(part: &Part) -> &str {
    part.media_type.as_deref().unwrap_or(match part.content {
        Content::Text(_) => "text/plain",
        Content::Data(_) => "application/json",
        Content::Raw(_) | Content::Url(_) => "application/octet-stream",
    })
}

/// The error that a send gets in place of its failed task: the agent violated the protocol, or the caller waited and
/// the agent could not be reached at all. The failed task stays.
fn refusal(record: &Record, message: Seq, waited: bool) -> Option<Error> {
    if record.state() != TaskState::Failed {
        return None;
    }
    let (text, id) = (record.task.error().unwrap_or_default(), record.task.id.as_str());
    match failure::reason_of(&record.task)?.as_str() {
        failure::PROTOCOL_VIOLATION => {
            Some(Error::new(ErrorKind::InvalidAgentResponse, text).with("taskId", id))
        }
        // The message, the begin of its turn and the failure: the agent has written nothing.
        failure::AGENT_UNAVAILABLE if waited && record.head <= message + 2 => {
            let error = Error::new(ErrorKind::AgentUnavailable, text).with("taskId", id);
            Some(error.with("hint", "send it later as a new message; this one has failed for good"))
        }
        _ => None,
    }
}
