//! Serial queue: the waiting tasks of serial agents, one queue per conversation.
//!
//! The tables `serial_queue` (every waiting task) and `serial_heads` (the first of each conversation)
//! hold positions in the order of messages. Finding the next task of an owner reads the heads alone, so its
//! cost depends neither on the length of a queue nor on the number of conversations.

use herald_protocol::AgentName;
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::{Due, DueQuery, MemberId, Run};

use super::{
    append::{Batch, JobResult},
    due::{QueueOwner, due_at, in_turn},
    job::Work,
    locks::is_locked,
    reader::find_agent,
    rows::{Fault, first, int, readable, text},
    statements as sql,
    writer::BATCH_BYTES,
};

/// Enables the serial queue of an agent.
#[derive(Debug)]
pub(super) struct EnableSerial(pub(super) AgentName);

impl Work for EnableSerial {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        batch.enable_serial(&self.0).map(Ok)
    }

    fn weight(&self) -> usize {
        BATCH_BYTES
    }

    fn is_large(&self) -> bool {
        true
    }
}

impl Batch<'_> {
    /// Queues the waiting tasks of an agent, and keeps the queue from now on.
    fn enable_serial(&mut self, agent: &AgentName) -> Result<(), Fault> {
        let row = self.memory.names.agent(self.conn, agent)?;
        self.prepared.run(sql::FILL_SERIAL_QUEUE, [row])?;
        self.prepared.run(sql::CLEAR_SERIAL_HEADS, [row])?;
        self.prepared.run(sql::FILL_SERIAL_HEADS, [row])?;
        self.memory.serial_agents.insert(agent.clone());
        Ok(())
    }

    /// Updates the queue after a change of this task, if its agent is serial. A waiting task is
    /// ordered by its oldest unread message, or by the message of the turn that a dead member held;
    /// [`sql::FILL_SERIAL_QUEUE`] has the same rule.
    pub(super) fn update_serial(
        &mut self,
        agent: &AgentName,
        task: i64,
        run: &Run,
    ) -> Result<(), Fault> {
        if !self.memory.serial_agents.contains(agent) {
            return Ok(());
        }
        let waits_with = match run.holder {
            None => run.unread.first().copied(),
            Some(holder) if self.is_member(holder)? => None,
            Some(_) => Some(run.turn),
        };
        let after: Option<i64> = match waits_with {
            Some(seq) => self.one(sql::FIND_POSITION, [task, int(seq)])?,
            None => None,
        };
        self.move_in_queue(task, after)
    }

    /// Queues the tasks of serial agents that a dead member held, each at the message of its turn.
    pub(super) fn requeue_tasks_of(&mut self, member: MemberId) -> Result<(), Fault> {
        let agents: Vec<AgentName> = self.memory.serial_agents.iter().cloned().collect();
        for agent in agents {
            let agent = self.memory.names.agent(self.conn, &agent)?;
            let mut held = self.conn.prepare_cached(sql::HELD_TASKS)?;
            let rows = held.query_map(params![agent, member.blob()], |row| row.get(0))?;
            for task in rows.collect::<Result<Vec<i64>, _>>()? {
                let position = self.one(sql::FIND_TURN_POSITION, [task])?;
                self.move_in_queue(task, position)?;
            }
        }
        Ok(())
    }

    /// Moves a task to this position of its queue, or out of the queue.
    fn move_in_queue(&mut self, task: i64, after: Option<i64>) -> Result<(), Fault> {
        let before: Option<i64> = self.one(sql::FIND_SERIAL_POSITION, [task])?;
        if before == after {
            return Ok(());
        }
        let first: Option<i64> = self.one(sql::FIRST_SERIAL_POSITION, [task])?;
        if before.is_some() {
            self.prepared.run(sql::DEQUEUE_SERIAL, [task])?;
        }
        if let Some(position) = after {
            self.prepared.run(sql::ENQUEUE_SERIAL, [task, position])?;
        }
        let next: Option<i64> = self.one(sql::FIRST_SERIAL_POSITION, [task])?;
        if first != next {
            self.prepared.run(sql::REMOVE_SERIAL_HEAD, params![task, first])?;
            self.prepared.run(sql::ADD_SERIAL_HEAD, params![task, next])?;
        }
        Ok(())
    }

    fn one(
        &mut self,
        sql: &'static str,
        params: impl rusqlite::Params,
    ) -> rusqlite::Result<Option<i64>> {
        self.prepared.get(sql)?.query_row(params, |row| row.get(0)).optional()
    }
}

/// The queued tasks of an agent, without the locked conversations: the owners take turns, and each owner's
/// tasks come in the order of their messages.
pub(super) fn next_serial(conn: &Connection, query: &DueQuery<'_>) -> Result<Vec<Due>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(agent) = find_agent(&conn, query.agent)? else { return Ok(Vec::new()) };
    let owner_after = match query.tenant {
        Some(_) => sql::SERIAL_OWNER_OF_TENANT,
        None => sql::SERIAL_OWNER,
    };
    let next_owner = |after: &QueueOwner| -> Result<Option<QueueOwner>, Fault> {
        let after = params![agent, after.tenant, after.owner + 1];
        Ok(first(&conn, owner_after, after, QueueOwner::read)?)
    };
    let tasks = |of: &QueueOwner, limit: usize| -> Result<Vec<Due>, Fault> {
        let QueueOwner { tenant, owner } = of;
        let owner = *owner;
        let mut found: Vec<(i64, Due)> = Vec::new();
        let mut find_heads = conn.prepare_cached(sql::SERIAL_HEADS)?;
        let mut find_queue = conn.prepare_cached(sql::READ_SERIAL_QUEUE)?;
        let mut heads = find_heads.query(params![agent, tenant, owner])?;
        while let Some(head) = heads.next()? {
            let position: i64 = head.get(0)?;
            // Every further head has a later message.
            if found.len() >= limit && found.last().is_none_or(|(last, _)| *last < position) {
                break;
            }
            let Some(context) = readable(position, text(head, 1))? else { continue };
            if is_locked(&conn, owner, agent, context)? {
                continue;
            }
            let mut queue = find_queue.query(params![agent, owner, context])?;
            let mut left = limit;
            while let Some(row) = queue.next()?.filter(|_| left > 0) {
                if let Some(due) = due_at(&conn, row.get(1)?, query.except)? {
                    found.push((row.get(0)?, due));
                    left -= 1;
                }
            }
            found.sort_unstable_by_key(|(position, _)| *position);
            found.truncate(limit);
        }
        Ok(found.into_iter().map(|(_, due)| due).collect())
    };
    in_turn(&conn, query, next_owner, tasks)
}
