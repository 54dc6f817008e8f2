//! Checks of the notifications of changes by other members.

use std::sync::Arc;

use super::{
    super::{Append, Change, Changes, Conversation, MemberKind, Store, TaskVersion},
    DEAD, LIVING, OTHER, claim, create, die, finish, join, key, owner,
};

/// Waits for this change or for `Change::All`. Returns the changes before it.
pub(super) async fn await_change(changes: &mut Changes, wanted: &Change) -> Vec<Change> {
    let mut seen = Vec::new();
    loop {
        let change = changes.next().await;
        if change == *wanted || change == Change::All {
            return seen;
        }
        seen.push(change);
    }
}

fn task(name: &str) -> Change {
    Change::Task(key(name))
}

pub(super) async fn a_member_is_notified_of_changes_by_others(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    let mut changes = store.changes(OTHER);
    store.append(create(key("t"), 1)).await.unwrap();
    await_change(&mut changes, &task("t")).await;
    await_change(&mut changes, &Change::Work("echo".into())).await;
    // A member gets no notification of its own changes.
    store.append(Append { writer: OTHER, ..create(key("own"), 1) }).await.unwrap();
    store.append(claim(key("t"), LIVING)).await.unwrap();
    assert!(!await_change(&mut changes, &task("t")).await.contains(&task("own")));
    let mut release = Append { expect: TaskVersion::new(1, 1), ..claim(key("t"), LIVING) };
    release.header.run.holder = None;
    release.header.run.epoch = 2;
    release.header.run.unread = vec![1];
    store.append(release).await.unwrap();
    let before = await_change(&mut changes, &Change::Work("echo".into())).await;
    assert!(before.iter().all(|change| *change == task("t")), "{before:?}");
    let end = Append { expect: TaskVersion::new(1, 2), ..finish(key("t"), 2) };
    store.append(end).await.unwrap();
    await_change(&mut changes, &task("t")).await;
}

pub(super) async fn a_member_is_notified_of_due_tasks(store: Arc<dyn Store>) {
    for member in [OTHER, DEAD] {
        join(&*store, member).await;
    }
    let work = Change::Work("echo".into());
    let mut changes = store.changes(OTHER);
    store.enable_serial(&"echo".into()).await.unwrap();
    for name in ["a", "b"] {
        store.append(create(key(name), 1)).await.unwrap();
        await_change(&mut changes, &work).await;
    }
    // The next task of the conversation can begin.
    store.append(claim(key("a"), LIVING)).await.unwrap();
    let conversation = Conversation { owner: owner("acme", "ann"), context: "chat".into() };
    store.unlock_conversation(&"echo".into(), &conversation, LIVING).await.unwrap();
    await_change(&mut changes, &work).await;
    // A task of a dead member can be claimed.
    store.append(claim(key("b"), DEAD)).await.unwrap();
    await_change(&mut changes, &task("b")).await;
    die(&*store, DEAD).await;
    await_change(&mut changes, &work).await;
}

pub(super) async fn a_slow_member_is_notified_that_anything_may_have_changed(
    store: Arc<dyn Store>,
) {
    join(&*store, OTHER).await;
    let mut changes = store.changes(OTHER);
    for number in 0..1500 {
        store.append(create(key(&format!("t{number}")), 1)).await.unwrap();
    }
    // Either all changes, or `Change::All` in place of some.
    let mut seen = 0;
    while seen < 1500 {
        match changes.next().await {
            Change::Task(_) => seen += 1,
            Change::Work(_) | Change::Keys | Change::Webhooks | Change::Registrations => {}
            Change::All => break,
        }
    }
    // New changes arrive after that.
    store.append(create(key("new"), 2)).await.unwrap();
    await_change(&mut changes, &task("new")).await;
}

pub(super) async fn a_store_with_two_nodes_is_shared(store: Arc<dyn Store>) {
    store.join(DEAD, MemberKind::Worker, "worker").await.unwrap();
    join(&*store, OTHER).await;
    assert!(store.is_shared());
    store.leave(OTHER).await.unwrap();
    assert!(store.is_shared(), "it stays shared until it is closed");
}
