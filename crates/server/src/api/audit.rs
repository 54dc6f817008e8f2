//! Audit log and store.

use herald_api::{
    audit::{
        AuditFault, AuditFilter, AuditLogPage, AuditSubjectView, AuditVerification,
        AuditVerifyQuery, AuditView,
    },
    routes::Nothing,
    store::StoreView,
};
use herald_engine::store::{AuditQuery, AuditRecord, ChainLink};
use herald_protocol::{Error, TenantId};
use serde_json::value::RawValue;

use super::{ApiRequest, page_size};

pub(super) async fn list(
    request: &ApiRequest<'_>,
    filter: AuditFilter,
    _: Nothing,
) -> Result<AuditLogPage, Error> {
    let operator = request.operator();
    let (page_token, limit) = (filter.page_token, page_size(filter.page_size)?);
    let mut query = AuditQuery {
        tenant: filter.tenant.as_deref().map(TenantId::from),
        principal: filter.principal,
        action: filter.action,
        since: filter.since,
        ..AuditQuery::default()
    };
    let list = format!("audit {query:?}");
    let after = operator.open_token(&list, page_token.as_deref())?;
    query.after = after.and_then(|number| number.parse().ok());
    query.limit = limit;
    let page = operator.audit(query).await?;
    let next_page_token = page.next.map(|number| operator.token(&list, &number.to_string()));
    Ok(AuditLogPage { records: page.records.into_iter().map(view).collect(), next_page_token })
}

pub(super) async fn verify(
    request: &ApiRequest<'_>,
    query: AuditVerifyQuery,
    _: Nothing,
) -> Result<AuditVerification, Error> {
    let kept = match (query.number, query.hash) {
        (None, None) => None,
        (Some(number), Some(hash)) => Some(ChainLink { number, hash: read_hash(&hash)? }),
        (Some(_), None) | (None, Some(_)) => {
            return Err(Error::field("hash", "number and hash belong together"));
        }
    };
    let operator = request.operator();
    let ends = operator.audit_ends().await?;
    let (last, fault) = match operator.verify_audit(kept).await? {
        Ok(head) => (head, None),
        Err(fault) => {
            let message = fault.to_string();
            (ends.head, Some(AuditFault { number: fault.number, message }))
        }
    };
    let removed = ends.checkpoint.number;
    let verified = fault.as_ref().map_or(last.number, |fault| fault.number.saturating_sub(1));
    Ok(AuditVerification {
        ok: fault.is_none(),
        records: verified.saturating_sub(removed),
        removed,
        last: verified,
        hash: if fault.is_none() { hex(&last.hash) } else { String::new() },
        fault,
    })
}

pub(super) async fn store(
    request: &ApiRequest<'_>,
    _: Nothing,
    _: Nothing,
) -> Result<StoreView, Error> {
    let operator = request.operator();
    let (status, _) = operator.store().await?;
    let (is_durable, is_shared) = operator.store_kind();
    Ok(StoreView {
        is_durable,
        is_shared,
        is_writable: request.engine().ready().await.is_ok(),
        bytes: status.bytes,
        log_bytes: status.log_bytes,
        free_bytes: status.free_bytes,
        schema: status.schema,
        tasks: status.usage.tasks,
        active: status.usage.active,
        queued: status.usage.queued,
        oldest: status.oldest,
        audit_records: status.audit.head.number,
    })
}

fn view(record: AuditRecord) -> AuditView {
    let AuditRecord { number, at, entry, previous, hash } = record;
    let subject = entry.subject.map(|subject| AuditSubjectView {
        kind: subject.kind.into_owned(),
        id: subject.id.to_string(),
        tenant: subject.owner.as_ref().map(|owner| owner.tenant.to_string()),
        principal: subject.owner.as_ref().map(|owner| owner.principal.to_string()),
    });
    AuditView {
        number,
        at,
        tenant: entry.actor.tenant.to_string(),
        principal: entry.actor.principal.to_string(),
        credential: entry.actor.credential.into_owned(),
        credential_id: entry.actor.credential_id.map(|id| id.to_string()),
        address: entry.address.map(|address| address.to_string()),
        action: entry.action.into_owned(),
        subject,
        refused: entry.refused.map(|reason| reason.to_string()),
        // Facts are stored as JSON; anything else is left out.
        detail: RawValue::from_string(entry.detail.into_owned()).ok(),
        request: entry.request.map(|id| id.to_string()),
        previous: hex(&previous),
        hash: hex(&hash),
    }
}

fn hex(hash: &[u8; 32]) -> String {
    blake3::Hash::from_bytes(*hash).to_hex().to_string()
}

fn read_hash(text: &str) -> Result<[u8; 32], Error> {
    let hash = blake3::Hash::from_hex(text);
    hash.map(Into::into).map_err(|_| Error::field("hash", "must be 64 hexadecimal digits"))
}
