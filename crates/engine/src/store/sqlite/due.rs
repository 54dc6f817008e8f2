//! Due tasks of an agent: the owners take turns, and each owner's tasks come in their order.

use std::collections::HashSet;

use herald_protocol::{AgentName, TenantId};
use rusqlite::{Connection, Row, params};

use crate::store::{Due, DueQuery, Key, MemberId};

use super::{
    dead_holders::DeadHolders,
    label_sets::label_sets_of,
    names::find_owner,
    reader::{find_agent, name},
    rows::{Fault, first, readable, size, uint},
    statements as sql,
};

/// An owner in the order of the queues: owners of one tenant are beside each other.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueueOwner {
    pub(super) tenant: String,
    pub(super) owner: i64,
}

impl QueueOwner {
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self { tenant: row.get(0)?, owner: row.get(1)? })
    }
}

/// The active tasks that no living member holds: those without a holder, and those of dead members.
///
/// First one task of each owner, beginning with the owner after `query.after`; then their others. The cost
/// depends on the limit and the label sets, and not on the number of tenants, owners or tasks.
pub(super) fn due(
    conn: &Connection,
    dead_holders: &DeadHolders,
    query: &DueQuery<'_>,
) -> Result<Vec<Due>, Fault> {
    let Some(agent) = find_agent(conn, query.agent)? else { return Ok(Vec::new()) };
    let start = dead_holders.start(agent);
    let conn = conn.unchecked_transaction()?;
    let mut holders = vec![None];
    holders.extend(dead_holders.find(&conn, agent, start)?.into_iter().map(Some));
    // Each holder with each label set that its tasks require.
    let mut queues = Vec::new();
    for holder in holders {
        let blob = holder.map(MemberId::blob);
        let sets = label_sets_of(&conn, agent, blob.as_ref())?;
        if let Some(holder) = holder.filter(|_| sets.is_empty()) {
            dead_holders.clear(agent, holder);
        }
        let fitting = sets.into_iter().filter(|set| set.fits(query.labels));
        queues.extend(fitting.map(|set| (blob, set.id)));
    }
    let owner_after = match query.tenant {
        Some(_) => sql::DUE_OWNER_OF_TENANT,
        None => sql::DUE_OWNER,
    };
    let next_owner = |after: &QueueOwner| -> Result<Option<QueueOwner>, Fault> {
        let mut next: Option<QueueOwner> = None;
        for (holder, set) in &queues {
            let queue = params![agent, holder, set, after.tenant, after.owner + 1];
            let found = first(&conn, owner_after, queue, QueueOwner::read)?;
            next = [next, found].into_iter().flatten().min();
        }
        Ok(next)
    };
    let tasks = |of: &QueueOwner, limit: usize| -> Result<Vec<Due>, Fault> {
        let mut found: Vec<(i64, i64, i64, Due)> = Vec::new();
        for (holder, set) in &queues {
            let mut find = conn.prepare_cached(sql::DUE_TASKS)?;
            let mut rows = find.query(params![agent, holder, set, of.tenant, of.owner])?;
            let mut left = limit;
            while let Some(at) = rows.next()?.filter(|_| left > 0) {
                let (rank, created, row) = (at.get(0)?, at.get(1)?, at.get(2)?);
                if let Some(due) = due_at(&conn, row, query.except)? {
                    found.push((rank, created, row, due));
                    left -= 1;
                }
            }
        }
        found.sort_unstable_by_key(|(rank, created, row, _)| (*rank, *created, *row));
        found.truncate(limit);
        Ok(found.into_iter().map(|(.., due)| due).collect())
    };
    in_turn(&conn, query, next_owner, tasks)
}

/// The active tasks of an agent that one member holds.
pub(super) fn held(
    conn: &Connection,
    agent: &AgentName,
    holder: MemberId,
    limit: usize,
) -> Result<Vec<Due>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(agent) = find_agent(&conn, agent)? else { return Ok(Vec::new()) };
    let mut find = conn.prepare_cached(sql::SOME_HELD_TASKS)?;
    let rows = find.query_map(params![agent, holder.blob(), size(limit)], |row| row.get(0))?;
    let mut held = Vec::new();
    for row in rows {
        held.extend(due_at(&conn, row?, &HashSet::new())?);
    }
    Ok(held)
}

/// Takes one task of each owner and then the others, up to the limit.
pub(super) fn in_turn(
    conn: &Connection,
    query: &DueQuery<'_>,
    next_owner: impl Fn(&QueueOwner) -> Result<Option<QueueOwner>, Fault>,
    tasks: impl Fn(&QueueOwner, usize) -> Result<Vec<Due>, Fault>,
) -> Result<Vec<Due>, Fault> {
    // No owner has the number 0.
    let before_all =
        QueueOwner { tenant: query.tenant.map_or("", TenantId::as_str).to_owned(), owner: 0 };
    let last = query.after.filter(|last| query.tenant.is_none_or(|own| last.tenant == *own));
    let number = last.map(|last| find_owner(conn, last)).transpose()?.flatten();
    let start = match (last, number) {
        (Some(last), Some(owner)) => QueueOwner { tenant: last.tenant.to_string(), owner },
        (Some(_) | None, _) => before_all.clone(),
    };
    let (mut found, mut owners) = (Vec::new(), Vec::new());
    // From the start to the last owner, and from the first owner to the start.
    for (from, to) in [(&start, None), (&before_all, Some(&start))] {
        let mut at = from.clone();
        while found.len() < query.limit
            && let Some(owner) = next_owner(&at)?.filter(|owner| to.is_none_or(|to| owner <= to))
        {
            at = owner;
            let first = tasks(&at, 1)?;
            if !first.is_empty() {
                owners.push(at.clone());
            }
            found.extend(first);
        }
    }
    for owner in owners {
        let left = query.limit - found.len();
        if left == 0 {
            break;
        }
        found.extend(tasks(&owner, left + 1)?.into_iter().skip(1));
    }
    Ok(found)
}

/// The data for claiming a task, unless it is excepted or its stored data cannot be read.
pub(super) fn due_at(
    conn: &Connection,
    row: i64,
    except: &HashSet<Key>,
) -> Result<Option<Due>, Fault> {
    let read = || {
        let key = name(conn, row)?;
        let (epoch, holder) = first(conn, sql::FIND_CLAIM, [row], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Option<[u8; 16]>>(1)?))
        })?
        .ok_or_else(|| Fault::unreadable("a task without a run"))?;
        let holder = holder.map(u128::from_be_bytes).map(MemberId);
        Ok(Due { key, epoch: uint(epoch), holder })
    };
    Ok(readable(row, read())?.filter(|due| !except.contains(&due.key)))
}
