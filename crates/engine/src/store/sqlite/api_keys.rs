//! API keys: creation, revocation and last uses as jobs of the writer; reads.

use herald_protocol::{AgentName, TenantId, Timestamp};
use rusqlite::{Connection, Row, params, types::ValueRef};
use serde::{Serialize, de::DeserializeOwned};

use crate::store::{
    ApiKey, ApiKeyId, ApiKeyQuery, AuditEntry, Change, Owner, StoreError, Visibility,
};

use super::{
    append::{Batch, JobResult},
    job::Work,
    members::NO_MEMBER,
    rows::{Fault, readable, size, text},
    statements as sql,
};

/// Stores a new key and the record of its creation.
#[derive(Debug)]
pub(super) struct AddApiKey(pub(super) Box<(ApiKey, AuditEntry)>);

/// Revokes a key and records it, unless the key was revoked before.
#[derive(Debug)]
pub(super) struct RevokeKey {
    pub(super) id: ApiKeyId,
    pub(super) at: Timestamp,
    pub(super) audit: Box<AuditEntry>,
}

/// Notes the last uses of keys.
#[derive(Debug)]
pub(super) struct RecordKeyUses(pub(super) Vec<(ApiKeyId, Timestamp)>);

impl Work for AddApiKey {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        let (key, audit) = &*self.0;
        let ApiKey { id, hash, owner, scopes, agents, skills, visibility, label, .. } = key;
        let millis = |time: Option<Timestamp>| time.map(Timestamp::as_millis);
        let added = batch.prepared.run(
            sql::ADD_API_KEY,
            params![
                id,
                hash,
                owner.tenant.as_str(),
                owner.principal,
                scopes.names().collect::<Vec<_>>().join(" "),
                agents.as_deref().map(to_json),
                skills.as_deref().map(to_json),
                visibility.map(Visibility::name),
                key.created.as_millis(),
                key.created_by,
                millis(key.expires),
                millis(key.last_used),
                millis(key.revoked),
                label,
            ],
        )?;
        if added == 0 {
            return Ok(Err(StoreError::Conflict));
        }
        batch.add_audit(audit.clone())?;
        batch.announce(NO_MEMBER, || Change::Keys);
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        1024
    }
}

impl Work for RevokeKey {
    type Answer = Option<ApiKey>;

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<Option<ApiKey>> {
        let revoked = params![self.id, self.at.as_millis()];
        if batch.prepared.run(sql::REVOKE_API_KEY, revoked)? > 0 {
            batch.add_audit((*self.audit).clone())?;
            batch.announce(NO_MEMBER, || Change::Keys);
        }
        find(batch.conn, &self.id).map(Ok)
    }
}

impl Work for RecordKeyUses {
    type Answer = ();

    fn run(&mut self, batch: &mut Batch<'_>) -> JobResult<()> {
        for (id, at) in &self.0 {
            batch.prepared.run(sql::USE_API_KEY, params![id, at.as_millis()])?;
        }
        Ok(Ok(()))
    }

    fn weight(&self) -> usize {
        64 * self.0.len()
    }
}

pub(super) fn find(conn: &Connection, id: &str) -> Result<Option<ApiKey>, Fault> {
    let mut find = conn.prepare_cached(sql::FIND_API_KEY)?;
    let mut rows = find.query([id])?;
    rows.next()?.map(read).transpose()
}

pub(super) fn find_by_hash(conn: &Connection, hash: &[u8; 32]) -> Result<Option<ApiKey>, Fault> {
    let mut find = conn.prepare_cached(sql::FIND_API_KEY_BY_HASH)?;
    let mut rows = find.query([hash.as_slice()])?;
    rows.next()?.map(read).transpose()
}

/// A page of keys. A key that cannot be read is skipped.
pub(super) fn list(conn: &Connection, query: &ApiKeyQuery) -> Result<Vec<ApiKey>, Fault> {
    let (after, limit) = (query.after.as_deref().unwrap_or_default(), size(query.limit));
    let statement = match query.tenant {
        Some(_) => sql::LIST_API_KEYS_OF_TENANT,
        None => sql::LIST_API_KEYS,
    };
    let mut find = conn.prepare_cached(statement)?;
    let mut rows = match &query.tenant {
        Some(tenant) => find.query(params![after, limit, tenant.as_str()])?,
        None => find.query(params![after, limit])?,
    };
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        keys.extend(readable(0, read(row))?);
    }
    Ok(keys)
}

/// The key of a row.
pub(super) fn read(row: &Row<'_>) -> Result<ApiKey, Fault> {
    let time = |column| -> Result<Option<Timestamp>, Fault> {
        Ok(row.get::<_, Option<i64>>(column)?.map(Timestamp::from_millis))
    };
    let agents: Option<Vec<String>> = from_json(row, 5)?;
    // A scope of a later version grants nothing here.
    let scopes = text(row, 4)?.split_whitespace().filter_map(|name| name.parse().ok()).collect();
    let visibility = optional(row, 7)?.map(Visibility::from_name);
    let visibility = visibility.map(|known| known.ok_or_else(|| Fault::unreadable("visibility")));
    Ok(ApiKey {
        id: text(row, 0)?.into(),
        hash: row.get(1)?,
        owner: Owner { tenant: TenantId::from(text(row, 2)?), principal: text(row, 3)?.into() },
        scopes,
        agents: agents.map(|names| names.iter().map(|name| AgentName::from(&**name)).collect()),
        skills: from_json(row, 6)?,
        visibility: visibility.transpose()?,
        created: Timestamp::from_millis(row.get(8)?),
        created_by: text(row, 9)?.into(),
        expires: time(10)?,
        last_used: time(11)?,
        revoked: time(12)?,
        label: text(row, 13)?.to_owned(),
    })
}

fn optional<'row>(row: &'row Row<'_>, column: usize) -> Result<Option<&'row str>, Fault> {
    if row.get_ref(column)? == ValueRef::Null { Ok(None) } else { text(row, column).map(Some) }
}

fn to_json(names: &[impl Serialize]) -> String {
    serde_json::to_string(names).expect("a list of strings is valid JSON")
}

fn from_json<T: DeserializeOwned>(row: &Row<'_>, column: usize) -> Result<Option<T>, Fault> {
    let Some(json) = optional(row, column)? else { return Ok(None) };
    serde_json::from_str(json).map(Some).map_err(|_| Fault::unreadable("a list of an API key"))
}
