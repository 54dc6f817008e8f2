//! GetTask: one task of the caller.

use std::sync::Arc;

use herald_protocol::{Error, request::GetTask};

use crate::{
    caller::{AgentRoute, Caller},
    codec,
    core::Core,
    fault::refuse,
    ops::reply::{TaskForm, TaskJson},
    read::view::shown,
};

/// A task of the caller. A task that has ended is passed on as it is stored, without decoding it.
pub(crate) async fn get(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    get: GetTask,
) -> Result<TaskJson, Error> {
    let key = core.locate(caller, get.id).await?;
    if let Some(cached) = core.cache.peek(&key) {
        let record = core.record(&cached).await?.filter(|record| record.is_shown(caller, route));
        let record = record.ok_or_else(Error::task_not_found)?;
        return Ok(TaskJson::of(record, &cached, get.history_length));
    }
    let (stored, _reservation) = core.load(&key).await?;
    let stored = stored.filter(|stored| {
        let agent = &stored.header.agent;
        !stored.header.hidden && route.includes(agent) && caller.may_use(agent)
    });
    let mut stored = stored.ok_or_else(Error::task_not_found)?;
    let whole =
        stored.snapshot.take_if(|last| get.history_length.is_none() && last.seq == stored.head);
    if let Some(snapshot) = whole {
        codec::check(&snapshot).map_err(|error| refuse(error.of(&key.task)))?;
        return Ok(TaskJson(TaskForm::Stored(key.task, stored.header.context, snapshot)));
    }
    let record = codec::restore(key.task, stored).map_err(refuse)?;
    Ok(shown(record.task, get.history_length).into())
}
