//! Commit of a write: decide by the rules, append to the store, publish to the readers. Every change
//! of a task passes here.

use std::sync::Arc;

use herald_protocol::{Error, Seq, Task};
use tracing::Instrument;

use crate::{
    budget::SMALL,
    cache::{self, CachedTask},
    codec, compat_log,
    engine::{Engine, internal, refuse, taken},
    rules::{self, Command, Event, Extent, Received, Record},
    store::{Append, Dedup, Epoch, Original, StoreError},
};

/// One write of one task.
#[derive(Debug, Default)]
pub(crate) struct Write {
    /// The epoch of the claim that the write is made under.
    pub(crate) fence: Option<Epoch>,
    pub(crate) commands: Vec<Command>,
    pub(crate) dedup: Option<Dedup>,
    /// The task, if this write creates it.
    pub(crate) fresh: Option<Record>,
    /// True if the caller needs the task as it was after the first event, if it is small.
    pub(crate) keep_first: bool,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// The last event before the write.
    pub(crate) before: Seq,
    /// The task after the first event, if asked for and small.
    pub(crate) first: Option<Arc<Task>>,
    /// True if the write claimed a turn.
    pub(crate) claimed: bool,
    /// The message of the claimed turn, if this write received it. Otherwise it must be read.
    pub(crate) received: Option<Received>,
    /// The record after all events.
    pub(crate) record: Record,
}

/// The reason why a write was not made.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// The rules or the store refused it.
    Error(Error),
    /// A newer claim exists.
    Fenced,
    /// An earlier send used the same idempotency key.
    Duplicate(Original),
}

impl Engine {
    /// Commits a write in a spawned task, so that it completes even if the caller's future is dropped,
    /// and so that a caller that is not polled does not hold the lock on the record. `then` runs once
    /// the write is durable.
    pub(crate) async fn commit_detached(
        &self,
        cached: Arc<CachedTask>,
        write: Write,
        then: impl FnOnce(&mut Written) + Send + 'static,
    ) -> Result<Written, Refusal> {
        let engine = self.clone();
        let work = async move {
            let mut written = engine.execute(&cached, write).await?;
            then(&mut written);
            Ok(written)
        };
        // The span of the request, so that the log lines of the write name it.
        match self.inner.work.spawn(Box::pin(work).in_current_span()).await {
            Ok(result) => result,
            Err(_) => Err(Refusal::Error(internal("a write was cut off"))),
        }
    }

    /// Decides, appends and publishes. After a conflict it reads the task again and repeats.
    async fn execute(
        &self,
        cached: &Arc<CachedTask>,
        mut write: Write,
    ) -> Result<Written, Refusal> {
        let mut held = cached.record.lock().await;
        let mut expected = write.fresh.is_none();
        let agent = write.fresh.as_ref().map(|fresh| fresh.agent.clone());
        loop {
            let found = match held.take() {
                Some(record) => Some(record),
                None if !expected => None,
                None => self.stored(&cached.key).await?,
            };
            let mut record = match found {
                // The caller chose the task's id, and a concurrent send to another agent took it.
                Some(record) if agent.as_ref().is_some_and(|agent| *agent != record.agent) => {
                    *held = Some(record);
                    return Err(taken().into());
                }
                Some(record) => record,
                None => write.fresh.take().ok_or_else(Error::task_not_found)?,
            };
            let (before, epoch) = (record.head, record.run.epoch);
            let state = (before > 0).then(|| record.state());
            let (mut events, mut first, mut received) = (Vec::new(), None, None);
            let mut encoder = codec::Encoder::new();
            for (index, command) in write.commands.iter().enumerate() {
                let now = self.now();
                let limits = &self.inner.settings.limits;
                let decided = rules::decide(&record, command.clone(), limits, now);
                let decided = decided.and_then(|decision| {
                    let body = decision.event.as_ref().map(|it| encoder.event(&record.task, it));
                    if let Some((_, body)) = body.as_ref().filter(|_| decision.limited) {
                        rules::within(&record, body.len(), limits)?;
                    }
                    Ok((decision, body))
                });
                let (decision, encoded) = match decided {
                    Ok(decided) => decided,
                    Err(error) => {
                        if index == 0 && before > 0 {
                            *held = Some(record);
                        }
                        return Err(error.into());
                    }
                };
                record.run = decision.run;
                record.hidden &= !decision.unhide;
                if let (Some(event), Some((kind, body))) = (decision.event, encoded) {
                    if let Event::Received(message) = &event {
                        received = Some(message.clone());
                    }
                    rules::apply(&mut record, event, body.len());
                    events.push((kind, body));
                    if write.keep_first && first.is_none() && record.bytes <= SMALL as u64 {
                        first = Some(Arc::clone(&record.task));
                    }
                }
            }
            let pauses = write.commands.contains(&Command::Release) && record.is_due_for_snapshot();
            let whole = (record.is_closed() || pauses) && !record.hidden;
            let snapshot = whole.then(|| encoder.snapshot(&record));
            if let Some(snapshot) = &snapshot {
                record.snapshot = Extent { size: snapshot.size() as u64, covers: record.bytes };
            }
            // The store drops large bytes one by one as it writes them, so that no other handle keeps them.
            let entries = cache::tail_entries(before, &events);
            let published = snapshot.clone().filter(cache::is_tail_snapshot);
            let append = Append {
                key: cached.key.clone(),
                expect: before,
                fence: write.fence,
                header: record.header(),
                events,
                snapshot,
                dedup: write.dedup.clone(),
            };
            match self.inner.store.append(append).await {
                Ok(_) => {
                    if let Some(runtime) = self.inner.agents.get(&record.agent) {
                        runtime.metrics.moved(state, &entries);
                    }
                    if before == 0 {
                        compat_log::task_created(&record.task.id);
                    }
                    self.log_written(&record.task.id, &write.commands, &entries);
                    cached.publish(entries, &record, published);
                    self.inner.wakers.wake(&cached.key.owner);
                    cached.keep(&mut held, record.clone());
                    let claimed = record.run.epoch != epoch;
                    let received = received.filter(|_| record.run.turn == before + 1);
                    return Ok(Written { before, first, claimed, received, record });
                }
                Err(StoreError::Conflict) => {
                    // The task exists already, or another process wrote: read it again.
                    expected = true;
                }
                Err(StoreError::Fenced) => return Err(Refusal::Fenced),
                Err(StoreError::Duplicate(original)) => return Err(Refusal::Duplicate(original)),
                Err(
                    error @ (StoreError::Unavailable(_)
                    | StoreError::Corrupt(_)
                    | StoreError::TooLarge(_)),
                ) => {
                    return Err(refuse(error).into());
                }
            }
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Error(error) => error,
            Refusal::Fenced => internal("a write without a claim was fenced"),
            Refusal::Duplicate(_) => internal("a write without a key was a duplicate"),
        }
    }
}
