//! Lists. No query sorts or counts all tasks: each owner, agent and state has its own range in one
//! index, in list order, and its own counter. A list over several owners merges the ranges.

use herald_protocol::{TaskId, TaskState, Timestamp};
use rusqlite::{CachedStatement, Connection, params};

use crate::store::{HistoryQuery, Key, ListCursor, ListQuery, Listing, Scope, Stored};

use super::{
    names::find_owner,
    reader::{find_agent, name, read_since},
    rows::{Fault, first, readable, size, stored, text, uint},
    statements as sql,
};

/// The size at which a page ends, even if it has few tasks.
const PAGE_BYTES: usize = 8 << 20;

/// A position in list order: the time of the status change, and the row.
type ListPosition = (i64, i64);

/// The newest tasks of all owners in the scope, and the number of tasks on all pages.
#[derive(Debug, Default)]
struct MergedPage {
    positions: Vec<ListPosition>,
    total: i64,
}

/// The filters of a query as parameters of the statements.
struct ListFilters {
    agent: Option<i64>,
    state: Option<i64>,
    since: i64,
    /// Only tasks below this position in the index, which are after it in the list.
    below: ListPosition,
    /// One more than the page size, to detect a next page.
    wanted: usize,
}

/// Reads one page.
pub(super) fn list(conn: &Connection, query: &ListQuery) -> Result<Listing, Fault> {
    // In one transaction, so that counters and tasks are from the same state.
    let conn = conn.unchecked_transaction()?;
    let Some(filters) = filters(&conn, query)? else { return Ok(Listing::default()) };
    let mut page = MergedPage::default();
    for owner in owners(&conn, &query.scope)? {
        match &query.context {
            Some(context) => page.add_conversation(&conn, owner, &filters, context.as_str())?,
            None => page.add_owner(&conn, owner, &filters, query.since.is_some())?,
        }
    }
    let MergedPage { mut positions, total } = page;
    let more = positions.len() > query.limit;
    positions.truncate(query.limit);
    let cursor = |(changed, row)| ListCursor { changed: Timestamp::from_millis(changed), row };
    let mut next = positions.last().filter(|_| more).copied();
    let item = if query.artifacts { sql::LIST_ITEM_WITH_ARTIFACTS } else { sql::LIST_ITEM };
    let mut find = conn.prepare_cached(item)?;
    let mut tasks = Vec::with_capacity(positions.len());
    let mut bytes = 0;
    for (index, position) in positions.iter().enumerate() {
        let mut read = || {
            let (task, stored) = item_at(&conn, &mut find, position.1)?;
            let key = match &query.scope {
                Scope::Own(owner) => Key { owner: owner.clone(), task },
                Scope::Tenant(_) | Scope::All => name(&conn, position.1)?,
            };
            Ok((key, stored))
        };
        let Some(item) = readable(position.1, read())? else { continue };
        bytes += item.1.size();
        tasks.push(item);
        if bytes > PAGE_BYTES && index + 1 < positions.len() {
            next = Some(*position);
            break;
        }
    }
    Ok(Listing { tasks, next: next.map(cursor), total: uint(total) })
}

/// The newest idle tasks of a conversation, oldest first. The index is read backwards from its end,
/// so the length of the conversation does not matter.
pub(super) fn conversation_history(
    conn: &Connection,
    query: &HistoryQuery,
) -> Result<Vec<(TaskId, Stored)>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(owner) = find_owner(&conn, &query.owner)? else { return Ok(Vec::new()) };
    let Some(agent) = find_agent(&conn, &query.agent)? else { return Ok(Vec::new()) };
    let mut history = conn.prepare_cached(sql::CONVERSATION_HISTORY)?;
    let filters = params![owner, query.context.as_str(), agent, size(query.tasks)];
    let mut found = history.query(filters)?;
    let mut find = conn.prepare_cached(sql::LIST_ITEM_WITH_ARTIFACTS)?;
    let (mut tasks, mut bytes) = (Vec::new(), 0);
    while let Some(position) = found.next()? {
        bytes += uint(position.get(1)?);
        if bytes > query.bytes as u64 {
            break;
        }
        let row = position.get(0)?;
        tasks.extend(readable(row, item_at(&conn, &mut find, row))?);
    }
    tasks.reverse();
    Ok(tasks)
}

