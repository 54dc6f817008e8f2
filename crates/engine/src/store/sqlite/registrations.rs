//! Registrations of workers and remote agents: jobs of the writer; reads.

use async_trait::async_trait;
use herald_protocol::{AgentName, TenantId, Timestamp};
use rusqlite::{Connection, Row, params};

use crate::store::{
    AuditEntry, Change, MemberId, NewRegistration, Owner, PinnedCard, Registration,
    RegistrationName, RegistrationStore, StoreError,
};

use super::{
    Sqlite,
    append::{Batch, JobResult},
    job::Work,
    members::NO_MEMBER,
    rows::{Fault, readable, size, text},
    statements as sql,
};

/// Stores or replaces a registration.
#[derive(Debug)]
struct PutRegistration(Box<NewRegistration>);

/// Removes a registration by its name.
#[derive(Debug)]
struct RemoveRegistration(RegistrationName, Box<AuditEntry>);

/// Notes signs of life.
#[derive(Debug)]
struct RecordSeen(Vec<(RegistrationName, Timestamp)>);

/// Notes that the card of a remote agent changed, or that it is the pinned one again.
#[derive(Debug)]
struct RecordCardChange(RegistrationName, Option<String>);

/// Removes workers that were not seen for long.
#[derive(Debug)]
struct RemoveUnseen {
    before: Timestamp,
    limit: usize,
}

#[async_trait]
impl RegistrationStore for Sqlite {
    async fn put_registration(
        &self,
        new: NewRegistration,
    ) -> Result<Option<Registration>, StoreError> {
        self.write(PutRegistration(Box::new(new))).await
    }

    async fn remove_registration(
        &self,
        name: &str,
        audit: AuditEntry,
    ) -> Result<Option<Registration>, StoreError> {
        self.write(RemoveRegistration(name.into(), Box::new(audit))).await
    }

    async fn record_seen(
        &self,
        seen: Vec<(RegistrationName, Timestamp)>,
    ) -> Result<(), StoreError> {
        self.write(RecordSeen(seen)).await
    }

    async fn record_card_change(
        &self,
        name: &str,
        changed_to: Option<String>,
    ) -> Result<bool, StoreError> {
        self.write(RecordCardChange(name.into(), changed_to)).await
    }

    async fn find_registration(&self, name: &str) -> Result<Option<Registration>, StoreError> {
        self.readers.with(|conn| find(conn, name))
    }

    async fn registrations(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Registration>, StoreError> {
        let after = after.unwrap_or_default().to_owned();
        self.read_long(move |conn| {
            let mut find = conn.prepare_cached(sql::LIST_REGISTRATIONS)?;
            let mut rows = find.query(params![after, size(limit)])?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.extend(readable(0, read(row))?);
            }
            Ok(found)
        })
        .await
    }

    async fn remove_unseen(
        &self,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<RegistrationName>, StoreError> {
        self.write(RemoveUnseen { before, limit }).await
    }
}

impl Work for PutRegistration {
    type Answer = Option<Registration>;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Option<Registration>> {
        let NewRegistration { registration: new, alive_since, audit } = &*self.0;
        let former = find(batch.conn, &new.name)?;
        if let Some(former) = &former {
            let is_other_kind = former.card.is_some() != new.card.is_some();
            // A remote agent has no signs of life: it is there until it is removed.
            let is_alive = former.card.is_some() || former.last_seen >= *alive_since;
            if is_alive && (is_other_kind || former.owner != new.owner) {
                return Ok(Err(StoreError::Conflict));
            }
        }
        let card = new.card.as_ref();
        batch.prepared.run(
            sql::PUT_REGISTRATION,
            params![
                new.name,
                new.role.as_str(),
                new.instance,
                new.owner.tenant.as_str(),
                new.owner.principal,
                serde_json::to_string(&new.declaration).expect("a declaration has string keys"),
                new.session.map(MemberId::blob),
                card.map(|card| &card.url),
                card.map(|card| &card.digest),
                card.map(|card| &card.document),
                card.and_then(|card| card.changed_to.as_ref()),
                new.created.as_millis(),
                new.last_seen.as_millis(),
            ],
        )?;
        batch.add_audit(audit.clone())?;
        batch.announce(NO_MEMBER, || Change::Registrations);
        Ok(Ok(former))
    }

    fn weight(&self) -> usize {
        let card = self.0.registration.card.as_ref();
        4096 + card.map_or(0, |card| card.document.len())
    }
}

impl Work for RemoveRegistration {
    type Answer = Option<Registration>;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Option<Registration>> {
        let found = find(batch.conn, &self.0)?;
        if found.is_some() {
            batch.prepared.run(sql::DROP_REGISTRATION, params![self.0])?;
            batch.add_audit((*self.1).clone())?;
            batch.announce(NO_MEMBER, || Change::Registrations);
        }
        Ok(Ok(found))
    }
}

impl Work for RecordSeen {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        for (name, at) in &self.0 {
            batch.prepared.run(sql::SEE_REGISTRATION, params![name, at.as_millis()])?;
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        64 * self.0.len()
    }
}

impl Work for RecordCardChange {
    type Answer = bool;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<bool> {
        let changed = batch.prepared.run(sql::CHANGE_CARD, params![self.0, self.1])?;
        batch.announce(NO_MEMBER, || Change::Registrations);
        Ok(Ok(changed > 0))
    }
}

impl Work for RemoveUnseen {
    type Answer = Vec<RegistrationName>;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Vec<RegistrationName>> {
        let mut names: Vec<RegistrationName> = Vec::new();
        {
            let mut find = batch.conn.prepare_cached(sql::UNSEEN_REGISTRATIONS)?;
            let mut rows = find.query(params![self.before.as_millis(), size(self.limit)])?;
            while let Some(row) = rows.next()? {
                names.push(text(row, 0)?.into());
            }
        }
        for name in &names {
            batch.prepared.run(sql::DROP_REGISTRATION, params![name])?;
        }
        if !names.is_empty() {
            batch.announce(NO_MEMBER, || Change::Registrations);
        }
        Ok(Ok(names))
    }
}

fn find(conn: &Connection, name: &str) -> Result<Option<Registration>, Fault> {
    let mut find = conn.prepare_cached(sql::FIND_REGISTRATION)?;
    let mut rows = find.query([name])?;
    rows.next()?.map(read).transpose()
}

/// The registration of a row.
fn read(row: &Row<'_>) -> Result<Registration, Fault> {
    let declaration = serde_json::from_str(text(row, 5)?);
    let declaration = declaration.map_err(|_| Fault::unreadable("a declaration"))?;
    let session: Option<[u8; 16]> = row.get(6)?;
    let (url, digest, document): (Option<String>, Option<String>, Option<String>) =
        (row.get(7)?, row.get(8)?, row.get(9)?);
    let card = match (url, digest, document) {
        (Some(url), Some(digest), Some(document)) => {
            Some(PinnedCard { url, digest, document, changed_to: row.get(10)? })
        }
        (None, None, None) => None,
        _ => return Err(Fault::unreadable("the card of a registration")),
    };
    Ok(Registration {
        name: text(row, 0)?.into(),
        role: AgentName::from(text(row, 1)?),
        instance: text(row, 2)?.to_owned(),
        owner: Owner { tenant: TenantId::from(text(row, 3)?), principal: text(row, 4)?.into() },
        declaration,
        session: session.map(|id| MemberId(u128::from_be_bytes(id))),
        card,
        created: Timestamp::from_millis(row.get(11)?),
        last_seen: Timestamp::from_millis(row.get(12)?),
    })
}
