//! Checks of retention.

use std::sync::Arc;

use herald_protocol::TaskState;

use super::{
    super::{Append, Header, Kind, ListQuery, Loaded, Retention, Scope, Store, TaskVersion},
    Key, LIVING, at, body, create, dedup, finish, finished, header, key, owner,
};

const FOREVER: Retention = Retention { ended_before: None, tasks: None, bytes: None };

async fn left(store: &dyn Store, tenant: &str, principal: &str) -> Vec<String> {
    let query = ListQuery {
        scope: Scope::Own(owner(tenant, principal)),
        agent: None,
        context: None,
        state: None,
        since: None,
        after: None,
        limit: 1000,
        artifacts: false,
    };
    let listing = store.list(query).await.unwrap();
    assert_eq!(listing.total, listing.tasks.len() as u64);
    listing.tasks.into_iter().map(|(key, _)| key.task.to_string()).collect()
}

pub(super) async fn old_tasks_are_removed_first(store: Arc<dyn Store>) {
    for number in [3, 1, 2, 5, 4] {
        finished(&*store, key(&format!("t{number}")), number).await;
    }
    let old = Retention { ended_before: Some(at(5)), ..FOREVER };
    assert_eq!(store.sweep(old.clone(), 2).await, Ok(2));
    assert_eq!(left(&*store, "acme", "ann").await, ["t5", "t4", "t3"]);
    assert_eq!(store.sweep(old.clone(), 10).await, Ok(2));
    assert_eq!(store.sweep(old, 10).await, Ok(0));
    assert_eq!(left(&*store, "acme", "ann").await, ["t5"]);
    assert_eq!(store.load(&key("t1"), None, u64::MAX).await, Ok(Loaded::Gone));
    let page = store.read(&key("t1"), 0, 10).await.unwrap();
    assert!(page.closed && page.entries.is_empty());
}

pub(super) async fn only_finished_tasks_are_removed(store: Arc<dyn Store>) {
    for state in TaskState::ALL {
        let key = key(state.proto_name());
        store.append(create(key.clone(), 1)).await.unwrap();
        store.append(Append { header: header(state, 1), ..finish(key, 1) }).await.unwrap();
    }
    // Ended, but a member still holds it.
    store.append(create(key("held"), 1)).await.unwrap();
    let mut held = finish(key("held"), 1);
    held.header.run.holder = Some(LIVING);
    store.append(held).await.unwrap();
    // The log of a direct answer is removed too, although no list shows it.
    let hidden =
        |append: Append| Append { header: Header { hidden: true, ..append.header }, ..append };
    store.append(hidden(create(key("hidden"), 1))).await.unwrap();
    store.append(hidden(finish(key("hidden"), 1))).await.unwrap();

    let nothing = Retention { ended_before: Some(at(99)), tasks: Some(0), bytes: Some(0) };
    assert_eq!(store.sweep(nothing, 100).await, Ok(5));
    let mut left = left(&*store, "acme", "ann").await;
    left.sort_unstable();
    let states = ["AUTH_REQUIRED", "INPUT_REQUIRED", "SUBMITTED", "WORKING"];
    let mut expected = states.map(|state| format!("TASK_STATE_{state}")).to_vec();
    expected.push("held".into());
    assert_eq!(left, expected);
    assert_eq!(store.load(&key("hidden"), None, u64::MAX).await, Ok(Loaded::Gone));
}

pub(super) async fn excess_tasks_are_removed_per_tenant(store: Arc<dyn Store>) {
    for number in 0..10 {
        let principal = if number % 2 == 0 { "ann" } else { "bob" };
        let task = format!("t{number}").as_str().into();
        finished(&*store, Key { owner: owner("acme", principal), task }, number).await;
    }
    let other = Key { owner: owner("other", "ann"), task: "t".into() };
    finished(&*store, other, 0).await;
    store.append(create(key("running"), 0)).await.unwrap();

    let few = Retention { tasks: Some(4), ..FOREVER };
    assert_eq!(store.sweep(few.clone(), 3).await, Ok(3));
    assert_eq!(store.sweep(few.clone(), 100).await, Ok(4));
    assert_eq!(store.sweep(few, 100).await, Ok(0));
    // There were eleven. The running task counts, and the newest stay.
    assert_eq!(left(&*store, "acme", "ann").await, ["t8", "running"]);
    assert_eq!(left(&*store, "acme", "bob").await, ["t9", "t7"]);
    assert_eq!(left(&*store, "other", "ann").await, ["t"]);
}