fn item_at(
    conn: &Connection,
    find: &mut CachedStatement<'_>,
    row: i64,
) -> Result<(TaskId, Stored), Fault> {
    let mut rows = find.query([row])?;
    let row = rows.next()?.ok_or_else(|| Fault::unreadable("an index without its task"))?;
    let id = TaskId::from(text(row, 1)?);
    let (row, mut task) = stored(row)?;
    read_since(conn, row, &mut task)?;
    Ok((id, task))
}

/// `None` if the agent has never had a task.
fn filters(conn: &Connection, query: &ListQuery) -> Result<Option<ListFilters>, Fault> {
    let agent = match &query.agent {
        Some(name) => match find_agent(conn, name)? {
            Some(agent) => Some(agent),
            None => return Ok(None),
        },
        None => None,
    };
    Ok(Some(ListFilters {
        agent,
        state: query.state.map(|state| i64::from(state.number())),
        since: query.since.map_or(i64::MIN, Timestamp::as_millis),
        below: query
            .after
            .map_or((i64::MAX, i64::MAX), |cursor| (cursor.changed.as_millis(), cursor.row)),
        wanted: query.limit.saturating_add(1),
    }))
}

/// The owners in the scope that have tasks.
pub(super) fn owners(conn: &Connection, scope: &Scope) -> Result<Vec<i64>, Fault> {
    let read = |row: &rusqlite::Row<'_>| row.get(0);
    let owners = match scope {
        Scope::Own(owner) => find_owner(conn, owner)?.into_iter().collect(),
        Scope::Tenant(tenant) => {
            let mut find = conn.prepare_cached(sql::OWNERS_OF_TENANT)?;
            find.query_map([tenant.as_str()], read)?.collect::<Result<_, _>>()?
        }
        Scope::All => {
            let mut find = conn.prepare_cached(sql::ALL_OWNERS)?;
            find.query_map([], read)?.collect::<Result<_, _>>()?
        }
    };
    Ok(owners)
}

impl MergedPage {
    /// Adds the tasks of a conversation, all of them or those that wait for their caller. The cost
    /// grows with the conversation.
    fn add_conversation(
        &mut self,
        conn: &Connection,
        owner: i64,
        filters: &ListFilters,
        context: &str,
    ) -> Result<(), Fault> {
        let ListFilters { agent, state, since, below, wanted } = filters;
        let waiting = [TaskState::InputRequired, TaskState::AuthRequired];
        let waiting = waiting.map(|state| Some(i64::from(state.number()))).contains(state);
        let find = if waiting { sql::LIST_WAITING } else { sql::LIST_CONTEXT };
        let mut find = conn.prepare_cached(find)?;
        let found = find.query_map(params![owner, context, since, agent, state], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        for position in found {
            let position: ListPosition = position?;
            self.total += 1;
            if position < *below {
                self.positions.push(position);
            }
        }
        self.truncate(*wanted);
        Ok(())
    }

    /// Merges the ranges of each agent and state that has tasks.
    fn add_owner(
        &mut self,
        conn: &Connection,
        owner: i64,
        filters: &ListFilters,
        recent_only: bool,
    ) -> Result<(), Fault> {
        let ListFilters { agent, state, since, below, wanted } = filters;
        let mut find_groups = conn.prepare_cached(sql::LIST_GROUPS)?;
        let mut find_positions = conn.prepare_cached(sql::LIST_GROUP)?;
        let mut groups = find_groups.query([owner])?;
        while let Some(group) = groups.next()? {
            let (agent_here, state_here): (i64, i64) = (group.get(0)?, group.get(1)?);
            if agent.is_some_and(|agent| agent != agent_here)
                || state.is_some_and(|state| state != state_here)
            {
                continue;
            }
            self.total += if recent_only {
                let recent = params![owner, agent_here, state_here, since];
                first(conn, sql::COUNT_GROUP, recent, |row| row.get::<_, i64>(0))?.unwrap_or(0)
            } else {
                group.get::<_, i64>(2)?
            };
            // A task that is older than a full page of others cannot be on the page.
            let oldest = match self.positions.get(*wanted - 1) {
                Some((changed, _)) => *changed.max(since),
                None => *since,
            };
            let range = find_positions.query_map(
                params![owner, agent_here, state_here, oldest, below.0, below.1, size(*wanted)],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            for position in range {
                self.positions.push(position?);
            }
            self.truncate(*wanted);
        }
        Ok(())
    }

    /// Keeps the newest tasks found so far.
    fn truncate(&mut self, wanted: usize) {
        self.positions.sort_unstable_by(|a, b| b.cmp(a));
        self.positions.truncate(wanted);
    }
}
