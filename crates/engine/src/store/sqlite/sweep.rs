//! Retention. The tasks to remove are selected on a reader and removed by the writer in small
//! portions, so that appends can run in between.

use std::collections::BTreeSet;

use rusqlite::{Connection, Row, params};

use crate::store::Retention;

use super::{
    append::{Batch, JobResult, NextNumbers},
    job::Work,
    names::{BLOCK, Group, Sum},
    rows::{Fault, first, int, readable, run, size, state, text, uint},
    statements as sql,
    writer::BATCH_BYTES,
};

/// The limits of one transaction: tasks, events and bytes, whichever is reached first.
const CHUNK_TASKS: usize = 64;
const CHUNK_EVENTS: u64 = 4096;
const CHUNK_BYTES: u64 = 8 << 20;

/// A finished task to remove, ordered by the time of its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RemovalCandidate {
    changed: i64,
    row: i64,
    bytes: u64,
    events: u64,
}

/// The tasks of one tenant, by group.
#[derive(Debug, Default)]
struct Tenant {
    name: String,
    groups: Vec<Group>,
    total: Sum,
}

/// Selects up to `limit` tasks, the oldest first, in portions for one transaction each.
pub(super) fn choose(
    conn: &Connection,
    retention: &Retention,
    limit: usize,
) -> Result<Vec<Vec<i64>>, Fault> {
    if retention.ended_before.is_none() && retention.tasks.is_none() && retention.bytes.is_none() {
        return Ok(Vec::new());
    }
    // In one transaction, so that totals and tasks are from the same state.
    let conn = conn.unchecked_transaction()?;
    let mut candidates = Vec::new();
    let mut find = conn.prepare_cached(sql::ALL_GROUPS)?;
    let mut rows = find.query([])?;
    let mut tenant = Tenant::default();
    while let Some(row) = rows.next()? {
        let counted = readable(row.get(1)?, counted(row))?;
        let Some((name, group, sum, ended)) = counted else { continue };
        if name != tenant.name {
            tenant.choose(&conn, retention, limit, &mut candidates)?;
            tenant = Tenant { name: name.to_owned(), ..Tenant::default() };
        }
        tenant.total.tasks += sum.tasks;
        tenant.total.bytes += sum.bytes;
        if ended {
            tenant.groups.push(group);
        }
    }
    tenant.choose(&conn, retention, limit, &mut candidates)?;
    Ok(portions(&candidates))
}

/// The tenant, the group, its totals, and true if the tasks of the group have ended.
fn counted<'row>(row: &'row Row<'_>) -> Result<(&'row str, Group, Sum, bool), Fault> {
    let group =
        Group { owner: row.get(1)?, hidden: row.get(2)?, agent: row.get(3)?, state: row.get(4)? };
    let sum = Sum { tasks: row.get(5)?, bytes: row.get(6)? };
    Ok((text(row, 0)?, group, sum, state(group.state)?.is_terminal()))
}

impl Tenant {
    /// Adds the tasks by which this tenant exceeds the limits, and keeps the oldest of all.
    fn choose(
        &self,
        conn: &Connection,
        retention: &Retention,
        limit: usize,
        candidates: &mut Vec<RemovalCandidate>,
    ) -> Result<(), Fault> {
        if let Some(before) = retention.ended_before {
            candidates.extend(self.ended(conn, before.as_millis(), limit)?);
        }
        let over = |total: i64, most: Option<u64>| most.map_or(0, |most| total - int(most));
        let mut tasks_over = over(self.total.tasks, retention.tasks);
        let mut bytes_over = over(self.total.bytes, retention.bytes);
        if tasks_over > 0 || bytes_over > 0 {
            for candidate in self.ended(conn, i64::MAX, limit)? {
                if tasks_over <= 0 && bytes_over <= 0 {
                    break;
                }
                tasks_over -= 1;
                bytes_over -= int(candidate.bytes);
                candidates.push(candidate);
            }
        }
        // A task that exceeds two limits was added twice.
        candidates.sort_unstable();
        candidates.dedup();
        candidates.truncate(limit);
        Ok(())
    }

