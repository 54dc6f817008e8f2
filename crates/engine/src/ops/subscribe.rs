//! SubscribeToTask: a stream of one task.

use std::sync::Arc;

use herald_protocol::{Error, ErrorKind, Seq, request::SubscribeToTask};

use crate::{
    budget::SMALL,
    caller::{AgentRoute, Caller},
    core::Core,
    read::{
        subscription::{Subscription, Until},
        view::shown,
    },
    rules::Record,
};

/// A stream of a task, from now on or from the event after a cursor.
pub(crate) async fn subscribe(
    core: &Arc<Core>,
    caller: &Caller,
    route: &AgentRoute,
    subscribe: SubscribeToTask,
) -> Result<Subscription, Error> {
    let key = core.locate(caller, subscribe.id).await?;
    // The cached task is looked up first, so that no event is lost between the snapshot and the
    // stream.
    let cached = core.cache.get(&key);
    let record = core.find(caller, route, &key).await?;
    core.check_streaming(&record.agent)?;
    if let Some(after) = subscribe.after {
        check_cursor(&record, after)?;
        return Ok(Subscription::new(Arc::clone(core), cached, after, Until::TaskEnds));
    }
    if !record.is_closed() {
        let events = Subscription::new(Arc::clone(core), cached, record.head, Until::TaskEnds);
        return Ok(if record.bytes <= SMALL as u64 {
            events.starting_with(&shown(record.task, None))
        } else {
            events.starting_later(record.bytes, None)
        });
    }
    if !subscribe.replay_finished {
        let text = "the task has ended; get it, or send Last-Event-ID to replay its events";
        let state = record.state().proto_name();
        return Err(Error::new(ErrorKind::UnsupportedOperation, text).with("state", state));
    }
    let events = Subscription::new(Arc::clone(core), cached, 1, Until::TaskEnds);
    Ok(events.starting_later(record.bytes, None))
}

/// Checks that a cursor names an existing event. A later one would hide the events before it.
pub(crate) fn check_cursor(record: &Record, after: Seq) -> Result<(), Error> {
    if after <= record.head {
        return Ok(());
    }
    Err(Error::field("Last-Event-ID", "names an event that this task does not have"))
}
