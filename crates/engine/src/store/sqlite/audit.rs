//! Audit log: appends and retention as jobs of the writer; reads.

use std::{borrow::Cow, sync::Arc};

use herald_protocol::{TenantId, Timestamp};
use rusqlite::{Connection, Row, params, types::ValueRef};

use crate::store::{
    AuditActor, AuditEnds, AuditEntry, AuditPage, AuditQuery, AuditRecord, AuditRetention,
    AuditSubject, ChainLink, Owner,
};

use super::{
    append::{Batch, JobResult},
    job::Work,
    rows::{Fault, first, int, readable, size, text, uint},
    statements as sql,
};

/// The number of records that one read examines.
const EXAMINED: usize = 4096;

/// The names of both ends of the chain in `meta`: a number and a hash each.
const HEAD: &str = "audit_head";
const CHECKPOINT: &str = "audit_checkpoint";

/// The end of the log: the last record and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct AuditTail {
    link: ChainLink,
    at: Timestamp,
}

/// Adds records.
#[derive(Debug)]
pub(super) struct AppendAudit(pub(super) Vec<AuditEntry>);

/// Removes the oldest records.
#[derive(Debug)]
pub(super) struct SweepAudit {
    pub(super) retention: AuditRetention,
    pub(super) limit: usize,
}

impl Work for AppendAudit {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        // Cloned, because a failed transaction may run again.
        self.0.iter().try_for_each(|entry| batch.add_audit(entry.clone()))?;
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        512 * self.0.len()
    }
}

impl Work for SweepAudit {
    type Answer = usize;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<usize> {
        let AuditRetention { before, records } = &self.retention;
        let head = batch.audit_tail()?.link.number;
        let excess = records.map_or(0, |records| head.saturating_sub(records));
        let mut last = None;
        let mut oldest = batch.conn.prepare_cached(sql::OLDEST_AUDIT)?;
        let mut rows = oldest.query([size(self.limit)])?;
        while let Some(row) = rows.next()? {
            let number = uint(row.get(0)?);
            let is_old = before
                .is_some_and(|before| row.get(1).is_ok_and(|at: i64| at < before.as_millis()));
            if number > excess && !is_old {
                break;
            }
            last = Some(ChainLink { number, hash: row.get(2)? });
        }
        drop(rows);
        let Some(last) = last else { return Ok(Ok(0)) };
        let removed = batch.prepared.run(sql::DROP_AUDIT, [int(last.number)])?;
        put_link(batch, CHECKPOINT, last)?;
        Ok(Ok(removed))
    }

    fn weight(&self) -> usize {
        512 * self.limit
    }
}

impl Batch<'_> {
    /// Adds a record to the audit log.
    pub(super) fn add_audit(&mut self, entry: AuditEntry) -> Result<(), Fault> {
        let tail = self.audit_tail()?;
        // The time of the system may go back; that of the log does not, so that the records of a
        // time are found without a search.
        let at = self.clock.now().max(tail.at);
        let record = AuditRecord::after(tail.link, at, entry);
        let AuditEntry { actor, address, action, subject, refused, detail, request } =
            &record.entry;
        let (kind, id, owner) = match subject {
            Some(AuditSubject { kind, id, owner }) => (Some(kind), Some(id), owner.as_ref()),
            None => (None, None, None),
        };
        self.prepared.run(
            sql::ADD_AUDIT,
            params![
                int(record.number),
                at.as_millis(),
                actor.tenant.as_str(),
                actor.principal,
                actor.credential,
                actor.credential_id,
                address,
                action,
                kind,
                id,
                owner.map(|owner| owner.tenant.as_str()),
                owner.map(|owner| &owner.principal),
                refused,
                detail,
                request,
                record.previous,
                record.hash,
            ],
        )?;
        put_link(self, HEAD, record.link())?;
        self.memory.audit = Some(AuditTail { link: record.link(), at });
        Ok(())
    }

    /// The end of the log. A damaged end must not stop the writer: the next record gets an unused
    /// number, and the verification of the chain finds the damage.
    fn audit_tail(&mut self) -> Result<AuditTail, Fault> {
        if let Some(tail) = self.memory.audit {
            return Ok(tail);
        }
        let last = first(self.conn, sql::LAST_AUDIT, [], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))
        })?;
        let (number, at) = last.unwrap_or((0, i64::MIN));
        let mut link = link(self.conn, HEAD)?;
        link.number = link.number.max(uint(number));
        let tail = AuditTail { link, at: Timestamp::from_millis(at) };
        self.memory.audit = Some(tail);
        Ok(tail)
    }
}