pub(super) async fn excess_bytes_are_removed_per_tenant(store: Arc<dyn Store>) {
    for number in 0..10 {
        for tenant in ["acme", "other"] {
            let key = Key { owner: owner(tenant, "ann"), ..key(&format!("t{number}")) };
            store.append(create(key.clone(), number)).await.unwrap();
            // Chunks that change no status must be counted at the end.
            let mut chunk = create(key.clone(), number);
            chunk.expect = TaskVersion::new(1, 0);
            chunk.header.bytes = 60;
            chunk.events = vec![(Kind::Artifact, body("chunk"))];
            store.append(chunk).await.unwrap();
            let mut end = Append { expect: TaskVersion::new(2, 0), ..finish(key, number) };
            end.header.bytes = if tenant == "acme" { 100 } else { 10 };
            store.append(end).await.unwrap();
        }
    }
    let small = Retention { bytes: Some(350), ..FOREVER };
    assert_eq!(store.sweep(small.clone(), 100).await, Ok(7));
    assert_eq!(store.sweep(small, 100).await, Ok(0));
    assert_eq!(left(&*store, "acme", "ann").await, ["t9", "t8", "t7"]);
    assert_eq!(left(&*store, "other", "ann").await.len(), 10);
}

pub(super) async fn keys_are_removed_with_their_task(store: Arc<dyn Store>) {
    for (number, task) in [(1, "old"), (2, "new")] {
        let send = Append { dedup: Some(dedup(number, 7)), ..create(key(task), 1) };
        store.append(send).await.unwrap();
        store.append(finish(key(task), i64::from(number))).await.unwrap();
    }
    let old = Retention { ended_before: Some(at(2)), ..FOREVER };
    assert_eq!(store.sweep(old, 10).await, Ok(1));
    assert_eq!(store.original(&[1; 32]).await, Ok(None));
    assert_eq!(store.original(&[2; 32]).await.unwrap().unwrap().key.task.as_str(), "new");
    // The id and the key can be used again.
    let again = Append { dedup: Some(dedup(1, 8)), ..create(key("old"), 3) };
    assert_eq!(store.append(again).await, Ok(1));
    assert_eq!(store.read(&key("old"), 0, 10).await.unwrap().entries.len(), 1);
}

pub(super) async fn nothing_is_removed_without_a_limit(store: Arc<dyn Store>) {
    finished(&*store, key("t"), 1).await;
    assert_eq!(store.sweep(FOREVER, 100).await, Ok(0));
    let roomy = Retention { ended_before: Some(at(1)), tasks: Some(1), bytes: Some(27) };
    assert_eq!(store.sweep(roomy.clone(), 100).await, Ok(0));
    assert_eq!(store.sweep(Retention { tasks: Some(0), ..roomy }, 0).await, Ok(0));
    assert_eq!(left(&*store, "acme", "ann").await, ["t"]);
}

pub(super) async fn a_removed_owner_can_store_tasks_again(store: Arc<dyn Store>) {
    for round in 0..3 {
        for number in 0..5 {
            finished(&*store, key(&format!("t{number}")), round * 10 + number).await;
        }
        let next = Key { owner: owner("other", &round.to_string()), ..key("t") };
        finished(&*store, next, round * 10).await;
        assert_eq!(left(&*store, "acme", "ann").await, ["t4", "t3", "t2", "t1", "t0"]);
        assert_eq!(left(&*store, "other", &round.to_string()).await, ["t"]);
        let all = Retention { ended_before: Some(at(99)), ..FOREVER };
        assert_eq!(store.sweep(all, 100).await, Ok(6));
        assert!(left(&*store, "acme", "ann").await.is_empty());
    }
}
