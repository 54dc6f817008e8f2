//! Audit log in a file: damage and tampering are found and named, and never stop the writer.

use std::path::Path;

use herald_engine::store::{
    AuditActor, AuditEntry, ChainFault, ChainFaultKind, ChainLink, Store, verify_audit,
};
use rusqlite::Connection;

use crate::{bare, has, joined, open, task};

const RECORDS: u64 = 20;

fn act(action: &'static str) -> AuditEntry {
    AuditEntry::new(AuditActor { principal: "root".into(), ..AuditActor::default() }, action)
}

/// A database with 20 audit records, and the head of their chain.
async fn recorded(path: &Path) -> ChainLink {
    let store = bare(path);
    for _ in 0..RECORDS {
        store.append_audit(vec![act("test.act").on("key", "k", None)]).await.unwrap();
    }
    store.audit_ends().await.unwrap().head
}

async fn verify(store: &dyn Store, kept: Option<ChainLink>) -> Result<ChainLink, ChainFault> {
    verify_audit(store, kept, |_, _| {}).await.unwrap()
}

/// The first fault after these statements ran on a copy of the database.
async fn fault_after(change: &str, kept: bool) -> Result<ChainLink, ChainFault> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let head = recorded(&path).await;
    assert_eq!(verify(&bare(&path), Some(head)).await, Ok(head));
    Connection::open(&path).unwrap().execute_batch(change).unwrap();
    let store = joined(bare(&path)).await;
    let found = verify(&store, kept.then_some(head)).await;
    // The damage stops neither the audit log nor the writer.
    store.append_audit(vec![act("test.later")]).await.unwrap();
    store.append(task("t", vec![])).await.unwrap();
    assert!(has(&store, "t").await);
    if found.is_err() {
        assert!(verify(&store, kept.then_some(head)).await.is_err(), "later records hide nothing");
    }
    found
}

#[tokio::test]
async fn a_changed_removed_or_reordered_record_is_named() {
    let swap = "UPDATE audit SET number = -1 WHERE number = 7;
                UPDATE audit SET number = 7 WHERE number = 12;
                UPDATE audit SET number = 12 WHERE number = -1";
    for (change, number, kind) in [
        ("UPDATE audit SET principal = 'eve' WHERE number = 7", 7, ChainFaultKind::Changed),
        ("UPDATE audit SET at = at + 1 WHERE number = 7", 7, ChainFaultKind::Changed),
        ("UPDATE audit SET subject_id = 'x' WHERE number = 20", 20, ChainFaultKind::Changed),
        ("UPDATE audit SET subject_kind = NULL WHERE number = 7", 7, ChainFaultKind::Changed),
        ("UPDATE audit SET refused = 'x' WHERE number = 1", 1, ChainFaultKind::Changed),
        ("UPDATE audit SET hash = zeroblob(32) WHERE number = 7", 7, ChainFaultKind::Changed),
        ("UPDATE audit SET hash = x'00' WHERE number = 7", 7, ChainFaultKind::Removed),
        ("DELETE FROM audit WHERE number = 7", 7, ChainFaultKind::Removed),
        ("DELETE FROM audit WHERE number = 1", 1, ChainFaultKind::Removed),
        (swap, 7, ChainFaultKind::Reordered(12)),
        ("UPDATE audit SET number = 21 WHERE number = 20", 20, ChainFaultKind::Truncated),
    ] {
        let expected = Err(ChainFault { number, kind });
        assert_eq!(fault_after(change, false).await, expected, "{change}");
    }
}

#[tokio::test]
async fn a_truncated_log_is_found_by_its_head() {
    let truncated = |number| Err(ChainFault { number, kind: ChainFaultKind::Truncated });
    assert_eq!(fault_after("DELETE FROM audit WHERE number > 15", false).await, truncated(16));
    assert_eq!(fault_after("DELETE FROM audit", false).await, truncated(1));
    // Whoever also removes the head is found only by a head that was kept elsewhere.
    let all = "DELETE FROM audit; DELETE FROM meta WHERE key = 'audit_head'";
    assert_eq!(fault_after(all, true).await, truncated(1));
    assert_eq!(fault_after(all, false).await, Ok(ChainLink::default()));
    let checkpoint = "DELETE FROM audit WHERE number <= 10; \
                      DELETE FROM meta WHERE key = 'audit_checkpoint'";
    let removed = Err(ChainFault { number: 1, kind: ChainFaultKind::Removed });
    assert_eq!(fault_after(checkpoint, false).await, removed);
}

#[tokio::test]
async fn the_chain_continues_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("herald.db");
    let first = recorded(&path).await;
    let store = open(&path).await;
    store.append_audit(vec![act("test.later")]).await.unwrap();
    let head = verify(&store, Some(first)).await.unwrap();
    assert_eq!(head.number, RECORDS + 1);
}
