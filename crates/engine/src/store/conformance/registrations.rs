//! Checks of registrations: what is stored, who may replace it, signs of life, pages.

use std::sync::Arc;

use super::{
    super::{
        AuditQuery, Change, Declaration, DeclaredSkill, MemberId, NewRegistration, PinnedCard,
        Registration, Store, StoreError,
    },
    OTHER,
    api_keys::act,
    at,
    changes::await_change,
    join, owner,
};

/// A worker that was last seen at this time.
fn worker(name: &str, seen: i64) -> Registration {
    let (role, instance) = name.split_once(':').unwrap();
    Registration {
        name: name.into(),
        role: role.into(),
        instance: instance.to_owned(),
        owner: owner("acme", "ann"),
        declaration: Declaration {
            description: "Reviews, with ünï \"quotes\"".to_owned(),
            skills: vec![DeclaredSkill {
                id: "review".to_owned(),
                tags: vec!["python".to_owned()],
                ..DeclaredSkill::default()
            }],
            labels: vec!["gpu".to_owned()],
            concurrency: 7,
            ..Declaration::default()
        },
        session: Some(MemberId(0xfeed)),
        card: None,
        created: at(1),
        last_seen: at(seen),
    }
}

fn remote(name: &str) -> Registration {
    let card = PinnedCard {
        url: "https://other.example.com".to_owned(),
        digest: "00ff".to_owned(),
        document: "{}".to_owned(),
        changed_to: None,
    };
    let (name, role) = (name.into(), name.into());
    let (session, card, instance) = (None, Some(card), String::new());
    Registration { name, role, instance, session, card, ..worker("a:b", 1) }
}

async fn put(
    store: &dyn Store,
    registration: Registration,
    alive_since: i64,
) -> Result<Option<Registration>, StoreError> {
    let alive_since = at(alive_since);
    let audit = act("agent.register");
    store.put_registration(NewRegistration { registration, alive_since, audit }).await
}

async fn names(store: &dyn Store) -> Vec<String> {
    let found = store.registrations(None, 100).await.unwrap();
    found.into_iter().map(|one| one.name.to_string()).collect()
}

async fn actions(store: &dyn Store) -> Vec<String> {
    let query = AuditQuery { oldest_first: true, limit: 100, ..AuditQuery::default() };
    let page = store.read_audit(query).await.unwrap();
    page.records.iter().map(|record| record.entry.action.to_string()).collect()
}

pub(super) async fn a_registration_is_found_as_it_was_stored(store: Arc<dyn Store>) {
    for one in [worker("role:host:1", 5), remote("remote")] {
        assert_eq!(put(&*store, one.clone(), 0).await, Ok(None));
        assert_eq!(store.find_registration(&one.name).await, Ok(Some(one)));
    }
    assert_eq!(store.find_registration("role").await, Ok(None));
    assert_eq!(names(&*store).await, ["remote", "role:host:1"]);
    let removed = store.remove_registration("remote", act("agent.remove")).await;
    assert_eq!(removed, Ok(Some(remote("remote"))));
    let again = store.remove_registration("remote", act("agent.remove")).await;
    assert_eq!(again, Ok(None));
    assert_eq!(names(&*store).await, ["role:host:1"]);
    let all = ["agent.register", "agent.register", "agent.remove"];
    assert_eq!(actions(&*store).await, all, "only acts that were done are recorded");
}