/// Both ends of the log.
pub(super) fn ends(conn: &Connection) -> Result<AuditEnds, Fault> {
    let conn = conn.unchecked_transaction()?;
    Ok(AuditEnds { checkpoint: link(&conn, CHECKPOINT)?, head: link(&conn, HEAD)? })
}

/// One page of the log.
pub(super) fn read(conn: &Connection, query: &AuditQuery) -> Result<AuditPage, Fault> {
    let (statement, from) = if query.oldest_first {
        (sql::READ_AUDIT, query.after.map_or(0, int))
    } else {
        (sql::READ_AUDIT_BACKWARDS, query.after.map_or(i64::MAX, int))
    };
    let mut page = AuditPage::default();
    let mut find = conn.prepare_cached(statement)?;
    let mut rows = find.query(params![from, size(EXAMINED)])?;
    let mut examined = 0;
    while let Some(row) = rows.next()? {
        let number: i64 = row.get(0)?;
        examined += 1;
        let Some(record) = readable(number, record(row))? else { continue };
        if query.since.is_some_and(|since| record.at < since) {
            // In the other order, all further records are older.
            if query.oldest_first {
                continue;
            }
            return Ok(AuditPage { next: None, ..page });
        }
        if query.matches(&record) {
            page.records.push(record);
        }
        if page.records.len() >= query.limit || examined >= EXAMINED {
            page.next = Some(uint(number));
            break;
        }
    }
    Ok(page)
}

/// The record of a row.
pub(super) fn record(row: &Row<'_>) -> Result<AuditRecord, Fault> {
    let optional = |column| -> Result<Option<Arc<str>>, Fault> {
        let is_null = row.get_ref(column)? == ValueRef::Null;
        if is_null { Ok(None) } else { Ok(Some(text(row, column)?.into())) }
    };
    let owned = |column| text(row, column).map(|text| Cow::Owned(text.to_owned()));
    let owner = match (optional(10)?, optional(11)?) {
        (Some(tenant), Some(principal)) => {
            Some(Owner { tenant: TenantId::from(&*tenant), principal })
        }
        (Some(_), None) | (None, Some(_) | None) => None,
    };
    let subject = match (optional(8)?, optional(9)?) {
        (Some(kind), Some(id)) => {
            Some(AuditSubject { kind: Cow::Owned(kind.as_ref().to_owned()), id, owner })
        }
        (Some(_), None) | (None, Some(_) | None) => None,
    };
    let actor = AuditActor {
        tenant: TenantId::from(text(row, 2)?),
        principal: text(row, 3)?.into(),
        credential: owned(4)?,
        credential_id: optional(5)?,
    };
    let entry = AuditEntry {
        actor,
        address: optional(6)?,
        action: owned(7)?,
        subject,
        refused: optional(12)?,
        detail: owned(13)?,
        request: optional(14)?,
    };
    let at = Timestamp::from_millis(row.get(1)?);
    let (previous, hash) = (row.get(15)?, row.get(16)?);
    Ok(AuditRecord { number: uint(row.get(0)?), at, entry, previous, hash })
}

/// An end of the chain. A damaged one counts as absent.
fn link(conn: &Connection, name: &str) -> Result<ChainLink, Fault> {
    let stored = first(conn, sql::FIND_META, [name], |row| {
        Ok(row.get::<_, [u8; 40]>(0).unwrap_or([0; 40]))
    })?;
    let stored = stored.unwrap_or([0; 40]);
    let (number, hash) = stored.split_first_chunk().expect("it has 40 bytes");
    let hash = hash.try_into().expect("it has 40 bytes");
    Ok(ChainLink { number: u64::from_be_bytes(*number), hash })
}

fn put_link(batch: &mut Batch<'_>, name: &str, link: ChainLink) -> Result<(), Fault> {
    let stored = [&link.number.to_be_bytes()[..], &link.hash[..]].concat();
    batch.prepared.run(sql::PUT_META, params![name, stored])?;
    Ok(())
}