    /// Up to `limit` tasks that ended first, and before this time.
    fn ended(
        &self,
        conn: &Connection,
        mut before: i64,
        limit: usize,
    ) -> Result<Vec<RemovalCandidate>, Fault> {
        let mut find = conn.prepare_cached(sql::ENDED_TASKS)?;
        let mut oldest = Vec::new();
        for Group { owner, hidden, agent, state } in &self.groups {
            let terms = params![owner, hidden, agent, state, before, size(limit)];
            let mut rows = find.query(terms)?;
            while let Some(row) = rows.next()? {
                oldest.push(RemovalCandidate {
                    changed: row.get(0)?,
                    row: row.get(1)?,
                    bytes: uint(row.get(2)?),
                    events: uint(row.get(3)?),
                });
            }
            oldest.sort_unstable();
            oldest.truncate(limit);
            // A task that ended after all of these is not among the oldest.
            if let Some(last) = oldest.last().filter(|_| oldest.len() == limit) {
                before = before.min(last.changed.saturating_add(1));
            }
        }
        Ok(oldest)
    }
}

fn portions(candidates: &[RemovalCandidate]) -> Vec<Vec<i64>> {
    let mut portions: Vec<Vec<i64>> = Vec::new();
    let (mut events, mut bytes) = (0, 0);
    for candidate in candidates {
        let full = |last: &Vec<i64>| {
            last.len() >= CHUNK_TASKS || events >= CHUNK_EVENTS || bytes >= CHUNK_BYTES
        };
        match portions.last_mut() {
            Some(last) if !full(last) => last.push(candidate.row),
            Some(_) | None => {
                (events, bytes) = (0, 0);
                portions.push(vec![candidate.row]);
            }
        }
        events += candidate.events;
        bytes += candidate.bytes;
    }
    portions
}

/// The owners whose tasks a transaction removed.
#[derive(Debug, Default)]
pub(super) struct Swept {
    owners: BTreeSet<i64>,
}

/// Removal of finished tasks by row. Answers with the number of tasks that still existed.
#[derive(Debug)]
pub(super) struct Removal(pub(super) Vec<i64>);

impl Work for Removal {
    type Answer = usize;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<usize> {
        batch.remove(&self.0).map(Ok)
    }

    /// A removal is bounded but not small.
    fn weight(&self) -> usize {
        BATCH_BYTES / 2
    }
}

impl Batch<'_> {
    /// Removes those of the tasks that still exist, are still finished and have no deliveries to make.
    fn remove(&mut self, rows: &[i64]) -> Result<usize, Fault> {
        let mut removed = 0;
        for task in rows {
            let found = first(self.conn, sql::ENDED_TASK, [task], |row| {
                let group = Group {
                    owner: row.get(0)?,
                    hidden: row.get(1)?,
                    agent: row.get(2)?,
                    state: row.get(3)?,
                };
                Ok((group, row.get::<_, i64>(4)?, row.get::<_, bool>(5)?))
            })?;
            let Some((group, counted, webhooks)) = found else { continue };
            if webhooks {
                self.drop_webhooks_of(*task)?;
            }
            // The events last, because the other rows are found through them.
            for drop in [
                sql::DROP_KEYS,
                sql::DROP_CAUSES,
                sql::DROP_COMMITS,
                sql::DROP_EVENTS,
                sql::DROP_SNAPSHOT,
                sql::DROP_TASK,
            ] {
                self.prepared.run(drop, [task])?;
            }
            self.totals.add(group, -1, -counted);
            self.swept.owners.insert(group.owner);
            removed += 1;
        }
        Ok(removed)
    }
}

impl Swept {
    pub(super) fn any(&self) -> bool {
        !self.owners.is_empty()
    }

    /// Removes owners without data, and stores the highest used numbers in case their rows are
    /// gone. Must run after the totals are flushed.
    pub(super) fn remove_empty_owners(
        &self,
        conn: &Connection,
        next: NextNumbers,
    ) -> Result<(), Fault> {
        if !self.any() {
            return Ok(());
        }
        let start = first(conn, sql::FIRST_POSITION, [], |row| row.get::<_, Option<i64>>(0))?;
        let start = start.flatten().map_or(i64::MAX, |position| position / BLOCK);
        for owner in &self.owners {
            run(conn, sql::DROP_COUNTS, [owner])?;
            // The number of a removed owner may be used again.
            let gone = run(conn, sql::DROP_OWNER, [owner])? > 0;
            run(conn, sql::DROP_BLOCKS, [*owner, if gone { i64::MAX } else { start }])?;
        }
        run(conn, sql::PUT_META, ("row", next.row))?;
        run(conn, sql::PUT_META, ("position", next.position))?;
        Ok(())
    }
}
