//! CancelTask: end the task and stop its turn.

use std::sync::Arc;

use herald_protocol::{Dialect, Error, ErrorKind, Metadata, TaskState, request::CancelTask};

use crate::{
    caller::{AgentRoute, Caller},
    commit::{Write, Written},
    core::Core,
    ops::reply::TaskJson,
    read::view::shown,
    rules::{Command, Record},
    store::{Cause, Key},
    turns::ending::notify_ended,
};

/// Cancels a task at once and tells its agent to stop.
pub(crate) async fn cancel(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    cancel: CancelTask,
) -> Result<TaskJson, Error> {
    let key = core.locate(caller, cancel.id).await?;
    core.find(caller, route, &key).await?;
    let metadata = cancel.metadata.clone();
    let command = Command::Cancel { metadata: cancel.metadata };
    let written = end_at_once(core, &key, command, caller.cause(&key.owner), metadata).await;
    let task = match written {
        Ok(record) => record.task,
        Err(error) if error.kind == ErrorKind::TaskNotCancelable => {
            let ended = core.find(caller, route, &key).await?;
            let repeated = ended.state() == TaskState::Canceled;
            let is_old = route.dialect != Dialect::V1;
            let returns = cancel.return_ended || (is_old && core.settings.return_ended);
            if returns || (repeated && core.settings.repeat_cancel) {
                ended.task
            } else {
                return Err(error);
            }
        }
        Err(error) => return Err(error),
    };
    Ok(shown(task, None).into())
}

/// Ends a task in any state before its end, and tells its agent to stop.
pub(crate) async fn end_at_once(
    core: &Arc<Core>,
    key: &Key,
    command: Command,
    cause: Cause,
    metadata: Option<Metadata>,
) -> Result<Record, Error> {
    let cached = core.cache.get(key);
    let write = Write { commands: vec![command], cause, ..Write::default() };
    let (notifier, stopped) = (Arc::clone(core), Arc::clone(&cached));
    let notify = move |written: &mut Written| {
        // A living member that holds the task stops its own turn.
        let holder = written.holder_before.filter(|it| Some(*it) != notifier.membership.id());
        let elsewhere = holder.is_some_and(|it| notifier.membership.is_known_alive(it));
        if !stopped.stop(metadata.clone()) && !elsewhere {
            notify_ended(&notifier, &stopped.key.owner.tenant, &written.record, metadata);
        }
    };
    let wait = Some(core.settings.commit_wait);
    let written = core.commit_detached(cached, write, wait, notify).await.map_err(Error::from)?;
    Ok(written.record)
}
