//! Conversation locks: a serial agent has at most one turn per conversation, on all nodes together.
//!
//! A claim takes the lock in its own transaction. The lock outlives the claim, because a cancelled
//! agent may still run: it is released when the agent has stopped, or its member is dead.

use herald_protocol::AgentName;
use rusqlite::{Connection, params};

use crate::store::{Change, Conversation, Header, MemberId};

use super::{
    append::{Batch, JobResult},
    job::Work,
    rows::{Fault, first},
    statements as sql,
};

/// The release of a lock, if this member holds it.
#[derive(Debug)]
pub(super) struct Unlock {
    pub(super) agent: AgentName,
    pub(super) conversation: Conversation,
    pub(super) me: MemberId,
}

impl Work for Unlock {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        let Self { agent, conversation: Conversation { owner, context }, me } = self;
        let agent = batch.memory.names.agent(batch.conn, agent)?;
        if let Some(owner) = batch.memory.names.owner(batch.conn, owner)? {
            let lock = params![owner, agent, context.as_str(), me.blob()];
            if batch.prepared.run(sql::UNLOCK_CONVERSATION, lock)? > 0 {
                batch.announce(*me, || Change::Work(self.agent.clone()));
            }
        }
        Ok(Ok(()))
    }
}

impl Batch<'_> {
    /// The member that claims a task of a serial agent by this header, if there is one.
    pub(super) fn new_holder(&self, before: Option<MemberId>, header: &Header) -> Option<MemberId> {
        let holder = header.run.holder.filter(|holder| before != Some(*holder))?;
        self.memory.serial_agents.contains(&header.agent).then_some(holder)
    }

    /// Locks the conversation of a task. Returns false if it is already locked, even by the same
    /// member.
    pub(super) fn lock_conversation(&mut self, task: i64, member: MemberId) -> Result<bool, Fault> {
        let lock = params![task, member.blob()];
        Ok(self.prepared.run(sql::LOCK_CONVERSATION, lock)? > 0)
    }
}

/// True if the conversation is locked.
pub(super) fn is_locked(
    conn: &Connection,
    owner: i64,
    agent: i64,
    context: &str,
) -> Result<bool, Fault> {
    let conversation = params![owner, agent, context];
    Ok(first(conn, sql::FIND_LOCK, conversation, |_| Ok(()))?.is_some())
}
