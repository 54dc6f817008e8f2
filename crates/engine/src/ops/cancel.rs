//! CancelTask: end the task and stop its turn.

use std::sync::Arc;

use herald_protocol::{Error, ErrorKind, TaskState, request::CancelTask};

use crate::{
    caller::{AgentRoute, Caller},
    commit::{Write, Written},
    core::Core,
    ops::reply::TaskJson,
    read::view::shown,
    rules::Command,
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
    let cached = core.cache.get(&key);
    let metadata = cancel.metadata.clone();
    let commands = vec![Command::Cancel { metadata: cancel.metadata }];
    let write = Write { commands, cause: caller.cause(&key.owner), ..Write::default() };
    let (notifier, stopped) = (Arc::clone(core), Arc::clone(&cached));
    let notify = move |written: &mut Written| {
        // A living member that holds the task stops its own turn.
        let holder = written.holder_before.filter(|it| Some(*it) != notifier.membership.id());
        let elsewhere = holder.is_some_and(|it| notifier.membership.is_known_alive(it));
        if !stopped.stop(metadata.clone()) && !elsewhere {
            notify_ended(&notifier, &written.record, metadata);
        }
    };
    let written =
        core.commit_detached(cached, write, Some(core.settings.commit_wait), notify).await;
    let task = match written.map_err(Error::from) {
        Ok(written) => written.record.task,
        Err(error) if error.kind == ErrorKind::TaskNotCancelable => {
            let ended = core.find(caller, route, &key).await?;
            let repeated = ended.state() == TaskState::Canceled;
            if cancel.return_ended || (repeated && core.settings.repeat_cancel) {
                ended.task
            } else {
                return Err(error);
            }
        }
        Err(error) => return Err(error),
    };
    Ok(shown(task, None).into())
}
