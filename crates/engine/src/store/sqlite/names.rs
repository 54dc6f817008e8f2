//! Interned names of owners and agents, and the counter changes of the current transaction.

use std::collections::HashMap;

use herald_protocol::AgentName;
use rusqlite::{Connection, params};

use crate::store::Owner;

use super::{
    prepared::Prepared,
    rows::{Fault, first, run},
    statements as sql,
};

/// The number of positions in a block of the presence table. It cannot change, because the database
/// contains block numbers.
pub(super) const BLOCK: i64 = 512;

/// The maximum number of cached names. A full cache is cleared.
const REMEMBERED: usize = 4096;

/// The writer's cache of names. It must be cleared after a rollback, because the names of that
/// transaction are not stored.
#[derive(Debug, Default)]
pub(super) struct NameCache {
    owners: HashMap<Owner, i64>,
    agents: HashMap<AgentName, i64>,
    /// The last block in which each owner is known to have events.
    blocks: HashMap<i64, i64>,
}

impl NameCache {
    /// The number of an owner, if it has one.
    pub(super) fn owner(&mut self, conn: &Connection, name: &Owner) -> Result<Option<i64>, Fault> {
        if let Some(known) = self.owners.get(name) {
            return Ok(Some(*known));
        }
        let found = find_owner(conn, name)?;
        Ok(found.map(|row| remember(&mut self.owners, name, row)))
    }

    /// The number of an owner, a new one if necessary.
    pub(super) fn owner_or_new(&mut self, conn: &Connection, name: &Owner) -> Result<i64, Fault> {
        if let Some(known) = self.owner(conn, name)? {
            return Ok(known);
        }
        run(conn, sql::ADD_OWNER, params![name.tenant.as_str(), &*name.principal])?;
        Ok(remember(&mut self.owners, name, conn.last_insert_rowid()))
    }

    /// The number of an agent, a new one if necessary.
    pub(super) fn agent(&mut self, conn: &Connection, name: &AgentName) -> Result<i64, Fault> {
        if let Some(known) = self.agents.get(name) {
            return Ok(*known);
        }
        let row = match first(conn, sql::FIND_AGENT, [name.as_str()], |row| row.get(0))? {
            Some(known) => known,
            None => {
                run(conn, sql::ADD_AGENT, [name.as_str()])?;
                conn.last_insert_rowid()
            }
        };
        Ok(remember(&mut self.agents, name, row))
    }

    /// Records that an owner has events in this block.
    pub(super) fn present(
        &mut self,
        prepared: &mut Prepared<'_>,
        owner: i64,
        block: i64,
    ) -> Result<(), Fault> {
        if self.blocks.get(&owner) != Some(&block) {
            prepared.run(sql::ADD_BLOCK, [owner, block])?;
            remember(&mut self.blocks, &owner, block);
        }
        Ok(())
    }

    pub(super) fn forget(&mut self) {
        self.owners.clear();
        self.agents.clear();
        self.blocks.clear();
    }
}

pub(super) fn find_owner(conn: &Connection, name: &Owner) -> Result<Option<i64>, Fault> {
    let name = [name.tenant.as_str(), &name.principal];
    Ok(first(conn, sql::FIND_OWNER, name, |row| row.get(0))?)
}

fn remember<N: Clone + Eq + std::hash::Hash>(
    names: &mut HashMap<N, i64>,
    name: &N,
    row: i64,
) -> i64 {
    if names.len() >= REMEMBERED {
        names.clear();
    }
    names.insert(name.clone(), row);
    row
}

/// The key of a counter: tasks of one owner, agent, state and visibility.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) owner: i64,
    pub(super) hidden: bool,
    pub(super) agent: i64,
    pub(super) state: i64,
}

/// The number of tasks, and the bytes of their logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sum {
    pub(super) tasks: i64,
    pub(super) bytes: i64,
}

/// Changes of the counters, summed up over a transaction and written at its end.
#[derive(Debug, Default)]
pub(super) struct Totals(HashMap<Group, Sum>);

impl Totals {
    /// Adds to the counters of a group. Negative values subtract.
    pub(super) fn add(&mut self, group: Group, tasks: i64, bytes: i64) {
        let sum = self.0.entry(group).or_default();
        sum.tasks += tasks;
        sum.bytes += bytes;
    }

    /// Adds the sums to the stored counters.
    pub(super) fn flush(self, conn: &Connection) -> Result<(), Fault> {
        for (group, sum) in self.0 {
            if sum != Sum::default() {
                let Group { owner, hidden, agent, state } = group;
                let Sum { tasks, bytes } = sum;
                let sums = params![owner, hidden, agent, state, tasks, bytes];
                if run(conn, sql::ADD_COUNT, sums)? == 0 {
                    run(conn, sql::NEW_COUNT, sums)?;
                }
            }
        }
        Ok(())
    }
}
