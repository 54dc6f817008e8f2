//! Retention. The tasks to remove are chosen on a reader and removed by the writer a few at a time,
//! so that appends get their turn in between.

use herald_protocol::Timestamp;
use rusqlite::{Connection, params};

use crate::store::Retention;

use super::{
    append::{Batch, Next},
    names::Group,
    rows::{Fault, first, int, run, size, uint},
    statements as sql,
};

/// What one transaction removes at most: tasks, events and bytes, whichever comes first.
const CHUNK_TASKS: usize = 64;
const CHUNK_EVENTS: u64 = 4096;
const CHUNK_BYTES: u64 = 8 << 20;

/// A finished task that is due to be removed, ordered by when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Victim {
    changed: i64,
    row: i64,
    bytes: u64,
    events: u64,
}

/// Chooses up to `limit` tasks, the oldest first, in portions for one transaction each.
pub(super) fn choose(
    conn: &Connection,
    retention: &Retention,
    limit: usize,
) -> Result<Vec<Vec<i64>>, Fault> {
    // One view of totals and tasks.
    let conn = conn.unchecked_transaction()?;
    let mut victims = Vec::new();
    if let Some(before) = retention.ended_before {
        too_old(&conn, before, limit, &mut victims)?;
    }
    if retention.tasks.is_some() || retention.bytes.is_some() {
        too_many(&conn, retention, limit, &mut victims)?;
    }
    // The first limit that is hit applies, so a task may have been chosen twice.
    victims.sort_unstable();
    victims.dedup();
    victims.truncate(limit);
    Ok(portions(&victims))
}

fn too_old(
    conn: &Connection,
    before: Timestamp,
    limit: usize,
    victims: &mut Vec<Victim>,
) -> Result<(), Fault> {
    let mut last = 0_i64;
    // One look for each tenant, at its oldest task.
    loop {
        let next = first(conn, sql::NEXT_TENANT_ENDED, [last], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        let Some((tenant, oldest)) = next else { return Ok(()) };
        if oldest < before.as_millis() {
            victims.extend(ended(conn, tenant, before.as_millis(), limit)?);
        }
        last = tenant;
    }
}

fn too_many(
    conn: &Connection,
    retention: &Retention,
    limit: usize,
    victims: &mut Vec<Victim>,
) -> Result<(), Fault> {
    let most = |limit: Option<u64>| limit.map_or(i64::MAX, int);
    let (tasks, bytes) = (most(retention.tasks), most(retention.bytes));
    let mut over = conn.prepare_cached(sql::TENANTS_OVER)?;
    let mut rows = over.query([tasks, bytes])?;
    while let Some(row) = rows.next()? {
        let mut tasks_over = row.get::<_, i64>(1)?.saturating_sub(tasks);
        let mut bytes_over = row.get::<_, i64>(2)?.saturating_sub(bytes);
        for victim in ended(conn, row.get(0)?, i64::MAX, limit)? {
            if tasks_over <= 0 && bytes_over <= 0 {
                break;
            }
            tasks_over -= 1;
            bytes_over -= int(victim.bytes);
            victims.push(victim);
        }
    }
    Ok(())
}

fn ended(conn: &Connection, tenant: i64, before: i64, limit: usize) -> Result<Vec<Victim>, Fault> {
    let mut find = conn.prepare_cached(sql::ENDED_TASKS)?;
    let victims = find.query_map(params![tenant, before, size(limit)], |row| {
        Ok(Victim {
            changed: row.get(0)?,
            row: row.get(1)?,
            bytes: uint(row.get(2)?),
            events: uint(row.get(3)?),
        })
    })?;
    Ok(victims.collect::<Result<_, _>>()?)
}

fn portions(victims: &[Victim]) -> Vec<Vec<i64>> {
    let mut portions: Vec<Vec<i64>> = Vec::new();
    let (mut events, mut bytes) = (0, 0);
    for victim in victims {
        let full = |last: &Vec<i64>| {
            last.len() >= CHUNK_TASKS || events >= CHUNK_EVENTS || bytes >= CHUNK_BYTES
        };
        match portions.last_mut() {
            Some(last) if !full(last) => last.push(victim.row),
            Some(_) | None => {
                (events, bytes) = (0, 0);
                portions.push(vec![victim.row]);
            }
        }
        events += victim.events;
        bytes += victim.bytes;
    }
    portions
}

/// Whose tasks a transaction has removed.
#[derive(Debug, Default)]
pub(super) struct Swept {
    owners: Vec<(i64, i64)>,
}

impl Batch<'_> {
    /// Removes those of these tasks that are still there and still over.
    pub(super) fn remove(&mut self, rows: &[i64], swept: &mut Swept) -> Result<u64, Fault> {
        let mut removed = 0;
        for task in rows {
            let found = first(self.conn, sql::ENDED_TASK, [task], |row| {
                let group = Group {
                    owner: row.get(1)?,
                    hidden: row.get(2)?,
                    agent: row.get(3)?,
                    state: row.get(4)?,
                };
                Ok((row.get::<_, i64>(0)?, group, row.get::<_, i64>(5)?))
            })?;
            let Some((tenant, group, counted)) = found else { continue };
            // The keys first: they are found through the events.
            run(self.conn, sql::DROP_KEYS, [task])?;
            run(self.conn, sql::DROP_EVENTS, [task])?;
            run(self.conn, sql::DROP_SNAPSHOT, [task])?;
            run(self.conn, sql::DROP_TASK, [task])?;
            self.totals.count(group, -1);
            self.totals.weigh(tenant, -1, -counted);
            swept.owners.push((group.owner, tenant));
            removed += 1;
        }
        Ok(removed)
    }
}

impl Swept {
    pub(super) fn any(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Forgets owners and tenants that have nothing left, and keeps in mind which numbers have been
    /// given out, should the highest of them be gone. After the totals are flushed, never before.
    pub(super) fn tidy(&mut self, conn: &Connection, next: Next) -> Result<(), Fault> {
        if !self.any() {
            return Ok(());
        }
        self.owners.sort_unstable();
        self.owners.dedup();
        for (owner, tenant) in &self.owners {
            run(conn, sql::DROP_COUNTS, [owner])?;
            if run(conn, sql::DROP_OWNER, [owner])? > 0 {
                run(conn, sql::DROP_TENANT, [tenant])?;
            }
        }
        run(conn, sql::PUT_META, ("row", next.row))?;
        run(conn, sql::PUT_META, ("position", next.position))?;
        Ok(())
    }
}