pub(super) async fn a_living_registration_is_replaced_by_its_owner_only(store: Arc<dyn Store>) {
    let first = worker("role:host:1", 5);
    put(&*store, first.clone(), 0).await.unwrap();
    let mut second = Registration { session: Some(MemberId(2)), ..worker("role:host:1", 6) };
    assert_eq!(put(&*store, second.clone(), 0).await, Ok(Some(first)));
    let foreign = Registration { owner: owner("acme", "eve"), ..worker("role:host:1", 9) };
    assert_eq!(put(&*store, foreign.clone(), 6).await, Err(StoreError::Conflict));
    assert_eq!(store.find_registration("role:host:1").await, Ok(Some(second.clone())));
    // Once it was not seen for long enough, the name is free.
    assert_eq!(put(&*store, foreign.clone(), 7).await, Ok(Some(second.clone())));
    assert_eq!(store.find_registration("role:host:1").await, Ok(Some(foreign)));
    assert_eq!(actions(&*store).await.len(), 3, "a refused write is not recorded");
    // A remote agent has no signs of life, and a name belongs to one kind.
    put(&*store, remote("other"), 0).await.unwrap();
    let foreign = Registration { owner: owner("acme", "eve"), ..remote("other") };
    assert_eq!(put(&*store, foreign, 99).await, Err(StoreError::Conflict));
    second.name = "other".into();
    assert_eq!(put(&*store, second, 99).await, Err(StoreError::Conflict));
}

pub(super) async fn signs_of_life_are_recorded(store: Arc<dyn Store>) {
    put(&*store, worker("role:host:1", 5), 0).await.unwrap();
    let seen = vec![("role:host:1".into(), at(9)), ("unknown:host:1".into(), at(9))];
    store.record_seen(seen).await.unwrap();
    // A late report of another node does not turn the time back.
    store.record_seen(vec![("role:host:1".into(), at(7))]).await.unwrap();
    let found = store.find_registration("role:host:1").await.unwrap().unwrap();
    assert_eq!(found.last_seen, at(9));
    assert_eq!(store.find_registration("unknown:host:1").await, Ok(None));
}

pub(super) async fn unseen_workers_are_removed_and_remote_agents_stay(store: Arc<dyn Store>) {
    for number in 1..=5 {
        put(&*store, worker(&format!("role:host:{number}"), number), 0).await.unwrap();
    }
    put(&*store, remote("remote"), 0).await.unwrap();
    let removed = store.remove_unseen(at(4), 2).await.unwrap();
    assert_eq!(removed, ["role:host:1".into(), "role:host:2".into()]);
    assert_eq!(store.remove_unseen(at(4), 9).await.unwrap(), ["role:host:3".into()]);
    assert!(store.remove_unseen(at(4), 9).await.unwrap().is_empty());
    assert_eq!(names(&*store).await, ["remote", "role:host:4", "role:host:5"]);
}

pub(super) async fn registrations_are_listed_in_pages(store: Arc<dyn Store>) {
    for number in 0..7 {
        put(&*store, worker(&format!("role:host:{number}"), 1), 0).await.unwrap();
    }
    let (mut found, mut after) = (Vec::new(), None::<Arc<str>>);
    loop {
        let page = store.registrations(after.as_deref(), 3).await.unwrap();
        assert!(page.len() <= 3);
        let Some(last) = page.last() else { break };
        after = Some(Arc::clone(&last.name));
        found.extend(page.into_iter().map(|one| one.name.to_string()));
    }
    assert_eq!(found, names(&*store).await);
    assert_eq!(found.len(), 7);
}

pub(super) async fn a_changed_card_is_recorded(store: Arc<dyn Store>) {
    put(&*store, remote("remote"), 0).await.unwrap();
    let card = async || store.find_registration("remote").await.unwrap().unwrap().card.unwrap();
    let other = Some("ab".to_owned());
    assert_eq!(store.record_card_change("remote", other.clone()).await, Ok(true));
    assert_eq!((card().await.changed_to, card().await.digest), (other, "00ff".to_owned()));
    assert_eq!(store.record_card_change("remote", None).await, Ok(true));
    assert_eq!(card().await.changed_to, None);
    assert_eq!(store.record_card_change("unknown", None).await, Ok(false));
}

pub(super) async fn all_members_are_notified_of_registrations(store: Arc<dyn Store>) {
    join(&*store, OTHER).await;
    let mut all = [store.changes(super::LIVING), store.changes(OTHER)];
    put(&*store, worker("role:host:1", 1), 0).await.unwrap();
    for changes in &mut all {
        await_change(changes, &Change::Registrations).await;
    }
    store.remove_unseen(at(9), 1).await.unwrap();
    for changes in &mut all {
        await_change(changes, &Change::Registrations).await;
    }
}
