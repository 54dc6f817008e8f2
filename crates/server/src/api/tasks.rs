//! Tasks: lists, one task, cancel, and the answer to a question.

use herald_api::{
    routes::Nothing,
    tasks::{
        AnswerQuestion, FailTask, OpenQuestion, TaskDetail, TaskHead, TaskHeadPage, TaskOwnerQuery,
        TasksQuery, TurnView,
    },
};
use herald_engine::{
    AgentRoute, Reply, Scopes, Sent, TaskFilter, TaskSummary,
    store::{Key, Owner, Scope},
};
use herald_protocol::{
    AgentName, Content, Error, ErrorKind, MessageId, Part, Request, Task, TaskId, TaskState,
    TenantId, request::CancelTask,
};
use serde_json::{
    Map, Value,
    value::{RawValue, to_raw_value},
};

use super::{ApiRequest, page_size};

/// The longest reason of a failed task, in bytes.
const MAX_REASON: usize = 1024;

pub(super) async fn list(
    request: &ApiRequest<'_>,
    query: TasksQuery,
    _: Nothing,
) -> Result<TaskHeadPage, Error> {
    let scope = match (query.owner.as_deref(), query.tenant, query.principal) {
        (None, None, None) => None,
        (Some("*"), None, None) => Some(Scope::All),
        (None, tenant, principal) => Some(request.scope(tenant, principal)),
        (Some(_), _, _) => {
            return Err(Error::field("owner", "must be *, without tenant and principal"));
        }
    };
    let filter = TaskFilter {
        scope,
        agent: query.agent.as_deref().map(AgentName::from),
        context: query.context.as_deref().map(Into::into),
        state: query.state,
        since: query.since,
        reason: query.reason,
        page_token: query.page_token,
        limit: page_size(query.page_size)?,
    };
    let page = request.operator().tasks(filter).await?;
    let tasks = page.tasks.into_iter().map(head).collect();
    Ok(TaskHeadPage { tasks, next_page_token: page.next_page_token })
}

pub(super) async fn get(
    request: &ApiRequest<'_>,
    owner: TaskOwnerQuery,
    _: Nothing,
) -> Result<TaskDetail, Error> {
    let key = request.task_key(owner).await?;
    let (summary, task) = request.operator().task(&key).await?;
    detail(summary, Task::clone(&task))
}

pub(super) async fn cancel(
    request: &ApiRequest<'_>,
    owner: TaskOwnerQuery,
    _: Nothing,
) -> Result<TaskDetail, Error> {
    let key = request.task_key(owner).await?;
    let cancel = CancelTask { id: key.task.clone(), ..CancelTask::default() };
    let outcome = request.call(&key, Request::CancelTask(cancel)).await;
    match outcome {
        Err(error) if error.kind != ErrorKind::TaskNotCancelable => Err(error),
        outcome => {
            let (detail, state) = request.changed(&key).await?;
            // A repeated cancel changes nothing.
            if state == TaskState::Canceled { Ok(detail) } else { outcome.and(Ok(detail)) }
        }
    }
}

pub(super) async fn answer(
    request: &ApiRequest<'_>,
    owner: TaskOwnerQuery,
    answer: AnswerQuestion,
) -> Result<TaskDetail, Error> {
    let choice = answer.choice;
    if choice.is_none() && answer.text.is_none() {
        return Err(Error::field("choice", "an answer has a choice or a text"));
    }
    let key = request.task_key(owner).await?;
    if let Some(choice) = &choice {
        request.check_choice(&key, &answer.question, choice).await?;
    }
    let choice = choice.map(|choice| {
        let members = Map::from_iter([("choice".to_owned(), Value::String(choice))]);
        Part::new(Content::Data(members.into()))
    });
    let parts = choice.into_iter().chain(answer.text.map(Part::text)).collect();
    let question = MessageId::from(answer.question.as_str());
    let send = request.operator().answer(&key, &question, parts);
    request.call(&key, send).await?;
    Ok(request.changed(&key).await?.0)
}

pub(super) async fn fail(
    request: &ApiRequest<'_>,
    owner: TaskOwnerQuery,
    end: FailTask,
) -> Result<TaskDetail, Error> {
    if end.text.len() > MAX_REASON {
        return Err(Error::field("text", format!("must have at most {MAX_REASON} bytes")));
    }
    let key = request.task_key(owner).await?;
    request.operator().fail(&key, &end.text).await?;
    Ok(request.changed(&key).await?.0)
}

pub(super) async fn retry(
    request: &ApiRequest<'_>,
    owner: TaskOwnerQuery,
    _: Nothing,
) -> Result<TaskDetail, Error> {
    let key = request.task_key(owner).await?;
    let (route, send) = request.operator().retry(&key).await?;
    let caller = request.operator().caller_for(&key)?;
    let reply = request.engine().call(&caller, &route, send).await?;
    let Reply::Sent(Sent::Task(task)) = reply else {
        let text = "the agent answered the message directly, without a task";
        return Err(Error::new(ErrorKind::UnsupportedOperation, text));
    };
    let new = Key { task: task.decode()?.id, ..key };
    Ok(request.changed(&new).await?.0)
}

