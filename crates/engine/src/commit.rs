//! Commit of a write: plan by the rules, append to the store, publish to the readers. Every change of
//! a task passes here.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use herald_protocol::{Error, ErrorKind, Seq, Task, Timestamp};
use tracing::Instrument;

use crate::{
    budget::SMALL,
    cache::{self, CachedTask},
    codec,
    core::Core,
    fault::{internal, is_transient, refuse, taken},
    observer,
    rules::{self, Command, Event, Extent, Received, Record, TaskLimits},
    store::{
        Append, Cause, Dedup, Demands, Epoch, Kind, MemberId, NewWebhook, Original, Snapshot,
        StoreError, TaskVersion, TurnClaim,
    },
};

/// One write of one task.
#[derive(Debug, Default)]
pub(crate) struct Write {
    /// The epoch of the claim that the write is made under.
    pub(crate) fence: Option<Epoch>,
    /// The member that holds the claim of a turn; `None` means this engine as it is a member now. A
    /// turn whose member was declared dead must not write as the member that this engine became.
    pub(crate) holder: Option<MemberId>,
    pub(crate) commands: Vec<Command>,
    pub(crate) dedup: Option<Dedup>,
    /// A webhook of the task, which begins at the first event.
    pub(crate) webhook: Option<Box<NewWebhook>>,
    pub(crate) cause: Cause,
    /// The demands of a new task on its worker.
    pub(crate) demands: Option<Box<Demands>>,
    /// The task, if this write creates it.
    pub(crate) fresh: Option<Record>,
    /// True if the caller needs the task as it was after the first event, if it is small.
    pub(crate) keep_first: bool,
}

/// The result of a write.
#[derive(Debug)]
pub(crate) struct Written {
    /// The member that held the task before.
    pub(crate) holder_before: Option<MemberId>,
    /// The last event before the write.
    pub(crate) before: Seq,
    /// The task after the first event, if asked for and small.
    pub(crate) first: Option<Arc<Task>>,
    /// True if the write claimed a turn: a member holds it now that did not before.
    pub(crate) claimed: bool,
    /// The message of the claimed turn, if this write received it. Otherwise it must be read.
    pub(crate) received: Option<Received>,
    /// The record after all events.
    pub(crate) record: Record,
}

/// The reason why a write was not made.
#[derive(Debug)]
pub(crate) enum CommitError {
    /// The rules or the store refused it.
    Error(Error),
    /// A newer claim exists.
    Fenced,
    /// The writer is not a member of the store, or no longer one.
    NotMember,
    /// Another turn of the conversation runs.
    Locked,
    /// An earlier send used the same idempotency key.
    Duplicate(Original),
}

/// A write that the rules allow, ready to be appended.
struct Plan {
    /// The record after all events.
    record: Record,
    events: Vec<(Kind, Bytes)>,
    snapshot: Option<Snapshot>,
    /// The task after the first event, if asked for and small.
    first: Option<Arc<Task>>,
    /// The last message that was received.
    received: Option<Received>,
    /// True if anything of the task changes.
    changes: bool,
}

/// Applies the commands of a write to a record. Pure: it changes nothing but the record that it returns.
/// A refusal returns the record if no command has changed it.
fn plan(
    mut record: Record,
    write: &Write,
    limits: &TaskLimits,
    now: Timestamp,
) -> Result<Plan, (Error, Option<Box<Record>>)> {
    let (mut events, mut first, mut received, mut changes) = (Vec::new(), None, None, false);
    let mut encoder = codec::Encoder::new();
    for (index, command) in write.commands.iter().enumerate() {
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
            Err(error) => return Err((error, (index == 0).then(|| Box::new(record)))),
        };
        changes |= decision.event.is_some() || decision.run != record.run;
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
    let is_pause = |command: &Command| matches!(command, Command::Release | Command::Decline(..));
    let pauses = write.commands.iter().any(is_pause) && record.is_due_for_snapshot();
    let whole = (record.is_closed() || pauses) && !record.hidden;
    let snapshot = whole.then(|| encoder.snapshot(&record));
    if let Some(snapshot) = &snapshot {
        record.snapshot = Extent { size: snapshot.size() as u64, covers: record.bytes };
    }
    Ok(Plan { record, events, snapshot, first, received, changes })
}

impl Core {
    /// Commits a write in a spawned task, so that it completes even if the caller's future is dropped,
    /// and so that a caller that is not polled does not hold the lock on the record. `then` runs once
    /// the write is durable. The caller waits for at most `wait`. After that the write still completes
    /// and `then` runs, so that a committed claim gets its turn.
    pub(crate) async fn commit_detached(
        self: &Arc<Self>,
        cached: Arc<CachedTask>,
        write: Write,
        wait: Option<Duration>,
        then: impl FnOnce(&mut Written) + Send + 'static,
    ) -> Result<Written, CommitError> {
        let core = Arc::clone(self);
        let work = async move {
            let mut written = core.commit(&cached, write).await?;
            then(&mut written);
            Ok(written)
        };
        // The span of the request, so that the log lines of the write name it.
        let spawned = self.work.spawn(Box::pin(work).in_current_span());
        let joined = match wait {
            None => spawned.await,
            Some(wait) => match tokio::time::timeout(wait, spawned).await {
                Ok(joined) => joined,
                Err(_) => return Err(unknown_outcome().into()),
            },
        };
        match joined {
            Ok(result) => result,
            Err(_) => Err(CommitError::Error(internal("a write was aborted"))),
        }
    }

