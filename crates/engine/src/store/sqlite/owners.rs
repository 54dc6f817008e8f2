//! Owners with their usage, and the owners of a task id. The cost follows the number of owners.

use herald_protocol::{TaskId, TaskState, TenantId};
use rusqlite::{Connection, Row, Rows, params};

use crate::store::{Owner, OwnerQuery, Scope, Usage};

use super::{
    names::find_owner,
    rows::{Fault, first, size, state, text, uint},
    statements as sql,
};

/// The owners in the scope that have a task with this id.
pub(super) fn owners_of(
    conn: &Connection,
    scope: &Scope,
    task: &TaskId,
    limit: usize,
) -> Result<Vec<Owner>, Fault> {
    let mut owners = Vec::new();
    let mut take = |mut rows: Rows<'_>| -> Result<(), Fault> {
        while let Some(row) = rows.next()? {
            owners.push(owner(row, 0)?);
        }
        Ok(())
    };
    match scope {
        Scope::Own(owner) => {
            let name = [owner.tenant.as_str(), &owner.principal, task.as_str()];
            let found = first(conn, sql::FIND_HEAD, name, |_| Ok(()))?;
            return Ok(found.map(|()| owner.clone()).into_iter().take(limit).collect());
        }
        Scope::Tenant(tenant) => {
            let mut find = conn.prepare_cached(sql::FIND_OWNERS_OF_TENANT)?;
            take(find.query(params![task.as_str(), tenant.as_str(), size(limit)])?)?;
        }
        Scope::All => {
            let mut find = conn.prepare_cached(sql::FIND_ALL_OWNERS)?;
            take(find.query(params![task.as_str(), size(limit)])?)?;
        }
    }
    Ok(owners)
}

/// The sum of the counters in the scope.
pub(super) fn usage(conn: &Connection, scope: &Scope) -> Result<Usage, Fault> {
    match scope {
        Scope::Own(owner) => match find_owner(conn, owner)? {
            Some(owner) => usage_of(conn, owner),
            None => Ok(Usage::default()),
        },
        Scope::Tenant(tenant) => {
            let mut find = conn.prepare_cached(sql::COUNTS_OF_TENANT)?;
            sum(find.query([tenant.as_str()])?)
        }
        Scope::All => sum(conn.prepare_cached(sql::ALL_COUNTS)?.query([])?),
    }
}

/// One page of owners, each with its usage.
pub(super) fn owners(conn: &Connection, query: &OwnerQuery) -> Result<Vec<(Owner, Usage)>, Fault> {
    // In one transaction, so that names and counters are from the same state.
    let conn = conn.unchecked_transaction()?;
    let after = query.after.as_ref();
    let principal = after.map_or("", |owner| &*owner.principal);
    // One more, because the statements include the cursor: an empty name is a name, too.
    let limit = size(query.limit.saturating_add(1));
    let mut find = conn.prepare_cached(match query.tenant {
        Some(_) => sql::LIST_OWNERS_OF_TENANT,
        None => sql::LIST_OWNERS,
    })?;
    let tenant = query.tenant.as_ref().or(after.map(|owner| &owner.tenant));
    let tenant = tenant.map_or("", TenantId::as_str);
    let mut rows = find.query(params![tenant, principal, limit])?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()?.filter(|_| page.len() < query.limit) {
        let owner = owner(row, 1)?;
        if Some(&owner) != after {
            page.push((owner, usage_of(&conn, row.get(0)?)?));
        }
    }
    Ok(page)
}

fn usage_of(conn: &Connection, owner: i64) -> Result<Usage, Fault> {
    sum(conn.prepare_cached(sql::COUNTS_OF_OWNER)?.query([owner])?)
}

fn sum(mut rows: Rows<'_>) -> Result<Usage, Fault> {
    let mut usage = Usage::default();
    while let Some(row) = rows.next()? {
        let (is_hidden, state): (bool, TaskState) = (row.get(0)?, state(row.get(1)?)?);
        let (tasks, bytes) = (uint(row.get(2)?), uint(row.get(3)?));
        usage.bytes += bytes;
        if !state.is_terminal() {
            usage.active += tasks;
        }
        if !is_hidden {
            usage.tasks += tasks;
            if state == TaskState::Submitted {
                usage.queued += tasks;
            }
        }
    }
    Ok(usage)
}

fn owner(row: &Row<'_>, column: usize) -> Result<Owner, Fault> {
    let tenant = TenantId::from(text(row, column)?);
    Ok(Owner { tenant, principal: text(row, column + 1)?.into() })
}
