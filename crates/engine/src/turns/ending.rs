//! Ends of tasks that have no running turn, and the notification of their agents.

use std::sync::Arc;

use herald_protocol::{Metadata, TenantId};

use crate::{
    commit::{Write, Written},
    core::Core,
    rules::{Command, Record},
    store::Key,
    turns::caught::caught,
    workers::pool::EndedNotice,
};

/// Ends a task without a running turn. Returns true if it succeeded.
pub(crate) async fn end(core: &Arc<Core>, key: Key, command: Command) -> bool {
    let cached = core.cache.get(&key);
    let write = Write { commands: vec![command], ..Write::default() };
    let (notifier, tenant) = (Arc::clone(core), key.owner.tenant.clone());
    let notify = move |written: &mut Written| {
        if written.record.is_closed() {
            notify_ended(&notifier, &tenant, &written.record, None);
        }
    };
    let ended = core.commit_detached(cached, write, None, notify).await;
    if let Err(error) = &ended {
        tracing::debug!(task = %key.task, ?error, "the task could not be ended");
    }
    ended.is_ok()
}

/// Notifies the agent that one of its tasks, of this tenant, ended without a running turn.
pub(crate) fn notify_ended(
    core: &Arc<Core>,
    tenant: &TenantId,
    record: &Record,
    metadata: Option<Metadata>,
) {
    let Some(runtime) = core.registry.get(&record.agent) else { return };
    let task = Arc::clone(&record.task);
    if let Some(pool) = runtime.pool() {
        pool.tell_ended(tenant, EndedNotice { task, metadata });
        return;
    }
    core.work.spawn(async move {
        let notified = caught(runtime.agent.task_ended(&task, metadata));
        if !matches!(tokio::time::timeout(runtime.profile.grace, notified).await, Ok(Ok(()))) {
            let (task, agent) = (&task.id, &runtime.profile.name);
            tracing::warn!(%task, %agent, "the agent was not notified of the end of a task: it failed or took too long");
        }
    });
}
