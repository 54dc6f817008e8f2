//! What an agent remembers of a conversation: its earlier tasks there.

use std::sync::Arc;

use herald_protocol::{Error, ErrorKind, Task};
use tokio_util::sync::CancellationToken;

use crate::{
    agent_runtime::AgentRuntime,
    budget::Reservation,
    engine::{Engine, refuse},
    rules::Record,
    runner::is_transient,
    store::{Key, RecallQuery},
};

/// Bytes of earlier tasks that a turn is given at most.
const BYTES: usize = 1 << 20;

/// How much memory an earlier task takes for each of its bytes.
const WEIGHT: usize = 2;

impl Engine {
    /// The earlier tasks of a task's conversation that its agent is to have in mind, and their place
    /// in memory. The task itself is not among them, since somebody is at work on it.
    pub(crate) async fn recall(
        &self,
        key: &Key,
        runtime: &AgentRuntime,
        record: &Record,
        stop: &CancellationToken,
    ) -> Result<(Vec<Arc<Task>>, Option<Reservation>), Error> {
        if runtime.profile.memory == 0 {
            return Ok((Vec::new(), None));
        }
        let query = RecallQuery {
            owner: key.owner.clone(),
            agent: record.agent.clone(),
            context: record.task.context_id.clone(),
            tasks: runtime.profile.memory,
            bytes: BYTES,
        };
        let read = || async { self.inner.store.recall(query.clone()).await.map_err(refuse) };
        let found = self.retry_while_unavailable(read, is_transient).await?;
        let size: usize = found.iter().map(|(_, stored)| stored.size()).sum();
        let place = match size {
            0 => None,
            _ => tokio::select! {
                place = self.inner.memories.reserve(size * WEIGHT) => Some(place),
                // Whoever is told to stop needs no memory.
                () = stop.cancelled() => return Ok((Vec::new(), None)),
                () = self.inner.draining.cancelled() => {
                    return Err(Error::new(ErrorKind::Unavailable, "the server is shutting down"));
                }
            },
        };
        let mut earlier = Vec::with_capacity(found.len());
        for (id, stored) in found {
            match self.restored(id.clone(), stored).await {
                Ok(record) => earlier.push(record.task),
                // One that cannot be read must not stand in the way of those to come.
                Err(error) => {
                    let agent = &record.agent;
                    tracing::error!(task = %id, %agent, %error, "a task cannot be recalled");
                }
            }
        }
        Ok((earlier, place))
    }
}
