//! Admission: the agent's decision about a message before its turn begins.
//!
//! The task is claimed without an event and stays `submitted`, and the message stays unread. A decision is one write
//! under that claim, so a crash before it leaves a message that is still waiting.

use std::sync::Arc;

use herald_protocol::{Error, ErrorKind, Message, Part, TaskState};

use crate::{
    agents::{
        error::AgentError,
        profile::{Admission, Candidate},
        runtime::AgentRuntime,
    },
    cache::{CachedTask, Stopper},
    core::Core,
    fault::is_transient,
    rules::{Command, Received, Record},
    store::{Actor, MemberId, TurnClaim},
    turns::{
        caught::{caught, text_of},
        failure::{self, AGENT_FAILED, TIMED_OUT},
    },
};

/// The most attempts at the admission of one message, if crashes interrupt it.
pub(crate) const ATTEMPTS: u32 = 3;

/// The result of an admission.
pub(crate) enum AdmissionOutcome {
    /// The turn has begun.
    Begun(Record, Received),
    /// The first write of the turn decides.
    Deferred(Received),
    /// There is no turn: the message was declined, or the claim is lost.
    Declined,
}

/// The command that claims a waiting task: for the admission of its message, if its agent decides about messages, and
/// for the turn otherwise.
pub(crate) fn claim_command(runtime: &AgentRuntime, is_hidden: bool, holder: MemberId) -> Command {
    if runtime.agent.admits() && !is_hidden {
        Command::Admit(holder)
    } else {
        Command::Begin(holder)
    }
}

/// Asks the agent about the message that a task is held for, and writes its decision.
pub(crate) async fn decide(
    core: &Arc<Core>,
    cached: &Arc<CachedTask>,
    runtime: &AgentRuntime,
    stopper: &Stopper,
    (record, claim): (&Record, TurnClaim),
    received: Option<Received>,
) -> AdmissionOutcome {
    let (task, agent) = (&cached.key.task, &runtime.profile.name);
    let received = match message(core, cached, record, received).await {
        Ok(received) => received,
        // The claim ends with this process, and the next start repeats the admission.
        Err(error) if error.kind == ErrorKind::Unavailable => return AdmissionOutcome::Declined,
        Err(error) => {
            tracing::error!(%task, %agent, %error, "a message could not be read for its admission");
            let failed = failure::fail(AGENT_FAILED, "the turn could not be prepared");
            let _ = core.persist(cached, claim, vec![failed], Actor::Agent.into()).await;
            return AdmissionOutcome::Declined;
        }
    };
    let candidate = Candidate {
        task: &record.task,
        message: &received.message,
        metadata: received.metadata.as_ref(),
    };
    let admitted = caught(runtime.agent.admit(candidate));
    let decided = tokio::select! {
        biased;
        () = stopper.token.cancelled() => return AdmissionOutcome::Declined,
        decided = tokio::time::timeout(runtime.profile.admission_timeout, admitted) => decided,
    };
    let command = match decided {
        Ok(Ok(Ok(Admission::Accept))) => Command::Admitted,
        Ok(Ok(Ok(Admission::Defer))) => return AdmissionOutcome::Deferred(received),
        Ok(Ok(Ok(Admission::Reject(parts)))) => declined(TaskState::Rejected, parts),
        Ok(Ok(Ok(Admission::RequireAuth(parts)))) => declined(TaskState::AuthRequired, parts),
        Ok(Ok(Err(AgentError::Suspended))) if core.is_draining() => {
            return AdmissionOutcome::Declined;
        }
        Ok(Ok(Err(error))) => failure::of_agent(&error),
        Ok(Err(panic)) => {
            let cause = text_of(&panic);
            tracing::error!(%task, %agent, cause, "the agent panicked in an admission");
            failure::of_panic()
        }
        Err(_) => {
            tracing::warn!(%task, %agent, "an admission took too long: its task fails");
            failure::fail(
                TIMED_OUT,
                "the agent did not decide in time whether it takes the message",
            )
        }
    };
    match core.persist(cached, claim, vec![command], Actor::Agent.into()).await {
        Ok(written) if written.record.run.holder.is_some() => {
            AdmissionOutcome::Begun(written.record, received)
        }
        Ok(written) => {
            if !written.record.run.unread.is_empty() {
                runtime.wake_for(&cached.key.owner.tenant);
            }
            AdmissionOutcome::Declined
        }
        // The task was cancelled, or another member claimed it.
        Err(_) => AdmissionOutcome::Declined,
    }
}

/// The message that the task is held for.
async fn message(
    core: &Arc<Core>,
    cached: &CachedTask,
    record: &Record,
    received: Option<Received>,
) -> Result<Received, Error> {
    match received {
        Some(received) => Ok(received),
        None => {
            let read = || core.message_at(&cached.key, record.run.turn);
            core.retry_while_unavailable(read, is_transient).await
        }
    }
}

fn declined(state: TaskState, parts: Vec<Part>) -> Command {
    let message = Message { parts, ..Message::agent(uuid::Uuid::now_v7().to_string(), "") };
    Command::Decline(state, Some(message.into()))
}

/// The commands of the first write of a turn whose admission was deferred: the decision comes before them, or is
/// one of them.
pub(crate) fn deciding(mut commands: Vec<Command>) -> Vec<Command> {
    match &mut commands[..] {
        [
            Command::Report(state @ (TaskState::Rejected | TaskState::AuthRequired), message, None),
        ] => {
            vec![Command::Decline(*state, message.take())]
        }
        _ => [vec![Command::Admitted], commands].concat(),
    }
}
