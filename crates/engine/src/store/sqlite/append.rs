//! One append inside the writer's transaction. Everything that can refuse it is looked at before
//! the task is touched, so that a refused append changes nothing and needs no savepoint.

use herald_protocol::Seq;
use rusqlite::{Connection, Row, params};

use crate::store::{Append, Header, StoreError};

use super::{
    names::{Group, Names, OwnerRow, Totals},
    rows::{Fault, Phase, holder, int, original, run, text, uint, unread},
    statements as sql,
};

/// Numbers that are given out once and never again, not even after what bore them is gone.
#[derive(Debug, Clone, Copy)]
pub(super) struct Next {
    pub(super) row: i64,
    pub(super) position: i64,
}

/// An open transaction and what it has gathered.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pub(super) conn: &'a Connection,
    pub(super) names: &'a mut Names,
    pub(super) next: &'a mut Next,
    pub(super) totals: Totals,
}

/// What the checks and the counters need of a stored task.
struct Before {
    row: i64,
    head: Seq,
    epoch: u64,
    group: Group,
    counted: i64,
    /// Whether nothing that an index contains changes.
    quiet: bool,
}

type Refused<T> = Result<Result<T, StoreError>, Fault>;

impl Batch<'_> {
    /// Writes it, or says why not.
    pub(super) fn append(&mut self, append: &Append) -> Refused<Seq> {
        // The key stands for the first event; without one there is nothing to register.
        let dedup = append.dedup.as_ref().filter(|_| !append.events.is_empty());
        // First of all: a retry must find its original, whatever else has happened since.
        if let Some(dedup) = dedup {
            let key = params![dedup.key, self.next.position];
            if run(self.conn, sql::CLAIM_KEY, key)? == 0 {
                let original = original(self.conn, &dedup.key)?
                    .ok_or_else(|| Fault::unreadable("idempotency key without an event"))?;
                return Ok(Err(StoreError::Duplicate(original)));
            }
        }
        let row = match self.put_header(append)? {
            Ok(row) => row,
            Err(refusal) => {
                if let Some(dedup) = dedup {
                    run(self.conn, sql::RELEASE_KEY, [dedup.key])?;
                }
                return Ok(Err(refusal));
            }
        };
        let mut head = append.expect;
        if !append.events.is_empty() {
            let mut add = self.conn.prepare_cached(sql::ADD_EVENT)?;
            let mut first = dedup.map(|dedup| (dedup.key, dedup.content));
            for (kind, body) in &append.events {
                head += 1;
                let (key, content) = first.take().unzip();
                let (position, kind) = (self.next.position, kind.code());
                add.execute(params![position, row, int(head), kind, key, content, &body[..]])?;
                self.next.position += 1;
            }
        }
        if let Some(snapshot) = &append.snapshot {
            let (seq, status, history) = (snapshot.seq, &snapshot.status, &snapshot.history);
            let (metadata, artifacts) = (&snapshot.metadata, &snapshot.artifacts);
            run(
                self.conn,
                sql::PUT_SNAPSHOT,
                params![row, int(seq), &status[..], &history[..], &metadata[..], &artifacts[..]],
            )?;
        }
        Ok(Ok(head))
    }

    /// Checks the append against what is stored, and writes the header.
    fn put_header(&mut self, append: &Append) -> Refused<i64> {
        let head = append.expect + append.events.len() as u64;
        if append.expect == 0 {
            return self.create(append, head);
        }
        let owner = self.names.owner(self.conn, &append.key.owner)?;
        let Some(owner) = owner else { return Ok(Err(StoreError::Moved)) };
        let agent = self.names.agent(self.conn, &append.header.agent)?;
        let header = &append.header;
        let found = params![owner.owner, append.key.task.as_str()];
        let before = {
            let mut find = self.conn.prepare_cached(sql::FIND_TASK)?;
            let mut rows = find.query(found)?;
            match rows.next()? {
                Some(row) => Before::read(row, owner.owner, agent, header)?,
                None => return Ok(Err(StoreError::Moved)),
            }
        };
        // The claim before the head: a writer that has lost its task must not decide again.
        if append.fence.is_some_and(|epoch| epoch != before.epoch) {
            return Ok(Err(StoreError::Fenced));
        }
        if before.head != append.expect {
            return Ok(Err(StoreError::Moved));
        }
        if before.quiet {
            self.update_run(before.row, head, header)?;
        } else {
            self.update(&before, owner, agent, head, header)?;
        }
        Ok(Ok(before.row))
    }

    fn create(&mut self, append: &Append, head: Seq) -> Refused<i64> {
        let Header { context, state, changed, created, hidden, bytes, run: turns, .. } =
            &append.header;
        let agent = self.names.agent(self.conn, &append.header.agent)?;
        let owner = self.names.owner_or_new(self.conn, &append.key.owner)?;
        let row = self.next.row;
        let created = run(
            self.conn,
            sql::ADD_TASK,
            params![
                row,
                owner.tenant,
                owner.owner,
                append.key.task.as_str(),
                agent,
                context.as_str(),
                state.number(),
                changed.as_millis(),
                created.as_millis(),
                hidden,
                Phase::of(&append.header) as i64,
                int(head),
                int(*bytes),
                int(turns.turn),
                turns.attempt,
                int(turns.epoch),
                unread(turns),
                holder(turns),
            ],
        )?;
        if created == 0 {
            return Ok(Err(StoreError::Moved));
        }
        self.next.row += 1;
        self.totals.count(group(owner.owner, agent, &append.header), 1);
        self.totals.weigh(owner.tenant, 1, int(*bytes));
        Ok(Ok(row))
    }

    fn update(
        &mut self,
        before: &Before,
        owner: OwnerRow,
        agent: i64,
        head: Seq,
        header: &Header,
    ) -> Result<(), Fault> {
        let Header { context, state, changed, created, hidden, bytes, run: turns, .. } = header;
        run(
            self.conn,
            sql::UPDATE_TASK,
            params![
                before.row,
                agent,
                context.as_str(),
                state.number(),
                changed.as_millis(),
                created.as_millis(),
                hidden,
                Phase::of(header) as i64,
                int(head),
                int(*bytes),
                int(turns.turn),
                turns.attempt,
                int(turns.epoch),
                unread(turns),
                holder(turns),
            ],
        )?;
        self.totals.count(before.group, -1);
        self.totals.count(group(owner.owner, agent, header), 1);
        self.totals.weigh(owner.tenant, 0, int(*bytes) - before.counted);
        Ok(())
    }

    fn update_run(&mut self, row: i64, head: Seq, header: &Header) -> Result<(), Fault> {
        let turns = &header.run;
        run(
            self.conn,
            sql::UPDATE_RUN,
            params![
                row,
                int(head),
                int(header.bytes),
                int(turns.turn),
                turns.attempt,
                int(turns.epoch),
                unread(turns),
            ],
        )?;
        Ok(())
    }
}

impl Before {
    fn read(row: &Row<'_>, owner: i64, agent: i64, after: &Header) -> Result<Self, Fault> {
        let group_before =
            Group { owner, hidden: row.get(8)?, agent: row.get(3)?, state: row.get(5)? };
        let quiet = group_before == group(owner, agent, after)
            && text(row, 4)? == after.context.as_str()
            && row.get::<_, i64>(6)? == after.changed.as_millis()
            && row.get::<_, i64>(7)? == after.created.as_millis()
            && row.get::<_, i64>(9)? == Phase::of(after) as i64
            && row.get::<_, Option<[u8; 16]>>(11)? == holder(&after.run);
        Ok(Self {
            row: row.get(0)?,
            head: uint(row.get(1)?),
            epoch: uint(row.get(2)?),
            group: group_before,
            counted: row.get(10)?,
            quiet,
        })
    }
}

fn group(owner: i64, agent: i64, header: &Header) -> Group {
    Group { owner, hidden: header.hidden, agent, state: i64::from(header.state.number()) }
}
