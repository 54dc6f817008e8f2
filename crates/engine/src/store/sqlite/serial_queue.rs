//! Serial queue: the waiting tasks of serial agents, one queue per conversation.
//!
//! The tables `line` (every waiting task) and `heads` (the first of each conversation) hold positions
//! in the order of messages. Finding the next task reads `heads` alone, so its cost depends neither on
//! the length of a queue nor on the number of conversations.

use std::collections::{HashMap, HashSet};

use herald_protocol::{AgentName, Seq};
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::{Conversation, Due, MemberId, Run};

use super::{
    append::{Batch, Refused},
    job::Work,
    names::find_owner,
    reader::{due_at, find_agent},
    rows::{Fault, int, readable, text},
    statements as sql,
    writer::BATCH_BYTES,
};

/// Building of the serial queue of an agent, which the store keeps from then on.
#[derive(Debug)]
pub(super) struct EnableSerial(pub(super) AgentName, pub(super) MemberId);

impl Work for EnableSerial {
    type Answer = ();

    fn run(&self, batch: &mut Batch<'_>) -> Refused<()> {
        batch.enable_serial(&self.0, self.1).map(Ok)
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
    fn enable_serial(&mut self, agent: &AgentName, living: MemberId) -> Result<(), Fault> {
        let row = self.memory.names.agent(self.conn, agent)?;
        self.prepared.run(sql::FILL_SERIAL_QUEUE, params![row, living.0.to_be_bytes()])?;
        self.prepared.run(sql::CLEAR_SERIAL_HEADS, [row])?;
        self.prepared.run(sql::FILL_SERIAL_HEADS, [row])?;
        self.memory.serial_agents.insert(agent.clone(), living);
        Ok(())
    }

    /// Updates the queue after a change of this task, if its agent is serial.
    pub(super) fn update_serial(
        &mut self,
        agent: &AgentName,
        task: i64,
        run: &Run,
    ) -> Result<(), Fault> {
        let Some(living) = self.memory.serial_agents.get(agent).copied() else { return Ok(()) };
        let before: Option<i64> = self.one(sql::FIND_SERIAL_POSITION, [task])?;
        let after: Option<i64> = match waits_with(run, living) {
            Some(seq) => self.one(sql::FIND_POSITION, [task, int(seq)])?,
            None => None,
        };
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

/// The message that orders a waiting task: the oldest unread one, or the one whose turn a dead process
/// left. [`sql::FILL_SERIAL_QUEUE`] has the same rule.
fn waits_with(run: &Run, living: MemberId) -> Option<Seq> {
    match run.holder {
        None => run.unread.first().copied(),
        Some(holder) if holder == living => None,
        Some(_) => Some(run.turn),
    }
}

/// The queued tasks of an agent in the order of their messages, without the busy conversations.
pub(super) fn next_serial(
    conn: &Connection,
    agent: &AgentName,
    busy: &[Conversation],
    limit: usize,
) -> Result<Vec<Due>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(agent) = find_agent(&conn, agent)? else { return Ok(Vec::new()) };
    let mut passed_over: HashMap<i64, HashSet<&str>> = HashMap::new();
    for Conversation { owner, context } in busy {
        if let Some(owner) = find_owner(&conn, owner)? {
            passed_over.entry(owner).or_default().insert(context.as_str());
        }
    }
    let mut found: Vec<(i64, Due)> = Vec::new();
    let mut find_heads = conn.prepare_cached(sql::SERIAL_HEADS)?;
    let mut find_queue = conn.prepare_cached(sql::READ_SERIAL_QUEUE)?;
    let mut heads = find_heads.query([agent])?;
    while let Some(head) = heads.next()? {
        let (position, owner): (i64, i64) = (head.get(0)?, head.get(1)?);
        // Every further head has a later message.
        if found.len() >= limit && found.last().is_none_or(|(last, _)| *last < position) {
            break;
        }
        let Some(context) = readable(position, text(head, 2))? else { continue };
        if passed_over.get(&owner).is_some_and(|busy| busy.contains(context)) {
            continue;
        }
        let mut queue = find_queue.query(params![agent, owner, context])?;
        let mut left = limit;
        while let Some(row) = queue.next()?.filter(|_| left > 0) {
            if let Some(due) = due_at(&conn, row.get(1)?)? {
                found.push((row.get(0)?, due));
                left -= 1;
            }
        }
        found.sort_unstable_by_key(|(position, _)| *position);
        found.truncate(limit);
    }
    Ok(found.into_iter().map(|(_, due)| due).collect())
}
