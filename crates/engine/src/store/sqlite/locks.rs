//! Conversation locks: a serial agent has at most one turn in each conversation, whoever runs it.
//!
//! A claim takes the lock in its own transaction. The lock outlives the claim, because a cancelled agent
//! may still run: it is freed when the agent has stopped, or its member is dead.

use herald_protocol::AgentName;
use rusqlite::{Connection, params};

use crate::store::{Change, Conversation, Header, MemberId};

use super::{
    append::{Batch, Refused},
    job::Work,
    rows::{Fault, first},
    statements as sql,
};

/// The end of a lock, if this member has it.
#[derive(Debug)]
pub(super) struct Unlock {
    pub(super) agent: AgentName,
    pub(super) conversation: Conversation,
    pub(super) me: MemberId,
}

impl Work for Unlock {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> Refused<()> {
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
    /// The member that claims the task of a serial agent with this header, if one does.
    pub(super) fn new_holder(&self, before: Option<MemberId>, header: &Header) -> Option<MemberId> {
        let holder = header.run.holder.filter(|holder| before != Some(*holder))?;
        self.memory.serial_agents.contains(&header.agent).then_some(holder)
    }

    /// Locks the conversation of a task. False if it is locked, also by the same member.
    pub(super) fn lock_conversation(&mut self, task: i64, member: MemberId) -> Result<bool, Fault> {
        let lock = params![task, member.blob()];
        Ok(self.prepared.run(sql::LOCK_CONVERSATION, lock)? > 0)
    }
}

/// True if a turn runs in this conversation.
pub(super) fn is_locked(
    conn: &Connection,
    owner: i64,
    agent: i64,
    context: &str,
) -> Result<bool, Fault> {
    let conversation = params![owner, agent, context];
    Ok(first(conn, sql::FIND_LOCK, conversation, |_| Ok(()))?.is_some())
}
