//! Notifications of changes between the members of one process.

use herald_engine::store::{
    Append, Change, MemberId, MemberKind, Store, flaky::Flaky, sqlite::Sqlite,
};

use crate::{ME, joined, key, task};

const OTHER: MemberId = MemberId(0x22);

#[tokio::test]
async fn a_store_is_shared_only_if_two_nodes_live_at_once() {
    let store = joined(Sqlite::memory().unwrap()).await;
    store.join(ME, MemberKind::Node, "again").await.unwrap();
    store.join(OTHER, MemberKind::Worker, "worker").await.unwrap();
    store.leave(ME).await.unwrap();
    store.join(MemberId(3), MemberKind::Node, "next").await.unwrap();
    assert!(!store.is_shared());
    store.join(MemberId(4), MemberKind::Node, "beside").await.unwrap();
    assert!(store.is_shared());
}

#[tokio::test]
async fn a_change_is_published_before_its_append_returns_unless_it_is_dropped() {
    let store = Flaky::new().unwrap();
    for member in [ME, OTHER] {
        store.join(member, MemberKind::Node, "first node").await.unwrap();
    }
    let mut changes = store.changes(OTHER);
    store.lose_changes(true);
    store.append(task("lost", Vec::new())).await.unwrap();
    store.lose_changes(false);
    store.append(Append { writer: OTHER, ..task("own", Vec::new()) }).await.unwrap();
    store.append(task("told", Vec::new())).await.unwrap();
    assert_eq!(changes.next().await, Change::Task(key("told")));
}
