//! Long names as small numbers, and what the counters owe to the current transaction.

use std::collections::HashMap;

use herald_protocol::AgentName;
use rusqlite::{Connection, params};

use crate::store::Owner;

use super::{
    rows::{Fault, first, run},
    statements as sql,
};

/// Names remembered at once. A full cache starts over: the database still knows them all.
const REMEMBERED: usize = 4096;

/// The numbers of an owner.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnerRow {
    pub(super) owner: i64,
    pub(super) tenant: i64,
}

/// The writer's memory of names. After a rollback it must forget: what it has seen is not stored.
#[derive(Debug, Default)]
pub(super) struct Names {
    owners: HashMap<Owner, OwnerRow>,
    agents: HashMap<AgentName, i64>,
}

impl Names {
    /// The numbers of an owner, if they have ever stored anything.
    pub(super) fn owner(
        &mut self,
        conn: &Connection,
        name: &Owner,
    ) -> Result<Option<OwnerRow>, Fault> {
        if let Some(known) = self.owners.get(name) {
            return Ok(Some(*known));
        }
        let tenant = first(conn, sql::FIND_TENANT, [name.tenant.as_str()], |row| row.get(0))?;
        let Some(tenant) = tenant else { return Ok(None) };
        let found = params![tenant, &*name.principal];
        let Some(owner) = first(conn, sql::FIND_OWNER, found, |row| row.get(0))? else {
            return Ok(None);
        };
        Ok(Some(self.remember(name, OwnerRow { owner, tenant })))
    }

    /// The numbers of an owner, new ones if need be.
    pub(super) fn owner_or_new(
        &mut self,
        conn: &Connection,
        name: &Owner,
    ) -> Result<OwnerRow, Fault> {
        if let Some(known) = self.owner(conn, name)? {
            return Ok(known);
        }
        let tenant = [name.tenant.as_str()];
        let tenant = match first(conn, sql::FIND_TENANT, tenant, |row| row.get(0))? {
            Some(known) => known,
            None => {
                run(conn, sql::ADD_TENANT, tenant)?;
                conn.last_insert_rowid()
            }
        };
        run(conn, sql::ADD_OWNER, params![tenant, &*name.principal])?;
        Ok(self.remember(name, OwnerRow { owner: conn.last_insert_rowid(), tenant }))
    }

    /// The number of an agent, a new one if need be.
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
        if self.agents.len() >= REMEMBERED {
            self.agents.clear();
        }
        self.agents.insert(name.clone(), row);
        Ok(row)
    }

    pub(super) fn forget(&mut self) {
        self.owners.clear();
        self.agents.clear();
    }

    fn remember(&mut self, name: &Owner, row: OwnerRow) -> OwnerRow {
        if self.owners.len() >= REMEMBERED {
            self.owners.clear();
        }
        self.owners.insert(name.clone(), row);
        row
    }
}

/// Where a list looks for a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Group {
    pub(super) owner: i64,
    pub(super) hidden: bool,
    pub(super) agent: i64,
    pub(super) state: i64,
}

/// Changes to counters, summed over a transaction and written once at its end.
#[derive(Debug, Default)]
pub(super) struct Totals {
    groups: HashMap<Group, i64>,
    tenants: HashMap<i64, (i64, i64)>,
}

impl Totals {
    pub(super) fn count(&mut self, group: Group, tasks: i64) {
        *self.groups.entry(group).or_default() += tasks;
    }

    pub(super) fn weigh(&mut self, tenant: i64, tasks: i64, bytes: i64) {
        let total = self.tenants.entry(tenant).or_default();
        total.0 += tasks;
        total.1 += bytes;
    }

    /// Adds what was summed to what is stored.
    pub(super) fn flush(self, conn: &Connection) -> Result<(), Fault> {
        for (group, tasks) in self.groups {
            if tasks != 0 {
                let Group { owner, hidden, agent, state } = group;
                run(conn, sql::ADD_COUNT, params![owner, hidden, agent, state, tasks])?;
            }
        }
        for (tenant, (tasks, bytes)) in self.tenants {
            if (tasks, bytes) != (0, 0) {
                run(conn, sql::ADD_TOTAL, params![tenant, tasks, bytes])?;
            }
        }
        Ok(())
    }
}
