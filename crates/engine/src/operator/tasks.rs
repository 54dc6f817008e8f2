//! Tasks of operators: summaries by page, one task, its log, and the answer to its question.

use std::sync::Arc;

use herald_protocol::{
    AgentName, ContextId, Error, ErrorKind, Message, MessageId, Metadata, Part, Request, Role, Seq,
    Task, TaskId, TaskState, Timestamp, request::SendMessage,
};

use crate::{
    caller::{AgentRoute, Caller, Scopes},
    codec,
    core::NAMED_OWNERS,
    fault::{ambiguous, refuse},
    operator::Operator,
    ops::cancel::end_at_once,
    rules::{QUESTION_MEMBER, Record},
    store::{Key, Kind, ListQuery, LogEntry, Run, Scope, Stored},
    token,
    turns::failure::{self, FAILED_BY_OPERATOR},
};

/// The longest preview, in characters.
const PREVIEW: usize = 120;

/// The member of a message's metadata that names the principal who answered for the owner.
const BY_MEMBER: &str = "herald.by";

/// The member of a message's metadata that names the task that it retries.
const RETRY_MEMBER: &str = "herald.retry_of";

/// Tasks that one page of a list by reason examines.
const EXAMINED: usize = 1000;

/// Filters of a list of summaries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// The owners; `None` means those whose tasks the caller sees.
    pub scope: Option<Scope>,
    /// Only tasks of this agent.
    pub agent: Option<AgentName>,
    /// Only tasks of this conversation.
    pub context: Option<ContextId>,
    /// Only tasks in this state.
    pub state: Option<TaskState>,
    /// Only tasks whose status changed at this time or later.
    pub since: Option<Timestamp>,
    /// Only tasks that failed or were rejected for this reason, such as `INTERRUPTED`. A page then examines a
    /// bounded number of tasks, so that it may be short, or empty, before the last one.
    pub reason: Option<String>,
    /// The token of the page before.
    pub page_token: Option<String>,
    /// The maximum number of tasks.
    pub limit: usize,
}

/// A page of summaries, the newest status first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummaryPage {
    /// The tasks.
    pub tasks: Vec<TaskSummary>,
    /// The token of the next page, if there is one.
    pub next_page_token: Option<String>,
    /// The number of matching tasks on all pages.
    pub total: u64,
}

/// A task without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskSummary {
    /// The key.
    pub key: Key,
    /// The conversation.
    pub context: ContextId,
    /// The agent.
    pub agent: AgentName,
    /// The state.
    pub state: TaskState,
    /// The reason of a failed task.
    pub reason: Option<String>,
    /// The time of acceptance.
    pub created: Timestamp,
    /// The time of the last status change.
    pub changed: Timestamp,
    /// The number of the last event.
    pub seq: Seq,
    /// The bytes of the log.
    pub bytes: u64,
    /// The run state.
    pub run: Run,
    /// The id of the question that the task waits for.
    pub question: Option<MessageId>,
    /// The first line of the first message.
    pub preview: String,
}

impl TaskSummary {
    fn of(key: Key, record: &Record) -> Self {
        let task = &record.task;
        Self {
            key,
            context: task.context_id.clone(),
            agent: record.agent.clone(),
            state: record.state(),
            reason: failure::reason_of(task),
            created: record.created,
            changed: task.status.timestamp.unwrap_or(record.created),
            seq: record.head,
            bytes: record.bytes,
            run: record.run.clone(),
            question: record.open_question().cloned(),
            preview: preview(task),
        }
    }
}

