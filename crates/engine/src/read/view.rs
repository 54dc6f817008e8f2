//! Tasks as callers see them: now, or as they stood after one of their events.

use std::sync::Arc;

use herald_protocol::{Error, Seq, Task};

use crate::{
    codec,
    core::Core,
    fault::refuse,
    rules::{self, Record},
    store::Key,
};

/// The task as a caller sees it: empty lists are left out, and the history is cut to length.
pub(crate) fn shown(task: Arc<Task>, history_length: Option<i32>) -> Task {
    let mut task = match (Arc::try_unwrap(task), history_length) {
        (Ok(task), _) => task,
        (Err(shared), None) => Task::clone(&shared),
        // A long history is not copied only to be cut.
        (Err(shared), Some(length)) => {
            let history = shared.history.as_deref().unwrap_or_default();
            let cut = history.len().saturating_sub(usize::try_from(length).unwrap_or(0));
            let Task { id, context_id, status, artifacts, history: _, metadata } = &*shared;
            Task {
                id: id.clone(),
                context_id: context_id.clone(),
                status: status.clone(),
                artifacts: artifacts.clone(),
                history: Some(history[cut..].to_vec()),
                metadata: metadata.clone(),
            }
        }
    };
    task.limit_history(history_length);
    task.history = task.history.filter(|history| !history.is_empty());
    task.artifacts = task.artifacts.filter(|artifacts| !artifacts.is_empty());
    task
}

impl Core {
    /// The task as its caller saw it after one of its events.
    pub(crate) async fn task_after(
        &self,
        key: &Key,
        seq: Seq,
        history_length: Option<i32>,
    ) -> Result<Task, Error> {
        let now = self.find_any(key).await?.filter(|record| record.head == seq);
        let task = match now {
            Some(record) => record.task,
            None => self.record_at(key, seq).await?.task,
        };
        Ok(shown(task, history_length))
    }

    /// The record as it stood after one of its events, rebuilt from its log.
    pub(crate) async fn record_at(&self, key: &Key, seq: Seq) -> Result<Record, Error> {
        let (stored, _reservation) = self.load(key).await?;
        let header = stored.ok_or_else(Error::task_not_found)?.header;
        let id = key.task.clone();
        let mut record =
            Record::new(id, header.context, header.agent, header.hidden, header.created);
        while record.head < seq {
            let page = self.read(key, record.head, 256).await?;
            if page.entries.is_empty() {
                break;
            }
            for entry in page.entries.iter().filter(|entry| entry.seq <= seq) {
                rules::apply(&mut record, codec::decode(entry).map_err(refuse)?, 0);
            }
            // A long log must not block the runtime thread.
            tokio::task::yield_now().await;
        }
        Ok(record)
    }
}
