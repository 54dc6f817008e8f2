//! Lists. Nothing sorts or counts all tasks: each owner, agent and state has its own stretch of one
//! index, in the order of the list, and its own counter. A list over several owners merges them.

use herald_protocol::{TaskId, TaskState, Timestamp};
use rusqlite::{CachedStatement, Connection, params};

use crate::store::{HistoryQuery, Key, ListCursor, ListQuery, Listing, Scope, Stored};

use super::{
    names::find_owner,
    reader::{find_agent, name, read_since},
    rows::{Fault, first, readable, size, stored, text, uint},
    statements as sql,
};

/// Bytes after which a page ends, however few tasks it holds: the caller goes on with the next.
const PAGE_BYTES: usize = 8 << 20;

/// A cursor in the order: when the status changed, and the row.
type Spot = (i64, i64);

/// The newest tasks of all owners in scope, and how many there are on all pages.
#[derive(Debug, Default)]
struct Page {
    spots: Vec<Spot>,
    total: i64,
}

/// The parts of a query as the statements take them.
struct Terms {
    agent: Option<i64>,
    state: Option<i64>,
    since: i64,
    /// Only positions before this in index order, which is after it in list order.
    below: Spot,
    /// One more than asked for, to see whether there is a next page.
    wanted: usize,
}

/// One page.
pub(super) fn list(conn: &Connection, query: &ListQuery) -> Result<Listing, Fault> {
    // One view of counters and tasks.
    let conn = conn.unchecked_transaction()?;
    let Some(terms) = terms(&conn, query)? else { return Ok(Listing::default()) };
    let mut page = Page::default();
    for owner in owners(&conn, &query.scope)? {
        match &query.context {
            Some(context) => page.add_conversation(&conn, owner, &terms, context.as_str())?,
            None => page.add_owner(&conn, owner, &terms, query.since.is_some())?,
        }
    }
    let Page { mut spots, total } = page;
    let more = spots.len() > query.limit;
    spots.truncate(query.limit);
    let cursor = |(changed, row)| ListCursor { changed: Timestamp::from_millis(changed), row };
    let mut next = spots.last().filter(|_| more).copied();
    let item = if query.artifacts { sql::LIST_ITEM_WITH_ARTIFACTS } else { sql::LIST_ITEM };
    let mut find = conn.prepare_cached(item)?;
    let mut tasks = Vec::with_capacity(spots.len());
    let mut bytes = 0;
    for (index, spot) in spots.iter().enumerate() {
        let mut read = || {
            let (task, stored) = item_at(&conn, &mut find, spot.1)?;
            let key = match &query.scope {
                Scope::Own(owner) => Key { owner: owner.clone(), task },
                Scope::Tenant(_) | Scope::All => name(&conn, spot.1)?,
            };
            Ok((key, stored))
        };
        let Some(item) = readable(spot.1, read())? else { continue };
        bytes += item.1.size();
        tasks.push(item);
        if bytes > PAGE_BYTES && index + 1 < spots.len() {
            next = Some(*spot);
            break;
        }
    }
    Ok(Listing { tasks, next: next.map(cursor), total: uint(total) })
}

/// The newest tasks of a conversation on which nothing is to be done, oldest first. Rows are in the
/// order of the index, which is followed back from its end: what came long before is not looked at.
pub(super) fn conversation_history(
    conn: &Connection,
    query: &HistoryQuery,
) -> Result<Vec<(TaskId, Stored)>, Fault> {
    let conn = conn.unchecked_transaction()?;
    let Some(owner) = find_owner(&conn, &query.owner)? else { return Ok(Vec::new()) };
    let Some(agent) = find_agent(&conn, &query.agent)? else { return Ok(Vec::new()) };
    let mut history = conn.prepare_cached(sql::CONVERSATION_HISTORY)?;
    let terms = params![owner, query.context.as_str(), agent, size(query.tasks)];
    let mut found = history.query(terms)?;
    let mut find = conn.prepare_cached(sql::LIST_ITEM_WITH_ARTIFACTS)?;
    let (mut tasks, mut bytes) = (Vec::new(), 0);
    while let Some(spot) = found.next()? {
        bytes += uint(spot.get(1)?);
        if bytes > query.bytes as u64 {
            break;
        }
        let row = spot.get(0)?;
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

/// None if the agent has never had a task.
fn terms(conn: &Connection, query: &ListQuery) -> Result<Option<Terms>, Fault> {
    let agent = match &query.agent {
        Some(name) => match find_agent(conn, name)? {
            Some(agent) => Some(agent),
            None => return Ok(None),
        },
        None => None,
    };
    Ok(Some(Terms {
        agent,
        state: query.state.map(|state| i64::from(state.number())),
        since: query.since.map_or(i64::MIN, Timestamp::as_millis),
        below: query
            .after
            .map_or((i64::MAX, i64::MAX), |cursor| (cursor.changed.as_millis(), cursor.row)),
        wanted: query.limit.saturating_add(1),
    }))
}

/// The owners in a scope who have tasks.
fn owners(conn: &Connection, scope: &Scope) -> Result<Vec<i64>, Fault> {
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

impl Page {
    /// Adds the whole conversation, which is as long as a conversation is, or those of its tasks that
    /// wait for their caller.
    fn add_conversation(
        &mut self,
        conn: &Connection,
        owner: i64,
        terms: &Terms,
        context: &str,
    ) -> Result<(), Fault> {
        let Terms { agent, state, since, below, wanted } = terms;
        let waiting = [TaskState::InputRequired, TaskState::AuthRequired];
        let waiting = waiting.map(|state| Some(i64::from(state.number()))).contains(state);
        let find = if waiting { sql::LIST_WAITING } else { sql::LIST_CONTEXT };
        let mut find = conn.prepare_cached(find)?;
        let found = find.query_map(params![owner, context, since, agent, state], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?;
        for spot in found {
            let spot: Spot = spot?;
            self.total += 1;
            if spot < *below {
                self.spots.push(spot);
            }
        }
        self.cut(*wanted);
        Ok(())
    }

    /// Merges the stretches of each agent and state that have any tasks.
    fn add_owner(
        &mut self,
        conn: &Connection,
        owner: i64,
        terms: &Terms,
        recent_only: bool,
    ) -> Result<(), Fault> {
        let Terms { agent, state, since, below, wanted } = terms;
        let mut find_groups = conn.prepare_cached(sql::LIST_GROUPS)?;
        let mut find_spots = conn.prepare_cached(sql::LIST_GROUP)?;
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
            // What is older than a full page of newer tasks cannot be on it.
            let floor = match self.spots.get(*wanted - 1) {
                Some((changed, _)) => *changed.max(since),
                None => *since,
            };
            let stretch = find_spots.query_map(
                params![owner, agent_here, state_here, floor, below.0, below.1, size(*wanted)],
                |row| Ok((row.get(0)?, row.get(1)?)),
            )?;
            for spot in stretch {
                self.spots.push(spot?);
            }
            self.cut(*wanted);
        }
        Ok(())
    }

    /// Keeps the newest of what was found so far.
    fn cut(&mut self, wanted: usize) {
        self.spots.sort_unstable_by(|a, b| b.cmp(a));
        self.spots.truncate(wanted);
    }
}