impl ApiRequest<'_> {
    /// The owners that a query names.
    pub(super) fn scope(&self, tenant: Option<String>, principal: Option<String>) -> Scope {
        let own = &self.caller.identity().owner;
        let tenant = tenant.map_or_else(|| own.tenant.clone(), |name| TenantId::from(&*name));
        match principal {
            Some(principal) => Scope::Own(Owner { tenant, principal: principal.into() }),
            None => Scope::Tenant(tenant),
        }
    }

    /// The key of the task in the path: of the owner that the query names, otherwise the caller's own,
    /// and for an administrator without one that of the only owner that has it.
    pub(super) async fn task_key(&self, owner: TaskOwnerQuery) -> Result<Key, Error> {
        let (operator, task) = (self.operator(), TaskId::from(self.parameter(0)));
        if owner.tenant.is_some() || owner.principal.is_some() {
            let scope = self.scope(owner.tenant, owner.principal);
            return operator.locate(Some(scope), task).await;
        }
        let own = operator.locate(None, task.clone()).await?;
        let scopes = self.caller.identity().scopes;
        if !scopes.contains(Scopes::ADMIN.with(Scopes::READ)) {
            return Ok(own);
        }
        match operator.task(&own).await {
            Err(error) if error.kind == ErrorKind::TaskNotFound => {
                operator.locate(Some(Scope::All), task).await
            }
            Ok(_) | Err(_) => Ok(own),
        }
    }

    /// Passes an operation of the protocol on this task to the engine, for its owner if the caller
    /// administers it.
    async fn call(&self, key: &Key, request: Request) -> Result<(), Error> {
        let caller = self.operator().caller_for(key)?;
        // An extension that the default agent requires concerns no other task.
        let profile = self.engine().profile(None);
        let extensions = profile.iter().flat_map(|profile| &profile.extensions);
        let extensions = extensions.map(|extension| extension.uri.clone()).collect();
        let route = AgentRoute { extensions, ..AgentRoute::default() };
        self.engine().call(&caller, &route, request).await.map(|_| ())
    }

    /// Refuses a choice that the open question does not offer. A question that is not open any more is refused with
    /// the answer itself.
    async fn check_choice(&self, key: &Key, named: &str, choice: &str) -> Result<(), Error> {
        let (detail, _) = self.changed(key).await?;
        let Some(open) = detail.question.filter(|open| open.question == named) else {
            return Ok(());
        };
        let offered: Vec<_> = open.choices.iter().map(|offered| offered.id.as_str()).collect();
        if offered.is_empty() {
            return Err(Error::field("choice", "the question is answered with a text"));
        }
        if !offered.contains(&choice) {
            return Err(Error::field("choice", format!("must be one of: {}", offered.join(", "))));
        }
        Ok(())
    }

    /// A task after a change by this caller, who may see the result also without the scope `read`.
    async fn changed(&self, key: &Key) -> Result<(TaskDetail, TaskState), Error> {
        let reader = self.reader();
        let (summary, task) = self.engine().operator(&reader).task(key).await?;
        let state = summary.state;
        Ok((detail(summary, Task::clone(&task))?, state))
    }
}

/// The reply for one task.
fn detail(summary: TaskSummary, mut task: Task) -> Result<TaskDetail, Error> {
    let question = match (&summary.question, &task.status.message) {
        (Some(_), Some(message)) => Some(OpenQuestion::of(message, task.status.timestamp)),
        (Some(_) | None, _) => None,
    };
    task.history = task.history.filter(|history| !history.is_empty());
    task.artifacts = task.artifacts.filter(|artifacts| !artifacts.is_empty());
    Ok(TaskDetail { head: head(summary), question, task: raw(&task)? })
}

fn head(summary: TaskSummary) -> TaskHead {
    let run = &summary.run;
    let turn = (run.turn > 0).then(|| TurnView {
        seq: run.turn,
        attempt: run.attempt,
        is_held: run.holder.is_some(),
    });
    TaskHead {
        id: summary.key.task.to_string(),
        context_id: summary.context.to_string(),
        agent: summary.agent.to_string(),
        tenant: summary.key.owner.tenant.to_string(),
        principal: summary.key.owner.principal.to_string(),
        state: summary.state,
        reason: summary.reason,
        created: summary.created,
        changed: summary.changed,
        seq: summary.seq,
        bytes: summary.bytes,
        turn,
        unread: summary.run.unread.len() as u64,
        preview: summary.preview,
    }
}

/// An object of the protocol, as its JSON.
fn raw(task: &Task) -> Result<Box<RawValue>, Error> {
    to_raw_value(task).map_err(|_| Error::new(ErrorKind::Internal, "the task cannot be encoded"))
}
