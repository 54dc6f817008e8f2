//! Log of a task, with times and causes.

use herald_api::{
    routes::Nothing,
    tasks::{CauseView, LogEntryView, TaskLog, TaskLogQuery, TaskOwnerQuery},
};
use herald_engine::store::{Actor, Cause, Key, Kind, LogEntry};
use herald_protocol::{Error, ErrorKind};
use serde_json::value::RawValue;

use super::{ApiRequest, MAX_PAGE, bounded};

pub(super) async fn get(
    request: &ApiRequest<'_>,
    query: TaskLogQuery,
    _: Nothing,
) -> Result<TaskLog, Error> {
    let TaskLogQuery { tenant, principal, after, limit } = query;
    let key = request.task_key(TaskOwnerQuery { tenant, principal }).await?;
    read(request, &key, after, limit).await
}

/// A part of the log of one task.
pub(super) async fn read(
    request: &ApiRequest<'_>,
    key: &Key,
    after: Option<u64>,
    limit: Option<u32>,
) -> Result<TaskLog, Error> {
    let (after, limit) = (after.unwrap_or(0), bounded("limit", limit, MAX_PAGE)?);
    let operator = request.operator();
    // Read first: the log is complete if it reaches the end that the task has now.
    let (summary, _) = operator.task(key).await?;
    let entries = operator.log(key, after, limit).await?;
    let last = entries.last().map_or(after, |last| last.entry.seq);
    let entries = entries.into_iter().map(view).collect::<Result<_, _>>()?;
    let is_complete = summary.state.is_terminal() && last >= summary.seq;
    Ok(TaskLog { entries, last, is_complete })
}

fn view(logged: LogEntry) -> Result<LogEntryView, Error> {
    let LogEntry { entry, position, at, cause } = logged;
    let (kind, state) = match entry.kind {
        Kind::Received(state) => ("message", Some(state)),
        Kind::Status(state) | Kind::Interim(state) => ("status", Some(state)),
        Kind::Artifact => ("artifact", None),
        Kind::Reply => ("reply", None),
    };
    let damaged = || Error::new(ErrorKind::Internal, "a stored event is not JSON");
    let item = String::from_utf8(entry.body.to_vec()).map_err(|_| damaged())?;
    Ok(LogEntryView {
        seq: entry.seq,
        position: position.to_string(),
        at,
        kind: kind.to_owned(),
        state,
        bytes: entry.body.len() as u64,
        cause: cause.map(cause_view),
        item: RawValue::from_string(item).map_err(|_| damaged())?,
    })
}

fn cause_view(cause: Cause) -> CauseView {
    let (actor, principal) = match cause.actor {
        Actor::Caller => ("caller", None),
        Actor::Agent => ("agent", None),
        // Without the session, which is the worker's own.
        Actor::Worker { .. } => ("worker", None),
        Actor::Engine => ("engine", None),
        Actor::Principal(principal) => ("operator", Some(principal.to_string())),
    };
    CauseView {
        actor: actor.to_owned(),
        principal,
        request: cause.request.map(|id| id.to_string()),
        binding: cause.binding.map(|binding| binding.into_owned()),
    }
}
