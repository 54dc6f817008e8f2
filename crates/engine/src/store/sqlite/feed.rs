//! Feeds: the events of all tasks of an owner, of a tenant or of everybody, in the order of their
//! commits.
//!
//! All events are in one table, ordered by position. One call examines one block of positions and
//! returns how far it came. For one owner it skips all blocks in which the owner has no events; for
//! a wider scope it takes the next block with any events. It reads no body of an event outside the
//! scope.

use rusqlite::{Connection, Row, params, types::Value};

use crate::store::{FeedEntry, FeedPage, FeedQuery, Key, Owner, Position, Scope};

use super::{
    names::{BLOCK, find_owner},
    reader::{PAGE_BYTES, find_agent},
    rows::{Fault, entry, first, int, readable, text, uint},
    statements as sql,
};

/// Reads one page of a feed.
pub(super) fn read(conn: &Connection, query: &FeedQuery) -> Result<FeedPage, Fault> {
    // In one transaction, so that names and events are from the same state.
    let conn = conn.unchecked_transaction()?;
    let Some(after) = query.after else {
        return Ok(FeedPage { reached: head(&conn)?, ..FeedPage::default() });
    };
    let head = head(&conn)?.max(after);
    let nothing = FeedPage { reached: head, ..FeedPage::default() };
    let agent = match &query.agent {
        Some(name) => match find_agent(&conn, name)? {
            Some(agent) => Some(agent),
            // An agent without tasks has no events.
            None => return Ok(nothing),
        },
        None => None,
    };
    let Some(range) = next_range(&conn, &query.scope, after)? else { return Ok(nothing) };
    let FeedRange { sql, whose, start, end } = range;
    let mut page = FeedPage { entries: Vec::new(), reached: after.max(uint(start - 1)) };
    let mut weight = 0;
    let mut find = conn.prepare_cached(sql)?;
    let mut rows = find.query(params![int(page.reached), end, whose, agent])?;
    while let Some(row) = rows.next()? {
        let position = row.get(0)?;
        if let Some(found) = readable(position, wanted(row, query))?.flatten() {
            weight += found.entry.body.len();
            if weight > PAGE_BYTES && !page.entries.is_empty() {
                return Ok(page);
            }
            page.entries.push(found);
        }
        page.reached = uint(position);
        if page.entries.len() >= query.limit {
            return Ok(page);
        }
    }
    page.reached = head.min(uint(end)).max(page.reached);
    Ok(page)
}

/// The range of positions that one call examines, and the statement for it.
struct FeedRange {
    sql: &'static str,
    /// The number of the owner, or the name of the tenant.
    whose: Value,
    start: i64,
    end: i64,
}

/// The next range; `None` if no owner in the scope has events after this position.
fn next_range(
    conn: &Connection,
    scope: &Scope,
    after: Position,
) -> Result<Option<FeedRange>, Fault> {
    let (sql, whose, block) = match scope {
        Scope::Own(owner) => {
            let Some(owner) = find_owner(conn, owner)? else { return Ok(None) };
            let next = params![owner, (int(after) + 1) / BLOCK];
            let block = first(conn, sql::NEXT_BLOCK, next, |row| row.get::<_, i64>(0))?;
            (sql::READ_FEED, Value::from(owner), block)
        }
        Scope::Tenant(_) | Scope::All => {
            let tenant = match scope {
                Scope::Tenant(tenant) => Value::from(tenant.as_str().to_owned()),
                Scope::Own(_) | Scope::All => Value::Null,
            };
            let next = first(conn, sql::NEXT_POSITION, [int(after)], |row| row.get(0))?;
            let block = next.flatten().map(|position: i64| position / BLOCK);
            (sql::READ_WIDE_FEED, tenant, block)
        }
    };
    Ok(block.map(|block| {
        let (start, end) = (block * BLOCK, block * BLOCK + BLOCK - 1);
        FeedRange { sql, whose, start, end }
    }))
}

/// The event of a row, if the query includes its task.
fn wanted(row: &Row<'_>, query: &FeedQuery) -> Result<Option<FeedEntry>, Fault> {
    let task = text(row, 1)?;
    if !query.tasks.is_empty() && !query.tasks.iter().any(|one| one.as_str() == task) {
        return Ok(None);
    }
    let owner = match &query.scope {
        Scope::Own(owner) => owner.clone(),
        Scope::Tenant(_) | Scope::All => {
            Owner { tenant: text(row, 6)?.into(), principal: text(row, 7)?.into() }
        }
    };
    let (position, agent) = (uint(row.get(0)?), text(row, 2)?.into());
    let key = Key { owner, task: task.into() };
    Ok(Some(FeedEntry { position, key, agent, entry: entry(row, 3)? }))
}

/// The last committed position, even if its event was removed.
fn head(conn: &Connection) -> Result<Position, Fault> {
    let last: Option<Option<i64>> = first(conn, sql::LAST_POSITION, [], |row| row.get(0))?;
    let mark: Option<i64> = first(conn, sql::FIND_META, ["position"], |row| row.get(0))?;
    Ok(uint(last.flatten().unwrap_or(0).max(mark.unwrap_or(1) - 1)))
}
