//! All events of one owner, in the order in which they were committed.
//!
//! They lie among everybody else's, in one table ordered by position. A step looks at one block of
//! positions in which the owner has events, and says how far it came; it passes over all blocks
//! before that, and of what is not the owner's it reads no body.

use herald_protocol::TaskId;
use rusqlite::{Connection, Row, params};

use crate::store::{FeedEntry, FeedPage, FeedQuery, Position};

use super::{
    names::{BLOCK, find_owner},
    reader::{PAGE_BYTES, find_agent},
    rows::{Fault, entry, first, int, readable, text, uint},
    statements as sql,
};

/// One step.
pub(super) fn read(conn: &Connection, query: &FeedQuery) -> Result<FeedPage, Fault> {
    // One view of names and events.
    let conn = conn.unchecked_transaction()?;
    let Some(after) = query.after else {
        return Ok(FeedPage { reached: head(&conn)?, ..FeedPage::default() });
    };
    let owner = find_owner(&conn, &query.owner)?;
    let agent = match &query.agent {
        Some(name) => find_agent(&conn, name)?.map(Some),
        None => Some(None),
    };
    // Who never had a task, and an agent that never had one, have no events up to now.
    let (Some(owner), Some(agent)) = (owner, agent) else {
        return Ok(FeedPage { reached: head(&conn)?.max(after), ..FeedPage::default() });
    };
    let head = head(&conn)?.max(after);
    let next = params![owner, (int(after) + 1) / BLOCK];
    let Some(block) = first(&conn, sql::NEXT_BLOCK, next, |row| row.get::<_, i64>(0))? else {
        return Ok(FeedPage { reached: head, ..FeedPage::default() });
    };
    let (start, end) = (block * BLOCK, block * BLOCK + BLOCK - 1);
    let mut page = FeedPage { entries: Vec::new(), reached: after.max(uint(start - 1)) };
    let mut weight = 0;
    let mut find = conn.prepare_cached(sql::READ_FEED)?;
    let mut rows = find.query(params![int(page.reached), end, owner, agent])?;
    while let Some(row) = rows.next()? {
        let position = row.get(0)?;
        if let Some(found) = readable(position, wanted(row, &query.tasks))?.flatten() {
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

/// The event of a row, if it is one of these tasks.
fn wanted(row: &Row<'_>, tasks: &[TaskId]) -> Result<Option<FeedEntry>, Fault> {
    let task = text(row, 1)?;
    if !tasks.is_empty() && !tasks.iter().any(|one| one.as_str() == task) {
        return Ok(None);
    }
    let (position, task, agent) = (uint(row.get(0)?), task.into(), text(row, 2)?.into());
    Ok(Some(FeedEntry { position, task, agent, entry: entry(row, 3)? }))
}

/// The last position that was given out and committed, also when its event is gone.
fn head(conn: &Connection) -> Result<Position, Fault> {
    let last: Option<Option<i64>> = first(conn, sql::LAST_POSITION, [], |row| row.get(0))?;
    let mark: Option<i64> = first(conn, sql::FIND_META, ["position"], |row| row.get(0))?;
    Ok(uint(last.flatten().unwrap_or(0).max(mark.unwrap_or(1) - 1)))
}
