//! Tasks of agents that take one message of a conversation at a time. Those that wait stand in line,
//! each conversation in its own, and the first of each are in the order of their messages: neither a
//! long line nor many of them make it harder to find who is next.

use std::collections::{HashMap, HashSet};

use herald_protocol::{AgentName, Seq};
use rusqlite::{Connection, OptionalExtension, params};

use crate::store::{Conversation, Holder, Key, Run};

use super::{
    append::Batch,
    names::find_owner,
    reader::{find_agent, named},
    rows::{Fault, int, readable, text},
    statements as sql,
};

impl Batch<'_> {
    /// Puts an agent's waiting tasks in line, and from now on those that come.
    pub(super) fn line_up(&mut self, agent: &AgentName, living: Holder) -> Result<(), Fault> {
        let row = self.memory.names.agent(self.conn, agent)?;
        self.prepared.run(sql::LINE_UP, params![row, living.0.to_be_bytes()])?;
        self.prepared.run(sql::DROP_HEADS, [row])?;
        self.prepared.run(sql::LINE_UP_HEADS, [row])?;
        self.memory.lines.insert(agent.clone(), living);
        Ok(())
    }

    /// Gives a task that has changed its place in line, if its agent has lines.
    pub(super) fn queue(&mut self, agent: &AgentName, task: i64, run: &Run) -> Result<(), Fault> {
        let Some(living) = self.memory.lines.get(agent).copied() else { return Ok(()) };
        let before: Option<i64> = self.one(sql::FIND_IN_LINE, [task])?;
        let after: Option<i64> = match waits_with(run, living) {
            Some(seq) => self.one(sql::FIND_POSITION, [task, int(seq)])?,
            None => None,
        };
        if before == after {
            return Ok(());
        }
        let first: Option<i64> = self.one(sql::FIRST_IN_LINE, [task])?;
        if before.is_some() {
            self.prepared.run(sql::LEAVE_LINE, [task])?;
        }
        if let Some(position) = after {
            self.prepared.run(sql::JOIN_LINE, [task, position])?;
        }
        let next: Option<i64> = self.one(sql::FIRST_IN_LINE, [task])?;
        if first != next {
            self.prepared.run(sql::DROP_HEAD, params![task, first])?;
            self.prepared.run(sql::ADD_HEAD, params![task, next])?;
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

/// The message that a task waits with: the oldest unread one, or the one that a dead process left.
/// [`sql::LINE_UP`] says the same.
fn waits_with(run: &Run, living: Holder) -> Option<Seq> {
    match run.holder {
        None => run.unread.first().copied(),
        Some(holder) if holder == living => None,
        Some(_) => Some(run.turn),
    }
}

/// Those of an agent's tasks that stand in line, whose message came first, without the busy
/// conversations.
pub(super) fn due_in_line(
    conn: &Connection,
    agent: &AgentName,
    busy: &[Conversation],
    limit: usize,
) -> Result<Vec<Key>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(agent) = find_agent(&conn, agent)? else { return Ok(Vec::new()) };
    let mut passed_over: HashMap<i64, HashSet<&str>> = HashMap::new();
    for Conversation { owner, context } in busy {
        if let Some(owner) = find_owner(&conn, owner)? {
            passed_over.entry(owner).or_default().insert(context.as_str());
        }
    }
    let mut found: Vec<(i64, Key)> = Vec::new();
    let mut find_heads = conn.prepare_cached(sql::HEADS)?;
    let mut find_line = conn.prepare_cached(sql::READ_LINE)?;
    let mut heads = find_heads.query([agent])?;
    while let Some(head) = heads.next()? {
        let (position, owner): (i64, i64) = (head.get(0)?, head.get(1)?);
        // Whoever stands behind this one came later still.
        if found.len() >= limit && found.last().is_none_or(|(last, _)| *last < position) {
            break;
        }
        let Some(context) = readable(position, text(head, 2))? else { continue };
        if passed_over.get(&owner).is_some_and(|busy| busy.contains(context)) {
            continue;
        }
        let mut line = find_line.query(params![agent, owner, context])?;
        let mut left = limit;
        while let Some(row) = line.next()?.filter(|_| left > 0) {
            if let Some(key) = named(&conn, row.get(1)?)? {
                found.push((row.get(0)?, key));
                left -= 1;
            }
        }
        found.sort_unstable_by_key(|(position, _)| *position);
        found.truncate(limit);
    }
    Ok(found.into_iter().map(|(_, key)| key).collect())
}