    /// Commits the commands of a turn, with retries while the store is unavailable.
    pub(crate) async fn persist(
        self: &Arc<Self>,
        cached: &Arc<CachedTask>,
        claim: TurnClaim,
        commands: Vec<Command>,
        cause: Cause,
    ) -> Result<Written, CommitError> {
        let attempt = || {
            let (fence, holder) = (Some(claim.epoch), Some(claim.holder));
            let (commands, cause) = (commands.clone(), cause.clone());
            let write = Write { fence, holder, commands, cause, ..Write::default() };
            self.commit_detached(Arc::clone(cached), write, None, |_| {})
        };
        let is_transient = |error: &CommitError| match error {
            CommitError::Error(error) => is_transient(error),
            CommitError::Fenced
            | CommitError::NotMember
            | CommitError::Locked
            | CommitError::Duplicate(_) => false,
        };
        self.retry_while_unavailable(attempt, is_transient).await
    }

    /// Plans, appends and publishes. After a conflict it reads the task again and repeats.
    async fn commit(
        &self,
        cached: &Arc<CachedTask>,
        mut write: Write,
    ) -> Result<Written, CommitError> {
        let me = match write.holder {
            Some(holder) => holder,
            None => self.member().await.map_err(refuse)?,
        };
        let mut held = cached.record.lock().await;
        let mut expected = write.fresh.is_none();
        let agent = write.fresh.as_ref().map(|fresh| fresh.agent.clone());
        loop {
            let is_cached = held.is_some();
            let found = match held.take() {
                Some(record) => Some(record),
                None if !expected => None,
                None => self.stored(&cached.key).await?,
            };
            let record = match found {
                // The caller chose the task's id, and a concurrent send to another agent took it.
                Some(record) if agent.as_ref().is_some_and(|agent| *agent != record.agent) => {
                    *held = Some(record);
                    return Err(taken().into());
                }
                Some(record) => record,
                None => write.fresh.take().ok_or_else(Error::task_not_found)?,
            };
            let (before, holder_before) = (record.head, record.run.holder);
            let expect = TaskVersion { head: before, epoch: record.run.epoch };
            let state = (before > 0).then(|| record.state());
            let plan = match plan(record, &write, &self.settings.limits, self.now()) {
                Ok(plan) => plan,
                // Another member may have changed the task since: decide again from the store.
                Err(_) if is_cached && self.store.is_shared() => continue,
                Err((error, unchanged)) => {
                    *held = unchanged.filter(|_| before > 0).map(|record| *record);
                    return Err(error.into());
                }
            };
            // A write under a claim goes to the store, which says whether the claim still stands.
            if !plan.changes && before > 0 && write.fence.is_none() {
                if is_cached && self.store.is_shared() {
                    continue;
                }
                cached.keep(&mut held, plan.record.clone());
                let (first, received, record) = (None, None, plan.record);
                return Ok(Written {
                    holder_before,
                    before,
                    first,
                    claimed: false,
                    received,
                    record,
                });
            }
            // The store drops large bytes one by one as it writes them, so no other handle keeps them.
            let Plan { record, events, snapshot, first, received, .. } = plan;
            let entries = cache::tail_entries(before, &events);
            let published = snapshot.clone().filter(cache::is_tail_snapshot);
            let append = Append {
                key: cached.key.clone(),
                expect,
                fence: write.fence,
                writer: me,
                node: self.membership.id(),
                header: record.header(),
                events,
                snapshot,
                dedup: write.dedup.clone(),
                webhook: write.webhook.clone(),
                cause: write.cause.clone(),
                demands: write.demands.clone(),
            };
            match self.store.append(append).await {
                Ok(_) => {
                    if let Some(runtime) = self.registry.get(&record.agent) {
                        runtime.metrics.count_states(state, &entries);
                    }
                    if let Some(observer) = &self.observer {
                        let commands = &write.commands;
                        observer::written(
                            &**observer,
                            &cached.key,
                            before == 0,
                            commands,
                            &entries,
                        );
                    }
                    cached.publish(entries, &record, published);
                    self.wakers.wake(&cached.key.owner);
                    cached.keep(&mut held, record.clone());
                    let holder = record.run.holder;
                    let claimed = holder.is_some() && holder != holder_before;
                    let received = received.filter(|_| record.run.turn == before + 1);
                    return Ok(Written { holder_before, before, first, claimed, received, record });
                }
                Err(StoreError::Conflict) => {
                    // The task exists already, or another process wrote: read it again.
                    expected = true;
                }
                Err(StoreError::Fenced) => return Err(CommitError::Fenced),
                Err(StoreError::NotMember) => return Err(CommitError::NotMember),
                Err(StoreError::Locked) => return Err(CommitError::Locked),
                Err(StoreError::Duplicate(original)) => {
                    return Err(CommitError::Duplicate(original));
                }
                Err(
                    error @ (StoreError::Unavailable(_)
                    | StoreError::Corrupt(_)
                    | StoreError::TooLarge(_)
                    | StoreError::LimitReached(_)),
                ) => {
                    return Err(refuse(error).into());
                }
            }
        }
    }
}

/// The error of a caller whose write takes too long.
fn unknown_outcome() -> Error {
    let text = "the store takes too long, and it is not known whether the request was stored; send it \
                again with the same messageId";
    Error::new(ErrorKind::Unavailable, text)
}

impl From<Error> for CommitError {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<CommitError> for Error {
    fn from(error: CommitError) -> Self {
        match error {
            CommitError::Error(error) => error,
            CommitError::Fenced => internal("a write without a claim was fenced"),
            CommitError::NotMember => refuse(StoreError::NotMember),
            CommitError::Locked => internal("a write without a claim was refused by a lock"),
            CommitError::Duplicate(_) => internal("a write without a key was a duplicate"),
        }
    }
}
