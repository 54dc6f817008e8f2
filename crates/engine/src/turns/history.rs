//! Conversation history: the earlier tasks of a conversation that a turn gets.

use std::sync::Arc;

use herald_protocol::{Error, Task};
use tokio_util::sync::CancellationToken;

use crate::{
    agents::runtime::AgentRuntime,
    budget::Reservation,
    core::Core,
    fault::{is_transient, refuse, shutting_down},
    rules::Record,
    store::{HistoryQuery, Key},
};

/// The most bytes of earlier tasks that a turn gets.
const BYTES: usize = 1 << 20;

/// Memory that an earlier task takes for each of its stored bytes.
const BYTES_PER_STORED_BYTE: usize = 2;

/// The earlier tasks of a task's conversation, as many as the profile says, and the reservation of their
/// memory. The task itself is not among them, because it is being worked on.
pub(crate) async fn earlier(
    core: &Core,
    key: &Key,
    runtime: &AgentRuntime,
    record: &Record,
    stop: &CancellationToken,
) -> Result<(Vec<Arc<Task>>, Option<Reservation>), Error> {
    if runtime.profile.memory == 0 {
        return Ok((Vec::new(), None));
    }
    let query = HistoryQuery {
        owner: key.owner.clone(),
        agent: record.agent.clone(),
        context: record.task.context_id.clone(),
        tasks: runtime.profile.memory,
        bytes: BYTES,
    };
    let read = || async { core.store.conversation_history(query.clone()).await.map_err(refuse) };
    let found = core.retry_while_unavailable(read, is_transient).await?;
    let size: usize = found.iter().map(|(_, stored)| stored.size()).sum();
    let reservation = match size {
        0 => None,
        _ => tokio::select! {
            reserved = core.histories.reserve(size * BYTES_PER_STORED_BYTE) => Some(reserved),
            // A turn that is to stop needs no history.
            () = stop.cancelled() => return Ok((Vec::new(), None)),
            () = core.draining.cancelled() => return Err(shutting_down()),
        },
    };
    let mut earlier = Vec::with_capacity(found.len());
    for (id, stored) in found {
        match core.restored(id.clone(), stored).await {
            Ok(record) => earlier.push(record.task),
            // An unreadable earlier task must not block the turns after it.
            Err(error) => {
                let agent = &record.agent;
                tracing::error!(task = %id, %agent, %error, "an earlier task of the conversation cannot be read and is left out");
            }
        }
    }
    Ok((earlier, reservation))
}
