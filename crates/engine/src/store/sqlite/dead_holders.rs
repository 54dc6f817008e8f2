//! Dead holders: the members that hold tasks and are not alive, in memory and by agent, so that a search
//! for due tasks does not pass over the tasks of every living member.
//!
//! The set may contain members that hold nothing any more, or that are alive: each search checks the
//! members that it finds here. It never lacks a dead holder: the first search of an agent reads all
//! holders, and the writer adds a member after the commit in which it died.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use rusqlite::{Connection, params};

use crate::store::MemberId;

use super::{
    members,
    rows::{Fault, first},
    statements as sql,
};

/// The deaths that are remembered. After more of them every agent is searched anew.
const REMEMBERED: usize = 4096;

/// The dead holders of every agent.
#[derive(Debug, Default)]
pub(super) struct DeadHolders(Mutex<Deaths>);

#[derive(Debug, Default)]
struct Deaths {
    /// The members that died, in order.
    all: Vec<MemberId>,
    agents: HashMap<i64, HoldersOfAgent>,
    /// Counts how often everything was forgotten.
    forgotten: u64,
}

#[derive(Debug, Default)]
struct HoldersOfAgent {
    /// The number of deaths that `holders` contains.
    seen: usize,
    holders: BTreeSet<MemberId>,
}

/// The state before a search.
#[derive(Debug)]
pub(super) struct SearchStart {
    /// The members that may be dead holders; `None` if they are not known yet.
    known: Option<Vec<MemberId>>,
    seen: usize,
    forgotten: u64,
}

impl DeadHolders {
    /// Notes members that died in a transaction that is committed.
    pub(super) fn add(&self, died: Vec<MemberId>) {
        if died.is_empty() {
            return;
        }
        let mut deaths = self.lock();
        if deaths.all.len() + died.len() > REMEMBERED {
            deaths.all.clear();
            deaths.agents.clear();
            deaths.forgotten += 1;
        }
        deaths.all.extend(died);
    }

    /// The state before a search, which must be taken before its transaction begins: a member that dies
    /// in between is then among the later deaths.
    pub(super) fn start(&self, agent: i64) -> SearchStart {
        let mut deaths = self.lock();
        let Deaths { all, agents, forgotten } = &mut *deaths;
        let known = agents.get_mut(&agent).map(|known| {
            known.holders.extend(all.iter().skip(known.seen));
            known.seen = all.len();
            known.holders.iter().copied().collect()
        });
        SearchStart { known, seen: all.len(), forgotten: *forgotten }
    }

    /// The members that hold tasks of this agent and are dead, in the same transaction as the tasks. A
    /// member joins before it can hold a task, so a holder that is not found is dead.
    pub(super) fn find(
        &self,
        conn: &Connection,
        agent: i64,
        start: SearchStart,
    ) -> Result<Vec<MemberId>, Fault> {
        let is_first = start.known.is_none();
        let candidates = match start.known {
            Some(known) => known,
            None => all_holders(conn, agent)?,
        };
        let mut dead = Vec::new();
        for member in candidates {
            if !members::is_living(conn, &member.blob())? {
                dead.push(member);
            }
        }
        if is_first {
            let mut deaths = self.lock();
            if deaths.forgotten == start.forgotten {
                let holders = dead.iter().copied().collect();
                deaths.agents.insert(agent, HoldersOfAgent { seen: start.seen, holders });
            }
        }
        Ok(dead)
    }

    /// Forgets a dead member that holds no task of this agent.
    pub(super) fn clear(&self, agent: i64, member: MemberId) {
        if let Some(known) = self.lock().agents.get_mut(&agent) {
            known.holders.remove(&member);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Deaths> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The holders of an agent's tasks. The statement steps from one holder to the next.
fn all_holders(conn: &Connection, agent: i64) -> Result<Vec<MemberId>, Fault> {
    let mut holders = Vec::new();
    let mut last: Vec<u8> = Vec::new();
    while let Some(holder) =
        first(conn, sql::NEXT_HOLDER, params![agent, last], |row| row.get::<_, [u8; 16]>(0))?
    {
        last = holder.to_vec();
        holders.push(MemberId(u128::from_be_bytes(holder)));
    }
    Ok(holders)
}