/// The first line of the first message, shortened.
fn preview(task: &Task) -> String {
    let text = task.history.iter().flatten().next().map(|message| message.text());
    let text = text.unwrap_or_default();
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    match line.char_indices().nth(PREVIEW) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

fn already_ended(record: &Record) -> Error {
    let text = format!("the task has ended already: it is {}", record.state().kebab_name());
    Error::new(ErrorKind::TaskEnded, text).with("state", record.state().proto_name())
}

impl Operator<'_> {
    /// Reads a page of tasks. A scope that the caller does not see needs `admin`.
    pub async fn tasks(&self, filter: TaskFilter) -> Result<SummaryPage, Error> {
        let TaskFilter { scope, agent, context, state, since, reason, page_token, limit } = filter;
        let scope = scope.unwrap_or_else(|| self.caller.scope());
        self.require_scope(&scope, "task.list", None)?;
        // Only tasks in these two states have a reason, and a list is by one state.
        let state = state.or(reason.as_ref().map(|_| TaskState::Failed));
        let (after, artifacts) = (None, false);
        let mut query = ListQuery { scope, agent, context, state, since, after, limit, artifacts };
        if let Some(token) = page_token {
            query.after = Some(token::decode(&self.core.secret, &query, &token)?);
        }
        let mut page = SummaryPage { tasks: Vec::new(), next_page_token: None, total: 0 };
        let mut examined = 0;
        loop {
            // A full page must end at its last task, so that the cursor is right.
            query.limit = limit - page.tasks.len();
            let listing = self.core.store.list(query.clone()).await.map_err(refuse)?;
            examined += listing.tasks.len();
            (page.total, query.after) = (listing.total, listing.next);
            let summaries = listing.tasks.into_iter().filter_map(|task| self.summary(task));
            let wanted = |summary: &TaskSummary| reason.is_none() || summary.reason == reason;
            page.tasks.extend(summaries.filter(wanted));
            let is_done = reason.is_none() || page.tasks.len() >= limit || examined >= EXAMINED;
            if query.after.is_none() || is_done {
                break;
            }
        }
        let next = query.after.take();
        page.next_page_token = next.map(|cursor| token::encode(&self.core.secret, &query, cursor));
        Ok(page)
    }

    /// The summary of a listed task; `None` if the caller may not use its agent.
    fn summary(&self, (key, stored): (Key, Stored)) -> Option<TaskSummary> {
        match codec::restore(key.task.clone(), stored) {
            Ok(record) if self.caller.may_use(&record.agent) => Some(TaskSummary::of(key, &record)),
            Ok(_) => None,
            // An unreadable task must not hide the others.
            Err(error) => {
                tracing::error!(task = %key.task, %error, "a task cannot be read and is not listed");
                None
            }
        }
    }

    /// The key of a task among the owners in a scope; `None` means those whose tasks the caller
    /// sees. A scope that the caller does not see needs `admin`.
    pub async fn locate(&self, scope: Option<Scope>, task: TaskId) -> Result<Key, Error> {
        let Some(scope) = scope else { return self.core.locate(self.caller, task).await };
        self.require_scope(&scope, "task.find", Some(&task))?;
        let owners = self.core.store.owners_of(&scope, &task, NAMED_OWNERS).await;
        let mut owners = owners.map_err(refuse)?;
        match (owners.pop(), owners.is_empty()) {
            (None, _) => Err(Error::task_not_found()),
            (Some(owner), true) => Ok(Key { owner, task }),
            (Some(last), false) => {
                owners.push(last);
                Err(ambiguous(&owners))
            }
        }
    }

    /// The summary of a task, and the task itself. A task of another owner needs `admin`.
    pub async fn task(&self, key: &Key) -> Result<(TaskSummary, Arc<Task>), Error> {
        let record = self.visible(key, "task.read").await?;
        Ok((TaskSummary::of(key.clone(), &record), record.task))
    }

    /// Reads the events of a task after `after`, with their times and causes. Each body is the 1.0 JSON of
    /// a stream item; an accepted message is one too. A page of large events may end before `limit`: only
    /// an empty page is the end. A task of another owner needs `admin`.
    pub async fn log(&self, key: &Key, after: Seq, limit: usize) -> Result<Vec<LogEntry>, Error> {
        self.visible(key, "task.log").await?;
        let mut entries = self.core.store.read_log(key, after, limit).await.map_err(refuse)?;
        for logged in &mut entries {
            if let Kind::Received(_) = logged.entry.kind {
                logged.entry.body = codec::received_as_message(&logged.entry)
                    .map_err(|error| refuse(error.of(&key.task)))?;
            }
        }
        Ok(entries)
    }

    /// The caller of ordinary operations on this task: this caller if it sees the task, otherwise an
    /// administrator that acts for its owner.
    pub fn caller_for(&self, key: &Key) -> Result<Caller, Error> {
        if self.caller.scope().covers(&Scope::Own(key.owner.clone())) {
            return Ok(self.caller.clone());
        }
        self.caller.for_owner(key.owner.clone())
    }

    /// Fails a task that has not ended, whatever its state, and tells its agent to stop. Needs `cancel`, and
    /// `admin` for a task of another owner.
    pub async fn fail(&self, key: &Key, text: &str) -> Result<(), Error> {
        self.caller.require(Scopes::CANCEL, "failing tasks")?;
        let caller = self.caller_for(key)?;
        let record = self.changeable(key).await?;
        if record.is_closed() {
            return Err(already_ended(&record));
        }
        let subject =
            self.entry("task.fail").on("task", key.task.as_str(), Some(key.owner.clone()));
        // Durably and before it is done, so that no such act goes without a record.
        self.core.store.append_audit(vec![subject]).await.map_err(refuse)?;
        let text = if text.is_empty() { "an operator failed the task" } else { text };
        let command = failure::fail(FAILED_BY_OPERATOR, text);
        let cause = caller.cause(&key.owner);
        match end_at_once(self.core, key, command, cause, None).await {
            Ok(_) => Ok(()),
            Err(error) => {
                let record = self.changeable(key).await?;
                Err(if record.is_closed() { already_ended(&record) } else { error })
            }
        }
    }

    /// The request that sends the message of a task that failed again, as a new task of the same agent and
    /// conversation, and the route for it. A repeated request finds the task of the first one.
    pub async fn retry(&self, key: &Key) -> Result<(AgentRoute, Request), Error> {
        self.caller.require(Scopes::SEND, "retrying tasks")?;
        let record = self.changeable(key).await?;
        if !matches!(record.state(), TaskState::Failed | TaskState::Rejected) {
            let text = format!(
                "only a task that failed or was rejected can be retried; this one is {}",
                record.state().kebab_name()
            );
            return Err(Error::new(ErrorKind::UnsupportedOperation, text)
                .with("state", record.state().proto_name()));
        }
        // The message of the turn that failed; of a task without any turn, the first one.
        let received = self.core.message_at(key, record.run.turn.max(1)).await?;
        let mut message = Message::clone(&received.message);
        message.message_id = MessageId::from(format!("retry-{}", key.task).as_str());
        message.task_id = None;
        message.context_id = Some(record.task.context_id.clone());
        message.reference_task_ids.push(key.task.clone());
        message.metadata.get_or_insert_default().insert(RETRY_MEMBER, key.task.as_str());
        let idempotency_key = Some(format!("retry-{}", blake3::hash(key.task.as_str().as_bytes())));
        let metadata = received.metadata;
        let mut send = SendMessage { message, metadata, idempotency_key, ..SendMessage::default() };
        send.configuration.accepted_output_modes = received.accepted_output_modes;
        send.configuration.return_immediately = true;
        let mut route = AgentRoute { agent: Some(record.agent.clone()), ..AgentRoute::default() };
        if let Some(runtime) = self.core.registry.get(&record.agent) {
            let extensions = runtime.profile.extensions.iter();
            route.extensions = extensions.map(|extension| extension.uri.clone()).collect();
        }
        Ok((route, Request::SendMessage(Box::new(send))))
    }

    /// A task that the caller may change: its own, or for an administrator any. It need not be allowed to read.
    async fn changeable(&self, key: &Key) -> Result<Record, Error> {
        self.caller_for(key)?;
        let found = self.core.find_any(key).await?;
        let seen = |record: &Record| !record.hidden && self.caller.may_use(&record.agent);
        found.filter(seen).ok_or_else(Error::task_not_found)
    }

    /// The request that answers a question of a task. The same answer twice is stored once; another
    /// answer, or one to a question that is no longer open, is refused.
    pub fn answer(&self, key: &Key, question: &MessageId, parts: Vec<Part>) -> Request {
        let mut metadata = Metadata::new();
        metadata.insert(QUESTION_MEMBER, question.as_str());
        let by = &self.caller.identity().owner;
        if *by != key.owner {
            metadata.insert(BY_MEMBER, &*by.principal);
        }
        // Not random, so that a repeated answer has the same content.
        let message_id = MessageId::from(format!("answer-{question}").as_str());
        let message = Message {
            message_id,
            role: Role::User,
            task_id: Some(key.task.clone()),
            parts,
            metadata: Some(metadata),
            ..Message::default()
        };
        let hash = blake3::hash(question.as_str().as_bytes());
        let idempotency_key = Some(format!("answer-{hash}"));
        let mut send = SendMessage { message, idempotency_key, ..SendMessage::default() };
        send.configuration.return_immediately = true;
        Request::SendMessage(Box::new(send))
    }

    /// A task that is not hidden, of an agent that the caller may use.
    async fn visible(&self, key: &Key, action: &'static str) -> Result<Record, Error> {
        self.require_scope(&Scope::Own(key.owner.clone()), action, Some(&key.task))?;
        let found = self.core.find_any(key).await?;
        let seen = |record: &Record| !record.hidden && self.caller.may_use(&record.agent);
        found.filter(seen).ok_or_else(Error::task_not_found)
    }
}
