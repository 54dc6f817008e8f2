//! Claim of a due task: its next turn begins, or the turn that a dead member left is repeated or
//! failed.

use std::sync::Arc;

use herald_protocol::{Error, ErrorKind, TaskState};

use crate::{
    agents::runtime::{AgentRuntime, TurnPermit},
    commit::{CommitError, Write},
    core::Core,
    fault::refuse,
    rules::{Command, Record},
    store::{Conversation, Due},
    turns::{
        conversation_lock::ConversationLock, ending::notify_ended, failure, recovery,
        supervisor::Supervisor,
    },
};

/// The result of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClaimOutcome {
    /// The claim was written.
    Taken,
    /// The task was claimed, cancelled or removed by another writer first.
    Lost,
}

/// Memory that a turn takes for each byte of its task: the task, its message, and the events and
/// snapshots that it writes.
const BYTES_PER_TASK_BYTE: u64 = 4;

/// The memory of a turn over a task of this many bytes.
pub(crate) fn turn_size(bytes: u64) -> usize {
    usize::try_from(bytes.saturating_mul(BYTES_PER_TASK_BYTE)).unwrap_or(usize::MAX)
}

/// Claims a due task and starts its next turn. A turn that a dead member held is repeated or failed,
/// as the agent's recovery says.
pub(crate) async fn claim(
    core: &Arc<Core>,
    due: Due,
    runtime: &Arc<AgentRuntime>,
    permit: TurnPermit,
) -> Result<ClaimOutcome, Error> {
    let cached = core.cache.get(&due.key);
    let Some(record) = core.record(&cached).await? else { return Ok(ClaimOutcome::Lost) };
    if record.run.epoch != due.epoch {
        return Ok(ClaimOutcome::Lost);
    }
    let worker = permit.worker().map(|place| (place.member(), Arc::clone(place.pool())));
    let me = match &worker {
        Some((worker, _)) => *worker,
        None => core.member().await.map_err(refuse)?,
    };
    let goes_on = match due.holder {
        Some(_) => recovery::goes_on_by_itself(core, &cached.key, &record).await?,
        None => false,
    };
    let command = match overdue(core, runtime, &record) {
        Some(command) => command,
        None => recovery::command(&record, due.holder, runtime, me, goes_on),
    };
    let (task, agent) = (&cached.key.task, &runtime.profile.name);
    if let Command::Report(..) = &command {
        tracing::warn!(%task, %agent, "a turn lost its server or worker and may not be repeated: its task fails");
    } else if let Command::Expire { .. } = &command {
        tracing::warn!(%task, %agent, "no turn of this task began in time: the task fails");
    } else if due.holder.is_some() {
        tracing::info!(%task, %agent, "repeats a turn that lost its server or worker");
    }
    let runs = matches!(command, Command::Begin(_) | Command::Admit(_) | Command::Retry { .. });
    let ends = matches!(command, Command::Report(..) | Command::Expire { .. });
    let permit = if runs {
        permit.with_memory(core.turns.reserve(turn_size(record.bytes)).await)
    } else {
        permit
    };
    let conversation = runtime.profile.serial.then(|| {
        let context = record.task.context_id.clone();
        Conversation { owner: cached.key.owner.clone(), context }
    });
    // A message that arrived since the read may have begun another turn. The fence then refuses this
    // write, which was decided for the turn before.
    let fence = Some(due.epoch);
    drop(record);
    // A claim for a worker is written as that worker, so that the store refuses it for a dead one.
    let holder = if runs { worker.as_ref().map(|(worker, _)| *worker) } else { None };
    let write = Write { fence, holder, commands: vec![command], ..Write::default() };
    let (supervisor, notifier) = (Supervisor::new(core), Arc::clone(core));
    let (turn_runtime, started) = (Arc::clone(runtime), Arc::clone(&cached));
    let tenant = due.key.owner.tenant;
    let written = core
        .commit_detached(cached, write, None, move |written| {
            if runs && written.claimed {
                let lock =
                    conversation.map(|it| ConversationLock::new(&notifier, &turn_runtime, it, me));
                let resources = (permit, lock);
                supervisor.start(started, &turn_runtime, resources, written.record.clone(), None);
            } else if ends && written.record.is_closed() {
                // The agent may have delegated the task; it can now cancel that work.
                notify_ended(&notifier, &tenant, &written.record, None);
            }
        })
        .await;
    match written {
        Ok(written) if runs && !written.claimed => Ok(ClaimOutcome::Lost),
        Ok(_) => Ok(ClaimOutcome::Taken),
        // The task was cancelled, or another process claimed it.
        Err(CommitError::Error(error)) if error.kind == ErrorKind::UnsupportedOperation => {
            Ok(ClaimOutcome::Lost)
        }
        Err(CommitError::Fenced | CommitError::Locked | CommitError::Duplicate(_)) => {
            Ok(ClaimOutcome::Lost)
        }
        Err(error @ CommitError::NotMember) => match worker {
            Some((worker, pool)) if runs => {
                pool.remove(worker);
                Ok(ClaimOutcome::Lost)
            }
            Some(_) | None => Err(error.into()),
        },
        Err(CommitError::Error(error)) => Err(error),
    }
}

/// The command that fails a task whose turn did not begin within the deadline of its agent. The janitor finds such
/// tasks now and then; until then no turn of them may begin.
fn overdue(core: &Core, runtime: &AgentRuntime, record: &Record) -> Option<Command> {
    let limit = runtime.profile.queue_timeout?;
    let since = record.task.status.timestamp?;
    let is_queued = record.state() == TaskState::Submitted && record.run.holder.is_none();
    let age = core.now().as_millis().saturating_sub(since.as_millis());
    let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
    (is_queued && age > limit).then(|| failure::expire_queued(since))
}
