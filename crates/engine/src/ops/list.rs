//! ListTasks: one page of the tasks that the caller sees.

use std::sync::Arc;

use herald_protocol::{Error, TaskPage, TaskState, request::ListTasks};

use crate::{
    caller::{AgentRoute, Caller},
    codec,
    core::Core,
    fault::refuse,
    read::view::shown,
    store::{Key, ListQuery},
    token,
};

/// One page of the caller's tasks, the newest status first.
pub(crate) async fn list(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    list: ListTasks,
) -> Result<TaskPage, Error> {
    let page_size = u32::try_from(list.page_size.unwrap_or(50)).unwrap_or(50);
    let artifacts = list.include_artifacts.unwrap_or(false);
    let mut query = ListQuery {
        scope: caller.scope(),
        agent: caller.listed_agent(route)?,
        context: list.context_id.filter(|context| !context.is_empty()),
        state: (list.status != TaskState::Unspecified).then_some(list.status),
        since: list.status_timestamp_after,
        after: None,
        limit: page_size as usize,
        artifacts,
    };
    if let Some(token) = list.page_token.filter(|token| !token.is_empty()) {
        query.after = Some(token::decode(&core.secret, &query, &token)?);
    }
    let listing = core.store.list(query.clone()).await.map_err(refuse)?;
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
    let next = listing.next.map(|cursor| token::encode(&core.secret, &query, cursor));
    Ok(TaskPage {
        tasks,
        next_page_token: next.unwrap_or_default(),
        page_size,
        total_size: listing.total,
    })
}
