//! Checks of the audit log: its chain, its pages, its retention.

use std::sync::Arc;

use herald_protocol::Timestamp;

use super::{
    super::{
        AuditActor, AuditEntry, AuditQuery, AuditRecord, AuditRetention, ChainFault,
        ChainFaultKind, ChainLink, Store, verify_audit,
    },
    api_keys::act,
    owner,
};

/// Every record, read in pages of three.
pub(super) async fn all(store: &dyn Store, query: AuditQuery) -> Vec<AuditRecord> {
    let (mut records, mut after) = (Vec::new(), None);
    loop {
        let page = AuditQuery { after, limit: 3, ..query.clone() };
        let page = store.read_audit(page).await.unwrap();
        assert!(page.records.len() <= 3);
        records.extend(page.records);
        after = page.next;
        if after.is_none() {
            return records;
        }
    }
}

async fn verify(store: &dyn Store, kept: Option<ChainLink>) -> Result<ChainLink, ChainFault> {
    verify_audit(store, kept, |done, of| assert!(done <= of)).await.unwrap()
}

fn refusal(tenant: &str, principal: &str, reason: &str) -> AuditEntry {
    let actor = AuditActor {
        tenant: tenant.into(),
        principal: principal.into(),
        credential: "key".into(),
        credential_id: Some("k1".into()),
    };
    AuditEntry {
        address: Some("192.0.2.7".into()),
        refused: Some(reason.into()),
        detail: r#"{"count":3}"#.into(),
        request: Some("r1".into()),
        ..AuditEntry::new(actor, "auth.refused").on("task", "t1", Some(owner("acme", "ünï")))
    }
}

pub(super) async fn audit_records_are_read_as_they_were_written(store: Arc<dyn Store>) {
    assert_eq!(verify(&*store, None).await, Ok(ChainLink::default()));
    let subject_without_owner = act("key.create").on("key", "k", None);
    let entries = [act("a"), refusal("acme", "ünï", "expired"), subject_without_owner];
    store.append_audit(entries[..2].to_vec()).await.unwrap();
    store.append_audit(entries[2..].to_vec()).await.unwrap();
    store.append_audit(Vec::new()).await.unwrap();
    let query = AuditQuery { oldest_first: true, ..AuditQuery::default() };
    let records = all(&*store, query).await;
    let found: Vec<_> = records.iter().map(|record| record.entry.clone()).collect();
    assert_eq!(found, entries);
    let mut last = ChainLink::default();
    for record in &records {
        let same = AuditRecord::after(last, record.at, record.entry.clone());
        assert_eq!(*record, same);
        last = record.link();
    }
    assert_eq!(last.number, 3);
    assert_eq!(verify(&*store, None).await, Ok(last));
    assert_eq!(verify(&*store, Some(records[1].link())).await, Ok(last));
    let foreign = ChainLink { number: 2, hash: [7; 32] };
    let replaced = ChainFault { number: 2, kind: ChainFaultKind::Replaced };
    assert_eq!(verify(&*store, Some(foreign)).await, Err(replaced));
    let later = ChainLink { number: 9, hash: [7; 32] };
    let truncated = ChainFault { number: 4, kind: ChainFaultKind::Truncated };
    assert_eq!(verify(&*store, Some(later)).await, Err(truncated));
}

pub(super) async fn audit_records_are_filtered(store: Arc<dyn Store>) {
    for round in 0..5 {
        let entries = vec![
            refusal("acme", "ann", &format!("expired {round}")),
            refusal("acme", "bob", "scope"),
            refusal("other", "ann", "scope"),
            act("key.create"),
            act("keyboard.press"),
        ];
        store.append_audit(entries).await.unwrap();
    }
    let numbers = async |query: AuditQuery| {
        let records = all(&*store, query).await;
        records.into_iter().map(|record| record.number).collect::<Vec<_>>()
    };
    let everything = AuditQuery { oldest_first: true, ..AuditQuery::default() };
    assert_eq!(numbers(everything.clone()).await, (1..=25).collect::<Vec<_>>());
    assert_eq!(numbers(AuditQuery::default()).await, (1..=25).rev().collect::<Vec<_>>());
    let query = |tenant: Option<&str>, principal: Option<&str>, action: Option<&str>| AuditQuery {
        tenant: tenant.map(Into::into),
        principal: principal.map(Into::into),
        action: action.map(Into::into),
        ..everything.clone()
    };
    let ann = query(Some("acme"), Some("ann"), None);
    assert_eq!(numbers(ann.clone()).await, [1, 6, 11, 16, 21]);
    let newest = AuditQuery { oldest_first: false, ..ann };
    assert_eq!(numbers(newest).await, [21, 16, 11, 6, 1]);
    assert_eq!(numbers(query(None, Some("ann"), None)).await.len(), 10);
    assert_eq!(numbers(query(None, None, Some("key."))).await, [4, 9, 14, 19, 24]);
    assert_eq!(numbers(query(None, None, Some("key"))).await.len(), 10);
    assert!(numbers(query(Some("nobody"), None, None)).await.is_empty());
    let records = all(&*store, everything.clone()).await;
    let since = |since: Timestamp, oldest_first| {
        let since = Some(since);
        numbers(AuditQuery { since, oldest_first, ..AuditQuery::default() })
    };
    let later = Timestamp::from_millis(records[24].at.as_millis() + 1);
    for oldest_first in [true, false] {
        assert_eq!(since(records[0].at, oldest_first).await.len(), 25);
        assert!(since(later, oldest_first).await.is_empty());
    }
}

pub(super) async fn audit_retention_keeps_the_chain(store: Arc<dyn Store>) {
    for _ in 0..20 {
        store.append_audit(vec![act("a")]).await.unwrap();
    }
    let everything = AuditQuery { oldest_first: true, ..AuditQuery::default() };
    let records = all(&*store, everything.clone()).await;
    assert_eq!(store.sweep_audit(AuditRetention::default(), 100).await, Ok(0));
    let keep = |records| AuditRetention { before: None, records: Some(records) };
    assert_eq!(store.sweep_audit(keep(20), 100).await, Ok(0));
    assert_eq!(store.sweep_audit(keep(12), 5).await, Ok(5), "at most the limit");
    assert_eq!(store.sweep_audit(keep(12), 5).await, Ok(3));
    assert_eq!(store.sweep_audit(keep(12), 5).await, Ok(0));
    assert_eq!(all(&*store, everything.clone()).await, records[8..]);
    let ends = store.audit_ends().await.unwrap();
    assert_eq!((ends.checkpoint, ends.head), (records[7].link(), records[19].link()));
    assert_eq!(verify(&*store, None).await, Ok(records[19].link()));
    // By age: all of them, and the chain continues.
    let later = Timestamp::from_millis(records[19].at.as_millis() + 1);
    let old = |before| AuditRetention { before: Some(before), records: None };
    assert_eq!(store.sweep_audit(old(records[0].at), 100).await, Ok(0));
    assert_eq!(store.sweep_audit(old(later), 100).await, Ok(12));
    assert_eq!(verify(&*store, None).await, Ok(records[19].link()));
    store.append_audit(vec![act("b")]).await.unwrap();
    let after = all(&*store, everything).await;
    assert_eq!((after.len(), after[0].number, after[0].previous), (1, 21, records[19].hash));
    assert_eq!(verify(&*store, None).await, Ok(after[0].link()));
}
