//! Checks of owners: their usage, and the owners of a task id.

use std::sync::Arc;

use super::{
    super::{Append, Key, Owner, OwnerQuery, Retention, Scope, Store, TaskVersion, Usage},
    LIVING, at, claim, create, finish, finished, key, owner,
};

fn key_of(tenant: &str, principal: &str, task: &str) -> Key {
    Key { owner: owner(tenant, principal), task: task.into() }
}

pub(super) async fn owners_of_a_task_are_found_in_a_scope(store: Arc<dyn Store>) {
    for (tenant, principal, task) in [
        ("acme", "ann", "t"),
        ("acme", "bob", "t"),
        ("other", "ann", "t"),
        ("", "", "t"),
        ("acme", "bob", "u"),
    ] {
        store.append(create(key_of(tenant, principal, task), 1)).await.unwrap();
    }
    let (ann, bob) = (owner("acme", "ann"), owner("acme", "bob"));
    let find = async |scope: Scope, task: &str, limit| {
        store.owners_of(&scope, &task.into(), limit).await.unwrap()
    };
    assert_eq!(find(Scope::Own(ann.clone()), "t", 9).await, std::slice::from_ref(&ann));
    assert!(find(Scope::Own(ann.clone()), "u", 9).await.is_empty());
    assert!(find(Scope::Own(owner("acme", "eve")), "t", 9).await.is_empty());
    assert_eq!(find(Scope::Tenant("acme".into()), "t", 9).await, [ann.clone(), bob.clone()]);
    assert_eq!(find(Scope::Tenant("acme".into()), "u", 9).await, std::slice::from_ref(&bob));
    assert!(find(Scope::Tenant("nobody".into()), "t", 9).await.is_empty());
    let all = [owner("", ""), ann, bob, owner("other", "ann")];
    assert_eq!(find(Scope::All, "t", 9).await, all);
    assert_eq!(find(Scope::All, "t", 2).await, all[..2]);
    assert!(find(Scope::All, "v", 9).await.is_empty());
}

pub(super) async fn usage_follows_the_states_of_tasks(store: Arc<dyn Store>) {
    let ann = Scope::Own(owner("acme", "ann"));
    let usage = async |scope: &Scope| store.usage(scope).await.unwrap();
    assert_eq!(usage(&ann).await, Usage::default());
    store.append(create(key("t"), 1)).await.unwrap();
    let queued = Usage { active: 1, queued: 1, tasks: 1, bytes: 5 };
    assert_eq!(usage(&ann).await, queued);
    store.append(claim(key("t"), LIVING)).await.unwrap();
    let working = usage(&ann).await;
    assert_eq!((working.active, working.queued, working.tasks), (1, 0, 1));
    let end = Append { expect: TaskVersion::new(1, 1), ..finish(key("t"), 2) };
    store.append(end).await.unwrap();
    assert_eq!(usage(&ann).await, Usage { active: 0, queued: 0, tasks: 1, bytes: 27 });
    // A direct answer is active and has bytes, but is not a task.
    let mut hidden = create(key("hidden"), 3);
    hidden.header.hidden = true;
    store.append(hidden).await.unwrap();
    assert_eq!(usage(&ann).await, Usage { active: 1, queued: 0, tasks: 1, bytes: 32 });
    // The tenant and all owners are sums.
    store.append(create(key_of("acme", "bob", "t"), 4)).await.unwrap();
    store.append(create(key_of("other", "ann", "t"), 4)).await.unwrap();
    let tenant = Usage { active: 2, queued: 1, tasks: 2, bytes: 37 };
    assert_eq!(usage(&Scope::Tenant("acme".into())).await, tenant);
    let all = Usage { active: 3, queued: 2, tasks: 3, bytes: 42 };
    assert_eq!(usage(&Scope::All).await, all);
    assert_eq!(usage(&Scope::Tenant("nobody".into())).await, Usage::default());
    // Retention returns what it removes.
    let retention = Retention { ended_before: Some(at(9)), tasks: None, bytes: None };
    assert_eq!(store.sweep(retention, 9).await, Ok(1));
    assert_eq!(usage(&ann).await, Usage { active: 1, queued: 0, tasks: 0, bytes: 5 });
}

pub(super) async fn owners_are_listed_in_pages(store: Arc<dyn Store>) {
    let all = [
        owner("", ""),
        owner("", "ann"),
        owner("acme", ""),
        owner("acme", "ann"),
        owner("acme", "ünï"),
        owner("other", "ann"),
    ];
    for (number, owner) in all.iter().rev().enumerate() {
        for task in 0..=number {
            let key = Key { owner: owner.clone(), task: task.to_string().as_str().into() };
            finished(&*store, key, 1).await;
        }
    }
    let list = async |tenant: Option<&str>, limit: usize| {
        let (mut found, mut after): (Vec<(Owner, Usage)>, _) = (Vec::new(), None);
        loop {
            let query = OwnerQuery { tenant: tenant.map(Into::into), after, limit };
            let page = store.owners(query).await.unwrap();
            assert!(page.len() <= limit);
            let Some((last, _)) = page.last() else { return found };
            after = Some(last.clone());
            found.extend(page);
        }
    };
    for limit in [1, 2, 5, 100] {
        let found = list(None, limit).await;
        let names: Vec<_> = found.iter().map(|(owner, _)| owner.clone()).collect();
        assert_eq!(names, all);
        let tasks: Vec<_> = found.iter().map(|(_, usage)| usage.tasks).collect();
        assert_eq!(tasks, [6, 5, 4, 3, 2, 1]);
        let acme: Vec<_> = list(Some("acme"), limit).await;
        assert_eq!(acme, found[2..5]);
        assert_eq!(list(Some(""), limit).await, found[..2]);
    }
    assert!(list(Some("nobody"), 9).await.is_empty());
}

pub(super) async fn the_status_of_a_store_has_its_numbers(store: Arc<dyn Store>) {
    let empty = store.status().await.unwrap();
    assert_eq!((empty.usage, empty.oldest), (Usage::default(), None));
    finished(&*store, key("t"), 1).await;
    let status = store.status().await.unwrap();
    assert_eq!((status.usage.tasks, status.usage.bytes), (1, 27));
    assert!(status.oldest.is_some() && status.schema > 0);
    assert_eq!(status.audit, store.audit_ends().await.unwrap());
}
