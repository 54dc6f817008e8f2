//! Recovery: the treatment of turns that a dead member left, and of tasks whose agent nobody serves.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use herald_protocol::{AgentName, Error};

use crate::{
    agents::{profile::Recovery, runtime::AgentRuntime},
    core::Core,
    fault::refuse,
    rules::{Command, Record},
    store::{Due, DueQuery, Key, MemberId},
    turns::{
        admission::{self, claim_command},
        ending::end,
        failure::{self, AGENT_GONE, INTERRUPTED},
        last_pause::last_pause,
    },
};

/// Tasks that are ended in one batch.
const BATCH: usize = 100;

/// The treatment of the queued tasks of an agent that is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuedTasks {
    /// They wait until an agent of the same name is registered.
    Wait,
    /// They are rejected.
    Reject,
    /// They fail.
    Fail,
}

/// True if the last state of a held turn is an interim one: the agent was at work, whatever the state says.
pub(crate) async fn goes_on_by_itself(
    core: &Core,
    key: &Key,
    record: &Record,
) -> Result<bool, Error> {
    if !record.has_settled() || !record.state().is_interrupted() {
        return Ok(false);
    }
    let pause = last_pause(core, key, record.run.turn).await?;
    Ok(pause.is_some_and(|pause| pause.is_interim))
}

/// The command that claims a due task for `me`, from the dead member `holder` if there is one. `goes_on` says that
/// the turn of that member is at work, although its task waits.
pub(crate) fn command(
    record: &Record,
    holder: Option<MemberId>,
    runtime: &AgentRuntime,
    me: MemberId,
    goes_on: bool,
) -> Command {
    let Some(from) = holder else { return claim_command(runtime, record.hidden, me) };
    if record.is_in_admission() && record.run.attempt >= admission::ATTEMPTS {
        return failure::fail(
            INTERRUPTED,
            "the server stopped each time the agent decided about the message",
        );
    }
    if record.has_settled() && !goes_on {
        return Command::Release;
    }
    match runtime.profile.recovery {
        Recovery::Resume(attempts) | Recovery::Rerun(attempts) if record.run.attempt < attempts => {
            Command::Retry { me, from }
        }
        Recovery::Resume(_) | Recovery::Rerun(_) | Recovery::Fail => {
            let holder = if runtime.pool().is_some() { "worker" } else { "server" };
            let text = format!("the {holder} stopped while the agent was at work");
            failure::fail(INTERRUPTED, &text)
        }
    }
}

/// Fails the tasks of agents that nobody has served for `settings.unserved_after`: no dispatcher would
/// claim them. `since` holds when each was first found unserved.
pub(crate) async fn fail_unserved(
    core: &Arc<Core>,
    since: &mut HashMap<AgentName, Duration>,
) -> Result<(), Error> {
    let unserved = core.store.agents_unserved().await.map_err(refuse)?;
    // Also if this engine could not tell the store yet which agents it serves.
    let agents = core.registry.snapshot();
    let unserved: HashSet<_> =
        unserved.into_iter().filter(|agent| !agents.contains(agent)).collect();
    since.retain(|agent, _| unserved.contains(agent));
    let now = core.uptime();
    for agent in unserved {
        let first = *since.entry(agent.clone()).or_insert(now);
        if now.saturating_sub(first) >= core.settings.unserved_after {
            end_due(core, &agent, || gone(failure::fail)).await?;
        }
    }
    Ok(())
}

/// Treats the queued tasks of an agent that was removed.
pub(crate) async fn treat_queued(core: &Arc<Core>, agent: &AgentName, queued: QueuedTasks) {
    let ended = match queued {
        QueuedTasks::Wait => Ok(()),
        QueuedTasks::Reject => end_due(core, agent, || gone(failure::reject)).await,
        QueuedTasks::Fail => end_due(core, agent, || gone(failure::fail)).await,
    };
    if let Err(error) = ended {
        tracing::error!(%agent, %error, "the queued tasks of a removed agent could not be ended");
    }
}

fn gone(end: fn(&str, &str) -> Command) -> Command {
    end(AGENT_GONE, "the agent of this task is no longer here")
}

/// Ends the due tasks of an agent.
async fn end_due(
    core: &Arc<Core>,
    agent: &AgentName,
    command: impl Fn() -> Command,
) -> Result<(), Error> {
    // Tasks that cannot be ended, because their stored data cannot be read. Every batch finds them
    // again.
    let mut left = HashSet::new();
    loop {
        let query = DueQuery { except: &left, ..DueQuery::new(agent, BATCH) };
        let due = core.store.due(query).await.map_err(refuse)?;
        if due.is_empty() {
            return Ok(());
        }
        for Due { key, .. } in due {
            tracing::warn!(task = %key.task, %agent, "the agent of this task is gone: the task ends");
            if !end(core, key.clone(), command()).await {
                left.insert(key);
            }
        }
    }
}
